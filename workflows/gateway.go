package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/ledger"
)

// gatewayPickup is how long a live gateway takes at most to pick work up.
const gatewayPickup = 10 * time.Second

// onGateway executes an activity on a gateway, and shows the wait when the
// gateway does not pick it up.
func onGateway(ctx workflow.Context, shown *waits, gateway, summary, activity string, in, out any) error {
	options := withGateway(ctx, gateway, summary)
	var since time.Time
	for {
		err := workflow.ExecuteActivity(options, activity, in).Get(ctx, out)
		var w wait
		switch {
		case isUnpicked(err):
			options = withAbsentGateway(ctx, gateway, summary)
			w = wait{
				code: ledger.CodeGatewayUnreachable, reason: fmt.Sprintf("gateway %s does not pick up: %s", gateway, summary),
				next: "as soon as the gateway polls its queue",
			}
		case isFull(err):
			options = withFullBucket(ctx, gateway, summary)
			w = wait{
				code: ledger.CodeResultsBucketFull, reason: fmt.Sprintf("gateway %s cannot %s: %s", gateway, summary, rootMessage(err)),
				next: fmt.Sprintf("every %s", fullInterval),
			}
		default:
			if err == nil && !since.IsZero() {
				err = shown.clear(ctx, summary+"\n")
			}
			return err
		}
		if since.IsZero() {
			since = workflow.Now(ctx).UTC()
		}
		w.kind, w.since, shown.of.Gateway = ledger.KindGateway, since, gateway
		if err := shown.declare(ctx, w); err != nil {
			return err
		}
	}
}

func isUnpicked(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// isFull reports whether a gateway found no room for what it has to keep.
func isFull(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == ErrTypeBucketFull
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
