package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"tidewait/internal/vm"
)

// Session is the host's end of the protocol. Its methods are called one after
// another. A method that fails leaves the session unusable, but for Exec with
// command_not_found.
type Session struct {
	conn  *Conn
	hello Hello
	ready Ready
}

// Open waits for the guest's HELLO.
func Open(ctx context.Context, stream io.ReadWriteCloser) (*Session, error) {
	return open(ctx, stream, func(*Conn) error { return nil })
}

// Resume wakes a guest that was restored from a snapshot, and waits for its
// HELLO. That the guest is awake before INIT keeps its clock right.
func Resume(ctx context.Context, stream io.ReadWriteCloser) (*Session, error) {
	return open(ctx, stream, func(c *Conn) error { return c.Write(KindWake) })
}

func open(ctx context.Context, stream io.ReadWriteCloser, wake func(*Conn) error) (*Session, error) {
	s := &Session{conn: NewConn(stream)}
	defer s.closeWith(ctx)()
	if err := wake(s.conn); err != nil {
		return nil, s.lost(ctx, "waking the guest agent", err)
	}
	kind, payload, err := s.conn.Read()
	if err == nil {
		err = s.expect(KindHello, kind, payload, &s.hello)
	}
	if err == nil && s.hello.Proto != Proto {
		err = fmt.Errorf("the guest agent speaks protocol %d, this program %d; build the guest image again", s.hello.Proto, Proto)
	}
	if err != nil {
		return nil, s.lost(ctx, "waiting for the guest agent", err)
	}
	return s, nil
}

// Rejoin goes on with a guest that has said its HELLO to an earlier session, and has
// its run.
func Rejoin(stream io.ReadWriteCloser, hello []byte) (*Session, error) {
	s := &Session{conn: NewConn(stream)}
	if err := Decode(KindHello, hello, &s.hello); err != nil {
		return nil, err
	}
	if s.hello.Proto != Proto {
		return nil, fmt.Errorf("the guest agent speaks protocol %d, this program %d", s.hello.Proto, Proto)
	}
	return s, nil
}

// Hello is what the guest said of itself.
func (s *Session) Hello() Hello { return s.hello }

// BootID is what the guest's kernel calls its own boot; it is empty before Init.
func (s *Session) BootID() string { return s.ready.BootID }

// Close ends the session without a word.
func (s *Session) Close() error { return s.conn.Close() }

// Init gives the guest its run, its network and its root directory if it has them,
// the time of the host and entropy, and waits until it has taken them.
func (s *Session) Init(ctx context.Context, spec vm.Spec) error {
	defer s.closeWith(ctx)()
	entropy := make([]byte, 64)
	rand.Read(entropy) // documented to never fail
	nonce := rand.Text()
	err := s.conn.WriteJSON(KindInit, Init{
		RunID: spec.RunID, WallTime: time.Now(), Entropy: entropy, Nonce: nonce, Network: spec.Network(), Root: spec.Root != nil && spec.Root.File != nil,
	})
	if err == nil {
		err = s.receiveReady(nonce)
	}
	if err != nil {
		return s.lost(ctx, "greeting the guest agent", err)
	}
	return nil
}

func (s *Session) receiveReady(nonce string) error {
	kind, payload, err := s.conn.Read()
	if err == nil {
		err = s.expect(KindReady, kind, payload, &s.ready)
	}
	if err == nil && s.ready.Nonce != nonce {
		err = fmt.Errorf("%w: READY answers another INIT", ErrProtocol)
	}
	return err
}

// Put sends a tar stream to be unpacked in the workspace. It returns what the
// guest unpacked, after the digest of what was sent.
func (s *Session) Put(ctx context.Context, tar io.Reader) (vm.Manifest, error) {
	defer s.closeWith(ctx)()
	const doing = "putting files into the machine"
	digests := newStreamDigests()
	var answer struct {
		kind    Kind
		payload []byte
		err     error
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		// The guest answers once: at the end, or early when it cannot go on.
		answer.kind, answer.payload, answer.err = s.conn.Read()
	}()
	sendErr := s.sendTar(tar, digests, answered)
	if src := new(sourceError); errors.As(sendErr, &src) {
		s.conn.Close()
		<-answered
		if ctx.Err() != nil {
			return vm.Manifest{}, s.lost(ctx, doing, src)
		}
		return vm.Manifest{}, &vm.Failure{Code: vm.InjectFailed, Message: fmt.Sprintf("the workspace could not be read while it was put into the machine: %v", src.err)}
	}
	<-answered
	if answer.err != nil {
		return vm.Manifest{}, s.lost(ctx, doing, errors.Join(sendErr, answer.err))
	}
	var said Tally
	if err := s.expect(KindPutOK, answer.kind, answer.payload, &said); err != nil {
		return vm.Manifest{}, s.lost(ctx, doing, err)
	}
	if want := SumText(digests.sum); said.Sum != want {
		return vm.Manifest{}, &vm.Failure{Code: vm.InjectFailed, Message: fmt.Sprintf("the machine received files with the sum %.64q, but %s was sent", said.Sum, want)}
	}
	return digests.manifest(said), nil
}

// sourceError is a failure to read what is to be sent.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

func (s *Session) sendTar(tar io.Reader, digests io.Writer, answered <-chan struct{}) error {
	buf := make([]byte, ChunkSize)
	for {
		n, err := io.ReadFull(tar, buf)
		if n > 0 {
			_, _ = digests.Write(buf[:n]) // hashes take everything
			if err := s.conn.Write(KindPut, buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return s.conn.Write(KindPut)
		}
		if err != nil {
			return &sourceError{err}
		}
		select {
		case <-answered:
			return nil
		default:
		}
	}
}

// silence is how long a guest with a running command may say nothing; it sends
// a BEAT every second. Counted in ticks, so that a host that was itself stopped
// does not blame its guests.
const (
	silenceTick  = 5 * time.Second
	silenceTicks = 12
)

// Exec runs a command and waits for its end. When ctx ends the command gets
// TERM; when it has not ended after grace the session is closed. In both cases
// the error matches the cause of ctx, and in the first also vm.ErrEnded.
func (s *Session) Exec(ctx context.Context, e Exec, grace time.Duration, logs vm.LogSink) (vm.Exit, error) {
	if logs == nil {
		logs = func(string, []byte) {}
	}
	return s.ExecLines(ctx, e, grace, func(l vm.Line) { logs(l.Stream, l.Text) })
}

// ExecLines is Exec with the position of each line.
func (s *Session) ExecLines(ctx context.Context, e Exec, grace time.Duration, sink vm.LineSink) (vm.Exit, error) {
	if ctx.Err() != nil {
		return vm.Exit{}, s.lost(ctx, running, nil)
	}
	if err := s.conn.WriteJSON(KindExec, e); err != nil {
		return vm.Exit{}, s.lost(ctx, running, err)
	}
	return s.Follow(ctx, vm.Position{}, vm.Position{}, grace, sink)
}

const running = "running the command"

// Follow is Exec for a command that was begun before, of whose output the session
// carries what was printed from begin on, and sink wants what came after from.
func (s *Session) Follow(ctx context.Context, begin, from vm.Position, grace time.Duration, sink vm.LineSink) (vm.Exit, error) {
	var frames atomic.Int64
	defer s.watchSilence(&frames)()
	defer s.terminateWith(ctx, grace)()
	lines := newTranscript(begin, from, sink)
	for {
		kind, payload, err := s.conn.Read()
		if err != nil {
			return vm.Exit{}, s.lost(ctx, running, err)
		}
		frames.Add(1)
		switch kind {
		case KindBeat:
		case KindLog:
			if len(payload) == 0 || payload[0] < 1 || payload[0] > 2 {
				return vm.Exit{}, s.lost(ctx, running, fmt.Errorf("%w: LOG without a stream", ErrProtocol))
			}
			if payload[0] == 1 {
				lines.out.write(payload[1:])
			} else {
				lines.err.write(payload[1:])
			}
		default:
			lines.flush()
			var exit vm.Exit
			if err := s.expect(KindExit, kind, payload, &exit); err != nil {
				return exit, s.lost(ctx, running, err)
			}
			if ctx.Err() != nil {
				return exit, fmt.Errorf("%w: %w", vm.ErrEnded, context.Cause(ctx))
			}
			return exit, nil
		}
	}
}

// terminateWith asks the command to end when ctx does, and closes the session
// a grace period later.
func (s *Session) terminateWith(ctx context.Context, grace time.Duration) (stop func()) {
	over := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		kill := time.AfterFunc(grace, func() { s.conn.Close() })
		defer kill.Stop()
		if s.conn.WriteJSON(KindSignal, Signal{Name: "TERM"}) != nil {
			s.conn.Close()
		}
		<-over
	})
	return func() { unhook(); close(over) }
}

// watchSilence closes the session when no frame came for too long.
func (s *Session) watchSilence(frames *atomic.Int64) (stop func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(silenceTick)
		defer tick.Stop()
		silent, last := 0, int64(0)
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			now := frames.Load()
			if now != last {
				silent, last = 0, now
				continue
			}
			if silent++; silent == silenceTicks {
				s.conn.Close()
				return
			}
		}
	}()
	return func() { close(over) }
}

// Get collects the changes since Put into w. What is in w is complete and
// valid only when Get succeeds.
func (s *Session) Get(ctx context.Context, patterns []string, limits vm.Limits, w io.Writer) (vm.Result, error) {
	defer s.closeWith(ctx)()
	const doing = "collecting results"
	if _, err := ParseGlobs(patterns); err != nil {
		return vm.Result{}, &vm.Failure{Code: vm.CollectFailed, Message: err.Error()}
	}
	get := Get{Patterns: patterns, Files: limits.Files, Bytes: limits.Bytes}
	if err := s.conn.WriteJSON(KindGet, get); err != nil {
		return vm.Result{}, s.lost(ctx, doing, err)
	}
	chunks := &tarChunks{conn: s.conn}
	arrived, digests, err := receiveTar(chunks, limits, w)
	var deleted []string
	if err == nil {
		deleted, err = s.receiveEnd(chunks, arrived)
	}
	if err != nil {
		return vm.Result{}, s.lost(ctx, doing, err)
	}
	return vm.Result{Manifest: digests.manifest(arrived), Deleted: deleted}, nil
}

// receiveEnd reads what follows a tar stream, and compares what the guest says of it
// with what arrived. The paths it returns are sorted.
func (s *Session) receiveEnd(chunks *tarChunks, arrived Tally) (deleted []string, err error) {
	kind, payload := chunks.kind, chunks.payload
	size := 0 // of the names
	for kind == KindDeleted {
		var names []string
		if err := Decode(kind, payload, &names); err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := CheckName(name); err != nil {
				return nil, collectFailed("the machine lists as deleted what it must not: %v", err)
			}
		}
		if size += vm.DeletedBytes(names); size > vm.MaxDeletedBytes {
			return nil, &vm.Failure{
				Code:    vm.ResultsTooLarge,
				Message: fmt.Sprintf("the names of the deleted files take more than %d bytes; collect less of them", vm.MaxDeletedBytes),
			}
		}
		if deleted = append(deleted, names...); len(deleted) > maxDeleted {
			return nil, collectFailed("the machine lists more than %d deleted files", maxDeleted)
		}
		if kind, payload, err = s.conn.Read(); err != nil {
			return nil, err
		}
	}
	var end TarEnd
	if err := s.expect(KindTarEnd, kind, payload, &end); err != nil {
		return nil, err
	}
	if end.Tally != arrived || end.Deleted != len(deleted) {
		return nil, collectFailed("the results did not arrive whole: the machine sent %d files, %d bytes, sum %.64q and %d deletions; %d, %d, %s and %d arrived",
			end.Files, end.Bytes, end.Sum, end.Deleted, arrived.Files, arrived.Bytes, arrived.Sum, len(deleted))
	}
	slices.Sort(deleted)
	return deleted, nil
}

// Bye tells the guest that it is no longer needed, and closes the session.
func (s *Session) Bye() error {
	return errors.Join(s.conn.Write(KindBye), s.conn.Close())
}

// expect decodes the payload of a frame of the wanted kind, and makes an error
// of any other.
func (s *Session) expect(want, kind Kind, payload []byte, v any) error {
	switch kind {
	case want:
		if err := Decode(kind, payload, v); err != nil {
			return err
		}
		return believable(v)
	case KindFail:
		var f Fail
		if err := Decode(kind, payload, &f); err != nil {
			return err
		}
		return failureOf(want, f)
	default:
		return fmt.Errorf("%w: %s came where %s was due", ErrProtocol, kind, want)
	}
}

// closeWith closes the session when ctx ends before stop is called, which ends
// every read and write.
func (s *Session) closeWith(ctx context.Context) (stop func()) {
	unhook := context.AfterFunc(ctx, func() { s.conn.Close() })
	return func() { unhook() }
}

// lost explains err: the end of ctx, a failure of the step, or a machine that
// is gone.
func (s *Session) lost(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if f := new(vm.Failure); errors.As(err, &f) {
		return f
	}
	if w := new(sinkError); errors.As(err, &w) {
		return fmt.Errorf("%s: %w", doing, w.err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errConnectionEnded
	}
	return &vm.Failure{Code: vm.MachineDied, Message: fmt.Sprintf("the machine was lost while %s: %v", doing, err)}
}
