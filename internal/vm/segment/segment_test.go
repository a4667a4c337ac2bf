package segment

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
)

func open(tb testing.TB, agents ...Agent) *Segment {
	tb.Helper()
	hosts, err := Plan(agents)
	require.NoError(tb, err)
	s, err := Open(hosts)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

func openThree(tb testing.TB) *Segment {
	tb.Helper()
	return open(tb, Agent{Name: "a"}, Agent{Name: "b"}, Agent{Name: "c"})
}

// inject sends a frame as the machine with the index would. It waits while the
// switch has not taken those before.
func inject(tb testing.TB, s *Segment, index int, frame []byte) {
	tb.Helper()
	require.NoError(tb, unix.Send(int(s.ports[index].cable.Fd()), frame, 0))
}

// receive returns the next frame for the machine with the index; it fails when
// none comes for long.
func receive(tb testing.TB, s *Segment, index int) []byte {
	tb.Helper()
	fd := int(s.ports[index].cable.Fd())
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	}
	require.NoError(tb, err)
	require.Equal(tb, 1, n, "no frame came")
	buf := make([]byte, 1<<16)
	n, _, err = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
	require.NoError(tb, err)
	return buf[:n]
}

// quiet fails when a frame waits for the machine with the index. It is asked
// after a later frame came, so it need not wait.
func quiet(tb testing.TB, s *Segment, index int) {
	tb.Helper()
	_, _, err := unix.Recvfrom(int(s.ports[index].cable.Fd()), make([]byte, 1<<16), unix.MSG_DONTWAIT)
	require.ErrorIs(tb, err, unix.EAGAIN)
}

func TestFramesGoToOnePort(t *testing.T) {
	s := openThree(t)
	toB := hexFrame(t, mac2+mac1+ipHead+ip1+ip2+"0102030405")
	inject(t, s, 0, toB)
	require.Equal(t, toB, receive(t, s, 1))
	toC := hexFrame(t, mac3+mac1+ipHead+ip1+ip3)
	inject(t, s, 0, toC)
	require.Equal(t, toC, receive(t, s, 2))
	quiet(t, s, 0)
	quiet(t, s, 1)
	quiet(t, s, 2)
}

func TestBroadcastsGoToAllOthers(t *testing.T) {
	s := openThree(t)
	ask := hexFrame(t, all+mac2+arpAsk+mac2+ip2+noMAC+ip3)
	inject(t, s, 1, ask)
	require.Equal(t, ask, receive(t, s, 0))
	require.Equal(t, ask, receive(t, s, 2))
	quiet(t, s, 1)
}

// TestHostileFrames sends what must not pass, then a frame that must.
func TestHostileFrames(t *testing.T) {
	s := openThree(t)
	for _, f := range [][]byte{
		{},
		{1, 2, 3},
		make([]byte, 60<<10),
		hexFrame(t, mac2+mac3+ipHead+ip1+ip2),
		hexFrame(t, mac2+mac1+ipHead+ip3+ip2),
		hexFrame(t, mac2+mac1+arpReply+mac1+ip3+mac2+ip2),
		hexFrame(t, mac2+mac1+"86dd60000000"+strings.Repeat("00", 36)),
		hexFrame(t, "02000a545709"+mac1+ipHead+ip1+ip2),
	} {
		inject(t, s, 0, f)
	}
	last := hexFrame(t, mac2+mac1+ipHead+ip1+ip2)
	inject(t, s, 0, last)
	require.Equal(t, last, receive(t, s, 1))
	quiet(t, s, 1)
	quiet(t, s, 2)
	traffic := s.Traffic(0)
	require.Equal(t, int64(9), traffic.Received)
	require.Equal(t, map[Drop]int64{DropSize: 3, DropSource: 1, DropAddress: 2, DropProtocol: 1, DropDestination: 1}, traffic.Dropped)
	require.Equal(t, Traffic{Sent: 1, SentBytes: 34, Dropped: map[Drop]int64{}}, s.Traffic(1))
}

// TestPortThatDoesNotRead floods one port, and speaks with the others and with
// it.
func TestPortThatDoesNotRead(t *testing.T) {
	s := openThree(t)
	flood := hexFrame(t, mac2+mac1+ipHead+ip1+ip2+strings.Repeat("aa", 8980))
	const floods = 20_000
	for range floods {
		inject(t, s, 0, flood)
	}
	// Nobody is held up by it, not even who floods.
	for _, from := range []struct {
		index     int
		mac, addr string
		to        int
		toMAC     string
	}{{0, mac1, ip1, 2, mac3}, {2, mac3, ip3, 0, mac1}} {
		f := hexFrame(t, from.toMAC+from.mac+ipHead+from.addr+ip2)
		inject(t, s, from.index, f)
		require.Equal(t, f, receive(t, s, from.to))
	}
	// Another's frames get in, although there is no room.
	single := hexFrame(t, mac2+mac3+ipHead+ip3+ip2)
	for range 10 {
		inject(t, s, 2, single)
	}
	arrived, flooded := 0, 0
	for arrived < 10 {
		if f := receive(t, s, 1); len(f) == len(single) {
			require.Equal(t, single, f)
			arrived++
		} else {
			flooded++
		}
	}
	require.Less(t, flooded, 200, "what waits for a port is bounded")
	require.Empty(t, s.Traffic(2).Dropped)
	require.Greater(t, s.Traffic(0).Dropped[DropFull], int64(floods-200))
}

func TestStorm(t *testing.T) {
	s := openThree(t)
	ask := hexFrame(t, all+mac1+arpAsk+mac1+ip1+noMAC+ip2)
	began := time.Now()
	for range 50_000 {
		inject(t, s, 0, ask)
	}
	require.Eventually(t, func() bool { return s.Traffic(0).Received == 50_000 }, 20*time.Second, time.Millisecond)
	passed := 50_000 - s.Traffic(0).Dropped[DropStorm]
	require.GreaterOrEqual(t, passed, int64(200))
	require.LessOrEqual(t, float64(passed), 200+500*time.Since(began).Seconds())
	require.Equal(t, ask, receive(t, s, 1))
	require.Equal(t, ask, receive(t, s, 2))
}

// TestNeighbours has two segments with the same addresses.
func TestNeighbours(t *testing.T) {
	s, neighbour := openThree(t), openThree(t)
	toB := hexFrame(t, mac2+mac1+ipHead+ip1+ip2)
	ask := hexFrame(t, all+mac1+arpAsk+mac1+ip1+noMAC+ip2)
	inject(t, s, 0, toB)
	inject(t, s, 0, ask)
	require.Equal(t, toB, receive(t, s, 1))
	require.Equal(t, ask, receive(t, s, 1))
	for i := range 3 {
		quiet(t, neighbour, i)
		require.Equal(t, Traffic{Dropped: map[Drop]int64{}}, neighbour.Traffic(i))
	}
}

// TestMachineThatBreaksItsCable does what a QEMU that was taken over could do.
func TestMachineThatBreaksItsCable(t *testing.T) {
	s := openThree(t)
	require.NoError(t, s.Err())
	require.NoError(t, unix.Shutdown(int(s.ports[1].cable.Fd()), unix.SHUT_RD))
	inject(t, s, 0, hexFrame(t, mac2+mac1+ipHead+ip1+ip2))
	<-s.Done()
	var f *vm.Failure
	require.ErrorAs(t, s.Err(), &f)
	require.Equal(t, vm.SegmentFailed, f.Code)
	require.Contains(t, f.Message, "the network between the machines of the run failed at the port of b: ")
	require.Contains(t, f.Message, "broken pipe")
	_, err := unix.FcntlInt(s.NIC(1).Cable.Fd(), unix.F_GETFD, 0)
	require.NoError(t, err, "a machine that is being made must not inherit something else")
	s.Close()
	require.Error(t, s.Err(), "why it failed is still known")
}

func TestCloseLeavesNothing(t *testing.T) {
	files := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(names)
	}
	open(t, Agent{Name: "a"}).Close() // whatever the runtime opens once
	goroutines, fds := runtime.NumGoroutine(), files()
	for range 20 {
		s := open(t, Agent{Name: "a", Replicas: MaxHosts})
		inject(t, s, 0, hexFrame(t, all+mac1+arpAsk+mac1+ip1+noMAC+ip2))
		s.Close()
		<-s.Done()
		require.NoError(t, s.Err())
		s.Close()
	}
	require.Equal(t, fds, files())
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		require.True(t, time.Now().Before(deadline), "there are still %d goroutines; %d were there before", runtime.NumGoroutine(), goroutines)
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(nil)
	require.EqualError(t, err, "a segment of 0 machines cannot be made; 1 to 32 are possible")
	_, err = Open(make([]Host, 33))
	require.EqualError(t, err, "a segment of 33 machines cannot be made; 1 to 32 are possible")
}

// BenchmarkSwitch carries frames of the largest size from one port to another.
func BenchmarkSwitch(b *testing.B) {
	s := openThree(b)
	f := hexFrame(b, mac2+mac1+ipHead+ip1+ip2+strings.Repeat("aa", 8980))
	b.SetBytes(int64(len(f)))
	for range b.N {
		inject(b, s, 0, f)
		receive(b, s, 1)
	}
}
