package render_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/render"
	"tidewait/internal/vm"
)

// review is a composed phase whose run has ended.
func review() api.Phase {
	zero, three := 0, 3
	began, ended := now.Add(-20*time.Second), now.Add(-10*time.Second)
	return api.Phase{
		Name: "review", Ordinal: 2, Status: "succeeded", Attempt: 1, Commit: "0123456789abcdef", StartedAt: &began, EndedAt: &ended,
		Runs: []api.Run{{
			ID: "r7-1", Attempt: 1, Node: "node-a", Status: "succeeded", Step: "ended", Accel: "tcg", StartedAt: began, EndedAt: &ended,
			Agents: []api.RunAgent{
				{Name: "author", Machine: "r7-1/author", Designated: true, Status: "succeeded", Step: "ended", ExitCode: &zero, Collected: true, EndedAt: &ended, Start: vm.Start{Kind: "snapshot"}},
				{Name: "critic-1", Machine: "r7-1/critic-1", Status: "failed", Step: "ended", ExitCode: &three, EndedAt: &ended},
				{Name: "critic-2", Machine: "r7-1/critic-2", Status: "stopped", Step: "ended", Signal: "SIGKILL", OutOfMemory: true, EndedAt: &ended},
				{Name: "critic-3", Machine: "r7-1/critic-3", Status: "failed", Step: "ended", FailureCode: "machine_died", Failure: "it was gone", EndedAt: &ended},
			},
		}},
	}
}

func TestAPhaseOfSeveralMachines(t *testing.T) {
	require.Equal(t, `phase 2 "review" of mission m   succeeded   10 s (12:59:47Z to 12:59:57Z)
  run     r7-1, attempt 1 on node-a: succeeded; 4 machines; tcg; 10 s (12:59:47Z to 12:59:57Z)
  agent   author, machine r7-1/author: succeeded; exit 0; started from a snapshot
  agent   critic-1, machine r7-1/critic-1: failed, not designated; exit 3; nothing collected
  agent   critic-2, machine r7-1/critic-2: stopped, not designated; out of memory; nothing collected
  agent   critic-3, machine r7-1/critic-3: failed, not designated; machine_died: it was gone; nothing collected
  commit  0123456789ab
`, plainText.Phase("m", review()))
}

func TestMachinesThatRun(t *testing.T) {
	p := review()
	p.Status, p.EndedAt, p.Commit = "running", nil, ""
	p.Runs[0].Status, p.Runs[0].Step, p.Runs[0].EndedAt = "running", "run", nil
	zero := 0
	p.Runs[0].Agents = []api.RunAgent{
		{Name: "author", Machine: "r7-1/author", Designated: true, Status: "running", Step: "run"},
		{Name: "critic-1", Machine: "r7-1/critic-1", Status: "succeeded", Step: "collect", ExitCode: &zero, EndedAt: p.StartedAt},
	}
	shown := plainText.Phase("m", p)
	require.Contains(t, shown, "  agent   author, machine r7-1/author: running (run)\n")
	require.Contains(t, shown, "  agent   critic-1, machine r7-1/critic-1: succeeded, not designated; exit 0\n", "it may still be collected")
}

func TestEndsOfMachinesAreToldOnce(t *testing.T) {
	after := api.MissionDetail{Mission: api.Mission{Name: "m"}, PhaseList: []api.Phase{review()}}
	before := api.MissionDetail{Mission: api.Mission{Name: "m"}, PhaseList: []api.Phase{review()}}
	run := &before.PhaseList[0].Runs[0]
	run.EndedAt = nil
	run.Agents[0].EndedAt, run.Agents[3].EndedAt, run.Agents[2].EndedAt = nil, nil, nil
	before.PhaseList[0].Status = "running"

	require.Equal(t, []string{
		`13:00:07Z  phase 2 "review" agent author succeeded: exit 0`,
		`13:00:07Z  phase 2 "review" agent critic-2 stopped: out of memory`,
		`13:00:07Z  phase 2 "review" agent critic-3 failed: machine_died: it was gone`,
		`13:00:07Z  phase 2 "review" run r7-1 succeeded after 10 s`,
		`13:00:07Z  phase 2 "review" succeeded, commit 0123456789ab`,
	}, render.Options{Now: now}.MissionChanges(&before, after))
}
