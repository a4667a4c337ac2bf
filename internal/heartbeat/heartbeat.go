// Package heartbeat keeps activities alive while they are busy elsewhere.
package heartbeat

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// Keep records a heartbeat of the activity of ctx now and then until stop is
// called: the server notices by their absence that the process is lost, and
// answers them with the activity's cancellation, after which they go on while it
// ends. Each carries what details returns, which another goroutine calls.
func Keep(ctx context.Context, every time.Duration, details func() any) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx, details())
			}
		}
	}()
	return func() { close(done) }
}

// Bare is for heartbeats that carry nothing.
func Bare() any { return nil }
