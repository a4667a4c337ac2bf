package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// wait is the record of something that waits: what, why, since when, until
// when, and what a person can do. Nothing but this file declares one.
type wait struct {
	kind, code, reason string
	since              time.Time
	bound              time.Time // zero: none
	next               string    // when and how it is looked at again
	position           int       // zero: no queue
	starts             string    // when it is expected to be over; empty: not known
	hint               string    // what a person can do
	found              bool      // by an engine, which has recorded it and will end it
}

// recorded reports whether whoever found the wait has written it into the
// database, and will end it there: the placer and its gate, or the observer of a
// lattice.
func (w wait) recorded() bool {
	if w.found {
		return true
	}
	switch w.kind {
	case ledger.KindCapacity, ledger.KindHold, ledger.KindLattice, ledger.KindBackoff, ledger.KindDependency:
		return true
	}
	return false
}

// waits shows a workflow's wait where people look: search attributes, which
// lists are filtered by; current details; and the database, for the CLI and the
// API. Some waits are in the latter already.
type waits struct {
	shown  wait
	header string
	// Whose wait it is. No phaseID: the mission's own. An application's: app.
	missionID, phaseID int64
	app                *ledger.AppKey
}

// declare shows w. Search attributes are written on a transition only, since
// each write is an event; current details are free.
func (s *waits) declare(ctx workflow.Context, w wait) error {
	known := s.shown
	if w.kind == known.kind && !w.recorded() {
		w.since = known.since
	}
	workflow.SetCurrentDetails(ctx, s.header+w.markdown(workflow.Now(ctx)))
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
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		return err
	}
	return s.record(ctx, w)
}

// record writes w into the database, unless whoever found it has. Since when it
// waits is the database's to say: a workflow that was reset has waited before.
func (s *waits) record(ctx workflow.Context, w wait) error {
	summary := "record that it waits: " + w.code
	note := ledger.OpenWait{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, MissionID: s.missionID, PhaseID: s.phaseID, App: s.app,
		Kind: w.kind, Code: w.code, Reason: w.reason, Since: w.since, Bound: w.bound,
	}
	var since time.Time
	switch {
	case w.code == string(capacity.CodePlacerUnavailable):
		// It may be the database that does not answer: then nobody can read of it there.
		_ = workflow.ExecuteLocalActivity(withOneTry(ctx, summary), ActivityNoteWait, note).Get(ctx, &since)
	case w.recorded():
		return nil
	default:
		if err := callEngine(ctx, summary, ActivityNoteWait, note, &since); err != nil {
			return err
		}
	}
	if since.IsZero() || since.Sub(w.since).Abs() < time.Millisecond {
		return nil
	}
	w.since, s.shown.since = since, since
	workflow.SetCurrentDetails(ctx, s.header+w.markdown(workflow.Now(ctx)))
	return workflow.UpsertTypedSearchAttributes(ctx, AttrSince.ValueSet(since))
}

// clear ends the wait that is shown, if any, and says what happens now.
func (s *waits) clear(ctx workflow.Context, now string, more ...temporal.SearchAttributeUpdate) error {
	workflow.SetCurrentDetails(ctx, s.header+now)
	if ended := s.shown; ended.kind != "" {
		s.shown = wait{}
		if err := clearRecord(ctx, ended); err != nil {
			return err
		}
		more = append(more, AttrWait.ValueUnset(), AttrReason.ValueUnset(), AttrSince.ValueUnset(), AttrBound.ValueUnset())
	}
	if len(more) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, more...)
}

// clearRecord ends the wait in the database, unless whoever ended it has. It is
// not given up for a cancellation.
func clearRecord(ctx workflow.Context, w wait) error {
	if w.recorded() {
		return nil
	}
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	return callEngine(ctx, "record that the wait is over", ActivityClearWait, workflow.GetInfo(ctx).WorkflowExecution.ID, nil)
}

func (w wait) markdown(now time.Time) string {
	bound := "fails by itself"
	if w.kind == ledger.KindNode {
		bound = "placed again by"
	}
	until := "never"
	if !w.bound.IsZero() {
		until = fmt.Sprintf("%s, after %s", stamp(w.bound), w.bound.Sub(w.since).Round(time.Second))
	}
	text := fmt.Sprintf("**waiting for %s** (`%s`), as of %s\n\n- **why:** %s\n- **since:** %s\n- **%s:** %s\n",
		w.what(), w.code, stamp(now), w.reason, stamp(w.since), bound, until)
	if w.position > 0 {
		text += fmt.Sprintf("- **place in line:** %d\n", w.position)
	}
	if w.starts != "" {
		text += fmt.Sprintf("- **starts:** %s\n", w.starts)
	}
	return text + fmt.Sprintf("- **next look:** %s\n- **you can:** %s\n", w.next, w.hint)
}

// what is waited for. Most kinds are called by it.
func (w wait) what() string {
	switch w.kind {
	case ledger.KindHold:
		return "release"
	case ledger.KindBackoff:
		return "the next try"
	}
	return w.kind
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
