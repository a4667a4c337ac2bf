package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/keeper"
)

type nothing struct{}

func (nothing) Kill(context.Context) error { return nil }

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
		ticks, err := keeper.StartTicks(cmd.Process.Pid)
		require.NoError(t, err)
		run.PID, run.StartTicks, run.BootID = cmd.Process.Pid, ticks, boot.ID()
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
// TestAnAgentKilledWhileItDestroysLeavesNothingForGood: what is left is listed, or
// empty and gone with the next start.
func TestAnAgentKilledWhileItDestroysLeavesNothingForGood(t *testing.T) {
	root := t.TempDir()
	leave(t, root, func(*Run) {})
	left, err := filepath.Glob(filepath.Join(root, "runs", "*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	// What cannot be removed stops the removal as a kill does.
	stuck := filepath.Join(left[0], "a", "mounted")
	require.NoError(t, os.MkdirAll(stuck, 0o700))
	require.NoError(t, syscall.Mount("none", stuck, "tmpfs", 0, ""))
	unmount := sync.OnceFunc(func() { require.NoError(t, syscall.Unmount(stuck, 0)) })
	t.Cleanup(unmount)
	runs, err := OpenRuns[nothing](root)
	require.NoError(t, err)
	ids, err := runs.List()
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.Error(t, runs.Destroy(t.Context(), ids[0]))
	again, err := runs.List()
	require.NoError(t, err)
	require.Equal(t, ids, again, "the journal goes last")
	unmount()
	require.NoError(t, runs.Destroy(t.Context(), ids[0]))

	require.NoError(t, os.Mkdir(left[0], 0o700))
	_, err = OpenRuns[nothing](root)
	require.NoError(t, err)
	require.NoDirExists(t, left[0])
}

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
				ticks, err := keeper.StartTicks(cmd.Process.Pid)
				require.NoError(t, err)
				run.PID, run.StartTicks, run.BootID = cmd.Process.Pid, ticks+c.ticks, boot.ID()+c.boot
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

// TestAReusedIDIsNoKeeper: neither the machine's id nor its keeper's may be that of
// an innocent process.
func TestAReusedIDIsNoKeeper(t *testing.T) {
	root, machine, innocent := t.TempDir(), sleeper(t), sleeper(t)
	leave(t, root, func(run *Run) {
		ticks, err := keeper.StartTicks(innocent.Process.Pid)
		require.NoError(t, err)
		run.Keeper, run.Kept = &proc{PID: innocent.Process.Pid, StartTicks: ticks + 1}, &vm.Info{}
		run.PID, run.BootID = machine.Process.Pid, boot.ID()
		run.StartTicks, err = keeper.StartTicks(machine.Process.Pid)
		require.NoError(t, err)
		run.StartTicks--
	})
	runs, err := OpenRuns[*Guest](root)
	require.NoError(t, err)
	adopt := func() error {
		_, err := runs.Adopt("left", func(run *Run) (*Guest, error) {
			g := &Guest{}
			return g, g.Adopt(run)
		})
		return err
	}
	require.EqualError(t, adopt(), "adopt run left: its keeper is gone")
	leaks, err := runs.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, vm.Leaks{}, leaks)
	require.NoError(t, runs.Destroy(t.Context(), "left"))
	for _, p := range []*exec.Cmd{machine, innocent} {
		require.NoError(t, p.Process.Signal(syscall.Signal(0)))
	}
}

// TestAdoptRefuses says why a machine is of no use.
func TestAdoptRefuses(t *testing.T) {
	for want, record := range map[string]func(*Run){
		"its machine was not to outlive its program": func(*Run) {},
		"the host was started again": func(run *Run) {
			run.Keeper, run.Kept, run.BootID = &proc{PID: os.Getpid()}, &vm.Info{}, "another"
		},
	} {
		root := t.TempDir()
		leave(t, root, record)
		runs, err := OpenRuns[*Guest](root)
		require.NoError(t, err)
		_, err = runs.Adopt("left", func(run *Run) (*Guest, error) { return nil, (&Guest{}).Adopt(run) })
		require.EqualError(t, err, "adopt run left: "+want)
	}
}

// TestSweepKillsWhatIsInACgroupWithoutARun removes a directory and leaves its
// cgroup, where this host has any.
func TestSweepKillsWhatIsInACgroupWithoutARun(t *testing.T) {
	root := t.TempDir()
	runs, err := OpenRuns[*Guest](root)
	require.NoError(t, err)
	var straggler *Process
	var dir string
	var cgroups bool
	m, err := runs.Create(t.Context(), "left", func(_ context.Context, run *Run) (m *Guest, _ error) {
		dir = run.Dir
		m, straggler, cgroups = crowded(t, run)
		return m, nil
	})
	require.NoError(t, err)
	if !cgroups {
		return
	}
	require.NoError(t, os.RemoveAll(dir))
	again, err := OpenRuns[*Guest](root)
	require.NoError(t, err)
	leaks, err := again.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, vm.Leaks{Cgroups: 1}, leaks)
	<-straggler.Done()
	<-m.Process.Done()
	for _, dir := range m.Cgroup.dirs() {
		require.NoDirExists(t, dir)
	}
	other, err := OpenRuns[*Guest](t.TempDir())
	require.NoError(t, err)
	leaks, err = other.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, vm.Leaks{}, leaks, "what is another node's is not this one's")
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

// crowded is a machine whose cgroup holds one process more than is killed with
// it. Without cgroups on this host there is nothing to test, and ok is false.
func crowded(t *testing.T, run *Run) (m *Guest, straggler *Process, ok bool) {
	t.Helper()
	cgroup, err := NewCgroup(run.Name(), Limits{MemoryMiB: 64, Pids: 16})
	if err != nil {
		require.ErrorIs(t, err, ErrNoCgroups)
		t.Log(err)
		return nil, nil, false
	}
	var sleepers [2]*Process
	for i := range sleepers {
		sleepers[i], err = Start(exec.Command("sleep", "3600"), "")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sleepers[i].Kill(context.Background())) })
		require.NoError(t, cgroup.Add(sleepers[i]))
	}
	require.NoError(t, run.Record(cgroup, sleepers[0]))
	return &Guest{Process: sleepers[0], Cgroup: cgroup}, sleepers[1], true
}

// TestDestroyWaitsForTheCgroup destroys a machine whose process is gone while
// its cgroup is busy.
func TestDestroyWaitsForTheCgroup(t *testing.T) {
	runs, err := OpenRuns[*Guest](t.TempDir())
	require.NoError(t, err)
	var straggler *Process
	var cgroups bool
	m, err := runs.Create(t.Context(), "busy", func(_ context.Context, run *Run) (m *Guest, _ error) {
		m, straggler, cgroups = crowded(t, run)
		return m, nil
	})
	require.NoError(t, err)
	if !cgroups {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = runs.Destroy(ctx, "busy")
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	<-m.Process.Done()
	ids, err := runs.List()
	require.NoError(t, err)
	require.Equal(t, []string{"busy"}, ids, "what is not removed must be listed")

	destroyed := make(chan error, 1)
	go func() { destroyed <- runs.Destroy(t.Context(), "busy") }()
	require.NoError(t, straggler.Kill(t.Context()))
	require.NoError(t, <-destroyed, "a second try must not repeat the answer of the first")
	for _, dir := range m.Cgroup.dirs() {
		require.NoDirExists(t, dir)
	}
	ids, err = runs.List()
	require.NoError(t, err)
	require.Empty(t, ids)
	require.NoError(t, runs.Destroy(t.Context(), "busy"))
}

// TestCreateRemovesTheCgroupWhenItFails starts a machine that fails after its
// cgroup was recorded.
func TestCreateRemovesTheCgroupWhenItFails(t *testing.T) {
	runs, err := OpenRuns[*Guest](t.TempDir())
	require.NoError(t, err)
	broken := errors.New("broken")
	var dirs []string
	_, err = runs.Create(t.Context(), "broken", func(ctx context.Context, run *Run) (*Guest, error) {
		if m, straggler, ok := crowded(t, run); ok {
			dirs = m.Cgroup.dirs()
			require.NoError(t, straggler.Kill(ctx))
		}
		return nil, broken
	})
	require.EqualError(t, err, "broken")
	for _, dir := range dirs {
		require.NoDirExists(t, dir)
	}
	ids, err := runs.List()
	require.NoError(t, err)
	require.Empty(t, ids)
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
