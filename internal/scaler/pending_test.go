package scaler_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// with plans while commands are on their way.
func (e *engine) with(pending ...scaler.Command) scaler.Outcome {
	return scaler.Plan(scaler.Input{
		App: "shop-front", Lattice: "east", Desired: e.desired, Owned: e.owned, State: e.state(), Pending: pending, Now: e.now,
	})
}

func settings(name string) oam.Config {
	return oam.Config{Name: name, Properties: map[string]string{"of": name}}
}

// linked is one component with a link to itself that is given configurations.
func linked(configs ...oam.Config) oam.Manifest {
	m := shop(component("api", linkTo("api")))
	m.Spec.Components[0].Traits[0].Link.Target.Config = configs
	return m
}

func TestPendingStartCountsAsRunning(t *testing.T) {
	e := newEngine(shop(component("api", spread(2))))
	e.join("n1", nil)
	start := e.plan().Batches[0].Commands[0]
	e.join("n2", nil)
	o := e.with(start)
	require.Empty(t, o.Batches)
	require.Equal(t, wadm.StatusInfo{Type: wadm.Reconciling, Message: "starting on 1 host"}, o.Rows[0].Status)
	require.False(t, o.Settled)
}

func TestPendingScaleIsShownAsOne(t *testing.T) {
	e := newEngine(shop(component("api", spread(2))))
	e.join("n1", nil)
	e.settle(t)
	e.desired = scaler.List(shop(component("api", spread(3))))
	o := e.plan()
	require.Equal(t, "scaling on 1 host", o.Rows[0].Status.Message)
	o = e.with(o.Batches[0].Commands...)
	require.Empty(t, o.Batches)
	require.Equal(t, "scaling on 1 host", o.Rows[0].Status.Message)
}

func TestWhatIsToldToStopDoesNotCount(t *testing.T) {
	e := newEngine(shop(component("api", spread(2))))
	e.join("n1", nil)
	e.settle(t)
	again := e.desired
	e.desired = nil
	stop := e.plan().Batches[0].Commands[0]
	e.desired = again
	o := e.with(stop)
	require.Empty(t, o.Batches)
	require.Equal(t, wadm.Reconciling, o.Rows[0].Status.Type, "it is about to be gone")
}

func TestOneLinkOnItsWayHoldsUpNoOther(t *testing.T) {
	second := linkTo("api")
	second.Link.Name = "second"
	e := newEngine(shop(component("api", linkTo("api"), second)))
	e.join("n1", nil)
	o := e.plan()
	require.Len(t, o.Batches[0].Commands, 2)
	o = e.with(o.Batches[0].Commands[0])
	require.Len(t, o.Batches, 1)
	require.Len(t, o.Batches[0].Commands, 1)
	require.Equal(t, "second", o.Batches[0].Commands[0].Link.Name)
}

func TestLinkThatIsBeingDeletedIsNotThere(t *testing.T) {
	e := newEngine(linked())
	e.join("n1", nil)
	e.settle(t)
	again := e.desired
	e.desired = nil
	remove := e.plan().Batches[0].Commands[0]
	require.Equal(t, scaler.DeleteLink, remove.Action)
	e.desired = again
	o := e.with(remove)
	require.Empty(t, o.Batches)
	require.Equal(t, wadm.Reconciling, o.Rows[0].Status.Type)
}

func TestConfigurationThatIsBeingDeletedIsNotThere(t *testing.T) {
	m := shop(component("api", spread(1)))
	m.Spec.Components[0].Properties.Config = []oam.Config{settings("x")}
	e := newEngine(m)
	e.join("n1", nil)
	e.configs["shop_front-x"] = map[string]string{"of": "x"}
	o := e.with(scaler.Command{Key: scaler.Key{Subject: "shop_front-x"}, Action: scaler.DeleteConfig, ID: "shop_front-x"})
	require.Empty(t, o.Batches)
	require.Equal(t, wadm.Reconciling, o.Rows[0].Status.Type)
}

func TestConfigurationOfALinkOnItsWayStays(t *testing.T) {
	e := newEngine(linked(settings("x")))
	e.join("n1", nil)
	e.round(t)
	put := e.plan().Batches[0].Commands[0]
	require.Equal(t, scaler.PutLink, put.Action)
	e.desired = nil
	require.Empty(t, e.with(put).Batches)
	e.carryOut(t, put)
	e.settle(t)
	require.Empty(t, e.links)
	require.Empty(t, e.configs)
}

func TestConfigurationOfALinkThatCannotChangeYetStays(t *testing.T) {
	e := newEngine(linked(settings("x")))
	e.join("n1", nil)
	e.settle(t)
	e.desired, e.log = scaler.List(linked(oam.Config{Name: "theirs"})), nil
	o := e.settle(t)
	// Its id contains the names of configurations, its place on the lattice does not.
	require.Empty(t, e.log)
	require.Equal(t, "config_missing", o.Rows[0].Status.Reason)
	e.configs["theirs"] = map[string]string{}
	e.settle(t)
	require.Equal(t, []string{"theirs"}, e.links[0].TargetConfig)
	require.NotContains(t, e.configs, "shop_front-x")
}

func TestSomebodyElsesLinkInTheSameSlotIsNotRisked(t *testing.T) {
	e := newEngine(linked())
	e.join("n1", nil)
	e.settle(t)
	e.links = append([]scaler.Link{{
		Source: "shop_front-api", Target: foreignSource, Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{"other"},
	}}, e.links...)
	e.desired = nil
	o := e.settle(t)
	require.Len(t, e.links, 2)
	require.False(t, o.Owned.Empty(), "it is remembered")
	e.links = e.links[1:]
	o = e.settle(t)
	require.Empty(t, e.links)
	require.True(t, o.Owned.Empty())
}

func TestLinksOfOneSlotChangeTogether(t *testing.T) {
	link := func(target string, interfaces ...string) oam.Trait {
		l := linkTo(target)
		l.Link.Interfaces = interfaces
		return l
	}
	e := newEngine(shop(component("a", link("b", "i", "j")), component("b"), component("c")))
	e.join("n1", nil)
	e.settle(t)
	e.desired = scaler.List(shop(component("a", link("b", "i"), link("c", "j")), component("b"), component("c")))
	require.Equal(t, []wadm.StatusType{"reconciling", "reconciling"}, typesOf(e.round(t).Rows))
	o := e.settle(t)
	require.Equal(t, []wadm.StatusType{"deployed", "deployed"}, typesOf(o.Rows))
	require.Len(t, e.links, 2)
}

func TestLinksOfOneSlotToTwoTargetsConflict(t *testing.T) {
	e := newEngine(shop(component("a", linkTo("b"), linkTo("c")), component("b"), component("c")))
	e.join("n1", nil)
	o := e.settle(t)
	require.Equal(t, []wadm.StatusType{"deployed", "failed"}, typesOf(o.Rows))
	require.Equal(t, "link_conflict", o.Rows[1].Status.Reason)
}

func TestAnImageThatIsNotTheScalersIsReplaced(t *testing.T) {
	e := newEngine(shop(component("api", spread(1))))
	e.join("n1", nil)
	e.settle(t)
	e.hosts["n1"].Components[0].Image = "registry.example.com/shop/other:1"
	e.log = nil
	e.settle(t)
	require.Len(t, e.log, 2)
	require.Equal(t, apiImage, e.hosts["n1"].Components[0].Image)
}

func TestAScalerThatStandsThereTwiceIsOne(t *testing.T) {
	e := newEngine(shop(component("api", spread(2), spread(3))))
	e.join("n1", nil)
	e.join("n2", nil)
	e.join("n3", nil)
	o := e.settle(t)
	require.Equal(t, []wadm.StatusType{"deployed", "deployed"}, typesOf(o.Rows))
	require.Len(t, e.log, 2)
	for _, h := range e.hosts {
		h.Components = nil
	}
	require.Equal(t, []wadm.StatusType{"reconciling", "reconciling"}, typesOf(e.plan().Rows))
}

func TestWhatTheApplicationMakesCountsBeforeWhatItUses(t *testing.T) {
	m := shop(component("api", spread(1)), component("worker", spread(1)))
	m.Spec.Components[0].Properties.Config = []oam.Config{{Name: "shop_front-x"}}
	m.Spec.Components[1].Properties.Config = []oam.Config{settings("x")}
	e := newEngine(m)
	e.join("n1", nil)
	o := e.settle(t)
	require.Equal(t, []wadm.StatusType{"deployed", "deployed"}, typesOf(o.Rows))
}

func TestTheSameWordsOfManyHostsAreSaidOnce(t *testing.T) {
	e := newEngine(shop(component("api", spread(3))))
	for _, id := range []string{"n1", "n2", "n3"} {
		e.join(id, nil)
		e.bad[id] = "manifest unknown"
	}
	e.bad["n3"] = "disk full"
	e.round(t)
	o := e.plan()
	require.Regexp(t, `^(manifest unknown, disk full|disk full, manifest unknown) \(attempt 1, next attempt 2026-03-04T12:00:01Z\)$`, o.Rows[0].Status.Message)
}

func TestAHostThatLeavesTakesItsFailuresAlong(t *testing.T) {
	e := newEngine(shop(component("api", spread(3))))
	e.join("n1", nil)
	e.join("n2", nil)
	e.bad["n1"], e.bad["n2"] = "no", "no"
	e.round(t)
	require.Len(t, e.backoff, 2)
	e.leave("n1")
	o := e.plan()
	require.Len(t, o.Backoff, 1)
	require.Equal(t, "n2", o.Backoff[0].Host)
}

func TestResources(t *testing.T) {
	link := scaler.Tuple{Source: "a", Target: "b", Name: "default", Namespace: "n", Package: "p"}
	require.True(t, scaler.Resources{}.Empty())
	require.False(t, scaler.Resources{Links: []scaler.Tuple{link}}.Empty())
	require.False(t, scaler.Resources{Configs: []string{"x"}}.Empty())
	require.Equal(t,
		scaler.Resources{Links: []scaler.Tuple{link}, Configs: []string{"x", "y"}},
		scaler.Resources{Configs: []string{"x"}}.And(scaler.Resources{Links: []scaler.Tuple{link}, Configs: []string{"y", "x"}}))

	m := shop(component("api", spread(1), linkTo("api")))
	m.Spec.Components[0].Properties.Config = []oam.Config{settings("x"), {Name: "theirs"}}
	self := scaler.Tuple{Source: "shop_front-api", Target: "shop_front-api", Name: "default", Namespace: "wasi", Package: "http"}
	require.Equal(t, scaler.Resources{Links: []scaler.Tuple{self}, Configs: []string{"shop_front-x"}}, scaler.Makes(scaler.List(m)))
	require.Equal(t, scaler.Resources{Links: []scaler.Tuple{self}, Configs: []string{"shop_front-x", "theirs"}}, scaler.Uses(scaler.List(m)))
}

func TestBatchesAreInOrder(t *testing.T) {
	m := shop(component("api", spread(1)), provider("web"), provider("old"))
	m.Spec.Components[1].Properties.Config = []oam.Config{settings("x")}
	e := newEngine(m)
	e.join("n1", nil)
	e.settle(t)
	next := shop(component("api", spread(2)), provider("db"), component("new", linkTo("api")))
	next.Spec.Components[2].Properties.Config = []oam.Config{settings("y")}
	e.desired = scaler.List(next)
	var did []string
	for _, b := range e.plan().Batches {
		for _, c := range b.Commands {
			did = append(did, b.Host+" "+string(c.Action))
		}
	}
	require.Equal(t, []string{" put_link", "n1 stop_provider", "n1 stop_provider", "n1 scale", "n1 start_provider"}, did)
}
