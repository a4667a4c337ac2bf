// Package serve is the guest's end of the protocol: it unpacks files into a
// workspace, runs one command after another there and gives back what changed.
// It is what the agent does in a virtual machine and in namespaces alike.
package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
)

// Options say where and how commands run.
type Options struct {
	Workspace string // an empty directory, at the latest after Init
	// Init applies the host's INIT; nil ignores it.
	Init func(guest.Init) error
	// Root is asked after Init for the root directory of commands, in which the
	// workspace has to be under its own name; nil, and empty, are the agent's own.
	Root func() string
	// OOMKills counts the processes killed so far because memory ran out; nil
	// means that nobody counts.
	OOMKills func() int64
	// Attr are attributes of commands, such as namespaces and a cgroup; nil is none.
	Attr func() *syscall.SysProcAttr
}

// server is the state of one conversation.
type server struct {
	conn    *guest.Conn
	opts    Options
	root    *os.Root // nil before INIT
	base    *baseline
	running *process
	done    chan error // receives the end of the running command's goroutine
}

// Serve speaks the protocol until BYE, which is success, or until the stream
// fails. A command that still runs then is killed.
func Serve(stream io.ReadWriteCloser, o Options) error {
	s := &server{conn: guest.NewConn(stream), opts: o}
	defer s.stop()
	if err := s.hello(); err != nil {
		return fmt.Errorf("greet the host: %w", err)
	}
	for {
		kind, payload, err := s.conn.Read()
		if err != nil {
			return fmt.Errorf("read from the host: %w", err)
		}
		if kind == guest.KindBye {
			return nil
		}
		if err := s.answer(kind, payload); err != nil {
			return err
		}
	}
}

// answer handles one frame. What goes wrong in a step is told to the host with
// FAIL; only a broken conversation is an error.
func (s *server) answer(kind guest.Kind, payload []byte) error {
	if kind == guest.KindSignal {
		return s.signal(payload)
	}
	if err := s.finish(); err != nil {
		return err
	}
	if first := kind == guest.KindInit || kind == guest.KindWake; first == (s.root != nil) {
		return fmt.Errorf("%w: the host sent %s, but INIT comes first, and once", guest.ErrProtocol, kind)
	}
	switch kind {
	case guest.KindWake:
		return s.hello()
	case guest.KindInit:
		return s.init(payload)
	case guest.KindPut:
		return s.put(payload)
	case guest.KindExec:
		return s.exec(payload)
	case guest.KindGet:
		return s.get(payload)
	default:
		return fmt.Errorf("%w: the host sent %s", guest.ErrProtocol, kind)
	}
}

func (s *server) hello() error {
	return s.conn.WriteJSON(guest.KindHello, guest.Hello{Proto: guest.Proto, Kernel: kernelRelease()})
}

func (s *server) init(payload []byte) error {
	var in guest.Init
	if err := guest.Decode(guest.KindInit, payload, &in); err != nil {
		return err
	}
	if err := s.begin(in); err != nil {
		code := vm.BootFailed
		if vm.IsImageInvalid(err) {
			code = vm.ImageInvalid
		}
		return errors.Join(err, s.fail(code, "%v", err))
	}
	// The kernel makes its boot id when it is first asked for, so it is not
	// asked before it has random numbers of its own.
	return s.conn.WriteJSON(guest.KindReady, guest.Ready{Nonce: in.Nonce, BootID: boot.ID()})
}

func (s *server) begin(in guest.Init) error {
	if s.opts.Init != nil {
		if err := s.opts.Init(in); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(s.opts.Workspace)
	if err != nil {
		return fmt.Errorf("open the workspace: %w", err)
	}
	s.root, s.base = root, newBaseline(root)
	return nil
}

// put unpacks the stream that starts with first. It reads the stream to its end
// even when it cannot be unpacked, so that the host is not left writing.
func (s *server) put(first []byte) error {
	chunks := &putChunks{conn: s.conn, payload: first, ended: len(first) == 0}
	manifest, err := unpack(s.root, chunks, s.base)
	if _, drainErr := io.Copy(io.Discard, chunks); drainErr != nil {
		return drainErr
	}
	if err != nil {
		return s.fail(vm.InjectFailed, "the files could not be unpacked in the machine: %v", err)
	}
	return s.conn.WriteJSON(guest.KindPutOK, manifest)
}

func (s *server) exec(payload []byte) error {
	var e guest.Exec
	if err := guest.Decode(guest.KindExec, payload, &e); err != nil {
		return err
	}
	var attr *syscall.SysProcAttr
	if s.opts.Attr != nil {
		attr = s.opts.Attr()
	}
	root := ""
	if s.opts.Root != nil {
		root = s.opts.Root()
	}
	p, err := start(e, root, s.opts.Workspace, attr)
	if err != nil {
		return s.fail(vm.CommandNotFound, "%v", err)
	}
	s.running, s.done = p, make(chan error, 1)
	go func() { s.done <- s.follow(p) }()
	return nil
}

// follow sends what the command prints and how it ends.
func (s *server) follow(p *process) error {
	var before int64
	if s.opts.OOMKills != nil {
		before = s.opts.OOMKills()
	}
	stopBeat := s.beat()
	exit, err := p.wait(func(stream byte, b []byte) error {
		return s.conn.Write(guest.KindLog, []byte{stream}, b)
	})
	stopBeat()
	if err != nil {
		return err
	}
	if s.opts.OOMKills != nil && exit.Killed() {
		exit.OOM = s.opts.OOMKills() > before
	}
	return s.conn.WriteJSON(guest.KindExit, exit)
}

func (s *server) signal(payload []byte) error {
	var sig guest.Signal
	if err := guest.Decode(guest.KindSignal, payload, &sig); err != nil {
		return err
	}
	if s.running == nil {
		return nil
	}
	if sig.Name == "KILL" {
		s.running.signal(syscall.SIGKILL)
	} else {
		s.running.signal(syscall.SIGTERM)
	}
	return nil
}

func (s *server) get(payload []byte) error {
	var g guest.Get
	if err := guest.Decode(guest.KindGet, payload, &g); err != nil {
		return err
	}
	globs, err := guest.ParseGlobs(g.Patterns)
	if err != nil {
		return s.fail(vm.CollectFailed, "%v", err)
	}
	changes, err := findChanges(s.root, s.base, globs, vm.Limits{Files: g.Files, Bytes: g.Bytes})
	if err == nil {
		err = s.sendChanges(changes)
	}
	if f := new(vm.Failure); errors.As(err, &f) {
		return s.fail(f.Code, "%s", f.Message)
	}
	return err
}

// finish waits for a command whose EXIT the host has read, or is about to.
func (s *server) finish() error {
	if s.running == nil {
		return nil
	}
	err := <-s.done
	s.running = nil
	return err
}

// stop closes the workspace, and ends a command that the host no longer listens to.
func (s *server) stop() {
	if s.root != nil {
		defer s.root.Close()
	}
	if s.running != nil {
		s.running.signal(syscall.SIGKILL)
		s.conn.Close()
		_ = s.finish() // the host that would be told is gone
	}
}

func (s *server) fail(code vm.FailureCode, format string, args ...any) error {
	return s.conn.WriteJSON(guest.KindFail, guest.Fail{Code: code, Message: fmt.Sprintf(format, args...)})
}

// putChunks reads the payloads of PUT frames as one stream.
type putChunks struct {
	conn    *guest.Conn
	payload []byte
	ended   bool
}

func (c *putChunks) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF
	}
	for len(c.payload) == 0 {
		kind, payload, err := c.conn.Read()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && kind != guest.KindPut {
			err = fmt.Errorf("%w: %s came inside a stream of PUT", guest.ErrProtocol, kind)
		}
		if err != nil {
			return 0, err
		}
		if len(payload) == 0 {
			c.ended = true
			return 0, io.EOF
		}
		c.payload = payload
	}
	n := copy(p, c.payload)
	c.payload = c.payload[n:]
	return n, nil
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
