package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

type nothing struct{}

func (nothing) Kill() error { return nil }

// leave makes a run as a program would that ended without destroying it.
func leave(t *testing.T, root string, record func(*Run)) {
	t.Helper()
	runs, err := OpenRuns[nothing](root)
	require.NoError(t, err)
	_, err = runs.Create(t.Context(), "left", func(_ context.Context, run *Run) (nothing, error) {
		record(run)
		return nothing{}, run.write()
	})
	require.NoError(t, err)
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestDestroyKillsWhatWasLeft(t *testing.T) {
	root, cmd := t.TempDir(), sleeper(t)
	leave(t, root, func(run *Run) {
		ticks, err := startTicks(cmd.Process.Pid)
		require.NoError(t, err)
		run.PID, run.StartTicks, run.BootID = cmd.Process.Pid, ticks, bootID()
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	runs, err := OpenRuns[nothing](root)
	require.NoError(t, err)
	ids, err := runs.List()
	require.NoError(t, err)
	require.Equal(t, []string{"left"}, ids)
	require.NoError(t, runs.Destroy(t.Context(), "left"))
	require.EqualError(t, <-ended, "signal: killed")
	ids, err = runs.List()
	require.NoError(t, err)
	require.Empty(t, ids)
}

// TestDestroySparesOthers gives the id of the run's process to another one, as
// time or a restart of the host may do.
func TestDestroySparesOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		ticks uint64
		boot  string
	}{
		{"another start", 1, ""},
		{"another boot", 0, "another"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, cmd := t.TempDir(), sleeper(t)
			leave(t, root, func(run *Run) {
				ticks, err := startTicks(cmd.Process.Pid)
				require.NoError(t, err)
				run.PID, run.StartTicks, run.BootID = cmd.Process.Pid, ticks+c.ticks, bootID()+c.boot
			})
			runs, err := OpenRuns[nothing](root)
			require.NoError(t, err)
			require.NoError(t, runs.Destroy(t.Context(), "left"))
			require.NoError(t, cmd.Process.Signal(syscall.Signal(0)))
			left, err := os.ReadDir(filepath.Join(root, "runs"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestCreateLeavesNothingWhenItFails(t *testing.T) {
	root := t.TempDir()
	runs, err := OpenRuns[nothing](root)
	require.NoError(t, err)
	broken := errors.New("broken")
	for _, id := range []string{"a", "a", "../../etc", "mission/phase 1/ä"} {
		var dir string
		_, err = runs.Create(t.Context(), id, func(_ context.Context, run *Run) (nothing, error) {
			dir = run.Dir
			return nothing{}, broken
		})
		require.ErrorIs(t, err, broken)
		require.Equal(t, filepath.Join(root, "runs"), filepath.Dir(dir))
		require.NoDirExists(t, dir)
	}
	_, err = runs.Create(t.Context(), "", nil)
	require.EqualError(t, err, "a run id of 0 bytes cannot be used; 1 to 512 are allowed")
}

func TestTail(t *testing.T) {
	var tail Tail
	require.Empty(t, tail.LastLine())
	for range 100_000 {
		_, err := tail.Write([]byte("a line of the console\r\n"))
		require.NoError(t, err)
	}
	_, err := tail.Write([]byte("the last one\r\n\r\n"))
	require.NoError(t, err)
	require.Equal(t, "the last one", tail.LastLine())
	require.LessOrEqual(t, len(tail.buf), 2*tailSize)
}

func TestNamesDifferBetweenDirectories(t *testing.T) {
	names := map[string]bool{}
	for range 2 {
		runs, err := OpenRuns[nothing](t.TempDir())
		require.NoError(t, err)
		_, err = runs.Create(t.Context(), "probe", func(_ context.Context, run *Run) (nothing, error) {
			names[run.Name()] = true
			return nothing{}, nil
		})
		require.NoError(t, err)
	}
	require.Len(t, names, 2)
}
