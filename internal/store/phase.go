package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
)

// Statements that end things. Releasing is idempotent: only the first call
// finds released_at NULL.
const (
	releaseSQL = `
WITH freed AS (
    UPDATE reservations SET released_at = clock_timestamp()
    WHERE released_at IS NULL AND (phase_id = $1 OR run_id = $2) RETURNING *)
UPDATE nodes n SET cpu_reserved = cpu_reserved - f.cpu, memory_reserved = memory_reserved - f.memory,
    disk_reserved = disk_reserved - f.disk, slots_reserved = slots_reserved - f.slots,
    starting = n.starting - f.starting, capacity_version = capacity_version + 1
FROM freed f WHERE n.id = f.node_id`

	endRunsSQL = `
UPDATE topology_runs SET status = $2, ended_at = clock_timestamp(), step = 'ended',
    exit_code = $3, signal = $4, failure_code = $5, failure = $6, out_of_memory = $10,
    accel = COALESCE(NULLIF($7, ''), accel), kernel = COALESCE(NULLIF($8, ''), kernel), isolation = COALESCE(NULLIF($9, ''), isolation),
    start_kind = COALESCE(NULLIF($11, ''), start_kind), start_why = COALESCE(NULLIF($12, ''), start_why)
WHERE phase_id = $1 AND ended_at IS NULL`

	endPhaseSQL = `
UPDATE mission_phases SET status = $2, capacity_blocked_since = NULL, capacity_note = NULL,
    commit_sha = $3, failure_code = $4, failure = $5, partial_branch = $6, partial_commit = $7, retry_at = NULL,
    ended_at = clock_timestamp()
WHERE id = $1 AND status IN ('pending', 'running')`

	clearTargetSQL = `
UPDATE missions SET target_node_id = NULL
WHERE id = (SELECT mission_id FROM mission_phases WHERE id = $1)`
)

// queueEnd queues the statements that give a phase its final status and free
// its node. endedBy is what the history says of a wait that is still open.
func queueEnd(b *pgx.Batch, phaseID int64, endedBy string, e ledger.Ended) {
	queueEndKeepingNode(b, phaseID, endedBy, e)
	b.Queue(releaseSQL, phaseID, "")
}

func queueEndKeepingNode(b *pgx.Batch, phaseID int64, endedBy string, e ledger.Ended) {
	b.Queue(endWaitsSQL, []int64{phaseID}, endedBy, []string{""})
	actor := ""
	if e.By != nil {
		actor = e.By.Actor
	}
	queueEndOpenWaits(b, &phaseID, nil, endedBy, actor)
	var partial ledger.Partial
	if e.Partial != nil {
		partial = *e.Partial
	}
	b.Queue(endPhaseSQL, phaseID, e.Status, e.Commit, e.FailureCode, e.Failure, partial.Branch, partial.Commit)
	b.Queue(clearTargetSQL, phaseID)
}

func queueRunEnd(b *pgx.Batch, phaseID int64, e ledger.RunEnd) {
	queueImages(b, phaseID, e)
	var code *int
	var signal string
	oom := false
	if e.Exit != nil {
		signal, oom = e.Exit.Signal, e.Exit.OOM
		if signal == "" {
			code = &e.Exit.Code
		}
	}
	queueAgentEnds(b, phaseID, e)
	b.Queue(endRunsSQL, phaseID, e.Status, code, signal, e.FailureCode, e.Failure, e.Info.Accel, e.Info.Kernel, e.Info.Isolation, oom,
		string(e.Info.Start.Kind), e.Info.Start.Why)
}

// FinishPhase gives a phase its final status, ends its run and releases its
// node, in one transaction. A node that may still have the run's machine is
// released by what it says next, or by [Store.ReleaseOrphans]. A phase that has ended already keeps its status,
// which is returned. A success of a run that the phase has given up is refused
// with [ErrStale].
func (s *Store) FinishPhase(ctx context.Context, phaseID int64, run ledger.RunEnd, end ledger.Ended) (ledger.Ended, error) {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		settled, err := lockPhase(ctx, tx, phaseID)
		if err != nil {
			return err
		}
		if settled != nil {
			end = *settled
			return nil
		}
		if end.Status == "succeeded" && run.RunID != "" {
			if err := checkCurrent(ctx, tx, run.RunID); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		if end.By != nil {
			queuePhaseActs(b, phaseID, *end.By)
		}
		queueRunEnd(b, phaseID, run)
		queueEndKeepingNode(b, phaseID, endedByOf(end.Status), end)
		if !run.Lingers {
			b.Queue(releaseSQL, phaseID, "")
		}
		return exec(ctx, tx, b)
	})
	if err != nil {
		return ledger.Ended{}, fmt.Errorf("finish phase %d: %w", phaseID, err)
	}
	return end, nil
}

// RetryPhase ends the phase's run and puts the phase back into the queue for
// its next attempt. It keeps its place there. It returns the attempt the phase
// is at. Calling it again for the same attempt changes nothing.
func (s *Store) RetryPhase(ctx context.Context, phaseID int64, attempt int, run ledger.RunEnd) (int, error) {
	var next int
	err := s.tx(ctx, func(tx pgx.Tx) error {
		if _, err := lockPhase(ctx, tx, phaseID); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
UPDATE mission_phases SET status = 'pending', attempt = attempt + 1
WHERE id = $1 AND attempt = $2 AND status = 'running'`, phaseID, attempt)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if tag.RowsAffected() > 0 {
			queueRunEnd(b, phaseID, run)
			b.Queue(releaseSQL, phaseID, "")
			b.Queue(clearTargetSQL, phaseID)
			b.Queue(endSecretsWaitSQL, phaseID, "lost")
		}
		b.Queue(`SELECT attempt FROM mission_phases WHERE id = $1`, phaseID).
			QueryRow(func(row pgx.Row) error { return row.Scan(&next) })
		return exec(ctx, tx, b)
	})
	if err != nil {
		return 0, fmt.Errorf("queue phase %d again: %w", phaseID, err)
	}
	return next, nil
}

// ReleaseOrphans frees what ended runs still hold: their agent has said since
// that it does not have the machine, or has been silent for so long that it must
// have destroyed it. It returns the runs, and counts those as leaks that were not
// cancelled: those may have been left so.
func (s *Store) ReleaseOrphans(ctx context.Context) ([]string, error) {
	var runs []string
	err := s.tx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
SELECT v.run_id FROM reservations v JOIN topology_runs r ON r.id = v.run_id JOIN nodes n ON n.id = v.node_id
WHERE v.released_at IS NULL AND r.ended_at IS NOT NULL
  AND (n.heartbeat_at > r.ended_at AND NOT r.id = ANY(n.running)
    OR extract(epoch FROM silence(n)) >= $1)
ORDER BY v.run_id FOR UPDATE OF v`, s.rules.LostAfter.Seconds())
		if err != nil {
			return err
		}
		if runs, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`
UPDATE nodes n SET orphaned = orphaned + v.runs
FROM (SELECT v.node_id, count(*) runs FROM reservations v JOIN topology_runs r ON r.id = v.run_id
      WHERE r.id = ANY($1) AND r.status <> 'cancelled' AND v.released_at IS NULL GROUP BY v.node_id) v
WHERE n.id = v.node_id`, nonNilSlice(runs))
		for _, run := range runs {
			b.Queue(releaseSQL, nil, run)
		}
		return exec(ctx, tx, b)
	})
	if err != nil {
		return nil, fmt.Errorf("release what ended runs hold: %w", err)
	}
	return runs, nil
}

// lockPhase holds a phase's row for the rest of the transaction. It returns the
// phase's end when it has one.
func lockPhase(ctx context.Context, tx pgx.Tx, phaseID int64) (*ledger.Ended, error) {
	var e ledger.Ended
	var partial ledger.Partial
	err := tx.QueryRow(ctx, `
SELECT status, commit_sha, failure_code, failure, partial_branch, partial_commit FROM mission_phases WHERE id = $1 FOR UPDATE`, phaseID).
		Scan(&e.Status, &e.Commit, &e.FailureCode, &e.Failure, &partial.Branch, &partial.Commit)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("phase %d: %w", phaseID, ErrNotFound)
	case err != nil:
		return nil, err
	case e.Status == "pending" || e.Status == "running":
		return nil, nil //nolint:nilnil // no end, no error: the phase is open
	case partial.Branch != "":
		e.Partial = &partial
	}
	return &e, nil
}

func endedByOf(status string) string {
	if status == "cancelled" {
		return "cancelled"
	}
	return "lost"
}

// lookedAtNodeSQL writes what a look at a silent node found. The bound moves with an
// outage of whoever listens to nodes, and not with what a node says.
const lookedAtNodeSQL = `
UPDATE open_waits SET checked_at = clock_timestamp(), bound = CASE WHEN $3 THEN bound ELSE $2 END, reason = $4
WHERE kind = 'node' AND phase_id = (SELECT phase_id FROM topology_runs WHERE id = $1)`

// destroyRunSQL has the next heartbeat's reply name the run.
const destroyRunSQL = `UPDATE topology_runs SET status = 'lost', step = 'destroy' WHERE id = $1 AND ended_at IS NULL`

// JudgeRun decides what became of a run whose activity was lost: the agent said
// since then that it does not have it, or the node has been silent for so long
// that its agent must have destroyed it. Until one of the two is true the node
// is not free and the phase waits for it. A node that has been silent for so long
// is given up, with all that it runs. A run that an earlier agent of the node left,
// and that the next one has, is kept: it is not suspected any more. With giveUp it
// is not, and the agent is told to destroy it.
func (s *Store) JudgeRun(ctx context.Context, runID string, giveUp bool) (ledger.Verdict, error) {
	var v ledger.Verdict
	err := s.tx(ctx, func(tx pgx.Tx) (err error) {
		var (
			has, ended bool
			adopted    bool
			givenUp    string
			silence    float64
			heardAt    time.Time
			from       time.Time // since when its silence counts, but for what came before a gap
		)
		err = tx.QueryRow(ctx, `
UPDATE topology_runs r SET suspected_at = COALESCE(r.suspected_at, clock_timestamp())
FROM nodes n, listening l WHERE r.id = $1 AND n.id = r.node_id
RETURNING n.id, r.ended_at IS NOT NULL, r.suspected_at, n.heartbeat_at > r.suspected_at, r.id = ANY(n.running),
          r.id = ANY(n.adopted) AND r.status IN ('starting', 'running') AND r.lease_epoch = n.lease_epoch,
          COALESCE(n.given_up ->> r.id, ''), extract(epoch FROM silence(n))::float8, l.heard_at, GREATEST(n.heartbeat_at, l.since)`, runID).
			Scan(&v.Node, &ended, &v.Since, &v.Heard, &has, &adopted, &givenUp, &silence, &heardAt, &from)
		if err != nil {
			return err
		}
		silent := seconds(silence)
		// The end of the node's time stays where it is while an engine listens. A silence
		// from before a gap in that counts for how silent it was, and makes the end no earlier.
		v.Until, v.Since = from.Add(s.rules.LostAfter).Round(time.Microsecond).UTC(), v.Since.UTC()
		if silent < s.rules.LostAfter {
			v.Left = max(v.Until.Sub(heardAt), 0)
		}
		defer func() {
			if err == nil && !v.Gone && !v.Kept {
				_, err = tx.Exec(ctx, lookedAtNodeSQL, runID, v.Until, v.Heard, v.Reason)
			}
		}()
		switch {
		case v.Left == 0:
			v.Gone, v.Reason = true, fmt.Sprintf("node %s has been silent for %s", v.Node, silent.Round(time.Second))
			_, err = tx.Exec(ctx, declareLostSQL, v.Node, s.rules.LostAfter.Seconds())
			return err
		case adopted && !giveUp && !ended && (v.Heard || silent <= s.rules.SuspectAfter):
			v.Kept, v.Reason = true, fmt.Sprintf("the next agent of node %s goes on with run %s", v.Node, runID)
			_, err = tx.Exec(ctx, `UPDATE topology_runs SET suspected_at = NULL WHERE id = $1`, runID)
			return err
		case adopted && giveUp && !ended:
			v.Reason = fmt.Sprintf("node %s does not take up run %s, and is told to destroy it", v.Node, runID)
			_, err = tx.Exec(ctx, destroyRunSQL, runID)
			return err
		case v.Heard && !has:
			v.Gone, v.Reason = true, fmt.Sprintf("the agent of node %s came back without run %s", v.Node, runID)
			if givenUp != "" {
				v.Reason += ": " + givenUp
			}
		case v.Heard && has:
			v.Reason = fmt.Sprintf("node %s still has run %s and is told to destroy it", v.Node, runID)
			_, err = tx.Exec(ctx, destroyRunSQL, runID)
			return err
		case ended:
			v.Gone, v.Reason = true, fmt.Sprintf("run %s has ended", runID)
		default:
			v.Reason = fmt.Sprintf("node %s is silent; its agent may still have run %s", v.Node, runID)
		}
		return nil
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return ledger.Verdict{Gone: true, Reason: fmt.Sprintf("run %s is not known", runID)}, nil
	}
	if err != nil {
		return ledger.Verdict{}, fmt.Errorf("judge run %s: %w", runID, err)
	}
	return v, nil
}
