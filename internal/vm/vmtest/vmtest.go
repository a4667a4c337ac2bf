// Package vmtest is the test of a backend: what every way of running machines
// has to do alike, against real machines.
package vmtest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// crashRun is the environment variable that makes a test program create a
// machine and wait to be killed. It names the directory of runs.
const crashRun = "TIDEWAIT_VMTEST_RUNDIR"

// crashKeep is the environment variable that gives that machine a keeper.
const crashKeep = "TIDEWAIT_VMTEST_KEEP"

// Backend makes the backend under test in a directory of runs.
type Backend func(runDir string) (vm.Backend, error)

// BuildAgent compiles the guest agent and returns its path.
func BuildAgent(dir string) (string, error) {
	return buildAgent(filepath.Join(dir, "tidewait-guest"))
}

func buildAgent(agent string, flags ...string) (string, error) {
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", agent}, flags...)
	cmd := exec.Command("go", append(args, "tidewait/internal/vm/guestagent")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the guest agent: %w\n%s", err, out)
	}
	return agent, nil
}

// CrashIfAsked is called first by TestMain: in the child that Conformance
// starts it creates a machine, says so, and waits to be killed.
func CrashIfAsked(newBackend Backend) {
	dir := os.Getenv(crashRun)
	if dir == "" {
		return
	}
	b, err := newBackend(dir)
	if err == nil {
		s := spec("crashed")
		s.Keep = os.Getenv(crashKeep) != ""
		_, err = b.Create(context.Background(), s)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("created")
	select {}
}

func spec(runID string) vm.Spec {
	return vm.Spec{RunID: runID, CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64}
}

// Conformance tests a backend. killGrace is the one it was made with.
func Conformance(t *testing.T, newBackend Backend, killGrace time.Duration) {
	conformance(t, &suite{newBackend: newBackend, killGrace: killGrace, dir: t.TempDir()})
}

// ConformanceOfKept tests a backend whose machines have keepers.
func ConformanceOfKept(t *testing.T, newBackend Backend, killGrace time.Duration) {
	conformance(t, &suite{newBackend: newBackend, killGrace: killGrace, dir: t.TempDir(), keep: true})
}

func conformance(t *testing.T, s *suite) {
	require.NoError(t, os.Chmod(s.dir, 0o700), "machines must not need a way to their files")
	var err error
	s.backend, err = s.newBackend(s.dir)
	require.NoError(t, err)

	t.Run("probe", s.probe)
	t.Run("a job", s.job)
	t.Run("a cancelled command", s.cancelled)
	t.Run("a cancelled command whose work is kept", s.kept)
	t.Run("a command that ignores TERM", s.stubborn)
	t.Run("a command that ignores TERM and whose work is wanted", s.keptStubborn)
	t.Run("a machine that is killed", s.killed)
	t.Run("create twice", s.createTwice)
	t.Run("destroy while creating", s.destroyWhileCreating)
	t.Run("a program that crashed", s.crashed)
	t.Run("nothing is left", func(t *testing.T) {
		ids, err := s.backend.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{}, ids)
		left, err := os.ReadDir(filepath.Join(s.dir, "runs"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

type suite struct {
	newBackend Backend
	backend    vm.Backend
	killGrace  time.Duration
	dir        string
	keep       bool // machines have keepers
	enforced   bool // as the probe says
}

func (s *suite) spec(runID string) vm.Spec {
	of := spec(runID)
	of.Keep = s.keep
	return of
}

// create makes a machine that is destroyed with the test.
func (s *suite) create(t *testing.T, runID string) vm.VM {
	t.Helper()
	m, err := s.backend.Create(t.Context(), s.spec(runID))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.backend.Destroy(context.Background(), runID)) })
	return m
}

// journal is what a run's journal says of its process.
type journal struct {
	RunID string `json:"runID"`
	PID   int    `json:"pid"`
}

func (s *suite) journal(t *testing.T, runID string) journal {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, "runs", "*", "journal.json"))
	require.NoError(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var j journal
		require.NoError(t, json.Unmarshal(b, &j))
		if j.RunID == runID {
			return j
		}
	}
	t.Fatalf("run %s has no journal in %v", runID, names)
	return journal{}
}

// output collects what a command prints.
type output struct {
	mu             sync.Mutex
	stdout, stderr []string
	seen           chan string
}

func newOutput() *output { return &output{seen: make(chan string, 100)} }

func (o *output) sink(stream string, line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if stream == "stdout" {
		o.stdout = append(o.stdout, string(line))
	} else {
		o.stderr = append(o.stderr, string(line))
	}
	select {
	case o.seen <- string(line):
	default:
	}
}

func sh(script string) vm.Command { return vm.Command{Argv: []string{"sh", "-c", script}} }

// job uses one machine for everything a machine survives.
func (s *suite) job(t *testing.T) {
	m := s.create(t, "job/1")
	input := workspace(t)

	t.Run("inject", func(t *testing.T) {
		manifest, err := m.Inject(t.Context(), bytes.NewReader(input))
		require.NoError(t, err)
		require.Equal(t, vm.Manifest{Files: 7, Bytes: 1<<20 + 52, SHA256: digest(input)}, manifest)
	})
	t.Run("exit code, output and environment", func(t *testing.T) {
		out := newOutput()
		c := sh(`echo "$MODE"; pwd; cat; echo problem >&2; printf unfinished; exit 3`)
		c.Env = map[string]string{"MODE": "fast and loose"}
		exit, err := m.Run(t.Context(), c, out.sink)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{Code: 3}, exit)
		require.Equal(t, []string{"fast and loose", "/workspace", "unfinished"}, out.stdout)
		require.Equal(t, []string{"problem"}, out.stderr)
	})
	t.Run("nothing else in the environment", func(t *testing.T) {
		out := newOutput()
		exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"env"}, Env: map[string]string{"A": "1"}}, out.sink)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{}, exit)
		require.ElementsMatch(t, []string{
			"A=1", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		}, out.stdout)
	})
	t.Run("a script of the workspace", func(t *testing.T) {
		out := newOutput()
		exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"./tools/hello.sh", "world"}}, out.sink)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{}, exit)
		require.Equal(t, []string{"hello world"}, out.stdout)
	})
	t.Run("a command that does not exist", func(t *testing.T) {
		_, err := m.Run(t.Context(), vm.Command{Argv: []string{"no-such-command", "x"}}, nil)
		requireFailure(t, err, vm.CommandNotFound, `"no-such-command" does not exist`)
	})
	t.Run("a command that is not executable", func(t *testing.T) {
		_, err := m.Run(t.Context(), vm.Command{Argv: []string{"./keep.txt"}}, nil)
		requireFailure(t, err, vm.CommandNotFound, `"./keep.txt" is not executable`)
	})
	t.Run("a signal", func(t *testing.T) {
		exit, err := m.Run(t.Context(), sh(`kill -SEGV $$`), nil)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{Signal: "SIGSEGV"}, exit)
	})
	t.Run("memory runs out", func(t *testing.T) {
		exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"tail", "/dev/zero"}}, nil)
		require.NoError(t, err)
		if s.enforced {
			require.Equal(t, vm.Exit{Signal: "SIGKILL", OOM: true}, exit)
		} else {
			require.Equal(t, vm.Exit{Code: 1}, exit, "each process must have a limit of its own")
		}
	})
	t.Run("a kill that is not for memory", func(t *testing.T) {
		exit, err := m.Run(t.Context(), sh(`kill -KILL $$`), nil)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{Signal: "SIGKILL"}, exit)
	})
	t.Run("what a command leaves running is killed", func(t *testing.T) {
		exit, err := m.Run(t.Context(), sh(`(setsid sleep 3600 & ) ; sleep 3600 & exit 0`), nil)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{}, exit)
		out := newOutput()
		_, err = m.Run(t.Context(), sh(`ps -ef 2>/dev/null || ps; true`), out.sink)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(out.stdout, "\n"), "sleep 3600")
	})
	t.Run("much output", func(t *testing.T) {
		lines := 0
		exit, err := m.Run(t.Context(), sh(`seq 1 200000`), func(string, []byte) { lines++ })
		require.NoError(t, err)
		require.Equal(t, vm.Exit{}, exit)
		require.Equal(t, 200000, lines)
	})
	t.Run("a file larger than the disk", func(t *testing.T) {
		exit, err := m.Run(t.Context(), sh(`head -c 80000000 /dev/zero >big; code=$?; rm big; exit $code`), nil)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{Code: 1}, exit)
	})
	t.Run("no network but loopback", func(t *testing.T) {
		out := newOutput()
		_, err := m.Run(t.Context(), sh(`sed -n 's/^ *\([a-z0-9]*\):.*/\1/p' /proc/net/dev`), out.sink)
		require.NoError(t, err)
		require.Equal(t, []string{"lo"}, out.stdout)
	})
	t.Run("nothing changed", func(t *testing.T) {
		files, result := collect(t, m, nil)
		require.Empty(t, files)
		require.Equal(t, 0, result.Files)
		require.Empty(t, result.Deleted)
	})
	t.Run("changes", func(t *testing.T) {
		exit, err := m.Run(t.Context(), sh(`set -e
			umask 022
			mkdir -p out/deep new-empty dir.git/x .git/hooks
			head -c 1048576 data.bin >out/deep/copy.bin
			echo changed >edit.txt
			printf 'keep\n' >keep.txt
			chmod 755 mode.txt
			rm link gone/a.txt
			ln -s ../keep.txt out/link
			mkfifo out/pipe
			echo hook >.git/hooks/post-commit
			echo x >'out/ä b.txt'`), nil)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{}, exit)

		files, result := collect(t, m, nil)
		want := map[string]string{
			"edit.txt":          "-rw-r--r-- changed\n",
			"mode.txt":          "-rwxr-xr-x mode\n",
			"out/link":          "Lrwxrwxrwx ../keep.txt",
			"out/ä b.txt":       "-rw-r--r-- x\n",
			"out/deep/copy.bin": "-rw-r--r-- 1048576 bytes",
			"new-empty/":        "drwxr-xr-x ",
			"dir.git/x/":        "drwxr-xr-x ",
		}
		require.Equal(t, want, files)
		require.Equal(t, []string{"gone/a.txt", "link"}, result.Deleted)
		require.Equal(t, 5, result.Files)
		require.Equal(t, int64(1<<20+8+5+2), result.Bytes)
	})
	t.Run("patterns", func(t *testing.T) {
		files, result := collect(t, m, []string{"out/**/*.bin", "gone/**"})
		require.Equal(t, map[string]string{"out/deep/copy.bin": "-rw-r--r-- 1048576 bytes"}, files)
		require.Equal(t, []string{"gone/a.txt"}, result.Deleted)
	})
	t.Run("a broken pattern", func(t *testing.T) {
		_, err := m.Collect(t.Context(), []string{"../x"}, vm.Limits{Files: 1, Bytes: 1}, io.Discard)
		requireFailure(t, err, vm.CollectFailed, `the pattern "../x"`)
	})
	t.Run("more results than allowed", func(t *testing.T) {
		_, err := m.Collect(t.Context(), nil, vm.Limits{Files: 100, Bytes: 1 << 20}, io.Discard)
		requireFailure(t, err, vm.ResultsTooLarge, "larger than 100 files and 1048576 bytes")
	})
	t.Run("more files than allowed", func(t *testing.T) {
		_, err := m.Collect(t.Context(), nil, vm.Limits{Files: 6, Bytes: 1 << 30}, io.Discard)
		requireFailure(t, err, vm.ResultsTooLarge, "larger than 6 files")
	})
	t.Run("a name that cannot be collected", func(t *testing.T) {
		exit, err := m.Run(t.Context(), sh(`touch "$(printf 'bad\377name')"`), nil)
		require.NoError(t, err)
		require.Equal(t, vm.Exit{}, exit)
		_, err = m.Collect(t.Context(), []string{"bad*"}, vm.Limits{Files: 100, Bytes: 1 << 30}, io.Discard)
		requireFailure(t, err, vm.CollectFailed, "not valid UTF-8")
	})
	t.Run("destroy twice", func(t *testing.T) {
		require.NoError(t, s.backend.Destroy(t.Context(), "job/1"))
		require.NoError(t, s.backend.Destroy(t.Context(), "job/1"))
		require.NoError(t, s.backend.Destroy(t.Context(), "never-was"))
	})
}

var errOver = errors.New("the turn is over")

// run starts a command and returns when it printed its first line.
func run(t *testing.T, m vm.VM, c vm.Command) (cancel context.CancelCauseFunc, out *output, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	out, done := newOutput(), make(chan error, 1)
	go func() {
		_, err := m.Run(ctx, c, out.sink)
		done <- err
	}()
	select {
	case <-out.seen:
	case err := <-done:
		t.Fatalf("the command ended early: %v", err)
	}
	return cancel, out, done
}

func (s *suite) cancelled(t *testing.T) {
	m := s.create(t, "cancelled")
	pid := s.journal(t, "cancelled").PID
	cancel, out, ended := run(t, m, sh(`trap 'echo terminated; exit 0' TERM; echo ready; while :; do sleep 0.05; done`))
	cancel(errOver)
	require.ErrorIs(t, <-ended, errOver)
	require.Equal(t, []string{"ready", "terminated"}, out.stdout)
	requireGone(t, pid)
	_, err := m.Run(t.Context(), sh(`true`), nil)
	requireFailure(t, err, vm.MachineDied, "lost while running the command")
}

func (s *suite) kept(t *testing.T) {
	m := s.create(t, "kept")
	cancel, _, ended := run(t, m, sh(`trap 'echo half > made; exit 3' TERM; echo ready; while :; do sleep 0.05; done`))
	cancel(fmt.Errorf("%w, %w", errOver, vm.ErrKeep))
	err := <-ended
	require.ErrorIs(t, err, errOver)
	require.ErrorIs(t, err, vm.ErrEnded)
	files, _ := collect(t, m, nil)
	require.Equal(t, map[string]string{"made": "-rw-rw-rw- half\n"}, files)
}

func (s *suite) keptStubborn(t *testing.T) {
	m := s.create(t, "kept-stubborn")
	pid := s.journal(t, "kept-stubborn").PID
	cancel, _, ended := run(t, m, sh(`trap '' TERM; echo ready; while :; do sleep 1; done`))
	cancel(vm.ErrKeep)
	err := <-ended
	require.ErrorIs(t, err, vm.ErrKeep)
	require.NotErrorIs(t, err, vm.ErrEnded, "there is nothing to collect from")
	requireGone(t, pid)
}

func (s *suite) stubborn(t *testing.T) {
	m := s.create(t, "stubborn")
	pid := s.journal(t, "stubborn").PID
	cancel, _, ended := run(t, m, sh(`trap '' TERM; echo ready; while :; do sleep 1; done`))
	began := time.Now()
	cancel(errOver)
	require.ErrorIs(t, <-ended, errOver)
	require.GreaterOrEqual(t, time.Since(began), s.killGrace)
	requireGone(t, pid)
}

func (s *suite) killed(t *testing.T) {
	m := s.create(t, "killed")
	pid := s.journal(t, "killed").PID
	_, _, ended := run(t, m, sh(`echo ready; sleep 3600`))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	requireFailure(t, <-ended, vm.MachineDied, "signal: killed")
	_, err := m.Collect(t.Context(), nil, vm.Limits{Files: 1, Bytes: 1}, io.Discard)
	requireFailure(t, err, vm.MachineDied, "lost while collecting results")
}

func (s *suite) createTwice(t *testing.T) {
	var both [2]vm.VM
	var errs [2]error
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() { both[i], errs[i] = s.backend.Create(t.Context(), s.spec("twice")) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	require.Same(t, both[0], both[1])
	ids, err := s.backend.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"twice"}, ids)
	require.NoError(t, s.backend.Destroy(t.Context(), "twice"))
}

func (s *suite) destroyWhileCreating(t *testing.T) {
	created := make(chan struct{})
	go func() {
		defer close(created)
		_, _ = s.backend.Create(t.Context(), s.spec("undone")) // it may be ready just before
	}()
	require.Eventually(t, func() bool {
		ids, err := s.backend.List(t.Context())
		return err == nil && len(ids) == 1
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, s.backend.Destroy(t.Context(), "undone"))
	<-created
	ids, err := s.backend.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{}, ids)
}

// crashed kills a program that has a machine: the machine goes with it, and
// what it left can be listed and destroyed.
func (s *suite) crashed(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashRun+"="+s.dir)
	if s.keep {
		cmd.Env = append(cmd.Env, crashKeep+"=1")
	}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	said := make([]byte, 4096)
	n, _ := stdout.Read(said)
	require.Equal(t, "created\n", string(said[:n]))
	pid := s.journal(t, "crashed").PID
	require.NoError(t, syscall.Kill(pid, 0), "the machine must live before the program is killed")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	requireGone(t, pid)

	after, err := s.newBackend(s.dir)
	require.NoError(t, err)
	ids, err := after.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"crashed"}, ids)
	require.NoError(t, after.Destroy(t.Context(), "crashed"))
	ids, err = after.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{}, ids)
}

func (s *suite) probe(t *testing.T) {
	report := s.backend.Probe(t.Context())
	require.True(t, report.OK, report.Why)
	require.NotEmpty(t, report.Info.Kernel)
	require.NotEmpty(t, report.Info.Isolation)
	require.Positive(t, report.Took)
	require.Positive(t, report.Overhead.MemoryMiB)
	s.enforced = report.Enforced
}

// requireGone waits for a process to end; what waits to be reaped has ended.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	awaitGone(t, pid, 10*time.Second)
}

func awaitGone(t *testing.T, pid int, patience time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	}, patience, time.Millisecond, "process %d is still there", pid)
	runtime.Gosched()
}

func requireFailure(t *testing.T, err error, code vm.FailureCode, part string) {
	t.Helper()
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Message)
	require.Contains(t, f.Message, part)
}

// workspace is a tar stream of about 1 MiB.
func workspace(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		h.ModTime = time.Unix(1_700_000_000, 0)
		require.NoError(t, tw.WriteHeader(&h))
		_, err := io.WriteString(tw, content)
		require.NoError(t, err)
	}
	add(tar.Header{Name: "tools/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	add(tar.Header{Name: "tools/hello.sh", Typeflag: tar.TypeReg, Mode: 0o755}, "#!/bin/sh\necho \"hello $1\"\n")
	add(tar.Header{Name: "keep.txt", Typeflag: tar.TypeReg, Mode: 0o644}, "keep\n")
	add(tar.Header{Name: "edit.txt", Typeflag: tar.TypeReg, Mode: 0o644}, "original\n")
	add(tar.Header{Name: "mode.txt", Typeflag: tar.TypeReg, Mode: 0o644}, "mode\n")
	add(tar.Header{Name: "gone/a.txt", Typeflag: tar.TypeReg, Mode: 0o644}, "gone\n\n\n")
	add(tar.Header{Name: "data.bin", Typeflag: tar.TypeReg, Mode: 0o644}, strings.Repeat("0123456789abcdef", 1<<16))
	add(tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "keep.txt", Mode: 0o777}, "")
	require.NoError(t, tw.Close())
	return buf.Bytes()
}

// collect returns the mode and content of every entry.
func collect(t *testing.T, m vm.VM, patterns []string) (map[string]string, vm.Result) {
	t.Helper()
	var buf bytes.Buffer
	result, err := m.Collect(t.Context(), patterns, vm.Limits{Files: 100, Bytes: 8 << 20}, &buf)
	require.NoError(t, err)
	require.Equal(t, digest(buf.Bytes()), result.SHA256)
	files := map[string]string{}
	tr := tar.NewReader(&buf)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, result
		}
		require.NoError(t, err)
		b, err := io.ReadAll(tr)
		require.NoError(t, err)
		content := string(b) + h.Linkname
		if len(content) > 1000 {
			content = fmt.Sprintf("%d bytes", len(content))
		}
		files[h.Name] = h.FileInfo().Mode().String() + " " + content
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
