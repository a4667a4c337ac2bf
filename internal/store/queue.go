package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// queues remembers what never changes of each pool's waiting phases, so that a
// pass over a long queue reads only what does. It is a cache of committed rows:
// losing it costs one full read.
type queues struct {
	mu    sync.Mutex
	pools map[string]map[int64]*known
}

// known is what never changes of a phase in a queue.
type known struct {
	missionID      int64
	mission, phase string
	demand         capacity.Demand
	composed       bool // of several machines
	turn, maxWait  time.Duration
	priority       int // of its mission, as of the launch
}

// queued is one phase in the queue, with what the latest look wrote.
type queued struct {
	*known
	id      int64
	attempt int
	askedAt time.Time // for the first time
	rank    time.Time

	since, bound, checkedAt time.Time // zero: nobody looked yet
	code, note              string    // the note is known in the head window only
	attempts                int       // looks at it so far
	position, shownPosition int
	starts                  *ledger.Starts
	shownStart              time.Time // zero: none
}

// longest is how long a run of the phase holds its node at the most.
func (q queued) longest() time.Duration { return q.turn + teardown }

// get returns what is known of a pool's phases.
func (q *queues) get(pool string, id int64) *known {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pools[pool][id]
}

// put adds what was read, and forgets phases that are not in the queue any more
// once there are many of them.
func (q *queues) put(pool string, read map[int64]*known, queue []queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pools == nil {
		q.pools = map[string]map[int64]*known{}
	}
	all := q.pools[pool]
	if all == nil || len(all) > 2*len(queue)+1000 {
		all = make(map[int64]*known, len(queue))
		for _, phase := range queue {
			all[phase.id] = phase.known
		}
		q.pools[pool] = all
	}
	maps.Copy(all, read)
}

// fill sets what is known of each phase of the queue, and returns those that
// nothing is known of.
func (q *queues) fill(pool string, read map[int64]*known, queue []queued) (unknown []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.pools[pool]
	for i := range queue {
		phase := &queue[i]
		if phase.known = all[phase.id]; phase.known == nil {
			phase.known = read[phase.id]
		}
		if phase.known == nil {
			unknown = append(unknown, phase.id)
		}
	}
	return unknown
}

const (
	enqueueSQL = `
UPDATE mission_phases SET queued_at = COALESCE(queued_at, clock_timestamp())
WHERE id = ANY($1) AND status = 'pending' AND queued_at IS NULL
  AND retry_at IS NULL AND (held_since IS NULL OR released_at IS NOT NULL)`

	queueSQL = `
SELECT p.id, p.attempt, p.queued_at, w.since, w.bound, w.checked_at, COALESCE(w.code, ''),
       COALESCE(w.attempts, 0), COALESCE(w.position, 0), w.starts_by, CASE WHEN w.position <= $3 THEN COALESCE(p.capacity_note, '') ELSE '' END
FROM mission_phases p LEFT JOIN capacity_waits w ON w.phase_id = p.id
WHERE p.backend = $1 AND p.status = 'pending' AND p.queued_at IS NOT NULL
  AND (w.bound IS NULL OR w.bound > now() OR p.id = ANY($2))
ORDER BY p.queued_at, p.id`

	knownSQL = `
SELECT p.id, p.mission_id, m.name, p.name, m.priority, p.demand, p.agents <> '[]',
       extract(epoch FROM p.turn)::float8, extract(epoch FROM p.max_wait)::float8
FROM mission_phases p JOIN missions m ON m.id = p.mission_id WHERE p.id = ANY($1)`
)

func (p *pass) scanQueue(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var (
			q                                 queued
			since, bound, checked, shownStart pgtype.Timestamptz
		)
		if err := rows.Scan(&q.id, &q.attempt, &q.askedAt, &since, &bound, &checked, &q.code,
			&q.attempts, &q.shownPosition, &shownStart, &q.note); err != nil {
			return err
		}
		q.since, q.bound, q.checkedAt, q.shownStart = since.Time, bound.Time, checked.Time, shownStart.Time
		p.queue = append(p.queue, q)
	}
	return rows.Err()
}

// unknown returns those who ask of whom nothing is known yet.
func (p *pass) unknown() []int64 {
	var ids []int64
	for _, id := range slices.Sorted(maps.Keys(p.looks)) {
		if p.store.queues.get(p.pool, id) == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (p *pass) scanKnown(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var (
			id            int64
			k             known
			turn, maxWait float64
		)
		if err := rows.Scan(&id, &k.missionID, &k.mission, &k.phase, &k.priority, &k.demand, &k.composed, &turn, &maxWait); err != nil {
			return err
		}
		k.turn, k.maxWait = seconds(turn), seconds(maxWait)
		p.read[id] = &k
	}
	return rows.Err()
}

// completeQueue adds what is known of each phase, reading what is not, and puts
// the queue into its order.
func (p *pass) completeQueue(ctx context.Context, tx pgx.Tx) error {
	if unknown := p.store.queues.fill(p.pool, p.read, p.queue); len(unknown) > 0 {
		b := &pgx.Batch{}
		b.Queue(knownSQL, unknown).Query(p.scanKnown)
		if err := exec(ctx, tx, b); err != nil {
			return err
		}
		p.store.queues.fill(p.pool, p.read, p.queue)
		p.queue = slices.DeleteFunc(p.queue, func(q queued) bool { return q.known == nil }) // deleted meanwhile
	}
	p.store.queues.put(p.pool, p.read, p.queue)
	for i := range p.queue {
		q := &p.queue[i]
		q.rank = capacity.Rank(q.priority, q.askedAt, p.store.rules.Ageing)
	}
	slices.SortFunc(p.queue, func(a, b queued) int { return cmp.Or(a.rank.Compare(b.rank), cmp.Compare(a.id, b.id)) })
	return nil
}
