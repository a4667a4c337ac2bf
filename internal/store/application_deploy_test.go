package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

const neverObserved = "no host of lattice west has been observed yet; nothing is started until one appears"

func TestApplicationDeployWaitsFromTheFirstSecond(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	v := appVersion("v1", "shop-web")
	v.Scalers = append(v.Scalers, wadm.ScalerStatus{ID: "s2", Kind: "LinkScaler", Name: "web -> kv"})
	put(t, s, key, v)
	before, err := s.Now(ctx)
	require.NoError(t, err)

	require.Equal(t, store.DeployedVersion{Version: "v1", Revision: 1}, deploy(t, s, key, nil))

	app, err := s.Application(ctx, key)
	require.NoError(t, err)
	require.NotNil(t, app.Wait)
	since := app.Wait.Since
	require.False(t, since.Before(before))
	require.False(t, app.Since.Before(since))
	app.Since = time.Time{}
	require.Equal(t, ledger.Application{
		Key: key, Revision: 1, Deployed: "v1", IsDeployed: true, Actor: "anna",
		Wait: &ledger.AppWait{Kind: "lattice", Code: "never_observed", Reason: neverObserved, Since: since},
	}, app)

	raw, err := s.ApplicationStatus(ctx, key)
	require.NoError(t, err)
	stamp := since.Format(time.RFC3339Nano)
	waiting := `{"type":"waiting","message":"` + neverObserved + `","reason":"never_observed","since":"` + stamp + `"}`
	require.Equal(t, `{"status":`+waiting+`,"scalers":[`+
		`{"id":"scaler-shop-web","kind":"SpreadScaler","name":"shop-web","status":`+waiting+`},`+
		`{"id":"s2","kind":"LinkScaler","name":"web -> kv","status":`+waiting+`}],"version":"","components":[]}`, string(raw))

	waits, err := s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	require.Len(t, waits.Waits, 1)
	require.NotNil(t, waits.Waits[0].CheckedAt)
	waits.Waits[0].CheckedAt = nil
	require.Equal(t, []api.Wait{{
		Kind: "lattice", Code: "never_observed", Reason: neverObserved, Since: since,
		Account: "default", Lattice: "west", Application: "shop", WorkflowID: "app.default.west.shop",
	}}, waits.Waits)

	news, err := s.ClaimNews(ctx, 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, news, 2, "one of each channel")
	require.Equal(t, "published", news[0].Kind)
	require.Equal(t, string(v.Manifest), string(news[0].Payload))
	require.Equal(t, "revised", news[1].Kind)
	require.NoError(t, s.NewsDelivered(ctx, []int64{news[0].ID}))
	news, err = s.ClaimNews(ctx, 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, news, 1)
	require.Equal(t, "status", news[0].Kind)
	require.EqualValues(t, 1, news[0].Revision)
	require.Equal(t, string(raw), string(news[0].Payload), "what is published is what is answered")
	requireSound(t, db)
}

func TestApplicationDeployResolvesVersions(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	_, err := s.DeployApplication(ctx, key, nil, "", store.DeployOptions{})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.DeployApplication(ctx, key, ptr("v1"), "", store.DeployOptions{})
	require.ErrorIs(t, err, store.ErrNotFound)
	put(t, s, key, appVersion("v2", "a"), appVersion("v1", "a"))

	require.Equal(t, "v1", deploy(t, s, key, nil).Version)
	require.Equal(t, "v2", deploy(t, s, key, ptr("v2")).Version)
	require.Equal(t, "v1", deploy(t, s, key, ptr("latest")).Version)
	for _, version := range []string{"v3", "", "v1\x00"} {
		_, err = s.DeployApplication(ctx, key, &version, "", store.DeployOptions{})
		var missing *store.NoVersion
		require.ErrorAs(t, err, &missing)
		require.Equal(t, version, missing.Version)
		require.NotErrorIs(t, err, store.ErrNotFound)
	}
	require.EqualError(t, err, `deploy application west/shop: it has no version "v1\x00"`)

	require.Equal(t, "v2 v1*", versionsOf(t, s, key))
	require.Equal(t, []string{
		"published 1", "status 1", "published 2", "status 2", "published 3", "status 3",
	}, outbox(t, db, key, "nats"))
	require.Equal(t, []string{"revised 3"}, outbox(t, db, key, "temporal"))
	requireSound(t, db)
}

func TestApplicationDeployedAgainKeepsItsSince(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"), appVersion("v2", "b"))
	deploy(t, s, key, ptr("v1"))
	_, err := db.Exec(ctx, `UPDATE open_waits SET since = '2026-01-02T03:04:05Z'`)
	require.NoError(t, err)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	deploy(t, s, key, ptr("v2"))

	app, err := s.Application(ctx, key)
	require.NoError(t, err)
	require.Equal(t, since, app.Wait.Since)
	require.True(t, app.Since.After(since), "of the deployment it is another moment")
	raw, err := s.ApplicationStatus(ctx, key)
	require.NoError(t, err)
	var status wadm.Status
	require.NoError(t, json.Unmarshal(raw, &status))
	require.Equal(t, since, *status.Status.Since)
	require.Equal(t, "scaler-b", status.Scalers[0].ID)
	require.Zero(t, count(t, db, "SELECT count(*) FROM wait_history"), "it is one wait")

	undeploy(t, s, key)
	deploy(t, s, key, nil)

	app, err = s.Application(ctx, key)
	require.NoError(t, err)
	require.True(t, app.Wait.Since.After(since), "it is another wait")
	requireSound(t, db)
}

func TestApplicationUndeploy(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	_, err := s.UndeployApplication(ctx, key, "bert", false)
	require.ErrorIs(t, err, store.ErrNotFound)
	put(t, s, key, appVersion("v1", "a"))

	require.Equal(t, store.Undeployed{}, undeploy(t, s, key))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
	deploy(t, s, key, nil)
	emptyOutbox(t, db)
	require.Equal(t, store.Undeployed{Was: true}, undeploy(t, s, key))
	require.Equal(t, store.Undeployed{}, undeploy(t, s, key))

	require.Equal(t, "v1", versionsOf(t, s, key))
	app, err := s.Application(ctx, key)
	require.NoError(t, err)
	require.Equal(t, ledger.Application{Key: key, Revision: 2}, app)
	raw, err := s.ApplicationStatus(ctx, key)
	require.NoError(t, err)
	require.Equal(t, `{"status":{"type":"undeployed","message":"the application is not deployed"},"version":"","components":[]}`, string(raw))
	require.Equal(t, []string{"unpublished 2", "status 2"}, outbox(t, db, key, "nats"))
	require.Equal(t, []string{"revised 2"}, outbox(t, db, key, "temporal"))
	news, err := s.ClaimNews(ctx, 1, time.Minute)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(news[0].Payload))
	require.NoError(t, s.NewsDelivered(ctx, []int64{news[0].ID}))
	requireSound(t, db)
}

// TestApplicationWaitIsHistoryWhenItEnds also shows that the history is there
// when the application is not.
func TestApplicationWaitIsHistoryWhenItEnds(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	type past struct {
		Account, Lattice, Application, Kind, Code, Reason, EndedBy, Actor string
		Ordered                                                           bool
	}
	history := func() (list []past) {
		rows, err := db.Query(ctx, `
SELECT account, lattice, application, kind, code, reason, ended_by, actor, since <= ended_at FROM wait_history ORDER BY id`)
		require.NoError(t, err)
		for rows.Next() {
			var p past
			require.NoError(t, rows.Scan(&p.Account, &p.Lattice, &p.Application, &p.Kind, &p.Code, &p.Reason, &p.EndedBy, &p.Actor, &p.Ordered))
			list = append(list, p)
		}
		return list
	}
	ended := func(by, actor string) past {
		return past{"default", "west", "shop", "lattice", "never_observed", neverObserved, by, actor, true}
	}
	put(t, s, key, appVersion("v1", "a"), appVersion("v2", "a"))
	deploy(t, s, key, nil)

	undeploy(t, s, key)
	require.Equal(t, []past{ended("undeployed", "bert")}, history())

	deploy(t, s, key, nil)
	remove(t, s, key, ptr("v2"))
	require.Equal(t, []past{ended("undeployed", "bert"), ended("deleted", "carl")}, history())

	deploy(t, s, key, nil)
	noteWait(t, s, ledger.OpenWait{
		WorkflowID: "app.default.west.shop", App: &key, Kind: "observer", Code: "observer_absent", Reason: "no observer", Since: time.Now(),
	})
	require.NoError(t, s.ClearWait(ctx, "app.default.west.shop"))
	require.Equal(t, []past{
		ended("changed", ""), {"default", "west", "shop", "observer", "observer_absent", "no observer", "answered", "", true},
	}, history()[2:])

	deploy(t, s, key, nil)
	remove(t, s, key, nil)
	require.Equal(t, ended("deleted", "carl"), history()[4])
	require.Zero(t, count(t, db, "SELECT count(*) FROM open_waits"))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_ids"))
}

func TestApplicationWaitsAreFiltered(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	require.NotNil(t, look(t, s, launch(t, s, draft("holder", 1, 1000, time.Hour)).Phases[0].ID, 1, ledger.WakeFirst).Placed)
	require.NotNil(t, look(t, s, launch(t, s, draft("shop", 1, 1000, time.Hour)).Phases[0].ID, 1, ledger.WakeFirst).Waiting)
	east := appKey("shop")
	east.Lattice = "east"
	for i, key := range []ledger.AppKey{appKey("shop"), appKey("mail"), east} {
		put(t, s, key, appVersion("v1", key.Name))
		deploy(t, s, key, nil)
		_, err := db.Exec(ctx, `UPDATE open_waits SET since = '2026-01-01'::timestamptz + $2 * interval '1 day' WHERE workflow_id = $1`,
			api.AppWorkflowID(key.Account, key.Lattice, key.Name), i)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		req  api.WaitRequest
		want []string
	}{
		{api.WaitRequest{}, []string{"app.default.west.shop", "app.default.west.mail", "app.default.east.shop", "phase.shop.p1"}},
		{api.WaitRequest{Lattice: "west"}, []string{"app.default.west.shop", "app.default.west.mail"}},
		{api.WaitRequest{Application: "shop"}, []string{"app.default.west.shop", "app.default.east.shop"}},
		{api.WaitRequest{Application: "shop", Lattice: "east"}, []string{"app.default.east.shop"}},
		{api.WaitRequest{Kind: "lattice", Code: "never_observed", Application: "mail"}, []string{"app.default.west.mail"}},
		{api.WaitRequest{Code: "other", Application: "mail"}, []string{}},
		{api.WaitRequest{Kind: "capacity"}, []string{"phase.shop.p1"}},
		{api.WaitRequest{Mission: "shop"}, []string{"phase.shop.p1"}},
		{api.WaitRequest{Mission: "shop", Lattice: "west"}, []string{}},
	} {
		list, err := s.ListWaits(ctx, c.req, time.Minute)
		require.NoError(t, err)
		ids := []string{}
		for _, w := range list.Waits {
			ids = append(ids, w.WorkflowID)
		}
		require.Equal(t, c.want, ids, "%+v", c.req)
	}
}

// TestApplicationWaitsHideNoMissions is for many that are older than the wait of
// a mission.
func TestApplicationWaitsHideNoMissions(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	put(t, s, appKey("shop"), appVersion("v1", "shop"))
	_, err := db.Exec(ctx, `
INSERT INTO open_waits (workflow_id, application_id, kind, code, reason, since)
SELECT 'w' || n, a.id, 'lattice', 'no_live_hosts', 'r', '2026-01-01' FROM applications a, generate_series(1, $1) n`, store.MaxList)
	require.NoError(t, err)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	noteWait(t, s, ledger.OpenWait{
		WorkflowID: "mission.m", MissionID: l.MissionID, Kind: "gateway", Code: "gateway_unreachable", Reason: "it is silent", Since: time.Now(),
	})

	missions, err := s.ListMissions(ctx, "", 0, time.Minute)
	require.NoError(t, err)
	require.NotNil(t, missions[0].Wait)
	require.Equal(t, "it is silent", missions[0].Wait.Reason)
	detail, err := s.ShowMission(ctx, "m", 0, time.Minute)
	require.NoError(t, err)
	require.NotNil(t, detail.Wait)
	list, err := s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	require.Len(t, list.Waits, store.MaxList+1)
}

func TestApplicationIDsBelongToOne(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	shop, mail := appKey("shop"), appKey("mail")
	both := appVersion("v1", "a")
	both.Facts.IDs = []string{"a", "b", "z"}
	put(t, s, shop, both, appVersion("v2", "c"))
	other := appVersion("v1", "z")
	other.Facts.IDs = []string{"b", "y", "z"}
	put(t, s, mail, other)
	deploy(t, s, shop, ptr("v1"))
	emptyOutbox(t, db)

	_, err := s.DeployApplication(ctx, mail, nil, "", store.DeployOptions{})

	var taken *store.IDTaken
	require.ErrorAs(t, err, &taken)
	require.Equal(t, &store.IDTaken{ID: "b", Application: "shop"}, taken)
	require.ErrorIs(t, err, store.ErrConflict)
	require.Equal(t, "v1", versionsOf(t, s, mail))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"), "a deploy that is refused is nobody's news")
	require.Zero(t, count(t, db, "SELECT count(*) FROM open_waits WHERE workflow_id = 'app.default.west.mail'"))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_ids WHERE component_id = 'y'"))

	deploy(t, s, shop, ptr("v2"))
	deploy(t, s, mail, nil)
	require.Equal(t, 4, count(t, db, "SELECT count(*) FROM application_ids"))
	_, err = s.DeployApplication(ctx, shop, ptr("v1"), "", store.DeployOptions{})
	require.ErrorAs(t, err, &taken)
	require.Equal(t, &store.IDTaken{ID: "b", Application: "mail"}, taken)
	require.Equal(t, "v1 v2*", versionsOf(t, s, shop))
	undeploy(t, s, mail)
	deploy(t, s, shop, ptr("v1"))
	requireSound(t, db)
}

func TestApplicationReferencesMustBeDeployed(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	shared, shop := appKey("platform"), appKey("shop")
	put(t, s, shared, appVersion("private", "p"), sharing(appVersion("v1", "p")))
	missing := func(refs ...oam.Reference) []oam.Reference {
		t.Helper()
		v := appVersion("v"+time.Now().String(), "s")
		v.Facts.References = refs
		put(t, s, shop, v)
		asked, err := s.MissingShared(ctx, "default", "west", refs)
		require.NoError(t, err)
		_, err = s.DeployApplication(ctx, shop, nil, "", store.DeployOptions{})
		if err == nil {
			require.Empty(t, asked)
			undeploy(t, s, shop)
			return nil
		}
		var m *store.SharedMissing
		require.ErrorAs(t, err, &m)
		require.ErrorIs(t, err, store.ErrConflict)
		require.Equal(t, m.References, asked, "both say the same")
		return m.References
	}
	web := reference("platform")

	require.Equal(t, []oam.Reference{web}, missing(web), "it is not deployed")
	deploy(t, s, shared, ptr("private"))
	require.Equal(t, []oam.Reference{web}, missing(web), "what is deployed is not shared, though the newest is")
	deploy(t, s, shared, ptr("v1"))
	put(t, s, shared, appVersion("private again", "p"))
	require.Empty(t, missing(web), "what is deployed is shared, though the newest is not")
	wrongName := oam.Reference{Application: "platform", Component: "db", Type: oam.TypeComponent}
	wrongType := oam.Reference{Application: "platform", Component: "web", Type: oam.TypeCapability}
	require.Equal(t, []oam.Reference{wrongType, wrongName, reference("nobody")},
		missing(wrongType, web, wrongName, reference("nobody")), "all of them, in order")
	require.Equal(t, []oam.Reference{reference("shop")}, missing(reference("shop")), "itself is not deployed either")
	_, err := s.DeployApplication(ctx, shop, nil, "", store.DeployOptions{})
	require.EqualError(t, err, "deploy application west/shop: it refers to what no shared application that is deployed has: "+
		"component web of application shop")
	requireSound(t, db)
}

func TestApplicationDependants(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	shared := appKey("platform")
	put(t, s, shared, sharing(appVersion("v1", "p")), sharing(appVersion("v2", "p")))
	bare := sharing(appVersion("v3", "p"))
	bare.Facts.Components = nil
	put(t, s, shared, bare)
	deploy(t, s, shared, ptr("v1"))
	for _, name := range []string{"shop", "mail", "idle"} {
		put(t, s, appKey(name), using(appVersion("v1", name), "platform"))
	}
	put(t, s, appKey("other"), appVersion("v1", "other"))
	for _, name := range []string{"shop", "mail", "other"} {
		deploy(t, s, appKey(name), nil)
	}
	both := []string{"mail", "shop"}
	emptyOutbox(t, db)

	var inUse *store.InUse
	_, err := s.UndeployApplication(ctx, shared, "", true)
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, both, inUse.Dependants)
	require.EqualError(t, err, "undeploy application west/platform: deployed applications refer to it: mail, shop; undeploy them first")
	for _, version := range []*string{nil, ptr("v1")} {
		_, err = s.DeleteApplication(ctx, shared, version, "", true)
		require.ErrorAs(t, err, &inUse)
		require.Equal(t, both, inUse.Dependants)
	}
	_, err = s.DeployApplication(ctx, shared, ptr("v3"), "", store.DeployOptions{Protect: true})
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, both, inUse.Dependants)
	require.Equal(t, "v1* v2 v3", versionsOf(t, s, shared))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))

	_, err = s.DeleteApplication(ctx, shared, ptr("v2"), "", true)
	require.NoError(t, err, "what is not deployed is not in use")
	put(t, s, shared, sharing(appVersion("v4", "p")))
	d, err := s.DeployApplication(ctx, shared, ptr("v4"), "", store.DeployOptions{Protect: true})
	require.NoError(t, err, "it still has what they refer to")
	require.Empty(t, d.Dependants)

	require.Equal(t, both, deploy(t, s, shared, ptr("v3")).Dependants)
	require.Equal(t, store.Undeployed{Was: true, Dependants: both}, undeploy(t, s, shared))
	deploy(t, s, shared, ptr("v1"))
	undeploy(t, s, appKey("mail"))
	require.Equal(t, store.Deleted{Found: true, Undeploy: true, Dependants: []string{"shop"}}, remove(t, s, shared, ptr("v1")))
	require.Equal(t, "v1*", versionsOf(t, s, appKey("shop")), "they go on, as wadm has it")
	undeploy(t, s, appKey("shop"))
	deploy(t, s, shared, ptr("v4"))
	require.Equal(t, store.Deleted{Found: true, Undeploy: true}, remove(t, s, shared, nil))
	requireSound(t, db)
}

// TestApplicationReferencesAreLookedUp: what is not deployed any more is missing,
// and still known by the id under which it would run.
func TestApplicationReferencesAreLookedUp(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	shared, shop := appKey("platform"), appKey("shop")
	first, second := sharing(appVersion("v1", "p")), sharing(appVersion("v2", "q"))
	first.Facts.Explicit = map[string]string{"web": "the-web"}
	web, other := reference("platform"), reference("nobody")
	look := func() store.Shared {
		t.Helper()
		found, err := s.Shared(ctx, "default", "west", []oam.Reference{web, other})
		require.NoError(t, err)
		return found
	}
	require.Equal(t, store.Shared{IDs: map[oam.Reference]string{}, Missing: []oam.Reference{web, other}}, look())
	put(t, s, shared, first)
	deploy(t, s, shared, nil)
	require.Equal(t, store.Shared{IDs: map[oam.Reference]string{web: "the-web"}, Missing: []oam.Reference{other}}, look())
	dependants := func() []string {
		t.Helper()
		names, err := s.Dependants(ctx, shared)
		require.NoError(t, err)
		return names
	}
	v := appVersion("v1", "s")
	v.Facts.References = []oam.Reference{web}
	put(t, s, shop, v)
	require.Empty(t, dependants(), "it is not deployed")
	deploy(t, s, shop, nil)
	require.Equal(t, []string{"shop"}, dependants())
	put(t, s, shared, second)
	require.Equal(t, "the-web", look().IDs[web], "what is put is not deployed")
	deploy(t, s, shared, nil)
	require.Equal(t, "platform-web", look().IDs[web])
	deploy(t, s, shared, ptr("v1"))
	undeploy(t, s, shared)
	require.Equal(t, store.Shared{IDs: map[oam.Reference]string{web: "platform-web"}, Missing: []oam.Reference{web, other}}, look())
	require.Equal(t, []string{"shop"}, dependants(), "they miss it")
}
