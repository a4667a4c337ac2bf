package capacity

import "time"

// shortlist finds for demands that are alike, and ask for no images, what pick
// finds, without looking at every candidate again: a heap of those on which one
// more of them may still start, the best first. Room only shrinks during a pass, so
// that who is taken off the list never comes back; a machine that something was
// placed on is put on it once more, since that may have made it the better choice.
type shortlist struct {
	heap []listed
	seen int // of what the pool has placed
}

// listed is a candidate as it was when it was put on the list.
type listed struct {
	*candidate
	left     float64
	starting int64
	changes  int
}

// choose returns what pick does for the next demand of a group. Most groups of a
// pass that places little are asked once, for which a list is not worth its making.
func (w *walk) choose(g *group, d Demand) *candidate {
	g.asked++
	if g.asked == 1 || len(d.Images) > 0 {
		return w.pick(g.class, d.Resources, d.Images, g.longest)
	}
	if g.list == nil {
		g.list = w.shortlist(g.class, d.Resources)
	}
	return g.list.best(w.pool, g.class, d.Resources, g.longest)
}

func (p *pool) shortlist(c *class, r Resources) *shortlist {
	s := &shortlist{heap: make([]listed, 0, len(c.able)), seen: len(p.changed)}
	for i := range c.able {
		s.add(&c.able[i], r)
	}
	return s
}

// best returns the best candidate for one more demand, or nil. It stays on the list.
func (s *shortlist) best(p *pool, c *class, r Resources, longest time.Duration) *candidate {
	for ; s.seen < len(p.changed); s.seen++ {
		if i := c.of[p.changed[s.seen]]; i >= 0 {
			s.add(&c.able[i], r)
		}
	}
	for len(s.heap) > 0 {
		top := s.heap[0]
		need := top.need(r)
		if top.changes == top.machine.changes && p.standing(top.machine, &need, r.Slots, longest) == fits {
			return top.candidate
		}
		s.drop()
	}
	return nil
}

func (s *shortlist) add(c *candidate, r Resources) {
	need := c.need(r)
	if !need.Fits(c.free) {
		return
	}
	s.heap = append(s.heap, listed{c, c.leftover(&need), c.starting, c.changes})
	for i := len(s.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s.heap[i].before(&s.heap[parent]) {
			return
		}
		s.heap[i], s.heap[parent] = s.heap[parent], s.heap[i]
		i = parent
	}
}

// drop takes the first off the list.
func (s *shortlist) drop() {
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	for i := 0; ; {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if s.heap[child].before(&s.heap[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		s.heap[i], s.heap[first] = s.heap[first], s.heap[i]
		i = first
	}
}

// before is the order of pick.
func (l *listed) before(o *listed) bool {
	if l.left != o.left {
		return l.left < o.left
	}
	if l.starting != o.starting {
		return l.starting < o.starting
	}
	return l.node.ID < o.node.ID
}
