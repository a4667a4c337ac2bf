package capacity

import (
	"math"
	"time"
)

// Hold keeps room on a node for the head of a queue, from the moment at which
// the head can start there at the latest. Others may start there as long as
// that moment does not move.
type Hold struct {
	Owner   int64 // the number of the waiting demand it is for
	NodeID  string
	Need    Resources     // overhead included
	In      time.Duration // from now; negative: not known, and nobody else starts there
	Longest time.Duration // of the run after that; 0: for ever
}

// Other is a hold of another queue over nodes of the same fleet. It binds those
// that its owner is ahead of.
type Other struct {
	Hold
	Ahead int // how many of this queue are ahead of the owner
}

// hold is a Hold on its machine, whose profile has it booked.
type hold struct {
	owner int64
	vms   int64
	at    time.Duration // never: not known
}

// never is later than every moment.
const never = time.Duration(math.MaxInt64)

// startsWithin is how long a machine counts as starting at the most. What
// starts on a held node sooner than that before its head could is in the way of
// the head's own start.
const startsWithin = time.Minute

// endOf is when what starts now ends at the latest; never when that is not known.
func endOf(longest time.Duration) time.Duration {
	if longest <= 0 {
		return never
	}
	return longest
}

// keep books a hold on m.
func (m *machine) keep(h Hold) {
	kept := hold{owner: h.Owner, vms: h.Need.Slots, at: h.In}
	if h.In < 0 {
		kept.at = never
	} else {
		m.book(h.In, h.Need, h.Longest)
	}
	m.holds = append(m.holds, kept)
}

// lets returns nil when a demand that fits on m may start there beside the holds:
// there is room for as long as it may run, what is held left out. Otherwise it
// returns a hold that is in the way.
func (m *machine) lets(need *Resources, vms int64, longest time.Duration) *hold {
	for i := range m.holds {
		h := &m.holds[i]
		if h.at == never || h.at < startsWithin && !mayStart(m.starting+vms, m.startLimit, h.vms) {
			return h
		}
	}
	if len(m.holds) > 0 && m.profile.earliest(need, endOf(longest)) > 0 {
		return &m.holds[0]
	}
	return nil
}

// blind reports whether m is held and nobody knows for how long.
func (m *machine) blind() bool {
	for _, h := range m.holds {
		if h.at == never {
			return true
		}
	}
	return false
}

// keep holds a node for the demand of g with number id, which no node takes now:
// the one on which it can start first; where that is not known of any, the one
// nearest to fitting. It returns nil when no node that could run the demand
// takes work at all.
func (w *walk) keep(g *group, id int64) *Hold {
	s := w.survey(g.class, g.demand, g.longest)
	if s.ready == 0 {
		return nil
	}
	near := &s.nearest[0]
	h := Hold{Owner: id, NodeID: near.node.ID, Need: near.need, In: -1, Longest: g.longest}
	on := near.machine
	if best, at := g.earliest(); best != nil {
		h.NodeID, h.Need, h.In, on = best.node.ID, best.need(g.demand.Resources), at, best.machine
	}
	on.keep(h)
	return &h
}

// honour keeps the holds of others that bind the demand at an index of the queue.
func (w *walk) honour(index int) {
	for len(w.others) > 0 && w.others[0].Ahead <= index {
		for i := range w.machines {
			if m := &w.machines[i]; m.node.ID == w.others[0].NodeID {
				m.keep(w.others[0].Hold)
			}
		}
		w.others = w.others[1:]
	}
}
