package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

func TestAPhaseIsPlacedRunAndCommitted(t *testing.T) {
	e := newEnv(t)
	e.upserts(placedAttrs)
	var whileRunning string
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		whileRunning = e.details()
		return ran(), nil
	}

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, workflows.PhaseResult{Checkout: checkoutAt("c1")}, res)
	require.Equal(t, []asked{
		{"place-phase", local, workflows.PlaceInput{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: ledger.WakeFirst}},
		{"execute-run", "node.node-a", workflows.ExecuteRunInput{
			Mission: "port", Launch: 3, Phase: "survey", Backend: "microvm",
			Machine: vm.Spec{RunID: "r7-1", CPUMilli: 1500, MemoryMiB: 512, DiskMiB: 1024},
			Command: vm.Command{Argv: []string{"make", "survey"}, Env: map[string]string{"MODE": "fast"}}, Collect: []string{"out/**"},
			Input: workflows.Object{Bucket: "tidewait-workspaces", Name: "input.port.c0", SHA256: "sha-c0"},
			Turn:  time.Hour, Node: "node-a",
		}},
		{"commit-results", "gateway.gw-1", workflows.CommitResultsInput{
			Mission: "port", Launch: 3, Phase: "survey", RunID: "r7-1", Node: "node-a", Parent: "c0", TreeIn: "tree-c0",
			Results: workflows.Object{Bucket: "tidewait-results-node-a", Name: "r7-1", SHA256: "sha-r"}, Deleted: []string{"old.txt"},
		}},
		{"finish-phase", local, workflows.FinishPhaseInput{
			PhaseID: 7, Run: ledger.RunEnd{RunID: "r7-1", Status: "succeeded", Info: vm.Info{Accel: "kvm", Kernel: "6.12.0"}, Exit: &vm.Exit{}}, End: ledger.Ended{Status: "succeeded", Commit: "c1"},
		}},
	}, e.all())
	require.Equal(t, surveyHeader+"**running** on node **node-a** as run `r7-1`\n\n"+
		"- **since:** 2026-03-01 08:00:00Z\n- **turn ends:** 2026-03-01 09:00:00Z at the latest, after 1h\n"+
		"- **step:** the pending activity shows it in its heartbeat\n"+
		"\n**you can**\n\n- follow its output: `tidewait mission logs port --phase survey --follow`\n"+endSurvey, whileRunning)
	require.Equal(t, surveyHeader+"**succeeded**, at 2026-03-01 08:00:00Z\n\n"+
		"- **run:** `r7-1` on node **node-a**\n- **left:** commit `c1` on branch `tidewait/port/3`\n"+
		"\n**you can**\n\n- read its output: `tidewait mission logs port --phase survey`\n- see what it left: `tidewait mission results port`\n", e.details())
}

func TestAPhaseThatNoNodeCouldRunFailsAtOnce(t *testing.T) {
	e := newEnv(t)
	e.place = func(context.Context, workflows.PlaceInput) (ledger.Outcome, error) {
		return ledger.Outcome{Incapable: &capacity.CapabilityRefusal{Code: capacity.CodeLabelsUnmatched, Sentence: "no node has zone=eu"}}, nil
	}

	ended := e.endedPhase(phaseInput())

	want := ledger.Ended{Status: "failed", FailureCode: "labels_unmatched", Failure: "no node has zone=eu"}
	require.Equal(t, want, ended)
	require.Equal(t, []workflows.FinishPhaseInput{{PhaseID: 7, End: want}}, inputs[workflows.FinishPhaseInput](e.fakes))
	require.Equal(t, []string{"place-phase", "finish-phase"}, e.names())
}

func TestAPhaseThatHasEndedClosesTheSameWayAndRunsNothing(t *testing.T) {
	for name, ended := range map[string]ledger.Ended{
		"failed":    {Status: "failed", FailureCode: "command_failed", Failure: `command "make" exited with code 2`},
		"cancelled": {Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: enough"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.place = func(context.Context, workflows.PlaceInput) (ledger.Outcome, error) {
				return ledger.Outcome{Ended: &ended}, nil
			}
			require.Equal(t, ended, e.endedPhase(phaseInput()))
			require.Equal(t, []string{"place-phase"}, e.names())
		})
	}
	t.Run("succeeded", func(t *testing.T) {
		e := newEnv(t)
		e.place = func(context.Context, workflows.PlaceInput) (ledger.Outcome, error) {
			return ledger.Outcome{Ended: &ledger.Ended{Status: "succeeded", Commit: "c1"}}, nil
		}
		res, err := e.phase(phaseInput())
		require.NoError(t, err)
		require.Equal(t, workflows.Checkout{Branch: "tidewait/port/3", Commit: "c1"}, res.Checkout)
		require.Equal(t, []string{"place-phase"}, e.names())
	})
}

func TestAPhaseClosesAsTheDatabaseSaysItEnded(t *testing.T) {
	e := newEnv(t)
	lost := ledger.Ended{Status: "failed", FailureCode: "workflow_lost", Failure: "workflow mission.port was closed"}
	e.finishPhase = func(context.Context, workflows.FinishPhaseInput) (ledger.Ended, error) { return lost, nil }

	require.Equal(t, lost, e.endedPhase(phaseInput()))
}

func TestAPhaseIsFailedByItsCommand(t *testing.T) {
	for name, c := range map[string]struct {
		result   workflows.ExecuteRunResult
		code     string
		sentence string
	}{
		"exit code": {workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, "command_failed", `command "./report" exited with code 2`},
		"signal":    {workflows.ExecuteRunResult{Exit: &vm.Exit{Signal: "SIGSEGV"}}, "command_failed", `command "./report" was ended by SIGSEGV`},
		"memory": {
			workflows.ExecuteRunResult{Exit: &vm.Exit{Signal: "SIGKILL", OOM: true}},
			"out_of_memory",
			`command "./report" was killed because the machine's 256 MiB of memory ran out`,
		},
		"step":          {workflows.ExecuteRunResult{FailureCode: "boot_failed", Failure: "the machine did not answer"}, "boot_failed", "the machine did not answer"},
		"no word of it": {workflows.ExecuteRunResult{}, "internal", "the node did not say how the command ended"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				return c.result, nil
			}
			in := phaseInput()
			in.Command = report

			ended := e.endedPhase(in)

			want := ledger.Ended{Status: "failed", FailureCode: c.code, Failure: c.sentence}
			require.Equal(t, want, ended)
			require.Equal(t, []workflows.FinishPhaseInput{{
				PhaseID: 7, End: want,
				Run: ledger.RunEnd{Status: "failed", Exit: c.result.Exit, FailureCode: c.code, Failure: c.sentence},
			}}, inputs[workflows.FinishPhaseInput](e.fakes))
			require.Equal(t, []string{"place-phase", "execute-run", "finish-phase"}, e.names())
		})
	}
}

func TestResultsThatTheGatewayRefusesFailThePhase(t *testing.T) {
	e := newEnv(t)
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return workflows.Checkout{}, final("out/link points outside of the workspace", workflows.ErrTypeWorkspaceRefused, "unsafe_path")
	}

	require.Equal(t, ledger.Ended{Status: "failed", FailureCode: "unsafe_path", Failure: "out/link points outside of the workspace"}, e.endedPhase(phaseInput()))
	require.Len(t, inputs[workflows.CommitResultsInput](e.fakes), 1)
	require.Equal(t, "failed", inputs[workflows.FinishPhaseInput](e.fakes)[0].Run.Status)
}

func TestAGatewayThatDoesNotPickUpIsWaitedForInTheOpen(t *testing.T) {
	e := newEnv(t)
	e.upserts(placedAttrs,
		attrs{
			workflows.AttrWait.ValueSet("gateway"), workflows.AttrReason.ValueSet("gateway_unreachable"),
			workflows.AttrWhy.ValueSet("gateway gw-1 does not pick up: commit the results of run r7-1"),
			workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueUnset(),
		},
		noWait())
	var shown string
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		if len(inputs[workflows.CommitResultsInput](e.fakes)) < 3 {
			return workflows.Checkout{}, notPickedUp()
		}
		shown = e.details()
		return checkoutAt("c1"), nil
	}

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Len(t, inputs[workflows.CommitResultsInput](e.fakes), 3)
	require.Contains(t, shown, "**waiting for gateway** (`gateway_unreachable`), as of 2026-03-01 08:00:00Z\n\n- **why:** gateway gw-1 does not pick up: commit the results of run r7-1\n"+
		"- **since:** 2026-03-01 08:00:00Z\n- **fails by itself:** never\n")
}

func TestARunLostWithItsNodeIsPlacedAgain(t *testing.T) {
	e := newEnv(t)
	silent := ledger.Verdict{
		Reason: "node node-a is silent; its agent may still have run r7-1", Node: "node-a",
		Since: since, Until: since.Add(2 * time.Minute), Left: 2 * time.Minute,
	}
	e.upserts(placedAttrs,
		attrs{
			workflows.AttrWait.ValueSet("node"), workflows.AttrReason.ValueSet("node_silent"), workflows.AttrWhy.ValueSet(silent.Reason),
			workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueSet(since.Add(2 * time.Minute)),
		},
		noWait(workflows.AttrNode.ValueUnset()),
		attrs{workflows.AttrNode.ValueSet("node-b")})
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		return placedOn(map[int]string{1: "node-a", 2: "node-b"}[in.Attempt], in.Attempt), nil
	}
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Node == "node-a" {
			return workflows.ExecuteRunResult{}, heartbeatLost()
		}
		return ran(), nil
	}
	var shown string
	e.judgeRun = func(_ context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
		switch {
		case !in.Retrying:
			return silent, nil
		case len(inputs[workflows.JudgeRunInput](e.fakes)) < 50:
			shown = e.details()
			return ledger.Verdict{}, temporal.NewApplicationError(silent.Reason, workflows.ErrTypeNodeSilent)
		}
		return ledger.Verdict{Gone: true, Reason: "node node-a has been silent for 2m0s", Node: "node-a"}, nil
	}

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Equal(t, []string{
		"place-phase", "execute-run", "judge-run", "note-wait", "judge-run", "retry-phase", "clear-wait",
		"place-phase", "execute-run", "commit-results", "finish-phase",
	}, e.names())
	require.Equal(t, []ledger.OpenWait{{
		WorkflowID: "default-test-workflow-id", MissionID: 5, PhaseID: 7, Kind: "node", Code: "node_silent",
		Reason: silent.Reason, Since: since, Bound: since.Add(2 * time.Minute),
	}}, inputs[ledger.OpenWait](e.fakes))
	require.Equal(t, []workflows.RetryPhaseInput{{PhaseID: 7, Attempt: 1, Run: ledger.RunEnd{
		Status: "lost", FailureCode: "node_lost", Failure: "node node-a has been silent for 2m0s",
	}}}, inputs[workflows.RetryPhaseInput](e.fakes))
	require.Equal(t, workflows.PlaceInput{PhaseID: 7, Attempt: 2, Pool: "microvm", Wake: ledger.WakeFirst}, inputs[workflows.PlaceInput](e.fakes)[1])
	require.Equal(t, workflows.JudgeRunInput{RunID: "r7-1"}, inputs[workflows.JudgeRunInput](e.fakes)[0])
	require.Contains(t, shown, "**waiting for node** (`node_silent`), as of 2026-03-01 08:00:00Z\n\n- **why:** node node-a is silent; its agent may still have run r7-1\n"+
		"- **since:** 2026-03-01 08:00:00Z\n- **placed again by:** 2026-03-01 08:02:00Z, 2m after it began\n")
}

// TestARunIsGoneOnWith executes a run again whose agents were started again.
func TestARunIsGoneOnWith(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		switch len(inputs[workflows.ExecuteRunInput](e.fakes)) {
		case 1:
			return workflows.ExecuteRunResult{}, heartbeatLost()
		case 2:
			return workflows.ExecuteRunResult{}, errors.New("the node's agent was stopped, and the next one goes on with the run")
		}
		return ran(), nil
	}
	e.judgeRun = func(_ context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
		if len(inputs[workflows.JudgeRunInput](e.fakes)) == 2 {
			return ledger.Verdict{Reason: "node node-a is silent", Node: "node-a", Since: since, Until: since.Add(time.Minute), Left: time.Minute}, nil
		}
		return ledger.Verdict{Kept: true, Reason: "the next agent of node node-a goes on with run r7-1", Node: "node-a"}, nil
	}

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Equal(t, []string{
		"place-phase", "execute-run", "judge-run", "execute-run", "judge-run", "note-wait", "judge-run", "clear-wait", "execute-run",
		"commit-results", "finish-phase",
	}, e.names())
	runs := inputs[workflows.ExecuteRunInput](e.fakes)
	require.False(t, runs[0].Resume)
	runs[0].Resume = true
	require.Equal(t, []workflows.ExecuteRunInput{runs[0], runs[0], runs[0]}, runs)
}

// TestTheRoomOfARunWhoseNodeIsSilentIsNotGivenBack says so to the database, when the
// phase is cancelled meanwhile.
func TestTheRoomOfARunWhoseNodeIsSilentIsNotGivenBack(t *testing.T) {
	silent := ledger.Verdict{Reason: "node node-a is silent", Node: "node-a", Since: since, Until: since.Add(time.Minute), Left: time.Minute}
	for name, c := range map[string]struct {
		executed error
		lingers  bool
	}{
		"the agent is away":             {heartbeatLost(), true},
		"the agent ends it":             {temporal.NewCanceledError(), false},
		"the agent leaves it to others": {errors.New("the node's agent was stopped, and the next one goes on with the run"), true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "enough"})
				return workflows.ExecuteRunResult{}, c.executed
			}
			e.judgeRun = func(_ context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
				if in.Retrying {
					return ledger.Verdict{}, temporal.NewApplicationError(silent.Reason, workflows.ErrTypeNodeSilent)
				}
				return silent, nil
			}

			require.Equal(t, "cancelled", e.endedPhase(phaseInput()).Status)
			end := inputs[workflows.FinishPhaseInput](e.fakes)
			require.Len(t, end, 1)
			require.Equal(t, c.lingers, end[0].Run.Lingers)
		})
	}
}

// TestARunThatIsGoneOnWithMayBeGoneAfterAll queues the phase again.
func TestARunThatIsGoneOnWithMayBeGoneAfterAll(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		switch {
		case in.Machine.RunID != "r7-1":
			return ran(), nil
		case in.Resume:
			return workflows.ExecuteRunResult{Lost: true, Failure: "the agent does not have the run any more"}, nil
		}
		return workflows.ExecuteRunResult{}, heartbeatLost()
	}
	e.judgeRun = func(context.Context, workflows.JudgeRunInput) (ledger.Verdict, error) {
		return ledger.Verdict{Kept: true, Node: "node-a"}, nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, []workflows.RetryPhaseInput{{PhaseID: 7, Attempt: 1, Run: ledger.RunEnd{
		Status: "lost", FailureCode: "node_lost", Failure: "the agent does not have the run any more",
	}}}, inputs[workflows.RetryPhaseInput](e.fakes))
}

// TestARunThatNobodyTakesUpIsGivenUp: an agent that names a run and does not serve
// its queue does not hold the phase for ever.
func TestARunThatNobodyTakesUpIsGivenUp(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		switch {
		case in.Machine.RunID != "r7-1":
			return ran(), nil
		case in.Resume:
			return workflows.ExecuteRunResult{}, notPickedUp()
		}
		return workflows.ExecuteRunResult{}, heartbeatLost()
	}
	e.judgeRun = func(_ context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
		if in.GiveUp {
			return ledger.Verdict{Gone: true, Reason: "the agent of node node-a came back without run r7-1", Node: "node-a"}, nil
		}
		return ledger.Verdict{Kept: true, Node: "node-a"}, nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, []workflows.JudgeRunInput{{RunID: "r7-1"}, {RunID: "r7-1"}, {RunID: "r7-1"}, {RunID: "r7-1", GiveUp: true}},
		inputs[workflows.JudgeRunInput](e.fakes))
	require.Equal(t, []workflows.RetryPhaseInput{{PhaseID: 7, Attempt: 1, Run: ledger.RunEnd{
		Status: "lost", FailureCode: "node_lost", Failure: "the agent of node node-a came back without run r7-1",
	}}}, inputs[workflows.RetryPhaseInput](e.fakes))
}

func TestWaysToLoseARun(t *testing.T) {
	for name, lose := range map[string]func() (workflows.ExecuteRunResult, error){
		"the heartbeat stops":       func() (workflows.ExecuteRunResult, error) { return workflows.ExecuteRunResult{}, heartbeatLost() },
		"the node does not pick up": func() (workflows.ExecuteRunResult, error) { return workflows.ExecuteRunResult{}, notPickedUp() },
		"the agent gave the run up": func() (workflows.ExecuteRunResult, error) {
			return workflows.ExecuteRunResult{Lost: true, Failure: "the agent stops"}, nil
		},
		"the agent's work is ended": func() (workflows.ExecuteRunResult, error) { return workflows.ExecuteRunResult{}, context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) { return lose() }

			ended := e.endedPhase(phaseInput())

			require.Equal(t, "node_lost", ended.FailureCode)
			require.Contains(t, ended.Failure, "lost 3 runs with their nodes; at last: ")
			require.Len(t, inputs[workflows.ExecuteRunInput](e.fakes), 3)
			require.Len(t, inputs[workflows.RetryPhaseInput](e.fakes), 2)
			end := inputs[workflows.FinishPhaseInput](e.fakes)
			require.Len(t, end, 1)
			require.Equal(t, "lost", end[0].Run.Status)
		})
	}
}

func TestARunThatCannotBeTriedElsewhereFailsThePhase(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return workflows.ExecuteRunResult{}, final("the run's input is no run", "BadInput")
	}

	require.Equal(t, ledger.Ended{Status: "failed", FailureCode: "internal", Failure: "the run's input is no run"}, e.endedPhase(phaseInput()))
	require.Empty(t, inputs[workflows.JudgeRunInput](e.fakes))
}
