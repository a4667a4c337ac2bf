package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

const pool = "process"

func node(id string, memory int64) api.Heartbeat {
	return api.Heartbeat{
		Node: id, BootID: "boot-1", Version: "1", Arch: "amd64",
		Total:    capacity.Resources{CPUMilli: 4000, MemoryMiB: memory, DiskMiB: 100_000, Slots: 16},
		Backends: map[string]api.Backend{pool: {OK: true, Accel: "none"}},
	}
}

func register(t testing.TB, s *store.Store, nodes ...api.Heartbeat) {
	t.Helper()
	for _, n := range nodes {
		_, err := s.Heartbeat(context.Background(), n)
		require.NoError(t, err)
	}
	_, err := s.GatewayHeartbeat(context.Background(), api.GatewayHeartbeat{Gateway: "gw"})
	require.NoError(t, err)
}

// phases makes a draft of n phases that each ask for memory MiB.
func draft(name string, n int, memory int64, maxWait time.Duration) store.Draft {
	d := store.Draft{
		Name: name, Actor: "test", WorkflowRun: name + "-run",
		Document: json.RawMessage(`{"name":"` + name + `","spec":{"backend":"process","phases":[]}}`),
	}
	for i := range n {
		d.Phases = append(d.Phases, store.DraftPhase{
			Name: fmt.Sprintf("p%d", i+1), Turn: time.Hour, MaxWait: maxWait,
			Demand: capacity.Demand{Backend: pool, Resources: capacity.Resources{CPUMilli: 1000, MemoryMiB: memory, DiskMiB: 10, Slots: 1}},
		})
	}
	return d
}

func launch(t testing.TB, s *store.Store, d store.Draft) ledger.Launched {
	t.Helper()
	l, refused, err := s.Launch(context.Background(), d)
	require.NoError(t, err)
	require.Empty(t, refused)
	return l
}

func look(t testing.TB, s *store.Store, phase int64, attempt int, wake ledger.Wake) ledger.Outcome {
	t.Helper()
	res, err := s.Pass(context.Background(), pool, []store.Look{{PhaseID: phase, Attempt: attempt, Wake: wake}}, wake)
	require.NoError(t, err)
	return res.Outcomes[phase]
}

func finish(t testing.TB, s *store.Store, phase int64) {
	t.Helper()
	_, err := s.FinishPhase(context.Background(), phase, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
	require.NoError(t, err)
}

func TestPlacementIsOneTransaction(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))

	got := look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst)

	require.Equal(t, ledger.Outcome{Placed: &ledger.Placed{RunID: "r1-1", NodeID: "a", Attempt: 1, Turn: time.Hour, Epoch: 1}}, got)
	var target, phase, run, node string
	var memory int64
	require.NoError(t, db.QueryRow(context.Background(), `
SELECT m.target_node_id, p.status, r.status, v.node_id, n.memory_reserved FROM missions m
JOIN mission_phases p ON p.mission_id = m.id JOIN topology_runs r ON r.phase_id = p.id
JOIN reservations v ON v.run_id = r.id JOIN nodes n ON n.id = v.node_id`).Scan(&target, &phase, &run, &node, &memory))
	require.Equal(t, []any{"a", "running", "starting", "a", int64(1000)}, []any{target, phase, run, node, memory})
}

func TestPlacingTwiceIsOnePlacement(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))

	first := look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst)
	second := look(t, s, l.Phases[0].ID, 1, ledger.WakeTimer)

	require.Equal(t, first, second)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM reservations"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs"))
}

func count(t testing.TB, db *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func TestRefusedPhaseWaitsInTheOpen(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	waiter := launch(t, s, draft("waiter", 1, 512, time.Hour))
	id := waiter.Phases[0].ID

	first := look(t, s, id, 1, ledger.WakeFirst).Waiting

	require.NotNil(t, first)
	require.Equal(t, capacity.CodeMemory, first.Code)
	require.Equal(t, time.Hour, first.Bound.Sub(first.Since))
	require.Equal(t, time.Hour, first.Left)
	require.Equal(t, 1, first.Position)
	require.Equal(t, 1, first.Counts.Total())
	require.Zero(t, count(t, db, "SELECT count(*) FROM topology_runs WHERE phase_id = $1", id), "a refused phase has no run")

	for range 10 {
		again := look(t, s, id, 1, ledger.WakeTimer).Waiting
		require.Equal(t, first.Since, again.Since, "the first refusal is stamped once")
		require.Equal(t, first.Bound, again.Bound)
	}
	var since time.Time
	var note string
	require.NoError(t, db.QueryRow(context.Background(),
		"SELECT capacity_blocked_since, capacity_note FROM mission_phases WHERE id = $1", id).Scan(&since, &note))
	require.True(t, since.Equal(first.Since))
	require.Equal(t, first.Sentence, note)

	list, err := s.ListWaits(context.Background(), api.WaitRequest{}, 10*time.Second)
	require.NoError(t, err)
	require.Len(t, list.Waits, 1)
	w := list.Waits[0]
	require.Equal(t, []any{"capacity", "capacity_memory", "waiter", "p1", "phase.waiter.p1", 11, map[string]int{"first": 1, "timer": 10}},
		[]any{w.Kind, w.Code, w.Mission, w.Phase, w.WorkflowID, w.Attempts, w.WokenBy})
	require.Equal(t, 10*time.Second, w.NextCheck.Sub(*w.CheckedAt))
	require.Equal(t, "a", w.FreesNode)
}

func TestFreedCapacityGoesToTheFirstRefused(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst)
	var waiting []int64
	for _, name := range []string{"first", "second"} {
		l := launch(t, s, draft(name, 1, 1000, time.Hour))
		waiting = append(waiting, l.Phases[0].ID)
		require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Waiting)
	}
	finish(t, s, holder.Phases[0].ID)

	res, err := s.Pass(context.Background(), pool, nil, ledger.WakeEvent)

	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1}, []int{res.Admitted, res.Signals, res.Waiting})
	require.Equal(t, []store.Admission{{Mission: "first", Phase: "p1", Run: "r2-1", Node: "a", Wake: "event"}}, res.Placed)
	require.NotNil(t, look(t, s, waiting[0], 1, ledger.WakeTimer).Placed)
	require.NotNil(t, look(t, s, waiting[1], 1, ledger.WakeTimer).Waiting)
	signals, err := s.Signals(context.Background(), 10)
	require.NoError(t, err)
	require.Len(t, signals, 1)
	require.Equal(t, []string{"phase.first.p1", "placed"}, []string{signals[0].WorkflowID, signals[0].Name})
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM wait_history WHERE phase_id = $1 AND ended_by = 'placed' AND woken_by = 'event'", waiting[0]))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM mission_phases WHERE id = $1 AND capacity_blocked_since IS NULL AND capacity_note IS NULL", waiting[0]))
}

func TestExpiryIsFinalAndLeaksNothing(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst)
	l := launch(t, s, draft("late", 1, 1000, time.Millisecond))
	id := l.Phases[0].ID
	require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Waiting)

	expire := func() ledger.Outcome {
		res, err := s.Pass(context.Background(), pool, []store.Look{{PhaseID: id, Attempt: 1, Wake: ledger.WakeTimer, Expire: true}}, ledger.WakeTimer)
		require.NoError(t, err)
		return res.Outcomes[id]
	}
	got := expire().Ended

	require.NotNil(t, got)
	require.Equal(t, []string{"failed", "wait_exceeded"}, []string{got.Status, got.FailureCode})
	require.Contains(t, got.Failure, "waited 1ms for capacity, the longest allowed; at last: ")
	require.Equal(t, got, expire().Ended, "a second look finds the same end")

	finish(t, s, holder.Phases[0].ID)
	require.Equal(t, got, look(t, s, id, 1, ledger.WakeEvent).Ended, "a late look places nothing")
	require.Zero(t, count(t, db, "SELECT count(*) FROM reservations WHERE released_at IS NULL"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM wait_history WHERE phase_id = $1 AND ended_by = 'expired'", id))
}

func TestPastTheBoundOnlyTheLastLookPlaces(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst)
	l := launch(t, s, draft("late", 1, 1000, time.Millisecond))
	id := l.Phases[0].ID
	require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Waiting)
	finish(t, s, holder.Phases[0].ID)

	res, err := s.Pass(context.Background(), pool, nil, ledger.WakeEvent)
	require.NoError(t, err)
	require.Zero(t, res.Admitted, "an event after the bound does not place")

	res, err = s.Pass(context.Background(), pool, []store.Look{{PhaseID: id, Attempt: 1, Wake: ledger.WakeTimer, Expire: true}}, ledger.WakeTimer)
	require.NoError(t, err)
	require.NotNil(t, res.Outcomes[id].Placed, "the last look takes what is free")
}

func TestCancelReleasesWhatWasPlacedMeanwhile(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	id := l.Phases[0].ID
	look(t, s, id, 1, ledger.WakeFirst)

	got, err := s.FinishPhase(context.Background(), id,
		ledger.RunEnd{Status: "cancelled", FailureCode: "cancelled", Failure: "not needed"},
		ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "not needed"})

	require.NoError(t, err)
	require.Equal(t, ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "not needed"}, got)
	require.Zero(t, count(t, db, "SELECT memory_reserved + cpu_reserved + disk_reserved + slots_reserved FROM nodes"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE status = 'cancelled'"))
}

func TestRetriedPhaseKeepsItsPlace(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	first := launch(t, s, draft("first", 1, 1000, time.Hour)).Phases[0].ID
	require.NotNil(t, look(t, s, first, 1, ledger.WakeFirst).Placed)
	second := launch(t, s, draft("second", 1, 1000, time.Hour)).Phases[0].ID
	require.NotNil(t, look(t, s, second, 1, ledger.WakeFirst).Waiting)

	attempt, err := s.RetryPhase(context.Background(), first, 1, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
	require.NoError(t, err)
	require.Equal(t, 2, attempt)
	attempt, err = s.RetryPhase(context.Background(), first, 1, ledger.RunEnd{Status: "lost"})
	require.NoError(t, err)
	require.Equal(t, 2, attempt, "telling it twice changes nothing")

	require.NotNil(t, look(t, s, second, 1, ledger.WakeTimer).Waiting, "the phase that was placed before is ahead")
	again := look(t, s, first, 1, ledger.WakeFirst).Placed
	require.Equal(t, 2, again.Attempt, "a workflow that was reset asks for an attempt that is over, and gets the present one")
	_, err = s.RetryPhase(context.Background(), first, 2, ledger.RunEnd{Status: "lost"})
	require.NoError(t, err)
	attempt, err = s.RetryPhase(context.Background(), first, 1, ledger.RunEnd{Status: "lost"})
	require.NoError(t, err)
	require.Equal(t, 3, attempt, "and is told where the phase really is")
	require.Equal(t, "r1-3", look(t, s, first, 3, ledger.WakeFirst).Placed.RunID)
}

func TestConstraintsForbidOverbookingWhateverTheCodeDoes(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	for _, set := range []string{
		"memory_reserved = memory_total + 1", "cpu_reserved = cpu_total + 1", "disk_reserved = disk_total + 1",
		"slots_reserved = slots_total + 1", "memory_reserved = -1", "memory_total = -1",
	} {
		_, err := db.Exec(context.Background(), "UPDATE nodes SET "+set)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, set)
		require.Equal(t, "23514", pg.Code, set)
	}
	l := launch(t, s, draft("m", 1, 100, time.Hour))
	look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst)
	_, err := db.Exec(context.Background(), `
INSERT INTO reservations (phase_id, attempt, run_id, node_id, cpu, memory, disk, slots, ends_by)
SELECT phase_id, 2, run_id, node_id, 0, 0, 0, 1, now() FROM reservations`)
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "reservations_one_per_phase", pg.ConstraintName)
}

// TestConcurrentPlacersNeverOverbook lets 32 placers of four engines place and
// finish phases on 50 nodes, each through its own transaction, until 20,000
// operations are done.
func TestConcurrentPlacersNeverOverbook(t *testing.T) {
	const placers, nodes, operations = 32, 50, 20_000
	s, db := open(t, rules)
	engines := []*store.Store{s, another(t, db, rules), another(t, db, rules), another(t, db, rules)}
	for i := range nodes {
		register(t, s, node(fmt.Sprintf("n%02d", i), 4096))
	}
	perPlacer := operations / placers
	var wg sync.WaitGroup
	for w := range placers {
		l := launch(t, s, draft(fmt.Sprintf("m%d", w), perPlacer/2+1, 700+int64(w)*60, time.Hour))
		s := engines[w%len(engines)]
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			var held []int64
			next := 0
			for range perPlacer {
				if next < len(l.Phases) && (len(held) == 0 || len(held) < 8 && rng.IntN(2) == 0) {
					id := l.Phases[next].ID
					next++
					res, err := s.Pass(context.Background(), pool, []store.Look{{PhaseID: id, Attempt: 1, Wake: ledger.WakeFirst}}, ledger.WakeFirst)
					if err != nil {
						t.Error(err)
						return
					}
					if res.Outcomes[id].Placed == nil && res.Outcomes[id].Waiting == nil {
						t.Errorf("phase %d: %+v", id, res.Outcomes[id])
					}
					held = append(held, id)
					continue
				}
				if len(held) == 0 {
					return
				}
				i := rng.IntN(len(held))
				if _, err := s.FinishPhase(context.Background(), held[i], ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"}); err != nil {
					t.Error(err)
					return
				}
				held = append(held[:i], held[i+1:]...)
			}
		})
	}
	wg.Wait()

	wrong, err := s.Audit(context.Background())
	require.NoError(t, err)
	require.Empty(t, wrong, "counters equal the reservations")
	require.Zero(t, count(t, db, `
SELECT count(*) FROM nodes n JOIN (SELECT node_id, sum(cpu) cpu, sum(memory) memory, sum(slots) slots FROM reservations
    WHERE released_at IS NULL GROUP BY node_id) r ON r.node_id = n.id
WHERE r.cpu > n.cpu_total OR r.memory > n.memory_total OR r.slots > n.slots_total`), "over-bookings")
	require.Greater(t, count(t, db, "SELECT count(*) FROM reservations"), operations/8)
}

// TestEveryEngineSeesTheFleetAsItIs changes the fleet through one engine and
// asks another, which remembers the fleet from before.
func TestEveryEngineSeesTheFleetAsItIs(t *testing.T) {
	a, db := open(t, rules)
	b := another(t, db, rules)
	register(t, a, node("n1", 1024), node("n2", 1024))
	phases := launch(t, a, draft("m", 6, 1000, time.Hour)).Phases
	onNode := func(s *store.Store, i int) string {
		t.Helper()
		o := look(t, s, phases[i].ID, 1, ledger.WakeFirst)
		if o.Placed == nil {
			return string(o.Waiting.Code)
		}
		return o.Placed.NodeID
	}

	require.Equal(t, "n1", onNode(a, 0))
	require.Equal(t, "n2", onNode(b, 1), "b sees what a placed")
	finish(t, a, phases[0].ID)
	require.Equal(t, "n1", onNode(b, 2), "b sees what a freed")
	require.Equal(t, "capacity_memory", onNode(a, 3))
	finish(t, b, phases[1].ID)
	require.NoError(t, change(t, b, "n2", capacity.Cordoned))
	require.Equal(t, "capacity_memory", onNode(a, 3), "a sees what b cordoned")
	require.NoError(t, change(t, b, "n2", capacity.Retired))
	register(t, b, node("n3", 1024))
	require.Equal(t, "n3", onNode(a, 3), "a sees the node that b registered")
	h := node("n1", 4096)
	h.Backends = map[string]api.Backend{pool: {OK: false, Why: "broken"}}
	register(t, b, h)
	require.Equal(t, "capacity_memory", onNode(a, 4), "a sees that n1 offers the backend no more")
}

func TestPriorityComesBeforeFirstRefusal(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour)).Phases[0].ID
	look(t, s, holder, 1, ledger.WakeFirst)
	early := launch(t, s, draft("early", 1, 1000, time.Hour)).Phases[0].ID
	require.Equal(t, 1, look(t, s, early, 1, ledger.WakeFirst).Waiting.Position)
	urgent := draft("urgent", 1, 1000, time.Hour)
	urgent.Priority = 60
	late := launch(t, s, urgent).Phases[0].ID
	require.Equal(t, 1, look(t, s, late, 1, ledger.WakeFirst).Waiting.Position)

	w := look(t, s, early, 1, ledger.WakeTimer).Waiting
	require.Equal(t, 2, w.Position)
	require.Contains(t, w.Sentence, "behind urgent/p1", "people are named, not numbers")

	finish(t, s, holder)
	_, err := s.Pass(context.Background(), pool, nil, ledger.WakeEvent)
	require.NoError(t, err)
	require.NotNil(t, look(t, s, late, 1, ledger.WakeTimer).Placed)
	require.NotNil(t, look(t, s, early, 1, ledger.WakeTimer).Waiting)
}
