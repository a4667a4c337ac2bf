package qemu_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"tidewait/internal/vm"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/vmtest"
)

const killGrace = 3 * time.Second

// imageDir is the environment variable that tells a child where the guest image is.
const imageDir = "TIDEWAIT_VMTEST_IMAGE"

func TestMain(m *testing.M) {
	vmtest.CrashIfAsked(newBackend)
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

func newBackend(runDir string) (vm.Backend, error) {
	img, err := guestImage()
	if err != nil {
		return nil, err
	}
	return qemu.New(qemu.Options{Image: img, RunDir: runDir, Accel: qemu.AccelTCG, KillGrace: killGrace})
}

func TestConformance(t *testing.T) {
	vmtest.Conformance(t, newBackend, killGrace)
}
