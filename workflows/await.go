package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// awaitAtMost waits until the condition holds, at most for d, and reports whether
// it does. Its timer, whose summary people read, ends with it: that of
// workflow.AwaitWithOptions goes on, costs four events when it fires, and leaves
// several running where the wait begins again.
func awaitAtMost(ctx workflow.Context, d time.Duration, summary string, condition func() bool) (bool, error) {
	timing, stop := workflow.WithCancel(ctx)
	defer stop()
	timer := workflow.NewTimerWithOptions(timing, d, workflow.TimerOptions{Summary: summary})
	err := workflow.Await(ctx, func() bool { return condition() || timer.IsReady() })
	return condition(), err
}
