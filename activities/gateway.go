package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/internal/gateway"
	"tidewait/internal/heartbeat"
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
	c, err := g.Gateway.Open(ctx, in)
	return c, asTemporal(err)
}

// CommitResults makes a run's results a commit.
func (g *Gateway) CommitResults(ctx context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
	defer heartbeat.Keep(ctx, gatewayBeat, heartbeat.Bare)()
	c, err := g.Gateway.Commit(ctx, in)
	return c, asTemporal(err)
}
