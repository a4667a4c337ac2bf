package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// done is an act without its time.
func done(acts []api.Act) []api.Act {
	out := make([]api.Act, len(acts))
	for i, a := range acts {
		a.At = time.Time{}
		out[i] = a
	}
	return out
}

func TestWhoDidWhatToANode(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 4096), node("b", 4096))
	change := func(to capacity.NodeState, actor, why string) {
		t.Helper()
		require.NoError(t, s.ChangeNode(ctx, store.NodeChange{Node: "a", Actor: actor, Reason: why, To: to}))
	}
	change(capacity.Cordoned, "ann", "disk")
	change(capacity.Ready, "bob", "new disk")
	change(capacity.Draining, "ann", "kernel")
	change(capacity.Ready, "", "")
	change(capacity.Retired, "ann", "sold")
	require.ErrorIs(t, s.ChangeNode(ctx, store.NodeChange{Node: "a", Actor: "eve", To: capacity.Cordoned}), store.ErrConflict)
	require.NoError(t, s.ReinstateNode(ctx, store.NodeChange{Node: "a", Actor: "bob"}))

	shown, err := s.ShowNode(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, []api.Act{
		{Verb: "cordon", Actor: "ann", Note: "disk", Via: "nats"},
		{Verb: "uncordon", Actor: "bob", Note: "new disk", Via: "nats"},
		{Verb: "drain", Actor: "ann", Note: "kernel", Via: "nats"},
		{Verb: "undrain", Via: "nats"},
		{Verb: "retire", Actor: "ann", Note: "sold", Via: "nats"},
		{Verb: "unretire", Actor: "bob", Via: "nats"},
	}, done(shown.Acts), "what was refused was not done")
	other, err := s.ShowNode(ctx, "b")
	require.NoError(t, err)
	require.Empty(t, other.Acts)

	for range 30 {
		change(capacity.Cordoned, "ann", "")
	}
	shown, err = s.ShowNode(ctx, "a")
	require.NoError(t, err)
	require.Len(t, shown.Acts, 20, "the latest")
	require.Equal(t, "cordon", shown.Acts[0].Verb)
}

func TestWhoDidWhatToAnApplication(t *testing.T) {
	s, db := open(t, rules)
	shop := appKey("shop")
	_, err := s.ShowApplication(ctx, shop)
	require.ErrorIs(t, err, store.ErrNotFound)
	v := appVersion("v1", "ui")
	v.PutBy = "eve"
	put(t, s, shop, v, appVersion("v2", "ui"))
	_, err = s.PutApplication(ctx, shop, v, uuid.New())
	require.ErrorIs(t, err, store.ErrVersionExists, "nothing is stored, so nothing is done")
	deploy(t, s, shop, nil)
	require.NoError(t, s.RecordApplicationActs(ctx, shop, []ledger.Act{{Key: "r/nudge/1", Verb: "nudge", Actor: "bob"}}))
	require.NoError(t, s.RecordApplicationActs(ctx, shop, []ledger.Act{
		{Key: "r/nudge/1", Verb: "nudge", Actor: "bob"}, {Key: "r/nudge/2", Verb: "nudge"},
	}))
	app, err := s.ShowApplication(ctx, shop)
	require.NoError(t, err)
	require.Equal(t, []any{"v2", "anna", "lattice", "never_observed"}, []any{*app.Deployed, app.DeployedBy, app.Wait.Kind, app.Wait.Code})
	require.WithinDuration(t, app.Now, *app.DeployedAt, time.Minute)

	_, err = s.UndeployApplication(ctx, shop, "ann", false)
	require.NoError(t, err)
	_, err = s.UndeployApplication(ctx, shop, "eve", false)
	require.NoError(t, err, "nothing is deployed, so nothing is done")
	v1, gone := "v1", "v9"
	_, err = s.DeleteApplication(ctx, shop, &gone, "eve", false)
	require.NoError(t, err, "there is no such version")
	_, err = s.DeleteApplication(ctx, shop, &v1, "ann", false)
	require.NoError(t, err)
	_, err = s.DeleteApplication(ctx, shop, nil, "", false)
	require.NoError(t, err)

	app, err = s.ShowApplication(ctx, shop)
	require.NoError(t, err, "what was done outlives the application")
	v2 := "v2"
	require.Equal(t, []api.Act{
		{Verb: "put", Actor: "eve", Version: &v1, Via: "wadm"},
		{Verb: "put", Version: &v2, Via: "wadm"},
		{Verb: "deploy", Actor: "anna", Version: &v2, Via: "wadm"},
		{Verb: "nudge", Actor: "bob", Via: "temporal"},
		{Verb: "nudge", Via: "temporal"},
		{Verb: "undeploy", Actor: "ann", Version: &v2, Via: "wadm"},
		{Verb: "delete", Actor: "ann", Version: &v1, Via: "wadm"},
		{Verb: "delete", Via: "wadm"},
	}, done(app.Acts))
	require.Nil(t, app.Deployed)
	require.Nil(t, app.Wait)

	_, err = s.ImportVersions(ctx, appKey("mail"), []ledger.AppVersion{appVersion("v1", "smtp")}, &v1, "ann", true)
	require.NoError(t, err)
	mail, err := s.ShowApplication(ctx, appKey("mail"))
	require.NoError(t, err)
	require.Equal(t, []api.Act{{Verb: "deploy", Actor: "ann", Version: &v1, Via: "nats"}}, done(mail.Acts))

	_, err = db.Exec(ctx, "UPDATE acts SET at = at - interval '9 days' WHERE application = 'shop'")
	require.NoError(t, err)
	n, err := s.ExpireActs(ctx, 48*time.Hour, 100)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	_, err = s.ShowApplication(ctx, shop)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestFiltersOfWaits(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	waiter := launch(t, s, draft("waiter", 2, 1000, time.Hour))
	require.NotNil(t, look(t, s, waiter.Phases[0].ID, 1, ledger.WakeFirst).Waiting)
	_, err := s.Heartbeat(ctx, node("small", 100))
	require.NoError(t, err)
	other := launch(t, s, draft("other", 1, 10, time.Hour))
	require.NotNil(t, gate(t, s, other.Phases[0].ID, ledger.Gate{Hold: &ledger.Hold{}}).Paused)
	_, err = db.Exec(ctx, `
INSERT INTO open_waits (workflow_id, mission_id, phase_id, kind, code, reason, since)
VALUES ('phase.holder.p1', $1, $2, 'node', 'node_silent', 'why', clock_timestamp())`, holder.MissionID, holder.Phases[0].ID)
	require.NoError(t, err)
	put(t, s, appKey("shop"), appVersion("v1", "ui"))
	deploy(t, s, appKey("shop"), nil)
	_, err = db.Exec(ctx, "UPDATE capacity_waits SET since = since - interval '11 minutes', bound = bound - interval '11 minutes'")
	require.NoError(t, err)

	for _, test := range []struct {
		request api.WaitRequest
		want    []string
	}{
		{api.WaitRequest{}, []string{"waiter/p1", "other/p1", "holder/p1", "shop"}},
		{api.WaitRequest{Kind: "hold"}, []string{"other/p1"}},
		{api.WaitRequest{Code: "node_silent"}, []string{"holder/p1"}},
		{api.WaitRequest{Mission: "waiter"}, []string{"waiter/p1"}},
		{api.WaitRequest{Phase: "p1"}, []string{"waiter/p1", "other/p1", "holder/p1"}},
		{api.WaitRequest{Phase: "p2"}, nil},
		{api.WaitRequest{Node: "a"}, []string{"waiter/p1", "holder/p1"}},
		{api.WaitRequest{Node: "a", Kind: "capacity"}, []string{"waiter/p1"}},
		{api.WaitRequest{Node: "small"}, nil},
		{api.WaitRequest{OlderThan: (10 * time.Minute).Milliseconds()}, []string{"waiter/p1"}},
		{api.WaitRequest{OlderThan: (12 * time.Minute).Milliseconds()}, nil},
		{api.WaitRequest{Lattice: "west"}, []string{"shop"}},
		{api.WaitRequest{Lattice: "east"}, nil},
		{api.WaitRequest{Application: "shop", Account: "default"}, []string{"shop"}},
		{api.WaitRequest{Account: "ACME"}, nil},
	} {
		list, err := s.ListWaits(ctx, test.request, time.Minute)
		require.NoError(t, err)
		var got []string
		for _, w := range list.Waits {
			name := w.Application
			if w.Mission != "" {
				name = w.Mission + "/" + w.Phase
			}
			got = append(got, name)
			if name == "holder/p1" {
				require.Equal(t, "a", w.Node, "where its run is")
			}
		}
		require.Equal(t, test.want, got, "%+v", test.request)
		require.False(t, list.More)
	}
}
