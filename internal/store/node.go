package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
)

// HeartbeatResult is what a heartbeat changed.
type HeartbeatResult struct {
	Reply api.HeartbeatReply
	// Changed says that the fleet may now run something it could not run before.
	Changed bool
}

const heartbeatSQL = `
INSERT INTO nodes AS n (id, arch, labels, version, boot_id, cpu_total, memory_total, disk_total, slots_total, start_limit, running, beat, images,
    adopted, given_up, leaks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $14, $15, $16, $17)
ON CONFLICT (id) DO UPDATE SET arch = EXCLUDED.arch, labels = EXCLUDED.labels, version = EXCLUDED.version,
    former_boots = CASE WHEN n.boot_id = EXCLUDED.boot_id THEN n.former_boots
                   ELSE (array_append(n.former_boots, n.boot_id))[GREATEST(cardinality(n.former_boots) - $13 + 2, 1):] END,
    boot_id = EXCLUDED.boot_id, beat = EXCLUDED.beat, silent_before = '0', start_limit = EXCLUDED.start_limit, running = EXCLUDED.running, images = EXCLUDED.images,
    adopted = EXCLUDED.adopted, given_up = EXCLUDED.given_up, leaks = EXCLUDED.leaks,
    -- A node that shrank keeps what is reserved until it is released.
    cpu_total = GREATEST(EXCLUDED.cpu_total, n.cpu_reserved), memory_total = GREATEST(EXCLUDED.memory_total, n.memory_reserved),
    disk_total = GREATEST(EXCLUDED.disk_total, n.disk_reserved), slots_total = GREATEST(EXCLUDED.slots_total, n.slots_reserved),
    heartbeat_at = clock_timestamp()
RETURNING admin_state, state_actor, state_reason, lease_epoch`

// formerBoots is how many earlier agent processes of a node are remembered.
const formerBoots = 32

const nodeBeforeSQL = `
SELECT boot_id, cpu_total, memory_total, disk_total, slots_total, extract(epoch FROM now() - heartbeat_at)::float8,
       beat, $2 = ANY(former_boots)
FROM nodes WHERE id = $1 FOR UPDATE`

const backendSQL = `
INSERT INTO node_backends (node_id, backend, ok, why, accel, kernel, isolation, enforced, network, cpu_over, memory_over, disk_over, boot_ms, starts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (node_id, backend) DO UPDATE SET ok = EXCLUDED.ok, why = EXCLUDED.why, accel = EXCLUDED.accel,
    kernel = EXCLUDED.kernel, isolation = EXCLUDED.isolation, enforced = EXCLUDED.enforced, network = EXCLUDED.network, cpu_over = EXCLUDED.cpu_over,
    memory_over = EXCLUDED.memory_over, disk_over = EXCLUDED.disk_over, boot_ms = EXCLUDED.boot_ms, starts = EXCLUDED.starts,
    probed_at = now()
WHERE (node_backends.ok, node_backends.why, node_backends.network, node_backends.memory_over, node_backends.starts)
    IS DISTINCT FROM (EXCLUDED.ok, EXCLUDED.why, EXCLUDED.network, EXCLUDED.memory_over, EXCLUDED.starts)`

// stepSQL writes the step each run is in; each machine that answers gives its
// start slot back.
const stepSQL = `
WITH told AS (
    SELECT * FROM unnest($2::text[], $3::text[], $4::boolean[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[])
        AS v (id, step, started, accel, kernel, isolation, start_kind, start_why, starting)
), stepped AS (
    UPDATE topology_runs r SET step = v.step, accel = v.accel, kernel = v.kernel, isolation = v.isolation,
        start_kind = v.start_kind, start_why = v.start_why,
        status = CASE WHEN v.started AND r.status = 'starting' THEN 'running' ELSE r.status END
    FROM told v WHERE r.id = v.id AND r.node_id = $1 AND r.status IN ('starting', 'running')
), begun AS (
    UPDATE reservations res SET starting = v.starting FROM told v, reservations old
    WHERE res.run_id = v.id AND res.released_at IS NULL AND res.starting > v.starting AND old.run_id = res.run_id
    RETURNING old.starting - v.starting AS slots
)
UPDATE nodes SET starting = starting - (SELECT COALESCE(sum(slots), 0) FROM begun) WHERE id = $1
  AND EXISTS (SELECT 1 FROM begun)`

// releaseEndedSQL frees what destroyed machines held. A run whose activity was
// lost keeps its node until its phase is queued again, so that nobody gets there
// before it.
const releaseEndedSQL = `
WITH freed AS (
    UPDATE reservations v SET released_at = clock_timestamp() FROM topology_runs r
    WHERE v.run_id = ANY($2) AND v.node_id = $1 AND v.released_at IS NULL AND r.id = v.run_id
      AND (r.suspected_at IS NULL OR r.ended_at IS NOT NULL)
    RETURNING v.*
), room AS (
    SELECT node_id, sum(cpu) cpu, sum(memory) memory, sum(disk) disk, sum(slots) slots, sum(starting) starting
    FROM freed GROUP BY node_id
)
UPDATE nodes n SET cpu_reserved = cpu_reserved - f.cpu, memory_reserved = memory_reserved - f.memory,
    disk_reserved = disk_reserved - f.disk, slots_reserved = slots_reserved - f.slots,
    starting = n.starting - f.starting, capacity_version = capacity_version + 1
FROM room f WHERE n.id = f.node_id`

// unwantedSQL finds machines that no open run wants, and those of open runs that
// have held nothing for $4 seconds: their room may be others' by now.
const unwantedSQL = `
SELECT v.id FROM unnest($2::text[], $3::text[]) AS v (id, step)
LEFT JOIN topology_runs r ON r.id = v.id AND r.node_id = $1
WHERE r.id IS NULL OR r.status NOT IN ('starting', 'running') OR v.step <> 'destroy' AND EXISTS (
    SELECT 1 FROM reservations WHERE run_id = v.id HAVING max(COALESCE(released_at, 'infinity')) < clock_timestamp() - $4 * interval '1 second')
ORDER BY v.id`

// Heartbeat records what an agent says: the node itself, its backends, the
// machines it has, and those it destroyed, whose reservations it releases. The
// reply names machines that no open run wants, and the node's epoch.
//
// A heartbeat that was overtaken by a later one of the same agent says what is no
// longer so: [ErrConflict]. That of an agent process whose place another one has
// taken changes nothing, and tells it to end.
func (s *Store) Heartbeat(ctx context.Context, h api.Heartbeat) (HeartbeatResult, error) {
	var res HeartbeatResult
	err := s.tx(ctx, func(tx pgx.Tx) error {
		res = HeartbeatResult{}
		before, err := readBefore(ctx, tx, h)
		if err != nil {
			return err
		}
		if before.replaced {
			res.Reply.End = fmt.Sprintf("another agent process speaks for node %s; stop one of the two, or give it a node.id of its own", h.Node)
			return nil
		}
		res.Changed = before.brings(h, s.rules.SuspectAfter) || len(h.Ended) > 0
		b := &pgx.Batch{}
		var actor, reason string
		b.Queue(heartbeatSQL, h.Node, h.Arch, nonNil(h.Labels), h.Version, h.BootID, h.Total.CPUMilli, h.Total.MemoryMiB,
			h.Total.DiskMiB, h.Total.Slots, h.StartLimit, runIDs(h.Runs), h.Number, formerBoots, nonNilSlice(h.Images),
			adoptedIDs(h.Runs), nonNil(h.GivenUp), h.Leaks).
			QueryRow(func(row pgx.Row) error {
				err := row.Scan(&res.Reply.State, &actor, &reason, &res.Reply.Epoch)
				if res.Reply.State == string(capacity.Retired) {
					res.Reply.End = retiredSentence(h.Node, actor, reason)
				}
				return err
			})
		for _, name := range slices.Sorted(maps.Keys(h.Backends)) {
			o := h.Backends[name]
			b.Queue(backendSQL, h.Node, name, o.OK, o.Why, o.Accel, o.Kernel, o.Isolation, o.Enforced, o.Network,
				o.Overhead.CPUMilli, o.Overhead.MemoryMiB, o.Overhead.DiskMiB, o.BootMs, o.Starts)
		}
		b.Queue(`DELETE FROM refused_agents WHERE node_id = $1`, h.Node)
		b.Queue(releaseEndedSQL, h.Node, nonNilSlice(h.Ended))
		queueSteps(b, h)
		b.Queue(unwantedSQL, h.Node, runIDs(h.Runs), steps(h.Runs), s.rules.LostAfter.Seconds()).Query(func(rows pgx.Rows) (err error) {
			res.Reply.Destroy, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		return exec(ctx, tx, b)
	})
	if err != nil {
		return HeartbeatResult{}, fmt.Errorf("record heartbeat of node %s: %w", h.Node, err)
	}
	return res, nil
}

// nodeBefore is a node as its last heartbeat left it.
type nodeBefore struct {
	known    bool
	boot     string
	total    capacity.Resources
	silence  time.Duration // by the clock, whoever listened
	replaced bool          // the agent that speaks now was followed by another one
}

func readBefore(ctx context.Context, tx pgx.Tx, h api.Heartbeat) (nodeBefore, error) {
	b := nodeBefore{known: true}
	var silence float64
	var beat int64
	err := tx.QueryRow(ctx, nodeBeforeSQL, h.Node, h.BootID).
		Scan(&b.boot, &b.total.CPUMilli, &b.total.MemoryMiB, &b.total.DiskMiB, &b.total.Slots, &silence, &beat, &b.replaced)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nodeBefore{}, nil
	case err != nil:
		return nodeBefore{}, err
	case b.boot == h.BootID && h.Number < beat:
		return nodeBefore{}, fmt.Errorf("heartbeat %d came after heartbeat %d: %w", h.Number, beat, ErrConflict)
	}
	b.silence = seconds(silence)
	return b, nil
}

// brings reports whether a heartbeat brings capacity: a new node, a new agent
// process, another size, or a node that was silent.
func (b nodeBefore) brings(h api.Heartbeat, suspectAfter time.Duration) bool {
	return !b.known || b.boot != h.BootID || b.total != h.Total || b.silence > suspectAfter
}

func retiredSentence(node, actor, reason string) string {
	sentence := "node " + node + " is retired"
	if actor != "" {
		sentence += " by " + actor
	}
	if reason != "" {
		sentence += ": " + reason
	}
	return sentence + fmt.Sprintf("; to use it again, `tidewait node retire %s --undo`, then start the agent", node)
}

func queueSteps(b *pgx.Batch, h api.Heartbeat) {
	if len(h.Runs) == 0 {
		return
	}
	var id, step, accel, kernel, isolation, startKind, startWhy []string
	var started []bool
	var starting []int64
	for _, r := range h.Runs {
		starting = append(starting, machinesStarting(r))
		id, step, started = append(id, r.ID), append(step, r.Step), append(started, r.Started)
		accel, kernel, isolation = append(accel, r.Accel), append(kernel, r.Kernel), append(isolation, r.Isolation)
		startKind, startWhy = append(startKind, string(r.Start.Kind)), append(startWhy, r.Start.Why)
	}
	b.Queue(stepSQL, h.Node, id, step, started, accel, kernel, isolation, startKind, startWhy, starting)
	queueAgentSteps(b, h)
}

func runIDs(runs []api.RunReport) []string {
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = r.ID
	}
	return ids
}

func steps(runs []api.RunReport) []string {
	all := make([]string, len(runs))
	for i, r := range runs {
		all[i] = r.Step
	}
	return all
}

// adoptedIDs are the runs that wait to be gone on with.
func adoptedIDs(runs []api.RunReport) []string {
	ids := []string{}
	for _, r := range runs {
		if r.Adopted {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func nonNilSlice(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// GatewayHeartbeat records that a gateway is alive.
func (s *Store) GatewayHeartbeat(ctx context.Context, h api.GatewayHeartbeat) (time.Time, error) {
	var now time.Time
	err := s.pool.QueryRow(ctx, `
INSERT INTO gateways (id, version) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, heartbeat_at = clock_timestamp()
RETURNING heartbeat_at`, h.Gateway, h.Version).Scan(&now)
	if err != nil {
		return time.Time{}, fmt.Errorf("record heartbeat of gateway %s: %w", h.Gateway, err)
	}
	return now.UTC(), nil
}

// NodeChange is a person's decision about a node.
type NodeChange struct {
	Node, Actor, Reason string
	To                  capacity.NodeState // ready, cordoned, draining, retired
	Deadline            time.Duration      // of a drain; 0: none
}

// allowedFrom lists, for each state a person can ask for, the states it can be
// asked in.
var allowedFrom = map[capacity.NodeState][]string{
	capacity.Ready:    {"ready", "cordoned", "draining", "drained"},
	capacity.Cordoned: {"ready", "cordoned"},
	capacity.Draining: {"ready", "cordoned", "draining", "drained"},
	capacity.Retired:  {"ready", "cordoned", "draining", "drained", "retired"},
}

// ChangeNode carries out a person's decision. A node that holds anything cannot
// be retired: ErrConflict. A draining node that holds nothing is drained at once.
func (s *Store) ChangeNode(ctx context.Context, c NodeChange) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		state, held, err := lockNode(ctx, tx, c.Node)
		if err != nil {
			return err
		}
		if !slices.Contains(allowedFrom[c.To], state) {
			return fmt.Errorf("node %s is %s: %w", c.Node, state, ErrConflict)
		}
		if c.To == capacity.Retired && held != "" {
			return fmt.Errorf("node %s still holds %s; drain it first: %w", c.Node, held, ErrConflict)
		}
		if c.To == capacity.Draining && held == "" {
			c.To = capacity.Drained
		}
		return changeNode(ctx, tx, state, c)
	})
	if err != nil {
		return fmt.Errorf("set node to %s: %w", c.To, err)
	}
	return nil
}

// ReinstateNode makes a retired node ready again. Its agent, if it runs, has
// ended and has to be started. The error is [ErrConflict] for a node that is not
// retired.
func (s *Store) ReinstateNode(ctx context.Context, c NodeChange) error {
	c.To = capacity.Ready
	err := s.tx(ctx, func(tx pgx.Tx) error {
		state, _, err := lockNode(ctx, tx, c.Node)
		if err != nil {
			return err
		}
		if state != string(capacity.Retired) {
			return fmt.Errorf("node %s is %s, not retired: %w", c.Node, state, ErrConflict)
		}
		return changeNode(ctx, tx, state, c)
	})
	if err != nil {
		return fmt.Errorf("bring node %s back: %w", c.Node, err)
	}
	return nil
}

// lockNode holds a node's row for the rest of the transaction. It returns what a
// person decided about it, and in words what it holds; empty: nothing.
func lockNode(ctx context.Context, tx pgx.Tx, id string) (state, held string, err error) {
	var machines, uploads int64
	err = tx.QueryRow(ctx, `
SELECT n.admin_state, n.slots_reserved, `+uploadsSQL+` FROM nodes n WHERE n.id = $1 FOR UPDATE`, id).Scan(&state, &machines, &uploads)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", fmt.Errorf("node %s: %w", id, ErrNotFound)
	}
	if machines > 0 {
		held = fmt.Sprintf("%d machine(s)", machines)
	}
	if uploads > 0 {
		if held != "" {
			held += " and "
		}
		held += fmt.Sprintf("the results of %d run(s) that are not committed yet", uploads)
	}
	return state, held, err
}

// uploadsSQL counts the runs of node n whose machine is gone and whose results
// are not a commit yet.
const uploadsSQL = `
(SELECT count(*) FROM topology_runs r WHERE r.node_id = n.id AND r.ended_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM reservations v WHERE v.run_id = r.id AND v.released_at IS NULL))`

// changeNode moves a node on from the state that a person had decided on before.
func changeNode(ctx context.Context, tx pgx.Tx, from string, c NodeChange) error {
	if err := recordNodeAct(ctx, tx, from, c); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
UPDATE nodes SET admin_state = $2, state_reason = $3, state_actor = $4, capacity_version = capacity_version + 1,
    state_since = CASE WHEN admin_state = $2 THEN state_since ELSE now() END,
    drain_deadline = CASE WHEN $2 = 'draining' AND $5::float8 > 0 THEN now() + $5 * interval '1 second' END
WHERE id = $1`, c.Node, string(c.To), c.Reason, c.Actor, c.Deadline.Seconds())
	return err
}

// MismatchedNode is a node whose counters differ from its reservations.
type MismatchedNode struct {
	Node              string
	Counted, Reserved capacity.Resources
}

// Audit compares each node's counters with the sum of its open reservations.
// The counters are a cache of the reservations: any difference is a fault.
func (s *Store) Audit(ctx context.Context) ([]MismatchedNode, error) {
	rows, err := s.pool.Query(ctx, `
SELECT n.id, n.cpu_reserved, n.memory_reserved, n.disk_reserved, n.slots_reserved,
       COALESCE(sum(r.cpu), 0)::bigint, COALESCE(sum(r.memory), 0)::bigint, COALESCE(sum(r.disk), 0)::bigint, COALESCE(sum(r.slots), 0)::bigint
FROM nodes n LEFT JOIN reservations r ON r.node_id = n.id AND r.released_at IS NULL
GROUP BY n.id
HAVING (n.cpu_reserved, n.memory_reserved, n.disk_reserved, n.slots_reserved) IS DISTINCT FROM
       (COALESCE(sum(r.cpu), 0), COALESCE(sum(r.memory), 0), COALESCE(sum(r.disk), 0), COALESCE(sum(r.slots), 0))
ORDER BY n.id`)
	if err != nil {
		return nil, fmt.Errorf("audit reservations: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (MismatchedNode, error) {
		var m MismatchedNode
		err := row.Scan(&m.Node, &m.Counted.CPUMilli, &m.Counted.MemoryMiB, &m.Counted.DiskMiB, &m.Counted.Slots,
			&m.Reserved.CPUMilli, &m.Reserved.MemoryMiB, &m.Reserved.DiskMiB, &m.Reserved.Slots)
		return m, err
	})
}
