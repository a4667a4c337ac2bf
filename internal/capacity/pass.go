package capacity

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Waiting is one demand in a queue.
type Waiting struct {
	ID     int64 // any number that is unique in the queue; sentences name it as #ID
	Demand Demand
	// Longest is how long a run of it holds its node at the most, counted from
	// its placement; 0: for ever.
	Longest time.Duration
}

// Verdict is what a pass decided about one waiting demand. Exactly one of
// Placement, Capacity and Capability is set.
type Verdict struct {
	ID         int64
	Placement  *Placement
	Capacity   *CapacityRefusal
	Capability *CapabilityRefusal
	Position   int    // in line among the capacity refusals, from 1; otherwise 0
	Start      *Start // of a capacity refusal: when it is expected to start; nil: not known
	Hold       *Hold  // what is held for it: of the head only
}

// Start is when and where a demand that waits is expected to start.
type Start struct {
	NodeID string
	In     time.Duration // from now
	// Held says that the node is kept for it: it starts by then at the latest
	// unless a demand ahead of it is added, the node stops taking work, or a run
	// outlives its turn. Otherwise it is an estimate: every run uses its whole
	// turn, the line is served strictly in its order, and nobody joins it.
	Held bool
}

// MaxAhead is how many of those in front a sentence names.
const MaxAhead = 3

// Pass decides about a whole queue at once, in its order, and returns one
// verdict for each item in the same order.
//
// What is placed counts for those behind it, as taken and as starting. The
// first demand that is refused although some node of its kind takes work is the
// head: the node on which it can start soonest, when every run uses its whole
// turn, is held for it. Those behind start there only when they are over by then
// or leave the head's room alone, while all other nodes stay open to all; so the
// moment at which the head starts at the latest never moves because of them.
// Where the ends of runs are not known, the node nearest to fitting the head is
// held and nobody else starts there. Demands that no node could ever run hold
// nothing and have no position.
//
// Others are the holds of other queues over the same nodes. Each binds those that
// its owner is ahead of, so that of all heads the one that is ahead of the rest
// is delayed by nobody.
//
// Refusals describe the fleet as the pass leaves it. Those of equal demands
// share their Nodes, which must not be modified.
func Pass(fleet []Node, queue []Waiting, others ...Other) []Verdict {
	w := decide(fleet, queue, others)
	for i, g := range w.refused {
		if g != nil {
			w.verdicts[i].Capacity = w.refusal(g, w.verdicts[i])
		}
	}
	w.forecast()
	return w.verdicts
}

// decide goes along the queue. What it refuses for capacity has no words yet.
func decide(fleet []Node, queue []Waiting, others []Other) *walk {
	w := &walk{
		pool:     newPool(fleet),
		classes:  map[classKey]*class{},
		groups:   map[groupKey]*group{},
		verdicts: make([]Verdict, len(queue)),
		refused:  make([]*group, len(queue)),
		others:   slices.SortedStableFunc(slices.Values(others), func(a, b Other) int { return cmp.Compare(a.Ahead, b.Ahead) }),
	}
	for i := range queue {
		w.honour(i)
		w.verdicts[i], w.refused[i] = w.visit(queue[i])
	}
	return w
}

// walk is the state of a pass on its way along the queue.
type walk struct {
	*pool
	verdicts []Verdict
	refused  []*group // for each verdict that capacity refuses, what asks for the same
	classes  map[classKey]*class
	groups   map[groupKey]*group
	others   []Other // those that do not bind yet, in order
	hold     *Hold   // for the head; nil: none
	line     int     // capacity refusals so far
	front    []int64 // the numbers of the first [MaxAhead] of them
}

// group is every waiting demand that asks for the same. Room only shrinks
// during a pass, so the first refusal of a group is the refusal of the rest.
type group struct {
	demand     Demand
	longest    time.Duration
	class      *class
	capability *CapabilityRefusal
	refused    bool
	asked      int              // how often a node was looked for
	list       *shortlist       // made when it is asked for again
	capacity   *CapacityRefusal // set once the walk is over
	outlook    outlook          // when each node has room for it
}

type classKey struct {
	backend, arch, labels string
	network               bool
}

type groupKey struct {
	class     classKey
	resources Resources
	longest   time.Duration
}

// visit decides about one demand. When capacity refuses it, it returns the
// group, whose words can only be found when the walk is over.
func (w *walk) visit(item Waiting) (Verdict, *group) {
	v := Verdict{ID: item.ID}
	g := w.group(item)
	if g.capability != nil {
		own := *g.capability
		v.Capability = &own
		return v, nil
	}
	if !g.refused {
		if best := w.choose(g, item.Demand); best != nil {
			need := best.need(g.demand.Resources)
			best.place(need, g.demand.Resources.Slots, g.longest)
			w.changed = append(w.changed, best.index)
			v.Placement = &Placement{NodeID: best.node.ID, Need: need}
			return v, nil
		}
		g.refused = true
		if w.hold == nil {
			w.hold = w.keep(g, item.ID)
			v.Hold = w.hold
		}
	}
	w.line++
	if w.line <= MaxAhead {
		w.front = append(w.front, item.ID)
	}
	v.Position = w.line
	return v, g
}

func (w *walk) refusal(g *group, v Verdict) *CapacityRefusal {
	holds := ""
	refusal := g.capacity
	switch {
	case v.Hold != nil:
		refusal, holds = w.survey(g.class, g.demand, g.longest).refuse(false), v.Hold.NodeID
	case refusal == nil:
		refusal = w.survey(g.class, g.demand, g.longest).refuse(true)
		g.capacity = refusal
	}
	r := *refusal
	r.Sentence += inLine(v.Position, w.front, holds)
	return &r
}

func (w *walk) group(item Waiting) *group {
	d := item.Demand
	key := groupKey{classKey{d.Backend, d.Arch, labelKey(d.Labels), d.Network}, d.Resources, item.Longest}
	if g, ok := w.groups[key]; ok {
		return g
	}
	g := &group{demand: d, longest: item.Longest, capability: w.refuseInvalid(d)}
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
