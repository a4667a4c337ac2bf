package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/storable"
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
		Description: description + ` Input: {"actor": "you", "reason": "why"}; with "keep": true what a run has made is committed to a branch of its own.`,
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

// keep reports whether what a run has made is wanted.
func (c *cancellation) keep() bool { return c.signalled() && c.by.Keep }

// sentence says who ended the workflow and why, as far as that is known.
func (c *cancellation) sentence(natively string) string {
	if !c.signalled() {
		return natively
	}
	actor, reason := c.by.Actor, c.by.Reason
	if actor == "" {
		actor = api.Act{Via: api.ViaTemporal}.Who()
	}
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("cancelled by %s: %s", actor, reason)
}

// act is what a person did, when one did. A native cancellation names nobody.
func (c *cancellation) act() *ledger.Act {
	if !c.signalled() {
		return nil
	}
	return &ledger.Act{
		Key:  workflow.GetInfo(c.ctx).OriginalRunID + "/" + ledger.ActCancel,
		Verb: ledger.ActCancel, Actor: c.by.Actor, Note: c.by.Reason,
	}
}

// readCancel takes what a person typed, in a form that has no schema: a signal
// that asks for an end must not be dropped because of how it says so.
func readCancel(said any) *api.Cancel {
	var c api.Cancel
	c.Actor, c.Reason = readWords(said)
	if fields, ok := said.(map[string]any); ok {
		switch fields["keep"] {
		case true, "true", "yes", "1", 1.0:
			c.Keep = true
		}
	}
	return &c
}

// wordsLength bounds what a person says with a signal, in bytes: it goes into the
// database, and several of them into one payload.
const wordsLength = 1 << 10

// readWords takes the actor and the reason or note of a signal that a person may
// have typed. Words alone are a reason. What Postgres cannot store is replaced, so
// that no signal can keep a workflow from recording it.
func readWords(said any) (actor, words string) {
	switch v := said.(type) {
	case string:
		words = v
	case map[string]any:
		actor, _ = v["actor"].(string)
		for _, key := range []string{"reason", "note"} {
			if text, ok := v[key].(string); ok && words == "" {
				words = text
			}
		}
	}
	return clipTo(wordsLength, storable.Text(actor)), clipTo(wordsLength, storable.Text(words))
}
