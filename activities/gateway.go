package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/internal/gateway"
	"tidewait/internal/heartbeat"
	"tidewait/internal/objects"
	"tidewait/workflows"
)

// Gateway holds the activities of a gateway's queue.
type Gateway struct {
	Gateway *gateway.Gateway
}

// Register adds the gateway's activities to a worker.
func (g *Gateway) Register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(g.OpenCheckout, activity.RegisterOptions{Name: workflows.ActivityOpenCheckout})
	w.RegisterActivityWithOptions(g.CommitResults, activity.RegisterOptions{Name: workflows.ActivityCommitResults})
}

// gatewayBeat is a quarter of the heartbeat timeout of a gateway's activities.
const gatewayBeat = 5 * time.Second

// OpenCheckout opens a launch's checkout.
func (g *Gateway) OpenCheckout(ctx context.Context, in workflows.OpenCheckoutInput) (workflows.Checkout, error) {
	defer heartbeat.Keep(ctx, gatewayBeat, heartbeat.Bare)()
	return g.whileConnected(ctx, func(ctx context.Context) (workflows.Checkout, error) { return g.Gateway.Open(ctx, in) })
}

// CommitResults makes a run's results a commit.
func (g *Gateway) CommitResults(ctx context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
	defer heartbeat.Keep(ctx, gatewayBeat, heartbeat.Bare)()
	return g.whileConnected(ctx, func(ctx context.Context) (workflows.Checkout, error) { return g.Gateway.Commit(ctx, in) })
}

// whileConnected fails at once when the connection to the object store is lost, so
// that the server tries again; by itself the client would wait for what was under
// way, and the heartbeats would say that all is well.
func (g *Gateway) whileConnected(ctx context.Context, do func(context.Context) (workflows.Checkout, error)) (workflows.Checkout, error) {
	connected, stop := objects.Unbroken(ctx, g.Gateway.JS.Conn())
	defer stop()
	c, err := do(connected)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(connected), objects.ErrInterrupted) {
		err = objects.ErrInterrupted // the client says that somebody cancelled
	}
	return c, asTemporal(err)
}
