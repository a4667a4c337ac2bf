package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// SecretsRun is a run that may have its secrets.
type SecretsRun struct {
	Mission  string
	Launch   int
	Phase    string
	Gateway  string          // that holds the launch
	Document json.RawMessage // of the launch
	// Waits says that it is shown as waiting for its gateway.
	Waits bool
}

// ClaimSecrets returns the run that may have its secrets sealed to a public key:
// it is on this node now, its phase and its reservation are its own, and it has
// not had them for another key. The key is the run's from then on. The error is
// [ErrNotFound] or [ErrConflict], and says which of these is not so.
func (s *Store) ClaimSecrets(ctx context.Context, run, node string, key []byte) (SecretsRun, error) {
	var r SecretsRun
	err := s.tx(ctx, func(tx pgx.Tx) error {
		var (
			on                   string
			open, current, holds bool
			before               []byte
		)
		err := tx.QueryRow(ctx, `
SELECT m.name, p.launch, p.name, COALESCE(l.gateway_id, ''), l.document, t.node_id, t.secrets_key,
       t.ended_at IS NULL AND t.suspected_at IS NULL,
       p.status = 'running' AND p.attempt = t.attempt AND m.launch = p.launch,
       EXISTS (SELECT 1 FROM reservations v WHERE v.run_id = t.id AND v.released_at IS NULL),
       EXISTS (SELECT 1 FROM open_waits o WHERE o.phase_id = p.id AND o.kind = 'gateway')
FROM topology_runs t
JOIN mission_phases p ON p.id = t.phase_id
JOIN missions m ON m.id = p.mission_id
JOIN mission_launches l ON l.mission_id = p.mission_id AND l.launch = p.launch
WHERE t.id = $1 FOR UPDATE OF t`, run).
			Scan(&r.Mission, &r.Launch, &r.Phase, &r.Gateway, &r.Document, &on, &before, &open, &current, &holds, &r.Waits)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("there is no such run: %w", ErrNotFound)
		case err != nil:
			return err
		case on != node:
			return fmt.Errorf("it is not on node %s: %w", node, ErrConflict)
		case !open || !current || !holds:
			return fmt.Errorf("it is not running any more: %w", ErrConflict)
		case before != nil && string(before) != string(key):
			return fmt.Errorf("it has had its secrets, for another key: %w", ErrConflict)
		case before != nil:
			return nil
		}
		_, err = tx.Exec(ctx, `UPDATE topology_runs SET secrets_key = $2 WHERE id = $1`, run, key)
		return err
	})
	if err != nil {
		return SecretsRun{}, fmt.Errorf("give run %s its secrets: %w", run, err)
	}
	return r, nil
}

// NoteSecretsWait records that a run waits for its gateway with its secrets, or
// that another try was in vain. It fails by itself after left. A run that has
// ended does not wait.
func (s *Store) NoteSecretsWait(ctx context.Context, run, reason string, left, next time.Duration) error {
	return s.tx(ctx, func(tx pgx.Tx) error {
		var mission, phase string
		var phaseID, missionID int64
		// Whoever ends the phase holds its row, and ends its waits with it.
		err := tx.QueryRow(ctx, `
SELECT m.name, p.name, m.id, p.id FROM topology_runs t JOIN mission_phases p ON p.id = t.phase_id JOIN missions m ON m.id = p.mission_id
WHERE t.id = $1 AND t.ended_at IS NULL FOR SHARE OF p`, run).Scan(&mission, &phase, &missionID, &phaseID)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		var first bool
		w := ledger.RunWaits{RunID: run, Code: ledger.CodeGatewayUnreachable, Reason: reason}
		if err == nil {
			err = tx.QueryRow(ctx, `
INSERT INTO open_waits AS o (workflow_id, mission_id, phase_id, kind, code, reason, since, bound, next_check, attempts)
VALUES ($1, $2, $3, 'gateway', $7, $4, clock_timestamp(),
        clock_timestamp() + $5 * interval '1 second', clock_timestamp() + $6 * interval '1 second', 1)
ON CONFLICT (workflow_id) DO UPDATE SET reason = EXCLUDED.reason, next_check = EXCLUDED.next_check, attempts = o.attempts + 1,
    checked_at = clock_timestamp() WHERE o.kind = 'gateway'
RETURNING since, bound, attempts = 1`,
				api.PhaseWorkflowID(mission, phase), missionID, phaseID, reason, left.Seconds(), next.Seconds(), w.Code).
				Scan(&w.Since, &w.Bound, &first)
		}
		if errors.Is(err, pgx.ErrNoRows) { // it waits for something else
			return nil
		}
		if err == nil && first {
			err = tellRunWaits(ctx, tx, api.PhaseWorkflowID(mission, phase), w)
		}
		if err != nil {
			return fmt.Errorf("record that run %s waits for its secrets: %w", run, err)
		}
		return nil
	})
}

// tellRunWaits lets the phase of a run show what the run waits for.
func tellRunWaits(ctx context.Context, tx pgx.Tx, workflowID string, w ledger.RunWaits) error {
	w.Since, w.Bound = w.Since.UTC(), w.Bound.UTC()
	payload, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (workflow_id, signal, payload) VALUES ($1, $2, $3)`, workflowID, ledger.SignalWaits, payload)
	return err
}

// endSecretsWaitSQL moves a phase's wait for its gateway into the history.
const endSecretsWaitSQL = `
WITH gone AS (DELETE FROM open_waits WHERE kind = 'gateway' AND phase_id = $1 RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, kind, code, reason, since, ended_at, ended_by, attempts)
SELECT mission_id, phase_id, kind, code, reason, since, clock_timestamp(), $2, attempts FROM gone` + returningEnd

// EndSecretsWait ends the wait of a run whose gateway has answered.
func (s *Store) EndSecretsWait(ctx context.Context, run string) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		var phaseID int64
		var mission, phase string
		err := tx.QueryRow(ctx, `
SELECT p.id, m.name, p.name FROM topology_runs t JOIN mission_phases p ON p.id = t.phase_id JOIN missions m ON m.id = p.mission_id
WHERE t.id = $1`, run).Scan(&phaseID, &mission, &phase)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(endSecretsWaitSQL, phaseID, "answered")
		if err := exec(ctx, tx, b); err != nil {
			return err
		}
		return tellRunWaits(ctx, tx, api.PhaseWorkflowID(mission, phase), ledger.RunWaits{RunID: run})
	})
	if err != nil {
		return fmt.Errorf("record that run %s has its secrets: %w", run, err)
	}
	return nil
}
