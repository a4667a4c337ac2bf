package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// modelLease is shorter than the silence after which patient gives a node up.
const modelLease = 3 * time.Minute

// TestNodesDoWhatAModelDoes lets nodes, their agents, people, phases and outages
// do anything in any order. Agents keep their lease; apart from that nothing is
// asked of anybody. No phase ever has two machines, no node holds more than it
// has, a run that was given up commits nothing, a phase is committed once, and a
// node that is drained or retired holds nothing.
func TestNodesDoWhatAModelDoes(t *testing.T) {
	s, db := open(t, patient)
	rapid.Check(t, func(rt *rapid.T) {
		_, err := db.Exec(context.Background(), `
TRUNCATE missions, nodes, listening RESTART IDENTITY CASCADE; INSERT INTO listening DEFAULT VALUES`)
		require.NoError(rt, err)
		register(t, s)
		f := &fleet{s: another(t, db, patient), db: db, agents: map[string]*modelAgent{}, closed: map[string]bool{}, committed: map[int64]string{}}
		defer f.s.Close()
		for _, id := range []string{"a", "b"} {
			f.agents[id] = &modelAgent{machines: map[string]bool{}}
			f.beat(rt, id)
		}
		l := launch(t, f.s, draft("m", 4, 1000, time.Hour))
		for _, p := range l.Phases {
			f.phases = append(f.phases, p.ID)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"time passes": f.pass, "outage": f.outage, "heartbeat": f.heartbeat, "look": f.look, "pick up": f.pickUp,
			"command ends": f.commandEnds, "activity is lost": f.judge, "results come": f.commit, "person": f.person, "sweep": f.sweep, "": f.check,
		})
	})
}

type fleet struct {
	s         *store.Store
	db        *pgx.Conn
	now       time.Duration
	agents    map[string]*modelAgent
	phases    []int64
	closed    map[string]bool // runs whose activity was lost: no agent gets them any more
	committed map[int64]string
}

// modelAgent is the truth about a node.
type modelAgent struct {
	sent     time.Duration // the latest heartbeat that was acknowledged
	epoch    int64
	machines map[string]bool // by run
	ended    []string        // of them, not told yet
}

// modelRun is the run a phase has.
type modelRun struct {
	ledger.Placed
	phase int64
}

// running returns the runs that phases have now.
func (f *fleet) running(t require.TestingT) []modelRun {
	rows, err := f.db.Query(context.Background(), `
SELECT r.id, r.node_id, r.attempt, r.lease_epoch, p.id FROM mission_phases p
JOIN topology_runs r ON r.phase_id = p.id AND r.attempt = p.attempt WHERE p.status = 'running' ORDER BY r.id`)
	require.NoError(t, err)
	runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r modelRun, err error) {
		err = row.Scan(&r.RunID, &r.NodeID, &r.Attempt, &r.Epoch, &r.phase)
		return r, err
	})
	require.NoError(t, err)
	return runs
}

func (f *fleet) draw(t *rapid.T) modelRun {
	runs := f.running(t)
	if len(runs) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.SampledFrom(runs).Draw(t, "run")
}

// moves lets time pass for the ledger and for agents, whose fences fall.
func (f *fleet) moves(t *rapid.T, d time.Duration) {
	for _, sql := range []string{
		"UPDATE nodes SET heartbeat_at = heartbeat_at - $1::interval, lost_at = lost_at - $1::interval, drain_deadline = drain_deadline - $1::interval",
		"UPDATE listening SET since = since - $1::interval, heard_at = heard_at - $1::interval",
		"UPDATE topology_runs SET suspected_at = suspected_at - $1::interval, ended_at = ended_at - $1::interval, evicted_at = evicted_at - $1::interval",
	} {
		_, err := f.db.Exec(context.Background(), sql, d)
		require.NoError(t, err)
	}
	f.now += d
	for _, a := range f.agents {
		if f.now-a.sent >= modelLease {
			clear(a.machines)
		}
	}
}

func (f *fleet) listen(t *rapid.T) {
	_, err := f.s.Listen(context.Background())
	require.NoError(t, err)
}

func (f *fleet) pass(t *rapid.T) {
	for range rapid.IntRange(1, 15).Draw(t, "steps") {
		f.moves(t, 20*time.Second)
		f.listen(t)
	}
}

func (f *fleet) outage(t *rapid.T) {
	f.moves(t, time.Duration(rapid.IntRange(1, 600).Draw(t, "seconds"))*time.Second)
	f.listen(t)
}

func (f *fleet) heartbeat(t *rapid.T) {
	f.beat(t, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"))
}

func (f *fleet) beat(t *rapid.T, id string) {
	a := f.agents[id]
	h := node(id, 2048)
	for run := range a.machines {
		h.Runs = append(h.Runs, api.RunReport{ID: run, Step: "run", Started: true})
	}
	h.Ended = a.ended
	res, err := f.s.Heartbeat(context.Background(), h)
	require.NoError(t, err)
	if res.Reply.End != "" {
		clear(a.machines)
		return
	}
	require.GreaterOrEqual(t, res.Reply.Epoch, a.epoch)
	a.sent, a.epoch, a.ended = f.now, res.Reply.Epoch, nil
	for _, run := range res.Reply.Destroy {
		delete(a.machines, run)
	}
}

func (f *fleet) look(t *rapid.T) {
	var looks []store.Look
	for _, id := range f.phases {
		looks = append(looks, store.Look{PhaseID: id, Attempt: 1_000_000, Wake: ledger.WakeTimer})
	}
	_, err := f.s.Pass(context.Background(), pool, looks, ledger.WakeTimer)
	require.NoError(t, err)
}

// pickUp lets an agent begin a run, which it does while it holds its lease and has
// not heard that the run's epoch is over.
func (f *fleet) pickUp(t *rapid.T) {
	r := f.draw(t)
	a := f.agents[r.NodeID]
	if f.closed[r.RunID] || f.now-a.sent >= modelLease || r.Epoch < a.epoch {
		t.Skip("no agent begins it")
	}
	if !slices.Contains(a.ended, r.RunID) {
		a.machines[r.RunID] = true
	}
}

func (f *fleet) commandEnds(t *rapid.T) {
	r := f.draw(t)
	a := f.agents[r.NodeID]
	if !a.machines[r.RunID] {
		t.Skip("its command does not run")
	}
	delete(a.machines, r.RunID)
	a.ended = append(a.ended, r.RunID)
	f.closed[r.RunID] = true // with a result
}

// judge is what follows a lost activity, once: it ends with the phase in the queue
// when the run is gone.
func (f *fleet) judge(t *rapid.T) {
	r := f.draw(t)
	f.closed[r.RunID] = true
	v, err := f.s.JudgeRun(context.Background(), r.RunID, false)
	require.NoError(t, err)
	if !v.Gone {
		return
	}
	require.False(t, f.agents[r.NodeID].machines[r.RunID], "%s is gone, they say: %s", r.RunID, v.Reason)
	_, err = f.s.RetryPhase(context.Background(), r.phase, r.Attempt, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
	require.NoError(t, err)
}

// commit lets the results of any run there ever was arrive at the gateway.
func (f *fleet) commit(t *rapid.T) {
	rows, err := f.db.Query(context.Background(), `SELECT id, lease_epoch, phase_id FROM topology_runs ORDER BY id`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r modelRun, err error) {
		err = row.Scan(&r.RunID, &r.Epoch, &r.phase)
		return r, err
	})
	require.NoError(t, err)
	if len(all) == 0 {
		t.Skip("there was no run")
	}
	r := rapid.SampledFrom(all).Draw(t, "run")
	current := slices.ContainsFunc(f.running(t), func(c modelRun) bool { return c.RunID == r.RunID })
	if err := f.s.MayCommit(context.Background(), r.RunID, r.Epoch); err != nil {
		require.ErrorIs(t, err, store.ErrStale)
		return
	}
	require.True(t, current, "%s is not what its phase has", r.RunID)
	if !f.closed[r.RunID] {
		return // it may, but it has not ended
	}
	require.Empty(t, f.committed[r.phase])
	f.committed[r.phase] = r.RunID
	_, err = f.s.FinishPhase(context.Background(), r.phase, ledger.RunEnd{RunID: r.RunID, Status: "succeeded"}, ledger.Ended{Status: "succeeded", Commit: "c"})
	require.NoError(t, err)
	for _, a := range f.agents { // its machine went before its results came
		delete(a.machines, r.RunID)
	}
}

func (f *fleet) person(t *rapid.T) {
	c := store.NodeChange{
		Node:     rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"),
		To:       rapid.SampledFrom([]capacity.NodeState{capacity.Ready, capacity.Cordoned, capacity.Draining, capacity.Retired}).Draw(t, "to"),
		Deadline: time.Duration(rapid.IntRange(0, 60).Draw(t, "deadline")) * time.Second,
	}
	do := f.s.ChangeNode
	if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
		do = f.s.ReinstateNode
	}
	if err := do(context.Background(), c); err != nil {
		require.ErrorIs(t, err, store.ErrConflict)
	}
}

func (f *fleet) sweep(t *rapid.T) {
	_, err := f.s.DeclareLost(context.Background())
	require.NoError(t, err)
	_, err = f.s.SettleDrains(context.Background())
	require.NoError(t, err)
	_, err = f.s.ReleaseOrphans(context.Background())
	require.NoError(t, err)
}

func (f *fleet) check(t *rapid.T) {
	machines := map[string]string{} // phase → run
	for id, a := range f.agents {
		for run := range a.machines {
			phase, _, _ := strings.Cut(run, "-")
			require.Empty(t, machines[phase], "phase %s has machines of %s and %s", phase, machines[phase], run)
			machines[phase] = run + " on " + id
		}
	}
	wrong, err := f.s.Audit(context.Background())
	require.NoError(t, err)
	require.Empty(t, wrong)
	for what, sql := range map[string]string{
		"a node that is drained or retired holds nothing": `
SELECT count(*) FROM nodes n WHERE admin_state IN ('drained', 'retired') AND (slots_reserved > 0
   OR EXISTS (SELECT 1 FROM topology_runs r WHERE r.node_id = n.id AND r.ended_at IS NULL))`,
		"a phase that queues again has not been refused yet, or waits": `
SELECT count(*) FROM mission_phases p WHERE status = 'pending' AND (capacity_blocked_since IS NULL) = EXISTS (
   SELECT 1 FROM capacity_waits w WHERE w.phase_id = p.id)`,
		"the place in the queue is the first asking's": `
SELECT count(*) FROM mission_phases WHERE attempt > 1 AND queued_at IS NULL`,
		"what runs holds its node, or has ended there": `
SELECT count(*) FROM mission_phases p JOIN topology_runs r ON r.phase_id = p.id AND r.attempt = p.attempt
WHERE p.status = 'running' AND r.ended_at IS NOT NULL`,
	} {
		var n int
		require.NoError(t, f.db.QueryRow(context.Background(), sql).Scan(&n))
		require.Zero(t, n, what)
	}
}
