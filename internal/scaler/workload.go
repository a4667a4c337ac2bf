package scaler

import (
	"cmp"
	"slices"
	"strings"

	"tidewait/internal/oam"
)

// planWorkloads decides what each host should have, and compares it with what it
// has.
func (p *planner) planWorkloads() {
	for _, w := range p.workloadsOf() {
		for _, i := range w.scalers {
			if p.Desired[i].Kind == KindDaemon {
				p.wishEverywhere(w, i)
			} else {
				p.wishSpread(w, i)
			}
		}
		for h := range w.places {
			p.act(w, h)
		}
	}
}

// workload is all that there is to one component or provider: the scalers that
// want it, and its places on all hosts.
type workload struct {
	id       string
	provider bool
	scalers  []int   // indexes of desired ones
	places   []place // in the order of hosts
	wishes   []*wish // likewise
}

// place is what one host has, or will have, of one workload.
type place struct {
	host    *Host
	there   bool   // something of that id runs
	foreign bool   // and was not started for the application
	going   bool   // it has been told to stop
	coming  string // what a host is doing about it; Instances is what that leads to
	Instances
}

// wish is what one host should have of a workload; nil: nothing.
type wish struct {
	scaler int // index of the desired one
	spread string
	count  int
}

// workloadsOf returns what is desired, in its order, and then what else runs for
// the application.
func (p *planner) workloadsOf() []*workload {
	type name struct {
		id       string
		provider bool
	}
	byName := map[name]*workload{}
	var all []*workload
	get := func(n name) *workload {
		w := byName[n]
		if w == nil {
			w = &workload{id: n.id, provider: n.provider, places: make([]place, len(p.hosts)), wishes: make([]*wish, len(p.hosts))}
			for h := range w.places {
				w.places[h].host = &p.hosts[h]
			}
			byName[n] = w
			all = append(all, w)
		}
		return w
	}

	for i, s := range p.Desired {
		if s.Workload != nil && p.first(i) == i {
			w := get(name{s.Workload.ID, s.Workload.Type == oam.TypeCapability})
			w.scalers = append(w.scalers, i)
		}
	}
	for h, host := range p.hosts {
		for _, kind := range []struct {
			entries  []Instances
			provider bool
		}{{host.Components, false}, {host.Providers, true}} {
			for _, e := range kind.entries {
				n := name{e.ID, kind.provider}
				owned := Owned(e.Annotations, p.App)
				if !owned && byName[n] == nil {
					continue
				}
				at := &get(n).places[h]
				at.there, at.foreign, at.Instances = true, !owned, e
			}
		}
	}
	for _, c := range p.Pending {
		if h := slices.IndexFunc(p.hosts, func(h Host) bool { return h.ID == c.Host }); h >= 0 && c.onInstances() {
			get(name{c.ID, c.Action != Scale}).places[h].expect(c)
		}
	}
	slices.SortStableFunc(all, func(a, b *workload) int {
		if len(a.scalers) > 0 || len(b.scalers) > 0 {
			return cmp.Compare(min(len(b.scalers), 1), min(len(a.scalers), 1))
		}
		return cmp.Compare(a.id, b.id)
	})
	return all
}

// expect notes a command that is on its way.
func (at *place) expect(c Command) {
	at.going = c.Action == StopProvider || c.Action == Scale && c.Count == 0
	if !at.going {
		at.coming = starting
		if at.there {
			at.coming = scaling
		}
		at.there, at.foreign = true, false
		at.Instances = Instances{ID: c.ID, Image: c.Image, Count: max(c.Count, 1), Annotations: c.Annotations}
	}
}

// isFor reports whether what runs at a place is what a scaler would start there
// for a spread.
func (at *place) isFor(s Scaler, spread string) bool {
	return at.there && !at.foreign && !at.going &&
		at.Annotations[AnnotationScaler] == s.ID && at.Annotations[AnnotationSpread] == spread &&
		(at.Image == "" || sameImage(*s.Workload, at.Image))
}

// sameImage reports whether what a host says runs is what was asked for. Of a
// provider it leaves the scheme of the reference out.
func sameImage(w Workload, shown string) bool {
	return shown == w.Image || w.Type == oam.TypeCapability && withoutScheme(shown) == withoutScheme(w.Image)
}

func withoutScheme(image string) string {
	for _, scheme := range []string{"oci://", "file://", "https://", "http://", "wasmcloud+builtin://"} {
		if rest, ok := strings.CutPrefix(image, scheme); ok {
			return rest
		}
	}
	return image
}

// act compares what a host has of a workload with what it should have.
func (p *planner) act(w *workload, h int) {
	at, want := &w.places[h], w.wishes[h]
	if at.foreign || !at.there && want == nil {
		return
	}
	subject, r := w.id, &report{}
	if want != nil {
		subject, r = p.Desired[want.scaler].ID, &p.reports[want.scaler]
	} else if len(w.scalers) > 0 {
		subject, r = p.Desired[w.scalers[0]].ID, &p.reports[w.scalers[0]]
	}
	key := Key{Subject: subject, Host: at.host.ID}

	if want == nil {
		p.leaving = true
		r.doesOn(stopping)
		p.issue(w.stop(key, at))
		return
	}
	s := p.Desired[want.scaler]
	switch {
	case at.isFor(s, want.spread) && (w.provider || at.Count == want.count):
		if at.coming != "" {
			r.doesOn(at.coming)
		}
		if at.Unhealthy {
			r.unhealthy++
		}
	case at.there && !at.isFor(s, want.spread):
		// What runs is stopped only when what replaces it can be started.
		p.leaving = true
		r.doesOn(stopping)
		if p.canStart(s) {
			p.issue(w.stop(key, at))
		}
	case at.there:
		r.doesOn(scaling)
		if p.canStart(s) {
			p.issue(w.start(key, s, *want))
		}
	default:
		r.doesOn(starting)
		if p.canStart(s) {
			p.issue(w.start(key, s, *want))
		}
	}
}

func (w *workload) stop(k Key, at *place) Command {
	c := Command{Key: k, Action: Scale, ID: w.id, Image: at.Image, Annotations: at.Annotations}
	if w.provider {
		c.Action = StopProvider
	}
	return c
}

func (w *workload) start(k Key, s Scaler, want wish) Command {
	c := Command{
		Key: k, Action: Scale, ID: w.id, Image: s.Workload.Image, Count: want.count,
		Config: s.Workload.Config, Annotations: annotations(s.App, s.ID, want.spread),
	}
	if w.provider {
		c.Action = StartProvider
	}
	return c
}
