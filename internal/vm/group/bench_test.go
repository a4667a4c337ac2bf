package group

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// BenchmarkRoundTrip sends a byte to another machine and back over TCP, and,
// beside that, within one machine.
func BenchmarkRoundTrip(b *testing.B) {
	betweenMachines(b, func(b *testing.B, m Machine, host string) {
		timed(b, m, "rtt", host, fmt.Sprint(b.N))
	})
}

// BenchmarkThroughput sends many bytes to another machine over TCP, and, beside
// that, within one machine.
func BenchmarkThroughput(b *testing.B) {
	const chunk = 1 << 20
	betweenMachines(b, func(b *testing.B, m Machine, host string) {
		b.SetBytes(chunk)
		timed(b, m, "stream", host, fmt.Sprint(b.N*chunk))
	})
}

// betweenMachines measures on every backend, from a machine that serves to
// itself and from another one.
func betweenMachines(b *testing.B, measure func(b *testing.B, m Machine, host string)) {
	for _, l := range labs(b) {
		b.Run(l.Name(), func(b *testing.B) {
			g := create(b, l, "bench", agent("client", 0, ""), agent("server", 0, ""))
			background(b, g.machine("server"), "./netprobe", "serve")
			b.Run("segment", func(b *testing.B) { measure(b, g.machine("client"), "server") })
			alone := create(b, l, "alone", agent("client", 0, ""))
			b.Run("loopback", func(b *testing.B) { measure(b, alone.machine("client"), "") })
		})
	}
}

// timed runs netprobe and counts the time between its begin and its end by the
// clock of the host, since that of a guest may run at another speed. Without a
// host the machine serves itself.
func timed(b *testing.B, m Machine, mode, host, count string) {
	b.Helper()
	b.StopTimer()
	script := fmt.Sprintf("./netprobe %s %s %s", mode, host, count)
	if host == "" {
		script = fmt.Sprintf("./netprobe serve >/dev/null & ./netprobe %s 127.0.0.1 %s", mode, count)
	}
	exit, err := m.VM.Run(context.Background(), vm.Command{Argv: []string{"sh", "-c", script}}, func(_ string, line []byte) {
		switch string(line) {
		case "begin":
			b.StartTimer()
		case "end":
			b.StopTimer()
		}
	})
	require.NoError(b, err)
	require.Equal(b, vm.Exit{}, exit)
}

// childrenTime is the processor time of all processes that were started and have
// ended.
func childrenTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStart creates a machine and destroys it, with a network device and
// without one. The processor time is that of QEMU or of the guest agent; unlike
// the other it hardly depends on what else the host does.
func BenchmarkStart(b *testing.B) {
	for _, l := range labs(b) {
		for _, network := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/network=%t", l.Name(), network), func(b *testing.B) {
				before := childrenTime(b)
				defer func() { b.ReportMetric((childrenTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/op") }()
				for i := range b.N {
					id := fmt.Sprintf("start-%d", i)
					if network {
						g, err := Create(b.Context(), l, Options{RunID: id, Agents: []Agent{agent("a", 0, "")}})
						require.NoError(b, err)
						require.NoError(b, g.Destroy(b.Context()))
						continue
					}
					spec := size
					spec.RunID = id
					_, err := l.Create(b.Context(), spec)
					require.NoError(b, err)
					require.NoError(b, l.Destroy(b.Context(), id))
				}
			})
		}
	}
}
