package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// held is a phase that somebody has to release.
func held(maxWait time.Duration) workflows.PhaseInput {
	in := phaseInput()
	in.Command.Hold = &ledger.Hold{Reason: "look at the survey first", MaxWait: maxWait}
	return in
}

// keepGate makes the placer answer as the database does of a phase that is held,
// until it is released or its bound is reached.
func (e *env) keepGate(maxWait time.Duration) {
	pause := ledger.Pause{Kind: "hold", Code: "awaiting_release", Sentence: "held by its document until somebody releases it: look at the survey first", Since: since}
	released := false
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		now := e.Now().UTC()
		switch {
		case in.Gate == nil || released:
			return placedOn("node-a", in.Attempt), nil
		case in.Gate.Release != nil:
			released = true
			return placedOn("node-a", in.Attempt), nil
		case in.Gate.Expire && !now.Before(since.Add(maxWait)):
			return ledger.Outcome{Ended: &holdExceeded}, nil
		}
		p := pause
		if maxWait > 0 {
			p.Bound, p.Left = since.Add(maxWait), since.Add(maxWait).Sub(now)
		}
		return ledger.Outcome{Paused: &p}, nil
	}
}

var holdExceeded = ledger.Ended{Status: "failed", FailureCode: "wait_exceeded", Failure: "waited 24h0m0s for its release, the longest allowed"}

func holdAttrs(bound temporal.SearchAttributeUpdate) attrs {
	return attrs{
		workflows.AttrWait.ValueSet("hold"), workflows.AttrReason.ValueSet("awaiting_release"),
		workflows.AttrWhy.ValueSet("held by its document until somebody releases it: look at the survey first"), workflows.AttrSince.ValueSet(since), bound,
	}
}

func TestAHeldPhaseWaitsForItsRelease(t *testing.T) {
	e := newEnv(t)
	e.upserts(holdAttrs(workflows.AttrBound.ValueUnset()), noWait(workflows.AttrNode.ValueSet("node-a")))
	e.keepGate(0)
	var shown string
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "bob"}) }, time.Hour)
	e.RegisterDelayedCallback(func() {
		shown = e.details()
		e.SignalWorkflow(api.SignalRelease, api.Release{Actor: "ann", Note: "the survey is fine"})
	}, 100*time.Hour)
	var began time.Duration
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		began = e.Now().Sub(since)
		return ran(), nil
	}

	res, err := e.phase(held(0))

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Equal(t, 100*time.Hour, began, "no bound, and a nudge is no release")
	require.Equal(t, []string{"place-phase", "record-acts", "place-phase", "execute-run", "commit-results", "finish-phase"}, e.names())
	hold := held(0).Command.Hold
	require.Equal(t, []workflows.PlaceInput{
		{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: "first", Gate: &ledger.Gate{Hold: hold}},
		{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: "first", Gate: &ledger.Gate{Hold: hold}},
		{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: "first", Gate: &ledger.Gate{
			Hold: hold, Release: &ledger.Act{Key: "/release/2", Verb: "release", Actor: "ann", Note: "the survey is fine"},
		}},
	}, inputs[workflows.PlaceInput](e.fakes))
	require.Equal(t, []workflows.RecordActsInput{{PhaseID: 7, Acts: []ledger.Act{{Key: "/nudge/1", Verb: "nudge", Actor: "bob"}}}},
		inputs[workflows.RecordActsInput](e.fakes))
	require.Equal(t, surveyHeader+
		"**waiting for release** (`awaiting_release`), as of 2026-03-01 09:00:00Z\n\n"+
		"- **why:** held by its document until somebody releases it: look at the survey first\n"+
		"- **since:** 2026-03-01 08:00:00Z\n- **fails by itself:** never\n"+
		"- **next look:** as soon as somebody releases it\n"+
		"\n**you can**\n\n- release it: `tidewait phase release port survey --note WHAT`, or signal `release` with input `{\"actor\": \"you\", \"note\": \"what you looked at\"}`\n"+
		giveUpSurvey, shown)
}

func TestContinuingAsNewKeepsTheHold(t *testing.T) {
	for name, released := range map[string]bool{"and nothing else": false, "and hears a release that came with it": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.keepGate(0)
			e.RegisterDelayedCallback(func() {
				e.SetContinueAsNewSuggested(true)
				e.SignalWorkflowSkippingWorkflowTask(api.SignalNudge, api.Nudge{Actor: "bob"})
				if released {
					e.SignalWorkflowSkippingWorkflowTask(api.SignalRelease, api.Release{Actor: "ann"})
				}
				e.SignalWorkflow("unheard", nil)
			}, time.Hour)

			_, err := e.phase(held(0))

			if released {
				require.NoError(t, err)
				return
			}
			next := continued(t, err)
			in := held(0)
			in.Resume.Attempt = 1
			in.Resume.Shown = workflows.ShownWait{
				Kind: "hold", Code: "awaiting_release", Reason: "held by its document until somebody releases it: look at the survey first", Since: since,
			}
			require.Equal(t, in, next, "since is the database's")
			require.Len(t, inputs[workflows.RecordActsInput](e.fakes), 1)
		})
	}
}

// A release that came while the database was away is not written yet.
func TestContinuingAsNewTakesAReleaseAlong(t *testing.T) {
	for name, readBefore := range map[string]bool{"that was read": true, "that came with it": false} {
		t.Run(name, func(t *testing.T) {
			first := newEnv(t)
			first.keepGate(0)
			answer := first.place
			first.place = func(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
				if first.elapsed() >= time.Hour || !readBefore {
					return ledger.Outcome{}, errors.New("the database does not answer")
				}
				return answer(ctx, in)
			}
			release := api.Release{Actor: "ann", Note: "fine"}
			if readBefore {
				first.RegisterDelayedCallback(func() { first.SignalWorkflow(api.SignalRelease, release) }, time.Hour)
			}
			first.RegisterDelayedCallback(func() {
				first.SetContinueAsNewSuggested(true)
				if !readBefore {
					first.SignalWorkflowSkippingWorkflowTask(api.SignalRelease, release)
				}
				first.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "bob"})
			}, 2*time.Hour)

			_, err := first.phase(held(0))

			next := continued(t, err)
			want := &ledger.Gate{Hold: held(0).Command.Hold, Release: &ledger.Act{Key: "/release/1", Verb: "release", Actor: "ann", Note: "fine"}}
			if !readBefore {
				want.Release.Key = "/release/2"
			}
			require.Equal(t, want, next.Resume.Gate)
			require.Equal(t, "placer_unavailable", string(next.Resume.Waiting.Code))

			second := newEnv(t)
			second.keepGate(0)
			_, err = second.phase(next)
			require.NoError(t, err)
			require.Equal(t, want, inputs[workflows.PlaceInput](second.fakes)[0].Gate)
		})
	}
}

func continued(t testing.TB, err error) workflows.PhaseInput {
	t.Helper()
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)
	var next workflows.PhaseInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	return next
}

func TestANudgeIsReadBeforeContinuingAsNew(t *testing.T) {
	e := newEnv(t)
	e.keepGate(0)
	answer := e.place
	looks := 0
	e.place = func(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if looks++; looks == 2 {
			e.SetContinueAsNewSuggested(true)
			e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "bob"})
		}
		return answer(ctx, in)
	}
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"}) }, time.Hour)

	_, err := e.phase(held(0))

	continued(t, err)
	require.Equal(t, []workflows.RecordActsInput{
		{PhaseID: 7, Acts: []ledger.Act{{Key: "/nudge/1", Verb: "nudge", Actor: "ann"}}},
		{PhaseID: 7, Acts: []ledger.Act{{Key: "/nudge/2", Verb: "nudge", Actor: "bob"}}},
	}, inputs[workflows.RecordActsInput](e.fakes))
}

// Once a phase is in the queue, its gate is not looked at any more.
func TestAPhaseThatGoesOnWaitingHasPassedItsGate(t *testing.T) {
	for name, c := range map[string]struct {
		code capacity.Code
		gate *ledger.Gate
	}{
		"for capacity":   {capacity.CodeCPU, nil},
		"for the placer": {capacity.CodePlacerUnavailable, &ledger.Gate{Hold: held(0).Command.Hold}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
				if in.LastCode == c.code && e.elapsed() < time.Minute {
					return refusedFor(capacity.CodeMemory, boundAfter), nil
				}
				return placedOn("node-a", 1), nil
			}
			in := held(0)
			w := waiting(c.code, boundAfter)
			in.Resume = workflows.PhaseProgress{Attempt: 1, Waiting: &w}

			_, err := e.phase(in)

			require.NoError(t, err)
			places := inputs[workflows.PlaceInput](e.fakes)
			require.Len(t, places, 2)
			require.Equal(t, c.gate, places[0].Gate)
			require.Nil(t, places[1].Gate, "it was passed")
		})
	}
}

func TestAReleaseFromTheWebUIMayBeTypedAnyhow(t *testing.T) {
	for name, c := range map[string]struct {
		said any
		want ledger.Act
	}{
		"nothing": {nil, ledger.Act{Key: "/release/1", Verb: "release"}},
		"words":   {"fine", ledger.Act{Key: "/release/1", Verb: "release", Note: "fine"}},
		"a field": {map[string]any{"actor": "ann"}, ledger.Act{Key: "/release/1", Verb: "release", Actor: "ann"}},
		"a list":  {[]any{"ann"}, ledger.Act{Key: "/release/1", Verb: "release"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.keepGate(0)
			e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalRelease, c.said) }, time.Minute)

			_, err := e.phase(held(0))

			require.NoError(t, err)
			require.Equal(t, &c.want, inputs[workflows.PlaceInput](e.fakes)[1].Gate.Release)
		})
	}
}

func TestAHoldWithABoundFailsByItself(t *testing.T) {
	e := newEnv(t)
	e.upserts(holdAttrs(workflows.AttrBound.ValueSet(since.Add(24*time.Hour))), noWait())
	e.keepGate(24 * time.Hour)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, nil) }, 23*time.Hour)

	require.Equal(t, holdExceeded, e.endedPhase(held(24*time.Hour)))

	require.Equal(t, 24*time.Hour, e.Now().Sub(since), "a nudge does not move the bound")
	require.Equal(t, []string{"place-phase", "record-acts", "place-phase"}, e.names())
}

func TestAPhaseThatWasReleasedIsNotHeldAgain(t *testing.T) {
	e := newEnv(t)
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		return placedOn("node-a", in.Attempt), nil // what the database says of it after a reset
	}

	_, err := e.phase(held(0))

	require.NoError(t, err)
	require.Equal(t, []string{"place-phase", "execute-run", "commit-results", "finish-phase"}, e.names())
}

func TestAHeldPhaseIsNotPlacedWhileTheDatabaseIsAway(t *testing.T) {
	e := newEnv(t)
	e.keepGate(0)
	answer := e.place
	e.place = func(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if e.Now().Sub(since) < time.Minute {
			return ledger.Outcome{}, errors.New("the database does not answer")
		}
		return answer(ctx, in)
	}
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalRelease, api.Release{Actor: "ann"}) }, time.Hour)

	_, err := e.phase(held(0))

	require.NoError(t, err)
	for _, in := range inputs[workflows.PlaceInput](e.fakes) {
		require.Equal(t, held(0).Command.Hold, in.Gate.Hold)
	}
	require.GreaterOrEqual(t, e.Now().Sub(since), time.Hour)
}

// failOnce makes the first attempt fail, and the database let the phase back off
// for a pause.
func (e *env) failOnce(pause time.Duration) {
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID == "r7-1" {
			return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, nil
		}
		return ran(), nil
	}
	var until time.Time
	e.backOff = func(_ context.Context, in ledger.BackOff) (ledger.BackedOff, error) {
		until = e.Now().UTC().Add(pause)
		return ledger.BackedOff{Attempt: in.Attempt + 1}, nil
	}
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if until.IsZero() || in.Gate != nil && in.Gate.Resume != "" {
			until = time.Time{}
			return placedOn("node-a", in.Attempt), nil
		}
		return ledger.Outcome{Paused: &ledger.Pause{
			Kind: "backoff", Code: "command_failed", Attempt: 2, Sentence: "attempt 1 of 2 failed", Since: since,
			Next: until, Left: until.Sub(e.Now().UTC()),
		}}, nil
	}
}

var backOffAttrs = attrs{
	workflows.AttrWait.ValueSet("backoff"), workflows.AttrReason.ValueSet("command_failed"), workflows.AttrWhy.ValueSet("attempt 1 of 2 failed"),
	workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueUnset(),
}

func TestAFailedCommandIsTriedAgainAfterAPause(t *testing.T) {
	e := newEnv(t)
	e.upserts(placedAttrs, attrs{workflows.AttrNode.ValueUnset()}, backOffAttrs, noWait(workflows.AttrNode.ValueSet("node-a")))
	e.failOnce(40 * time.Second)
	var timer time.Duration
	var shown string
	e.SetOnTimerScheduledListener(func(_ string, d time.Duration) { timer = d })
	e.RegisterDelayedCallback(func() { shown = e.details() }, 39*time.Second)

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Equal(t, 40*time.Second, timer)
	require.Equal(t, []string{"place-phase", "execute-run", "back-off-phase", "place-phase", "execute-run", "commit-results", "finish-phase"}, e.names())
	require.Equal(t, []ledger.BackOff{{PhaseID: 7, Attempt: 1, Attempts: 2, First: 10 * time.Second, Run: ledger.RunEnd{
		Status: "failed", Exit: &vm.Exit{Code: 2}, FailureCode: "command_failed", Failure: `command "make" exited with code 2`,
	}}}, inputs[ledger.BackOff](e.fakes))
	require.Equal(t, []workflows.PlaceInput{
		{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: "first"},
		{PhaseID: 7, Attempt: 2, Pool: "microvm", Wake: "first"},
		{PhaseID: 7, Attempt: 2, Pool: "microvm", Wake: "first", Gate: &ledger.Gate{Attempt: 2, Resume: "timer"}},
	}, inputs[workflows.PlaceInput](e.fakes))
	require.Equal(t, "r7-2", inputs[workflows.CommitResultsInput](e.fakes)[0].RunID)
	require.Contains(t, shown, "**waiting for the next try** (`command_failed`), as of 2026-03-01 08:00:00Z\n\n- **why:** attempt 1 of 2 failed\n"+
		"- **since:** 2026-03-01 08:00:00Z\n- **fails by itself:** never\n- **next look:** 2026-03-01 08:00:40Z\n"+
		"\n**you can**\n\n- try now: `tidewait phase nudge port survey`, or signal `nudge` with input `{\"actor\": \"you\"}`\n"+giveUpSurvey)
}

// A workflow that was reset to its wait for capacity may find that the phase has
// run and failed since.
func TestAWaitForCapacityMayTurnIntoABackOff(t *testing.T) {
	for name, expires := range map[string]bool{"at a retry": false, "at its bound": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.upserts(waitAttrs("capacity_cpu"), backOffAttrs, noWait(workflows.AttrNode.ValueSet("node-a")))
			paused := func() *ledger.Outcome {
				return &ledger.Outcome{Paused: &ledger.Pause{
					Kind: "backoff", Code: "command_failed", Sentence: "attempt 1 of 2 failed", Since: since, Next: since.Add(3 * time.Hour), Left: 3*time.Hour - e.elapsed(),
				}}
			}
			e.refuse(func(int, workflows.PlaceInput) *ledger.Outcome {
				if expires || e.elapsed() < time.Minute {
					return nil
				}
				return paused()
			})
			e.expire = func(context.Context, workflows.ExpireInput) (ledger.Outcome, error) { return *paused(), nil }
			queue := e.place
			e.place = func(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
				if in.Gate != nil {
					return placedOn("node-a", 2), nil
				}
				return queue(ctx, in)
			}

			_, err := e.phase(phaseInput())

			require.NoError(t, err)
			require.Equal(t, 3*time.Hour, e.elapsed())
			places := inputs[workflows.PlaceInput](e.fakes)
			require.Equal(t, workflows.PlaceInput{PhaseID: 7, Attempt: 1, Pool: "microvm", Wake: "first", Gate: &ledger.Gate{Resume: "timer"}}, places[len(places)-1])
			if !expires {
				require.Empty(t, inputs[workflows.ExpireInput](e.fakes), "the bound of a wait that is over")
			}
		})
	}
}

func TestANudgeEndsABackOff(t *testing.T) {
	e := newEnv(t)
	e.failOnce(5 * time.Minute)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"}) }, 10*time.Second)

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, 10*time.Second, e.Now().Sub(since))
	nudge := ledger.Act{Key: "/nudge/1", Verb: "nudge", Actor: "ann"}
	places := inputs[workflows.PlaceInput](e.fakes)
	require.Equal(t, &ledger.Gate{Attempt: 2, Resume: "nudge", By: &nudge}, places[len(places)-1].Gate)
	require.Equal(t, []workflows.RecordActsInput{{PhaseID: 7, Acts: []ledger.Act{nudge}}}, inputs[workflows.RecordActsInput](e.fakes))
}

func TestANudgeDuringARunLeavesTheBackOffAfterIt(t *testing.T) {
	e := newEnv(t)
	e.failOnce(5 * time.Minute)
	run := e.executeRun
	e.executeRun = func(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID == "r7-1" {
			e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"})
		}
		return run(ctx, in)
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, e.elapsed())
	require.Equal(t, []string{"place-phase", "execute-run", "back-off-phase", "record-acts", "place-phase", "execute-run", "commit-results", "finish-phase"}, e.names())
	require.Equal(t, []workflows.RecordActsInput{{PhaseID: 7, Acts: []ledger.Act{{Key: "/nudge/1", Verb: "nudge", Actor: "ann"}}}}, inputs[workflows.RecordActsInput](e.fakes))
	places := inputs[workflows.PlaceInput](e.fakes)
	require.Equal(t, &ledger.Gate{Attempt: 2, Resume: "timer"}, places[len(places)-1].Gate)
}

// unreadable is the input of a signal that no converter reads.
var unreadable = converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte("json/plain")}, Data: []byte("{")})

func TestANudgeThatCannotBeReadIsNone(t *testing.T) {
	e := newEnv(t)
	e.failOnce(5 * time.Minute)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, unreadable) }, 10*time.Second)
	e.RegisterDelayedCallback(func() {
		e.SignalWorkflowSkippingWorkflowTask(api.SignalNudge, unreadable)
		e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"})
	}, time.Minute)

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, time.Minute, e.elapsed())
	require.Equal(t, []workflows.RecordActsInput{{PhaseID: 7, Acts: []ledger.Act{{Key: "/nudge/1", Verb: "nudge", Actor: "ann"}}}}, inputs[workflows.RecordActsInput](e.fakes))
}

func TestAReleaseThatCannotBeReadIsNone(t *testing.T) {
	e := newEnv(t)
	e.keepGate(0)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalRelease, unreadable) }, time.Minute)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"}) }, time.Hour)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalRelease, api.Release{Actor: "ann"}) }, 2*time.Hour)

	_, err := e.phase(held(0))

	require.NoError(t, err)
	require.Equal(t, 2*time.Hour, e.elapsed())
	var releases []*ledger.Act
	for _, in := range inputs[workflows.PlaceInput](e.fakes) {
		releases = append(releases, in.Gate.Release)
	}
	require.Equal(t, []*ledger.Act{nil, nil, nil, {Key: "/release/2", Verb: "release", Actor: "ann"}}, releases)
}

func TestAFailedCommandHasOnlyItsAttempts(t *testing.T) {
	for name, attempts := range map[string]int{"one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, nil
			}
			in := phaseInput()
			in.Command.Attempts = attempts

			require.Equal(t, ledger.Ended{Status: "failed", FailureCode: "command_failed", Failure: `command "make" exited with code 2`}, e.endedPhase(in))
			require.Len(t, inputs[workflows.ExecuteRunInput](e.fakes), attempts)
		})
	}
}

func TestAPhaseThatIsPausedIsCancelledAtOnce(t *testing.T) {
	for name, pause := range map[string]func(*env) workflows.PhaseInput{
		"held":        func(e *env) workflows.PhaseInput { e.keepGate(0); return held(0) },
		"backing off": func(e *env) workflows.PhaseInput { e.failOnce(5 * time.Minute); return phaseInput() },
	} {
		for way, send := range map[string]func(*env){
			"by signal": func(e *env) { e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "enough"}) },
			"natively":  func(e *env) { e.CancelWorkflow() },
			"beside a release and a nudge": func(e *env) {
				e.SignalWorkflowSkippingWorkflowTask(api.SignalRelease, api.Release{Actor: "bob"})
				e.SignalWorkflowSkippingWorkflowTask(api.SignalNudge, api.Nudge{Actor: "bob"})
				e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "enough"})
			},
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				e := newEnv(t)
				in := pause(e)
				e.RegisterDelayedCallback(func() { send(e) }, 30*time.Second)

				require.Equal(t, "cancelled", e.endedPhase(in).Status)
				require.Equal(t, 30*time.Second, e.Now().Sub(since))
				require.Len(t, inputs[workflows.FinishPhaseInput](e.fakes), 1)
			})
		}
	}
}

func TestARunIsCancelledWithWhoAndWhyAsFarAsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		send     func(*env)
		sentence string
		by       *ledger.Act
	}{
		"by signal": {
			send:     func(e *env) { e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"}) },
			sentence: "cancelled by ann: wrong branch", by: cancelBy("ann", "wrong branch"),
		},
		"by signal, nameless": {
			send: func(e *env) { e.SignalWorkflow(api.SignalCancel, nil) }, sentence: "cancelled by somebody through the Temporal API: no reason given", by: cancelBy("", ""),
		},
		"by signal, in words": {
			send:     func(e *env) { e.SignalWorkflow(api.SignalCancel, "wrong branch") },
			sentence: "cancelled by somebody through the Temporal API: wrong branch", by: cancelBy("", "wrong branch"),
		},
		"natively": {send: func(e *env) { e.CancelWorkflow() }, sentence: "cancelled with its mission or through Temporal"},
		"by both": {
			send: func(e *env) {
				e.SignalWorkflowSkippingWorkflowTask(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"})
				e.CancelWorkflow()
			},
			sentence: "cancelled by ann: wrong branch", by: cancelBy("ann", "wrong branch"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			stopped := make(chan struct{})
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				c.send(e)
				<-stopped
				return workflows.ExecuteRunResult{FailureCode: "cancelled", Failure: "stopped", Exit: &vm.Exit{Signal: "SIGTERM"}}, nil
			}
			e.stopRun = func(context.Context, workflows.StopRunInput) error { close(stopped); return nil }

			ended := e.endedPhase(phaseInput())

			want := ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: c.sentence, By: c.by}
			require.Equal(t, want, ended)
			require.Equal(t, []workflows.StopRunInput{{RunID: "r7-1", Reason: c.sentence}}, inputs[workflows.StopRunInput](e.fakes))
			require.Equal(t, []workflows.FinishPhaseInput{{
				PhaseID: 7, End: want, Run: ledger.RunEnd{
					Status: "cancelled", FailureCode: "cancelled", Failure: c.sentence, Exit: &vm.Exit{Signal: "SIGTERM"},
				},
			}}, inputs[workflows.FinishPhaseInput](e.fakes))
			require.Equal(t, []string{"place-phase", "execute-run", "stop-run", "finish-phase"}, e.names())
			require.Equal(t, surveyHeader+"**cancelled** (`cancelled`), at 2026-03-01 08:00:00Z\n\n"+
				"- **why:** "+c.sentence+"\n- **run:** `r7-1` on node **node-a**\n- **left:** nothing\n"+
				"\n**you can**\n\n- read its output: `tidewait mission logs port --phase survey`\n"+
				"- begin again from it, when the mission has ended: `tidewait mission rerun port --from survey`\n", e.details())
		})
	}
}

// TestKeepIsReadAsPeopleTypeIt: a form of the Web UI has no schema.
func TestKeepIsReadAsPeopleTypeIt(t *testing.T) {
	for typed, keeps := range map[any]bool{
		true: true, "true": true, "yes": true, "1": true, 1: true, false: false, "false": false, "no": false, 0: false, "": false,
	} {
		t.Run(fmt.Sprintf("%#v", typed), func(t *testing.T) {
			e := newEnv(t)
			stopped := make(chan bool, 1)
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				e.SignalWorkflow(api.SignalCancel, map[string]any{"actor": "ann", "keep": typed})
				require.Equal(t, keeps, <-stopped)
				return workflows.ExecuteRunResult{FailureCode: "cancelled", Failure: "stopped"}, nil
			}
			e.stopRun = func(_ context.Context, in workflows.StopRunInput) error { stopped <- in.Keep; return nil }
			require.Equal(t, "cancelled", e.endedPhase(phaseInput()).Status)
		})
	}
}

// stopKeeping makes a run that is cancelled leave something.
func (e *env) stopKeeping(res workflows.ExecuteRunResult) {
	stopped := make(chan struct{})
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		e.SignalWorkflow(api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch", Keep: true})
		<-stopped
		return res, nil
	}
	e.stopRun = func(_ context.Context, in workflows.StopRunInput) error {
		if in.Keep {
			close(stopped)
		}
		return nil
	}
}

func partly() workflows.ExecuteRunResult {
	res := ran()
	res.Partial, res.FailureCode, res.Failure = true, "cancelled", "cancelled by ann: wrong branch"
	return res
}

func TestWhatACancelledRunHadMadeIsKeptApart(t *testing.T) {
	e := newEnv(t)
	e.stopKeeping(partly())
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return workflows.Checkout{Branch: "tidewait/port/3-partial/survey", Commit: "p1"}, nil
	}

	ended := e.endedPhase(phaseInput())

	require.Equal(t, ledger.Ended{
		Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: wrong branch", By: cancelBy("ann", "wrong branch"),
		Partial: &ledger.Partial{Branch: "tidewait/port/3-partial/survey", Commit: "p1"},
	}, ended)
	require.Equal(t, []workflows.CommitResultsInput{{
		Mission: "port", Launch: 3, Phase: "survey", RunID: "r7-1", Node: "node-a", Parent: "c0", TreeIn: "tree-c0",
		Results: ran().Results, Deleted: []string{"old.txt"}, Last: true, Partial: "cancelled by ann: wrong branch",
	}}, inputs[workflows.CommitResultsInput](e.fakes))
}

// TestWhatARunHadMadeIsKeptWhenItEndsAsItIsCancelled: the cancel comes when there
// is nothing to be stopped any more.
func TestWhatARunHadMadeIsKeptWhenItEndsAsItIsCancelled(t *testing.T) {
	kept := ledger.Ended{
		Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: wrong branch", By: cancelBy("ann", "wrong branch"),
		Partial: &ledger.Partial{Branch: "tidewait/port/3-partial/survey", Commit: "p1"},
	}
	cancel := api.Cancel{Actor: "ann", Reason: "wrong branch", Keep: true}
	t.Run("with the run's own end", func(t *testing.T) {
		e := newEnv(t)
		e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
			e.SignalWorkflowSkippingWorkflowTask(api.SignalCancel, cancel)
			return ran(), nil
		}
		e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
			return workflows.Checkout{Branch: kept.Partial.Branch, Commit: kept.Partial.Commit}, nil
		}
		require.Equal(t, kept, e.endedPhase(phaseInput()))
		commits := inputs[workflows.CommitResultsInput](e.fakes)
		require.Len(t, commits, 1)
		require.Equal(t, "cancelled by ann: wrong branch", commits[0].Partial)
	})
	t.Run("while its results wait for the gateway", func(t *testing.T) {
		e := newEnv(t)
		e.commitResults = func(_ context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
			if in.Partial == "" {
				e.SignalWorkflow(api.SignalCancel, cancel)
				return workflows.Checkout{}, notPickedUp()
			}
			return workflows.Checkout{Branch: kept.Partial.Branch, Commit: kept.Partial.Commit}, nil
		}
		require.Equal(t, kept, e.endedPhase(phaseInput()))
	})
}

func TestACancelSaysWhenNothingCouldBeKept(t *testing.T) {
	t.Run("the command did not end in time", func(t *testing.T) {
		e := newEnv(t)
		e.stopKeeping(workflows.ExecuteRunResult{FailureCode: "cancelled", Failure: "the command did not end within its grace of 10s"})
		ended := e.endedPhase(phaseInput())
		require.Equal(t, "cancelled by ann: wrong branch; nothing that it had made could be kept: the command did not end within its grace of 10s", ended.Failure)
		require.Empty(t, inputs[workflows.CommitResultsInput](e.fakes))
	})
	t.Run("the gateway refuses", func(t *testing.T) {
		e := newEnv(t)
		e.stopKeeping(partly())
		e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
			return workflows.Checkout{}, final("out/link points outside of the workspace", workflows.ErrTypeWorkspaceRefused, "results_refused")
		}
		ended := e.endedPhase(phaseInput())
		require.Equal(t, "cancelled", ended.Status)
		require.Equal(t, "cancelled by ann: wrong branch; what it had made was not committed: out/link points outside of the workspace", ended.Failure)
		require.Nil(t, ended.Partial)
	})
	t.Run("the gateway is away", func(t *testing.T) {
		e := newEnv(t)
		e.stopKeeping(partly())
		e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
			return workflows.Checkout{}, notPickedUp()
		}
		ended := e.endedPhase(phaseInput())
		require.Equal(t, "cancelled", ended.Status)
		require.Contains(t, ended.Failure, "; what it had made was not committed: ")
	})
}

func TestACancelDuringTheWayBackToTheQueueIsACancel(t *testing.T) {
	e := newEnv(t)
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, nil
	}
	e.backOff = func(_ context.Context, in ledger.BackOff) (ledger.BackedOff, error) {
		e.CancelWorkflow()
		return ledger.BackedOff{Attempt: in.Attempt + 1}, nil
	}

	require.Equal(t, ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled with its mission or through Temporal"}, e.endedPhase(phaseInput()))
}

func TestARerunBeginsWhereItIsTold(t *testing.T) {
	e := newEnv(t)
	var asked workflows.LaunchInput
	e.launch = func(_ context.Context, in workflows.LaunchInput) (workflows.LaunchResult, error) {
		asked = in
		res := launchResult()
		res.Launched.Launch, res.Launched.Rerun = 4, &ledger.Rerun{Of: 3, First: 1, Commit: "c1"}
		return res, nil
	}
	e.openCheckout = func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
		return checkoutAt("c1"), nil
	}
	launch := e.sendRequest(0, api.LaunchRequest{Actor: "ann", Rerun: &api.Rerun{Mission: "port", From: "report"}})

	res, err := e.mission()

	require.NoError(t, err)
	require.Equal(t, api.MissionResult{Mission: "port", Launch: 4, Status: "succeeded"}, res)
	require.Equal(t, 3, launch.launched.RerunOf)
	require.Equal(t, workflows.LaunchInput{Actor: "ann", Rerun: &api.Rerun{Mission: "port", From: "report"}}, asked)
	require.Equal(t, []workflows.OpenCheckoutInput{{Mission: "port", Launch: 4, Commit: "c1", Of: 3}}, inputs[workflows.OpenCheckoutInput](e.fakes))
	runs := inputs[workflows.ExecuteRunInput](e.fakes)
	require.Len(t, runs, 1)
	require.Equal(t, "report", runs[0].Phase)
	require.Equal(t, "input.port.c1", runs[0].Input.Name)
	require.Equal(t, "c1", inputs[workflows.CommitResultsInput](e.fakes)[0].Parent)
}
