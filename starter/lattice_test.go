package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/lattice"
)

func TestLatticeList(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectLatticeList, always(api.LatticeList{Now: since.Add(time.Minute), Lattices: []api.Lattice{
		{Account: "default", Lattice: "prod", Observer: "engine-a", Epoch: 3, TakenAt: since, ObservedSince: &since, Hosts: 2, CheckedAt: &since, Applications: 5},
		{Account: "ACME", Lattice: "prod", Observer: "engine-b", Epoch: 1, TakenAt: since},
	}}))
	require.Equal(t, outcome{0, `LATTICE    HOSTS  APPLICATIONS  FIRST HOST            OBSERVER  OBSERVED SINCE        CHECKED
prod       2      5             12:19:05Z (60 s ago)  engine-a  12:19:05Z (60 s ago)  60 s ago
ACME/prod  0      0             -                     engine-b  12:19:05Z (60 s ago)  -
`, ""}, b.run("lattice", "list"))
	require.Equal(t, outcome{0, `now: "2026-11-30T12:20:05Z"
lattices:
  - account: default
    lattice: prod
    observer: engine-a
    epoch: 3
    takenAt: "2026-11-30T12:19:05Z"
    observedSince: "2026-11-30T12:19:05Z"
    hosts: 2
    checkedAt: "2026-11-30T12:19:05Z"
    applications: 5
  - account: ACME
    lattice: prod
    observer: engine-b
    epoch: 1
    takenAt: "2026-11-30T12:19:05Z"
    hosts: 0
    applications: 0
`, ""}, b.run("lattice", "list", "-o", "yaml"))
	require.Equal(t, []string{`{}`, `{}`}, b.requests(api.SubjectLatticeList))
}

func TestNoLattices(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectLatticeList, always(api.LatticeList{Now: since, Lattices: []api.Lattice{}}))
	require.Equal(t, outcome{0, "no lattice has been observed\n", ""}, b.run("lattice", "list"))
	require.Equal(t, outcome{0, "{\n  \"now\": \"2026-11-30T12:19:05Z\",\n  \"lattices\": []\n}\n", ""}, b.run("lattice", "list", "-o", "json"))
	require.Equal(t, 2, b.run("lattice", "list", "prod").code)
}

// waitingApp is a wait of an application for a host.
func waitingApp(account, lattice, application string) api.Wait {
	return api.Wait{
		Kind: "lattice", Code: "no_eligible_host", Reason: "no host has the label gpu", Since: since,
		Account: account, Lattice: lattice, Application: application, WorkflowID: api.AppWorkflowID(account, lattice, application),
	}
}

func TestLatticeShow(t *testing.T) {
	b := newBus(t)
	detail := func(account, name string) api.LatticeDetail {
		return api.LatticeDetail{
			Now: since.Add(time.Minute), Account: account, Lattice: name, Observer: "engine-a", Epoch: 3, Since: since,
			Stats: lattice.Stats{Events: 7, Hosts: 1},
			Hosts: []lattice.Host{{
				ID: "NAAA", Name: "calm-sea-1", Version: "1.7.0", Uptime: time.Hour, Labels: map[string]string{"zone": "b"},
				LastSeen: since.Add(50 * time.Second), LeaseEnd: since.Add(90 * time.Second), Providers: []lattice.Entry{},
				Components: []lattice.Entry{{ID: "hello", Count: 4, Image: "registry.example.com/hello:1"}},
			}},
		}
	}
	for _, l := range []struct{ account, name string }{{"default", "prod"}, {"default", "default"}, {"ACME", "prod"}} {
		b.answer(api.SubjectLattice(l.account, l.name), always(detail(l.account, l.name)))
	}
	asked := 0
	b.answer(api.SubjectWaitList, func() any {
		asked++
		w := waitingApp("default", "prod", "shop")
		if asked == 2 {
			w = waitingApp("ACME", "prod", "mail")
		}
		return api.WaitList{Now: since.Add(time.Minute), Waits: []api.Wait{w}}
	})
	const host = `   1 host alive
  observer engine-a, epoch 3, since 12:19:05Z (60 s ago)

host NAAA   calm-sea-1   version 1.7.0, up 60 min, seen 10 s ago
  labels  zone=b
KIND       ID     INSTANCES  APPLICATION  HEALTH  IMAGE
component  hello  4          -            -       registry.example.com/hello:1

`
	require.Equal(t, outcome{0, "lattice prod" + host +
		"WHO        KIND     CODE              SINCE      WAITED          NEXT LOOK            PLACE  REASON\n" +
		"prod/shop  lattice  no_eligible_host  12:19:05Z  60 s, no bound  when a host appears  -      no host has the label gpu\n" + `
about no_eligible_host
  you can start a host in the lattice that suits
          try now: tidewait app nudge shop --lattice prod
          see each part of it: tidewait app status shop --lattice prod
          give up: tidewait app undeploy shop --lattice prod
`, ""},
		b.run("lattice", "show", "prod"))
	require.Equal(t, outcome{0, "lattice ACME/prod" + host +
		"WHO             KIND     CODE              SINCE      WAITED          NEXT LOOK            PLACE  REASON\n" +
		"ACME/prod/mail  lattice  no_eligible_host  12:19:05Z  60 s, no bound  when a host appears  -      no host has the label gpu\n" + `
about no_eligible_host
  you can start a host in the lattice that suits
          try now: tidewait app nudge mail --lattice prod --account ACME
          see each part of it: tidewait app status mail --lattice prod --account ACME
          give up: tidewait app undeploy mail --lattice prod --account ACME
`, ""},
		b.run("lattice", "show", "prod", "--account", "ACME"))
	require.Equal(t, b.run("lattice", "show", "default"), b.run("lattice", "show"), "the setting's lattice")
	require.Equal(t, []string{`{"account":"default","lattice":"prod"}`, `{"account":"ACME","lattice":"prod"}`}, b.requests(api.SubjectWaitList)[:2])
	require.Equal(t, outcome{0, `now: "2026-11-30T12:20:05Z"
account: default
lattice: prod
observer: engine-a
epoch: 3
since: "2026-11-30T12:19:05Z"
hosts:
  - id: NAAA
    name: calm-sea-1
    labels:
      zone: b
    version: 1.7.0
    uptime: 3600000000000
    lastSeen: "2026-11-30T12:19:55Z"
    leaseEnd: "2026-11-30T12:20:35Z"
    components:
      - id: hello
        image: registry.example.com/hello:1
        count: 4
    providers: []
stats:
  events: 7
  duplicates: 0
  unknown: 0
  unreadable: 0
  dropped: 0
  foreign: 0
  strangers: 0
  inventories: 0
  unanswered: 0
  resyncs: 0
  hosts: 1
waits:
  - kind: lattice
    code: no_eligible_host
    reason: no host has the label gpu
    account: default
    lattice: prod
    application: shop
    workflowId: app.default.prod.shop
    since: "2026-11-30T12:19:05Z"
    nextLook: when a host appears
    youCan:
      - what: start a host in the lattice that suits
      - what: see which hosts there are, and what they run
        command: tidewait lattice show prod
      - what: try now
        command: tidewait app nudge shop --lattice prod
      - what: see each part of it
        command: tidewait app status shop --lattice prod
      - what: give up
        command: tidewait app undeploy shop --lattice prod
`, ""}, b.run("lattice", "show", "prod", "-o", "yaml"))
}

func TestLatticeThatNobodyObserves(t *testing.T) {
	b := newBus(t)
	require.Equal(t, outcome{5, "", "tidewait: no engine that observes lattice prod answers on " + b.url +
		"; a lattice is observed while something is deployed there: see `tidewait lattice list` and `tidewait waits --lattice prod`\n"},
		b.run("lattice", "show", "prod"))
	for _, bad := range []string{"a.b", "a b", "*", ">", ""} {
		require.Equal(t, outcome{2, "", fmt.Sprintf("tidewait: %q is not the name of a lattice: it is one token of a NATS subject, such as default\n", bad)},
			b.run("lattice", "show", bad))
	}
	require.Equal(t, outcome{2, "", "tidewait: \"a.b\" is not the name of an account: it is one token of a NATS subject, such as default\n"},
		b.run("lattice", "show", "prod", "--account", "a.b"))
}

func TestWaitsOfALatticeAndAnApplication(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectWaitList, always(api.WaitList{Now: since.Add(time.Minute), Waits: []api.Wait{waitingApp("default", "prod", "shop")}}))
	require.Equal(t, outcome{0, `WHO        KIND     CODE              SINCE      WAITED          NEXT LOOK            PLACE  REASON
prod/shop  lattice  no_eligible_host  12:19:05Z  60 s, no bound  when a host appears  -      no host has the label gpu
`, ""}, b.run("waits", "--lattice", "prod"))
	b.run("waits", "--app", "shop", "--kind", "backoff")
	b.run("waits", "--app", "shop", "--lattice", "prod", "--kind", "dependency", "--code", "config_missing")
	require.Equal(t, []string{
		`{"lattice":"prod"}`, `{"kind":"backoff","application":"shop"}`,
		`{"kind":"dependency","code":"config_missing","lattice":"prod","application":"shop"}`,
	}, b.requests(api.SubjectWaitList))
	for _, bad := range []struct{ args, why string }{
		{"--kind host", `"host" is no kind of wait; there are capacity, node, gateway, hold, observer, lattice, backoff, dependency`},
		{"--code full", `"full" is no code of a wait; there are capacity_cpu, capacity_memory, capacity_disk, capacity_slots, capacity_fragmented, ` +
			`behind_in_queue, held_for_head, starting_limit, nodes_draining, nodes_lost, no_nodes_registered, not_evaluated, placer_unavailable, ` +
			`node_silent, gateway_unreachable, results_bucket_full, awaiting_release, observer_absent, never_observed, no_live_hosts, no_eligible_host, ` +
			`not_enough_hosts, hosts_taken, command_failed, command_refused, command_timed_out, config_missing, secret_missing, ` +
			`shared_application_missing, link_conflict`},
		{"--kind gateway --code capacity_cpu", "capacity_cpu is no code of waits of kind gateway; those are gateway_unreachable, results_bucket_full"},
		{"--mission m --lattice prod", "nothing has both a mission and a lattice: missions run on nodes, applications in lattices"},
		{"--older-than -1m", "an age of -1m0s is negative; give one such as 10m"},
	} {
		require.Equal(t, outcome{2, "", "tidewait: " + bad.why + "\n"}, b.run(append([]string{"waits"}, strings.Fields(bad.args)...)...))
	}
}

func TestWatchedStatusPrintsChanges(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	ctx, cancel := context.WithCancel(context.Background())
	const asked = "wadm.api.default.model.status.shop"
	failed := `{"type":"failed","message":"no such image","reason":"fetch_failed","attempt":1}`
	b.replies(asked, status(waiting), status(failed), status(`{"type":"failed","message":"no such image","reason":"fetch_failed","attempt":2}`), status(`{"type":"deployed"}`))
	looks := 0
	_, err := b.conn.Subscribe(asked, func(*nats.Msg) {
		if looks++; looks == 5 {
			cancel()
		}
	})
	require.NoError(t, err)
	require.NoError(t, b.conn.Flush())

	got := tidewaitWith(ctx, "", "app", "status", "shop", "--watch", "--nats.url", b.url)

	require.Equal(t, outcome{130, got.out, "tidewait: interrupted\n"}, got)
	require.Equal(t, `shop is waiting: no host of lattice default has been observed yet
shop is failed: no such image
shop is deployed
`, unclocked(t, got.out))
}

// A program gets one shape, however it asks: the status, and beside it what the API
// of applications has no room for.
func TestAStatusForProgramsHasOneShape(t *testing.T) {
	t.Parallel()
	const (
		asked  = "wadm.api.default.model.status.shop"
		detail = `,"application":{"now":"2026-11-30T12:20:05Z","account":"default","lattice":"default","name":"shop",` +
			`"wait":{"kind":"lattice","code":"never_observed","reason":"why","lattice":"default","application":"shop","workflowId":"app.default.default.shop","since":"2026-11-30T12:19:05Z","nextLook":"when a host appears",` +
			`"youCan":[{"what":"start a host in the lattice that suits"},` +
			`{"what":"see which hosts there are, and what they run","command":"tidewait lattice show default"},` +
			`{"what":"try now","command":"tidewait app nudge shop --lattice default"},` +
			`{"what":"see each part of it","command":"tidewait app status shop --lattice default"},` +
			`{"what":"give up","command":"tidewait app undeploy shop --lattice default"}]}}}`
		whileWaiting = `{"result":"ok","message":"","status":{"status":` + waiting + `,"version":"","components":[]}` + detail
		whenDeployed = `{"result":"ok","message":"","status":{"status":{"type":"deployed"},"version":"","components":[]}` + detail
	)
	newLooks := func(t *testing.T, after int) (*bus, context.Context) {
		b := newBus(t)
		ctx, cancel := context.WithCancel(context.Background())
		b.replies(asked, status(waiting), status(waiting), status(`{"type":"deployed"}`))
		b.answer(api.SubjectAppShow, always(api.AppDetail{
			Now: since.Add(time.Minute), Account: "default", Lattice: "default", Name: "shop",
			Wait: &api.Wait{
				Kind: "lattice", Code: "never_observed", Reason: "why", Lattice: "default", Application: "shop",
				WorkflowID: "app.default.default.shop", Since: since,
			},
		}))
		looks := 0
		_, err := b.conn.Subscribe(asked, func(*nats.Msg) {
			if looks++; looks == after {
				cancel()
			}
		})
		require.NoError(t, err)
		require.NoError(t, b.conn.Flush())
		return b, ctx
	}
	compact := func(text string) string {
		var out bytes.Buffer
		require.NoError(t, json.Compact(&out, []byte(text)))
		return out.String()
	}
	b, ctx := newLooks(t, 0)
	got := tidewaitWith(ctx, "", "app", "status", "shop", "-o", "json", "--nats.url", b.url)
	require.Equal(t, outcome{0, whileWaiting, ""}, outcome{got.code, compact(got.out), got.errors})

	b, ctx = newLooks(t, 4)
	got = tidewaitWith(ctx, "", "app", "status", "shop", "--watch", "-o", "json", "--nats.url", b.url)
	require.Equal(t, outcome{130, whileWaiting + "\n" + whenDeployed + "\n", "tidewait: interrupted\n"}, got)

	b, ctx = newLooks(t, 0)
	got = tidewaitWith(ctx, "", "app", "status", "shop", "--follow", "-o", "json", "--nats.url", b.url)
	require.Equal(t, outcome{0, whenDeployed, got.errors}, outcome{got.code, compact(got.out), got.errors})
}

// With --account the tenant's subjects are asked, and it is in what is advised.
func TestStatusOfATenantsApplication(t *testing.T) {
	b := newBus(t)
	b.replies("ACME.wadm.api.prod.model.status.shop", status(`{"type":"failed","message":"no such image","reason":"command_failed"}`))
	b.answer(api.SubjectAppShow, always(api.AppDetail{}))
	got := b.run("app", "status", "shop", "--account", "ACME", "--lattice", "prod")
	require.Equal(t, outcome{0, "application shop in lattice prod   failed\n  why     command_failed: no such image\n", ""}, got)
	require.Equal(t, []string{`{"account":"ACME","lattice":"prod","name":"shop"}`}, b.requests(api.SubjectAppShow))
	require.Equal(t, outcome{1, "", "tidewait: application shop has failed: no such image; it is tried again: " +
		"see it with `tidewait app status shop --lattice prod --account ACME`\n"},
		outcome{1, "", b.run("app", "status", "shop", "--follow", "--account", "ACME", "--lattice", "prod", "-o", "json").lastError()})
	require.Equal(t, outcome{2, "", "tidewait: \"A.B\" is not the name of an account: it is one token of a NATS subject, such as ACME\n"},
		b.run("app", "status", "shop", "--account", "A.B"))
}

// lastError is the last line on standard error.
func (o outcome) lastError() string {
	lines := strings.SplitAfter(o.errors, "\n")
	return lines[max(0, len(lines)-2)]
}

func TestWatchedStatusOfWhatIsNotThere(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.status.nope", `{"result":"notfound","message":"no application called nope","status":null}`)
	require.Equal(t, outcome{1, "", "tidewait: no application called nope\n"}, b.run("app", "status", "nope", "--watch"))
}

func TestNudge(t *testing.T) {
	t.Parallel()
	stack := devstacktest.Start(t, devstack.Temporal)
	temporal, err := client.DialContext(t.Context(), client.Options{HostPort: stack.TemporalAddress, Namespace: devstack.Namespace})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	for _, id := range []string{"app.default.east.shop", "app.ACME.default.shop"} {
		_, err := temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: api.TaskQueue}, api.AppWorkflow)
		require.NoError(t, err)
	}
	nudge := func(args ...string) outcome {
		return tidewait(append(append([]string{"app", "nudge"}, args...), "--temporal.address", stack.TemporalAddress)...)
	}

	require.Equal(t, outcome{0, "application shop in lattice east is tried again now\n", ""}, nudge("shop", "--lattice", "east", "--actor", "bob"))
	require.Equal(t, outcome{0, `{
  "workflowId": "app.ACME.default.shop",
  "signal": "nudge",
  "argument": {
    "actor": "carl"
  }
}
`, ""}, nudge("shop", "--account", "ACME", "--actor", "carl", "-o", "json"))
	require.Equal(t, []string{"nudge bob"}, nudges(t, temporal, "app.default.east.shop"))
	require.Equal(t, []string{"nudge carl"}, nudges(t, temporal, "app.ACME.default.shop"))

	require.Equal(t, outcome{1, "", "tidewait: application shop in lattice default is not running: Temporal has no open workflow app.default.default.shop; look with `tidewait app status shop`\n"},
		nudge("shop"))
	require.Equal(t, outcome{2, "", "tidewait: \"a.b\" is not the name of an application: it has letters, digits, - and _ only\n"}, nudge("a.b"))
	require.Equal(t, 2, nudge().code)
}

// nudges lists the signals of a workflow and who sent them.
func nudges(t *testing.T, temporal client.Client, workflow string) (list []string) {
	events := temporal.GetWorkflowHistory(t.Context(), workflow, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		if s := event.GetWorkflowExecutionSignaledEventAttributes(); s != nil {
			var n api.Nudge
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(s.GetInput(), &n))
			list = append(list, s.GetSignalName()+" "+n.Actor)
		}
	}
	return list
}

func TestNudgeWithoutTemporal(t *testing.T) {
	address := closedPort(t)
	require.Equal(t, outcome{
		5, "", "tidewait: cannot reach Temporal at " + address + ": dial tcp " + address +
			": connect: connection refused; start the stack with `tidewait dev`, or set temporal.address\n",
	}, tidewait("app", "nudge", "shop", "--temporal.address", address))
}

func TestCompletionOffersApplicationsToNudge(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.get", list(summary("a", "v1", `null`, `{"type":"undeployed"}`)))
	t.Setenv("TIDEWAIT_NATS_URL", b.url)
	require.Equal(t, "a\n:4\n", tidewait("__complete", "app", "nudge", "").out)
}
