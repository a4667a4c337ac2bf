package store

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/capacity"
)

// fleets remembers each pool's fleet between looks, so that a look reads only
// the nodes that changed. It is a cache of committed rows: losing it costs one
// full read.
type fleets struct {
	mu    sync.Mutex
	pools map[string]*fleet
}

// fleet is what one pool's nodes were at the last look.
type fleet struct {
	mu sync.Mutex
	// seen is the oldest transaction that was still open at the last look:
	// whatever an older one changed is in nodes already.
	seen  uint64
	nodes map[string]member
}

// member is a node as its row says, before silence is judged.
type member struct {
	capacity.Node
	admin  capacity.NodeState
	heard  time.Time
	before time.Duration // its silence when the listening before this one ended
	readAt time.Time     // the ends of its runs are counted from then
}

// teardown is how long after its turn, counted from its placement, a run still
// holds its node at the most: half a minute until the agent begins it, 20 s to
// destroy its machine, and a heartbeat that tells of it.
const teardown = time.Minute

func (f *fleets) of(pool string) *fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pools == nil {
		f.pools = map[string]*fleet{}
	}
	if f.pools[pool] == nil {
		f.pools[pool] = &fleet{nodes: map[string]member{}}
	}
	return f.pools[pool]
}

const (
	horizonSQL = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, clock_timestamp(), since, heard_at FROM listening`

	// fleetSQL reads the nodes that transaction $2 or a later one changed, with
	// their offer for one backend and what runs there. A node's backends and
	// reservations are written in transactions that change the node too.
	fleetSQL = `
SELECT n.id, n.admin_state, n.heartbeat_at, extract(epoch FROM n.silent_before)::float8, n.arch, n.labels,
       n.cpu_total, n.memory_total, n.disk_total, n.slots_total,
       n.cpu_reserved, n.memory_reserved, n.disk_reserved, n.slots_reserved,
       n.starting, n.start_limit, n.images,
       b.ok, COALESCE(b.why, ''), COALESCE(b.network, false), COALESCE(b.cpu_over, 0), COALESCE(b.memory_over, 0), COALESCE(b.disk_over, 0),
       r.cpu, r.memory, r.disk, r.slots, r.ends_by
FROM nodes n
LEFT JOIN LATERAL (SELECT * FROM node_backends WHERE node_id = n.id AND backend = $1 OFFSET 0) b ON true -- not of all nodes
LEFT JOIN LATERAL (
    SELECT array_agg(cpu) cpu, array_agg(memory) memory, array_agg(disk) disk, array_agg(slots) slots, array_agg(ends_by) ends_by
    FROM reservations WHERE node_id = n.id AND released_at IS NULL) r ON true
WHERE n.changed_by >= $2::text::xid8`
)

// queueFleet queues the statements that read a pool's fleet, and hands the
// whole of it to got, as it stands at now.
func (s *Store) queueFleet(b *pgx.Batch, pool string, now *time.Time, got func([]capacity.Node)) {
	f := s.fleets.of(pool)
	f.mu.Lock()
	seen := f.seen
	f.mu.Unlock()
	var horizon uint64
	var l listening
	b.Queue(horizonSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&horizon, now, &l.since, &l.heard) })
	b.Queue(fleetSQL, pool, strconv.FormatUint(seen, 10)).Query(func(rows pgx.Rows) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := f.read(rows, pool, *now); err != nil {
			return err
		}
		f.seen = max(f.seen, horizon)
		got(s.judged(f, l, *now))
		return nil
	})
}

func (f *fleet) read(rows pgx.Rows, pool string, now time.Time) error {
	defer rows.Close()
	for rows.Next() {
		m, err := scanMember(rows, pool, now)
		if err != nil {
			return err
		}
		if m.admin == capacity.Retired {
			delete(f.nodes, m.ID)
			continue
		}
		f.nodes[m.ID] = m
	}
	return rows.Err()
}

func scanMember(row pgx.Row, pool string, now time.Time) (member, error) {
	var (
		m        = member{readAt: now}
		reserved capacity.Resources
		before   float64
		ok       *bool
		offer    capacity.Offer

		cpu, memory, disk, slots []int64 // of what runs there
		endsBy                   []time.Time
	)
	err := row.Scan(&m.ID, &m.admin, &m.heard, &before, &m.Arch, &m.Labels,
		&m.Allocatable.CPUMilli, &m.Allocatable.MemoryMiB, &m.Allocatable.DiskMiB, &m.Allocatable.Slots,
		&reserved.CPUMilli, &reserved.MemoryMiB, &reserved.DiskMiB, &reserved.Slots,
		&m.Starting, &m.StartLimit, &m.Images,
		&ok, &offer.Why, &offer.Network, &offer.Overhead.CPUMilli, &offer.Overhead.MemoryMiB, &offer.Overhead.DiskMiB,
		&cpu, &memory, &disk, &slots, &endsBy)
	if err != nil {
		return m, err
	}
	m.Free, m.before = m.Allocatable.Sub(reserved), seconds(before)
	if ok != nil {
		offer.OK = *ok
		m.Backends = map[string]capacity.Offer{pool: offer}
	}
	if lightStart(pool) {
		m.StartLimit = 0
	}
	m.Runs = make([]capacity.Run, len(endsBy))
	for i := range endsBy {
		m.Runs[i] = capacity.Run{
			Holds:  capacity.Resources{CPUMilli: cpu[i], MemoryMiB: memory[i], DiskMiB: disk[i], Slots: slots[i]},
			EndsIn: endsBy[i].Add(teardown).Sub(now),
		}
	}
	return m, nil
}

// judged returns the fleet with each node's state as its silence makes it at now.
// Its nodes share their runs with the fleet: they are for reading only.
func (s *Store) judged(f *fleet, l listening, now time.Time) []capacity.Node {
	nodes := make([]capacity.Node, 0, len(f.nodes))
	for _, m := range f.nodes {
		n := m.Node
		n.State = s.nodeState(m.admin, l.silence(m.heard, m.before))
		n.RunsAge = now.Sub(m.readAt)
		nodes = append(nodes, n)
	}
	return nodes
}

// readFleet reads a pool's fleet in a transaction.
func (s *Store) readFleet(ctx context.Context, tx pgx.Tx, pool string) ([]capacity.Node, error) {
	var (
		now   time.Time
		nodes []capacity.Node
		b     pgx.Batch
	)
	s.queueFleet(&b, pool, &now, func(all []capacity.Node) { nodes = all })
	return nodes, exec(ctx, tx, &b)
}

// lightStart reports whether machines of a backend start in milliseconds, so
// that starting many at once is no burden and start slots are not counted.
func lightStart(backend string) bool { return backend == "process" }

// nodeState combines what a person decided with how long the agent is silent.
func (s *Store) nodeState(admin capacity.NodeState, silence time.Duration) capacity.NodeState {
	switch {
	case admin == capacity.Retired:
		return admin
	case silence >= s.rules.LostAfter:
		return capacity.Down
	case silence >= s.rules.SuspectAfter:
		return capacity.Suspect
	}
	return admin
}
