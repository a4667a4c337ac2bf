package e2e

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wire stands between a part of the product and a service. It passes on what
// comes, unless a test cuts it, stalls it or makes it slow.
type wire struct {
	listener net.Listener
	to       string // host:port of the service

	mu      sync.Mutex
	changed chan struct{} // closed when the state below is another
	cut     bool          // connections are reset, new ones too
	stalled bool          // connections stay, and nothing comes through
	delay   time.Duration // of everything that comes through
	open    map[net.Conn]bool
}

// newWire makes a wire to a service; a part uses its address instead of the
// service's.
func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: l, to: to, changed: make(chan struct{}), open: map[net.Conn]bool{}}
	go w.accept()
	t.Cleanup(func() {
		_ = l.Close()
		w.set(func() { w.cut = true })
	})
	return w
}

func (w *wire) address() string { return w.listener.Addr().String() }

// set changes the state. One that is cut loses its connections.
func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
	if w.cut {
		for c := range w.open {
			reset(c)
		}
	}
}

// mend ends whatever was wrong.
func (w *wire) mend() { w.set(func() { w.cut, w.stalled, w.delay = false, false, 0 }) }

// reset closes a connection without a goodbye.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func (w *wire) accept() {
	for {
		c, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.connect(c)
	}
}

func (w *wire) connect(from net.Conn) {
	to, err := (&net.Dialer{}).Dial("tcp", w.to) //nolint:noctx // it ends with the wire
	if err != nil {
		reset(from)
		return
	}
	w.mu.Lock()
	w.open[from], w.open[to] = true, true
	cut := w.cut
	w.mu.Unlock()
	if cut {
		reset(from)
		reset(to)
	}
	var both sync.WaitGroup
	both.Go(func() { w.pass(from, to) })
	both.Go(func() { w.pass(to, from) })
	both.Wait()
	w.mu.Lock()
	delete(w.open, from)
	delete(w.open, to)
	w.mu.Unlock()
}

// piece is something on its way.
type piece struct {
	data []byte
	due  time.Time
}

// pass carries what comes from one end to the other, until one of them closes.
func (w *wire) pass(from, to net.Conn) {
	pieces, ended := make(chan piece, 1<<10), make(chan struct{})
	go func() {
		defer close(ended)
		defer to.Close()
		for p := range pieces {
			if !w.await(p.due, to) {
				return
			}
			if _, err := to.Write(p.data); err != nil {
				return
			}
		}
	}()
	defer from.Close()
	defer close(pieces)
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if n > 0 {
			w.mu.Lock()
			due := time.Now().Add(w.delay)
			w.mu.Unlock()
			select {
			case pieces <- piece{bytes.Clone(buffer[:n]), due}:
			case <-ended:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await waits until something is due and comes through. It reports whether the
// connection is still there.
func (w *wire) await(due time.Time, c net.Conn) bool {
	if left := time.Until(due); left > 0 {
		<-time.After(left)
	}
	for {
		w.mu.Lock()
		stalled, open, changed := w.stalled, w.open[c], w.changed
		w.mu.Unlock()
		if !stalled || !open {
			return open
		}
		<-changed
	}
}
