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
	p := newPool(fleet)
	if r := p.refuseInvalid(d); r != nil {
		return r
	}
	if len(p.machines) == 0 {
		return &CapabilityRefusal{Code: CodeNoNodesRegistered, Sentence: noNodes(d)}
	}
	return p.refuseIncapable(p.classify(d), d)
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
	if cand, ok := p.pick(c, d.Resources); ok {
		return Placement{NodeID: cand.node.ID, Need: cand.need(d.Resources)}, nil
	}
	if r := p.refuseIncapable(c, d); r != nil {
		return Placement{}, r
	}
	s := p.survey(c, d.Resources)
	return Placement{}, p.refuse(&s, d, false)
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
	for _, cand := range c.able {
		if cand.need(d.Resources).Fits(cand.node.Allocatable) {
			return nil
		}
	}
	s := p.survey(c, d.Resources)
	r := &CapabilityRefusal{Counts: s.counts, Nodes: s.reasons(p, d)}
	if len(c.able) > 0 {
		r.Code, r.Sentence = CodeExceedsEveryNode, exceeds(c, &s, d)
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

// refuse says why the pool has no room for d now. It must be called only when a
// survey of d found no node that fits. overtaken tells whether room that this
// pass gave to others counts as a reason.
func (p *pool) refuse(s *survey, d Demand, overtaken bool) *CapacityRefusal {
	r := &CapacityRefusal{Counts: s.counts, Nodes: s.reasons(p, d)}
	if len(p.machines) == 0 {
		r.Code, r.Sentence = CodeNoNodesRegistered, noNodes(d)
		return r
	}
	if s.ready > 0 {
		r.BestNode, r.ShortBy = s.nearest[0].m.node.ID, s.nearest[0].short
	}
	r.Code = s.code(d, overtaken)
	r.Sentence = ask(d, s.overhead) + "; " + p.cause(s, r.Code)
	return r
}

// code is the most useful single cause, in this order: the queue, machines that
// are starting (a matter of seconds), room, and only when no node of the right
// kind takes work, why none does.
func (s *survey) code(d Demand, overtaken bool) Code {
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
	case d.Resources.Slots > 1 && s.nearest[0].need.Fits(s.free):
		return CodeFragmented
	default:
		return scarcest(s.nearest[0])
	}
}

var dimensionCodes = [dimensions]Code{
	cpu: CodeCPU, memory: CodeMemory, disk: CodeDisk, slots: CodeSlots,
}

// scarcest is the code of the dimension whose missing share is the largest, so
// the one whose relief brings the node nearest to fitting.
func scarcest(seen sighting) Code {
	short, need := seen.short.dims(), seen.need.dims()
	code, worst := CodeCPU, 0.0
	for i := range short {
		if share := float64(short[i]) / float64(max(need[i], 1)); share > worst {
			code, worst = dimensionCodes[i], share
		}
	}
	return code
}
