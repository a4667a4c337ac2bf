package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
)

// NoteWait records a wait that a workflow declares, or what changed of it. Since
// is kept from the first time. An application that is not deployed any more
// does not wait.
func (s *Store) NoteWait(ctx context.Context, w ledger.OpenWait) error {
	var mission, phase *int64
	var app ledger.AppKey // of no application
	switch {
	case w.App != nil:
		app = *w.App
	case w.PhaseID != 0:
		mission, phase = &w.MissionID, &w.PhaseID
	default:
		mission = &w.MissionID
	}
	var bound *time.Time
	if !w.Bound.IsZero() {
		bound = &w.Bound
	}
	_, err := s.pool.Exec(ctx, `
WITH app AS (
    SELECT id FROM applications WHERE account = $9 AND lattice = $10 AND name = $11 AND deployed_version IS NOT NULL
    FOR KEY SHARE) -- before the row of the wait, as a deploy takes them
INSERT INTO open_waits AS o (workflow_id, mission_id, phase_id, application_id, kind, code, reason, since, bound)
SELECT $1, $2, $3, app.id, $4, $5, $6, $7, $8 FROM (SELECT 1) one LEFT JOIN app ON true
WHERE $2::bigint IS NOT NULL OR app.id IS NOT NULL
ON CONFLICT (workflow_id) DO UPDATE SET code = EXCLUDED.code, reason = EXCLUDED.reason, bound = EXCLUDED.bound,
    since = CASE WHEN o.kind = EXCLUDED.kind THEN o.since ELSE EXCLUDED.since END, kind = EXCLUDED.kind,
    checked_at = clock_timestamp()`,
		w.WorkflowID, mission, phase, w.Kind, w.Code, w.Reason, w.Since, bound, app.Account, app.Lattice, app.Name)
	if err != nil {
		return fmt.Errorf("record the wait of %s: %w", w.WorkflowID, err)
	}
	return nil
}

// endOpenWaitsSQL moves waits into the history: one that a workflow declared
// itself, or all of one phase, of one mission or of one application. The history of an application
// names it, since it outlives its row.
const endOpenWaitsSQL = `
WITH gone AS (
    DELETE FROM open_waits
    WHERE workflow_id = $1 AND kind IN ('node', 'gateway', 'observer') OR phase_id = $2 OR mission_id = $3 OR application_id = $4
    RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, account, lattice, application, kind, code, reason, since, ended_at, ended_by, actor, attempts)
SELECT g.mission_id, g.phase_id, a.account, a.lattice, a.name, g.kind, g.code, g.reason, g.since, clock_timestamp(), $5, $6, g.attempts
FROM gone g LEFT JOIN applications a ON a.id = g.application_id`

// endSettledWaitSQL does the same to the wait of an application that a deployment
// is answer enough to: for the next try of what failed, and for any host at all.
const endSettledWaitSQL = `
WITH gone AS (
    DELETE FROM open_waits WHERE application_id = $1 AND (kind = 'backoff' OR code IN ('never_observed', 'no_live_hosts')) RETURNING *)
INSERT INTO wait_history (account, lattice, application, kind, code, reason, since, ended_at, ended_by, actor)
SELECT a.account, a.lattice, a.name, g.kind, g.code, g.reason, g.since, clock_timestamp(), 'answered', ''
FROM gone g JOIN applications a ON a.id = g.application_id`

// ClearWait ends the wait that a workflow declared, because what it waited for
// came. A wait that the database found is not the workflow's to end: one that was
// reset may be behind it.
func (s *Store) ClearWait(ctx context.Context, workflowID string) error {
	if _, err := s.pool.Exec(ctx, endOpenWaitsSQL, workflowID, nil, nil, nil, "answered", ""); err != nil {
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
