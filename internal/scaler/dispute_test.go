package scaler_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
