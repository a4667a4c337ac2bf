// Package keeper is how a program speaks to the keepers of its machines. A
// keeper is a small process of its own, the parent of one machine: it holds the
// connection to the guest agent, so that the machine can outlive the program that
// had it made, and the next program can go on with it. Package keep is the
// keeper's own end.
//
// A program and a keeper share two connections. On the control connection, of
// whole messages, they exchange a [Request] or an [Event] in each. On the stream
// go the frames of the guest protocol as they are; no guest can speak on the
// control connection. The machine ends with its keeper, with the node's lease,
// and, unless the program has asked to keep it, with the control connection.
package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
)

// Argument is the first argument of the guest agent when it is to be a keeper;
// the second is the directory of the run, which is also its working directory.
const Argument = "keeper"

// Proto is the version of what is said on the control connection.
const Proto = 1

// ControlFD is the descriptor of the control connection a keeper inherits.
const ControlFD = 3

// socketName is where a keeper listens for the next program, in the directory of
// its run.
const socketName = "keeper"

// maxMessage bounds a message on the control connection, in bytes.
const maxMessage = 64 << 10

// Request is what a program asks for. Exactly one field is set.
type Request struct {
	// Start starts the machine. With it come the stream and the machine's files.
	Start *Start `json:"start,omitempty"`
	// Keep has the machine outlive the control connection from now on.
	Keep bool `json:"keep,omitempty"`
	// Attach gives another stream, which comes with it. What the guest has said
	// since the latest command began is said again on it.
	Attach bool `json:"attach,omitempty"`
	// State asks where the guest is.
	State bool `json:"state,omitempty"`
	// Words asks for what the machine's process said last.
	Words bool `json:"words,omitempty"`
}

// Event is what a keeper says: one answer to each request, and Ended by itself.
type Event struct {
	Started *Started `json:"started,omitempty"`
	Failed  *Failed  `json:"failed,omitempty"` // answers Start too
	Kept    bool     `json:"kept,omitempty"`
	State   *State   `json:"state,omitempty"` // answers Attach too
	Words   *Words   `json:"words,omitempty"`
	Ended   *Ended   `json:"ended,omitempty"`
}

// Start is the process of a machine.
type Start struct {
	Path  string              `json:"path"`
	Args  []string            `json:"args"`
	Env   []string            `json:"env"`
	Attr  syscall.SysProcAttr `json:"attr"`
	Files []bool              `json:"files"` // of its descriptors from 3 on: whether it gets the next file, or none
	Guest int                 `json:"guest"` // the descriptor, less 3, of its end of the connection to the guest agent
	Lease string              `json:"lease"` // file that says when the machine has to end; empty: it need not
}

// Started is the process that was started.
type Started struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"` // clock ticks since the host's boot
}

// Failed says why no process was started.
type Failed struct {
	Message string `json:"message"`
	Missing bool   `json:"missing,omitempty"` // the program is not there
}

// State is where the guest is.
type State struct {
	Proto    int             `json:"proto"`
	Hello    json.RawMessage `json:"hello"`    // as the guest said it
	Executed bool            `json:"executed"` // a command was begun
	Ended    bool            `json:"ended"`    // and has ended
	// EndedAt is when it ended, after the host's boot; 0: it has not, or the keeper
	// is of a program that did not look.
	EndedAt time.Duration `json:"endedAt,omitempty"` // nanoseconds
	// Begin is where in the command's output the stream begins. What was before
	// it is gone.
	Begin vm.Position `json:"begin"`
}

// Words are the last lines of a process.
type Words struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// Ended is the end of a machine.
type Ended struct {
	State string `json:"state"` // of its process, such as "signal: killed"
	Lease bool   `json:"lease"` // the keeper ended it with the node's lease
	Words Words  `json:"words"`
}

// Send sends a message, and files with it.
func Send(c *net.UnixConn, message any, files ...*os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("a message of %d bytes is larger than the %d that are allowed", len(b), maxMessage)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, rights, nil)
	return err
}

// maxFiles bounds the files that come with a message.
const maxFiles = 16

// Receive reads one message, and the files that came with it, which are the
// caller's to close. The end of the connection is io.EOF.
func Receive(c *net.UnixConn, message any) ([]*os.File, error) {
	b, rights := make([]byte, maxMessage+1), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nr, _, _, err := c.ReadMsgUnix(b, rights)
	if err != nil {
		return nil, err
	}
	files, err := received(rights[:nr])
	if err == nil && n > maxMessage {
		err = errors.New("a message is too large")
	}
	if err == nil {
		err = json.Unmarshal(b[:n], message)
	}
	if err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("read a message of the control connection: %w", err)
	}
	return files, nil
}

func received(rights []byte) ([]*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			CloseAll(files)
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// CloseAll closes files; nil ones are none.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// SocketPair makes a connection of two ends that are this program's: of bytes, or
// of whole messages.
func SocketPair(kind int) (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a connection: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "theirs")
	ours, err = Conn(os.NewFile(uintptr(fds[0]), "ours"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// Conn makes a connection of a file, which it closes.
func Conn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("make a connection: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("make a connection: the descriptor is not that of a Unix socket")
	}
	return u, nil
}

// address is the address of a keeper's socket. The name of a run's directory may
// be longer than an address may be, so that it is reached through a descriptor.
func address(dir *os.File) *net.UnixAddr {
	return &net.UnixAddr{Name: filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), socketName), Net: "unixpacket"}
}

// Listen listens where [Dial] calls.
func Listen(dir string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	// A run whose machine did not start has another keeper before.
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", address(d))
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", dir, err)
	}
	l.SetUnlinkOnClose(false) // its name is gone with the directory
	return l, nil
}

// Peer is the process at the other end of a connection: of one that was dialled,
// that which listens.
func Peer(c *net.UnixConn) (pid int, uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, err
	}
	if credErr != nil {
		return 0, 0, credErr
	}
	return int(cred.Pid), cred.Uid, nil
}
