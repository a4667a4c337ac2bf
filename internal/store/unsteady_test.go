package store_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// unsteady stands between a store and its database, and breaks a connection
// between two of its messages when it is told to: the client has crashed then, as
// far as the database can tell.
type unsteady struct {
	listener net.Listener
	to       string

	mu      sync.Mutex
	left    int  // messages until it breaks; 0: it does not
	deliver bool // the last one still arrives, and its answer does not
	broken  int  // how often it has broken
}

func newUnsteady(t testing.TB, to string) *unsteady {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	u := &unsteady{listener: l, to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go u.pass(c)
		}
	}()
	return u
}

func (u *unsteady) address() string { return u.listener.Addr().String() }

// breakAfter breaks whichever connection sends the n-th message from now on.
func (u *unsteady) breakAfter(n int, deliver bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left, u.deliver = n, deliver
}

func (u *unsteady) breaks() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.broken
}

// breaksNow counts a message, and says whether the connection ends with it.
func (u *unsteady) breaksNow() (now, deliver bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.left == 0 {
		return false, true
	}
	if u.left--; u.left > 0 {
		return false, true
	}
	u.broken++
	return true, u.deliver
}

func (u *unsteady) pass(from net.Conn) {
	defer from.Close()
	to, err := (&net.Dialer{}).Dial("tcp", u.to) //nolint:noctx // it ends with the test
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	for buffer := make([]byte, 1<<20); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		breaks, deliver := u.breaksNow()
		if breaks {
			_ = from.Close()
		}
		if deliver {
			_, err = to.Write(buffer[:n])
		}
		if breaks || err != nil {
			return
		}
	}
}
