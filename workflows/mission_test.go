package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// reply is what came of a launch update.
type reply struct {
	launched api.LaunchReply
	err      error // refused
	answers  int
}

// send sends the launch update after some virtual time.
func (e *env) send(after time.Duration) *reply { return e.sendRequest(after, launchRequest) }

func (e *env) sendRequest(after time.Duration, req api.LaunchRequest) *reply {
	r := &reply{}
	e.RegisterDelayedCallback(func() {
		e.UpdateWorkflow(api.UpdateLaunch, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { r.err, r.answers = err, r.answers+1 },
			OnComplete: func(value any, err error) {
				r.launched, _ = value.(api.LaunchReply)
				r.err, r.answers = err, r.answers+1
			},
		}, req)
	}, after)
	return r
}

// mission runs a mission to its end.
func (e *env) mission() (api.MissionResult, error) {
	e.t.Helper()
	e.Register(e)
	e.ExecuteWorkflow(api.MissionWorkflow, workflows.MissionInput{})
	require.True(e.t, e.IsWorkflowCompleted())
	var res api.MissionResult
	if err := e.GetWorkflowError(); err != nil {
		return res, err
	}
	return res, e.GetWorkflowResult(&res)
}

// endedMission runs a launched mission to an end that is no success.
func (e *env) endedMission() api.MissionResult {
	e.t.Helper()
	e.send(0)
	_, err := e.mission()
	require.Error(e.t, err)
	res := missionResultIn(e.t, err)
	finish := inputs[workflows.FinishMissionInput](e.fakes)
	require.Len(e.t, finish, 1)
	e.missionBy, finish[0].End.By = finish[0].End.By, nil
	require.Equal(e.t, workflows.FinishMissionInput{MissionID: 5, Launch: 3, End: ledger.MissionEnd{
		Status: res.Status, FailureCode: res.FailureCode, Failure: res.Failure,
	}}, finish[0])
	return res
}

func missionResultIn(t testing.TB, err error) api.MissionResult {
	t.Helper()
	var (
		app      *temporal.ApplicationError
		canceled *temporal.CanceledError
		res      api.MissionResult
	)
	if errors.As(err, &canceled) {
		require.NoError(t, canceled.Details(&res))
		require.Equal(t, "cancelled", res.Status)
		return res
	}
	require.ErrorAs(t, err, &app)
	require.Equal(t, workflows.ErrTypeMissionFailed, app.Type())
	require.NoError(t, app.Details(&res))
	require.Equal(t, "failed", res.Status)
	require.Equal(t, res.Failure, app.Message())
	return res
}

func TestAMissionRunsItsPhasesInOrderAndPassesTheCheckoutOn(t *testing.T) {
	e := newEnv(t)
	launch := e.send(0)

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, api.MissionResult{Mission: "port", Launch: 3, Status: "succeeded"}, res)
	require.NoError(t, launch.err)
	require.Equal(t, api.LaunchReply{
		Mission: "port", Launch: 3, WorkflowID: "default-test-workflow-id", RunID: "default-test-run-id", StartedAt: since,
	}, launch.launched)
	require.Equal(t, []string{
		"launch-mission", "open-checkout", "record-checkout",
		"place-phase", "execute-run", "commit-results", "finish-phase",
		"place-phase", "execute-run", "commit-results", "finish-phase",
		"finish-mission",
	}, e.names())
	require.Equal(t, []asked{
		// Which run id is recorded is tested on a server: here the original one is empty.
		{"launch-mission", local, workflows.LaunchInput{Document: []byte(`{"name":"port"}`), Actor: "ann"}},
		{"open-checkout", "gateway.gw-1", workflows.OpenCheckoutInput{
			Mission: "port", Launch: 3, Head: "c0", Bundle: workflows.Object{Bucket: "tidewait-workspaces", Name: "b1", SHA256: "b1"},
		}},
		{"record-checkout", local, workflows.SetCheckoutInput{MissionID: 5, Launch: 3, Branch: "tidewait/port/3", Base: "c0"}},
	}, e.all()[:3])
	runs := inputs[workflows.ExecuteRunInput](e.fakes)
	require.Equal(t, "input.port.c0", runs[0].Input.Name)
	require.Equal(t, "input.port.c1", runs[1].Input.Name)
	require.Equal(t, []string{"make", "survey"}, runs[0].Command.Argv)
	require.Equal(t, []string{"./report"}, runs[1].Command.Argv)
	commits := inputs[workflows.CommitResultsInput](e.fakes)
	require.Equal(t, "c1", commits[1].Parent)
	require.Equal(t, "tree-c1", commits[1].TreeIn)
	places := inputs[workflows.PlaceInput](e.fakes)
	require.Equal(t, int64(7), places[0].PhaseID)
	require.Equal(t, int64(8), places[1].PhaseID)
	require.Equal(t, []workflows.FinishMissionInput{{MissionID: 5, Launch: 3, End: ledger.MissionEnd{Status: "succeeded"}}},
		inputs[workflows.FinishMissionInput](e.fakes))
	require.Equal(t, "mission **port**, launch 3 by somebody, on gateway **gw-1**, branch `tidewait/port/3`\n\n"+
		"**succeeded**, at 2026-03-01 08:00:00Z\n\n- **left:** commit `c2` on branch `tidewait/port/3`\n"+
		"\n**phases**\n\n- **1 survey:** succeeded, commit `c1`\n- **2 report:** succeeded, commit `c2`\n"+
		"\n**you can**\n\n- see what each phase left: `tidewait mission results port`\n- read its output: `tidewait mission logs port`\n"+
		"- see how long it waited, and for what: `tidewait mission show port`\n", e.details())
}

func TestARefusedLaunchLeavesADraft(t *testing.T) {
	e := newEnv(t)
	refusal := ledger.RefusedPhase{Phase: "survey", Refusal: capacity.CapabilityRefusal{
		Code: capacity.CodeExceedsEveryNode, Sentence: "no node has 64 CPUs", Counts: capacity.Counts{Incapable: 2},
		Nodes: []capacity.NodeReason{{NodeID: "node-a", Why: "short by 60 CPUs"}},
	}}
	e.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		return workflows.LaunchResult{Refused: []ledger.RefusedPhase{refusal}, Mission: workflows.LaunchedMission{Name: "port"}}, nil
	}
	launch := e.send(0)

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, api.MissionResult{Mission: "port", Status: "draft", FailureCode: "exceeds_every_node", Failure: "phase survey: no node has 64 CPUs"}, res)
	var app *temporal.ApplicationError
	require.ErrorAs(t, launch.err, &app)
	require.Equal(t, "CapabilityRefused", app.Type())
	require.Equal(t, "phase survey: no node has 64 CPUs", app.Message())
	var details []ledger.RefusedPhase
	require.NoError(t, app.Details(&details))
	require.Equal(t, []ledger.RefusedPhase{refusal}, details)
	require.Equal(t, []string{"launch-mission"}, e.names())
}

func TestALaunchThatCannotBeRecordedEndsTheWorkflow(t *testing.T) {
	e := newEnv(t)
	e.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		return workflows.LaunchResult{}, final("the mission is running", "MissionRunning")
	}
	launch := e.send(0)

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, api.MissionResult{Status: "draft", FailureCode: "MissionRunning", Failure: "the mission is running"}, res)
	var app *temporal.ApplicationError
	require.ErrorAs(t, launch.err, &app)
	require.Equal(t, "MissionRunning", app.Type())
}

func TestAWorkflowWithoutALaunchGivesUpAfterAMinute(t *testing.T) {
	e := newEnv(t)

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, api.MissionResult{Status: "draft", FailureCode: "LaunchUnavailable", Failure: "no launch came in 1m0s"}, res)
	require.Equal(t, since.Add(time.Minute), e.Now().UTC())
	require.Empty(t, e.all())
}

func TestALaunchThatTakesLongerThanThePatienceStillRuns(t *testing.T) {
	e := newEnv(t)
	e.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		if len(inputs[workflows.LaunchInput](e.fakes)) < 12 { // three of them local
			return workflows.LaunchResult{}, errors.New("the database does not answer")
		}
		return launchResult(), nil
	}
	launch := e.send(50 * time.Second)

	res, err := e.mission()

	require.NoError(t, err)
	require.NoError(t, launch.err)
	require.Equal(t, api.MissionResult{Mission: "port", Launch: 3, Status: "succeeded"}, res)
	require.Greater(t, e.Now().Sub(since), 90*time.Second)
}

func TestASecondLaunchIsRefused(t *testing.T) {
	e := newEnv(t)
	e.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		return launchResult(), nil
	}
	first, second := e.send(0), e.send(0)

	_, err := e.mission()

	require.NoError(t, err)
	require.NoError(t, first.err)
	require.Equal(t, 1, first.answers)
	var app *temporal.ApplicationError
	require.ErrorAs(t, second.err, &app)
	require.Equal(t, "MissionRunning", app.Type())
	require.Len(t, inputs[workflows.LaunchInput](e.fakes), 1)
}

func TestAFailedPhaseFailsItsMissionByName(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 3}}, nil
	}

	require.Equal(t, api.MissionResult{
		Mission: "port", Launch: 3, Status: "failed", FailureCode: "command_failed", Failure: `phase survey: command "make" exited with code 3`,
	}, e.endedMission())
	require.NotContains(t, inputs[workflows.PlaceInput](e.fakes), workflows.PlaceInput{PhaseID: 8, Attempt: 1, Pool: "microvm", Wake: ledger.WakeFirst})
}

func TestAWorkspaceThatTheGatewayRefusesFailsTheMission(t *testing.T) {
	e := newEnv(t)
	e.openCheckout = func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
		return workflows.Checkout{}, final("https://git.example/x has no branch main", workflows.ErrTypeWorkspaceRefused, "bad_ref")
	}

	require.Equal(t, api.MissionResult{
		Mission: "port", Launch: 3, Status: "failed", FailureCode: "bad_ref", Failure: "https://git.example/x has no branch main",
	}, e.endedMission())
}

func TestACancelSignalReachesThePhaseThatRuns(t *testing.T) {
	e := newEnv(t)
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if in.Retrying {
			return ledger.Outcome{}, stillRefused(waiting(capacity.CodeCPU, boundAfter))
		}
		return refusedFor(capacity.CodeCPU, boundAfter), nil
	}
	e.RegisterDelayedCallback(func() {
		e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"})
	}, 10*time.Minute)

	require.Equal(t, api.MissionResult{
		Mission: "port", Launch: 3, Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: wrong branch",
	}, e.endedMission())
	ends := inputs[workflows.FinishPhaseInput](e.fakes)
	require.Len(t, ends, 1)
	by := cancelBy("ann", "wrong branch")
	require.Equal(t, ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: wrong branch", By: by}, ends[0].End)
	require.Equal(t, by, e.missionBy)
}

func TestANativeCancellationEndsThePhaseAndTheMission(t *testing.T) {
	e := newEnv(t)
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if in.Retrying {
			return ledger.Outcome{}, stillRefused(waiting(capacity.CodeCPU, boundAfter))
		}
		return refusedFor(capacity.CodeCPU, boundAfter), nil
	}
	e.RegisterDelayedCallback(e.CancelWorkflow, 10*time.Minute)

	require.Equal(t, api.MissionResult{
		Mission: "port", Launch: 3, Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled through Temporal",
	}, e.endedMission())
	require.Equal(t, "cancelled with its mission or through Temporal", inputs[workflows.FinishPhaseInput](e.fakes)[0].End.Failure)
	require.Nil(t, e.missionBy, "nobody is known to have done it")
}

func TestAPhaseCancelledAloneGivesItsReasonToTheMission(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return ran(), e.SignalWorkflowByID(surveyID, api.SignalCancel, api.Cancel{Actor: "bob", Reason: "too slow"})
	}

	require.Equal(t, api.MissionResult{
		Mission: "port", Launch: 3, Status: "cancelled", FailureCode: "cancelled", Failure: "phase survey: cancelled by bob: too slow",
	}, e.endedMission())
	require.Nil(t, e.missionBy, "it was done to the phase")
}

func TestACancelBeforeAPhaseStartsNone(t *testing.T) {
	for name, at := range map[string]func(e *env, cancel func()){
		"while the launch is recorded": func(e *env, cancel func()) {
			e.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
				cancel()
				return launchResult(), nil
			}
		},
		"while the checkout is opened": func(e *env, cancel func()) {
			e.openCheckout = func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
				cancel()
				return checkoutAt("c0"), nil
			}
		},
		"while the branch is recorded": func(e *env, cancel func()) {
			e.setCheckout = func(context.Context, workflows.SetCheckoutInput) error { cancel(); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			at(e, func() { e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"}) })

			res := e.endedMission()

			require.Equal(t, "cancelled by ann: wrong branch", res.Failure)
			require.Empty(t, inputs[workflows.PlaceInput](e.fakes))
		})
		t.Run(name+", natively", func(t *testing.T) {
			e := newEnv(t)
			at(e, e.CancelWorkflow)

			res := e.endedMission()

			require.Equal(t, "cancelled through Temporal", res.Failure)
			require.Empty(t, inputs[workflows.PlaceInput](e.fakes))
		})
	}
}

func TestACancelBeforeTheLaunchClosesTheWorkflow(t *testing.T) {
	e := newEnv(t)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann"}) }, 10*time.Second)

	_, err := e.mission()

	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	require.Empty(t, e.all())
}

func TestAMissionWhosePhasesAllSucceededSucceedsEvenIfACancelCameLast(t *testing.T) {
	e := newEnv(t)
	e.finishPhase = func(_ context.Context, in workflows.FinishPhaseInput) (ledger.Ended, error) {
		if in.PhaseID == 8 {
			e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "too late"})
		}
		return in.End, nil
	}
	e.send(0)

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, api.MissionResult{Mission: "port", Launch: 3, Status: "succeeded"}, res)
}

func TestAPhaseAfterOneThatHadEndedStartsFromTheBranch(t *testing.T) {
	e := newEnv(t)
	e.openCheckout = func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
		opened := len(inputs[workflows.OpenCheckoutInput](e.fakes))
		return checkoutAt(map[int]string{1: "c0", 2: "c1"}[opened]), nil
	}
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if in.PhaseID == 7 {
			return ledger.Outcome{Ended: &ledger.Ended{Status: "succeeded", Commit: "c1"}}, nil
		}
		return placedOn("node-a", in.Attempt), nil
	}
	e.send(0)

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, "succeeded", res.Status)
	require.Len(t, inputs[workflows.OpenCheckoutInput](e.fakes), 2)
	runs := inputs[workflows.ExecuteRunInput](e.fakes)
	require.Len(t, runs, 1)
	require.Equal(t, "input.port.c1", runs[0].Input.Name)
	require.Equal(t, "c1", inputs[workflows.CommitResultsInput](e.fakes)[0].Parent)
}
