package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// place returns the phase's placement. Until there is one it waits, in the open.
func (p *phase) place() (ledger.Placed, error) {
	outcome, err := p.firstLook()
	for {
		switch {
		case p.cancel.requested():
			return ledger.Placed{}, p.cancelled()
		case err != nil:
			return ledger.Placed{}, err
		case outcome.Placed != nil:
			p.bound.end()
			p.progress.Waiting, p.progress.ChangedAt, p.progress.Attempt = nil, time.Time{}, outcome.Placed.Attempt
			return *outcome.Placed, nil
		case outcome.Incapable != nil:
			return ledger.Placed{}, failed(string(outcome.Incapable.Code), outcome.Incapable.Sentence, ledger.RunEnd{})
		case outcome.Ended != nil:
			return ledger.Placed{}, &phaseEnd{Ended: *outcome.Ended, written: true}
		case outcome.Paused != nil:
			p.bound.end()
			p.progress.Waiting = nil
			if p.isLong() && p.release.Len()+p.nudge.Len() == 0 { // what has come is read before that
				return ledger.Placed{}, p.continueAsNew()
			}
			outcome, err = p.awaitGate(*outcome.Paused)
			continue
		}
		if before := p.progress.Waiting; before != nil && before.Code != outcome.Waiting.Code && before.Code != capacity.CodePlacerUnavailable {
			// What the placer says after it did not answer is its first word.
			p.progress.ChangedAt = workflow.Now(p.ctx)
		}
		p.progress.Waiting = outcome.Waiting
		if p.isLong() {
			return ledger.Placed{}, p.continueAsNew()
		}
		outcome, err = p.awaitCapacity(*outcome.Waiting)
	}
}

func (p *phase) firstLook() (ledger.Outcome, error) {
	if w := p.progress.Waiting; w != nil {
		return ledger.Outcome{Waiting: w}, nil
	}
	showPage(p.ctx, p.waits.header+"asking for a node\n")
	var outcome ledger.Outcome
	in := PlaceInput{PhaseID: p.in.PhaseID, Attempt: p.progress.Attempt, Pool: p.in.Pool, Wake: ledger.WakeFirst, Gate: p.gate}
	err := workflow.ExecuteLocalActivity(withLocal(p.work, "ask for a node"), ActivityPlace, in).Get(p.work, &outcome)
	if err == nil {
		p.gate = nil // passed, or asked anew
		return outcome, nil
	}
	if isFinal(err) || p.cancel.requested() {
		return outcome, err
	}
	// The placer does not answer. That is a wait like any other: it has a code, a
	// start and a next look, and no bound, since nobody refused.
	return ledger.Outcome{Waiting: &ledger.Waiting{
		Code: capacity.CodePlacerUnavailable, Since: workflow.Now(p.ctx).UTC(),
		Sentence: "the placer does not answer: " + rootMessage(err),
	}}, nil
}

// awaitCapacity shows the wait and looks again until the outcome changes or
// something interrupts: one activity that the server retries, a timer for the
// bound beside it, and signals. After a signal the wait is the same as before,
// and the next look is due at once.
func (p *phase) awaitCapacity(w ledger.Waiting) (outcome ledger.Outcome, err error) {
	if err := p.declareCapacity(w); err != nil {
		return ledger.Outcome{}, err
	}
	p.startBound(w)
	ctx, stop := workflow.WithCancel(p.work)
	defer stop()
	try := p.retryPlace(ctx, w)

	outcome.Waiting = &w
	expired := false
	sel := workflow.NewSelector(p.work)
	sel.AddFuture(try, func(f workflow.Future) {
		var changed ledger.Outcome
		// Attempts that ran out are not the bound: the wait goes on.
		if err = f.Get(p.work, &changed); err == nil {
			outcome, p.gate = changed, nil // passed, or asked anew
		} else if !isFinal(err) {
			err = nil
		}
	})
	sel.AddReceive(p.nudge, func(workflow.ReceiveChannel, bool) { p.takeNudges(); p.wake = ledger.WakeNudge })
	sel.AddReceive(p.placed, func(c workflow.ReceiveChannel, _ bool) { drain(c); p.wake = ledger.WakeEvent })
	if p.bound.fires != nil {
		sel.AddFuture(p.bound.fires, func(workflow.Future) { expired = true })
	}
	sel.AddReceive(p.work.Done(), func(workflow.ReceiveChannel, bool) {})
	sel.Select(p.work)
	if expired {
		p.bound.end()
		return p.expire()
	}
	if err == nil {
		err = p.recordActs()
	}
	return outcome, err
}

// retryPlace starts the activity that the server retries. Its first try is for
// what woke the phase.
func (p *phase) retryPlace(ctx workflow.Context, w ledger.Waiting) workflow.Future {
	in := PlaceInput{
		PhaseID: p.in.PhaseID, Attempt: p.progress.Attempt, Pool: p.in.Pool,
		Wake: p.wake, Retrying: true, LastCode: w.Code, ChangedAt: p.progress.ChangedAt, Gate: p.gate,
	}
	p.wake = ledger.WakeTimer
	interval := p.in.Fleet.RetryInterval
	summary := clip(fmt.Sprintf("waiting (%s), looked at every %s: %s", w.Code, interval, shortage(w.Sentence)))
	return workflow.ExecuteActivity(withServerRetry(ctx, summary, interval, attemptsUntil(w.Left, interval)), ActivityPlace, in)
}

// shortage is what stands in the way, without what was asked for, which the
// phase's own summary says.
func shortage(sentence string) string {
	if _, after, ok := strings.Cut(sentence, "; "); ok {
		return after
	}
	return sentence
}

// drain empties a channel, so that a burst of signals costs one look.
func drain(c workflow.ReceiveChannel) {
	for c.ReceiveAsync(nil) {
		continue
	}
}

// bound is the timer that ends a wait.
type bound struct {
	fires workflow.Future // nil: none runs
	stop  workflow.CancelFunc
	at    time.Time // when it fires, by the workflow's clock
}

// startBound sets the timer for the wait's bound, once: neither a nudge nor
// another code moves it. Its length is the database's.
func (p *phase) startBound(w ledger.Waiting) {
	if p.bound.fires != nil || w.Bound.IsZero() {
		return
	}
	ctx, stop := workflow.WithCancel(p.work)
	p.bound = bound{
		fires: workflow.NewTimerWithOptions(ctx, w.Left, workflow.TimerOptions{Summary: "the wait fails at " + stamp(w.Bound)}),
		stop:  stop, at: workflow.Now(p.ctx).Add(w.Left),
	}
}

func (b *bound) end() {
	if b.fires != nil {
		b.stop()
	}
	*b = bound{}
}

// expire is the last look: placed after all, or over. It may also find that the
// database's clock has not reached the bound.
func (p *phase) expire() (ledger.Outcome, error) {
	var outcome ledger.Outcome
	in := ExpireInput{PhaseID: p.in.PhaseID, Attempt: p.progress.Attempt, Pool: p.in.Pool}
	err := callEngine(p.work, "the wait's last look", ActivityExpire, in, &outcome)
	return outcome, err
}

func (p *phase) declareCapacity(w ledger.Waiting) error {
	next := fmt.Sprintf("every %s, and whenever capacity is freed; the pending activity shows the latest", p.in.Fleet.RetryInterval)
	if w.Code == capacity.CodePlacerUnavailable {
		next = fmt.Sprintf("every %s; the pending activity shows the latest", p.in.Fleet.RetryInterval)
	}
	return p.waits.declare(p.ctx, wait{
		kind: ledger.KindCapacity, code: string(w.Code), reason: w.Sentence, since: w.Since, bound: w.Bound, position: w.Position, starts: starts(w),
		nodes: nodes(w.Counts), next: next,
	})
}

// nodes says how many nodes stand in the way, by cause.
func nodes(c capacity.Counts) string {
	var causes []string
	for _, cause := range []struct {
		n    int
		what string
	}{
		{c.Fit, "with room"},
		{c.Full, "full"},
		{c.Starting, "starting as many machines as they may"},
		{c.Held, "held for the first in line"},
		{c.Cordoned, "cordoned"},
		{c.Draining, "draining or drained"},
		{c.Lost, "that do not report"},
		{c.Incapable, "that could never run it"},
	} {
		if cause.n > 0 {
			causes = append(causes, fmt.Sprintf("%d %s", cause.n, cause.what))
		}
	}
	if len(causes) == 0 {
		return ""
	}
	return fmt.Sprintf("%d known: %s", c.Total(), strings.Join(causes, ", "))
}

// starts says when a phase in line is expected to start, and how sure that is.
func starts(w ledger.Waiting) string {
	s := w.Starts
	switch {
	case s == nil:
		return ""
	case s.Held:
		return fmt.Sprintf("by %s on %s at the latest, unless another phase goes ahead of it", stamp(s.By), s.On)
	default:
		return fmt.Sprintf("about %s on %s, if every run uses its whole turn and nobody joins the line", stamp(s.By), s.On)
	}
}

// isLong reports whether the history is to be cut.
func (p *phase) isLong() bool { return workflow.GetInfo(p.ctx).GetContinueAsNewSuggested() }

// continueAsNew goes on with the same wait in a new run. A release is taken along
// until the database has it. Other signals that are left unread are no loss: the
// new run looks at once.
func (p *phase) continueAsNew() error {
	next := p.in
	if p.gate != nil && p.gate.Hold != nil && p.gate.Release == nil {
		p.gate.Release = p.takeRelease()
	}
	next.Resume = p.progress
	next.Resume.Gate, next.Resume.Shown = p.gate, shownOf(p.waits.shown)
	if p.progress.Waiting != nil {
		w := *p.progress.Waiting
		if p.bound.fires != nil {
			w.Left = p.bound.at.Sub(workflow.Now(p.ctx))
		}
		next.Resume.Waiting = &w
	}
	return workflow.NewContinueAsNewError(p.ctx, api.PhaseWorkflow, next)
}
