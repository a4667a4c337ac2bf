package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

func TestApplicationImport(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	versions := []ledger.AppVersion{appVersion("v2", "a"), appVersion("v1", "a")}
	load := func(versions []ledger.AppVersion, deployed *string, apply bool) []store.ImportedVersion {
		t.Helper()
		list, err := s.ImportVersions(ctx, key, versions, deployed, "importer", apply)
		require.NoError(t, err)
		return list
	}
	added := []store.ImportedVersion{{Version: "v2", What: "added", Deployed: true}, {Version: "v1", What: "added"}}

	require.Equal(t, added, load(versions, ptr("v2"), false))
	require.Equal(t, "not found", versionsOf(t, s, key), "a dry run changes nothing")
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
	require.Empty(t, load(nil, nil, true))
	require.Equal(t, "not found", versionsOf(t, s, key))

	require.Equal(t, added, load(versions, ptr("v2"), true))
	require.Equal(t, "v2* v1", versionsOf(t, s, key))
	app, err := s.Application(ctx, key)
	require.NoError(t, err)
	require.Equal(t, "importer", app.Actor)
	require.NotNil(t, app.Wait)
	told := outbox(t, db, key, "nats")
	require.Len(t, told, 2)

	require.Equal(t, []store.ImportedVersion{{Version: "v2", What: "kept"}, {Version: "v1", What: "kept"}},
		load(versions, ptr("v2"), true))
	require.Equal(t, told, outbox(t, db, key, "nats"), "again is nobody's news")

	more := append(versions[:2:2], appVersion("v3", "a"))
	require.Equal(t, []store.ImportedVersion{
		{Version: "v2", What: "kept"}, {Version: "v1", What: "kept"}, {Version: "v3", What: "added"},
	}, load(more, ptr("v3"), true))
	require.Equal(t, "v2* v1 v3", versionsOf(t, s, key), "what is deployed here stays")
	load(more, nil, true)
	require.Equal(t, "v2* v1 v3", versionsOf(t, s, key), "an import undeploys nothing")
	undeploy(t, s, key)
	require.True(t, load(more, ptr("v1"), true)[1].Deployed)
	require.Equal(t, "v2 v1* v3", versionsOf(t, s, key))
	requireSound(t, db)
}

func TestApplicationImportConflicts(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"), appVersion("v2", "a"))
	load := func(versions ...ledger.AppVersion) []store.ImportedVersion {
		t.Helper()
		list, err := s.ImportVersions(ctx, key, versions, ptr("v2"), "importer", true)
		require.NoError(t, err)
		require.Equal(t, "v1 v2", versionsOf(t, s, key), "nothing is changed")
		return list
	}

	require.Equal(t, []store.ImportedVersion{
		{Version: "v1", What: "conflict", Why: "a different manifest is stored under this version"},
		{Version: "v2", What: "kept"},
		{Version: "v3", What: "added"},
	}, load(appVersion("v1", "b"), appVersion("v2", "a"), appVersion("v3", "a")))
	require.Equal(t, []store.ImportedVersion{
		{Version: "v0", What: "conflict", Why: `version "v2", which came after it, is stored already`},
		{Version: "v2", What: "kept"},
	}, load(appVersion("v0", "a"), appVersion("v2", "a")))
	require.Equal(t, []store.ImportedVersion{
		{Version: "v3", What: "conflict", Why: "the import has this version twice"}, {Version: "v3", What: "added"},
	}, load(appVersion("v3", "a"), appVersion("v3", "a")))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
	requireSound(t, db)
}

func TestApplicationImportThatCannotBeDeployed(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	put(t, s, appKey("mail"), appVersion("v1", "taken"))
	deploy(t, s, appKey("mail"), nil)
	for _, apply := range []bool{false, true} {
		list, err := s.ImportVersions(ctx, appKey("shop"), []ledger.AppVersion{appVersion("v1", "taken")}, ptr("v1"), "", apply)
		var taken *store.IDTaken
		require.ErrorAs(t, err, &taken)
		require.Equal(t, []store.ImportedVersion{{Version: "v1", What: "added", Deployed: true}}, list)

		_, err = s.ImportVersions(ctx, appKey("shop"), []ledger.AppVersion{using(appVersion("v1", "a"), "platform")}, ptr("v1"), "", apply)
		var missing *store.SharedMissing
		require.ErrorAs(t, err, &missing)

		_, err = s.ImportVersions(ctx, appKey("shop"), []ledger.AppVersion{appVersion("v1", "a")}, ptr("v2"), "", apply)
		var noVersion *store.NoVersion
		require.ErrorAs(t, err, &noVersion)

		_, err = s.ImportVersions(ctx, appKey("shop"), []ledger.AppVersion{appVersion("v1", "a"), appVersion("v\x00", "a")}, nil, "", apply)
		require.ErrorIs(t, err, store.ErrText)
	}
	require.Equal(t, "not found", versionsOf(t, s, appKey("shop")))
	requireSound(t, db)
}

func TestApplicationImportRacesPut(t *testing.T) {
	ctx := context.Background()
	stores, db := engines(t, 2)
	versions := []ledger.AppVersion{appVersion("v1", "a"), appVersion("v2", "a")}
	outcomes := map[string]int{}
	for range 100 {
		remove(t, stores[0], appKey("shop"), nil)
		var importErr, putErr error
		atOnce(
			func() { _, importErr = stores[0].ImportVersions(ctx, appKey("shop"), versions, ptr("v2"), "", true) },
			func() { _, putErr = stores[1].PutApplication(ctx, appKey("shop"), appVersion("v1", "a"), [16]byte{1}) })
		require.NoError(t, importErr)
		if putErr != nil {
			require.ErrorIs(t, putErr, store.ErrVersionExists)
		}
		require.Equal(t, "v1 v2*", versionsOf(t, stores[0], appKey("shop")))
		outcomes[map[bool]string{true: "put first", false: "import first"}[putErr == nil]]++
	}
	t.Log(outcomes)
	requireSound(t, db)
}
