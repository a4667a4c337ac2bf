package process_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/process"
	"tidewait/internal/vm/vmtest"
)

const killGrace = 300 * time.Millisecond

// agentPath is the environment variable that tells a child where the guest
// agent is.
const agentPath = "TIDEWAIT_VMTEST_AGENT"

func TestMain(m *testing.M) {
	vmtest.CrashIfAsked(newBackend)
	vmtest.KeepIfAsked(newLeased)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidewait-process-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agent, err := vmtest.BuildAgent(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv(agentPath, agent)
	return m.Run()
}

func newBackend(runDir string) (vm.Backend, error) { return newLeased(runDir, "") }

func newLeased(runDir, lease string) (vm.Backend, error) {
	return process.New(process.Options{Agent: os.Getenv(agentPath), RunDir: runDir, KillGrace: killGrace, Lease: lease})
}

func TestConformance(t *testing.T) {
	vmtest.Conformance(t, newBackend, killGrace)
}

func TestConformanceOfKept(t *testing.T) {
	vmtest.ConformanceOfKept(t, newBackend, killGrace)
}

func TestAdoption(t *testing.T) {
	vmtest.Adoption(t, newLeased, 3*time.Second)
}

func TestImagesAreRefused(t *testing.T) {
	b, err := newBackend(t.TempDir())
	require.NoError(t, err)
	_, err = b.Create(t.Context(), vm.Spec{RunID: "r1-1", CPUMilli: 100, MemoryMiB: 64, DiskMiB: 64, Image: "registry.example.com/tool:1"})
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.Failure{
		Code: vm.ImageInvalid, Message: "the image registry.example.com/tool:1 cannot be used: commands of backend process are the node's own programs",
	}, *f)
}
