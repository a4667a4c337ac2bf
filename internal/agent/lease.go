package agent

import (
	"context"
	"sync"
	"time"

	"tidewait/internal/boot"
)

// lease is the node's right to have machines. It lasts for a fixed time after the
// moment at which the latest heartbeat that was acknowledged was sent: the engine
// counts the node's silence from a later moment, and for longer. At its end the
// fence is called at once, whatever else the agent is busy with.
//
// Its moments are of the boot clock. It is safe for concurrent use.
type lease struct {
	length time.Duration
	timer  *boot.Alarm
	fence  func()
	// renewed are told each new end, in order, before anybody learns that the
	// lease is held.
	renewed []func(until time.Duration)

	renewing sync.Mutex // one renewal at a time; taken before mu

	mu    sync.Mutex
	until time.Duration // zero: it has never been held
	over  bool          // it ended, and was not renewed since
	held  chan struct{} // closed while it is held
}

// newLease returns a lease that is not held yet.
func newLease(length time.Duration, fence func(), renewed ...func(until time.Duration)) (*lease, error) {
	timer, err := boot.NewAlarm()
	if err != nil {
		return nil, err
	}
	return &lease{length: length, timer: timer, fence: fence, renewed: renewed, held: make(chan struct{})}, nil
}

// watch calls the fence at each end of the lease, until ctx ends.
func (l *lease) watch(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = l.timer.Close() })
	defer stop()
	for l.timer.Wait() == nil {
		if l.end() {
			l.fence()
		}
	}
}

// end notes that the lease has ended, unless it was renewed in that moment.
func (l *lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.until == 0 || boot.Now() < l.until {
		return false
	}
	l.over, l.held = true, make(chan struct{})
	return true
}

// renew extends the lease after a heartbeat that was sent then was acknowledged.
// It reports whether the node holds it: not when the answer came too late. Those
// who are told may take their time: an end that comes meanwhile stays one.
func (l *lease) renew(sent time.Duration) bool {
	until := sent + l.length
	l.renewing.Lock()
	defer l.renewing.Unlock()
	extends, wasOver := l.look(until)
	if extends {
		for _, tell := range l.renewed {
			tell(until)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !extends || l.over != wasOver || !l.extends(until) {
		return !l.over && l.until > boot.Now()
	}
	l.timer.Set(until)
	if l.over || l.until == 0 {
		close(l.held)
	}
	l.until, l.over = until, false
	return true
}

// look reports whether the lease can be extended, and whether it is over now.
func (l *lease) look(until time.Duration) (extends, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.extends(until), l.over
}

// extends reports whether the lease can be extended: not when its end has come and
// the fence has not, which comes first. lease.mu must be held.
func (l *lease) extends(until time.Duration) bool {
	now := boot.Now()
	pending := l.until != 0 && !l.over && l.until <= now
	return until > max(l.until, now) && !pending
}

// ended reports whether the lease has ended and was not renewed since.
func (l *lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over || l.until != 0 && l.until <= boot.Now()
}

// await returns when the lease is held, or when ctx has ended.
func (l *lease) await(ctx context.Context) error {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
