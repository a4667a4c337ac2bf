package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/wholefile"
)

const (
	kvmDevice = "/dev/kvm"
	// kvmTimeout is how long a guest may take to boot with KVM, which takes less
	// than a second where KVM works at all.
	kvmTimeout = 8 * time.Second
	kvmTrial   = "kvm-trial"
)

// verdict is what came of trying KVM. It is kept in the directory of runs, since
// a trial that fails takes seconds and programs are started again.
type verdict struct {
	Of    string `json:"of"` // what was tried: the host's boot, its device, QEMU and the image
	Accel string `json:"accel"`
	Why   string `json:"why,omitempty"` // why it is not KVM
}

// accelerator is the accelerator to use. With AccelAuto it boots a guest with
// KVM once, because a /dev/kvm that opens proves nothing.
func (b *Backend) accelerator(ctx context.Context) (string, error) {
	if b.opts.Accel != AccelAuto {
		return b.opts.Accel, nil
	}
	b.accelMu.Lock()
	defer b.accelMu.Unlock()
	if b.verdict.Accel != "" {
		return b.verdict.Accel, nil
	}
	file, subject := filepath.Join(b.runs.Root(), "accelerator.json"), b.subject()
	if v := readVerdict(file); v.Of == subject {
		b.verdict = v
		return v.Accel, nil
	}
	v := verdict{Of: subject, Accel: AccelKVM}
	err := b.tryKVM(ctx)
	if ctx.Err() != nil {
		return "", fmt.Errorf("find out whether KVM works: %w", context.Cause(ctx))
	}
	if err != nil {
		v.Accel, v.Why = AccelTCG, fmt.Sprintf("guests run without KVM: %v", err)
	}
	b.verdict = v
	b.opts.Logger.Info("the accelerator was chosen", "accel", v.Accel, "reason", v.Why)
	return v.Accel, writeVerdict(file, v)
}

// subject names everything a verdict depends on.
func (b *Backend) subject() string {
	var device unix.Stat_t
	_ = unix.Stat(kvmDevice, &device)
	qemu, _ := exec.LookPath(b.opts.QEMU)
	var program unix.Stat_t
	_ = unix.Stat(qemu, &program)
	return fmt.Sprintf("boot %s device %d %o %d:%d qemu %s %d %d image %s user %v", boot.ID(),
		device.Rdev, device.Mode, device.Uid, device.Gid, qemu, program.Size, program.Mtim.Sec, b.opts.Image.Digest, b.user)
}

func readVerdict(file string) verdict {
	var v verdict
	if data, err := os.ReadFile(file); err != nil || json.Unmarshal(data, &v) != nil {
		return verdict{}
	}
	return v
}

func writeVerdict(file string, v verdict) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := wholefile.Replace(file, data); err != nil {
		return fmt.Errorf("keep the accelerator: %w", err)
	}
	return nil
}

func (b *Backend) tryKVM(ctx context.Context) error {
	f, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	f.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, kvmTimeout,
		fmt.Errorf("%s opens, but no guest booted with it within %s", kvmDevice, kvmTimeout))
	defer cancel()
	spec := vm.Spec{RunID: kvmTrial, CPUMilli: 1000, MemoryMiB: 128, DiskMiB: 16}
	m, err := b.runs.Create(ctx, spec.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		return b.bootOnce(ctx, run, spec, AccelKVM, machineMicroVM)
	})
	if err == nil {
		err = vm.CheckKernel(ctx, m)
	}
	if destroyErr := b.Destroy(context.WithoutCancel(ctx), kvmTrial); destroyErr != nil {
		b.opts.Logger.Warn("the trial of KVM left something", "error", destroyErr)
	}
	return err
}
