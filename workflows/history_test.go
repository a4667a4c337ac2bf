package workflows_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// Events that a workflow may cost; Temporal keeps them all, and slows down with
// their number.
const (
	happyPhaseEvents = 60
	quietWaitEvents  = 30
	eventsPerNudge   = 12
	nudgesInStorm    = 200

	// What a mission of one phase costs beside it, and what it costs to be told that
	// the phase waits, and that it does not any more.
	missionEvents = 34
	eventsPerTold = 6
)

// TestHistoryBudgets counts phases as they ship: each is the child of a mission, which
// it tells of its waits.
func TestHistoryBudgets(t *testing.T) {
	s := startServer(t)

	t.Run("a happy phase", func(t *testing.T) {
		s := s.in(t)
		s.startMission(newFakes(), time.Hour)
		s.awaitClosed(missionID)

		events, mission := len(s.history(surveyID, "")), len(s.history(missionID, ""))
		t.Logf("%d events of the phase, %d of the mission", events, mission)
		require.LessOrEqual(t, events, happyPhaseEvents)
		require.LessOrEqual(t, mission, missionEvents)
	})

	t.Run("a wait without wakes", func(t *testing.T) {
		s := s.in(t)
		f := newFakes()
		var tries atomic.Int64
		f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
			if !in.Retrying {
				return refusedFor(capacity.CodeCPU, 6*time.Second), nil
			}
			tries.Add(1)
			return ledger.Outcome{}, stillRefused(waiting(in.LastCode, time.Second))
		}
		s.startMission(f, time.Second)
		s.awaitClosed(missionID)
		require.Equal(t, waitExceeded, endedIn(t, s.GetWorkflow(t.Context(), surveyID, "").Get(t.Context(), nil)))

		history, mission := s.history(surveyID, ""), s.history(missionID, "")
		t.Logf("%d events of the phase, %d of the mission, %d tries", len(history), len(mission), tries.Load())
		require.LessOrEqual(t, len(history), quietWaitEvents)
		require.LessOrEqual(t, len(mission), missionEvents+eventsPerTold)
		require.GreaterOrEqual(t, tries.Load(), int64(4))
		require.Equal(t, 1, count(history, enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED), "its end tells the mission by itself")
		require.Equal(t, 1, count(history, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED), "the retry; the first and the last look are local")
	})

	t.Run("a nudge", func(t *testing.T) {
		s := s.in(t)
		f := newFakes()
		looks := make(chan ledger.Wake, 100)
		f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
			looks <- in.Wake
			if !in.Retrying {
				return refusedFor(capacity.CodeCPU, boundAfter), nil
			}
			return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
		}
		s.startMission(f, time.Hour)
		require.Equal(t, ledger.WakeFirst, next(t, looks))
		require.Equal(t, ledger.WakeTimer, next(t, looks))
		before := s.settled()
		told := count(s.history(surveyID, ""), enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED)

		const nudges = 10
		for range nudges {
			require.NoError(t, s.SignalWorkflow(t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "ann"}))
			require.Equal(t, ledger.WakeNudge, next(t, looks))
			s.settled()
		}

		cost := s.settled() - before
		t.Logf("%d events for %d nudges", cost, nudges)
		require.LessOrEqual(t, cost, nudges*eventsPerNudge)
		require.Equal(t, told, count(s.history(surveyID, ""), enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED),
			"a nudge is nothing to tell the mission")
	})

	t.Run("a storm of nudges loses nothing", func(t *testing.T) {
		s := s.in(t)
		f := newFakes()
		var free atomic.Bool
		waits := make(chan struct{})
		var once sync.Once
		f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
			switch {
			case !in.Retrying:
				return refusedFor(capacity.CodeCPU, boundAfter), nil
			case free.Load():
				return placedOn("node-a", in.Attempt), nil
			}
			once.Do(func() { close(waits) })
			return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
		}
		s.startMission(f, time.Hour) // only a nudge can find the room
		<-waits

		var storm sync.WaitGroup
		for range nudgesInStorm - 1 {
			storm.Go(func() {
				if err := s.SignalWorkflow(t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "ann"}); err != nil {
					t.Error(err)
				}
			})
		}
		storm.Wait()
		free.Store(true)
		require.NoError(t, s.SignalWorkflow(t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "ann"}))
		require.NoError(t, s.GetWorkflow(t.Context(), surveyID, "").Get(t.Context(), nil))
		s.awaitClosed(missionID)

		history, mission := s.history(surveyID, ""), s.history(missionID, "")
		t.Logf("%d events for %d nudges", len(history), nudgesInStorm)
		require.Equal(t, nudgesInStorm, count(history, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED))
		require.LessOrEqual(t, len(history), happyPhaseEvents+nudgesInStorm*eventsPerNudge)
		require.LessOrEqual(t, len(mission), missionEvents+2*eventsPerTold)
	})

	t.Run("attempts that ran out are not the bound", func(t *testing.T) {
		s := s.in(t)
		f := newFakes()
		var issued atomic.Int64
		f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
			w := waiting(capacity.CodeCPU, time.Nanosecond) // two attempts
			w.Bound = time.Time{}
			switch {
			case !in.Retrying:
				return ledger.Outcome{Waiting: &w}, nil
			case issued.Add(1) > 3:
				return placedOn("node-a", in.Attempt), nil
			}
			return ledger.Outcome{}, stillRefused(w)
		}
		s.serve(f)

		run := s.startPhase(eager(phaseInput()))
		require.NoError(t, run.Get(t.Context(), nil))

		var states []enumspb.RetryState
		for _, e := range s.history(surveyID, run.GetRunID()) {
			if failed := e.GetActivityTaskFailedEventAttributes(); failed != nil {
				states = append(states, failed.GetRetryState())
			}
		}
		require.Equal(t, []enumspb.RetryState{enumspb.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED}, states)
	})
}

// startMission launches a mission of one phase, which looks again so often.
func (s server) startMission(f *fakes, retry time.Duration) {
	s.t.Helper()
	f.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		l := launchResult()
		l.Launched.Phases, l.Mission.Phases, l.Fleet.RetryInterval = l.Launched.Phases[:1], l.Mission.Phases[:1], retry
		return l, nil
	}
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
}

// eager looks again as often as a server can.
func eager(in workflows.PhaseInput) workflows.PhaseInput {
	in.Fleet.RetryInterval = time.Second
	return in
}

func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		require.Fail(t, "nothing came")
		panic("unreachable")
	}
}

// settled returns how many events the open phase has once nothing more is to be
// decided.
func (s server) settled() int {
	s.t.Helper()
	events := 0
	eventually(s.t, func() bool {
		history := s.history(surveyID, "")
		events = len(history)
		return history[events-1].GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED ||
			count(history, enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED) == count(history, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
	}, "workflow %s does not come to rest", surveyID)
	return events
}
