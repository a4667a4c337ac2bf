package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Drop is why a frame was not delivered.
type Drop int

// The reasons, in the order in which they are looked for.
const (
	DropSize        Drop = iota // too short for its headers, or longer than the MTU allows
	DropSource                  // sent from a MAC address that is not the port's own
	DropProtocol                // neither ARP nor IPv4
	DropAddress                 // ARP or IPv4 from an address that is not the port's own
	DropDestination             // to a MAC address that no other port has
	DropStorm                   // one broadcast too many
	DropFull                    // the port it was for did not take frames fast enough
	drops
)

var dropNames = [drops]string{"size", "source", "protocol", "address", "destination", "storm", "full"}

func (d Drop) String() string { return dropNames[d] }

const (
	headerSize = 14
	maxFrame   = headerSize + mtu
	arpSize    = 28
	ipv4Size   = 20

	typeIPv4 = 0x0800
	typeARP  = 0x0806
)

// arpHead begins every ARP packet that maps an IPv4 address to an Ethernet one.
var arpHead = []byte{0, 1, 0x08, 0x00, 6, 4}

// table knows the addresses of all ports. Since nobody may send from another's,
// there is nothing to learn, and no frame is for a port that is not known.
type table struct {
	macs  []MAC
	ips   []netip.Addr
	ports map[MAC]int
}

func newTable(hosts []Host) *table {
	t := &table{ports: map[MAC]int{}}
	for i, h := range hosts {
		t.macs, t.ips = append(t.macs, h.MAC), append(t.ips, h.Address)
		t.ports[h.MAC] = i
	}
	return t
}

// everyone stands for all ports but the sender's.
const everyone = -1

// destination is the port a frame goes to, or everyone. ok is false when the
// frame must not pass, for the given reason.
func (t *table) destination(from int, frame []byte) (to int, why Drop, ok bool) {
	if len(frame) < headerSize || len(frame) > maxFrame {
		return 0, DropSize, false
	}
	if MAC(frame[6:12]) != t.macs[from] {
		return 0, DropSource, false
	}
	if why, ok := t.checkPacket(from, binary.BigEndian.Uint16(frame[12:14]), frame[headerSize:]); !ok {
		return 0, why, false
	}
	if frame[0]&1 != 0 {
		return everyone, 0, true
	}
	to, known := t.ports[MAC(frame[:6])]
	if !known || to == from {
		return 0, DropDestination, false
	}
	return to, 0, true
}

// checkPacket lets only packets pass that say they come from the port's own
// address, so that no machine can answer for another, or be one.
func (t *table) checkPacket(from int, etherType uint16, packet []byte) (why Drop, ok bool) {
	var source []byte
	switch etherType {
	case typeARP:
		if len(packet) < arpSize {
			return DropSize, false
		}
		if !bytes.Equal(packet[:len(arpHead)], arpHead) {
			return DropProtocol, false
		}
		if MAC(packet[8:14]) != t.macs[from] {
			return DropSource, false
		}
		source = packet[14:18]
	case typeIPv4:
		if len(packet) < ipv4Size {
			return DropSize, false
		}
		if packet[0]>>4 != 4 {
			return DropProtocol, false
		}
		source = packet[12:16]
	default:
		return DropProtocol, false
	}
	if netip.AddrFrom4([4]byte(source)) != t.ips[from] {
		return DropAddress, false
	}
	return 0, true
}
