package workflows

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/webui"
)

// Failure codes of a phase that the workflow itself decides.
const (
	codeCommandFailed = ledger.CodeCommandFailed
	codeOutOfMemory   = "out_of_memory"
	codeNodeLost      = "node_lost"
	codeCancelled     = "cancelled"
	codeInternal      = "internal"
)

// Phase takes one phase from its place in the queue to its commit: it is
// placed, waiting as long as it must and may; its run is executed on the node;
// its results become a commit on the gateway. It closes as completed, failed
// with the phase's reason, or canceled.
func Phase(ctx workflow.Context, in PhaseInput) (PhaseResult, error) {
	p := newPhase(ctx, in)
	for {
		end, err := p.attempt()
		if workflow.IsContinueAsNewError(err) {
			return PhaseResult{}, err
		}
		if err != nil {
			end = p.endOf(err)
		}
		if end != nil {
			return p.close(end)
		}
	}
}

// attempt places the phase and runs it once. It returns no end when the phase
// is back in the queue.
func (p *phase) attempt() (*phaseEnd, error) {
	placed, err := p.place()
	if err != nil {
		return nil, err
	}
	return p.execute(placed)
}

// phase is the state of one Phase workflow.
type phase struct {
	ctx    workflow.Context // ends with the workflow's native cancellation
	work   workflow.Context // ends with that, or with a cancel signal
	cancel cancellation

	in       PhaseInput
	lingers  bool // the node may still have the machine of the latest run
	progress PhaseProgress
	waits    waits
	gate     *ledger.Gate // what to say at the next look before the queue; nil: nothing new
	nudge    workflow.ReceiveChannel
	release  workflow.ReceiveChannel
	placed   workflow.ReceiveChannel
	evict    workflow.ReceiveChannel
	told     workflow.ReceiveChannel // that the run waits
	acts     []ledger.Act            // of people, not recorded yet
	numbered int                     // acts so far
	wake     ledger.Wake             // why the next look is taken
	bound    bound
	ran      *ledger.Placed // the latest run; nil: none yet
}

func newPhase(ctx workflow.Context, in PhaseInput) *phase {
	p := &phase{ctx: ctx, in: in, progress: in.Resume, wake: ledger.WakeTimer}
	if p.progress.Attempt == 0 {
		p.progress.Attempt = 1
	}
	p.gate = p.firstGate()
	p.waits.header = fmt.Sprintf("phase %d **%s** of mission %s, launch %d\n\n",
		in.Ordinal, in.Command.Name, webui.Link(in.Mission, api.MissionWorkflowID(in.Mission)), in.Launch)
	p.waits.missionID, p.waits.phaseID = in.MissionID, in.PhaseID
	p.waits.of = api.Wait{Mission: in.Mission, Phase: in.Command.Name, Gateway: in.Gateway}
	p.waits.shown, p.waits.tell = in.Resume.Shown.wait(), p.tellMission
	p.nudge = workflow.GetSignalChannelWithOptions(ctx, api.SignalNudge, workflow.SignalChannelOptions{
		Description: `look at the waiting phase now; the bound does not move. Input: {"actor": "you"}`,
	})
	p.release = workflow.GetSignalChannelWithOptions(ctx, api.SignalRelease, workflow.SignalChannelOptions{
		Description: `let the held phase ask for a node. Input: {"actor": "you", "note": "what was looked at"}`,
	})
	p.placed = workflow.GetSignalChannelWithOptions(ctx, ledger.SignalPlaced, workflow.SignalChannelOptions{
		Description: "sent by the placer when a waiting phase got a node",
	})
	p.evict = workflow.GetSignalChannelWithOptions(ctx, ledger.SignalEvict, workflow.SignalChannelOptions{
		Description: "sent by the engine when the drain of the phase's node is over; the phase goes back to the queue",
	})
	p.told = workflow.GetSignalChannelWithOptions(ctx, ledger.SignalRunWaits, workflow.SignalChannelOptions{
		Description: "sent by the engine when the phase's run waits for its secrets, and when it has them",
	})
	p.cancel = newCancellation(ctx, "end the phase, whether it waits or runs.")
	p.work = p.cancel.work
	workflow.Go(ctx, func(ctx workflow.Context) {
		if workflow.Await(ctx, p.cancel.signalled) == nil {
			p.cancel.stop()
		}
	})
	return p
}

// phaseEnd is a phase's final status. As an error it is on its way out of the
// steps of the workflow.
type phaseEnd struct {
	ledger.Ended
	run      ledger.RunEnd
	checkout Checkout // what the next phase starts from, after a success
	// written says that the database has it already.
	written bool
}

func (e *phaseEnd) Error() string { return e.Failure }

func failed(code, sentence string, run ledger.RunEnd) *phaseEnd {
	return &phaseEnd{Ended: ledger.Ended{Status: "failed", FailureCode: code, Failure: sentence}, run: run}
}

// cancelledNatively is all that is known of a cancellation without a signal.
const cancelledNatively = "cancelled with its mission or through Temporal"

// cancelled returns the end of a phase that a person or its mission ended.
func (p *phase) cancelled() *phaseEnd {
	sentence := p.cancel.sentence(cancelledNatively)
	return &phaseEnd{
		Ended: ledger.Ended{Status: "cancelled", FailureCode: codeCancelled, Failure: sentence, By: p.cancel.act()},
		run:   ledger.RunEnd{Status: "cancelled", FailureCode: codeCancelled, Failure: sentence},
	}
}

// endOf returns the end that an error of a step means.
func (p *phase) endOf(err error) *phaseEnd {
	var end *phaseEnd
	switch {
	case errors.As(err, &end):
		return end
	case temporal.IsCanceledError(err) && p.cancel.requested():
		return p.cancelled()
	}
	sentence := rootMessage(err)
	return failed(codeInternal, sentence, ledger.RunEnd{Status: "failed", FailureCode: codeInternal, Failure: sentence})
}

// close writes the phase's end, unless it is written, and closes the workflow
// the same way. What the database says counts: the phase may have been ended
// there meanwhile.
func (p *phase) close(end *phaseEnd) (PhaseResult, error) {
	if !end.written {
		if err := p.finish(end); err != nil {
			return PhaseResult{}, err
		}
	}
	if err := p.waits.end(p.ctx, p.endMarkdown(end)); err != nil {
		return PhaseResult{}, err
	}
	switch end.Status {
	case "succeeded":
		return PhaseResult{Checkout: end.checkoutIn(p.in.Checkout.Branch), Images: p.images()}, nil
	case "cancelled":
		return PhaseResult{}, temporal.NewCanceledError(end.Ended)
	}
	return PhaseResult{}, temporal.NewNonRetryableApplicationError(end.Failure, ErrTypePhaseFailed, nil, end.Ended)
}

// finish writes the phase's end, on a context that a cancellation does not end.
func (p *phase) finish(end *phaseEnd) error {
	ctx, stop := workflow.NewDisconnectedContext(p.ctx)
	defer stop()
	in := FinishPhaseInput{PhaseID: p.in.PhaseID, Run: end.run, End: end.Ended}
	in.Run.Lingers = p.lingers
	end.Ended = ledger.Ended{}
	return callEngine(ctx, "record: "+in.End.Status, ActivityFinishPhase, in, &end.Ended)
}

// checkoutIn returns the checkout after a success. Of a phase that had succeeded
// before this run of the workflow only the commit is known.
func (e *phaseEnd) checkoutIn(branch string) Checkout {
	if e.checkout.Commit == e.Commit {
		return e.checkout
	}
	return Checkout{Branch: branch, Commit: e.Commit}
}

// rootMessage is the innermost sentence of a Temporal failure.
func rootMessage(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// clip shortens a sentence for a summary, which the server bounds.
func clip(s string) string { return clipTo(150, s) }

func clipTo(most int, s string) string {
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
