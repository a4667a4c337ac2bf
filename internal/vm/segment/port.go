package segment

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// port is one end of a cable, of which a machine has the other.
type port struct {
	index int
	conn  *net.UnixConn
	cable *os.File // the machine's end
	out   *queue
	storm bucket

	received, sent           atomic.Int64
	receivedBytes, sentBytes atomic.Int64
	dropped                  [drops]atomic.Int64
}

// socketBuffer is the size of the kernel's buffer for frames that a port has
// been sent and not taken, in bytes. It is small, because senders take turns
// only before it.
const socketBuffer = 64 << 10

func newPort(index, ports int) (*port, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a cable of the segment: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "cable")
	defer ours.Close()
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer); err != nil {
			theirs.Close()
			return nil, fmt.Errorf("bound a cable of the segment: %w", err)
		}
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, fmt.Errorf("make a cable of the segment: %w", err)
	}
	return &port{index: index, conn: conn.(*net.UnixConn), cable: theirs, out: newQueue(ports)}, nil
}

// receive reads frames until the port is closed, and gives each to pass, which
// returns a frame to read into.
func (p *port) receive(pass func(*frame) *frame) error {
	f := new(frame)
	for {
		n, err := p.conn.Read(f.buf[:])
		if err != nil {
			return err
		}
		f.n = n
		p.received.Add(1)
		p.receivedBytes.Add(int64(n))
		f = pass(f)
	}
}

// send writes what waits for the port until the port is closed. A machine that
// does not take its frames holds up nothing but them.
func (p *port) send(done <-chan struct{}) error {
	for {
		f := p.out.take()
		if f == nil {
			select {
			case <-p.out.ready:
			case <-done:
				return net.ErrClosed
			}
			continue
		}
		p.sent.Add(1)
		p.sentBytes.Add(int64(f.n))
		if _, err := p.conn.Write(f.bytes()); err != nil {
			return err
		}
		frames.Put(f)
	}
}

func (p *port) drop(why Drop) { p.dropped[why].Add(1) }

// Broadcasts of one port: those of ARP are a few in a minute.
const (
	stormRate  = 500 // in a second
	stormBurst = 200
)

// bucket allows stormBurst broadcasts at once and stormRate in a second. It is
// used by one goroutine.
type bucket struct {
	spent float64 // of the burst
	at    time.Time
}

func (b *bucket) allow(now time.Time) bool {
	b.spent = max(b.spent-now.Sub(b.at).Seconds()*stormRate, 0)
	b.at = now
	if b.spent+1 > stormBurst {
		return false
	}
	b.spent++
	return true
}
