package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
)

// expireLaunchesSQL removes launches that ended long ago, with everything that is
// of them alone. The row of the mission stays: it has the document, and the number
// of the latest launch, which no later one may have again.
//
// A launch stays that another was begun from, for as long as that one is there:
// where a rerun of its first phase starts is written with it. So does one whose
// machines still hold a node.
const expireLaunchesSQL = `
WITH old AS (
    SELECT l.mission_id, l.launch FROM mission_launches l JOIN missions m ON m.id = l.mission_id
    WHERE l.ended_at < clock_timestamp() - $1 * interval '1 second' AND NOT (m.status = 'running' AND m.launch = l.launch)
      AND NOT EXISTS (SELECT 1 FROM mission_launches r WHERE r.mission_id = l.mission_id AND r.rerun_of = l.launch)
      AND NOT EXISTS (SELECT 1 FROM mission_phases p LEFT JOIN reservations v ON v.phase_id = p.id AND v.released_at IS NULL
                      WHERE p.mission_id = l.mission_id AND p.launch = l.launch AND (p.ended_at IS NULL OR v.id IS NOT NULL))
    ORDER BY l.ended_at LIMIT $2 FOR UPDATE OF l SKIP LOCKED),
phases AS (DELETE FROM mission_phases p USING old WHERE p.mission_id = old.mission_id AND p.launch = old.launch),
done AS (DELETE FROM acts a USING old WHERE a.mission_id = old.mission_id AND a.launch = old.launch AND a.phase_id IS NULL)
DELETE FROM mission_launches l USING old WHERE l.mission_id = old.mission_id AND l.launch = old.launch`

// ExpireLaunches removes at most limit launches that ended longer than keep ago,
// with their phases, runs and waits, and returns how many it removed. Several
// engines may do so at once.
func (s *Store) ExpireLaunches(ctx context.Context, keep time.Duration, limit int) (int, error) {
	return s.expire(ctx, "launches", expireLaunchesSQL, keep, limit)
}

// ExpireWaits removes at most limit waits that ended longer than keep ago. Those
// of missions that run stay.
func (s *Store) ExpireWaits(ctx context.Context, keep time.Duration, limit int) (int, error) {
	return s.expire(ctx, "waits", `
DELETE FROM wait_history WHERE id IN (
    SELECT h.id FROM wait_history h LEFT JOIN missions m ON m.id = h.mission_id
    WHERE h.ended_at < clock_timestamp() - $1 * interval '1 second' AND m.status IS DISTINCT FROM 'running'
    ORDER BY h.ended_at LIMIT $2 FOR UPDATE OF h SKIP LOCKED)`, keep, limit)
}

// ExpireActs does so with what people did by hand.
func (s *Store) ExpireActs(ctx context.Context, keep time.Duration, limit int) (int, error) {
	return s.expire(ctx, "acts", `
DELETE FROM acts WHERE id IN (
    SELECT a.id FROM acts a LEFT JOIN missions m ON m.id = a.mission_id
    WHERE a.at < clock_timestamp() - $1 * interval '1 second' AND m.status IS DISTINCT FROM 'running'
    ORDER BY a.at LIMIT $2 FOR UPDATE OF a SKIP LOCKED)`, keep, limit)
}

func (s *Store) expire(ctx context.Context, what, sql string, keep time.Duration, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sql, keep.Seconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("remove %s that ended more than %s ago: %w", what, keep, err)
	}
	return int(tag.RowsAffected()), nil
}

// LaunchesNeeded returns those of the given launches whose checkout is needed:
// they run, or what runs was begun from them.
func (s *Store) LaunchesNeeded(ctx context.Context, launches []api.LaunchRef) ([]api.LaunchRef, error) {
	names, numbers := make([]string, len(launches)), make([]int32, len(launches))
	for i, l := range launches {
		names[i], numbers[i] = l.Mission, int32(l.Launch) //nolint:gosec // launches are numbered from 1
	}
	rows, err := s.pool.Query(ctx, `
SELECT a.name, a.launch FROM unnest($1::text[], $2::integer[]) AS a (name, launch)
WHERE EXISTS (SELECT 1 FROM missions m JOIN mission_launches l ON l.mission_id = m.id
              WHERE m.name = a.name AND l.status = 'running' AND (l.launch = a.launch OR l.rerun_of = a.launch))`, names, numbers)
	if err != nil {
		return nil, fmt.Errorf("look for launches that are needed: %w", err)
	}
	needed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[api.LaunchRef])
	if err != nil {
		return nil, fmt.Errorf("look for launches that are needed: %w", err)
	}
	return needed, nil
}
