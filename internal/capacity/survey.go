package capacity

import "slices"

// survey is every node's standing to one demand, counted, with the nearest
// nodes by name.
type survey struct {
	counts   Counts
	nearest  []sighting // at most [MaxNodeReasons], the nearest first
	ready    int        // nodes that take new work and could run it when empty
	free     Resources  // the sum of what those have free
	fitted   bool       // some node had room before this pass placed others
	overhead Resources  // on the nearest node of the right kind, in all
}

// sighting is one node in a survey.
type sighting struct {
	m        *machine
	standing standing
	need     Resources // overhead included; zero when mismatched
	short    Resources // of what is free, or of an empty node when tooSmall
	shortage float64
}

func (s sighting) before(o sighting) bool {
	switch {
	case s.standing != o.standing:
		return s.standing < o.standing
	case s.shortage != o.shortage:
		return s.shortage < o.shortage
	default:
		return s.m.node.ID < o.m.node.ID
	}
}

func (p *pool) survey(c *class, r Resources) survey {
	var s survey
	for _, cand := range c.able {
		need := cand.need(r)
		st := p.standing(cand, need, r.Slots)
		s.counts.add(st)
		seen := sighting{m: cand.machine, standing: st, need: need}
		switch st {
		case full:
			seen.short = shortfall(need, cand.free)
			seen.shortage = shortage(seen.short, need)
		case tooSmall:
			seen.short = shortfall(need, cand.node.Allocatable)
			seen.shortage = shortage(seen.short, need)
		}
		if st <= full {
			s.ready++
			s.free = s.free.Add(shortfall(cand.free, Resources{}))
			s.fitted = s.fitted || cand.touched && cand.fitted(need, r.Slots)
		}
		s.note(seen)
	}
	if len(s.nearest) > 0 {
		s.overhead = s.nearest[0].need.Sub(r)
	}
	for _, m := range c.unable {
		s.counts.add(mismatched)
		s.note(sighting{m: m, standing: mismatched})
	}
	return s
}

// fitted reports whether the node had room before this pass placed anything.
func (m *machine) fitted(need Resources, vms int64) bool {
	return need.Fits(m.node.Free) && mayStart(m.node.Starting, m.node.StartLimit, vms)
}

// note keeps seen when it is among the nearest.
func (s *survey) note(seen sighting) {
	i := len(s.nearest)
	if i == MaxNodeReasons {
		i--
		if !seen.before(s.nearest[i]) {
			return
		}
		s.nearest = s.nearest[:i]
	}
	for i > 0 && seen.before(s.nearest[i-1]) {
		i--
	}
	if s.nearest == nil {
		s.nearest = make([]sighting, 0, MaxNodeReasons)
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
