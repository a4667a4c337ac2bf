package lattice

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tidewait/internal/scaler"
)

// Terms are how long hosts are believed to be alive.
type Terms struct {
	// Lease is how long a host is believed in after it was last heard of. Then
	// it is asked.
	Lease time.Duration
	// Grace is what is left of a lease when nobody listens for the host, and
	// what it has at least after a time in which nobody could be heard.
	Grace time.Duration
	// Questions is how many in a row stay unanswered before a lease that is over
	// is ended.
	Questions int
}

// Projection is what is known of a lattice. It has no clock: times are passed
// in, and never go back. It is not safe for concurrent use.
type Projection struct {
	terms   Terms
	hosts   map[string]*host
	gone    map[string]departure
	links   []scaler.Link
	configs map[string]*config // those that are wanted

	// seq counts what was folded in, and says which of an event and a question
	// came first.
	seq     uint64
	touched map[scaler.Tuple]uint64 // by events that no answer has confirmed yet
	told    uint64                  // what was asked about links before that is answered
	seen    []scaler.Host           // what scalers see; nil after a change
}

type host struct {
	name, version string
	labels        map[string]string
	born          time.Time // as far as its uptime tells
	seen, due     time.Time
	unanswered    int
	entries       map[key]Entry
	touched       map[key]uint64 // by events that no inventory has confirmed yet
	pinned        map[key]string // images that really run where the host claims others
	told          uint64         // what was asked before that is answered or of its former life
	doubt         bool           // whether it has to be asked
}

// key is what an entry is known by on its host.
type key struct {
	provider bool
	id       string
}

type departure struct {
	seq uint64
	at  time.Time
}

type config struct {
	known, found bool
	values       map[string]string
	told         uint64 // when it was last heard of, or asked about; older answers are old
}

// Mark is the moment at which a question was sent.
type Mark uint64

// Questions are what has to be asked because an event told only half of it.
type Questions struct {
	Hosts   []string // for their inventories
	Configs []string
	Links   bool
}

// bornTolerance is by how much the uptimes of one life of a host may disagree.
const bornTolerance = 10 * time.Second

// NewProjection returns a projection that knows of nothing.
func NewProjection(t Terms) *Projection {
	return &Projection{
		terms: t, hosts: map[string]*host{}, gone: map[string]departure{},
		configs: map[string]*config{}, touched: map[scaler.Tuple]uint64{},
	}
}

// Mark returns the present moment. Take it before a question is sent, and pass
// it in with the answer.
func (p *Projection) Mark() Mark { return Mark(p.seq) }

// Apply folds an event in.
func (p *Projection) Apply(e Event, now time.Time) (Change, Questions) {
	p.seq++
	var c changes
	var q Questions
	switch d := e.Data.(type) {
	case LinkSet:
		p.putLink(d.Link, &c)
	case LinkDeleted:
		p.deleteLink(d.Tuple, &c, &q)
	case ConfigSet:
		if have := p.configs[d.Name]; have != nil {
			have.told = p.seq
			q.Configs = []string{d.Name}
		}
	case ConfigDeleted:
		p.setConfig(d.Name, nil, false, &c)
	case HostStopped:
		p.remove(e.Host, now, &c)
	default:
		p.onHost(e, now, &c, &q)
	}
	if h := p.hosts[e.Host]; h != nil {
		p.renew(h, now)
	}
	return p.changed(&c), q
}

// onHost folds in what an event says of the host that it comes from.
func (p *Projection) onHost(e Event, now time.Time, c *changes, q *Questions) {
	h := p.hosts[e.Host]
	if h == nil {
		q.Hosts = []string{e.Host}
		return
	}
	switch d := e.Data.(type) {
	case HostStarted:
		p.restart(e.Host, h, now, c)
		p.relabel(e.Host, h, d.Labels, c)
		h.name, h.version = d.Name, d.Version
	case HostHeartbeat:
		if h.agrees(d.Inventory, now) {
			return
		}
	case LabelsChanged:
		p.relabel(e.Host, h, d.Labels, c)
		return
	case ComponentScaled:
		h.scaled(d.Entry, c)
		h.touched[key{false, d.ID}] = p.seq
	case ProviderStarted:
		h.put(key{true, d.ID}, d.Entry, c)
		h.touched[key{true, d.ID}] = p.seq
	case ProviderStopped:
		h.delete(key{true, d.ID}, c)
		h.touched[key{true, d.ID}] = p.seq
	case ProviderHealth:
		if d.Health != HealthUnknown {
			h.setHealth(key{true, d.ID}, d.Health, c)
		}
		return
	default:
		return
	}
	h.doubt = true
	q.Hosts = []string{e.Host}
}

// scaled sets a count. Of what was there before, the event's annotations and
// image say nothing new.
func (h *host) scaled(e Entry, c *changes) {
	k := key{false, e.ID}
	if e.Count == 0 {
		h.delete(k, c)
		return
	}
	if have, there := h.entries[k]; there {
		have.Count = e.Count
		e = have
	}
	h.put(k, e, c)
}

func (h *host) put(k key, e Entry, c *changes) {
	have, there := h.entries[k]
	if image, pinned := h.pinned[k]; pinned {
		e.Image = image
	}
	h.entries[k] = e
	switch {
	case !there:
		c.entry(nil, &e)
	case !same(have.instances(), e.instances()):
		c.entry(&have, &e)
	}
}

func (h *host) delete(k key, c *changes) {
	delete(h.pinned, k)
	if have, there := h.entries[k]; there {
		delete(h.entries, k)
		c.entry(&have, nil)
	}
}

func (h *host) setHealth(k key, health Health, c *changes) {
	if e, there := h.entries[k]; there {
		e.Health = health
		h.put(k, e, c)
	}
}

func same(a, b scaler.Instances) bool {
	return a.Image == b.Image && a.Count == b.Count && a.Unhealthy == b.Unhealthy && maps.Equal(a.Annotations, b.Annotations)
}

// agrees reports whether a heartbeat says what is known, and that is not in
// doubt.
func (h *host) agrees(inv Inventory, now time.Time) bool {
	if h.doubt || h.name != inv.Name || h.version != inv.Version || !maps.Equal(h.labels, inv.Labels) ||
		len(h.entries) != len(inv.Components)+len(inv.Providers) || h.reborn(inv.Uptime, now) {
		return false
	}
	for k, e := range inv.entries() {
		have, there := h.entries[k]
		if image, pinned := h.pinned[k]; pinned {
			e.Image = image
		}
		e.Health = have.Health
		if !there || have.Name != e.Name || !same(have.instances(), e.instances()) {
			return false
		}
	}
	return true
}

func (h *host) reborn(uptime time.Duration, now time.Time) bool {
	return now.Add(-uptime).Sub(h.born) > bornTolerance
}

func (inv Inventory) entries() map[key]Entry {
	all := make(map[key]Entry, len(inv.Components)+len(inv.Providers))
	for _, e := range inv.Components {
		all[key{false, e.ID}] = e
	}
	for _, e := range inv.Providers {
		all[key{true, e.ID}] = e
	}
	return all
}

// Inventory folds in what a host answered to a question of that mark, unless a
// later one is answered already. What events have said of single ids since then
// stays as it is, and the host in doubt.
func (p *Projection) Inventory(inv Inventory, asked Mark, now time.Time) Change {
	p.seq++
	var c changes
	if d, gone := p.gone[inv.Host]; gone && d.seq > uint64(asked) {
		return Change{}
	}
	h := p.hosts[inv.Host]
	switch {
	case h == nil:
		h = &host{born: now.Add(-inv.Uptime), entries: map[key]Entry{}, touched: map[key]uint64{}, pinned: map[key]string{}, labels: inv.Labels}
		p.hosts[inv.Host] = h
		delete(p.gone, inv.Host)
		note(&c.hosts, inv.Host)
		note(&c.started, inv.Host)
	case h.told > uint64(asked):
		p.renew(h, now)
		return Change{}
	case h.reborn(inv.Uptime, now):
		p.restart(inv.Host, h, now.Add(-inv.Uptime), &c)
	}
	h.told = uint64(asked)
	p.relabel(inv.Host, h, inv.Labels, &c)
	h.name, h.version = inv.Name, inv.Version
	h.settle(inv, uint64(asked), &c)
	p.renew(h, now)
	return p.changed(&c)
}

// settle makes a host's entries those of an inventory.
func (h *host) settle(inv Inventory, asked uint64, c *changes) {
	maps.DeleteFunc(h.touched, func(_ key, at uint64) bool { return at <= asked })
	h.doubt = len(h.touched) > 0
	listed := inv.entries()
	for k, e := range listed {
		if _, newer := h.touched[k]; newer {
			continue
		}
		e.Health = h.entries[k].Health
		h.put(k, e, c)
	}
	for k := range h.entries {
		_, newer := h.touched[k]
		if _, there := listed[k]; !there && !newer {
			h.delete(k, c)
		}
	}
}

// restart empties a host that began a new life.
func (p *Projection) restart(id string, h *host, born time.Time, c *changes) {
	for k := range h.entries {
		h.delete(k, c)
	}
	clear(h.touched)
	clear(h.pinned)
	h.born, h.told = born, p.seq
	note(&c.started, id)
}

func (p *Projection) relabel(id string, h *host, labels map[string]string, c *changes) {
	if !maps.Equal(h.labels, labels) {
		h.labels = labels
		note(&c.hosts, id)
	}
}

// Pin notes that a host goes on running an image of a component although it is
// going to claim another one. That holds until the component is gone from there.
func (p *Projection) Pin(id, component, image string) Change {
	p.seq++
	var c changes
	k := key{false, component}
	if h := p.hosts[id]; h != nil {
		if e, there := h.entries[k]; there {
			h.pinned[k] = image
			h.put(k, e, &c)
		}
	}
	return p.changed(&c)
}

// Renew renews the lease of a host that is alive and did not say what it runs.
func (p *Projection) Renew(id string, now time.Time) {
	if h := p.hosts[id]; h != nil {
		p.renew(h, now)
	}
}

// Alive does the same for one that will not say it, and has it left alone until
// there is a new reason to ask.
func (p *Projection) Alive(id string, now time.Time) {
	if h := p.hosts[id]; h != nil {
		p.renew(h, now)
		h.doubt = false
	}
}

func (p *Projection) renew(h *host, now time.Time) {
	h.seen, h.due, h.unanswered = now, now.Add(p.terms.Lease), 0
}

// Silent notes that a host did not answer: because nobody listens there, or for
// no reason that is known. It ends the host's lease when that is over.
func (p *Projection) Silent(id string, nobody bool, now time.Time) Change {
	h := p.hosts[id]
	if h == nil {
		return Change{}
	}
	h.doubt = true
	h.unanswered++
	if grace := now.Add(p.terms.Grace); nobody && h.due.After(grace) {
		h.due = grace
	}
	if now.Before(h.due) || !nobody && h.unanswered < p.terms.Questions {
		return Change{}
	}
	return p.Lost(id, now)
}

// Lost ends the lease of a host.
func (p *Projection) Lost(id string, now time.Time) Change {
	p.seq++
	var c changes
	p.remove(id, now, &c)
	return p.changed(&c)
}

// goneFor is how long it is remembered when a host went: longer than any answer
// is waited for.
const goneFor = time.Minute

func (p *Projection) remove(id string, now time.Time, c *changes) {
	maps.DeleteFunc(p.gone, func(_ string, d departure) bool { return now.Sub(d.at) > goneFor })
	p.gone[id] = departure{p.seq, now}
	h := p.hosts[id]
	if h == nil {
		return
	}
	delete(p.hosts, id)
	note(&c.hosts, id)
	for _, e := range h.entries {
		c.entry(&e, nil)
	}
}

// Excuse gives all hosts some time to be heard of again, after one in which
// nobody could be.
func (p *Projection) Excuse(now time.Time) {
	for _, h := range p.hosts {
		h.unanswered = 0
		if grace := now.Add(p.terms.Grace); h.due.Before(grace) {
			h.due = grace
		}
	}
}

// Due returns the hosts that have to be asked: those in doubt, and those whose
// lease is over.
func (p *Projection) Due(now time.Time) []string {
	var ids []string
	for id, h := range p.hosts {
		if h.doubt || !now.Before(h.due) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Has reports whether a host is alive.
func (p *Projection) Has(id string) bool { return p.hosts[id] != nil }

// Len returns the number of live hosts.
func (p *Projection) Len() int { return len(p.hosts) }

// Entry returns what a host has of a component or provider.
func (p *Projection) Entry(id string, provider bool, entry string) (Entry, bool) {
	if h := p.hosts[id]; h != nil {
		e, there := h.entries[key{provider, entry}]
		return e, there
	}
	return Entry{}, false
}

// changed ends a fold.
func (p *Projection) changed(c *changes) Change {
	change := c.change()
	if len(change.Hosts)+len(change.Started)+len(change.IDs) > 0 {
		p.seen = nil
	}
	return change
}

// State returns what scalers see: all live hosts, all links, and of the named
// configurations those that exist and those of which that is not known.
func (p *Projection) State(names []string) scaler.State {
	if p.seen == nil {
		p.seen = make([]scaler.Host, 0, len(p.hosts))
		for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
			p.seen = append(p.seen, p.hosts[id].forScalers(id))
		}
	}
	s := scaler.State{Hosts: p.seen, Links: slices.Clone(p.links), Configs: map[string]map[string]string{}}
	for _, name := range names {
		switch c := p.configs[name]; {
		case c == nil || !c.known:
			note(&s.Unread, name)
		case c.found:
			s.Configs[name] = c.values
		}
	}
	return s
}

func (h *host) forScalers(id string) scaler.Host {
	seen := scaler.Host{ID: id, Labels: h.labels}
	for _, e := range h.sorted(false) {
		seen.Components = append(seen.Components, e.instances())
	}
	for _, e := range h.sorted(true) {
		seen.Providers = append(seen.Providers, e.instances())
	}
	return seen
}

func (h *host) sorted(provider bool) []Entry {
	var all []Entry
	for k, e := range h.entries {
		if k.provider == provider {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Hosts returns the live hosts by id, as they are shown to people.
func (p *Projection) Hosts(now time.Time) []Host {
	all := make([]Host, 0, len(p.hosts))
	for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[id]
		all = append(all, Host{
			ID: id, Name: h.name, Labels: h.labels, Version: h.version, Uptime: now.Sub(h.born),
			LastSeen: h.seen, LeaseEnd: h.due, Components: h.sorted(false), Providers: h.sorted(true),
		})
	}
	return all
}
