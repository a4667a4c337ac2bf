package store

import (
	"cmp"
	"context"
	"encoding/json"
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
	joins                   bool      // its row does not say yet that it is in the queue
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
	// mayQueue is of phases p that may be in the queue, or are.
	mayQueue = `p.status = 'pending' AND (p.queued_at IS NOT NULL OR p.retry_at IS NULL AND (p.held_since IS NULL OR p.released_at IS NOT NULL))`

	// joins is of phases p that are not in the queue of pool $2 yet and may be. Those
	// that ask are not put into it before they are looked at: one that is placed at
	// once is written once.
	joins = `p.backend = $2 AND p.queued_at IS NULL AND ` + mayQueue

	joiningSQL = `SELECT p.id, p.attempt FROM mission_phases p WHERE p.id = ANY($1) AND ` + joins

	// enqueueSQL puts those into the queue that ask for the first time and are
	// neither placed nor refused for capacity.
	enqueueSQL = `
UPDATE mission_phases p SET queued_at = COALESCE(queued_at, $2) WHERE p.id = ANY($1) AND ` + mayQueue

	queueSQL = `
SELECT p.id, p.attempt, p.queued_at, w.since, w.bound, w.checked_at, COALESCE(w.code, ''),
       COALESCE(w.attempts, 0), COALESCE(w.position, 0), w.starts_by, CASE WHEN w.position <= $3 THEN COALESCE(p.capacity_note, '') ELSE '' END
FROM mission_phases p LEFT JOIN capacity_waits w ON w.phase_id = p.id
WHERE p.backend = $1 AND p.status = 'pending' AND p.queued_at IS NOT NULL
  AND (w.bound IS NULL OR w.bound > now() OR p.id = ANY($2))
ORDER BY p.queued_at, p.id`

	knownSQL = `
SELECT p.id, p.mission_id, m.name, p.name, m.priority, p.demand, p.agents <> '[]', p.turn, p.max_wait, p.attempt, ` + joins + `
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

// partAsking parts those who ask into those of whom something is known already, and the
// others.
func (p *pass) partAsking() (known, unknown []int64) {
	for _, id := range p.asking {
		if p.store.queues.get(p.pool, id) == nil {
			unknown = append(unknown, id)
		} else {
			known = append(known, id)
		}
	}
	return known, unknown
}

func (p *pass) scanJoining(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		q := queued{joins: true}
		if err := rows.Scan(&q.id, &q.attempt); err != nil {
			return err
		}
		p.joining = append(p.joining, q)
	}
	return rows.Err()
}

// join adds to the queue who is not in it yet, and returns those that ask and are
// not in it all the same.
func (p *pass) join() (absent []int64) {
	present := make(map[int64]bool, len(p.looks))
	for _, q := range p.queue {
		if _, asks := p.looks[q.id]; asks {
			present[q.id] = true
		}
	}
	for _, q := range p.joining {
		if !present[q.id] {
			present[q.id] = true
			q.askedAt = p.now
			p.queue = append(p.queue, q)
		}
	}
	for _, id := range p.asking {
		if !present[id] {
			absent = append(absent, id)
		}
	}
	return absent
}

func (p *pass) scanKnown(rows pgx.Rows) error {
	defer rows.Close()
	demands := map[string]capacity.Demand{} // by their text, of which there are few
	for rows.Next() {
		var (
			q      queued
			k      known
			demand []byte
		)
		if err := rows.Scan(&q.id, &k.missionID, &k.mission, &k.phase, &k.priority, &demand, &k.composed, &k.turn, &k.maxWait,
			&q.attempt, &q.joins); err != nil {
			return err
		}
		d, ok := demands[string(demand)]
		if !ok {
			if err := json.Unmarshal(demand, &d); err != nil {
				return err
			}
			demands[string(demand)] = d
		}
		k.demand = d
		p.read[q.id] = &k
		if _, asks := p.looks[q.id]; asks && q.joins {
			p.joining = append(p.joining, q)
		}
	}
	return rows.Err()
}

// completeQueue adds what is known of each phase, reading what is not, and puts
// the queue into its order. Those that ask and are not in it are answered for what
// became of them.
func (p *pass) completeQueue(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	if absent := p.join(); len(absent) > 0 {
		b.Queue(settledSQL, absent).Query(p.scanSettled)
		b.Queue(pausesSQL, absent).Query(p.scanPauses)
	}
	unknown := p.store.queues.fill(p.pool, p.read, p.queue)
	if len(unknown) > 0 {
		b.Queue(knownSQL, unknown, p.pool).Query(p.scanKnown)
	}
	if err := exec(ctx, tx, b); err != nil {
		return err
	}
	if len(unknown) > 0 {
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
