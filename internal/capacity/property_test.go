package capacity_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
)

// The generators keep every range small, so that ties, exact fits and fleets
// with room for only some are common.

func anyResources(t *rapid.T, name string, least, most int64) capacity.Resources {
	draw := func(dimension string) int64 { return rapid.Int64Range(least, most).Draw(t, name+dimension) }
	return capacity.Resources{CPUMilli: draw("CPU"), MemoryMiB: draw("Memory"), DiskMiB: draw("Disk"), Slots: draw("Slots")}
}

var (
	states = rapid.SampledFrom([]capacity.NodeState{
		capacity.Ready, capacity.Ready, capacity.Ready, capacity.Ready, capacity.Cordoned, capacity.Draining,
		capacity.Drained, capacity.Suspect, capacity.Down, "joining",
	})
	backends = rapid.SampledFrom([]string{"microvm", "microvm", "process"})
	archs    = rapid.SampledFrom([]string{"amd64", "amd64", "arm64"})
	zones    = rapid.SampledFrom([]map[string]string{{"zone": "eu"}, {"zone": "us", "disk": "ssd"}, nil})
)

func anyNode(t *rapid.T, id string) capacity.Node {
	n := capacity.Node{
		ID: id, State: states.Draw(t, "state"), Arch: archs.Draw(t, "arch"), Labels: zones.Draw(t, "labels"),
		Backends:    map[string]capacity.Offer{},
		Allocatable: anyResources(t, "allocatable", 2, 16),
		Starting:    rapid.Int64Range(0, 2).Draw(t, "starting"),
		StartLimit:  rapid.Int64Range(0, 6).Draw(t, "startLimit"),
	}
	n.Free = n.Allocatable.Sub(anyResources(t, "used", 0, 8))
	n.Runs = anyRuns(t, n.Allocatable.Sub(n.Free))
	for _, name := range []string{"microvm", "process"} {
		if rapid.IntRange(0, 3).Draw(t, name) > 0 {
			n.Backends[name] = capacity.Offer{
				OK:       rapid.IntRange(0, 4).Draw(t, "ok") > 0,
				Network:  rapid.IntRange(0, 3).Draw(t, "network") > 0,
				Overhead: capacity.Resources{MemoryMiB: rapid.Int64Range(0, 1).Draw(t, "overhead")},
			}
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "retired") == 0 {
		n.State = capacity.Retired
	}
	return n
}

// anyRuns splits what is used into runs, of which the last may be unknown.
func anyRuns(t *rapid.T, used capacity.Resources) []capacity.Run {
	var runs []capacity.Run
	for range rapid.IntRange(0, 3).Draw(t, "runs") {
		holds := capacity.Resources{
			CPUMilli: rapid.Int64Range(0, used.CPUMilli).Draw(t, "runCPU"), MemoryMiB: rapid.Int64Range(0, used.MemoryMiB).Draw(t, "runMemory"),
			DiskMiB: rapid.Int64Range(0, used.DiskMiB).Draw(t, "runDisk"), Slots: rapid.Int64Range(0, used.Slots).Draw(t, "runSlots"),
		}
		used = used.Sub(holds)
		runs = append(runs, capacity.Run{Holds: holds, EndsIn: minutes(t, "endsIn", -2, 90)})
	}
	if rapid.Bool().Draw(t, "allKnown") {
		runs = append(runs, capacity.Run{Holds: used, EndsIn: minutes(t, "endsIn", -2, 90)})
	}
	return runs
}

func minutes(t *rapid.T, name string, least, most int) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Minute
}

func anyFleet(t *rapid.T) []capacity.Node {
	fleet := make([]capacity.Node, rapid.IntRange(0, 12).Draw(t, "nodes"))
	for i := range fleet {
		fleet[i] = anyNode(t, fmt.Sprintf("node-%02d", i))
	}
	return fleet
}

func anyDemand(t *rapid.T) capacity.Demand {
	d := capacity.Demand{Backend: backends.Draw(t, "backend"), Resources: anyResources(t, "ask", 1, rapid.Int64Range(2, 6).Draw(t, "largest"))}
	d.Resources.DiskMiB--
	if rapid.IntRange(0, 5).Draw(t, "invalid") == 0 {
		d.Resources.CPUMilli = rapid.Int64Range(-1, 0).Draw(t, "cpus")
	}
	d.Network = rapid.IntRange(0, 3).Draw(t, "together") == 0
	if rapid.IntRange(0, 3).Draw(t, "picky") == 0 {
		d.Arch, d.Labels = archs.Draw(t, "arch"), zones.Draw(t, "labels")
	}
	return d
}

func anyQueue(t *rapid.T) []capacity.Waiting {
	shapes := rapid.SliceOfN(rapid.Custom(anyDemand), 1, 6).Draw(t, "shapes")
	q := make([]capacity.Waiting, rapid.IntRange(0, 24).Draw(t, "waiting"))
	for i := range q {
		q[i] = capacity.Waiting{
			ID: int64(100 + i), Demand: rapid.SampledFrom(shapes).Draw(t, "demand"),
			Longest: time.Duration(rapid.SampledFrom([]int{0, 1, 10, 30, 60}).Draw(t, "longest")) * time.Minute,
		}
	}
	return q
}

var capacityCodes = []capacity.Code{
	"capacity_cpu", "capacity_memory", "capacity_disk", "capacity_slots", "capacity_fragmented", "behind_in_queue",
	"held_for_head", "starting_limit", "nodes_draining", "nodes_lost", "no_nodes_registered",
}

var capabilityCodes = []capacity.Code{
	"backend_unsupported", "exceeds_every_node", "labels_unmatched", "arch_unmatched", "request_invalid", "no_nodes_registered",
}

func known(fleet []capacity.Node) int {
	n := 0
	for _, node := range fleet {
		if node.State != capacity.Retired {
			n++
		}
	}
	return n
}

func requireWellFormed(t require.TestingT, fleet []capacity.Node, err error) {
	var code capacity.Code
	var sentence string
	var counts capacity.Counts
	var nodes []capacity.NodeReason
	switch r := err.(type) { //nolint:errorlint // the contract is the exact type
	case *capacity.CapacityRefusal:
		require.Contains(t, capacityCodes, r.Code)
		require.Zero(t, r.Counts.Fit, "a refusal while a node fits")
		code, sentence, counts, nodes = r.Code, r.Sentence, r.Counts, r.Nodes
	case *capacity.CapabilityRefusal:
		require.Contains(t, capabilityCodes, r.Code)
		require.Equal(t, known(fleet), r.Counts.Incapable)
		code, sentence, counts, nodes = r.Code, r.Sentence, r.Counts, r.Nodes
	default:
		require.Failf(t, "neither refusal", "%T", err)
	}
	require.Equal(t, known(fleet), counts.Total(), "counts add up to the fleet")
	require.NotContains(t, sentence, "\n")
	require.NotContains(t, sentence, "  ")
	if code != capacity.CodeRequestInvalid {
		require.Len(t, nodes, min(known(fleet), capacity.MaxNodeReasons))
		require.True(t, strings.HasPrefix(sentence, "needs "), sentence)
	}
	for _, n := range nodes {
		require.NotEmpty(t, n.Why, n.NodeID)
	}
}

func TestAdmitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, d := anyFleet(t), anyDemand(t)
		placement, err := capacity.Admit(fleet, d)
		if err != nil {
			requireWellFormed(t, fleet, err)
			return
		}
		i := slices.IndexFunc(fleet, func(n capacity.Node) bool { return n.ID == placement.NodeID })
		n := fleet[i]
		require.Equal(t, capacity.Ready, n.State)
		require.True(t, n.Backends[d.Backend].OK)
		require.True(t, n.Backends[d.Backend].Network || !d.Network)
		require.Equal(t, d.Need(n), placement.Need)
		require.True(t, placement.Need.Fits(n.Free))
		require.Nil(t, capacity.Capable(fleet, d))
	})
}

func TestCapabilityDependsOnTheFleetAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, d := anyFleet(t), anyDemand(t)
		want := capacity.Capable(fleet, d)
		for i := range fleet {
			if fleet[i].State == capacity.Retired {
				continue
			}
			fleet[i].Free = anyResources(t, "free", -1, 16)
			fleet[i].Starting = rapid.Int64Range(0, 4).Draw(t, "starting")
			fleet[i].State = states.Draw(t, "state")
		}
		require.Equal(t, want, capacity.Capable(fleet, d))

		_, err := capacity.Admit(fleet, d)
		var refusal *capacity.CapabilityRefusal
		if errors.As(err, &refusal) {
			require.Equal(t, want, refusal)
		} else if want != nil {
			require.Equal(t, capacity.CodeNoNodesRegistered, want.Code)
		}
	})
}

func TestAddingANodeNeverRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, d := anyFleet(t), anyDemand(t)
		_, before := capacity.Admit(fleet, d)
		_, after := capacity.Admit(append(fleet, anyNode(t, "node-new")), d)
		if before == nil {
			require.NoError(t, after)
		}
	})
}

func TestPassOfOneEqualsAdmit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, d := anyFleet(t), anyDemand(t)
		placement, err := capacity.Admit(fleet, d)
		verdicts := capacity.Pass(unknownEnds(fleet), []capacity.Waiting{{ID: 7, Demand: d}})
		require.Len(t, verdicts, 1)
		v := verdicts[0]
		switch r := err.(type) { //nolint:errorlint // the contract is the exact type
		case nil:
			require.Equal(t, capacity.Verdict{ID: 7, Placement: &placement}, v)
		case *capacity.CapabilityRefusal:
			require.Equal(t, capacity.Verdict{ID: 7, Capability: r}, v)
		case *capacity.CapacityRefusal:
			require.Equal(t, 1, v.Position)
			r.Sentence += "; 1st in line"
			if r.BestNode != "" {
				r.Sentence += ", and " + r.BestNode + " is held for it"
			}
			require.Equal(t, r, v.Capacity)
		}
	})
}

func TestPassNeverOverCommits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		taken := map[string]capacity.Resources{}
		placed := map[string]int{}
		largest := map[string]int64{}
		for i, v := range capacity.Pass(fleet, queue) {
			if v.Placement == nil {
				continue
			}
			id := v.Placement.NodeID
			taken[id] = taken[id].Add(v.Placement.Need)
			placed[id]++
			largest[id] = max(largest[id], queue[i].Demand.Resources.Slots)
		}
		for _, n := range fleet {
			if placed[n.ID] == 0 {
				continue
			}
			require.Equal(t, capacity.Ready, n.State)
			require.True(t, taken[n.ID].Fits(n.Free), "%s: %+v of %+v", n.ID, taken[n.ID], n.Free)
			if n.StartLimit > 0 {
				aloneAboveLimit := n.Starting == 0 && placed[n.ID] == 1 && largest[n.ID] > n.StartLimit
				require.True(t, n.Starting+taken[n.ID].Slots <= n.StartLimit || aloneAboveLimit, n.ID)
			}
		}
	})
}

func TestPassVerdicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		verdicts := capacity.Pass(fleet, queue)
		require.Len(t, verdicts, len(queue))
		position := 0
		for i, v := range verdicts {
			require.Equal(t, queue[i].ID, v.ID)
			switch {
			case v.Placement != nil:
				require.Nil(t, v.Capacity)
				require.Nil(t, v.Capability)
				require.Zero(t, v.Position)
			case v.Capacity != nil:
				require.Nil(t, v.Capability)
				position++
				require.Equal(t, position, v.Position)
				require.Contains(t, v.Capacity.Sentence, " in line")
				requireWellFormed(t, fleet, v.Capacity)
			default:
				require.Zero(t, v.Position)
				requireWellFormed(t, fleet, v.Capability)
			}
		}
	})
}

// Where the ends of runs are not known, what Pass decides is what a person would
// by asking Admit item by item, taking away what was placed and leaving out the
// held node.
func TestPassAgreesWithAdmitStepByStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := unknownEnds(anyFleet(t)), anyQueue(t)
		for i := range queue {
			queue[i].Longest = 0
		}
		verdicts := capacity.Pass(fleet, queue)
		now := slices.Clone(fleet)
		holds := ""
		for i, item := range queue {
			open := slices.Clone(now)
			for j := range open {
				if open[j].ID == holds && open[j].State == capacity.Ready {
					open[j].State = capacity.Cordoned
				}
			}
			placement, err := capacity.Admit(open, item.Demand)
			if err != nil {
				require.Nil(t, verdicts[i].Placement)
				var refusal *capacity.CapacityRefusal
				if errors.As(err, &refusal) && holds == "" {
					holds = refusal.BestNode
				}
				require.Equal(t, refusal != nil, verdicts[i].Capacity != nil)
				continue
			}
			require.Equal(t, &placement, verdicts[i].Placement)
			for j := range now {
				if now[j].ID == placement.NodeID {
					now[j].Free = now[j].Free.Sub(placement.Need)
					now[j].Starting += item.Demand.Resources.Slots
				}
			}
		}
	})
}

func unknownEnds(fleet []capacity.Node) []capacity.Node {
	fleet = slices.Clone(fleet)
	for i := range fleet {
		fleet[i].Runs = nil
	}
	return fleet
}

func TestDecisionsIgnoreTheOrderOfTheFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		shuffled := rapid.Permutation(fleet).Draw(t, "shuffled")
		require.Equal(t, capacity.Pass(fleet, queue), capacity.Pass(shuffled, queue))
	})
}

func TestInputsAreNotModified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := anyFleet(t), anyQueue(t)
		fleetBefore, queueBefore := deepCopy(fleet), slices.Clone(queue)
		for i := range queueBefore {
			queueBefore[i].Demand.Labels = maps.Clone(queue[i].Demand.Labels)
		}
		capacity.Pass(fleet, queue)
		for _, w := range queue {
			_ = capacity.Capable(fleet, w.Demand)
			_, _ = capacity.Admit(fleet, w.Demand)
		}
		require.Equal(t, fleetBefore, fleet)
		require.Equal(t, queueBefore, queue)
	})
}

func deepCopy(fleet []capacity.Node) []capacity.Node {
	out := slices.Clone(fleet)
	for i := range out {
		out[i].Labels = maps.Clone(out[i].Labels)
		out[i].Backends = maps.Clone(out[i].Backends)
		out[i].Runs = slices.Clone(out[i].Runs)
	}
	return out
}
