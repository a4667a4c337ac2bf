package qemu

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/segment"
)

var spec = vm.Spec{RunID: "run", CPUMilli: 1000, MemoryMiB: minMemory, DiskMiB: 1}

// builtImage is the image the other tests of this package boot.
func builtImage(t *testing.T) image.Image {
	t.Helper()
	img, err := image.Build(t.Context(), image.Options{Dir: os.Getenv("TIDEWAIT_VMTEST_IMAGE"), Agent: os.Getenv("TIDEWAIT_VMTEST_AGENT")})
	require.NoError(t, err)
	return img
}

func newBackend(t *testing.T, o Options) *Backend {
	t.Helper()
	o.RunDir = t.TempDir()
	b, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		left, err := os.ReadDir(filepath.Join(o.RunDir, "runs"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
	return b
}

// TestQ35 boots the machine that is the last resort, with the least memory.
func TestQ35(t *testing.T) {
	b := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG})
	m, err := b.runs.Create(t.Context(), spec.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		return b.bootOnce(ctx, run, spec, AccelTCG, machineQ35)
	})
	require.NoError(t, err)
	require.NoError(t, vm.CheckKernel(t.Context(), m))
	require.NoError(t, b.Destroy(t.Context(), spec.RunID))
}

// TestQ35OnSegment gives that machine a network, too.
func TestQ35OnSegment(t *testing.T) {
	b := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG})
	network, err := segment.Alone("snapshot")
	require.NoError(t, err)
	t.Cleanup(network.Close)
	on := spec
	on.NIC = network.NIC(0)
	m, err := b.runs.Create(t.Context(), on.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		return b.bootOnce(ctx, run, on, AccelTCG, machineQ35)
	})
	require.NoError(t, err)
	var said []string
	exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"sh", "-c", "hostname; cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu"}},
		func(_ string, line []byte) { said = append(said, string(line)) })
	require.NoError(t, err)
	require.Equal(t, vm.Exit{}, exit)
	require.Equal(t, []string{"snapshot", "02:00:0a:54:57:01", "9000"}, said)
	require.NoError(t, b.Destroy(t.Context(), on.RunID))
}

// TestNetworkIsInTheKey keeps the snapshots of machines with and without a
// network apart; those of one size on any segment are the same.
func TestNetworkIsInTheKey(t *testing.T) {
	b := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG})
	key := func(nic *vm.NIC) string {
		s := spec
		s.NIC = nic
		sh, err := b.shapeOf(s, AccelTCG)
		require.NoError(t, err)
		return sh.key.String()
	}
	first, second := &vm.NIC{Network: vm.Network{MAC: "02:00:0a:54:57:01"}}, &vm.NIC{Network: vm.Network{MAC: "02:00:0a:54:57:02"}}
	require.NotEqual(t, key(nil), key(first))
	require.Equal(t, key(first), key(second))
}

// TestLeastMemory boots the usual machine with the least memory and disk.
func TestLeastMemory(t *testing.T) {
	b := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG})
	m, err := b.Create(t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, vm.CheckKernel(t.Context(), m))
	require.NoError(t, b.Destroy(t.Context(), spec.RunID))

	less := spec
	less.MemoryMiB--
	_, err = b.Create(t.Context(), less)
	require.EqualError(t, err, "a microVM of 95 MiB cannot boot; the least is 96 MiB")
}

// TestAuto finds out by booting whether KVM works here.
func TestAuto(t *testing.T) {
	img := builtImage(t)
	b := newBackend(t, Options{Image: img})
	report := b.Probe(t.Context())
	require.True(t, report.OK, report.Why)
	require.True(t, report.Enforced)
	require.True(t, report.Network)
	require.Equal(t, img.KernelVersion, report.Info.Kernel)
	if report.Info.Accel == AccelKVM {
		require.Empty(t, report.Why)
		require.Equal(t, int64(32), report.Overhead.MemoryMiB)
	} else {
		require.Equal(t, AccelTCG, report.Info.Accel)
		require.Contains(t, report.Why, "guests run without KVM: ")
		require.Equal(t, int64(160), report.Overhead.MemoryMiB)
	}

	again, err := New(b.opts)
	require.NoError(t, err)
	accel, err := again.accelerator(stopped(t))
	require.NoError(t, err, "another program must not have to try again")
	require.Equal(t, report.Info.Accel, accel)

	other := b.opts
	other.Image.Digest = "of another image"
	again, err = New(other)
	require.NoError(t, err)
	_, err = again.accelerator(stopped(t))
	require.ErrorIs(t, err, context.Canceled, "another image has to be tried")
}

// stopped is a context in which nothing can be booted.
func stopped(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestOldQEMU has a QEMU that cannot put a machine on a segment.
func TestOldQEMU(t *testing.T) {
	old := filepath.Join(t.TempDir(), "qemu")
	require.NoError(t, os.WriteFile(old, []byte("#!/bin/sh\necho Available netdev backend types:\necho socket\necho user\n"), 0o755))
	b := newBackend(t, Options{QEMU: old, Image: builtImage(t), Accel: AccelTCG})
	require.EqualError(t, b.checkNetwork(t.Context()), "machines cannot be on a network: QEMU has no -netdev dgram; version 7.2 is the first that does")
}

func TestNoQEMU(t *testing.T) {
	b := newBackend(t, Options{QEMU: "/nowhere/qemu", Image: builtImage(t), Accel: AccelTCG})
	report := b.Probe(t.Context())
	require.False(t, report.OK)
	require.Contains(t, report.Why, "QEMU is missing")
	require.Contains(t, report.Why, "install the Debian package qemu-system-x86")
	_, err := b.Create(t.Context(), spec)
	require.ErrorContains(t, err, "install the Debian package qemu-system-x86")
}

// TestBrokenImage boots a kernel that is none.
func TestBrokenImage(t *testing.T) {
	img := builtImage(t)
	img.Kernel = filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(img.Kernel, []byte("no kernel"), 0o644))
	b := newBackend(t, Options{Image: img, Accel: AccelTCG})
	_, err := b.Create(t.Context(), spec)
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.BootFailed, f.Code)
	require.Contains(t, f.Message, "QEMU said: ")
}

// TestBootTimeout gives a guest too little time.
func TestBootTimeout(t *testing.T) {
	b := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG, BootTimeout: 50 * time.Millisecond})
	_, err := b.Create(t.Context(), spec)
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.BootFailed, f.Code)
	require.Contains(t, f.Message, "did not answer within 50ms")
}

func TestUnknownAccelerator(t *testing.T) {
	_, err := New(Options{Image: image.Image{Kernel: "k", Initrd: "i"}, RunDir: t.TempDir(), Accel: "hvf"})
	require.EqualError(t, err, `the accelerator "hvf" is not known; use auto, kvm or tcg`)
}
