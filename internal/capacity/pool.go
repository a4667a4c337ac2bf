package capacity

import "math"

// pool is a fleet during one decision. What is placed is taken from its
// machines and never from the caller's nodes.
type pool struct {
	machines []machine // every node that is not retired
	held     *machine  // kept free for holder; nil: none
	holder   int64     // the number of the waiting demand that held is kept for
}

// machine is a node with what the decision has placed on it so far.
type machine struct {
	node     *Node
	open     standing // fits when the node takes new work, else why not
	free     Resources
	starting int64
	touched  bool // something was placed here
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
		p.machines = append(p.machines, machine{node: n, open: openness(n.State), free: n.Free, starting: n.Starting})
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

// class is the pool as seen by every demand of one backend, architecture and
// set of labels.
type class struct {
	able   []candidate
	unable []*machine
}

// candidate is a node of the right kind, with its overhead for each virtual
// machine.
type candidate struct {
	*machine
	overhead Resources
}

func (c candidate) need(r Resources) Resources {
	return r.Add(c.overhead.Times(r.Slots))
}

func (p *pool) classify(d Demand) *class {
	c := &class{able: make([]candidate, 0, len(p.machines))}
	for i := range p.machines {
		m := &p.machines[i]
		if mismatch(m.node, d) != "" {
			c.unable = append(c.unable, m)
			continue
		}
		c.able = append(c.able, candidate{m, m.node.Backends[d.Backend].Overhead})
	}
	return c
}

// mismatch returns the first demand on its kind that n does not meet, or "".
func mismatch(n *Node, d Demand) Code {
	switch {
	case !n.Backends[d.Backend].OK:
		return CodeBackendUnsupported
	case d.Arch != "" && d.Arch != n.Arch:
		return CodeArchUnmatched
	}
	for k, want := range d.Labels {
		if have, ok := n.Labels[k]; !ok || have != want {
			return CodeLabelsUnmatched
		}
	}
	return ""
}

// standing judges one candidate for a need that already includes its overhead.
func (p *pool) standing(c candidate, need Resources, vms int64) standing {
	switch {
	case !need.Fits(c.node.Allocatable):
		return tooSmall
	case c.open != fits:
		return c.open
	case !need.Fits(c.free):
		return full
	case !mayStart(c.starting, c.node.StartLimit, vms):
		return startLimited
	case c.machine == p.held:
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

// pick chooses the node for r by best fit: the one on which the smallest share
// of r's dominant resource would be left free. Ties go to the fewest starting
// machines, then to the lower id.
func (p *pool) pick(c *class, r Resources) (candidate, bool) {
	var best candidate
	bestLeft := math.Inf(1)
	for _, cand := range c.able {
		need := cand.need(r)
		if p.standing(cand, need, r.Slots) != fits {
			continue
		}
		left := leftover(need, cand.free, cand.node.Allocatable)
		if best.machine == nil || left < bestLeft || left == bestLeft && before(cand.machine, best.machine) {
			best, bestLeft = cand, left
		}
	}
	return best, best.machine != nil
}

func before(a, b *machine) bool {
	if a.starting != b.starting {
		return a.starting < b.starting
	}
	return a.node.ID < b.node.ID
}

// leftover returns the share of an empty node that would stay free in the
// dimension of which need takes the largest share.
func leftover(need, free, allocatable Resources) float64 {
	n, f, a := need.dims(), free.dims(), allocatable.dims()
	left, dominant := 0.0, -1.0
	for i := range n {
		if a[i] <= 0 {
			continue
		}
		if share := float64(n[i]) / float64(a[i]); share > dominant {
			dominant, left = share, float64(f[i]-n[i])/float64(a[i])
		}
	}
	return left
}

func (c candidate) place(need Resources, vms int64) {
	c.free = c.free.Sub(need)
	c.starting += vms
	c.touched = true
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

// shortage weighs a shortfall: the sum over the dimensions of the share of the
// need that is missing. A smaller one is nearer to fitting.
func shortage(short, need Resources) float64 {
	s, n := short.dims(), need.dims()
	sum := 0.0
	for i := range s {
		if s[i] > 0 {
			sum += float64(s[i]) / float64(max(n[i], 1))
		}
	}
	return sum
}
