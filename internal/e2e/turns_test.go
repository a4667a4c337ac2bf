package e2e

import (
	"flag"
	"sync"
	"testing"
	"time"
)

// Tests wait most of the time, for a lease to end or for the next heartbeat, so
// two cores carry several of them at once.
var (
	stackLimit = flag.Int("stacks", 5, "how many tests with a stack of their own run at once")
	stacks     turns
)

// parallel lets tests wait for their turns here instead of in package testing,
// which knows neither stacks nor which tests take long.
func parallel() error {
	flag.Parse()
	stacks.places = *stackLimit
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", "1000")
}

// took is how long tests take that say so, by name.
var took sync.Map

// long lets a test run beside others, and before those that take less time: what
// takes longest would else be what everybody waits for at last.
func long(t *testing.T, takes time.Duration) {
	t.Helper()
	took.Store(t.Name(), takes)
	t.Parallel()
}

// turns are places of which each is one test's at a time. Those that take
// longest come first.
type turns struct {
	mu      sync.Mutex
	places  int // that are free
	waiting []turn
}

type turn struct {
	takes time.Duration
	come  chan struct{}
}

// take waits for a place, and gives it to the next when the test has ended.
func (q *turns) take(t *testing.T) {
	t.Helper()
	mine := turn{come: make(chan struct{})}
	if takes, ok := took.Load(t.Name()); ok {
		mine.takes = takes.(time.Duration)
	}
	began := time.Now()
	q.mu.Lock()
	q.waiting = append(q.waiting, mine)
	q.next()
	q.mu.Unlock()
	<-mine.come
	came := time.Now()
	t.Cleanup(func() {
		t.Logf("waited %s for its turn, took %s", came.Sub(began).Round(time.Second), time.Since(came).Round(100*time.Millisecond))
		q.mu.Lock()
		defer q.mu.Unlock()
		q.places++
		q.next()
	})
}

// next gives free places to those who wait. The caller holds the lock.
func (q *turns) next() {
	for q.places > 0 && len(q.waiting) > 0 {
		first := 0
		for i, w := range q.waiting {
			if w.takes > q.waiting[first].takes {
				first = i
			}
		}
		close(q.waiting[first].come)
		q.waiting = append(q.waiting[:first], q.waiting[first+1:]...)
		q.places--
	}
}
