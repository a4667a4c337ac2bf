package qemu

import (
	"testing"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/keeper"
)

// FuzzMonitor lets a QEMU that its guest has taken over say anything on its monitor:
// it is refused or understood, and waits for nothing once it has hung up.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte(`{"QMP":{"version":{}}}{"return":{}}{"event":"MIGRATION","data":{"status":"completed"}}`))
	f.Add([]byte(`{"QMP":{}}{"error":{"desc":"no"}}`))
	f.Add([]byte(`{"QMP":null}`))
	f.Add([]byte(`{"event":"STOP"}`))
	f.Add([]byte(`{"QMP":1}{"event":1}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 100<<10 {
			return // more than a socket takes at once
		}
		ours, theirs, err := keeper.SocketPair(unix.SOCK_STREAM)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		if _, err := theirs.Write(said); err != nil {
			t.Fatal(err)
		}
		if err := unix.Shutdown(int(theirs.Fd()), unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		m, err := openMonitor(ours)
		if err != nil {
			return
		}
		if state, err := m.await("MIGRATION", "completed", "failed"); err == nil && state != "completed" && state != "failed" {
			t.Fatalf("it waited for a state and got %q", state)
		}
	})
}
