package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"tidewait/internal/agent/journal"
	"tidewait/internal/api"
	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// LeaseFile is the file in a node's directory that says when its machines have to
// end.
func LeaseFile(dir string) string { return filepath.Join(dir, "lease") }

// adopted is a run of an earlier agent that nobody has asked for yet.
type adopted struct {
	entry   journal.Entry
	machine vm.Kept // nil: the run has ended, and its result is in entry
	stopped func() bool
}

// left is how much of its turn the run has. From the end of its command until
// there is an agent to collect what it made, the turn stands still.
func (w *adopted) left() time.Duration {
	if w.machine != nil {
		if at := w.machine.EndedAt(); at != 0 {
			return w.entry.EndsAt - at
		}
	}
	return w.entry.Left()
}

// recover goes on with the runs of an earlier agent where that is possible, and
// ends what else it left. Runs that it ends are lost. They are not reported as
// ended, so that their phases, which the engine places again, keep the room that
// nobody else may have before them.
func (a *Agent) recover(ctx context.Context) error {
	entries := map[string]journal.Entry{}
	if a.journal != nil {
		var err error
		if entries, a.leaks.Journals, err = a.journal.Read(); err != nil {
			return err
		}
	}
	backends := slices.Concat(a.Backends, a.Former)
	if err := allKnown(entries, backends); err != nil {
		return err
	}
	for _, b := range backends {
		if err := a.recoverBackend(ctx, b, entries); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		if entries[id].Result != nil {
			a.adopt(entries[id], nil)
			continue
		}
		a.giveUp(id, "its machine is gone")
		if err := a.journal.Remove(id); err != nil {
			return err
		}
	}
	if a.leaks != (api.Leaks{}) {
		a.Log.Warn("ended what an earlier agent had left behind", "leaks", a.leaks)
	}
	return nil
}

// allKnown refuses runs of backends that nobody can look into: their machines may
// live, and would for as long as this agent has a lease.
func allKnown(entries map[string]journal.Entry, backends []vm.Backend) error {
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		name := entries[id].Input.Backend
		if !slices.ContainsFunc(backends, func(b vm.Backend) bool { return b.Name() == name }) {
			return fmt.Errorf("an earlier agent left run %s in backend %s, of which this one knows nothing: start an agent that does, so that its machine is ended", id, name)
		}
	}
	return nil
}

// recoverBackend does so with the machines of one backend, and takes their runs out
// of entries.
func (a *Agent) recoverBackend(ctx context.Context, b vm.Backend, entries map[string]journal.Entry) error {
	if adopter, ok := b.(vm.Adopter); ok {
		found, err := adopter.Sweep(ctx)
		if err != nil {
			return err
		}
		a.leaks.Directories += found.Directories
		a.leaks.Processes += found.Processes
		a.leaks.Cgroups += found.Cgroups
	}
	left, err := b.List(ctx)
	if err != nil {
		return fmt.Errorf("list machines of backend %s: %w", b.Name(), err)
	}
	for _, id := range left {
		entry, known := entries[id]
		if known && entry.Input.Backend == b.Name() && entry.Result == nil {
			delete(entries, id)
			machine, err := a.takeOver(ctx, b, entry)
			if err == nil {
				a.adopt(entry, machine)
				continue
			}
			a.giveUp(id, err.Error())
			if err := a.journal.Remove(id); err != nil {
				return err
			}
		} else if !known {
			a.giveUp(id, "it was not one that another agent can go on with")
		}
		if err := b.Destroy(ctx, id); err != nil {
			return fmt.Errorf("destroy what an earlier agent left: %w", err)
		}
	}
	return nil
}

// takeOver returns the machine of a run that an earlier agent had, or why it is of
// no use.
func (a *Agent) takeOver(ctx context.Context, b vm.Backend, e journal.Entry) (vm.Kept, error) {
	adopter, ok := b.(vm.Adopter)
	switch {
	case !ok || !a.KeepRuns:
		return nil, errors.New("this agent goes on with no runs of another")
	case e.Step != "run" && e.Step != "collect":
		return nil, fmt.Errorf("it was in its step %s, which is taken again", e.Step)
	case e.BootID != boot.ID():
		return nil, errors.New("the host was started again")
	}
	return adopter.Adopt(ctx, e.Run())
}

// giveUp notes why a run of an earlier agent is lost.
func (a *Agent) giveUp(id, why string) {
	a.Log.Info("ending a run of an earlier agent", "run", id, "why", why)
	a.givenUp[api.RunOfMachine(id)] = why
}

// adopt waits for somebody to ask for the run, or for a reason to end it.
func (a *Agent) adopt(e journal.Entry, machine vm.Kept) {
	ctx, stop := context.WithCancelCause(context.Background())
	r := &run{
		report: api.RunReport{
			ID: e.Run(), Step: e.Step, Started: true, Adopted: true,
			Accel: e.Info.Accel, Kernel: e.Info.Kernel, Isolation: e.Info.Isolation, Start: e.Info.Start,
		},
		stop: stop, kill: func() { a.kill(e.Input) }, epoch: e.Input.Epoch, gone: make(chan struct{}),
		adopted: &adopted{e, machine, func() bool { return ctx.Err() != nil }},
	}
	left := r.adopted.left()
	a.mu.Lock()
	a.runs[e.Run()] = r
	a.mu.Unlock()
	a.Log.Info("going on with a run of an earlier agent", "run", e.Run(), "step", e.Step, "turn_left", left.Round(time.Second))
	if machine != nil {
		// Whoever asks for the run ends it with its turn, and then collects nothing.
		overdue := time.AfterFunc(left+a.StepTimeout, func() { stop(errTurnIsOver) })
		context.AfterFunc(ctx, func() { overdue.Stop() })
	}
	go a.await(ctx, r)
}

// await ends an adopted run that nobody has asked for when there is a reason to.
func (a *Agent) await(ctx context.Context, r *run) {
	<-ctx.Done()
	a.mu.Lock()
	was := r.adopted
	r.adopted = nil
	a.mu.Unlock()
	if was == nil {
		return // somebody has asked for it
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errLeft) {
		if was.machine != nil {
			was.machine.Leave()
		}
		a.forget(r)
		return
	}
	a.Log.Info("ending a run of an earlier agent", "run", r.report.ID, "why", cause)
	if was.machine != nil {
		a.destroy(r.report.ID, func(ctx context.Context) error { return a.byName[was.entry.Input.Backend].Destroy(ctx, r.report.ID) })
	}
	// Room that the phase will need again is kept for it, as when its run is lost.
	a.finish(r, !errors.Is(cause, errLeaseEnded) && !errors.Is(cause, errEpochOver) && !errors.Is(cause, errStopping))
}

// claim gives an adopted run to whoever asks for it; nil: it is none, or is being
// ended. Agent.mu must be held.
func (a *Agent) claim(r *run) *adopted {
	was := r.adopted
	if was == nil || was.stopped() {
		return nil
	}
	r.adopted = nil
	a.drop(r)
	return was
}

// errNotHere says that a run that was to be gone on with is not there.
var errNotHere = errors.New("the agent does not have the run any more that it was to go on with")

// errLeft is why the agent's part in a run ends that the next agent goes on with.
var errLeft = errors.New("the node's agent was stopped, and the next one goes on with the run")

// canKeep reports whether the next agent can go on with a run: it has one machine,
// and no secrets, which are nowhere but in the memory of the agent.
func (a *Agent) canKeep(in workflows.ExecuteRunInput) bool {
	_, ok := a.byName[in.Backend].(vm.Adopter)
	return ok && a.KeepRuns && a.journal != nil && len(in.Agents) == 0 && len(in.Secrets) == 0
}

// note records what is known of the run, where it may be asked for again.
func (e *execution) note(step string, info *vm.Info, result *workflows.ExecuteRunResult) error {
	if e.entry == nil {
		return nil
	}
	e.entry.Step, e.entry.Result = step, result
	if info != nil {
		e.entry.Info = *info
	}
	return e.agent.journal.Write(*e.entry)
}

// keepMachine lets the machine outlive the agent from now on, if it can.
func (e *execution) keepMachine(machine vm.VM, info *vm.Info) error {
	kept, ok := machine.(vm.Kept)
	if e.entry == nil || !ok {
		return nil
	}
	// The command with the variables of its image, of which only this agent knows.
	// Runs with secrets are not kept.
	e.entry.Input.Command, e.entry.Images = e.in.Command, e.run.roots.digests()
	if err := e.note("run", info, nil); err != nil {
		return err
	}
	if err := kept.Keep(); err != nil {
		return err
	}
	e.agent.mu.Lock()
	defer e.agent.mu.Unlock()
	e.run.kept = kept
	return nil
}

// command runs the command, or goes on with it.
func (e *execution) command(ctx context.Context, machine vm.VM, c vm.Command) (vm.Exit, error) {
	e.agent.mu.Lock()
	kept := e.run.kept
	e.agent.mu.Unlock()
	if kept == nil {
		return machine.Run(ctx, c, e.logs.line)
	}
	var from vm.Position
	if e.adopted != nil {
		from = e.logs.resume(ctx, e.agent.Log)
	}
	return kept.Follow(ctx, c, from, e.logs.lineAt)
}

// resume goes on with a run of an earlier agent: its command runs, or has ended.
func (e *execution) resume(ctx, turn context.Context) workflows.ExecuteRunResult {
	was := e.adopted
	if was.entry.Result != nil {
		return *was.entry.Result
	}
	res := workflows.ExecuteRunResult{Info: was.entry.Info}
	e.step("run", &res.Info)
	return e.fromCommand(ctx, turn, was.machine, was.entry.Input.Command, res)
}

// leave lets go of a run for the next agent, if it can go on with it. Agent.mu must
// not be held.
func (a *Agent) leave(r *run) bool {
	a.mu.Lock()
	if r.adopted != nil {
		a.mu.Unlock()
		r.stop(errLeft)
		return true
	}
	kept := r.kept
	can := kept != nil && (r.report.Step == "run" || r.report.Step == "collect")
	r.left = can
	a.mu.Unlock()
	if can {
		a.Log.Info("leaving a run to the next agent", "run", r.report.ID)
		kept.Leave()
	}
	return can
}

func (a *Agent) hasLeft(r *run) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return r.left
}

// forget takes a run that goes on without this agent off its list.
func (a *Agent) forget(r *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(r)
}
