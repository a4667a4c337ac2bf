package capacity_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
)

// busy is a node whose CPUs are taken by runs of the given lengths, each of one
// CPU, with memory to spare.
func busy(id string, cpus int64, ends ...time.Duration) capacity.Node {
	return node(id, func(n *capacity.Node) {
		n.Allocatable = capacity.Resources{CPUMilli: 1000 * cpus, MemoryMiB: 64 * gib, Slots: 64}
		n.Free = n.Allocatable
		for _, end := range ends {
			r := capacity.Run{Holds: capacity.Resources{CPUMilli: 1000, MemoryMiB: gib, Slots: 1}, EndsIn: end}
			n.Runs = append(n.Runs, r)
			n.Free = n.Free.Sub(r.Holds)
		}
	})
}

func waiting(id, cpus int64, longest time.Duration) capacity.Waiting {
	return capacity.Waiting{ID: id, Demand: demand(asks(1000*cpus, gib, 0, 1)), Longest: longest}
}

const minute = time.Minute

// start is a verdict's start in the few words a table can hold.
type start struct {
	node string
	in   time.Duration
	held bool
}

func starts(verdicts []capacity.Verdict) map[int64]start {
	got := map[int64]start{}
	for _, v := range verdicts {
		if v.Start != nil {
			got[v.ID] = start{v.Start.NodeID, v.Start.In, v.Start.Held}
		}
	}
	return got
}

func TestBackfill(t *testing.T) {
	for name, tt := range map[string]struct {
		fleet  []capacity.Node
		queue  []capacity.Waiting
		want   map[int64]outcome
		starts map[int64]start
	}{
		"what is over in time runs beside the hold": {
			[]capacity.Node{busy("a", 4, 30*minute, 40*minute)},
			[]capacity.Waiting{waiting(1, 4, 60*minute), waiting(2, 1, 40*minute), waiting(3, 1, 41*minute)},
			map[int64]outcome{
				1: {code: capacity.CodeCPU, position: 1}, 2: {node: "a"}, 3: {code: capacity.CodeHeldForHead, position: 2},
			},
			map[int64]start{1: {"a", 40 * minute, true}, 3: {"a", 100 * minute, false}},
		},
		"what leaves the head's room alone runs beside the hold for as long as it likes": {
			[]capacity.Node{busy("a", 4, 30*minute, 40*minute)},
			[]capacity.Waiting{waiting(1, 3, 60*minute), waiting(2, 1, 0), waiting(3, 1, 60*minute)},
			map[int64]outcome{
				// When the first run ends there are three CPUs, all of which the head needs.
				1: {code: capacity.CodeCPU, position: 1}, 2: {code: capacity.CodeHeldForHead, position: 2},
				3: {code: capacity.CodeHeldForHead, position: 3},
			},
			map[int64]start{1: {"a", 30 * minute, true}, 2: {"a", 40 * minute, false}, 3: {"a", 90 * minute, false}},
		},
		"what one takes of that the next does not get": {
			[]capacity.Node{busy("a", 6, 30*minute, 30*minute, 30*minute)},
			[]capacity.Waiting{waiting(1, 5, 60*minute), waiting(2, 1, 0), waiting(3, 1, 60*minute), waiting(4, 1, 20*minute)},
			map[int64]outcome{
				1: {code: capacity.CodeCPU, position: 1}, 2: {node: "a"},
				3: {code: capacity.CodeHeldForHead, position: 2}, 4: {node: "a"},
			},
			map[int64]start{1: {"a", 30 * minute, true}, 3: {"a", 90 * minute, false}},
		},
		"the node where the head starts soonest is held, not the one that lacks least": {
			[]capacity.Node{busy("a", 4, 50*minute), busy("b", 4, 10*minute, 20*minute)},
			[]capacity.Waiting{waiting(1, 4, 60*minute), waiting(2, 2, 60*minute)},
			map[int64]outcome{1: {code: capacity.CodeCPU, position: 1}, 2: {node: "a"}},
			map[int64]start{1: {"b", 20 * minute, true}},
		},
		"of two nodes with the same moment the lower id is held": {
			[]capacity.Node{busy("b", 4, 20*minute), busy("a", 4, 20*minute)},
			[]capacity.Waiting{waiting(1, 4, 60*minute)},
			map[int64]outcome{1: {code: capacity.CodeCPU, position: 1}},
			map[int64]start{1: {"a", 20 * minute, true}},
		},
		"what this pass placed ends as well": {
			[]capacity.Node{busy("a", 4)},
			[]capacity.Waiting{waiting(1, 3, 25*minute), waiting(2, 4, 60*minute), waiting(3, 1, 25*minute), waiting(4, 1, 25*minute)},
			map[int64]outcome{
				1: {node: "a"}, 2: {code: capacity.CodeCPU, position: 1}, 3: {node: "a"},
				4: {code: capacity.CodeBehindInQueue, position: 2},
			},
			map[int64]start{2: {"a", 25 * minute, true}, 4: {"a", 85 * minute, false}},
		},
		"beside an overdue run only what leaves room runs": {
			[]capacity.Node{busy("a", 4, -minute)},
			[]capacity.Waiting{waiting(1, 4, 60*minute), waiting(2, 1, minute)},
			map[int64]outcome{1: {code: capacity.CodeCPU, position: 1}, 2: {code: capacity.CodeHeldForHead, position: 2}},
			map[int64]start{1: {"a", 1, true}, 2: {"a", 60*minute + 1, false}},
		},
		"where an end is not known the nearest node is held and nobody runs there": {
			[]capacity.Node{node("a", free(2000, 8*gib, 0, 4)), node("b", free(1000, 8*gib, 0, 4))},
			[]capacity.Waiting{waiting(1, 4, 60*minute), waiting(2, 2, minute), waiting(3, 1, minute)},
			map[int64]outcome{
				1: {code: capacity.CodeCPU, position: 1}, 2: {code: capacity.CodeHeldForHead, position: 2}, 3: {node: "b"},
			},
			map[int64]start{},
		},
		"a phase without an end keeps everybody else from knowing": {
			[]capacity.Node{busy("a", 1)},
			[]capacity.Waiting{waiting(1, 1, 0), waiting(2, 1, minute)},
			map[int64]outcome{1: {node: "a"}, 2: {code: capacity.CodeCPU, position: 1}},
			map[int64]start{},
		},
		"start slots that the head needs soon are left to it": {
			[]capacity.Node{func() capacity.Node {
				n := busy("a", 4, 30*time.Second)
				n.StartLimit = 1
				return n
			}()},
			[]capacity.Waiting{waiting(1, 4, 60*minute), waiting(2, 1, 20*time.Second)},
			map[int64]outcome{1: {code: capacity.CodeCPU, position: 1}, 2: {code: capacity.CodeHeldForHead, position: 2}},
			map[int64]start{1: {"a", 30 * time.Second, true}},
		},
		"start slots that are back by then are no reason to wait": {
			[]capacity.Node{func() capacity.Node {
				n := busy("a", 4, 3*minute)
				n.StartLimit = 1
				return n
			}()},
			[]capacity.Waiting{waiting(1, 4, 60*minute), waiting(2, 1, 2*minute)},
			map[int64]outcome{1: {code: capacity.CodeCPU, position: 1}, 2: {node: "a"}},
			map[int64]start{1: {"a", 3 * minute, true}},
		},
		"each in line is expected after those ahead of it": {
			[]capacity.Node{busy("a", 2, 10*minute, 20*minute)},
			[]capacity.Waiting{waiting(1, 1, 60*minute), waiting(2, 1, 5*minute), waiting(3, 1, 60*minute), waiting(4, 2, minute)},
			map[int64]outcome{
				1: {code: capacity.CodeCPU, position: 1}, 2: {code: capacity.CodeCPU, position: 2},
				3: {code: capacity.CodeCPU, position: 3}, 4: {code: capacity.CodeCPU, position: 4},
			},
			map[int64]start{
				1: {"a", 10 * minute, true}, 2: {"a", 20 * minute, false}, 3: {"a", 25 * minute, false}, 4: {"a", 85 * minute, false},
			},
		},
		"the line is estimated across nodes": {
			[]capacity.Node{busy("a", 1, 10*minute), busy("b", 1, 15*minute)},
			[]capacity.Waiting{waiting(1, 1, 30*minute), waiting(2, 1, 30*minute), waiting(3, 1, 30*minute)},
			map[int64]outcome{
				1: {code: capacity.CodeCPU, position: 1}, 2: {code: capacity.CodeCPU, position: 2}, 3: {code: capacity.CodeCPU, position: 3},
			},
			map[int64]start{1: {"a", 10 * minute, true}, 2: {"b", 15 * minute, false}, 3: {"a", 40 * minute, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts := capacity.Pass(tt.fleet, tt.queue)
			require.Equal(t, tt.want, outcomes(verdicts))
			require.Equal(t, tt.starts, starts(verdicts))
		})
	}
}

func TestStartsAreEstimatedForTheFirst256InLine(t *testing.T) {
	var q []capacity.Waiting
	for i := range int64(300) {
		q = append(q, waiting(i, 1, minute))
	}
	got := starts(capacity.Pass([]capacity.Node{busy("a", 1, 10*minute)}, q))
	require.Len(t, got, 256)
	require.Equal(t, start{"a", 10 * minute, true}, got[0])
	require.Equal(t, start{"a", 265 * minute, false}, got[255])
}

func TestRank(t *testing.T) {
	since := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ageing := 30 * time.Minute
	require.Equal(t, since, capacity.Rank(0, since, ageing))
	require.Equal(t, time.Date(2026, 11, 29, 11, 0, 0, 0, time.UTC), capacity.Rank(50, since, ageing))
	require.Equal(t, capacity.Rank(51, since.Add(30*time.Minute), ageing), capacity.Rank(50, since, ageing),
		"half an hour of waiting is worth one step of priority")
	require.True(t, capacity.Rank(60, since.Add(4*time.Hour), ageing).Before(capacity.Rank(50, since, ageing)))
	require.True(t, capacity.Rank(50, since, ageing).Before(capacity.Rank(60, since.Add(6*time.Hour), ageing)))
}

// freeAt returns what is free on n at a moment, when every run ends as late as
// it may and what this pass placed there counts.
func freeAt(n capacity.Node, placed []capacity.Run, at time.Duration) capacity.Resources {
	free := n.Free
	for _, r := range placed {
		free = free.Sub(r.Holds)
	}
	for _, r := range slices.Concat(n.Runs, placed) {
		if r.EndsIn <= at {
			free = free.Add(r.Holds)
		}
	}
	return free
}

// However a pass fills the fleet, the head still finds its room on its node at
// the promised moment, and so it does when nobody behind it is there. Where no
// moment is known, nobody starts on the held node.
func TestBackfillNeverDelaysTheHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		verdicts := capacity.Pass(fleet, queue)
		head := slices.IndexFunc(verdicts, func(v capacity.Verdict) bool { return v.Capacity != nil && v.Capacity.BestNode != "" })
		if head < 0 {
			return
		}
		alone := capacity.Pass(fleet, queue[:head+1])[head]
		require.Equal(t, alone.Start, verdicts[head].Start, "the promise does not depend on those behind")
		if s := verdicts[head].Start; s == nil {
			for _, v := range verdicts[head+1:] {
				if v.Placement != nil {
					require.NotContains(t, alone.Capacity.Sentence, ", and "+v.Placement.NodeID+" is held for it")
				}
			}
			return
		}
		promise := verdicts[head].Start
		require.True(t, promise.Held)
		require.Contains(t, verdicts[head].Capacity.Sentence, ", and "+promise.NodeID+" is held for it")
		n := fleet[slices.IndexFunc(fleet, func(n capacity.Node) bool { return n.ID == promise.NodeID })]
		var placed []capacity.Run
		for i, v := range verdicts {
			if v.Placement == nil || v.Placement.NodeID != n.ID {
				continue
			}
			end := queue[i].Longest
			if end == 0 {
				end = 1000 * time.Hour
			}
			placed = append(placed, capacity.Run{Holds: v.Placement.Need, EndsIn: end})
		}
		require.True(t, queue[head].Demand.Need(n).Fits(freeAt(n, placed, promise.In)), "%+v", promise)
	})
}

// The hold of another queue binds those that its owner is ahead of, and nobody
// else.
func TestHoldsOfOthersBindThoseBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		theirs := capacity.Pass(fleet, []capacity.Waiting{{ID: 7, Demand: anyDemand(t), Longest: time.Hour}})[0].Hold
		if theirs == nil {
			return
		}
		ahead := rapid.IntRange(0, len(queue)).Draw(t, "ahead")
		verdicts := capacity.Pass(fleet, queue, capacity.Other{Hold: *theirs, Ahead: ahead})
		n := fleet[slices.IndexFunc(fleet, func(n capacity.Node) bool { return n.ID == theirs.NodeID })]
		var before, behind []capacity.Run
		for i, v := range verdicts {
			if v.Placement == nil || v.Placement.NodeID != n.ID {
				continue
			}
			run := capacity.Run{Holds: v.Placement.Need, EndsIn: queue[i].Longest}
			if queue[i].Longest == 0 {
				run.EndsIn = 1000 * time.Hour
			}
			if i < ahead {
				before = append(before, run)
			} else {
				behind = append(behind, run)
			}
		}
		if theirs.In < 0 {
			require.Empty(t, behind)
		} else if theirs.Need.Fits(freeAt(n, before, theirs.In)) {
			require.True(t, theirs.Need.Fits(freeAt(n, slices.Concat(before, behind), theirs.In)))
		}
		for i, v := range capacity.Pass(fleet, queue) {
			if i < ahead {
				require.Equal(t, v.Placement, verdicts[i].Placement, "those ahead are not bound")
			}
		}
	})
}

func TestTheHoldOfAnotherQueueIsNamed(t *testing.T) {
	other := capacity.Other{
		Hold:  capacity.Hold{Owner: 77, NodeID: "a", Need: capacity.Resources{CPUMilli: 4000, MemoryMiB: gib, Slots: 1}, In: 10 * minute, Longest: 60 * minute},
		Ahead: 1,
	}
	verdicts := capacity.Pass([]capacity.Node{busy("a", 4, 10*minute)},
		[]capacity.Waiting{waiting(1, 1, 60*minute), waiting(2, 1, 60*minute), waiting(3, 1, 10*minute)}, other)
	require.Equal(t, map[int64]outcome{
		1: {node: "a"}, 2: {code: capacity.CodeHeldForHead, position: 1}, 3: {node: "a"},
	}, outcomes(verdicts))
	require.Equal(t, "needs 1 CPU and 1 GiB of memory (+160 MiB of memory overhead) on backend microvm; "+
		"it fits on a, which is held for #77; 1st in line, and a is held for it", verdicts[1].Capacity.Sentence)
}

// No estimate contradicts another: when everybody in line starts where and when
// it is expected to, no node is ever booked beyond what it has.
func TestEstimatesFitTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		verdicts := capacity.Pass(fleet, queue)
		for _, n := range fleet {
			type booking struct {
				from, to time.Duration
				need     capacity.Resources
			}
			var bookings []booking
			var placed []capacity.Run
			for i, v := range verdicts {
				end := queue[i].Longest
				if end == 0 {
					end = 1000 * time.Hour
				}
				if v.Placement != nil && v.Placement.NodeID == n.ID {
					placed = append(placed, capacity.Run{Holds: v.Placement.Need, EndsIn: end})
				}
				if v.Start != nil && v.Start.NodeID == n.ID {
					require.Equal(t, capacity.Ready, n.State)
					bookings = append(bookings, booking{v.Start.In, v.Start.In + end, queue[i].Demand.Need(n)})
				}
			}
			for _, at := range bookings {
				free := freeAt(n, placed, at.from)
				for _, b := range bookings {
					if b.from <= at.from && at.from < b.to {
						free = free.Sub(b.need)
					}
				}
				require.True(t, (capacity.Resources{}).Fits(free), "%s at %s: %+v", n.ID, at.from, free)
			}
		}
	})
}

// The ends of runs are counted from when they were read.
func TestRunsAreOfTheMomentTheyWereReadAt(t *testing.T) {
	start := func(endsIn, age time.Duration) *capacity.Start {
		full := node("n", func(n *capacity.Node) {
			n.Runs, n.RunsAge = []capacity.Run{{Holds: n.Free, EndsIn: endsIn}}, age
			n.Free = capacity.Resources{}
		})
		return capacity.Pass([]capacity.Node{full}, []capacity.Waiting{{ID: 1, Demand: demand(asks(1, 1, 1, 1)), Longest: time.Minute}})[0].Start
	}
	require.Equal(t, &capacity.Start{NodeID: "n", In: 6 * time.Minute, Held: true}, start(6*time.Minute, 0))
	require.Equal(t, &capacity.Start{NodeID: "n", In: 6 * time.Minute, Held: true}, start(10*time.Minute, 4*time.Minute))
	require.Equal(t, &capacity.Start{NodeID: "n", In: 1, Held: true}, start(3*time.Minute, 4*time.Minute), "overdue")
}
