package capacity

import (
	"slices"
	"time"
)

// survey is every node's standing to one demand, counted, with the nearest
// nodes by name.
type survey struct {
	pool     *pool
	demand   Demand
	counts   Counts
	nearest  []sighting // at most [MaxNodeReasons], the nearest first
	ready    int        // nodes that take new work and could run it when empty
	free     Resources  // the sum of what those have free
	fitted   bool       // some node had room before this pass placed others
	overhead Resources  // on the nearest node of the right kind, in all
}

// sighting is one node in a survey.
type sighting struct {
	*machine
	standing standing
	shortage float64
	need     Resources // overhead included; zero when mismatched
	short    Resources // of what is free, or of an empty node when tooSmall
	owner    int64     // whom the node is held for, when held
}

func (s *sighting) before(o *sighting) bool {
	switch {
	case s.standing != o.standing:
		return s.standing < o.standing
	case s.shortage != o.shortage:
		return s.shortage < o.shortage
	default:
		return s.node.ID < o.node.ID
	}
}

// survey looks at every node for a demand that would hold it for longest.
func (p *pool) survey(c *class, d Demand, longest time.Duration) *survey {
	s := &survey{pool: p, demand: d, nearest: make([]sighting, 0, MaxNodeReasons)}
	weights := scaleOf(d.Resources)
	for i := range c.able {
		cand := &c.able[i]
		need := cand.need(d.Resources)
		seen := sighting{machine: cand.machine, standing: p.standing(cand.machine, &need, d.Resources.Slots, longest)}
		switch seen.standing {
		case full:
			seen.shortage = weights.shortage(&need, &cand.free)
		case tooSmall:
			seen.shortage = weights.shortage(&need, &cand.allocatable)
		}
		s.counts.add(seen.standing)
		if seen.standing <= full {
			s.ready++
			s.free = s.free.Add(shortfall(cand.free, Resources{}))
			s.fitted = s.fitted || len(cand.placed) > 0 && cand.fitted(need, d.Resources.Slots)
		}
		if s.isNear(&seen) {
			s.insert(seen.measure(need, d.Resources.Slots, longest))
		}
	}
	if len(s.nearest) > 0 {
		s.overhead = s.nearest[0].need.Sub(d.Resources)
	}
	for _, m := range c.unable {
		s.counts.add(mismatched)
		if seen := (sighting{machine: m, standing: mismatched}); s.isNear(&seen) {
			s.insert(seen)
		}
	}
	return s
}

// fitted reports whether the node had room before this pass placed anything.
func (m *machine) fitted(need Resources, vms int64) bool {
	return need.Fits(m.node.Free) && mayStart(m.node.Starting, m.startLimit, vms)
}

// measure fills in what only the nearest nodes are asked for.
func (s *sighting) measure(need Resources, vms int64, longest time.Duration) sighting {
	s.need = need
	switch s.standing {
	case held:
		s.owner = s.lets(&need, vms, longest).owner
	case full:
		s.short = shortfall(need, s.free)
	case tooSmall:
		s.short = shortfall(need, s.allocatable)
	}
	return *s
}

// isNear reports whether seen belongs to the nearest nodes so far.
func (s *survey) isNear(seen *sighting) bool {
	n := len(s.nearest)
	return n < MaxNodeReasons || seen.before(&s.nearest[n-1])
}

func (s *survey) insert(seen sighting) {
	i := min(len(s.nearest), MaxNodeReasons-1)
	s.nearest = s.nearest[:i]
	for i > 0 && seen.before(&s.nearest[i-1]) {
		i--
	}
	s.nearest = slices.Insert(s.nearest, i, seen)
}

func (c *Counts) add(st standing) {
	switch st {
	case fits:
		c.Fit++
	case held:
		c.Held++
	case startLimited:
		c.Starting++
	case full:
		c.Full++
	case cordoned:
		c.Cordoned++
	case draining:
		c.Draining++
	case lost:
		c.Lost++
	case tooSmall, mismatched:
		c.Incapable++
	}
}
