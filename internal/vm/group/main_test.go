package group

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/process"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/vmtest"
)

const killGrace = 300 * time.Millisecond

// guestAgent and guestImage are built once for all tests.
var (
	guestAgent string
	guestImage image.Image
	tools      []byte // a tar stream with netprobe
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidewait-group-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(dir string) (err error) {
	if guestAgent, err = vmtest.BuildAgent(dir); err != nil {
		return err
	}
	if guestImage, err = image.Build(context.Background(), image.Options{Dir: filepath.Join(dir, "image"), Agent: guestAgent}); err != nil {
		return err
	}
	probe := filepath.Join(dir, "netprobe")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", probe, "tidewait/internal/vm/vmtest/netprobe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build netprobe: %w\n%s", err, out)
	}
	program, err := os.ReadFile(probe)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err = tw.WriteHeader(&tar.Header{Name: "netprobe", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = tw.Write(program)
	}
	if err == nil {
		err = tw.Close()
	}
	tools = buf.Bytes()
	return err
}

// lab is a backend under test.
type lab struct {
	vm.Backend
	dir  string
	root bool // commands are root of their own kernel, and may make any frame
}

// name is that of the backend, which may be made in the test.
func (l lab) name() string {
	if l.root {
		return qemu.Name
	}
	return process.Name
}

func labs(tb testing.TB) []lab {
	tb.Helper()
	q, p := tb.TempDir(), tb.TempDir()
	microvm, err := qemu.New(qemu.Options{Image: guestImage, RunDir: q, Accel: qemu.AccelTCG, KillGrace: killGrace, BootTimeout: time.Minute, StepTimeout: time.Minute})
	require.NoError(tb, err)
	namespaces, err := process.New(process.Options{Agent: guestAgent, RunDir: p, KillGrace: killGrace})
	require.NoError(tb, err)
	return []lab{{namespaces, p, false}, {microvm, q, true}}
}

// onEach runs a test on every backend.
func onEach(t *testing.T, test func(*testing.T, lab)) {
	for _, l := range labs(t) {
		on(t, l, test)
	}
}

// on runs a test on one backend. After it no machine, file, socket or goroutine
// may be left.
func on(t *testing.T, l lab, test func(*testing.T, lab)) {
	t.Run(l.name(), func(t *testing.T) {
		goroutines, files := runtime.NumGoroutine(), openFiles(t)
		t.Cleanup(func() {
			left, err := os.ReadDir(filepath.Join(l.dir, "runs"))
			require.NoError(t, err)
			require.Empty(t, left)
			for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > goroutines || openFiles(t) > files; runtime.Gosched() {
				require.True(t, time.Now().Before(deadline), "%d goroutines and %d files are open; %d and %d were before",
					runtime.NumGoroutine(), openFiles(t), goroutines, files)
			}
		})
		test(t, l)
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

// size is the machine of every agent.
var size = vm.Spec{CPUMilli: 1000, MemoryMiB: 128, DiskMiB: 32}

func agent(name string, replicas int, script string) Agent {
	return Agent{Name: name, Replicas: replicas, Machine: size, Command: vm.Command{Argv: []string{"sh", "-c", script}}}
}

func designated(a Agent) Agent {
	a.Designated = true
	return a
}

// create makes a group with netprobe in the workspaces. It is destroyed with
// the test.
func create(tb testing.TB, l lab, runID string, agents ...Agent) *Group {
	tb.Helper()
	g, err := Create(tb.Context(), l, Options{RunID: runID, Agents: agents, Starts: 2})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, g.Destroy(context.Background())) })
	require.NoError(tb, g.Each(tb.Context(), func(ctx context.Context, m Machine) error {
		_, err := m.VM.Inject(ctx, bytes.NewReader(tools))
		return err
	}))
	return g
}

// output keeps what machines print, by host name.
type output struct {
	mu    sync.Mutex
	lines map[string][]string
	news  chan struct{}
}

func newOutput() *output { return &output{lines: map[string][]string{}, news: make(chan struct{}, 1)} }

func (o *output) of(m Machine) vm.LogSink {
	return func(_ string, line []byte) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.lines[m.Name] = append(o.lines[m.Name], string(line))
		select {
		case o.news <- struct{}{}:
		default:
		}
	}
}

func (o *output) get(name string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lines[name])
}

// awaitReady waits until a machine has said that it is ready.
func (o *output) awaitReady(tb testing.TB, name string) {
	tb.Helper()
	late := time.After(time.Minute)
	for !slices.Contains(o.get(name), "ready") {
		select {
		case <-o.news:
		case <-late:
			tb.Fatalf("%s is not ready, and said %q", name, o.get(name))
		}
	}
}

// sh runs a script in a machine and returns what it printed.
func sh(tb testing.TB, m Machine, script string) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	o := newOutput()
	exit, err := m.VM.Run(ctx, vm.Command{Argv: []string{"sh", "-c", script}}, o.of(m))
	require.NoError(tb, err)
	require.Equal(tb, vm.Exit{}, exit, "%q", o.get(m.Name))
	return o.get(m.Name)
}

// background runs a command that does not end by itself, and returns when it
// has said that it is ready. It ends with the test.
func background(tb testing.TB, m Machine, argv ...string) *output {
	tb.Helper()
	o := newOutput()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.VM.Run(ctx, vm.Command{Argv: argv}, o.of(m))
	}()
	tb.Cleanup(func() { cancel(); <-ended })
	o.awaitReady(tb, m.Name)
	return o
}

// pid is the process of a machine on the host.
func (l lab) pid(t *testing.T, runID string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(l.dir, "runs", "*", "journal.json"))
	require.NoError(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var j struct {
			RunID string
			PID   int
		}
		require.NoError(t, json.Unmarshal(b, &j))
		if j.RunID == runID {
			return j.PID
		}
	}
	t.Fatalf("run %s has no journal in %v", runID, names)
	return 0
}
