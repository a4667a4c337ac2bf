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
	"tidewait/internal/vm/group"
	"tidewait/workflows"
)

// team is the machines of one run of a composed phase. They take each step
// together: all of them start or none does, and their commands begin when every
// machine has its files. When the designated commands have succeeded, or one of
// them has failed, the others are ended.
type team struct {
	agent    *Agent
	in       workflows.ExecuteRunInput
	run      *run
	tell     func(string)
	backend  vm.Backend
	machines *group.Group // nil: there are none
	members  []*member
	byRun    map[string]*member // by the run id of the machine
}

// member is one machine of a team.
type member struct {
	execution
	end    group.End
	result workflows.AgentResult
	alone  vm.VM     // whose command ended by itself, guarded by Agent.mu
	kept   sync.Once // what it had made when the run was stopped

	secrets map[string]string // of its command, by variable
}

func (a *Agent) newTeam(in workflows.ExecuteRunInput, r *run, tell func(string)) *team {
	return &team{agent: a, in: in, run: r, tell: tell, byRun: map[string]*member{}}
}

func (t *team) agents() []group.Agent {
	var agents []group.Agent
	for _, a := range t.in.Agents {
		agents = append(agents, group.Agent{
			Name: a.Name, Replicas: a.Replicas, Machine: a.Machine, Command: a.Command, Designated: a.Designated,
		})
	}
	return agents
}

// gather makes a member of each machine that the team is to have.
func (t *team) gather() error {
	machines, err := group.Plan(t.in.Machine.RunID, t.agents())
	if err != nil {
		return err
	}
	a := t.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	t.run.agents = make([]api.AgentReport, len(machines))
	for i, m := range machines {
		t.run.agents[i] = api.AgentReport{Name: m.Name, Step: "create"}
		one := t.in
		one.Machine.RunID, one.Agents, one.Collect = m.RunID, nil, t.collectOf(m.Agent)
		t.members = append(t.members, &member{
			execution: execution{
				agent: a, in: one, run: t.run, report: &t.run.agents[i], backend: t.backend, logs: newLogWriter(a, t.in, m.Name),
			},
			result: workflows.AgentResult{Name: m.Name, Agent: m.Agent},
		})
		t.byRun[m.RunID] = t.members[i]
	}
	return nil
}

func (t *team) collectOf(agent string) []string { return t.commandOf(agent).Collect }

func (t *team) commandOf(agent string) workflows.AgentCommand {
	i := slices.IndexFunc(t.in.Agents, func(a workflows.AgentCommand) bool { return a.Name == agent })
	return t.in.Agents[i]
}

func (t *team) steps(ctx context.Context) workflows.ExecuteRunResult {
	turn, cancel := context.WithTimeoutCause(ctx, t.in.Turn, errTurnIsOver)
	defer cancel()
	var ok bool
	if t.backend, ok = t.agent.byName[t.in.Backend]; !ok {
		return failed(workflows.ExecuteRunResult{}, vm.BootFailed, fmt.Errorf("%w %s", errNoSuchOffer, t.in.Backend))
	}
	if err := t.agent.pull(turn, t.run, &t.in, t.step); err != nil {
		return t.agent.withoutImages(turn, t.in, t.run, err)
	}
	if err := t.gather(); err != nil {
		return failed(workflows.ExecuteRunResult{}, vm.BootFailed, err)
	}
	t.step("create")
	if err := t.create(turn); err != nil {
		return t.failed(turn, vm.BootFailed, err)
	}
	t.step("inject")
	if err := t.machines.Each(turn, t.injectFiles); err != nil {
		return t.failed(turn, vm.InjectFailed, err)
	}
	asking := execution{agent: t.agent, in: t.in, run: t.run}
	if asking.in.Secrets = t.secretNames(); len(asking.in.Secrets) > 0 {
		t.step("secrets")
		// They are the run's, and so asked for once.
		values, err := asking.secrets(turn)
		if err != nil {
			return asking.withoutSecrets(turn, t.result(), err)
		}
		t.share(values)
	}
	t.step("run")
	unwatch := context.AfterFunc(turn, func() { t.keepEnded(ctx) })
	decided, err := t.machines.Run(turn, t.logs)
	unwatch()
	t.take(decided)
	switch {
	case turn.Err() != nil:
		return t.interrupted(ctx, turn)
	case err != nil:
		return t.failed(turn, vm.MachineDied, err)
	case decided.Failed != nil:
		res := t.result()
		res.Failed = decided.Failed.Machine.Name
		return res
	}
	t.step("collect")
	if err := t.each(turn, (*member).collectFiles); err != nil {
		return t.failed(turn, vm.CollectFailed, err)
	}
	return bounded(t.result())
}

// bounded refuses the results of a run whose machines have deleted so much
// together that the names would not arrive.
func bounded(res workflows.ExecuteRunResult) workflows.ExecuteRunResult {
	size := 0
	for _, m := range res.Agents {
		size += vm.DeletedBytes(m.Deleted)
	}
	if size <= vm.MaxDeletedBytes {
		return res
	}
	for i := range res.Agents {
		res.Agents[i].Results, res.Agents[i].Deleted = nil, nil
	}
	res.Partial = false
	return failed(res, vm.ResultsTooLarge, fmt.Errorf(
		"the names of the files that the machines have deleted take %d bytes together, and may take %d; collect less of them", size, vm.MaxDeletedBytes))
}

// create starts all machines, or none.
func (t *team) create(ctx context.Context) (err error) {
	t.machines, err = group.Create(ctx, noting{t.backend, t}, group.Options{
		RunID: t.in.Machine.RunID, Agents: t.agents(), Starts: int(t.agent.StartLimit),
	})
	return err
}

// noting is a backend whose machines are noted as they come.
type noting struct {
	vm.Backend
	team *team
}

// Create implements [vm.Backend].
func (n noting) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	machine, err := n.Backend.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	m := n.team.byRun[s.RunID]
	m.result.Info = machine.Info()
	m.step("create", &m.result.Info)
	return noted{machine, m}, nil
}

// noted is a machine the begin and the end of whose command are noted.
type noted struct {
	vm.VM
	*member
}

// Run implements [vm.VM].
func (n noted) Run(ctx context.Context, c vm.Command, logs vm.LogSink) (vm.Exit, error) {
	n.step("run", &n.result.Info)
	exit, err := n.VM.Run(ctx, with(c, n.secrets), logs)
	n.ended(n.VM, exit, err, ctx.Err() != nil)
	var s *stopped
	if errors.As(err, &s) && errors.Is(err, vm.ErrEnded) && s.keep {
		n.keepFiles(ctx, s, n.VM) // others may take all of their grace
	}
	return exit, err
}

// ended records how the command of one machine ended.
func (m *member) ended(machine vm.VM, exit vm.Exit, err error, stopped bool) {
	a := m.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		m.alone = machine
	}
	m.report.Step, m.report.Ended, m.report.Stopped = "done", true, err != nil && stopped
	if err == nil || errors.Is(err, vm.ErrEnded) {
		m.report.Signal, m.report.OutOfMemory = exit.Signal, exit.OOM
		if exit.Signal == "" {
			m.report.ExitCode = &exit.Code
		}
	}
	a.hurry()
}

// each does a step in all machines at once.
func (t *team) each(ctx context.Context, do func(*member, context.Context, vm.VM) error) error {
	return t.machines.Each(ctx, func(ctx context.Context, m group.Machine) error { return do(t.byRun[m.RunID], ctx, m.VM) })
}

// injectFiles gives a machine its files. One that takes nothing in is replaced, as
// that of a phase of one machine is.
func (t *team) injectFiles(ctx context.Context, machine group.Machine) error {
	m := t.byRun[machine.RunID]
	m.step("inject", &m.result.Info)
	err := m.inject(ctx, machine.VM, firstInject(m.agent.StepTimeout))
	if !late(err) || ctx.Err() != nil {
		return err
	}
	m.sayAnew()
	if machine, err = t.machines.Replace(ctx, machine); err != nil {
		return orCause(ctx, err)
	}
	m.step("inject", &m.result.Info)
	return m.inject(ctx, machine.VM, m.agent.StepTimeout)
}

func (t *team) logs(m group.Machine) vm.LogSink { return t.byRun[m.RunID].logs.line }

// take records how the commands ended.
func (t *team) take(decided group.Result) {
	for _, end := range decided.Ends {
		m := t.byRun[end.Machine.RunID]
		m.end, m.result.Stopped = end, end.Stopped
		if end.Ended {
			m.result.Exit = &end.Exit
		}
	}
}

// collectFiles brings the changes of a command home that ended with 0. Those of
// another are nobody's results, as in a phase of one machine.
func (m *member) collectFiles(ctx context.Context, machine vm.VM) error {
	if !m.end.Succeeded() {
		return nil
	}
	res := workflows.ExecuteRunResult{Info: m.result.Info}
	m.step("collect", &m.result.Info)
	if err := m.collect(ctx, machine, &res); err != nil {
		return err
	}
	m.result.Results, m.result.Deleted = &res.Results, res.Deleted
	return nil
}

// interrupted is the result of a run that was not left to end by itself. What the
// machines have made is collected when somebody wants it, as far as their
// commands ended in time.
func (t *team) interrupted(ctx, turn context.Context) workflows.ExecuteRunResult {
	s := stopOf(ctx)
	if s == nil {
		return failed(t.result(), vm.MachineDied, t.members[0].orTurn(turn, context.Cause(turn)))
	}
	if !s.keep {
		return failed(t.result(), vm.MachineDied, s)
	}
	t.step("collect")
	var all sync.WaitGroup
	for _, m := range t.members {
		all.Go(func() {
			if m.end.Alive {
				m.keepFiles(ctx, s, m.end.Machine.VM)
			} else {
				m.result.FailureCode = string(vm.CollectFailed)
				m.result.Failure = fmt.Sprintf("the command did not end within its grace of %s", m.agent.KillGrace)
			}
		})
	}
	all.Wait()
	res := t.result()
	for _, m := range t.members {
		res.Partial = res.Partial || m.result.Results != nil
	}
	return bounded(failed(res, vm.MachineDied, t.kept(s)))
}

// keepEnded collects, as soon as a run is stopped whose work is wanted, what those
// machines have made whose commands had ended.
func (t *team) keepEnded(ctx context.Context) {
	s := stopOf(ctx)
	if s == nil || !s.keep {
		return
	}
	t.agent.mu.Lock()
	defer t.agent.mu.Unlock()
	for _, m := range t.members {
		if machine := m.alone; machine != nil {
			go m.keepFiles(ctx, s, machine)
		}
	}
}

// keepFiles collects, once, what one machine of a stopped run has made, in what is
// left of its grace.
func (m *member) keepFiles(ctx context.Context, s *stopped, machine vm.VM) {
	m.kept.Do(func() {
		res := workflows.ExecuteRunResult{Info: m.result.Info}
		if err := m.keep(ctx, s, machine, &res); err != nil {
			m.result.FailureCode, m.result.Failure = failureOf(vm.CollectFailed, err)
			return
		}
		m.result.Results, m.result.Deleted = &res.Results, res.Deleted
	})
}

// kept says why a run was stopped, or, when somebody wanted what it had made, of
// whom nothing could be kept.
func (t *team) kept(s *stopped) error {
	var missing []string
	for _, m := range t.members {
		if m.result.Results == nil {
			missing = append(missing, m.result.Name+" ("+m.result.Failure+")")
		}
	}
	if len(missing) == 0 {
		return s
	}
	return fmt.Errorf("nothing could be kept of %s", strings.Join(missing, ", "))
}

// result is how the machines have ended so far.
func (t *team) result() workflows.ExecuteRunResult {
	res := workflows.ExecuteRunResult{Info: t.members[0].result.Info}
	res.Info.Start = vm.Start{} // each machine has its own
	for _, m := range t.members {
		res.Agents = append(res.Agents, m.result)
	}
	return res
}

// failed is the result of a run that ended with an error: of one machine, which
// the result names then, of the network between them, or of the turn.
func (t *team) failed(turn context.Context, code vm.FailureCode, err error) workflows.ExecuteRunResult {
	name := ""
	if one := new(group.Error); turn.Err() == nil && errors.As(err, &one) {
		m := t.byRun[one.Machine.RunID]
		m.result.FailureCode, m.result.Failure = failureOf(code, one.Cause)
		name = m.result.Name
	}
	for _, m := range t.members {
		if m.result.Name != name && m.result.Exit == nil {
			m.result.Stopped = true // it was ended with the others, or never had its turn
		}
	}
	res := failed(t.result(), code, t.members[0].orTurn(turn, err))
	res.Failed = name
	return res
}

// destroy ends all machines at once.
func (t *team) destroy(workflows.ExecuteRunResult, error) {
	t.step("destroy")
	if t.backend == nil {
		return
	}
	t.agent.destroy(t.in.Machine.RunID, func(ctx context.Context) error {
		if t.machines == nil {
			return group.Destroy(ctx, t.backend, t.in.Machine.RunID)
		}
		return t.machines.Destroy(ctx)
	})
	t.agent.flushLogs(t.in.Machine.RunID)
}

// step records the step all machines take.
func (t *team) step(name string) {
	a := t.agent
	a.mu.Lock()
	report := &t.run.report
	report.Step = name
	if t.machines != nil && !report.Started {
		info := t.members[0].result.Info
		report.Started = true
		report.Accel, report.Kernel, report.Isolation = info.Accel, info.Kernel, info.Isolation
	}
	a.mu.Unlock()
	a.Log.Debug("run takes a step", "run", t.in.Machine.RunID, "step", name, "machines", len(t.members))
	if name == "run" {
		a.hurry()
	}
	if t.tell != nil {
		t.tell(name)
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
		e.report.Accel, e.report.Kernel, e.report.Isolation, e.report.Start = info.Accel, info.Kernel, info.Isolation, info.Start
	}
	a.mu.Unlock()
	a.Log.Debug("machine takes a step", "machine", e.in.Machine.RunID, "step", name)
	if begun {
		a.hurry()
	}
}

// told is what a heartbeat says of a run. Agent.mu must be held.
func (r *run) told() api.RunReport {
	report := r.report
	report.Agents = slices.Clone(r.agents)
	return report
}
