package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"tidewait/internal/api"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// group is the machines of one run of a composed phase. They take each step
// together: all of them start or none does, and their commands begin when every
// machine has its files. When the designated commands have succeeded, or one of
// them has failed, the others are ended.
type group struct {
	agent   *Agent
	in      workflows.ExecuteRunInput
	run     *run
	tell    func(string)
	members []*member
}

// member is one machine of a group.
type member struct {
	execution
	command workflows.AgentCommand
	machine vm.VM
	result  workflows.AgentResult
	err     error // of its command, when it did not end by itself
}

func (a *Agent) newGroup(in workflows.ExecuteRunInput, r *run, tell func(string)) *group {
	g := &group{agent: a, in: in, run: r, tell: tell}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.agents = make([]api.AgentReport, len(in.Agents))
	for i, command := range in.Agents {
		r.agents[i] = api.AgentReport{Name: command.Name, Step: "create"}
		one := in
		one.Machine, one.Command, one.Collect, one.Agents = command.Machine, command.Command, command.Collect, nil
		g.members = append(g.members, &member{
			execution: execution{
				agent: a, in: one, run: r, report: &r.agents[i], logs: newLogWriter(a.js, in, command.Name, a.Log),
			},
			command: command,
			result:  workflows.AgentResult{Name: command.Name},
		})
	}
	return g
}

func (g *group) steps(ctx context.Context) workflows.ExecuteRunResult {
	turn, cancel := context.WithTimeoutCause(ctx, g.in.Turn, errTurnIsOver)
	defer cancel()
	backend, ok := g.agent.byName[g.in.Backend]
	if !ok {
		return failed(workflows.ExecuteRunResult{}, vm.BootFailed, fmt.Errorf("%w %s", errNoSuchOffer, g.in.Backend))
	}
	for _, m := range g.members {
		m.backend = backend
		defer m.logs.close()
	}
	g.step("create", false)
	if err := g.each(turn, (*member).create); err != nil {
		return g.failed(turn, vm.BootFailed, err)
	}
	g.step("inject", true)
	if err := g.each(turn, (*member).injectFiles); err != nil {
		return g.failed(turn, vm.InjectFailed, err)
	}
	g.step("run", true)
	if res, over := g.commands(ctx, turn); over {
		return res
	}
	g.step("collect", true)
	if err := g.each(turn, (*member).collectFiles); err != nil {
		return g.failed(turn, vm.CollectFailed, err)
	}
	return g.result()
}

// memberError is what went wrong with one machine first.
type memberError struct {
	*member
	cause error
}

func (e *memberError) Error() string { return e.cause.Error() }

func (e *memberError) Unwrap() error { return e.cause }

// each does a step in all machines at once, and waits until all have taken it. The
// first that fails ends the step of the others.
func (g *group) each(ctx context.Context, do func(*member, context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		all   sync.WaitGroup
		once  sync.Once
		first error
	)
	for _, m := range g.members {
		all.Go(func() {
			if err := do(m, ctx); err != nil {
				once.Do(func() {
					first = &memberError{m, err}
					stop(first)
				})
			}
		})
	}
	all.Wait()
	return first
}

func (m *member) create(ctx context.Context) error {
	machine, err := m.backend.Create(ctx, m.in.Machine)
	if err != nil {
		return err
	}
	m.machine, m.result.Info = machine, machine.Info()
	m.step("create", &m.result.Info)
	return nil
}

func (m *member) injectFiles(ctx context.Context) error {
	m.step("inject", &m.result.Info)
	return m.inject(ctx, m.machine)
}

// collectFiles brings the changes of a command home that ended with 0. Those of
// another are nobody's results, as in a phase of one machine.
func (m *member) collectFiles(ctx context.Context) error {
	if !m.succeeded() {
		return nil
	}
	m.step("collect", &m.result.Info)
	var res workflows.ExecuteRunResult
	if err := m.collect(ctx, m.machine, &res); err != nil {
		return err
	}
	m.result.Results, m.result.Deleted = &res.Results, res.Deleted
	return nil
}

// succeeded reports whether the command ended with 0, and its machine is there.
func (m *member) succeeded() bool {
	alive := m.err == nil || errors.Is(m.err, vm.ErrEnded) && errors.Is(m.err, vm.ErrKeep)
	return alive && m.result.Exit != nil && *m.result.Exit == vm.Exit{}
}

// Why the commands of a group are ended that did not end by themselves.
var (
	errRest = errors.New("a designated agent failed")
	errDone = fmt.Errorf("the designated agents have succeeded: %w", vm.ErrKeep)
)

// commands runs all commands until the phase is decided, and ends the others. It
// returns the result of the run when it is over with that.
func (g *group) commands(ctx, turn context.Context) (res workflows.ExecuteRunResult, over bool) {
	running, stop := context.WithCancelCause(turn)
	defer stop(nil)
	ends := make(chan *member)
	for _, m := range g.members {
		go func() {
			m.runCommand(running)
			ends <- m
		}()
	}
	left := g.designated()
	var failure *member
	for range g.members {
		m := <-ends
		switch {
		case running.Err() != nil:
		case m.neverBegan() || m.command.Designated && !m.succeeded():
			failure = m
			stop(errRest)
		case m.command.Designated:
			if left--; left == 0 {
				stop(errDone)
			}
		}
	}
	switch {
	case turn.Err() != nil:
		return g.interrupted(ctx, turn), true
	case failure != nil && failure.err != nil:
		return g.failed(turn, vm.MachineDied, &memberError{failure, failure.err}), true
	case failure != nil:
		res := g.result()
		res.Failed = failure.command.Name
		return res, true
	}
	return res, false
}

func (g *group) designated() int {
	n := 0
	for _, m := range g.members {
		if m.command.Designated {
			n++
		}
	}
	return n
}

// runCommand runs the command of one machine to its end.
func (m *member) runCommand(ctx context.Context) {
	m.step("run", &m.result.Info)
	exit, err := m.machine.Run(ctx, m.in.Command, m.logs.line)
	m.err = err
	m.result.Stopped = err != nil && ctx.Err() != nil
	if err == nil || errors.Is(err, vm.ErrEnded) {
		m.result.Exit = &exit
	} else if !m.result.Stopped {
		m.result.FailureCode, m.result.Failure = failureOf(vm.MachineDied, err)
	}
	m.ended()
}

// neverBegan reports whether there was no command to begin with. Then not all have
// started, so none has.
func (m *member) neverBegan() bool { return m.result.FailureCode == string(vm.CommandNotFound) }

// interrupted is the result of a run that was not left to end by itself. What the
// machines have made is collected when somebody wants it, as far as their
// commands ended in time.
func (g *group) interrupted(ctx, turn context.Context) workflows.ExecuteRunResult {
	var s *stopped
	if !errors.As(context.Cause(ctx), &s) {
		return failed(g.result(), vm.MachineDied, g.members[0].orTurn(turn, context.Cause(turn)))
	}
	if !s.keep {
		return failed(g.result(), vm.MachineDied, s)
	}
	g.step("collect", true)
	var all sync.WaitGroup
	for _, m := range g.members {
		all.Go(func() { m.keepFiles(ctx, s) })
	}
	all.Wait()
	res := g.result()
	for _, m := range g.members {
		res.Partial = res.Partial || m.result.Results != nil
	}
	return failed(res, vm.MachineDied, g.kept(s))
}

// keepFiles collects what one machine of a stopped run has made, in what is left
// of its grace.
func (m *member) keepFiles(ctx context.Context, s *stopped) {
	res := workflows.ExecuteRunResult{Info: m.result.Info}
	err := error(&vm.Failure{Code: vm.StepTimeout, Message: fmt.Sprintf("the command did not end within its grace of %s", m.agent.KillGrace)})
	switch {
	case m.result.FailureCode != "":
		return
	case m.err == nil || errors.Is(m.err, vm.ErrEnded):
		err = m.keep(ctx, s, m.machine, &res)
	}
	if err != nil {
		m.result.FailureCode, m.result.Failure = failureOf(vm.CollectFailed, err)
		return
	}
	m.result.Results, m.result.Deleted = &res.Results, res.Deleted
}

// kept says why a run was stopped, or, when somebody wanted what it had made, of
// whom nothing could be kept.
func (g *group) kept(s *stopped) error {
	var missing []string
	for _, m := range g.members {
		if m.result.Results == nil {
			missing = append(missing, m.command.Name+" ("+m.result.Failure+")")
		}
	}
	if len(missing) == 0 {
		return s
	}
	return fmt.Errorf("nothing could be kept of %s", strings.Join(missing, ", "))
}

// result is how the machines have ended so far.
func (g *group) result() workflows.ExecuteRunResult {
	res := workflows.ExecuteRunResult{Info: g.members[0].result.Info}
	for _, m := range g.members {
		res.Agents = append(res.Agents, m.result)
	}
	return res
}

// failed is the result of a run in which one machine failed to take a step, or
// whose turn is over.
func (g *group) failed(turn context.Context, code vm.FailureCode, err error) workflows.ExecuteRunResult {
	var one *memberError
	if !errors.As(err, &one) || turn.Err() != nil {
		return failed(g.result(), code, g.members[0].orTurn(turn, err))
	}
	one.result.FailureCode, one.result.Failure = failureOf(code, one.cause)
	for _, m := range g.members {
		if m.result.Exit == nil && m.result.FailureCode == "" {
			m.result.Stopped = true // it never had its turn
		}
	}
	res := g.result()
	res.Failed = one.command.Name
	res.FailureCode = one.result.FailureCode
	res.Failure = fmt.Sprintf("agent %s: %s", one.command.Name, one.result.Failure)
	return res
}

// destroy ends all machines at once.
func (g *group) destroy() {
	g.step("destroy", false)
	var all sync.WaitGroup
	for _, m := range g.members {
		all.Go(m.destroy)
	}
	all.Wait()
}

// step records the step all machines take.
func (g *group) step(name string, started bool) {
	a := g.agent
	a.mu.Lock()
	g.run.report.Step = name
	if started && !g.run.report.Started {
		info := g.members[0].result.Info
		g.run.report.Started = true
		g.run.report.Accel, g.run.report.Kernel, g.run.report.Isolation = info.Accel, info.Kernel, info.Isolation
	}
	a.mu.Unlock()
	a.Log.Debug("run takes a step", "run", g.in.Machine.RunID, "step", name, "machines", len(g.members))
	if name == "run" {
		a.hurry()
	}
	if g.tell != nil {
		g.tell(name)
	}
}

// memberStep records the step one of several machines takes. One that answers
// gives its start slot back.
func (e *execution) memberStep(name string, info *vm.Info) {
	a := e.agent
	a.mu.Lock()
	begun := info != nil && !e.report.Started
	if e.report.Step = name; info != nil {
		e.report.Started = true
		e.report.Accel, e.report.Kernel, e.report.Isolation = info.Accel, info.Kernel, info.Isolation
	}
	a.mu.Unlock()
	a.Log.Debug("machine takes a step", "machine", e.in.Machine.RunID, "step", name)
	if begun {
		a.hurry()
	}
}

// ended records how the command of one machine ended.
func (m *member) ended() {
	a := m.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	m.report.Step, m.report.Ended, m.report.Stopped = "ended", true, m.result.Stopped
	if exit := m.result.Exit; exit != nil {
		m.report.Signal, m.report.OutOfMemory = exit.Signal, exit.OOM
		if exit.Signal == "" {
			m.report.ExitCode = &exit.Code
		}
	}
	a.hurry()
}

// told is what a heartbeat says of a run. Agent.mu must be held.
func (r *run) told() api.RunReport {
	report := r.report
	report.Agents = slices.Clone(r.agents)
	return report
}
