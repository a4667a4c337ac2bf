package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/heartbeat"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// begunAnew are the scenarios of which the run is kept that ended so, and not the
// latest one.
const begunAnew = "begun-anew"

func recordCommandFailed(s server, f *fakes) {
	f.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, nil
	}
	s.serve(f)
	in := phaseInput()
	in.Command.Attempts = 1
	s.startPhase(in)
}

func recordComposed(s server, f *fakes) {
	f.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return reviewed(), nil
	}
	f.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return checkoutAt("c1"), nil
	}
	s.serve(f)
	s.startPhase(reviewInput())
}

func recordIncapable(s server, f *fakes) {
	f.place = func(context.Context, workflows.PlaceInput) (ledger.Outcome, error) {
		return ledger.Outcome{Incapable: &capacity.CapabilityRefusal{Code: capacity.CodeExceedsEveryNode, Sentence: "no node has 64 CPUs"}}, nil
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

// recordPlacerUnavailable has the database away for the first look.
func recordPlacerUnavailable(s server, f *fakes) {
	var looks atomic.Int64
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if looks.Add(1) <= 3 {
			return ledger.Outcome{}, errors.New("connect to postgres: connection refused")
		}
		return placedOn("node-a", in.Attempt), nil
	}
	s.serve(f)
	s.startPhase(eager(phaseInput()))
}

func recordCancelledInQueue(s server, f *fakes) {
	looked := make(chan bool, 100)
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		looked <- true
		if !in.Retrying {
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
	}
	s.serve(f)
	s.startPhase(phaseInput())
	next(s.t, looked)
	next(s.t, looked)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "not any more"}))
}

func recordCancelledNatively(s server, f *fakes) {
	s.runPhase(f)
	require.NoError(s.t, s.CancelWorkflow(s.t.Context(), surveyID, ""))
}

func recordCancelledWhileHeld(s server, f *fakes) {
	paused := make(chan bool, 100)
	f.place = func(context.Context, workflows.PlaceInput) (ledger.Outcome, error) {
		paused <- true
		return ledger.Outcome{Paused: &ledger.Pause{Kind: "hold", Code: "awaiting_release", Sentence: "held", Since: since}}, nil
	}
	s.serve(f)
	s.startPhase(held(0))
	next(s.t, paused)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "not any more"}))
}

// recordDrained moves a run on to another node's place in the queue, with what it
// had made.
func recordDrained(s server, f *fakes) {
	g := newGate()
	f.executeRun = func(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID != "r7-1" {
			return ran(), nil
		}
		_, err := g.run(ctx, in)
		return cutShort(), err
	}
	f.stopRun = func(context.Context, workflows.StopRunInput) error { close(g.opened); return nil }
	s.serve(f)
	s.startPhase(phaseInput())
	g.await(s.t)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", ledger.SignalEvict, ledger.Evict{RunID: "r7-1", Why: drainOver}))
}

// recordKept has a run's agent end, and the next one go on with the run.
func recordKept(s server, f *fakes) {
	f.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if !in.Resume {
			return workflows.ExecuteRunResult{}, errors.New("the node's agent was stopped, and the next one goes on with the run")
		}
		return ran(), nil
	}
	f.judgeRun = func(context.Context, workflows.JudgeRunInput) (ledger.Verdict, error) {
		return ledger.Verdict{Kept: true, Reason: "the next agent of node node-a goes on with run r7-1", Node: "node-a"}, nil
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

func recordNodeLostForGood(s server, f *fakes) {
	f.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return workflows.ExecuteRunResult{Lost: true, Failure: "the agent stops"}, nil
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

// recordRunWaits tells a phase that its run waits for secrets, and that it has them.
func recordRunWaits(s server, f *fakes) {
	g := s.runPhase(f)
	for _, waits := range []ledger.RunWaits{
		{RunID: "r7-1", Code: "gateway_unreachable", Reason: "gateway gw-1 does not seal the secrets of run r7-1", Since: since, Bound: since.Add(time.Hour)},
		{RunID: "r7-1"},
	} {
		require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", ledger.SignalRunWaits, waits))
		s.settled()
	}
	close(g.opened)
}

func recordResultsRefused(s server, f *fakes) {
	f.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return workflows.Checkout{}, final("the results hold a file .git/config", workflows.ErrTypeWorkspaceRefused, "results_refused")
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

func recordBucketFull(s server, f *fakes) {
	var tries atomic.Int64
	f.commitResults = func(_ context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
		if tries.Add(1) <= 2 {
			return workflows.Checkout{}, temporal.NewApplicationError("bucket tidewait-bundles is full: maximum bytes exceeded", workflows.ErrTypeBucketFull)
		}
		return checkoutAfter[in.Phase], nil
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

// recordGatewayAway has the gateway come when its absence has become a wait.
func recordGatewayAway(s server, f *fakes) {
	waits := gatewayWaits(f)
	s.serveQueues(f, workflows.TaskQueue, workflows.NodeQueue("node-a"))
	s.startPhase(phaseInput())
	next(s.t, waits)
	s.serveQueues(f, workflows.GatewayQueue("gw-1"))
}

func gatewayWaits(f *fakes) <-chan bool {
	waits := make(chan bool, 100)
	f.noteWait = func(_ context.Context, w ledger.OpenWait) (time.Time, error) {
		waits <- true
		return w.Since, nil
	}
	return waits
}

func recordMissionGatewayAway(s server, f *fakes) {
	waits := gatewayWaits(f)
	s.serveQueues(f, workflows.TaskQueue, workflows.NodeQueue("node-a"))
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
	next(s.t, waits)
	s.serveQueues(f, workflows.GatewayQueue("gw-1"))
}

func recordWorkspaceRefused(s server, f *fakes) {
	f.openCheckout = func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
		return workflows.Checkout{}, final("the repository has no ref nightly", workflows.ErrTypeWorkspaceRefused)
	}
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
}

func recordMissionPhaseFailed(s server, f *fakes) {
	f.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, nil
	}
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
}

func recordMissionPhaseTerminated(s server, f *fakes) {
	s.runMission(f)
	require.NoError(s.t, s.TerminateWorkflow(s.t.Context(), surveyID, "", "enough"))
}

// recordAppBegunAnew wakes an application until its history is begun anew.
func recordAppBegunAnew(s server, f *fakes) {
	looks := newScript(f, failingApp(0))
	s.serve(f)
	s.revise(1)
	first := s.newest(appID).WorkflowExecution.RunID
	for n := 1; s.newest(appID).WorkflowExecution.RunID == first; n++ {
		eventually(s.t, func() bool { return len(looks.looks()) >= n }, "a wake was not looked at")
		require.NoError(s.t, s.SignalWorkflow(s.t.Context(), appID, "", api.SignalWake, nil))
	}
	looks.then(undeployed)
	s.revise(2)
}

// recordAppCommandsLost has the engine that commands hosts lose the lattice.
func recordAppCommandsLost(s server, f *fakes) {
	begin := deployedApp()
	begin.Batches = []scaler.Batch{scaleUp}
	looks := newScript(f, begin, deployedApp())
	f.commands = func(context.Context, workflows.CommandsInput) ([]workflows.CommandResult, error) {
		return nil, final("another engine observes the lattice now", "StaleEpoch")
	}
	s.serve(f)
	s.revise(1)
	eventually(s.t, func() bool { return len(looks.looks()) >= 2 }, "it was not looked at again")
	looks.then(undeployed)
	s.revise(2)
}

// recordBegunAnew nudges a phase that waits until its history is begun anew.
func recordBegunAnew(s server, f *fakes) {
	var room atomic.Bool
	looked := make(chan bool, 1000)
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		looked <- true
		switch {
		case room.Load():
			return placedOn("node-a", in.Attempt), nil
		case !in.Retrying:
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
	}
	s.serve(f)
	first := s.startPhase(phaseInput()).GetRunID()
	for s.newest(surveyID).WorkflowExecution.RunID == first {
		next(s.t, looked)
		require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "ann"}))
	}
	room.Store(true)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "ann"}))
}

// recordLatticeBegunAnew has a lattice needed as often as its observation ends.
func recordLatticeBegunAnew(s server, f *fakes) {
	var enough atomic.Bool
	f.observe = func(ctx context.Context, _ workflows.LatticeInput) error {
		if enough.Load() {
			return nil
		}
		return s.SignalWorkflow(ctx, latticeID, "", api.SignalNeeded, nil)
	}
	s.serve(f)
	s.startLattice()
	first := s.newest(latticeID).WorkflowExecution.RunID
	eventually(s.t, func() bool { return s.newest(latticeID).WorkflowExecution.RunID != first }, "its history is not begun anew")
	enough.Store(true)
}

func (s server) startLattice() {
	s.t.Helper()
	_, err := s.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{
		ID: latticeID, TaskQueue: workflows.TaskQueue, TypedSearchAttributes: workflows.LatticeAttributes("default"),
	}, api.LatticeWorkflow, workflows.LatticeInput{Account: "default", Lattice: "default"})
	require.NoError(s.t, err)
}

// recordLatticeNeeded has a deployment come as the observation ends.
func recordLatticeNeeded(s server, f *fakes) {
	observing, signalled := make(chan bool, 10), make(chan bool, 10)
	f.observe = func(context.Context, workflows.LatticeInput) error {
		observing <- true
		<-signalled
		return nil
	}
	s.serve(f)
	s.startLattice()
	next(s.t, observing)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), latticeID, "", api.SignalNeeded, nil))
	eventually(s.t, func() bool {
		return count(s.history(latticeID, ""), enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED) == 1
	}, "it is not signalled")
	signalled <- true
	next(s.t, observing)
	signalled <- true
}

func recordLatticeCancelled(s server, f *fakes) {
	observing := make(chan bool, 10)
	f.observe = func(ctx context.Context, _ workflows.LatticeInput) error {
		defer heartbeat.Keep(ctx, 100*time.Millisecond, heartbeat.Bare)()
		observing <- true
		<-ctx.Done()
		return ctx.Err()
	}
	s.serve(f)
	s.startLattice()
	next(s.t, observing)
	require.NoError(s.t, s.CancelWorkflow(s.t.Context(), latticeID, ""))
}
