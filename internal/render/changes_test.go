package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

func followed(p api.Phase) api.MissionDetail {
	return api.MissionDetail{
		Mission:   api.Mission{Name: "m", Status: "running", Launch: 1, Backend: "microvm", Phases: 1},
		PhaseList: []api.Phase{p},
	}
}

func TestMissionChangesTellALaunchFromStartToEnd(t *testing.T) {
	pending := api.Phase{Name: "build", Ordinal: 1, Status: "pending", Attempt: 1}
	waiting := pending
	waiting.Wait = ptr(fullWait())
	recoded := pending
	recoded.Wait = ptr(fullWait())
	recoded.Wait.Code, recoded.Wait.Reason = "behind_in_queue", "one is ahead"
	placed := pending
	placed.Status, placed.Step, placed.Node = "running", "create", "node-b"
	placed.Waits = []api.PastWait{{
		Kind: "capacity", Code: "behind_in_queue", Reason: "one is ahead", Since: at("12:19:05"), Ended: at("13:00:06"), EndedBy: "placed",
	}}
	placed.Runs = []api.Run{{ID: "r-1", Attempt: 1, Node: "node-b", Status: "starting", Step: "create", StartedAt: at("13:00:06")}}
	running := placed
	running.Step = "run"
	running.Runs = []api.Run{placed.Runs[0]}
	running.Runs[0].Status, running.Runs[0].Step = "running", "run"
	done := running
	done.Status, done.Step, done.Commit = "succeeded", "", "ffeeddccbbaa99887766554433221100ffeeddcc"
	done.Runs = []api.Run{running.Runs[0]}
	done.Runs[0].Status, done.Runs[0].Step, done.Runs[0].ExitCode, done.Runs[0].EndedAt = "succeeded", "destroy", ptr(0), ptr(at("13:00:07"))
	ended := followed(done)
	ended.Status, ended.EndedAt = "succeeded", ptr(at("13:00:07"))

	steps := []struct {
		after api.MissionDetail
		want  []string
	}{
		{followed(pending), []string{"13:00:07Z  mission m, launch 1: 1 phase on microvm"}},
		{followed(waiting), []string{"13:00:07Z  phase 1 \"build\" is waiting for capacity, 41 min of 120 (fails 14:19:05Z): capacity_memory: 2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b"}},
		{followed(waiting), nil},
		{followed(recoded), []string{"13:00:07Z  phase 1 \"build\" is still waiting for capacity, 41 min of 120 (fails 14:19:05Z), now: behind_in_queue: one is ahead"}},
		{followed(placed), []string{
			"13:00:07Z  phase 1 \"build\" placed on node-b after waiting 41 min for capacity (behind_in_queue: one is ahead)",
			"13:00:07Z  phase 1 \"build\" starts on node-b: run r-1, attempt 1",
			"13:00:07Z  phase 1 \"build\" step create",
		}},
		{followed(running), []string{"13:00:07Z  phase 1 \"build\" step run"}},
		{ended, []string{
			"13:00:07Z  phase 1 \"build\" run r-1 succeeded after 1 s: exit 0",
			"13:00:07Z  phase 1 \"build\" succeeded, commit ffeeddccbbaa",
			"13:00:07Z  mission m succeeded",
		}},
	}
	var before *api.MissionDetail
	for i, step := range steps {
		require.Equal(t, step.want, plainText.MissionChanges(before, step.after), "step %d", i)
		before = &step.after
	}
	require.Equal(t, []string{
		"13:00:07Z  mission m, launch 1: 1 phase on microvm",
		"13:00:07Z  phase 1 \"build\" placed on node-b after waiting 41 min for capacity (behind_in_queue: one is ahead)",
		"13:00:07Z  phase 1 \"build\" starts on node-b: run r-1, attempt 1",
		"13:00:07Z  phase 1 \"build\" run r-1 succeeded after 1 s: exit 0",
		"13:00:07Z  phase 1 \"build\" succeeded, commit ffeeddccbbaa",
		"13:00:07Z  mission m succeeded",
	}, plainText.MissionChanges(nil, ended), "all at once")
}

func TestMissionChangesTellOfFailures(t *testing.T) {
	running := followed(api.Phase{Name: "build", Ordinal: 1, Status: "running", Runs: []api.Run{
		{ID: "r-1", Attempt: 1, Node: "node-b", Status: "running", Step: "run", StartedAt: at("13:00:00")},
	}})
	failed := followed(api.Phase{Name: "build", Ordinal: 1, Status: "failed", FailureCode: "command_failed", Failure: "the command ended with exit 3", Runs: []api.Run{
		{ID: "r-1", Attempt: 1, Node: "node-b", Status: "failed", Step: "destroy", ExitCode: ptr(3), StartedAt: at("13:00:00"), EndedAt: ptr(at("13:00:05"))},
	}})
	failed.Status, failed.EndedAt, failed.FailureCode, failed.Failure = "failed", ptr(now), "phase_failed", "phase build failed"
	require.Equal(t, []string{
		"13:00:07Z  phase 1 \"build\" run r-1 failed after 5 s: exit 3",
		"13:00:07Z  phase 1 \"build\" failed: command_failed: the command ended with exit 3",
		"13:00:07Z  mission m failed: phase_failed: phase build failed",
	}, plainText.MissionChanges(&running, failed))
}
