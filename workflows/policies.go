package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// withEngine is for short database calls: they are tried until they work,
// because nothing can go on without them.
func withEngine(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           TaskQueue,
		Summary:             summary,
		StartToCloseTimeout: 15 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second},
	})
}

// withLocal is for the first tries of a short database call, in the worker that
// runs the workflow: that costs one event and no round trip to the server.
func withLocal(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary:             summary,
		StartToCloseTimeout: 3 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumAttempts: 3},
	})
}

// withOneTry is for what is worth a try, and nothing waits for.
func withOneTry(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary:             summary,
		StartToCloseTimeout: 3 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// callEngine does a short, idempotent database call: locally, and when that
// does not work soon, by an activity that the server retries until it does.
// See docs/decisions/0009.
func callEngine(ctx workflow.Context, summary, activity string, in, out any) error {
	err := workflow.ExecuteLocalActivity(withLocal(ctx, summary), activity, in).Get(ctx, out)
	if err == nil || isFinal(err) || ctx.Err() != nil {
		return err
	}
	return workflow.ExecuteActivity(withEngine(ctx, summary), activity, in).Get(ctx, out)
}

// withServerRetry is for a wait: the server tries again at a fixed interval,
// which costs no history. attempts only bounds what the Web UI counts up to.
func withServerRetry(ctx workflow.Context, summary string, interval time.Duration, attempts int) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           TaskQueue,
		Summary:             summary,
		StartToCloseTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: interval, BackoffCoefficient: 1, MaximumInterval: interval, MaximumAttempts: int32(attempts), //nolint:gosec // bounded by attemptsUntil
		},
	})
}

// withGateway is for work on a checkout. A gateway that does not pick the work
// up soon is unreachable, and one without room for what it has to keep says so:
// either becomes a wait. A cancellation waits for what the gateway does with it,
// so that a commit that was made is known.
func withGateway(ctx workflow.Context, gateway, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, gatewayOptions(gateway, summary, gatewayPickup, &temporal.RetryPolicy{
		InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second, NonRetryableErrorTypes: []string{ErrTypeBucketFull},
	}))
}

// withAbsentGateway is for the same work while the gateway is waited for.
func withAbsentGateway(ctx workflow.Context, gateway, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, gatewayOptions(gateway, summary, time.Hour, &temporal.RetryPolicy{
		InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second, NonRetryableErrorTypes: []string{ErrTypeBucketFull},
	}))
}

// fullInterval is between tries of a gateway that found no room.
const fullInterval = 10 * time.Second

// withFullBucket is for the same work while there is no room for what the gateway
// has to keep: the server tries again, which costs no history.
func withFullBucket(ctx workflow.Context, gateway, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, gatewayOptions(gateway, summary, gatewayPickup, &temporal.RetryPolicy{
		InitialInterval: fullInterval, BackoffCoefficient: 1, MaximumInterval: fullInterval,
	}))
}

func gatewayOptions(gateway, summary string, pickup time.Duration, retry *temporal.RetryPolicy) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              GatewayQueue(gateway),
		Summary:                summary,
		ScheduleToStartTimeout: pickup,
		StartToCloseTimeout:    10 * time.Minute,
		HeartbeatTimeout:       20 * time.Second,
		WaitForCancellation:    true,
		RetryPolicy:            retry,
	}
}

// withNode is for a run on a node. It is tried once: what follows a lost run is
// decided by the phase. A node that does not pick the run up is lost.
func withNode(ctx workflow.Context, node, summary string, fleet Fleet, turn time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              NodeQueue(node),
		Summary:                summary,
		ScheduleToStartTimeout: fleet.NodePickup,
		StartToCloseTimeout:    turn + fleet.StepAllowance,
		HeartbeatTimeout:       10 * time.Second,
		WaitForCancellation:    true,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// stopPatience is how long a live agent takes at most to hear that a run is to
// end.
const stopPatience = 2 * time.Second

// withStop is for a word to a node's agent that is worth little when it is late.
func withStop(ctx workflow.Context, node, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              NodeQueue(node),
		Summary:                summary,
		ScheduleToCloseTimeout: stopPatience,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// partialPatience is how long a cancelled phase waits for its gateway to keep
// what its run had made.
const partialPatience = time.Minute

func withPartial(ctx workflow.Context, gateway, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              GatewayQueue(gateway),
		Summary:                summary,
		ScheduleToStartTimeout: gatewayPickup,
		ScheduleToCloseTimeout: partialPatience,
		HeartbeatTimeout:       20 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2},
	})
}

// attemptsUntil returns how many tries at interval surely last longer than left.
func attemptsUntil(left, interval time.Duration) int {
	const most = 1_000_000
	if interval <= 0 || left <= 0 {
		return most
	}
	return int(min(left/interval+2, most))
}
