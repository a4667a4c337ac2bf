package lattice

import (
	"cmp"
	"slices"

	"tidewait/internal/scaler"
)

// Change says of what a scaler's view of the lattice changed, no more and no
// less. Its lists are sorted, and name nothing twice.
type Change struct {
	// Hosts came, went, or have other labels. Everybody is concerned.
	Hosts []string
	// Started are those that came, or that started again under their id: what
	// they failed at before means nothing.
	Started []string
	// IDs are of the components and providers of which something changed.
	IDs []string
	// Apps are named by the annotations of those, before or after.
	Apps    []string
	Links   []scaler.Tuple
	Configs []string
}

// Empty reports whether nothing changed.
func (c Change) Empty() bool {
	return len(c.Hosts)+len(c.Started)+len(c.IDs)+len(c.Apps)+len(c.Links)+len(c.Configs) == 0
}

// And returns what changed in c or in o.
func (c Change) And(o Change) Change {
	return Change{
		Hosts:   union(c.Hosts, o.Hosts, cmp.Compare[string]),
		Started: union(c.Started, o.Started, cmp.Compare[string]),
		IDs:     union(c.IDs, o.IDs, cmp.Compare[string]),
		Apps:    union(c.Apps, o.Apps, cmp.Compare[string]),
		Links:   union(c.Links, o.Links, compareTuples),
		Configs: union(c.Configs, o.Configs, cmp.Compare[string]),
	}
}

// Concerns reports whether an application may have to do something about it,
// given the ids of its components and providers and its links and configurations.
func (c Change) Concerns(app string, ids []string, uses scaler.Resources) bool {
	return len(c.Hosts) > 0 || len(c.Started) > 0 || slices.Contains(c.Apps, app) ||
		meet(c.IDs, ids) || meet(c.Configs, uses.Configs) ||
		slices.ContainsFunc(c.Links, func(t scaler.Tuple) bool {
			// Another link of the source can be in the way of one of its own.
			return slices.ContainsFunc(uses.Links, func(u scaler.Tuple) bool { return t.Source == u.Source })
		})
}

func meet(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

func union[T comparable](a, b []T, compare func(T, T) int) []T {
	switch {
	case len(b) == 0:
		return a
	case len(a) == 0:
		return b
	}
	both := slices.Concat(a, b)
	slices.SortFunc(both, compare)
	return slices.Compact(both)
}

func compareTuples(a, b scaler.Tuple) int {
	return cmp.Or(
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Package, b.Package),
	)
}

// changes collects a change.
type changes struct {
	hosts, started, ids, apps, configs map[string]bool
	links                              map[scaler.Tuple]bool
}

func note[K comparable](set *map[K]bool, k K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[k] = true
}

// entry notes a change from one entry to another. Either may be missing.
func (c *changes) entry(before, after *Entry) {
	for _, e := range []*Entry{before, after} {
		if e == nil {
			continue
		}
		note(&c.ids, e.ID)
		if app := e.App(); app != "" {
			note(&c.apps, app)
		}
	}
}

func (c *changes) change() Change {
	return Change{
		Hosts: sorted(c.hosts, cmp.Compare[string]), Started: sorted(c.started, cmp.Compare[string]),
		IDs: sorted(c.ids, cmp.Compare[string]), Apps: sorted(c.apps, cmp.Compare[string]),
		Links: sorted(c.links, compareTuples), Configs: sorted(c.configs, cmp.Compare[string]),
	}
}

func sorted[K comparable](set map[K]bool, compare func(K, K) int) []K {
	if len(set) == 0 {
		return nil
	}
	all := make([]K, 0, len(set))
	for k := range set {
		all = append(all, k)
	}
	slices.SortFunc(all, compare)
	return all
}
