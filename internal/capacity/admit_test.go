package capacity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/capacity"
)

const gib = 1024

// node is a ready amd64 node that offers microvm at 160 MiB for each machine
// and has all it can give free: 4 CPUs, 8 GiB of memory, 40 GiB of disk, 4 slots.
func node(id string, changes ...func(*capacity.Node)) capacity.Node {
	all := capacity.Resources{CPUMilli: 4000, MemoryMiB: 8 * gib, DiskMiB: 40 * gib, Slots: 4}
	n := capacity.Node{
		ID: id, State: capacity.Ready, Arch: "amd64", Labels: map[string]string{"zone": "eu"},
		Backends: map[string]capacity.Offer{
			"microvm": {OK: true, Network: true, Overhead: capacity.Resources{MemoryMiB: 160}},
		},
		Allocatable: all, Free: all,
	}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func state(s capacity.NodeState) func(*capacity.Node) {
	return func(n *capacity.Node) { n.State = s }
}

func arch(a string) func(*capacity.Node) {
	return func(n *capacity.Node) { n.Arch = a }
}

func label(k, v string) func(*capacity.Node) {
	return func(n *capacity.Node) { n.Labels = map[string]string{k: v} }
}

func offers(name string, o capacity.Offer) func(*capacity.Node) {
	return func(n *capacity.Node) { n.Backends = map[string]capacity.Offer{name: o} }
}

func size(cpuMilli, memoryMiB, diskMiB, slots int64) func(*capacity.Node) {
	return func(n *capacity.Node) {
		n.Allocatable = capacity.Resources{CPUMilli: cpuMilli, MemoryMiB: memoryMiB, DiskMiB: diskMiB, Slots: slots}
		n.Free = n.Allocatable
	}
}

func free(cpuMilli, memoryMiB, diskMiB, slots int64) func(*capacity.Node) {
	return func(n *capacity.Node) {
		n.Free = capacity.Resources{CPUMilli: cpuMilli, MemoryMiB: memoryMiB, DiskMiB: diskMiB, Slots: slots}
	}
}

func starting(now, limit int64) func(*capacity.Node) {
	return func(n *capacity.Node) { n.Starting, n.StartLimit = now, limit }
}

// demand asks for microvm, 2 CPUs, 2 GiB of memory, 1 GiB of disk and 1 slot.
func demand(changes ...func(*capacity.Demand)) capacity.Demand {
	d := capacity.Demand{
		Backend:   "microvm",
		Resources: capacity.Resources{CPUMilli: 2000, MemoryMiB: 2 * gib, DiskMiB: gib, Slots: 1},
	}
	for _, change := range changes {
		change(&d)
	}
	return d
}

func asks(cpuMilli, memoryMiB, diskMiB, slots int64) func(*capacity.Demand) {
	return func(d *capacity.Demand) {
		d.Resources = capacity.Resources{CPUMilli: cpuMilli, MemoryMiB: memoryMiB, DiskMiB: diskMiB, Slots: slots}
	}
}

func onArch(a string) func(*capacity.Demand) {
	return func(d *capacity.Demand) { d.Arch = a }
}

func together(d *capacity.Demand) { d.Network = true }

func withLabels(l map[string]string) func(*capacity.Demand) {
	return func(d *capacity.Demand) { d.Labels = l }
}

func onBackend(b string) func(*capacity.Demand) {
	return func(d *capacity.Demand) { d.Backend = b }
}

func TestCapableAcceptsWhatSomeKnownNodeCouldRunEmpty(t *testing.T) {
	busy := free(0, 0, 0, 0)
	for _, s := range []capacity.NodeState{
		capacity.Ready, capacity.Cordoned, capacity.Draining, capacity.Drained, capacity.Suspect, capacity.Down,
	} {
		fleet := []capacity.Node{node("small", size(1000, gib, gib, 1)), node("node-a", state(s), busy, starting(9, 1))}
		require.Nil(t, capacity.Capable(fleet, demand()), s)
	}
	require.Nil(t, capacity.Capable([]capacity.Node{node("node-a")},
		demand(asks(4000, 8*gib-160, 40*gib, 1))), "the whole node")
	require.Nil(t, capacity.Capable([]capacity.Node{node("node-a")},
		demand(asks(2000, 2*gib, 0, 1))), "no disk")
}

func TestCapabilityRefusals(t *testing.T) {
	big := size(16_000, 32*gib, 100*gib, 8)
	tests := map[string]struct {
		fleet    []capacity.Node
		demand   capacity.Demand
		code     capacity.Code
		sentence string
		nodes    []capacity.NodeReason
	}{
		"no backend named": {
			[]capacity.Node{node("node-a")},
			demand(onBackend("")),
			capacity.CodeRequestInvalid,
			"names no backend; every phase needs one",
			nil,
		},
		"zero memory": {
			[]capacity.Node{node("node-a")},
			demand(asks(1000, 0, 0, 1)),
			capacity.CodeRequestInvalid,
			"asks for 0 MiB of memory on backend microvm; CPUs, memory and slots must be more than zero and disk not less than zero",
			nil,
		},
		"negative disk": {
			[]capacity.Node{node("node-a")},
			demand(asks(1000, 512, -1, 1)),
			capacity.CodeRequestInvalid,
			"asks for -1 MiB of disk on backend microvm; CPUs, memory and slots must be more than zero and disk not less than zero",
			nil,
		},
		"more slots than a phase can have": {
			[]capacity.Node{node("node-a")},
			demand(asks(1000, 512, 0, 1<<62)),
			capacity.CodeRequestInvalid,
			"asks for 4611686018427387904 slots on backend microvm; the most one phase can ask for is 65536 slots",
			nil,
		},
		"invalid comes before an empty fleet": {
			nil,
			demand(asks(0, 512, 0, 1)),
			capacity.CodeRequestInvalid,
			"asks for 0 CPUs on backend microvm; CPUs, memory and slots must be more than zero and disk not less than zero",
			nil,
		},
		"no nodes": {
			nil,
			demand(),
			capacity.CodeNoNodesRegistered,
			"needs 2 CPUs, 2 GiB of memory and 1 GiB of disk on backend microvm; no node is registered",
			nil,
		},
		"retired nodes are no nodes": {
			[]capacity.Node{node("node-a", state(capacity.Retired))},
			demand(),
			capacity.CodeNoNodesRegistered,
			"needs 2 CPUs, 2 GiB of memory and 1 GiB of disk on backend microvm; no node is registered",
			nil,
		},
		"nobody offers the backend": {
			[]capacity.Node{
				node("node-b", offers("process", capacity.Offer{OK: true})),
				node("node-a", offers("process", capacity.Offer{OK: true})),
			},
			demand(),
			capacity.CodeBackendUnsupported,
			"needs backend microvm; none of 2 nodes offers it; what is offered: process",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "does not offer backend microvm"},
				{NodeID: "node-b", Why: "does not offer backend microvm"},
			},
		},
		"the backend failed its probe": {
			[]capacity.Node{
				node("node-a", offers("process", capacity.Offer{OK: true})),
				node("node-b", offers("microvm", capacity.Offer{Why: "the guest did not boot within 60s"})),
			},
			demand(),
			capacity.CodeBackendUnsupported,
			"needs backend microvm; none of 2 nodes offers it: its probe failed on node-b (the guest did not boot within 60s)",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "does not offer backend microvm"},
				{NodeID: "node-b", Why: "backend microvm failed its probe (the guest did not boot within 60s)"},
			},
		},
		"the only node failed its probe": {
			[]capacity.Node{node("node-a", offers("microvm", capacity.Offer{}))},
			demand(),
			capacity.CodeBackendUnsupported,
			"needs backend microvm; the only node, node-a, does not offer it: its probe failed on node-a",
			[]capacity.NodeReason{{NodeID: "node-a", Why: "backend microvm failed its probe"}},
		},
		"no network between machines": {
			[]capacity.Node{
				node("node-a", offers("process", capacity.Offer{OK: true})),
				node("node-b", offers("microvm", capacity.Offer{Why: "the guest did not boot within 60s"})),
				node("node-c", offers("microvm", capacity.Offer{OK: true, Why: "QEMU has no -netdev dgram"})),
			},
			demand(together),
			capacity.CodeBackendUnsupported,
			"needs backend microvm and a network between machines; none of 3 nodes offers it: machines of node-c cannot reach each other (QEMU has no -netdev dgram)",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "does not offer backend microvm"},
				{NodeID: "node-b", Why: "backend microvm failed its probe (the guest did not boot within 60s)"},
				{NodeID: "node-c", Why: "its machines cannot reach each other (QEMU has no -netdev dgram)"},
			},
		},
		"another architecture": {
			[]capacity.Node{
				node("node-a"), node("node-b", arch("riscv64")),
				node("node-c", arch("arm64"), offers("process", capacity.Offer{OK: true})),
			},
			demand(onArch("arm64")),
			capacity.CodeArchUnmatched,
			"needs backend microvm with arch arm64; the 2 nodes that offer it are amd64 and riscv64",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "is amd64, not arm64"},
				{NodeID: "node-b", Why: "is riscv64, not arm64"},
				{NodeID: "node-c", Why: "does not offer backend microvm"},
			},
		},
		"other labels": {
			[]capacity.Node{
				node("node-a", label("disk", "ssd")), node("node-b", label("zone", "us")),
				node("node-c", arch("arm64"), label("zone", "us")),
			},
			demand(onArch("amd64"), withLabels(map[string]string{"zone": "us", "disk": "nvme"})),
			capacity.CodeLabelsUnmatched,
			"needs backend microvm with arch amd64 and labels disk=nvme,zone=us; " +
				"the nearest of 2 nodes that offer it, node-b, has no label disk",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "has label disk=ssd and has no label zone"},
				{NodeID: "node-b", Why: "has no label disk"},
				{NodeID: "node-c", Why: "is arm64, not amd64"},
			},
		},
		"larger than the largest": {
			[]capacity.Node{
				node("node-c", big, free(0, 0, 0, 0)), node("node-a", big, state(capacity.Down)), node("node-b"),
			},
			demand(asks(2000, 64*gib, gib, 1)),
			capacity.CodeExceedsEveryNode,
			"needs 64 GiB of memory (+160 MiB overhead) on backend microvm; the largest of 3 nodes, node-a, has 32 GiB",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "too small by 32928 MiB of memory"},
				{NodeID: "node-c", Why: "too small by 32928 MiB of memory"},
				{NodeID: "node-b", Why: "too small by 57504 MiB of memory"},
			},
		},
		"the overhead alone is too much": {
			[]capacity.Node{node("node-a"), node("node-b", arch("arm64"))},
			demand(onArch("amd64"), asks(1000, 8*gib, 0, 1)),
			capacity.CodeExceedsEveryNode,
			"needs 8 GiB of memory (+160 MiB overhead) on backend microvm with arch amd64; " +
				"the only node of that kind, node-a, has 8 GiB",
			[]capacity.NodeReason{
				{NodeID: "node-a", Why: "too small by 160 MiB of memory"},
				{NodeID: "node-b", Why: "is arm64, not amd64"},
			},
		},
		"each resource exists, but on different nodes": {
			[]capacity.Node{
				node("node-a", size(16_000, 8*gib, 40*gib, 4)), node("node-b", size(2000, 64*gib, 40*gib, 4)),
			},
			demand(asks(8000, 32*gib, 0, 2)),
			capacity.CodeExceedsEveryNode,
			"needs 2 machines with 8 CPUs and 32 GiB of memory in all (+320 MiB of memory overhead) on backend microvm; " +
				"the nearest of 2 nodes, node-b, is too small by 6 CPUs",
			[]capacity.NodeReason{
				{NodeID: "node-b", Why: "too small by 6 CPUs"},
				{NodeID: "node-a", Why: "too small by 24896 MiB of memory"},
			},
		},
		"more machines than slots": {
			[]capacity.Node{node("node-a"), node("node-b", size(8000, 8*gib, 40*gib, 6))},
			demand(asks(700, 700, 0, 7)),
			capacity.CodeExceedsEveryNode,
			"needs 7 machines (a slot each) on backend microvm; the largest of 2 nodes, node-b, has 6 slots",
			[]capacity.NodeReason{
				{NodeID: "node-b", Why: "too small by 1 slot"},
				{NodeID: "node-a", Why: "too small by 3 slots"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := capacity.Capable(tt.fleet, tt.demand)
			require.NotNil(t, got)
			require.Equal(t, tt.code, got.Code)
			require.Equal(t, tt.sentence, got.Sentence)
			require.Equal(t, tt.nodes, got.Nodes)
			require.Equal(t, string(tt.code)+": "+tt.sentence, got.Error())

			_, err := capacity.Admit(tt.fleet, tt.demand)
			if tt.code == capacity.CodeNoNodesRegistered {
				var refusal *capacity.CapacityRefusal
				require.ErrorAs(t, err, &refusal, "a phase waits for the first node")
				require.Equal(t, tt.code, refusal.Code)
				return
			}
			var refusal *capacity.CapabilityRefusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, got, refusal)
		})
	}
}

func TestAdmitPacks(t *testing.T) {
	tests := map[string]struct {
		fleet []capacity.Node
		want  string
	}{
		"the fullest that fits": {
			[]capacity.Node{node("node-a"), node("node-b", free(2000, 4*gib, 9*gib, 2)), node("node-c", free(1000, 4*gib, 9*gib, 2))},
			"node-b",
		},
		"by share, so that large empty nodes stay empty": {
			[]capacity.Node{node("node-a", size(64_000, 128*gib, 900*gib, 64)), node("node-b")},
			"node-b",
		},
		"by the dominant resource, here CPUs": {
			[]capacity.Node{node("node-a", free(4000, 3*gib, 9*gib, 4)), node("node-b", free(3000, 8*gib, 40*gib, 4))},
			"node-b",
		},
		"then the fewest starting": {
			[]capacity.Node{node("node-a", starting(2, 4)), node("node-b", starting(1, 4))},
			"node-b",
		},
		"then the lower id": {
			[]capacity.Node{node("node-c"), node("node-b"), node("node-d")},
			"node-b",
		},
		"only ready nodes": {
			[]capacity.Node{
				node("node-a", state(capacity.Cordoned)), node("node-b", state(capacity.Suspect)),
				node("node-c", state(capacity.Retired)), node("node-d", state("joining")), node("node-e"),
			},
			"node-e",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := capacity.Admit(tt.fleet, demand())
			require.NoError(t, err)
			require.Equal(t, capacity.Placement{
				NodeID: tt.want,
				Need:   capacity.Resources{CPUMilli: 2000, MemoryMiB: 2*gib + 160, DiskMiB: gib, Slots: 1},
			}, got)
		})
	}
}

func TestAdmitReservesOverheadOfEveryMachine(t *testing.T) {
	got, err := capacity.Admit([]capacity.Node{node("node-a")}, demand(asks(3000, 1536, 3*gib, 3)))
	require.NoError(t, err)
	require.Equal(t, capacity.Resources{CPUMilli: 3000, MemoryMiB: 1536 + 3*160, DiskMiB: 3 * gib, Slots: 3}, got.Need)
}

func TestCapacityRefusals(t *testing.T) {
	const asked = "needs 2 CPUs, 2 GiB of memory and 1 GiB of disk (+160 MiB of memory overhead) on backend microvm; "
	const composed = "needs 3 machines with 3 CPUs and 3 GiB of memory in all (+480 MiB of memory overhead) on backend microvm; "
	tests := map[string]struct {
		fleet  []capacity.Node
		demand capacity.Demand
		want   capacity.CapacityRefusal
	}{
		"no node": {
			nil, demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeNoNodesRegistered,
				Sentence: "needs 2 CPUs, 2 GiB of memory and 1 GiB of disk on backend microvm; no node is registered",
			},
		},
		"memory": {
			[]capacity.Node{
				node("node-a", free(1000, gib, 40*gib, 3)), node("node-b", free(4000, 1696, 40*gib, 3)),
				node("node-c", offers("process", capacity.Offer{OK: true})),
			},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeMemory,
				Sentence: asked + "the nearest of 2 nodes, node-b, is short by 512 MiB of memory",
				Counts:   capacity.Counts{Full: 2, Incapable: 1},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-b", Why: "short by 512 MiB of memory"},
					{NodeID: "node-a", Why: "short by 1 CPU and 1184 MiB of memory"},
					{NodeID: "node-c", Why: "does not offer backend microvm", Never: true},
				},
				BestNode: "node-b",
				ShortBy:  capacity.Resources{MemoryMiB: 512},
			},
		},
		"cpu": {
			[]capacity.Node{node("node-a", free(500, 8*gib, 40*gib, 3))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeCPU,
				Sentence: asked + "node-a is short by 1.5 CPUs",
				Counts:   capacity.Counts{Full: 1},
				Nodes:    []capacity.NodeReason{{NodeID: "node-a", Why: "short by 1.5 CPUs"}},
				BestNode: "node-a",
				ShortBy:  capacity.Resources{CPUMilli: 1500},
			},
		},
		"disk is over-committed": {
			[]capacity.Node{node("node-a", free(4000, 8*gib, -256, 3))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeDisk,
				Sentence: asked + "node-a is short by 1.25 GiB of disk",
				Counts:   capacity.Counts{Full: 1},
				Nodes:    []capacity.NodeReason{{NodeID: "node-a", Why: "short by 1.25 GiB of disk"}},
				BestNode: "node-a",
				ShortBy:  capacity.Resources{DiskMiB: 1280},
			},
		},
		"slots, the scarcest of two": {
			[]capacity.Node{node("node-a", free(1000, 8*gib, 40*gib, 0))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeSlots,
				Sentence: asked + "node-a is short by 1 CPU and 1 slot",
				Counts:   capacity.Counts{Full: 1},
				Nodes:    []capacity.NodeReason{{NodeID: "node-a", Why: "short by 1 CPU and 1 slot"}},
				BestNode: "node-a",
				ShortBy:  capacity.Resources{CPUMilli: 1000, Slots: 1},
			},
		},
		"free in sum for a composed phase": {
			[]capacity.Node{node("node-a", free(1000, 3*gib, gib, 2)), node("node-b", free(2000, 4*gib, gib, 2))},
			demand(asks(3000, 3*gib, 0, 3)),
			capacity.CapacityRefusal{
				Code: capacity.CodeFragmented,
				Sentence: composed + "2 nodes have 3 CPUs, 7 GiB of memory, 2 GiB of disk and 4 slots free in sum, " +
					"but the nearest, node-b, is short by 1 CPU and 1 slot",
				Counts: capacity.Counts{Full: 2},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-b", Why: "short by 1 CPU and 1 slot"},
					{NodeID: "node-a", Why: "short by 2 CPUs, 480 MiB of memory and 1 slot"},
				},
				BestNode: "node-b",
				ShortBy:  capacity.Resources{CPUMilli: 1000, Slots: 1},
			},
		},
		"not even in sum for a composed phase": {
			[]capacity.Node{node("node-a", free(0, 3*gib, gib, 2)), node("node-b", free(2000, 4*gib, gib, 3))},
			demand(asks(3000, 3*gib, 0, 3)),
			capacity.CapacityRefusal{
				Code:     capacity.CodeCPU,
				Sentence: composed + "the nearest of 2 nodes, node-b, is short by 1 CPU",
				Counts:   capacity.Counts{Full: 2},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-b", Why: "short by 1 CPU"},
					{NodeID: "node-a", Why: "short by 3 CPUs, 480 MiB of memory and 1 slot"},
				},
				BestNode: "node-b",
				ShortBy:  capacity.Resources{CPUMilli: 1000},
			},
		},
		"an over-committed node takes nothing from the sum": {
			[]capacity.Node{node("node-a", free(-2000, 4*gib, 0, 2)), node("node-b", free(2000, gib, 0, 2)), node("node-c", free(1000, gib, 0, 2))},
			demand(asks(3000, 3*gib, 0, 3)),
			capacity.CapacityRefusal{
				Code: capacity.CodeFragmented,
				Sentence: composed + "3 nodes have 3 CPUs, 6 GiB of memory and 6 slots free in sum, " +
					"but the nearest, node-b, is short by 1 CPU, 2528 MiB of memory and 1 slot",
				Counts: capacity.Counts{Full: 3},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-b", Why: "short by 1 CPU, 2528 MiB of memory and 1 slot"},
					{NodeID: "node-c", Why: "short by 2 CPUs, 2528 MiB of memory and 1 slot"},
					{NodeID: "node-a", Why: "short by 5 CPUs and 1 slot"},
				},
				BestNode: "node-b",
				ShortBy:  capacity.Resources{CPUMilli: 1000, MemoryMiB: 2528, Slots: 1},
			},
		},
		"free in sum means nothing to a single machine": {
			[]capacity.Node{node("node-a", free(1000, 8*gib, 9*gib, 2)), node("node-b", free(1000, 8*gib, 9*gib, 2))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeCPU,
				Sentence: asked + "the nearest of 2 nodes, node-a, is short by 1 CPU",
				Counts:   capacity.Counts{Full: 2},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-a", Why: "short by 1 CPU"},
					{NodeID: "node-b", Why: "short by 1 CPU"},
				},
				BestNode: "node-a",
				ShortBy:  capacity.Resources{CPUMilli: 1000},
			},
		},
		"too many starting": {
			[]capacity.Node{node("node-a", free(0, 0, 0, 0)), node("node-b", starting(2, 2))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeStartingLimit,
				Sentence: asked + "node-b has room but is starting 2 of at most 2 machines",
				Counts:   capacity.Counts{Full: 1, Starting: 1},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-b", Why: "starting 2 of at most 2 machines"},
					{NodeID: "node-a", Why: "short by 2 CPUs, 2208 MiB of memory, 1 GiB of disk and 1 slot"},
				},
				BestNode: "node-b",
			},
		},
		"every node of the kind is closed, most of them drained": {
			[]capacity.Node{
				node("node-a", state(capacity.Drained)), node("node-b", state(capacity.Cordoned)),
				node("node-c", state(capacity.Down)), node("node-d", size(1000, gib, gib, 1)),
			},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeNodesDraining,
				Sentence: asked + "of 3 nodes that could run it, 1 is not reporting, 1 is draining and 1 is cordoned",
				Counts:   capacity.Counts{Cordoned: 1, Draining: 1, Lost: 1, Incapable: 1},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-b", Why: "cordoned"},
					{NodeID: "node-a", Why: "drained"},
					{NodeID: "node-c", Why: "down"},
					{NodeID: "node-d", Why: "too small by 1 CPU and 1184 MiB of memory", Never: true},
				},
			},
		},
		"as many lost as draining": {
			[]capacity.Node{node("node-a", state(capacity.Draining)), node("node-b", state(capacity.Suspect))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeNodesLost,
				Sentence: asked + "of 2 nodes that could run it, 1 is not reporting and 1 is draining",
				Counts:   capacity.Counts{Draining: 1, Lost: 1},
				Nodes: []capacity.NodeReason{
					{NodeID: "node-a", Why: "draining"},
					{NodeID: "node-b", Why: "suspect"},
				},
			},
		},
		"the only node is lost": {
			[]capacity.Node{node("node-a", state(capacity.Down))},
			demand(),
			capacity.CapacityRefusal{
				Code:     capacity.CodeNodesLost,
				Sentence: asked + "the only node that could run it, node-a, is not reporting",
				Counts:   capacity.Counts{Lost: 1},
				Nodes:    []capacity.NodeReason{{NodeID: "node-a", Why: "down"}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := capacity.Admit(tt.fleet, tt.demand)
			var got *capacity.CapacityRefusal
			require.ErrorAs(t, err, &got)
			require.Equal(t, &tt.want, got)
		})
	}
}

func TestStartLimit(t *testing.T) {
	admitted := func(now, limit, slots int64) bool {
		_, err := capacity.Admit([]capacity.Node{node("node-a", starting(now, limit))}, demand(asks(1000, gib, 0, slots)))
		return err == nil
	}
	require.True(t, admitted(9, 0, 1), "0 means no limit")
	require.True(t, admitted(1, 2, 1))
	require.False(t, admitted(2, 2, 1))
	require.False(t, admitted(1, 2, 2), "two would make three")
	require.True(t, admitted(0, 2, 4), "larger than the limit itself: alone")
	require.False(t, admitted(1, 2, 4))
}

func TestReasonsAreBoundedAndCountsAreNot(t *testing.T) {
	var fleet []capacity.Node
	for _, id := range []string{"k", "j", "i", "h", "g", "f", "e", "d", "c", "b", "a"} {
		fleet = append(fleet, node(id, free(1000, 8*gib, 9*gib, 1)))
	}
	_, err := capacity.Admit(fleet, demand())
	var got *capacity.CapacityRefusal
	require.ErrorAs(t, err, &got)
	require.Equal(t, capacity.Counts{Full: 11}, got.Counts)
	require.Len(t, got.Nodes, 8)
	require.Equal(t, "a", got.Nodes[0].NodeID)
	require.Equal(t, "h", got.Nodes[7].NodeID)
}
