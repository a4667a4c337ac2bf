package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// skewFile names, in the environment of a worker that was built with a clock of
// its own, the file with the seconds by which that is wrong.
const skewFile = "CLOCK_SKEW_FILE"

// clockSource is added to package time of such a worker. The file is mapped, so
// that the clock can jump while the process runs; what measures durations is left
// alone, as it is when somebody sets a machine's clock.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var skew = mapSkew()

func mapSkew() *int64 {
	name, set := syscall.Getenv("` + skewFile + `")
	if !set {
		return new(int64)
	}
	file, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic("clock skew: " + err.Error())
	}
	mapped, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("clock skew: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&mapped[0]))
}

func skewed() int64 { return atomic.LoadInt64(skew) }
`

// buildWithClock builds tidewait-worker against a standard library in which the
// wall clock of a process can be set. Its own sources are those of every other.
func buildWithClock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	require.NoError(t, err)
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(source), reading), "the standard library reads the clock in another way than this expects")
	replaced := map[string]string{
		"time.go": strings.Replace(string(source), reading, reading+"\tsec += skewed()\n", 1),
		"skew.go": clockSource,
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for name, text := range replaced {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		overlay["Replace"][filepath.Join(std, name)] = path
	}
	list, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600))
	return buildWorker(t, "-overlay", filepath.Join(dir, "overlay.json"))
}

// buildWorker builds tidewait-worker with these flags, beside the guest agent that
// it looks for there.
func buildWorker(t *testing.T, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-worker-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // machines' unprivileged user executes the guest agent
	worker := filepath.Join(dir, "tidewait-worker")
	build := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), "-o", worker, "tidewait/worker")...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.Link(filepath.Join(bin, "tidewait-guest"), filepath.Join(dir, "tidewait-guest")))
	return worker
}

// clock is what a test sets the wall clock of a process with.
type clock string

func newClock(t *testing.T) clock {
	t.Helper()
	c := clock(filepath.Join(t.TempDir(), "skew"))
	require.NoError(t, os.WriteFile(string(c), make([]byte, 8), 0o600))
	return c
}

func (c clock) env() string { return fmt.Sprintf("%s=%s", skewFile, c) }

// set makes the clock wrong by so much, at once.
func (c clock) set(by time.Duration) error {
	file, err := os.OpenFile(string(c), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(by/time.Second))), 0) //nolint:gosec // its sign is kept
	return err
}
