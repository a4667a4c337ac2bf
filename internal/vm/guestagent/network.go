package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
)

const (
	nic          = "eth0"
	tunDevice    = "/dev/net/tun"
	hostsFile    = "/etc/hosts"
	noIPv6       = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	anyPort      = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	hostName     = "tidewait" // of a machine that is on no segment
	loopbackHost = "127.0.0.1 localhost"
	loopback6    = "::1 localhost\n"
)

// hostNameOf is the host name of a machine that may be on a segment.
func hostNameOf(n *vm.Network) string {
	if n == nil {
		return hostName
	}
	return n.Name
}

// hosts is the content of /etc/hosts.
func hosts(n *vm.Network) string {
	if n == nil {
		return loopbackHost + " " + hostName + "\n" + loopback6
	}
	var b strings.Builder
	b.WriteString(loopbackHost + "\n" + loopback6)
	for _, h := range n.Hosts {
		fmt.Fprintf(&b, "%s %s\n", h.Address, strings.Join(h.Names, " "))
	}
	return b.String()
}

// withoutIPv6 keeps devices made from now on from having IPv6 addresses, which
// a segment does not carry.
func withoutIPv6() error {
	if err := os.WriteFile(noIPv6, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep IPv6 off the network: %w", err)
	}
	return nil
}

// configure gives the network device its addresses and brings it up.
func configure(n *vm.Network) error {
	mac, err := net.ParseMAC(n.MAC)
	if err != nil || len(mac) != 6 || !n.Address.Addr().Is4() {
		return fmt.Errorf("the host gave the addresses %q and %s", n.MAC, n.Address)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	defer unix.Close(s)
	if err := setMAC(s, mac); err != nil {
		return fmt.Errorf("set the MAC address %s: %w", mac, err)
	}
	ip, mask := n.Address.Addr().As4(), net.CIDRMask(n.Address.Bits(), 32)
	for _, step := range []struct {
		what    string
		request uint
		set     func(*unix.Ifreq) error
	}{
		{"MTU", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(uint32(n.MTU)); return nil }},
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }},
		{"netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask) }},
		{"flags", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		req, err := unix.NewIfreq(nic)
		if err == nil {
			err = step.set(req)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, step.request, req)
		}
		if err != nil {
			return fmt.Errorf("set the %s of %s: %w", step.what, nic, err)
		}
	}
	return nil
}

// setMAC is a request that [unix.Ifreq] cannot express (struct ifreq with
// ifr_hwaddr).
func setMAC(socket int, mac net.HardwareAddr) error {
	var req struct {
		name   [unix.IFNAMSIZ]byte
		family uint16
		data   [14]byte
		_      [8]byte
	}
	copy(req.name[:], nic)
	req.family = unix.ARPHRD_ETHER
	copy(req.data[:], mac)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCSIFHWADDR, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// makeTAP makes the network device of namespaces. It goes when the file is
// closed.
func makeTAP() (*os.File, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", tunDevice, err)
	}
	req, err := unix.NewIfreq(nic)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the network device %s: %w", nic, err)
	}
	return os.NewFile(uintptr(fd), nic), nil
}

// carry takes frames from one file to the other until one is closed. What the
// other does not take is lost.
func carry(to, from *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); errors.Is(err, fs.ErrClosed) || errors.Is(err, unix.ECONNREFUSED) {
			return
		}
	}
}
