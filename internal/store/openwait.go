package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
)

// NoteWait records a wait that a workflow declares, or what changed of it, and
// returns since when it waits: that is kept from the first time. A wait of another
// kind that it had ends with it. An application that is not deployed any more does
// not wait.
func (s *Store) NoteWait(ctx context.Context, w ledger.OpenWait) (since time.Time, err error) {
	err = s.tx(ctx, func(tx pgx.Tx) error {
		since = w.Since
		var mission, phase, application *int64
		switch {
		case w.App != nil:
			// Its row comes before that of the wait, as a deploy takes them.
			err := tx.QueryRow(ctx, `
SELECT id FROM applications WHERE account = $1 AND lattice = $2 AND name = $3 AND deployed_version IS NOT NULL FOR KEY SHARE`,
				w.App.Account, w.App.Lattice, w.App.Name).Scan(&application)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
		case w.PhaseID != 0:
			mission, phase = &w.MissionID, &w.PhaseID
		default:
			mission = &w.MissionID
		}
		var bound *time.Time
		if !w.Bound.IsZero() {
			bound = &w.Bound
		}
		b := &pgx.Batch{}
		queueReplaceWait(b, w.WorkflowID, w.Kind)
		b.Queue(`
INSERT INTO open_waits AS o (workflow_id, mission_id, phase_id, application_id, kind, code, reason, since, bound)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (workflow_id) DO UPDATE SET code = EXCLUDED.code, reason = EXCLUDED.reason, bound = EXCLUDED.bound,
    checked_at = clock_timestamp()
RETURNING o.since`,
			w.WorkflowID, mission, phase, application, w.Kind, w.Code, w.Reason, w.Since, bound).
			QueryRow(func(row pgx.Row) error { return row.Scan(&since) })
		if err := exec(ctx, tx, b); err != nil || application == nil {
			return err
		}
		return publishStatus(ctx, tx, *application)
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("record the wait of %s: %w", w.WorkflowID, err)
	}
	return since.UTC(), nil
}

// endOpenWaitsSQL moves waits into the history: one that a workflow declared
// itself, or all of one phase, of one mission or of one application. The history of an application
// names it, since it outlives its row.
const endOpenWaitsSQL = `
WITH gone AS (
    DELETE FROM open_waits
    WHERE workflow_id = $1 AND kind IN ('node', 'gateway', 'observer', 'capacity') OR phase_id = $2 OR mission_id = $3 OR application_id = $4
    RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, account, lattice, application, kind, code, reason, since, ended_at, ended_by, actor, attempts)
SELECT g.mission_id, g.phase_id, a.account, a.lattice, a.name, g.kind, g.code, g.reason, g.since, clock_timestamp(), $5, $6, g.attempts
FROM gone g LEFT JOIN applications a ON a.id = g.application_id` + returningEnd

// replacedWaitSQL moves the wait of a workflow into the history because another
// kind takes its place.
const replacedWaitSQL = `
WITH gone AS (DELETE FROM open_waits WHERE workflow_id = $1 AND kind <> $2 RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, account, lattice, application, kind, code, reason, since, ended_at, ended_by, attempts)
SELECT g.mission_id, g.phase_id, a.account, a.lattice, a.name, g.kind, g.code, g.reason, g.since, clock_timestamp(), 'changed', g.attempts
FROM gone g LEFT JOIN applications a ON a.id = g.application_id` + returningEnd

// queueReplaceWait makes way for a wait of a kind.
func queueReplaceWait(b *pgx.Batch, workflowID, kind string) {
	b.Queue(replacedWaitSQL, workflowID, kind)
}

// endSettledWaitSQL does the same to the wait of an application that a deployment
// is answer enough to: for the next try of what failed, and for any host at all.
const endSettledWaitSQL = `
WITH gone AS (
    DELETE FROM open_waits WHERE application_id = $1 AND (kind = 'backoff' OR code IN ('never_observed', 'no_live_hosts')) RETURNING *)
INSERT INTO wait_history (account, lattice, application, kind, code, reason, since, ended_at, ended_by, actor)
SELECT a.account, a.lattice, a.name, g.kind, g.code, g.reason, g.since, clock_timestamp(), 'answered', ''
FROM gone g JOIN applications a ON a.id = g.application_id` + returningEnd

// ClearWait ends the wait that a workflow declared, because what it waited for
// came. A wait that the database found is not the workflow's to end: one that was
// reset may be behind it.
func (s *Store) ClearWait(ctx context.Context, workflowID string) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		var application *int64
		err := tx.QueryRow(ctx, `
SELECT a.id FROM open_waits w JOIN applications a ON a.id = w.application_id
WHERE w.workflow_id = $1 AND w.kind = 'observer' FOR KEY SHARE OF a`, workflowID).Scan(&application)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(endOpenWaitsSQL, workflowID, nil, nil, nil, "answered", "")
		if err := exec(ctx, tx, b); err != nil || application == nil {
			return err
		}
		return publishStatus(ctx, tx, *application)
	})
	if err != nil {
		return fmt.Errorf("end the wait of %s: %w", workflowID, err)
	}
	return nil
}

func queueEndOpenWaits(b *pgx.Batch, phaseID, missionID *int64, endedBy, actor string) {
	b.Queue(endOpenWaitsSQL, "", phaseID, missionID, nil, endedBy, actor)
}

func queueEndApplicationWait(b *pgx.Batch, applicationID int64, endedBy, actor string) {
	b.Queue(endOpenWaitsSQL, "", nil, nil, applicationID, endedBy, actor)
}
