package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
	"tidewait/internal/storable"
)

// Channels that news of applications are carried on, each in its own order and
// whatever becomes of the other.
const (
	ChannelNATS     = "nats"
	ChannelTemporal = "temporal"
)

// queueNews adds a row to the outbox for a held application at the revision its
// row has then.
func queueNews(b *pgx.Batch, applicationID int64, channel, kind string, payload json.RawMessage) {
	if payload == nil {
		payload = json.RawMessage("{}")
	}
	b.Queue(`
INSERT INTO application_outbox (account, lattice, name, channel, kind, revision, payload)
SELECT account, lattice, name, $2, $3, revision, $4 FROM applications WHERE id = $1`, applicationID, channel, kind, payload)
}

// queueRevised tells the application's workflow. What it was to be told before
// is taken back, unless somebody is carrying it: it looks at what is there
// anyway.
func queueRevised(b *pgx.Batch, applicationID int64) {
	b.Queue(`
DELETE FROM application_outbox o USING applications a
WHERE a.id = $1 AND o.account = a.account AND o.lattice = a.lattice AND o.name = a.name AND o.channel = $2 AND o.kind = $3
  AND (o.attempts = 0 OR o.not_before <= clock_timestamp())`, applicationID, ChannelTemporal, ledger.NewsRevised)
	queueNews(b, applicationID, ChannelTemporal, ledger.NewsRevised, nil)
}

// claimNewsSQL takes the oldest row of each application and channel, when it is
// due. A row that another engine takes at the same moment is passed over, and
// so is everything behind it, since it is still the oldest.
const claimNewsSQL = `
WITH due AS (
    SELECT o.id FROM application_outbox o
    WHERE o.not_before <= clock_timestamp() AND ($3::text[] IS NULL OR o.channel = ANY($3)) AND NOT EXISTS (
        SELECT 1 FROM application_outbox p
        WHERE p.account = o.account AND p.lattice = o.lattice AND p.name = o.name AND p.channel = o.channel AND p.id < o.id)
    ORDER BY o.id LIMIT $1 FOR UPDATE OF o SKIP LOCKED)
UPDATE application_outbox o SET attempts = attempts + 1, not_before = clock_timestamp() + $2 * interval '1 second'
FROM due WHERE o.id = due.id
RETURNING o.id, o.account, o.lattice, o.name, o.kind, o.revision, o.payload, o.created_at, o.attempts`

// ClaimNews takes up to limit news that are due, oldest first: of each
// application and channel the oldest only, so that what one application has to
// tell is carried in order. With no channel named it is those of all. Nobody
// else gets them before the lease is over; after it they are due again, unless
// they were delivered.
func (s *Store) ClaimNews(ctx context.Context, limit int, lease time.Duration, channels ...string) ([]ledger.News, error) {
	rows, err := s.pool.Query(ctx, claimNewsSQL, limit, lease.Seconds(), channels)
	if err != nil {
		return nil, fmt.Errorf("claim news of applications: %w", err)
	}
	news, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.News, error) {
		var n ledger.News
		err := row.Scan(&n.ID, &n.Key.Account, &n.Key.Lattice, &n.Key.Name, &n.Kind, &n.Revision, (*[]byte)(&n.Payload), &n.At, &n.Attempts)
		n.At = n.At.UTC()
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim news of applications: %w", err)
	}
	slices.SortFunc(news, func(a, b ledger.News) int { return cmp.Compare(a.ID, b.ID) })
	return news, nil
}

// NewsDelivered removes news that were carried.
func (s *Store) NewsDelivered(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := s.pool.Exec(ctx, `DELETE FROM application_outbox WHERE id = ANY($1)`, ids); err != nil {
		return fmt.Errorf("clear the outbox of applications: %w", err)
	}
	return nil
}

// NewsFailed records why news were not carried, and makes them due again after
// a pause.
func (s *Store) NewsFailed(ctx context.Context, id int64, why string, retryAfter time.Duration) error {
	_, err := s.pool.Exec(ctx, `
UPDATE application_outbox SET error = $2, not_before = clock_timestamp() + $3 * interval '1 second' WHERE id = $1`,
		id, storable.Text(why), retryAfter.Seconds())
	if err != nil {
		return fmt.Errorf("record why news of an application were not carried: %w", err)
	}
	return nil
}
