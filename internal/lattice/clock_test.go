package lattice_test

import (
	"sync"
	"time"
)

// clock is a clock that stands still until a test moves it.
type clock struct {
	mu     sync.Mutex
	time   time.Time
	timers []timer
	ticks  chan time.Time
}

type timer struct {
	at   time.Time
	ring chan time.Time
}

func newClock() *clock { return &clock{time: start, ticks: make(chan time.Time)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := timer{c.time.Add(d), make(chan time.Time, 1)}
	c.timers = append(c.timers, t)
	return t.ring
}

// waits reports whether somebody waits for a time from now.
func (c *clock) waits(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if t.at.Equal(c.time.Add(d)) {
			return true
		}
	}
	return false
}

// pass moves the clock and rings what is due. Nobody looks at leases for that.
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
	var rest []timer
	for _, t := range c.timers {
		if t.at.After(c.time) {
			rest = append(rest, t)
		} else {
			t.ring <- c.time
		}
	}
	c.timers = rest
}

// tick moves the clock and has the observer look at leases.
func (c *clock) tick(d time.Duration) {
	c.pass(d)
	select {
	case c.ticks <- c.Now():
	case <-time.After(20 * time.Second):
		panic("the observer does not look at leases any more")
	}
}
