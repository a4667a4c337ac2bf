package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

const drainOver = "node node-a had to be empty: its drain by ann (kernel upgrade) has passed its deadline"

// untilStopped makes the first run go on until it is stopped, which signals for
// the given runs may bring about, and be what res is then. Later ones succeed.
func (e *env) untilStopped(res workflows.ExecuteRunResult, evicts ...string) {
	stopped := make(chan struct{})
	e.stopRun = func(context.Context, workflows.StopRunInput) error { close(stopped); return nil }
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID != "r7-1" {
			return ran(), nil
		}
		for _, run := range evicts {
			e.evict(run)
		}
		<-stopped
		return res, nil
	}
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		return placedOn(map[int]string{1: "node-a", 2: "node-b"}[in.Attempt], in.Attempt), nil
	}
}

func cutShort() workflows.ExecuteRunResult {
	return workflows.ExecuteRunResult{
		Info: vm.Info{Accel: "kvm", Kernel: "6.12.0"}, Exit: &vm.Exit{Signal: "SIGTERM"}, FailureCode: "cancelled", Failure: drainOver, Partial: true,
		Results: workflows.Object{Bucket: "tidewait-results-node-a", Name: "r7-1", SHA256: "sha-half"},
	}
}

func (e *env) evict(run string) {
	e.SignalWorkflow(ledger.SignalEvict, ledger.Evict{RunID: run, Why: drainOver})
}

func TestARunWhoseNodeIsDrainedMovesOn(t *testing.T) {
	e := newEnv(t)
	e.upserts(placedAttrs, attrs{workflows.AttrNode.ValueUnset()}, attrs{workflows.AttrNode.ValueSet("node-b")})
	e.untilStopped(cutShort(), "r7-1")
	e.commitResults = func(_ context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
		if in.Partial != "" {
			return workflows.Checkout{Branch: "tidewait/port/3-partial/survey", Commit: "half"}, nil
		}
		return checkoutAt("c1"), nil
	}
	in := phaseInput()
	in.Command.Attempts = 1

	res, err := e.phase(in)

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Equal(t, []workflows.StopRunInput{{RunID: "r7-1", Reason: drainOver, Keep: true}}, inputs[workflows.StopRunInput](e.fakes))
	require.Equal(t, []workflows.RetryPhaseInput{{PhaseID: 7, Attempt: 1, Run: ledger.RunEnd{
		Status: "cancelled", Info: vm.Info{Accel: "kvm", Kernel: "6.12.0"}, Exit: &vm.Exit{Signal: "SIGTERM"}, FailureCode: "drained",
		Failure: drainOver + "; what it had made is commit half of branch tidewait/port/3-partial/survey",
	}}}, inputs[workflows.RetryPhaseInput](e.fakes))
	commits := inputs[workflows.CommitResultsInput](e.fakes)
	require.Equal(t, []string{drainOver, ""}, []string{commits[0].Partial, commits[1].Partial})
	require.Empty(t, inputs[ledger.BackOff](e.fakes), "no attempt is consumed")
}

func TestADrainEndsWhatItMust(t *testing.T) {
	for name, c := range map[string]struct {
		ends   func() workflows.ExecuteRunResult
		placed int
	}{
		"not a run that ended by itself in that moment": {ends: ran, placed: 1},
		"a run that its agent gave up": {
			ends: func() workflows.ExecuteRunResult { return workflows.ExecuteRunResult{Lost: true, Failure: "stopped"} }, placed: 2,
		},
		"a run that left nothing": {ends: func() workflows.ExecuteRunResult {
			return workflows.ExecuteRunResult{FailureCode: "cancelled", Failure: "the command did not end within its grace of 2s"}
		}, placed: 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.untilStopped(c.ends(), "r6-1", "r7-1")

			_, err := e.phase(phaseInput())

			require.NoError(t, err)
			require.Len(t, inputs[workflows.ExecuteRunInput](e.fakes), c.placed)
			require.Len(t, inputs[workflows.StopRunInput](e.fakes), 1, "a signal for another run stops nothing")
			require.Empty(t, inputs[ledger.BackOff](e.fakes))
		})
	}
}

// Each drain is a person's; only losses are counted.
func TestDrainsAreNotLosses(t *testing.T) {
	e := newEnv(t)
	stops := make(chan string, 8)
	e.stopRun = func(_ context.Context, in workflows.StopRunInput) error { stops <- in.RunID; return nil }
	runs := 0
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		o := placedOn("node-a", 1)
		o.Placed.RunID, o.Placed.Attempt = "r7", in.Attempt
		return o, nil
	}
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if runs++; runs > 5 {
			return ran(), nil
		}
		e.evict("r7")
		<-stops
		return cutShort(), nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Len(t, inputs[workflows.RetryPhaseInput](e.fakes), 5)
}

// The gateway refuses a run that does not count any more: the phase is placed
// again, as after any other loss.
func TestAStaleRunIsALoss(t *testing.T) {
	e := newEnv(t)
	const why = "commit what run r7-1 has made: node node-a was given up since it was placed"
	e.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		o := placedOn("node-a", in.Attempt)
		o.Placed.Epoch = int64(in.Attempt)
		return o, nil
	}
	e.commitResults = func(_ context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
		if in.Epoch == 1 {
			return workflows.Checkout{}, final(why, workflows.ErrTypeRunStale)
		}
		return checkoutAt("c1"), nil
	}

	_, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, []workflows.RetryPhaseInput{
		{PhaseID: 7, Attempt: 1, Run: ledger.RunEnd{Status: "lost", FailureCode: "node_lost", Failure: why}},
	}, inputs[workflows.RetryPhaseInput](e.fakes))
	executed := inputs[workflows.ExecuteRunInput](e.fakes)
	require.Equal(t, []int64{1, 2}, []int64{executed[0].Epoch, executed[1].Epoch})
	require.Equal(t, "r7-2", inputs[workflows.FinishPhaseInput](e.fakes)[0].Run.RunID)
}
