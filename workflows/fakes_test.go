package workflows_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// asked is one attempt of an activity, as it arrived.
type asked struct {
	Activity string
	Queue    string
	Input    any
}

// fakes are all activities under their production names and signatures. Each
// answers as on a fleet where everything works, until a test replaces it. They
// keep what they were asked.
type fakes struct {
	launch        func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error)
	place         func(context.Context, workflows.PlaceInput) (ledger.Outcome, error)
	expire        func(context.Context, workflows.ExpireInput) (ledger.Outcome, error)
	finishPhase   func(context.Context, workflows.FinishPhaseInput) (ledger.Ended, error)
	retryPhase    func(context.Context, workflows.RetryPhaseInput) (int, error)
	backOff       func(context.Context, ledger.BackOff) (ledger.BackedOff, error)
	recordActs    func(context.Context, workflows.RecordActsInput) error
	stopRun       func(context.Context, workflows.StopRunInput) error
	judgeRun      func(context.Context, workflows.JudgeRunInput) (ledger.Verdict, error)
	setCheckout   func(context.Context, workflows.SetCheckoutInput) error
	finishMission func(context.Context, workflows.FinishMissionInput) error
	openCheckout  func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error)
	commitResults func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error)
	executeRun    func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error)

	observe  func(context.Context, workflows.LatticeInput) error
	assess   func(context.Context, workflows.AssessInput) (workflows.AssessResult, error)
	commands func(context.Context, workflows.CommandsInput) ([]workflows.CommandResult, error)

	noteWait  func(context.Context, ledger.OpenWait) (time.Time, error)
	clearWait func(context.Context, string) error

	mu    sync.Mutex
	calls []asked
}

func newFakes() *fakes {
	return &fakes{
		launch: func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
			return launchResult(), nil
		},
		place: func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
			return placedOn("node-a", in.Attempt), nil
		},
		expire: func(context.Context, workflows.ExpireInput) (ledger.Outcome, error) {
			return ledger.Outcome{Ended: &waitExceeded}, nil
		},
		finishPhase: func(_ context.Context, in workflows.FinishPhaseInput) (ledger.Ended, error) { return in.End, nil },
		retryPhase:  func(_ context.Context, in workflows.RetryPhaseInput) (int, error) { return in.Attempt + 1, nil },
		backOff: func(_ context.Context, in ledger.BackOff) (ledger.BackedOff, error) {
			if in.Attempt >= in.Attempts {
				return ledger.BackedOff{Attempt: in.Attempt, Exhausted: true}, nil
			}
			return ledger.BackedOff{Attempt: in.Attempt + 1}, nil
		},
		recordActs: func(context.Context, workflows.RecordActsInput) error { return nil },
		stopRun: func(context.Context, workflows.StopRunInput) error {
			return final("the agent does not have the run", "NotFound") // it is told by a cancellation
		},
		judgeRun: func(context.Context, workflows.JudgeRunInput) (ledger.Verdict, error) {
			return ledger.Verdict{Gone: true, Reason: "the agent of node node-a came back without its run", Node: "node-a"}, nil
		},
		observe: func(ctx context.Context, _ workflows.LatticeInput) error { return nil },
		assess: func(context.Context, workflows.AssessInput) (workflows.AssessResult, error) {
			return waitingApp(1), nil
		},
		commands: func(_ context.Context, in workflows.CommandsInput) ([]workflows.CommandResult, error) {
			return allWell(in.Batch), nil
		},
		setCheckout:   func(context.Context, workflows.SetCheckoutInput) error { return nil },
		noteWait:      func(_ context.Context, w ledger.OpenWait) (time.Time, error) { return w.Since, nil },
		clearWait:     func(context.Context, string) error { return nil },
		finishMission: func(context.Context, workflows.FinishMissionInput) error { return nil },
		openCheckout: func(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
			return checkoutAt("c0"), nil
		},
		commitResults: func(_ context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
			return checkoutAfter[in.Phase], nil
		},
		executeRun: func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
			return ran(), nil
		},
	}
}

// Register registers the fakes as they are now.
func (f *fakes) Register(r worker.ActivityRegistry) {
	for name, fn := range map[string]any{
		workflows.ActivityLaunch:        keep(f, workflows.ActivityLaunch, f.launch),
		workflows.ActivityPlace:         keep(f, workflows.ActivityPlace, f.place),
		workflows.ActivityExpire:        keep(f, workflows.ActivityExpire, f.expire),
		workflows.ActivityFinishPhase:   keep(f, workflows.ActivityFinishPhase, f.finishPhase),
		workflows.ActivityRetryPhase:    keep(f, workflows.ActivityRetryPhase, f.retryPhase),
		workflows.ActivityBackOff:       keep(f, workflows.ActivityBackOff, f.backOff),
		workflows.ActivityRecordActs:    keepOnly(f, workflows.ActivityRecordActs, f.recordActs),
		workflows.ActivityStopRun:       keepOnly(f, workflows.ActivityStopRun, f.stopRun),
		workflows.ActivityJudgeRun:      keep(f, workflows.ActivityJudgeRun, f.judgeRun),
		workflows.ActivityNoteWait:      keep(f, workflows.ActivityNoteWait, f.noteWait),
		workflows.ActivityClearWait:     keepOnly(f, workflows.ActivityClearWait, f.clearWait),
		workflows.ActivitySetCheckout:   keepOnly(f, workflows.ActivitySetCheckout, f.setCheckout),
		workflows.ActivityFinishMission: keepOnly(f, workflows.ActivityFinishMission, f.finishMission),
		workflows.ActivityOpenCheckout:  keep(f, workflows.ActivityOpenCheckout, f.openCheckout),
		workflows.ActivityCommitResults: keep(f, workflows.ActivityCommitResults, f.commitResults),
		workflows.ActivityExecuteRun:    keep(f, workflows.ActivityExecuteRun, f.executeRun),

		workflows.ActivityObserve:  keepOnly(f, workflows.ActivityObserve, f.observe),
		workflows.ActivityAssess:   keep(f, workflows.ActivityAssess, f.assess),
		workflows.ActivityCommands: keep(f, workflows.ActivityCommands, f.commands),
	} {
		r.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}

func keep[In, Out any](f *fakes, name string, fn func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		f.keep(ctx, name, in)
		return fn(ctx, in)
	}
}

func keepOnly[In any](f *fakes, name string, fn func(context.Context, In) error) func(context.Context, In) error {
	return func(ctx context.Context, in In) error {
		f.keep(ctx, name, in)
		return fn(ctx, in)
	}
}

func (f *fakes) keep(ctx context.Context, name string, in any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, asked{name, activity.GetInfo(ctx).TaskQueue, in})
}

// all returns every attempt so far, in order.
func (f *fakes) all() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// names returns the activities that were asked, in order, without repetitions
// of the same one.
func (f *fakes) names() []string {
	var names []string
	for _, c := range f.all() {
		names = append(names, c.Activity)
	}
	return slices.Compact(names)
}

// inputs returns what an activity was asked, in order.
func inputs[In any](f *fakes) []In {
	var all []In
	for _, c := range f.all() {
		if in, ok := c.Input.(In); ok {
			all = append(all, in)
		}
	}
	return all
}

// The facts that tests start from.
var (
	since = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

	boundAfter = 2 * time.Hour

	fleet = workflows.Fleet{RetryInterval: 10 * time.Second, NodePickup: 30 * time.Second, StepAllowance: 10 * time.Minute, AttemptBackoff: 10 * time.Second}

	survey = workflows.PhaseCommand{
		Name: "survey", Command: vm.Command{Argv: []string{"make", "survey"}, Env: map[string]string{"MODE": "fast"}},
		Collect: []string{"out/**"}, Machine: vm.Spec{CPUMilli: 1500, MemoryMiB: 512, DiskMiB: 1024}, Attempts: 2,
	}
	report = workflows.PhaseCommand{
		Name: "report", Command: vm.Command{Argv: []string{"./report"}},
		Machine: vm.Spec{CPUMilli: 1000, MemoryMiB: 256, DiskMiB: 512}, Attempts: 1,
	}

	checkoutAfter = map[string]workflows.Checkout{"survey": checkoutAt("c1"), "report": checkoutAt("c2")}

	waitExceeded = ledger.Ended{Status: "failed", FailureCode: "wait_exceeded", Failure: "waited 2h0m0s for capacity, the longest allowed; at last: no node has 2 CPUs free"}
)

func checkoutAt(commit string) workflows.Checkout {
	return workflows.Checkout{
		Branch: "tidewait/port/3", Commit: commit, Tree: "tree-" + commit,
		Input: workflows.Object{Bucket: "tidewait-workspaces", Name: "input.port." + commit, SHA256: "sha-" + commit},
	}
}

// ran is a run whose command succeeded.
func ran() workflows.ExecuteRunResult {
	return workflows.ExecuteRunResult{
		Info: vm.Info{Accel: "kvm", Kernel: "6.12.0"}, Exit: &vm.Exit{},
		Results: workflows.Object{Bucket: "tidewait-results-node-a", Name: "r7-1", SHA256: "sha-r"}, Deleted: []string{"old.txt"},
	}
}

func launchResult() workflows.LaunchResult {
	return workflows.LaunchResult{
		Launched: ledger.Launched{
			MissionID: 5, Launch: 3, GatewayID: "gw-1", StartedAt: since,
			Phases: []ledger.LaunchedPhase{{ID: 7, Name: "survey"}, {ID: 8, Name: "report"}},
		},
		Mission: workflows.LaunchedMission{Name: "port", Pool: "microvm", Phases: []workflows.PhaseCommand{survey, report}},
		Fleet:   fleet,
	}
}

func phaseInput() workflows.PhaseInput {
	return workflows.PhaseInput{
		PhaseID: 7, MissionID: 5, Mission: "port", Launch: 3, Ordinal: 1, Pool: "microvm", Gateway: "gw-1",
		Command: survey, Checkout: checkoutAt("c0"), Fleet: fleet,
	}
}

func placedOn(node string, attempt int) ledger.Outcome {
	runs := map[int]string{1: "r7-1", 2: "r7-2", 3: "r7-3"}
	return ledger.Outcome{Placed: &ledger.Placed{RunID: runs[attempt], NodeID: node, Attempt: attempt, Turn: time.Hour}}
}

// waiting is a phase that was refused first at since, and may wait two hours.
func waiting(code capacity.Code, left time.Duration) ledger.Waiting {
	return ledger.Waiting{
		Code: code, Sentence: "no node has 2 CPUs free", Since: since, Bound: since.Add(2 * time.Hour), Left: left,
		CheckedAt: since.Add(2*time.Hour - left), Position: 4,
		Starts: &ledger.Starts{By: since.Add(90 * time.Minute), On: "node-b"},
	}
}

func refusedFor(code capacity.Code, left time.Duration) ledger.Outcome {
	w := waiting(code, left)
	return ledger.Outcome{Waiting: &w}
}
