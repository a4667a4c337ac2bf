package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/host"
)

// The machines of QEMU that are used.
const (
	machineMicroVM = "microvm"
	machineQ35     = "q35"
)

// machine is one virtual machine. It implements [vm.VM].
type machine struct {
	opts    *Options
	accel   string
	process *host.Process
	cgroup  *host.Cgroup
	session *guest.Session
	console *tail // the guest's serial console
	stderr  *tail // QEMU's own words

	kill    sync.Once
	killErr error
}

// boot boots a guest, again when it does not answer, and at last on another
// machine of QEMU.
func (b *Backend) boot(ctx context.Context, run *host.Run, s vm.Spec, accel string) (*machine, error) {
	var err error
	for attempt := range bootAttempts + 1 {
		kind := machineMicroVM
		if attempt == bootAttempts {
			kind = machineQ35
		}
		var m *machine
		if m, err = b.bootOnce(ctx, run, s, accel, kind); err == nil {
			return m, nil
		}
		if f := new(vm.Failure); ctx.Err() != nil || !errors.As(err, &f) {
			return nil, err
		}
		b.opts.Logger.Warn("a guest did not boot", "run", s.RunID, "attempt", attempt+1, "machine", kind, "error", err)
	}
	return nil, err
}

// bootOnce starts QEMU and waits for the guest agent. When it fails nothing is left.
func (b *Backend) bootOnce(ctx context.Context, run *host.Run, s vm.Spec, accel, kind string) (*machine, error) {
	m := &machine{opts: &b.opts, accel: accel, console: &tail{max: 16 << 10}, stderr: &tail{max: 4 << 10}}
	err := m.start(ctx, b, run, s, kind)
	if err == nil {
		return m, nil
	}
	return nil, errors.Join(err, m.Kill())
}

func (m *machine) start(ctx context.Context, b *Backend, run *host.Run, s vm.Spec, kind string) error {
	disk, err := b.newDisk(ctx, run.Dir, s.DiskMiB)
	if err != nil {
		return err
	}
	defer disk.Close()
	kernel, err := os.Open(b.opts.Image.Kernel)
	if err != nil {
		return fmt.Errorf("open the guest's kernel: %w", err)
	}
	defer kernel.Close()
	initrd, err := os.Open(b.opts.Image.Initrd)
	if err != nil {
		return fmt.Errorf("open the guest's initramfs: %w", err)
	}
	defer initrd.Close()
	if err := m.limit(run, s); err != nil {
		return err
	}
	ours, theirs, err := host.SocketPair()
	if err != nil {
		return err
	}
	cmd := exec.Command(b.opts.QEMU, arguments(s, m.accel, kind)...)
	cmd.ExtraFiles = []*os.File{kernel, initrd, disk, theirs}
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = m.console, m.stderr
	cmd.SysProcAttr = b.user.Attr(devices(m.accel)...)
	m.process, err = host.Start(cmd, "")
	theirs.Close() // so that the end of QEMU is the end of the connection
	if err != nil {
		ours.Close()
		return fmt.Errorf("start QEMU: %w", err)
	}
	if err := m.confine(run, s); err != nil {
		ours.Close()
		return err
	}
	return m.greet(ctx, ours, s.RunID)
}

// devices are those QEMU must be allowed to open.
func devices(accel string) []string {
	if accel == AccelKVM {
		return []string{kvmDevice}
	}
	return nil
}

// limit makes the cgroup of the machine where that is allowed. Without one the
// guest still has no more memory and processors than QEMU gives it.
func (m *machine) limit(run *host.Run, s vm.Spec) error {
	overhead := int64(overheadTCG)
	if m.accel == AccelKVM {
		overhead = overheadKVM
	}
	cgroup, err := host.NewCgroup(run.Name(), host.Limits{
		CPUMilli:  s.CPUMilli,
		MemoryMiB: s.MemoryMiB + 2*overhead, // what is accounted is the usual, not the most
		Pids:      256,
	})
	if err != nil && !errors.Is(err, host.ErrNoCgroups) {
		return err
	}
	m.cgroup = cgroup
	return run.Record(m.cgroup, nil)
}

// confine journals QEMU and sets its limits while it does not run a guest yet.
func (m *machine) confine(run *host.Run, s vm.Spec) error {
	if err := run.Record(m.cgroup, m.process); err != nil {
		return err
	}
	if err := m.cgroup.Add(m.process); err != nil {
		return m.orDied(err)
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: 256,
		unix.RLIMIT_FSIZE:  uint64(max(s.DiskMiB, minDisk)) << 20,
	} {
		l := unix.Rlimit{Cur: limit, Max: limit}
		err := unix.Prlimit(m.process.PID(), resource, &l, nil)
		// Another user's process can be limited only with CAP_SYS_RESOURCE, which
		// root of a container may lack; the guest's own limits hold without it.
		if err != nil && !errors.Is(err, unix.EPERM) {
			return m.orDied(fmt.Errorf("limit QEMU: %w", err))
		}
	}
	return nil
}

// orDied prefers the reason of a QEMU that has ended over what failed with it.
func (m *machine) orDied(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		<-m.process.Done()
		return &vm.Failure{Code: vm.BootFailed, Message: "QEMU ended at once: " + m.lastWords()}
	}
	return err
}

// greet waits for the guest agent.
func (m *machine) greet(ctx context.Context, conn net.Conn, runID string) error {
	late := &vm.Failure{Code: vm.BootFailed, Message: fmt.Sprintf("the guest did not answer within %s", m.opts.BootTimeout)}
	bootCtx, cancel := context.WithTimeoutCause(ctx, m.opts.BootTimeout, late)
	defer cancel()
	session, err := guest.Open(bootCtx, conn)
	if err != nil {
		conn.Close()
	} else {
		m.session = session
		err = session.Init(bootCtx, runID)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("boot the guest of run %s: %w", runID, context.Cause(ctx))
	}
	return &vm.Failure{Code: vm.BootFailed, Message: fmt.Sprintf("the guest did not boot: %v (%s)", err, m.lastWords())}
}

// lastWords says how QEMU ended, if it has, and what was said last.
func (m *machine) lastWords() string {
	var words []string
	select {
	case <-m.process.Done():
		words = append(words, "QEMU ended with "+m.process.State())
	default:
	}
	if line := m.stderr.lastLine(); line != "" {
		words = append(words, "QEMU said: "+line)
	}
	if line := m.console.lastLine(); line != "" {
		words = append(words, "last line of the console: "+line)
	}
	if len(words) == 0 {
		return "nothing was said"
	}
	return strings.Join(words, "; ")
}

// Info implements [vm.VM].
func (m *machine) Info() vm.Info {
	return vm.Info{
		Accel:     m.accel,
		Kernel:    m.session.Hello().Kernel,
		Isolation: "a QEMU virtual machine with its own kernel and no network; QEMU is confined by seccomp and runs as an unprivileged user",
	}
}

// Inject implements [vm.VM].
func (m *machine) Inject(ctx context.Context, tar io.Reader) (vm.Manifest, error) {
	ctx, cancel := m.step(ctx, "putting files into the machine")
	defer cancel()
	manifest, err := m.session.Put(ctx, tar)
	return manifest, m.explain(err)
}

// Run implements [vm.VM].
func (m *machine) Run(ctx context.Context, c vm.Command, logs vm.LogSink) (vm.Exit, error) {
	exit, err := m.session.Exec(ctx, guest.Exec{Argv: c.Argv, Env: c.Env}, m.opts.KillGrace, logs)
	if ctx.Err() != nil {
		return exit, errors.Join(err, m.Kill())
	}
	return exit, m.explain(err)
}

// Collect implements [vm.VM].
func (m *machine) Collect(ctx context.Context, patterns []string, limits vm.Limits, w io.Writer) (vm.Result, error) {
	ctx, cancel := m.step(ctx, "collecting results")
	defer cancel()
	result, err := m.session.Get(ctx, patterns, limits, w)
	return result, m.explain(err)
}

// step gives a step its own deadline.
func (m *machine) step(ctx context.Context, doing string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, m.opts.StepTimeout, &vm.Failure{
		Code:    vm.StepTimeout,
		Message: fmt.Sprintf("%s took longer than %s", doing, m.opts.StepTimeout),
	})
}

// dieWait is how long QEMU may take to end after its connection has.
const dieWait = time.Second

// explain adds to the loss of a machine how it went.
func (m *machine) explain(err error) error {
	f := new(vm.Failure)
	if !errors.As(err, &f) || f.Code != vm.MachineDied {
		return err
	}
	select {
	case <-m.process.Done():
	case <-time.After(dieWait):
	}
	return &vm.Failure{Code: f.Code, Message: f.Message + " (" + m.lastWords() + ")"}
}

// Kill ends QEMU at once. The guest is not asked: nothing in it is worth saving.
func (m *machine) Kill() error {
	m.kill.Do(func() {
		if m.process != nil {
			m.process.Kill()
		}
		if m.session != nil {
			m.session.Close()
		}
		m.killErr = m.cgroup.Remove()
	})
	return m.killErr
}

// The descriptors QEMU inherits, in the order of ExtraFiles.
const (
	fdKernel = 3 + iota
	fdInitrd
	fdDisk
	fdAgent
)

// arguments are QEMU's. It opens nothing by name but its own firmware, so that
// its user needs no way to the files.
func arguments(s vm.Spec, accel, kind string) []string {
	cpus := max((s.CPUMilli+999)/1000, 1)
	kernel := "console=ttyS0 quiet panic=-1 reboot=t random.trust_cpu=on"
	accelerator := "kvm"
	if accel == AccelTCG {
		accelerator = "tcg,tb-size=64"
		// Emulated timers are late under load, and a guest that calibrates
		// against them may wait for ever.
		kernel += " tsc_early_khz=2000000 lpj=4000000"
	}
	machine, bus := "q35", "pci"
	if kind == machineMicroVM {
		// Devices are found through ACPI; without a second IOAPIC their
		// interrupts arrive also under TCG.
		machine, bus = "microvm,acpi=on,ioapic2=off", "device"
	}
	return []string{
		"-machine", machine, "-accel", accelerator, "-cpu", "max",
		"-smp", strconv.FormatInt(cpus, 10), "-m", strconv.FormatInt(s.MemoryMiB, 10),
		"-nodefaults", "-no-user-config", "-nic", "none", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", fdPath(fdKernel), "-initrd", fdPath(fdInitrd), "-append", kernel,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-drive", "if=none,id=scratch,format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file=" + fdPath(fdDisk),
		"-device", "virtio-blk-" + bus + ",drive=scratch",
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", fdAgent),
		"-device", "virtio-serial-" + bus, "-device", "virtserialport,chardev=agent,name=tidewait.agent",
	}
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
