package keep

import (
	"net"
	"slices"
	"sync"
	"time"

	"tidewait/internal/boot"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/keeper"
)

// frames carries the frames of the guest protocol between the guest and the
// program that has its machine. Whole frames only: one that a program did not
// finish writing is none, and the answer to what a program asked for that has gone
// is read to its end and thrown away, so that the next program finds the
// conversation between two steps.
type frames struct {
	guest *guest.Conn
	over  chan struct{} // closed when the guest has nothing more to say

	switching sync.Mutex // held by whoever changes the stream

	streamMu sync.Mutex
	stream   *stream // of the program that has the machine; nil: none

	mu       sync.Mutex // held while a frame is taken, and given to the program
	closed   bool       // the guest has nothing more to say
	hello    []byte
	asked    []*stream // who waits for an answer, in order, but for a command's
	keeping  bool      // what a command prints is remembered
	executed bool
	printed  output
	answer   []byte        // how the command ended, as the guest said it; nil: it runs
	kind     guest.Kind    // of answer
	at       time.Duration // of answer, after the host's boot
}

// stream is a connection to a program.
type stream struct {
	conn   *guest.Conn
	closer *net.UnixConn
}

func newFrames(conn *net.UnixConn) *frames {
	return &frames{guest: guest.NewConn(conn), over: make(chan struct{})}
}

// begin carries frames from the guest until it has nothing more to say.
func (f *frames) begin() {
	defer close(f.over)
	for {
		kind, payload, err := f.guest.Read()
		f.mu.Lock()
		if err != nil {
			f.closed = true
			f.detach() // the end of the guest is the end of the stream
			f.mu.Unlock()
			return
		}
		f.take(kind, payload)
		f.mu.Unlock()
	}
}

// take remembers what a frame tells, and gives it to the program it is for. It is
// called with mu held.
func (f *frames) take(kind guest.Kind, payload []byte) {
	current := f.current()
	to := current
	switch kind {
	case guest.KindHello:
		f.hello = slices.Clone(payload)
	case guest.KindLog:
		if f.keeping && len(payload) > 0 {
			f.printed.add(payload[0], payload[1:])
		}
	case guest.KindBeat:
	case guest.KindExit:
		f.ended(kind, payload)
	case guest.KindFail:
		if len(f.asked) == 0 && f.executed && f.answer == nil {
			f.ended(kind, payload)
		} else {
			to = f.answered()
		}
	case guest.KindTar, guest.KindDeleted:
		if len(f.asked) > 0 {
			to = f.asked[0]
		}
	case guest.KindReady, guest.KindPutOK, guest.KindTarEnd:
		to = f.answered()
	}
	if to != nil && to == current && to.conn.Write(kind, payload) != nil {
		to.closer.Close() // whoever does not listen has gone
	}
}

// ended remembers how the command ended, and when.
func (f *frames) ended(kind guest.Kind, payload []byte) {
	f.kind, f.answer, f.at = kind, slices.Clone(payload), boot.Now()
}

// answered is who waited for an answer that is complete. A guest that says what
// nobody asked for says it to the program that is there.
func (f *frames) answered() *stream {
	if len(f.asked) == 0 {
		return f.current()
	}
	to := f.asked[0]
	f.asked = f.asked[1:]
	return to
}

func (f *frames) current() *stream {
	f.streamMu.Lock()
	defer f.streamMu.Unlock()
	return f.stream
}

// detach lets go of the program's stream. It never waits for the program.
func (f *frames) detach() {
	f.streamMu.Lock()
	defer f.streamMu.Unlock()
	if f.stream != nil {
		f.stream.closer.Close()
		f.stream = nil
	}
}

// attach gives the guest a program that is there from the start.
func (f *frames) attach(conn *net.UnixConn) {
	s := &stream{conn: guest.NewConn(conn), closer: conn}
	f.stream = s
	go f.begin()
	go f.listen(s)
}

// attachTold gives the guest another program, which is told where the guest is, and
// then what its command has printed as far as that is remembered.
func (f *frames) attachTold(conn *net.UnixConn, tell func(keeper.State) error) error {
	f.switching.Lock()
	defer f.switching.Unlock()
	f.detach()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &stream{conn: guest.NewConn(conn), closer: conn}
	if err := tell(f.stateNow()); err != nil {
		conn.Close()
		return err
	}
	f.streamMu.Lock()
	f.stream = s
	f.streamMu.Unlock()
	if f.replay(s) != nil || f.closed {
		f.detach()
		return nil
	}
	go f.listen(s)
	return nil
}

func (f *frames) replay(s *stream) error {
	if !f.executed {
		return nil
	}
	for _, c := range f.printed.chunks {
		if err := s.conn.Write(guest.KindLog, []byte{c.stream}, c.bytes); err != nil {
			return err
		}
	}
	if f.answer == nil {
		return nil
	}
	return s.conn.Write(f.kind, f.answer)
}

// listen carries frames from a program to the guest until it goes.
func (f *frames) listen(s *stream) {
	defer s.closer.Close()
	for {
		kind, payload, err := s.conn.Read()
		if err != nil {
			return
		}
		if !f.ask(s, kind, payload) || f.guest.Write(kind, payload) != nil {
			return
		}
	}
}

// ask notes what a program asks the guest for. It reports false when another has
// taken its place: that one was told what had been asked for until then, and would
// ask for it again.
func (f *frames) ask(s *stream, kind guest.Kind, payload []byte) bool {
	if kind != guest.KindExec && kind != guest.KindGet && kind != guest.KindInit && (kind != guest.KindPut || len(payload) > 0) {
		return s == f.current()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s != f.current() {
		return false
	}
	if kind == guest.KindExec {
		f.executed, f.printed, f.answer, f.at = true, output{}, nil, 0
	} else {
		f.asked = append(f.asked, s)
	}
	return true
}

// remember begins to remember what commands print.
func (f *frames) remember() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeping = true
}

func (f *frames) state() keeper.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stateNow()
}

func (f *frames) stateNow() keeper.State {
	return keeper.State{
		Proto: keeper.Proto, Hello: f.hello, Executed: f.executed, Ended: f.answer != nil, EndedAt: f.at, Begin: f.printed.begin,
	}
}
