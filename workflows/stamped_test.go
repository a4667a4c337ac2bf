package workflows_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// TestSinceIsWhatTheDatabaseHas: a workflow that was reset has waited before, which
// only the database knows. Search attributes and current details follow.
func TestSinceIsWhatTheDatabaseHas(t *testing.T) {
	earlier := since.Add(-time.Hour)
	e := newEnv(t)
	e.noteWait = func(context.Context, ledger.OpenWait) (time.Time, error) { return earlier, nil }
	e.upserts(placedAttrs, waitsFor("gateway", "results_bucket_full",
		"gateway gw-1 cannot commit the results of run r7-1: bucket tidewait-bundles is full", since), attrs{workflows.AttrSince.ValueSet(earlier)}, noWait())
	var shown string
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		if len(inputs[workflows.CommitResultsInput](e.fakes)) < 3 {
			shown = e.details()
			return workflows.Checkout{}, temporal.NewApplicationError("bucket tidewait-bundles is full", workflows.ErrTypeBucketFull)
		}
		return checkoutAt("c1"), nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Contains(t, shown, "- **since:** 2026-03-01 07:00:00Z\n")
}

// TestAPhaseThatNobodyLooksAtIsRecorded in the database, if that takes it.
func TestAPhaseThatNobodyLooksAtIsRecorded(t *testing.T) {
	for name, refuses := range map[string]error{"it takes it": nil, "it does not answer": errors.New("the database does not answer")} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.noteWait = func(_ context.Context, w ledger.OpenWait) (time.Time, error) { return w.Since, refuses }
			e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
				if in.LastCode == capacity.CodePlacerUnavailable {
					return placedOn("node-a", 1), nil
				}
				return ledger.Outcome{}, errors.New("the placer sleeps")
			}

			_, err := e.phase(phaseInput())

			require.NoError(t, err)
			noted := inputs[ledger.OpenWait](e.fakes)
			require.Len(t, noted, 1, "it is worth one try")
			require.Equal(t, []string{"capacity", "placer_unavailable"}, []string{noted[0].Kind, noted[0].Code})
			require.Regexp(t, "^the placer does not answer: .", noted[0].Reason)
			require.True(t, noted[0].Bound.IsZero())
		})
	}
}

// TestWhenACodeHasChanged is told with each look, so that the placer's next change of
// mind returns at once the first time and later only now and then.
func TestWhenACodeHasChanged(t *testing.T) {
	e := newEnv(t)
	codes := []capacity.Code{capacity.CodeMemory, capacity.CodeMemory, capacity.CodeCPU}
	var told []workflows.PlaceInput
	e.refuse(func(retry int, in workflows.PlaceInput) *ledger.Outcome {
		told = append(told, in)
		if retry <= len(codes) {
			o := refusedFor(codes[retry-1], boundAfter)
			return &o
		}
		o := placedOn("node-a", 1)
		return &o
	})

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Len(t, told, 4)
	require.Equal(t, []capacity.Code{"capacity_cpu", "capacity_memory", "capacity_memory", "capacity_cpu"},
		[]capacity.Code{told[0].LastCode, told[1].LastCode, told[2].LastCode, told[3].LastCode})
	require.True(t, told[0].ChangedAt.IsZero(), "it has not changed yet")
	require.False(t, told[1].ChangedAt.IsZero())
	require.Equal(t, told[1].ChangedAt, told[2].ChangedAt, "the same code is no change")
	require.False(t, told[3].ChangedAt.Before(told[2].ChangedAt))
}

// TestThePlacersFirstWordIsNoChange of mind: the next one returns at once.
func TestThePlacersFirstWordIsNoChange(t *testing.T) {
	e := newEnv(t)
	codes := []capacity.Code{capacity.CodeCPU, capacity.CodeMemory}
	var told []workflows.PlaceInput
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		switch {
		case !in.Retrying:
			return ledger.Outcome{}, errors.New("the placer sleeps")
		case len(told) == len(codes):
			told = append(told, in)
			return placedOn("node-a", 1), nil
		}
		told = append(told, in)
		return refusedFor(codes[len(told)-1], boundAfter), nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Len(t, told, 3)
	require.Equal(t, []capacity.Code{"placer_unavailable", "capacity_cpu", "capacity_memory"},
		[]capacity.Code{told[0].LastCode, told[1].LastCode, told[2].LastCode})
	require.Equal(t, []bool{true, true, false}, []bool{told[0].ChangedAt.IsZero(), told[1].ChangedAt.IsZero(), told[2].ChangedAt.IsZero()})
}

// TestNudgesOfAPhaseThatNobodyLooksAtCostNoAttributes: after a reset it has waited
// for longer than the workflow knows by itself, which is written once.
func TestNudgesOfAPhaseThatNobodyLooksAtCostNoAttributes(t *testing.T) {
	earlier := since.Add(-time.Hour)
	e := newEnv(t)
	e.noteWait = func(context.Context, ledger.OpenWait) (time.Time, error) { return earlier, nil }
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if e.Now().Sub(since) > 50*time.Minute && in.Retrying {
			return placedOn("node-a", 1), nil
		}
		return ledger.Outcome{}, errors.New("the placer sleeps")
	}
	writes := 0
	e.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(mock.Arguments) { writes++ }).Return(nil)
	var after []int
	for i := 1; i <= 3; i++ {
		e.RegisterDelayedCallback(func() { e.SignalWorkflow(api.SignalNudge, api.Nudge{Actor: "ann"}) }, time.Duration(i)*10*time.Minute)
		e.RegisterDelayedCallback(func() { after = append(after, writes) }, time.Duration(i)*10*time.Minute+time.Minute)
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 2}, after, "the wait, and since when")
	require.Len(t, inputs[ledger.OpenWait](e.fakes), 1)
}

// TestANodesTimeThatMoves is shown anew: the engines were away for a while.
func TestANodesTimeThatMoves(t *testing.T) {
	until, later := since.Add(time.Minute), since.Add(2*time.Minute)
	silent := ledger.Verdict{Reason: "node node-a is silent", Node: "node-a", Since: since, Until: until, Left: time.Minute}
	moved := silent
	moved.Until, moved.Left = later, 2*time.Minute
	e := newEnv(t)
	bounded := func(until time.Time) attrs {
		return attrs{
			workflows.AttrWait.ValueSet("node"), workflows.AttrReason.ValueSet("node_silent"), workflows.AttrWhy.ValueSet("node node-a is silent"),
			workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueSet(until),
		}
	}
	e.upserts(placedAttrs, bounded(until), bounded(later), noWait(workflows.AttrNode.ValueUnset()), placedAttrs)
	lost := true
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if lost {
			lost = false
			return workflows.ExecuteRunResult{}, heartbeatLost()
		}
		return ran(), nil
	}
	e.judgeRun = func(_ context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
		switch {
		case !in.Retrying:
			return silent, nil
		case in.Until.Equal(until):
			return moved, nil
		}
		return ledger.Verdict{Gone: true, Reason: "node node-a has been silent for 1m", Node: "node-a"}, nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	noted := inputs[ledger.OpenWait](e.fakes)
	require.Len(t, noted, 2)
	require.Equal(t, []time.Time{until, later}, []time.Time{noted[0].Bound, noted[1].Bound})
}

// TestAnApplicationIsStartedWithItsWait: what it waits for from its deployment on is
// in the search attributes that it is started with, and in its current details before
// anybody has looked at its lattice.
func TestAnApplicationIsStartedWithItsWait(t *testing.T) {
	for _, c := range []struct {
		wait  ledger.AppWait
		shown []string
		ends  []attrs // what is written when the first look finds what a new deployment does
	}{
		{
			ledger.AppWait{Kind: "lattice", Code: "never_observed", Reason: "no host of lattice default has been observed yet", Since: since},
			[]string{"**waiting for lattice** (`never_observed`)", "- **why:** no host of lattice default has been observed yet\n", "- **next look:** when a host appears or changes its labels\n"},
			nil,
		},
		{
			ledger.AppWait{Kind: "observer", Code: "observer_absent", Reason: "no engine observes lattice default, so nobody knows what runs there", Since: since.Add(-time.Hour)},
			[]string{"**waiting for observer** (`observer_absent`)", "- **since:** 2026-03-01 07:00:00Z\n"},
			[]attrs{latticeAttrs},
		},
	} {
		t.Run(c.wait.Code, func(t *testing.T) {
			e := newEnv(t)
			s := newScript(e.fakes, waitingApp(1))
			real, first := e.assess, true
			e.assess = func(ctx context.Context, in workflows.AssessInput) (workflows.AssessResult, error) {
				if first {
					for _, text := range c.shown {
						require.Contains(t, e.details(), text)
					}
				}
				first = false
				return real(ctx, in)
			}
			e.upserts(append(c.ends, noWait())...)
			e.revise(time.Hour, 2, func() { s.then(undeployed) })

			require.NoError(t, e.application(workflows.AppInput{Key: appKey, Resume: workflows.AppResume{Wait: c.wait}}))
		})
	}
	started := workflows.AppAttributes(appKey, &ledger.AppWait{Kind: "lattice", Code: "never_observed", Since: since})
	code, _ := started.GetKeyword(workflows.AttrReason)
	from, _ := started.GetTime(workflows.AttrSince)
	require.Equal(t, []any{"never_observed", since}, []any{code, from})
	_, waits := workflows.AppAttributes(appKey, nil).GetKeyword(workflows.AttrReason)
	require.False(t, waits)
}

// TestARunThatWaitsForItsGateway is told of by the engine, which has recorded it.
func TestARunThatWaitsForItsGateway(t *testing.T) {
	from, until := since.Add(time.Minute), since.Add(3*time.Minute)
	unreachable := attrs{
		workflows.AttrWait.ValueSet("gateway"), workflows.AttrReason.ValueSet("gateway_unreachable"), workflows.AttrWhy.ValueSet("gateway gw-1 does not answer"),
		workflows.AttrSince.ValueSet(from), workflows.AttrBound.ValueSet(until),
	}
	for name, ends := range map[string]bool{"and has what it waited for": true, "and ends while it waits": false} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.upserts(placedAttrs, unreachable, noWait())
			missing := ""
			shows := func(what string) {
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for tries := 0; !strings.Contains(e.detailsMeanwhile(), what); tries++ {
					if tries == 10_000 {
						missing = what
						return
					}
					<-tick.C
				}
			}
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				waits := ledger.RunWaits{RunID: "r7-0", Code: "gateway_unreachable", Reason: "an earlier run's", Since: from, Bound: until}
				e.SignalWorkflow(ledger.SignalRunWaits, waits)
				waits.RunID, waits.Reason = "r7-1", "gateway gw-1 does not answer"
				e.SignalWorkflow(ledger.SignalRunWaits, waits)
				shows("**waiting for gateway** (`gateway_unreachable`)")
				shows("- **why:** gateway gw-1 does not answer\n- **since:** 2026-03-01 08:01:00Z\n- **fails by itself:** 2026-03-01 08:03:00Z, 2m after it began\n")
				if ends {
					e.SignalWorkflow(ledger.SignalRunWaits, ledger.RunWaits{RunID: "r7-1"})
					shows("**running** on node **node-a** as run `r7-1`")
				}
				return ran(), nil
			}

			_, err := e.phase(phaseInput())

			require.NoError(t, err)
			require.Empty(t, missing, "current details never had this")
			require.Empty(t, inputs[ledger.OpenWait](e.fakes), "it is on record")
		})
	}
}
