package qemu_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// making is the environment variable that makes a test program make a snapshot
// until it is killed. It names the directory of runs.
const making = "TIDEWAIT_VMTEST_MAKING"

var shape = vm.Spec{CPUMilli: 1000, MemoryMiB: 128}

// makeIfAsked is what the child of TestKilledWhileMaking does.
func makeIfAsked() {
	dir := os.Getenv(making)
	if dir == "" {
		return
	}
	b, err := newFastBackend(dir)
	if err == nil {
		err = b.Snapshot(context.Background(), shape)
	}
	fmt.Println("nobody killed this program while it made a snapshot:", err)
	os.Exit(1)
}

// TestKilledWhileMaking kills a program at the moments of a snapshot's making:
// while its machine boots, while its state is written, while it is tried. What is
// left is never used, and goes.
func TestKilledWhileMaking(t *testing.T) {
	for _, c := range []struct {
		name string
		now  func(dir string) bool
		runs []string
	}{
		{"booting", func(dir string) bool { return len(find(dir, "runs/snapshot.*/journal.json")) == 1 }, []string{"snapshot"}},
		{"writing", func(dir string) bool { return len(find(dir, "snapshots/*.new/state")) == 1 }, []string{"snapshot"}},
		{"trying", func(dir string) bool { return len(find(dir, "runs/snapshot-trial.*/journal.json")) == 1 }, []string{"snapshot-trial"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), making+"="+dir)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return c.now(dir) }, 2*time.Minute, time.Millisecond)
			require.NoError(t, cmd.Process.Kill())
			require.EqualError(t, cmd.Wait(), "signal: killed")

			b, err := newFastBackend(dir)
			require.NoError(t, err)
			defer b.Close()
			ids, err := b.List(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.runs, ids, "what the dead program left can be destroyed")
			require.NoError(t, b.Destroy(t.Context(), ids[0]))
			require.Empty(t, find(dir, "snapshots/*"))
			require.Empty(t, machinesOf(t, dir))
			require.Zero(t, b.Starts().Snapshots)

			s := shape
			s.RunID = "after"
			m, err := b.Create(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, vm.Start{Kind: vm.StartCold, Why: "there is no snapshot of such a machine yet"}, m.Info().Start)
			require.NoError(t, b.Destroy(t.Context(), s.RunID))
		})
	}
}

func find(dir, pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, pattern))
	return found
}

// machinesOf lists the processes that have a file of a directory open.
func machinesOf(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	require.NoError(t, err)
	var found []string
	for _, l := range links {
		target, err := os.Readlink(l)
		var pid int
		if err == nil && strings.HasPrefix(target, dir) {
			_, err = fmt.Sscanf(l, "/proc/%d/", &pid)
			require.NoError(t, err)
			if pid != os.Getpid() && syscall.Kill(pid, 0) == nil {
				found = append(found, l)
			}
		}
	}
	return found
}
