package scaler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// wired is an application whose one link other applications may want, too.
func wired(t *testing.T) (e *engine, own scaler.Link) {
	t.Helper()
	e = newEngine(shop(component("api", spread(1), linkTo("api"))))
	e.join("n1", nil)
	return e, scaler.Wires(e.desired)[0]
}

func with(l scaler.Link, sourceConfig ...string) scaler.Link {
	l.SourceConfig = sourceConfig
	return l
}

func TestAnotherApplicationsLinkIsNotPutOver(t *testing.T) {
	e, own := wired(t)
	theirs := with(own, "theirs")
	e.links, e.configs["theirs"] = []scaler.Link{theirs}, map[string]string{}
	e.wired = map[string][]scaler.Link{"other": {theirs}, "third": {with(own, "neither")}}
	o := e.settle(t)
	require.Equal(t, []scaler.Link{theirs}, e.links)
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "link_conflict", Since: &noon,
		Message: "link default of shop_front-api to shop_front-api is as application other wants it, which has other interfaces or configurations",
	}, o.Rows[1].Status)
	require.Equal(t, wadm.Deployed, o.Rows[0].Status.Type)
	require.True(t, o.Settled)

	// It is nobody's any more.
	e.wired = map[string][]scaler.Link{"other": {with(own, "changed")}}
	o = e.settle(t)
	require.Equal(t, []scaler.Link{own}, e.links)
	require.Equal(t, wadm.Deployed, o.Rows[1].Status.Type)
}

func TestALinkThatAllWantIsNoDispute(t *testing.T) {
	e, own := wired(t)
	o := scaler.Plan(scaler.Input{
		App: "shop-front", Desired: e.desired, Wired: map[string][]scaler.Link{"other": {own}},
		State:   scaler.State{Hosts: e.state().Hosts, Links: []scaler.Link{own}},
		Pending: []scaler.Command{{Action: scaler.PutLink, Link: &own}}, Now: noon,
	})
	require.Equal(t, wadm.StatusInfo{Type: wadm.Reconciling, Message: "putting the link"}, o.Rows[1].Status)
}

func TestALinkThatStaysIsAsOneOfThoseWhoStayWantsIt(t *testing.T) {
	for about, c := range map[string]struct {
		theirs []string // source configurations
		left   int
	}{
		"as they want it": {nil, 1},
		"otherwise":       {[]string{"theirs"}, 0},
	} {
		t.Run(about, func(t *testing.T) {
			e, own := wired(t)
			e.settle(t)
			e.wired = map[string][]scaler.Link{"other": {with(own, c.theirs...)}}
			e.others = scaler.Resources{Links: []scaler.Tuple{own.Tuple()}}
			e.desired = nil
			o := e.settle(t)
			require.Len(t, e.links, c.left)
			require.True(t, o.Owned.Empty())
		})
	}
}

func TestPlansConcernOthersWhereTheyMayCollide(t *testing.T) {
	e, own := wired(t)
	in := scaler.Input{Desired: e.desired}
	require.False(t, in.ConcernsOthers())
	in.State.Links = []scaler.Link{own}
	require.False(t, in.ConcernsOthers(), "a link that is as it should be")
	in.State.Links = []scaler.Link{with(own, "theirs")}
	require.True(t, in.ConcernsOthers(), "a link that is not")
	in.State.Links = nil
	in.Owned = scaler.Resources{Configs: []string{"old"}}
	require.True(t, in.ConcernsOthers(), "something to be cleaned up")
}

// disputants are applications that want one link of a lattice, each in its way.
type disputants struct {
	wants map[string]scaler.Link // of those that are deployed
	owned map[string]scaler.Resources
	links []scaler.Link
	puts  int
}

func (d *disputants) plan(app string) scaler.Outcome {
	in := scaler.Input{
		App: app, Owned: d.owned[app], Wired: map[string][]scaler.Link{}, Now: noon,
		State: scaler.State{Hosts: []scaler.Host{{ID: "n1"}}, Links: slices.Clone(d.links)},
	}
	for other, link := range d.wants {
		if other == app {
			in.Desired = []scaler.Scaler{{ID: app, Kind: scaler.KindLink, App: app, Link: &link}}
			continue
		}
		in.Wired[other] = []scaler.Link{link}
		in.Others = in.Others.And(scaler.Resources{Links: []scaler.Tuple{link.Tuple()}})
	}
	o := scaler.Plan(in)
	d.owned[app] = o.Owned
	return o
}

func (d *disputants) carryOut(o scaler.Outcome) (commands int) {
	for _, b := range o.Batches {
		for _, c := range b.Commands {
			commands++
			d.links = nil
			if c.Action == scaler.PutLink {
				d.puts++
				d.links = []scaler.Link{*c.Link}
			}
		}
	}
	return commands
}

// settle has all of them look and act, one after the other or all at once, until
// nobody does anything.
func (d *disputants) settle(t *rapid.T, apps []string, atOnce bool) {
	for range 6 {
		commands := 0
		var outcomes []scaler.Outcome
		for _, app := range apps {
			o := d.plan(app)
			if atOnce {
				outcomes = append(outcomes, o)
			} else {
				commands += d.carryOut(o)
			}
		}
		for _, o := range outcomes {
			commands += d.carryOut(o)
		}
		if commands == 0 {
			return
		}
	}
	t.Fatalf("they do not agree: %v, %v", d.wants, d.links)
}

func TestDisputesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link := func(label string) scaler.Link {
			l := scaler.Link{Source: "http", Target: "api", Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{"incoming-handler"}}
			return with(l, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, label))
		}
		d := &disputants{wants: map[string]scaler.Link{}, owned: map[string]scaler.Resources{}}
		if rapid.Bool().Draw(t, "strangers") {
			d.links = []scaler.Link{link("stranger")}
		}
		var apps []string
		for i := range rapid.IntRange(1, 4).Draw(t, "applications") {
			apps = append(apps, fmt.Sprintf("app%d", i))
			d.wants[apps[i]] = link(apps[i])
		}
		apps = rapid.Permutation(apps).Draw(t, "order")
		atOnce := rapid.Bool().Draw(t, "at once")
		d.settle(t, apps, atOnce)
		if d.puts > len(apps) {
			t.Fatalf("%d applications put the link %d times", len(apps), d.puts)
		}
		for _, leaving := range apps {
			for _, app := range apps {
				if want, deployed := d.wants[app]; deployed {
					status := d.plan(app).Rows[0].Status
					if has := d.links[0].SourceConfig[0] == want.SourceConfig[0]; has != (status.Type == wadm.Deployed) || has == (status.Reason == "link_conflict") {
						t.Fatalf("%s wants %v, and %v of %v", app, want, status, d.links)
					}
				}
			}
			delete(d.wants, leaving)
			d.settle(t, apps, atOnce)
		}
		if len(d.links) > 0 {
			t.Fatalf("nobody needs %v", d.links)
		}
	})
}
