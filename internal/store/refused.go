package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/release"
)

// refuseAgentSQL remembers a refusal. A row that nobody renewed for a day is of an
// agent that was stopped or given another name.
const refuseAgentSQL = `
WITH forgotten AS (DELETE FROM refused_agents WHERE heard_at < clock_timestamp() - interval '1 day' AND node_id <> $1)
INSERT INTO refused_agents AS r (node_id, version, protocol, code, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (node_id) DO UPDATE SET version = EXCLUDED.version, protocol = EXCLUDED.protocol, code = EXCLUDED.code,
    reason = EXCLUDED.reason, heard_at = clock_timestamp(),
    since = CASE WHEN r.reason = EXCLUDED.reason THEN r.since ELSE clock_timestamp() END
RETURNING since = heard_at OR xmax = 0`

// RefuseAgent records that the agent of a node was refused for its release, until a
// heartbeat of the node is taken. first says that it was not known before.
func (s *Store) RefuseAgent(ctx context.Context, node string, skew *release.Skew) (first bool, err error) {
	err = s.pool.QueryRow(ctx, refuseAgentSQL, node, skew.Asks.Version, skew.Asks.Protocol, skew.Code(), skew.Error()).Scan(&first)
	if err != nil {
		return false, fmt.Errorf("record that the agent of node %s was refused: %w", node, err)
	}
	return first, nil
}

// refusedNodes are the nodes whose agent was refused lately, by id. Of one that was
// never registered nothing else is known.
func (s *Store) refusedNodes(ctx context.Context) ([]api.Node, error) {
	rows, err := s.pool.Query(ctx, `
SELECT node_id, version, code, reason, since, heard_at FROM refused_agents
WHERE heard_at > clock_timestamp() - $1 * interval '1 second' ORDER BY node_id LIMIT $2`, s.rules.LostAfter.Seconds(), MaxList)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.Node, error) {
		n := api.Node{State: api.StateRefused, Backends: map[string]api.Backend{}}
		err := row.Scan(&n.ID, &n.Version, &n.StateCode, &n.StateReason, &n.StateSince, &n.Heartbeat)
		n.StateSince, n.Heartbeat, n.Registered = n.StateSince.UTC(), n.Heartbeat.UTC(), n.StateSince.UTC()
		return n, err
	})
}

// ListFleet is [Store.ListNodes] with those whose agent is refused.
func (s *Store) ListFleet(ctx context.Context, state string) (api.NodeList, error) {
	list, err := s.ListNodes(ctx, "")
	if err != nil {
		return list, err
	}
	refused, err := s.refusedNodes(ctx)
	if err != nil {
		return list, fmt.Errorf("list nodes: %w", err)
	}
	for _, r := range refused {
		i := slices.IndexFunc(list.Nodes, func(n api.Node) bool { return n.ID == r.ID })
		if i < 0 {
			list.Nodes = append(list.Nodes, r)
			continue
		}
		list.Nodes[i] = withRefusal(list.Nodes[i], r)
	}
	list.Nodes = slices.DeleteFunc(list.Nodes, func(n api.Node) bool { return state != "" && n.State != state })
	slices.SortStableFunc(list.Nodes, func(a, b api.Node) int {
		if last := isRetired(a) - isRetired(b); last != 0 {
			return last
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, nil
}

func isRetired(n api.Node) int {
	if n.State == "retired" {
		return 1
	}
	return 0
}

// ShowFleetNode is [Store.ShowNode], also of one whose agent is refused.
func (s *Store) ShowFleetNode(ctx context.Context, id string) (api.NodeDetail, error) {
	detail, unknown := s.ShowNode(ctx, id)
	refused, err := s.refusedNodes(ctx)
	if err != nil {
		return detail, fmt.Errorf("show node %s: %w", id, err)
	}
	i := slices.IndexFunc(refused, func(n api.Node) bool { return n.ID == id })
	switch {
	case i < 0:
		return detail, unknown
	case unknown != nil:
		return api.NodeDetail{Node: refused[i], Runs: []api.NodeRun{}}, nil
	}
	detail.Node = withRefusal(detail.Node, refused[i])
	return detail, nil
}

// withRefusal is a known node, with what is known of its present agent. What a person
// decided stays to be seen.
func withRefusal(n, r api.Node) api.Node {
	if n.State == "retired" {
		return n
	}
	if n.Decided == "" && n.StateActor != "" {
		n.Decided = n.State
	}
	n.State, n.StateCode, n.StateReason, n.StateSince, n.Version = r.State, r.StateCode, r.StateReason, r.StateSince, r.Version
	n.StateActor, n.Heartbeat = "", latest(n.Heartbeat, r.Heartbeat)
	return n
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
