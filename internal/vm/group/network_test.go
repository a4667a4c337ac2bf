package group

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm/segment"
)

// machine is the one with the given host name.
func (g *Group) machine(name string) Machine {
	return g.machines[slices.IndexFunc(g.machines, func(m Machine) bool { return m.Name == name })]
}

// TestNeighbours has a machine of one group look for those of another, which
// has the same addresses and one machine more.
func TestNeighbours(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		g := create(t, l, "r1", agent("author", 0, ""), agent("critic", 2, ""))
		neighbour := create(t, l, "r2", agent("author", 0, ""))
		secret := background(t, g.machine("critic-2"), "sh", "-c", `mkdir www; echo secret >www/name; busybox httpd -p 80 -h www; echo ready; sleep 3600`)
		var ears *output
		if l.root {
			ears = background(t, g.machine("critic-1"), "./netprobe", "hear", "eth0")
		}
		intruder := neighbour.machine("author")
		tries := `cat /etc/hosts | grep critic
./netprobe reach 10.84.87.3 80
./netprobe reach 10.84.87.2 80
./netprobe reach critic-2 80`
		want := []string{
			"dial tcp 10.84.87.3:80: i/o timeout",
			"dial tcp 10.84.87.2:80: i/o timeout",
			"dial tcp: lookup critic-2: no such host",
		}
		if l.root {
			// The other's MAC address is known, and so is how to ask everybody.
			tries = `busybox arp -s 10.84.87.3 02:00:0a:54:57:03
busybox arping -c 2 -I eth0 10.84.87.2 | grep -o 'Received [0-9]* response.s.'
busybox ping -c 2 -W 1 10.84.87.255 | grep -o '[0-9]* packets received'
./netprobe raw eth0 3 ` +
				// an IPv4 packet to the MAC address of critic-2, a broadcast, IPv6 to all nodes
				"02000a545703" + "02000a545701" + "0800" + "4500001400000000401100000a5457010a545703" + " " +
				"ffffffffffff" + "02000a545701" + "0800" + "4500001400000000401100000a5457010a5457ff" + " " +
				"333300000001" + "02000a545701" + "86dd" + "60000000" + strings.Repeat("00", 36) + "\n" + tries
			want = append([]string{"Received 0 response(s)", "0 packets received", "9"}, want...)
		}
		require.Equal(t, want, sh(t, intruder, tries))
		for name, traffic := range g.Traffic() {
			require.Zero(t, traffic.Received+traffic.Sent, "%s heard something or answered: %+v", name, traffic)
		}
		dropped := neighbour.Traffic()["author"].Dropped
		if l.root {
			require.GreaterOrEqual(t, dropped[segment.DropDestination], int64(4), "frames for the other's MAC address were really sent")
			require.Equal(t, int64(3), dropped[segment.DropProtocol])
			require.Equal(t, []string{"ready"}, ears.get("critic-1"))
		}
		require.Equal(t, []string{"ready"}, secret.get("critic-2"))
		// A machine of the same group finds what the intruder did not.
		require.Equal(t, []string{"secret"}, sh(t, g.machine("author"), `busybox wget -q -O - http://critic-2/name`))
	})
}

// TestNothingElse has machines look for the host that runs them, with a service
// on every address of it.
func TestNothingElse(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		port, contacted := listen(t)
		targets := []string{"127.0.0.1", "::1", "10.84.87.254", "8.8.8.8"}
		addresses, err := net.InterfaceAddrs()
		require.NoError(t, err)
		for _, a := range addresses {
			targets = append(targets, a.(*net.IPNet).IP.String())
		}
		g := create(t, l, "r1", agent("author", 0, ""), agent("critic", 0, ""))
		var look strings.Builder
		fmt.Fprintln(&look, `cat /proc/net/route | sed -n '2,$s/^\(eth0\)\t\([0-9A-F]*\)\t\([0-9A-F]*\).*/route \1 \2 \3/p'
cat /proc/net/if_inet6 | grep -v ' lo$'
busybox nslookup example.com 2>&1 | grep -i address
grep -v '^#' /etc/resolv.conf 2>/dev/null`)
		for _, target := range targets {
			fmt.Fprintf(&look, "./netprobe reach %s %d | grep reached\n", target, port)
		}
		if l.root {
			// The way through another machine, and to everybody without one.
			fmt.Fprintln(&look, `busybox ip route add default via 10.84.87.2`)
			for _, target := range targets {
				fmt.Fprintf(&look, "./netprobe reach %s %d | grep reached\n", target, port)
			}
			fmt.Fprintln(&look, "busybox ip route del default\nbusybox ip route add default dev eth0")
			for _, target := range targets {
				fmt.Fprintf(&look, "./netprobe reach %s %d | grep reached\n", target, port)
			}
			look.WriteString("echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; busybox ping6 -c 2 -W 1 ff02::1%eth0 2>&1 | grep -o 'from .*'\n")
		}
		// What proves that a service would be found is another machine's.
		background(t, g.machine("critic"), "./netprobe", "serve")
		look.WriteString("./netprobe reach critic 9")
		require.Equal(t, []string{"route eth0 0057540A 00000000", "reached critic 9"}, sh(t, g.machine("author"), look.String()))
		require.Empty(t, contacted())
	})
}

// listen serves on all addresses of the host, and tells who came. It proves
// that it can be reached at all.
func listen(t *testing.T) (port int, contacted func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	came := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(came)
				return
			}
			came <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close() })
	port = l.Addr().(*net.TCPAddr).Port
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	require.NoError(t, err)
	require.Equal(t, c.LocalAddr().String(), <-came)
	c.Close()
	return port, func() []string {
		l.Close()
		var all []string
		for who := range came {
			all = append(all, who)
		}
		return all
	}
}

// TestImpersonation has one machine pretend to be another, in every way there
// is.
func TestImpersonation(t *testing.T) {
	on(t, labs(t)[1], func(t *testing.T, l lab) {
		g := create(t, l, "r1", agent("author", 0, ""), agent("critic", 0, ""), agent("thief", 0, ""))
		background(t, g.machine("author"), "sh", "-c", `mkdir www; hostname >www/name; busybox httpd -p 80 -h www; echo ready; sleep 3600`)
		thief := background(t, g.machine("thief"), "sh", "-c", `
# Frames with the thief's own MAC that claim author's address: a gratuitous ARP, a reply to critic, and a packet.
./netprobe raw eth0 5 `+
			"ffffffffffff02000a545703"+"08060001080006040002"+"02000a545703"+"0a545701"+"ffffffffffff"+"0a545701"+" "+
			"02000a54570202000a545703"+"08060001080006040002"+"02000a545703"+"0a545701"+"02000a545702"+"0a545702"+" "+
			"02000a54570202000a545703"+"0800"+"4500001400000000401100000a5457010a545702"+`
# Author's MAC and address.
busybox ip link set eth0 down
busybox ip link set eth0 address 02:00:0a:54:57:01
busybox ip addr flush dev eth0
busybox ip addr add 10.84.87.1/24 dev eth0
busybox ip link set eth0 up
mkdir www; echo thief >www/name; busybox httpd -p 80 -h www
busybox arping -c 2 -U -I eth0 10.84.87.1
echo ready
while :; do busybox arping -c 1 -U -I eth0 10.84.87.1 >/dev/null; done`)
		require.Contains(t, thief.get("thief"), "15")
		for _, answer := range sh(t, g.machine("critic"), `for i in $(seq 20); do
	busybox arp -d author 2>/dev/null
	busybox wget -q -O - http://author/name || echo unreachable
done`) {
			require.Equal(t, "author", answer)
		}
		require.Equal(t, []string{"01"}, sh(t, g.machine("critic"), `sed -n 's/^10.84.87.1 .*02:00:0a:54:57:\(..\) .*/\1/p' /proc/net/arp`))
		dropped := g.Traffic()["thief"].Dropped
		require.Equal(t, int64(15), dropped[segment.DropAddress])
		require.GreaterOrEqual(t, dropped[segment.DropSource], int64(2))
	})
}

// TestNoFrames has a command of namespaces try to make frames, which takes a
// capability that it does not have.
func TestNoFrames(t *testing.T) {
	on(t, labs(t)[0], func(t *testing.T, l lab) {
		g := create(t, l, "r1", agent("a", 0, ""))
		require.Equal(t, []string{
			"netprobe: open a packet socket: operation not permitted",
			"refused to change the address", "refused to take the device down", "refused to make a device",
		}, sh(t, g.machine("a"), `./netprobe raw eth0 1 00 2>&1
busybox ip link set eth0 address 02:00:0a:54:57:09 2>/dev/null || echo refused to change the address
busybox ip link set eth0 down 2>/dev/null || echo refused to take the device down
test -e /dev/net/tun || echo refused to make a device`))
		require.Equal(t, []string{"true"}, sh(t, g.machine("a"), `test -e /sys || echo true`))
	})
}

// TestFlood has one machine flood another and everybody while two others speak
// with each other and with the one that is flooded.
func TestFlood(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		g := create(t, l, "r1", agent("author", 0, ""), agent("critic", 0, ""), agent("flood", 0, ""))
		background(t, g.machine("author"), "./netprobe", "serve")
		before := resident(t)
		flood := []string{"sh", "-c", `echo ready; while :; do ./netprobe flood author 1; done`}
		if l.root {
			flood[2] = `echo ready; while :; do ./netprobe flood author 1
./netprobe raw eth0 2000 ffffffffffff02000a54570308060001080006040001` + "02000a545703" + "0a545703" + "000000000000" + "0a545709" + `; done`
		}
		background(t, g.machine("flood"), flood...)
		for range 3 {
			require.Equal(t, []string{"begin", "end"}, sh(t, g.machine("critic"), "./netprobe rtt author 100"))
			require.Equal(t, []string{"begin", "end"}, sh(t, g.machine("critic"), "./netprobe stream author 1000000"))
		}
		require.Less(t, resident(t)-before, int64(64<<20), "what waits for a machine is bounded")
		traffic := g.Traffic()
		require.Greater(t, traffic["flood"].Received, int64(1000))
		require.GreaterOrEqual(t, traffic["flood"].Dropped[segment.DropFull]+traffic["flood"].Dropped[segment.DropStorm], traffic["critic"].Dropped[segment.DropFull],
			"nobody loses more than who floods; on a machine with nothing else to do nobody loses anything: %v", traffic)
	})
}

// resident is the memory of this program, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// TestDestroyWhileBusy destroys a group that is in the middle of a flood.
func TestDestroyWhileBusy(t *testing.T) {
	onEach(t, func(t *testing.T, l lab) {
		g := create(t, l, "r1", agent("a", 0, ""), agent("b", 0, ""))
		background(t, g.machine("a"), "sh", "-c", "echo ready; ./netprobe flood b 3600")
		require.NoError(t, g.Destroy(context.Background()))
		ids, err := l.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, ids)
	})
}
