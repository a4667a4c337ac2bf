package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tidewait/internal/agent/journal"
	"tidewait/internal/api"
	"tidewait/internal/boot"
	"tidewait/internal/objects"
	"tidewait/internal/secret/redact"
	"tidewait/internal/vm"
	"tidewait/internal/vm/group"
	"tidewait/workflows"
)

// The destruction of one machine is tried again at destroyPause, for destroyTime
// in all.
const (
	destroyTime  = 20 * time.Second
	destroyPause = 500 * time.Millisecond
)

// run is one machine on its way, or several.
type run struct {
	report api.RunReport
	agents []api.AgentReport // of a composed phase
	stop   context.CancelCauseFunc
	kill   func() // destroys its machines at once; safe at any time
	epoch  int64  // of the node, as of its placement; 0: not known
	// Guarded by Agent.mu: of a run that an earlier agent left and nobody has asked
	// for, what it left; the machine, once it may outlive the agent; whether the
	// agent has let go of it.
	adopted *adopted
	kept    vm.Kept
	left    bool
	gone    chan struct{} // closed when nothing of it is there any more
	// redactor knows the secrets of the run; nil: there are none. It is the
	// execution's alone.
	redactor *redact.Redactor
	roots    roots // of its machines, the execution's alone
}

// Execute carries one run through its steps and returns how it ended; its
// machine is gone then. step, when not nil, is told each step.
//
// It is idempotent by run id: when the same run is executed again while its
// machine exists, the older execution is ended first. A run that an earlier agent
// left is gone on with.
//
// An error is returned only when ctx ended from outside, or the agent was stopped
// and left the run to the next one, or did not begin it; everything that goes wrong with the run itself
// is in the result.
func (a *Agent) Execute(ctx context.Context, in workflows.ExecuteRunInput, step func(string)) (workflows.ExecuteRunResult, error) {
	if !in.Resume {
		select {
		case <-a.probed:
		case <-ctx.Done():
			return workflows.ExecuteRunResult{}, context.Cause(ctx)
		}
	}
	r, was, ctx, err := a.begin(ctx, in)
	if errors.Is(err, errLeaseEnded) || errors.Is(err, errEpochOver) || errors.Is(err, errNotHere) {
		return workflows.ExecuteRunResult{Lost: true, Failure: err.Error()}, nil
	}
	if err != nil {
		return workflows.ExecuteRunResult{}, err
	}
	work := a.work(in, r, was, step)
	res := work.steps(ctx)
	left := a.hasLeft(r)
	cause := context.Cause(ctx)
	switch {
	case was == nil:
		res.Images = r.roots.digests()
	case was.entry.Result == nil:
		res.Images = was.entry.Images
	}
	defer r.roots.close()
	if left {
		a.flushLogs(in.Machine.RunID)
		a.forget(r)
		return workflows.ExecuteRunResult{}, errLeft
	}
	res, err = explain(res, cause)
	clean(r.redactor, &res)
	work.destroy(res, err)
	a.finish(r, !res.Lost)
	return res, err
}

// work is a run of one machine or of several.
type work interface {
	// steps takes the run from create to collect.
	steps(ctx context.Context) workflows.ExecuteRunResult
	// destroy ends all of its machines, whatever happened, and then its logs. It is
	// told how the run ended.
	destroy(res workflows.ExecuteRunResult, err error)
}

func (a *Agent) work(in workflows.ExecuteRunInput, r *run, was *adopted, step func(string)) work {
	if len(in.Agents) > 0 {
		return a.newTeam(in, r, step)
	}
	e := &execution{agent: a, in: in, run: r, tell: step, adopted: was}
	switch {
	case was != nil:
		e.entry = &was.entry
	case a.canKeep(in):
		e.entry = &journal.Entry{Input: in, BootID: boot.ID(), EndsAt: boot.Now() + in.Turn}
	}
	return e
}

// clean takes secrets out of what a result says.
func clean(r *redact.Redactor, res *workflows.ExecuteRunResult) {
	res.Failure = r.Text(res.Failure)
	for i := range res.Agents {
		res.Agents[i].Failure = r.Text(res.Agents[i].Failure)
	}
}

// begin registers a run, after ending an older execution of it, and returns what an
// earlier agent left of it. A run that must not be begun any more is refused with
// errLeaseEnded or errEpochOver, and one that is to be gone on with and is not
// there with errNotHere. An agent that stops refuses all with errStopping, and says
// nothing of what it has: the next one knows that.
func (a *Agent) begin(ctx context.Context, in workflows.ExecuteRunInput) (*run, *adopted, context.Context, error) {
	id := in.Machine.RunID
	for {
		a.mu.Lock()
		if a.life.Err() != nil {
			a.mu.Unlock()
			return nil, nil, nil, errStopping
		}
		old, exists := a.runs[id]
		var was *adopted
		if exists {
			was = a.claim(old)
			exists = was == nil
		}
		if err := a.refuses(in, was); err != nil && !exists {
			a.mu.Unlock()
			return nil, nil, nil, err
		}
		if !exists {
			runCtx, stop := context.WithCancelCause(ctx)
			r := &run{
				report: api.RunReport{ID: id, Step: "create"}, agents: make([]api.AgentReport, machinesOf(in)), // all of them starting
				stop: stop, kill: func() { a.kill(in) }, epoch: in.Epoch, gone: make(chan struct{}),
			}
			if was != nil {
				r.goOn(old.report, was)
			}
			a.runs[id] = r
			delete(a.ended, id)
			a.mu.Unlock()
			return r, was, runCtx, nil
		}
		a.mu.Unlock()
		old.stop(errSuperseded)
		select {
		case <-old.gone:
		case <-ctx.Done():
			return nil, nil, nil, context.Cause(ctx)
		}
	}
}

// goOn makes the run what it was for an earlier agent, whose machine can be left
// again at any time. Agent.mu must be held.
func (r *run) goOn(report api.RunReport, was *adopted) {
	r.report, r.kept = report, was.machine
	r.report.Adopted = false
}

// refuses says why a run must not be begun, or gone on with; nil: it may. Agent.mu
// must be held.
func (a *Agent) refuses(in workflows.ExecuteRunInput, was *adopted) error {
	switch {
	case in.Resume && was == nil:
		return errNotHere
	case was != nil:
		return nil // what ends it ends its execution
	case a.lease.ended():
		return errLeaseEnded
	case a.isOver(in.Epoch):
		return errEpochOver
	}
	return nil
}

// kill destroys the machines of a run without asking them. Its execution, which
// was told to end, destroys what is left and says when that does not work.
func (a *Agent) kill(in workflows.ExecuteRunInput) {
	b, ok := a.byName[in.Backend]
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	var err error
	if len(in.Agents) > 0 {
		err = group.Destroy(ctx, b, in.Machine.RunID)
	} else {
		err = b.Destroy(ctx, in.Machine.RunID)
	}
	if err != nil {
		a.Log.Warn("a machine was not destroyed at once", "run", in.Machine.RunID, "error", err)
	}
}

// machinesOf is how many machines a composed phase has; 0: it is solo.
func machinesOf(in workflows.ExecuteRunInput) int {
	n := 0
	for _, agent := range in.Agents {
		n += max(agent.Replicas, 1)
	}
	return n
}

// finish forgets a run whose machine is gone. free says that its node may be
// given to others at once.
func (a *Agent) finish(r *run, free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if free {
		a.ended[r.report.ID] = true // its journal goes when the engine has heard that
	} else {
		a.forgetEntry(r.report.ID)
	}
	a.drop(r)
	a.hurry()
}

// drop takes a run off the list. Agent.mu must be held.
func (a *Agent) drop(r *run) {
	delete(a.runs, r.report.ID)
	r.stop(nil)
	close(r.gone)
}

// execution is one machine of one Execute.
type execution struct {
	agent   *Agent
	in      workflows.ExecuteRunInput
	run     *run
	report  *api.AgentReport // of one of several machines, guarded by Agent.mu; nil: the run has one
	tell    func(string)
	backend vm.Backend
	logs    *logWriter
	entry   *journal.Entry // what the next agent has to know; nil: it cannot go on with the run
	adopted *adopted       // what an earlier agent left; nil: nothing
}

// steps runs create, inject, run and collect.
func (e *execution) steps(ctx context.Context) workflows.ExecuteRunResult {
	var res workflows.ExecuteRunResult
	left := e.in.Turn
	if e.adopted != nil {
		left = e.adopted.left()
	}
	turn, cancel := context.WithTimeoutCause(ctx, left, errTurnIsOver)
	defer cancel()
	var ok bool
	if e.backend, ok = e.agent.byName[e.in.Backend]; !ok {
		return failed(res, vm.BootFailed, fmt.Errorf("%w %s", errNoSuchOffer, e.in.Backend))
	}
	e.logs = newLogWriter(e.agent, e.in, "")
	if e.adopted != nil {
		return e.resume(ctx, turn)
	}
	if err := e.note("create", nil, nil); err != nil {
		return failed(res, vm.BootFailed, err)
	}
	if err := e.agent.pull(turn, e.run, &e.in, func(step string) { e.step(step, nil) }); err != nil {
		return e.agent.withoutImages(turn, e.in, e.run, err)
	}
	e.step("create", nil)
	spec := e.in.Machine
	spec.Keep = e.entry != nil
	machine, err := e.backend.Create(turn, spec)
	if err != nil {
		return failed(res, vm.BootFailed, e.orTurn(turn, err))
	}
	res.Info = machine.Info()
	e.step("inject", &res.Info)
	err = e.inject(turn, machine, firstInject(e.agent.StepTimeout))
	if late(err) && turn.Err() == nil {
		if machine, err = e.anew(turn, spec); err != nil {
			return failed(res, vm.BootFailed, e.orTurn(turn, err))
		}
		res.Info = machine.Info()
		e.step("inject", &res.Info)
		err = e.inject(turn, machine, e.agent.StepTimeout)
	}
	if err != nil {
		return failed(res, vm.InjectFailed, e.orTurn(turn, err))
	}
	command := e.in.Command
	if len(e.in.Secrets) > 0 {
		e.step("secrets", &res.Info)
		values, err := e.secrets(turn)
		if err != nil {
			return e.withoutSecrets(turn, res, err)
		}
		e.logs.hide(e.run.redactor)
		command = with(command, values)
	}
	if err := e.keepMachine(machine, &res.Info); err != nil {
		return failed(res, vm.MachineDied, e.orTurn(turn, err))
	}
	e.step("run", &res.Info)
	return e.fromCommand(ctx, turn, machine, command, res)
}

// fromCommand runs the command and collects.
func (e *execution) fromCommand(ctx, turn context.Context, machine vm.VM, command vm.Command, res workflows.ExecuteRunResult) workflows.ExecuteRunResult {
	exit, err := e.command(turn, machine, command)
	if err != nil {
		return e.interrupted(ctx, turn, machine, res, exit, err)
	}
	res.Exit = &exit
	if exit.Code != 0 || exit.Signal != "" {
		return res
	}
	e.step("collect", &res.Info)
	whole, cancel := e.agent.keeping(turn)
	defer cancel()
	if err := e.collect(whole, machine, &res); err != nil {
		return failed(res, vm.CollectFailed, e.orTurn(turn, err))
	}
	return res
}

// interrupted is the result of a run whose command was not left to end by itself.
// What it has made is collected when somebody wants it and the command ended in
// time.
func (e *execution) interrupted(ctx, turn context.Context, machine vm.VM, res workflows.ExecuteRunResult, exit vm.Exit, err error) workflows.ExecuteRunResult {
	s := stopOf(ctx)
	if s == nil {
		return failed(res, vm.MachineDied, e.orTurn(turn, err))
	}
	if errors.Is(err, vm.ErrEnded) {
		res.Exit = &exit
	}
	err = s
	switch {
	case !s.keep:
	case res.Exit == nil:
		err = fmt.Errorf("the command did not end within its grace of %s", e.agent.KillGrace)
	default:
		if keepErr := e.keep(ctx, s, machine, &res); keepErr != nil {
			err = keepErr
		}
	}
	return failed(res, codeCancelled, err)
}

// orTurn says that the turn is over when that is why a step ended, or where the
// run was when it was stopped.
func (e *execution) orTurn(ctx context.Context, err error) error {
	if stopOf(ctx) != nil {
		return fmt.Errorf("the run was stopped in its step %s", e.run.report.Step)
	}
	if errors.Is(context.Cause(ctx), errTurnIsOver) {
		return &vm.Failure{Code: "turn_exceeded", Message: fmt.Sprintf("the run took longer than its turn of %s and was stopped", e.in.Turn)}
	}
	return err
}

func failed(res workflows.ExecuteRunResult, code vm.FailureCode, err error) workflows.ExecuteRunResult {
	if errors.Is(err, vm.ErrLease) {
		res.Lost, res.Failure = true, errLeaseEnded.Error()
		return res
	}
	res.FailureCode, res.Failure = failureOf(code, err)
	return res
}

func failureOf(code vm.FailureCode, err error) (string, string) {
	var f *vm.Failure
	if errors.As(err, &f) {
		return string(f.Code), f.Message
	}
	return string(code), err.Error()
}

// firstInject is how long the first machine of a run may take for its workspace. It
// is a part of the step's limit, because once in some hundred starts a guest takes
// nothing in, and another machine does.
func firstInject(limit time.Duration) time.Duration { return limit / 4 }

// late reports whether a step ended with its limit.
func late(err error) bool {
	var f *vm.Failure
	return errors.As(err, &f) && f.Code == vm.StepTimeout
}

func (e *execution) sayAnew() {
	e.agent.Log.Warn("a machine did not take its workspace in time; another is started", "run", e.in.Machine.RunID)
}

// anew replaces a machine that takes nothing in. Nothing has run in it.
func (e *execution) anew(ctx context.Context, spec vm.Spec) (vm.VM, error) {
	e.sayAnew()
	if err := e.backend.Destroy(ctx, spec.RunID); err != nil {
		return nil, err
	}
	e.step("create", nil)
	return e.backend.Create(ctx, spec)
}

// limit gives a step its own deadline.
func (e *execution) limit(ctx context.Context, doing string, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, &vm.Failure{
		Code: vm.StepTimeout, Message: fmt.Sprintf("%s took longer than %s", doing, most),
	})
}

func (e *execution) inject(ctx context.Context, machine vm.VM, most time.Duration) error {
	ctx, cancel := e.limit(ctx, "putting the workspace into the machine", most)
	defer cancel()
	obj := objects.Open(ctx, e.agent.NATS, e.agent.inputs, e.in.Input.Name)
	defer obj.Close()
	m, err := machine.Inject(ctx, obj)
	if err != nil {
		return orCause(ctx, err)
	}
	if m.SHA256 != e.in.Input.SHA256 {
		return fmt.Errorf("the workspace did not arrive whole: its digest is %s, not %s", m.SHA256, e.in.Input.SHA256)
	}
	return nil
}

// orCause is why ctx ended, if it has: not everything that ctx ends tells.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// collect brings the changed files into the node's bucket, by way of a file: when
// the connection is lost the machine need not be asked again. The object counts
// only when its digest is the machine's.
func (e *execution) collect(ctx context.Context, machine vm.VM, res *workflows.ExecuteRunResult) error {
	ctx, cancel := e.limit(ctx, "collecting the results", e.agent.StepTimeout)
	defer cancel()
	spool, err := spoolFile()
	if err != nil {
		return err
	}
	defer spool.Close()
	result, err := machine.Collect(ctx, e.in.Collect, e.agent.Limits, spool)
	if err != nil {
		return orCause(ctx, err)
	}
	if err := objects.Keep(ctx, e.agent.NATS, e.agent.results, e.in.Machine.RunID, spool); err != nil {
		return orCause(ctx, fmt.Errorf("keep the results in the object store: %w", err))
	}
	res.Results = workflows.Object{Bucket: api.BucketResults(e.agent.Node), Name: e.in.Machine.RunID, SHA256: result.SHA256}
	res.Deleted = result.Deleted
	return nil
}

// spoolFile makes a file that is gone when it is closed, or the agent ends.
func spoolFile() (*os.File, error) {
	file, err := os.CreateTemp("", "tidewait-results-")
	if err != nil {
		return nil, fmt.Errorf("make a file for the results: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, fmt.Errorf("make a file for the results: %w", err)
	}
	return file, nil
}

// destroy ends the machine whatever happened, on a context that no
// cancellation ends. How the run ended is noted before: when the agent dies
// meanwhile, the next one says it.
func (e *execution) destroy(res workflows.ExecuteRunResult, err error) {
	if err == nil && !res.Lost {
		if err := e.note("destroy", nil, &res); err != nil {
			e.agent.Log.Warn("how a run ended is lost if its agent dies now", "run", e.in.Machine.RunID, "error", err)
		}
	}
	e.step("destroy", nil)
	if e.backend == nil {
		return
	}
	e.agent.destroy(e.in.Machine.RunID, func(ctx context.Context) error { return e.backend.Destroy(ctx, e.in.Machine.RunID) })
	e.agent.flushLogs(e.in.Machine.RunID)
}

// destroy tries to end what a run has until that works, or too much time is over.
func (a *Agent) destroy(run string, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	pause := time.NewTicker(destroyPause)
	defer pause.Stop()
	for {
		err := end(ctx)
		if err == nil {
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			a.Log.Error("a machine was not destroyed; the agent destroys it when it starts again", "run", run, "error", err)
			return
		}
	}
}

// step records the step a run is in. A machine that answers gives its start
// slots back, so the engine is told at once.
func (e *execution) step(name string, info *vm.Info) {
	a := e.agent
	if e.report != nil {
		e.memberStep(name, info)
		return
	}
	a.mu.Lock()
	e.run.report.Step = name
	if info != nil {
		e.run.report.Started = true
		e.run.report.Accel, e.run.report.Kernel, e.run.report.Isolation = info.Accel, info.Kernel, info.Isolation
		e.run.report.Start = info.Start
	}
	a.mu.Unlock()
	a.Log.Debug("run takes a step", "run", e.in.Machine.RunID, "step", name)
	if name == "run" {
		a.hurry()
	}
	if e.tell != nil {
		e.tell(name)
	}
}

// codeCancelled is the failure code of a run that a person has ended.
const codeCancelled vm.FailureCode = "cancelled"

// explain turns the reason for which a run was ended, if it was, into its
// result. A run that the agent gave up is lost, not failed: its phase is placed
// again. So is one that the engine does not want: a phase that still waits for its
// end had it executed again when its room had been given back.
func explain(res workflows.ExecuteRunResult, cause error) (workflows.ExecuteRunResult, error) {
	var s *stopped
	switch {
	case res.FailureCode == "" || cause == nil:
		return res, nil
	case errors.Is(cause, errLeaseEnded), errors.Is(cause, errEpochOver), errors.Is(cause, errStopping), errors.Is(cause, errSuperseded),
		errors.Is(cause, errUnwanted):
		return workflows.ExecuteRunResult{Info: res.Info, Lost: true, Failure: cause.Error()}, nil
	case errors.As(cause, &s):
		res.FailureCode = string(codeCancelled)
		return res, nil
	}
	return res, cause
}
