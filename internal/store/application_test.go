package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

func appKey(name string) ledger.AppKey {
	return ledger.AppKey{Account: ledger.DefaultAccount, Lattice: "west", Name: name}
}

// appVersion is a version of an application that runs one component of that id.
func appVersion(version, id string) ledger.AppVersion {
	description := "the " + version
	return ledger.AppVersion{
		Version: version, Description: &description,
		Manifest: json.RawMessage(`{"kind": "Application", "version": "` + version + `", "id": "` + id + `"}`),
		Scalers:  []wadm.ScalerStatus{{ID: "scaler-" + id, Kind: "SpreadScaler", Name: id}},
		Facts:    oam.Facts{Components: map[string]oam.ComponentType{"web": oam.TypeComponent}, IDs: []string{id}},
	}
}

// sharing lets other applications refer to the version's component "web".
func sharing(v ledger.AppVersion) ledger.AppVersion {
	v.Facts.Shared = true
	return v
}

func reference(application string) oam.Reference {
	return oam.Reference{Application: application, Component: "web", Type: oam.TypeComponent}
}

// using makes a version refer to the component "web" of other applications.
func using(v ledger.AppVersion, applications ...string) ledger.AppVersion {
	for _, a := range applications {
		v.Facts.References = append(v.Facts.References, reference(a))
	}
	return v
}

func put(t testing.TB, s *store.Store, key ledger.AppKey, versions ...ledger.AppVersion) int {
	t.Helper()
	total := 0
	for _, v := range versions {
		var err error
		total, err = s.PutApplication(context.Background(), key, v, uuid.New())
		require.NoError(t, err)
	}
	return total
}

func deploy(t testing.TB, s *store.Store, key ledger.AppKey, version *string) store.DeployedVersion {
	t.Helper()
	d, err := s.DeployApplication(context.Background(), key, version, "anna", store.DeployOptions{})
	require.NoError(t, err)
	return d
}

func undeploy(t testing.TB, s *store.Store, key ledger.AppKey) store.Undeployed {
	t.Helper()
	u, err := s.UndeployApplication(context.Background(), key, "bert", false)
	require.NoError(t, err)
	return u
}

func remove(t testing.TB, s *store.Store, key ledger.AppKey, version *string) store.Deleted {
	t.Helper()
	d, err := s.DeleteApplication(context.Background(), key, version, "carl", false)
	require.NoError(t, err)
	return d
}

// versionsOf lists an application's versions, the deployed one with a star.
func versionsOf(t testing.TB, s *store.Store, key ledger.AppKey) string {
	t.Helper()
	versions, err := s.ApplicationVersions(context.Background(), key)
	if errors.Is(err, store.ErrNotFound) {
		return "not found"
	}
	require.NoError(t, err)
	var words []string
	for _, v := range versions {
		word := v.Version
		if v.Deployed {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// outbox is what an application has to tell, in the order it is carried.
func outbox(t testing.TB, db *pgx.Conn, key ledger.AppKey, channel string) []string {
	t.Helper()
	rows, err := db.Query(context.Background(), `
SELECT kind || ' ' || revision FROM application_outbox
WHERE account = $1 AND lattice = $2 AND name = $3 AND channel = $4 ORDER BY id`, key.Account, key.Lattice, key.Name, channel)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func emptyOutbox(t testing.TB, db *pgx.Conn) {
	t.Helper()
	_, err := db.Exec(context.Background(), `DELETE FROM application_outbox`)
	require.NoError(t, err)
}

// requireSound looks for applications whose rows contradict each other.
func requireSound(t require.TestingT, db *pgx.Conn) {
	rows, err := db.Query(context.Background(), `
SELECT a.name || ': ' || wrong.what FROM applications a
JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE version = a.deployed_version) AS deployed
              FROM application_versions WHERE application_id = a.id) v ON true
JOIN LATERAL (SELECT version, description FROM application_versions WHERE application_id = a.id ORDER BY id DESC LIMIT 1) newest ON true
JOIN LATERAL (SELECT count(*) AS n FROM open_waits WHERE application_id = a.id) w ON true
CROSS JOIN LATERAL (VALUES
    ('counts ' || a.versions || ' versions of ' || v.n, a.versions <> v.n),
    ('its newest version is ' || newest.version || ' and not ' || a.current_version,
     (a.current_version, a.description) IS DISTINCT FROM (newest.version, newest.description)),
    ('what is deployed is not stored', (a.deployed_version IS NOT NULL) <> (v.deployed = 1)),
    ('it is ' || a.status_type || ' and has ' || w.n || ' waits', (a.deployed_version IS NOT NULL) <> (w.n = 1)),
    ('its status is ' || a.status_type, a.status_type <> CASE WHEN a.deployed_version IS NULL THEN 'undeployed' ELSE 'waiting' END),
    ('its status is stored twice', a.status #>> '{status,type}' <> a.status_type
     OR COALESCE(a.status #>> '{status,message}', '') <> a.status_message),
    ('it owns other ids than it runs', COALESCE((SELECT jsonb_agg(component_id ORDER BY component_id) FROM application_ids WHERE application_id = a.id), '[]')
     <> COALESCE((SELECT jsonb_agg(own ORDER BY own COLLATE "C") FROM application_versions, jsonb_array_elements_text(facts -> 'ids') own
                  WHERE application_id = a.id AND version = a.deployed_version), '[]'))
) AS wrong (what, found) WHERE wrong.found`)
	require.NoError(t, err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, wrong)
}

func TestApplicationVersionsAreInTheOrderOfPuts(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")

	require.Equal(t, 1, put(t, s, key, appVersion("v2", "a")))
	require.Equal(t, 2, put(t, s, key, appVersion("v1", "a")))
	require.Equal(t, 3, put(t, s, key, appVersion("", "a")))

	require.Equal(t, "v2 v1 ", versionsOf(t, s, key))
	newest, err := s.Manifest(ctx, key, nil)
	require.NoError(t, err)
	require.Equal(t, `{"kind": "Application", "version": "", "id": "a"}`, string(newest), "as it was put, to the byte")
	older, err := s.Manifest(ctx, key, ptr("v2"))
	require.NoError(t, err)
	require.Equal(t, `{"kind": "Application", "version": "v2", "id": "a"}`, string(older))
	for _, version := range []string{"latest", "v3", "v1\x00", "v1\xff"} {
		_, err = s.Manifest(ctx, key, &version)
		require.ErrorIs(t, err, store.ErrNotFound, version)
	}
	_, err = s.Manifest(ctx, appKey("other"), nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.ApplicationVersions(ctx, appKey("other"))
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"), "putting is nobody's news")
	requireSound(t, db)
}

func TestApplicationVersionIsNeverOverwritten(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"), appVersion("v2", "a"))

	for _, v := range []ledger.AppVersion{appVersion("v1", "a"), appVersion("v1", "b")} {
		_, err := s.PutApplication(ctx, key, v, uuid.New())
		require.ErrorIs(t, err, store.ErrVersionExists)
		require.EqualError(t, err,
			`put version "v1" of application west/shop: the version already exists: not possible in the present state`)
	}

	require.Equal(t, "v1 v2", versionsOf(t, s, key))
	list, _, err := s.ListApplications(ctx, key.Account, key.Lattice, "", 0)
	require.NoError(t, err)
	require.Equal(t, "v2", list[0].Version, "the newest is the newest still")
	requireSound(t, db)
}

// TestApplicationPutRepeatedGetsTheFirstAnswer is for a client whose connection
// ended before it read the answer.
func TestApplicationPutRepeatedGetsTheFirstAnswer(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	key, id := appKey("shop"), uuid.New()
	put(t, s, key, appVersion("v1", "a"))
	first, err := s.PutApplication(ctx, key, appVersion("v2", "a"), id)
	require.NoError(t, err)
	require.Equal(t, 2, first)
	put(t, s, key, appVersion("v3", "a"))
	remove(t, s, key, ptr("v1"))

	again, err := s.PutApplication(ctx, key, appVersion("v2", "a"), id)

	require.NoError(t, err)
	require.Equal(t, 2, again)
	require.Equal(t, "v2 v3", versionsOf(t, s, key))
	newest, err := s.Manifest(ctx, key, nil)
	require.NoError(t, err)
	require.Contains(t, string(newest), `"v3"`)
}

func TestApplicationsOfAccountsAndLatticesAreApart(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	here := appKey("shop")
	east, other := here, here
	east.Lattice, other.Account = "east", "other"
	for _, key := range []ledger.AppKey{here, east, other} {
		require.Equal(t, 1, put(t, s, key, sharing(appVersion("v1", "a"))))
		deploy(t, s, key, nil)
	}

	require.True(t, remove(t, s, here, nil).Found)

	require.Equal(t, "not found", versionsOf(t, s, here))
	require.Equal(t, "v1*", versionsOf(t, s, east))
	deployed, err := s.ApplicationsToKeep(ctx, "", "")
	require.NoError(t, err)
	require.Equal(t, []ledger.AppKey{east, other}, deployed)
	missing, err := s.MissingShared(ctx, "default", "west", []oam.Reference{reference("shop")})
	require.NoError(t, err)
	require.Equal(t, []oam.Reference{reference("shop")}, missing)
	missing, err = s.MissingShared(ctx, "default", "east", []oam.Reference{reference("shop")})
	require.NoError(t, err)
	require.Empty(t, missing)
}

// TestApplicationDelete has a row for each of wadm's, but tells nobody of what
// was not deployed.
func TestApplicationDelete(t *testing.T) {
	s, db := open(t, rules)
	gone := []string{"unpublished 2", "status 2"}
	for i, c := range []struct {
		name             string
		puts             []string
		deployed, delete *string
		want             store.Deleted
		left, newest     string
		news             []string
	}{
		{name: "absent", want: store.Deleted{}, left: "not found"},
		{name: "absent, of a version", delete: ptr("v1"), want: store.Deleted{}, left: "not found"},
		{
			name: "whole", puts: []string{"v1", "v2"},
			want: store.Deleted{Found: true, Undeploy: true}, left: "not found",
		},
		{
			name: "whole and deployed", puts: []string{"v1", "v2"}, deployed: ptr("v1"),
			want: store.Deleted{Found: true, Undeploy: true}, left: "not found", news: gone,
		},
		{
			name: "the deployed version", puts: []string{"v1", "v2"}, deployed: ptr("v1"), delete: ptr("v1"),
			want: store.Deleted{Found: true, Undeploy: true}, left: "v2", newest: "v2", news: gone,
		},
		{
			name: "another version", puts: []string{"v1", "v2"}, deployed: ptr("v1"), delete: ptr("v2"),
			want: store.Deleted{Found: true}, left: "v1*", newest: "v1",
		},
		{
			name: "the newest of three", puts: []string{"v3", "v1", "v2"}, delete: ptr("v2"),
			want: store.Deleted{Found: true}, left: "v3 v1", newest: "v1",
		},
		{
			name: "the middle of three", puts: []string{"v3", "v1", "v2"}, delete: ptr("v1"),
			want: store.Deleted{Found: true}, left: "v3 v2", newest: "v2",
		},
		{
			name: "the only version", puts: []string{"v1"}, delete: ptr("v1"),
			want: store.Deleted{Found: true, Undeploy: true}, left: "not found",
		},
		{
			name: "the only version, deployed", puts: []string{"v1"}, deployed: ptr("v1"), delete: ptr("v1"),
			want: store.Deleted{Found: true, Undeploy: true}, left: "not found", news: gone,
		},
		{
			name: "the only version, without a name", puts: []string{""}, delete: ptr(""),
			want: store.Deleted{Found: true, Undeploy: true}, left: "not found",
		},
		{
			name: "a version that is not there", puts: []string{"v1"}, deployed: ptr("v1"), delete: ptr("v2"),
			want: store.Deleted{}, left: "v1*", newest: "v1",
		},
		{
			name: "latest", puts: []string{"v1"}, deployed: ptr("v1"), delete: ptr("latest"),
			want: store.Deleted{}, left: "v1*", newest: "v1",
		},
		{
			name: "a version that cannot be", puts: []string{"v1", "v2"}, delete: ptr("v1\x00"),
			want: store.Deleted{}, left: "v1 v2", newest: "v2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := appKey(fmt.Sprintf("app%d", i))
			_, err := db.Exec(context.Background(), `ALTER SEQUENCE application_revisions RESTART`)
			require.NoError(t, err)
			for _, version := range c.puts {
				put(t, s, key, appVersion(version, key.Name))
			}
			if c.deployed != nil {
				require.EqualValues(t, 1, deploy(t, s, key, c.deployed).Revision)
			}
			emptyOutbox(t, db)

			require.Equal(t, c.want, remove(t, s, key, c.delete))

			require.Equal(t, c.left, versionsOf(t, s, key))
			if c.news == nil {
				require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
			} else {
				require.Equal(t, c.news, outbox(t, db, key, "nats"))
				require.Equal(t, []string{"revised 2"}, outbox(t, db, key, "temporal"))
			}
			if c.left != "not found" {
				manifest, err := s.Manifest(context.Background(), key, nil)
				require.NoError(t, err)
				require.Contains(t, string(manifest), `"`+c.newest+`"`)
			}
			requireSound(t, db)
		})
	}
}

func TestApplicationPutAgainAfterDeleteIsAFirstOne(t *testing.T) {
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"), appVersion("v2", "a"))
	first := deploy(t, s, key, nil)
	remove(t, s, key, nil)

	require.Equal(t, 1, put(t, s, key, appVersion("v1", "a")))

	app, err := s.Application(context.Background(), key)
	require.NoError(t, err)
	require.Equal(t, ledger.Application{Key: key}, app, "it was never deployed")
	require.Greater(t, deploy(t, s, key, nil).Revision, first.Revision+1, "revisions go on across a deletion")
	requireSound(t, db)
}

func TestApplicationList(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	for _, name := range []string{"b", "a", "_", "B", "a-b", "0"} {
		put(t, s, appKey(name), appVersion("v1", name))
	}
	silent := appVersion("v2", "b")
	silent.Description = nil
	put(t, s, appKey("b"), silent)
	deploy(t, s, appKey("b"), ptr("v1"))
	names := func(after string, limit int) (list []string, total int) {
		found, total, err := s.ListApplications(ctx, "default", "west", after, limit)
		require.NoError(t, err)
		for _, a := range found {
			list = append(list, a.Name)
		}
		return list, total
	}

	all, total := names("", 0)
	require.Equal(t, []string{"0", "B", "_", "a", "a-b", "b"}, all, "in the order of bytes")
	require.Equal(t, 6, total)
	page, total := names("B", 2)
	require.Equal(t, []string{"_", "a"}, page)
	require.Equal(t, 6, total)
	page, total = names("b", 2)
	require.Empty(t, page)
	require.Equal(t, 6, total, "also when the page is empty")

	list, _, err := s.ListApplications(ctx, "default", "west", "a", 0)
	require.NoError(t, err)
	require.Equal(t, store.ListedApplication{
		Name: "a-b", Version: "v1", Description: ptr("the v1"),
		Status: json.RawMessage(`{"status":{"type":"undeployed"},"version":"","components":[]}`), StatusType: wadm.Undeployed,
	}, list[0])
	require.Equal(t, "v2", list[1].Version)
	require.Nil(t, list[1].Description)
	require.Equal(t, ptr("v1"), list[1].DeployedVersion)
	require.Equal(t, wadm.Waiting, list[1].StatusType)
	require.Equal(t, "no host of lattice west has been observed yet; nothing is started until one appears", list[1].StatusMessage)
	status, err := s.ApplicationStatus(ctx, appKey("b"))
	require.NoError(t, err)
	require.Equal(t, string(status), string(list[1].Status))

	list, total, err = s.ListApplications(ctx, "default", "nowhere", "", 0)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Zero(t, total)
}

func TestApplicationTextThatCannotBeStored(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	good := appKey("shop")
	put(t, s, good, appVersion("v1", "a"))
	deploy(t, s, good, nil)
	before := count(t, db, "SELECT count(*) FROM application_outbox")
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		for what, key := range map[string]ledger.AppKey{
			"the account":            {Account: bad, Lattice: "west", Name: "shop"},
			"the lattice":            {Account: "default", Lattice: bad, Name: "shop"},
			"the application's name": {Account: "default", Lattice: "west", Name: bad},
		} {
			for call, f := range map[string]func() error{
				"put":      func() error { _, err := s.PutApplication(ctx, key, appVersion("v1", "a"), uuid.New()); return err },
				"get":      func() error { _, err := s.Manifest(ctx, key, nil); return err },
				"versions": func() error { _, err := s.ApplicationVersions(ctx, key); return err },
				"status":   func() error { _, err := s.ApplicationStatus(ctx, key); return err },
				"delete":   func() error { _, err := s.DeleteApplication(ctx, key, nil, "", false); return err },
				"deploy":   func() error { _, err := s.DeployApplication(ctx, key, nil, "", store.DeployOptions{}); return err },
				"undeploy": func() error { _, err := s.UndeployApplication(ctx, key, "", false); return err },
				"import": func() error {
					_, err := s.ImportVersions(ctx, key, []ledger.AppVersion{appVersion("v1", "a")}, nil, "", true)
					return err
				},
				"show":   func() error { _, err := s.Application(ctx, key); return err },
				"detail": func() error { _, err := s.ShowApplication(ctx, key); return err },
			} {
				err := f()
				require.ErrorIs(t, err, store.ErrText, call)
				require.ErrorContains(t, err, what, call)
				require.NotContains(t, err.Error(), "SQLSTATE", call)
			}
		}
		_, _, err := s.ListApplications(ctx, "default", bad, "", 0)
		require.ErrorIs(t, err, store.ErrText)
		_, _, err = s.ListApplications(ctx, "default", "west", bad, 0)
		require.ErrorIs(t, err, store.ErrText)
		_, err = s.MissingShared(ctx, "default", "west", []oam.Reference{reference(bad)})
		require.ErrorIs(t, err, store.ErrText)
		for _, r := range []api.WaitRequest{
			{Kind: bad}, {Code: bad}, {Mission: bad}, {Phase: bad}, {Account: bad}, {Lattice: bad}, {Application: bad}, {Node: bad},
		} {
			_, err = s.ListWaits(ctx, r, time.Minute)
			require.ErrorIs(t, err, store.ErrText, "%+v", r)
		}
		_, err = s.DeployApplication(ctx, good, nil, bad, store.DeployOptions{})
		require.ErrorIs(t, err, store.ErrText)

		for what, change := range map[string]func(*ledger.AppVersion){
			"the version":                      func(v *ledger.AppVersion) { v.Version = bad },
			"the description":                  func(v *ledger.AppVersion) { v.Description = &bad },
			"the manifest":                     func(v *ledger.AppVersion) { v.Manifest = json.RawMessage(`{"a":"` + bad + `"}`) },
			"the id of a component":            func(v *ledger.AppVersion) { v.Facts.IDs = []string{bad} },
			"the name of a component":          func(v *ledger.AppVersion) { v.Facts.Components = map[string]oam.ComponentType{bad: "component"} },
			"the name of a shared application": func(v *ledger.AppVersion) { v.Facts.References = []oam.Reference{reference(bad)} },
			"the name of a shared component": func(v *ledger.AppVersion) {
				v.Facts.References = []oam.Reference{{Application: "x", Component: bad, Type: "component"}}
			},
		} {
			v := appVersion("v2", "a")
			change(&v)
			_, err := s.PutApplication(ctx, good, v, uuid.New())
			require.ErrorIs(t, err, store.ErrText, what)
			require.ErrorContains(t, err, what)
			require.NotContains(t, err.Error(), "SQLSTATE", what)
		}
	}
	long := appKey(strings.Repeat("x", 513))
	_, err := s.PutApplication(ctx, long, appVersion("v1", "a"), uuid.New())
	require.ErrorContains(t, err, "the application's name has 513 bytes, at most 512 are possible: cannot be stored")

	require.Equal(t, "v1*", versionsOf(t, s, good))
	require.Equal(t, before, count(t, db, "SELECT count(*) FROM application_outbox"))
}

// TestApplicationTextAtItsLongest shows that the bounds fit Postgres.
func TestApplicationTextAtItsLongest(t *testing.T) {
	s, db := open(t, rules)
	text := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(uuid.NewString()) // does not compress
		}
		return b.String()[:n]
	}
	key := ledger.AppKey{Account: text(512), Lattice: text(512), Name: text(512)}
	put(t, s, key, appVersion(text(512), text(1024)))
	deploy(t, s, key, nil)
	requireSound(t, db)
}

// TestApplicationManifestMayHaveAnyString is for values of configurations:
// wadm takes a NUL there.
func TestApplicationManifestMayHaveAnyString(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	v := appVersion("v1", "a")
	v.Manifest = json.RawMessage(`{"config":"\u0000 \ud800 <&>","text":"\\u0000 é"}`)
	v.Description = ptr(`\u0000 is no NUL`)
	put(t, s, appKey("shop"), v, appVersion("v2", "a"))
	remove(t, s, appKey("shop"), ptr("v2"))
	deploy(t, s, appKey("shop"), nil)

	got, err := s.Manifest(ctx, appKey("shop"), nil)

	require.NoError(t, err)
	require.Equal(t, string(v.Manifest), string(got))
	news, err := s.ClaimNews(ctx, 10, time.Minute)
	require.NoError(t, err)
	require.Equal(t, string(v.Manifest), string(news[0].Payload))
	requireSound(t, db)
}

func ptr[T any](v T) *T { return &v }
