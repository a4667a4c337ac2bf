package main

import (
	"context"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
	"tidewait/workflows"
)

func latticeWorkflow() string {
	return api.LatticeWorkflowID(ledger.DefaultAccount, wadm.DefaultLattice)
}

// traced is what the history of an application tells of its work.
type traced struct {
	woken []time.Time
	done  []worked
}

// worked is one activity.
type worked struct {
	name                          string
	scheduled, started, completed time.Time
	result                        *commonpb.Payloads
}

// epoch returns under which epoch a look was made.
func (w worked) epoch() (int64, error) {
	var r workflows.AssessResult
	err := converter.GetDefaultDataConverter().FromPayloads(w.result, &r)
	return r.Epoch, err
}

func (m *reconciling) trace(ctx context.Context, app int) (traced, error) {
	var t traced
	at := map[int64]int{} // the place in done, by the event that scheduled it
	h := m.product.temporal.GetWorkflowHistory(ctx, appWorkflow(app), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for h.HasNext() {
		e, err := h.Next()
		if err != nil {
			return t, fmt.Errorf("read the history of %s: %w", appWorkflow(app), err)
		}
		now := e.GetEventTime().AsTime()
		if s := e.GetWorkflowExecutionSignaledEventAttributes(); s.GetSignalName() == api.SignalWake {
			t.woken = append(t.woken, now)
		}
		if s := e.GetActivityTaskScheduledEventAttributes(); s != nil {
			at[e.GetEventId()] = len(t.done)
			t.done = append(t.done, worked{name: s.GetActivityType().GetName(), scheduled: now})
		}
		if s := e.GetActivityTaskStartedEventAttributes(); s != nil {
			t.done[at[s.GetScheduledEventId()]].started = now
		}
		if s := e.GetActivityTaskCompletedEventAttributes(); s != nil {
			w := &t.done[at[s.GetScheduledEventId()]]
			w.completed, w.result = now, s.GetResult()
		}
	}
	return t, nil
}

// way is where the time went between something that happened in the lattice and
// the command that repairs it, in milliseconds.
type way struct {
	noticed  float64 // until the workflow's wake is in its history
	assess   float64 // the look, while it ran
	temporal float64 // from the wake to the start of the command's activity, without the look
	sent     float64 // from there until the host has the command
}

func (w way) whole() float64 { return w.noticed + w.assess + w.temporal + w.sent }

// wayTo finds the way from what happened to a command: the last wake, look and
// commands before it.
func (t traced) wayTo(happened, received time.Time) (way, error) {
	var look, command worked
	for _, w := range t.done {
		switch {
		case w.name == workflows.ActivityCommands && w.started.After(happened) && w.started.Before(received):
			command = w
		case w.name == workflows.ActivityAssess && w.scheduled.After(happened) && !w.completed.IsZero() && w.completed.Before(received):
			look = w
		}
	}
	var wake time.Time
	for _, at := range t.woken {
		if at.After(happened) && !at.After(look.scheduled) {
			wake = at
		}
	}
	if wake.IsZero() || look.name == "" || command.name == "" {
		return way{}, fmt.Errorf("the history does not tell how a command came about that was received %s after its reason", received.Sub(happened))
	}
	ms := func(from, to time.Time) float64 { return milliseconds(to.Sub(from)) }
	run := ms(look.started, look.completed)
	return way{ms(happened, wake), run, ms(wake, command.started) - run, ms(command.started, received)}, nil
}
