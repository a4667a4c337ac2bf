package qemu

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
)

// TestSandbox looks at QEMU as the kernel sees it while its guest runs: it has a filter
// of system calls, gets no privileges, is nobody where the agent is root, and, where
// that may limit it, can make no larger file than its guest's disk.
func TestSandbox(t *testing.T) {
	b := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG, RunUser: "nobody"})
	m, err := b.runs.Create(t.Context(), spec.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		return b.bootOnce(ctx, run, spec, AccelTCG, machineMicroVM)
	})
	require.NoError(t, err)
	require.NoError(t, vm.CheckKernel(t.Context(), m))
	of := func(file, line string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", m.Process.PID(), file))
		require.NoError(t, err)
		found := regexp.MustCompile(`(?m)^` + line).FindSubmatch(text)
		require.Len(t, found, 2, "%s of\n%s", line, text)
		return string(found[1])
	}
	require.Equal(t, "2", of("status", `Seccomp:\t(\d+)`), "a filter")
	require.Equal(t, "1", of("status", `NoNewPrivs:\t(\d+)`))
	require.Equal(t, "0000000000000000", of("status", `CapEff:\t(\w+)`))
	owner := strconv.Itoa(os.Geteuid())
	if owner == "0" {
		nobody, err := user.Lookup("nobody")
		require.NoError(t, err)
		owner = nobody.Uid
	}
	require.Equal(t, owner, of("status", `Uid:\t\d+\t(\d+)\t`))
	if !mayLimitOthers(t) {
		require.NoError(t, b.Destroy(t.Context(), spec.RunID))
		return
	}
	require.Equal(t, "0", of("limits", `Max core file size +(\d+)`))
	require.Equal(t, "256", of("limits", `Max open files +(\d+)`))
	require.Equal(t, strconv.Itoa(minDisk<<20), of("limits", `Max file size +(\d+)`))
	require.NoError(t, b.Destroy(t.Context(), spec.RunID))
}

// mayLimitOthers reports whether the agent may set limits of QEMU: of its own user it
// may, of another with CAP_SYS_RESOURCE, which root of a container may lack.
func mayLimitOthers(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^CapEff:\t(\w+)$`).FindSubmatch(text)
	require.Len(t, found, 2)
	capabilities, err := strconv.ParseUint(string(found[1]), 16, 64)
	require.NoError(t, err)
	return capabilities&(1<<unix.CAP_SYS_RESOURCE) != 0
}
