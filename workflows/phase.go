package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/vm"
)

// Failure codes of a phase that the workflow itself decides.
const (
	codeCommandFailed = "command_failed"
	codeNodeLost      = "node_lost"
	codeCancelled     = "cancelled"
	codeInternal      = "internal"
)

const (
	// maxLost is how many runs a phase may lose with their nodes.
	maxLost = 3
	// gatewayPickup is how long a live gateway takes at most to pick work up.
	gatewayPickup = 10 * time.Second
	// judgeInterval is between questions about a run whose activity was lost.
	judgeInterval = 2 * time.Second
)

// Phase takes one phase from its place in the queue to its commit: it is
// placed, waiting as long as it must and may; its run is executed on the node;
// its results become a commit on the gateway. It closes as completed, failed
// with the phase's reason, or canceled.
func Phase(ctx workflow.Context, in PhaseInput) (PhaseResult, error) {
	p := newPhase(ctx, in)
	for {
		placed, err := p.place()
		if err != nil {
			return p.close(err)
		}
		checkout, again, err := p.execute(placed)
		if err != nil {
			return p.close(err)
		}
		if !again {
			return PhaseResult{Checkout: checkout}, nil
		}
	}
}

// phase is the state of one Phase workflow.
type phase struct {
	ctx  workflow.Context // ends with the workflow's native cancellation
	work workflow.Context // ends with that, or with a cancel signal
	stop workflow.CancelFunc

	in       PhaseInput
	progress PhaseProgress
	waits    waits
	nudge    workflow.ReceiveChannel
	placed   workflow.ReceiveChannel
	cancel   *api.Cancel // the signal, once it came

	bound     workflow.Future // fires when the wait's bound is reached; nil: none runs
	stopBound workflow.CancelFunc
}

func newPhase(ctx workflow.Context, in PhaseInput) *phase {
	p := &phase{ctx: ctx, in: in, progress: in.Resume}
	if p.progress.Attempt == 0 {
		p.progress.Attempt = 1
	}
	p.waits.header = fmt.Sprintf("phase %d **%s** of mission **%s**, launch %d\n\n", in.Ordinal, in.Command.Name, in.Mission, in.Launch)
	p.work, p.stop = workflow.WithCancel(ctx)
	p.nudge = workflow.GetSignalChannelWithOptions(ctx, api.SignalNudge, workflow.SignalChannelOptions{
		Description: `look at the waiting phase now; the bound does not move. Input: {"actor": "you"}`,
	})
	p.placed = workflow.GetSignalChannelWithOptions(ctx, ledger.SignalPlaced, workflow.SignalChannelOptions{
		Description: "sent by the placer when a waiting phase got a node",
	})
	cancels := workflow.GetSignalChannelWithOptions(ctx, api.SignalCancel, workflow.SignalChannelOptions{
		Description: `end the phase, whether it waits or runs. Input: {"actor": "you", "reason": "why"}`,
	})
	workflow.Go(ctx, func(ctx workflow.Context) {
		var c api.Cancel
		cancels.Receive(ctx, &c)
		p.cancel = &c
		p.stop()
	})
	return p
}

// phaseEnd is a phase's final status on its way out of the workflow.
type phaseEnd struct {
	ledger.Ended
	run ledger.RunEnd
	// written says that the database has it already.
	written bool
}

func (e *phaseEnd) Error() string { return e.Failure }

func failed(code, sentence string, run ledger.RunEnd) *phaseEnd {
	return &phaseEnd{Ended: ledger.Ended{Status: "failed", FailureCode: code, Failure: sentence}, run: run}
}

// place returns the phase's placement. Until there is one it waits, in the open.
func (p *phase) place() (ledger.Placed, error) {
	outcome, err := p.firstLook()
	for {
		if p.work.Err() != nil {
			return ledger.Placed{}, p.cancelled()
		}
		if err != nil {
			return ledger.Placed{}, err
		}
		switch {
		case outcome.Placed != nil:
			p.progress.Waiting = nil
			p.endBound()
			return *outcome.Placed, nil
		case outcome.Incapable != nil:
			r := outcome.Incapable
			return ledger.Placed{}, failed(string(r.Code), r.Sentence, ledger.RunEnd{})
		case outcome.Ended != nil:
			return ledger.Placed{}, &phaseEnd{Ended: *outcome.Ended, written: true}
		}
		p.progress.Waiting = outcome.Waiting
		if workflow.GetInfo(p.ctx).GetContinueAsNewSuggested() {
			return ledger.Placed{}, p.continueAsNew()
		}
		outcome, err = p.awaitCapacity(*outcome.Waiting)
	}
}

func (p *phase) firstLook() (ledger.Outcome, error) {
	if w := p.progress.Waiting; w != nil {
		return ledger.Outcome{Waiting: w}, nil
	}
	workflow.SetCurrentDetails(p.ctx, p.waits.header+"asking for a node")
	var outcome ledger.Outcome
	in := PlaceInput{PhaseID: p.in.PhaseID, Attempt: p.progress.Attempt, Pool: p.in.Pool, Wake: ledger.WakeFirst}
	err := workflow.ExecuteActivity(withFirstLook(p.work), ActivityPlace, in).Get(p.work, &outcome)
	if err != nil && p.work.Err() == nil {
		// The placer does not answer. That is a wait like any other: it has a
		// code, a start and a next look, and no bound, since nobody refused.
		return ledger.Outcome{Waiting: &ledger.Waiting{
			Code: capacity.CodePlacerUnavailable, Since: workflow.Now(p.ctx),
			Sentence: "the placer does not answer: " + rootMessage(err),
		}}, nil
	}
	return outcome, err
}

// awaitCapacity shows the wait and keeps trying until the outcome changes: one
// activity that the server retries, a timer for the bound beside it, and the
// signals that interrupt both.
func (p *phase) awaitCapacity(w ledger.Waiting) (ledger.Outcome, error) {
	if err := p.declareCapacity(w); err != nil {
		return ledger.Outcome{}, err
	}
	p.startBound(w)
	wake := ledger.WakeTimer
	for {
		outcome, interrupted, err := p.retryUntilWoken(w, wake)
		if err != nil || interrupted == "" {
			return outcome, err
		}
		switch interrupted {
		case interruptBound:
			p.endBound()
			return p.expire()
		case interruptNudge:
			wake = ledger.WakeNudge
		case interruptPlaced:
			wake = ledger.WakeEvent
		case interruptCancel:
			return ledger.Outcome{}, nil
		}
	}
}

// startBound sets the timer for the wait's bound, once: neither a nudge nor
// another code moves it. Its length is the database's.
func (p *phase) startBound(w ledger.Waiting) {
	if p.bound != nil || w.Bound.IsZero() {
		return
	}
	var ctx workflow.Context
	ctx, p.stopBound = workflow.WithCancel(p.work)
	p.bound = workflow.NewTimerWithOptions(ctx, w.Left, workflow.TimerOptions{Summary: "the wait fails at " + stamp(w.Bound)})
}

func (p *phase) endBound() {
	if p.bound != nil {
		p.stopBound()
	}
	p.bound = nil
}

const (
	interruptBound  = "bound"
	interruptNudge  = "nudge"
	interruptPlaced = "placed"
	interruptCancel = "cancel"
)

// retryUntilWoken issues the server-side retry and returns its outcome, or what
// interrupted it. wake is the reason of its first try.
func (p *phase) retryUntilWoken(w ledger.Waiting, wake ledger.Wake) (outcome ledger.Outcome, interrupted string, err error) {
	ctx, stop := workflow.WithCancel(p.work)
	defer stop()
	in := PlaceInput{
		PhaseID: p.in.PhaseID, Attempt: p.progress.Attempt, Pool: p.in.Pool,
		Wake: wake, Retrying: true, LastCode: w.Code,
	}
	summary := fmt.Sprintf("waiting for capacity (%s): look again every %s", w.Code, p.in.Fleet.RetryInterval)
	try := workflow.ExecuteActivity(withServerRetry(ctx, summary, p.in.Fleet.RetryInterval, attemptsUntil(w.Left, p.in.Fleet.RetryInterval)), ActivityPlace, in)

	sel := workflow.NewSelector(p.work)
	sel.AddFuture(try, func(f workflow.Future) {
		if err = f.Get(p.work, &outcome); err != nil && !isFinal(err) {
			// Attempts that ran out are not the bound: go on.
			outcome, err = ledger.Outcome{Waiting: &w}, nil
		}
	})
	sel.AddReceive(p.nudge, func(c workflow.ReceiveChannel, _ bool) { drain(c); interrupted = interruptNudge })
	sel.AddReceive(p.placed, func(c workflow.ReceiveChannel, _ bool) { drain(c); interrupted = interruptPlaced })
	if p.bound != nil {
		sel.AddFuture(p.bound, func(workflow.Future) { interrupted = interruptBound })
	}
	sel.AddReceive(p.work.Done(), func(workflow.ReceiveChannel, bool) { interrupted = interruptCancel })
	sel.Select(p.work)
	return outcome, interrupted, err
}

// drain empties a channel, so that a burst of signals costs one look.
func drain(c workflow.ReceiveChannel) {
	for c.ReceiveAsync(nil) {
	}
}

// expire is the last look: placed after all, or over. It may also find that the
// database's clock has not reached the bound.
func (p *phase) expire() (ledger.Outcome, error) {
	var outcome ledger.Outcome
	in := ExpireInput{PhaseID: p.in.PhaseID, Attempt: p.progress.Attempt, Pool: p.in.Pool}
	err := workflow.ExecuteActivity(withEngine(p.work, "the wait's last look"), ActivityExpire, in).Get(p.work, &outcome)
	return outcome, err
}

func (p *phase) declareCapacity(w ledger.Waiting) error {
	return p.waits.declare(p.ctx, wait{
		kind: kindCapacity, code: string(w.Code), reason: w.Sentence, since: w.Since, bound: w.Bound, position: w.Position,
		next: fmt.Sprintf("every %s, and whenever capacity is freed; see the pending activity for the latest", p.in.Fleet.RetryInterval),
		hint: fmt.Sprintf("free or add a node; look now with `tidewait phase nudge %[1]s %[2]s`; give up with `tidewait phase cancel %[1]s %[2]s`", p.in.Mission, p.in.Command.Name),
	})
}

// execute runs the phase on its node and commits what it left. again says that
// the phase goes back to the queue.
func (p *phase) execute(placed ledger.Placed) (checkout Checkout, again bool, err error) {
	now := fmt.Sprintf("running on node **%s** as run `%s`", placed.NodeID, placed.RunID)
	if err := p.waits.clear(p.ctx, now, AttrNode.ValueSet(placed.NodeID)); err != nil {
		return Checkout{}, false, err
	}
	res, err := p.run(placed)
	if p.work.Err() != nil {
		return Checkout{}, false, p.cancelled()
	}
	if err != nil || res.Lost {
		return Checkout{}, true, p.lose(placed, res, err)
	}
	if failure := verdict(p.in.Command, res); failure != nil {
		p.progress.Failed++
		if p.progress.Failed < p.in.Command.Attempts {
			return Checkout{}, true, p.retry(placed, failure.run)
		}
		return Checkout{}, false, failure
	}
	checkout, err = p.commit(placed, res)
	if p.work.Err() != nil {
		return Checkout{}, false, p.cancelled()
	}
	if err != nil {
		return Checkout{}, false, err
	}
	end := &phaseEnd{
		Ended: ledger.Ended{Status: "succeeded", Commit: checkout.Commit},
		run:   ledger.RunEnd{Status: "succeeded", Exit: res.Exit},
	}
	workflow.SetCurrentDetails(p.ctx, p.waits.header+fmt.Sprintf("succeeded on node **%s**; commit `%s`", placed.NodeID, checkout.Commit))
	return checkout, false, p.finish(end)
}

func (p *phase) run(placed ledger.Placed) (ExecuteRunResult, error) {
	machine := p.in.Command.Machine
	machine.RunID = placed.RunID
	in := ExecuteRunInput{
		Mission: p.in.Mission, Launch: p.in.Launch, Phase: p.in.Command.Name, Backend: p.in.Pool, Machine: machine,
		Command: p.in.Command.Command, Collect: p.in.Command.Collect, Input: p.in.Checkout.Input,
		Turn: placed.Turn, Node: placed.NodeID,
	}
	summary := fmt.Sprintf("run %s on %s: create, inject, run, collect, destroy", placed.RunID, placed.NodeID)
	var res ExecuteRunResult
	err := workflow.ExecuteActivity(withNode(p.work, placed.NodeID, summary, p.in.Fleet, placed.Turn), ActivityExecuteRun, in).Get(p.ctx, &res)
	return res, err
}

// verdict returns the failure of a run whose command did not succeed.
func verdict(c PhaseCommand, res ExecuteRunResult) *phaseEnd {
	end := ledger.RunEnd{Status: "failed", Exit: res.Exit, FailureCode: res.FailureCode, Failure: res.Failure}
	if res.FailureCode == "" && res.Exit != nil {
		if res.Exit.Code == 0 && res.Exit.Signal == "" {
			return nil
		}
		end.FailureCode, end.Failure = codeCommandFailed, exitSentence(c, *res.Exit)
	}
	return failed(end.FailureCode, end.Failure, end)
}

func exitSentence(c PhaseCommand, e vm.Exit) string {
	command := c.Command.Argv[0]
	switch {
	case e.OOM:
		return fmt.Sprintf("command %q was killed because the machine's %d MiB of memory ran out", command, c.Machine.MemoryMiB)
	case e.Signal != "":
		return fmt.Sprintf("command %q was ended by %s", command, e.Signal)
	}
	return fmt.Sprintf("command %q exited with code %d", command, e.Code)
}

// lose handles a run that was lost with its node: it waits until the node
// surely does not have it any more, and puts the phase back into the queue.
func (p *phase) lose(placed ledger.Placed, res ExecuteRunResult, cause error) error {
	reason := res.Failure
	if cause != nil {
		if isFinal(cause) {
			return failed(codeInternal, rootMessage(cause), ledger.RunEnd{Status: "failed", FailureCode: codeInternal, Failure: rootMessage(cause)})
		}
		v, err := p.awaitVerdict(placed)
		if err != nil {
			return err
		}
		reason = v.Reason
	}
	run := ledger.RunEnd{Status: "lost", FailureCode: codeNodeLost, Failure: reason}
	p.progress.Lost++
	if p.progress.Lost >= maxLost {
		return failed(codeNodeLost, fmt.Sprintf("lost %d runs with their nodes; at last: %s", p.progress.Lost, reason), run)
	}
	return p.retry(placed, run)
}

// isFinal reports whether an execute-run error says that trying elsewhere would
// not help.
func isFinal(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.NonRetryable()
}

// awaitVerdict waits until it is known that the node no longer has the run.
func (p *phase) awaitVerdict(placed ledger.Placed) (ledger.Verdict, error) {
	var v ledger.Verdict
	in := JudgeRunInput{RunID: placed.RunID}
	err := workflow.ExecuteActivity(withEngine(p.work, "what became of run "+placed.RunID), ActivityJudgeRun, in).Get(p.work, &v)
	for err == nil && !v.Gone {
		if err = p.declareNode(v); err != nil {
			break
		}
		in.Retrying = true
		retry := withServerRetry(p.work, "waiting for node "+v.Node, judgeInterval, attemptsUntil(v.Left, judgeInterval)+30)
		if err = workflow.ExecuteActivity(retry, ActivityJudgeRun, in).Get(p.work, &v); err != nil && p.work.Err() == nil {
			err = nil
		}
	}
	if p.work.Err() != nil {
		return v, p.cancelled()
	}
	return v, err
}

func (p *phase) declareNode(v ledger.Verdict) error {
	return p.waits.declare(p.ctx, wait{
		kind: kindNode, code: "node_silent", reason: v.Reason, since: v.Since, bound: v.Until,
		next: fmt.Sprintf("every %s, until the agent answers or the node's time is over; then the phase is placed again", judgeInterval),
		hint: fmt.Sprintf("restart the agent of node %s; give up with `tidewait phase cancel %s %s`", v.Node, p.in.Mission, p.in.Command.Name),
	})
}

func (p *phase) retry(placed ledger.Placed, run ledger.RunEnd) error {
	in := RetryPhaseInput{PhaseID: p.in.PhaseID, Attempt: placed.Attempt, Run: run}
	err := workflow.ExecuteActivity(withEngine(p.ctx, "back to the queue: "+clip(run.Failure)), ActivityRetryPhase, in).Get(p.ctx, &p.progress.Attempt)
	if err != nil {
		return err
	}
	return p.waits.clear(p.ctx, "back in the queue: "+run.Failure)
}

// commit makes the results a commit. A gateway that does not answer is waited
// for, in the open: the results are in its bucket and are not lost.
func (p *phase) commit(placed ledger.Placed, res ExecuteRunResult) (Checkout, error) {
	in := CommitResultsInput{
		Mission: p.in.Mission, Launch: p.in.Launch, Phase: p.in.Command.Name, RunID: placed.RunID, Node: placed.NodeID,
		Parent: p.in.Checkout.Commit, TreeIn: p.in.Checkout.Tree, Results: res.Results, Deleted: res.Deleted,
	}
	var c Checkout
	err := onGateway(p.work, &p.waits, p.in.Gateway, "commit the results of run "+placed.RunID, ActivityCommitResults, in, &c)
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.Type() == ErrTypeWorkspaceRefused {
		var code string
		if app.Details(&code) != nil {
			code = "results_refused"
		}
		return c, failed(code, app.Message(), ledger.RunEnd{Status: "failed", Exit: res.Exit, FailureCode: code, Failure: app.Message()})
	}
	return c, err
}

// onGateway executes an activity on a gateway, and shows the wait when the
// gateway does not pick it up.
func onGateway(ctx workflow.Context, shown *waits, gateway, summary, activity string, in, out any) error {
	pickup := gatewayPickup
	var since time.Time
	for {
		err := workflow.ExecuteActivity(withGateway(ctx, gateway, summary, pickup), activity, in).Get(ctx, out)
		if !isUnpicked(err) {
			if err == nil && !since.IsZero() {
				err = shown.clear(ctx, summary)
			}
			return err
		}
		if since.IsZero() {
			since = workflow.Now(ctx)
			pickup = time.Hour
		}
		if err := shown.declare(ctx, wait{
			kind: kindGateway, code: "gateway_unreachable", since: since,
			reason: fmt.Sprintf("gateway %s does not pick up: %s", gateway, summary),
			next:   "as soon as the gateway polls its queue",
			hint:   fmt.Sprintf("start the gateway: `tidewait-worker run --roles gateway --gateway.id %s`", gateway),
		}); err != nil {
			return err
		}
	}
}

func isUnpicked(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// cancelled returns the end of a phase that a person or its mission ended.
func (p *phase) cancelled() error {
	sentence := "cancelled with its mission or through Temporal"
	if p.cancel != nil {
		sentence = cancelSentence(*p.cancel)
	}
	return &phaseEnd{
		Ended: ledger.Ended{Status: "cancelled", FailureCode: codeCancelled, Failure: sentence},
		run:   ledger.RunEnd{Status: "cancelled", FailureCode: codeCancelled, Failure: sentence},
	}
}

func cancelSentence(c api.Cancel) string {
	actor, reason := c.Actor, c.Reason
	if actor == "" {
		actor = "somebody"
	}
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("cancelled by %s: %s", actor, reason)
}

func (p *phase) continueAsNew() error {
	next := p.in
	next.Resume = p.progress
	return workflow.NewContinueAsNewError(p.ctx, api.PhaseWorkflow, next)
}

// finish writes the phase's end, on a context that a cancellation does not end.
func (p *phase) finish(end *phaseEnd) error {
	ctx, stop := workflow.NewDisconnectedContext(p.ctx)
	defer stop()
	in := FinishPhaseInput{PhaseID: p.in.PhaseID, Run: end.run, End: end.Ended}
	return workflow.ExecuteActivity(withEngine(ctx, "record: "+end.Status), ActivityFinishPhase, in).Get(ctx, &end.Ended)
}

// close turns an error into how the workflow closes, after writing the end.
func (p *phase) close(err error) (PhaseResult, error) {
	var end *phaseEnd
	if !errors.As(err, &end) {
		if workflow.IsContinueAsNewError(err) {
			return PhaseResult{}, err
		}
		end = failed(codeInternal, rootMessage(err), ledger.RunEnd{Status: "failed", FailureCode: codeInternal, Failure: rootMessage(err)})
	}
	if !end.written {
		if err := p.finish(end); err != nil {
			return PhaseResult{}, err
		}
	}
	now := fmt.Sprintf("%s (`%s`): %s", end.Status, end.FailureCode, end.Failure)
	if err := p.waits.clear(p.ctx, now); err != nil {
		return PhaseResult{}, err
	}
	switch end.Status {
	case "succeeded":
		return PhaseResult{Checkout: Checkout{Branch: p.in.Checkout.Branch, Commit: end.Commit}}, nil
	case "cancelled":
		return PhaseResult{}, temporal.NewCanceledError(end.Ended)
	}
	return PhaseResult{}, temporal.NewNonRetryableApplicationError(end.Failure, ErrTypePhaseFailed, nil, end.Ended)
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
func clip(s string) string {
	const most = 150
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
