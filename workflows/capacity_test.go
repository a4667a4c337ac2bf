package workflows_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// refuse makes the placer refuse a phase for want of CPUs until, on a retry,
// answer gives something else. It is asked with the number of the retry, from 1,
// and never twice at once: a retry that was interrupted may still be in its try.
func (e *env) refuse(answer func(retry int, in workflows.PlaceInput) *ledger.Outcome) {
	var mu sync.Mutex
	retries := 0
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		left := since.Add(boundAfter).Sub(e.Now())
		if !in.Retrying {
			return refusedFor(capacity.CodeCPU, left), nil
		}
		retries++
		if o := answer(retries, in); o != nil {
			return *o, nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, left))
	}
}

func never(int, workflows.PlaceInput) *ledger.Outcome { return nil }

// elapsed is the virtual time since the phase was first refused, in whole seconds.
func (e *env) elapsed() time.Duration { return e.Now().Sub(since).Truncate(time.Second) }

// expires makes every last look end the phase, and lists when there was one.
func (e *env) expires() *[]time.Duration {
	var looks []time.Duration
	e.expire = func(context.Context, workflows.ExpireInput) (ledger.Outcome, error) {
		looks = append(looks, e.elapsed())
		return ledger.Outcome{Ended: &waitExceeded}, nil
	}
	return &looks
}

func TestARefusedPhaseIsPlacedByItsRetry(t *testing.T) {
	e := newEnv(t)
	e.upserts(waitAttrs("capacity_cpu"), noWait(placedAttrs...))
	var shown string
	e.refuse(func(retry int, in workflows.PlaceInput) *ledger.Outcome {
		if retry < 7 {
			return nil
		}
		shown = e.details()
		o := placedOn("node-a", in.Attempt)
		return &o
	})

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	places := inputs[workflows.PlaceInput](e.fakes)
	require.Len(t, places, 8)
	require.Equal(t, workflows.PlaceInput{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: ledger.WakeFirst}, places[0])
	for _, p := range places[1:] {
		require.Equal(t, workflows.PlaceInput{
			PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: ledger.WakeTimer, Retrying: true, LastCode: "capacity_cpu",
		}, p)
	}
	require.Equal(t, since.Add(60*time.Second), e.Now().UTC().Truncate(time.Second))
	require.Equal(t, surveyHeader+`**waiting for capacity** (`+"`capacity_cpu`"+`), as of 2026-03-01 08:00:00Z

- **why:** no node has 2 CPUs free
- **since:** 2026-03-01 08:00:00Z
- **fails by itself:** 2026-03-01 10:00:00Z, 2h after it began
- **place in line:** 4
- **starts:** about 2026-03-01 09:30:00Z on node-b, if every run uses its whole turn and nobody joins the line
- **next look:** every 10s, and whenever capacity is freed; the pending activity shows the latest

**you can**

- free or add a node that has room: `+"`tidewait node list`"+`
- look now: `+"`tidewait phase nudge port survey`, or signal `nudge` with input `{\"actor\": \"you\"}`"+`
`+giveUpSurvey+`- see each node and who is ahead: `+"`tidewait mission show port`"+`
`, shown)
	require.Contains(t, e.details(), "- **left:** commit `c1` on branch `tidewait/port/3`\n")
}

func TestAPhaseThatWaitsForTwoHoursFails(t *testing.T) {
	e := newEnv(t)
	e.upserts(waitAttrs("capacity_cpu"), noWait())
	e.refuse(never)
	looks := e.expires()

	require.Equal(t, waitExceeded, e.endedPhase(phaseInput()))

	require.Equal(t, []workflows.ExpireInput{{PhaseID: 7, Attempt: 1, Pool: "microvm"}}, inputs[workflows.ExpireInput](e.fakes))
	require.InDelta(t, 721, len(inputs[workflows.PlaceInput](e.fakes)), 1)
	require.Empty(t, inputs[workflows.FinishPhaseInput](e.fakes), "what the last look wrote is not written again")
	require.Equal(t, []time.Duration{2 * time.Hour}, *looks)
}

func TestTheLastLookMayStillPlaceThePhase(t *testing.T) {
	e := newEnv(t)
	e.upserts(waitAttrs("capacity_cpu"), noWait(placedAttrs...))
	e.refuse(never)
	e.expire = func(context.Context, workflows.ExpireInput) (ledger.Outcome, error) {
		return placedOn("node-a", 1), nil
	}

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
}

func TestABoundThatTheDatabaseHasNotReachedGetsATimerOfItsLength(t *testing.T) {
	e := newEnv(t)
	e.upserts(waitAttrs("capacity_cpu"), noWait())
	e.refuse(never)
	var looks []time.Duration
	e.expire = func(context.Context, workflows.ExpireInput) (ledger.Outcome, error) {
		looks = append(looks, e.elapsed())
		if len(looks) == 1 {
			return refusedFor(capacity.CodeCPU, 90*time.Second), nil
		}
		return ledger.Outcome{Ended: &waitExceeded}, nil
	}

	require.Equal(t, waitExceeded, e.endedPhase(phaseInput()))

	require.Equal(t, []time.Duration{2 * time.Hour, 2*time.Hour + 90*time.Second}, looks)
}

func TestASignalLooksAtOnceAndNeverMovesTheBound(t *testing.T) {
	for name, c := range map[string]struct {
		signal string
		wake   ledger.Wake
	}{
		"nudge":  {"nudge", ledger.WakeNudge},
		"placed": {"placed", ledger.WakeEvent},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.upserts(waitAttrs("capacity_cpu"), noWait())
			e.refuse(never)
			retries := e.retries()
			looks := e.expires()
			for _, after := range []time.Duration{5 * time.Minute, time.Hour} {
				e.RegisterDelayedCallback(func() { e.SignalWorkflow(c.signal, api.Nudge{Actor: "ann"}) }, after+3*time.Second)
			}

			require.Equal(t, waitExceeded, e.endedPhase(phaseInput()))

			require.Equal(t, []time.Duration{2 * time.Hour}, *looks)
			require.Equal(t, []retry{
				{0, ledger.WakeTimer}, {5*time.Minute + 3*time.Second, c.wake}, {time.Hour + 3*time.Second, c.wake},
			}, *retries)
		})
	}
}

// retry is a server-side retry that a phase began, and why.
type retry struct {
	after time.Duration // since the start, in whole seconds
	wake  ledger.Wake
}

// retries lists the server-side retries that are begun from now on.
func (e *env) retries() *[]retry {
	var begun []retry
	e.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		var in workflows.PlaceInput
		if info.ActivityType.Name != workflows.ActivityPlace || info.Attempt > 1 || args.Get(&in) != nil || !in.Retrying {
			return
		}
		begun = append(begun, retry{e.elapsed(), in.Wake})
	})
	return &begun
}

func TestASignalFindsThePhasePlaced(t *testing.T) {
	e := newEnv(t)
	e.upserts(waitAttrs("capacity_cpu"), noWait(placedAttrs...))
	e.refuse(func(_ int, in workflows.PlaceInput) *ledger.Outcome {
		if in.Wake != ledger.WakeEvent {
			return nil
		}
		o := placedOn("node-a", 1)
		return &o
	})
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(ledger.SignalPlaced, nil) }, 33*time.Second)

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, 33*time.Second, e.elapsed())
}

func TestABurstOfNudgesCostsOneLook(t *testing.T) {
	e := newEnv(t)
	e.refuse(never)
	retries := e.retries()
	e.RegisterDelayedCallback(func() {
		for range 99 {
			e.SignalWorkflowSkippingWorkflowTask(api.SignalNudge, api.Nudge{Actor: "ann"})
		}
		e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"})
	}, 33*time.Second)

	require.Equal(t, waitExceeded, e.endedPhase(phaseInput()))

	require.Equal(t, []retry{{0, ledger.WakeTimer}, {33 * time.Second, ledger.WakeNudge}}, *retries)
}

func TestAnotherCodeIsShownAndLeavesTheBound(t *testing.T) {
	e := newEnv(t)
	e.upserts(waitAttrs("capacity_cpu"), waitAttrs("behind_in_queue"), noWait())
	var shown string
	e.refuse(func(_ int, in workflows.PlaceInput) *ledger.Outcome {
		if in.LastCode == capacity.CodeBehindInQueue && shown == "" {
			shown = e.details()
		}
		if in.LastCode == capacity.CodeCPU && e.elapsed() >= 30*time.Minute {
			o := refusedFor(capacity.CodeBehindInQueue, 90*time.Minute)
			return &o
		}
		return nil
	})
	var timers []time.Duration
	e.SetOnTimerScheduledListener(func(_ string, d time.Duration) { timers = append(timers, d) })
	looks := e.expires()

	require.Equal(t, waitExceeded, e.endedPhase(phaseInput()))

	require.Equal(t, []time.Duration{2 * time.Hour}, timers)
	require.Equal(t, []time.Duration{2 * time.Hour}, *looks)
	require.Contains(t, shown, "**waiting for capacity** (`behind_in_queue`)")
	places := inputs[workflows.PlaceInput](e.fakes)
	require.Equal(t, capacity.CodeBehindInQueue, places[len(places)-1].LastCode)
}

func TestAWaitingPhaseIsCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		send     func(*env)
		sentence string
		by       *ledger.Act
	}{
		"by signal": {func(e *env) { e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "enough"}) }, "cancelled by ann: enough", cancelBy("ann", "enough")},
		"natively":  {func(e *env) { e.CancelWorkflow() }, "cancelled with its mission or through Temporal", nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.upserts(waitAttrs("capacity_cpu"), noWait())
			e.refuse(never)
			e.RegisterDelayedCallback(func() { c.send(e) }, 33*time.Minute)

			ended := e.endedPhase(phaseInput())

			want := ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: c.sentence, By: c.by}
			require.Equal(t, want, ended)
			require.Equal(t, 33*time.Minute, e.elapsed())
			require.Equal(t, []workflows.FinishPhaseInput{{
				PhaseID: 7, End: want, Run: ledger.RunEnd{Status: "cancelled", FailureCode: "cancelled", Failure: c.sentence},
			}}, inputs[workflows.FinishPhaseInput](e.fakes))
		})
	}
}

func TestAPlacerThatDoesNotAnswerIsWaitedForInTheOpen(t *testing.T) {
	e := newEnv(t)
	var recovered time.Duration
	var shown string
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		switch {
		case e.Now().Sub(since) < 5*time.Minute:
			return ledger.Outcome{}, errors.New("the database does not answer")
		case in.LastCode == capacity.CodePlacerUnavailable:
			recovered, shown = e.elapsed(), e.details()
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		}
		return placedOn("node-a", 1), nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.InDelta(t, 5*time.Minute, recovered, float64(15*time.Second))
	require.Contains(t, shown, "**waiting for capacity** (`placer_unavailable`), as of 2026-03-01 08:00:00Z\n\n- **why:** the placer does not answer: ")
	require.Contains(t, shown, "- **fails by itself:** never\n")
}

func TestAPhaseThatTheDatabaseDoesNotKnowFailsAtOnce(t *testing.T) {
	e := newEnv(t)
	e.place = func(context.Context, workflows.PlaceInput) (ledger.Outcome, error) {
		return ledger.Outcome{}, final("phase 7: not found", "NotFound")
	}

	require.Equal(t, ledger.Ended{Status: "failed", FailureCode: "internal", Failure: "phase 7: not found"}, e.endedPhase(phaseInput()))
	require.Len(t, inputs[workflows.PlaceInput](e.fakes), 1)
}

func TestContinuingAsNewKeepsTheWait(t *testing.T) {
	first := newEnv(t)
	first.refuse(never)
	first.RegisterDelayedCallback(func() {
		first.SetContinueAsNewSuggested(true)
		first.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"})
	}, 90*time.Minute)
	in := phaseInput()
	in.Resume = workflows.PhaseProgress{Attempt: 2, Lost: 1}

	_, err := first.phase(in)

	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)
	require.Equal(t, api.PhaseWorkflow, again.WorkflowType.Name)
	var next workflows.PhaseInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	want := waiting(capacity.CodeCPU, 2*time.Hour)
	want.Left = 30 * time.Minute
	in.Resume.Waiting = &want
	in.Resume.Shown = workflows.ShownWait{Kind: "capacity", Code: "capacity_cpu", Reason: want.Sentence, Since: want.Since, Bound: want.Bound}
	require.Equal(t, in, next)

	second := newEnv(t)
	second.SetStartTime(since.Add(90 * time.Minute))
	second.upserts(noWait()) // the wait is not declared a second time
	second.refuse(never)
	looks := second.expires()

	require.Equal(t, waitExceeded, second.endedPhase(next))

	require.Equal(t, []time.Duration{2 * time.Hour}, *looks)
	require.Equal(t, []workflows.ExpireInput{{PhaseID: 7, Attempt: 2, Pool: "microvm"}}, inputs[workflows.ExpireInput](second.fakes))
	require.Equal(t, workflows.PlaceInput{
		PhaseID: 7, Attempt: 2, Pool: "microvm", Wake: ledger.WakeTimer, Retrying: true, LastCode: "capacity_cpu",
	}, inputs[workflows.PlaceInput](second.fakes)[0], "the new run looks at once")
}

func TestACancelThatComesWithContinueAsNewIsHeard(t *testing.T) {
	e := newEnv(t)
	e.refuse(never)
	e.RegisterDelayedCallback(func() {
		e.SetContinueAsNewSuggested(true)
		e.SignalWorkflowSkippingWorkflowTask(api.SignalNudge, api.Nudge{Actor: "ann"})
		e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "enough"})
	}, time.Minute)

	_, err := e.phase(phaseInput())

	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	require.Equal(t, "cancelled by ann: enough", endedIn(t, err).Failure)
}
