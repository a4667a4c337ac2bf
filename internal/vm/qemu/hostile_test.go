package qemu_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/vmtest"
)

// TestRogueGuests lets virtual machines misbehave whose agent is the rogue one. They
// are restored from a snapshot, but for the one that never answers.
func TestRogueGuests(t *testing.T) {
	dir := t.TempDir()
	agent, err := vmtest.BuildRogue(dir)
	require.NoError(t, err)
	img, err := image.Build(context.Background(), image.Options{Dir: filepath.Join(dir, "image"), Agent: agent})
	require.NoError(t, err)
	vmtest.Rogues(t, func(runDir string, boot time.Duration) (vm.Backend, error) {
		o := qemu.Options{Image: img, RunDir: runDir, Accel: qemu.AccelTCG, KillGrace: killGrace, BootTimeout: boot, StepTimeout: vmtest.HostileStep}
		if boot < time.Minute {
			return qemu.New(o)
		}
		o.Snapshots = 1
		b, err := qemu.New(o)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			require.NoError(t, b.Close())
			require.Greater(t, b.Starts().Snapshot, int64(20))
		})
		return b, b.Snapshot(t.Context(), vm.Spec{CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64})
	}, newBackend, killGrace)
}

// TestHostileCommands runs those of every backend, and some for which a machine of
// its own is needed: its commands are root there. The machines are restored from a
// snapshot.
func TestHostileCommands(t *testing.T) {
	restored := func(runDir string) (vm.Backend, error) {
		b, err := newRestored(runDir)
		if err == nil {
			t.Cleanup(func() { require.NoError(t, b.Close()) })
		}
		return b, err
	}
	vmtest.Hostile(t, restored, newBackend, killGrace, append(vmtest.HostileCommands(),
		vmtest.HostileCommand{Name: "floods the serial console", Script: `cat /dev/zero > /dev/ttyS0`, Turn: vmtest.HostileTurn, Ends: vmtest.TurnOver},
		vmtest.HostileCommand{Name: "floods the kernel's log", Script: `while :; do echo flood > /dev/kmsg; done`, Turn: vmtest.HostileTurn, Ends: vmtest.TurnOver},
		vmtest.HostileCommand{Name: "fills its disk with files", Script: `i=0; while head -c 8388608 /dev/zero >f$i 2>/dev/null; do i=$((i+1)); [ $i -lt 20 ] || exit 9; done; exit 5`, Ends: vmtest.Survives(5)},
		vmtest.HostileCommand{Name: "crashes its kernel", Script: `echo c > /proc/sysrq-trigger; sleep 600`, Ends: vmtest.Died},
		vmtest.HostileCommand{Name: "powers its machine off", Script: `echo o > /proc/sysrq-trigger; sleep 600`, Ends: vmtest.Died},
		vmtest.HostileCommand{Name: "reboots its machine", Script: `echo b > /proc/sysrq-trigger; sleep 600`, Ends: vmtest.Died},
		vmtest.HostileCommand{Name: "takes the agent's port away", Script: `for p in /dev/vport*; do cat /dev/zero > $p & done; rm -f /dev/vport*; kill -STOP 1; wait; exit 6`, Ends: vmtest.Survives(6)},
	))
}
