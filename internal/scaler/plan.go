package scaler

import (
	"cmp"
	"slices"
	"time"

	"tidewait/internal/wadm"
)

// Input is all that a plan depends on.
type Input struct {
	App     string
	Lattice string    // its name, for sentences
	Desired []Scaler  // of what is deployed; none: everything owned is cleaned up
	Owned   Resources // that the application has made and that are not known to be gone
	Others  Resources // that other deployed applications use: never deleted
	// Wired are the links that other deployed applications want, in full, by
	// their names. Where [Input.ConcernsOthers] says no, Others and Wired may be
	// left out.
	Wired   map[string][]Link
	State   State
	Pending []Command // sent, and not known to have succeeded or failed
	Backoff Backoff
	// Previous are the rows of the last status: what waits or has failed since
	// then keeps its time.
	Previous []wadm.ScalerStatus
	// Waited says for what the application waited when this was deployed, by
	// codes, and since when: it goes on waiting for what is still not there.
	Waited map[string]time.Time
	Now    time.Time
}

// Names returns the configurations that a plan has to know of: whether they
// exist, and with which values.
func (in Input) Names() []string { return Uses(in.Desired).And(in.Owned).Configs }

// Outcome is what to do now, and how everything is.
type Outcome struct {
	Batches []Batch             // for the lattice first, then by host
	Rows    []wadm.ScalerStatus // one for each desired scaler, in their order
	// Troubles are failures that no row speaks of: of cleaning up.
	Troubles []wadm.StatusInfo
	Owned    Resources // to be remembered
	Backoff  Backoff   // without what no longer matters
	Retry    time.Time // when to plan again because of a failure; zero: never
	// Settled says that only a change of the lattice or of what is desired can
	// give reason to plan again.
	Settled bool
}

// Status is the status of the application: that of its rows, and of the troubles
// beside them.
func (o Outcome) Status() wadm.Status {
	all := slices.Clone(o.Rows)
	for _, t := range o.Troubles {
		all = append(all, wadm.ScalerStatus{Status: t})
	}
	s := wadm.Aggregate(all)
	s.Scalers = o.Rows
	return s
}

// Plan compares what is desired with what is there, by the rules that stand in
// the package's comment.
func Plan(in Input) Outcome {
	p := newPlanner(in)
	if len(p.hosts) > 0 {
		p.planConfigs()
		p.planLinks()
		p.planWorkloads()
		p.deleteConfigs()
	}
	return p.outcome()
}

// planner is a plan in the making.
type planner struct {
	Input
	hosts   []Host            // by id
	wanted  map[string]Config // configurations that scalers need, by name
	ready   map[string]bool   // those of them that are as they should be
	reports []report          // one for each desired scaler
	stale   Resources         // that the application has made and nobody wants any more

	commands []Command
	open     map[Key]bool // of commands that are wanted: planned, pending or held back
	leaving  bool         // instances or links are still there that are to go or to change
}

func newPlanner(in Input) *planner {
	p := &planner{
		Input: in, hosts: slices.Clone(in.State.Hosts),
		wanted: map[string]Config{}, ready: map[string]bool{},
		reports: make([]report, len(in.Desired)), open: map[Key]bool{},
	}
	used := Uses(in.Desired).And(in.Others)
	p.stale = Resources{Links: without(in.Owned.Links, p.keptLinks()), Configs: without(in.Owned.Configs, used.Configs)}
	slices.SortFunc(p.hosts, func(a, b Host) int { return cmp.Compare(a.ID, b.ID) })
	for i, s := range in.Desired {
		p.reports[i].subjects = []string{s.ID}
	}
	return p
}

// issue plans a command, unless something is on its way to the same thing, or it
// failed too short a time ago.
func (p *planner) issue(c Command) {
	p.open[c.Key] = true
	if !p.pending(c) && !p.Backoff.held(c.Key, p.Now) {
		p.commands = append(p.commands, c)
	}
}

// first is the index of the first scaler of the same id: a manifest may say the
// same twice, and it is planned once.
func (p *planner) first(i int) int {
	return slices.IndexFunc(p.Desired, func(s Scaler) bool { return s.ID == p.Desired[i].ID })
}

func (p *planner) pending(c Command) bool { return slices.ContainsFunc(p.Pending, c.same) }

func (p *planner) outcome() Outcome {
	for _, c := range p.Pending {
		p.open[c.Key] = true
	}
	o := Outcome{
		Batches: batches(p.commands),
		Owned:   p.remember(),
		Backoff: p.Backoff.Without(func(f Failure) bool { return !p.matters(f) }),
		Settled: len(p.open) == 0,
	}
	o.Rows, o.Troubles = p.rows(o.Backoff)
	for _, f := range o.Backoff {
		if p.open[f.Key] && f.Next.After(p.Now) && (o.Retry.IsZero() || f.Next.Before(o.Retry)) {
			o.Retry = f.Next
		}
	}
	return o
}

// matters reports whether a failure is still true. It is while there is something
// to be done again, and also while its scaler tries elsewhere what it tried
// there in vain.
func (p *planner) matters(f Failure) bool {
	if f.Host != "" && !p.alive(f.Host) {
		return false
	}
	return p.open[f.Key] || slices.ContainsFunc(p.Desired, func(s Scaler) bool {
		return s.ID == f.Subject && !p.done(s)
	})
}

// done reports whether nothing is left to be done for a scaler.
func (p *planner) done(s Scaler) bool {
	for k := range p.open {
		if k.Subject == s.ID {
			return false
		}
	}
	return true
}

func (p *planner) alive(host string) bool {
	return slices.ContainsFunc(p.hosts, func(h Host) bool { return h.ID == host })
}

// remember returns what the application makes, and what is stale and not known
// to be gone.
func (p *planner) remember() Resources {
	stale := p.stale.And(Resources{})
	if len(p.hosts) > 0 {
		stale.Links = slices.DeleteFunc(stale.Links, func(t Tuple) bool {
			_, there := p.link(t)
			return !there && !p.pending(Command{Link: t.link()})
		})
		stale.Configs = slices.DeleteFunc(stale.Configs, func(name string) bool {
			_, there := p.State.Configs[name]
			return !there && !p.State.Unread[name] && !p.pending(Command{ID: name})
		})
	}
	return Makes(p.Desired).And(stale)
}
