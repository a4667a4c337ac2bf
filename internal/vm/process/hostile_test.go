package process_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/process"
	"tidewait/internal/vm/vmtest"
)

func TestRogueGuests(t *testing.T) {
	agent, err := vmtest.BuildRogue(t.TempDir())
	require.NoError(t, err)
	vmtest.Rogues(t, func(runDir string, boot time.Duration) (vm.Backend, error) {
		return process.New(process.Options{
			Agent: agent, RunDir: runDir, KillGrace: killGrace, BootTimeout: boot, StepTimeout: vmtest.HostileStep,
		})
	}, newBackend, killGrace)
}

func TestHostileCommands(t *testing.T) {
	vmtest.Hostile(t, newBackend, newBackend, killGrace, vmtest.HostileCommands())
}
