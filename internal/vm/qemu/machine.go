package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/keeper"
	"tidewait/internal/vm/tail"
)

// The machines of QEMU that are used.
const (
	machineMicroVM = "microvm"
	machineQ35     = "q35"
)

// machine is one virtual machine. It implements [vm.VM], and [vm.Kept] when it has a
// keeper.
type machine struct {
	host.Guest
	run       *host.Run
	accel     string
	start     vm.Start
	image     string
	onSegment bool
	console   tail.Tail // the guest's serial console
	stderr    tail.Tail // QEMU's own words
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
		if f := new(vm.Failure); ctx.Err() != nil || !errors.As(err, &f) || vm.IsImageInvalid(err) {
			return nil, err
		}
		b.opts.Logger.Warn("a guest did not boot", "run", s.RunID, "attempt", attempt+1, "machine", kind, "error", err)
	}
	return nil, err
}

// bootOnce starts QEMU and waits for the guest agent. When it fails nothing is left.
func (b *Backend) bootOnce(ctx context.Context, run *host.Run, s vm.Spec, accel, kind string) (*machine, error) {
	m := b.newMachine(run, accel)
	return m, m.orGone(ctx, m.boot(ctx, b, s, kind))
}

func (b *Backend) newMachine(run *host.Run, accel string) *machine {
	m := &machine{run: run, accel: accel}
	m.StepTimeout, m.KillGrace, m.LastWords = b.opts.StepTimeout, b.opts.KillGrace, m.lastWords
	return m
}

// orGone leaves nothing of a machine that failed.
func (m *machine) orGone(ctx context.Context, err error) error {
	if err != nil {
		err = errors.Join(err, m.Kill(context.WithoutCancel(ctx)))
	}
	return err
}

func (m *machine) boot(ctx context.Context, b *Backend, s vm.Spec, kind string) error {
	disk, err := b.newDisk(ctx, m.run.Dir, s.DiskMiB)
	if err != nil {
		return err
	}
	defer disk.Close()
	conn, err := m.launch(b, s, arguments(s, m.accel, kind), disk)
	if err != nil {
		return err
	}
	return m.Greet(ctx, conn, s, b.opts.BootTimeout)
}

// launch starts QEMU with a scratch disk and returns the connection to the guest
// agent. more are files that the arguments name beside the usual ones.
func (m *machine) launch(b *Backend, s vm.Spec, args []string, disk *os.File, more ...*os.File) (net.Conn, error) {
	kernel, err := os.Open(b.opts.Image.Kernel)
	if err != nil {
		return nil, fmt.Errorf("open the guest's kernel: %w", err)
	}
	defer kernel.Close()
	initrd, err := os.Open(b.opts.Image.Initrd)
	if err != nil {
		return nil, fmt.Errorf("open the guest's initramfs: %w", err)
	}
	defer initrd.Close()
	if err := m.limit(s); err != nil {
		return nil, err
	}
	var cable *os.File // none: the descriptor is closed
	if s.Root != nil {
		m.image = s.Root.Name
	}
	if m.onSegment = s.NIC != nil; m.onSegment {
		cable = s.NIC.Cable
	}
	cmd := exec.Command(b.opts.QEMU, args...)
	root, err := openRoot(s)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	cmd.ExtraFiles = append([]*os.File{kernel, initrd, disk, nil, cable, root.File}, more...)
	cmd.Env = []string{}
	cmd.SysProcAttr = b.user.Attr(devices(m.accel)...)
	conn, err := m.spawn(b, cmd, s.Keep)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		err = errMissing(err)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.Confine(m.run), m.harden(s)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// spawn starts QEMU, and returns the connection to the guest agent.
func (m *machine) spawn(b *Backend, cmd *exec.Cmd, keep bool) (net.Conn, error) {
	const guestAt = fdAgent - fdKernel
	var keeping *host.Keeping
	if keep {
		keeping = &host.Keeping{Program: b.opts.Keeper, Lease: b.opts.Lease}
	}
	cmd.Stdout, cmd.Stderr = &m.console, &m.stderr
	p, conn, err := host.StartGuest(cmd, guestAt, m.run, "", keeping)
	if err != nil {
		return nil, err
	}
	m.Process = p
	return conn, nil
}

// Keep implements [vm.Kept].
func (m *machine) Keep() error { return m.Guest.Keep(m.run, m.Info()) }

// devices are those QEMU must be allowed to open.
func devices(accel string) []string {
	if accel == AccelKVM {
		return []string{kvmDevice}
	}
	return nil
}

// limit makes the cgroup of the machine where that is allowed. Without one the
// guest still has no more memory and processors than QEMU gives it.
func (m *machine) limit(s vm.Spec) error {
	cgroup, err := host.NewCgroup(m.run.Name(), host.Limits{
		MemoryMiB: s.MemoryMiB + 2*overhead(m.accel), // what is accounted is the usual, not the most
		Pids:      256,
	})
	if err != nil && !errors.Is(err, host.ErrNoCgroups) {
		return err
	}
	m.Cgroup = cgroup
	return m.run.Record(m.Cgroup, nil)
}

// harden sets limits that QEMU itself must not pass. Another user's process can
// be limited only with CAP_SYS_RESOURCE, which root of a container may lack; the
// guest's own limits hold without it.
func (m *machine) harden(s vm.Spec) error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: 256,
		unix.RLIMIT_FSIZE:  uint64(max(s.DiskMiB, minDisk)) << 20,
	} {
		l := unix.Rlimit{Cur: limit, Max: limit}
		err := unix.Prlimit(m.Process.PID(), resource, &l, nil)
		if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("limit QEMU: %w", err)
		}
	}
	return nil
}

// lastWords are what QEMU and the guest's console said last.
func (m *machine) lastWords() string {
	said := keeper.Words{Stdout: m.console.LastLine(), Stderr: m.stderr.LastLine()}
	if kept, ok := m.Process.(*host.KeptProcess); ok {
		said = kept.Words()
	}
	var words []string
	if line := said.Stderr; line != "" {
		words = append(words, "QEMU said: "+line)
	}
	if line := said.Stdout; line != "" {
		words = append(words, "the console ends with: "+line)
	}
	return strings.Join(words, "; ")
}

// said is lastWords after a sentence.
func (m *machine) said() string {
	if words := m.lastWords(); words != "" {
		return "; " + words
	}
	return ""
}

// Info implements [vm.VM].
func (m *machine) Info() vm.Info {
	if m.run.Kept != nil {
		return *m.run.Kept
	}
	network := "no network"
	if m.onSegment {
		network = "a private network with the machines of its run only"
	}
	return vm.Info{
		Accel:     m.accel,
		Kernel:    m.Session.Hello().Kernel,
		Start:     m.start,
		Image:     m.image,
		Isolation: "a QEMU virtual machine with its own kernel and " + network + "; QEMU is confined by seccomp and runs as an unprivileged user",
	}
}

// The descriptors QEMU inherits, in the order of ExtraFiles.
const (
	fdKernel = 3 + iota
	fdInitrd
	fdDisk
	fdAgent
	fdCable // closed where there is no network
	fdRoot  // closed where commands have no root directory of their own
	fdMore  // those that only some machines have
)

// arguments are QEMU's. Everything about the machine that a guest can see is in
// them, so that they belong to the key of its snapshot. QEMU opens nothing by
// name but its own firmware, so that its user needs no way to the files.
func arguments(s vm.Spec, accel, kind string) []string {
	kernel := "console=ttyS0 quiet panic=-1 reboot=t random.trust_cpu=on"
	accelerator, cpu := "kvm", "max"
	if accel == AccelTCG {
		accelerator = "tcg,tb-size=64"
		// What costs emulation dear: a fifth level of page tables, protections of
		// the guest's kernel from its own processes, which are root's anyway, and
		// "rep movsb", which is emulated byte by byte: without erms nothing prefers it.
		cpu += ",la57=off,smap=off,smep=off,pku=off,erms=off"
		// Emulated timers are late under load. A guest that calibrates against
		// them may wait for ever, and one that checks its clock against them takes
		// the wrong one for right.
		if mhz := counterMHz(); mhz > 0 {
			kernel += fmt.Sprintf(" tsc_early_khz=%d000 tsc=reliable lpj=4000000", mhz)
		} else {
			kernel += " tsc_early_khz=2000000 lpj=4000000"
		}
		// An emulated processor does not speculate.
		kernel += " mitigations=off"
	}
	machine, bus := "q35", "pci"
	if kind == machineMicroVM {
		// Devices are found through ACPI; without a second IOAPIC their
		// interrupts arrive also under TCG.
		machine, bus = "microvm,acpi=on,ioapic2=off", "device"
	}
	args := []string{
		"-machine", machine, "-accel", accelerator, "-cpu", cpu,
		"-smp", strconv.FormatInt(cpus(s), 10), "-m", strconv.FormatInt(s.MemoryMiB, 10),
		"-nodefaults", "-no-user-config", "-nic", "none", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", fdPath(fdKernel), "-initrd", fdPath(fdInitrd), "-append", kernel,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-drive", "if=none,id=scratch,format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file=" + fdPath(fdDisk),
		"-device", "virtio-blk-" + bus + ",drive=scratch,serial=" + guest.ScratchDisk,
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", fdAgent),
		"-device", "virtio-serial-" + bus, "-device", "virtserialport,chardev=agent,name=tidewait.agent",
	}
	if s.Root != nil {
		args = append(args, "-drive", "if=none,id=root,format=raw,readonly=on,file="+fdPath(fdRoot),
			"-device", "virtio-blk-"+bus+",drive=root,serial="+guest.RootDisk)
	}
	if s.NIC == nil {
		return args
	}
	// The guest gives the device its address itself, so that machines restored
	// from one snapshot differ. It does not boot from its network.
	device := "virtio-net-" + bus + ",netdev=segment"
	if kind == machineQ35 {
		device += ",romfile="
	}
	return append(args, "-netdev", fmt.Sprintf("dgram,id=segment,local.type=fd,local.str=%d", fdCable), "-device", device)
}

// cpus is how many virtual processors a machine has.
func cpus(s vm.Spec) int64 { return max((s.CPUMilli+999)/1000, 1) }

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
