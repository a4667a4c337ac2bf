package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// WaitEnd is a wait that is over, as the history has it.
type WaitEnd struct {
	Kind, Code string
	EndedBy    string // placed, answered, …
	WokenBy    string // what caused the look that ended it; empty: no look did
	Lasted     time.Duration
}

// returningEnd is the end of every statement that moves waits into the history.
const returningEnd = ` RETURNING kind, code, ended_by, woken_by, extract(epoch FROM ended_at - since)::float8`

// endings are those statements.
var endings = map[string]bool{
	endWaitsSQL: true, endOpenWaitsSQL: true, replacedWaitSQL: true, endSettledWaitSQL: true, endSecretsWaitSQL: true, endPauseSQL: true, lookedAtSQL: true,
}

// OnWaitEnd has f called for every wait that this process ends, after the commit.
// It is to be called before the store is used; f must not block.
func (s *Store) OnWaitEnd(f func(context.Context, WaitEnd)) { s.waitEnded = f }

// noting is a transaction that notes which waits its batches end.
type noting struct {
	pgx.Tx
	ends []WaitEnd
}

// SendBatch implements pgx.Tx.
func (n *noting) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if endings[q.SQL] {
			q.Query(n.note)
		}
	}
	return n.Tx.SendBatch(ctx, b)
}

func (n *noting) note(rows pgx.Rows) error {
	var (
		e      WaitEnd
		lasted float64
	)
	_, err := pgx.ForEachRow(rows, []any{&e.Kind, &e.Code, &e.EndedBy, &e.WokenBy, &lasted}, func() error {
		e.Lasted = seconds(lasted)
		n.ends = append(n.ends, e)
		return nil
	})
	return err
}

// tell hands on what a transaction ended that was committed.
func (s *Store) tell(ctx context.Context, n *noting) {
	if s.waitEnded == nil {
		return
	}
	for _, e := range n.ends {
		s.waitEnded(ctx, e)
	}
}
