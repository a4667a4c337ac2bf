package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// gated is a phase's row as a gate sees it, held for the rest of the transaction.
type gated struct {
	id, missionID  int64
	mission, phase string
	status         string
	attempt        int

	heldSince, heldBound, releasedAt, retryAt *time.Time
	now                                       time.Time
}

func lockGated(ctx context.Context, tx pgx.Tx, phaseID int64) (gated, error) {
	g := gated{id: phaseID}
	err := tx.QueryRow(ctx, `
SELECT p.mission_id, m.name, p.name, p.status, p.attempt, p.held_since, p.held_bound, p.released_at, p.retry_at, clock_timestamp()
FROM mission_phases p JOIN missions m ON m.id = p.mission_id WHERE p.id = $1 FOR UPDATE OF p`, phaseID).
		Scan(&g.missionID, &g.mission, &g.phase, &g.status, &g.attempt, &g.heldSince, &g.heldBound, &g.releasedAt, &g.retryAt, &g.now)
	if errors.Is(err, pgx.ErrNoRows) {
		return g, fmt.Errorf("phase %d: %w", phaseID, ErrNotFound)
	}
	return g, err
}

func (g gated) workflowID() string { return api.PhaseWorkflowID(g.mission, g.phase) }

// Gate looks at what stands between a phase and its queue: a hold that nobody
// has released, or a back-off that is not over. It returns the phase's pause or
// its end; an empty outcome says that the phase may ask for a node. A hold that
// was released, and a back-off that was over, stay so.
func (s *Store) Gate(ctx context.Context, phaseID int64, in ledger.Gate) (ledger.Outcome, error) {
	var outcome ledger.Outcome
	err := s.tx(ctx, func(tx pgx.Tx) error {
		outcome = ledger.Outcome{}
		g, err := lockGated(ctx, tx, phaseID)
		if err != nil || g.status != "pending" {
			return err // what it is instead, the placer says
		}
		if in.Hold != nil && g.releasedAt == nil {
			if outcome, err = g.hold(ctx, tx, in); err != nil || outcome != (ledger.Outcome{}) {
				return err
			}
		}
		if g.retryAt != nil {
			outcome.Paused, err = g.backOff(ctx, tx, in)
		}
		return err
	})
	if err != nil {
		return ledger.Outcome{}, fmt.Errorf("look at the gate of phase %d: %w", phaseID, err)
	}
	return outcome, nil
}

// hold is the pause of a phase that nobody has released, or the end of one that
// was not released in time.
func (g gated) hold(ctx context.Context, tx pgx.Tx, in ledger.Gate) (ledger.Outcome, error) {
	if in.Release != nil {
		return ledger.Outcome{}, g.release(ctx, tx, *in.Release)
	}
	if g.heldSince == nil {
		g.heldSince = &g.now
		if in.Hold.MaxWait > 0 {
			bound := g.now.Add(in.Hold.MaxWait)
			g.heldBound = &bound
		}
	}
	pause := g.held(*in.Hold)
	if in.Expire && g.heldBound != nil && !g.now.Before(*g.heldBound) {
		end := ledger.Ended{
			Status: "failed", FailureCode: "wait_exceeded",
			Failure: fmt.Sprintf("waited %s for its release, the longest allowed; it was %s", in.Hold.MaxWait, pause.Sentence),
		}
		b := &pgx.Batch{}
		queueEnd(b, g.id, "expired", end)
		return ledger.Outcome{Ended: &end}, exec(ctx, tx, b)
	}
	b := &pgx.Batch{}
	b.Queue(`UPDATE mission_phases SET held_since = $2, held_bound = $3 WHERE id = $1`, g.id, g.heldSince, g.heldBound)
	g.queueOpen(b, pause, 0)
	return ledger.Outcome{Paused: &pause}, exec(ctx, tx, b)
}

func (g gated) held(h ledger.Hold) ledger.Pause {
	p := ledger.Pause{
		Kind: ledger.KindHold, Code: ledger.CodeAwaitingRelease, Since: g.heldSince.UTC(),
		Sentence: "held by its document until somebody releases it",
	}
	if h.Reason != "" {
		p.Sentence += ": " + h.Reason
	}
	if g.heldBound != nil {
		p.Bound, p.Left = g.heldBound.UTC(), max(g.heldBound.Sub(g.now), 0)
	}
	return p
}

func (g gated) release(ctx context.Context, tx pgx.Tx, by ledger.Act) error {
	b := &pgx.Batch{}
	b.Queue(`UPDATE mission_phases SET released_at = clock_timestamp(), released_by = $2, release_note = $3 WHERE id = $1`,
		g.id, by.Actor, by.Note)
	b.Queue(endPauseSQL, g.workflowID(), "released", by.Actor, by.Note, "")
	queuePhaseActs(b, g.id, by)
	return exec(ctx, tx, b)
}

// endPauseSQL moves the wait of a phase that is not in the queue into the history.
const endPauseSQL = `
WITH gone AS (DELETE FROM open_waits WHERE workflow_id = $1 AND kind IN ('hold', 'backoff') RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, kind, code, reason, since, ended_at, ended_by, actor, note, woken_by, attempts)
SELECT mission_id, phase_id, kind, code, reason, since, clock_timestamp(), $2, $3, $4, $5, attempts FROM gone` + returningEnd

// queueOpen writes the wait where lists look for it.
func (g gated) queueOpen(b *pgx.Batch, p ledger.Pause, attempts int) {
	var bound, next *time.Time
	if !p.Bound.IsZero() {
		bound = &p.Bound
	}
	if !p.Next.IsZero() {
		next = &p.Next
	}
	queueReplaceWait(b, g.workflowID(), p.Kind)
	b.Queue(`
INSERT INTO open_waits (workflow_id, mission_id, phase_id, kind, code, reason, since, bound, next_check, attempts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (workflow_id) DO UPDATE SET code = EXCLUDED.code, reason = EXCLUDED.reason,
    since = EXCLUDED.since, bound = EXCLUDED.bound, next_check = EXCLUDED.next_check, attempts = EXCLUDED.attempts,
    checked_at = clock_timestamp()`,
		g.workflowID(), g.missionID, g.id, p.Kind, p.Code, p.Sentence, p.Since, bound, next, attempts)
}

// backOff is the pause of a phase that backs off. When it is over the phase has
// its place in the queue again.
func (g gated) backOff(ctx context.Context, tx pgx.Tx, in ledger.Gate) (*ledger.Pause, error) {
	if in.Resume == "" || in.Attempt != 0 && in.Attempt != g.attempt { // what ended an earlier back-off does not end this one
		rows, err := tx.Query(ctx, pausesSQL, []int64{g.id})
		if err != nil {
			return nil, err
		}
		p, err := pgx.CollectExactlyOneRow(rows, scanPause)
		if err != nil {
			return nil, err
		}
		b := &pgx.Batch{}
		g.queueOpen(b, p.Pause, p.attempts) // a workflow that was reset may have put another wait in its place
		return &p.Pause, exec(ctx, tx, b)
	}
	actor := ""
	if in.By != nil {
		actor = in.By.Actor
	}
	b := &pgx.Batch{}
	b.Queue(`UPDATE mission_phases SET queued_at = place_kept, place_kept = NULL, retry_at = NULL WHERE id = $1`, g.id)
	b.Queue(endPauseSQL, g.workflowID(), "retried", actor, "", string(in.Resume))
	return nil, exec(ctx, tx, b)
}

// pausesSQL reads the pauses of phases that are not in the queue. What the list of
// waits does not say, the phase and its latest failed run do.
const pausesSQL = `
SELECT p.id, p.attempt, p.held_bound, p.retry_at, COALESCE(w.since, r.ended_at, p.retry_at, p.held_since), clock_timestamp(),
       COALESCE(w.reason, CASE WHEN p.retry_at IS NULL THEN 'held by its document until somebody releases it'
                               ELSE 'an attempt failed: ' || COALESCE(r.failure, 'not known how') END),
       COALESCE(w.attempts, r.attempts, 0)
FROM mission_phases p
LEFT JOIN open_waits w ON w.phase_id = p.id AND w.kind = CASE WHEN p.retry_at IS NULL THEN 'hold' ELSE 'backoff' END
LEFT JOIN LATERAL (
    SELECT failure, ended_at, count(*) OVER () AS attempts FROM topology_runs
    WHERE phase_id = p.id AND status = 'failed' AND p.retry_at IS NOT NULL ORDER BY attempt DESC LIMIT 1) r ON true
WHERE p.id = ANY($1) AND p.status = 'pending' AND p.queued_at IS NULL
  AND (p.retry_at IS NOT NULL OR p.held_since IS NOT NULL AND p.released_at IS NULL)`

// paused is the pause of a phase, after so many attempts that failed.
type paused struct {
	ledger.Pause
	phaseID  int64
	attempts int
}

func scanPause(row pgx.CollectableRow) (paused, error) {
	var (
		p              paused
		attempt        int
		bound, retryAt *time.Time
		now            time.Time
	)
	if err := row.Scan(&p.phaseID, &attempt, &bound, &retryAt, &p.Since, &now, &p.Sentence, &p.attempts); err != nil {
		return p, err
	}
	p.Since = p.Since.UTC()
	switch {
	case retryAt != nil:
		p.Kind, p.Code, p.Attempt = ledger.KindBackoff, ledger.CodeCommandFailed, attempt
		p.Next, p.Left = retryAt.UTC(), max(retryAt.Sub(now), 0)
	default:
		p.Kind, p.Code = ledger.KindHold, ledger.CodeAwaitingRelease
		if bound != nil {
			p.Bound, p.Left = bound.UTC(), max(bound.Sub(now), 0)
		}
	}
	return p, nil
}

// BackOff ends a phase's run as failed, frees its node and takes the phase out of
// the queue until it is time for its next attempt, unless that run was the last
// it may have. The database counts the attempts, so that a reset gives no more of
// them. Calling it again for the same attempt changes nothing.
func (s *Store) BackOff(ctx context.Context, in ledger.BackOff) (ledger.BackedOff, error) {
	var out ledger.BackedOff
	err := s.tx(ctx, func(tx pgx.Tx) error {
		out = ledger.BackedOff{}
		g, err := lockGated(ctx, tx, in.PhaseID)
		if err != nil {
			return err
		}
		var failed int
		err = tx.QueryRow(ctx, `
SELECT p.attempt, (SELECT count(*) FROM topology_runs WHERE phase_id = p.id AND status = 'failed')
FROM mission_phases p WHERE p.id = $1`, in.PhaseID).Scan(&out.Attempt, &failed)
		if err != nil || g.status != "running" || out.Attempt != in.Attempt {
			return err
		}
		if failed++; failed >= in.Attempts {
			out.Exhausted = true
			return nil
		}
		out.Attempt++
		pause := ledger.PauseAfter(failed, in.First)
		next := g.now.Add(pause).UTC()
		b := &pgx.Batch{}
		queueRunEnd(b, in.PhaseID, in.Run)
		b.Queue(releaseSQL, in.PhaseID, "")
		b.Queue(clearTargetSQL, in.PhaseID)
		b.Queue(endSecretsWaitSQL, in.PhaseID, "expired")
		b.Queue(`
UPDATE mission_phases SET status = 'pending', attempt = attempt + 1, place_kept = queued_at, queued_at = NULL, retry_at = $2
WHERE id = $1`, in.PhaseID, next)
		g.queueOpen(b, ledger.Pause{
			Kind: ledger.KindBackoff, Code: ledger.CodeCommandFailed, Since: g.now.UTC(), Next: next,
			Sentence: fmt.Sprintf("attempt %d of %d failed%s: %s; attempt %d begins after a pause of %s",
				failed, in.Attempts, otherThanCommand(in.Run.FailureCode), in.Run.Failure, failed+1, pause),
		}, failed)
		return exec(ctx, tx, b)
	})
	if err != nil {
		return ledger.BackedOff{}, fmt.Errorf("let phase %d back off: %w", in.PhaseID, err)
	}
	return out, nil
}

// otherThanCommand names a failure that the code of a back-off does not.
func otherThanCommand(code string) string {
	if code == "" || code == ledger.CodeCommandFailed {
		return ""
	}
	return " with " + code
}
