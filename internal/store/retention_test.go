package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
)

// formerLaunches inserts launches of a mission that ended some hours ago, each with a phase,
// a run, a wait and an act. rerunOf is 0 for one that is no rerun.
func formerLaunches(t *testing.T, db *pgx.Conn, name, status string, latest int) (mission int64) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), `
INSERT INTO missions (name, status, launch, document, ended_at) VALUES ($1, $2, $3, '{"spec": {"phases": []}}', now()) RETURNING id`,
		name, status, latest).Scan(&mission))
	return mission
}

func launched(t *testing.T, db *pgx.Conn, mission int64, launch, hoursAgo, rerunOf int) {
	t.Helper()
	ctx := t.Context()
	_, err := db.Exec(ctx, `
INSERT INTO mission_launches (mission_id, launch, document, status, ended_at, rerun_of)
VALUES ($1, $2, '{}', CASE WHEN $3 < 0 THEN 'running' ELSE 'succeeded' END,
        CASE WHEN $3 < 0 THEN NULL ELSE now() - $3 * interval '1 hour' END, NULLIF($4, 0))`, mission, launch, hoursAgo, rerunOf)
	require.NoError(t, err)
	var phase int64
	require.NoError(t, db.QueryRow(ctx, `
INSERT INTO mission_phases (mission_id, launch, ordinal, name, backend, demand, turn, max_wait, status, ended_at)
VALUES ($1, $2, 1, 'work', 'process', '{}', '1h', '2h', CASE WHEN $3 < 0 THEN 'running' ELSE 'succeeded' END, CASE WHEN $3 < 0 THEN NULL ELSE now() END)
RETURNING id`, mission, launch, hoursAgo).Scan(&phase))
	for _, sql := range []string{
		`INSERT INTO topology_runs (id, phase_id, attempt, node_id, status, ended_at) VALUES ($5, $1, 1, 'n1', 'succeeded', now())`,
		`INSERT INTO wait_history (mission_id, phase_id, kind, code, reason, since, ended_at, ended_by)
		 VALUES ($2, $1, 'capacity', 'capacity_cpu', 'why', now() - interval '1 day', now() - abs($4) * interval '1 hour', 'placed')`,
		`INSERT INTO acts (mission_id, launch, phase_id, verb, at, key) VALUES ($2, $3, $1, 'nudge', now() - abs($4) * interval '1 hour', $5)`,
	} {
		_, err := db.Exec(ctx, `WITH given AS (SELECT $1::bigint, $2::bigint, $3::integer, $4::integer, $5::text) `+sql,
			phase, mission, launch, hoursAgo, fmt.Sprintf("r%d-1", phase))
		require.NoError(t, err)
	}
}

func launchesLeft(t *testing.T, db *pgx.Conn) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT m.name || '/' || l.launch FROM mission_launches l JOIN missions m ON m.id = l.mission_id ORDER BY 1`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func counted(t *testing.T, db *pgx.Conn, table string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func nodeOf(t *testing.T, db *pgx.Conn) {
	t.Helper()
	_, err := db.Exec(t.Context(), `INSERT INTO nodes (id, arch, cpu_total, memory_total, disk_total, slots_total) VALUES ('n1', 'amd64', 1, 1, 1, 1)`)
	require.NoError(t, err)
}

func TestLaunchesExpire(t *testing.T) {
	s, db := open(t, rules)
	nodeOf(t, db)
	ended := formerLaunches(t, db, "ended", "succeeded", 3)
	launched(t, db, ended, 1, 50, 0)
	launched(t, db, ended, 2, 49, 0)
	launched(t, db, ended, 3, 2, 0)
	runs := formerLaunches(t, db, "runs", "running", 2)
	launched(t, db, runs, 1, 50, 0)
	launched(t, db, runs, 2, -1, 1) // begun from the first
	chain := formerLaunches(t, db, "chain", "succeeded", 2)
	launched(t, db, chain, 1, 50, 0)
	launched(t, db, chain, 2, 40, 1)
	holds := formerLaunches(t, db, "holds", "failed", 1)
	launched(t, db, holds, 1, 50, 0)
	_, err := db.Exec(t.Context(), `
INSERT INTO reservations (phase_id, attempt, run_id, node_id, cpu, memory, disk, slots, ends_by)
SELECT r.phase_id, 1, r.id, 'n1', 0, 0, 0, 1, now() FROM topology_runs r JOIN mission_phases p ON p.id = r.phase_id WHERE p.mission_id = $1`, holds)
	require.NoError(t, err)

	needed, err := s.LaunchesNeeded(t.Context(), []api.LaunchRef{{Mission: "ended", Launch: 1}, {Mission: "runs", Launch: 1}, {Mission: "runs", Launch: 2}, {Mission: "nobody", Launch: 1}})
	require.NoError(t, err)
	require.ElementsMatch(t, []api.LaunchRef{{Mission: "runs", Launch: 1}, {Mission: "runs", Launch: 2}}, needed)

	n, err := s.ExpireLaunches(t.Context(), 48*time.Hour, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n, "a few at a time")
	n, err = s.ExpireLaunches(t.Context(), 48*time.Hour, 100)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"chain/1", "chain/2", "ended/3", "holds/1", "runs/1", "runs/2"}, launchesLeft(t, db))
	for _, table := range []string{"mission_phases", "topology_runs", "wait_history", "acts"} {
		require.Equal(t, 6, counted(t, db, table), table)
	}
	require.Equal(t, 4, counted(t, db, "missions"), "documents stay")

	// A rerun goes first, and what it was begun from after it.
	for range 2 {
		n, err = s.ExpireLaunches(t.Context(), 30*time.Hour, 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, []string{"ended/3", "holds/1", "runs/1", "runs/2"}, launchesLeft(t, db))

	m, err := s.ShowMission(t.Context(), "chain", 0, time.Second)
	require.NoError(t, err)
	require.Empty(t, m.PhaseList)
	require.Equal(t, []any{"succeeded", 2}, []any{m.Status, m.Launch})
	_, err = s.ShowMission(t.Context(), "chain", 1, time.Second)
	require.ErrorContains(t, err, "launch 1 has expired: not found")
	last, err := s.LastLaunch(t.Context(), "chain", "another")
	require.NoError(t, err)
	require.True(t, last.Expired)
}

func TestWaitsAndActsExpire(t *testing.T) {
	s, db := open(t, rules)
	nodeOf(t, db)
	ended := formerLaunches(t, db, "ended", "succeeded", 2)
	launched(t, db, ended, 1, 50, 0)
	launched(t, db, ended, 2, 2, 0)
	runs := formerLaunches(t, db, "runs", "running", 1)
	launched(t, db, runs, 1, -50, 0)
	_, err := db.Exec(t.Context(), `
INSERT INTO wait_history (account, lattice, application, kind, code, reason, since, ended_at, ended_by)
VALUES ('default', 'l', 'a', 'lattice', 'never_observed', 'why', now() - interval '9 days', now() - interval '8 days', 'answered')`)
	require.NoError(t, err)
	for what, expire := range map[string]func(context.Context, time.Duration, int) (int, error){"waits": s.ExpireWaits, "acts": s.ExpireActs} {
		n, err := expire(t.Context(), 48*time.Hour, 100)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"waits": 2, "acts": 1}[what], n, what)
	}
	require.Equal(t, []int{2, 2}, []int{counted(t, db, "wait_history"), counted(t, db, "acts")})
	require.Len(t, launchesLeft(t, db), 3)
}

// TestEnginesExpireTogether lets several remove what there is: each row once.
func TestEnginesExpireTogether(t *testing.T) {
	s, db := open(t, rules)
	nodeOf(t, db)
	const launches = 60
	m := formerLaunches(t, db, "m", "succeeded", launches)
	for i := 1; i <= launches; i++ {
		launched(t, db, m, i, 50, 0)
	}
	var g errgroup.Group
	removed := make([]int, 4)
	for i := range removed {
		other := another(t, db, rules)
		g.Go(func() error {
			for {
				n, err := other.ExpireLaunches(context.Background(), time.Hour, 7)
				if removed[i] += n; err != nil || n == 0 {
					return err
				}
			}
		})
	}
	require.NoError(t, g.Wait())
	_, err := s.ExpireLaunches(t.Context(), time.Hour, 100)
	require.NoError(t, err)
	require.LessOrEqual(t, removed[0]+removed[1]+removed[2]+removed[3], launches)
	require.Empty(t, launchesLeft(t, db))
}
