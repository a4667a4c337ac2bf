package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/internal/webui"
)

const (
	// maxLost is how many runs a phase may lose with their nodes.
	maxLost = 3
	// judgeInterval is between questions about a run whose activity was lost, and
	// before a run is asked for again that was asked for in vain.
	judgeInterval = 2 * time.Second
	// maxIgnored is how many times in a row a run is asked for that its node says it
	// has, and does not take up.
	maxIgnored = 3
)

// execute runs the phase on its node and commits what it left. It returns no end
// when the phase is back in the queue.
func (p *phase) execute(placed ledger.Placed) (*phaseEnd, error) {
	now := p.running(placed, workflow.Now(p.ctx))
	p.ran = &placed
	if err := p.waits.clear(p.ctx, now, AttrNode.ValueSet(placed.NodeID)); err != nil {
		return nil, err
	}
	res, evicted, lost, err := p.runToEnd(placed, now)
	if p.cancel.requested() {
		return p.stopped(placed, res), nil
	}
	switch {
	case err != nil && isFinal(err):
		sentence := rootMessage(err)
		return failed(codeInternal, sentence, ledger.RunEnd{Status: "failed", FailureCode: codeInternal, Failure: sentence}), nil
	case err != nil:
		return nil, err
	case evicted != nil && (lost != "" || res.FailureCode == codeCancelled):
		return nil, p.moveOn(placed, res, lost == "", *evicted)
	case lost != "":
		return p.giveUp(placed, lost)
	}
	if failure := verdict(p.in.Command, res); failure != nil {
		return p.tryAgain(placed, failure)
	}
	return p.commit(placed, res)
}

// runToEnd executes the run, again where the node's next agent goes on with it. It
// returns why the run was ended for its node's sake, if it was, and why it is lost,
// if it is: then the node surely does not have it any more. now is what the phase
// shows of itself.
func (p *phase) runToEnd(placed ledger.Placed, now string) (res ExecuteRunResult, evicted *ledger.Evict, lost string, err error) {
	ignored := 0
	for resume := false; ; resume = true {
		res, evicted, err = p.run(placed, resume, evicted, now)
		if err == nil && res.Lost {
			return res, evicted, res.Failure, nil
		}
		if err == nil || p.cancel.requested() || isFinal(err) && evicted == nil {
			return res, evicted, "", err
		}
		ignored = ignoredNow(ignored, resume, err)
		v, err := p.awaitVerdict(placed, ignored >= maxIgnored)
		if err != nil || v.Gone {
			p.lingers = !v.Gone
			return res, evicted, v.Reason, err
		}
		if err := p.waits.clear(p.ctx, now+"\nThe node's agent was started again, and goes on with it.\n", AttrNode.ValueSet(placed.NodeID)); err != nil {
			return res, evicted, "", err
		}
		if resume {
			// An agent that stops, or has lost its way to Temporal, may name the run
			// for some time. A cancel ends the pause, and then the run.
			pause := workflow.TimerOptions{Summary: "before run " + placed.RunID + " is asked for again"}
			_ = workflow.NewTimerWithOptions(p.work, judgeInterval, pause).Get(p.work, nil)
		}
	}
}

// ignoredNow counts the times in a row that a run was asked for and nobody took it
// up.
func ignoredNow(before int, resume bool, err error) int {
	var timeout *temporal.TimeoutError
	late := errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
	if resume && (late || temporal.IsCanceledError(err)) {
		return before + 1
	}
	return 0
}

// run executes the run, or goes on with it. It returns why the run was ended for its
// node's sake, if it was; one that is to be already is ended at once. now is what the
// phase shows of itself meanwhile.
func (p *phase) run(placed ledger.Placed, resume bool, evicted *ledger.Evict, now string) (ExecuteRunResult, *ledger.Evict, error) {
	machine := p.in.Command.Machine
	machine.RunID = placed.RunID
	in := ExecuteRunInput{
		Mission: p.in.Mission, Launch: p.in.Launch, Phase: p.in.Command.Name, Backend: p.in.Pool, Machine: machine,
		Command: p.in.Command.Command, Secrets: p.in.Command.Secrets, Collect: p.in.Command.Collect, Input: p.in.Checkout.Input,
		Turn: placed.Turn, Node: placed.NodeID, Epoch: placed.Epoch, Agents: p.in.Command.Agents, Images: p.images(),
		Resume: resume,
	}
	summary := fmt.Sprintf("run %s on %s: create, inject, run, collect, destroy", placed.RunID, placed.NodeID)
	apart, _ := workflow.NewDisconnectedContext(p.ctx)
	ctx, giveUp := workflow.WithCancel(apart)
	defer giveUp()
	run := workflow.ExecuteActivity(withNode(ctx, placed.NodeID, summary, p.in.Fleet, placed.Turn), ActivityExecuteRun, in)
	var stop *StopRunInput
	if evicted != nil {
		stop = evictedBy(*evicted)
	}
	sel := workflow.NewSelector(ctx)
	sel.AddFuture(run, func(workflow.Future) {})
	sel.AddReceive(p.work.Done(), func(workflow.ReceiveChannel, bool) {
		stop = &StopRunInput{RunID: placed.RunID, Reason: p.cancel.sentence(cancelledNatively), Keep: p.cancel.keep()}
	})
	sel.AddReceive(p.evict, func(c workflow.ReceiveChannel, _ bool) {
		var e ledger.Evict
		if c.Receive(ctx, &e); e.RunID == placed.RunID {
			evicted, stop = &e, evictedBy(e)
		}
	})
	var shown error
	sel.AddReceive(p.told, func(c workflow.ReceiveChannel, _ bool) {
		var w ledger.RunWaits
		if c.Receive(ctx, &w); w.RunID == placed.RunID && shown == nil {
			shown = p.showRun(w, now)
		}
	})
	for !run.IsReady() && stop == nil {
		sel.Select(ctx)
	}
	if stop != nil && p.stop(apart, placed.NodeID, *stop) != nil {
		giveUp()
	}
	var res ExecuteRunResult
	err := run.Get(apart, &res)
	// The agent that ends a run because it was cancelled destroys its machine first.
	// One that another agent left may be there though nobody took the run up.
	p.lingers = err != nil && (resume || !temporal.IsCanceledError(err))
	p.pin(res.Images)
	if shown == nil && p.waits.shown.found { // the run has ended while it waited
		shown = p.waits.clear(p.ctx, now)
	}
	if err == nil {
		err = shown
	}
	return res, evicted, err
}

// showRun shows what the run waits for, or that it does not any more.
func (p *phase) showRun(w ledger.RunWaits, now string) error {
	if w.Code == "" {
		return p.waits.clear(p.ctx, now)
	}
	return p.waits.declare(p.ctx, wait{
		kind: ledger.KindGateway, code: w.Code, reason: w.Reason, since: w.Since, bound: w.Bound, found: true,
		next: "every second",
	})
}

func evictedBy(e ledger.Evict) *StopRunInput {
	return &StopRunInput{RunID: e.RunID, Reason: e.Why, Keep: true}
}

// stop tells the node at once that its run is to end, and whether what it has
// made is wanted. A node that does not take that is told by the cancellation of
// its activity.
func (p *phase) stop(ctx workflow.Context, node string, in StopRunInput) error {
	return workflow.ExecuteActivity(withStop(ctx, node, "stop run "+in.RunID), ActivityStopRun, in).Get(ctx, nil)
}

// stopped is the end of a phase whose run was ended early, with what it had made
// when somebody asked for that and there is something: all of it, when the run
// ended by itself in that moment.
func (p *phase) stopped(placed ledger.Placed, res ExecuteRunResult) *phaseEnd {
	end := p.cancelled()
	end.run.Info, end.run.Exit, end.run.Agents = res.Info, res.Exit, agentEnds(res)
	if !p.cancel.keep() {
		return end
	}
	kept, note := p.keepPartial(placed, res, end.Failure)
	end.Partial = kept
	end.Failure += note
	return end
}

// keepPartial commits what a run that was ended early had made to a branch of its
// own. It returns the commit, if there is one, and what there is to say about it.
func (p *phase) keepPartial(placed ledger.Placed, res ExecuteRunResult, why string) (*ledger.Partial, string) {
	in := p.commitInput(placed, res)
	if in.Results == (Object{}) && len(in.Parts) == 0 {
		note := "; nothing that it had made could be kept"
		if res.Failure != "" {
			note += ": " + res.Failure
		}
		return nil, note
	}
	ctx, stop := workflow.NewDisconnectedContext(p.ctx)
	defer stop()
	in.Partial, in.Last = why, true
	var c Checkout
	err := workflow.ExecuteActivity(withPartial(ctx, p.in.Gateway, "keep what run "+placed.RunID+" had made"), ActivityCommitResults, in).Get(ctx, &c)
	if err != nil {
		return nil, "; what it had made was not committed: " + rootMessage(err)
	}
	return &ledger.Partial{Branch: c.Branch, Commit: c.Commit}, notKept(res)
}

// moveOn puts a phase whose run was ended for its node's sake back into the queue,
// with what the run had made on a branch of its own. That costs the phase neither
// an attempt nor one of the runs it may lose.
func (p *phase) moveOn(placed ledger.Placed, res ExecuteRunResult, whole bool, evicted ledger.Evict) error {
	run := failedRun(res, ledger.CodeDrained, evicted.Why)
	run.Status = "cancelled"
	if whole {
		kept, note := p.keepPartial(placed, res, evicted.Why)
		if kept != nil {
			run.Failure += fmt.Sprintf("; what it had made is commit %s of branch %s", kept.Commit, kept.Branch)
		}
		run.Failure += note
	}
	return p.retry(placed, run)
}

// tryAgain lets the phase back off after a failed attempt, if it has another.
func (p *phase) tryAgain(placed ledger.Placed, failure *phaseEnd) (*phaseEnd, error) {
	if p.in.Command.Attempts <= 1 {
		return failure, nil
	}
	in := ledger.BackOff{
		PhaseID: p.in.PhaseID, Attempt: placed.Attempt, Attempts: p.in.Command.Attempts, First: p.in.Fleet.AttemptBackoff, Run: failure.run,
	}
	var out ledger.BackedOff
	err := callEngine(p.work, "attempt failed: "+clip(failure.Failure), ActivityBackOff, in, &out)
	if err != nil {
		return nil, err
	}
	if out.Exhausted {
		return failure, nil
	}
	p.progress.Attempt, p.gate = out.Attempt, p.ownGate()
	p.takeNudges() // they were meant for the run, and do not end the pause
	if err := p.recordActs(); err != nil {
		return nil, err
	}
	return nil, p.waits.clear(p.ctx, "attempt failed: "+webui.Plain(failure.Failure)+"\n", AttrNode.ValueUnset())
}

// verdict returns the failure of a run whose command did not succeed.
func verdict(c PhaseCommand, res ExecuteRunResult) *phaseEnd {
	code, sentence := res.FailureCode, res.Failure
	switch {
	case code != "":
	case len(res.Agents) > 0:
		code, sentence = agentsVerdict(c, res)
	case res.Exit == nil:
		code, sentence = codeInternal, "the node did not say how the command ended"
	case res.Exit.Code == 0 && res.Exit.Signal == "":
		return nil
	default:
		code, sentence = exitVerdict(c.Command, c.Machine, *res.Exit)
	}
	if code == "" {
		return nil
	}
	return failed(code, sentence, failedRun(res, code, sentence))
}

// failedRun is the end of a run that took its steps and failed.
func failedRun(res ExecuteRunResult, code, sentence string) ledger.RunEnd {
	return ledger.RunEnd{Status: "failed", Info: res.Info, Exit: res.Exit, FailureCode: code, Failure: sentence, Agents: agentEnds(res)}
}

// exitVerdict returns what an exit that is no success means.
func exitVerdict(c vm.Command, machine vm.Spec, e vm.Exit) (code, sentence string) {
	command := c.Argv[0]
	switch {
	case e.OOM:
		return codeOutOfMemory, fmt.Sprintf("command %q was killed because the machine's %d MiB of memory ran out", command, machine.MemoryMiB)
	case e.Signal != "":
		return codeCommandFailed, fmt.Sprintf("command %q was ended by %s", command, e.Signal)
	}
	return codeCommandFailed, fmt.Sprintf("command %q exited with code %d", command, e.Code)
}

// giveUp puts a phase whose run was lost back into the queue, unless it has lost
// too many.
func (p *phase) giveUp(placed ledger.Placed, reason string) (*phaseEnd, error) {
	run := ledger.RunEnd{Status: "lost", FailureCode: codeNodeLost, Failure: reason}
	p.progress.Lost++
	if p.progress.Lost >= maxLost {
		return failed(codeNodeLost, fmt.Sprintf("lost %d runs with their nodes; at last: %s", p.progress.Lost, reason), run), nil
	}
	return nil, p.retry(placed, run)
}

// isFinal reports whether an activity's error says that trying again would not
// help.
func isFinal(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.NonRetryable()
}

// isStale reports whether an error says that a run does not count any more.
func isStale(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == ErrTypeRunStale
}

// awaitVerdict waits until it is known that the node no longer has the run, or that
// its next agent goes on with it. With giveUp that does not count: it is told to end
// the run.
func (p *phase) awaitVerdict(placed ledger.Placed, giveUp bool) (ledger.Verdict, error) {
	var v ledger.Verdict
	in := JudgeRunInput{RunID: placed.RunID, GiveUp: giveUp}
	err := callEngine(p.work, "what became of run "+placed.RunID, ActivityJudgeRun, in, &v)
	for err == nil && !v.Gone && !v.Kept {
		if err := p.declareNode(v); err != nil {
			return v, err
		}
		in.Retrying, in.Until = true, v.Until
		retry := withServerRetry(p.work, "waiting for node "+v.Node, judgeInterval, attemptsUntil(v.Left, judgeInterval)+30)
		err = workflow.ExecuteActivity(retry, ActivityJudgeRun, in).Get(p.work, &v)
		if err != nil && !isFinal(err) && !p.cancel.requested() {
			err = nil // attempts that ran out say nothing about the node: go on
		}
	}
	return v, err
}

func (p *phase) declareNode(v ledger.Verdict) error {
	return p.waits.declare(p.ctx, wait{
		kind: ledger.KindNode, code: ledger.CodeNodeSilent, reason: v.Reason, since: v.Since, bound: v.Until, node: v.Node,
		next: fmt.Sprintf("every %s, until the agent answers or the node's time is over; then the phase is placed again", judgeInterval),
	})
}

// retry puts the phase back into the queue. It has no node there.
func (p *phase) retry(placed ledger.Placed, run ledger.RunEnd) error {
	in := RetryPhaseInput{PhaseID: p.in.PhaseID, Attempt: placed.Attempt, Run: run}
	err := callEngine(p.work, "back to the queue: "+clip(run.Failure), ActivityRetryPhase, in, &p.progress.Attempt)
	if err != nil {
		return err
	}
	return p.waits.clear(p.ctx, "back in the queue: "+webui.Plain(run.Failure)+"\n", AttrNode.ValueUnset())
}

// commit makes the results a commit. A gateway that does not answer is waited
// for, in the open: the results are in its bucket and are not lost. A commit
// that was made is the phase's success, also when a cancellation came meanwhile.
func (p *phase) commit(placed ledger.Placed, res ExecuteRunResult) (*phaseEnd, error) {
	in := p.commitInput(placed, res)
	var c Checkout
	err := onGateway(p.work, &p.waits, p.in.Gateway, "commit the results of run "+placed.RunID, ActivityCommitResults, in, &c)
	if code, sentence, ok := refusedBy(err, "results_refused"); ok {
		return failed(code, sentence, failedRun(res, code, sentence)), nil
	}
	if temporal.IsCanceledError(err) && p.cancel.requested() {
		return p.stopped(placed, res), nil
	}
	if isStale(err) {
		return p.giveUp(placed, rootMessage(err))
	}
	if err != nil {
		return nil, err
	}
	return &phaseEnd{
		Ended:    ledger.Ended{Status: "succeeded", Commit: c.Commit},
		run:      ledger.RunEnd{RunID: placed.RunID, Status: "succeeded", Info: res.Info, Exit: res.Exit, Agents: agentEnds(res)},
		checkout: c,
	}, nil
}

func (p *phase) commitInput(placed ledger.Placed, res ExecuteRunResult) CommitResultsInput {
	return CommitResultsInput{
		Mission: p.in.Mission, Launch: p.in.Launch, Phase: p.in.Command.Name, RunID: placed.RunID, Node: placed.NodeID, Epoch: placed.Epoch,
		Parent: p.in.Checkout.Commit, TreeIn: p.in.Checkout.Tree, Results: res.Results, Deleted: res.Deleted, Last: p.in.Last,
		Parts: resultsParts(res),
	}
}
