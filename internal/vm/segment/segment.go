// Package segment is the private network between the machines of one run: an
// Ethernet switch in user space with a port for each machine and for nothing
// else. There is no gateway, no name server, no host and no other run on it.
//
// A port is one of a pair of connected datagram sockets; each message is a
// frame. The machine inherits the other one, so that there is no name in the
// file system under which anybody else could send. QEMU takes it as its network
// device (-netdev dgram); in namespaces the guest agent carries frames between
// it and a TAP device.
//
// Every port has a MAC address and an IPv4 address, and frames from any other
// are dropped, as is everything that is neither ARP nor IPv4: machines cannot
// take each other for somebody else, and there is nothing to learn and no frame
// that goes to all ports because its destination is unknown. Broadcasts are
// bounded in number. A machine that does not take its frames loses them; one
// that sends too many to another loses its own first (see [Drop]).
package segment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"tidewait/internal/vm"
)

// Segment is one network. It is safe for concurrent use.
type Segment struct {
	hosts []Host
	ports []*port
	table *table
	loops sync.WaitGroup

	ending sync.Once
	done   chan struct{} // closed when frames are no longer carried
	err    error         // why, to be read after done; nil after Close
}

// frames are the buffers of all segments.
var frames = sync.Pool{New: func() any { return new(frame) }}

// Open makes the segment of hosts, which [Plan] made, and carries frames until
// it is closed.
func Open(hosts []Host) (*Segment, error) {
	if len(hosts) == 0 || len(hosts) > MaxHosts {
		return nil, fmt.Errorf("a segment of %d machines cannot be made; 1 to %d are possible", len(hosts), MaxHosts)
	}
	s := &Segment{hosts: hosts, table: newTable(hosts), done: make(chan struct{})}
	for i := range hosts {
		p, err := newPort(i, len(hosts))
		if err != nil {
			s.Close()
			return nil, err
		}
		s.ports = append(s.ports, p)
	}
	for _, p := range s.ports {
		s.loops.Go(func() { s.end(p, p.receive(func(f *frame) *frame { return s.pass(p, f) })) })
		s.loops.Go(func() { s.end(p, p.send(s.done)) })
	}
	return s, nil
}

// Alone makes the segment of one machine. Backends try with it whether they can
// give machines a network at all.
func Alone(name string) (*Segment, error) {
	hosts, err := Plan([]Agent{{Name: name}})
	if err != nil {
		return nil, err
	}
	return Open(hosts)
}

// NIC is what the machine of the host with the given index has to be created
// with. It is valid until Close.
func (s *Segment) NIC(index int) *vm.NIC {
	h := s.hosts[index]
	return &vm.NIC{
		Cable: s.ports[index].cable,
		Network: vm.Network{
			Name: h.Name, MAC: h.MAC.String(), MTU: mtu,
			Address: netip.PrefixFrom(h.Address, network.Bits()),
			Hosts:   names(s.hosts),
		},
	}
}

// Done is closed when the segment no longer carries frames.
func (s *Segment) Done() <-chan struct{} { return s.done }

// Err says why the segment no longer carries frames. It is nil before Done, and
// after Close.
func (s *Segment) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close ends the segment, also for machines that still run, and returns when
// nothing is left of it. No machine may be in the making by then: until here the
// cables stay open, so that none can inherit another file in place of one.
func (s *Segment) Close() {
	s.stop(nil)
	s.loops.Wait()
	for _, p := range s.ports {
		p.cable.Close()
	}
}

// end ends the whole segment when a loop of a port ended by itself: machines
// that do not all hear each other are worse than none.
func (s *Segment) end(p *port, err error) {
	if !errors.Is(err, net.ErrClosed) {
		s.stop(&vm.Failure{
			Code:    vm.SegmentFailed,
			Message: fmt.Sprintf("the network between the machines of the run failed at the port of %s: %v", s.hosts[p.index].Name, err),
		})
	}
}

func (s *Segment) stop(err error) {
	s.ending.Do(func() {
		s.err = err
		close(s.done)
		for _, p := range s.ports {
			p.conn.Close()
		}
	})
}

// pass carries a frame to where it goes, and returns a buffer for the next.
func (s *Segment) pass(from *port, f *frame) *frame {
	to, why, ok := s.table.destination(from.index, f.bytes())
	switch {
	case !ok:
		from.drop(why)
		return f
	case to == everyone:
		s.broadcast(from, f)
		return f
	}
	s.queue(from, s.ports[to], f)
	return frames.Get().(*frame)
}

func (s *Segment) broadcast(from *port, f *frame) {
	if !from.storm.allow(time.Now()) {
		from.drop(DropStorm)
		return
	}
	for _, to := range s.ports {
		if to == from {
			continue
		}
		c := frames.Get().(*frame)
		c.n = copy(c.buf[:], f.bytes())
		s.queue(from, to, c)
	}
}

// queue gives up the frame.
func (s *Segment) queue(from, to *port, f *frame) {
	if lost, whose := to.out.put(from.index, f); lost != nil {
		s.ports[whose].drop(DropFull)
		frames.Put(lost)
	}
}

// Traffic is what went through a port.
type Traffic struct {
	Received, Sent           int64 // frames, as the segment sees it: received from the machine, sent to it
	ReceivedBytes, SentBytes int64
	Dropped                  map[Drop]int64 // frames of the machine, by reason
}

// Traffic counts what went through the port of the host with the given index.
func (s *Segment) Traffic(index int) Traffic {
	p := s.ports[index]
	t := Traffic{
		Received: p.received.Load(), Sent: p.sent.Load(),
		ReceivedBytes: p.receivedBytes.Load(), SentBytes: p.sentBytes.Load(),
		Dropped: map[Drop]int64{},
	}
	for why := range p.dropped {
		if n := p.dropped[why].Load(); n > 0 {
			t.Dropped[Drop(why)] = n
		}
	}
	return t
}
