package provision

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Pauses between tries to make what a server lacks that is just back.
const (
	againFirst = 250 * time.Millisecond
	againMost  = 30 * time.Second
	againTime  = 10 * time.Second // of one try
)

// AfterReconnect calls provide whenever the connection is back, and again until it
// succeeds, until ctx ends: a server may come back without its data, and whoever stores
// something would fail until somebody makes its streams.
func AfterReconnect(ctx context.Context, nc *nats.Conn, log *slog.Logger, provide func(context.Context) error) {
	back := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(back)
	for {
		select {
		case <-back:
		case <-ctx.Done():
			return
		}
		for pause := againFirst; ; pause = min(2*pause, againMost) {
			err := try(ctx, provide)
			if err == nil || ctx.Err() != nil {
				break
			}
			log.Warn("streams and buckets cannot be looked at after NATS was away; it is tried again", "again_in", pause, "error", err)
			if !wait(ctx, pause) {
				return
			}
		}
	}
}

func try(ctx context.Context, provide func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, againTime)
	defer cancel()
	return provide(ctx)
}

func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
