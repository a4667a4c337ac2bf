package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// room is what a node has, or a reservation takes: CPU, memory, disk and slots.
type room [4]int64

func (r room) plus(other room) room {
	for i := range r {
		r[i] += other[i]
	}
	return r
}

// nodeRow, heldRow and phaseRow are rows of the database as they are.
type nodeRow struct {
	ID             string
	Total, Counted room
	Starting       int64
}

type heldRow struct {
	Run      string
	Phase    int64
	Attempt  int
	Node     string
	Takes    room
	Starting int64
}

type phaseRow struct {
	ID          int64
	Status      string
	Attempt     int
	Run, RunsOn string // of this attempt; empty: there is none
	Waits       bool
}

// auditRows says what is wrong with the rows of one moment, and how much of a node
// is held at most. A run that lingers may hold its place for a phase that has ended.
// It shares nothing with the code that writes them.
func auditRows(nodes []nodeRow, held []heldRow, phases []phaseRow, lingers map[string]bool) (wrong []string, fullest float64) {
	sums, starting, holders, byPhase := map[string]room{}, map[string]int64{}, map[int64]int{}, map[int64]phaseRow{}
	for _, p := range phases {
		byPhase[p.ID] = p
		if p.Status == "running" && p.Run == "" {
			wrong = append(wrong, fmt.Sprintf("phase %d runs and has no run", p.ID))
		}
		if p.Status != "pending" && p.Waits {
			wrong = append(wrong, fmt.Sprintf("phase %d is %s and waits", p.ID, p.Status))
		}
	}
	for _, h := range held {
		sums[h.Node] = sums[h.Node].plus(h.Takes)
		starting[h.Node] += h.Starting
		if holders[h.Phase]++; holders[h.Phase] > 1 {
			wrong = append(wrong, fmt.Sprintf("phase %d is booked twice", h.Phase))
		}
		p := byPhase[h.Phase]
		its := p.Attempt == h.Attempt && p.Run == h.Run && p.RunsOn == h.Node
		if !its || p.Status != "running" && (p.Status != "cancelled" || !lingers[h.Run]) {
			wrong = append(wrong, fmt.Sprintf("leak: %+v is held by %+v", h, p))
		}
	}
	for _, n := range nodes {
		sum := sums[n.ID]
		delete(sums, n.ID)
		for i := range sum {
			if sum[i] > n.Total[i] {
				wrong = append(wrong, fmt.Sprintf("over-commit: node %s has %v and holds %v", n.ID, n.Total, sum))
				break
			}
			fullest = max(fullest, float64(sum[i])/float64(n.Total[i]))
		}
		if sum != n.Counted || starting[n.ID] != n.Starting {
			wrong = append(wrong, fmt.Sprintf("node %s counts %v, %d starting, and holds %v, %d starting", n.ID, n.Counted, n.Starting, sum, starting[n.ID]))
		}
	}
	for id := range sums {
		wrong = append(wrong, fmt.Sprintf("node %s holds something and is not there", id))
	}
	return wrong, fullest
}

func TestTheAuditOfPlacements(t *testing.T) {
	node := nodeRow{ID: "a", Total: room{4000, 1024, 100, 4}, Counted: room{1000, 512, 10, 1}}
	one := heldRow{Run: "r1-1", Phase: 1, Attempt: 1, Node: "a", Takes: room{1000, 512, 10, 1}}
	runs := phaseRow{ID: 1, Status: "running", Attempt: 1, Run: "r1-1", RunsOn: "a"}
	two, both := one, node
	two.Run, two.Phase, both.Counted = "r2-1", 2, room{2000, 1024, 20, 2}
	runsToo := phaseRow{ID: 2, Status: "running", Attempt: 1, Run: "r2-1", RunsOn: "a"}
	small, larger := both, two
	small.Total[1], larger.Node = 1023, "b"
	lost, waits, gone := runs, runs, runs
	gone.Status = "cancelled"
	lost.Attempt, lost.Status, lost.Run, waits.Status, waits.Waits = 2, "pending", "", "succeeded", true

	for name, c := range map[string]struct {
		nodes   []nodeRow
		held    []heldRow
		phases  []phaseRow
		wrong   []string
		fullest float64
	}{
		"right":       {[]nodeRow{node}, []heldRow{one}, []phaseRow{runs}, nil, 0.5},
		"full":        {[]nodeRow{both}, []heldRow{one, two}, []phaseRow{runs, runsToo}, nil, 1},
		"over-commit": {[]nodeRow{small}, []heldRow{one, two}, []phaseRow{runs, runsToo}, []string{"over-commit: node a has [4000 1023 100 4] and holds [2000 1024 20 2]"}, 0.5},
		"miscounted": {
			[]nodeRow{both},
			[]heldRow{one},
			[]phaseRow{runs},
			[]string{"node a counts [2000 1024 20 2], 0 starting, and holds [1000 512 10 1], 0 starting"},
			0.5,
		},
		"leak": {[]nodeRow{node}, []heldRow{one}, []phaseRow{lost}, []string{
			"leak: {Run:r1-1 Phase:1 Attempt:1 Node:a Takes:[1000 512 10 1] Starting:0} is held by {ID:1 Status:pending Attempt:2 Run: RunsOn:a Waits:false}",
		}, 0.5},
		"gone": {[]nodeRow{node}, []heldRow{one}, []phaseRow{gone}, []string{
			"leak: {Run:r1-1 Phase:1 Attempt:1 Node:a Takes:[1000 512 10 1] Starting:0} is held by {ID:1 Status:cancelled Attempt:1 Run:r1-1 RunsOn:a Waits:false}",
		}, 0.5},
		"lingers": {
			[]nodeRow{node},
			[]heldRow{{Run: "r3-1", Phase: 3, Attempt: 1, Node: "a", Takes: one.Takes}},
			[]phaseRow{{ID: 3, Status: "cancelled", Attempt: 1, Run: "r3-1", RunsOn: "a"}},
			nil, 0.5,
		},
		"twice": {[]nodeRow{both}, []heldRow{one, one}, []phaseRow{runs}, []string{"phase 1 is booked twice"}, 1},
		"elsewhere": {
			[]nodeRow{node},
			[]heldRow{one, larger},
			[]phaseRow{runs, {ID: 2, Status: "running", Attempt: 1, Run: "r2-1", RunsOn: "b"}},
			[]string{"node b holds something and is not there"},
			0.5,
		},
		"no run": {nil, nil, []phaseRow{{ID: 3, Status: "running", Attempt: 1}}, []string{"phase 3 runs and has no run"}, 0},
		"waits":  {nil, nil, []phaseRow{waits}, []string{"phase 1 is succeeded and waits"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			wrong, fullest := auditRows(c.nodes, c.held, c.phases, map[string]bool{"r3-1": true})
			require.Equal(t, c.wrong, wrong)
			require.InDelta(t, c.fullest, fullest, 0.001)
		})
	}
}

const (
	auditNodesSQL = `
SELECT id, cpu_total, memory_total, disk_total, slots_total, cpu_reserved, memory_reserved, disk_reserved, slots_reserved, starting FROM nodes`
	auditHeldSQL = `
SELECT run_id, phase_id, attempt, node_id, cpu, memory, disk, slots, starting FROM reservations WHERE released_at IS NULL`
	auditPhasesSQL = `
SELECT p.id, p.status, p.attempt, COALESCE(r.id, ''), COALESCE(r.node_id, ''), w.phase_id IS NOT NULL FROM mission_phases p
LEFT JOIN topology_runs r ON r.phase_id = p.id AND r.attempt = p.attempt LEFT JOIN capacity_waits w ON w.phase_id = p.id
WHERE p.status IN ('pending', 'running') OR w.phase_id IS NOT NULL OR EXISTS (SELECT 1 FROM reservations v WHERE v.phase_id = p.id AND v.released_at IS NULL)`
)

// audit reads the rows while nobody is at work, and has them added up. A run that an
// engine was told of is there.
func (w *world) audit() {
	w.t.Helper()
	ctx := w.t.Context()
	rows, err := w.db.Query(ctx, auditNodesSQL)
	require.NoError(w.t, err)
	nodes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n nodeRow, err error) {
		err = row.Scan(&n.ID, &n.Total[0], &n.Total[1], &n.Total[2], &n.Total[3], &n.Counted[0], &n.Counted[1], &n.Counted[2], &n.Counted[3], &n.Starting)
		return n, err
	})
	require.NoError(w.t, err)
	rows, err = w.db.Query(ctx, auditHeldSQL)
	require.NoError(w.t, err)
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h heldRow, err error) {
		err = row.Scan(&h.Run, &h.Phase, &h.Attempt, &h.Node, &h.Takes[0], &h.Takes[1], &h.Takes[2], &h.Takes[3], &h.Starting)
		return h, err
	})
	require.NoError(w.t, err)
	rows, err = w.db.Query(ctx, auditPhasesSQL)
	require.NoError(w.t, err)
	phases, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p phaseRow, err error) {
		err = row.Scan(&p.ID, &p.Status, &p.Attempt, &p.Run, &p.RunsOn, &p.Waits)
		return p, err
	})
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong, fullest := auditRows(nodes, held, phases, w.lingers)
	w.counts["audit"]++
	w.fullest = max(w.fullest, fullest)
	told := w.placed
	w.placed = map[string]string{}
	rows, err = w.db.Query(ctx, "SELECT id, node_id FROM topology_runs WHERE id = ANY($1)", keysOf(told))
	require.NoError(w.t, err)
	var run, node string
	_, err = pgx.ForEachRow(rows, []any{&run, &node}, func() error {
		if told[run] != node {
			wrong = append(wrong, fmt.Sprintf("run %s is on %s, and an engine was told %s", run, node, told[run]))
		}
		delete(told, run)
		return nil
	})
	require.NoError(w.t, err)
	for run := range told {
		wrong = append(wrong, fmt.Sprintf("an engine was told of run %s, which is not there", run))
	}
	require.Empty(w.t, wrong)
}

// auditAll reads every row there is, when all has ended.
func (w *world) auditAll() {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `
SELECT p.id, p.status, r.id, r.status, r.ended_at IS NOT NULL, v.released_at IS NOT NULL FROM mission_phases p
LEFT JOIN topology_runs r ON r.phase_id = p.id LEFT JOIN reservations v ON v.run_id = r.id`)
	require.NoError(w.t, err)
	var wrong []string
	succeeded, runs := map[int64]int{}, 0
	var phase int64
	var status string
	var run, runStatus *string
	var ended, released bool
	_, err = pgx.ForEachRow(rows, []any{&phase, &status, &run, &runStatus, &ended, &released}, func() error {
		if !slices.Contains([]string{"succeeded", "failed", "cancelled"}, status) {
			wrong = append(wrong, fmt.Sprintf("phase %d is %s", phase, status))
		}
		if run == nil {
			return nil
		}
		runs++
		if !ended || !released {
			wrong = append(wrong, fmt.Sprintf("run %s: ended %t, released %t", *run, ended, released))
		}
		if *runStatus == "succeeded" {
			succeeded[phase]++
		}
		if succeeded[phase] > 1 || *runStatus == "succeeded" && status != "succeeded" {
			wrong = append(wrong, fmt.Sprintf("phase %d is %s and has %d runs that succeeded", phase, status, succeeded[phase]))
		}
		return nil
	})
	require.NoError(w.t, err)
	require.Empty(w.t, wrong)
	require.GreaterOrEqual(w.t, runs, w.counts["placed"], "runs that engines were told of")
	for table, sql := range map[string]string{
		"reservations": "SELECT count(*) FROM reservations WHERE released_at IS NULL", "waits": "SELECT count(*) FROM capacity_waits",
		"missions": "SELECT count(*) FROM missions WHERE status = 'running'",
		"counters": "SELECT COALESCE(sum(cpu_reserved + memory_reserved + disk_reserved + slots_reserved + starting), 0)::int FROM nodes",
	} {
		require.Zero(w.t, count(w.t, w.db, sql), table)
	}
	w.counts["runs in all"] = runs
}

func keysOf(m map[string]string) []string {
	keys := []string{}
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
