package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/capacity"
)

// Gauges is how much there is of everything at one moment, the same whichever
// engine asks.
type Gauges struct {
	Waits        []WaitGauge
	Nodes        map[capacity.NodeState]int
	Leaks        map[string]int64 // by kind, since the agents of the fleet were started
	Orphaned     int64            // reservations that were released because no machine was there
	Gateways     map[bool]int     // by whether they were heard lately
	Machines     []MachineGauge
	Missions     int            // that run
	Applications map[string]int // by the type of their status
	Lattices     []LatticeGauge // that are observed
	Outbox       []OutboxGauge
	Listened     time.Duration // since an engine last proved that it can hear nodes
}

// WaitGauge is the open waits of one kind and code; those for capacity by pool.
type WaitGauge struct {
	Kind, Code, Pool string
	Open             int
	Oldest           time.Duration // since the first refusal of the oldest
	Unbounded        time.Duration // the same of those that nothing but an event ends; 0: there is none
	Spent            float64       // the largest part of its bound that one has waited; 1: all of it
	Unchecked        time.Duration // since the latest look at the one not looked at for longest; 0 where nobody looks
}

// MachineGauge is the room that runs of one backend hold.
type MachineGauge struct {
	Backend, State string
	Runs           int
	Machines       int
	Agents         int // machines of composed phases
}

// LatticeGauge is one lattice, as its observer last recorded it.
type LatticeGauge struct {
	Account, Lattice string
	Hosts            int
	Unchecked        time.Duration // since then
}

// OutboxGauge is what waits to be carried to Temporal or NATS.
type OutboxGauge struct {
	Channel string
	Rows    int
	Oldest  time.Duration
}

const (
	// waitGaugesSQL reads no more rows than there are waits.
	waitGaugesSQL = `
SELECT kind, code, pool, count(*),
       GREATEST(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8,
       COALESCE(GREATEST(extract(epoch FROM clock_timestamp() - min(since) FILTER (WHERE bound IS NULL)), 0), 0)::float8,
       COALESCE(GREATEST(max(extract(epoch FROM clock_timestamp() - since) / extract(epoch FROM bound - since)) FILTER (WHERE bound > since), 0), 0)::float8,
       COALESCE(GREATEST(extract(epoch FROM clock_timestamp() - min(checked_at)), 0), 0)::float8
FROM (SELECT 'capacity' AS kind, code, pool, since, bound, checked_at FROM capacity_waits
      UNION ALL SELECT kind, code, '', since, bound, NULL FROM open_waits) w
GROUP BY kind, code, pool ORDER BY kind, code, pool`

	nodeGaugesSQL = `
SELECT admin_state, extract(epoch FROM silence(n))::float8, leaks, orphaned FROM nodes n`

	gatewayGaugesSQL = `
SELECT heartbeat_at > clock_timestamp() - $1 * interval '1 second', count(*) FROM gateways GROUP BY 1`

	machineGaugesSQL = `
SELECT p.backend, CASE WHEN r.ended_at IS NULL THEN r.status ELSE 'ending' END AS state, count(*), sum(v.slots)::bigint,
       COALESCE(sum(v.slots) FILTER (WHERE p.agents <> '[]'), 0)::bigint
FROM reservations v JOIN topology_runs r ON r.id = v.run_id JOIN mission_phases p ON p.id = v.phase_id
WHERE v.released_at IS NULL GROUP BY 1, 2 ORDER BY 1, 2`

	applicationGaugesSQL = `SELECT status_type, count(*) FROM applications GROUP BY 1`

	latticeGaugesSQL = `
SELECT account, lattice, hosts, GREATEST(extract(epoch FROM clock_timestamp() - COALESCE(checked_at, taken_at)), 0)::float8
FROM lattices WHERE observer <> '' ORDER BY account, lattice`

	outboxGaugesSQL = `
SELECT channel, sum(rows)::bigint, max(age)::float8 FROM (
    SELECT 'signals' AS channel, count(*) AS rows, COALESCE(extract(epoch FROM clock_timestamp() - min(created_at)), 0) AS age FROM outbox
    UNION ALL SELECT c.channel, count(o.id), COALESCE(extract(epoch FROM clock_timestamp() - min(o.created_at)), 0)
    FROM (VALUES ('nats'), ('temporal')) AS c (channel) LEFT JOIN application_outbox o ON o.channel = c.channel GROUP BY 1) b
GROUP BY 1 ORDER BY 1`
)

// Gauges counts everything, in one round trip.
func (s *Store) Gauges(ctx context.Context) (Gauges, error) {
	g := Gauges{
		Nodes: map[capacity.NodeState]int{}, Leaks: map[string]int64{}, Gateways: map[bool]int{}, Applications: map[string]int{},
	}
	b := &pgx.Batch{}
	b.Queue(waitGaugesSQL).Query(collect(&g.Waits, scanWaitGauge))
	b.Queue(nodeGaugesSQL).Query(func(rows pgx.Rows) error { return s.countNodes(rows, &g) })
	b.Queue(gatewayGaugesSQL, s.rules.LostAfter.Seconds()).Query(countBy(g.Gateways))
	b.Queue(machineGaugesSQL).Query(collect(&g.Machines, pgx.RowToStructByPos[MachineGauge]))
	b.Queue(`SELECT count(*) FROM missions WHERE status = 'running'`).QueryRow(func(row pgx.Row) error { return row.Scan(&g.Missions) })
	b.Queue(applicationGaugesSQL).Query(countBy(g.Applications))
	b.Queue(latticeGaugesSQL).Query(collect(&g.Lattices, scanLatticeGauge))
	b.Queue(outboxGaugesSQL).Query(collect(&g.Outbox, scanOutboxGauge))
	b.Queue(`SELECT GREATEST(extract(epoch FROM clock_timestamp() - heard_at), 0)::float8 FROM listening`).QueryRow(func(row pgx.Row) error {
		var age float64
		err := row.Scan(&age)
		g.Listened = seconds(age)
		return err
	})
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return Gauges{}, fmt.Errorf("count what there is: %w", err)
	}
	return g, nil
}

func collect[T any](list *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*list, err = pgx.CollectRows(rows, scan)
		return err
	}
}

func countBy[K comparable](counts map[K]int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key K
		var n int
		_, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { counts[key] = n; return nil })
		return err
	}
}

func scanWaitGauge(row pgx.CollectableRow) (WaitGauge, error) {
	var w WaitGauge
	var oldest, unbounded, unchecked float64
	err := row.Scan(&w.Kind, &w.Code, &w.Pool, &w.Open, &oldest, &unbounded, &w.Spent, &unchecked)
	w.Oldest, w.Unbounded, w.Unchecked = seconds(oldest), seconds(unbounded), seconds(unchecked)
	return w, err
}

func scanLatticeGauge(row pgx.CollectableRow) (LatticeGauge, error) {
	var l LatticeGauge
	var age float64
	err := row.Scan(&l.Account, &l.Lattice, &l.Hosts, &age)
	l.Unchecked = seconds(age)
	return l, err
}

func scanOutboxGauge(row pgx.CollectableRow) (OutboxGauge, error) {
	var o OutboxGauge
	var age float64
	err := row.Scan(&o.Channel, &o.Rows, &age)
	o.Oldest = seconds(age)
	return o, err
}

// countNodes judges the nodes and adds up what their agents found.
func (s *Store) countNodes(rows pgx.Rows, g *Gauges) error {
	var (
		admin    capacity.NodeState
		silence  float64
		leaks    json.RawMessage
		orphaned int64
	)
	_, err := pgx.ForEachRow(rows, []any{&admin, &silence, &leaks, &orphaned}, func() error {
		g.Nodes[s.nodeState(admin, seconds(silence))]++
		g.Orphaned += orphaned
		counts := map[string]int64{}
		if err := json.Unmarshal(leaks, &counts); err != nil {
			return err
		}
		for kind, n := range counts {
			g.Leaks[kind] += n
		}
		return nil
	})
	return err
}

// Ping asks the database for an answer.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }
