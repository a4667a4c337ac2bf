package simhost_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/simhost"
)

// TestTwoHundredHosts lets a fleet live by the machine's clock: all beat, all
// answer, and all are commanded at once.
func TestTwoHundredHosts(t *testing.T) {
	const fleet = 200
	w := newWorld(t, simhost.Options{Clock: wall{}, Heartbeat: time.Second})
	before := memory()
	goroutines := runtime.NumGoroutine()
	hosts := map[string]*simhost.Host{}
	for i := range fleet {
		h := w.start(simhost.HostSpec{Name: fmt.Sprintf("host-%03d", i), Labels: map[string]string{"zone": string(rune('a' + i%3))}})
		hosts[h.ID()] = h
	}
	require.Len(t, hosts, fleet, "no two ids are equal")
	t.Logf("%d B of heap for each host, %d goroutines for all", (memory()-before)/fleet, runtime.NumGoroutine()-goroutines)
	require.Less(t, runtime.NumGoroutine()-goroutines, fleet/4, "hosts have no goroutine of their own")

	beats := map[string]int{}
	for slowest := 0; slowest < 2; {
		m := w.next()
		var e struct{ Source string }
		require.NoError(t, json.Unmarshal(m.Data, &e))
		if strings.HasSuffix(m.Subject, ".host_heartbeat") {
			beats[e.Source]++
		}
		slowest = beats[e.Source]
		for id := range hosts {
			slowest = min(slowest, beats[id])
		}
	}
	require.Len(t, beats, fleet)

	var commands sync.WaitGroup
	failures := make(chan error, fleet)
	for id := range hosts {
		commands.Go(func() {
			reply, err := w.nc.Request("wasmbus.ctl.v1.default.component.scale."+id, []byte(scale("api", image, "2")), patience)
			if err == nil && string(reply.Data) != `{"success":true,"message":""}` {
				err = fmt.Errorf("unexpected answer %s", reply.Data)
			}
			if err != nil {
				failures <- err
			}
		})
	}
	commands.Wait()
	require.Empty(t, failures)
	require.Equal(t, fleet, w.l.Count("component.scale", ""))
	for id, h := range hosts {
		require.Equal(t, 1, w.l.Count("component.scale", id))
		require.Equal(t, uint32(2), h.Inventory().Components[0].Count)
	}
	require.Len(t, w.pinged(fleet), fleet)

	w.l.Hosts()[0].Kill()
	w.l.Hosts()[0].Stop()
	require.Len(t, w.l.Hosts(), fleet-2)
	require.Len(t, w.pinged(fleet-2), fleet-2)
}

// pinged returns the ids that answer to a ping, as many as are awaited.
func (w *world) pinged(awaited int) map[string]bool {
	w.t.Helper()
	inbox := nats.NewInbox()
	answers, err := w.nc.SubscribeSync(inbox)
	require.NoError(w.t, err)
	require.NoError(w.t, w.nc.PublishRequest(w.prefx+"host.ping", inbox, nil))
	ids := map[string]bool{}
	for range awaited {
		m, err := answers.NextMsg(patience)
		require.NoError(w.t, err)
		var reply struct{ Response struct{ ID string } }
		require.NoError(w.t, json.Unmarshal(m.Data, &reply))
		ids[reply.Response.ID] = true
	}
	return ids
}

// wall is the machine's clock, as options default to.
type wall struct{}

func (wall) Now() time.Time                      { return time.Now() }
func (wall) AfterFunc(d time.Duration, f func()) { time.AfterFunc(d, f) }

func memory() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestOneHostInTheQueueAnswers: link.*, claims.get and config.> reach one host each.
func TestOneHostInTheQueueAnswers(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	hosts := []*simhost.Host{w.start(simhost.HostSpec{Name: "a"}), w.start(simhost.HostSpec{Name: "b"}), w.start(simhost.HostSpec{Name: "c"})}
	w.settle(hosts[0])
	for _, command := range []string{"link.get", "claims.get", "config.get.x"} {
		require.Len(t, w.do(hosts[0], command, ""), 1, command)
	}
	require.Len(t, w.do(hosts[0], "host.ping", ""), 3)
	require.Len(t, w.do(hosts[0], "registry.put", "{}"), 3)
	for range 100 {
		w.do(hosts[0], "link.get", "")
	}
	for _, h := range hosts {
		require.NotZero(t, w.l.Count("link.get", h.ID()), "all take part")
	}
	require.Equal(t, 101, w.l.Count("link.get", ""))
}
