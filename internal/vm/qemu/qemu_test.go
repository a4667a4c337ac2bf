package qemu_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/vmtest"
)

const killGrace = 3 * time.Second

// imageDir is the environment variable that tells a child where the guest image is.
const imageDir = "TIDEWAIT_VMTEST_IMAGE"

func TestMain(m *testing.M) {
	makeIfAsked()
	vmtest.CrashIfAsked(newCrashing)
	vmtest.KeepIfAsked(newLeased)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidewait-qemu-")
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
	os.Setenv(imageDir, dir+"/image")
	os.Setenv(agentPath, agent)
	return m.Run()
}

const agentPath = "TIDEWAIT_VMTEST_AGENT"

func guestImage() (image.Image, error) {
	return image.Build(context.Background(), image.Options{Dir: os.Getenv(imageDir), Agent: os.Getenv(agentPath)})
}

func newBackend(runDir string) (vm.Backend, error) { return newLeased(runDir, "") }

func newLeased(runDir, lease string) (vm.Backend, error) {
	img, err := guestImage()
	if err != nil {
		return nil, err
	}
	return qemu.New(qemu.Options{
		Image: img, RunDir: runDir, Accel: qemu.AccelTCG, KillGrace: killGrace, Keeper: os.Getenv(agentPath), Lease: lease, BootTimeout: time.Minute,
	})
}

// newFastBackend makes a backend that restores machines from snapshots.
func newFastBackend(runDir string) (*qemu.Backend, error) {
	img, err := guestImage()
	if err != nil {
		return nil, err
	}
	return qemu.New(qemu.Options{Image: img, RunDir: runDir, Accel: qemu.AccelTCG, KillGrace: killGrace, Keeper: os.Getenv(agentPath), Snapshots: 3, BootTimeout: 2 * time.Minute})
}

func TestAdoption(t *testing.T) {
	vmtest.Adoption(t, newLeased, 40*time.Second)
}

func TestConformance(t *testing.T) {
	vmtest.Conformance(t, newBackend, killGrace)
}

// TestConformanceOfRestored is TestConformance for machines that are restored and
// have keepers, as those of most runs.
func TestConformanceOfRestored(t *testing.T) {
	t.Setenv(restored, "1")
	var made []*qemu.Backend
	vmtest.ConformanceOfKept(t, func(runDir string) (vm.Backend, error) {
		b, err := newRestored(runDir)
		if err == nil {
			made = append(made, b)
		}
		return b, err
	}, killGrace)
	for _, b := range made {
		require.NoError(t, b.Close())
		require.Zero(t, b.Starts().Cold)
	}
	require.GreaterOrEqual(t, made[0].Starts().Snapshot, int64(5))
}

// restored is the environment variable that tells a child to restore machines.
const restored = "TIDEWAIT_VMTEST_RESTORED"

// newRestored makes a backend that restores every machine of the conformance test.
func newRestored(runDir string) (*qemu.Backend, error) {
	b, err := newFastBackend(runDir)
	if err == nil {
		err = b.Snapshot(context.Background(), vm.Spec{CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64})
	}
	return b, err
}

func newCrashing(runDir string) (vm.Backend, error) {
	if os.Getenv(restored) != "" {
		return newRestored(runDir)
	}
	return newBackend(runDir)
}
