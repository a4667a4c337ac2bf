package workflows

import (
	"fmt"
	"strings"
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
	if w.kind == s.shown.kind && w.code == s.shown.code && w.since.Equal(s.shown.since) {
		s.shown = w
		return nil
	}
	s.shown = w
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
	var b strings.Builder
	fmt.Fprintf(&b, "**waiting for %s** (`%s`)\n\n", w.kind, w.code)
	fmt.Fprintf(&b, "- **why:** %s\n", w.reason)
	fmt.Fprintf(&b, "- **since:** %s\n", stamp(w.since))
	if w.bound.IsZero() {
		b.WriteString("- **fails by itself:** never\n")
	} else {
		fmt.Fprintf(&b, "- **fails by itself:** %s, after %s\n", stamp(w.bound), w.bound.Sub(w.since).Round(time.Second))
	}
	if w.position > 0 {
		fmt.Fprintf(&b, "- **place in line:** %d\n", w.position)
	}
	fmt.Fprintf(&b, "- **next look:** %s\n", w.next)
	fmt.Fprintf(&b, "- **you can:** %s\n", w.hint)
	fmt.Fprintf(&b, "- **as of:** %s\n", stamp(now))
	return b.String()
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
