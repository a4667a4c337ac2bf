package capacity

import (
	"math"
	"slices"
	"time"
)

// pool is a fleet during one decision. What is placed is taken from its
// machines and never from the caller's nodes.
type pool struct {
	machines []machine // every node that is not retired
	changed  []int     // by their index, the machines that something was placed on, one entry each time
}

// machine is a node with what the decision has placed on it so far. What the
// inner loops read of the node is copied, so that they stay in one place.
type machine struct {
	node        *Node
	index       int // among the pool's
	changes     int // of what is free, by this decision
	free        Resources
	allocatable Resources
	unit        scale // turns an amount into a share of what is allocatable
	starting    int64
	startLimit  int64
	open        standing // fits when the node takes new work, else why not
	placed      []Run    // by this decision
	holds       []hold   // for heads of queues
	profile     profile  // of what is free later; made when it is asked for
}

// standing is how a node stands to a demand, the nearest to running it first.
type standing uint8

const (
	fits standing = iota
	held
	startLimited
	full
	cordoned
	draining
	lost
	tooSmall   // right kind, but cannot hold it even when empty
	mismatched // wrong backend, architecture or labels
)

func newPool(fleet []Node) *pool {
	p := &pool{machines: make([]machine, 0, len(fleet))}
	for i := range fleet {
		n := &fleet[i]
		if n.State == Retired {
			continue
		}
		p.machines = append(p.machines, machine{
			node: n, index: len(p.machines), free: n.Free, allocatable: n.Allocatable, unit: scaleOf(n.Allocatable),
			starting: n.Starting, startLimit: n.StartLimit, open: openness(n.State),
		})
	}
	return p
}

// openness says whether a node in state s takes new work. A state this package
// does not know takes none.
func openness(s NodeState) standing {
	switch s {
	case Ready:
		return fits
	case Draining, Drained:
		return draining
	case Suspect, Down:
		return lost
	default:
		return cordoned
	}
}

// class is the pool as seen by every demand of one backend, with a network or
// without, one architecture and one set of labels.
type class struct {
	able   []candidate
	unable []*machine
	of     []int // for each machine of the pool its index in able; -1: it is not
}

// candidate is a node of the right kind, with its overhead for each virtual
// machine.
type candidate struct {
	*machine
	overhead Resources
}

func (c *candidate) need(r Resources) Resources {
	return r.Add(c.overhead.Times(r.Slots))
}

func (p *pool) classify(d Demand) *class {
	c := &class{able: make([]candidate, 0, len(p.machines)), of: make([]int, len(p.machines))}
	for i := range p.machines {
		m := &p.machines[i]
		c.of[i] = -1
		if d.offered(m.node) && suits(m.node, d) {
			c.of[i] = len(c.able)
			c.able = append(c.able, candidate{m, m.node.Backends[d.Backend].Overhead})
		} else {
			c.unable = append(c.unable, m)
		}
	}
	return c
}

// suits reports whether n has the architecture and the labels of d.
func suits(n *Node, d Demand) bool {
	if d.Arch != "" && d.Arch != n.Arch {
		return false
	}
	for k, want := range d.Labels {
		if have, ok := n.Labels[k]; !ok || have != want {
			return false
		}
	}
	return true
}

// standing judges one candidate for a need that already includes its overhead,
// of a demand that would hold the node for longest.
func (p *pool) standing(m *machine, need *Resources, vms int64, longest time.Duration) standing {
	switch {
	case !need.Fits(m.allocatable):
		return tooSmall
	case m.open != fits:
		return m.open
	case !need.Fits(m.free):
		return full
	case !mayStart(m.starting, m.startLimit, vms):
		return startLimited
	case m.lets(need, vms, longest) != nil:
		return held
	default:
		return fits
	}
}

// mayStart reports whether vms more machines may start beside those already
// starting. A demand that alone exceeds the limit starts when nothing else is
// starting; it could never run otherwise.
func mayStart(starting, limit, vms int64) bool {
	return limit <= 0 || starting <= 0 || starting+vms <= limit
}

// pick chooses the node for r: the one that has most of the images, and of those
// by best fit: the one on which the smallest share of r's dominant resource would
// be left free. Ties go to the fewest starting machines, then to the lower id. It
// returns nil when no node fits.
func (p *pool) pick(c *class, r Resources, images []string, longest time.Duration) *candidate {
	var best *candidate
	bestLeft, bestHas := math.Inf(1), 0
	for i := range c.able {
		cand := &c.able[i]
		need := cand.need(r)
		if !need.Fits(cand.free) || p.standing(cand.machine, &need, r.Slots, longest) != fits {
			continue
		}
		left, has := cand.leftover(&need), cand.has(images)
		if best == nil || has > bestHas || has == bestHas && (left < bestLeft || left == bestLeft && before(cand.machine, best.machine)) {
			best, bestLeft, bestHas = cand, left, has
		}
	}
	return best
}

// has counts the images that the node has.
func (m *machine) has(images []string) int {
	n := 0
	for _, image := range images {
		if slices.Contains(m.node.Images, image) {
			n++
		}
	}
	return n
}

func before(a, b *machine) bool {
	if a.starting != b.starting {
		return a.starting < b.starting
	}
	return a.node.ID < b.node.ID
}

// leftover returns the share of the empty node that would stay free in the
// dimension of which need takes the largest share.
func (m *machine) leftover(need *Resources) float64 {
	dominant := m.unit[cpu] * float64(need.CPUMilli)
	left := m.unit[cpu] * float64(m.free.CPUMilli-need.CPUMilli)
	if share := m.unit[memory] * float64(need.MemoryMiB); share > dominant {
		dominant, left = share, m.unit[memory]*float64(m.free.MemoryMiB-need.MemoryMiB)
	}
	if share := m.unit[disk] * float64(need.DiskMiB); share > dominant {
		dominant, left = share, m.unit[disk]*float64(m.free.DiskMiB-need.DiskMiB)
	}
	if share := m.unit[slots] * float64(need.Slots); share > dominant {
		left = m.unit[slots] * float64(m.free.Slots-need.Slots)
	}
	return left
}

// place books need on the candidate for a run of at most longest.
func (c *candidate) place(need Resources, vms int64, longest time.Duration) {
	if c.profile.steps != nil {
		c.book(0, need, longest)
	}
	c.free = c.free.Sub(need)
	c.starting += vms
	c.changes++
	c.placed = append(c.placed, Run{Holds: need, EndsIn: endOf(longest)})
}

// The dimensions of [Resources], as indices into dims.
const (
	cpu = iota
	memory
	disk
	slots
	dimensions
)

func (r Resources) dims() [dimensions]int64 {
	return [dimensions]int64{cpu: r.CPUMilli, memory: r.MemoryMiB, disk: r.DiskMiB, slots: r.Slots}
}

// shortfall returns what need exceeds have by; zero where it does not.
func shortfall(need, have Resources) Resources {
	s := need.Sub(have)
	return Resources{max(s.CPUMilli, 0), max(s.MemoryMiB, 0), max(s.DiskMiB, 0), max(s.Slots, 0)}
}

// scale turns amounts into shares of one whole, so that different dimensions
// can be added and compared.
type scale [dimensions]float64

func scaleOf(whole Resources) scale {
	return scale{
		cpu:    1 / float64(max(whole.CPUMilli, 1)),
		memory: 1 / float64(max(whole.MemoryMiB, 1)),
		disk:   1 / float64(max(whole.DiskMiB, 1)),
		slots:  1 / float64(max(whole.Slots, 1)),
	}
}

// shortage is the sum of the shares by which need exceeds have, when s is the
// scale of what was asked for. A smaller one is nearer to fitting.
func (s *scale) shortage(need, have *Resources) float64 {
	return s[cpu]*float64(max(need.CPUMilli-have.CPUMilli, 0)) +
		s[memory]*float64(max(need.MemoryMiB-have.MemoryMiB, 0)) +
		s[disk]*float64(max(need.DiskMiB-have.DiskMiB, 0)) +
		s[slots]*float64(max(need.Slots-have.Slots, 0))
}
