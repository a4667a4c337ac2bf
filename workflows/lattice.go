package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
)

// Lattice keeps one lattice observed for as long as somebody needs it: by an
// activity that runs on one engine until it is told to stop, and on another one
// within seconds when that engine is gone. It ends when nothing is deployed or
// left to clean up in the lattice; the next deployment starts it again, and one
// that comes in that moment keeps it.
func Lattice(ctx workflow.Context, in LatticeInput) error {
	showPage(ctx, latticeMarkdown(in))
	needed := workflow.GetSignalChannelWithOptions(ctx, api.SignalNeeded, workflow.SignalChannelOptions{
		Description: "go on observing; sent by the engine with a deployment when the observation was about to end",
	})
	for {
		drain(needed)
		err := workflow.ExecuteActivity(withObserver(ctx, in), ActivityObserve, in).Get(ctx, nil)
		if ctx.Err() != nil || err == nil && needed.Len() == 0 {
			return err
		}
		pause := workflow.TimerOptions{Summary: "before lattice " + in.Lattice + " is observed again"}
		if err := workflow.NewTimerWithOptions(ctx, observeAgain, pause).Get(ctx, nil); err != nil {
			return err
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, api.LatticeWorkflow, in)
		}
	}
}

const observeAgain = time.Second

// withObserver is for the observation of a lattice. An engine that dies or
// freezes sends no heartbeat, and another one observes the lattice then.
func withObserver(ctx workflow.Context, in LatticeInput) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           ObserveQueue,
		Summary:             "observe lattice " + in.Lattice,
		StartToCloseTimeout: 7 * 24 * time.Hour,
		HeartbeatTimeout:    7 * time.Second,
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: observeAgain, BackoffCoefficient: 1, MaximumInterval: observeAgain},
	})
}

// withAssess is for a look at a lattice by its observer. A lattice that nobody
// observes does not pick it up within pickup; 0 waits for ever.
func withAssess(ctx workflow.Context, account, lattice string, pickup time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              LatticeQueue(account, lattice),
		Summary:                "compare with the lattice",
		ScheduleToStartTimeout: pickup,
		StartToCloseTimeout:    10 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second},
	})
}

// withCommands is for what one host is told. It is tried once: what became of it
// is seen when the lattice is looked at again.
func withCommands(ctx workflow.Context, account, lattice, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              LatticeQueue(account, lattice),
		Summary:                summary,
		ScheduleToStartTimeout: 30 * time.Second,
		StartToCloseTimeout:    10 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}
