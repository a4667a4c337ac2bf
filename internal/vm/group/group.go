// Package group runs several machines of one run as one: a composed phase. All
// are created or none, each can reach the others by name and nobody else
// (package segment), and they end together.
package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tidewait/internal/vm"
	"tidewait/internal/vm/segment"
)

// Agent is one or more machines that run the same command.
type Agent struct {
	Name     string  // a DNS label; see [segment.Plan] for the host names it gives
	Replicas int     // machines; 0 means 1
	Machine  vm.Spec // of each; the group fills in RunID and NIC
	Command  vm.Command
	// Designated agents decide: the group ends when all of them have, or when
	// one fails. When no agent is designated, all are.
	Designated bool
}

// Variables that a command has beside its own, unless it sets them itself.
const (
	EnvAgent   = "TIDEWAIT_AGENT"   // the host name of its machine
	EnvReplica = "TIDEWAIT_REPLICA" // the machine's number among those of its agent, from 1
)

// command is what the agent runs on one of its machines.
func (a Agent) command(h segment.Host) vm.Command {
	env := map[string]string{EnvAgent: h.Name, EnvReplica: strconv.Itoa(max(h.Replica, 1))}
	maps.Copy(env, a.Command.Env)
	return vm.Command{Argv: a.Command.Argv, Env: env}
}

// Options say what a group is made of.
type Options struct {
	RunID  string
	Agents []Agent
	Starts int // machines that are started at the same time; 0 means all
}

// Machine is one machine of a group.
type Machine struct {
	segment.Host
	RunID      string // of the machine, made from that of the group by [MachineID]
	Command    vm.Command
	Designated bool
	VM         vm.VM
}

// Group is the machines of one run. Its methods are called one after another.
type Group struct {
	runID    string
	backend  vm.Backend
	segment  *segment.Segment
	machines []Machine
	specs    []vm.Spec // of machines
}

// Plan returns the machines that a group of agents has, before there is any: in
// the order of the agents, and of their replicas.
func Plan(runID string, agents []Agent) ([]Machine, error) {
	g := &Group{runID: runID}
	err := g.plan(agents)
	return g.machines, err
}

// MachineID is the run id of the machine with the given host name in a group.
func MachineID(runID, name string) string { return runID + "/" + name }

// Create starts all machines of a run, after destroying what an earlier group
// of the run left. When one cannot be started the error says which and why, and
// nothing is left; if destroying takes too long, what is left is listed by the
// backend and ended by [Destroy].
func Create(ctx context.Context, b vm.Backend, o Options) (*Group, error) {
	g := &Group{runID: o.RunID, backend: b}
	if err := g.plan(o.Agents); err != nil {
		return nil, err
	}
	if err := Destroy(ctx, b, o.RunID); err != nil {
		return nil, err
	}
	hosts := make([]segment.Host, len(g.machines))
	for i, m := range g.machines {
		hosts[i] = m.Host
	}
	var err error
	if g.segment, err = segment.Open(hosts); err != nil {
		return nil, err
	}
	starting := make(chan struct{}, max(o.Starts, 0))
	if o.Starts <= 0 {
		starting = make(chan struct{}, len(g.specs))
	}
	err = g.each(ctx, func(ctx context.Context, i int) error {
		select {
		case starting <- struct{}{}:
			defer func() { <-starting }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return g.create(ctx, i)
	})
	if err != nil {
		return nil, errors.Join(err, g.Destroy(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *Group) create(ctx context.Context, i int) error {
	g.specs[i].NIC = g.segment.NIC(i)
	m, err := g.backend.Create(ctx, g.specs[i])
	g.machines[i].VM = m
	return err
}

// Replace destroys a machine, in which nothing has run, and starts another in its
// place. It may be called within [Group.Each], for the machine of that call.
func (g *Group) Replace(ctx context.Context, m Machine) (Machine, error) {
	i := slices.IndexFunc(g.machines, func(other Machine) bool { return other.RunID == m.RunID })
	if err := g.backend.Destroy(ctx, m.RunID); err != nil {
		return Machine{}, err
	}
	err := g.create(ctx, i)
	return g.machines[i], err
}

// plan makes the list of machines, and the specs to create them from.
func (g *Group) plan(agents []Agent) error {
	byName, named := map[string]Agent{}, []segment.Agent{}
	for _, a := range agents {
		byName[a.Name] = a
		named = append(named, segment.Agent{Name: a.Name, Replicas: a.Replicas})
	}
	hosts, err := segment.Plan(named)
	if err != nil {
		return err
	}
	some := slices.ContainsFunc(agents, func(a Agent) bool { return a.Designated })
	for _, h := range hosts {
		a, id := byName[h.Agent], MachineID(g.runID, h.Name)
		g.machines = append(g.machines, Machine{Host: h, RunID: id, Command: a.command(h), Designated: a.Designated || !some})
		spec := a.Machine
		spec.RunID = id
		g.specs = append(g.specs, spec)
	}
	return nil
}

// Machines are the machines of the group: agents in the order they were given
// in, and their replicas.
func (g *Group) Machines() []Machine { return slices.Clone(g.machines) }

// Traffic counts what went through the network, by host name.
func (g *Group) Traffic() map[string]segment.Traffic {
	traffic := map[string]segment.Traffic{}
	for i, m := range g.machines {
		traffic[m.Name] = g.segment.Traffic(i)
	}
	return traffic
}

// Each does a step with all machines at the same time, such as putting files
// in. When one fails the context of the others ends; the error is an [Error] of
// the machine that failed first.
func (g *Group) Each(ctx context.Context, do func(context.Context, Machine) error) error {
	return g.each(ctx, func(ctx context.Context, i int) error { return do(ctx, g.machines[i]) })
}

func (g *Group) each(ctx context.Context, do func(context.Context, int) error) error {
	stepCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, m := range g.machines {
		all.Go(func() {
			if err := do(stepCtx, i); err != nil {
				cancel(naming(m, err))
			}
		})
	}
	all.Wait()
	if stepCtx.Err() == nil {
		return nil
	}
	return context.Cause(stepCtx)
}

// Error is what went wrong with one machine of a group. Its message names the
// machine, also as a [vm.Failure] if the cause is one.
type Error struct {
	Machine Machine
	Cause   error
}

func (e *Error) Error() string { return "machine " + e.Machine.Name + ": " + e.Cause.Error() }

// Unwrap returns the cause, under the name of the machine.
func (e *Error) Unwrap() error {
	if f := new(vm.Failure); errors.As(e.Cause, &f) {
		return &vm.Failure{Code: f.Code, Message: fmt.Sprintf("machine %s: %s", e.Machine.Name, f.Message)}
	}
	return e.Cause
}

func naming(m Machine, err error) error { return &Error{m, err} }

// End is how the command of a machine ended.
type End struct {
	Machine Machine
	Exit    vm.Exit // meaningless unless Ended
	// Ended says that the command ended, by itself or within its grace.
	Ended bool
	// Stopped says that the command was ended because the group did, and not by
	// itself.
	Stopped bool
	// Alive says that the machine is there, and its files can be collected.
	Alive bool
	// Err is why the machine was lost, or the command could not start.
	Err error
}

// Succeeded reports whether the command ended with 0, whatever made it end, and
// its files can be collected.
func (e End) Succeeded() bool { return e.Alive && e.Ended && e.Exit == vm.Exit{} }

// Result is how a group ended.
type Result struct {
	Ends []End // of every machine, in the order of Machines
	// Failed is the designated machine whose command was the first to fail, and
	// nil when none did: the group succeeded.
	Failed *End
}

// Run runs the commands of all machines at the same time, and returns when all
// have ended. When the designated ones have succeeded, or the first has failed,
// the rest are stopped: TERM, a grace period, then the machine is killed. So
// they are when ctx ends, whose cause is the error then. A machine whose command
// ended within its grace stays when the others had succeeded, and when the cause
// matches [vm.ErrKeep].
//
// Any machine that is lost, or whose command cannot start, ends the group with
// an [Error] that names it; so does the end of the network between them. The
// result says how each command ended also when there is an error.
func (g *Group) Run(ctx context.Context, logs func(Machine) vm.LogSink) (Result, error) {
	r := &running{ends: make([]End, len(g.machines))}
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	defer g.watch(r.stop)()
	for _, m := range g.machines {
		if m.Designated {
			r.awaited++
		}
	}
	var all sync.WaitGroup
	for i, m := range g.machines {
		all.Go(func() {
			exit, err := m.VM.Run(ctx, m.Command, logs(m))
			r.ended(i, m, exit, err, ctx.Err() != nil)
		})
	}
	all.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errDone) && !errors.Is(cause, errFailed) {
		return r.result(), cause
	}
	return r.result(), nil
}

// watch stops a run when the network ends by itself.
func (g *Group) watch(stop context.CancelCauseFunc) (end func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-g.segment.Done():
			stop(g.segment.Err())
		case <-over:
		}
	}()
	return func() { close(over) }
}

// Why commands are stopped when the group is decided.
var (
	errFailed = errors.New("a designated machine has failed")
	errDone   = fmt.Errorf("the designated machines have succeeded: %w", vm.ErrKeep)
)

// running is one Run.
type running struct {
	stop context.CancelCauseFunc

	mu      sync.Mutex
	ends    []End
	awaited int // designated machines that run
	failed  *End
}

// ended takes the end of one machine's command. stopped says that the context
// had ended before.
func (r *running) ended(i int, m Machine, exit vm.Exit, err error, stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[i] = End{
		Machine: m, Exit: exit, Stopped: err != nil && stopped, Ended: err == nil || errors.Is(err, vm.ErrEnded),
		Alive: err == nil || errors.Is(err, vm.ErrEnded) && errors.Is(err, vm.ErrKeep),
	}
	switch {
	case err != nil:
		if !stopped {
			r.ends[i].Err = err
			r.stop(naming(m, err))
		}
	case !m.Designated:
	case exit != vm.Exit{}:
		if r.failed == nil {
			r.failed = &r.ends[i]
		}
		r.stop(errFailed)
	default:
		if r.awaited--; r.awaited == 0 {
			r.stop(errDone)
		}
	}
}

func (r *running) result() Result {
	return Result{Ends: r.ends, Failed: r.failed}
}

// Destroy ends all machines and their network. It goes on where one cannot be
// destroyed, and may be called again.
func (g *Group) Destroy(ctx context.Context) error {
	errs := make([]error, len(g.machines))
	var all sync.WaitGroup
	for i, m := range g.machines {
		all.Go(func() { errs[i] = g.backend.Destroy(ctx, m.RunID) })
	}
	all.Wait()
	g.segment.Close()
	return errors.Join(errs...)
}

// Destroy ends all machines of a run that a group made, in this program or in an
// earlier one.
func Destroy(ctx context.Context, b vm.Backend, runID string) error {
	ids, err := b.List(ctx)
	if err != nil {
		return fmt.Errorf("destroy the machines of run %s: %w", runID, err)
	}
	var failed []error
	for _, id := range ids {
		if strings.HasPrefix(id, MachineID(runID, "")) {
			failed = append(failed, b.Destroy(ctx, id))
		}
	}
	return errors.Join(failed...)
}
