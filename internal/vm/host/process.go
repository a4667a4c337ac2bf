package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a child that dies with this program.
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

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill kills the process and waits for its end, as long as ctx lasts. It may be
// called more than once.
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

// State says how the process ended, such as "exit status 1"; it is to be asked
// after Done.
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
	if now, err := startTicks(pid); errors.Is(err, fs.ErrNotExist) || (err == nil && now != ticks) {
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

// startTicks is when a process started, in clock ticks since boot.
func startTicks(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; fields are counted after it.
	_, rest, _ := cutLast(string(b), ") ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3 // the rest begins with field 3
	if len(fields) <= startTime {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	return strconv.ParseUint(fields[startTime], 10, 64)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
