package group

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/segment"
)

// meet has a machine serve its name until everybody has asked everybody.
const meet = `set -e
mkdir www; hostname >www/name
busybox httpd -p 80 -h www
for h in author critic-1 critic-2; do
	until name=$(busybox wget -q -O - http://$h/name 2>/dev/null); do sleep 0.1; done
	echo "$h is $name"
done
for a in $(sed -n 's/ critic-. critic$//p' /etc/hosts); do echo "critic is at $a"; done
echo done >www/done
for h in author critic-1 critic-2; do
	until busybox wget -q -O - http://$h/done >/dev/null 2>&1; do sleep 0.1; done
done
`

// met is what a machine prints that found the others.
var met = []string{"author is author", "critic-1 is critic-1", "critic-2 is critic-2", "critic is at 10.84.87.2", "critic is at 10.84.87.3"}

// TestTopology has three machines find each other by name, exchange data and
// end when the one that decides does.
func TestTopology(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		g := create(t, l, "r7-1", designated(agent("author", 0, meet)), agent("critic", 2, meet+"sleep 3600"))
		out := newOutput()
		result, err := g.Run(t.Context(), out.of)
		require.NoError(t, err)
		require.Nil(t, result.Failed)
		for i, want := range []struct {
			name, runID, address string
			replica              int
			designated           bool
		}{
			{"author", "r7-1/author", "10.84.87.1", 0, true},
			{"critic-1", "r7-1/critic-1", "10.84.87.2", 1, false},
			{"critic-2", "r7-1/critic-2", "10.84.87.3", 2, false},
		} {
			end := result.Ends[i]
			require.Equal(t, want.name, end.Machine.Name)
			require.Equal(t, want.runID, end.Machine.RunID)
			require.Equal(t, netip.MustParseAddr(want.address), end.Machine.Address)
			require.Equal(t, want.replica, end.Machine.Replica)
			require.Equal(t, want.designated, end.Machine.Designated)
			require.Equal(t, !want.designated, end.Stopped, "%s ended with %+v", want.name, end.Exit)
			require.Equal(t, met, out.get(want.name))
			require.Contains(t, end.Machine.VM.Info().Isolation, "a private network with the machines of its run only")
		}
		require.Equal(t, vm.Exit{}, result.Ends[0].Exit)
		for name, traffic := range g.Traffic() {
			require.Positive(t, traffic.Received, name)
			require.Empty(t, traffic.Dropped, name)
		}

		var got []string
		_, err = result.Ends[0].Machine.VM.Collect(t.Context(), nil, vm.Limits{Files: 10, Bytes: 1 << 20}, writerFunc(func(b []byte) {
			got = append(got, string(b))
		}))
		require.NoError(t, err, "the machine of a command that ended by itself still gives its results")
		require.Contains(t, strings.Join(got, ""), "www/name")
	})
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// TestOneThatCannotStart asks for a machine whose run id is too long.
func TestOneThatCannotStart(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		runID := strings.Repeat("r", 500)
		_, err := Create(t.Context(), l, Options{RunID: runID, Agents: []Agent{agent("author", 0, "true"), agent("critic-with-a-name", 0, "true")}})
		require.EqualError(t, err, "machine critic-with-a-name: a run id of 519 bytes cannot be used; 1 to 512 are allowed")
		ids, err := l.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, ids)
	})
}

// TestCancelledWhileStarting ends the context when one machine is there and the
// next is on its way.
func TestCancelledWhileStarting(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		stop := errors.New("the mission was cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		created := make(chan error, 1)
		go func() {
			_, err := Create(ctx, l, Options{RunID: "r", Agents: []Agent{agent("author", 30, "true")}, Starts: 1})
			created <- err
		}()
		require.Eventually(t, func() bool {
			ids, err := l.List(t.Context())
			return err == nil && len(ids) > 1
		}, time.Minute, time.Millisecond)
		cancel(stop)
		require.ErrorIs(t, <-created, stop)
		ids, err := l.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, ids)
	})
}

func TestRefusesNames(t *testing.T) {
	_, err := Create(t.Context(), nil, Options{RunID: "r", Agents: []Agent{agent("a", 0, "true"), agent("a", 0, "true")}})
	require.EqualError(t, err, `agent "a": the host name "a" is already that of agent "a"`)
}

// TestEnds has commands end in every way. It is about groups, so that one
// backend will do, the fast one.
func TestEnds(t *testing.T) {
	on(t, labs(t)[0], func(t *testing.T, l lab) {
		t.Run("one that decides fails", func(t *testing.T) {
			g := create(t, l, "fails", designated(agent("a", 0, "exit 3")), designated(agent("b", 0, "sleep 3600")), agent("c", 0, "sleep 3600"))
			result, err := g.Run(t.Context(), newOutput().of)
			require.NoError(t, err)
			require.Equal(t, "a", result.Failed.Machine.Name)
			require.Equal(t, vm.Exit{Code: 3}, result.Failed.Exit)
			require.False(t, result.Ends[0].Stopped)
			require.True(t, result.Ends[1].Stopped)
			require.True(t, result.Ends[2].Stopped)
		})
		t.Run("one that does not decide fails", func(t *testing.T) {
			g := create(t, l, "helper", designated(agent("a", 0, "sleep 0.3")), agent("b", 0, "exit 3"))
			result, err := g.Run(t.Context(), newOutput().of)
			require.NoError(t, err)
			require.Nil(t, result.Failed)
			require.Equal(t, vm.Exit{}, result.Ends[0].Exit)
			require.Equal(t, vm.Exit{Code: 3}, result.Ends[1].Exit)
			require.False(t, result.Ends[1].Stopped)
		})
		t.Run("nobody is designated", func(t *testing.T) {
			g := create(t, l, "all", agent("a", 2, "sleep 0.3"), agent("b", 0, "true"))
			result, err := g.Run(t.Context(), newOutput().of)
			require.NoError(t, err)
			require.Nil(t, result.Failed)
			for _, end := range result.Ends {
				require.False(t, end.Stopped)
				require.Equal(t, vm.Exit{}, end.Exit)
			}
		})
		t.Run("one has no such command", func(t *testing.T) {
			a := agent("b", 0, "")
			a.Command.Argv = []string{"no-such-command"}
			g := create(t, l, "missing", designated(agent("a", 0, "sleep 3600")), a)
			_, err := g.Run(t.Context(), newOutput().of)
			requireFailure(t, err, vm.CommandNotFound, `machine b: the command "no-such-command" does not exist`)
		})
		t.Run("it is cancelled", func(t *testing.T) {
			g := create(t, l, "cancelled", agent("a", 2, `trap 'echo terminated; exit 0' TERM; echo ready; while :; do sleep 0.05; done`))
			stop := errors.New("the turn is over")
			ctx, cancel := context.WithCancelCause(t.Context())
			out := newOutput()
			go func() {
				out.awaitReady(t, "a-1")
				out.awaitReady(t, "a-2")
				cancel(stop)
			}()
			_, err := g.Run(ctx, out.of)
			require.ErrorIs(t, err, stop)
			require.Contains(t, out.get("a-1"), "terminated")
			require.Contains(t, out.get("a-2"), "terminated")
		})
		t.Run("a step fails in one", func(t *testing.T) {
			g := create(t, l, "step", agent("a", 2, "true"))
			err := g.Each(t.Context(), func(ctx context.Context, m Machine) error {
				if m.Name == "a-1" {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				_, err := m.VM.Collect(ctx, []string{"../x"}, vm.Limits{}, nil)
				return err
			})
			requireFailure(t, err, vm.CollectFailed, `machine a-2: the pattern "../x"`)
		})
	})
}

// TestLostMachine kills one of two machines while both run.
func TestLostMachine(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		g := create(t, l, "lost", designated(agent("a", 0, "sleep 3600")), agent("b", 0, "echo ready; sleep 3600"))
		pid, other := l.pid(t, "lost/b"), l.pid(t, "lost/a")
		out := newOutput()
		go func() {
			out.awaitReady(t, "b")
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}()
		_, err := g.Run(t.Context(), out.of)
		requireFailure(t, err, vm.MachineDied, "machine b: the machine was lost while running the command")
		require.Contains(t, err.Error(), "signal: killed")
		require.NoError(t, g.Destroy(t.Context()))
		require.NoError(t, g.Destroy(t.Context()), "twice")
		for _, p := range []int{pid, other} {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", p))
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	})
}

// TestLostNetwork breaks the network while both machines run.
func TestLostNetwork(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		g := create(t, l, "cut", agent("a", 0, "echo ready; while :; do busybox wget -q -O - http://b/ 2>/dev/null; sleep 0.1; done"), agent("b", 0, "sleep 3600"))
		out, cut := newOutput(), make(chan struct{})
		go func() {
			defer close(cut)
			out.awaitReady(t, "a")
			_ = unix.Shutdown(int(g.segment.NIC(1).Cable.Fd()), unix.SHUT_RD)
		}()
		_, err := g.Run(t.Context(), out.of)
		<-cut
		requireFailure(t, err, vm.SegmentFailed, "the network between the machines of the run failed at the port of b: ")
	})
}

// TestLeftBehind destroys a group that a program left, and creates one again.
func TestLeftBehind(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		first := create(t, l, "r1", agent("a", 2, "true"))
		second := create(t, l, "r1", agent("a", 0, "hostname"))
		ids, err := l.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"r1/a"}, ids)
		out := newOutput()
		_, err = second.Run(t.Context(), out.of)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, out.get("a"))
		require.NoError(t, Destroy(t.Context(), l, "r"), "another run")
		ids, err = l.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"r1/a"}, ids)
		require.NoError(t, Destroy(t.Context(), l, "r1"))
		ids, err = l.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, ids)
		require.NoError(t, first.Destroy(t.Context()))
	})
}

// TestRestored restores the machines of a group from one snapshot, which is not
// that of machines without a network.
func TestRestored(t *testing.T) {
	dir := t.TempDir()
	on(t, lab{dir: dir, root: true}, func(t *testing.T, l lab) {
		b, err := qemu.New(qemu.Options{Image: guestImage, RunDir: dir, Accel: qemu.AccelTCG, KillGrace: killGrace, BootTimeout: time.Minute, Snapshots: 2})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		l.Backend = b

		without := size
		require.NoError(t, b.Snapshot(t.Context(), without))
		with := size
		with.NIC = &vm.NIC{}
		require.NoError(t, b.Snapshot(t.Context(), with))
		require.Equal(t, int64(2), b.Starts().Snapshots)

		g := create(t, l, "r7-1", designated(agent("author", 0, meet)), agent("critic", 2, meet+"sleep 3600"))
		require.Equal(t, int64(3), b.Starts().Snapshot, b.Starts().Why)
		out := newOutput()
		result, err := g.Run(t.Context(), out.of)
		require.NoError(t, err)
		require.Nil(t, result.Failed)
		for _, name := range []string{"author", "critic-1", "critic-2"} {
			require.Equal(t, met, out.get(name))
		}

		without.RunID = "alone"
		m, err := b.Create(t.Context(), without)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Destroy(context.Background(), "alone")) })
		require.Equal(t, int64(4), b.Starts().Snapshot, b.Starts().Why)
		require.Equal(t, []string{"lo"}, sh(t, Machine{Host: segment.Host{Name: "alone"}, VM: m}, `sed -n 's/^ *\([a-z0-9]*\):.*/\1/p' /proc/net/dev`))
	})
}

// TestNoNetwork has a machine without a segment beside a group.
func TestNoNetwork(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		create(t, l, "group", agent("a", 0, "true"))
		spec := size
		spec.RunID = "alone"
		m, err := l.Create(t.Context(), spec)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Destroy(context.Background(), "alone")) })
		alone := Machine{Host: segment.Host{Name: "alone"}, VM: m}
		require.Equal(t, []string{"tidewait", "127.0.0.1 localhost tidewait", "::1 localhost", "lo"},
			sh(t, alone, `hostname; cat /etc/hosts; sed -n 's/^ *\([a-z0-9]*\):.*/\1/p' /proc/net/dev`))
		require.Contains(t, m.Info().Isolation, "no network")
	})
}

func requireFailure(t *testing.T, err error, code vm.FailureCode, part string) {
	t.Helper()
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Message)
	require.Contains(t, f.Message, part)
}
