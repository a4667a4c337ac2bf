package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
)

const (
	kvmDevice = "/dev/kvm"
	// kvmTimeout is how long a guest may take to boot with KVM, which takes less
	// than a second where KVM works at all.
	kvmTimeout = 8 * time.Second
	kvmTrial   = "kvm-trial"
)

// accelerator is the accelerator to use. With AccelAuto it boots a guest with
// KVM once, because a /dev/kvm that opens proves nothing.
func (b *Backend) accelerator(ctx context.Context) (string, error) {
	if b.opts.Accel != AccelAuto {
		return b.opts.Accel, nil
	}
	b.accelMu.Lock()
	defer b.accelMu.Unlock()
	if b.accel != "" {
		return b.accel, nil
	}
	err := b.tryKVM(ctx)
	if ctx.Err() != nil {
		return "", fmt.Errorf("find out whether KVM works: %w", context.Cause(ctx))
	}
	if err == nil {
		b.accel = AccelKVM
		return b.accel, nil
	}
	b.accel, b.whyTCG = AccelTCG, fmt.Sprintf("guests run without KVM: %v", err)
	b.opts.Logger.Info("KVM is not used", "reason", err)
	return b.accel, nil
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
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}
