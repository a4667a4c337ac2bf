package segment

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hexFrame reads hexadecimal digits; blanks are for people.
func hexFrame(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(tb, err)
	return b
}

// Parts of frames between the first three hosts.
const (
	mac1, mac2, mac3 = "02000a545701", "02000a545702", "02000a545703"
	ip1, ip2, ip3    = "0a545701", "0a545702", "0a545703"
	all              = "ffffffffffff"
	arpAsk           = "0806 0001 0800 0604 0001 "
	arpReply         = "0806 0001 0800 0604 0002 "
	noMAC            = "000000000000"
	ipHead           = "0800 45000014 00000000 40110000 "
)

func threeHosts(tb testing.TB) []Host {
	tb.Helper()
	hosts, err := Plan([]Agent{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	require.NoError(tb, err)
	return hosts
}

// TestDestination sends everything from the first host.
func TestDestination(t *testing.T) {
	table := newTable(threeHosts(t))
	full := ipHead + ip1 + ip2 + strings.Repeat("00", 8980)
	for _, c := range []struct {
		name, frame string
		to          int
		why         Drop
		ok          bool
	}{
		{name: "IPv4 to a port", frame: mac2 + mac1 + ipHead + ip1 + ip2, to: 1, ok: true},
		{name: "IPv4 to another", frame: mac3 + mac1 + ipHead + ip1 + ip3, to: 2, ok: true},
		{name: "the longest frame", frame: mac2 + mac1 + full, to: 1, ok: true},
		{name: "IPv4 broadcast", frame: all + mac1 + ipHead + ip1 + "0a5457ff", to: everyone, ok: true},
		{name: "IPv4 multicast", frame: "01005e000001" + mac1 + ipHead + ip1 + "e0000001", to: everyone, ok: true},
		{name: "who has", frame: all + mac1 + arpAsk + mac1 + ip1 + noMAC + ip2, to: everyone, ok: true},
		{name: "is at", frame: mac2 + mac1 + arpReply + mac1 + ip1 + mac2 + ip2, to: 1, ok: true},

		{name: "nothing", frame: "", why: DropSize},
		{name: "half a header", frame: mac2 + mac1 + "08", why: DropSize},
		{name: "one byte too long", frame: mac2 + mac1 + full + "00", why: DropSize},
		{name: "half an ARP", frame: all + mac1 + arpAsk + mac1 + ip1 + noMAC, why: DropSize},
		{name: "half an IPv4 header", frame: mac2 + mac1 + ipHead + ip1, why: DropSize},
		{name: "another's MAC", frame: mac2 + mac3 + ipHead + ip1 + ip2, why: DropSource},
		{name: "nobody's MAC", frame: mac2 + "020000000009" + ipHead + ip1 + ip2, why: DropSource},
		{name: "a broadcast as source", frame: mac2 + all + ipHead + ip1 + ip2, why: DropSource},
		{name: "an ARP of another's MAC", frame: mac2 + mac1 + arpReply + mac3 + ip1 + mac2 + ip2, why: DropSource},
		{name: "another's address", frame: mac2 + mac1 + ipHead + ip3 + ip2, why: DropAddress},
		{name: "an address of the world", frame: mac2 + mac1 + ipHead + "08080808" + ip2, why: DropAddress},
		{name: "an ARP for another's address", frame: mac2 + mac1 + arpReply + mac1 + ip3 + mac2 + ip2, why: DropAddress},
		{name: "IPv6", frame: "333300000001" + mac1 + "86dd" + "60000000" + strings.Repeat("00", 36), why: DropProtocol},
		{name: "a VLAN", frame: mac2 + mac1 + "8100 0001" + ipHead + ip1 + ip2, why: DropProtocol},
		{name: "IPv6 that says it is IPv4", frame: mac2 + mac1 + "0800" + "60000000" + strings.Repeat("00", 36), why: DropProtocol},
		{name: "ARP of another kind", frame: all + mac1 + "0806 0006 0800 0604 0001 " + mac1 + ip1 + noMAC + ip2, why: DropProtocol},
		{name: "spanning tree", frame: "0180c2000000" + mac1 + "0026 424203" + strings.Repeat("00", 35), why: DropProtocol},
		{name: "a MAC that no port has", frame: "02000a545709" + mac1 + ipHead + ip1 + ip2, why: DropDestination},
		{name: "itself", frame: mac1 + mac1 + ipHead + ip1 + ip1, why: DropDestination},
	} {
		t.Run(c.name, func(t *testing.T) {
			to, why, ok := table.destination(0, hexFrame(t, c.frame))
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.to, to)
			require.Equal(t, c.why, why, "dropped for %s", why)
		})
	}
}

// FuzzDestination looks at what passes with eyes of its own.
func FuzzDestination(f *testing.F) {
	for _, s := range []string{
		mac2 + mac1 + ipHead + ip1 + ip2,
		all + mac1 + arpAsk + mac1 + ip1 + noMAC + ip2,
		mac2 + mac3 + ipHead + ip1 + ip2,
	} {
		f.Add(hexFrame(f, s))
	}
	f.Add([]byte{})
	f.Add(make([]byte, maxFrame+1))
	table := newTable(threeHosts(f))
	f.Fuzz(func(t *testing.T, frame []byte) {
		to, _, ok := table.destination(0, frame)
		if !ok {
			return
		}
		text := hex.EncodeToString(frame)
		require.LessOrEqual(t, len(frame), 9014)
		require.Equal(t, mac1, text[12:24])
		switch text[24:28] {
		case "0806":
			require.Equal(t, mac1+ip1, text[44:64])
		case "0800":
			require.Equal(t, ip1, text[52:60])
		default:
			t.Fatalf("ethertype %s passed", text[24:28])
		}
		switch to {
		case everyone:
			require.Contains(t, "13579bdf", text[1:2])
		case 1:
			require.Equal(t, mac2, text[:12])
		case 2:
			require.Equal(t, mac3, text[:12])
		default:
			t.Fatalf("it goes to port %d", to)
		}
	})
}
