package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tidewait/internal/capacity"
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

// TestWaitsHaveCodesOfTheClosedList asks the database about every pair of a kind and
// a code.
func TestWaitsHaveCodesOfTheClosedList(t *testing.T) {
	s, db := open(t, rules)
	ctx := context.Background()
	list := ledger.WaitCodes()
	codes := []string{"", "capacity", "silent", "exceeds_every_node", "node_lost", "wait_exceeded"}
	for _, of := range list {
		codes = append(codes, of...)
	}
	for kind, known := range list {
		for _, code := range codes {
			var allowed bool
			require.NoError(t, db.QueryRow(ctx, "SELECT is_wait_code($1, $2)", kind, code).Scan(&allowed))
			require.Equal(t, slices.Contains(known, code), allowed, "%s %s", kind, code)
		}
	}
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	for constraint, w := range map[string]ledger.OpenWait{
		"open_waits_code": {Kind: "gateway", Code: "silent"},
		"another kind's":  {Kind: "node", Code: "gateway_unreachable"},
		"the placer's":    {Kind: "capacity", Code: "capacity_memory"},
	} {
		w.WorkflowID, w.MissionID, w.Since = "mission.m", l.MissionID, time.Now()
		_, err := s.NoteWait(ctx, w)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, constraint)
		require.Equal(t, []string{"23514", "open_waits_code"}, []string{pg.Code, pg.ConstraintName})
	}
	past := `INSERT INTO wait_history (mission_id, kind, code, reason, since, ended_at, ended_by) SELECT id, 'node', 'gone', '', now(), now(), 'expired' FROM missions`
	_, err := db.Exec(ctx, past)
	require.ErrorContains(t, err, "wait_history_code")
}

// TestAPhaseThatNobodyLooksAt waits where lists find it until a pass has looked.
func TestAPhaseThatNobodyLooksAt(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst)
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	since := noteWait(t, s, ledger.OpenWait{
		WorkflowID: "phase.m.p1", MissionID: l.MissionID, PhaseID: l.Phases[0].ID,
		Kind: "capacity", Code: "placer_unavailable", Reason: "the placer does not answer: it sleeps", Since: time.Now(),
	})
	unseen := waits(t, s)
	require.Len(t, unseen, 1)
	require.Equal(t, []any{"capacity", "placer_unavailable", "phase.m.p1"}, []any{unseen[0].Kind, unseen[0].Code, unseen[0].WorkflowID})
	require.True(t, since.Equal(unseen[0].Since))
	require.Nil(t, unseen[0].Bound)

	o := look(t, s, l.Phases[0].ID, 1, ledger.WakeTimer)

	require.Equal(t, capacity.CodeMemory, o.Waiting.Code)
	require.Equal(t, 1, o.Waiting.Attempts)
	seen := waits(t, s)
	require.Len(t, seen, 1)
	require.Equal(t, "capacity_memory", seen[0].Code)
	past := show(t, s, "m", 0).PhaseList[0].Waits
	require.Len(t, past, 1)
	require.Equal(t, []string{"capacity", "placer_unavailable", "answered"}, []string{past[0].Kind, past[0].Code, past[0].EndedBy})
	require.Equal(t, 2, look(t, s, l.Phases[0].ID, 1, ledger.WakeTimer).Waiting.Attempts)
	require.Equal(t, 2, waits(t, s)[0].Attempts)
}
