package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// gatewayPickup is how long a live gateway takes at most to pick work up.
const gatewayPickup = 10 * time.Second

// onGateway executes an activity on a gateway, and shows the wait when the
// gateway does not pick it up.
func onGateway(ctx workflow.Context, shown *waits, gateway, summary, activity string, in, out any) error {
	pickup := gatewayPickup
	var since time.Time
	for {
		err := workflow.ExecuteActivity(withGateway(ctx, gateway, summary, pickup), activity, in).Get(ctx, out)
		if !isUnpicked(err) {
			if err == nil && !since.IsZero() {
				err = shown.clear(ctx, summary)
			}
			return err
		}
		if since.IsZero() {
			since = workflow.Now(ctx).UTC()
			pickup = time.Hour
		}
		if err := shown.declare(ctx, wait{
			kind: kindGateway, code: "gateway_unreachable", since: since,
			reason: fmt.Sprintf("gateway %s does not pick up: %s", gateway, summary),
			next:   "as soon as the gateway polls its queue",
			hint:   fmt.Sprintf("start the gateway: `tidewait-worker run --roles gateway --gateway.id %s`", gateway),
		}); err != nil {
			return err
		}
	}
}

func isUnpicked(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// refusedBy returns the code and the sentence of a gateway's final refusal.
// otherwise is the code of a refusal that names none.
func refusedBy(err error, otherwise string) (code, sentence string, ok bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != ErrTypeWorkspaceRefused {
		return "", "", false
	}
	if app.Details(&code) != nil {
		code = otherwise
	}
	return code, app.Message(), true
}
