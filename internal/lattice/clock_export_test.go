package lattice

import "time"

// SetClock gives an observer another clock. Call it before Run.
func (o *Observer) SetClock(now func() time.Time, after func(time.Duration) <-chan time.Time, ticks <-chan time.Time) {
	o.now, o.after, o.ticks = now, after, ticks
}
