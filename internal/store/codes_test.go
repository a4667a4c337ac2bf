package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
)

// TestRefusalsOfTheTwoKindsAreKeptApart writes every code of one kind where the
// other's are kept.
func TestRefusalsOfTheTwoKindsAreKeptApart(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst)
	waiter := launch(t, s, draft("waiter", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, waiter.Phases[0].ID, 1, ledger.WakeFirst).Waiting)
	refused := func(constraint, sql, code string) {
		t.Helper()
		_, err := db.Exec(context.Background(), sql, code)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, "%s: %s", code, sql)
		require.Equal(t, []string{"23514", constraint}, []string{pg.Code, pg.ConstraintName})
	}
	const past = `INSERT INTO wait_history (mission_id, kind, code, reason, since, ended_at, ended_by) SELECT id, 'capacity', $1, '', now(), now(), 'expired' FROM missions`
	for _, code := range []string{"backend_unsupported", "exceeds_every_node", "labels_unmatched", "arch_unmatched", "request_invalid"} {
		refused("capacity_waits_code", "UPDATE capacity_waits SET code = $1", code)
		refused("wait_history_code", past, code)
		_, err := db.Exec(context.Background(), "UPDATE missions SET failure_code = $1", code)
		require.NoError(t, err)
	}
	for _, code := range []string{
		"capacity_cpu", "capacity_memory", "capacity_disk", "capacity_slots", "capacity_fragmented", "behind_in_queue", "held_for_head",
		"starting_limit", "nodes_draining", "nodes_lost", "not_evaluated", "placer_unavailable",
	} {
		refused("missions_failure_code", "UPDATE missions SET failure_code = $1", code)
		refused("mission_phases_failure_code", "UPDATE mission_phases SET failure_code = $1", code)
		refused("mission_launches_failure_code", "UPDATE mission_launches SET failure_code = $1", code)
		_, err := db.Exec(context.Background(), "UPDATE capacity_waits SET code = $1", code)
		require.NoError(t, err)
	}
	for _, sql := range []string{"UPDATE capacity_waits SET code = $1", "UPDATE missions SET failure_code = $1"} {
		_, err := db.Exec(context.Background(), sql, "no_nodes_registered")
		require.NoError(t, err, "it is the one code of both")
	}
}
