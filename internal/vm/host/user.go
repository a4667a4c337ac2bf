package host

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// User is whom machines run as. The nil User is the user of this program.
type User struct {
	UID, GID uint32
}

// Unprivileged returns the named user when this program is root, and nil when
// it is not.
func Unprivileged(name string) (*User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("the user %q that machines should run as: %w", name, err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if uidErr != nil || gidErr != nil || uid == 0 {
		return nil, fmt.Errorf("the user %q cannot be used for machines: its ids are %s and %s", name, u.Uid, u.Gid)
	}
	return &User{UID: uint32(uid), GID: uint32(gid)}, nil
}

// Attr makes a process the user's, with the groups of the given devices.
func (u *User) Attr(devices ...string) *syscall.SysProcAttr {
	if u == nil {
		return &syscall.SysProcAttr{}
	}
	c := &syscall.Credential{Uid: u.UID, Gid: u.GID}
	for _, d := range devices {
		var st unix.Stat_t
		if unix.Stat(d, &st) == nil && st.Gid != 0 {
			c.Groups = append(c.Groups, st.Gid)
		}
	}
	return &syscall.SysProcAttr{Credential: c}
}

// Own gives a file to the user.
func (u *User) Own(f *os.File) error {
	if u == nil {
		return nil
	}
	return f.Chown(int(u.UID), int(u.GID))
}

// SocketPair makes a connection to a process: one end for this program, one to
// be inherited.
func SocketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a connection to the machine: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "machine")
	file := os.NewFile(uintptr(fds[0]), "host")
	defer file.Close()
	ours, err = net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make a connection to the machine: %w", err)
	}
	return ours, theirs, nil
}
