package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// MayCommit returns nil when what a run has made may become a commit: its phase
// still has it, and the node it was placed on in this epoch has not been given up
// since, or had said by itself that the run has ended. Else the error is
// [ErrStale], and says which of these is not so.
func (s *Store) MayCommit(ctx context.Context, runID string, epoch int64) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := checkCurrent(ctx, tx, runID); err != nil {
			return err
		}
		var node string
		var placed, now int64
		var freed bool
		err := tx.QueryRow(ctx, `
SELECT n.id, r.lease_epoch, n.lease_epoch, NOT EXISTS (SELECT 1 FROM reservations v WHERE v.run_id = r.id AND v.released_at IS NULL)
FROM topology_runs r JOIN nodes n ON n.id = r.node_id WHERE r.id = $1`, runID).Scan(&node, &placed, &now, &freed)
		switch {
		case err != nil:
			return err
		case epoch != placed:
			return fmt.Errorf("it was placed in epoch %d of node %s, not in %d: %w", placed, node, epoch, ErrStale)
		case placed != now && !freed:
			return fmt.Errorf("node %s was given up since it was placed: epoch %d is over, it is %d now: %w", node, placed, now, ErrStale)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("commit what run %s has made: %w", runID, err)
	}
	return nil
}

// checkCurrent returns [ErrStale] unless the run is the one its phase has now.
func checkCurrent(ctx context.Context, tx pgx.Tx, runID string) error {
	var status, phase string
	var ended, latest bool
	err := tx.QueryRow(ctx, `
SELECT r.status, r.ended_at IS NOT NULL, p.status, p.attempt = r.attempt
FROM topology_runs r JOIN mission_phases p ON p.id = r.phase_id WHERE r.id = $1`, runID).Scan(&status, &ended, &phase, &latest)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("there is no such run: %w", ErrStale)
	case err != nil:
		return err
	case ended || status == "lost":
		return fmt.Errorf("it has ended as %s: %w", status, ErrStale)
	case !latest || phase == "pending":
		return fmt.Errorf("its phase was placed again: %w", ErrStale)
	case phase != "running":
		return fmt.Errorf("its phase has %s: %w", phase, ErrStale)
	}
	return nil
}
