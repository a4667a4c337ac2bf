package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/health"
	"tidewait/internal/store"
)

// Listening proves again and again that this engine can hear nodes: that NATS
// answers it, and that it can write to the database. The silence of nodes counts
// only while some engine does so.
type Listening struct {
	Store *store.Store
	NATS  *nats.Conn
	Every time.Duration
	Log   *slog.Logger
	Loop  *health.Loop // nil: nobody watches
}

// Run does so until ctx ends.
func (l Listening) Run(ctx context.Context) {
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	failing := false
	for {
		err := l.once(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			l.Log.Warn("nodes cannot be heard; their silence does not count meanwhile", "error", err)
		}
		failing = err != nil
		l.Loop.Beat()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// listenTime bounds one proof.
const listenTime = 5 * time.Second

func (l Listening) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	if err := l.NATS.FlushWithContext(ctx); err != nil {
		return err
	}
	res, err := l.Store.Listen(ctx)
	if err == nil && res.Gap > 0 {
		l.Log.Info("nobody could hear nodes for a while; all get a fresh grace", "for", res.Gap.Round(time.Millisecond))
	}
	return err
}
