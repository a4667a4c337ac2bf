package capacity

import (
	"maps"
	"slices"
	"strconv"
)

// Waiting is one demand in a queue.
type Waiting struct {
	ID     int64 // any number that is unique in the queue; sentences name it as #ID
	Demand Demand
}

// Verdict is what a pass decided about one waiting demand. Exactly one of
// Placement, Capacity and Capability is set.
type Verdict struct {
	ID         int64
	Placement  *Placement
	Capacity   *CapacityRefusal
	Capability *CapabilityRefusal
	Position   int // in line among the capacity refusals, from 1; otherwise 0
}

// Pass decides about a whole queue at once, in its order, and returns one
// verdict for each item in the same order.
//
// What is placed counts for those behind it, as taken and as starting. The
// first demand that is refused although some node of its kind takes work is the
// head: the node nearest to fitting it is held, so that nobody behind it starts
// there, while all other nodes stay open to all. Demands that no node could ever
// run hold nothing and have no position.
//
// Refusals describe the fleet as the pass leaves it. Those of equal demands
// share their Nodes, which must not be modified.
func Pass(fleet []Node, queue []Waiting) []Verdict {
	w := &walk{
		pool:    newPool(fleet),
		classes: map[classKey]*class{},
		groups:  map[groupKey]*group{},
	}
	verdicts := make([]Verdict, len(queue))
	refused := make([]*group, len(queue))
	for i := range queue {
		verdicts[i], refused[i] = w.visit(queue[i])
	}
	for i, g := range refused {
		if g != nil {
			verdicts[i].Capacity = w.refusal(g, verdicts[i])
		}
	}
	return verdicts
}

// walk is the state of a pass on its way along the queue.
type walk struct {
	*pool
	classes map[classKey]*class
	groups  map[groupKey]*group
	line    int   // capacity refusals so far
	first   int64 // the number of the first of them
}

// group is every waiting demand that asks for the same. Room only shrinks
// during a pass, so the first refusal of a group is the refusal of the rest.
type group struct {
	demand     Demand
	class      *class
	capability *CapabilityRefusal
	refused    bool
	capacity   *CapacityRefusal // set once the walk is over
}

type classKey struct{ backend, arch, labels string }

type groupKey struct {
	class     classKey
	resources Resources
}

// visit decides about one demand. When capacity refuses it, it returns the
// group, whose words can only be found when the walk is over.
func (w *walk) visit(item Waiting) (Verdict, *group) {
	v := Verdict{ID: item.ID}
	g := w.group(item.Demand)
	if g.capability != nil {
		own := *g.capability
		v.Capability = &own
		return v, nil
	}
	if !g.refused {
		if best := w.pick(g.class, g.demand.Resources); best != nil {
			need := best.need(g.demand.Resources)
			best.place(need, g.demand.Resources.Slots)
			v.Placement = &Placement{NodeID: best.node.ID, Need: need}
			return v, nil
		}
		g.refused = true
		w.hold(g, item.ID)
	}
	w.line++
	if w.line == 1 {
		w.first = item.ID
	}
	v.Position = w.line
	return v, g
}

// hold keeps the node nearest to fitting g for item id, unless one is held
// already or no node that could run g takes work.
func (w *walk) hold(g *group, id int64) {
	if w.held != nil {
		return
	}
	if s := w.survey(g.class, g.demand); s.ready > 0 {
		w.held, w.holder = s.nearest[0].machine, id
	}
}

func (w *walk) refusal(g *group, v Verdict) *CapacityRefusal {
	holds := ""
	refusal := g.capacity
	switch {
	case w.held != nil && v.ID == w.holder:
		refusal, holds = w.survey(g.class, g.demand).refuse(false), w.held.node.ID
	case refusal == nil:
		refusal = w.survey(g.class, g.demand).refuse(true)
		g.capacity = refusal
	}
	r := *refusal
	r.Sentence += inLine(v.Position, w.first, holds)
	return &r
}

func (w *walk) group(d Demand) *group {
	key := groupKey{classKey{d.Backend, d.Arch, labelKey(d.Labels)}, d.Resources}
	if g, ok := w.groups[key]; ok {
		return g
	}
	g := &group{demand: d, capability: w.refuseInvalid(d)}
	w.groups[key] = g
	if g.capability != nil {
		return g
	}
	g.class = w.classes[key.class]
	if g.class == nil {
		g.class = w.classify(d)
		w.classes[key.class] = g.class
	}
	g.capability = w.refuseIncapable(g.class, d)
	return g
}

// labelKey encodes labels so that different sets have different keys.
func labelKey(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	var key []byte
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		key = strconv.AppendQuote(key, k)
		key = strconv.AppendQuote(key, labels[k])
	}
	return string(key)
}
