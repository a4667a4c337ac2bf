// Package engine is the engine role beside its workflows: the placer, the
// dispatcher of signals, the sweep, and what it serves over NATS.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"tidewait/internal/health"
	"tidewait/internal/ledger"
	"tidewait/internal/meter"
	"tidewait/internal/store"
)

// Between passes that nothing but retries ask for there is a pause, so that a
// thousand waiting phases cost a few passes each round and not a thousand: at
// least leastPause, and so long that passes take no more than one part in
// passShare of the time, as far as mostPause allows.
const (
	leastPause = 200 * time.Millisecond
	mostPause  = 3 * time.Second
	passShare  = 20
)

// flushEvery is the longest time between two passes over a pool in which a phase
// waits, whatever became of events and retries.
const flushEvery = 10 * time.Second

// Placer runs passes over the pools' queues. Everything that asks while a pass
// runs shares the next one. It is safe for concurrent use.
type Placer struct {
	Meter  *meter.Meter   // set before the first look; nil: nothing is counted
	Health *health.Health // the same; nil: nobody watches

	store *store.Store
	flush time.Duration // see flushEvery
	log   *slog.Logger
	// admitted is called after a commit that placed phases which did not ask.
	admitted func()

	mu    sync.Mutex
	pools map[string]*pool
	ctx   context.Context //nolint:containedctx // ends the pools' goroutines, which outlive any call
	wg    sync.WaitGroup
}

// NewPlacer returns a placer that works until ctx ends. It looks at a pool with
// waiting phases at least every retry, and every ten seconds. admitted is
// called, without blocking for long, whenever signals wait in the outbox.
func NewPlacer(ctx context.Context, s *store.Store, retry time.Duration, admitted func(), log *slog.Logger) *Placer {
	return &Placer{store: s, flush: min(retry, flushEvery), log: log, admitted: admitted, pools: map[string]*pool{}, ctx: ctx}
}

// Wait returns when every pass has ended after the placer's context did.
func (p *Placer) Wait() { p.wg.Wait() }

// pool is the queue of one backend.
type pool struct {
	mu     sync.Mutex
	asking []ask
	event  bool
	wake   chan struct{} // holds one token when there is work
	hurry  chan struct{} // holds one token when the work must not wait for company
	// Of the latest pass; of the pool's own goroutine.
	began   time.Time
	took    time.Duration
	waiting bool // somebody still waits
	more    bool // it left something to do
}

type ask struct {
	look  store.Look
	reply chan<- answer
}

type answer struct {
	outcome ledger.Outcome
	err     error
}

var errNoAnswer = errors.New("the placer did not look at the phase; it is tried again")

// Look asks for a look at one phase and returns what it found.
func (p *Placer) Look(ctx context.Context, poolName string, l store.Look) (ledger.Outcome, error) {
	reply := make(chan answer, 1)
	q := p.pool(poolName)
	q.mu.Lock()
	q.asking = append(q.asking, ask{l, reply})
	q.mu.Unlock()
	token(q.wake)
	if l.Wake != ledger.WakeTimer || l.Expire {
		token(q.hurry)
	}
	select {
	case a := <-reply:
		return a.outcome, a.err
	case <-ctx.Done():
		return ledger.Outcome{}, context.Cause(ctx)
	case <-p.ctx.Done():
		return ledger.Outcome{}, errNoAnswer
	}
}

// Wake runs a pass over every pool in which a phase waits, because capacity may
// have been freed. It returns at once.
func (p *Placer) Wake(ctx context.Context) {
	pools, err := p.store.WaitingPools(ctx)
	if err != nil {
		p.log.Warn("a capacity event was not looked at; the phases' own retries will", "error", err)
		return
	}
	for _, name := range pools {
		q := p.pool(name)
		q.mu.Lock()
		q.event = true
		q.mu.Unlock()
		token(q.wake)
		token(q.hurry)
	}
}

func (p *Placer) pool(name string) *pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.pools[name]
	if !ok {
		q = &pool{wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
		p.pools[name] = q
		p.wg.Go(func() { p.serve(name, q) })
	}
	return q
}

func (p *Placer) serve(name string, q *pool) {
	flush := time.NewTicker(p.flush)
	defer flush.Stop()
	loop := p.Health.Loop("placer of "+name, p.flush)
	defer loop.End()
	for {
		loop.Beat()
		select {
		case <-p.ctx.Done():
			return
		case <-flush.C:
			if q.waiting {
				p.pass(name, q)
				flush.Reset(p.untilFlush(q))
			}
		case <-q.wake:
			if !p.gather(q) {
				return
			}
			if p.isAsked(q) {
				p.pass(name, q)
				flush.Reset(p.untilFlush(q))
			}
		}
	}
}

// untilFlush is how long after a pass the next one comes at the latest. One that
// left something to do is followed soon, and not at once: others want to be
// served.
func (p *Placer) untilFlush(q *pool) time.Duration {
	if q.more {
		return min(leastPause, p.flush)
	}
	return p.flush
}

// gather waits until the next pass is due. Whoever is in a hurry is served at
// once; retries wait for company.
func (p *Placer) gather(q *pool) bool {
	least := min(max(q.took*passShare, leastPause), mostPause)
	if q.more {
		least = leastPause
	}
	pause := time.NewTimer(time.Until(q.began.Add(least)))
	defer pause.Stop()
	select {
	case <-p.ctx.Done():
		return false
	case <-q.hurry:
	case <-pause.C:
	}
	return true
}

// isAsked reports whether anybody asks; an earlier pass may have served them.
func (p *Placer) isAsked(q *pool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.asking) > 0 || q.event
}

func (p *Placer) pass(name string, q *pool) {
	q.mu.Lock()
	asking, event := q.asking, q.event
	q.asking, q.event = nil, false
	q.mu.Unlock()
	q.began = time.Now()
	wake := ledger.WakeTimer
	if event {
		wake = ledger.WakeEvent
	}
	looks := make([]store.Look, len(asking))
	for i, a := range asking {
		looks[i] = a.look
	}
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	res, err := p.store.Pass(ctx, name, looks, wake)
	q.took, q.waiting, q.more = time.Since(q.began), err != nil || res.Waiting > 0, res.More
	p.Meter.Passed(ctx, res, q.took, err)
	if err != nil {
		p.log.Warn("a pass over the queue failed", "pool", name, "asking", len(asking), "error", err)
	}
	if res.Signals > 0 {
		p.admitted()
	}
	for _, a := range asking {
		outcome, ok := res.Outcomes[a.look.PhaseID]
		if err == nil && !ok {
			a.reply <- answer{err: errNoAnswer}
			continue
		}
		a.reply <- answer{outcome, err}
	}
}

// token leaves a token in a channel that holds one.
func token(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
