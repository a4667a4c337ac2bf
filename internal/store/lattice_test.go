package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// take makes an observer the one of lattice west.
func take(t testing.TB, s *store.Store, observer string) int64 {
	t.Helper()
	epoch, err := s.TakeLattice(context.Background(), "default", "west", observer)
	require.NoError(t, err)
	return epoch
}

// noteHosts records how many hosts of lattice west are alive.
func noteHosts(t testing.TB, s *store.Store, epoch int64, hosts int) (needed bool) {
	t.Helper()
	needed, err := s.NoteLattice(context.Background(), "default", "west", epoch, hosts)
	require.NoError(t, err)
	return needed
}

// assess records how an application is and returns whether that was stale.
func assess(t testing.TB, s *store.Store, a store.Assessment) (stale bool) {
	t.Helper()
	stale, err := s.Assess(context.Background(), a)
	require.NoError(t, err)
	return stale
}

func keeps(t testing.TB, s *store.Store, key ledger.AppKey) bool {
	t.Helper()
	kept, err := s.Keeps(context.Background(), key)
	require.NoError(t, err)
	return kept
}

// kept lists what is to be kept in lattice west.
func kept(t testing.TB, s *store.Store) (names []string) {
	t.Helper()
	keys, err := s.ApplicationsToKeep(context.Background(), "default", "west")
	require.NoError(t, err)
	for _, key := range keys {
		require.Equal(t, appKey(key.Name), key)
		names = append(names, key.Name)
	}
	return names
}

// owned is what the reconciliation of an application remembers, "none" when
// there is none.
func owned(t testing.TB, db *pgx.Conn, key ledger.AppKey) string {
	t.Helper()
	text := "none"
	rows, err := db.Query(context.Background(), `
SELECT owned::text FROM reconciliations WHERE account = $1 AND lattice = $2 AND name = $3`, key.Account, key.Lattice, key.Name)
	require.NoError(t, err)
	_, err = pgx.ForEachRow(rows, []any{&text}, func() error { return nil })
	require.NoError(t, err)
	return text
}

// pastWaits lists the waits that ended, as "application code ended_by".
func pastWaits(t testing.TB, db *pgx.Conn) []string {
	t.Helper()
	rows, err := db.Query(context.Background(), `
SELECT application || ' ' || code || ' ' || ended_by FROM wait_history ORDER BY id`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func storedStatus(t testing.TB, s *store.Store, key ledger.AppKey) string {
	t.Helper()
	raw, err := s.ApplicationStatus(context.Background(), key)
	require.NoError(t, err)
	return string(raw)
}

func waitOf(t testing.TB, s *store.Store, key ledger.AppKey) *ledger.AppWait {
	t.Helper()
	app, err := s.Application(context.Background(), key)
	require.NoError(t, err)
	return app.Wait
}

const (
	isDeployed = `{"status":{"type":"deployed"},"version":"","components":[]}`
	isFailed   = `{"status":{"type":"failed","message":"no such image","reason":"fetch_failed","attempt":2},"version":"","components":[]}`
	isWaiting  = `{"status":{"type":"waiting","message":"no host has the label gpu"},"version":"","components":[]}`
	noLiveHost = "no host of lattice west is alive; nothing is started until one appears"
)

var (
	firstWait = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	laterWait = time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
)

func noEligible(reason string, since time.Time) *ledger.AppWait {
	return &ledger.AppWait{Kind: "lattice", Code: "no_eligible_host", Reason: reason, Since: since}
}

func TestLatticeEpochsGrowAndSupersede(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	require.ErrorIs(t, s.HoldsLattice(ctx, "default", "west", 0), store.ErrSuperseded, "nobody holds what nobody took")
	_, err := s.NoteLattice(ctx, "default", "west", 0, 1)
	require.ErrorIs(t, err, store.ErrSuperseded)
	require.Zero(t, count(t, db, "SELECT count(*) FROM lattices"))

	require.EqualValues(t, 1, take(t, s, "a"))
	require.NoError(t, s.HoldsLattice(ctx, "default", "west", 1))
	require.EqualValues(t, 2, take(t, s, "b"))
	require.EqualValues(t, 3, take(t, s, "b"), "the same process begins anew")
	for _, lattice := range []string{"east", "west"} {
		epoch, err := s.TakeLattice(ctx, "ACME", lattice, "c")
		require.NoError(t, err)
		require.EqualValues(t, 1, epoch, "each lattice of each account has its own")
	}

	require.NoError(t, s.HoldsLattice(ctx, "default", "west", 3))
	for _, epoch := range []int64{1, 2, 4} {
		err := s.HoldsLattice(ctx, "default", "west", epoch)
		require.ErrorIs(t, err, store.ErrSuperseded)
		require.ErrorIs(t, err, store.ErrConflict)
		require.EqualError(t, err, "another engine observes the lattice now: not possible in the present state")
		_, err = s.NoteLattice(ctx, "default", "west", epoch, 7)
		require.ErrorIs(t, err, store.ErrSuperseded)
	}
	require.Zero(t, count(t, db, "SELECT count(*) FROM lattices WHERE hosts <> 0 OR checked_at IS NOT NULL"))
}

func TestLatticeIsNeededForWhatIsDeployedOrLeft(t *testing.T) {
	s, _ := open(t, rules)
	epoch, key := take(t, s, "a"), appKey("shop")
	require.False(t, noteHosts(t, s, epoch, 2))

	put(t, s, key, appVersion("v1", "a"))
	require.False(t, noteHosts(t, s, epoch, 2), "what is only stored needs nobody")
	d := deploy(t, s, key, nil)
	require.True(t, noteHosts(t, s, epoch, 0), "also without hosts")
	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Revision: d.Revision, Status: json.RawMessage(isDeployed)}))
	undeploy(t, s, key)
	require.True(t, noteHosts(t, s, epoch, 1), "it is not cleaned up yet")
	remove(t, s, key, nil)
	require.True(t, noteHosts(t, s, epoch, 1), "also when it is deleted")
	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Clean: true}))
	require.False(t, noteHosts(t, s, epoch, 1))

	east := key
	east.Lattice = "east"
	put(t, s, east, appVersion("v1", "a"))
	deploy(t, s, east, nil)
	require.False(t, noteHosts(t, s, epoch, 1), "another lattice is another matter")
}

func held(t testing.TB, s *store.Store) store.Holding {
	t.Helper()
	h, err := s.LatticeHeld(context.Background(), "default", "west")
	require.NoError(t, err)
	return h
}

func TestLatticeIsReleasedWhenNobodyNeedsIt(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	release := func(epoch int64) bool {
		t.Helper()
		released, err := s.ReleaseLattice(ctx, "default", "west", epoch)
		require.NoError(t, err)
		return released
	}
	_, err := s.ReleaseLattice(ctx, "default", "west", 1)
	require.ErrorIs(t, err, store.ErrSuperseded, "nobody has it")
	require.Equal(t, store.NotHeld, held(t, s))

	epoch, key := take(t, s, "a"), appKey("shop")
	require.Equal(t, store.Held, held(t, s), "from the first moment")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	require.False(t, release(epoch))
	require.Equal(t, store.Held, held(t, s))
	undeploy(t, s, key)
	require.True(t, release(epoch))
	require.Equal(t, store.Released, held(t, s))
	require.True(t, release(epoch), "it is said again")

	next := take(t, s, "b")
	require.Equal(t, store.Held, held(t, s))
	_, err = s.ReleaseLattice(ctx, "default", "west", epoch)
	require.ErrorIs(t, err, store.ErrSuperseded)
	require.Equal(t, store.Held, held(t, s))

	silent := `UPDATE lattices SET checked_at = clock_timestamp() - interval '21 seconds', taken_at = clock_timestamp() - interval '1 hour'`
	_, err = db.Exec(ctx, silent)
	require.NoError(t, err)
	require.Equal(t, store.NotHeld, held(t, s), "who says nothing may be gone")
	noteHosts(t, s, next, 1)
	require.Equal(t, store.Held, held(t, s))
}

// TestLatticeIsNotReleasedUnderADeployment has engines deploy while the observer
// lets go: whoever finds it held after a deployment must be able to rely on it.
func TestLatticeIsNotReleasedUnderADeployment(t *testing.T) {
	stores, db := engines(t, 3)
	ctx, key := context.Background(), appKey("shop")
	put(t, stores[0], key, appVersion("v1", "a"))
	for i := range 150 {
		epoch := take(t, stores[0], "a")
		var found store.Holding
		var released bool
		var err error
		release := func() { released, err = stores[1].ReleaseLattice(ctx, "default", "west", epoch) }
		use := func() {
			deploy(t, stores[2], key, nil)
			found = held(t, stores[2])
		}
		switch i {
		case 0: // before it
			use()
			release()
			require.False(t, released)
		case 1: // after it
			release()
			use()
			require.True(t, released)
		default:
			atOnce(release, use)
		}
		require.NoError(t, err)
		if released {
			require.Equal(t, store.Released, found, "round %d: a deployment relied on an observer that let go", i)
		} else {
			require.Equal(t, store.Held, found)
		}
		undeploy(t, stores[0], key)
	}
	for _, s := range stores {
		s.Close()
	}
	requireNoDeadlocks(t, db)
}

func TestLatticeIsFirstObservedWithItsFirstHost(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	before, err := s.Now(ctx)
	require.NoError(t, err)
	observed := func() api.Lattice {
		list, err := s.Lattices(ctx)
		require.NoError(t, err)
		require.Len(t, list.Lattices, 1)
		require.False(t, list.Now.Before(before))
		return list.Lattices[0]
	}
	empty, err := s.Lattices(ctx)
	require.NoError(t, err)
	require.Equal(t, []api.Lattice{}, empty.Lattices, "for JSON it is an empty list")

	epoch := take(t, s, "a")
	l := observed()
	require.False(t, l.TakenAt.Before(before))
	require.Equal(t, api.Lattice{Account: "default", Lattice: "west", Observer: "a", Epoch: 1, TakenAt: l.TakenAt}, l)
	noteHosts(t, s, epoch, 0)
	l = observed()
	require.Nil(t, l.ObservedSince, "nobody has seen a host")
	require.False(t, l.CheckedAt.Before(l.TakenAt))
	noteHosts(t, s, epoch, 3)
	first := observed()
	require.Equal(t, 3, first.Hosts)
	require.False(t, first.ObservedSince.Before(*l.CheckedAt))
	noteHosts(t, s, epoch, 0)
	noteHosts(t, s, take(t, s, "b"), 2)
	l = observed()
	require.Equal(t, first.ObservedSince, l.ObservedSince, "whoever observes, and whatever became of that host")
	require.Equal(t, api.Lattice{
		Account: "default", Lattice: "west", Observer: "b", Epoch: 2, TakenAt: l.TakenAt,
		ObservedSince: first.ObservedSince, Hosts: 2, CheckedAt: l.CheckedAt,
	}, l)
	require.True(t, l.TakenAt.After(first.TakenAt))
}

func TestLatticesAreListed(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	for _, l := range []struct{ account, lattice string }{{"default", "west"}, {"default", "b"}, {"default", "B"}, {"ACME", "z"}} {
		_, err := s.TakeLattice(ctx, l.account, l.lattice, "a")
		require.NoError(t, err)
	}
	_, err := s.NoteLattice(ctx, "default", "b", 1, 4)
	require.NoError(t, err)
	for _, name := range []string{"one", "two", "stored"} {
		put(t, s, appKey(name), appVersion("v1", name))
	}
	deploy(t, s, appKey("one"), nil)
	deploy(t, s, appKey("two"), nil)

	list, err := s.Lattices(ctx)

	require.NoError(t, err)
	var words []string
	for _, l := range list.Lattices {
		words = append(words, fmt.Sprintf("%s/%s %d hosts %d applications %t", l.Account, l.Lattice, l.Hosts, l.Applications, l.ObservedSince != nil))
	}
	require.Equal(t, []string{
		"ACME/z 0 hosts 0 applications false", "default/B 0 hosts 0 applications false",
		"default/b 4 hosts 0 applications true", "default/west 0 hosts 2 applications false",
	}, words)
}

func TestApplicationsToKeep(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	for _, name := range []string{"stored", "deployed", "Deployed", "left", "clean", "gone"} {
		put(t, s, appKey(name), appVersion("v1", name))
	}
	epoch := take(t, s, "a")
	for _, name := range []string{"deployed", "Deployed", "left", "clean", "gone"} {
		d := deploy(t, s, appKey(name), nil)
		require.False(t, assess(t, s, store.Assessment{Key: appKey(name), Epoch: epoch, Revision: d.Revision, Status: json.RawMessage(isDeployed)}))
	}
	undeploy(t, s, appKey("left"))
	undeploy(t, s, appKey("clean"))
	app, err := s.Application(ctx, appKey("clean"))
	require.NoError(t, err)
	require.False(t, assess(t, s, store.Assessment{
		Key: appKey("clean"), Epoch: epoch, Revision: app.Revision, Status: json.RawMessage(storedStatus(t, s, appKey("clean"))), Clean: true,
	}))
	remove(t, s, appKey("gone"), nil)
	east := ledger.AppKey{Account: "default", Lattice: "east", Name: "deployed"}
	acme := ledger.AppKey{Account: "ACME", Lattice: "west", Name: "deployed"}
	for _, key := range []ledger.AppKey{east, acme} {
		put(t, s, key, appVersion("v1", "a"))
		deploy(t, s, key, nil)
	}

	require.Equal(t, []string{"Deployed", "deployed", "gone", "left"}, kept(t, s))
	all, err := s.ApplicationsToKeep(ctx, "", "")
	require.NoError(t, err)
	require.Equal(t, []ledger.AppKey{acme, east, appKey("Deployed"), appKey("deployed"), appKey("gone"), appKey("left")}, all)
	for _, key := range all {
		require.True(t, keeps(t, s, key), key)
	}
	for _, name := range []string{"stored", "clean", "never"} {
		require.False(t, keeps(t, s, appKey(name)), name)
	}
}

func TestLeftOver(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	for _, name := range []string{"stored", "deployed", "undeployed", "deleted", "again"} {
		put(t, s, appKey(name), appVersion("v1", name))
	}
	for _, name := range []string{"deployed", "undeployed", "deleted", "again"} {
		deploy(t, s, appKey(name), nil)
	}
	undeploy(t, s, appKey("undeployed"))
	remove(t, s, appKey("deleted"), nil)
	remove(t, s, appKey("again"), nil)
	put(t, s, appKey("again"), appVersion("v1", "again"))
	emptyOutbox(t, db)

	for _, name := range []string{"stranger", "stored", "deployed", "deleted", "again"} {
		found, err := s.LeftOver(ctx, appKey(name))
		require.NoError(t, err)
		require.False(t, found, name)
		require.Equal(t, "none", owned(t, db, appKey(name)), name)
	}
	elsewhere := ledger.AppKey{Account: "default", Lattice: "east", Name: "undeployed"}
	found, err := s.LeftOver(ctx, elsewhere)
	require.NoError(t, err)
	require.False(t, found)
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))

	found, err = s.LeftOver(ctx, appKey("undeployed"))
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, keeps(t, s, appKey("undeployed")))
	require.Equal(t, "{}", owned(t, db, appKey("undeployed")))
	require.Equal(t, []string{"revised 5"}, outbox(t, db, appKey("undeployed"), "temporal"), "its workflow begins at once")
	require.Empty(t, outbox(t, db, appKey("undeployed"), "nats"), "for others nothing has changed")
	found, err = s.LeftOver(ctx, appKey("undeployed"))
	require.NoError(t, err)
	require.False(t, found, "it is being cleaned up already")
	require.Equal(t, []string{"revised 5"}, outbox(t, db, appKey("undeployed"), "temporal"))
}

func TestOtherManifests(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	put(t, s, appKey("shop"), appVersion("v1", "a"))
	put(t, s, appKey("mail"), appVersion("v1", "b"), appVersion("v2", "b"))
	put(t, s, appKey("stored"), appVersion("v1", "c"))
	for _, key := range []ledger.AppKey{
		{Account: "default", Lattice: "east", Name: "far"}, {Account: "ACME", Lattice: "west", Name: "foreign"},
	} {
		put(t, s, key, appVersion("v1", "d"))
		deploy(t, s, key, nil)
	}
	deploy(t, s, appKey("shop"), nil)
	deploy(t, s, appKey("mail"), ptr("v1"))
	others := func(name string) (list []string) {
		manifests, err := s.OtherManifests(ctx, appKey(name))
		require.NoError(t, err)
		for _, m := range manifests {
			list = append(list, string(m))
		}
		return list
	}

	require.Equal(t, []string{`{"kind": "Application", "version": "v1", "id": "b"}`}, others("shop"), "the deployed version, to the byte")
	require.Equal(t, []string{`{"kind": "Application", "version": "v1", "id": "a"}`}, others("mail"))
	require.ElementsMatch(t, append(others("shop"), others("mail")...), others("unknown"))
	undeploy(t, s, appKey("mail"))
	require.Empty(t, others("shop"))
}

func TestTaskOfAnApplication(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	key := appKey("shop")
	task := func() store.Task {
		task, err := s.Task(ctx, key)
		require.NoError(t, err)
		return task
	}
	require.Equal(t, store.Task{}, task(), "nothing is known")

	put(t, s, key, appVersion("v1", "a"))
	require.Equal(t, store.Task{
		Status: json.RawMessage(`{"status":{"type":"undeployed"},"version":"","components":[]}`),
	}, task())
	deploy(t, s, key, nil)
	epoch := take(t, s, "a")
	noteHosts(t, s, epoch, 1)
	things := scaler.Resources{
		Links:   []scaler.Tuple{{Source: "web", Target: "kv", Name: "default", Namespace: "wasi", Package: "keyvalue"}},
		Configs: []string{"shop-a-defaults"},
	}
	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: json.RawMessage(isDeployed), Owned: things}))
	require.Equal(t, store.Task{
		Revision: 1, IsDeployed: true, Version: "v1", Status: json.RawMessage(isDeployed), Owned: things, Observed: true,
		Manifest: json.RawMessage(`{"kind": "Application", "version": "v1", "id": "a"}`),
	}, task())

	remove(t, s, key, nil)
	require.Equal(t, store.Task{Owned: things, Observed: true}, task(), "what it has made outlives it")
}

func TestAssessmentIsTheStatusAndToldOnce(t *testing.T) {
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	epoch := take(t, s, "a")
	emptyOutbox(t, db)
	is := func(status string) bool {
		return assess(t, s, store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: json.RawMessage(status)})
	}

	require.False(t, is(isFailed))
	require.Equal(t, isFailed, storedStatus(t, s, key))
	list, _, err := s.ListApplications(context.Background(), "default", "west", "", 0)
	require.NoError(t, err)
	require.Equal(t, wadm.Failed, list[0].StatusType)
	require.Equal(t, "no such image", list[0].StatusMessage)
	require.Equal(t, []string{"status 1"}, outbox(t, db, key, "nats"))

	require.False(t, is(isFailed))
	require.Equal(t, []string{"status 1"}, outbox(t, db, key, "nats"), "nothing has changed")
	require.False(t, is(isDeployed))
	require.Equal(t, []string{"status 1", "status 1"}, outbox(t, db, key, "nats"))
	require.Empty(t, outbox(t, db, key, "temporal"), "its workflow knows")
	news, err := s.ClaimNews(context.Background(), 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, isFailed, string(news[0].Payload), "each is told, in order")
	list, _, err = s.ListApplications(context.Background(), "default", "west", "", 0)
	require.NoError(t, err)
	require.Empty(t, list[0].StatusMessage)

	for _, bad := range []string{`{"status":{"type":"odd"}}`, `nonsense`} {
		_, err := s.Assess(context.Background(), store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: json.RawMessage(bad)})
		require.ErrorContains(t, err, "record how application west/shop is: ")
	}
	require.Equal(t, isDeployed, storedStatus(t, s, key))
}

func TestAssessmentSettlesTheWait(t *testing.T) {
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	epoch := take(t, s, "a")
	waits := func(w *ledger.AppWait) {
		t.Helper()
		require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: json.RawMessage(isWaiting), Wait: w}))
	}

	waits(noEligible("no host has the label gpu", firstWait))
	require.Equal(t, noEligible("no host has the label gpu", firstWait), waitOf(t, s, key))
	require.Equal(t, []string{"shop never_observed changed"}, pastWaits(t, db), "something else is waited for now")

	// What is observed says since when, and the same wait stays one wait.
	waits(noEligible("no host has the label gpu", laterWait))
	require.Equal(t, firstWait, waitOf(t, s, key).Since)
	waits(noEligible("none of 2 hosts has the label gpu", firstWait))
	require.Equal(t, noEligible("none of 2 hosts has the label gpu", firstWait), waitOf(t, s, key))
	require.Len(t, pastWaits(t, db), 1)

	backoff := &ledger.AppWait{Kind: "backoff", Code: "command_failed", Reason: "no such image (attempt 2)", Since: laterWait, Attempts: 2, Next: laterWait.Add(time.Minute)}
	waits(backoff)
	require.Equal(t, backoff, waitOf(t, s, key), "another kind is another wait")
	backoff.Reason, backoff.Attempts, backoff.Next = "no such image (attempt 3)", 3, time.Time{}
	waits(backoff)
	require.Equal(t, backoff, waitOf(t, s, key), "it is tried again now")
	waits(nil)
	require.Nil(t, waitOf(t, s, key))
	waits(nil)
	require.Equal(t, []string{"shop never_observed changed", "shop no_eligible_host changed", "shop command_failed answered"}, pastWaits(t, db))
	require.Equal(t, 1, count(t, db, `
SELECT count(*) FROM wait_history WHERE since = $1 AND reason = 'none of 2 hosts has the label gpu' AND account = 'default' AND lattice = 'west'`, firstWait))

	waits(noEligible("again", laterWait))
	require.Equal(t, laterWait, waitOf(t, s, key).Since, "when it recurs, it is a new wait")
	undeploy(t, s, key)
	require.Equal(t, "shop no_eligible_host undeployed", pastWaits(t, db)[3])
}

// TestAssessmentOfWhatHasChangedMeanwhile remembers what was made, so that it is
// cleaned up, and says nothing else.
func TestAssessmentOfWhatHasChangedMeanwhile(t *testing.T) {
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	deploy(t, s, key, nil)
	epoch := take(t, s, "a")
	before, wait := storedStatus(t, s, key), waitOf(t, s, key)
	emptyOutbox(t, db)
	stale := func(revision int64, configs ...string) {
		t.Helper()
		require.True(t, assess(t, s, store.Assessment{
			Key: key, Epoch: epoch, Revision: revision, Status: json.RawMessage(isDeployed), Owned: scaler.Resources{Configs: configs},
		}))
		require.Equal(t, before, storedStatus(t, s, key))
		require.Equal(t, wait, waitOf(t, s, key))
		require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
		require.Empty(t, pastWaits(t, db))
	}
	stale(1, "one")
	require.Equal(t, `{"configs":["one"]}`, owned(t, db, key))
	stale(3, "one", "two")
	require.Equal(t, `{"configs":["one","two"]}`, owned(t, db, key))
	stale(0)
	require.Equal(t, `{}`, owned(t, db, key))

	unknown := appKey("unknown")
	require.True(t, assess(t, s, store.Assessment{Key: unknown, Epoch: epoch, Revision: 7, Status: json.RawMessage(isDeployed)}))
	require.Equal(t, `{}`, owned(t, db, unknown))
}

func TestReconciliationOfADeletedApplicationLivesUntilItIsClean(t *testing.T) {
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	epoch := take(t, s, "a")
	things := scaler.Resources{Configs: []string{"shop-a"}}
	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: json.RawMessage(isDeployed), Owned: things}))
	remove(t, s, key, nil)
	emptyOutbox(t, db)

	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Status: json.RawMessage(isFailed), Owned: things}), "it is not known, as expected")
	require.Equal(t, `{"configs":["shop-a"]}`, owned(t, db, key))
	require.Equal(t, []string{"shop"}, kept(t, s))
	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Clean: true}))
	require.Equal(t, "none", owned(t, db, key))
	require.False(t, keeps(t, s, key))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"), "of what is not there nothing is told")
	require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Clean: true}), "twice does no harm")
}

func TestAssessmentOfASupersededObserverIsRefused(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	before := storedStatus(t, s, key)
	emptyOutbox(t, db)
	a := store.Assessment{
		Key: key, Epoch: 1, Revision: 1, Status: json.RawMessage(isDeployed), Owned: scaler.Resources{Configs: []string{"x"}},
	}
	refused := func(a store.Assessment) {
		t.Helper()
		_, err := s.Assess(ctx, a)
		require.ErrorIs(t, err, store.ErrSuperseded)
		require.EqualError(t, err, "record how application west/shop is: another engine observes the lattice now: not possible in the present state")
		require.Equal(t, before, storedStatus(t, s, key))
		require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
	}
	refused(a)
	require.Equal(t, "none", owned(t, db, key), "nobody has taken the lattice")
	take(t, s, "a")
	require.False(t, assess(t, s, a))
	before = storedStatus(t, s, key)
	emptyOutbox(t, db)
	take(t, s, "b")

	a.Status, a.Owned = json.RawMessage(isFailed), scaler.Resources{}
	refused(a)
	a.Clean = true
	refused(a)
	require.Equal(t, `{"configs":["x"]}`, owned(t, db, key))
	a.Epoch = 3
	refused(a)
}

// TestOneObserverOfManyHasTheLattice lets eight take it from each other while
// they write. Whoever took it last can write in the end, nobody else, and what
// is stored is what the last one said.
func TestOneObserverOfManyHasTheLattice(t *testing.T) {
	const observers, turns = 8, 25
	ctx := context.Background()
	stores, db := engines(t, 4)
	key := appKey("shop")
	put(t, stores[0], key, appVersion("v1", "a"))
	deploy(t, stores[0], key, nil)
	emptyOutbox(t, db)

	var mu sync.Mutex
	var epochs []int64
	newest := int64(0) // epoch that is known to have been given
	said := func(epoch int64) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"status":{"type":"deployed","message":"%d"},"version":"","components":[]}`, epoch))
	}
	calls := make([]func(), observers)
	for i := range calls {
		s := stores[i%len(stores)]
		calls[i] = func() {
			for range turns {
				epoch, err := s.TakeLattice(ctx, "default", "west", fmt.Sprint("engine ", i))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				epochs = append(epochs, epoch)
				newest = max(newest, epoch)
				mu.Unlock()
				for range 3 {
					mu.Lock()
					outlived := newest > epoch
					mu.Unlock()
					_, err := s.Assess(ctx, store.Assessment{
						Key: key, Epoch: epoch, Revision: 1, Status: said(epoch), Owned: scaler.Resources{Configs: []string{fmt.Sprint(epoch)}},
					})
					switch {
					case err == nil && outlived:
						t.Errorf("epoch %d wrote although a later one had been given", epoch)
					case err != nil && !isSuperseded(err):
						t.Error(err)
					}
				}
			}
		}
	}
	atOnce(calls...)

	require.Len(t, epochs, observers*turns)
	seen := map[int64]bool{}
	for _, e := range epochs {
		seen[e] = true
	}
	require.Len(t, seen, observers*turns, "no epoch is given twice")
	require.EqualValues(t, observers*turns, newest)
	for epoch := int64(1); epoch <= newest; epoch++ {
		_, err := stores[0].Assess(ctx, store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: said(epoch)})
		if epoch < newest {
			require.ErrorIs(t, err, store.ErrSuperseded)
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, `{"status":{"type":"deployed","message":"200"},"version":"","components":[]}`, storedStatus(t, stores[0], key))
	rows, err := db.Query(ctx, `SELECT (payload #>> '{status,message}')::bigint FROM application_outbox ORDER BY id`)
	require.NoError(t, err)
	told, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	for i := 1; i < len(told); i++ {
		require.Greater(t, told[i], told[i-1], "what was told went back: %v", told)
	}
	for _, s := range stores {
		s.Close()
	}
	requireNoDeadlocks(t, db)
}

func isSuperseded(err error) bool { return errors.Is(err, store.ErrSuperseded) }

// TestDeployWhereALatticeWasObserved shows the first status of a deployment in
// every state a lattice can be in.
func TestDeployWhereALatticeWasObserved(t *testing.T) {
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	first := func() string {
		deploy(t, s, key, nil)
		var status wadm.Status
		require.NoError(t, json.Unmarshal([]byte(storedStatus(t, s, key)), &status))
		require.Equal(t, status.Status, status.Scalers[0].Status)
		require.Equal(t, "scaler-a", status.Scalers[0].ID)
		wait := waitOf(t, s, key)
		if wait != nil {
			require.Equal(t, wait.Since, *status.Status.Since)
			require.Equal(t, wait.Reason, status.Status.Message)
			require.Equal(t, wait.Code, status.Status.Reason)
		}
		return fmt.Sprintf("%s: %s; it waits: %t", status.Status.Type, status.Status.Message, wait != nil)
	}

	settled := func(status string, wait *ledger.AppWait) {
		t.Helper()
		app, err := s.Application(context.Background(), key)
		require.NoError(t, err)
		require.False(t, assess(t, s, store.Assessment{
			Key: key, Epoch: 1, Revision: app.Revision, Status: json.RawMessage(status), Wait: wait,
		}))
	}

	epoch := take(t, s, "a")
	noteHosts(t, s, epoch, 0)
	require.Equal(t, "waiting: "+neverObserved+"; it waits: true", first(), "observed, and no host was ever seen")
	noteHosts(t, s, epoch, 2)
	emptyOutbox(t, db)
	require.Equal(t, "reconciling: comparing with the lattice; it waits: false", first())
	require.Equal(t, []string{"shop never_observed answered"}, pastWaits(t, db))
	require.Equal(t, []string{"published 2", "status 2"}, outbox(t, db, key, "nats"))
	noteHosts(t, s, epoch, 0)
	require.Equal(t, "waiting: "+noLiveHost+"; it waits: true", first())
	require.Equal(t, "no_live_hosts", waitOf(t, s, key).Code)
	since := waitOf(t, s, key).Since
	require.Equal(t, "waiting: "+noLiveHost+"; it waits: true", first())
	require.Equal(t, since, waitOf(t, s, key).Since, "it is one wait")

	failing := &ledger.AppWait{Kind: "backoff", Code: "command_failed", Reason: "no such image", Since: firstWait}
	settled(isFailed, failing)
	require.Equal(t, "waiting: "+noLiveHost+"; it waits: true", first())
	require.True(t, waitOf(t, s, key).Since.After(since), "it waited for something else in between")

	noteHosts(t, s, epoch, 1)
	settled(isFailed, failing)
	require.Equal(t, "reconciling: comparing with the lattice; it waits: false", first(), "it is tried again at once")
	unsuited := noEligible("no host has the label gpu", firstWait)
	settled(isWaiting, unsuited)
	deploy(t, s, key, nil)
	require.Equal(t, unsuited, waitOf(t, s, key), "whether there is a host that suits by now is seen when somebody has looked")
	task, err := s.Task(context.Background(), key)
	require.NoError(t, err)
	require.Equal(t, unsuited, task.Wait)

	east := ledger.AppKey{Account: "default", Lattice: "east", Name: "shop"}
	put(t, s, east, appVersion("v1", "a"))
	noteHosts(t, s, epoch, 1)
	deploy(t, s, east, nil)
	require.Equal(t, "never_observed", waitOf(t, s, east).Code, "hosts of another lattice do not count")
}

func TestWaitsThatWorkflowsOfApplicationsDeclare(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	note := func(key ledger.AppKey, kind, code string, since time.Time) time.Time {
		t.Helper()
		return noteWait(t, s, ledger.OpenWait{
			WorkflowID: api.AppWorkflowID(key.Account, key.Lattice, key.Name), App: &key,
			Kind: kind, Code: code, Reason: "because of " + code, Since: since,
		})
	}

	note(key, "observer", "observer_absent", firstWait)
	list, err := s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []api.Wait{{
		Kind: "observer", Code: "observer_absent", Reason: "because of observer_absent", Since: firstWait,
		Account: "default", Lattice: "west", Application: "shop", WorkflowID: "app.default.west.shop",
	}}, unchecked(list.Waits))
	require.Equal(t, firstWait, note(key, "observer", "observer_absent", laterWait))
	require.Equal(t, &ledger.AppWait{
		Kind: "observer", Code: "observer_absent", Reason: "because of observer_absent", Since: firstWait,
	}, waitOf(t, s, key), "since is kept from the first time")
	require.Equal(t, laterWait, note(key, "backoff", "command_failed", laterWait))
	require.Equal(t, laterWait, waitOf(t, s, key).Since, "another kind is another wait")

	require.NoError(t, s.ClearWait(ctx, "app.default.west.shop"))
	require.Equal(t, "command_failed", waitOf(t, s, key).Code, "what the observer found is not the workflow's to end")
	note(key, "observer", "observer_absent", laterWait)
	require.NoError(t, s.ClearWait(ctx, "app.default.west.shop"))
	require.Nil(t, waitOf(t, s, key))
	require.NoError(t, s.ClearWait(ctx, "app.default.west.shop"), "twice does no harm")
	require.Equal(t, []string{
		"shop never_observed changed", "shop observer_absent changed", "shop command_failed changed", "shop observer_absent answered",
	}, pastWaits(t, db))

	note(appKey("unknown"), "observer", "observer_absent", firstWait)
	require.Zero(t, count(t, db, "SELECT count(*) FROM open_waits"), "nobody waits for what is not stored")
	note(key, "observer", "observer_absent", firstWait)
	remove(t, s, key, nil)
	note(key, "observer", "observer_absent", firstWait)
	require.Zero(t, count(t, db, "SELECT count(*) FROM open_waits"), "nor for what is deleted")
	require.Equal(t, "shop observer_absent deleted", pastWaits(t, db)[4])
}

// TestStatusOfWhatNobodyObserves: an application whose lattice nobody observes says
// so, in every answer and in what is published, and what was seen of it last is kept
// for whoever observes it next.
func TestStatusOfWhatNobodyObserves(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("shop")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	epoch := take(t, s, "a")
	assessed := func(status string) {
		t.Helper()
		require.False(t, assess(t, s, store.Assessment{Key: key, Epoch: epoch, Revision: 1, Status: json.RawMessage(status)}))
	}
	assessed(isDeployed)
	emptyOutbox(t, db)
	published := func() (all []string) {
		t.Helper()
		news, err := s.ClaimNews(ctx, 10, time.Minute, store.ChannelNATS)
		require.NoError(t, err)
		for _, n := range news {
			all = append(all, n.Kind+" "+string(n.Payload))
			require.NoError(t, s.NewsDelivered(ctx, []int64{n.ID}))
		}
		return all
	}
	absent := ledger.OpenWait{
		WorkflowID: "app.default.west.shop", App: &key, Kind: "observer", Code: "observer_absent", Reason: "no engine observes lattice west", Since: firstWait,
	}
	const unobserved = `{"status":{"type":"waiting","message":"no engine observes lattice west","reason":"observer_absent","since":"2026-01-02T03:04:05Z"},` +
		`"version":"","components":[]}`
	for _, end := range []func(){
		func() { require.NoError(t, s.ClearWait(ctx, absent.WorkflowID)) },
		func() { assessed(isDeployed) },
	} {
		noteWait(t, s, absent)
		require.JSONEq(t, unobserved, storedStatus(t, s, key))
		list, _, err := s.ListApplications(ctx, "default", "west", "", 0)
		require.NoError(t, err)
		require.JSONEq(t, unobserved, string(list[0].Status))
		require.Equal(t, []any{wadm.Waiting, "no engine observes lattice west"}, []any{list[0].StatusType, list[0].StatusMessage})
		require.Equal(t, []string{"status " + storedStatus(t, s, key)}, published())
		task, err := s.Task(ctx, key)
		require.NoError(t, err)
		require.JSONEq(t, isDeployed, string(task.Status), "as it was seen last")

		end()

		require.Equal(t, isDeployed, storedStatus(t, s, key))
		require.Equal(t, []string{"status " + isDeployed}, published())
		require.Nil(t, waitOf(t, s, key))
	}
}

// unchecked takes the moment of the last look away, which is the clock's.
func unchecked(waits []api.Wait) []api.Wait {
	for i := range waits {
		waits[i].CheckedAt = nil
	}
	return waits
}
