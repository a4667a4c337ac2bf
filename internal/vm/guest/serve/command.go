package serve

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
)

// What a command finds in its environment unless EXEC says otherwise.
const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultHome = "/root"
)

// process is a started command.
type process struct {
	pid      int
	out, err *os.File // read ends of its output

	mu    sync.Mutex
	ended bool
}

// start starts a command in the workspace, in a process group of its own, with
// nothing on its standard input. root is its root directory, and empty the
// agent's own.
func start(e guest.Exec, root, workspace string, attr *syscall.SysProcAttr) (*process, error) {
	if len(e.Argv) == 0 || e.Argv[0] == "" {
		return nil, errors.New("the command is empty")
	}
	if e.Cwd != "" && !filepath.IsLocal(e.Cwd) {
		return nil, fmt.Errorf("the directory %q is not inside the workspace", e.Cwd)
	}
	dir := filepath.Join(workspace, e.Cwd)
	env := environment(e.Env)
	path, err := lookPath(e.Argv[0], dir, env["PATH"], within(root))
	if err != nil {
		return nil, err
	}
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setpgid, attr.Chroot = true, root
	return fork(path, e.Argv, &syscall.ProcAttr{Dir: dir, Env: environ(env), Sys: attr})
}

func fork(path string, argv []string, attr *syscall.ProcAttr) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		outR.Close()
		return nil, err
	}
	defer errW.Close()
	attr.Files = []uintptr{null.Fd(), outW.Fd(), errW.Fd()}
	preferForOOM(true)
	pid, err := forkExec(path, argv, attr)
	preferForOOM(false)
	if err != nil {
		outR.Close()
		errR.Close()
		if errors.Is(err, syscall.ENOENT) {
			return nil, fmt.Errorf("the command %q cannot run: the interpreter or loader it names does not exist", argv[0])
		}
		return nil, fmt.Errorf("the command %q cannot run: %w", argv[0], err)
	}
	return &process{pid: pid, out: outR, err: errR}, nil
}

// namespaceWait is how long the user namespace of the command before may take
// to go, where one is all there may be: the kernel keeps that of a command that
// ran out of memory for two seconds.
const namespaceWait = 5 * time.Second

// forkExec tries again while there is no room for a namespace. The kernel does
// not tell when there is.
func forkExec(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	deadline := time.Now().Add(namespaceWait)
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		pid, err := syscall.ForkExec(path, argv, attr)
		if !errors.Is(err, syscall.ENOSPC) || time.Now().After(deadline) {
			return pid, err
		}
		<-retry.C
	}
}

// preferForOOM makes processes started now the first to be killed when memory
// runs out, and not the agent that has to tell of it.
func preferForOOM(prefer bool) {
	if os.Getpid() != 1 {
		return
	}
	score := "0"
	if prefer {
		score = "1000"
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(score), 0)
}

func environment(given map[string]string) map[string]string {
	env := map[string]string{"PATH": defaultPath, "HOME": defaultHome}
	for k, v := range given {
		env[k] = v
	}
	return env
}

func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// stat describes a file under the name that a command has for it.
type stat func(name string) (fs.FileMode, error)

// within looks at files as a command does whose root directory is root.
func within(root string) stat {
	if root == "" {
		return func(name string) (fs.FileMode, error) {
			info, err := os.Stat(name)
			if err != nil {
				return 0, err
			}
			return info.Mode(), nil
		}
	}
	return func(name string) (fs.FileMode, error) {
		dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(dir)
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if err != nil {
			return 0, err
		}
		file := os.NewFile(uintptr(fd), name)
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return 0, err
		}
		return info.Mode(), nil
	}
}

// lookPath finds the file of a command as a shell would.
func lookPath(name, dir, path string, look stat) (string, error) {
	if strings.Contains(name, "/") {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, executable(name, file, look)
	}
	for d := range strings.SplitSeq(path, ":") {
		if d == "" {
			d = "."
		}
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if file := filepath.Join(d, name); executable(name, file, look) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("the command %q does not exist in the machine (PATH is %s)", name, path)
}

func executable(name, file string, look stat) error {
	mode, err := look(file)
	switch {
	case err != nil:
		return fmt.Errorf("the command %q does not exist in the machine", name)
	case mode.IsDir():
		return fmt.Errorf("the command %q is a directory", name)
	case mode&0o111 == 0:
		return fmt.Errorf("the command %q is not executable", name)
	}
	return nil
}

// straggle is how long output may be held open by processes that outlived the
// command, where they cannot all be killed.
const straggle = 2 * time.Second

// wait gives all output to log and returns how the command ended. What the
// command left running is killed.
func (p *process) wait(log func(stream byte, b []byte) error) (vm.Exit, error) {
	var copies sync.WaitGroup
	var logErr [2]error
	for i, f := range []*os.File{p.out, p.err} {
		copies.Go(func() { logErr[i] = copyOutput(f, byte(i+1), log) })
	}
	status, err := p.reap()
	p.sweep()
	late := time.AfterFunc(straggle, func() { p.out.Close(); p.err.Close() })
	copies.Wait()
	late.Stop()
	p.out.Close()
	p.err.Close()
	return exitOf(status), errors.Join(err, logErr[0], logErr[1])
}

func copyOutput(f *os.File, stream byte, log func(byte, []byte) error) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := log(stream, buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// reap waits for the command. The first process of a machine also inherits
// everyone's orphans, and reaps them while it waits.
func (p *process) reap() (syscall.WaitStatus, error) {
	who := p.pid
	if os.Getpid() == 1 {
		who = -1
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(who, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return status, fmt.Errorf("wait for the command: %w", err)
		case pid == p.pid && (status.Exited() || status.Signaled()):
			p.mu.Lock()
			p.ended = true
			p.mu.Unlock()
			return status, nil
		}
	}
}

// sweep kills what the command left behind. The first process of a machine can
// kill everything; elsewhere the process group must do.
func (p *process) sweep() {
	if os.Getpid() != 1 {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		return
	}
	_ = syscall.Kill(-1, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			return
		}
	}
}

// signal sends a signal to the command's process group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = syscall.Kill(-p.pid, sig)
	}
}

func exitOf(status syscall.WaitStatus) vm.Exit {
	if status.Signaled() {
		return vm.Exit{Signal: signalName(status.Signal())}
	}
	return vm.Exit{Code: status.ExitStatus()}
}

// signalName is the name of a signal, or its number where it has none: an exit
// without a signal would be a success.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s))
}

// beat tells the host every second that the guest lives. After stop it tells
// nothing more: what the host asks for next is answered by other frames.
func (s *server) beat() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if s.conn.WriteJSON(guest.KindBeat, guest.Beat{MemoryFreeKiB: freeKiB()}) != nil {
					return
				}
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

func freeKiB() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Freeram) * int64(info.Unit) >> 10
}
