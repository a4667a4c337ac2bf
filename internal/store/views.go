package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// MaxList bounds every list.
const MaxList = 500

const missionSQL = `
SELECT m.id, m.name, m.status, m.launch, COALESCE(m.document #>> '{spec,backend}', ''),
       jsonb_array_length(m.document #> '{spec,phases}'),
       (SELECT count(*) FROM mission_phases p WHERE p.mission_id = m.id AND p.launch = m.launch AND p.status = 'succeeded'),
       COALESCE((SELECT p.name FROM mission_phases p WHERE p.mission_id = m.id AND p.launch = m.launch AND m.status = 'running'
                 AND (p.status = 'running' OR p.status = 'pending' AND COALESCE(p.queued_at, p.held_since, p.retry_at) IS NOT NULL) ORDER BY ordinal LIMIT 1), ''),
       m.failure_code, m.failure, m.actor, m.created_at, m.started_at, m.ended_at,
       COALESCE(m.gateway_id, ''), m.branch, m.base_commit, COALESCE(m.target_node_id, ''), m.document
FROM missions m`

func scanMission(row pgx.CollectableRow) (missionRow, error) {
	var r missionRow
	m := &r.Mission
	err := row.Scan(&r.id, &m.Name, &m.Status, &m.Launch, &m.Backend, &m.Phases, &m.PhasesDone, &m.Current,
		&m.FailureCode, &m.Failure, &m.Actor, &m.CreatedAt, &m.StartedAt, &m.EndedAt,
		&r.Gateway, &r.Branch, &r.BaseCommit, &r.TargetNode, &r.Document)
	m.CreatedAt, m.StartedAt, m.EndedAt = m.CreatedAt.UTC(), utc(m.StartedAt), utc(m.EndedAt)
	r.WorkflowID = api.MissionWorkflowID(m.Name)
	return r, err
}

type missionRow struct {
	api.MissionDetail
	id     int64
	latest int // launch
}

// ListMissions lists missions, newest first, with the wait of each one that waits.
// retry is how often a waiting phase is looked at.
func (s *Store) ListMissions(ctx context.Context, status string, limit int, retry time.Duration) ([]api.Mission, error) {
	if limit <= 0 || limit > MaxList {
		limit = MaxList
	}
	rows, err := s.pool.Query(ctx, missionSQL+` WHERE $1 = '' OR m.status = $1 ORDER BY m.id DESC LIMIT $2`, status, limit)
	if err != nil {
		return nil, fmt.Errorf("list missions: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanMission)
	if err != nil {
		return nil, fmt.Errorf("list missions: %w", err)
	}
	ids := make([]int64, len(found))
	for i, f := range found {
		ids[i] = f.id
	}
	waits, err := s.missionWaits(ctx, missionFilter{missions: ids}, retry)
	if err != nil {
		return nil, fmt.Errorf("list missions: %w", err)
	}
	byMission := map[string]*api.Wait{}
	for i := range waits {
		byMission[waits[i].Mission] = &waits[i]
	}
	list := make([]api.Mission, len(found))
	for i, f := range found {
		list[i] = f.Mission
		list[i].Wait = byMission[f.Name]
	}
	return list, nil
}

// ShowMission reads one launch of a mission; launch 0 is the latest. retry is
// how often a waiting phase is looked at.
func (s *Store) ShowMission(ctx context.Context, name string, launch int, retry time.Duration) (api.MissionDetail, error) {
	rows, err := s.pool.Query(ctx, missionSQL+` WHERE m.name = $1`, name)
	if err != nil {
		return api.MissionDetail{}, fmt.Errorf("show mission %s: %w", name, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanMission)
	if errors.Is(err, pgx.ErrNoRows) {
		return api.MissionDetail{}, fmt.Errorf("mission %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return api.MissionDetail{}, fmt.Errorf("show mission %s: %w", name, err)
	}
	if launch == 0 {
		launch = r.Launch
	}
	r.latest, r.Launch = r.Launch, launch
	if err := s.readLaunched(ctx, &r, launch); err != nil {
		return api.MissionDetail{}, fmt.Errorf("show mission %s: %w", name, err)
	}
	if err := s.readPhases(ctx, &r, launch, retry); err != nil {
		return api.MissionDetail{}, fmt.Errorf("show mission %s: %w", name, err)
	}
	return r.MissionDetail, nil
}

// readLaunched reads what the row of a mission has of its latest launch only.
func (s *Store) readLaunched(ctx context.Context, r *missionRow, launch int) error {
	var of *int
	if launch == r.latest {
		err := s.pool.QueryRow(ctx, `SELECT rerun_of FROM mission_launches WHERE mission_id = $1 AND launch = $2`, r.id, launch).Scan(&of)
		if of != nil {
			r.RerunOf = *of
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // never launched, or kept no longer
		}
		return err
	}
	var started time.Time
	err := s.pool.QueryRow(ctx, `
SELECT document, actor, COALESCE(gateway_id, ''), branch, base_commit, rerun_of, status, failure_code, failure, started_at, ended_at
FROM mission_launches WHERE mission_id = $1 AND launch = $2`, r.id, launch).
		Scan(&r.Document, &r.Actor, &r.Gateway, &r.Branch, &r.BaseCommit, &of, &r.Status, &r.FailureCode, &r.Failure, &started, &r.EndedAt)
	if errors.Is(err, pgx.ErrNoRows) && launch > 0 && launch < r.latest {
		return fmt.Errorf("launch %d has expired: %w", launch, ErrNotFound)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("launch %d: %w", launch, ErrNotFound)
	}
	if of != nil {
		r.RerunOf = *of
	}
	started = started.UTC()
	r.StartedAt, r.EndedAt, r.TargetNode, r.Current = &started, utc(r.EndedAt), "", ""
	return err
}

func (s *Store) readPhases(ctx context.Context, r *missionRow, launch int, retry time.Duration) error {
	rows, err := s.pool.Query(ctx, `
SELECT id, name, ordinal, status, attempt, commit_sha, failure_code, failure, started_at, ended_at,
       COALESCE(taken_from, 0), partial_branch, partial_commit
FROM mission_phases WHERE mission_id = $1 AND launch = $2 ORDER BY ordinal`, r.id, launch)
	if err != nil {
		return err
	}
	index := map[int64]int{}
	r.PhaseList, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.Phase, error) {
		var p api.Phase
		var id int64
		var partial api.Partial
		err := row.Scan(&id, &p.Name, &p.Ordinal, &p.Status, &p.Attempt, &p.Commit, &p.FailureCode, &p.Failure, &p.StartedAt, &p.EndedAt,
			&p.TakenFrom, &partial.Branch, &partial.Commit)
		if partial.Commit != "" {
			p.Partial = &partial
		}
		p.StartedAt, p.EndedAt = utc(p.StartedAt), utc(p.EndedAt)
		p.WorkflowID = api.PhaseWorkflowID(r.Name, p.Name)
		index[id] = len(index)
		return p, err
	})
	if err != nil {
		return err
	}
	if err := s.readRuns(ctx, r, launch, index); err != nil {
		return err
	}
	if err := s.readRunAgents(ctx, r, launch); err != nil {
		return err
	}
	if err := s.readPastWaits(ctx, r, launch, index); err != nil {
		return err
	}
	if err := s.readActs(ctx, r, launch, index); err != nil {
		return err
	}
	waits, err := s.missionWaits(ctx, missionFilter{missions: []int64{r.id}}, retry)
	if err != nil {
		return err
	}
	for i, w := range waits {
		for j := range r.PhaseList {
			if launch == r.latest && r.PhaseList[j].Name == w.Phase {
				r.PhaseList[j].Wait = &waits[i]
			}
		}
		if launch == r.latest {
			r.Wait = &waits[i]
		}
	}
	return nil
}

func (s *Store) readRuns(ctx context.Context, r *missionRow, launch int, index map[int64]int) error {
	rows, err := s.pool.Query(ctx, `
SELECT t.phase_id, t.id, t.attempt, t.node_id, t.status,
       CASE WHEN t.ended_at IS NULL AND v.released_at IS NOT NULL THEN 'commit' ELSE t.step END, t.accel, t.kernel, t.isolation, t.start_kind, t.start_why, t.image, t.exit_code, t.signal, t.out_of_memory,
       t.failure_code, t.failure, t.started_at, t.ended_at, v.released_at, v.ends_by
FROM topology_runs t JOIN mission_phases p ON p.id = t.phase_id LEFT JOIN reservations v ON v.run_id = t.id
WHERE p.mission_id = $1 AND p.launch = $2 ORDER BY t.phase_id, t.attempt`, r.id, launch)
	if err != nil {
		return err
	}
	var id int64
	var run api.Run
	columns := []any{
		&id, &run.ID, &run.Attempt, &run.Node, &run.Status, &run.Step, &run.Accel, &run.Kernel, &run.Isolation, &run.Start.Kind, &run.Start.Why, &run.Image,
		&run.ExitCode, &run.Signal, &run.OutOfMemory, &run.FailureCode, &run.Failure, &run.StartedAt, &run.EndedAt, &run.FreedAt, &run.EndsBy,
	}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		p := &r.PhaseList[index[id]]
		run.StartedAt, run.EndedAt, run.FreedAt, run.EndsBy = run.StartedAt.UTC(), utc(run.EndedAt), utc(run.FreedAt), utc(run.EndsBy)
		p.Runs = append(p.Runs, run)
		p.Node = run.Node
		if p.Status == "running" {
			p.Step = run.Step
		}
		run = api.Run{}
		return nil
	})
	return err
}

func (s *Store) readPastWaits(ctx context.Context, r *missionRow, launch int, index map[int64]int) error {
	rows, err := s.pool.Query(ctx, `
SELECT h.phase_id, h.kind, h.code, h.reason, h.since, h.ended_at, h.ended_by, h.woken_by, h.actor, h.note
FROM wait_history h JOIN mission_phases p ON p.id = h.phase_id
WHERE p.mission_id = $1 AND p.launch = $2 ORDER BY h.id`, r.id, launch)
	if err != nil {
		return err
	}
	var id int64
	var w api.PastWait
	_, err = pgx.ForEachRow(rows, []any{&id, &w.Kind, &w.Code, &w.Reason, &w.Since, &w.Ended, &w.EndedBy, &w.WokenBy, &w.Actor, &w.Note}, func() error {
		w.Since, w.Ended = w.Since.UTC(), w.Ended.UTC()
		p := &r.PhaseList[index[id]]
		p.Waits = append(p.Waits, w)
		return nil
	})
	return err
}

// waitsSQL finds what is the same for all that wait in a pool once: who is in
// front, and where a turn ends first.
const waitsSQL = `
WITH pools AS (
    SELECT pool,
           ARRAY(SELECT am.name || '/' || ap.name FROM capacity_waits a JOIN mission_phases ap ON ap.id = a.phase_id
                 JOIN missions am ON am.id = ap.mission_id
                 WHERE a.pool = w.pool AND a.position > 0 ORDER BY a.position LIMIT 5) AS front,
           f.ends_by, f.node_id
    FROM (SELECT DISTINCT pool FROM capacity_waits) w
    LEFT JOIN LATERAL (
        SELECT r.ends_by, r.node_id FROM reservations r JOIN node_backends b ON b.node_id = r.node_id AND b.backend = w.pool AND b.ok
        WHERE r.released_at IS NULL ORDER BY r.ends_by LIMIT 1) f ON true
)
SELECT m.name, p.name, w.pool, w.code, COALESCE(p.capacity_note, ''), w.since, w.bound, w.checked_at, w.tries, w.attempts,
       w.position, w.refusal, p.demand,
       COALESCE(o.cpu_over, 0), COALESCE(o.memory_over, 0), COALESCE(o.disk_over, 0),
       l.front, l.ends_by, COALESCE(l.node_id, ''), w.starts_by, w.starts_on, w.starts_held
FROM capacity_waits w JOIN mission_phases p ON p.id = w.phase_id JOIN missions m ON m.id = p.mission_id
JOIN pools l ON l.pool = w.pool
LEFT JOIN node_backends o ON o.node_id = w.refusal ->> 'bestNode' AND o.backend = w.pool
WHERE ($1 = '' OR 'capacity' = $1) AND ($2 = '' OR w.code = $2) AND ($3 = '' OR m.name = $3) AND ($4 = '' OR p.name = $4)
  AND ($5 = '' OR w.starts_on = $5 OR EXISTS (
       SELECT FROM jsonb_path_query(w.refusal, '$.nodes[*] ? (@.node == $id && !(@.never == true))', jsonb_build_object('id', $5::text))))
  AND w.since <= clock_timestamp() - $6 * interval '1 millisecond' AND ($8::bigint[] IS NULL OR m.id = ANY($8))
ORDER BY w.since, w.phase_id LIMIT $7`

// ListWaits lists the waits that a request leaves, oldest first, at most [MaxList]
// of missions and as many of applications. retry is how often a waiting phase is
// looked at; it gives the latest moment of the next look.
func (s *Store) ListWaits(ctx context.Context, req api.WaitRequest, retry time.Duration) (api.WaitList, error) {
	var list api.WaitList
	err := checkText("the filter", req.Kind+req.Code+req.Mission+req.Phase+req.Account+req.Lattice+req.Application+req.Node)
	if err == nil {
		list, err = s.listWaits(ctx, req, retry)
	}
	if err != nil {
		return api.WaitList{}, fmt.Errorf("list waits: %w", err)
	}
	return list, nil
}

func (s *Store) listWaits(ctx context.Context, req api.WaitRequest, retry time.Duration) (list api.WaitList, err error) {
	if list.Now, err = s.Now(ctx); err != nil {
		return list, err
	}
	list.Waits = []api.Wait{}
	if req.OfMissions() {
		missions, err := s.missionWaits(ctx, missionFilter{WaitRequest: req, limit: &mostWaits}, retry)
		if err != nil {
			return list, err
		}
		list.Waits, list.More = oldest(missions)
	}
	if req.OfApplications() {
		applications, err := s.applicationWaits(ctx, req)
		if err != nil {
			return list, err
		}
		applications, more := oldest(applications)
		list.Waits, list.More = append(list.Waits, applications...), list.More || more
	}
	slices.SortStableFunc(list.Waits, func(a, b api.Wait) int { return a.Since.Compare(b.Since) })
	return list, nil
}

// oldest bounds a list, and reports whether that left something out.
func oldest(waits []api.Wait) (list []api.Wait, more bool) {
	return waits[:min(len(waits), MaxList)], len(waits) > MaxList
}

// mostWaits are read of a list: one more than are listed shows that there are more.
var mostWaits = MaxList + 1

// missionFilter leaves waits of missions.
type missionFilter struct {
	api.WaitRequest
	missions []int64 // nil: of all
	limit    *int    // of the oldest; nil: all of them
}

// args are the filter's in the order of the statements' parameters.
func (f missionFilter) args() []any {
	return []any{f.Kind, f.Code, f.Mission, f.Phase, f.Node, f.OlderThan, f.limit, f.missions}
}

// missionWaits lists the waits of missions and their phases, oldest first.
func (s *Store) missionWaits(ctx context.Context, filter missionFilter, retry time.Duration) ([]api.Wait, error) {
	rows, err := s.pool.Query(ctx, waitsSQL, filter.args()...)
	if err != nil {
		return nil, err
	}
	waits, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.Wait, error) { return scanWait(row, retry) })
	if err != nil {
		return nil, err
	}
	others, err := s.openMissionWaits(ctx, filter)
	if err != nil {
		return nil, err
	}
	waits = append(waits, others...)
	slices.SortStableFunc(waits, func(a, b api.Wait) int { return a.Since.Compare(b.Since) })
	return waits, nil
}

// openMissionWaits lists the waits of missions that are not for capacity.
func (s *Store) openMissionWaits(ctx context.Context, filter missionFilter) ([]api.Wait, error) {
	rows, err := s.pool.Query(ctx, `
SELECT w.workflow_id, m.name, COALESCE(p.name, ''), w.kind, w.code, w.reason, w.since, w.bound, w.checked_at, w.next_check, w.attempts,
       COALESCE(r.node_id, ''), CASE w.kind WHEN 'gateway' THEN COALESCE(m.gateway_id, '') ELSE '' END
FROM open_waits w JOIN missions m ON m.id = w.mission_id LEFT JOIN mission_phases p ON p.id = w.phase_id
LEFT JOIN LATERAL (SELECT node_id FROM topology_runs WHERE phase_id = p.id AND ended_at IS NULL ORDER BY attempt DESC LIMIT 1) r ON true
WHERE ($1 = '' OR w.kind = $1) AND ($2 = '' OR w.code = $2) AND ($3 = '' OR m.name = $3) AND ($4 = '' OR p.name = $4)
  AND ($5 = '' OR r.node_id = $5) AND w.since <= clock_timestamp() - $6 * interval '1 millisecond'
  AND ($8::bigint[] IS NULL OR m.id = ANY($8))
ORDER BY w.since, w.workflow_id LIMIT $7`, filter.args()...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.Wait, error) {
		var w api.Wait
		err := row.Scan(&w.WorkflowID, &w.Mission, &w.Phase, &w.Kind, &w.Code, &w.Reason, &w.Since, &w.Bound, &w.CheckedAt, &w.NextCheck, &w.Attempts, &w.Node, &w.Gateway)
		w.Since, w.Bound, w.CheckedAt, w.NextCheck = w.Since.UTC(), utc(w.Bound), utc(w.CheckedAt), utc(w.NextCheck)
		return w, err
	})
}

func (s *Store) applicationWaits(ctx context.Context, req api.WaitRequest) ([]api.Wait, error) {
	rows, err := s.pool.Query(ctx, `
SELECT w.workflow_id, a.account, a.lattice, a.name, w.kind, w.code, w.reason, w.since, w.bound, w.checked_at, w.next_check, w.attempts
FROM open_waits w JOIN applications a ON a.id = w.application_id
WHERE ($1 = '' OR w.kind = $1) AND ($2 = '' OR w.code = $2) AND ($3 = '' OR a.lattice = $3) AND ($4 = '' OR a.name = $4)
  AND ($5 = '' OR a.account = $5) AND w.since <= clock_timestamp() - $6 * interval '1 millisecond'
ORDER BY w.since, w.workflow_id LIMIT $7`, req.Kind, req.Code, req.Lattice, req.Application, req.Account, req.OlderThan, mostWaits)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.Wait, error) {
		var w api.Wait
		err := row.Scan(&w.WorkflowID, &w.Account, &w.Lattice, &w.Application, &w.Kind, &w.Code, &w.Reason, &w.Since, &w.Bound, &w.CheckedAt, &w.NextCheck, &w.Attempts)
		w.Since, w.Bound, w.CheckedAt, w.NextCheck = w.Since.UTC(), utc(w.Bound), utc(w.CheckedAt), utc(w.NextCheck)
		return w, err
	})
}

func scanWait(row pgx.CollectableRow, retry time.Duration) (api.Wait, error) {
	var (
		w       = api.Wait{Kind: "capacity"}
		bound   time.Time
		checked time.Time
		tries   map[ledger.Wake]int
		refusal capacity.CapacityRefusal
		demand  capacity.Demand
		over    capacity.Resources
	)
	err := row.Scan(&w.Mission, &w.Phase, &w.Pool, &w.Code, &w.Reason, &w.Since, &bound, &checked, &tries, &w.Attempts,
		&w.Position, &refusal, &demand, &over.CPUMilli, &over.MemoryMiB, &over.DiskMiB, &w.Ahead, &w.FreesAt, &w.FreesNode, &w.StartsBy, &w.StartsOn, &w.StartsHeld)
	if err != nil {
		return w, err
	}
	bound, checked = bound.UTC(), checked.UTC()
	next := checked.Add(retry)
	w.WorkflowID = api.PhaseWorkflowID(w.Mission, w.Phase)
	w.Since, w.Bound, w.CheckedAt, w.NextCheck = w.Since.UTC(), &bound, &checked, &next
	w.FreesAt, w.StartsBy = utc(w.FreesAt), utc(w.StartsBy)
	w.Ahead = w.Ahead[:min(len(w.Ahead), max(w.Position-1, 0))]
	need := demand.Resources.Add(over.Times(demand.Resources.Slots))
	w.Need, w.ShortBy, w.BestNode = &need, &refusal.ShortBy, refusal.BestNode
	w.Counts, w.Nodes = &refusal.Counts, refusal.Nodes
	w.WokenBy = map[string]int{}
	for wake, n := range tries {
		w.WokenBy[string(wake)] = n
	}
	return w, nil
}

const nodesSQL = `
SELECT n.id, n.admin_state, n.state_reason, n.state_actor, n.state_since, n.drain_deadline, n.arch, n.labels,
       n.cpu_total, n.memory_total, n.disk_total, n.slots_total, n.cpu_reserved, n.memory_reserved, n.disk_reserved, n.slots_reserved,
       n.starting, n.start_limit, n.images, n.version, n.heartbeat_at, n.registered_at, n.lease_epoch, n.leaks, n.orphaned, ` + uploadsSQL + `,
       extract(epoch FROM silence(n))::float8, extract(epoch FROM clock_timestamp() - n.heartbeat_at)::float8, n.lost_at,
       COALESCE((SELECT jsonb_object_agg(b.backend, jsonb_build_object('ok', b.ok, 'why', b.why, 'accel', b.accel, 'kernel', b.kernel,
           'isolation', b.isolation, 'enforced', b.enforced, 'network', b.network, 'bootMs', b.boot_ms, 'starts', b.starts,
           'overhead', jsonb_build_object('cpuMilli', b.cpu_over, 'memoryMiB', b.memory_over, 'diskMiB', b.disk_over, 'slots', 0)))
         FROM node_backends b WHERE b.node_id = n.id), '{}')
FROM nodes n`

// ListNodes lists the fleet by id, retired nodes last.
func (s *Store) ListNodes(ctx context.Context, state string) (api.NodeList, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return api.NodeList{}, fmt.Errorf("list nodes: %w", err)
	}
	rows, err := s.pool.Query(ctx, nodesSQL+` ORDER BY n.admin_state = 'retired', n.id LIMIT $1`, MaxList)
	if err != nil {
		return api.NodeList{}, fmt.Errorf("list nodes: %w", err)
	}
	all, err := pgx.CollectRows(rows, s.scanNode)
	if err != nil {
		return api.NodeList{}, fmt.Errorf("list nodes: %w", err)
	}
	list := api.NodeList{Now: now, Nodes: []api.Node{}}
	for _, n := range all {
		if state == "" || n.State == state {
			list.Nodes = append(list.Nodes, n)
		}
	}
	return list, nil
}

func (s *Store) scanNode(row pgx.CollectableRow) (api.Node, error) {
	var (
		n               api.Node
		silence, unseen float64
		lost            *time.Time
		backends        json.RawMessage
	)
	err := row.Scan(&n.ID, &n.State, &n.StateReason, &n.StateActor, &n.StateSince, &n.Deadline, &n.Arch, &n.Labels,
		&n.Total.CPUMilli, &n.Total.MemoryMiB, &n.Total.DiskMiB, &n.Total.Slots,
		&n.Reserved.CPUMilli, &n.Reserved.MemoryMiB, &n.Reserved.DiskMiB, &n.Reserved.Slots,
		&n.Starting, &n.StartLimit, &n.Images, &n.Version, &n.Heartbeat, &n.Registered, &n.Epoch, &n.Leaks, &n.Orphaned, &n.Uploads, &silence, &unseen, &lost, &backends)
	if err != nil {
		return n, err
	}
	if judged := s.nodeState(capacity.NodeState(n.State), seconds(silence)); string(judged) != n.State {
		s.silent(&n, judged, seconds(unseen), lost)
	}
	n.StateSince, n.Deadline = n.StateSince.UTC(), utc(n.Deadline)
	n.Heartbeat, n.Registered = n.Heartbeat.UTC(), n.Registered.UTC()
	return n, json.Unmarshal(backends, &n.Backends)
}

// silent makes a node's silence its state, and keeps in words what a person
// decided about it.
func (s *Store) silent(n *api.Node, to capacity.NodeState, unseen time.Duration, lost *time.Time) {
	reason := fmt.Sprintf("no heartbeat for %s", unseen.Round(time.Second))
	if n.State == string(capacity.Ready) {
		n.StateActor = ""
	} else {
		n.Decided = n.State
		reason += "; it was " + n.State
		if n.StateReason != "" {
			reason += ": " + n.StateReason
		}
	}
	n.State, n.StateReason, n.StateSince = string(to), reason, n.Heartbeat.Add(s.rules.SuspectAfter)
	if to == capacity.Down {
		n.StateSince = n.Heartbeat.Add(s.rules.LostAfter)
		if lost != nil && lost.After(n.Heartbeat) {
			n.StateSince = *lost
		}
	}
}

// ShowNode reads one node and the runs that hold it.
func (s *Store) ShowNode(ctx context.Context, id string) (api.NodeDetail, error) {
	rows, err := s.pool.Query(ctx, nodesSQL+` WHERE n.id = $1`, id)
	if err != nil {
		return api.NodeDetail{}, fmt.Errorf("show node %s: %w", id, err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, s.scanNode)
	if errors.Is(err, pgx.ErrNoRows) {
		return api.NodeDetail{}, fmt.Errorf("node %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return api.NodeDetail{}, fmt.Errorf("show node %s: %w", id, err)
	}
	rows, err = s.pool.Query(ctx, `
SELECT t.id, m.name, p.name, t.status, t.step, r.cpu, r.memory, r.disk, r.slots, t.started_at, r.ends_by
FROM reservations r JOIN topology_runs t ON t.id = r.run_id JOIN mission_phases p ON p.id = r.phase_id
JOIN missions m ON m.id = p.mission_id WHERE r.node_id = $1 AND r.released_at IS NULL ORDER BY r.id`, id)
	if err != nil {
		return api.NodeDetail{}, fmt.Errorf("show node %s: %w", id, err)
	}
	runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.NodeRun, error) {
		var r api.NodeRun
		err := row.Scan(&r.ID, &r.Mission, &r.Phase, &r.Status, &r.Step, &r.Reserved.CPUMilli, &r.Reserved.MemoryMiB,
			&r.Reserved.DiskMiB, &r.Reserved.Slots, &r.Since, &r.EndsBy)
		r.Since, r.EndsBy = r.Since.UTC(), r.EndsBy.UTC()
		return r, err
	})
	if err != nil {
		return api.NodeDetail{}, fmt.Errorf("show node %s: %w", id, err)
	}
	acts, err := s.nodeActs(ctx, id)
	if err != nil {
		return api.NodeDetail{}, fmt.Errorf("show node %s: %w", id, err)
	}
	return api.NodeDetail{Node: n, Runs: runs, Acts: acts}, nil
}
