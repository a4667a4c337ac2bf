package lattice_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

// observed is an observer that runs as long as its test, on a clock that stands
// still.
type observed struct {
	*lattice.Observer
	t       testing.TB
	clock   *clock
	changes chan lattice.Change
	ended   chan error
	stop    context.CancelFunc
}

// quick are settings with which a test does not wait for what does not come.
var quick = lattice.Settings{PingWindow: 100 * time.Millisecond}

func (l *wireLattice) observe(t testing.TB, url string, clk *clock) *observed {
	t.Helper()
	return l.observeWith(t, url, clk, quick)
}

func (l *wireLattice) observeWith(t testing.TB, url string, clk *clock, s lattice.Settings) *observed {
	t.Helper()
	c := l.client(t, url)
	c.Timeout = time.Second
	o := &observed{t: t, clock: clk, changes: make(chan lattice.Change, 1000), ended: make(chan error, 1)}
	o.Observer = lattice.NewObserver(c, s, slog.New(slog.DiscardHandler), func(c lattice.Change) { o.changes <- c })
	o.SetClock(clk.Now, clk.After, clk.ticks)
	var ctx context.Context
	ctx, o.stop = context.WithCancel(context.Background())
	go func() { o.ended <- o.Run(ctx) }()
	t.Cleanup(func() {
		o.stop()
		select {
		case err := <-o.ended:
			if err != nil {
				t.Error("the observer ended by itself:", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the observer does not end")
		}
	})
	o.until("synced", func() bool {
		select {
		case <-o.Synced():
			return true
		default:
			return false
		}
	})
	return o
}

// until waits for something.
func (o *observed) until(what string, is func() bool) {
	o.t.Helper()
	require.Eventually(o.t, is, 10*time.Second, time.Millisecond, what)
}

// looking has the observer look at leases and doubts until something is so. No
// time passes.
func (o *observed) looking(what string, is func() bool) {
	o.t.Helper()
	o.until(what, func() bool {
		o.clock.tick(0)
		return is()
	})
}

// change returns the next changes, added up until they are enough.
func (o *observed) change(enough func(lattice.Change) bool) lattice.Change {
	o.t.Helper()
	var sum lattice.Change
	for {
		select {
		case c := <-o.changes:
			if sum = sum.And(c); enough(sum) {
				return sum
			}
		case <-time.After(10 * time.Second):
			o.t.Fatalf("no more changes after %+v; hosts: %+v; counted: %+v", sum, o.Hosts(), o.Stats())
		}
	}
}

// first returns the next change.
func (o *observed) first() lattice.Change {
	o.t.Helper()
	return o.change(func(lattice.Change) bool { return true })
}

// quiet returns once all events that were published are heard, and fails when
// there was a change.
func (o *observed) quiet(h *wireHost) {
	o.t.Helper()
	n := o.Stats().Unknown
	h.publish("host_painted", fields{})
	o.until("heard", func() bool { return o.Stats().Unknown > n })
	require.Empty(o.t, o.changes)
}

// host returns the host NA.
func (o *observed) host() (scaler.Host, bool) {
	for _, h := range o.State(nil).Hosts {
		if h.ID == "NA" {
			return h, true
		}
	}
	return scaler.Host{}, false
}

// runsAPI has the host run so many instances of the component api.
func (h *wireHost) runsAPI(count int, scaler string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.components["api"] = fields{"id": "api", "image_ref": "registry.example/api", "annotations": annotations(scaler), "max_instances": count}
}

func TestAnObserverKnowsTheLatticeOnceItIsSynced(t *testing.T) {
	l, clk := newLattice(), newClock()
	clk.pass(time.Minute)
	a := l.boot(t, natsURL, "NA", clk.Now)
	a.runsAPI(2, "s1")
	a.runs("web", annotations("s7"))
	l.boot(t, natsURL, "NB", clk.Now)
	l.links = []fields{{
		"source_id": "web", "target": "api", "name": "default", "wit_namespace": "wasi", "wit_package": "http",
		"interfaces": []string{"incoming-handler"}, "source_config": []string{}, "target_config": []string{},
	}}
	l.configs["c"] = map[string]string{"a": "1"}

	o := l.observe(t, natsURL, clk)
	o.until("two hosts", func() bool { return len(o.State(nil).Hosts) == 2 })
	require.NoError(t, o.Want(t.Context(), "shop-front", []string{"c", "d"}))
	require.Equal(t, scaler.State{
		Hosts: []scaler.Host{
			{
				ID: "NA", Labels: map[string]string{"zone": "eu"},
				Components: []scaler.Instances{component("api", 2, "s1").Instances()},
				Providers:  []scaler.Instances{{ID: "web", Image: "/art/web", Count: 1, Annotations: annotations("s7")}},
			},
			{ID: "NB", Labels: map[string]string{"zone": "eu"}},
		},
		Links: []scaler.Link{{
			Source: "web", Target: "api", Name: "default", Namespace: "wasi", Package: "http",
			Interfaces: []string{"incoming-handler"}, SourceConfig: []string{}, TargetConfig: []string{},
		}},
		Configs: map[string]map[string]string{"c": {"a": "1"}},
	}, o.State([]string{"c", "d"}))
	since, hosts := o.Observed()
	require.Equal(t, at(60), since)
	require.Equal(t, 2, hosts)
	require.Equal(t, []string{"NA", "NB"}, o.change(func(c lattice.Change) bool { return len(c.Hosts) == 2 && len(c.Links) == 1 && len(c.Configs) == 1 }).Started)
}

func TestALatticeWithoutHostsIsKnownToBeEmpty(t *testing.T) {
	l, clk := newLattice(), newClock()
	o := l.observe(t, natsURL, clk)
	since, hosts := o.Observed()
	require.Equal(t, start, since)
	require.Zero(t, hosts)
	require.Empty(t, o.State(nil).Hosts)
}

func TestTheFirstHostComesInAfterLinksAndConfigurations(t *testing.T) {
	l, clk := newLattice(), newClock()
	o := l.observe(t, natsURL, clk)
	require.ErrorIs(t, o.Want(t.Context(), "shop", []string{"c"}), lattice.ErrNobody)
	l.configs["c"] = map[string]string{"a": "1"}
	l.links = []fields{{"source_id": "web", "target": "api", "name": "default", "wit_namespace": "wasi", "wit_package": "http"}}

	h := l.boot(t, natsURL, "NA", clk.Now)
	seen := make(chan scaler.State, 10)
	go func() {
		for c := range o.changes {
			if len(c.Hosts) > 0 {
				seen <- o.State([]string{"c"})
				return
			}
		}
	}()
	h.publish("host_started", fields{"labels": h.labels})
	o.until("the host is in", func() bool { return len(seen) > 0 })
	s := <-seen
	require.Len(t, s.Hosts, 1)
	require.Len(t, s.Links, 1)
	require.Equal(t, map[string]string{"a": "1"}, s.Configs["c"])
}

func TestEventsAreFollowedByTheTruth(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	h.runsAPI(2, "s1")
	o := l.observe(t, natsURL, clk)
	o.first()

	// As after a new count with new annotations: the event has the old ones.
	h.runsAPI(5, "s2")
	h.publish("component_scaled", fields{"component_id": "api", "image_ref": "registry.example/api", "annotations": annotations("s1"), "max_instances": 5})
	o.until("new annotations", func() bool {
		host, _ := o.host()
		return host.Components[0].Count == 5 && host.Components[0].Annotations["wasmcloud.dev/scaler"] == "s2"
	})

	// The same count with another configuration: only the inventory tells.
	h.runsAPI(5, "s3")
	h.publish("component_scaled", fields{"component_id": "api", "image_ref": "registry.example/api", "annotations": annotations("s2"), "max_instances": 5})
	o.until("newer annotations", func() bool {
		host, _ := o.host()
		return host.Components[0].Annotations["wasmcloud.dev/scaler"] == "s3"
	})

	h.publish("labels_changed", fields{"host_id": "NA", "labels": map[string]string{"zone": "us"}})
	o.until("labels", func() bool { host, _ := o.host(); return host.Labels["zone"] == "us" })

	h.runs("web", annotations("s7"))
	h.publish("provider_started", fields{"provider_id": "web", "image_ref": "/art/web", "annotations": annotations("s7")})
	o.until("provider", func() bool { host, _ := o.host(); return len(host.Providers) == 1 })
	h.publish("health_check_failed", fields{"provider_id": "web", "host_id": "NA"})
	o.until("ill", func() bool { host, _ := o.host(); return host.Providers[0].Unhealthy })
}

func TestConfigurationsAreKeptUpToDate(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	require.NoError(t, o.Want(t.Context(), "shop", []string{"c"}))
	require.NoError(t, o.Want(t.Context(), "mail", []string{"c", "d"}))

	other := l.client(t, natsURL)
	require.NoError(t, other.PutConfig(t.Context(), "c", map[string]string{"a": "1"}))
	require.Equal(t, lattice.Change{Configs: []string{"c"}}, o.first())
	require.Equal(t, map[string]string{"a": "1"}, o.State([]string{"c"}).Configs["c"])
	require.NoError(t, other.PutConfig(t.Context(), "c", map[string]string{"a": "2"}))
	require.Equal(t, lattice.Change{Configs: []string{"c"}}, o.first())
	require.Equal(t, map[string]string{"a": "2"}, o.State([]string{"c"}).Configs["c"])
	require.NoError(t, other.PutConfig(t.Context(), "unwanted", map[string]string{"a": "2"}))
	require.NoError(t, other.DeleteConfig(t.Context(), "c"))
	require.Equal(t, lattice.Change{Configs: []string{"c"}}, o.first())

	require.NoError(t, o.Want(t.Context(), "shop", nil))
	require.NoError(t, o.Want(t.Context(), "mail", nil))
	require.NoError(t, other.PutConfig(t.Context(), "c", map[string]string{"a": "3"}))
	o.quiet(h)
}

func TestAConfigurationThatNobodyTellsIsTheConcernOfThoseWhoWantIt(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	l.configs["d"] = map[string]string{"a": "1"}
	h.does("config.get", func(m *wireMsg) {
		if name(m) == "d" {
			h.configGet(m)
		}
	})
	require.ErrorIs(t, o.Want(t.Context(), "shop", []string{"c"}), lattice.ErrTimeout)
	require.NoError(t, o.Want(t.Context(), "mail", []string{"d"}))
	require.Equal(t, map[string]map[string]string{"d": {"a": "1"}}, o.State([]string{"c", "d"}).Configs)
	h.asBefore("config.get")
	require.NoError(t, o.Want(t.Context(), "shop", []string{"c"}))
}

func TestHeartbeatsOfAQuietLatticeAskNobodyAndChangeNothing(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	h.runsAPI(2, "s1")
	o := l.observe(t, natsURL, clk)
	o.first()
	before := o.Stats()
	for range 5 {
		clk.tick(30 * time.Second)
		h.heartbeat()
		o.quiet(h)
	}
	after := o.Stats()
	require.Equal(t, before.Events+5, after.Events)
	require.Equal(t, before.Inventories, after.Inventories)
	require.Equal(t, at(150), o.Hosts()[0].LastSeen)
	require.Equal(t, at(185), o.Hosts()[0].LeaseEnd)
}

func TestALostEventIsMadeUpForByTheNextHeartbeat(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	h.runsAPI(2, "s1")
	h.heartbeat()
	require.Equal(t, lattice.Change{IDs: []string{"api"}, Apps: []string{"shop-front"}}, o.first())
}

func TestALostEventIsMadeUpForByAResync(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	require.NoError(t, o.Want(t.Context(), "shop", []string{"c"}))
	h.runsAPI(2, "s1")
	l.mu.Lock()
	l.configs["c"] = map[string]string{"a": "1"}
	l.links = []fields{{"source_id": "web", "target": "api", "name": "default", "wit_namespace": "wasi", "wit_package": "http"}}
	l.mu.Unlock()
	clk.tick(5 * time.Minute)
	require.Equal(t, lattice.Change{
		IDs: []string{"api"}, Apps: []string{"shop-front"}, Configs: []string{"c"},
		Links: []scaler.Tuple{{Source: "web", Target: "api", Name: "default", Namespace: "wasi", Package: "http"}},
	}, o.change(func(c lattice.Change) bool { return len(c.IDs) > 0 && len(c.Links) > 0 && len(c.Configs) > 0 }))
}

func TestADeadHostIsGoneWhenItsLeaseIsOver(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	h.runsAPI(2, "s1")
	l.boot(t, natsURL, "NB", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.change(func(c lattice.Change) bool { return len(c.Hosts) == 2 })
	h.dies()
	clk.tick(34 * time.Second)
	_, alive := o.host()
	require.True(t, alive)
	clk.pass(time.Second)
	o.looking("it is gone", func() bool { _, alive := o.host(); return !alive })
	require.Equal(t, lattice.Change{Hosts: []string{"NA"}, IDs: []string{"api"}, Apps: []string{"shop-front"}}, o.first())
	o.until("the other one has answered", func() bool { return len(o.Hosts()) == 1 && o.Hosts()[0].LeaseEnd.Equal(at(70)) })
	require.Equal(t, "NB", o.Hosts()[0].ID)
}

func TestAFrozenHostIsGoneAfterTwoQuestions(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	h.does("host.get", nil)
	h.does("host.ping", nil)
	clk.tick(35 * time.Second)
	o.until("one question", func() bool { return o.Stats().Unanswered == 1 })
	_, alive := o.host()
	require.True(t, alive)
	clk.tick(time.Second)
	require.Equal(t, []string{"NA"}, o.first().Hosts)

	// It thaws.
	h.asBefore("host.get")
	h.heartbeat()
	require.Equal(t, lattice.Change{Hosts: []string{"NA"}, Started: []string{"NA"}}, o.first())
}

func TestAHostThatOnlyAnswersPingsIsAlive(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	h.does("host.get", nil) // as while a provider takes its time to end
	for i := range uint64(3) {
		clk.tick(35 * time.Second)
		o.until("asked", func() bool { return o.Stats().Unanswered == i+1 })
	}
	_, alive := o.host()
	require.True(t, alive)
	require.Empty(t, o.changes)
}

func TestAHostThatTalksNonsenseStaysAsItWas(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	h.runsAPI(2, "s1")
	o := l.observe(t, natsURL, clk)
	o.first()
	for i, words := range []string{"", "nonsense", `{"success":false,"message":"no"}`, `{"success":true,"response":{"host_id":"NB"}}`, `{"success":true,"response":{"host_id":"NA","components":{}}}`} {
		h.does("host.get", func(m *wireMsg) { _ = m.Respond([]byte(words)) })
		h.publish("component_scaled", fields{"component_id": "api", "annotations": annotations("s1"), "max_instances": 2})
		o.until("asked", func() bool { return o.Stats().Unanswered == uint64(i+1) })
	}
	clk.tick(time.Second)
	o.quiet(h)
	host, alive := o.host()
	require.True(t, alive)
	require.Equal(t, 2, host.Components[0].Count)
	require.Equal(t, uint64(5), o.Stats().Unanswered, "it is left alone")
}

func TestAHostOfUnknownContentsIsNotLetIn(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	h.does("host.get", nil)
	o := l.observe(t, natsURL, clk)
	o.until("asked", func() bool { return o.Stats().Unanswered == 1 })
	require.Empty(t, o.State(nil).Hosts, "it answers pings, and does not say what it runs")
	h.heartbeat()
	o.until("asked again", func() bool { return o.Stats().Unanswered == 2 })
	require.Empty(t, o.State(nil).Hosts)
	h.asBefore("host.get")
	clk.tick(time.Second)
	require.Equal(t, []string{"NA"}, o.first().Started)
}

func TestUnknownHostsAreNotAskedForEver(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	h.id = "NGONE"
	h.publish("component_scaled", fields{"component_id": "api", "max_instances": 1})
	for i := range uint64(3) {
		o.until("asked", func() bool { return o.Stats().Unanswered == i+1 })
		clk.tick(time.Second)
	}
	for range 3 {
		clk.tick(time.Second)
	}
	require.Equal(t, uint64(3), o.Stats().Unanswered)
	require.Empty(t, o.changes)
}

func TestBadEventsAreCountedAndPassedOver(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	for _, message := range []string{
		"", "nonsense", "[]", `{"id":"1"}`, event("component_scaled", `{}`), event("component_scaled", `{"component_id":"a","max_instances":-1}`),
		strings.Replace(event("host_stopped", "{}"), `"NA"`, `"*"`, 1), event("config_set", `{"config_name":"`+strings.Repeat("a", 2000)+`"}`),
		strings.Repeat("[", 100_000),
	} {
		h.republish("x", []byte(message))
	}
	stopped := h.publish("health_check_status", fields{"provider_id": "web"})
	h.republish("health_check_status", stopped)
	// What is said in another lattice is not heard.
	(&wireHost{t: t, in: newLattice(), nc: h.nc, id: "NA", now: clk.Now}).publish("host_stopped", fields{})
	o.quiet(h)
	s := o.Stats()
	require.Equal(t, uint64(8), s.Unreadable)
	require.Equal(t, uint64(2), s.Unknown, "one without a type, and the one that quiet sends")
	require.Equal(t, uint64(1), s.Duplicates)
	require.Equal(t, uint64(1), s.Events)
	require.Equal(t, 1, s.Hosts)
}

func TestAHostOfAnotherLatticeIsNotLetIn(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	h.does("host.ping", func(m *wireMsg) { h.says(m, true, "", fields{"id": "NA", "lattice": "another"}) })
	o := l.observe(t, natsURL, clk)
	o.until("asked", func() bool { return o.Stats().Foreign == 1 })
	require.Empty(t, o.State(nil).Hosts)
}

func TestARestartBringsNoHostBack(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	beat := h.heartbeat()
	o.quiet(h)
	o.stop()
	require.NoError(t, <-o.ended)
	o.ended <- nil
	h.dies()

	again := l.observe(t, natsURL, clk)
	other := &wireHost{t: t, in: l, nc: dial(t, natsURL), id: "NA", now: clk.Now}
	other.republish("host_heartbeat", beat)
	other.publish("provider_started", fields{"provider_id": "web", "image_ref": "w"})
	again.until("asked", func() bool { return again.Stats().Unanswered >= 1 })
	again.quiet(other)
	require.Empty(t, again.State(nil).Hosts)
}

func TestALateHeartbeatBringsNoStoppedHostBack(t *testing.T) {
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observe(t, natsURL, clk)
	o.first()
	other := &wireHost{t: t, in: l, nc: dial(t, natsURL), id: "NA", now: clk.Now}
	h.publish("host_stopped", fields{"labels": h.labels})
	h.dies()
	require.Equal(t, lattice.Change{Hosts: []string{"NA"}}, o.first())
	other.publish("host_heartbeat", h.inventory())
	o.until("asked", func() bool { return o.Stats().Unanswered >= 1 })
	o.quiet(other)
	require.Empty(t, o.State(nil).Hosts)
}

func TestAfterAReconnectEverythingIsReadAgainAndHostsHaveAMoment(t *testing.T) {
	stack := devstacktest.Start(t, devstack.NATS)
	l, clk := newLattice(), newClock()
	a := l.boot(t, stack.NATSURL, "NA", clk.Now)
	b := l.boot(t, stack.NATSURL, "NB", clk.Now)
	o := l.observe(t, stack.NATSURL, clk)
	o.change(func(c lattice.Change) bool { return len(c.Hosts) == 2 })
	resyncs := o.Stats().Resyncs

	clk.pass(34 * time.Second)
	require.NoError(t, stack.NATS.Kill())
	a.runsAPI(1, "s1")
	o.until("cut off", func() bool { return clk.waits(20 * time.Second) })
	clk.tick(10 * time.Second)
	require.Len(t, o.State(nil).Hosts, 2, "nobody can be heard, which says nothing of anybody")
	b.nc.Close()
	require.NoError(t, stack.NATS.Start(t.Context()))
	o.until("read again", func() bool { return o.Stats().Resyncs > resyncs })
	o.looking("the first one is back", func() bool { host, _ := o.host(); return len(host.Components) == 1 })
	require.Len(t, o.State(nil).Hosts, 2, "the second one may still be on its way back")
	clk.pass(10 * time.Second)
	o.looking("the second one is not", func() bool { return len(o.State(nil).Hosts) == 1 })
	require.Equal(t, []string{"NB"}, o.change(func(c lattice.Change) bool { return len(c.Hosts) > 0 }).Hosts)
}

func TestAnObserverThatIsCutOffForTooLongGivesUp(t *testing.T) {
	stack := devstacktest.Start(t, devstack.NATS)
	l, clk := newLattice(), newClock()
	l.boot(t, stack.NATSURL, "NA", clk.Now)
	o := l.observe(t, stack.NATSURL, clk)
	o.first()
	require.NoError(t, stack.NATS.Kill())
	o.until("cut off", func() bool { return clk.waits(20 * time.Second) })
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandTimedOut, Message: "put configuration c: there is no connection to NATS"},
		o.Execute(t.Context(), scaler.Command{Action: scaler.PutConfig, ID: "c"}))
	clk.pass(20 * time.Second)
	o.until("the observer has ended", func() bool { return len(o.ended) > 0 })
	err := <-o.ended
	o.ended <- nil
	require.EqualError(t, err, "observe lattice "+l.name+": there is no connection to NATS for 20s")
	require.Equal(t, lattice.Result{Message: "not sent: the lattice is not observed"}, o.Execute(t.Context(), scaler.Command{Action: scaler.PutConfig, ID: "c"}))
}

func TestAnObserverNeedsNamesAndAConnection(t *testing.T) {
	c := newLattice().client(t, natsURL)
	c.Lattice = "a.b"
	o := lattice.NewObserver(c, quick, slog.New(slog.DiscardHandler), func(lattice.Change) {})
	var invalid *lattice.InvalidName
	require.ErrorAs(t, o.Run(t.Context()), &invalid)
	c.Lattice = "default"
	c.Conn.Close()
	o = lattice.NewObserver(c, quick, slog.New(slog.DiscardHandler), func(lattice.Change) {})
	require.ErrorIs(t, o.Run(t.Context()), lattice.ErrCutOff)
}
