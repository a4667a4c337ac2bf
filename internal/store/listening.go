package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// listening is what is known of the time in which nodes could be heard: at least
// one engine reached NATS and the database, from since to heard without a gap.
type listening struct {
	since, heard time.Time
}

// silence is how long a node, last heard of at heartbeat, has been silent while
// somebody listened. before is what its silence was when the listening before
// this one ended. It is the function silence of the database, for nodes that are
// remembered between looks.
func (l listening) silence(heartbeat time.Time, before time.Duration) time.Duration {
	return max(before, min(l.heard.Sub(heartbeat), l.heard.Sub(l.since)), 0)
}

// Listened is what a call of [Store.Listen] found.
type Listened struct {
	// Gap is for how long nobody had listened, when that was long enough for the
	// silence of nodes to say nothing about them; else 0.
	Gap time.Duration
}

// gapShare of the silence that makes a node suspect is how long nobody may
// listen without that being an outage. A node that spoke just before a shorter
// one is heard again before it is suspect.
const gapShare = 2

// ListenEvery is how often engines should call [Store.Listen].
func (r Rules) ListenEvery() time.Duration { return max(r.SuspectAfter/(3*gapShare), time.Millisecond) }

// Listen records that nodes can be heard now: the caller reaches NATS, and the
// database. When nobody had done so for too long, all nodes get a fresh grace:
// their silence counts from now on. One that was silent before the gap keeps the
// silence it had then, which is no more than it had.
//
// All times are the database's. A clock that jumps ahead is a gap; one that jumps
// back makes silences shorter.
func (s *Store) Listen(ctx context.Context) (Listened, error) {
	var res Listened
	err := s.tx(ctx, func(tx pgx.Tx) error {
		res = Listened{}
		var l listening
		var now time.Time
		err := tx.QueryRow(ctx, `SELECT since, heard_at FROM listening FOR UPDATE`).Scan(&l.since, &l.heard)
		if err != nil {
			return err
		}
		// Not before the lock is held: another engine may have held it for long.
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
			return err
		}
		gap := now.Sub(l.heard)
		if gap <= s.rules.SuspectAfter/gapShare {
			_, err := tx.Exec(ctx, `UPDATE listening SET heard_at = GREATEST(heard_at, $1)`, now)
			return err
		}
		res.Gap = gap
		if _, err := tx.Exec(ctx, `UPDATE nodes n SET silent_before = silence(n) WHERE silence(n) > n.silent_before`); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE listening SET since = $1, heard_at = $1`, now)
		return err
	})
	if err != nil {
		return Listened{}, fmt.Errorf("record that nodes can be heard: %w", err)
	}
	return res, nil
}

// declareLostSQL gives nodes up that have been silent for too long: what they
// run is of an older epoch from then on. $1 names one node, or is empty for all.
// A silence counts once.
const declareLostSQL = `
UPDATE nodes n SET lease_epoch = lease_epoch + 1, lost_at = clock_timestamp()
WHERE ($1 = '' OR n.id = $1) AND n.admin_state <> 'retired' AND (n.lost_at IS NULL OR n.lost_at < n.heartbeat_at)
  AND extract(epoch FROM silence(n)) >= $2
RETURNING n.id`

// DeclareLost gives up the nodes that have been silent for as long as a node may
// be, and returns those that were not given up yet. What they run can no longer
// be committed, also when they come back.
func (s *Store) DeclareLost(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, declareLostSQL, "", s.rules.LostAfter.Seconds())
	if err != nil {
		return nil, fmt.Errorf("give up silent nodes: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("give up silent nodes: %w", err)
	}
	return ids, nil
}
