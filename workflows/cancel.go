package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
)

// cancellation is how a person ends a workflow: by the cancel signal, which
// says who and why, or natively, which does not.
type cancellation struct {
	ctx  workflow.Context // ends with native cancellation
	work workflow.Context // ends with that, or when a signal calls stop
	stop workflow.CancelFunc

	signal workflow.ReceiveChannel
	by     *api.Cancel // the signal, once it was read
}

func newCancellation(ctx workflow.Context, description string) cancellation {
	c := cancellation{ctx: ctx}
	c.work, c.stop = workflow.WithCancel(ctx)
	c.signal = workflow.GetSignalChannelWithOptions(ctx, api.SignalCancel, workflow.SignalChannelOptions{
		Description: description + ` Input: {"actor": "you", "reason": "why"}`,
	})
	return c
}

// signalled reports whether the signal has come. Whoever decides on it reads the
// channel: a coroutine that did so for all would run after the main one, which
// would overlook a signal that came together with something else.
func (c *cancellation) signalled() bool {
	var said any
	if c.by == nil && c.signal.ReceiveAsync(&said) {
		c.by = readCancel(said)
	}
	return c.by != nil
}

// requested reports whether the workflow is to end.
func (c *cancellation) requested() bool { return c.signalled() || c.work.Err() != nil }

// sentence says who ended the workflow and why, as far as that is known.
func (c *cancellation) sentence(natively string) string {
	if !c.signalled() {
		return natively
	}
	actor, reason := c.by.Actor, c.by.Reason
	if actor == "" {
		actor = "somebody"
	}
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("cancelled by %s: %s", actor, reason)
}

// readCancel takes what a person typed, in a form that has no schema: a signal
// that asks for an end must not be dropped because of how it says so.
func readCancel(said any) *api.Cancel {
	var c api.Cancel
	switch v := said.(type) {
	case string:
		c.Reason = v
	case map[string]any:
		c.Actor, _ = v["actor"].(string)
		c.Reason, _ = v["reason"].(string)
	}
	return &c
}
