package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/keeper"
)

// Keeping says how machines get keepers.
type Keeping struct {
	Program string // the guest agent, which is a keeper when it is asked to be
	Lease   string // file that says when machines have to end; empty: they need not
}

// absolute makes names such that they mean the same in another directory.
func (k *Keeping) absolute() (err error) {
	if k.Program, err = filepath.Abs(k.Program); err == nil && k.Lease != "" {
		k.Lease, err = filepath.Abs(k.Lease)
	}
	return err
}

// KeptProcess is a machine's process whose parent is a keeper. It implements
// [Child].
type KeptProcess struct {
	client  *keeper.Client
	machine proc
	keeper  proc
	reaped  chan struct{} // closed when the keeper, a child, was waited for; nil: it is none
}

// StartGuest starts the first process of a run's machine, in dir as [Start] has it.
// The guest agent's end of its connection takes the place guestAt of cmd.ExtraFiles;
// the other end is returned. With a keeper, which k is for, cmd's output is the
// keeper's to remember, and its directory that of the run.
func StartGuest(cmd *exec.Cmd, guestAt int, run *Run, dir string, k *Keeping) (Child, net.Conn, error) {
	if k != nil {
		p, conn, err := startKept(cmd, guestAt, run, *k)
		if err != nil {
			return nil, nil, err
		}
		return p, conn, nil
	}
	ours, theirs, err := SocketPair()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles[guestAt] = theirs
	p, err := Start(cmd, dir)
	theirs.Close() // so that the end of the process is the end of the connection
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return p, ours, nil
}

// startKept starts a keeper for a run, and cmd below it.
func startKept(cmd *exec.Cmd, guestAt int, run *Run, k Keeping) (*KeptProcess, net.Conn, error) {
	if err := k.absolute(); err != nil {
		return nil, nil, err
	}
	p, err := startKeeper(run, k.Program)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs, err := SocketPair()
	if err == nil {
		defer theirs.Close()
		if err = p.startMachine(cmd, guestAt, k.Lease, theirs); err == nil {
			return p, ours, nil
		}
		ours.Close()
	}
	return nil, nil, errors.Join(err, p.Kill(context.Background()))
}

func startKeeper(run *Run, program string) (*KeptProcess, error) {
	control, theirs, err := keeper.SocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	child := &exec.Cmd{
		Path: program, Args: []string{"tidewait-guest", keeper.Argument, run.Dir}, Dir: run.Dir, Env: []string{},
		ExtraFiles: []*os.File{theirs},
		// What a terminal sends to this program is not for its machines.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := child.Start(); err != nil {
		control.Close()
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	p := &KeptProcess{client: keeper.NewClient(control), keeper: proc{PID: child.Process.Pid}, reaped: make(chan struct{})}
	p.keeper.StartTicks, err = keeper.StartTicks(child.Process.Pid) // before it can be reaped
	go func() {
		_ = child.Wait() // that it has ended is all there is to know
		close(p.reaped)
	}()
	if err == nil {
		run.Keeper, run.BootID = &p.keeper, boot.ID()
		err = run.write()
	}
	if err != nil {
		return nil, errors.Join(err, p.Kill(context.Background()))
	}
	return p, nil
}

func (p *KeptProcess) startMachine(cmd *exec.Cmd, guestAt int, lease string, stream *os.File) error {
	s := keeper.Start{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Guest: guestAt, Lease: lease}
	if cmd.SysProcAttr != nil {
		s.Attr = *cmd.SysProcAttr
	}
	var files []*os.File
	for i, f := range cmd.ExtraFiles {
		s.Files = append(s.Files, f != nil && i != guestAt)
		if s.Files[i] {
			files = append(files, f)
		}
	}
	started, err := p.client.Start(s, stream, files)
	p.machine = proc(started)
	return err
}

// adoptProcess takes over what the journal of an earlier program names.
func adoptProcess(run *Run) (*KeptProcess, error) {
	if run.Kept == nil || run.Keeper == nil {
		return nil, errors.New("its machine was not to outlive its program")
	}
	if run.BootID != boot.ID() {
		return nil, errors.New("the host was started again")
	}
	now, err := keeper.StartTicks(run.Keeper.PID)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now != run.Keeper.StartTicks {
		return nil, errKeeperGone
	}
	if err != nil {
		return nil, err
	}
	client, err := keeper.Dial(run.Dir, run.Keeper.PID)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, keeper.ErrGone) {
		return nil, errKeeperGone
	}
	if err != nil {
		return nil, err
	}
	return &KeptProcess{client: client, machine: proc{run.PID, run.StartTicks}, keeper: *run.Keeper}, nil
}

var errKeeperGone = errors.New("its keeper is gone")

// PID implements [Child].
func (p *KeptProcess) PID() int { return p.machine.PID }

// Done implements [Child]. It is closed too when the keeper has gone, with which
// the machine ends.
func (p *KeptProcess) Done() <-chan struct{} { return p.client.Done() }

// Kill implements [Child]: it ends the machine, and then its keeper.
func (p *KeptProcess) Kill(ctx context.Context) error {
	if p.machine.PID != 0 {
		if err := killOther(ctx, p.machine.PID, p.machine.StartTicks); err != nil {
			return err
		}
	}
	err := killOther(ctx, p.keeper.PID, p.keeper.StartTicks)
	if err == nil && p.reaped != nil {
		<-p.reaped
	}
	p.client.Close()
	return err
}

// State implements [Child].
func (p *KeptProcess) State() string {
	if e := p.client.Ended(); e != nil {
		return e.State
	}
	return "the end of its keeper"
}

// Words are what the process said last.
func (p *KeptProcess) Words() keeper.Words { return p.client.Words() }

// Keep has the machine, which is what info says, outlive this program from now on.
func (g *Guest) Keep(run *Run, info vm.Info) error {
	kept, ok := g.Process.(*KeptProcess)
	if !ok {
		return errors.New("the machine has no keeper")
	}
	run.Kept = &info
	if err := run.write(); err != nil {
		return err
	}
	return kept.client.Keep()
}

// Adopt makes the machine that an earlier program kept this one.
func (g *Guest) Adopt(run *Run) error {
	kept, err := adoptProcess(run)
	if err != nil {
		return err
	}
	g.Process, g.Cgroup = kept, openCgroup(run.Cgroups)
	return nil
}

// endedWithLease reports whether the keeper ended the machine with the node's lease.
func (g *Guest) endedWithLease() bool {
	kept, ok := g.Process.(*KeptProcess)
	if !ok {
		return false
	}
	e := kept.client.Ended()
	return e != nil && e.Lease
}

// Leave implements [vm.Kept].
func (g *Guest) Leave() {
	if kept, ok := g.Process.(*KeptProcess); ok {
		kept.client.Close()
	}
	if g.Session != nil {
		g.Session.Close()
	}
}

// EndedAt implements [vm.Kept].
func (g *Guest) EndedAt() time.Duration {
	kept, ok := g.Process.(*KeptProcess)
	if !ok {
		return 0
	}
	state, err := kept.client.State()
	if err != nil {
		return 0 // what the machine is asked next says so
	}
	return state.EndedAt
}

// Follow implements [vm.Kept].
func (g *Guest) Follow(ctx context.Context, c vm.Command, from vm.Position, sink vm.LineSink) (vm.Exit, error) {
	if g.Session != nil {
		return g.run(ctx, g.Cgroup.OOMKills(), func() (vm.Exit, error) {
			return g.Session.ExecLines(ctx, guest.Exec{Argv: c.Argv, Env: c.Env}, g.KillGrace, sink)
		})
	}
	state, err := g.rejoin()
	if err != nil {
		return vm.Exit{}, g.explain(&vm.Failure{Code: vm.MachineDied, Message: fmt.Sprintf("the machine was lost while its agent was away: %v", err)})
	}
	return g.run(ctx, 0, func() (vm.Exit, error) {
		if !state.Executed {
			return g.Session.ExecLines(ctx, guest.Exec{Argv: c.Argv, Env: c.Env}, g.KillGrace, sink)
		}
		return g.Session.Follow(ctx, state.Begin, from, g.KillGrace, sink)
	})
}

// rejoin makes an adopted machine's session.
func (g *Guest) rejoin() (keeper.State, error) {
	ours, theirs, err := SocketPair()
	if err != nil {
		return keeper.State{}, err
	}
	defer theirs.Close()
	state, err := g.Process.(*KeptProcess).client.Attach(theirs)
	if err == nil {
		g.Session, err = guest.Rejoin(ours, state.Hello)
	}
	if err != nil {
		ours.Close()
	}
	return state, err
}
