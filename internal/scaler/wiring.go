package scaler

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Codes of what scalers wait for that is somebody else's to make, and of a link
// that another one is in the way of.
const (
	CodeConfigMissing = "config_missing"
	CodeSecretMissing = "secret_missing"
	CodeLinkConflict  = "link_conflict"
)

// planConfigs puts the configurations that the application makes, and finds out
// which are as they should be. Of two of one name the first one counts, and one
// that the application makes counts before one that it only uses.
func (p *planner) planConfigs() {
	for _, s := range p.Desired {
		for _, c := range s.Needs {
			if known, ok := p.wanted[c.Name]; !ok || c.Managed && !known.Managed {
				p.wanted[c.Name] = c
			}
		}
	}
	for i, s := range p.Desired {
		for _, c := range s.Needs {
			p.planConfig(p.wanted[c.Name], &p.reports[i])
		}
	}
}

func (p *planner) planConfig(c Config, r *report) {
	if _, planned := p.ready[c.Name]; !planned {
		have, exists := p.State.Configs[c.Name]
		p.ready[c.Name] = exists && (!c.Managed || c.matches(have)) && !p.pending(Command{ID: c.Name})
		if c.Managed && !p.ready[c.Name] && !p.State.Unread[c.Name] {
			p.issue(Command{Key: Key{Subject: c.Name}, Action: PutConfig, ID: c.Name, Values: c.Values})
		}
	}
	switch {
	case p.ready[c.Name]:
	case p.State.Unread[c.Name]:
		r.waits(CodeConfigMissing, fmt.Sprintf("no host says whether configuration %s exists", c.Name))
	case c.Managed:
		r.subjects = append(r.subjects, c.Name)
		r.does("putting configuration " + c.Name)
	case c.Secret:
		r.waits(CodeSecretMissing, fmt.Sprintf("the reference to secret %s does not exist in the lattice, and the application names no policy to make it from", c.Name))
	default:
		r.waits(CodeConfigMissing, fmt.Sprintf("configuration %s does not exist in the lattice and is not the application's to make", c.Name))
	}
}

// matches reports whether the lattice has the values that are wanted. A policy
// of a secret is JSON, and equal when it means the same.
func (c Config) matches(have map[string]string) bool {
	if maps.Equal(c.Values, have) {
		return true
	}
	if !c.Secret || !sameJSON(c.Values[keySecretPolicy], have[keySecretPolicy]) {
		return false
	}
	have = maps.Clone(have)
	have[keySecretPolicy] = c.Values[keySecretPolicy]
	return maps.Equal(c.Values, have)
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// canStart reports whether everything that a scaler needs is there.
func (p *planner) canStart(s Scaler) bool {
	return !slices.ContainsFunc(s.Needs, func(c Config) bool { return !p.ready[c.Name] })
}

// deleteConfigs deletes what nothing needs any more, once nothing is left that
// might still use it.
func (p *planner) deleteConfigs() {
	if p.leaving {
		return
	}
	for _, name := range p.stale.Configs {
		if _, exists := p.State.Configs[name]; exists {
			p.issue(Command{Key: Key{Subject: name}, Action: DeleteConfig, ID: name})
		}
	}
}

// wire is a link that one or more scalers want. Those that differ by interfaces
// and configurations alone are one link to a host.
type wire struct {
	Link
	scalers []int
}

// planLinks puts the links that are not there as they should be, and deletes
// those that are no longer wanted.
func (p *planner) planLinks() {
	wires := wires(p.Desired)
	for i, w := range wires {
		p.planWire(w, wires[:i], wires)
	}
	for _, t := range p.stale.Links {
		remove := Command{Key: Key{Subject: t.Source}, Action: DeleteLink, Link: t.link()}
		_, there := p.link(t)
		p.leaving = p.leaving || there || p.pending(remove)
		if there && !p.sharesSlot(t) {
			p.issue(remove)
		}
	}
}

// Wires returns the links that the scalers of one application come to.
func Wires(list []Scaler) []Link {
	var all []Link
	for _, w := range wires(list) {
		all = append(all, w.Link)
	}
	return all
}

func wires(list []Scaler) []wire {
	var all []wire
	for i, s := range list {
		if s.Link == nil {
			continue
		}
		at := slices.IndexFunc(all, func(w wire) bool { return w.Tuple() == s.Link.Tuple() })
		if at < 0 {
			all = append(all, wire{Link: *s.Link, scalers: []int{i}})
			continue
		}
		w := &all[at]
		w.scalers = append(w.scalers, i)
		w.Interfaces = union(w.Interfaces, s.Link.Interfaces)
		w.SourceConfig = union(w.SourceConfig, s.Link.SourceConfig)
		w.TargetConfig = union(w.TargetConfig, s.Link.TargetConfig)
	}
	return all
}

func (p *planner) planWire(w wire, earlier, all []wire) {
	lead := p.Desired[w.scalers[0]]
	put := Command{Key: Key{Subject: lead.ID}, Action: PutLink, Link: &w.Link}
	have, there := p.link(w.Tuple())
	if there && have.same(w.Link) && !p.pending(put) {
		return
	}
	if app := p.holder(w.Tuple()); app != "" && !have.same(w.Link) {
		p.disputed(w, fmt.Sprintf("link %s of %s to %s is as application %s wants it, which has other interfaces or configurations",
			w.Name, w.Source, w.Target, app))
		return
	}
	p.leaving = p.leaving || there // with the configurations it has now
	ready := true
	for _, i := range w.scalers {
		ready = ready && p.canStart(p.Desired[i])
		p.reports[i].subjects = append(p.reports[i].subjects, lead.ID)
	}
	rival, lasting := p.rival(w, earlier, all)
	switch {
	case lasting:
		p.disputed(w, fmt.Sprintf("link %s of %s already leads %s:%s to %s, and a host allows one",
			w.Name, w.Source, w.Namespace, w.Package, rival.Target))
		return
	case ready && rival.Source == "":
		p.issue(put)
	}
	for _, i := range w.scalers {
		p.reports[i].does("putting the link")
	}
}

func (p *planner) disputed(w wire, sentence string) {
	for _, i := range w.scalers {
		p.reports[i].fails(CodeLinkConflict, sentence)
	}
}

// holder is the other application that a link is there for, just as that wants
// it. Whoever put a link over another's would find it put over in turn.
func (p *planner) holder(t Tuple) (app string) {
	have, there := p.link(t)
	if !there {
		return ""
	}
	for _, app := range slices.Sorted(maps.Keys(p.Wired)) {
		if slices.ContainsFunc(p.Wired[app], have.same) {
			return app
		}
	}
	return ""
}

// keptLinks are those that stay. One that others want, and have not got because
// it is as this application wanted it, makes room for theirs.
func (p *planner) keptLinks() []Tuple {
	kept := Uses(p.Desired).Links
	for _, t := range p.Others.Links {
		if _, there := p.link(t); !there || p.holder(t) != "" {
			kept = append(kept, t)
		}
	}
	return kept
}

// ConcernsOthers reports whether a plan has to know what other applications
// want: where something would be cleaned up, or a link be put over another.
func (in Input) ConcernsOthers() bool {
	uses := Uses(in.Desired)
	all := uses.And(in.Owned)
	return len(all.Configs) > len(uses.Configs) || len(all.Links) > len(uses.Links) ||
		slices.ContainsFunc(Wires(in.Desired), func(w Link) bool {
			return slices.ContainsFunc(in.State.Links, func(l Link) bool { return l.Tuple() == w.Tuple() && !l.same(w) })
		})
}

// rival finds a link that keeps hosts from taking w, and whether it will last.
func (p *planner) rival(w wire, earlier, all []wire) (rival Link, lasting bool) {
	for _, e := range earlier {
		if e.excludes(w.Link) {
			return e.Link, true
		}
	}
	for _, l := range p.State.Links {
		if !l.excludes(w.Link) {
			continue
		}
		ours := slices.IndexFunc(all, func(o wire) bool { return o.Tuple() == l.Tuple() })
		switch {
		case ours >= 0 && !all[ours].excludes(w.Link), slices.Contains(p.stale.Links, l.Tuple()):
			rival = l // it is about to change, or to go
		default:
			return l, true
		}
	}
	return rival, false
}

// excludes reports whether a host that has l refuses o: from one source, under
// one name, an interface leads to one target.
func (l Link) excludes(o Link) bool {
	return l.Tuple().slot() == o.Tuple().slot() && l.Target != o.Target &&
		slices.ContainsFunc(l.Interfaces, func(i string) bool { return slices.Contains(o.Interfaces, i) })
}

// same compares links in full. The order of interfaces means nothing, that of
// configurations decides which value wins.
func (l Link) same(o Link) bool {
	return l.Tuple() == o.Tuple() &&
		slices.Equal(slices.Sorted(slices.Values(l.Interfaces)), slices.Sorted(slices.Values(o.Interfaces))) &&
		slices.Equal(l.SourceConfig, o.SourceConfig) && slices.Equal(l.TargetConfig, o.TargetConfig)
}

// sharesSlot reports whether a host that is told to delete t may delete somebody
// else's link, because it does not look at targets.
func (p *planner) sharesSlot(t Tuple) bool {
	ours := Makes(p.Desired).And(p.Owned).Links
	return slices.ContainsFunc(p.State.Links, func(l Link) bool {
		return l.Tuple() != t && l.Tuple().slot() == t.slot() && !slices.Contains(ours, l.Tuple())
	})
}

func (p *planner) link(t Tuple) (Link, bool) {
	i := slices.IndexFunc(p.State.Links, func(l Link) bool { return l.Tuple() == t })
	if i < 0 {
		return Link{}, false
	}
	return p.State.Links[i], true
}

func union(a, b []string) []string { return append(slices.Clone(a), without(b, a)...) }
