package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// keepAlive records a heartbeat now and then until stop is called. Each carries
// what details returns.
func keepAlive(ctx context.Context, every time.Duration, details func() any) (stop func()) {
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
