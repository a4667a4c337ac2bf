package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
)

// Guest is a process on the host with a guest agent behind a connection. It is
// all of a [vm.VM] but Info.
type Guest struct {
	Process     Child
	Cgroup      *Cgroup // nil: no limits but the machine's own
	Session     *guest.Session
	StepTimeout time.Duration // of Inject and of Collect
	KillGrace   time.Duration // between TERM and Kill
	// LastWords says what the process said last; it is asked when it is gone.
	LastWords func() string

	kill   sync.Mutex // held while killing
	killed bool       // nothing is left to end or remove
}

// Confine journals the process and puts it into the cgroup.
func (g *Guest) Confine(run *Run) error {
	err := run.Record(g.Cgroup, g.Process)
	if err == nil {
		err = g.Cgroup.Add(g.Process)
	}
	if errors.Is(err, syscall.ESRCH) {
		return &vm.Failure{Code: vm.BootFailed, Message: "the machine ended at once" + g.obituary()}
	}
	return err
}

// Greet waits for the guest agent on conn, at most for timeout, and from then on
// limits the CPU. When it fails conn is closed and the process has to be killed.
func (g *Guest) Greet(ctx context.Context, conn net.Conn, s vm.Spec, timeout time.Duration) error {
	return g.meet(ctx, conn, timeout, func(ctx context.Context) (*guest.Session, error) {
		session, err := guest.Open(ctx, conn)
		if err != nil {
			return nil, err
		}
		return session, g.begin(ctx, session, s)
	})
}

// Resume is Greet for a guest that load restores from a snapshot.
func (g *Guest) Resume(ctx context.Context, conn net.Conn, s vm.Spec, timeout time.Duration, load func(context.Context) error) error {
	return g.meet(ctx, conn, timeout, func(ctx context.Context) (*guest.Session, error) {
		if err := load(ctx); err != nil {
			return nil, err
		}
		session, err := guest.Resume(ctx, conn)
		if err != nil {
			return nil, err
		}
		return session, g.begin(ctx, session, s)
	})
}

// Hear waits for the guest agent on conn, at most for timeout, and tells it
// nothing: the guest is that of no run yet. When it fails conn is closed and
// the process has to be killed.
func (g *Guest) Hear(ctx context.Context, conn net.Conn, timeout time.Duration) error {
	return g.meet(ctx, conn, timeout, func(ctx context.Context) (*guest.Session, error) {
		return guest.Open(ctx, conn)
	})
}

func (g *Guest) begin(ctx context.Context, session *guest.Session, s vm.Spec) error {
	if err := session.Init(ctx, s); err != nil {
		return err
	}
	return g.Cgroup.LimitCPU(s.CPUMilli)
}

func (g *Guest) meet(ctx context.Context, conn net.Conn, timeout time.Duration, with func(context.Context) (*guest.Session, error)) error {
	late := &vm.Failure{Code: vm.BootFailed, Message: fmt.Sprintf("it did not answer within %s", timeout)}
	bootCtx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	session, err := with(bootCtx)
	if err == nil {
		g.Session = session
		return nil
	}
	conn.Close()
	if ctx.Err() != nil {
		return fmt.Errorf("start the machine: %w", context.Cause(ctx))
	}
	if bootCtx.Err() != nil {
		err = late
	}
	if vm.IsImageInvalid(err) {
		return err
	}
	obituary := g.obituary()
	if g.endedWithLease() {
		return vm.ErrLease
	}
	return &vm.Failure{Code: vm.BootFailed, Message: fmt.Sprintf("the machine did not start: %v%s", err, obituary)}
}

// Inject implements [vm.VM].
func (g *Guest) Inject(ctx context.Context, tar io.Reader) (vm.Manifest, error) {
	ctx, cancel := g.step(ctx, "putting files into the machine")
	defer cancel()
	manifest, err := g.Session.Put(ctx, tar)
	return manifest, g.explain(err)
}

// Run implements [vm.VM].
func (g *Guest) Run(ctx context.Context, c vm.Command, logs vm.LogSink) (vm.Exit, error) {
	return g.run(ctx, g.Cgroup.OOMKills(), func() (vm.Exit, error) {
		return g.Session.Exec(ctx, guest.Exec{Argv: c.Argv, Env: c.Env}, g.KillGrace, logs)
	})
}

// run waits for a command, before which so many processes of the cgroup had been
// killed because memory ran out.
func (g *Guest) run(ctx context.Context, before int64, wait func() (vm.Exit, error)) (vm.Exit, error) {
	exit, err := wait()
	if exit.Killed() && g.Cgroup.OOMKills() > before {
		exit.OOM = true
	}
	if errors.Is(err, vm.ErrEnded) && errors.Is(err, vm.ErrKeep) {
		return exit, err
	}
	if err != nil && ctx.Err() != nil {
		return exit, errors.Join(err, g.Kill(context.WithoutCancel(ctx)))
	}
	return exit, g.explain(err)
}

// Collect implements [vm.VM].
func (g *Guest) Collect(ctx context.Context, patterns []string, limits vm.Limits, w io.Writer) (vm.Result, error) {
	ctx, cancel := g.step(ctx, "collecting results")
	defer cancel()
	result, err := g.Session.Get(ctx, patterns, limits, w)
	return result, g.explain(err)
}

// Kill ends the process at once, and removes its cgroup. The guest is not
// asked: nothing in it is worth saving. When ctx was too short for all of it,
// the next Kill goes on.
func (g *Guest) Kill(ctx context.Context) error {
	g.kill.Lock()
	defer g.kill.Unlock()
	if g.killed {
		return nil // by now the cgroup's name may be that of another machine
	}
	var err error
	if g.Process != nil {
		err = g.Process.Kill(ctx)
	}
	if g.Session != nil {
		g.Session.Close()
	}
	if err == nil {
		err = g.Cgroup.Remove(ctx)
	}
	g.killed = err == nil
	return err
}

// step gives a step its own deadline.
func (g *Guest) step(ctx context.Context, doing string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, g.StepTimeout, &vm.Failure{
		Code:    vm.StepTimeout,
		Message: fmt.Sprintf("%s took longer than %s", doing, g.StepTimeout),
	})
}

// explain adds to the loss of a machine how it went.
func (g *Guest) explain(err error) error {
	f := new(vm.Failure)
	if !errors.As(err, &f) || f.Code != vm.MachineDied {
		return err
	}
	obituary := g.obituary()
	if g.endedWithLease() {
		return vm.ErrLease
	}
	return &vm.Failure{Code: f.Code, Message: f.Message + obituary}
}

// dieWait is how long a process may take to end after its connection has.
const dieWait = time.Second

// obituary says how the process ended, if it has, and its last words.
func (g *Guest) obituary() string {
	words := ""
	select {
	case <-g.Process.Done():
		words = "; its process ended with " + g.Process.State()
	case <-time.After(dieWait):
	}
	if last := g.LastWords(); last != "" {
		words += "; " + last
	}
	return words
}
