package capacity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/capacity"
)

// outcome is a verdict in the few words a table can hold.
type outcome struct {
	node     string // of the placement
	code     capacity.Code
	position int
}

func outcomes(verdicts []capacity.Verdict) map[int64]outcome {
	got := map[int64]outcome{}
	for _, v := range verdicts {
		o := outcome{position: v.Position}
		switch {
		case v.Placement != nil:
			o.node = v.Placement.NodeID
		case v.Capacity != nil:
			o.code = v.Capacity.Code
		case v.Capability != nil:
			o.code = v.Capability.Code
		}
		got[v.ID] = o
	}
	return got
}

// queue numbers demands from 11.
func queue(demands ...capacity.Demand) []capacity.Waiting {
	var q []capacity.Waiting
	for i, d := range demands {
		q = append(q, capacity.Waiting{ID: int64(11 + i), Demand: d})
	}
	return q
}

func TestPass(t *testing.T) {
	small := demand(asks(1000, gib, 0, 1))
	wide := demand(asks(4000, gib, 0, 1))
	impossible := demand(asks(64_000, gib, 0, 1))
	tests := map[string]struct {
		fleet []capacity.Node
		queue []capacity.Waiting
		want  map[int64]outcome
	}{
		"what is placed counts for those behind": {
			[]capacity.Node{node("node-a", free(2000, 8*gib, 0, 4))},
			queue(small, small, small),
			map[int64]outcome{11: {node: "node-a"}, 12: {node: "node-a"}, 13: {code: capacity.CodeCPU, position: 1}},
		},
		"what is placed counts as starting": {
			[]capacity.Node{node("node-a", starting(0, 2))},
			queue(small, small, small),
			map[int64]outcome{
				11: {node: "node-a"}, 12: {node: "node-a"}, 13: {code: capacity.CodeStartingLimit, position: 1},
			},
		},
		"overhead is taken as well": {
			[]capacity.Node{node("node-a", free(4000, 2*gib+160, 0, 4))},
			queue(small, small),
			map[int64]outcome{11: {node: "node-a"}, 12: {code: capacity.CodeMemory, position: 1}},
		},
		"every machine of a composed phase counts as starting": {
			[]capacity.Node{node("node-a", starting(0, 3))},
			queue(demand(asks(1000, gib, 0, 2)), demand(asks(1000, gib, 0, 2))),
			map[int64]outcome{11: {node: "node-a"}, 12: {code: capacity.CodeStartingLimit, position: 1}},
		},
		"the node nearest to fitting the head is held, the others are not": {
			[]capacity.Node{node("node-a", free(1000, 8*gib, 0, 4)), node("node-b", free(3000, 8*gib, 0, 4))},
			queue(wide, small, small),
			map[int64]outcome{
				11: {code: capacity.CodeCPU, position: 1},
				12: {node: "node-a"},
				13: {code: capacity.CodeHeldForHead, position: 2},
			},
		},
		"only the head holds": {
			[]capacity.Node{node("node-a", free(1000, 8*gib, 0, 4)), node("node-b", free(3000, 8*gib, 0, 4))},
			queue(wide, wide, small),
			map[int64]outcome{
				11: {code: capacity.CodeCPU, position: 1},
				12: {code: capacity.CodeCPU, position: 2},
				13: {node: "node-a"},
			},
		},
		"room that went to those ahead": {
			[]capacity.Node{node("node-a", free(2000, 8*gib, 0, 4))},
			queue(small, small, small, small),
			map[int64]outcome{
				11: {node: "node-a"}, 12: {node: "node-a"},
				13: {code: capacity.CodeCPU, position: 1},
				14: {code: capacity.CodeBehindInQueue, position: 2},
			},
		},
		"start slots that went to those ahead": {
			[]capacity.Node{node("node-a", starting(0, 1))},
			queue(small, small, small),
			map[int64]outcome{
				11: {node: "node-a"},
				12: {code: capacity.CodeStartingLimit, position: 1},
				13: {code: capacity.CodeBehindInQueue, position: 2},
			},
		},
		"a node that is only starting too much is held as well": {
			[]capacity.Node{node("node-a", starting(1, 2))},
			queue(demand(asks(2000, gib, 0, 2)), small),
			map[int64]outcome{
				11: {code: capacity.CodeStartingLimit, position: 1},
				12: {code: capacity.CodeHeldForHead, position: 2},
			},
		},
		"what can never run holds nothing and has no position": {
			[]capacity.Node{node("node-a", free(3000, 8*gib, 0, 4))},
			queue(impossible, wide, small, impossible),
			map[int64]outcome{
				11: {code: capacity.CodeExceedsEveryNode},
				12: {code: capacity.CodeCPU, position: 1},
				13: {code: capacity.CodeHeldForHead, position: 2},
				14: {code: capacity.CodeExceedsEveryNode},
			},
		},
		"one that waits for lost nodes leaves the hold to the next": {
			[]capacity.Node{
				node("node-a", free(3000, 8*gib, 0, 4)),
				node("node-b", label("zone", "us"), state(capacity.Down)),
			},
			queue(demand(withLabels(map[string]string{"zone": "us"})), wide, small),
			map[int64]outcome{
				11: {code: capacity.CodeNodesLost, position: 1},
				12: {code: capacity.CodeCPU, position: 2},
				13: {code: capacity.CodeHeldForHead, position: 3},
			},
		},
		"an empty fleet": {
			nil,
			queue(small, impossible),
			map[int64]outcome{
				11: {code: capacity.CodeNoNodesRegistered, position: 1},
				12: {code: capacity.CodeNoNodesRegistered, position: 2},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := capacity.Pass(tt.fleet, tt.queue)
			require.Equal(t, tt.want, outcomes(got))
			for i, v := range got {
				require.Equal(t, tt.queue[i].ID, v.ID, "queue order")
			}
		})
	}
}

func TestPassNamesWhoIsAhead(t *testing.T) {
	fleet := []capacity.Node{node("node-a", free(1000, 8*gib, 0, 4)), node("node-b", free(3000, 8*gib, 0, 4))}
	wide, small := demand(asks(4000, gib, 0, 1)), demand(asks(1000, gib, 0, 1))
	verdicts := capacity.Pass(fleet, queue(small, wide, small, wide, small))

	require.Equal(t, &capacity.Placement{
		NodeID: "node-a", Need: capacity.Resources{CPUMilli: 1000, MemoryMiB: gib + 160, Slots: 1},
	}, verdicts[0].Placement)
	const wideAsked = "needs 4 CPUs and 1 GiB of memory (+160 MiB of memory overhead) on backend microvm; "
	const smallAsked = "needs 1 CPU and 1 GiB of memory (+160 MiB of memory overhead) on backend microvm; "
	require.Equal(t, &capacity.CapacityRefusal{
		Code: capacity.CodeCPU,
		Sentence: wideAsked + "the nearest of 2 nodes, node-b, is short by 1 CPU; " +
			"1st in line, and node-b is held for it",
		Counts: capacity.Counts{Full: 2},
		Nodes: []capacity.NodeReason{
			{NodeID: "node-b", Why: "short by 1 CPU"}, {NodeID: "node-a", Why: "short by 4 CPUs"},
		},
		BestNode: "node-b",
		ShortBy:  capacity.Resources{CPUMilli: 1000},
	}, verdicts[1].Capacity)
	require.Equal(t, &capacity.CapacityRefusal{
		Code:     capacity.CodeHeldForHead,
		Sentence: smallAsked + "it fits on node-b, which is held for #12; 2nd in line behind #12",
		Counts:   capacity.Counts{Full: 1, Held: 1},
		Nodes: []capacity.NodeReason{
			{NodeID: "node-b", Why: "held for #12"}, {NodeID: "node-a", Why: "short by 1 CPU"},
		},
		BestNode: "node-b",
	}, verdicts[2].Capacity)
	require.Equal(t, wideAsked+"the nearest of 2 nodes, node-b, is short by 1 CPU; 3rd in line behind #12 and #13",
		verdicts[3].Capacity.Sentence)
	require.Equal(t, smallAsked+"it fits on node-b, which is held for #12; 4th in line behind #12, #13 and #14",
		verdicts[4].Capacity.Sentence)

	verdicts = capacity.Pass([]capacity.Node{node("node-a", starting(0, 1))}, queue(small, small, small))
	require.Equal(t, smallAsked+"node-a has room but is starting 1 of at most 1 machines; "+
		"1st in line, and node-a is held for it", verdicts[1].Capacity.Sentence)
	require.Equal(t, smallAsked+"it would have fitted, but others ahead were placed first and "+
		"node-a has room but is now starting 1 of at most 1 machines; 2nd in line behind #12", verdicts[2].Capacity.Sentence)

	verdicts = capacity.Pass([]capacity.Node{node("node-a", free(1000, 8*gib, 0, 4))}, queue(small, small, small))
	require.Equal(t, smallAsked+"it would have fitted, but others ahead were placed first and "+
		"node-a is now short by 1 CPU; 2nd in line behind #12", verdicts[2].Capacity.Sentence)
}

func TestPassOrdinals(t *testing.T) {
	var demands []capacity.Demand
	for range 112 {
		demands = append(demands, demand())
	}
	verdicts := capacity.Pass([]capacity.Node{node("node-a", state(capacity.Down))}, queue(demands...))
	for position, want := range map[int]string{
		1: "1st in line", 2: "2nd in line behind #11", 3: "3rd in line behind #11 and #12",
		4: "4th in line behind #11, #12 and #13", 5: "5th in line behind #11, #12, #13 and 1 other",
		11: "11th in line behind #11, #12, #13 and 7 others", 12: "12th in line behind #11, #12, #13 and 8 others",
		13: "13th in line behind #11, #12, #13 and 9 others", 21: "21st in line behind #11, #12, #13 and 17 others",
		22: "22nd in line behind #11, #12, #13 and 18 others", 103: "103rd in line behind #11, #12, #13 and 99 others",
		111: "111th in line behind #11, #12, #13 and 107 others", 112: "112th in line behind #11, #12, #13 and 108 others",
	} {
		require.Equal(t, "needs 2 CPUs, 2 GiB of memory and 1 GiB of disk (+160 MiB of memory overhead) on backend microvm; "+
			"the only node that could run it, node-a, is not reporting; "+want, verdicts[position-1].Capacity.Sentence)
	}
}

func TestPassTellsLabelSetsApart(t *testing.T) {
	fleet := []capacity.Node{node("node-a", func(n *capacity.Node) { n.Labels = map[string]string{"a": "1", "b": `2"`} })}
	verdicts := capacity.Pass(fleet, queue(
		demand(withLabels(map[string]string{"a": `1""b""2"`})),
		demand(withLabels(map[string]string{"a": "1", "b": `2"`})),
		demand(withLabels(map[string]string{"a": "1"})),
		demand(withLabels(map[string]string{"b": "1"})),
	))
	require.Equal(t, map[int64]outcome{
		11: {code: capacity.CodeLabelsUnmatched}, 12: {node: "node-a"}, 13: {node: "node-a"},
		14: {code: capacity.CodeLabelsUnmatched},
	}, outcomes(verdicts))
}
