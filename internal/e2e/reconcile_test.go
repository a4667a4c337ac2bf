package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
	"tidewait/workflows"
)

// TestReconcile keeps applications true in many lattices at once, each test in
// its own.
func TestReconcile(t *testing.T) {
	long(t, 160*time.Second)
	p := start(t)
	lattices := &turns{places: 6}
	t.Run("lattices", func(t *testing.T) {
		for i, test := range []struct {
			name string
			do   func(*site)
		}{
			// Those that wait the longest come first, so that the others run beside them.
			{"waits", waitsForHosts},
			{"returns", cleansUpWhatReturns},
			{"replies", survivesLostReplies},
			{"disputes", disputesLinks},
			{"secrets", readsSecrets},
			{"fails", failsInTheHostsWords},
			{"closed", survivesClosedWorkflows},
			{"since", keepsSince},
			{"wires", disputesWires},
			{"links", sharesLinks},
			{"drift", repairsDrift},
			{"upgrade", upgrades},
			{"spread", spreadsOverLabels},
			{"daemon", runsEverywhere},
			{"shared", sharesApplications},
			{"configs", sharesConfigurations},
			{"hostile", survivesHostileEvents},
			{"overtaken", looksAgain},
			{"waits-on", waitsOn},
			{"in-vain", asksInVain},
			{"shared-id", sharesUnderAnID},
		} {
			t.Run(test.name, func(t *testing.T) {
				long(t, time.Hour-time.Duration(i))
				lattices.take(t)
				test.do(p.in(t).lattice(test.name))
			})
		}
	})
}

var shopAtFirst = map[string]int{"component.scale shop-web": 1, "provider.start shop-http": 1, "link.put shop-http": 1, "config.put shop-listen": 1}

// shopAgain is what a new host is told: links and configurations are the lattice's.
var shopAgain = map[string]int{"component.scale shop-web": 1, "provider.start shop-http": 1}

var shopRuns = map[string]int{"shop-web": 4, "shop-http": 1}

func waitsForHosts(s *site) {
	s.deploy(shop("shop", "v1"))
	never := s.waits("never_observed", "no host of lattice waits has been observed yet; nothing is started until one appears")
	s.publishes("waiting")
	require.Empty(s.t, s.calls())

	first := s.host("first")
	s.becomes("shop", wadm.Deployed)
	s.publishes("reconciling", "deployed")
	require.Equal(s.t, shopAtFirst, s.told())
	require.Equal(s.t, shopRuns, s.runs())
	s.waitsNoMore()

	first.Stop()
	stopped := time.Now()
	const gone = "no host of lattice waits is alive; nothing is started until one appears"
	s.becomes("shop", wadm.Waiting)
	require.Less(s.t, time.Since(stopped), 20*time.Second, "a host that says goodbye is gone at once")
	since := s.waits("no_live_hosts", gone)
	require.True(s.t, since.After(never))
	s.nudge("shop")
	require.Equal(s.t, since, s.waits("no_live_hosts", gone), "a look does not move since when")

	s.l.Forget()
	second := s.host("second")
	s.becomes("shop", wadm.Deployed)
	s.publishes("waiting", "reconciling", "deployed")
	require.Equal(s.t, shopAgain, s.told())
	s.waitsNoMore()

	killed := time.Now()
	second.Kill()
	s.becomes("shop", wadm.Waiting)
	s.t.Logf("a killed host was missed after %s", time.Since(killed).Round(time.Second))
	require.True(s.t, s.waits("no_live_hosts", gone).After(killed.Add(-time.Second)))

	s.l.Forget()
	s.host("third")
	s.becomes("shop", wadm.Deployed)
	require.Equal(s.t, shopAgain, s.told())

	s.undeploy("shop")
	s.empties()
	s.eventually("the workflow of the application ends", func() bool {
		return s.workflow("shop") == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}, func() any { return s.workflow("shop").String() })
	s.eventually("the workflow of the lattice ends", func() bool {
		return s.workflow("") == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}, func() any { return s.workflow("").String() })

	s.l.Forget()
	s.deploy(shop("shop", "v2"))
	s.becomes("shop", wadm.Deployed)
	require.Equal(s.t, shopAtFirst, s.told(), "a lattice is observed again when something is deployed in it")
}

// waits asserts that shop waits for its lattice wherever that is shown, and
// returns since when.
func (s *site) waits(code, reason string) time.Time {
	s.t.Helper()
	var status wadm.Status
	s.until("shop", code, func(got wadm.Status) bool { return got.Status.Reason == code })
	require.NoError(s.t, jsonOf(s.must("app", "status", "shop", "--lattice", s.name, "-o", "json"), &struct{ Status *wadm.Status }{&status}))
	since := *status.Status.Since
	want := wadm.StatusInfo{Type: wadm.Waiting, Message: reason, Reason: code, Since: &since}
	require.Equal(s.t, want, status.Status)
	require.Len(s.t, status.Scalers, 3)
	for _, row := range status.Scalers {
		require.Equal(s.t, want, row.Status)
	}

	var list api.WaitList
	require.NoError(s.t, jsonOf(s.must("waits", "--lattice", s.name, "-o", "json"), &list))
	require.Len(s.t, list.Waits, 1)
	w := list.Waits[0]
	require.Equal(s.t, []any{"lattice", code, reason, "shop"}, []any{w.Kind, w.Code, w.Reason, w.Application})
	require.WithinDuration(s.t, since, w.Since, time.Millisecond)

	require.Equal(s.t, 1, s.count("SELECT count(*) FROM open_waits w JOIN applications a ON a.id = w.application_id WHERE a.lattice = '"+s.name+"' AND w.code = '"+code+"'"))
	s.attributesShow(code, since)
	return since
}

// attributesShow waits until Temporal's list shows that shop waits for its lattice.
func (s *site) attributesShow(code string, since time.Time) {
	s.t.Helper()
	s.eventually("search attributes show the wait", func() bool {
		kind, reason, from := s.attributes()
		return kind == "lattice" && reason == code && from.Sub(since).Abs() < time.Millisecond
	}, func() any { kind, reason, from := s.attributes(); return []any{kind, reason, from, since} })
}

func (s *site) waitsNoMore() {
	s.t.Helper()
	require.Equal(s.t, 0, s.count("SELECT count(*) FROM open_waits w JOIN applications a ON a.id = w.application_id WHERE a.lattice = '"+s.name+"'"))
	s.eventually("search attributes show no wait", func() bool {
		kind, reason, _ := s.attributes()
		return kind == "" && reason == ""
	}, func() any { kind, reason, _ := s.attributes(); return []string{kind, reason} })
}

func (s *site) attributes() (kind, code string, since time.Time) {
	desc, err := s.temporal.DescribeWorkflow(s.ctx(), s.workflowID("shop"), "")
	if err != nil { // it is not started yet
		return "", "", time.Time{}
	}
	kind, _ = desc.TypedSearchAttributes.GetKeyword(workflows.AttrWait)
	code, _ = desc.TypedSearchAttributes.GetKeyword(workflows.AttrReason)
	since, _ = desc.TypedSearchAttributes.GetTime(workflows.AttrSince)
	return kind, code, since
}

func failsInTheHostsWords(s *site) {
	const missing = "registry.example.com/http:0.22.1"
	words := "failed to fetch provider: " + simhost.ManifestUnknown("provider", missing)
	s.l.Script(simhost.Rule{Image: missing, Fetch: simhost.ManifestUnknown})
	host := s.host("h")
	bad := shop("shop", "v1")
	bad["spec"].(object)["components"].([]object)[1]["properties"].(object)["image"] = missing
	s.deploy(bad)

	s.until("shop", "failed for the fourth time", func(got wadm.Status) bool { return got.Status.Attempt >= 4 })
	tries := s.tries()
	for i, want := range []time.Duration{1, 2, 4} {
		gap := tries[i+1].Sub(tries[i])
		require.Greater(s.t, gap, time.Duration(float64(want*time.Second)*0.8)-20*time.Millisecond, "tries %v", tries)
		require.Less(s.t, gap, time.Duration(float64(want*time.Second)*1.2)+5*time.Second, "tries %v", tries)
	}
	require.Equal(s.t, map[string]int{
		"component.scale shop-web": 1, "provider.start shop-http": len(tries), "link.put shop-http": 1, "config.put shop-listen": 1,
	}, s.told(), "what can be done is done, once")
	s.showsFailure(words)

	s.until("shop", "at rest", func(got wadm.Status) bool {
		return got.Status.NextAttempt != nil && time.Until(*got.Status.NextAttempt) > 3*time.Second
	})
	before, nudged := len(s.tries()), time.Now()
	s.nudge("shop")
	s.eventually("a nudge tries at once", func() bool { return len(s.tries()) > before }, func() any { return s.told() })
	require.Less(s.t, s.tries()[before].Sub(nudged), 3*time.Second)
	s.until("shop", "failed for the first time since the nudge", func(got wadm.Status) bool { return got.Status.Attempt == 1 })

	s.l.Forget()
	s.published("shop")
	s.deploy(shop("shop", "v2"))
	s.becomes("shop", wadm.Deployed)
	require.Equal(s.t, 1, s.told()["provider.start shop-http"]-s.startsOf(missing), "the corrected version is tried at once")
	require.Equal(s.t, shopRuns, s.runs())
	require.Equal(s.t, 0, s.count("SELECT count(*) FROM open_waits WHERE workflow_id = '"+s.workflowID("shop")+"'"))

	// Success resets: the next failure is a first one.
	s.l.Script(simhost.Rule{Command: "provider.start", Fetch: simhost.ConnectionRefused})
	s.command(host, "provider.stop", object{"provider_id": "shop-http", "host_id": host.ID()})
	again := s.becomes("shop", wadm.Failed)
	require.Equal(s.t, 1, again.Status.Attempt)
	require.Contains(s.t, again.Status.Message, "Connection refused (os error 111)")
}

func (s *site) startsOf(image string) int {
	n := 0
	for _, c := range s.calls() {
		if c.Command == "provider.start" && c.Image == image {
			n++
		}
	}
	return n
}

// tries returns when the provider of shop was told to start.
func (s *site) tries() []time.Time {
	var at []time.Time
	for _, c := range s.calls() {
		if c.Command == "provider.start" && c.ID == "shop-http" {
			at = append(at, c.Time)
		}
	}
	return at
}

// showsFailure asserts the reply to a request for the status, key by key.
func (s *site) showsFailure(words string) {
	s.t.Helper()
	msg, err := s.nc.RequestWithContext(s.ctx(), "wadm.api."+s.name+".model.status.shop", nil)
	require.NoError(s.t, err)
	var reply object
	require.NoError(s.t, json.Unmarshal(msg.Data, &reply))
	require.Equal(s.t, "ok", reply["result"])
	status := reply["status"].(object)
	require.Equal(s.t, []any{"", []any{}}, []any{status["version"], status["components"]})
	rows := status["scalers"].([]any)
	require.Len(s.t, rows, 3)
	for i, want := range []struct{ kind, name, status string }{
		{"SpreadScaler", "shop-web", "deployed"}, {"LinkScaler", "shop-http -(wasi:http)-> shop-web", "deployed"}, {"SpreadScaler", "shop-http", "failed"},
	} {
		row := rows[i].(object)
		require.Equal(s.t, []any{want.kind, want.name, want.status}, []any{row["kind"], row["name"], row["status"].(object)["type"]})
	}
	for _, failed := range []object{status["status"].(object), rows[2].(object)["status"].(object)} {
		require.Equal(s.t, []any{"failed", "command_failed"}, []any{failed["type"], failed["reason"]})
		require.Regexp(s.t, `^.* \(attempt \d+, (next attempt [0-9TZ:-]+|trying again now)\)$`, failed["message"])
		require.Equal(s.t, words, strings.SplitN(failed["message"].(string), " (attempt ", 2)[0])
		require.GreaterOrEqual(s.t, failed["attempt"].(float64), 4.0)
	}
	require.Equal(s.t, object{"type": "deployed"}, rows[0].(object)["status"])
}

// command tells a host something that the product knows nothing of.
func (s *site) command(h *simhost.Host, command string, body object) {
	s.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(s.t, err)
	_, err = s.nc.RequestWithContext(s.ctx(), "wasmbus.ctl.v1."+s.name+"."+command+"."+h.ID(), data)
	require.NoError(s.t, err)
}

func repairsDrift(s *site) {
	h := s.host("h")
	foreign := object{
		"component_id": "stranger", "component_ref": "registry.example.com/stranger:1", "host_id": h.ID(), "count": 3,
	}
	s.command(h, "component.scale", foreign)
	theirs := object{"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "elsewhere", "wasmcloud.dev/scaler": "x", "wasmcloud.dev/spread_name": "default"}
	s.command(h, "component.scale", object{
		"component_id": "elsewhere-ui", "component_ref": "registry.example.com/ui:1", "host_id": h.ID(), "count": 2, "annotations": theirs,
	})
	s.command(h, "provider.start", object{"provider_id": "elsewhere-kv", "provider_ref": "registry.example.com/kv:1", "host_id": h.ID()})
	s.deploy(shop("shop", "v1"))
	s.becomes("shop", wadm.Deployed)

	scaledTwice := map[string]int{"component.scale shop-web": 2}
	scaled := object{
		"component_id": "shop-web", "component_ref": webImage, "count": 9, "host_id": h.ID(), "annotations": s.annotations(h, "shop-web"),
	}
	for _, drift := range []struct {
		command string
		body    object
		repair  map[string]int
	}{
		{"component.scale", object{"component_id": "shop-web", "count": 0, "host_id": h.ID()}, scaledTwice},
		{"component.scale", scaled, scaledTwice},
		{"provider.stop", object{"provider_id": "shop-http", "host_id": h.ID()}, map[string]int{"provider.stop shop-http": 1, "provider.start shop-http": 1}},
	} {
		s.l.Forget()
		s.published("shop")
		s.command(h, drift.command, drift.body)
		s.eventually("the drift is repaired", func() bool { return len(s.calls()) > 1 && s.runs()["shop-web"] == 4 && s.runs()["shop-http"] == 1 },
			func() any { return []any{s.told(), s.runs()} })
		calls := s.calls()
		delay := calls[1].Time.Sub(calls[0].Time)
		s.t.Logf("%s was repaired after %s", drift.command, delay.Round(time.Millisecond))
		require.Less(s.t, delay, 10*time.Second)
		s.becomes("shop", wadm.Deployed)
		require.Equal(s.t, drift.repair, s.told())
		require.NotContains(s.t, s.published("shop"), "failed")
	}

	s.undeploy("shop")
	s.eventually("the application is gone", func() bool { return s.runs()["shop-web"]+s.runs()["shop-http"] == 0 && len(s.linked()) == 0 },
		func() any { return s.runs() })
	require.Equal(s.t, map[string]int{"stranger": 3, "elsewhere-ui": 2, "elsewhere-kv": 1}, s.runs())
	for _, c := range s.calls() {
		require.NotContains(s.t, []string{"stranger", "elsewhere-ui", "elsewhere-kv"}, c.ID)
	}
}

// annotations returns those of a component on a host.
func (s *site) annotations(h *simhost.Host, id string) map[string]string {
	s.t.Helper()
	for _, c := range h.Inventory().Components {
		if c.ID == id {
			return c.Annotations
		}
	}
	s.t.Fatalf("%s does not run on %s", id, h.Name())
	return nil
}

func upgrades(s *site) {
	s.host("a", "zone=east")
	s.host("b", "zone=west")
	version := func(name string, components ...object) object { return manifest("up", name, components...) }
	s.deploy(version("v1",
		component("web", webImage, instances(4)),
		component("extra", "registry.example.com/extra:1", instances(2)),
		provider("http", httpImage, link("web", config("listen", "8080"))),
		provider("cache", "registry.example.com/cache:1", link("extra", config("cache", "on"))),
	))
	s.becomes("up", wadm.Deployed)
	require.Equal(s.t, []string{"up-cache->up-extra", "up-http->up-web"}, s.linked())

	// Another image, another value, and what is no more.
	s.upgrade(version("v2",
		component("web", "registry.example.com/web:2", instances(4)),
		provider("http", "registry.example.com/http:2", link("web", config("listen", "8081"))),
	))
	require.Equal(s.t, map[string]int{"up-web": 4, "up-http": 1}, s.runs())
	require.Equal(s.t, []string{"up-http->up-web"}, s.linked())
	for _, h := range s.l.Hosts() {
		for _, c := range h.Inventory().Components {
			require.Equal(s.t, "registry.example.com/web:2", c.Runs, "what really runs")
		}
	}
	values, _ := s.l.Config("up-listen")
	require.Equal(s.t, map[string]string{"value": "8081"}, values)
	_, there := s.l.Config("up-cache")
	require.False(s.t, there, "a configuration that nothing needs is deleted")
	require.Equal(s.t, 1, s.told()["config.put up-listen"])
	require.Zero(s.t, s.told()["config.del up-listen"], "what the new version needs is not deleted")

	// Another spread: the instances that are right stay.
	s.upgrade(version("v3",
		component("web", "registry.example.com/web:2", instances(4, on("east", "zone=east", 100))),
		provider("http", "registry.example.com/http:2", link("web", config("listen", "8081"))),
	))
	require.Equal(s.t, "a=4", spread(s.places(), "up-web"))
	require.Zero(s.t, s.told()["provider.stop up-http"]+s.told()["config.put up-listen"]+s.told()["link.put up-http"])

	// Without the link and its configuration.
	s.upgrade(version("v4",
		component("web", "registry.example.com/web:2", instances(4, on("east", "zone=east", 100))),
		provider("http", "registry.example.com/http:2"),
	))
	require.Empty(s.t, s.linked())
	_, there = s.l.Config("up-listen")
	require.False(s.t, there)
	require.Equal(s.t, map[string]int{"link.del up-http": 1, "config.del up-listen": 1}, s.told())

	// Nothing to do: said to be reconciled all the same, for those who wait for it.
	s.upgrade(version("v5",
		component("web", "registry.example.com/web:2", instances(4, on("east", "zone=east", 100))),
		provider("http", "registry.example.com/http:2"),
	))
	require.Empty(s.t, s.told())
}

// upgrade deploys a version of the application up: it must be seen to be
// reconciled within five seconds, and be deployed then.
func (s *site) upgrade(m object) {
	s.t.Helper()
	s.put(m)
	s.eventually("all is published", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := len(s.statuses["up"])
		return s.count("SELECT count(*) FROM application_outbox WHERE lattice = '"+s.name+"'") == 0 &&
			(n == 0 || s.statuses["up"][n-1].Status.Type == wadm.Deployed)
	}, func() any { return s.status("up") })
	s.l.Forget()
	s.published("up")
	began := time.Now()
	_, err := s.api.Deploy(s.ctx(), "up", nil)
	require.NoError(s.t, err)
	s.eventually("the upgrade is deployed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := len(s.statuses["up"])
		return n > 1 && s.statuses["up"][n-1].Status.Type == wadm.Deployed
	}, func() any { return []any{s.status("up"), s.told()} })
	s.t.Logf("upgraded after %s", time.Since(began).Round(time.Millisecond))
	require.Equal(s.t, []string{"reconciling", "deployed"}, s.published("up"))
	s.settles("up")
}

// settles waits until cleaning up is over, too.
func (s *site) settles(app string) {
	s.t.Helper()
	s.eventually(app+" has nothing under way", func() bool {
		desc, err := s.temporal.DescribeWorkflow(s.ctx(), s.workflowID(app), "")
		return err == nil && len(desc.RawResponse.GetPendingActivities()) == 0 && desc.RawResponse.GetPendingWorkflowTask() == nil
	}, func() any { return s.told() })
}

func spreadsOverLabels(s *site) {
	s.host("e1", "zone=east")
	s.host("e2", "zone=east")
	w1 := s.host("w1", "zone=west")
	s.deploy(manifest("shop", "v1",
		component("web", webImage, instances(12, on("east", "zone=east", 50), on("west", "zone=west", 25), on("moon", "zone=moon", 25))),
		component("all", "registry.example.com/all:1", instances(3)),
	))
	const moon = "spread moon of shop-web: of 3 hosts alive, none has labels zone=moon"
	got := s.until("shop", "partly there", func(got wadm.Status) bool {
		return got.Status.Reason == "no_eligible_host" && got.Status.Message == moon
	})
	require.Equal(s.t, wadm.Waiting, got.Status.Type)
	require.Equal(s.t, []wadm.StatusType{wadm.Waiting, wadm.Deployed}, []wadm.StatusType{got.Scalers[0].Status.Type, got.Scalers[1].Status.Type})
	require.Equal(s.t, "e1=3 e2=3 w1=3", spread(s.places(), "shop-web"))
	require.Equal(s.t, "e1=1 e2=1 w1=1", spread(s.places(), "shop-all"))
	require.Equal(s.t, map[string]int{"component.scale shop-web": 3, "component.scale shop-all": 3}, s.told())

	s.l.Forget()
	s.host("m1", "zone=moon")
	s.becomes("shop", wadm.Deployed)
	require.Equal(s.t, "e1=3 e2=3 m1=3 w1=3", spread(s.places(), "shop-web"))
	require.Equal(s.t, map[string]int{"component.scale shop-web": 1}, s.told(), "what runs stays where it is")

	// A host that changes its labels is another place.
	s.l.Forget()
	s.host("w2", "zone=west")
	s.command(w1, "label.put", object{"key": "zone", "value": "east"})
	s.eventually("the instances of the west have moved", func() bool {
		places := s.places()
		return places["w2"]["shop-web"] == 3 && s.runs()["shop-web"] == 12
	}, func() any { return s.places() })
	s.becomes("shop", wadm.Deployed)
	require.Equal(s.t, "e1=3 e2=3 m1=3 w2=3", spread(s.places(), "shop-web"))
	require.Equal(s.t, map[string]int{"label.put zone": 1, "component.scale shop-web": 2}, s.told())
}

func runsEverywhere(s *site) {
	s.host("d1", "edge=true")
	s.host("d2", "edge=true")
	s.host("core")
	s.deploy(manifest("agent", "v1",
		component("probe", "registry.example.com/probe:1", everywhere(2, on("edge", "edge=true", 1))),
		provider("log", "registry.example.com/log:1", everywhere(1, on("edge", "edge=true", 1))),
	))
	s.becomes("agent", wadm.Deployed)
	require.Equal(s.t, map[string]map[string]int{"core": {}, "d1": {"agent-probe": 2, "agent-log": 1}, "d2": {"agent-probe": 2, "agent-log": 1}}, s.places())
	require.Equal(s.t, map[string]int{"component.scale agent-probe": 2, "provider.start agent-log": 2}, s.told())

	s.l.Forget()
	late := s.host("late", "edge=true")
	s.eventually("a host that joins later runs it too", func() bool {
		on := s.places()["late"]
		return on["agent-probe"] == 2 && on["agent-log"] == 1
	}, func() any { return s.places() })
	s.becomes("agent", wadm.Deployed)
	require.Equal(s.t, map[string]int{"component.scale agent-probe": 1, "provider.start agent-log": 1}, s.told())

	s.l.Forget()
	s.command(late, "label.del", object{"key": "edge"})
	s.eventually("a host that is none of them any more runs it no more", func() bool { return len(s.places()["late"]) == 0 }, func() any { return s.places() })
	require.Equal(s.t, map[string]int{"label.del edge": 1, "component.scale agent-probe": 1, "provider.stop agent-log": 1}, s.told())
}

func sharesApplications(s *site) {
	counter := component("counter", "registry.example.com/counter:1", instances(5), link("keyvalue"))
	keyvalue := provider("keyvalue", "registry.example.com/kv:1")
	web := provider("http", httpImage, link("counter", config("listen", "8001")))
	consumer := manifest("consumer", "v1", ofPlatform(counter), web)
	s.put(consumer)
	_, err := s.api.Deploy(s.ctx(), "consumer", nil)
	require.ErrorContains(s.t, err, "platform", "what is referred to has to be deployed first")

	s.deploy(shared(manifest("platform", "v1", counter, keyvalue)))
	_, err = s.api.Deploy(s.ctx(), "consumer", nil)
	require.NoError(s.t, err)
	s.host("h1")
	s.host("h2")
	s.becomes("platform", wadm.Deployed)
	s.becomes("consumer", wadm.Deployed)
	everything := map[string]int{"platform-counter": 5, "platform-keyvalue": 1, "consumer-http": 1}
	require.Equal(s.t, everything, s.runs())
	require.Equal(s.t, []string{"consumer-http->platform-counter", "platform-counter->platform-keyvalue"}, s.linked())
	require.Equal(s.t, map[string]int{
		"component.scale platform-counter": 2, "provider.start platform-keyvalue": 1, "provider.start consumer-http": 1,
		"link.put consumer-http": 1, "link.put platform-counter": 1, "config.put consumer-listen": 1,
	}, s.told())

	s.l.Forget()
	s.undeploy("consumer")
	s.eventually("the consumer is gone", func() bool {
		return s.runs()["consumer-http"] == 0 && len(s.linked()) == 1 && s.count("SELECT count(*) FROM reconciliations WHERE lattice = 'shared'") == 1
	}, func() any { return []any{s.runs(), s.linked(), s.told()} })
	require.Equal(s.t, map[string]int{"platform-counter": 5, "platform-keyvalue": 1}, s.runs())
	require.Equal(s.t, []string{"platform-counter->platform-keyvalue"}, s.linked())
	require.Equal(s.t, map[string]int{"provider.stop consumer-http": 1, "link.del consumer-http": 1, "config.del consumer-listen": 1}, s.told())
	require.Equal(s.t, wadm.Deployed, s.status("platform").Status.Type)
}

// sharesConfigurations: two applications whose names are the same on the lattice
// make one configuration and one link; it is the last one's to delete.
func sharesConfigurations(s *site) {
	s.host("h")
	app := func(name string) object {
		return manifest(name, "v1",
			with(with(component("web", webImage, instances(1)), "id", name+"-the-web"), "config", []object{config("settings", "same")}),
			with(with(component("api", webImage, instances(1)), "id", name+"-the-api"), "config", []object{{"name": "outside"}}))
	}
	s.deploy(app("twin-one"))
	got := s.until("twin-one", "told what is missing", func(got wadm.Status) bool {
		return got.Status.Reason == "config_missing" && s.runs()["twin-one-the-web"] == 1
	})
	require.Contains(s.t, got.Status.Message, "outside")
	require.Equal(s.t, 1, s.told()["component.scale twin-one-the-web"], "what does not need it runs")
	s.command0("config.put.outside", object{"anything": "at all"})
	s.becomes("twin-one", wadm.Deployed)
	s.deploy(app("twin_one"))
	s.becomes("twin_one", wadm.Deployed)
	require.Equal(s.t, 1, s.told()["config.put twin_one-settings"], "it is there already")

	s.undeploy("twin-one")
	s.eventually("one twin is gone", func() bool {
		return s.runs()["twin-one-the-api"] == 0 && s.count("SELECT count(*) FROM reconciliations WHERE lattice = 'configs'") == 1
	}, func() any { return s.runs() })
	_, there := s.l.Config("twin_one-settings")
	require.True(s.t, there, "the other one needs it")
	require.Equal(s.t, wadm.Deployed, s.status("twin_one").Status.Type)

	s.undeploy("twin_one")
	s.empties()
	_, there = s.l.Config("twin_one-settings")
	require.False(s.t, there, "nobody needs it any more")
	_, there = s.l.Config("outside")
	require.True(s.t, there, "it is somebody else's")
}

// command0 tells the lattice something that the product knows nothing of.
func (s *site) command0(subject string, body object) {
	s.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(s.t, err)
	_, err = s.nc.RequestWithContext(s.ctx(), "wasmbus.ctl.v1."+s.name+"."+subject, data)
	require.NoError(s.t, err)
}

func survivesClosedWorkflows(s *site) {
	h := s.host("h")
	s.deploy(shop("shop", "v1"))
	s.becomes("shop", wadm.Deployed)
	s.settles("shop")

	for _, closed := range []struct {
		how string
		do  func(id string)
	}{
		{"terminated", func(id string) { require.NoError(s.t, s.temporal.TerminateWorkflow(s.ctx(), id, "", "a test")) }},
		{"reset", s.reset},
		{"cancelled", func(id string) { require.NoError(s.t, s.temporal.CancelWorkflow(s.ctx(), id, "")) }},
	} {
		for _, app := range []string{"shop", ""} {
			s.l.Forget()
			s.isRunning(app)
			s.isRunning("")
			closed.do(s.workflowID(app))
			s.command(h, "component.scale", object{"component_id": "shop-web", "count": 0, "host_id": h.ID()})
			s.eventually("drift is repaired after "+s.workflowID(app)+" was "+closed.how, func() bool { return s.runs()["shop-web"] == 4 },
				func() any { return []any{s.told(), s.workflow(app).String()} })
			s.becomes("shop", wadm.Deployed)
			s.isRunning("shop")
			s.settles("shop")
			require.Equal(s.t, map[string]int{"component.scale shop-web": 2}, s.told(), "after %s was %s", s.workflowID(app), closed.how)
		}
	}

	s.isRunning("")
	require.NoError(s.t, s.temporal.TerminateWorkflow(s.ctx(), s.workflowID("shop"), "", "a test"))
	require.NoError(s.t, s.temporal.TerminateWorkflow(s.ctx(), s.workflowID(""), "", "a test"))
	s.undeploy("shop")
	s.empties()
}

// isRunning waits until an application's workflow, or the lattice's, runs and has
// done what it had to.
func (s *site) isRunning(app string) {
	s.t.Helper()
	s.eventually("workflow "+s.workflowID(app)+" runs", func() bool {
		desc, err := s.temporal.DescribeWorkflow(s.ctx(), s.workflowID(app), "")
		return err == nil && desc.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && desc.RawResponse.GetPendingWorkflowTask() == nil
	}, func() any { return s.workflow(app).String() })
}

func survivesHostileEvents(s *site) {
	const hosts = 3
	for i := range hosts {
		s.host(fmt.Sprintf("h%d", i))
	}
	attacker := s.connect()
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		attack(attacker, s.name, s.l.Hosts()[0].ID(), done)
	}()
	for i := range 5 {
		s.deploy(shop(fmt.Sprintf("shop%d", i), "v1"))
	}
	for i := range 5 {
		s.becomes(fmt.Sprintf("shop%d", i), wadm.Deployed)
	}
	close(done)
	<-ended
	for i := range 5 {
		app := fmt.Sprintf("shop%d", i)
		s.settles(app)
		s.becomes(app, wadm.Deployed)
		require.Equal(s.t, []int{4, 1}, []int{s.runs()[app+"-web"], s.runs()[app+"-http"]})
		require.Equal(s.t, []int{1, 1, 1}, []int{s.told()["provider.start "+app+"-http"], s.told()["link.put "+app+"-http"], s.told()["config.put "+app+"-listen"]})
		require.Equal(s.t, hosts, s.told()["component.scale "+app+"-web"])
	}
	var lattices api.LatticeList
	require.NoError(s.t, jsonOf(s.must("lattice", "list", "-o", "json"), &lattices))
	at := slices.IndexFunc(lattices.Lattices, func(l api.Lattice) bool { return l.Lattice == s.name })
	require.Equal(s.t, hosts, lattices.Lattices[at].Hosts, "no host is made up")
}

// attack publishes events that nobody should believe until done is closed.
func attack(nc *nats.Conn, lattice, host string, done <-chan struct{}) {
	event := func(kind, source string, data any) []byte {
		body, _ := json.Marshal(object{
			"specversion": "1.0", "id": fmt.Sprint(time.Now().UnixNano()), "type": "com.wasmcloud.lattice." + kind, "source": source,
			"time": time.Now().Format(time.RFC3339Nano), "datacontenttype": "application/json", "data": data,
		})
		return body
	}
	huge := strings.Repeat("x", 900<<10)
	deep := strings.Repeat(`[`, 100_000)
	messages := [][]byte{
		nil, []byte("garbage"), []byte("{"), []byte(`{"specversion":"1.0"}`), []byte(deep), []byte(huge),
		event("host_heartbeat", "Nnobody", object{"host_id": "Nnobody", "components": []object{}, "providers": []object{}, "labels": object{}}),
		event("host_started", "Nmadeup", object{"labels": object{}, "friendly_name": "made-up"}),
		event("host_stopped", "Nmadeup", object{"labels": object{}}),
		event("component_scaled", host, object{"host_id": host, "component_id": 7, "max_instances": -3}),
		event("component_scaled", host, object{"host_id": host, "component_id": "shop0-web", "max_instances": 0, "image_ref": huge[:1000], "annotations": nil}),
		event("provider_started", host, object{"host_id": "Nmadeup", "provider_id": "shop1-http", "annotations": object{}}),
		event("provider_stopped", host, object{"host_id": host, "provider_id": "shop1-http", "annotations": object{}, "reason": "none"}),
		event("linkdef_deleted", host, object{"source_id": "shop2-http", "name": "default", "wit_namespace": "wasi", "wit_package": "http"}),
		event("config_deleted", host, object{"config_name": "shop3-listen"}),
		event("component_scale_failed", host, object{"host_id": host, "component_id": "nobody", "error": huge[:100_000], "max_instances": 1}),
		event("unheard_of", host, object{"a": []any{1, nil}}),
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		subject := "wasmbus.evt." + lattice + ".component_scaled"
		if i%5 == 0 {
			subject = "wasmbus.evt." + lattice + ".a.b.c"
		}
		if nc.Publish(subject, messages[i%len(messages)]) != nil {
			return
		}
	}
}

// looksAgain: a host joins while the first look at an application, which has not
// seen it, is still being recorded.
func looksAgain(s *site) {
	s.deploy(manifest("first", "v1", component("web", webImage, instances(1))))
	s.eventually("the lattice is observed", func() bool {
		return s.count("SELECT count(*) FROM reconciliations WHERE lattice = '"+s.name+"'") == 1
	}, func() any { return s.status("first") })

	hold, err := s.in(s.t).db.Begin(s.ctx())
	require.NoError(s.t, err)
	_, err = hold.Exec(s.ctx(), "SELECT 1 FROM lattices WHERE lattice = $1 FOR UPDATE", s.name)
	require.NoError(s.t, err)
	blocked := func(statement string) func() bool {
		return func() bool {
			var n int
			require.NoError(s.t, s.db.QueryRow(s.ctx(),
				"SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE $1", statement).Scan(&n))
			return n > 0
		}
	}
	s.deploy(shop("shop", "v1"))
	s.eventually("the look is to be recorded", blocked("%FOR SHARE%"), func() any { return nil })
	s.host("h")
	s.eventually("the host is to be recorded", blocked("%UPDATE lattices%"), func() any { return nil })
	require.NoError(s.t, hold.Rollback(s.ctx()))
	s.becomes("shop", wadm.Deployed)
	s.becomes("first", wadm.Deployed)
	require.Equal(s.t, map[string]int{"shop-web": 4, "shop-http": 1, "first-web": 1}, s.runs())
}

// cleansUpWhatReturns: a host does not answer while what it runs is undeployed,
// and comes back.
func cleansUpWhatReturns(s *site) {
	away := s.host("away", "zone=east")
	s.deploy(manifest("shop", "v1", component("web", webImage, instances(4, on("east", "zone=east", 100)))))
	s.becomes("shop", wadm.Deployed)
	away.Freeze()
	s.host("here")
	s.until("shop", "without a host", func(got wadm.Status) bool { return got.Status.Reason == "no_eligible_host" })
	s.deploy(manifest("other", "v1", component("web", webImage, instances(1))))
	s.becomes("other", wadm.Deployed)
	s.undeploy("shop")
	s.eventually("the workflow of the application ends", func() bool {
		return s.workflow("shop") == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}, func() any { return s.workflow("shop").String() })
	require.Equal(s.t, 4, s.places()["away"]["shop-web"])

	s.l.Forget()
	away.Thaw()
	s.eventually("what came back is cleaned up", func() bool { return s.runs()["shop-web"] == 0 }, func() any { return s.places() })
	require.Equal(s.t, 1, s.told()["component.scale shop-web"])
	s.eventually("and forgotten", func() bool {
		return s.count("SELECT count(*) FROM reconciliations WHERE lattice = '"+s.name+"'") == 1
	}, func() any { return s.told() })
	require.Equal(s.t, map[string]int{"other-web": 1}, s.runs())
}
