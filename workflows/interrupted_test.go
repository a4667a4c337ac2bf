package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// What the test environment does not do as a server does: cancellations that are
// awaited, terminations, and resets.
func TestInterruptions(t *testing.T) {
	s := startServer(t)

	for name, cancel := range map[string]func(server) error{
		"by signal": func(s server) error {
			return s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"})
		},
		"natively": func(s server) error { return s.CancelWorkflow(s.t.Context(), surveyID, "") },
	} {
		t.Run("a run that is cancelled "+name+" is awaited", func(t *testing.T) {
			s := s.in(t)
			f := newFakes()
			running, destroy := newGate(), make(chan struct{})
			var destroyed, tooEarly atomic.Bool
			f.executeRun = func(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				_, err := running.run(ctx, in)
				<-destroy
				destroyed.Store(true)
				return workflows.ExecuteRunResult{}, err
			}
			f.finishPhase = func(_ context.Context, in workflows.FinishPhaseInput) (ledger.Ended, error) {
				tooEarly.Store(!destroyed.Load())
				return in.End, nil
			}
			s.serve(f)
			run := s.startPhase(phaseInput())
			running.await(t)

			require.NoError(t, cancel(s))
			eventually(t, func() bool {
				return count(s.history(surveyID, ""), enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED) == 1
			}, "the run is not cancelled")
			close(destroy)

			require.Equal(t, "cancelled", endedIn(t, run.Get(t.Context(), nil)).Status)
			require.False(t, tooEarly.Load(), "the node was released before its machine was gone")
			require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, s.newest(surveyID).Status)
		})
	}

	t.Run("a commit that was made counts", func(t *testing.T) {
		s := s.in(t)
		f := newFakes()
		committing, made := make(chan struct{}), make(chan struct{})
		f.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
			close(committing)
			<-made
			return checkoutAt("c1"), nil
		}
		s.serve(f)
		run := s.startPhase(phaseInput())
		<-committing
		require.NoError(t, s.CancelWorkflow(t.Context(), surveyID, ""))
		eventually(t, func() bool {
			return count(s.history(surveyID, ""), enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED) == 1
		}, "the commit is not cancelled")
		close(made)

		var res workflows.PhaseResult
		require.NoError(t, run.Get(t.Context(), &res))
		require.Equal(t, "c1", res.Checkout.Commit)
	})

	t.Run("a phase that is terminated fails its mission", func(t *testing.T) {
		s := s.in(t)
		f, g := newFakes(), newGate()
		f.executeRun = g.run
		book := newBook(f)
		s.serve(f)
		launched, err := s.launch(launchRequest)
		require.NoError(t, err)
		g.await(t)

		require.NoError(t, s.TerminateWorkflow(t.Context(), surveyID, "", "enough"))

		err = s.GetWorkflow(t.Context(), missionID, launched.RunID).Get(t.Context(), nil)
		require.Equal(t, api.MissionResult{
			Mission: "port", Launch: 3, Status: "failed", FailureCode: "workflow_lost",
			Failure: "phase survey: its workflow was terminated; its machine is destroyed",
		}, missionResultIn(t, err))
		require.Len(t, book.missions(), 1)
	})

	t.Run("a mission that is terminated cancels its phase", func(t *testing.T) {
		s := s.in(t)
		f, g := newFakes(), newGate()
		f.executeRun = g.run
		book := newBook(f)
		s.serve(f)
		_, err := s.launch(launchRequest)
		require.NoError(t, err)
		g.await(t)

		require.NoError(t, s.TerminateWorkflow(t.Context(), missionID, "", "enough"))

		s.awaitStatus(surveyID, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED)
		require.Equal(t, ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled with its mission or through Temporal"}, book.phase(7))
	})

	t.Run("a phase that is cancelled natively ends its mission", func(t *testing.T) {
		s := s.in(t)
		f, g := newFakes(), newGate()
		f.executeRun = g.run
		newBook(f)
		s.serve(f)
		launched, err := s.launch(launchRequest)
		require.NoError(t, err)
		g.await(t)

		require.NoError(t, s.CancelWorkflow(t.Context(), surveyID, ""))

		err = s.GetWorkflow(t.Context(), missionID, launched.RunID).Get(t.Context(), nil)
		require.Equal(t, api.MissionResult{
			Mission: "port", Launch: 3, Status: "cancelled", FailureCode: "cancelled",
			Failure: "phase survey: cancelled with its mission or through Temporal",
		}, missionResultIn(t, err))
	})
}

func TestResets(t *testing.T) {
	s := startServer(t)

	for name, at := range map[string]func([]*historypb.HistoryEvent) int64{
		"before its launch":     firstTask,
		"before its phase":      taskBefore(enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED),
		"after its phase began": lastTask,
	} {
		t.Run("a mission reset "+name+" follows the phase that runs", func(t *testing.T) {
			s := s.in(t)
			f, g := newFakes(), newGate()
			f.executeRun = g.run
			book := newBook(f)
			s.serve(f)
			launched, err := s.launch(launchRequest)
			require.NoError(t, err)
			require.Equal(t, "r7-1", g.await(t))

			again := s.reset(missionID, at)
			if name != "after its phase began" {
				s.awaitFollowing(2)
			}
			close(g.opened)

			var res api.MissionResult
			require.NoError(t, s.GetWorkflow(t.Context(), missionID, again).Get(t.Context(), &res))
			require.Equal(t, api.MissionResult{Mission: "port", Launch: 3, Status: "succeeded"}, res)
			require.Equal(t, []ledger.MissionEnd{{Status: "succeeded"}}, book.missions())
			require.Equal(t, "r8-1", g.await(t))
			require.Empty(t, g.arrived, "no phase ran twice")
			runs := inputs[workflows.ExecuteRunInput](f)
			require.Equal(t, "input.port.c1", runs[1].Input.Name)
			for _, l := range inputs[workflows.LaunchInput](f) {
				require.Equal(t, launched.RunID, l.RunID)
			}
		})
	}

	t.Run("a mission reset in its second phase does not repeat the first", func(t *testing.T) {
		s := s.in(t)
		f, g := newFakes(), newGate()
		f.executeRun = func(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
			if in.Phase == "survey" {
				return ran(), nil
			}
			return g.run(ctx, in)
		}
		book := newBook(f)
		s.serve(f)
		_, err := s.launch(launchRequest)
		require.NoError(t, err)
		require.Equal(t, "r8-1", g.await(t))

		again := s.reset(missionID, firstTask)
		s.awaitFollowing(1)
		close(g.opened)

		var res api.MissionResult
		require.NoError(t, s.GetWorkflow(t.Context(), missionID, again).Get(t.Context(), &res))
		require.Equal(t, "succeeded", res.Status)
		require.Len(t, inputs[workflows.ExecuteRunInput](f), 2)
		require.Equal(t, []ledger.MissionEnd{{Status: "succeeded"}}, book.missions())
		require.Equal(t, ledger.Ended{Status: "succeeded", Commit: "c2"}, book.phase(8))
	})

	for name, c := range map[string]struct {
		cancel  func(server) error
		mission string
		phase   string
	}{
		"by signal": {
			func(s server) error {
				return s.SignalWorkflow(s.t.Context(), missionID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "enough"})
			}, "cancelled by ann: enough", "cancelled by ann: enough",
		},
		"natively": {
			func(s server) error { return s.CancelWorkflow(s.t.Context(), missionID, "") },
			"cancelled through Temporal", "cancelled with its mission or through Temporal",
		},
	} {
		t.Run("a mission cancelled "+name+" while it follows a phase ends that too", func(t *testing.T) {
			s := s.in(t)
			f, g := newFakes(), newGate()
			f.executeRun = g.run
			book := newBook(f)
			s.serve(f)
			launched, err := s.launch(launchRequest)
			require.NoError(t, err)
			g.await(t)
			again := s.reset(missionID, firstTask)
			s.awaitFollowing(1)

			require.NoError(t, c.cancel(s))

			err = s.GetWorkflow(t.Context(), missionID, again).Get(t.Context(), nil)
			require.Equal(t, c.mission, missionResultIn(t, err).Failure)
			s.awaitStatus(surveyID, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED)
			// A workflow task that is done over does its local activities again.
			ends := inputs[workflows.FinishPhaseInput](f)
			require.NotEmpty(t, ends)
			for _, e := range ends {
				require.Equal(t, c.phase, e.End.Failure)
			}
			want := ledger.MissionEnd{Status: "cancelled", FailureCode: "cancelled", Failure: c.mission}
			if name == "by signal" {
				want.By = &ledger.Act{Key: launched.RunID + "/cancel", Verb: "cancel", Actor: "ann", Note: "enough"}
			}
			require.Equal(t, []ledger.MissionEnd{want}, book.missions())
		})
	}

	for name, at := range map[string]func([]*historypb.HistoryEvent) int64{
		"before its place": firstTask,
		"before its run":   taskBefore(enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES),
	} {
		t.Run("a phase reset "+name+" runs again and ends its mission", func(t *testing.T) {
			s := s.in(t)
			f, g := newFakes(), newGate()
			f.executeRun = g.run
			book := newBook(f)
			s.serve(f)
			launched, err := s.launch(launchRequest)
			require.NoError(t, err)
			require.Equal(t, "r7-1", g.await(t))

			s.reset(surveyID, at)
			require.Equal(t, "r7-1", g.await(t), "the run is the same; its node begins it anew")
			close(g.opened)

			var res api.MissionResult
			require.NoError(t, s.GetWorkflow(t.Context(), missionID, launched.RunID).Get(t.Context(), &res))
			require.Equal(t, "succeeded", res.Status)
			require.Equal(t, ledger.Ended{Status: "succeeded", Commit: "c1"}, book.phase(7))
			require.Equal(t, []ledger.MissionEnd{{Status: "succeeded"}}, book.missions())
		})
	}

	t.Run("a phase or mission reset after its end closes the same way", func(t *testing.T) {
		s := s.in(t)
		f := newFakes()
		f.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
			return workflows.ExecuteRunResult{FailureCode: "boot_failed", Failure: "the machine did not answer"}, nil
		}
		book := newBook(f)
		s.serve(f)
		launched, err := s.launch(launchRequest)
		require.NoError(t, err)
		first := missionResultIn(t, s.GetWorkflow(t.Context(), missionID, launched.RunID).Get(t.Context(), nil))
		require.Equal(t, "phase survey: the machine did not answer", first.Failure)
		runs := len(inputs[workflows.ExecuteRunInput](f))

		phase := s.reset(surveyID, firstTask)
		require.Equal(t, book.phase(7), endedIn(t, s.GetWorkflow(t.Context(), surveyID, phase).Get(t.Context(), nil)))
		mission := s.reset(missionID, firstTask)
		require.Equal(t, first, missionResultIn(t, s.GetWorkflow(t.Context(), missionID, mission).Get(t.Context(), nil)))
		require.Len(t, inputs[workflows.ExecuteRunInput](f), runs, "nothing ran again")
	})
}

// reset resets a workflow as the Web UI does, and returns its new run.
func (s server) reset(id string, at func([]*historypb.HistoryEvent) int64) string {
	s.t.Helper()
	res, err := s.ResetWorkflowExecution(s.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:         devstack.Namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: s.newest(id).WorkflowExecution.RunID},
		Reason:            "try again", RequestId: s.t.Name() + id, WorkflowTaskFinishEventId: at(s.history(id, "")),
	})
	require.NoError(s.t, err)
	return res.GetRunId()
}

func firstTask(history []*historypb.HistoryEvent) int64 {
	for _, e := range history {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			return e.GetEventId()
		}
	}
	return 0
}

func lastTask(history []*historypb.HistoryEvent) int64 {
	var id int64
	for _, e := range history {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			id = e.GetEventId()
		}
	}
	return id
}

// taskBefore is the task that led to the first event of a kind.
func taskBefore(kind enumspb.EventType) func([]*historypb.HistoryEvent) int64 {
	return func(history []*historypb.HistoryEvent) int64 {
		for i, e := range history {
			if e.GetEventType() == kind {
				return lastTask(history[:i])
			}
		}
		return 0
	}
}

// awaitFollowing returns when the mission has tried n times to start the
// workflow of a phase that runs already.
func (s server) awaitFollowing(n int) {
	s.t.Helper()
	eventually(s.t, func() bool {
		return count(s.history(missionID, ""), enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED) >= n
	}, "the mission does not follow its phase")
}

func (s server) awaitStatus(id string, status enumspb.WorkflowExecutionStatus) {
	s.t.Helper()
	eventually(s.t, func() bool { return s.newest(id).Status == status }, "workflow %s is not %s", id, status)
}
