// Package health says whether a process is alive, which is that its loops come
// round, and whether it is ready, which is that what it needs answers and what it
// serves is served.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Health knows the loops and the checks of one process. A nil *Health knows none.
// It is safe for concurrent use.
type Health struct {
	stuckAfter time.Duration

	mu     sync.Mutex
	loops  map[*Loop]bool
	checks []check
	parts  map[*Health]bool
}

// New returns the health of a process whose loops count as stuck when they have
// not come round for that much longer than their period.
func New(stuckAfter time.Duration) *Health {
	return &Health{stuckAfter: stuckAfter, loops: map[*Loop]bool{}, parts: map[*Health]bool{}}
}

// Part is the health of one part of the process, such as a role, which is part of
// its own until Withdraw.
func (h *Health) Part() *Health {
	part := New(h.stuckAfter)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts[part] = true
	return part
}

// Withdraw says that a part has ended, as it was to: its loops and checks do not
// matter any more.
func (h *Health) Withdraw(part *Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.parts, part)
}

// all is the health itself and its parts.
func (h *Health) all() []*Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []*Health{h}
	for part := range h.parts {
		all = append(all, part.all()...)
	}
	return all
}

// Loop is something that is to come round again and again. A nil *Loop is one
// that nobody watches.
type Loop struct {
	health *Health
	name   string
	every  time.Duration
	begun  time.Time    // its clock, which goes on while the machine's is set
	last   atomic.Int64 // when it last came round: nanoseconds after begun
}

// Loop watches a loop from now on, until it ends. Its turn takes every at the most
// when nothing is wrong.
func (h *Health) Loop(name string, every time.Duration) *Loop {
	if h == nil {
		return nil
	}
	l := &Loop{health: h, name: name, every: every, begun: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loops[l] = true
	return l
}

// Beat says that the loop has come round.
func (l *Loop) Beat() {
	if l != nil {
		l.last.Store(int64(time.Since(l.begun)))
	}
}

// End says that the loop has ended, as it was to.
func (l *Loop) End() {
	if l == nil {
		return
	}
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	delete(l.health.loops, l)
}

func (l *Loop) age() time.Duration { return time.Since(l.begun) - time.Duration(l.last.Load()) }

// Age is how long ago a loop last came round.
type Age struct {
	Loop string
	Age  time.Duration
}

// Ages lists the loops by name.
func (h *Health) Ages() []Age {
	if h == nil {
		return nil
	}
	var ages []Age
	for _, l := range h.watched() {
		ages = append(ages, Age{l.name, l.age()})
	}
	return ages
}

func (h *Health) watched() []*Loop {
	var loops []*Loop
	for _, part := range h.all() {
		part.mu.Lock()
		for l := range part.loops {
			loops = append(loops, l)
		}
		part.mu.Unlock()
	}
	slices.SortFunc(loops, func(a, b *Loop) int { return cmp.Compare(a.name, b.name) })
	return loops
}

// Live reports which loops come round.
func (h *Health) Live() Report {
	r := Report{OK: true, Checks: []Result{}}
	for _, l := range h.watched() {
		res := Result{Name: l.name, OK: true}
		if age := l.age(); age > l.every+h.stuckAfter {
			res.OK = false
			res.Error = fmt.Sprintf("it has not come round for %s; it should every %s", age.Round(time.Second), l.every)
		}
		r.add(res)
	}
	return r
}
