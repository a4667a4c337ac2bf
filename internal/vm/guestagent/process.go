package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest/serve"
	"tidewait/internal/vm/process/shim"
)

// runProcess is the whole life of the first process of a set of namespaces. Its
// working directory is the directory of its run.
func runProcess(argument string) {
	if err := namespaces(argument); err != nil {
		fmt.Fprintln(os.Stderr, "tidewait-guest:", err)
		os.Exit(1)
	}
}

func namespaces(argument string) error {
	unix.Umask(0)
	// A file that grows too large is an error to its writer, not its end.
	signal.Ignore(syscall.SIGXFSZ)
	var c shim.Config
	if err := json.Unmarshal([]byte(argument), &c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	// Commands get none of the agent's own descriptors, nor what whoever started
	// the worker left open.
	if err := unix.CloseRange(shim.AgentFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors from commands: %w", err)
	}
	// A descriptor that does not block lets a read end when it is closed.
	if err := unix.SetNonblock(shim.ConnFD, true); err != nil {
		return err
	}
	port := os.NewFile(shim.ConnFD, "host")
	plug, err := openPlug(c)
	if err != nil {
		return err
	}
	if err := makeRoot(c); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(hostNameOf(c.Network))); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := plug.connect(c.Network); err != nil {
		return err
	}
	if err := dropPrivileges(c); err != nil {
		return err
	}
	return serve.Serve(port, serve.Options{Workspace: workspace, Attr: commandAttr})
}

// plug is where the cable of the segment ends; nil is no segment.
type plug struct {
	tap, cable *os.File
}

// openPlug opens what the root directory of commands does not have.
func openPlug(c shim.Config) (*plug, error) {
	if c.Network == nil {
		return nil, nil
	}
	if err := unix.SetNonblock(shim.CableFD, true); err != nil {
		return nil, err
	}
	if err := withoutIPv6(); err != nil {
		return nil, err
	}
	tap, err := makeTAP()
	if err != nil {
		return nil, err
	}
	return &plug{tap: tap, cable: os.NewFile(shim.CableFD, "cable")}, nil
}

// connect joins the segment. Commands cannot make frames of their own: that
// takes a capability they do not have.
func (p *plug) connect(n *vm.Network) error {
	if p == nil {
		return nil
	}
	if err := configure(n); err != nil {
		return err
	}
	// Commands listen on any port, as they do in a virtual machine.
	if err := os.WriteFile(anyPort, []byte("0"), 0); err != nil {
		return fmt.Errorf("free the ports of the network: %w", err)
	}
	go carry(p.tap, p.cable)
	go carry(p.cable, p.tap)
	return nil
}

// commandAttr gives a command a user namespace of its own, in which it is an
// ordinary user and has no capabilities.
func commandAttr() *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}}
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
}

const newRoot = "root" // in the directory of the run

// makeRoot makes the root directory commands see: the host's programs and
// libraries, read-only, and nothing else of it.
func makeRoot(c shim.Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("take the mounts apart from the host's: %w", err)
	}
	if err := mount("tmpfs", newRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return err
	}
	for _, name := range c.Paths {
		if err := show(name); err != nil {
			return err
		}
	}
	if err := makeDev(); err != nil {
		return err
	}
	if err := writeEtc(c); err != nil {
		return err
	}
	if err := bind("workspace", newRoot+workspace, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	for _, m := range []struct{ fstype, target, data string }{
		{"proc", "/proc", ""},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/root", "mode=755"},
		{"tmpfs", "/dev/shm", "mode=1777"},
	} {
		if err := mount(m.fstype, newRoot+m.target, m.fstype, unix.MS_NOSUID|unix.MS_NODEV, m.data); err != nil {
			return err
		}
	}
	return enterRoot()
}

// show binds a path of the host read-only to the same path; a symbolic link is
// copied. What the host does not have is left out.
func show(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	target := newRoot + name
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(name)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	}
	return bind(name, target, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// bind makes source appear at target, with more attributes than it has.
func bind(source, target string, attrs uint64) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	attr := &unix.MountAttr{Attr_set: attrs}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("restrict the mount of %s: %w", source, err)
	}
	return nil
}

func makeDev() error {
	if err := os.Mkdir(newRoot+"/dev", 0o755); err != nil {
		return err
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bind("/dev/"+d, newRoot+"/dev/"+d, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+target, newRoot+"/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

func writeEtc(c shim.Config) error {
	if err := os.MkdirAll(newRoot+"/etc", 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/sh\ntidewait:x:1000:1000::/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"group":         "root:x:0:\ntidewait:x:1000:\nnogroup:x:65534:\n",
		"hosts":         hosts(c.Network),
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	} {
		if err := os.WriteFile(newRoot+"/etc/"+name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// enterRoot makes the new root the only one there is.
func enterRoot() error {
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root directory: %w", err)
	}
	// Both roots are at "." now, the old one on top.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root directory: %w", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, attr); err != nil {
		return fmt.Errorf("make the root directory read-only: %w", err)
	}
	return os.Chdir("/")
}

// dropPrivileges gives up what neither the agent nor its commands need.
func dropPrivileges(c shim.Config) error {
	// One more user namespace may be made: that of the command.
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("1"), 0); err != nil {
		return fmt.Errorf("limit user namespaces: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: uint64(c.MaxFile)}
	if c.MaxData > 0 {
		limits[unix.RLIMIT_DATA] = uint64(c.MaxData)
	}
	for resource, limit := range limits {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return fmt.Errorf("give up new privileges: %w", errno)
	}
	return nil
}
