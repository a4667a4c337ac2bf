package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// awaitGate shows why the phase does not ask for a node yet, and looks again when
// something has happened: a hold was released or its bound is reached, a back-off
// is over. A nudge ends a back-off; of a hold it changes nothing.
func (p *phase) awaitGate(w ledger.Pause) (ledger.Outcome, error) {
	if err := p.declarePause(w); err != nil {
		return ledger.Outcome{}, err
	}
	gate := &ledger.Gate{Hold: p.in.Command.Hold, Attempt: w.Attempt}
	ctx, stop := workflow.WithCancel(p.work)
	defer stop()
	sel := workflow.NewSelector(p.work)
	if timer := p.pauseTimer(ctx, w); timer != nil {
		sel.AddFuture(timer, func(workflow.Future) {
			if w.Kind == ledger.KindHold {
				gate.Expire = true
			} else {
				gate.Resume = ledger.WakeTimer
			}
		})
	}
	sel.AddReceive(p.nudge, func(workflow.ReceiveChannel, bool) {
		acts := p.takeNudges()
		if w.Kind == ledger.KindBackoff && len(acts) > 0 {
			gate.Resume, gate.By = ledger.WakeNudge, &acts[0]
		}
	})
	if w.Kind == ledger.KindHold {
		sel.AddReceive(p.release, func(workflow.ReceiveChannel, bool) { gate.Release = p.takeRelease() })
	}
	sel.AddReceive(p.work.Done(), func(workflow.ReceiveChannel, bool) {})
	sel.Select(p.work)
	if p.cancel.requested() {
		return ledger.Outcome{}, nil
	}
	if err := p.recordActs(); err != nil {
		return ledger.Outcome{}, err
	}
	p.gate = gate
	return p.firstLook()
}

// ownGate is what the document says of the phase's gate; nil: nothing. What was
// decided there already, the database knows.
func (p *phase) ownGate() *ledger.Gate {
	if p.in.Command.Hold == nil {
		return nil
	}
	return &ledger.Gate{Hold: p.in.Command.Hold}
}

// firstGate is the gate that the workflow's run starts at: the one that an earlier
// run was to speak of, and none when the phase was in the queue.
func (p *phase) firstGate() *ledger.Gate {
	w := p.in.Resume.Waiting
	switch {
	case p.in.Resume.Gate != nil:
		return p.in.Resume.Gate
	case w != nil && w.Code != capacity.CodePlacerUnavailable:
		return nil
	}
	return p.ownGate()
}

// pauseTimer fires when the pause is over by itself; nil: it never is.
func (p *phase) pauseTimer(ctx workflow.Context, w ledger.Pause) workflow.Future {
	summary := "attempt again at " + stamp(w.Next)
	switch {
	case w.Kind == ledger.KindHold && w.Bound.IsZero():
		return nil
	case w.Kind == ledger.KindHold:
		summary = "the hold fails at " + stamp(w.Bound)
	}
	return workflow.NewTimerWithOptions(ctx, w.Left, workflow.TimerOptions{Summary: summary})
}

func (p *phase) declarePause(w ledger.Pause) error {
	shown := wait{kind: w.Kind, code: w.Code, reason: w.Sentence, since: w.Since, bound: w.Bound}
	switch w.Kind {
	case ledger.KindHold:
		shown.next = "as soon as somebody releases it"
	default:
		shown.next = stamp(w.Next)
	}
	return p.waits.declare(p.ctx, shown)
}

// takeNudges empties the channel of nudges, one of which was signalled, so that a
// burst of them costs one look, and keeps who sent them. What cannot be read is
// dropped, so that there may be none.
func (p *phase) takeNudges() []ledger.Act {
	var acts []ledger.Act
	for said := any(nil); p.nudge.ReceiveAsync(&said); said = nil {
		actor, _ := readWords(said)
		acts = append(acts, p.act(ledger.ActNudge, actor, ""))
	}
	p.acts = append(p.acts, acts...)
	return acts
}

// takeRelease returns a release that has come; nil: none has, or nothing that can
// be read.
func (p *phase) takeRelease() *ledger.Act {
	var said any
	if !p.release.ReceiveAsync(&said) {
		return nil
	}
	actor, note := readWords(said)
	act := p.act(ledger.ActRelease, actor, note)
	return &act
}

// act numbers what people do to the phase. Signals that came before the point a
// workflow is reset to get the numbers they had, and so do those that Temporal
// gives to the new run.
func (p *phase) act(verb, actor, note string) ledger.Act {
	p.numbered++
	return ledger.Act{Key: fmt.Sprintf("%s/%s/%d", workflow.GetInfo(p.ctx).OriginalRunID, verb, p.numbered), Verb: verb, Actor: actor, Note: note}
}

// recordActs writes who nudged the phase since the last time.
func (p *phase) recordActs() error {
	if len(p.acts) == 0 {
		return nil
	}
	in := RecordActsInput{PhaseID: p.in.PhaseID, Acts: p.acts}
	p.acts = nil
	return callEngine(p.work, "record who nudged", ActivityRecordActs, in, nil)
}
