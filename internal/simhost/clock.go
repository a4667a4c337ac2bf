package simhost

import (
	"slices"
	"sync"
	"time"
)

// Clock is the time that hosts live by. Both methods are safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now at the earliest.
	AfterFunc(d time.Duration, f func())
}

// wallClock is the machine's time.
type wallClock struct{}

func (wallClock) Now() time.Time                      { return time.Now() }
func (wallClock) AfterFunc(d time.Duration, f func()) { time.AfterFunc(d, f) }

// ManualClock is time that passes only when it is told to.
type ManualClock struct {
	mu    sync.Mutex
	now   time.Time
	calls []scheduled
}

type scheduled struct {
	at time.Time
	f  func()
}

// NewManualClock returns a clock that shows now.
func NewManualClock(now time.Time) *ManualClock { return &ManualClock{now: now} }

// Now implements [Clock].
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements [Clock].
func (c *ManualClock) AfterFunc(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.now.Add(d)
	place, _ := slices.BinarySearchFunc(c.calls, at, func(s scheduled, at time.Time) int {
		if s.at.After(at) {
			return 1
		}
		return -1 // behind those of the same moment
	})
	c.calls = slices.Insert(c.calls, place, scheduled{at, f})
}

// Advance lets d pass and makes the calls that fall due, in order, each at its
// own moment. It returns when the last has returned.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for len(c.calls) > 0 && !c.calls[0].at.After(end) {
		due := c.calls[0]
		c.calls = slices.Delete(c.calls, 0, 1)
		if due.at.After(c.now) {
			c.now = due.at
		}
		c.mu.Unlock()
		due.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}
