package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/keeper"
)

// Child is the process of a machine.
type Child interface {
	// PID is the id of the process.
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Kill kills the process and waits for its end, as long as ctx lasts. It may
	// be called more than once.
	Kill(ctx context.Context) error
	// State says how the process ended, such as "exit status 1"; it is to be asked
	// after Done.
	State() string
}

// Process is a child that dies with this program. It implements [Child].
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts cmd, and arranges for the kernel to kill it when this program
// ends in whatever way. With a dir the process starts in that directory even
// when the path to it is closed to its user.
func Start(cmd *exec.Cmd, dir string) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.supervise(dir, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// supervise starts the process and waits for it in one thread, because the
// kernel takes the end of the thread that started a process for the end of its
// parent. The thread is thrown away afterwards: it may have a working directory
// of its own.
func (p *Process) supervise(dir string, started chan<- error) {
	runtime.LockOSThread()
	if dir != "" {
		if err := enter(dir); err != nil {
			started <- err
			return
		}
	}
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // its outcome is kept in ProcessState
	close(p.done)
}

// enter changes the working directory of the calling thread alone.
func enter(dir string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("take a working directory apart: %w", err)
	}
	return unix.Chdir(dir)
}

// PID implements [Child].
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done implements [Child].
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill implements [Child].
func (p *Process) Kill(ctx context.Context) error {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	ctx, cancel := patience(ctx)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d was killed but has not gone: %w", p.PID(), context.Cause(ctx))
	}
}

// State implements [Child].
func (p *Process) State() string { return p.cmd.ProcessState.String() }

// killWait is how long what was killed may take to go when the context does not
// say.
const killWait = 10 * time.Second

// patience is ctx, which ends after killWait when it has no deadline of its own.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, killWait, fmt.Errorf("it takes longer than %s", killWait))
}

// killOther kills a process that is not a child, if it still is the one that
// started at the given time, and waits for its end.
func killOther(ctx context.Context, pid int, ticks uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	// The descriptor holds one process; comparing now cannot be fooled by reuse.
	if now, err := keeper.StartTicks(pid); errors.Is(err, fs.ErrNotExist) || (err == nil && now != ticks) {
		return nil
	} else if err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	ctx, cancel := patience(ctx)
	defer cancel()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for process %d: %w", pid, err)
		case ctx.Err() != nil:
			return fmt.Errorf("process %d was killed but has not gone: %w", pid, context.Cause(ctx))
		}
	}
}
