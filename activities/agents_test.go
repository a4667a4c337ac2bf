package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/mission"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// TestDemandIsTheSumOfTheMachines holds however a sum is divided: the placer sees
// one number for each resource, and how many machines there are.
func TestDemandIsTheSumOfTheMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			agents []mission.Agent
			want   capacity.Resources
		)
		for range rapid.IntRange(1, 5).Draw(t, "agents") {
			a := mission.Agent{
				Name: "a", Replicas: rapid.IntRange(1, 6).Draw(t, "replicas"),
				Resources: mission.Resources{
					CPUMilli:  rapid.Int64Range(100, 4000).Draw(t, "cpus"),
					MemoryMiB: rapid.Int64Range(128, 4096).Draw(t, "memory"),
					DiskMiB:   rapid.Int64Range(64, 4096).Draw(t, "disk"),
				},
			}
			agents = append(agents, a)
			one := capacity.Resources{CPUMilli: a.Resources.CPUMilli, MemoryMiB: a.Resources.MemoryMiB, DiskMiB: a.Resources.DiskMiB, Slots: 1}
			want = want.Add(one.Times(int64(a.Replicas)))
		}
		m := mission.Mission{Spec: mission.Spec{Backend: "process"}}
		requires := mission.Requires{Arch: "amd64", Labels: map[string]string{"zone": "eu"}}

		composed := demand(m, mission.Phase{Agents: agents, Requires: requires})

		require.Equal(t, capacity.Demand{
			Backend: "process", Arch: "amd64", Labels: map[string]string{"zone": "eu"}, Network: true, Resources: want,
		}, composed)
		if want.Slots == 1 {
			solo := demand(m, mission.Phase{Resources: agents[0].Resources, Requires: requires})
			require.False(t, solo.Network)
			solo.Network = true
			require.Equal(t, solo, composed, "a network is all that is different")
		}
	})
}

func TestWhatAComposedPhaseRuns(t *testing.T) {
	author := mission.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64}
	critic := mission.Resources{CPUMilli: 500, MemoryMiB: 256, DiskMiB: 64}
	phase := mission.Phase{
		Name: "review", Attempts: 2, Until: []string{"author"},
		Agents: []mission.Agent{
			{Name: "author", Replicas: 1, Resources: author, Run: []string{"./author"}, Collect: []string{"out/**"}},
			{Name: "critic", Replicas: 2, Resources: critic, Run: []string{"./critic"}, Env: map[string]string{"MODE": "fast"}},
		},
	}

	require.Equal(t, []ledger.Agent{{Name: "author", Designated: true}, {Name: "critic-1"}, {Name: "critic-2"}}, agents(phase))
	require.Equal(t, workflows.PhaseCommand{
		Name: "review", Attempts: 2,
		Agents: []workflows.AgentCommand{
			{
				Name: "author", Replicas: 1, Designated: true, Command: vm.Command{Argv: []string{"./author"}}, Collect: []string{"out/**"},
				Machine: vm.Spec{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64},
			},
			{
				Name: "critic", Replicas: 2, Command: vm.Command{Argv: []string{"./critic"}, Env: map[string]string{"MODE": "fast"}},
				Machine: vm.Spec{CPUMilli: 500, MemoryMiB: 256, DiskMiB: 64},
			},
		},
	}, command(phase))
	require.Nil(t, agents(mission.Phase{Run: []string{"x"}}))
}
