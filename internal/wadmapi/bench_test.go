package wadmapi_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stocked is a server with so many deployed applications, each with three
// scalers.
func stocked(b *testing.B, applications int, maxPayload int32) *api {
	b.Helper()
	a := startAPI(b, options{maxPayload: maxPayload})
	for i := range applications {
		name := fmt.Sprintf("app-%04d", i)
		require.Contains(b, a.ask(b, "model.put", large(name, 3), nil), `"created"`)
		require.Contains(b, a.ask(b, "model.deploy."+name, "", nil), `"acknowledged"`)
	}
	return a
}

// percentiles reports the durations' median and 99th percentile.
func percentiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkList1000 lists everything there is to say of 1,000 applications, and
// what fits into NATS' default size.
func BenchmarkList1000(b *testing.B) {
	for name, maxPayload := range map[string]int32{"whole": 8 << 20, "trimmed": natsDefaultPayload} {
		b.Run(name, func(b *testing.B) {
			a := stocked(b, 1000, maxPayload)
			var took []time.Duration
			var bytes int
			for b.Loop() {
				began := time.Now()
				bytes = len(a.ask(b, "model.list", "", nil))
				took = append(took, time.Since(began))
			}
			b.ReportMetric(float64(bytes), "reply-bytes")
			percentiles(b, took)
		})
	}
}

func BenchmarkRequests(b *testing.B) {
	a := stocked(b, 1000, 8<<20)
	for _, c := range []struct{ name, subject string }{
		{"get", "model.get.app-0500"},
		{"status", "model.status.app-0500"},
		{"versions", "model.versions.app-0500"},
		{"deploy", "model.deploy.app-%04d"},
		{"put", "model.put"},
	} {
		b.Run(c.name, func(b *testing.B) {
			const clients = 32
			each := make([][]time.Duration, clients)
			work := make(chan int)
			var all sync.WaitGroup
			began := time.Now()
			for client := range clients {
				all.Go(func() {
					for i := range work {
						subject, body := c.subject, ""
						if strings.Contains(subject, "%") {
							subject = fmt.Sprintf(subject, i%1000)
						}
						if c.name == "put" {
							body = manifest(fmt.Sprintf("app-%04d", i%1000), fmt.Sprintf("b%d-%d-%d", b.N, time.Now().UnixNano(), client))
						}
						start := time.Now()
						reply := a.ask(b, subject, body, nil)
						each[client] = append(each[client], time.Since(start))
						if strings.Contains(reply, `"error"`) {
							b.Error(reply)
						}
					}
				})
			}
			n := 0
			for b.Loop() {
				work <- n
				n++
			}
			close(work)
			all.Wait()
			b.ReportMetric(float64(n)/time.Since(began).Seconds(), "req/s")
			percentiles(b, slices.Concat(each...))
		})
	}
}

// BenchmarkMemory reports how much the heap grew over many requests.
func BenchmarkMemory(b *testing.B) {
	a := stocked(b, 50, 8<<20)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 1000 {
		a.ask(b, "model.list", "", nil)
	}
	before := heap()
	for b.Loop() {
		a.ask(b, "model.get.app-0001", "", nil)
	}
	b.ReportMetric(float64(int64(heap())-int64(before))/1024, "heap-growth-KiB")
}
