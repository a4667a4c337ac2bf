package capacity

import (
	"cmp"
	"slices"
	"time"
)

// forecastDepth is how far back in line starts are estimated. Further back an
// estimate costs more than it is worth.
const forecastDepth = 256

// forecast estimates when those in line start. Each takes, in the order of the
// line, the earliest moment at which some node has room for it for as long as
// it may run, and nobody ahead is moved for it. Where there is room now, it is
// not room that the demand lacks, and nothing is known of when it starts.
func (w *walk) forecast() {
	for i, g := range w.refused {
		v := &w.verdicts[i]
		switch {
		case g == nil:
		case v.Position > forecastDepth:
			return
		case v.Hold != nil:
			if v.Hold.In > 0 {
				v.Start = &Start{NodeID: v.Hold.NodeID, In: v.Hold.In, Held: true}
			}
		default:
			if best, at := g.earliest(); best != nil {
				best.book(at, best.need(g.demand.Resources), g.longest)
				if at > 0 {
					v.Start = &Start{NodeID: best.node.ID, In: at}
				}
			}
		}
	}
}

// outlook is when a group's demand fits on each of its candidates. What is
// booked later only makes it later, and each entry says for which state of the
// node's profile it holds.
type outlook []prospect

type prospect struct {
	at       time.Duration
	bookings int // of the node's profile
}

// earliest returns the candidate that has room for the group's demand first, the
// lower id where several do; nil when none is known to have.
func (g *group) earliest() (best *candidate, at time.Duration) {
	able := g.class.able
	if g.outlook == nil {
		g.outlook = make(outlook, len(able))
		for i := range able {
			g.outlook[i] = able[i].prospect(g)
		}
	}
	at = never
	for i := range able {
		cand, seen := &able[i], &g.outlook[i]
		if seen.at > at || seen.at == never || seen.at == at && cand.node.ID > best.node.ID {
			continue
		}
		if seen.bookings != cand.profile.bookings {
			*seen = cand.prospect(g)
		}
		if seen.at < at || seen.at == at && at != never && cand.node.ID < best.node.ID {
			best, at = cand, seen.at
		}
	}
	return best, at
}

// prospect is never on a node that takes no work, and on one that is held for a
// demand of which nobody knows when it starts.
func (c *candidate) prospect(g *group) prospect {
	need := c.need(g.demand.Resources)
	if c.open != fits || c.blind() || !need.Fits(c.allocatable) {
		return prospect{at: never}
	}
	c.foresee()
	return prospect{c.profile.earliest(&need, endOf(g.longest)), c.profile.bookings}
}

// profile is what is free on a node from each moment on until the next. Its
// first moment is now.
type profile struct {
	steps    []step
	bookings int
}

type step struct {
	at   time.Duration
	free Resources
}

// foresee makes the profile of m from what runs there, once.
func (m *machine) foresee() {
	if m.profile.steps != nil {
		return
	}
	runs := m.runs()
	steps := append(make([]step, 0, len(runs)+8), step{0, m.free})
	for _, r := range runs {
		if r.EndsIn == never {
			break
		}
		last := &steps[len(steps)-1]
		if r.EndsIn > last.at {
			steps = append(steps, step{r.EndsIn, last.free})
			last = &steps[len(steps)-1]
		}
		last.free = last.free.Add(r.Holds)
	}
	m.profile.steps = steps
}

// earliest returns the first moment from which need fits for as long as longest.
func (p *profile) earliest(need *Resources, longest time.Duration) time.Duration {
	at, open := never, false
	for _, s := range p.steps {
		switch {
		case open && s.at-at >= longest:
			return at
		case !need.Fits(s.free):
			open = false
		case !open:
			at, open = s.at, true
		}
	}
	if !open {
		return never
	}
	return at
}

// book takes need from what is free from at on, for longest.
func (m *machine) book(at time.Duration, need Resources, longest time.Duration) {
	m.foresee()
	p := &m.profile
	p.bookings++
	end := never
	if longest > 0 {
		end = at + longest
		p.split(end)
	}
	for i := p.split(at); i < len(p.steps) && p.steps[i].at < end; i++ {
		p.steps[i].free = p.steps[i].free.Sub(need)
	}
}

// split makes at the beginning of a step and returns its index.
func (p *profile) split(at time.Duration) int {
	i, found := slices.BinarySearchFunc(p.steps, at, func(s step, at time.Duration) int { return int(s.at - at) })
	if !found {
		p.steps = slices.Insert(p.steps, i, step{at, p.steps[i-1].free})
	}
	return i
}

// runs returns what holds m, the earliest end first. A run that is overdue ends
// in the next moment: that is all that is known of it.
func (m *machine) runs() []Run {
	all := slices.Concat(m.node.Runs, m.placed)
	for i := range m.node.Runs {
		all[i].EndsIn -= m.node.RunsAge
	}
	for i := range all {
		all[i].EndsIn = max(all[i].EndsIn, 1)
	}
	slices.SortFunc(all, func(a, b Run) int { return cmp.Compare(a.EndsIn, b.EndsIn) })
	return all
}
