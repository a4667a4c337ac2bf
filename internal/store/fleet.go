package store

import (
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/capacity"
)

// fleetSQL reads every node that is not retired, with its offer for one backend.
const fleetSQL = `
SELECT n.id, n.admin_state, extract(epoch FROM now() - n.heartbeat_at)::float8, n.arch, n.labels,
       n.cpu_total, n.memory_total, n.disk_total, n.slots_total,
       n.cpu_reserved, n.memory_reserved, n.disk_reserved, n.slots_reserved,
       n.starting, n.start_limit,
       b.ok, COALESCE(b.why, ''), COALESCE(b.cpu_over, 0), COALESCE(b.memory_over, 0), COALESCE(b.disk_over, 0)
FROM nodes n LEFT JOIN node_backends b ON b.node_id = n.id AND b.backend = $1
WHERE n.admin_state <> 'retired'`

func (s *Store) scanFleet(rows pgx.Rows, pool string) ([]capacity.Node, error) {
	var fleet []capacity.Node
	defer rows.Close()
	for rows.Next() {
		var (
			n        capacity.Node
			admin    string
			silence  float64
			reserved capacity.Resources
			ok       *bool
			offer    capacity.Offer
		)
		err := rows.Scan(&n.ID, &admin, &silence, &n.Arch, &n.Labels,
			&n.Allocatable.CPUMilli, &n.Allocatable.MemoryMiB, &n.Allocatable.DiskMiB, &n.Allocatable.Slots,
			&reserved.CPUMilli, &reserved.MemoryMiB, &reserved.DiskMiB, &reserved.Slots,
			&n.Starting, &n.StartLimit,
			&ok, &offer.Why, &offer.Overhead.CPUMilli, &offer.Overhead.MemoryMiB, &offer.Overhead.DiskMiB)
		if err != nil {
			return nil, err
		}
		n.Free = n.Allocatable.Sub(reserved)
		n.State = s.nodeState(capacity.NodeState(admin), silence)
		if ok != nil {
			offer.OK = *ok
			n.Backends = map[string]capacity.Offer{pool: offer}
		}
		if lightStart(pool) {
			n.StartLimit = 0
		}
		fleet = append(fleet, n)
	}
	return fleet, rows.Err()
}

// lightStart reports whether machines of a backend start in milliseconds, so
// that starting many at once is no burden and start slots are not counted.
func lightStart(backend string) bool { return backend == "process" }

// nodeState combines what a person decided with how long the agent is silent.
// Silence is not held against a node for longer than this engine has listened:
// an engine that was away must not take its own absence for the node's.
func (s *Store) nodeState(admin capacity.NodeState, silenceSeconds float64) capacity.NodeState {
	silence := time.Duration(silenceSeconds * float64(time.Second))
	if admin == capacity.Retired {
		return admin
	}
	if silence > s.rules.LostAfter && time.Since(s.started) > s.rules.LostAfter {
		return capacity.Down
	}
	if silence > s.rules.SuspectAfter {
		return capacity.Suspect
	}
	return admin
}
