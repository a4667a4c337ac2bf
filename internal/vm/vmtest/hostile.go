package vmtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/vmtest/rogue"
)

// BuildRogue compiles a guest agent that misbehaves and returns its path: the
// product's own, that leaves the rest to package rogue when INIT names a run which
// that knows. The source tree is not changed.
func BuildRogue(dir string) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "internal/vm/guest/serve/serve.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	edited := string(text)
	for _, edit := range [][2]string{
		{"	\"tidewait/internal/vm/guest\"\n", "	\"tidewait/internal/vm/vmtest/rogue\"\n"},
		{"func Serve(stream io.ReadWriteCloser, o Options) error {\n", "	port = stream\n"},
		{"		return errors.Join(err, s.fail(code, \"%v\", err))\n	}\n", "	if rogue.Knows(in.RunID) {\n		return rogue.Serve(s.conn, port, in)\n	}\n"},
	} {
		if strings.Count(edited, edit[0]) != 1 {
			return "", fmt.Errorf("%s does not have %q once", source, edit[0])
		}
		edited = strings.Replace(edited, edit[0], edit[0]+edit[1], 1)
	}
	edited += "\nvar port io.ReadWriteCloser // of the only conversation\n"
	replaced := filepath.Join(dir, "serve.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: replaced}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	for path, content := range map[string]string{replaced: edited, overlay: string(list)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return buildAgent(filepath.Join(dir, "tidewait-rogue"), "-overlay", overlay)
}

const (
	// HostileStep is how long a backend under test for hostile guests lets a step
	// take.
	HostileStep = 2 * time.Second
	// HostileTurn is how long a command may do harm until it is ended.
	HostileTurn = 2 * time.Second
	// patient is how long a machine may boot whose guest answers, and impatient how
	// long each try takes of one that never does.
	patient, impatient = time.Minute, 3 * time.Second
	// bootTries is how often a backend tries to start a machine at the most.
	bootTries = 4
)

// misbehaviour is what a rogue guest does, and how that ends.
type misbehaviour struct {
	how  string // the name of the run
	step string // that fails: create, inject, run or collect
	code vm.FailureCode
	says string
}

// turnOver is how the test's turn ends a command.
const turnOver = "turn_exceeded"

var misbehaviours = []misbehaviour{
	{rogue.NeverReady, "create", vm.BootFailed, "it did not answer within"},
	{rogue.NeverReads, "inject", vm.StepTimeout, "putting files into the machine took longer than 2s"},
	{rogue.EarlyAnswer, "inject", vm.InjectFailed, `the machine received files with the sum ""`},
	{rogue.AnotherDigest, "inject", vm.InjectFailed, `the machine received files with the sum "0000`},
	{rogue.FloodsLog, "run", turnOver, "the turn is over"},
	{rogue.FloodsLines, "run", turnOver, "the turn is over"},
	{rogue.EndlessLine, "run", turnOver, "the turn is over"},
	{rogue.FloodsBeats, "run", turnOver, "the turn is over"},
	{rogue.Silent, "run", turnOver, "the turn is over"},
	{rogue.HangsMidFrame, "run", turnOver, "the turn is over"},
	{rogue.DiesMidFrame, "run", vm.MachineDied, "the machine was lost while running the command: its connection ended"},
	{rogue.Dies, "run", vm.MachineDied, "the machine was lost while running the command: its connection ended"},
	{rogue.GiantFrame, "run", vm.MachineDied, "a frame says it has 4294967295 bytes; 1 to 1048576 are allowed"},
	{rogue.ZeroFrame, "run", vm.MachineDied, "a frame says it has 0 bytes; 1 to 1048576 are allowed"},
	{rogue.Rubbish, "run", vm.MachineDied, "a frame says it has 1213486160 bytes"},
	{rogue.OutOfOrder, "run", vm.MachineDied, "TAR_END came where EXIT was due"},
	{rogue.UnknownFrame, "run", vm.MachineDied, "UNKNOWN came where EXIT was due"},
	{rogue.NoStream, "run", vm.MachineDied, "LOG without a stream"},
	{rogue.GiantExit, "run", vm.MachineDied, "a command cannot exit with code 1099511627776"},
	{rogue.OddSignal, "run", vm.MachineDied, `"\x00" is no signal`},
	{rogue.OddFailure, "run", vm.MachineDied, `FAIL has the code "capacity_memory", which is not the guest's to give`},
	{rogue.ExitsTwice, "collect", vm.MachineDied, "EXIT came where TAR_END was due"},
	{rogue.LiesAboutSize, "collect", vm.CollectFailed, "the machine sent 1 files, 1099511627776 bytes"},
	{rogue.LiesAboutDigest, "collect", vm.CollectFailed, `sum "0000`},
	{rogue.EndlessTar, "collect", vm.ResultsTooLarge, "the results are larger than 10 files and 1000 bytes"},
	{rogue.EndlessPadding, "collect", vm.ResultsTooLarge, "the results are larger than 10 files and 1000 bytes"},
	{rogue.DeletesOutside, "collect", vm.CollectFailed, "the machine lists as deleted what it must not"},
	{rogue.DeletesTooMuch, "collect", vm.ResultsTooLarge, "the names of the deleted files take more than"},
	{rogue.SlowLoris, "collect", vm.StepTimeout, "collecting results took longer than 2s"},
	{rogue.HangsMidTar, "collect", vm.StepTimeout, "collecting results took longer than 2s"},
	{rogue.DiesMidTar, "collect", vm.MachineDied, "the machine was lost while collecting results"},
}

// mostMemory is how much larger than before this program may get while rogue
// guests are at work, in MiB. A flood that was kept would take some hundreds each
// second; the race detector keeps several bytes for each one that the heap ever
// had, so that 20 MiB of buffers not yet collected are 100 here.
const mostMemory = 256

// RogueBackend makes a backend with a rogue agent, [HostileStep] and the given time
// for each try to boot.
type RogueBackend func(runDir string, boot time.Duration) (vm.Backend, error)

// Rogues lets guests misbehave on a backend with a rogue agent: each ends in a truthful failure in time, this
// program does not grow, and nothing is left. A machine of honest, a backend with
// the product's own agent, works on meanwhile.
func Rogues(t *testing.T, newRogue RogueBackend, honest Backend, killGrace time.Duration) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700), "machines must not need a way to their files")
	b, err := newRogue(filepath.Join(dir, "rogue"), patient)
	require.NoError(t, err)
	hasty, err := newRogue(filepath.Join(dir, "hasty"), impatient)
	require.NoError(t, err)
	neighbour := startNeighbour(t, honest, filepath.Join(dir, "honest"))
	before := resident(t)
	for _, m := range misbehaviours {
		t.Run(m.how, func(t *testing.T) {
			if m.step == "create" {
				m.requireEnd(t, hasty, bootTries*impatient)
			} else {
				m.requireEnd(t, b, HostileStep+killGrace)
			}
			requireNothingLeft(t, b, filepath.Join(dir, "rogue"))
			requireNothingLeft(t, hasty, filepath.Join(dir, "hasty"))
			require.Less(t, resident(t), before+mostMemory, "MiB of memory of this program")
		})
	}
	neighbour.requireAlive(t)
}

// turn is how long a rogue may run its command.
const turn = time.Second

// requireEnd wants a rogue to fail in its step, not more than a moment after the
// time that this may take.
func (m misbehaviour) requireEnd(t *testing.T, b vm.Backend, most time.Duration) {
	t.Helper()
	t.Cleanup(func() { _ = b.Destroy(context.Background(), m.how) }) // when it did not end as it must
	step, took, err := m.meet(t, b)
	t.Logf("%s failed after %s: %v", step, took.Round(time.Millisecond), err)
	require.Error(t, err)
	require.Equal(t, m.step, step, err.Error())
	require.Contains(t, err.Error(), m.says)
	require.Less(t, len(err.Error()), 4096)
	if m.code != turnOver {
		requireFailure(t, err, m.code, m.says)
	}
	const moment = 15 * time.Second
	require.Less(t, took, most+moment)
	require.NoError(t, b.Destroy(context.Background(), m.how))
}

// meet meets a rogue. A step that it takes as it should may outlast its time on a
// machine that is busy with other things: it is met again then.
func (m misbehaviour) meet(t *testing.T, b vm.Backend) (step string, took time.Duration, err error) {
	t.Helper()
	const times = 4
	for n := 1; ; n++ {
		step, took, err = m.meetOnce(t, b)
		var late *vm.Failure
		if step == m.step || !errors.As(err, &late) || late.Code != vm.StepTimeout || n == times {
			return step, took, err
		}
		t.Logf("%s was late: %v", step, err)
		require.NoError(t, b.Destroy(context.Background(), m.how))
	}
}

// meetOnce takes a rogue through the steps until one fails, and returns how long
// that one took.
func (m misbehaviour) meetOnce(t *testing.T, b vm.Backend) (step string, took time.Duration, err error) {
	t.Helper()
	var machine vm.VM
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, s := range []struct {
		name string
		take func() error
	}{
		{"create", func() error { machine, err = b.Create(ctx, spec(m.how)); return err }},
		{"inject", func() error { _, err := machine.Inject(ctx, io.LimitReader(zeros{}, 4<<20)); return err }},
		{"run", func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, turn, errOver)
			defer cancel()
			_, err := machine.Run(ctx, sh("true"), func(string, []byte) {})
			return err
		}},
		{"collect", func() error {
			_, err := machine.Collect(ctx, nil, vm.Limits{Files: 10, Bytes: 1000}, io.Discard)
			return err
		}},
	} {
		began := time.Now()
		if err := s.take(); err != nil {
			return s.name, time.Since(began), err
		}
	}
	return "", 0, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// neighbour is a machine that counts while others misbehave.
type neighbour struct {
	count atomic.Int64
	stop  context.CancelCauseFunc
	ended chan error
}

func startNeighbour(t *testing.T, newBackend Backend, dir string) *neighbour {
	t.Helper()
	b, err := newBackend(dir)
	require.NoError(t, err)
	m, err := b.Create(t.Context(), spec("neighbour"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Destroy(context.Background(), "neighbour")) })
	n := &neighbour{ended: make(chan error, 1)}
	ctx, stop := context.WithCancelCause(t.Context())
	n.stop = stop
	go func() {
		_, err := m.Run(ctx, sh(`trap 'echo end; exit 0' TERM; while :; do echo tick; sleep 0.1; done`), func(string, []byte) { n.count.Add(1) })
		n.ended <- err
	}()
	return n
}

// requireAlive wants the neighbour to count on, and to end when it is told.
func (n *neighbour) requireAlive(t *testing.T) {
	t.Helper()
	now := n.count.Load()
	require.Eventually(t, func() bool { return n.count.Load() > now }, 10*time.Second, 10*time.Millisecond)
	n.stop(errOver)
	require.ErrorIs(t, <-n.ended, errOver)
}

// requireNothingLeft wants no machine, no directory, no cgroup and no process of
// a backend whose machines are destroyed.
func requireNothingLeft(t *testing.T, b vm.Backend, dir string) {
	t.Helper()
	ids, err := b.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, ids)
	left, err := os.ReadDir(filepath.Join(dir, "runs"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// resident is how much memory this program has, in MiB.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, pages int
	_, err = fmt.Sscan(string(text), &size, &pages)
	require.NoError(t, err)
	return pages * os.Getpagesize() >> 20
}

// Hostile runs commands on a backend that do harm: each ends, its machine is gone
// in time, and a neighbour, a machine of honest, works on.
func Hostile(t *testing.T, newBackend, honest Backend, killGrace time.Duration, commands []HostileCommand) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700), "machines must not need a way to their files")
	b, err := newBackend(filepath.Join(dir, "hostile"))
	require.NoError(t, err)
	neighbour := startNeighbour(t, honest, filepath.Join(dir, "honest"))
	before := resident(t)
	for _, c := range commands {
		t.Run(c.Name, func(t *testing.T) {
			m, err := b.Create(t.Context(), spec("h"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.Destroy(context.Background(), "h") }) // when it did not end as it must
			turn := cmp.Or(c.Turn, 2*time.Minute)
			ctx, cancel := context.WithTimeoutCause(t.Context(), turn, errOver)
			defer cancel()
			began := time.Now()
			exit, err := m.Run(ctx, sh(c.Script), func(string, []byte) {})
			took := time.Since(began)
			c.Ends(t, exit, err)
			require.Less(t, took, turn+killGrace+10*time.Second)
			require.NoError(t, b.Destroy(context.Background(), "h"))
			requireNothingLeft(t, b, filepath.Join(dir, "hostile"))
			require.Less(t, resident(t), before+mostMemory, "MiB of memory of this program")
			t.Logf("%s: ended after %s: %+v %v", c.Name, took.Round(time.Millisecond), exit, err)
		})
	}
	neighbour.requireAlive(t)
}

// HostileCommand is a script that does harm, and how it ends.
type HostileCommand struct {
	Name, Script string
	Turn         time.Duration // it is ended then; 0: when it has done what it does, at the latest after half a minute
	Ends         func(t *testing.T, exit vm.Exit, err error)
}

// TurnOver wants a command to be ended with its turn.
func TurnOver(t *testing.T, exit vm.Exit, err error) {
	t.Helper()
	require.ErrorIs(t, err, errOver, "%+v", exit)
}

// TurnOverOrOOM wants a command to be ended with its turn, unless it took more memory
// than it has before that.
func TurnOverOrOOM(t *testing.T, exit vm.Exit, err error) {
	t.Helper()
	if err != nil || !exit.OOM {
		TurnOver(t, exit, err)
	}
}

// Died wants the machine to be gone, and to say so.
func Died(t *testing.T, _ vm.Exit, err error) {
	t.Helper()
	requireFailure(t, err, vm.MachineDied, "lost while running the command")
}

// Survives wants a command to end by itself with a code, as the machine does not
// let it do harm.
func Survives(code int) func(*testing.T, vm.Exit, error) {
	return func(t *testing.T, exit vm.Exit, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, vm.Exit{Code: code}, exit)
	}
}

// HostileCommands are those that every backend has to bear.
func HostileCommands() []HostileCommand {
	return []HostileCommand{
		{"floods its output", `while :; do seq 1 100000; done`, HostileTurn, TurnOver},
		{"floods both streams with one line", `cat /dev/zero & cat /dev/zero >&2`, HostileTurn, TurnOver},
		{"fills its disk", `cat /dev/zero >big 2>/dev/null || exit 5`, 0, Survives(5)},
		{"forks without end", `f() { f | f & }; f; exec sleep 600`, HostileTurn, TurnOverOrOOM},
		{"forks and ignores TERM", `trap '' TERM; f() { trap '' TERM; (sleep 600; f) & }; for i in 1 2 3 4 5 6 7 8 9; do f; done; while :; do sleep 1; done`, HostileTurn, TurnOver},
		{"kills everything it can", `kill -KILL -1; kill -KILL 1; exit 4`, 0, func(t *testing.T, exit vm.Exit, err error) {
			t.Helper()
			require.NoError(t, err)
			require.NotZero(t, exit, "it killed itself, or went on")
		}},
		{"eats all memory", `tail /dev/zero; exit 3`, 0, func(t *testing.T, exit vm.Exit, err error) {
			t.Helper()
			require.NoError(t, err)
			require.True(t, exit.OOM || exit.Code != 0, "%+v", exit)
		}},
	}
}
