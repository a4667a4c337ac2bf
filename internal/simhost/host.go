package simhost

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// HostSpec describes a host that is to be started.
type HostSpec struct {
	Name   string            // friendly name, and what the id is made from; default "sim"
	ID     string            // default: made from the lattice and the name
	Labels map[string]string // in addition to those of the hostcore.

	Builtins            bool // the builtin providers are enabled
	Secrets             bool // a secrets backend is configured; it has every secret whose reference exists
	NoComponentAuctions bool
	NoProviderAuctions  bool
}

// Host is one simulated host.
type Host struct {
	l       *Lattice
	id      string
	spec    HostSpec
	started time.Time
	subs    []*nats.Subscription

	labels     map[string]string
	components map[string]*component
	providers  map[string]*provider
	known      map[string]bool // configs that were used once: they need not exist any more
	overtaken  map[string][]func()

	componentGate gate
	providerGate  gate

	paused  bool // no heartbeats
	frozen  bool // nothing at all
	backlog []func()
	dead    bool
}

func newHost(l *Lattice, spec HostSpec) *Host {
	spec.Name = cmp.Or(spec.Name, "sim")
	h := &Host{
		l: l, spec: spec, started: l.opts.Clock.Now(),
		id: cmp.Or(spec.ID, publicKey('N', l.opts.Account+" "+l.opts.Lattice+" "+spec.Name)),
		labels: map[string]string{
			"hostcore.arch": "x86_64", "hostcore.os": "linux", "hostcore.osfamily": "unix",
		},
		components: map[string]*component{},
		providers:  map[string]*provider{},
		known:      map[string]bool{},
		overtaken:  map[string][]func(){},
	}
	maps.Copy(h.labels, spec.Labels)
	return h
}

// address is what a host subscribes to, alone or in a queue group.
type address struct{ subject, queue string }

func (h *Host) subscribe() error {
	category := func(name string) string { return h.l.ctl + name }
	subjects := []address{
		{category("registry.put"), ""},
		{category("host.ping"), ""},
		{category("link.*"), category("link")},
		{category("claims.get"), category("claims")},
		{category("component.*." + h.id), ""},
		{category("provider.*." + h.id), ""},
		{category("label.*." + h.id), ""},
		{category("host.*." + h.id), ""},
		{category("config.>"), category("config")},
	}
	if !h.spec.NoComponentAuctions {
		subjects = append(subjects, address{category("component.auction"), ""})
	}
	if !h.spec.NoProviderAuctions {
		subjects = append(subjects, address{category("provider.auction"), ""})
	}
	for _, s := range subjects {
		sub, err := h.l.nc.ChanQueueSubscribe(s.subject, s.queue, h.l.mail)
		if err != nil {
			return err
		}
		h.subs = append(h.subs, sub)
		h.l.owners[sub] = h
	}
	return nil
}

// unsubscribe makes the host deaf.
func (h *Host) unsubscribe() {
	for _, sub := range h.subs {
		delete(h.l.owners, sub)
		_ = sub.Unsubscribe() // fails only with the connection, which then forgets it
	}
	h.subs = nil
}

// bury makes the host deaf and silent for ever.
func (h *Host) bury() {
	h.unsubscribe()
	h.dead = true
	if h.l.hosts[h.id] == h {
		delete(h.l.hosts, h.id)
	}
	h.backlog = nil
}

// ID returns the host's id.
func (h *Host) ID() string { return h.id }

// Name returns the host's friendly name.
func (h *Host) Name() string { return h.spec.Name }

// Kill ends the host without goodbye. What it ran is gone with it.
func (h *Host) Kill() {
	h.locked(func() {
		if !h.dead {
			h.bury()
		}
	})
	_ = h.l.nc.FlushTimeout(settle) // without a server nobody hears the host anyway
}

// Stop ends the host cleanly: with host_stopped, and nothing else.
func (h *Host) Stop() {
	h.locked(func() {
		if !h.dead {
			h.goodbye()
		}
	})
	_ = h.l.nc.FlushTimeout(settle) // without a server nobody hears the host anyway
}

func (h *Host) goodbye() {
	h.unsubscribe()
	h.publish("host_stopped", subject{}, map[string]any{"labels": h.labels})
	h.bury()
}

// Pause makes the host's heartbeats stop; it lives and answers.
func (h *Host) Pause() { h.locked(func() { h.paused = true }) }

// Resume makes heartbeats go on in their old rhythm.
func (h *Host) Resume() { h.locked(func() { h.paused = false }) }

// Freeze makes the host stand still, as a stopped process does: it is
// subscribed, and neither answers nor publishes.
func (h *Host) Freeze() { h.locked(func() { h.frozen = true }) }

// Thaw makes the host go on with all that has come in the meantime.
func (h *Host) Thaw() {
	h.locked(func() {
		h.frozen = false
		backlog := h.backlog
		h.backlog = nil
		for _, f := range backlog {
			h.run(f)
		}
	})
}

func (h *Host) locked(f func()) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	f()
}

// run does something now unless the host is dead, or later if it is frozen.
func (h *Host) run(f func()) {
	switch {
	case h.dead:
	case h.frozen:
		h.backlog = append(h.backlog, f)
	default:
		f()
	}
}

// after does something when d has passed; at once if d is nothing.
func (h *Host) after(d time.Duration, f func()) {
	if d <= 0 {
		h.run(f)
		return
	}
	h.later(d, f)
}

// later does something when d has passed, and not at once.
func (h *Host) later(d time.Duration, f func()) {
	h.l.opts.Clock.AfterFunc(d, func() { h.locked(func() { h.run(f) }) })
}

// beat sends the n-th heartbeat when it is due, and so on. Those that were missed
// are made up for, one by one: others must come to their turns in between.
func (h *Host) beat(n int) {
	due := h.started.Add(time.Duration(n) * h.l.opts.Heartbeat)
	h.later(due.Sub(h.l.opts.Clock.Now()), func() {
		if !h.paused {
			h.heartbeat()
		}
		h.beat(n + 1)
	})
}

func (h *Host) heartbeat() {
	h.withInventory(func(i inventory) { h.publish("host_heartbeat", subject{}, i) })
}

// Inventory is what a host runs.
type Inventory struct {
	Components []Component       // by id
	Providers  []Provider        // by id
	Labels     map[string]string // those of the hostcore. too
}

// Component is a component that a host runs.
type Component struct {
	ID          string
	Image       string // as the host reports it
	Runs        string // the image whose code it runs
	Count       uint32
	Annotations map[string]string
	Config      []string // without secrets
}

// Provider is a provider that a host runs.
type Provider struct {
	ID          string
	Image       string // as the host reports it
	Annotations map[string]string
	Config      []string
}

// Inventory returns what the host runs, or ran when it ended.
func (h *Host) Inventory() Inventory {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	i := Inventory{Components: []Component{}, Providers: []Provider{}, Labels: maps.Clone(h.labels)}
	for _, id := range slices.Sorted(maps.Keys(h.components)) {
		c := h.components[id]
		i.Components = append(i.Components, Component{
			ID: id, Image: c.image, Runs: c.runs, Count: c.count,
			Annotations: maps.Clone(c.annotations), Config: slices.Clone(c.config),
		})
	}
	for _, id := range slices.Sorted(maps.Keys(h.providers)) {
		p := h.providers[id]
		i.Providers = append(i.Providers, Provider{
			ID: id, Image: p.image, Annotations: maps.Clone(p.annotations), Config: slices.Clone(p.config),
		})
	}
	return i
}

// isReserved says whether a label may not be put.
func isReserved(label string) bool { return strings.HasPrefix(strings.ToLower(label), "hostcore.") }
