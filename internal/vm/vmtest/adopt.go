package vmtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/boot"
	"tidewait/internal/tartest"
	"tidewait/internal/vm"
	"tidewait/internal/vm/keeper"
)

// The environment variables that make a test program run a script in a machine it
// keeps: the directory of runs, and the script.
const (
	keepRun    = "TIDEWAIT_VMTEST_KEEP_RUNDIR"
	keepScript = "TIDEWAIT_VMTEST_KEEP_SCRIPT"
)

// leaseName is the file with the lease, in the directory of runs.
const leaseName = "lease"

// Leased makes the backend under test in a directory of runs, with a file that says
// when its kept machines have to end.
type Leased func(runDir, lease string) (vm.Backend, error)

// KeepIfAsked is called first by TestMain: in the child that [Adoption] starts it
// runs a script in a machine it keeps, and waits to be killed.
func KeepIfAsked(newBackend Leased) {
	dir := os.Getenv(keepRun)
	if dir == "" {
		return
	}
	b, err := newBackend(dir, filepath.Join(dir, leaseName))
	if err == nil {
		err = followUntilKilled(b.(vm.Adopter), os.Getenv(keepScript))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

// followUntilKilled runs a script in a kept machine and says what it prints.
func followUntilKilled(b vm.Adopter, script string) error {
	s := spec("kept")
	s.Keep = true
	machine, err := b.Create(context.Background(), s)
	if err != nil {
		return err
	}
	kept := machine.(vm.Kept)
	if _, err := kept.Inject(context.Background(), bytes.NewReader(smallWorkspace())); err != nil {
		return err
	}
	if err := kept.Keep(); err != nil {
		return err
	}
	fmt.Println("kept")
	if script == "none" {
		select {}
	}
	_, err = kept.Follow(context.Background(), sh(script), vm.Position{}, func(l vm.Line) {
		b, _ := json.Marshal(l) // a Line can be encoded
		fmt.Println(string(b))
	})
	if err == nil {
		_, err = kept.Collect(context.Background(), nil, vm.Limits{Files: 100, Bytes: 1 << 30}, stuck{})
	}
	return err
}

// stuck takes the first bytes of results and then no more.
type stuck struct{}

func (stuck) Write([]byte) (int, error) {
	fmt.Println("collecting")
	select {}
}

// Adoption tests that machines outlive their program, but not their keeper and not
// the lease. lasts is a lease in which a machine surely begins a command.
func Adoption(t *testing.T, newBackend Leased, lasts time.Duration) {
	a := &adoption{newBackend: newBackend, lasts: lasts}
	t.Run("a running command", a.running)
	t.Run("a command that ended meanwhile", a.ended)
	t.Run("a command that was never begun", a.notBegun)
	t.Run("results that were being collected", a.collecting)
	t.Run("three programs one after another", a.thrice)
	t.Run("more output than is remembered", a.tooMuch)
	t.Run("a program that leaves", a.leaves)
	t.Run("a command that is stopped", a.stopped)
	t.Run("a machine that dies meanwhile", a.died)
	t.Run("a keeper that is killed", a.keeperKilled)
	t.Run("a lease that ends", a.leaseEnds)
	t.Run("a lease that ends while a program listens", a.leaseEndsListening)
	t.Run("what is not kept is not adopted", a.notKept)
	t.Run("what no journal names is ended", a.sweep)
}

type adoption struct {
	newBackend Leased
	lasts      time.Duration
}

// node is the directory of runs of one test, and the program that had a machine.
type node struct {
	*adoption
	t   *testing.T
	dir string
	out *bufio.Scanner
	cmd *exec.Cmd
}

// start makes a lease of an hour.
func (a *adoption) start(t *testing.T) *node {
	n := &node{adoption: a, t: t, dir: t.TempDir()}
	n.lease(time.Hour)
	t.Cleanup(func() {
		b := n.backend()
		require.NoError(t, b.Destroy(context.Background(), "kept"))
		ids, err := b.List(context.Background())
		require.NoError(t, err)
		require.Empty(t, ids)
	})
	return n
}

func (n *node) lease(left time.Duration) time.Duration {
	n.t.Helper()
	until := boot.Now() + left
	require.NoError(n.t, keeper.WriteLease(filepath.Join(n.dir, leaseName), until))
	return until
}

func (n *node) backend() vm.Adopter {
	n.t.Helper()
	b, err := n.newBackend(n.dir, filepath.Join(n.dir, leaseName))
	require.NoError(n.t, err)
	return b.(vm.Adopter)
}

// program starts a program that keeps a machine and runs a script in it.
func (n *node) program(script string) {
	n.t.Helper()
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), keepRun+"="+n.dir, keepScript+"="+script)
	n.cmd.Stderr = os.Stderr
	out, err := n.cmd.StdoutPipe()
	require.NoError(n.t, err)
	require.NoError(n.t, n.cmd.Start())
	n.out = bufio.NewScanner(out)
	n.out.Buffer(nil, 1<<20)
	require.Equal(n.t, "kept", n.said())
}

func (n *node) said() string {
	n.t.Helper()
	require.True(n.t, n.out.Scan(), "the program said no more")
	return n.out.Text()
}

// line is the next line the script printed.
func (n *node) line() vm.Line {
	n.t.Helper()
	var l vm.Line
	require.NoError(n.t, json.Unmarshal([]byte(n.said()), &l))
	return l
}

// kill kills the program and returns what it had said after what was read.
func (n *node) kill() []vm.Line {
	n.t.Helper()
	require.NoError(n.t, n.cmd.Process.Kill())
	var rest []vm.Line
	for n.out.Scan() {
		var l vm.Line
		if json.Unmarshal(n.out.Bytes(), &l) == nil {
			rest = append(rest, l)
		}
	}
	_ = n.cmd.Wait()
	return rest
}

// journal is what the journal says of the machine's processes.
func (n *node) journal() (machine, keeperPID int) {
	n.t.Helper()
	names, err := filepath.Glob(filepath.Join(n.dir, "runs", "*", "journal.json"))
	require.NoError(n.t, err)
	require.Len(n.t, names, 1)
	b, err := os.ReadFile(names[0])
	require.NoError(n.t, err)
	var j struct {
		PID    int `json:"pid"`
		Keeper struct {
			PID int `json:"pid"`
		} `json:"keeper"`
	}
	require.NoError(n.t, json.Unmarshal(b, &j))
	require.NotZero(n.t, j.PID)
	require.NotZero(n.t, j.Keeper.PID)
	return j.PID, j.Keeper.PID
}

func (n *node) adopt() vm.Kept {
	n.t.Helper()
	m, err := n.backend().Adopt(n.t.Context(), "kept")
	require.NoError(n.t, err)
	return m
}

// follow follows a script to its end and returns the texts of its lines.
func follow(t *testing.T, m vm.Kept, script string, from vm.Position) ([]vm.Line, vm.Exit) {
	t.Helper()
	var lines []vm.Line
	exit, err := m.Follow(t.Context(), sh(script), from, func(l vm.Line) { lines = append(lines, l) })
	require.NoError(t, err)
	return lines, exit
}

func texts(lines []vm.Line) []string {
	var all []string
	for _, l := range lines {
		all = append(all, string(l.Text))
	}
	return all
}

// steady prints numbers, not too fast to be killed meanwhile.
const steady = `i=1; while [ $i -le 60 ]; do echo out $i; echo err $i >&2; i=$((i+1)); sleep 0.02; done; echo made > made.txt; exit 7`

// requireSteady checks that all lines of steady are there, each once.
func requireSteady(t *testing.T, lines []vm.Line) {
	t.Helper()
	next := map[string]int{"stdout": 1, "stderr": 1}
	for _, l := range lines {
		require.Zero(t, l.Lost)
		word := map[string]string{"stdout": "out ", "stderr": "err "}[l.Stream]
		require.Equal(t, word+strconv.Itoa(next[l.Stream]), string(l.Text))
		next[l.Stream]++
	}
	require.Equal(t, map[string]int{"stdout": 61, "stderr": 61}, next)
	require.Equal(t, vm.Position{Stdout: 411, Stderr: 411, Lines: 120}, lines[len(lines)-1].End)
}

func (a *adoption) running(t *testing.T) {
	n := a.start(t)
	n.program(steady)
	seen := []vm.Line{n.line(), n.line(), n.line()}
	seen = append(seen, n.kill()...)
	m := n.adopt()
	require.NotEmpty(t, m.Info().Kernel)
	lines, exit := follow(t, m, steady, seen[len(seen)-1].End)
	require.Equal(t, vm.Exit{Code: 7}, exit)
	requireSteady(t, append(seen, lines...))
	files, _ := collect(t, m, nil)
	require.Equal(t, map[string]string{"made.txt": "-rw-rw-rw- made\n"}, files)
}

func (a *adoption) ended(t *testing.T) {
	n := a.start(t)
	n.program(`echo first; sleep 0.3; echo last; exit 5`)
	first := n.line()
	require.Equal(t, "first", string(first.Text))
	n.kill()
	m := n.adopt()
	lines, exit := follow(t, m, "", first.End)
	require.Equal(t, vm.Exit{Code: 5}, exit)
	require.Equal(t, []string{"last"}, texts(lines))
	at := m.EndedAt()
	require.Positive(t, at)
	require.Less(t, at, boot.Now())
	m.Leave()
	require.Equal(t, at, n.adopt().EndedAt(), "whoever asks")
}

func (a *adoption) notBegun(t *testing.T) {
	n := a.start(t)
	n.program("none")
	n.kill()
	lines, exit := follow(t, n.adopt(), `cat given; exit 3`, vm.Position{})
	require.Equal(t, vm.Exit{Code: 3}, exit)
	require.Equal(t, []string{"it was given"}, texts(lines))
}

func (a *adoption) collecting(t *testing.T) {
	n := a.start(t)
	n.program(`head -c 20000000 /dev/zero > big; echo done`)
	require.Equal(t, "done", string(n.line().Text))
	require.Equal(t, "collecting", n.said())
	n.kill()
	m := n.adopt()
	lines, exit := follow(t, m, "", vm.Position{Stdout: 5, Lines: 1})
	require.Equal(t, vm.Exit{}, exit)
	require.Empty(t, lines)
	var out bytes.Buffer
	result, err := m.Collect(t.Context(), nil, vm.Limits{Files: 10, Bytes: 1 << 30}, &out)
	require.NoError(t, err)
	require.Equal(t, int64(20_000_000), result.Bytes)
	require.Equal(t, digest(out.Bytes()), result.SHA256)
}

// thrice has programs that are killed go on with one another's machine.
func (a *adoption) thrice(t *testing.T) {
	n := a.start(t)
	n.program(steady)
	seen := append([]vm.Line{n.line()}, n.kill()...)
	for range 3 {
		m := n.adopt()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		some := 0
		go func() {
			_, err := m.Follow(ctx, sh(steady), seen[len(seen)-1].End, func(l vm.Line) {
				seen = append(seen, l)
				if some++; some == 5 {
					m.Leave()
				}
			})
			ended <- err
		}()
		require.Error(t, <-ended)
		stop()
	}
	lines, exit := follow(t, n.adopt(), steady, seen[len(seen)-1].End)
	require.Equal(t, vm.Exit{Code: 7}, exit)
	requireSteady(t, append(seen, lines...))
}

func (a *adoption) tooMuch(t *testing.T) {
	n := a.start(t)
	n.program(`echo first; sleep 0.3; seq 1000001 2000000; exit 0`)
	first := n.line()
	n.kill()
	n.awaitEnd() // it does not wait for anybody to listen
	m := n.adopt()
	lines, exit := follow(t, m, "", first.End)
	require.Equal(t, vm.Exit{}, exit)
	require.Positive(t, lines[0].Lost)
	require.Empty(t, lines[0].Text)
	require.Equal(t, int64(1_000_000), lines[0].Lost+int64(len(lines)-1), "each line is there or counted")
	require.Equal(t, "2000000", string(lines[len(lines)-1].Text))
	require.Equal(t, vm.Position{Stdout: 6 + 8_000_000, Lines: 1_000_001}, lines[len(lines)-1].End)
	require.Greater(t, len(lines), 500_000, "four MiB are remembered")
}

// awaitEnd waits until the command has ended.
func (n *node) awaitEnd() {
	n.t.Helper()
	_, pid := n.journal()
	dirs, err := filepath.Glob(filepath.Join(n.dir, "runs", "*"))
	require.NoError(n.t, err)
	require.Len(n.t, dirs, 1)
	c, err := keeper.Dial(dirs[0], pid)
	require.NoError(n.t, err)
	defer c.Close()
	require.Eventually(n.t, func() bool {
		state, err := c.State()
		return err == nil && state.Ended
	}, 2*time.Minute, 10*time.Millisecond)
}

func (a *adoption) leaves(t *testing.T) {
	n := a.start(t)
	b := n.backend()
	s := spec("kept")
	s.Keep = true
	machine, err := b.Create(t.Context(), s)
	require.NoError(t, err)
	kept := machine.(vm.Kept)
	require.NoError(t, kept.Keep())
	ended, begun := make(chan error, 1), make(chan vm.Line, 8)
	go func() {
		_, err := kept.Follow(t.Context(), sh(`echo first; sleep 0.2; echo second`), vm.Position{}, func(l vm.Line) { begun <- l })
		ended <- err
	}()
	first := <-begun
	kept.Leave()
	require.Error(t, <-ended)
	lines, exit := follow(t, n.adopt(), "", first.End)
	require.Equal(t, vm.Exit{}, exit)
	require.Equal(t, []string{"second"}, texts(lines))
}

func (a *adoption) stopped(t *testing.T) {
	n := a.start(t)
	n.program(`trap 'echo half > made.txt; echo terminated; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	ready := n.line()
	n.kill()
	m := n.adopt()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("%w, %w", errOver, vm.ErrKeep))
	var lines []vm.Line
	exit, err := m.Follow(ctx, vm.Command{}, ready.End, func(l vm.Line) {
		if l.Stream == "stdout" { // the shell has words of its own
			lines = append(lines, l)
		}
	})
	require.ErrorIs(t, err, errOver)
	require.ErrorIs(t, err, vm.ErrEnded)
	require.Equal(t, vm.Exit{Code: 3}, exit)
	require.Equal(t, []string{"terminated"}, texts(lines))
	files, _ := collect(t, m, nil)
	require.Equal(t, map[string]string{"made.txt": "-rw-rw-rw- half\n"}, files)
}

func (a *adoption) died(t *testing.T) {
	n := a.start(t)
	n.program(`echo ready; sleep 3600`)
	ready := n.line()
	machine, keeperPID := n.journal()
	n.kill()
	require.NoError(t, syscall.Kill(machine, syscall.SIGKILL))
	requireGone(t, machine)
	m := n.adopt()
	_, err := m.Follow(t.Context(), vm.Command{}, ready.End, func(vm.Line) {})
	requireFailure(t, err, vm.MachineDied, "its process ended with signal: killed")
	require.NoError(t, n.backend().Destroy(t.Context(), "kept"))
	requireGone(t, keeperPID)
}

func (a *adoption) keeperKilled(t *testing.T) {
	n := a.start(t)
	n.program(`echo ready; sleep 3600`)
	n.line()
	machine, keeperPID := n.journal()
	n.kill()
	m := n.adopt()
	require.NoError(t, syscall.Kill(keeperPID, syscall.SIGKILL))
	requireGone(t, machine)
	_, err := m.Follow(t.Context(), vm.Command{}, vm.Position{}, func(vm.Line) {})
	requireFailure(t, err, vm.MachineDied, "the machine's keeper is gone; its process ended with the end of its keeper")
	_, err = n.backend().Adopt(t.Context(), "kept")
	require.EqualError(t, err, "adopt run kept: its keeper is gone")
}

func (a *adoption) leaseEnds(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := a.start(t)
	first := n.lease(a.lasts)
	n.program(`echo ready; sleep 3600`)
	n.line()
	machine, keeperPID := n.journal()
	n.kill()
	second := n.lease(a.lasts)
	require.Less(t, boot.Now(), first, "the machine must have begun by now")
	require.NoError(t, syscall.Kill(machine, 0))
	awaitGone(t, machine, a.lasts+10*time.Second)
	now := boot.Now()
	require.GreaterOrEqual(t, now, second, "the lease was extended")
	require.Less(t, now-second, time.Second)
	requireGone(t, keeperPID)
	_, err := n.backend().Adopt(t.Context(), "kept")
	require.EqualError(t, err, "adopt run kept: its keeper is gone")
}

func (a *adoption) leaseEndsListening(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := a.start(t)
	n.lease(a.lasts)
	n.program(`echo ready; sleep 3600`)
	n.line()
	machine, _ := n.journal()
	n.kill()
	m := n.adopt()
	_, err := m.Follow(t.Context(), vm.Command{}, vm.Position{}, func(vm.Line) {})
	require.ErrorIs(t, err, vm.ErrLease)
	requireGone(t, machine)
}

func (a *adoption) notKept(t *testing.T) {
	n := a.start(t)
	b := n.backend()
	_, err := b.Create(t.Context(), spec("kept"))
	require.NoError(t, err)
	_, err = n.backend().Adopt(t.Context(), "kept")
	require.EqualError(t, err, "adopt run kept: its machine was not to outlive its program")
	_, err = n.backend().Adopt(t.Context(), "never-was")
	require.ErrorContains(t, err, "adopt run never-was")
	require.NoError(t, b.Destroy(t.Context(), "kept"))
}

// sweep takes the directory from under a keeper, and breaks a journal.
func (a *adoption) sweep(t *testing.T) {
	n := a.start(t)
	n.program(`echo ready; sleep 3600`)
	n.line()
	machine, keeperPID := n.journal()
	n.kill()
	left, err := filepath.Glob(filepath.Join(n.dir, "runs", "*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.NoError(t, os.RemoveAll(left[0]))
	broken := filepath.Join(n.dir, "runs", "broken.000000000000")
	require.NoError(t, os.Mkdir(broken, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(broken, "journal.json"), nil, 0o600))

	leaks, err := n.backend().Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), leaks.Processes)
	require.Equal(t, int64(1), leaks.Directories)
	require.Contains(t, []int64{0, 1}, leaks.Cgroups, "one where there are cgroups at all")
	requireGone(t, machine)
	requireGone(t, keeperPID)
	require.NoDirExists(t, broken)
	leaks, err = n.backend().Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, vm.Leaks{}, leaks)
}

// smallWorkspace is a tar stream with one file.
func smallWorkspace() []byte { return tartest.Of(tartest.File("given", "it was given\n")) }
