package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// evictAgain is after how long a phase that still runs is told once more that the
// drain of its node is over. A signal can be lost with a workflow that is reset.
const evictAgain = time.Minute

// overdueSQL marks the runs whose node has passed its drain deadline.
const overdueSQL = `
UPDATE topology_runs r SET evicted_at = clock_timestamp()
FROM nodes n, mission_phases p, missions m
WHERE n.id = r.node_id AND p.id = r.phase_id AND m.id = p.mission_id
  AND n.admin_state = 'draining' AND n.drain_deadline < clock_timestamp()
  AND p.status = 'running' AND p.attempt = r.attempt AND r.ended_at IS NULL
  AND (r.evicted_at IS NULL OR r.evicted_at < clock_timestamp() - $1 * interval '1 second')
  AND EXISTS (SELECT 1 FROM reservations v WHERE v.run_id = r.id AND v.released_at IS NULL)
RETURNING r.id, m.name, p.name, n.id, n.state_actor, n.state_reason`

// SettleDrains marks draining nodes that hold nothing as drained, and tells the
// phases whose node has passed its drain deadline that their run is to end. It
// returns those runs.
func (s *Store) SettleDrains(ctx context.Context) ([]string, error) {
	var runs []string
	err := s.tx(ctx, func(tx pgx.Tx) error {
		runs = nil
		if _, err := tx.Exec(ctx, `
UPDATE nodes n SET admin_state = 'drained', state_since = now(), drain_deadline = NULL
WHERE admin_state = 'draining' AND NOT holds_something(n)`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, overdueSQL, evictAgain.Seconds())
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		var run, mission, phase, node, actor, reason string
		_, err = pgx.ForEachRow(rows, []any{&run, &mission, &phase, &node, &actor, &reason}, func() error {
			payload, err := json.Marshal(ledger.Evict{RunID: run, Why: evictSentence(node, actor, reason)})
			b.Queue(`INSERT INTO outbox (workflow_id, signal, payload) VALUES ($1, $2, $3)`,
				api.PhaseWorkflowID(mission, phase), ledger.SignalEvict, payload)
			runs = append(runs, run)
			return err
		})
		if err != nil {
			return err
		}
		return exec(ctx, tx, b)
	})
	if err != nil {
		return nil, fmt.Errorf("settle drains: %w", err)
	}
	return runs, nil
}

func evictSentence(node, actor, reason string) string {
	sentence := "node " + node + " had to be empty: its drain"
	if actor != "" {
		sentence += " by " + actor
	}
	if reason != "" {
		sentence += " (" + reason + ")"
	}
	return sentence + " has passed its deadline"
}
