// Package keep is the life of a keeper: it starts one machine, carries the guest's
// frames to the program that has it, remembers what a command printed for the
// program that may come after, and ends the machine when its time is over.
package keep

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/keeper"
	"tidewait/internal/vm/tail"
)

// Main is the whole life of a keeper. It must be called by the program's first
// goroutine.
func Main() error {
	// The kernel takes the end of the thread that started a process for the end
	// of its parent. The first thread ends with the program.
	runtime.LockOSThread()
	unix.Umask(0o077)
	if err := unix.CloseRange(keeper.ControlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors from the machine: %w", err)
	}
	control, err := keeper.Conn(os.NewFile(keeper.ControlFD, "control"))
	if err != nil {
		return err
	}
	k := &keep{dropped: make(chan struct{}, 1)}
	stream, err := k.start(control)
	if err != nil {
		return err
	}
	l, err := keeper.Listen(".")
	if err != nil {
		k.kill()
		return err
	}
	k.frames = newFrames(k.conn)
	k.frames.attach(stream)
	go k.serve(control)
	go k.accept(l)
	return k.untilOver()
}

// keep is the state of one keeper.
type keep struct {
	cmd            *exec.Cmd
	conn           *net.UnixConn // to the guest
	frames         *frames
	stdout, stderr tail.Tail
	lease          string
	dropped        chan struct{} // receives when a program has gone

	mu      sync.Mutex
	control *net.UnixConn // of the program that has the machine; nil: none
	kept    bool
	ended   *keeper.Ended // nil: the machine lives
}

// start starts the machine that the first message asks for.
func (k *keep) start(control *net.UnixConn) (stream *net.UnixConn, err error) {
	var r keeper.Request
	files, err := keeper.Receive(control, &r)
	if err != nil {
		return nil, err
	}
	defer keeper.CloseAll(files)
	if r.Start == nil || len(files) == 0 {
		return nil, errors.New("the first message did not start a machine")
	}
	k.lease, k.control = r.Start.Lease, control
	stream, err = keeper.Conn(files[0])
	if err != nil {
		return nil, err
	}
	started, err := k.spawn(*r.Start, files[1:])
	if err != nil {
		failed := keeper.Failed{Message: err.Error(), Missing: errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)}
		return nil, errors.Join(err, keeper.Send(control, keeper.Event{Failed: &failed}))
	}
	return stream, keeper.Send(control, keeper.Event{Started: &started})
}

func (k *keep) spawn(s keeper.Start, files []*os.File) (keeper.Started, error) {
	conn, theirs, err := keeper.SocketPair(unix.SOCK_STREAM)
	if err != nil {
		return keeper.Started{}, err
	}
	defer theirs.Close()
	k.conn = conn
	attr := s.Attr
	attr.Pdeathsig = syscall.SIGKILL
	k.cmd = &exec.Cmd{
		Path: s.Path, Args: s.Args, Env: s.Env, Stdout: &k.stdout, Stderr: &k.stderr, SysProcAttr: &attr,
		ExtraFiles: make([]*os.File, len(s.Files)),
	}
	for i, wanted := range s.Files {
		switch {
		case i == s.Guest:
			k.cmd.ExtraFiles[i] = theirs
		case wanted && len(files) > 0:
			k.cmd.ExtraFiles[i], files = files[0], files[1:]
		}
	}
	if err := k.cmd.Start(); err != nil {
		return keeper.Started{}, err
	}
	ticks, err := keeper.StartTicks(k.cmd.Process.Pid)
	if err != nil {
		k.kill()
		return keeper.Started{}, err
	}
	return keeper.Started{PID: k.cmd.Process.Pid, StartTicks: ticks}, nil
}

func (k *keep) kill() { _ = k.cmd.Process.Kill() } // an error means that it has ended

// accept lets the next program have the machine.
func (k *keep) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if _, uid, err := keeper.Peer(c); err != nil || uid != uint32(os.Geteuid()) { //nolint:gosec // user ids fit
			c.Close()
			continue
		}
		k.take(c)
		go k.serve(c)
	}
}

// take gives the machine to another program.
func (k *keep) take(c *net.UnixConn) {
	k.frames.detach()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.control != nil {
		k.control.Close()
	}
	if k.control = c; k.ended != nil {
		k.tell(c)
	}
}

// serve answers a program until it goes.
func (k *keep) serve(c *net.UnixConn) {
	defer k.drop(c)
	for {
		var r keeper.Request
		files, err := keeper.Receive(c, &r)
		if err != nil {
			return
		}
		if err := k.answer(c, r, files); err != nil {
			return
		}
	}
}

func (k *keep) answer(c *net.UnixConn, r keeper.Request, files []*os.File) error {
	defer keeper.CloseAll(files)
	switch {
	case r.Keep:
		k.frames.remember()
		k.mu.Lock()
		k.kept = true
		k.mu.Unlock()
		return keeper.Send(c, keeper.Event{Kept: true})
	case r.State:
		s := k.frames.state()
		return keeper.Send(c, keeper.Event{State: &s})
	case r.Words:
		return keeper.Send(c, keeper.Event{Words: k.words()})
	case r.Attach && len(files) == 1:
		stream, err := keeper.Conn(files[0])
		if err != nil {
			return err
		}
		// The answer comes before the stream is read, which it may take long.
		return k.frames.attachTold(stream, func(s keeper.State) error { return keeper.Send(c, keeper.Event{State: &s}) })
	}
	return errors.New("a request asks for nothing")
}

// maxWords bounds each of the last words, in bytes. In a message they may become
// six times as long.
const maxWords = 2 << 10

func (k *keep) words() *keeper.Words {
	return &keeper.Words{Stdout: clip(k.stdout.LastLine()), Stderr: clip(k.stderr.LastLine())}
}

func clip(words string) string {
	if len(words) <= maxWords {
		return words
	}
	return strings.ToValidUTF8(words[:maxWords], "") + "…"
}

// drop notices that a program has gone.
func (k *keep) drop(c *net.UnixConn) {
	c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.control != c {
		return // another has the machine already
	}
	k.control = nil
	k.frames.detach()
	select {
	case k.dropped <- struct{}{}:
	default:
	}
}

// tell says how the machine ended. It is called with mu held.
func (k *keep) tell(c *net.UnixConn) {
	_ = keeper.Send(c, keeper.Event{Ended: k.ended}) // whoever is not there need not know
}

// untilOver ends the machine when its time is over or nobody wants it, and returns
// when it has ended and nobody will ask how.
func (k *keep) untilOver() error {
	over, lease := make(chan struct{}), make(chan error, 1)
	go func() {
		_ = k.cmd.Wait() // its outcome is kept in ProcessState
		<-k.frames.over  // what the guest has said comes before
		close(over)
	}()
	go func() { lease <- untilEnd(k.lease) }()
	var failed error
	for alive, expired := true, false; ; {
		select {
		case <-k.dropped:
		case failed = <-lease:
			expired = true // also when nobody can say how long it lasts
		case <-over:
			alive, over = false, nil
			k.end(expired)
		}
		switch wanted := k.wanted(expired); {
		case alive && (expired || !wanted):
			k.kill()
		case !alive && !wanted:
			return failed
		}
	}
}

// wanted reports whether a program has the machine, or one may come.
func (k *keep) wanted(expired bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.control != nil || k.kept && !expired
}

// end tells how the machine ended.
func (k *keep) end(expired bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = &keeper.Ended{State: k.cmd.ProcessState.String(), Lease: expired, Words: *k.words()}
	if k.control != nil {
		k.tell(k.control)
	}
}
