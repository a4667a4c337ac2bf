package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/store"
)

// atOnce calls all functions at the same moment and waits for them.
func atOnce(calls ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, f := range calls {
		wg.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	wg.Wait()
}

// requireNoDeadlocks is for when nobody else is connected any more: Postgres
// counts when connections end.
func requireNoDeadlocks(t *testing.T, db *pgx.Conn) {
	t.Helper()
	ctx := context.Background()
	require.Eventually(t, func() bool {
		return count(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()`) == 1
	}, time.Minute, 10*time.Millisecond)
	_, err := db.Exec(ctx, `SELECT pg_stat_clear_snapshot()`)
	require.NoError(t, err)
	require.Zero(t, count(t, db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
}

func engines(t *testing.T, n int) ([]*store.Store, *pgx.Conn) {
	t.Helper()
	first, db := open(t, rules)
	all := []*store.Store{first}
	for len(all) < n {
		all = append(all, another(t, db, rules))
	}
	return all, db
}

func TestApplicationFirstPutsAtOnce(t *testing.T) {
	ctx := context.Background()
	stores, db := engines(t, 4)
	for round := range 10 {
		key := appKey(fmt.Sprintf("app%d", round))
		const n = 16
		totals, errs := make([]int, n), make([]error, n)
		var calls []func()
		for i := range n {
			calls = append(calls, func() {
				totals[i], errs[i] = stores[i%4].PutApplication(ctx, key, appVersion("v1", fmt.Sprint(i)), uuid.New())
			})
		}

		atOnce(calls...)

		won := -1
		for i := range n {
			if errs[i] == nil {
				require.Equal(t, -1, won, "two won")
				require.Equal(t, 1, totals[i])
				won = i
				continue
			}
			require.ErrorIs(t, errs[i], store.ErrVersionExists)
		}
		require.NotEqual(t, -1, won)
		manifest, err := stores[0].Manifest(ctx, key, nil)
		require.NoError(t, err)
		require.Contains(t, string(manifest), fmt.Sprintf(`"id": "%d"`, won), "the winner's is stored")
	}
	requireSound(t, db)
}

func TestApplicationOnePutRepeatedAtOnce(t *testing.T) {
	stores, db := engines(t, 4)
	key, id := appKey("shop"), uuid.New()
	var calls []func()
	for i := range 16 {
		calls = append(calls, func() {
			total, err := stores[i%4].PutApplication(context.Background(), key, appVersion("v1", "a"), id)
			if total != 1 || err != nil {
				t.Error(total, err)
			}
		})
	}
	atOnce(calls...)
	require.Equal(t, "v1", versionsOf(t, stores[0], key))
	requireSound(t, db)
}

func TestApplicationPutsOfDifferentVersionsAtOnce(t *testing.T) {
	stores, db := engines(t, 4)
	for round := range 10 {
		key := appKey(fmt.Sprintf("app%d", round))
		totals := make([]int, 8)
		var calls []func()
		for i := range totals {
			calls = append(calls, func() {
				var err error
				totals[i], err = stores[i%4].PutApplication(context.Background(), key, appVersion(fmt.Sprint("v", i), "a"), uuid.New())
				if err != nil {
					t.Error(err)
				}
			})
		}

		atOnce(calls...)

		versions, err := stores[0].ApplicationVersions(context.Background(), key)
		require.NoError(t, err)
		require.Len(t, versions, 8)
		for i, total := range totals {
			require.Equal(t, fmt.Sprint("v", i), versions[total-1].Version, "each was told its place")
		}
	}
	requireSound(t, db)
}

func TestApplicationPutRacesDelete(t *testing.T) {
	ctx := context.Background()
	stores, db := engines(t, 2)
	outcomes := map[string]int{}
	for round := range 200 {
		key := appKey(fmt.Sprintf("app%d", round))
		put(t, stores[0], key, appVersion("v1", key.Name))
		if round%2 == 0 {
			deploy(t, stores[0], key, nil)
		}
		var total int
		var deleted store.Deleted
		var putErr, deleteErr error
		atOnce(
			func() { total, putErr = stores[0].PutApplication(ctx, key, appVersion("v2", key.Name), uuid.New()) },
			func() {
				version := ptr("v1")
				if round%3 == 0 {
					version = nil
				}
				deleted, deleteErr = stores[1].DeleteApplication(ctx, key, version, "", false)
			})
		require.NoError(t, putErr)
		require.NoError(t, deleteErr)
		require.True(t, deleted.Found)
		left := versionsOf(t, stores[0], key)
		switch {
		case round%3 != 0:
			require.Equal(t, "v2", left)
		case total == 1:
			require.Equal(t, "v2", left, "put after the deletion")
		default:
			require.Equal(t, "not found", left, "put before it")
		}
		outcomes[fmt.Sprint(total, " ", left)]++
	}
	require.Positive(t, outcomes["1 v2"], outcomes)
	requireSound(t, db)
}

func TestApplicationDeploysWithOneIDAtOnce(t *testing.T) {
	ctx := context.Background()
	stores, db := engines(t, 2)
	for round := range 100 {
		keys := []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)}
		ids := []string{fmt.Sprintf("x%d", round), fmt.Sprintf("y%d", round)}
		for _, name := range keys {
			v := appVersion("v1", "")
			v.Facts.IDs = ids
			put(t, stores[0], appKey(name), v)
		}
		errs := make([]error, 2)
		var calls []func()
		for i, name := range keys {
			calls = append(calls, func() {
				_, errs[i] = stores[i].DeployApplication(ctx, appKey(name), nil, "", store.DeployOptions{})
			})
		}

		atOnce(calls...)

		won := slices.Index(errs, nil)
		require.NotEqual(t, -1, won, "%v", errs)
		var taken *store.IDTaken
		require.ErrorAs(t, errs[1-won], &taken)
		require.Equal(t, &store.IDTaken{ID: ids[0], Application: keys[won]}, taken)
	}
	requireSound(t, db)
}

// TestApplicationIDsChangeHands lets one application take ids at the moment
// another one leaves them.
func TestApplicationIDsChangeHands(t *testing.T) {
	ctx := context.Background()
	stores, db := engines(t, 2)
	owner, next := appKey("owner"), appKey("next")
	put(t, stores[0], owner, appVersion("v1", "x"), appVersion("v2", "y"))
	put(t, stores[0], next, appVersion("v1", "x"))
	changes := 0
	for range 200 {
		undeploy(t, stores[0], next)
		deploy(t, stores[0], owner, ptr("v1"))
		var ownerErr, nextErr error
		atOnce(
			func() { _, ownerErr = stores[0].DeployApplication(ctx, owner, ptr("v2"), "", store.DeployOptions{}) },
			func() { _, nextErr = stores[1].DeployApplication(ctx, next, nil, "", store.DeployOptions{}) })
		require.NoError(t, ownerErr)
		if nextErr == nil {
			changes++
			continue
		}
		var inTheWay *store.IDTaken
		require.ErrorAs(t, nextErr, &inTheWay)
		require.Equal(t, &store.IDTaken{ID: "x", Application: "owner"}, inTheWay)
	}
	require.Positive(t, changes)
	requireSound(t, db)
}

// stopped does what makes all calls wait, in a transaction that is not
// committed, calls f when they wait, and lets them go.
func stopped(t *testing.T, db *pgx.Conn, obstacle string, f func(), calls ...func()) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, obstacle)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(call)
	}
	require.Eventually(t, func() bool {
		var waiting int
		err := tx.QueryRow(ctx, `SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted`).Scan(&waiting)
		return err == nil && waiting == len(calls)
	}, time.Minute, time.Millisecond)
	f()
	require.NoError(t, tx.Rollback(ctx))
	wg.Wait()
}

// taken makes whoever takes the id wait.
func taken(id string) string {
	return `
INSERT INTO application_ids (account, lattice, component_id, application_id)
SELECT account, lattice, '` + id + `', id FROM applications WHERE name = 'bystander'`
}

// row makes whoever holds the row of the application wait.
func row(application string) string {
	return `SELECT FROM applications WHERE name = '` + application + `' FOR UPDATE`
}

func TestApplicationIDLeftWhileOthersAreTaken(t *testing.T) {
	stores, db := engines(t, 2)
	owner, next := appKey("owner"), appKey("next")
	both := appVersion("v1", "")
	both.Facts.IDs = []string{"x", "y"}
	put(t, stores[0], owner, appVersion("v1", "x"))
	put(t, stores[0], next, both)
	put(t, stores[0], appKey("bystander"), appVersion("v1", "y"))
	deploy(t, stores[0], owner, nil)
	var err error

	stopped(t, db, taken("y"), func() { undeploy(t, stores[0], owner) }, func() {
		_, err = stores[1].DeployApplication(context.Background(), next, nil, "", store.DeployOptions{})
	})

	require.NoError(t, err)
	require.Equal(t, "v1*", versionsOf(t, stores[0], next))
	requireSound(t, db)
}

// TestApplicationIDsAreTakenInOneOrder stops two deploys halfway: if each had an
// id that the other one needs, they would wait for each other.
func TestApplicationIDsAreTakenInOneOrder(t *testing.T) {
	stores, db := engines(t, 2)
	put(t, stores[0], appKey("bystander"), appVersion("v1", "m"))
	errs := make([]error, 2)
	var calls []func()
	for i, ids := range [][]string{{"x", "m", "y"}, {"y", "m", "x"}} {
		v := appVersion("v1", "")
		v.Facts.IDs = ids
		key := appKey(fmt.Sprint("a", i))
		put(t, stores[0], key, v)
		calls = append(calls, func() {
			_, errs[i] = stores[i].DeployApplication(context.Background(), key, nil, "", store.DeployOptions{})
		})
	}

	stopped(t, db, taken("m"), func() {}, calls...)

	won := slices.Index(errs, nil)
	require.NotEqual(t, -1, won, "%v", errs)
	require.ErrorIs(t, errs[1-won], store.ErrConflict)
	stores[0].Close()
	stores[1].Close()
	requireNoDeadlocks(t, db)
	requireSound(t, db)
}

// TestApplicationRowsAreHeldInOneOrder stops two applications that refer to each
// other halfway, after each has the first row it wants.
func TestApplicationRowsAreHeldInOneOrder(t *testing.T) {
	stores, db := engines(t, 2)
	names := []string{"a", "z"}
	put(t, stores[0], appKey("m"), sharing(appVersion("v1", "m")))
	deploy(t, stores[0], appKey("m"), nil)
	for i, name := range names {
		put(t, stores[0], appKey(name), sharing(appVersion("v1", name)))
		deploy(t, stores[0], appKey(name), nil)
		put(t, stores[0], appKey(name), using(sharing(appVersion("v2", name)), "m", names[1-i]))
	}
	errs := make([]error, 2)
	var calls []func()
	for i, name := range names {
		calls = append(calls, func() {
			_, errs[i] = stores[i].DeployApplication(context.Background(), appKey(name), nil, "", store.DeployOptions{})
		})
	}

	stopped(t, db, row("m"), func() {}, calls...)

	require.NoError(t, errors.Join(errs...))
	stores[0].Close()
	stores[1].Close()
	requireNoDeadlocks(t, db)
	requireSound(t, db)
}

// TestApplicationPutWhileItIsDeployed lets the newest version become one that
// refers to something else, after the deploy has looked.
func TestApplicationPutWhileItIsDeployed(t *testing.T) {
	stores, db := engines(t, 2)
	for _, name := range []string{"a", "b"} {
		put(t, stores[0], appKey(name), sharing(appVersion("v1", name)))
		deploy(t, stores[0], appKey(name), nil)
	}
	key := appKey("z")
	put(t, stores[0], key, using(appVersion("v1", "z"), "a"))
	var deployed store.DeployedVersion
	var err error

	stopped(t, db, row("a"), func() { put(t, stores[0], key, using(appVersion("v2", "z"), "b")) }, func() {
		deployed, err = stores[1].DeployApplication(context.Background(), key, nil, "", store.DeployOptions{})
	})

	require.NoError(t, err)
	require.Equal(t, "v2", deployed.Version)
	require.Equal(t, "v1 v2*", versionsOf(t, stores[0], key))
	requireSound(t, db)
}

// TestApplicationPutIsNotHeldUpByDependants puts a shared application while
// others hold on to what is deployed of it.
func TestApplicationPutIsNotHeldUpByDependants(t *testing.T) {
	stores, db := engines(t, 2)
	put(t, stores[0], appKey("platform"), sharing(appVersion("v1", "p")))
	put(t, stores[0], appKey("bystander"), appVersion("v1", "b"))
	deploy(t, stores[0], appKey("platform"), nil)
	put(t, stores[0], appKey("shop"), using(appVersion("v1", "s"), "platform"))
	var err error

	stopped(t, db, taken("s"), func() { put(t, stores[0], appKey("platform"), appVersion("v2", "p")) }, func() {
		_, err = stores[1].DeployApplication(context.Background(), appKey("shop"), nil, "", store.DeployOptions{})
	})

	require.NoError(t, err)
	requireSound(t, db)
}

func TestApplicationDeployRacesUndeployOfWhatItRefersTo(t *testing.T) {
	ctx := context.Background()
	stores, db := engines(t, 2)
	shop, shared := appKey("shop"), appKey("platform")
	put(t, stores[0], shared, sharing(appVersion("v1", "p")))
	put(t, stores[0], shop, using(appVersion("v1", "s"), "platform"))
	outcomes := map[string]int{}
	for round := range 200 {
		undeploy(t, stores[0], shop)
		deploy(t, stores[0], shared, nil)
		protect := round%2 == 0
		var undeployed store.Undeployed
		var deployErr, undeployErr error
		atOnce(
			func() { _, deployErr = stores[0].DeployApplication(ctx, shop, nil, "", store.DeployOptions{}) },
			func() { undeployed, undeployErr = stores[1].UndeployApplication(ctx, shared, "", protect) })

		var missing *store.SharedMissing
		var inUse *store.InUse
		switch {
		case errors.As(deployErr, &missing):
			require.NoError(t, undeployErr)
			require.Equal(t, store.Undeployed{Was: true}, undeployed, "the undeploy was first")
			outcomes["undeployed"]++
		case deployErr == nil && protect:
			require.ErrorAs(t, undeployErr, &inUse, "the deploy was first")
			require.Equal(t, []string{"shop"}, inUse.Dependants)
			outcomes["protected"]++
		default:
			require.NoError(t, deployErr)
			require.NoError(t, undeployErr)
			require.Equal(t, store.Undeployed{Was: true, Dependants: []string{"shop"}}, undeployed, "the deploy was first")
			outcomes["deployed"]++
		}
	}
	t.Log(outcomes)
	requireSound(t, db)
}

// TestApplicationsUnderManyHands does everything at once with few applications
// that are in each other's way. Whatever happened, what is left must make sense,
// and what was told must be in order.
func TestApplicationsUnderManyHands(t *testing.T) {
	const hands, each = 8, 60
	ctx := context.Background()
	stores, db := engines(t, 4)
	names := []string{"a", "b", "c"}
	var calls []func()
	for hand := range hands {
		s := stores[hand%len(stores)]
		calls = append(calls, func() {
			for i := range each {
				n := hand*each + i
				key := appKey(names[(n/3)%3])
				var err error
				switch n % 7 {
				case 0, 1:
					v := sharing(appVersion(fmt.Sprint("v", n), names[n%2]))
					if n%5 == 0 {
						v = using(v, names[(n+1)%3])
					}
					_, err = s.PutApplication(ctx, key, v, uuid.New())
				case 2, 3, 4:
					_, err = s.DeployApplication(ctx, key, nil, "", store.DeployOptions{Protect: n%2 == 0})
				case 5:
					_, err = s.UndeployApplication(ctx, key, "", n%2 == 0)
				case 6:
					version := ptr(fmt.Sprint("v", n-6))
					if n%3 == 0 {
						version = nil
					}
					_, err = s.DeleteApplication(ctx, key, version, "", false)
				}
				if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}

	atOnce(calls...)

	requireSound(t, db)
	for _, name := range names {
		key := appKey(name)
		require.Zero(t, count(t, db, `
SELECT count(*) FROM (SELECT revision - lag(revision) OVER (PARTITION BY channel ORDER BY id) AS step
    FROM application_outbox WHERE name = $1) AS steps WHERE step < 0`, name), "revisions grow")
		app, err := stores[0].Application(ctx, key)
		require.NoError(t, err)
		told := outbox(t, db, key, "nats")
		last := fmt.Sprintf("%s %d", map[bool]string{true: "published", false: "unpublished"}[app.IsDeployed], app.Revision)
		if app.Revision > 0 {
			require.Equal(t, last, told[len(told)-2], "the last news is what is deployed")
			require.Equal(t, []string{fmt.Sprint("revised ", app.Revision)}, outbox(t, db, key, "temporal"))
		}
		refs, err := stores[0].MissingShared(ctx, key.Account, key.Lattice, []oam.Reference{reference(name)})
		require.NoError(t, err)
		require.Equal(t, app.IsDeployed, len(refs) == 0)
	}
	for _, s := range stores {
		s.Close()
	}
	requireNoDeadlocks(t, db)
}
