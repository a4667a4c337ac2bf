package capacity

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// hold keeps a node for the head of the queue: the node on which it can start
// soonest when every run uses its whole turn. Others may start there as long as
// that moment does not move.
type hold struct {
	machine *machine
	owner   int64 // the number of the waiting demand it is kept for
	need    Resources
	vms     int64
	at      time.Duration // from now, when need fits at the latest; never: not known
	spare   Resources     // what is free then, beyond need
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

// lets reports whether a demand that fits on m may start there beside the hold:
// on the held node it has to be over when the head can start, or to leave
// enough for it.
func (h *hold) lets(m *machine, need *Resources, vms int64, longest time.Duration) bool {
	switch {
	case h == nil || m != h.machine:
		return true
	case h.at == never:
		return false
	case h.at < startsWithin && !mayStart(m.starting+vms, m.startLimit, h.vms):
		return false
	default:
		return endOf(longest) <= h.at || need.Fits(h.spare)
	}
}

// yield takes what was placed on m from what the head can spare, when it is not
// over by then.
func (h *hold) yield(m *machine, need Resources, longest time.Duration) {
	if h != nil && m == h.machine && endOf(longest) > h.at {
		h.spare = h.spare.Sub(need)
	}
}

// keep returns the hold for the demand with number id, which no node takes now.
// It returns nil when no node that could run it takes work at all.
func (p *pool) keep(c *class, d Demand, longest time.Duration, id int64) *hold {
	s := p.survey(c, d, longest)
	if s.ready == 0 {
		return nil
	}
	near := &s.nearest[0]
	h := &hold{machine: near.machine, owner: id, need: near.need, vms: d.Resources.Slots, at: never}
	first := sighting{machine: near.machine, standing: mismatched}
	for i := range c.able {
		cand := &c.able[i]
		seen := sighting{machine: cand.machine, need: cand.need(d.Resources)}
		if seen.standing = p.standing(cand.machine, &seen.need, h.vms, longest); seen.standing > full {
			continue
		}
		at, spare := cand.fitsBy(&seen.need)
		if at == never || at > h.at || at == h.at && !seen.before(&first) {
			continue
		}
		first = seen
		h.machine, h.need, h.at, h.spare = cand.machine, seen.need, at, spare
	}
	return h
}

// fitsBy returns when need fits on m at the latest, and what is free then beyond
// it. It is never when what is known to end does not make enough room.
func (m *machine) fitsBy(need *Resources) (at time.Duration, spare Resources) {
	free := m.free
	for _, r := range m.runs() {
		if r.EndsIn > at && need.Fits(free) {
			break
		}
		at, free = r.EndsIn, free.Add(r.Holds)
	}
	if at == never || !need.Fits(free) {
		return never, Resources{}
	}
	return at, free.Sub(*need)
}

// runs returns what holds m, the earliest end first. A run that is overdue ends
// in the next moment: that is all that is known of it.
func (m *machine) runs() []Run {
	all := slices.Concat(m.node.Runs, m.placed)
	for i := range all {
		all[i].EndsIn = max(all[i].EndsIn, 1)
	}
	slices.SortFunc(all, func(a, b Run) int { return cmp.Compare(a.EndsIn, b.EndsIn) })
	return all
}
