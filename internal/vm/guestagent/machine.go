package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/guest/serve"
)

const (
	workspace = "/workspace"
	commands  = "/sys/fs/cgroup/command" // the cgroup commands run in
	portName  = "tidewait.agent"
	// agentMiB is memory that commands never get, so that what runs out is
	// theirs and not the agent's.
	agentMiB = 24
)

// runMachine is the whole life of a virtual machine. It never returns.
func runMachine() {
	if err := machine(); err != nil {
		// The console is all that is left to speak to.
		fmt.Fprintln(os.Stderr, "tidewait-guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {} // the first process must not end before the power does
}

func machine() error {
	unix.Umask(0)
	if err := mountKernelFilesystems(); err != nil {
		return err
	}
	if err := loadModules(guest.ModulesDir); err != nil {
		return err
	}
	if err := loadRunModules(); err != nil {
		return err
	}
	mounted, err := mountOnlyDisk()
	if err != nil {
		return err
	}
	cgroup, err := commandCgroup()
	if err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	var root string
	return serve.Serve(port, serve.Options{
		Workspace: workspace,
		Init: func(in guest.Init) (err error) {
			root, err = begin(in, mounted)
			return err
		},
		Root:     func() string { return root },
		OOMKills: oomKills,
		Attr: func() *syscall.SysProcAttr {
			return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
		},
	})
}

// mountOnlyDisk makes the scratch disk the workspace where it is the machine's only
// disk, and reports whether it did. A snapshot has that disk with it. A machine with
// another one cannot know it yet: the disk of the root directory is the run's.
func mountOnlyDisk() (bool, error) {
	if len(devices(virtioBlock)) != 1 {
		return false, nil
	}
	if err := bindDevices(virtioBlock, "virtio_blk"); err != nil {
		return false, err
	}
	scratch, err := disk(guest.ScratchDisk)
	if err != nil {
		return false, err
	}
	return true, mountWorkspace(scratch)
}

// begin makes the machine that of a run. Everything before it is the same for
// all runs and may have happened before a snapshot was made; what tells one
// machine from another, the clock, random numbers and the disk of the root directory,
// comes here. mounted says that the workspace is there. It returns the root directory
// of commands, which is empty when it is the agent's.
func begin(in guest.Init, mounted bool) (root string, err error) {
	if err := applyInit(in); err != nil {
		return "", err
	}
	if err := joinSegment(in.Network); err != nil {
		return "", err
	}
	if mounted {
		return "", nil
	}
	if err := bindDevices(virtioBlock, "virtio_blk"); err != nil {
		return "", err
	}
	scratch, err := disk(guest.ScratchDisk)
	if err != nil {
		return "", err
	}
	if in.Root {
		return imageRoot, mountRoot(scratch, hosts(in.Network))
	}
	return "", mountWorkspace(scratch)
}

func mountWorkspace(scratch string) error {
	if err := mountScratch(scratch, workspace, unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	return withoutLostFound(workspace)
}

// mountScratch mounts the scratch disk. It lives as long as one run, so that nothing
// is prepared on it in the background.
func mountScratch(device, target string, flags uintptr) error {
	return mount(device, target, "ext4", flags, "noinit_itable,no_prefetch_block_bitmaps")
}

// withoutLostFound removes what a new file system begins with.
func withoutLostFound(dir string) error {
	if err := os.Remove(filepath.Join(dir, "lost+found")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// disk waits for the disk of a serial number, and returns its device.
func disk(serial string) (device string, err error) {
	err = waitFor("the disk "+serial, func() bool {
		names, _ := filepath.Glob("/sys/block/vd*/serial")
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err == nil && strings.TrimRight(string(b), "\x00\n") == serial {
				device = "/dev/" + filepath.Base(filepath.Dir(n))
			}
		}
		return device != ""
	})
	return device, err
}

// joinSegment gives the machine its host name and, on a segment, its network
// device and the names of the others.
func joinSegment(n *vm.Network) error {
	if err := unix.Sethostname([]byte(hostNameOf(n))); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := os.WriteFile(hostsFile, []byte(hosts(n)), 0o644); err != nil {
		return err
	}
	if n == nil {
		return nil
	}
	if err := withoutIPv6(); err != nil {
		return err
	}
	if err := bindDevices(virtioNet, "virtio_net"); err != nil {
		return err
	}
	err := waitFor("the network device "+nic, func() bool {
		_, err := os.Stat("/sys/class/net/" + nic)
		return err == nil
	})
	if err != nil {
		return err
	}
	return configure(n)
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}

func mountKernelFilesystems() error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		fstype, target string
		flags          uintptr
		data           string
	}{
		{"proc", "/proc", safe, ""},
		{"sysfs", "/sys", safe, ""},
		{"devtmpfs", "/dev", unix.MS_NOSUID, ""},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", safe, ""},
	} {
		if err := mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+target, "/dev/"+name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// loadModules loads every module of a directory in the order of its names.
// One whose hardware is not there is no error.
func loadModules(dir string) error {
	modules, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the modules: %w", err)
	}
	for _, m := range modules {
		f, err := os.Open(filepath.Join(dir, m.Name()))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("load the module %s: %w", m.Name(), err)
		}
	}
	return nil
}

// deviceTimeout is how long the kernel may take to show a device.
const deviceTimeout = 10 * time.Second

// waitFor looks for a device until it is found. Nothing announces devices to the
// first process, so it looks again after a pause.
func waitFor(name string, found func() bool) error {
	deadline := time.Now().Add(deviceTimeout)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for !found() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not appear within %s", name, deviceTimeout)
		}
		<-pause.C
	}
	return nil
}

// commandCgroup makes the cgroup of commands, which leaves the agent some
// memory and is killed as a whole when memory runs out.
func commandCgroup() (*os.File, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	limit := int64(info.Totalram)*int64(info.Unit) - agentMiB<<20
	if err := os.Mkdir(commands, 0o755); err != nil {
		return nil, err
	}
	for file, value := range map[string]string{
		"/sys/fs/cgroup/cgroup.subtree_control": "+memory",
	} {
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return nil, fmt.Errorf("set %s: %w", file, err)
		}
	}
	for file, value := range map[string]string{
		"memory.max":       strconv.FormatInt(max(limit, 1<<20), 10),
		"memory.oom.group": "1",
	} {
		if err := os.WriteFile(filepath.Join(commands, file), []byte(value), 0); err != nil {
			return nil, fmt.Errorf("set %s of the commands: %w", file, err)
		}
	}
	return os.Open(commands)
}

// oomKills counts all processes the kernel killed because memory ran out, of
// the whole machine as well as of the cgroup.
func oomKills() int64 {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring the loopback interface up: %w", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring the loopback interface up: %w", err)
	}
	return nil
}

// openPort opens the virtio-serial port that leads to the host.
func openPort() (*os.File, error) {
	var device string
	err := waitFor("the port "+portName, func() bool {
		device = findPort()
		return device != ""
	})
	if err != nil {
		return nil, err
	}
	return os.OpenFile(device, os.O_RDWR, 0)
}

// findPort is the port's device, and empty while the kernel shows none.
func findPort() string {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err == nil && strings.TrimSpace(string(b)) == portName {
			return "/dev/" + filepath.Base(filepath.Dir(n))
		}
	}
	return ""
}

// applyInit sets the clock and the seed of random numbers.
func applyInit(in guest.Init) error {
	t := unix.NsecToTimespec(in.WallTime.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &t); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return addEntropy(in.Entropy)
}

// addEntropy credits b to the kernel's random numbers (struct rand_pool_info),
// and has them start from it at once: by itself the kernel may go on for a
// minute with those that every machine restored from the same snapshot has.
func addEntropy(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	pool := make([]byte, 8, 8+len(b)+3)
	binary.NativeEndian.PutUint32(pool, uint32(len(b)*8))
	binary.NativeEndian.PutUint32(pool[4:], uint32(len(b)))
	pool = append(pool, b...)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool[0])))
	if errno != 0 {
		return fmt.Errorf("seed the random numbers: %w", errno)
	}
	if _, _, errno = unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("start the random numbers from their seed: %w", errno)
	}
	return nil
}
