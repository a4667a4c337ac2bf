package capacity

// Limits of one demand. What is above them is a mistake in the request; below
// them no sum in this package can overflow.
const (
	maxAmount = 1 << 40 // thousandths of a CPU, or mebibytes
	maxSlots  = 1 << 16
)

// Capable returns nil when some node that is not retired could run d if it were
// empty, whatever its state is now. An empty fleet is the refusal
// [CodeNoNodesRegistered].
func Capable(fleet []Node, d Demand) *CapabilityRefusal {
	if invalid(d) == "" && anyCould(fleet, d) {
		return nil
	}
	p := newPool(fleet)
	if r := p.refuseInvalid(d); r != nil {
		return r
	}
	if len(p.machines) == 0 {
		return &CapabilityRefusal{Code: CodeNoNodesRegistered, Sentence: noNodes(d)}
	}
	return p.refuseIncapable(p.classify(d), d)
}

// anyCould looks for a node that could run d when empty. Nearly every launch finds
// one among the first, so that it does not have to look at the whole fleet for each
// of its phases.
func anyCould(fleet []Node, d Demand) bool {
	for i := range fleet {
		n := &fleet[i]
		if n.State != Retired && d.offered(n) && suits(n, d) && d.Need(*n).Fits(n.Allocatable) {
			return true
		}
	}
	return false
}

// Admit chooses the node on which d may start now, by best fit. Its error is a
// [*CapacityRefusal] when waiting helps and a [*CapabilityRefusal] when it does
// not. An empty fleet is a capacity refusal: a phase waits for a node.
func Admit(fleet []Node, d Demand) (Placement, error) {
	p := newPool(fleet)
	if r := p.refuseInvalid(d); r != nil {
		return Placement{}, r
	}
	c := p.classify(d)
	if best := p.pick(c, d.Resources, d.Images, 0); best != nil {
		return Placement{NodeID: best.node.ID, Need: best.need(d.Resources)}, nil
	}
	if r := p.refuseIncapable(c, d); r != nil {
		return Placement{}, r
	}
	return Placement{}, p.survey(c, d, 0).refuse(false)
}

// refuseInvalid refuses what no fleet could ever run because the request itself
// makes no sense.
func (p *pool) refuseInvalid(d Demand) *CapabilityRefusal {
	sentence := invalid(d)
	if sentence == "" {
		return nil
	}
	return &CapabilityRefusal{
		Code:     CodeRequestInvalid,
		Sentence: sentence,
		Counts:   Counts{Incapable: len(p.machines)},
	}
}

// refuseIncapable returns nil when some node could run d when empty, or when
// there is no node at all.
func (p *pool) refuseIncapable(c *class, d Demand) *CapabilityRefusal {
	if len(p.machines) == 0 {
		return nil
	}
	for i := range c.able {
		if need := c.able[i].need(d.Resources); need.Fits(c.able[i].allocatable) {
			return nil
		}
	}
	s := p.survey(c, d, 0)
	r := &CapabilityRefusal{Counts: s.counts, Nodes: s.reasons()}
	if len(c.able) > 0 {
		r.Code, r.Sentence = CodeExceedsEveryNode, s.exceeds(c)
		return r
	}
	r.Code = CodeBackendUnsupported
	for _, m := range c.unable {
		r.Code = further(r.Code, mismatch(m.node, d))
	}
	switch r.Code {
	case CodeArchUnmatched:
		r.Sentence = archUnmatched(c, d)
	case CodeLabelsUnmatched:
		r.Sentence = labelsUnmatched(c, d)
	default:
		r.Sentence = backendUnsupported(c, d)
	}
	return r
}

// mismatch returns the first demand on its kind that n does not meet.
func mismatch(n *Node, d Demand) Code {
	switch {
	case !d.offered(n):
		return CodeBackendUnsupported
	case d.Arch != "" && d.Arch != n.Arch:
		return CodeArchUnmatched
	default:
		return CodeLabelsUnmatched
	}
}

// further returns the mismatch of the node that came closer: a node that lacks
// only the labels says more than one that lacks the backend.
func further(a, b Code) Code {
	for _, c := range []Code{CodeLabelsUnmatched, CodeArchUnmatched} {
		if a == c || b == c {
			return c
		}
	}
	return CodeBackendUnsupported
}

// refuse says why the pool has no room for the demand now. No node must fit.
// overtaken tells whether room that this pass gave to others is a reason.
func (s *survey) refuse(overtaken bool) *CapacityRefusal {
	r := &CapacityRefusal{Counts: s.counts, Nodes: s.reasons()}
	for i := range r.Nodes {
		r.Nodes[i].Never = s.nearest[i].standing >= tooSmall
	}
	if len(s.nearest) == 0 {
		r.Code, r.Sentence = CodeNoNodesRegistered, noNodes(s.demand)
		return r
	}
	if s.ready > 0 {
		r.BestNode, r.ShortBy = s.nearest[0].node.ID, s.nearest[0].short
	}
	r.Code = s.code(overtaken)
	r.Sentence = ask(s.demand, s.overhead) + "; " + s.cause(r.Code)
	return r
}

// code is the most useful single cause, in this order: the queue, machines that
// are starting (a matter of seconds), room, and only when no node of the right
// kind takes work, why none does.
func (s *survey) code(overtaken bool) Code {
	switch c := s.counts; {
	case c.Held > 0:
		return CodeHeldForHead
	case overtaken && s.fitted:
		return CodeBehindInQueue
	case c.Starting > 0:
		return CodeStartingLimit
	case s.ready == 0 && c.Lost >= c.Draining+c.Cordoned:
		return CodeNodesLost
	case s.ready == 0:
		return CodeNodesDraining
	case s.demand.Resources.Slots > 1 && s.nearest[0].need.Fits(s.free):
		return CodeFragmented
	default:
		return s.scarcest()
	}
}

var dimensionCodes = [dimensions]Code{
	cpu: CodeCPU, memory: CodeMemory, disk: CodeDisk, slots: CodeSlots,
}

// scarcest is the code of the resource of which the nearest node lacks the
// largest share, so the one whose relief brings it nearest to fitting.
func (s *survey) scarcest() Code {
	weights := scaleOf(s.demand.Resources)
	code, worst := CodeCPU, 0.0
	for i, short := range s.nearest[0].short.dims() {
		if share := weights[i] * float64(short); share > worst {
			code, worst = dimensionCodes[i], share
		}
	}
	return code
}
