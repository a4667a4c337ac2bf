package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
	"tidewait/internal/webui"
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
	nodes              string    // how many stand in the way, and why; empty: no nodes do
	node               string    // that it waits for, or that its run is on; empty: none
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

// unanswered reports whether it is the placer that is waited for, which records all
// other waits for capacity.
func (w wait) unanswered() bool { return w.code == string(capacity.CodePlacerUnavailable) }

// same reports whether nothing that lists show has changed. The words for a lattice
// count its hosts, which come and go without a transition.
func (w wait) same(as wait) bool {
	return w.kind == as.kind && w.code == as.code && w.since.Equal(as.since) && w.bound.Equal(as.bound) &&
		(w.kind == ledger.KindLattice || w.headline() == as.headline())
}

// waits shows a workflow's wait where people look: search attributes, which
// lists are filtered by and show as columns; current details; the database, for
// the CLI and the API; and the page of the mission that a phase is of. Some waits
// are in the database already.
type waits struct {
	shown  wait
	header string
	of     api.Wait // who waits, by name; and the gateway of a mission
	// Whose wait it is. No phaseID: the mission's own. An application's: app.
	missionID, phaseID int64
	app                *ledger.AppKey
	// tell says to whoever else shows it that the wait has begun or changed, and
	// that it is over; nil: nobody does.
	tell func(wait)
}

// declare shows w. Search attributes are written on a transition only, since
// each write is an event; current details are free.
func (s *waits) declare(ctx workflow.Context, w wait) error {
	known := s.shown
	if w.kind == known.kind && (!w.recorded() || w.unanswered() && known.unanswered()) {
		w.since = known.since // which may be the database's
	}
	s.show(ctx, w)
	s.shown = w
	if w.same(known) {
		return nil
	}
	updates := []temporal.SearchAttributeUpdate{
		AttrWait.ValueSet(w.kind), AttrReason.ValueSet(w.code), AttrWhy.ValueSet(w.headline()), AttrSince.ValueSet(w.since), AttrBound.ValueUnset(),
	}
	if !w.bound.IsZero() {
		updates[4] = AttrBound.ValueSet(w.bound)
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		return err
	}
	if err := s.record(ctx, w); err != nil {
		return err
	}
	if known.kind != w.kind || !known.bound.Equal(w.bound) { // each word costs the other an event, and a code may change every minute
		s.say(s.shown)
	}
	return nil
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
	case w.unanswered():
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
	s.show(ctx, w)
	return workflow.UpsertTypedSearchAttributes(ctx, AttrSince.ValueSet(since))
}

func (s *waits) show(ctx workflow.Context, w wait) {
	of := s.of
	of.Kind, of.Code, of.Node = w.kind, w.code, w.node
	showPage(ctx, s.header+w.markdown(workflow.Now(ctx))+webui.YouCan(remedy.Of(of)...))
}

func (s *waits) say(w wait) {
	if s.tell != nil {
		s.tell(w)
	}
}

// clear ends the wait that is shown, if any, and says what happens now.
func (s *waits) clear(ctx workflow.Context, now string, more ...temporal.SearchAttributeUpdate) error {
	if s.shown.kind != "" {
		s.say(wait{})
	}
	return s.end(ctx, now, more...)
}

// end does so at the end of the workflow, which tells everybody by itself.
func (s *waits) end(ctx workflow.Context, now string, more ...temporal.SearchAttributeUpdate) error {
	showPage(ctx, s.header+now)
	if ended := s.shown; ended.kind != "" {
		s.shown = wait{}
		if err := clearRecord(ctx, ended); err != nil {
			return err
		}
		more = append(more, AttrWait.ValueUnset(), AttrReason.ValueUnset(), AttrWhy.ValueUnset(), AttrSince.ValueUnset(), AttrBound.ValueUnset())
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
	text := fmt.Sprintf("**waiting for %s** (`%s`), as of %s\n\n", w.what(), w.code, stamp(now)) +
		webui.Item("why", webui.Plain(w.reason)) + webui.Item("since", stamp(w.since)) + webui.Item(w.boundIs(), w.until())
	if w.position > 0 {
		text += webui.Item("place in line", fmt.Sprint(w.position))
	}
	if w.nodes != "" {
		text += webui.Item("nodes", w.nodes)
	}
	if w.starts != "" {
		text += webui.Item("starts", w.starts)
	}
	return text + webui.Item("next look", w.next)
}

// boundIs names what happens at the bound.
func (w wait) boundIs() string {
	if w.kind == ledger.KindNode {
		return "placed again by"
	}
	return "fails by itself"
}

func (w wait) until() string {
	if w.bound.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%s, %s after it began", stamp(w.bound), length(w.bound.Sub(w.since)))
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
