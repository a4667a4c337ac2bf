package lattice_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

// world is a lattice as it really is, with what is on its way from it.
type world struct {
	t       *rapid.T
	hosts   map[string]*life
	links   []scaler.Link
	configs map[string]map[string]string
	now     time.Time

	sent    []lattice.Event // not delivered yet, in the order in which they were published
	answers []func() lattice.Change
	lost    bool // whether something was not delivered, or not in order

	p    *lattice.Projection
	asks map[string]bool // of hosts, that the projection wants to be asked
	told int             // events so far, for their ids
}

// life is a host that is up.
type life struct {
	born       time.Time
	labels     map[string]string
	components map[string]lattice.Entry
	providers  map[string]lattice.Entry
}

var (
	someHosts   = []string{"NA", "NB", "NC"}
	someIDs     = []string{"api", "jobs", "web"}
	someConfigs = []string{"c0", "c1"}
)

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, hosts: map[string]*life{}, configs: map[string]map[string]string{}, now: start,
		p: lattice.NewProjection(terms), asks: map[string]bool{},
	}
	w.p.Want(map[string]bool{"c0": true, "c1": true})
	return w
}

func (w *world) publish(host string, data any) {
	w.told++
	w.sent = append(w.sent, lattice.Event{ID: fmt.Sprint(w.told), Host: host, Data: data})
}

func (w *world) draw(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(w.t, label)
}

func (w *world) inventory(id string) lattice.Inventory {
	h := w.hosts[id]
	inv := lattice.Inventory{Host: id, Labels: h.labels, Uptime: w.now.Sub(h.born)}
	for _, id := range slices.Sorted(maps.Keys(h.components)) {
		inv.Components = append(inv.Components, h.components[id])
	}
	for _, id := range slices.Sorted(maps.Keys(h.providers)) {
		inv.Providers = append(inv.Providers, h.providers[id])
	}
	return inv
}

// upHost draws a host that is up.
func (w *world) upHost() (string, *life) {
	up := slices.Sorted(maps.Keys(w.hosts))
	if len(up) == 0 {
		w.t.Skip("no host is up")
	}
	id := w.draw("host", up)
	return id, w.hosts[id]
}

func (w *world) entry(id string) lattice.Entry {
	e := lattice.Entry{ID: id, Image: w.draw("image", []string{"a:1", "a:2"}), Count: rapid.IntRange(1, 3).Draw(w.t, "count")}
	if app := w.draw("app", []string{"", "shop", "mail"}); app != "" {
		e.Annotations = map[string]string{scaler.AnnotationManagedBy: "wadm", scaler.AnnotationApp: app}
	}
	return e
}

// What happens in the world. Hosts publish what a wasmCloud 1.9.2 host does.

func (w *world) hostStarts() {
	id := w.draw("host", someHosts)
	labels := map[string]string{"zone": w.draw("zone", []string{"eu", "us"})}
	w.hosts[id] = &life{born: w.now, labels: labels, components: map[string]lattice.Entry{}, providers: map[string]lattice.Entry{}}
	w.publish(id, lattice.HostStarted{Labels: labels})
}

func (w *world) hostStops() {
	id, _ := w.upHost()
	delete(w.hosts, id)
	w.publish(id, lattice.HostStopped{})
}

func (w *world) hostDies() {
	id, _ := w.upHost()
	delete(w.hosts, id)
	w.lost = true
}

func (w *world) labelsChange() {
	id, h := w.upHost()
	h.labels = map[string]string{"zone": w.draw("zone", []string{"eu", "us"})}
	w.publish(id, lattice.LabelsChanged{Labels: h.labels})
}

func (w *world) scales() {
	host, h := w.upHost()
	e := w.entry(w.draw("id", someIDs))
	before, there := h.components[e.ID]
	h.components[e.ID] = e
	if !there {
		w.publish(host, lattice.ComponentScaled{Entry: e})
		w.publish(host, lattice.ComponentScaled{Entry: e})
		return
	}
	before.Count = e.Count
	w.publish(host, lattice.ComponentScaled{Entry: before})
}

func (w *world) updates() {
	host, h := w.upHost()
	e := w.entry(w.draw("id", someIDs))
	if before, there := h.components[e.ID]; there {
		e.Count = before.Count
		h.components[e.ID] = e
		w.publish(host, lattice.ComponentScaled{Entry: e})
		e.Count = 0
		w.publish(host, lattice.ComponentScaled{Entry: e})
	}
}

func (w *world) stops() {
	host, h := w.upHost()
	e := h.components[w.draw("id", someIDs)]
	delete(h.components, e.ID)
	e.Count = 0
	w.publish(host, lattice.ComponentScaled{Entry: e})
}

func (w *world) providerStarts() {
	host, h := w.upHost()
	e := w.entry(w.draw("id", someIDs))
	e.Count = 1
	if _, there := h.providers[e.ID]; !there {
		h.providers[e.ID] = e
		w.publish(host, lattice.ProviderStarted{Entry: e})
	}
}

func (w *world) providerStops() {
	host, h := w.upHost()
	id := w.draw("id", someIDs)
	if _, there := h.providers[id]; there {
		delete(h.providers, id)
		w.publish(host, lattice.ProviderStopped{ID: id})
	}
}

func (w *world) failures() {
	host, _ := w.upHost()
	w.publish(host, lattice.ComponentScaleFailed{Entry: w.entry("api"), Error: "no"})
	w.publish(host, lattice.ProviderStartFailed{ID: "web", Error: "no"})
}

func (w *world) health() {
	host, _ := w.upHost()
	w.publish(host, lattice.ProviderHealth{ID: w.draw("id", someIDs), Health: rapid.SampledFrom([]lattice.Health{lattice.Healthy, lattice.Unhealthy, lattice.HealthUnknown}).Draw(w.t, "health")})
}

func (w *world) heartbeat() {
	id, _ := w.upHost()
	w.publish(id, lattice.HostHeartbeat{Inventory: w.inventory(id)})
}

func (w *world) linkPut() {
	host, _ := w.upHost()
	l := scaler.Link{
		Source: "web", Target: w.draw("target", someIDs), Name: "default", Namespace: "wasi", Package: "http",
		Interfaces: []string{w.draw("interface", []string{"a", "b"})},
	}
	i := slices.IndexFunc(w.links, func(o scaler.Link) bool { return o.Tuple() == l.Tuple() })
	if w.links = slices.Clone(w.links); i < 0 {
		w.links = append(w.links, l)
	} else {
		w.links[i] = l
	}
	w.publish(host, lattice.LinkSet{Link: l})
}

func (w *world) linkDeleted() {
	host, _ := w.upHost()
	if len(w.links) == 0 {
		w.publish(host, lattice.LinkDeleted{Tuple: scaler.Tuple{Source: "web", Name: "default", Namespace: "wasi", Package: "http"}})
		return
	}
	w.publish(host, lattice.LinkDeleted{Tuple: w.links[0].Tuple()})
	w.links = slices.Clone(w.links[1:])
}

func (w *world) configPut() {
	host, _ := w.upHost()
	name := w.draw("name", someConfigs)
	w.configs[name] = map[string]string{"a": w.draw("value", []string{"1", "2"})}
	w.publish(host, lattice.ConfigSet{Name: name})
}

func (w *world) configDeleted() {
	host, _ := w.upHost()
	name := w.draw("name", someConfigs)
	delete(w.configs, name)
	w.publish(host, lattice.ConfigDeleted{Name: name})
}

func (w *world) timePasses() {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(w.t, "seconds")) * time.Second)
}

// What the observer does.

// asked sends questions whose answers come later, maybe after events that were
// published after them.
func (w *world) asked() {
	id, _ := w.upHost()
	mark := w.p.Mark()
	inv := w.inventory(id)
	w.answers = append(w.answers, func() lattice.Change { return w.p.Inventory(inv, mark, w.now) })
}

func (w *world) askedForLinks() {
	mark, links := w.p.Mark(), w.links
	w.answers = append(w.answers, func() lattice.Change { return w.p.Links(links, mark) })
}

func (w *world) askedForConfig() {
	name := w.draw("name", someConfigs)
	w.answers = append(w.answers, w.configAnswer(name))
}

func (w *world) configAnswer(name string) func() lattice.Change {
	mark := w.p.Mark()
	values, found := w.configs[name]
	return func() lattice.Change { return w.p.Config(name, values, found, mark) }
}

func (w *world) answered() {
	if len(w.answers) > 0 {
		i := rapid.IntRange(0, len(w.answers)-1).Draw(w.t, "answer")
		answer := w.answers[i]
		w.answers = slices.Delete(w.answers, i, i+1)
		w.fold(answer)
	}
}

func (w *world) delivered() {
	if len(w.sent) > 0 {
		e := w.sent[0]
		w.sent = w.sent[1:]
		w.hear(e)
	}
}

func (w *world) hear(e lattice.Event) {
	var configs []string
	w.fold(func() lattice.Change {
		c, q := w.p.Apply(e, w.now)
		for _, id := range q.Hosts {
			w.asks[id] = true
		}
		configs = q.Configs
		return c
	})
	for _, name := range configs {
		w.answers = append(w.answers, w.configAnswer(name))
	}
}

func (w *world) duplicated() {
	if len(w.sent) > 0 {
		w.lost = true // what comes after it is old
		w.hear(rapid.SampledFrom(w.sent).Draw(w.t, "event"))
	}
}

func (w *world) dropped() {
	if len(w.sent) > 0 {
		i := rapid.IntRange(0, len(w.sent)-1).Draw(w.t, "event")
		w.sent = slices.Delete(w.sent, i, i+1)
		w.lost = true
	}
}

func (w *world) swapped() {
	if n := len(w.sent); n > 1 {
		i := rapid.IntRange(1, n-1).Draw(w.t, "event")
		w.sent[i-1], w.sent[i] = w.sent[i], w.sent[i-1]
		w.lost = true
	}
}

// fold does something to the projection and checks that its change is the
// difference, no more and no less.
func (w *world) fold(f func() lattice.Change) {
	before, linksBefore, configsBefore := w.p.Hosts(w.now), w.p.State(nil).Links, w.p.State(someConfigs).Configs
	change := f()
	require.Equal(w.t, w.p.State(nil).Hosts, visible(w.p.Hosts(w.now)), "what scalers see is what is known")

	var want lattice.Change
	want.Hosts, want.IDs, want.Apps = difference(before, w.p.Hosts(w.now))
	want.Links = linkDifference(linksBefore, w.p.State(nil).Links)
	for _, name := range someConfigs {
		a, inA := configsBefore[name]
		b, inB := w.p.State(someConfigs).Configs[name]
		if inA != inB || !maps.Equal(a, b) {
			want.Configs = append(want.Configs, name)
		}
	}
	if len(change.Started) > 0 { // a new life may run what the former one did
		require.Subset(w.t, change.IDs, want.IDs)
		require.Subset(w.t, change.Apps, want.Apps)
		want.IDs, want.Apps = change.IDs, change.Apps
	}
	for _, id := range want.Hosts {
		if w.p.Has(id) && !slices.ContainsFunc(before, func(h lattice.Host) bool { return h.ID == id }) {
			require.Contains(w.t, change.Started, id)
		}
	}
	want.Started = change.Started
	require.Equal(w.t, want, change)
}

func visible(hosts []lattice.Host) []scaler.Host {
	all := make([]scaler.Host, 0, len(hosts))
	for _, h := range hosts {
		s := scaler.Host{ID: h.ID, Labels: h.Labels}
		for _, e := range h.Components {
			s.Components = append(s.Components, e.Instances())
		}
		for _, e := range h.Providers {
			s.Providers = append(s.Providers, e.Instances())
		}
		all = append(all, s)
	}
	return all
}

func difference(a, b []lattice.Host) (hosts, ids, apps []string) {
	type place struct {
		host, id string
		provider bool
	}
	index := func(all []lattice.Host) (labels map[string]map[string]string, entries map[place]lattice.Entry) {
		labels, entries = map[string]map[string]string{}, map[place]lattice.Entry{}
		for _, h := range all {
			labels[h.ID] = h.Labels
			for _, e := range h.Components {
				entries[place{h.ID, e.ID, false}] = e
			}
			for _, e := range h.Providers {
				entries[place{h.ID, e.ID, true}] = e
			}
		}
		return labels, entries
	}
	labelsA, entriesA := index(a)
	labelsB, entriesB := index(b)
	for _, id := range someHosts {
		la, inA := labelsA[id]
		lb, inB := labelsB[id]
		if inA != inB || !maps.Equal(la, lb) {
			hosts = append(hosts, id)
		}
	}
	for _, pair := range [][2]map[place]lattice.Entry{{entriesA, entriesB}, {entriesB, entriesA}} {
		for at, e := range pair[0] {
			o, there := pair[1][at]
			x, y := e.Instances(), o.Instances()
			if there && x.Image == y.Image && x.Count == y.Count && x.Unhealthy == y.Unhealthy && maps.Equal(x.Annotations, y.Annotations) {
				continue
			}
			ids = append(ids, e.ID)
			if app := e.App(); app != "" {
				apps = append(apps, app)
			}
		}
	}
	return hosts, unique(ids), unique(apps)
}

func unique(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

func linkDifference(a, b []scaler.Link) []scaler.Tuple {
	index := func(links []scaler.Link) map[scaler.Tuple]string {
		m := map[scaler.Tuple]string{}
		for _, l := range links {
			m[l.Tuple()] = fmt.Sprint(l.Interfaces)
		}
		return m
	}
	x, y := index(a), index(b)
	var tuples []scaler.Tuple
	for _, target := range someIDs {
		t := scaler.Tuple{Source: "web", Target: target, Name: "default", Namespace: "wasi", Package: "http"}
		if x[t] != y[t] {
			tuples = append(tuples, t)
		}
	}
	return tuples
}

// settle delivers all that is on its way, and then asks what the projection
// wants to be asked.
func (w *world) settle() {
	for len(w.sent) > 0 || len(w.answers) > 0 {
		if len(w.sent) > 0 {
			w.delivered()
		} else {
			w.answered()
		}
	}
	for _, id := range w.p.Due(w.now) {
		w.asks[id] = true
	}
	for id := range w.asks {
		if w.hosts[id] != nil {
			mark := w.p.Mark()
			w.fold(func() lattice.Change { return w.p.Inventory(w.inventory(id), mark, w.now) })
		} else {
			w.fold(func() lattice.Change { return w.p.Lost(id, w.now) })
		}
	}
}

// resync asks for everything.
func (w *world) resync() {
	for _, id := range someHosts {
		w.asks[id] = true
	}
	w.settle()
	mark := w.p.Mark()
	w.fold(func() lattice.Change { return w.p.Links(w.links, mark) })
	for _, name := range someConfigs {
		w.fold(w.configAnswer(name))
	}
}

// check compares what is known with what is.
func (w *world) check() {
	seen := w.p.State(someConfigs)
	require.Len(w.t, seen.Hosts, len(w.hosts))
	for _, got := range seen.Hosts {
		want := w.inventory(got.ID)
		require.Equal(w.t, want.Labels, got.Labels)
		require.Len(w.t, got.Components, len(want.Components))
		for i, e := range want.Components {
			require.Equal(w.t, e.Instances(), got.Components[i])
		}
		require.Len(w.t, got.Providers, len(want.Providers))
		for i, e := range want.Providers {
			e.Health = lattice.HealthUnknown
			if got.Providers[i].Unhealthy {
				e.Health = lattice.Unhealthy
			}
			require.Equal(w.t, e.Instances(), got.Providers[i])
		}
	}
	require.ElementsMatch(w.t, w.links, seen.Links)
	require.Equal(w.t, w.configs, seen.Configs)
}

func (w *world) actions(more map[string]func(*rapid.T)) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){"": func(*rapid.T) {}}
	for name, f := range map[string]func(){
		"host starts": w.hostStarts, "host stops": w.hostStops, "labels change": w.labelsChange,
		"scales": w.scales, "scales again": w.scales, "updates": w.updates, "stops": w.stops,
		"provider starts": w.providerStarts, "provider stops": w.providerStops, "failures": w.failures, "health": w.health, "heartbeat": w.heartbeat,
		"link put": w.linkPut, "link deleted": w.linkDeleted, "config put": w.configPut, "config deleted": w.configDeleted,
		"time passes": w.timePasses, "asked": w.asked, "asked for links": w.askedForLinks, "asked for config": w.askedForConfig,
		"answered": w.answered, "delivered": w.delivered, "delivered next": w.delivered, "delivered last": w.delivered,
	} {
		all[name] = func(t *rapid.T) { w.t = t; f() }
	}
	maps.Copy(all, more)
	return all
}

// Whatever gets lost, comes twice or comes late: after everything was asked for
// again, what is known is what the hosts say.
func TestAfterAResyncTheProjectionEqualsTheInventories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		faults := map[string]func(*rapid.T){}
		for name, f := range map[string]func(){"host dies": w.hostDies, "duplicated": w.duplicated, "dropped": w.dropped, "swapped": w.swapped} {
			faults[name] = func(t *rapid.T) { w.t = t; f() }
		}
		t.Repeat(w.actions(faults))
		w.t = t
		w.resync()
		w.check()
	})
}

// While nothing gets lost, asking those hosts that are in doubt is enough: an
// answer that is older than an event never wins.
func TestWithoutLossesOnlyHostsInDoubtHaveToBeAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(w.actions(nil))
		w.t = t
		w.settle()
		w.check()
		require.Empty(t, w.p.Due(w.now))
	})
}
