package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// TestWhoeverAsksHasAPlaceInTheQueue: whether it is placed, refused for now, or
// refused for good.
func TestWhoeverAsksHasAPlaceInTheQueue(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1000))
	var ids []int64
	for name, memory := range map[string]int64{"first": 600, "second": 600, "large": 900} {
		id := launch(t, s, draft(name, 1, memory, time.Hour)).Phases[0].ID
		if name == "first" {
			require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Placed)
		} else {
			ids = append(ids, id)
		}
	}
	update(t, db, "UPDATE nodes SET memory_total = 800")
	res, err := s.Pass(context.Background(), pool, []store.Look{{PhaseID: ids[0], Attempt: 1}, {PhaseID: ids[1], Attempt: 1}}, ledger.WakeFirst)
	require.NoError(t, err)
	require.Len(t, res.Capacity, 1)
	require.Len(t, res.Capability, 1)
	require.Zero(t, count(t, db, "SELECT count(*) FROM mission_phases WHERE queued_at IS NULL"))
	require.Equal(t, 1, count(t, db, "SELECT count(DISTINCT queued_at) FROM mission_phases WHERE id = ANY($1)", ids), "they asked together")
	before := places(t, db)
	for _, id := range ids {
		look(t, s, id, 1, ledger.WakeTimer)
	}
	require.Equal(t, before, places(t, db), "asking again moves nobody")
}

func places(t *testing.T, db *pgx.Conn) []time.Time {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT queued_at FROM mission_phases ORDER BY id")
	require.NoError(t, err)
	at, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	require.NoError(t, err)
	return at
}

// TestAPhaseThatEndsDuringItsFirstPassIsNotPlaced: nothing locks the phase while a
// pass decides about it.
func TestAPhaseThatEndsDuringItsFirstPassIsNotPlaced(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1000))
	id := launch(t, s, draft("m", 1, 600, time.Hour)).Phases[0].ID

	// The pass reads that the phase is pending, and comes to write it while another
	// transaction, which ends it, is not over yet.
	ctx := context.Background()
	tx, err := db.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "UPDATE mission_phases SET status = 'cancelled', ended_at = now() WHERE id = $1", id)
	require.NoError(t, err)
	got := make(chan ledger.Outcome)
	go func() {
		res, err := s.Pass(ctx, pool, []store.Look{{PhaseID: id, Attempt: 1, Wake: ledger.WakeFirst}}, ledger.WakeFirst)
		if err != nil {
			t.Error(err)
		}
		got <- res.Outcomes[id]
	}()
	observer := connection(t, db)
	require.Eventually(t, func() bool {
		return count(t, observer, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	outcome := <-got
	require.NotNil(t, outcome.Ended)
	require.Equal(t, "cancelled", outcome.Ended.Status)
	require.Zero(t, count(t, db, "SELECT count(*) FROM topology_runs"))
	require.Zero(t, count(t, db, "SELECT slots_reserved FROM nodes"))
}

// connection is another connection to the database of db.
func connection(t *testing.T, db *pgx.Conn) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), db.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestANodeThatIsNamedCannotBeDeleted(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1000), node("b", 500))
	require.NotNil(t, look(t, s, launch(t, s, draft("m", 1, 600, time.Hour)).Phases[0].ID, 1, ledger.WakeFirst).Placed)
	_, err := db.Exec(t.Context(), "DELETE FROM nodes WHERE id = 'a'")
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "23503", pg.Code)
	require.Equal(t, "node a is named by runs or missions: retire it instead", pg.Message)
	update(t, db, "DELETE FROM nodes WHERE id = 'b'")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM nodes"))
}

func TestAReservationGoesWithItsRunAndARunWithItsPhase(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1000))
	require.NotNil(t, look(t, s, launch(t, s, draft("m", 1, 600, time.Hour)).Phases[0].ID, 1, ledger.WakeFirst).Placed)
	require.Equal(t, 1, count(t, db, `
SELECT count(*) FROM reservations v JOIN topology_runs r ON r.id = v.run_id AND r.phase_id = v.phase_id AND r.attempt = v.attempt AND r.node_id = v.node_id`))
	update(t, db, "DELETE FROM mission_phases")
	require.Zero(t, count(t, db, "SELECT count(*) FROM reservations"))
}
