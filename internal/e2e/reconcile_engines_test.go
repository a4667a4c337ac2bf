package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/local"
	"tidewait/internal/simhost"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

const fleetApps = 20

// fleetApp is an application that needs eight commands: its component runs on
// two hosts.
func fleetApp(name string) object {
	return manifest(name, "v1",
		component("web", webImage, instances(2)),
		component("api", webImage, instances(1)),
		provider("http", httpImage, link("web", config("listen", "8080")), named("inner", link("api", config("inner", "8081")))))
}

func fleetName(prefix string, i int) string { return fmt.Sprintf("%s%02d", prefix, i) }

// TestEnginesAreKilledAndFrozen kills and freezes engines in the middle of
// deployments. Another one takes over, and no host is told anything twice.
func TestEnginesAreKilledAndFrozen(t *testing.T) {
	long(t, 90*time.Second)
	p := start(t)
	s := p.lattice("default")
	other, err := p.StartWorker(t.Context(), "other", []string{"engine"})
	require.NoError(t, err)
	engines := []*local.Worker{p.engine, other}
	t.Cleanup(func() {
		if log, err := os.ReadFile(other.LogPath()); t.Failed() && err == nil {
			t.Logf("the other engine:\n%s", tail(log, 4000))
		}
	})
	for i := range 5 {
		s.host(fmt.Sprintf("h%d", i))
	}
	s.l.Script(simhost.Rule{Command: "component.scale", FetchDelay: 300 * time.Millisecond},
		simhost.Rule{Command: "provider.start", FetchDelay: 500 * time.Millisecond})

	t.Run("killed", func(t *testing.T) {
		s.t = t
		s.deployFleet("k")
		observer := s.observer(engines)
		killed := time.Now()
		require.NoError(t, observer.Kill())
		s.deployed("k")
		s.tookOver(killed, 15*time.Second)
		s.toldOnce("k")
		require.NoError(t, observer.Start(t.Context()))
	})
	t.Run("frozen", func(t *testing.T) {
		s.t = t
		s.l.Forget()
		s.deployFleet("f")
		observer := s.observer(engines)
		frozen := time.Now()
		require.NoError(t, observer.Signal(syscall.SIGSTOP))
		s.deployed("f")
		s.tookOver(frozen, 30*time.Second)
		require.NoError(t, observer.Signal(syscall.SIGCONT))
		s.gaveUp(observer)
		s.toldOnce("f")
		for i := range fleetApps {
			s.settles(fleetName("f", i))
		}
		s.toldOnce("f")
	})
	t.Run("stopped", func(t *testing.T) {
		s.t = t
		s.l.Forget()
		s.deployFleet("s")
		observer := s.observer(engines)
		stopped := time.Now()
		require.NoError(t, observer.Stop())
		t.Logf("an engine stopped within %s", time.Since(stopped).Round(time.Millisecond))
		s.deployed("s")
		s.tookOver(stopped, 15*time.Second)
		s.toldOnce("s")
		require.NoError(t, observer.Start(t.Context()))
	})
	t.Run("undeployed while no engine runs", func(t *testing.T) {
		s.t = t
		for _, e := range engines {
			require.NoError(t, e.Kill())
		}
		s.undeployedBehindTheirBacks()
		s.l.Forget()
		require.NoError(t, p.engine.Start(t.Context()))
		s.empties()
		for what, times := range s.told() {
			if strings.HasPrefix(what, "config.del") || strings.HasPrefix(what, "provider.stop") {
				require.Equal(t, 1, times, what)
			}
		}
	})
}

// deployFleet deploys many applications and returns in the middle of it.
func (s *site) deployFleet(prefix string) {
	s.t.Helper()
	for i := range fleetApps {
		s.put(fleetApp(fleetName(prefix, i)))
	}
	for i := range fleetApps {
		_, err := s.api.Deploy(s.ctx(), fleetName(prefix, i), nil)
		require.NoError(s.t, err)
	}
	s.eventually("some of it is told", func() bool { return len(s.calls()) >= 3*fleetApps }, func() any { return s.told() })
	require.Less(s.t, len(s.calls()), 8*fleetApps, "and not all of it")
}

func (s *site) deployed(prefix string) {
	s.t.Helper()
	for i := range fleetApps {
		s.becomes(fleetName(prefix, i), wadm.Deployed)
	}
}

// observer returns the engine that observes the lattice.
func (s *site) observer(engines []*local.Worker) *local.Worker {
	s.t.Helper()
	var id string
	require.NoError(s.t, s.db.QueryRow(s.ctx(), "SELECT observer FROM lattices WHERE lattice = $1", s.name).Scan(&id))
	for _, e := range engines {
		if strings.HasSuffix(id, fmt.Sprintf(":%d", e.PID())) {
			return e
		}
	}
	s.t.Fatalf("%s observes the lattice, which is no engine of the test", id)
	return nil
}

// tookOver asserts when the first command after a moment was sent by another
// engine: what was on its way then comes within a second.
func (s *site) tookOver(since time.Time, within time.Duration) {
	s.t.Helper()
	for _, c := range s.calls() {
		if after := c.Time.Sub(since); after > time.Second {
			s.t.Logf("another engine took over after %s", after.Round(100*time.Millisecond))
			require.Less(s.t, after, within)
			return
		}
	}
	s.t.Fatal("nothing was left to be done")
}

// toldOnce asserts that hosts were told what was needed of them, once.
func (s *site) toldOnce(prefix string) {
	s.t.Helper()
	want := map[string]int{}
	for i := range fleetApps {
		id := fleetName(prefix, i) + "-"
		want["component.scale "+id+"web"], want["component.scale "+id+"api"], want["provider.start "+id+"http"] = 2, 1, 1
		want["link.put "+id+"http"], want["config.put "+id+"listen"], want["config.put "+id+"inner"] = 2, 1, 1
		require.Equal(s.t, []int{2, 1, 1}, []int{s.runs()[id+"web"], s.runs()[id+"api"], s.runs()[id+"http"]}, id)
	}
	require.Equal(s.t, want, s.told())
}

// gaveUp waits until an engine that was frozen has noticed.
func (s *site) gaveUp(e *local.Worker) {
	s.t.Helper()
	s.eventually("the thawed engine gives the lattice up", func() bool {
		log, err := os.ReadFile(e.LogPath())
		require.NoError(s.t, err)
		return strings.Contains(string(log), "observing no more")
	}, func() any { return nil })
}

// undeployedBehindTheirBacks undeploys everything as a server of the API does
// that dies right after its commit.
func (s *site) undeployedBehindTheirBacks() {
	s.t.Helper()
	db, err := store.Open(s.ctx(), s.Stack.PostgresURL, 2, store.Rules{})
	require.NoError(s.t, err)
	defer db.Close()
	for _, prefix := range []string{"k", "f", "s"} {
		for i := range fleetApps {
			_, err := db.UndeployApplication(s.ctx(), ledger.AppKey{Account: "default", Lattice: s.name, Name: fleetName(prefix, i)}, "a test", false)
			require.NoError(s.t, err)
		}
	}
}

// TestRestart: the engine is away, the hosts go, the engine comes back.
func TestRestart(t *testing.T) {
	t.Parallel()
	p := start(t)
	s := p.lattice("default")
	for _, kill := range []bool{true, false} {
		h := s.host("h")
		if kill {
			s.deploy(shop("shop", "v1"))
		}
		s.becomes("shop", wadm.Deployed)
		end := p.engine.Stop
		if kill {
			end = p.engine.Kill
		}
		require.NoError(t, end())
		h.Kill()
		s.l.Forget()
		require.NoError(t, p.engine.Start(t.Context()))
		ready := time.Now()
		s.until("shop", "waiting for a host", func(got wadm.Status) bool { return got.Status.Reason == "no_live_hosts" })
		t.Logf("right %s after the engine was ready", time.Since(ready).Round(100*time.Millisecond))
		require.Less(t, time.Since(ready), 10*time.Second)
		require.Empty(t, s.calls())
	}

	since := s.status("shop").Status.Since
	require.NoError(t, p.engine.Stop())
	require.NoError(t, p.engine.Start(t.Context()))
	s.eventually("the lattice is taken over", func() bool { return s.count("SELECT epoch::int FROM lattices") == 4 }, func() any { return nil })
	s.settles("shop")
	require.Equal(t, since, s.status("shop").Status.Since, "a restart does not move since when")

	s.host("new")
	s.becomes("shop", wadm.Deployed)
	require.Equal(t, shopAgain, s.told())
}
