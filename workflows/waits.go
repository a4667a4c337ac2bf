package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// wait is the record of something that waits: what, why, since when, until
// when, and what a person can do. Nothing but this file declares one.
type wait struct {
	kind, code, reason string
	since              time.Time
	bound              time.Time // zero: none
	next               string    // when and how it is looked at again
	position           int       // zero: no queue
	hint               string    // what a person can do
}

// Kinds of waits.
const (
	kindCapacity = "capacity"
	kindNode     = "node"
	kindGateway  = "gateway"
)

// waits shows a workflow's wait where people look: search attributes, which
// lists are filtered by, and current details, which are the first thing seen
// of a workflow.
type waits struct {
	shown  wait
	header string
}

// declare shows w. Search attributes are written on a transition only, since
// each write is an event; current details are free.
func (s *waits) declare(ctx workflow.Context, w wait) error {
	workflow.SetCurrentDetails(ctx, s.header+w.markdown(workflow.Now(ctx)))
	known := s.shown
	s.shown = w
	if w.kind == known.kind && w.code == known.code && w.since.Equal(known.since) && w.bound.Equal(known.bound) {
		return nil
	}
	updates := []temporal.SearchAttributeUpdate{
		AttrWait.ValueSet(w.kind), AttrReason.ValueSet(w.code), AttrSince.ValueSet(w.since), AttrBound.ValueUnset(),
	}
	if !w.bound.IsZero() {
		updates[3] = AttrBound.ValueSet(w.bound)
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}

// clear ends the wait that is shown, if any, and says what happens now.
func (s *waits) clear(ctx workflow.Context, now string, more ...temporal.SearchAttributeUpdate) error {
	workflow.SetCurrentDetails(ctx, s.header+now)
	if s.shown.kind != "" {
		s.shown = wait{}
		more = append(more, AttrWait.ValueUnset(), AttrReason.ValueUnset(), AttrSince.ValueUnset(), AttrBound.ValueUnset())
	}
	if len(more) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, more...)
}

func (w wait) markdown(now time.Time) string {
	fails := "never"
	if !w.bound.IsZero() {
		fails = fmt.Sprintf("%s, after %s", stamp(w.bound), w.bound.Sub(w.since).Round(time.Second))
	}
	text := fmt.Sprintf("**waiting for %s** (`%s`)\n\n- **why:** %s\n- **since:** %s\n- **fails by itself:** %s\n",
		w.kind, w.code, w.reason, stamp(w.since), fails)
	if w.position > 0 {
		text += fmt.Sprintf("- **place in line:** %d\n", w.position)
	}
	return text + fmt.Sprintf("- **next look:** %s\n- **you can:** %s\n- **as of:** %s\n", w.next, w.hint, stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
