package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/local"
	"tidewait/internal/natsrpc"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
	"tidewait/workflows"
)

// agreementCases are the waits that TestWaitsAgreeWhereverTheyAreShown provokes, all
// there are but one: not_evaluated, which nothing produces, since a phase that asks
// for a node is looked at in the same transaction.
var agreementCases = map[string][]string{
	"capacity": {
		"capacity_cpu", "capacity_memory", "capacity_disk", "capacity_slots", "capacity_fragmented", "behind_in_queue", "held_for_head",
		"starting_limit", "nodes_draining", "nodes_lost", "no_nodes_registered", "placer_unavailable",
	},
	"node":       {"node_silent"},
	"gateway":    {"gateway_unreachable", "results_bucket_full"},
	"hold":       {"awaiting_release"},
	"observer":   {"observer_absent"},
	"lattice":    {"never_observed", "no_live_hosts", "no_eligible_host", "not_enough_hosts", "hosts_taken"},
	"backoff":    {"command_failed", "command_refused", "command_timed_out"},
	"dependency": {"config_missing", "secret_missing", "shared_application_missing", "link_conflict"},
}

// TestEveryCodeIsProvoked guards the list of cases: a code that is added to the
// closed list needs a case here, and there are no cases of others.
func TestEveryCodeIsProvoked(t *testing.T) {
	t.Parallel()
	want := map[string][]string{}
	for kind, codes := range agreementCases {
		want[kind] = slices.Clone(codes)
	}
	want["capacity"] = append(want["capacity"], "not_evaluated")
	got := ledger.WaitCodes()
	for kind := range want {
		slices.Sort(want[kind])
		slices.Sort(got[kind])
	}
	require.Equal(t, want, got)
}

// waiter is something that waits, and what is to be seen of it everywhere.
type waiter struct {
	kind, code     string
	mission, phase string // no phase: the mission itself
	site           *site  // of an application
	app            string
	reason         string           // the sentence
	like           string           // instead: a regular expression for all of it
	bound          time.Duration    // after since; 0: none; above: a regular moment
	bounded        bool             // there is a bound that the node's last heartbeat decides
	refused        func() time.Time // instead of since: where that is the time of the task that shows it
	transient      bool             // another code is about to take its place
	changed        bool             // it waited already, with another code
}

func (w waiter) workflow() string {
	switch {
	case w.site != nil:
		return w.site.workflowID(w.app)
	case w.phase == "":
		return api.MissionWorkflowID(w.mission)
	}
	return api.PhaseWorkflowID(w.mission, w.phase)
}

func (w waiter) String() string { return w.kind + " " + w.code + " of " + w.workflow() }

// agreement is a product in which things are made to wait.
type agreement struct {
	*product
	open []waiter             // that wait for as long as nobody ends it
	seen map[string]bool      // kinds and codes
	from map[string]time.Time // since when, by workflow
}

// TestWaitsAgreeWhereverTheyAreShown provokes every wait there is, and wants every
// place to say the same of it: Temporal's search attributes and list, current
// details, Postgres, the command line, the status that clients of wadm see, metrics,
// and of a wait for capacity the failure of the pending activity.
func TestWaitsAgreeWhereverTheyAreShown(t *testing.T) {
	long(t, 110*time.Second)
	a := startAgreement(t)
	dark := a.unobserved()
	picky := a.applications()
	a.noNodes()
	a.fullNodes()
	a.ofPhases()
	a.frozenPlacer()
	a.agree(dark)
	a.ofNodesAndGateways()
	a.restarts()
	a.end(picky)
	var all []string
	for kind, codes := range agreementCases {
		for _, code := range codes {
			all = append(all, kind+" "+code)
		}
	}
	var seen []string
	for code := range a.seen {
		seen = append(seen, code)
	}
	require.ElementsMatch(t, all, seen)
}

// startAgreement runs a product whose engine cannot reach the hosts of lattice dark.
func startAgreement(t *testing.T) *agreement {
	t.Helper()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	p := start(t, "TIDEWAIT_FLEET_RETRY_INTERVAL=5s", "TIDEWAIT_FLEET_SUSPECT_AFTER=5s", "TIDEWAIT_FLEET_LEASE=40s", "TIDEWAIT_FLEET_LOST_AFTER=60s",
		"TIDEWAIT_FLEET_ATTEMPT_BACKOFF=4m", "TIDEWAIT_FLEET_BUNDLE_BYTES=1048576", "TIDEWAIT_WADM_URLS=dark=nats://"+closed.Addr().String())
	return &agreement{product: p, seen: map[string]bool{}, from: map[string]time.Time{}}
}

// agree waits until every place shows a wait, and asserts that they say the same of
// it, and that the search attributes did within a second of the refusal.
func (a *agreement) agree(w waiter) {
	a.t.Helper()
	id := w.workflow()
	var places map[string]waitAt
	var now *row
	a.eventually("every place shows "+w.String(), func() bool {
		places = map[string]waitAt{}
		if now = a.rowOf(id); now == nil || now.kind != w.kind || now.code != w.code {
			return false
		}
		places["Postgres"] = now.waitAt
		if places["search attributes"] = a.described(id); !places["search attributes"].same(now.waitAt, time.Millisecond) {
			return false
		}
		if places["the list of workflows"] = a.listedAs(id); !places["the list of workflows"].same(now.waitAt, time.Millisecond) {
			return false
		}
		details, err := a.detailsOf(id)
		if places["current details"] = inDetails(details); err != nil || !places["current details"].same(now.waitAt, time.Second) {
			return false
		}
		for place, at := range a.asked(w) {
			if places[place] = at; !at.same(now.waitAt, time.Millisecond) {
				return false
			}
		}
		return a.measured()[w.series()] == float64(a.count("SELECT count(*) FROM ("+everyWait+") w WHERE kind = '"+w.kind+"' AND code = '"+w.code+"'"))
	}, func() any { return []any{fmt.Sprint(now), describe(places), a.cliWaits()[id]} })

	if w.like != "" {
		require.Regexp(a.t, "^(?:"+w.like+")$", now.reason, w.String())
	} else {
		require.Equal(a.t, w.reason, now.reason, w.String())
	}
	switch {
	case w.bounded:
		require.Greater(a.t, now.bound.Sub(now.since), 30*time.Second, w.String())
		require.LessOrEqual(a.t, now.bound.Sub(now.since), time.Minute, w.String())
	case w.bound == 0:
		require.Zero(a.t, now.bound, w.String())
	default:
		require.Equal(a.t, w.bound, now.bound.Sub(now.since), w.String())
	}
	if !w.changed {
		refused := now.since
		if w.refused != nil {
			refused = w.refused()
		}
		took := a.upserted(id, w.code).Sub(refused)
		a.t.Logf("%s: search attributes %s after the refusal", w, took.Round(time.Millisecond))
		require.Less(a.t, took, time.Second, w.String())
		require.Greater(a.t, took, -100*time.Millisecond, "%s is not shown before it is refused", w)
	}
	if w.kind == "capacity" && !w.transient {
		a.agreesInFull(w)
	}
	a.seen[w.kind+" "+w.code] = true
	a.from[id] = now.since
	if !w.transient {
		a.open = append(a.open, w)
	}
}

// everyWait are the kinds and codes of all waits that Postgres has.
const everyWait = "SELECT kind, code FROM open_waits UNION ALL SELECT 'capacity', code FROM capacity_waits"

// series is how metrics name waits of one kind and code.
func (w waiter) series() string { return fmt.Sprintf(`{code=%q,kind=%q}`, w.code, w.kind) }

// measured are the waits that the engine counts, by series.
func (a *agreement) measured() samples {
	a.t.Helper()
	return scrape(a.t, a.engine).with("tidewait_waits")
}

// waitsAtOnce are all that wait when the engine is killed.
var waitsAtOnce = samples{
	`{code="capacity_cpu",kind="capacity"}`: 1, `{code="capacity_memory",kind="capacity"}`: 2, `{code="capacity_disk",kind="capacity"}`: 1,
	`{code="capacity_slots",kind="capacity"}`: 1, `{code="capacity_fragmented",kind="capacity"}`: 1, `{code="held_for_head",kind="capacity"}`: 1,
	`{code="starting_limit",kind="capacity"}`: 2, `{code="nodes_draining",kind="capacity"}`: 1, `{code="nodes_lost",kind="capacity"}`: 1,
	`{code="node_silent",kind="node"}`: 1, `{code="gateway_unreachable",kind="gateway"}`: 2, `{code="awaiting_release",kind="hold"}`: 1,
	`{code="observer_absent",kind="observer"}`: 1, `{code="never_observed",kind="lattice"}`: 1, `{code="no_live_hosts",kind="lattice"}`: 1,
	`{code="no_eligible_host",kind="lattice"}`: 1, `{code="not_enough_hosts",kind="lattice"}`: 1, `{code="hosts_taken",kind="lattice"}`: 1,
	`{code="command_failed",kind="backoff"}`: 2, `{code="command_refused",kind="backoff"}`: 1, `{code="command_timed_out",kind="backoff"}`: 1,
	`{code="config_missing",kind="dependency"}`: 1, `{code="secret_missing",kind="dependency"}`: 1,
	`{code="shared_application_missing",kind="dependency"}`: 1, `{code="link_conflict",kind="dependency"}`: 1,
}

// asked is what the command line and the APIs say of a wait.
func (a *agreement) asked(w waiter) map[string]waitAt {
	a.t.Helper()
	places := map[string]waitAt{"tidewait waits": asListed(a.cliWaits()[w.workflow()])}
	if w.site != nil {
		places["tidewait app status"] = inStatus(w.site.cliStatus(w.app), w.kind)
		places["the wadm status"] = inStatus(w.site.wireStatus(w.app), w.kind)
		return places
	}
	m := a.cliMission(w.mission)
	if m.Wait != nil {
		places["tidewait mission show"] = asListed(*m.Wait)
	}
	if w.phase != "" && m.PhaseList[0].Wait != nil {
		places["tidewait mission show, phase"] = asListed(*m.PhaseList[0].Wait)
	}
	return places
}

func describe(places map[string]waitAt) map[string]string {
	all := map[string]string{}
	for place, at := range places {
		all[place] = at.String()
	}
	return all
}

// agreesInFull asserts that sentence, position, attempt and next check of a wait for
// capacity agree in Postgres, API, command line and the pending activity's failure.
// They change with every look, so all are read between two.
func (a *agreement) agreesInFull(w waiter) {
	a.t.Helper()
	id := w.workflow()
	var told []string
	a.eventually("all of "+w.String()+" is the same everywhere", func() bool {
		before := a.rowOf(id)
		failure, ok := a.pendingOf(id)
		listed, shown := a.cliWaits()[id], a.cliMission(w.mission).PhaseList[0].Wait
		asked := a.show(w.mission).PhaseList[0].Wait
		after := a.rowOf(id)
		if !ok || shown == nil || asked == nil || before == nil || after == nil || *before != *after {
			return false
		}
		next := before.checked.Add(5 * time.Second)
		say := func(sentence string, position, attempts int, next time.Time) string {
			return fmt.Sprintf("%s; attempt %d, position %d, next %s", sentence, attempts, position, next.UTC().Format("15:04:05.000"))
		}
		told = []string{
			say(before.reason, before.position, before.attempts, next),
			say(listed.Reason, listed.Position, listed.Attempts, *listed.NextCheck),
			say(shown.Reason, shown.Position, shown.Attempts, *shown.NextCheck),
			say(asked.Reason, asked.Position, asked.Attempts, *asked.NextCheck),
			say(failure.sentence, failure.waiting.Position, failure.waiting.Attempts, failure.waiting.NextCheck),
			say(failure.waiting.Sentence, failure.waiting.Position, failure.waiting.Attempts, failure.waiting.NextCheck),
		}
		return len(slices.Compact(slices.Clone(told))) == 1 && failure.next.Sub(next).Abs() < 5*time.Second
	}, func() any { return told })
}

// labelled is what a phase asks of its node.
func labelled(class string) string { return "requires: {labels: {class: " + class + "}}" }

// waits launches a mission of one phase and asserts its wait.
func (a *agreement) waits(doc missionDoc, w waiter) {
	a.t.Helper()
	a.launch(doc)
	w.mission, w.phase = doc.name, doc.phases[0].name
	a.agree(w)
}

// unobserved deploys into a lattice whose hosts the engine cannot reach, which is
// shown once another engine could have taken it.
func (a *agreement) unobserved() waiter {
	s := a.lattice("dark")
	s.deploy(shop("shop", "v1"))
	w := waiter{
		kind: "observer", code: "observer_absent", site: s, app: "shop",
		reason: "no engine observes lattice dark, so nobody knows what runs there",
	}
	w.refused = func() time.Time { return a.scheduled(w.workflow(), workflows.ActivityAssess).Add(20 * time.Second) }
	return w
}

// applications lets applications wait in several lattices.
func (a *agreement) applications() *site {
	never, gone, s := a.lattice("never"), a.lattice("gone"), a.lattice("picky")
	left := gone.host("h")
	gone.deploy(shop("shop", "v1"))
	never.deploy(shop("shop", "v1"))
	s.host("us", "zone=us")
	s.l.Script(
		simhost.Rule{ID: "failed-web", Fetch: simhost.ManifestUnknown},
		simhost.Rule{Command: "component.scale", ID: "refused-web", Refuse: "not on this host"},
		simhost.Rule{Command: "component.scale", ID: "mute-web", NoAck: true, FetchDelay: time.Hour},
	)
	host := s.l.Hosts()[0]
	s.command(host, "component.scale", object{
		"component_id": "taken-web", "component_ref": webImage, "host_id": host.ID(), "count": 1, "annotations": object{"made-by": "somebody"},
	})
	web := func() object { return component("web", webImage, instances(1)) }
	counter, http := component("counter", "registry.example.com/counter:1", instances(1)), provider("http", httpImage)
	s.deploy(manifest("mute", "v1", web()))
	s.deploy(shared(manifest("platform", "v1", counter, http)))
	s.deploy(manifest("first", "v1", ofPlatform(counter), ofPlatform(http, link("counter"))))
	s.deploy(manifest("far", "v1", component("web", webImage, instances(1, on("eu", "zone=eu", 1)))))
	s.deploy(manifest("few", "v1", provider("web", httpImage, instances(2))))
	s.deploy(manifest("taken", "v1", component("web", webImage, everywhere(1))))
	s.deploy(manifest("failed", "v1", web()))
	s.deploy(manifest("refused", "v1", web()))
	s.deploy(manifest("needy", "v1", with(web(), "config", []object{{"name": "outside"}})))
	a.orphan(s)

	a.agree(waiter{
		kind: "lattice", code: "never_observed", site: never, app: "shop",
		reason: "no host of lattice never has been observed yet; nothing is started until one appears",
	})
	gone.becomes("shop", wadm.Deployed)
	left.Stop()
	for _, w := range []waiter{
		{kind: "lattice", code: "no_live_hosts", site: gone, app: "shop", reason: "no host of lattice gone is alive; nothing is started until one appears"},
		{kind: "lattice", code: "no_eligible_host", app: "far", reason: "spread eu of far-web: of 1 host alive, none has labels zone=eu"},
		{kind: "lattice", code: "not_enough_hosts", app: "few", reason: "spread default of few-web: 1 of 2 instances, for it runs at most once on each of 1 host"},
		{kind: "lattice", code: "hosts_taken", app: "taken", reason: "spread default: on 1 host that should run taken-web, other instances of that id run"},
		{kind: "backoff", code: "command_failed", app: "failed", like: `failed to fetch component: .*manifest unknown.* \(attempt \d+, .*\)`},
		{kind: "backoff", code: "command_refused", app: "refused", like: `not on this host \(attempt \d+, .*\)`},
		{kind: "dependency", code: "config_missing", app: "needy", reason: "configuration outside does not exist in the lattice and is not the application's to make"},
		{
			kind: "dependency", code: "secret_missing", app: "orphan",
			reason: "the reference to secret SECRET_orphan-api_token does not exist in the lattice, and the application names no policy to make it from",
		},
	} {
		if w.site == nil {
			w.site = s
		}
		a.agree(w)
	}
	a.ofLinks(s, http, web())
	a.agree(waiter{
		kind: "backoff", code: "command_timed_out", site: s, app: "mute",
		like: `host N[A-Z0-9]{55} has not answered for 10s; what it runs has not changed \(attempt \d+, .*\)`,
	})
	return s
}

// orphan deploys an application whose secret has no policy, which put refuses.
func (a *agreement) orphan(s *site) {
	a.t.Helper()
	orphan := manifest("orphan", "v1", with(component("web", webImage, instances(1)), "secrets", []object{secret("api-token", "vault", "k")}))
	orphan["spec"].(object)["policies"] = []object{policy("vault", object{"backend": "b"})}
	s.put(orphan)
	_, err := s.db.Exec(s.ctx(), `UPDATE application_versions v SET manifest = (manifest::jsonb #- '{spec,policies}')::json
		FROM applications a WHERE a.id = v.application_id AND a.lattice = $1 AND a.name = 'orphan'`, s.name)
	require.NoError(a.t, err)
	_, err = s.api.Deploy(s.ctx(), "orphan", nil)
	require.NoError(a.t, err)
}

// ofLinks lets an application wait for a link that another one has, and another for
// the application that it refers to.
func (a *agreement) ofLinks(s *site, http, web object) {
	s.becomes("first", wadm.Deployed)
	s.deploy(manifest("second", "v1", web, ofPlatform(http, link("web"))))
	s.until("second", "in conflict alone", func(got wadm.Status) bool {
		return got.Status.Type == wadm.Failed && got.Scalers[0].Status.Type == wadm.Deployed
	})
	a.agree(waiter{
		kind: "dependency", code: "link_conflict", site: s, app: "second",
		reason: "link default of platform-http already leads wasi:http to platform-counter, and a host allows one",
	})
	base := a.lattice("shared")
	base.host("h")
	counter := component("counter", "registry.example.com/counter:1", instances(1))
	base.deploy(shared(manifest("platform", "v1", counter)))
	base.deploy(manifest("consumer", "v1", ofPlatform(counter), provider("http", httpImage, link("counter"))))
	base.becomes("consumer", wadm.Deployed)
	base.undeploy("platform")
	a.agree(waiter{
		kind: "dependency", code: "shared_application_missing", site: base, app: "consumer",
		reason: "component counter of shared application platform is not deployed",
	})
}

// scripted is a node that reports and whose machines never get beyond starting.
type scripted struct {
	api.Heartbeat
	worker worker.Worker
	stop   context.CancelFunc
}

// scriptedNode registers a node by heartbeats, and takes what is placed on it.
func (a *agreement) scriptedNode(id, class, backend string, total capacity.Resources, startLimit int64) *scripted {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &scripted{stop: cancel, Heartbeat: api.Heartbeat{
		Node: id, BootID: id, Arch: "amd64", Labels: map[string]string{"class": class}, Total: total, StartLimit: startLimit,
		Backends: map[string]api.Backend{backend: {OK: true, Network: true}},
	}}
	silent, err := client.NewClientFromExistingWithContext(a.t.Context(), a.temporal, client.Options{Logger: tlog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(a.t, err)
	n.worker = worker.New(silent, workflows.NodeQueue(id), worker.Options{DisableWorkflowWorker: true})
	n.worker.RegisterActivityWithOptions(func(ctx context.Context, _ workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			activity.RecordHeartbeat(ctx)
			select {
			case <-ctx.Done():
				return workflows.ExecuteRunResult{}, ctx.Err()
			case <-tick.C:
			}
		}
	}, activity.RegisterOptions{Name: workflows.ActivityExecuteRun})
	require.NoError(a.t, n.worker.Start())
	require.NoError(a.t, n.beat(a.nats))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = n.beat(a.nats) // there may be no engine for a while
			}
		}
	}()
	a.t.Cleanup(func() { cancel(); <-ended; n.worker.Stop(); silent.Close() })
	return n
}

func (n *scripted) beat(nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n.Number++
	var reply api.HeartbeatReply
	return natsrpc.Ask(ctx, nc, api.SubjectNodeHeartbeat(n.Node), n.Heartbeat, &reply)
}

// noNodes lets a phase wait whose last node was retired while it was held.
func (a *agreement) noNodes() {
	n := a.scriptedNode("only", "only", "process", capacity.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 1024, Slots: 1}, 0)
	a.launch(missionDoc{name: "nowhere", phases: []phaseDoc{{name: "work", script: "true", extra: "hold: true"}}})
	a.phaseWait("nowhere", 0, "hold")
	n.stop()
	a.must("node", "retire", "only", "--reason", "sold")
	a.must("phase", "release", "nowhere", "work")
	a.agree(waiter{
		kind: "capacity", code: "no_nodes_registered", mission: "nowhere", phase: "work", bound: 2 * time.Hour,
		reason: "needs 1 CPU, 256 MiB of memory and 64 MiB of disk on backend process; no node is registered; 1st in line",
	})
	a.must("mission", "cancel", "nowhere")
	a.ended("nowhere")
	a.open = a.open[:len(a.open)-1]
}

// agents starts the agents of nodes, each of a class of its own.
func (a *agreement) agents() (lost *local.Worker) {
	a.t.Helper()
	var g errgroup.Group
	for _, n := range []struct{ id, class, cpus, memory, disk, slots string }{
		{"full", "full,part=frag", "4", "2Gi", "8Gi", "4"},
		{"half", "half,part=frag", "4", "2Gi", "4Gi", "4"},
		{"shut", "shut", "1", "512Mi", "1Gi", "1"},
		{"lost", "lost", "2", "1Gi", "4Gi", "2"},
		{"work", "work", "2", "1Gi", "4Gi", "2"},
	} {
		g.Go(func() error {
			w, err := a.StartNode(a.t.Context(), n.id, "TIDEWAIT_NODE_LABELS=class="+n.class, "TIDEWAIT_NODE_BACKENDS=process",
				"TIDEWAIT_NODE_CPUS="+n.cpus, "TIDEWAIT_NODE_MEMORY="+n.memory, "TIDEWAIT_NODE_DISK="+n.disk, "TIDEWAIT_NODE_SLOTS="+n.slots)
			if n.id == "lost" {
				lost = w
			}
			return err
		})
	}
	require.NoError(a.t, g.Wait())
	return lost
}

// fullNodes lets phases queue for nodes that have no room, or take no work.
func (a *agreement) fullNodes() {
	lost := a.agents()
	a.agent = lost
	a.must("node", "cordon", "shut", "--reason", "a test")
	a.launch(missionDoc{name: "holder", phases: []phaseDoc{{name: "work", memory: "1Gi", disk: "4Gi", script: "sleep 600", extra: labelled("full")}}})
	a.launch(missionDoc{name: "silent", phases: []phaseDoc{{name: "work", script: "sleep 600", extra: labelled("lost")}}})
	a.launch(missionDoc{name: "nobody", phases: []phaseDoc{{name: "work", script: "true", extra: labelled("lost") + "\nhold: true"}}})
	a.launch(missionDoc{name: "holds-too", phases: []phaseDoc{{name: "work", memory: "900Mi", script: "sleep 600", extra: labelled("half")}}})
	a.running("holder")
	a.running("holds-too")
	a.running("silent")
	require.NoError(a.t, lost.Kill())

	on := " (+16 MiB of memory overhead) on backend process with labels class=full; "
	one := func(name, cpus, memory, disk string) missionDoc {
		return missionDoc{name: name, phases: []phaseDoc{{name: "work", cpus: cpus, memory: memory, disk: disk, script: "true", extra: labelled("full")}}}
	}
	a.waits(one("cpu", "3.5", "128Mi", "64Mi"), waiter{
		kind: "capacity", code: "capacity_cpu", bound: 2 * time.Hour,
		reason: "needs 3.5 CPUs, 128 MiB of memory and 64 MiB of disk" + on + "full is short by 0.5 CPUs; 1st in line, and full is held for it",
	})
	memory := one("memory", "1", "1536Mi", "64Mi")
	memory.extra = "maxWait: 100m"
	a.waits(memory, waiter{
		kind: "capacity", code: "capacity_memory", bound: 100 * time.Minute,
		reason: "needs 1 CPU, 1.5 GiB of memory and 64 MiB of disk" + on + "full is short by 544 MiB of memory; 2nd in line behind cpu/work",
	})
	a.waits(one("disk", "1", "128Mi", "6Gi"), waiter{
		kind: "capacity", code: "capacity_disk", bound: 2 * time.Hour,
		reason: "needs 1 CPU, 128 MiB of memory and 6 GiB of disk" + on + "full is short by 2 GiB of disk; 3rd in line behind cpu/work and memory/work",
	})
	a.waits(team(a.t, "slots", "process", labelled("full"), agentDoc{name: "member", replicas: 4, script: "true"}), waiter{
		kind: "capacity", code: "capacity_slots", bound: 2 * time.Hour,
		reason: "needs 4 machines with 0.8 CPUs, 512 MiB of memory and 256 MiB of disk in all (+64 MiB of memory overhead) on backend process with labels class=full; " +
			"full is short by 1 slot; 4th in line behind cpu/work, memory/work and disk/work",
	})
	a.waits(team(a.t, "split", "process", "requires: {labels: {part: frag}}", agentDoc{name: "member", replicas: 2, memory: "600Mi", script: "true"}), waiter{
		kind: "capacity", code: "capacity_fragmented", bound: 2 * time.Hour,
		reason: "needs 2 machines with 0.4 CPUs, 1200 MiB of memory and 128 MiB of disk in all (+32 MiB of memory overhead) on backend process with labels part=frag; " +
			"2 nodes have 6 CPUs, 2140 MiB of memory, 8128 MiB of disk and 6 slots free in sum, but the nearest, half, is short by 100 MiB of memory; " +
			"5th in line behind cpu/work, memory/work, disk/work and 1 other",
	})
	a.waits(one("beside", "1", "128Mi", "64Mi"), waiter{
		kind: "capacity", code: "held_for_head", bound: 2 * time.Hour,
		reason: "needs 1 CPU, 128 MiB of memory and 64 MiB of disk" + on +
			"it fits on full, which is held for cpu/work; 6th in line behind cpu/work, memory/work, disk/work and 2 others",
	})
	a.waits(missionDoc{name: "closed", phases: []phaseDoc{{name: "work", script: "true", extra: labelled("shut")}}}, waiter{
		kind: "capacity", code: "nodes_draining", bound: 2 * time.Hour,
		reason: "needs 1 CPU, 256 MiB of memory and 64 MiB of disk (+16 MiB of memory overhead) on backend process with labels class=shut; " +
			"the only node that could run it, shut, is cordoned; 7th in line behind cpu/work, memory/work, disk/work and 3 others",
	})
	a.eventually("node lost is suspect", func() bool {
		return a.count("SELECT count(*) FROM nodes n WHERE n.id = 'lost' AND extract(epoch FROM silence(n)) > 5") == 1
	}, func() any { return nil })
	a.must("phase", "release", "nobody", "work")
	a.agree(waiter{
		kind: "capacity", code: "nodes_lost", bound: 2 * time.Hour, mission: "nobody", phase: "work",
		reason: "needs 1 CPU, 256 MiB of memory and 64 MiB of disk (+16 MiB of memory overhead) on backend process with labels class=lost; " +
			"the only node that could run it, lost, is not reporting; 8th in line behind cpu/work, memory/work, disk/work and 4 others",
	})
}

// ofPhases lets phases wait that are not in the queue.
func (a *agreement) ofPhases() {
	a.waits(missionDoc{name: "held", phases: []phaseDoc{{name: "work", script: "true", extra: "hold: {reason: look first, maxWait: 72h}"}}}, waiter{
		kind: "hold", code: "awaiting_release", bound: 72 * time.Hour, reason: "held by its document until somebody releases it: look first",
	})
	a.waits(missionDoc{name: "flaky", phases: []phaseDoc{{name: "work", script: "exit 7", extra: "attempts: 3\n" + labelled("work")}}}, waiter{
		kind: "backoff", code: "command_failed", reason: `attempt 1 of 3 failed: command "sh" exited with code 7; attempt 2 begins after a pause of 4m0s`,
	})
	a.waits(missionDoc{name: "large", phases: []phaseDoc{{name: "work", script: "head -c 2000000 /dev/urandom > noise", extra: labelled("work")}}}, waiter{
		kind: "gateway", code: "results_bucket_full", like: `gateway gw cannot commit the results of run r\d+-1: bucket tidewait-bundles is full: .*`,
		transient: true, refused: func() time.Time { return a.failed("phase.large.work", workflows.ErrTypeBucketFull) },
	})
}

// frozenPlacer lets phases wait for a placer that is stopped by its lock: one for
// which another one got the room in the same pass, and one that nobody looks at.
func (a *agreement) frozenPlacer() {
	a.scriptedNode("starts", "starts", "microvm", capacity.Resources{CPUMilli: 8000, MemoryMiB: 8192, DiskMiB: 65536, Slots: 8}, 1)
	a.scriptedNode("room", "room", "microvm", capacity.Resources{CPUMilli: 8000, MemoryMiB: 512, DiskMiB: 65536, Slots: 8}, 0)
	machine := func(name, class, extra string) missionDoc {
		return missionDoc{name: name, backend: "microvm", phases: []phaseDoc{{name: "work", memory: "300Mi", script: "true", extra: labelled(class) + extra}}}
	}
	for _, doc := range []missionDoc{machine("one", "room", "\nhold: true"), machine("other", "room", "\nhold: true"), machine("unseen", "starts", "\nhold: true")} {
		a.launch(doc)
		a.phaseWait(doc.name, 0, "hold")
	}
	a.launch(machine("starting", "starts", ""))
	a.until("starting", "its machine starts", func(m api.MissionDetail) bool { return m.PhaseList[0].Status == "running" })
	const next = "needs 1 CPU, 300 MiB of memory and 64 MiB of disk on backend microvm with labels class=starts; "
	a.waits(machine("next", "starts", ""), waiter{
		kind: "capacity", code: "starting_limit", bound: 2 * time.Hour,
		reason: next + "starts has room but is starting 1 of at most 1 machines; 1st in line, and starts is held for it",
	})

	// A pass is held up while two ask; the next one has both, and is held up until a
	// third stands behind it.
	first := a.lockPlacer("microvm")
	first.held(a.product)
	a.must("phase", "nudge", "next", "work")
	a.stoppedPasses(1)
	for _, name := range []string{"one", "other"} {
		require.NoError(a.t, a.temporal.SignalWorkflow(a.t.Context(), api.PhaseWorkflowID(name, "work"), "", api.SignalRelease, api.Release{Actor: "a test"}))
	}
	a.eventually("both ask", func() bool {
		return a.count("SELECT count(*) FROM open_waits WHERE workflow_id IN ('phase.one.work', 'phase.other.work')") == 0
	}, func() any { return nil })
	second := a.lockPlacer("microvm")
	a.stoppedPasses(2)
	first.free(a.product)
	second.held(a.product)
	a.stoppedPasses(1)
	third := a.lockPlacer("microvm")
	a.stoppedPasses(2)
	second.free(a.product)
	third.held(a.product)
	behind := "one"
	if a.rowOf("phase.one.work") == nil {
		behind = "other"
	}
	asked := time.Now()
	require.NoError(a.t, a.temporal.SignalWorkflow(a.t.Context(), "phase.unseen.work", "", api.SignalRelease, api.Release{Actor: "a test"}))
	a.agree(waiter{
		kind: "capacity", code: "behind_in_queue", bound: 2 * time.Hour, mission: behind, phase: "work", transient: true,
		reason: "needs 1 CPU, 300 MiB of memory and 64 MiB of disk on backend microvm with labels class=room; " +
			"it would have fitted, but others ahead were placed first and room is now short by 88 MiB of memory; 2nd in line behind next/work",
	})
	a.agree(waiter{
		kind: "capacity", code: "placer_unavailable", mission: "unseen", phase: "work", transient: true,
		like: "the placer does not answer: .*",
		// A placer that does not answer in three seconds does not answer.
		refused: func() time.Time { return asked.Add(3 * time.Second) },
	})
	third.free(a.product)

	// A code that changes for the first time is followed at once.
	a.agree(waiter{
		kind: "capacity", code: "capacity_memory", bound: 2 * time.Hour, mission: behind, phase: "work", changed: true,
		reason: "needs 1 CPU, 300 MiB of memory and 64 MiB of disk on backend microvm with labels class=room; " +
			"room is short by 88 MiB of memory; 2nd in line behind next/work",
	})
	a.agree(waiter{
		kind: "capacity", code: "starting_limit", bound: 2 * time.Hour, mission: "unseen", phase: "work", changed: true,
		reason: next + "starts has room but is starting 1 of at most 1 machines; 3rd in line behind next/work and " + behind + "/work",
	})
}

// stoppedPasses waits until so many sessions wait for a lock of the placer.
func (a *agreement) stoppedPasses(n int) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("%d wait for the placer's lock", n), func() bool { return a.passes() == n }, func() any { return a.passes() })
}

// ofNodesAndGateways lets a phase wait for its node, and missions for a gateway.
func (a *agreement) ofNodesAndGateways() {
	require.NoError(a.t, a.gateway.Kill())
	a.launch(missionDoc{name: "unopened", phases: []phaseDoc{{name: "work", script: "true", extra: labelled("work")}}})
	a.agree(waiter{
		kind: "node", code: "node_silent", mission: "silent", phase: "work", bounded: true,
		like: `node lost is silent; its agent may still have run r\d+-1`,
	})
	a.agree(waiter{
		kind: "gateway", code: "gateway_unreachable", mission: "unopened", reason: "gateway gw does not pick up: open the checkout",
		refused: func() time.Time {
			return a.scheduled("mission.unopened", workflows.ActivityOpenCheckout).Add(10 * time.Second)
		},
	})
	a.agree(waiter{
		kind: "gateway", code: "gateway_unreachable", mission: "large", phase: "work", changed: true,
		like: `gateway gw does not pick up: commit the results of run r\d+-1`,
	})
}

// restarts kills the engine while everything waits. The next one shows all as it
// was within ten seconds.
func (a *agreement) restarts() {
	a.eventually("metrics count everything", func() bool { return maps.Equal(waitsAtOnce, a.measured()) }, func() any { return a.measured() })
	require.NoError(a.t, a.engine.Kill())
	require.NoError(a.t, a.engine.Start(a.t.Context()))
	ready := time.Now()
	var differ []string
	a.eventually("every place shows everything again", func() bool {
		differ = nil
		listed, details := a.cliWaits(), a.allDetails()
		for _, w := range a.open {
			id := w.workflow()
			now := a.rowOf(id)
			if now == nil || now.kind != w.kind || now.code != w.code {
				differ = append(differ, fmt.Sprintf("%s: Postgres has %v", w, now))
				continue
			}
			for place, at := range map[string]waitAt{"attributes": a.described(id), "list": a.listedAs(id), "command line": asListed(listed[id])} {
				if !at.same(now.waitAt, time.Millisecond) {
					differ = append(differ, fmt.Sprintf("%s: %s have %s", w, place, at))
				}
			}
			if at := inDetails(details[id]); !at.same(now.waitAt, time.Second) {
				differ = append(differ, fmt.Sprintf("%s: current details have %s", w, at))
			}
			if w.site != nil && !inStatus(w.site.status(w.app).Status, w.kind).same(now.waitAt, time.Millisecond) {
				differ = append(differ, fmt.Sprintf("%s: wadm has %s", w, inStatus(w.site.status(w.app).Status, w.kind)))
			}
		}
		if counted := a.measured(); !maps.Equal(waitsAtOnce, counted) {
			differ = append(differ, fmt.Sprintf("metrics have %v", counted))
		}
		return len(differ) == 0
	}, func() any { return differ })
	took := time.Since(ready)
	a.t.Logf("%d waits agree in every place %s after the restart", len(a.open), took.Round(100*time.Millisecond))
	require.Less(a.t, took, 10*time.Second)
	for _, w := range a.open {
		require.WithinDuration(a.t, a.from[w.workflow()], a.rowOf(w.workflow()).since, 0, "%s: since is stamped once", w)
	}
}

// allDetails are the current details of everything that waits. A workflow whose
// worker is gone answers after a second, so all are asked at once.
func (a *agreement) allDetails() map[string]string {
	all := make([]string, len(a.open))
	var asking sync.WaitGroup
	for i, w := range a.open {
		asking.Go(func() { all[i], _ = a.detailsOf(w.workflow()) })
	}
	asking.Wait()
	byWorkflow := map[string]string{}
	for i, w := range a.open {
		byWorkflow[w.workflow()] = all[i]
	}
	return byWorkflow
}

// end ends a wait of a phase and one of an application, which nothing shows then.
func (a *agreement) end(s *site) {
	s.command0("config.put.outside", object{"a": "b"})
	a.must("phase", "cancel", "held", "work")
	for _, id := range []string{"phase.held.work", s.workflowID("needy")} {
		var left []string
		a.eventually("nothing shows that "+id+" waits", func() bool {
			left = nil
			if now := a.rowOf(id); now != nil {
				left = append(left, "Postgres: "+now.String())
			}
			if at := a.described(id); at != (waitAt{}) {
				left = append(left, "attributes: "+at.String())
			}
			if at := a.listedAs(id); at != (waitAt{}) {
				left = append(left, "list: "+at.String())
			}
			if details, err := a.detailsOf(id); err != nil || strings.Contains(details, "**waiting for") {
				left = append(left, "details: "+details)
			}
			if w, waits := a.cliWaits()[id]; waits {
				left = append(left, "command line: "+asListed(w).String())
			}
			return len(left) == 0
		}, func() any { return left })
	}
	for _, code := range []string{`{code="awaiting_release",kind="hold"}`, `{code="config_missing",kind="dependency"}`} {
		a.eventually("metrics count no "+code, func() bool { return a.measured()[code] == 0 }, func() any { return a.measured() })
	}
	s.becomes("needy", wadm.Deployed)
	require.Equal(a.t, wadm.StatusInfo{Type: wadm.Deployed}, s.wireStatus("needy"))
	require.Nil(a.t, a.cliMission("held").Wait)
}
