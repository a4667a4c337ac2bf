package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// asks launches a mission of one phase and looks at it.
func asks(t testing.TB, s *store.Store, name string, memory int64, changes ...func(*store.Draft)) (int64, ledger.Outcome) {
	t.Helper()
	d := draft(name, 1, memory, 2*time.Hour)
	d.Priority = 50
	for _, change := range changes {
		change(&d)
	}
	id := launch(t, s, d).Phases[0].ID
	return id, lookIn(t, s, d.Phases[0].Demand.Backend, id, ledger.WakeFirst)
}

func lookIn(t testing.TB, s *store.Store, pool string, id int64, wake ledger.Wake) ledger.Outcome {
	t.Helper()
	res, err := s.Pass(context.Background(), pool, []store.Look{{PhaseID: id, Attempt: 1, Wake: wake}}, wake)
	require.NoError(t, err)
	return res.Outcomes[id]
}

func priority(p int) func(*store.Draft) { return func(d *store.Draft) { d.Priority = p } }

func withTurn(turn time.Duration) func(*store.Draft) {
	return func(d *store.Draft) { d.Phases[0].Turn = turn }
}

func onPool(pool string) func(*store.Draft) {
	return func(d *store.Draft) { d.Phases[0].Demand.Backend = pool }
}

func update(t testing.TB, db *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// waitsByMission are the waits of a store's missions, by mission.
func waitsByMission(t testing.TB, s *store.Store) map[string]api.Wait {
	t.Helper()
	list, err := s.ListWaits(context.Background(), api.WaitRequest{}, 10*time.Second)
	require.NoError(t, err)
	got := map[string]api.Wait{}
	for _, w := range list.Waits {
		got[w.Mission] = w
	}
	return got
}

func TestPriorityGrowsWithAge(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	_, holder := asks(t, s, "holder", 1000)
	require.NotNil(t, holder.Placed)
	early, _ := asks(t, s, "early", 1000)
	_, urgent := asks(t, s, "urgent", 1000, priority(52))
	require.Equal(t, 1, urgent.Waiting.Position, "two steps are worth an hour")

	update(t, db, "UPDATE mission_phases SET queued_at = queued_at - interval '59 minutes' WHERE id = $1", early)
	require.Equal(t, 2, look(t, s, early, 1, ledger.WakeTimer).Waiting.Position)
	update(t, db, "UPDATE mission_phases SET queued_at = queued_at - interval '2 minutes' WHERE id = $1", early)
	require.Equal(t, 1, look(t, s, early, 1, ledger.WakeTimer).Waiting.Position)
}

func TestBackfillBesideTheHead(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1000))
	_, holder := asks(t, s, "holder", 600, withTurn(30*time.Minute))
	require.NotNil(t, holder.Placed)
	head, first := asks(t, s, "head", 1000)
	require.Equal(t, capacity.CodeMemory, first.Waiting.Code)
	var ends time.Time
	require.NoError(t, db.QueryRow(context.Background(), "SELECT ends_by FROM reservations").Scan(&ends))
	require.WithinDuration(t, ends.Add(time.Minute), first.Waiting.Starts.By, time.Millisecond, "the turn's end, and a minute to clear up")
	require.Equal(t, []any{"a", true}, []any{first.Waiting.Starts.On, first.Waiting.Starts.Held})

	_, short := asks(t, s, "short", 200, withTurn(20*time.Minute))
	require.NotNil(t, short.Placed, "it is over before the head could start")
	_, long := asks(t, s, "long", 200)
	require.Equal(t, capacity.CodeHeldForHead, long.Waiting.Code)
	require.Contains(t, long.Waiting.Sentence, "it fits on a, which is held for head/p1; 2nd in line behind head/p1")
	require.WithinDuration(t, ends.Add(time.Hour+2*time.Minute), long.Waiting.Starts.By, time.Millisecond, "after the head's turn")
	require.False(t, long.Waiting.Starts.Held)

	shown := waitsByMission(t, s)
	require.WithinDuration(t, first.Waiting.Starts.By, *shown["head"].StartsBy, time.Millisecond)
	require.Equal(t, []any{"a", true, []string{}}, []any{shown["head"].StartsOn, shown["head"].StartsHeld, shown["head"].Ahead})
	require.WithinDuration(t, long.Waiting.Starts.By, *shown["long"].StartsBy, time.Millisecond)
	require.Equal(t, []any{"a", false, []string{"head/p1"}}, []any{shown["long"].StartsOn, shown["long"].StartsHeld, shown["long"].Ahead})
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM capacity_holds WHERE pool = 'process' AND phase_id = $1 AND node_id = 'a'", head))
}

func TestTheSentenceNamesTheFirstThreeAhead(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1000))
	asks(t, s, "holder", 1000)
	for i := 1; i <= 6; i++ {
		_, o := asks(t, s, fmt.Sprintf("m%d", i), 1000)
		require.Equal(t, i, o.Waiting.Position)
		require.Contains(t, o.Waiting.Sentence, map[int]string{
			1: "; 1st in line, and a is held for it",
			2: "; 2nd in line behind m1/p1",
			3: "; 3rd in line behind m1/p1 and m2/p1",
			4: "; 4th in line behind m1/p1, m2/p1 and m3/p1",
			5: "; 5th in line behind m1/p1, m2/p1, m3/p1 and 1 other",
			6: "; 6th in line behind m1/p1, m2/p1, m3/p1 and 2 others",
		}[i])
	}
	require.Equal(t, []string{"m1/p1", "m2/p1", "m3/p1", "m4/p1", "m5/p1"}, waitsByMission(t, s)["m6"].Ahead)
	require.Equal(t, []string{"m1/p1", "m2/p1"}, waitsByMission(t, s)["m3"].Ahead)
}

// A node that offers two backends is in two pools. What the head of one keeps,
// the other leaves alone, unless its phase is ahead of that head.
func TestPoolsOnOneNodeLeaveEachOthersHeadsAlone(t *testing.T) {
	s, db := open(t, rules)
	both := node("a", 1000)
	both.Backends["microvm"] = api.Backend{OK: true, Accel: "tcg"}
	register(t, s, both)
	holder, placed := asks(t, s, "holder", 600)
	require.NotNil(t, placed.Placed)
	big, refused := asks(t, s, "big", 900, onPool("microvm"))
	require.Equal(t, capacity.CodeMemory, refused.Waiting.Code)

	behind, held := asks(t, s, "behind", 150)
	require.Equal(t, capacity.CodeHeldForHead, held.Waiting.Code)
	require.Contains(t, held.Waiting.Sentence, "it fits on a, which is held for big/p1")
	_, ahead := asks(t, s, "ahead", 200, priority(51))
	require.NotNil(t, ahead.Placed, "it is ahead of the other pool's head")

	update(t, db, "UPDATE capacity_holds SET looked_at = looked_at - interval '21 seconds' WHERE pool = 'microvm'")
	require.NotNil(t, look(t, s, behind, 1, ledger.WakeTimer).Placed, "a hold that nobody looks at any more binds nobody")

	_, again := asks(t, s, "again", 50)
	require.NotNil(t, again.Placed)
	lookIn(t, s, "microvm", big, ledger.WakeTimer)
	_, err := s.FinishPhase(context.Background(), big, ledger.RunEnd{}, ledger.Ended{Status: "cancelled", FailureCode: "cancelled"})
	require.NoError(t, err)
	finish(t, s, holder)
	_, last := asks(t, s, "last", 300)
	require.NotNil(t, last.Placed, "the hold of a phase that has ended binds nobody")
}

// Behind the head window the record of a look may be a few seconds old, so that
// a pass over a long queue writes little; the decision is the same for all.
func TestRecordsBehindTheHeadWindowAreWrittenLessOften(t *testing.T) {
	r := rules
	r.HeadWindow = 2
	s, db := open(t, r)
	register(t, s, node("a", 1000))
	asks(t, s, "holder", 1000)
	ids := map[string]int64{}
	for i := 1; i <= 4; i++ {
		name := fmt.Sprintf("m%d", i)
		ids[name], _ = asks(t, s, name, 1000)
	}
	age := func(d string) {
		update(t, db, "UPDATE capacity_waits SET checked_at = checked_at - $1::interval", d)
	}
	pass := func() { // by an event, so that nobody asks
		_, err := s.Pass(context.Background(), pool, nil, ledger.WakeEvent)
		require.NoError(t, err)
	}
	positions := func() (got []int) {
		for i := 1; i <= 4; i++ {
			got = append(got, waitsByMission(t, s)[fmt.Sprintf("m%d", i)].Position)
		}
		return got
	}
	require.Equal(t, []int{1, 2, 3, 4}, positions())

	update(t, db, "UPDATE mission_phases SET queued_at = queued_at - interval '1 minute' WHERE id = $1", ids["m4"])
	age("2 seconds")
	pass()
	require.Equal(t, []int{2, 2, 3, 1}, positions(), "two places are written, the others are due later")
	age("6 seconds")
	pass()
	require.Equal(t, []int{2, 3, 4, 1}, positions(), "nobody's record is older than eight seconds after a pass")
	require.Zero(t, count(t, db, "SELECT count(*) FROM capacity_waits WHERE checked_at < clock_timestamp() - interval '8 seconds'"))
}

// A phase that is deleted by hand while a pass reads the queue is not in it. The
// pass is kept between the two by a lock on the table that it reads next.
func TestAPassGoesOnWithoutAPhaseThatIsDeletedMeanwhile(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1000))
	fresh := another(t, db, rules) // it knows nothing of the queue
	_, err := fresh.Pass(ctx, pool, nil, ledger.WakeEvent)
	require.NoError(t, err, "its statements are prepared, which the lock would keep from it")
	asks(t, s, "holder", 1000)
	deleted, _ := asks(t, s, "deleted", 1000)
	stays, _ := asks(t, s, "stays", 1000)
	tx, err := db.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "LOCK TABLE capacity_holds IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	passed := make(chan error, 1)
	go func() {
		_, err := fresh.Pass(ctx, pool, nil, ledger.WakeEvent)
		passed <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'capacity_holds'::regclass AND NOT granted)").Scan(&waits)
		return err == nil && waits
	}, 10*time.Second, 5*time.Millisecond)
	_, err = tx.Exec(ctx, "DELETE FROM mission_phases WHERE id = $1", deleted)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))

	require.NoError(t, <-passed)

	require.Equal(t, 1, look(t, fresh, stays, 1, ledger.WakeTimer).Waiting.Position)
}
