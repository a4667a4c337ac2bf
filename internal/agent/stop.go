package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidewait/internal/vm"
	"tidewait/workflows"
)

// ErrNoRun says that the agent does not have a run.
var ErrNoRun = errors.New("the agent does not have the run")

// stopped is why a run ends that a person has cancelled.
type stopped struct {
	reason string
	at     time.Time
	keep   bool // what it has made is wanted
}

func (s *stopped) Error() string { return s.reason }

// Is makes a run whose work is wanted leave its machine alive.
func (s *stopped) Is(target error) bool { return s.keep && target == vm.ErrKeep }

// stopOf is why a person ended the run of ctx; nil: nobody has.
func stopOf(ctx context.Context) *stopped {
	var s *stopped
	errors.As(context.Cause(ctx), &s)
	return s
}

// StopRun ends a run because a person asked for it: its command gets TERM, a
// grace period, and then the machine is killed. With keep, what is there is
// collected when the command ends within its grace, for as long as that lasts; a
// run that is collecting by then goes on with that, and succeeds when it is done in
// the same time.
// It returns at once; Execute returns when the machine is gone. The error is
// [ErrNoRun].
func (a *Agent) StopRun(id, reason string, keep bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.runs[id]
	if !ok {
		return fmt.Errorf("run %s: %w", id, ErrNoRun)
	}
	a.Log.Info("stopping a run", "run", id, "reason", reason, "keep", keep)
	r.stop(&stopped{reason: reason, at: time.Now(), keep: keep})
	return nil
}

// keeping is ctx for what is being collected already: when the run is stopped and
// its work is wanted, it goes on for the grace.
func (a *Agent) keeping(ctx context.Context) (context.Context, context.CancelFunc) {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, vm.ErrKeep) {
		return ctx, func() {} // what is hooked below would be told later
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, vm.ErrKeep) {
			select {
			case <-time.After(a.KillGrace):
			case <-longer.Done():
			}
		}
		cancel(cause)
	})
	return longer, func() { unhook(); cancel(nil) }
}

// keep collects what a stopped run has made, in what is left of its grace.
func (e *execution) keep(ctx context.Context, s *stopped, machine vm.VM, res *workflows.ExecuteRunResult) error {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), s.at.Add(e.agent.KillGrace), &vm.Failure{
		Code: vm.StepTimeout, Message: fmt.Sprintf("it could not be collected within the grace of %s", e.agent.KillGrace),
	})
	defer cancel()
	e.step("collect", &res.Info)
	if err := e.collect(ctx, machine, res); err != nil {
		res.Results, res.Deleted = workflows.Object{}, nil
		return err
	}
	res.Partial = true
	return nil
}
