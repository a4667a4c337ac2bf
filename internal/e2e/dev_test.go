package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack/devstacktest"
)

// TestDevStack starts the whole stack as a person does, works with it, stops it
// with Ctrl-C and starts it again: nothing is left running, nothing is lost.
func TestDevStack(t *testing.T) {
	t.Parallel()
	stacks.take(t)
	dir := devstacktest.Dir(t)
	first := startDev(t, dir)
	out := first.cli(t, 0, "mission", "launch", "--wait", first.mission(t))
	require.Contains(t, out, "hello")
	first.interrupt(t)
	require.Empty(t, leftOf(t, dir))

	second := startDev(t, dir)
	require.Equal(t, first.env, second.env, "ports are kept")
	list := second.cli(t, 0, "mission", "list")
	require.Regexp(t, `(?m)^hello +succeeded`, list)
	require.Contains(t, second.cli(t, 0, "setup"), "all search attributes were there")

	again := exec.Command(filepath.Join(bin, "tidewait"), "dev", "--data-dir", dir)
	again.Env = append(os.Environ(), "TIDEWAIT_DEV_TEMPORAL_CLI="+devstacktest.TemporalCLI(t))
	refusal, err := again.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(refusal), "a stack is already running in", "two stacks cannot share a directory")
	second.interrupt(t)

	out = second.cli(t, 5, "mission", "list")
	require.Contains(t, out, "cannot reach NATS at nats://127.0.0.1:")
	out = second.cli(t, 5, "phase", "nudge", "hello", "greet")
	require.Contains(t, out, "cannot reach Temporal at 127.0.0.1:")
}

// dev is a running `tidewait dev`.
type dev struct {
	cmd *exec.Cmd
	env []string
	all <-chan string // what it printed, once it has ended
}

var variable = regexp.MustCompile(`(TIDEWAIT_[A-Z_]+)='([^']*)'`)

func startDev(t *testing.T, dir string) *dev {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "tidewait"), "dev", "--data-dir", dir)
	cmd.Env = append(os.Environ(), "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_DEV_TEMPORAL_CLI="+devstacktest.TemporalCLI(t))
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	d := &dev{cmd: cmd}
	exports := make(chan string, 1)
	all := make(chan string, 1)
	d.all = all
	go func() {
		var text strings.Builder
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(strings.TrimSpace(lines.Text()), "export ") {
				exports <- lines.Text()
			}
		}
		all <- text.String()
	}()
	go func() {
		_ = cmd.Wait()
		_ = w.Close()
	}()
	select {
	case line := <-exports:
		for _, m := range variable.FindAllStringSubmatch(line, -1) {
			d.env = append(d.env, m[1]+"="+m[2])
		}
	case text := <-all:
		t.Fatalf("dev ended at once:\n%s", text)
	case <-time.After(patience):
		t.Fatal("dev did not come up")
	}
	return d
}

func (d *dev) mission(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hello.yaml")
	doc := missionDoc{name: "hello", phases: []phaseDoc{{name: "greet", script: "echo hello > greeting.txt"}}}
	require.NoError(t, os.WriteFile(path, []byte(doc.yaml(t)), 0o600))
	return path
}

func (d *dev) cli(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "tidewait"), args...)
	cmd.Env = append(os.Environ(), d.env...)
	out, _ := cmd.CombinedOutput()
	require.Equal(t, code, cmd.ProcessState.ExitCode(), string(out))
	return string(out)
}

func (d *dev) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGINT))
	select {
	case text := <-d.all:
		require.Zero(t, d.cmd.ProcessState.ExitCode(), text)
	case <-time.After(patience):
		t.Fatal("dev did not end")
	}
}

// leftOf lists processes that still work in a directory.
func leftOf(t *testing.T, dir string) []string {
	t.Helper()
	p := &product{t: t, dir: dir}
	return p.processes("postgres", "temporal", "nats", "tidewait-worker", "tidewait-guest")
}
