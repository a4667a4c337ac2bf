package scaler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// engine is what carries plans out and remembers what has to be remembered.
type engine struct {
	*lattice
	desired []scaler.Scaler
	others  scaler.Resources
	wired   map[string][]scaler.Link
	owned   scaler.Resources
	backoff scaler.Backoff
	rows    []wadm.ScalerStatus
	now     time.Time
}

func newEngine(m oam.Manifest) *engine {
	return &engine{lattice: newLattice("shop-front"), desired: scaler.List(m), now: noon}
}

func (e *engine) input() scaler.Input {
	return scaler.Input{
		App: "shop-front", Lattice: "east", Desired: e.desired, Owned: e.owned, Others: e.others, Wired: e.wired,
		State: e.state(), Backoff: e.backoff, Previous: e.rows, Now: e.now,
	}
}

func (e *engine) plan() scaler.Outcome {
	o := scaler.Plan(e.input())
	e.owned, e.backoff, e.rows = o.Owned, o.Backoff, o.Rows
	return o
}

// round plans once and carries everything out.
func (e *engine) round(t require.TestingT) scaler.Outcome {
	o := e.plan()
	for _, b := range o.Batches {
		for _, c := range b.Commands {
			require.Equal(t, b.Host, c.Host)
			if failure := e.carryOut(t, c); failure != "" {
				e.backoff = e.backoff.Failed(c.Key, scaler.CodeCommandFailed, failure, e.now, 0.5)
			}
		}
	}
	return o
}

// settle plans and carries out until nothing is left to do.
func (e *engine) settle(t require.TestingT) scaler.Outcome {
	for range mostRounds {
		if o := e.round(t); len(o.Batches) == 0 {
			return o
		}
	}
	require.Failf(t, "no end", "after %d rounds: %v\n%+v", mostRounds, e.picture(), e.plan())
	return scaler.Outcome{}
}

// mostRounds is enough for: configurations and stops, starts and links, the
// deletion of a link and of configurations, and seeing that nothing is left.
const mostRounds = 8

func zone(name string) map[string]string { return map[string]string{"zone": name} }

func in(zoneName string, weight int) oam.SpreadTarget {
	return oam.SpreadTarget{Name: zoneName, Requirements: zone(zoneName), Weight: &weight}
}

func typesOf(rows []wadm.ScalerStatus) []wadm.StatusType {
	var all []wadm.StatusType
	for _, r := range rows {
		all = append(all, r.Status.Type)
	}
	return all
}

func TestDeployIntoAnEmptyLatticeWaits(t *testing.T) {
	e := newEngine(shop(provider("web", linkTo("api")), component("api", spread(3))))
	o := e.settle(t)
	require.Equal(t, []wadm.StatusType{"waiting", "waiting", "waiting"}, typesOf(o.Rows))
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Waiting, Reason: "no_live_hosts", Since: &noon,
		Message: "no host of lattice east is alive; nothing is started until one appears",
	}, o.Status().Status)
	require.True(t, o.Settled)

	e.join("n1", nil)
	e.now = noon.Add(time.Minute)
	o = e.round(t)
	require.Equal(t, wadm.Reconciling, o.Status().Status.Type)
	require.Equal(t, "putting the link, starting on 1 host", o.Status().Status.Message)
	o = e.settle(t)
	require.Equal(t, wadm.NewStatus(wadm.StatusInfo{Type: wadm.Deployed}, o.Rows), o.Status())
	require.Equal(t, []string{"n1: shop_front-api 3 default", "n1: shop_front-web 1 default"}, e.picture())

	e.leave("n1")
	e.now = noon.Add(time.Hour)
	o = e.settle(t)
	require.Equal(t, wadm.Waiting, o.Status().Status.Type)
	require.Equal(t, noon.Add(time.Hour), *o.Status().Status.Since)
	e.now = noon.Add(2 * time.Hour)
	require.Equal(t, noon.Add(time.Hour), *e.plan().Status().Status.Since, "a wait keeps its time")
}

// A wait goes on over a deployment: what is deployed has other rows then, and
// none of them has waited yet.
func TestAWaitGoesOnOverADeployment(t *testing.T) {
	waiting := func(waited map[string]time.Time, previous ...wadm.ScalerStatus) []time.Time {
		e := newEngine(shop(component("api", spread(1, in("eu", 100))), component("job", spread(1, in("eu", 100)))))
		e.join("n1", zone("us"))
		input := e.input()
		input.Waited, input.Previous = waited, previous
		var since []time.Time
		for _, row := range scaler.Plan(input).Rows {
			require.Equal(t, "no_eligible_host", row.Status.Reason)
			since = append(since, *row.Status.Since)
		}
		return since
	}
	before := noon.Add(-time.Hour)
	require.Equal(t, []time.Time{noon, noon}, waiting(nil))
	require.Equal(t, []time.Time{before, before}, waiting(map[string]time.Time{"no_eligible_host": before}))
	require.Equal(t, []time.Time{noon, noon}, waiting(map[string]time.Time{"no_live_hosts": before}), "that was another wait")
	require.Equal(t, []time.Time{noon, noon}, waiting(map[string]time.Time{"no_eligible_host": before}, wadm.ScalerStatus{
		ID: "of the same deployment", Status: wadm.StatusInfo{Type: wadm.Waiting, Reason: "no_eligible_host", Since: &before},
	}), "one that waits does not make another wait for as long")
}

func TestCommandsAreComplete(t *testing.T) {
	m := shop(component("api", spread(4, in("eu", 100))), provider("web"))
	m.Spec.Components[0].Properties.Config = []oam.Config{{Name: "api-settings", Properties: map[string]string{"a": "b"}}}
	e := newEngine(m)
	e.join("n1", zone("eu"))

	api, web := e.desired[0], e.desired[1]
	o := e.round(t)
	start := scaler.Batch{Host: "n1", Commands: []scaler.Command{{
		Key: scaler.Key{Subject: web.ID, Host: "n1"}, Action: scaler.StartProvider, ID: "shop_front-web", Image: webImage, Count: 1,
		Annotations: map[string]string{
			"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "shop-front",
			"wasmcloud.dev/scaler":      "54f1d23deab94278d82d64178ccb1f82827becc1004150a91ab977cf22d9f3cc",
			"wasmcloud.dev/spread_name": "default",
		},
	}}}
	require.Equal(t, []scaler.Batch{
		{Commands: []scaler.Command{{
			Key: scaler.Key{Subject: "shop_front-api_settings"}, Action: scaler.PutConfig,
			ID: "shop_front-api_settings", Values: map[string]string{"a": "b"},
		}}},
		start,
	}, o.Batches)

	o = e.round(t)
	require.Equal(t, []scaler.Batch{{Host: "n1", Commands: []scaler.Command{{
		Key: scaler.Key{Subject: api.ID, Host: "n1"}, Action: scaler.Scale, ID: "shop_front-api", Image: apiImage, Count: 4,
		Config: []string{"shop_front-api_settings"},
		Annotations: map[string]string{
			"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "shop-front",
			"wasmcloud.dev/scaler": api.ID, "wasmcloud.dev/spread_name": "eu",
		},
	}}}}, o.Batches)
}

func TestPlacement(t *testing.T) {
	any := func(name string, weight int) oam.SpreadTarget { return oam.SpreadTarget{Name: name, Weight: &weight} }
	for _, c := range []struct {
		about string
		from  oam.Manifest
		hosts map[string]map[string]string
		want  []string
	}{
		{
			"distributed", shop(component("api", spread(7))),
			map[string]map[string]string{"n1": nil, "n2": nil, "n3": nil},
			[]string{"n1: shop_front-api 2 default", "n2: shop_front-api 3 default", "n3: shop_front-api 2 default"},
		},
		{
			"103 over three zones", shop(component("api", spread(103, in("a", 42), in("b", 3), in("c", 37)))),
			map[string]map[string]string{"n1": zone("a"), "n2": zone("b"), "n3": zone("c")},
			[]string{"n1: shop_front-api 53 a", "n2: shop_front-api 3 b", "n3: shop_front-api 47 c"},
		},
		{
			"a wide spread leaves narrow ones their hosts", shop(component("api", spread(12, in("east", 25), in("west", 25), any("all", 50)))),
			map[string]map[string]string{"n1": zone("east"), "n2": zone("west"), "n3": nil, "n4": nil},
			[]string{"n1: shop_front-api 3 east", "n2: shop_front-api 3 west", "n3: shop_front-api 3 all", "n4: shop_front-api 3 all"},
		},
		{
			"a daemon on every host, for the first spread that it suits",
			shop(component("api", daemon(2, in("east", 1), any("all", 1), in("west", 1)))),
			map[string]map[string]string{"n1": zone("east"), "n2": zone("west")},
			[]string{"n1: shop_front-api 2 east", "n2: shop_front-api 2 all"},
		},
		{
			"a provider daemon, whatever the number", shop(provider("web", daemon(13, in("east", 1)))),
			map[string]map[string]string{"n1": zone("east"), "n2": zone("west"), "n3": zone("east")},
			[]string{"n1: shop_front-web 1 east", "n3: shop_front-web 1 east"},
		},
		{
			"a provider daemon of none", shop(provider("web", daemon(0))),
			map[string]map[string]string{"n1": nil},
			nil,
		},
		{
			"a provider once on a host", shop(provider("web", spread(2, in("east", 1), any("all", 1)))),
			map[string]map[string]string{"n1": zone("east"), "n2": nil},
			[]string{"n1: shop_front-web 1 east", "n2: shop_front-web 1 all"},
		},
		{
			"spreads of one name are one", shop(component("api", spread(4,
				oam.SpreadTarget{Name: "x", Requirements: zone("a")}, oam.SpreadTarget{Name: "x", Requirements: zone("b")}))),
			map[string]map[string]string{"n1": zone("a"), "n2": zone("b"), "n3": zone("c")},
			[]string{"n1: shop_front-api 2 x", "n2: shop_front-api 2 x"},
		},
		{
			"more than can be counted one by one", shop(component("api", spread(1<<50))),
			map[string]map[string]string{"n1": nil, "n2": nil},
			[]string{"n1: shop_front-api 562949953421312 default", "n2: shop_front-api 562949953421312 default"},
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			e := newEngine(c.from)
			for id, labels := range c.hosts {
				e.join(id, labels)
			}
			o := e.settle(t)
			require.Equal(t, c.want, e.picture())
			require.Equal(t, wadm.Deployed, o.Status().Status.Type, o.Status().Status.Message)
			require.Len(t, e.log, len(c.want), "more commands than places")
		})
	}
}

func TestScalingChangesWhatMustChange(t *testing.T) {
	e := newEngine(shop(component("api", spread(6))))
	for _, id := range []string{"n1", "n2", "n3"} {
		e.join(id, nil)
	}
	e.settle(t)

	e.log = nil
	e.desired = scaler.List(shop(component("api", spread(7))))
	e.settle(t)
	require.Len(t, e.log, 1)

	e.log = nil
	e.join("n4", nil)
	e.settle(t)
	require.Empty(t, e.log, "what runs is moved")

	e.desired = scaler.List(shop(component("api", spread(9))))
	e.settle(t)
	require.Len(t, e.log, 1, "what is missing goes where there is least")
	require.Equal(t, "n4", e.log[0].Host)
	require.Equal(t, 2, e.log[0].Count)

	e.log = nil
	e.desired = scaler.List(shop(component("api", spread(8))))
	e.settle(t)
	require.Len(t, e.log, 1)
	require.Equal(t, 2, e.log[0].Count, "what is too much goes from where there is most")
}

func TestForeignInstancesAreLeftAlone(t *testing.T) {
	e := newEngine(shop(component("api", spread(2)), provider("web", spread(3))))
	e.join("n1", nil).Components = []scaler.Instances{foreign("shop_front-api", nil)}
	e.join("n2", nil).Components = []scaler.Instances{foreign("shop_front-api", map[string]string{
		"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "another",
	})}
	e.hosts["n2"].Providers = []scaler.Instances{{ID: "shop_front-web", Image: "other", Count: 1}}

	o := e.settle(t)
	require.Equal(t, []string{
		"n1: shop_front-api 2 foreign", "n1: shop_front-web 1 default",
		"n2: shop_front-api 2 foreign", "n2: shop_front-web 1 foreign",
	}, e.picture())
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "hosts_taken", Since: &noon,
		Message: "spread default of shop_front-api: 0 of 2 instances, for other spreads or other instances of that id have taken its 2 hosts",
	}, o.Rows[0].Status)
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "not_enough_hosts", Since: &noon,
		Message: "spread default of shop_front-web: 2 of 3 instances, for it runs at most once on each of 2 hosts",
	}, o.Rows[1].Status)

	e.join("n3", nil)
	o = e.settle(t)
	require.Equal(t, wadm.Deployed, o.Status().Status.Type)
	require.Equal(t, []string{
		"n1: shop_front-api 2 foreign", "n1: shop_front-web 1 default",
		"n2: shop_front-api 2 foreign", "n2: shop_front-web 1 foreign",
		"n3: shop_front-api 2 default", "n3: shop_front-web 1 default",
	}, e.picture())
}

func TestForeignProvidersServe(t *testing.T) {
	for _, c := range []struct{ foreign, own, want int }{{1, 0, 2}, {2, 0, 2}, {3, 0, 2}, {1, 2, 2}, {0, 3, 2}} {
		t.Run(fmt.Sprintf("%d foreign and %d own of %d", c.foreign, c.own, c.want), func(t *testing.T) {
			e := newEngine(shop(provider("web", spread(c.own))))
			for i := range 4 {
				e.join(fmt.Sprintf("n%d", i), nil)
			}
			e.settle(t)
			for i, placed := 0, 0; placed < c.foreign; i++ {
				if h := e.hosts[fmt.Sprintf("n%d", i)]; len(h.Providers) == 0 {
					h.Providers = []scaler.Instances{foreign("shop_front-web", nil)}
					placed++
				}
			}
			e.desired = scaler.List(shop(provider("web", spread(c.want))))
			o := e.settle(t)
			require.Equal(t, wadm.Deployed, o.Status().Status.Type)
			require.Len(t, e.picture(), max(c.foreign, c.want))
		})
	}
}

func TestSatisfiableSpreadsProceed(t *testing.T) {
	e := newEngine(shop(component("api", spread(10, in("eu", 60), in("mars", 40)))))
	e.join("n1", zone("eu"))
	e.join("n2", zone("us"))
	o := e.settle(t)
	require.Equal(t, []string{"n1: shop_front-api 6 eu"}, e.picture())
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Waiting, Reason: "no_eligible_host", Since: &noon,
		Message: "spread mars of shop_front-api: of 2 hosts alive, none has labels zone=mars",
	}, o.Rows[0].Status)
	require.True(t, o.Settled)
}

func TestChangedLabelsMoveInstances(t *testing.T) {
	e := newEngine(shop(component("api", spread(2, in("eu", 1)))))
	e.join("n1", zone("eu"))
	e.settle(t)
	e.hosts["n1"].Labels = zone("us")
	e.join("n2", zone("eu"))
	e.settle(t)
	require.Equal(t, []string{"n2: shop_front-api 2 eu"}, e.picture())
}

func TestNewImageStopsFirst(t *testing.T) {
	e := newEngine(shop(component("api", spread(2)), provider("web")))
	e.join("n1", nil)
	e.settle(t)

	next := shop(component("api", spread(2)), provider("web"))
	next.Spec.Components[0].Properties.Image = "registry.example.com/shop/api:2.0.0"
	next.Spec.Components[1].Properties.Image = "registry.example.com/providers/http:1.0.0"
	e.desired, e.log = scaler.List(next), nil
	o := e.round(t)
	require.Equal(t, []wadm.StatusType{"reconciling", "reconciling"}, typesOf(o.Rows))
	require.Empty(t, e.picture())
	o = e.settle(t)
	require.Equal(t, wadm.Deployed, o.Status().Status.Type)
	require.Equal(t, []string{"n1: shop_front-api 2 default", "n1: shop_front-web 1 default"}, e.picture())
	require.Len(t, e.log, 4)
	require.Equal(t, apiImage, e.log[1].Image, "what is stopped is named as it runs")
	require.Equal(t, "registry.example.com/shop/api:2.0.0", e.log[2].Image)
}

func TestOldInstancesStayUntilNewOnesCanStart(t *testing.T) {
	e := newEngine(shop(component("api", spread(2))))
	e.join("n1", nil)
	e.settle(t)
	next := shop(component("api", spread(2)))
	next.Spec.Components[0].Properties.Config = []oam.Config{{Name: "theirs"}}
	e.desired, e.log = scaler.List(next), nil
	o := e.settle(t)
	require.Empty(t, e.log)
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Waiting, Reason: "config_missing", Since: &noon,
		Message: "configuration theirs does not exist in the lattice and is not the application's to make",
	}, o.Rows[0].Status)

	e.configs["theirs"] = map[string]string{}
	o = e.settle(t)
	require.Equal(t, wadm.Deployed, o.Status().Status.Type)
	require.Len(t, e.log, 2)
}

func TestUpdateDeletesWhatIsNoLongerNeeded(t *testing.T) {
	settings := oam.Config{Name: "settings", Properties: map[string]string{"a": "1"}}
	old := oam.Config{Name: "old", Properties: map[string]string{}}
	first := shop(component("api", spread(1)), component("gone", spread(1), linkTo("api")))
	first.Spec.Components[0].Properties.Config = []oam.Config{settings, old}
	first.Spec.Components[1].Properties.Config = []oam.Config{settings}
	e := newEngine(first)
	e.join("n1", nil)
	e.settle(t)
	require.Len(t, e.links, 1)
	require.Len(t, e.configs, 2)

	second := shop(component("api", spread(1)))
	second.Spec.Components[0].Properties.Config = []oam.Config{settings}
	e.desired, e.log = scaler.List(second), nil
	o := e.settle(t)
	require.Equal(t, wadm.Deployed, o.Status().Status.Type)
	require.Equal(t, []string{"n1: shop_front-api 1 default"}, e.picture())
	require.Empty(t, e.links)
	require.Equal(t, map[string]map[string]string{"shop_front-settings": {"a": "1"}}, e.configs)
	require.Equal(t, scaler.Resources{Configs: []string{"shop_front-settings"}}, e.owned)
	for _, c := range e.log {
		require.NotEqual(t, "shop_front-settings", c.ID, "what stays needed is touched")
	}
}

func TestUndeployCleansUpEverythingOwned(t *testing.T) {
	m := shop(provider("web", linkTo("api")), component("api", spread(3), daemon(1)))
	m.Spec.Components[1].Properties.Config = []oam.Config{{Name: "settings", Properties: map[string]string{}}, {Name: "theirs"}}
	e := newEngine(m)
	e.configs["theirs"] = map[string]string{"kept": "yes"}
	e.join("n1", zone("eu")).Components = []scaler.Instances{foreign("other", nil)}
	e.join("n2", nil)
	e.settle(t)
	require.NotEmpty(t, e.links)

	e.desired = nil
	o := e.settle(t)
	require.Equal(t, wadm.NotDeployed(), o.Status())
	require.Equal(t, []string{"n1: other 2 foreign"}, e.picture())
	require.Empty(t, e.links)
	require.Equal(t, map[string]map[string]string{"theirs": {"kept": "yes"}}, e.configs)
	require.True(t, o.Owned.Empty())
	require.True(t, o.Settled)
}

func TestWhatOthersUseIsNotDeleted(t *testing.T) {
	m := shop(component("api", spread(1), linkTo("api")))
	m.Spec.Components[0].Properties.Config = []oam.Config{{Name: "settings", Properties: map[string]string{}}}
	e := newEngine(m)
	e.join("n1", nil)
	e.settle(t)
	e.others, e.wired = scaler.Uses(e.desired), map[string][]scaler.Link{"other": scaler.Wires(e.desired)}
	e.desired, e.log = nil, nil
	e.settle(t)
	require.Len(t, e.log, 1, "only the instance is to go")
	require.Len(t, e.links, 1)
	require.Len(t, e.configs, 1)
	require.True(t, e.owned.Empty(), "what is another's is not owned")
}

func TestChangedConfigurationIsPutRight(t *testing.T) {
	m := shop(component("api", spread(1)))
	m.Spec.Components[0].Properties.Config = []oam.Config{{Name: "settings", Properties: map[string]string{"a": "1"}}}
	e := newEngine(m)
	e.join("n1", nil)
	e.settle(t)
	e.configs["shop_front-settings"] = map[string]string{"a": "2"}
	e.log = nil
	o := e.round(t)
	require.Equal(t, wadm.StatusInfo{Type: wadm.Reconciling, Message: "putting configuration shop_front-settings"}, o.Rows[0].Status)
	require.Len(t, e.log, 1)
	require.Equal(t, map[string]string{"a": "1"}, e.configs["shop_front-settings"])
}

func TestSecretsAreEqualWhenTheyMeanTheSame(t *testing.T) {
	m := shop(component("api", spread(1)))
	m.Spec.Policies = []oam.Policy{{Name: "vault", Properties: map[string]string{"backend": "b", "x": "1", "y": "2"}}}
	m.Spec.Components[0].Properties.Secrets = []oam.Secret{{Name: "s", Properties: oam.SecretProperties{Policy: "vault", Key: "k"}}}
	e := newEngine(m)
	e.join("n1", nil)
	e.configs["SECRET_shop_front-s"] = map[string]string{
		"name": "s", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "b", "key": "k",
		"policy": `{ "properties": {"y":"2", "x":"1"}, "type":"properties.secret.wasmcloud.dev/v1alpha1" }`,
	}
	e.settle(t)
	require.Len(t, e.log, 1, "only the start")

	e.configs["SECRET_shop_front-s"]["policy"] = "not JSON"
	e.settle(t)
	require.Len(t, e.log, 2)
	require.Equal(t, scaler.PutConfig, e.log[1].Action)
}

func TestLinksAreComparedInFull(t *testing.T) {
	m := shop(component("api", linkTo("api")))
	m.Spec.Components[0].Traits[0].Link.Interfaces = []string{"a", "b"}
	for about, change := range map[string]func(*scaler.Link){
		"interfaces":    func(l *scaler.Link) { l.Interfaces = []string{"a"} },
		"source config": func(l *scaler.Link) { l.SourceConfig = []string{"x"} },
		"target config": func(l *scaler.Link) { l.TargetConfig = []string{"x"} },
	} {
		t.Run(about, func(t *testing.T) {
			e := newEngine(m)
			e.join("n1", nil)
			e.settle(t)
			want := e.links[0]
			change(&e.links[0])
			o := e.settle(t)
			require.Equal(t, []scaler.Link{want}, e.links)
			require.Equal(t, wadm.Deployed, o.Rows[0].Status.Type)
		})
	}
	t.Run("the order of interfaces means nothing", func(t *testing.T) {
		e := newEngine(m)
		e.join("n1", nil)
		e.settle(t)
		e.links[0].Interfaces = []string{"b", "a"}
		require.Empty(t, e.plan().Batches)
	})
}

func TestLinksOfOneTupleAreOne(t *testing.T) {
	first, second := linkTo("api"), linkTo("api")
	second.Link.Interfaces = []string{"outgoing-handler"}
	e := newEngine(shop(component("api", first, second)))
	e.join("n1", nil)
	o := e.settle(t)
	require.Len(t, e.log, 1)
	require.Equal(t, []string{"incoming-handler", "outgoing-handler"}, e.links[0].Interfaces)
	require.Equal(t, []wadm.StatusType{"deployed", "deployed"}, typesOf(o.Rows))
}

func TestLinkMovesToAnotherTarget(t *testing.T) {
	e := newEngine(shop(component("a", linkTo("b")), component("b"), component("c")))
	e.join("n1", nil)
	e.settle(t)
	e.desired = scaler.List(shop(component("a", linkTo("c")), component("b"), component("c")))
	o := e.settle(t)
	require.Equal(t, wadm.Deployed, o.Rows[0].Status.Type)
	require.Len(t, e.links, 1)
	require.Equal(t, "shop_front-c", e.links[0].Target)
}

func TestSomebodyElsesLinkIsInTheWay(t *testing.T) {
	e := newEngine(shop(component("a", linkTo("b")), component("b")))
	e.join("n1", nil)
	e.links = []scaler.Link{{Source: "shop_front-a", Target: foreignSource, Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{"incoming-handler"}}}
	o := e.settle(t)
	require.Empty(t, e.log)
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "link_conflict", Since: &noon,
		Message: "link default of shop_front-a already leads wasi:http to somebody-else, and a host allows one",
	}, o.Rows[0].Status)
}

func TestUnhealthyProvider(t *testing.T) {
	e := newEngine(shop(provider("web")))
	e.join("n1", nil)
	e.settle(t)
	e.hosts["n1"].Providers[0].Unhealthy = true
	o := e.plan()
	require.Empty(t, o.Batches)
	require.Equal(t, wadm.StatusInfo{Type: wadm.Unhealthy, Message: "the provider is unhealthy on 1 host"}, o.Status().Status)
}

func TestFailuresAreShownAndBackOff(t *testing.T) {
	e := newEngine(shop(component("api", spread(1))))
	e.join("n1", nil)
	e.bad["n1"] = "manifest unknown"
	var tries []time.Duration
	for range 11 {
		before := len(e.log)
		e.round(t)
		require.Len(t, e.log, before+1)
		tries = append(tries, e.now.Sub(noon))
		o := e.round(t)
		require.Len(t, e.log, before+1, "tried too early")
		require.Equal(t, wadm.Failed, o.Status().Status.Type)
		require.Equal(t, fmt.Sprintf("manifest unknown (attempt %d, next attempt %s)", len(tries), o.Retry.Format(time.RFC3339)), o.Rows[0].Status.Message)
		require.Equal(t, len(tries), o.Rows[0].Status.Attempt)
		require.Equal(t, o.Retry, *o.Rows[0].Status.NextAttempt)
		require.Equal(t, noon, *o.Rows[0].Status.Since)
		require.Equal(t, "command_failed", o.Status().Status.Reason)
		require.False(t, o.Settled)
		e.now = o.Retry
	}
	seconds := func(n ...int) (all []time.Duration) {
		for _, s := range n {
			all = append(all, time.Duration(s)*time.Second)
		}
		return all
	}
	require.Equal(t, seconds(0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811), tries)

	delete(e.bad, "n1")
	o := e.round(t)
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "command_failed", Since: &noon, Attempt: 11, Message: "manifest unknown (attempt 11, trying again now)",
	}, o.Rows[0].Status)
	o = e.settle(t)
	require.Equal(t, wadm.Deployed, o.Status().Status.Type)
	require.Empty(t, e.backoff, "success forgets")
	require.True(t, o.Retry.IsZero())
}

func TestABadHostIsAvoidedInTheEnd(t *testing.T) {
	e := newEngine(shop(component("api", spread(1))))
	e.join("n1", nil)
	e.settle(t)
	favourite := "n1"
	e.join("n2", nil)
	e.hosts["n1"].Components = nil
	e.settle(t)
	if len(e.hosts["n2"].Components) > 0 {
		favourite = "n2"
	}
	e.hosts[favourite].Components, e.log = nil, nil
	e.bad[favourite] = "disk full"
	for range 10 {
		if o := e.round(t); o.Settled {
			break
		} else if !o.Retry.IsZero() {
			e.now = o.Retry
		}
	}
	require.Equal(t, wadm.Deployed, e.plan().Status().Status.Type)
	var where []string
	for _, c := range e.log {
		where = append(where, c.Host)
	}
	other := map[string]string{"n1": "n2", "n2": "n1"}[favourite]
	require.Equal(t, []string{favourite, favourite, favourite, other}, where)
}

func TestFailureOfCleaningUpIsTold(t *testing.T) {
	e := newEngine(shop(provider("web")))
	e.join("n1", nil)
	e.settle(t)
	e.desired = nil
	stop := e.plan().Batches[0].Commands[0]
	e.backoff = e.backoff.Failed(stop.Key, scaler.CodeCommandRefused, "the provider does not stop", e.now, 0.5)
	o := e.plan()
	require.Empty(t, o.Batches)
	require.Empty(t, o.Rows)
	require.Equal(t, wadm.Failed, o.Status().Status.Type)
	require.Equal(t, "the provider does not stop (attempt 1, next attempt 2026-03-04T12:00:01Z)", o.Status().Status.Message)
	require.Empty(t, o.Status().Scalers)
	require.Equal(t, noon.Add(time.Second), o.Retry)
}

func TestNamesAreAllThatAPlanAsksAbout(t *testing.T) {
	m := shop(component("api", spread(1)))
	m.Spec.Components[0].Properties.Config = []oam.Config{{Name: "settings", Properties: map[string]string{}}, {Name: "theirs"}}
	in := scaler.Input{Desired: scaler.List(m), Owned: scaler.Resources{Configs: []string{"gone", "shop_front-settings"}}}
	require.Equal(t, []string{"shop_front-settings", "theirs", "gone"}, in.Names())
}
