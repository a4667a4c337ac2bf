package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/internal/vm"
)

func change(t testing.TB, s *store.Store, id string, to capacity.NodeState) error {
	t.Helper()
	return s.ChangeNode(context.Background(), store.NodeChange{Node: id, Actor: "me", Reason: "a test", To: to})
}

func TestNodeLifeCycle(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)

	require.NoError(t, change(t, s, "a", capacity.Draining))
	require.ErrorIs(t, change(t, s, "a", capacity.Retired), store.ErrConflict)
	n, err := s.ShowNode(context.Background(), "a")
	require.NoError(t, err)
	require.Equal(t, []string{"draining", "a test", "me"}, []string{n.State, n.StateReason, n.StateActor})
	require.Len(t, n.Runs, 1)

	_, err = s.SettleDrains(context.Background())
	require.NoError(t, err)
	n, _ = s.ShowNode(context.Background(), "a")
	require.Equal(t, "draining", n.State, "a node that still runs something is not drained")

	finish(t, s, l.Phases[0].ID)
	_, err = s.SettleDrains(context.Background())
	require.NoError(t, err)
	n, _ = s.ShowNode(context.Background(), "a")
	require.Equal(t, "drained", n.State)

	require.NoError(t, change(t, s, "a", capacity.Retired))
	require.ErrorIs(t, change(t, s, "a", capacity.Ready), store.ErrConflict)
	require.ErrorIs(t, change(t, s, "nobody", capacity.Ready), store.ErrNotFound)
}

func TestHeartbeatNamesUnwantedMachinesAndReleasesEndedOnes(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)

	h := node("a", 1024)
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run", Started: true, Accel: "tcg", Kernel: "6.1"}, {ID: "r99-1", Step: "run"}}
	res, err := s.Heartbeat(context.Background(), h)
	require.NoError(t, err)
	require.Equal(t, []string{"r99-1"}, res.Reply.Destroy, "the engine never gave out r99-1")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE status = 'running' AND step = 'run' AND accel = 'tcg' AND kernel = '6.1'"))

	h.Runs, h.Ended = nil, []string{"r1-1"}
	res, err = s.Heartbeat(context.Background(), h)
	require.NoError(t, err)
	require.True(t, res.Changed, "room was made")
	require.Zero(t, count(t, db, "SELECT memory_reserved FROM nodes"))
	res, err = s.Heartbeat(context.Background(), h)
	require.NoError(t, err, "saying it twice changes nothing")
	require.Equal(t, "ready", res.Reply.State)
}

func TestOneHeartbeatReleasesSeveralRuns(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 3, 1000, time.Hour))
	for _, p := range l.Phases {
		require.NotNil(t, look(t, s, p.ID, 1, ledger.WakeFirst).Placed)
	}
	h := node("a", 4096)
	h.Ended = []string{"r1-1", "r3-1", "r99-1"}

	_, err := s.Heartbeat(context.Background(), h)

	require.NoError(t, err)
	require.Equal(t, 1000, count(t, db, "SELECT memory_reserved FROM nodes"))
	wrong, err := s.Audit(context.Background())
	require.NoError(t, err)
	require.Empty(t, wrong)
}

func TestNodeThatShrankKeepsWhatIsReserved(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)

	register(t, s, node("a", 512))
	require.Equal(t, 1000, count(t, db, "SELECT memory_total FROM nodes"))
	finish(t, s, l.Phases[0].ID)
	register(t, s, node("a", 512))
	require.Equal(t, 512, count(t, db, "SELECT memory_total FROM nodes"))
}

// TestLostRunsAreJudged follows a run whose activity was lost through all that
// its node may say or not say.
func TestLostRunsAreJudged(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	judge := func() ledger.Verdict {
		t.Helper()
		v, err := s.JudgeRun(ctx, "r1-1", false)
		require.NoError(t, err)
		return v
	}

	first := judge()
	require.False(t, first.Gone)
	require.Equal(t, "node a is silent; its agent may still have run r1-1", first.Reason)
	require.Positive(t, first.Left)

	h := node("a", 1024)
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run"}}
	_, err := s.Heartbeat(ctx, h)
	require.NoError(t, err)
	still := judge()
	require.False(t, still.Gone)
	require.Equal(t, "node a still has run r1-1 and is told to destroy it", still.Reason)
	require.True(t, first.Since.Equal(still.Since))
	res, err := s.Heartbeat(ctx, h)
	require.NoError(t, err)
	require.Equal(t, []string{"r1-1"}, res.Reply.Destroy)

	h.Runs, h.Ended = nil, []string{"r1-1"}
	_, err = s.Heartbeat(ctx, h)
	require.NoError(t, err)
	require.True(t, judge().Gone)

	require.Equal(t, 1000, count(t, db, "SELECT memory_reserved FROM nodes"), "the phase keeps its room until it queues again")
	attempt, err := s.RetryPhase(ctx, l.Phases[0].ID, 1, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
	require.NoError(t, err)
	require.Equal(t, 2, attempt)
	require.Zero(t, count(t, db, "SELECT memory_reserved FROM nodes"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE id = 'r1-1' AND status = 'lost' AND failure_code = 'node_lost'"))
}

// TestKeptRunsAreNotLost follows a run whose agent was started again.
func TestKeptRunsAreNotLost(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	judge := func() ledger.Verdict {
		t.Helper()
		v, err := s.JudgeRun(ctx, "r1-1", false)
		require.NoError(t, err)
		return v
	}
	h := node("a", 1024)
	h.BootID = "the next"
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run", Started: true, Adopted: true}}
	beat := func() []string {
		t.Helper()
		res, err := s.Heartbeat(ctx, h)
		require.NoError(t, err)
		return res.Reply.Destroy
	}

	require.Empty(t, beat())
	kept := judge()
	require.Equal(t, []any{true, false, "the next agent of node a goes on with run r1-1"}, []any{kept.Kept, kept.Gone, kept.Reason})
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE id = 'r1-1' AND suspected_at IS NULL AND status = 'running'"))

	h.Runs[0].Adopted = false
	require.Empty(t, beat(), "somebody has asked for it")
	require.Equal(t, "node a is silent; its agent may still have run r1-1", judge().Reason, "it is suspected anew")
	require.Empty(t, beat())
	require.Equal(t, "node a still has run r1-1 and is told to destroy it", judge().Reason)
	require.Equal(t, []string{"r1-1"}, beat())

	h.Runs, h.GivenUp = nil, map[string]string{"r1-1": "its keeper is gone"}
	require.Empty(t, beat())
	gone := judge()
	require.Equal(t, []any{false, true, "the agent of node a came back without run r1-1: its keeper is gone"}, []any{gone.Kept, gone.Gone, gone.Reason})
}

// TestAKeptRunCanBeGivenUp: its node is told, and it is gone when the node has it
// no more.
func TestAKeptRunCanBeGivenUp(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	h := node("a", 1024)
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run", Adopted: true}}
	judge := func() []any {
		t.Helper()
		v, err := s.JudgeRun(ctx, "r1-1", true)
		require.NoError(t, err)
		return []any{v.Kept, v.Gone, v.Reason}
	}
	beat := func() []string {
		t.Helper()
		res, err := s.Heartbeat(ctx, h)
		require.NoError(t, err)
		return res.Reply.Destroy
	}
	require.Empty(t, beat())
	require.Equal(t, []any{false, false, "node a does not take up run r1-1, and is told to destroy it"}, judge())
	require.Equal(t, []string{"r1-1"}, beat())
	require.Equal(t, []any{false, false, "node a still has run r1-1 and is told to destroy it"}, judge())
	h.Runs, h.Ended = nil, []string{"r1-1"}
	require.Empty(t, beat())
	require.Equal(t, []any{false, true, "the agent of node a came back without run r1-1"}, judge())
}

// TestAKeptRunOfASilentNodeIsNotKept: what an agent said before it was silent again
// is not so for ever.
func TestAKeptRunOfASilentNodeIsNotKept(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	h := node("a", 1024)
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run", Adopted: true}}
	_, err := s.Heartbeat(ctx, h)
	require.NoError(t, err)
	_, err = db.Exec(ctx, "UPDATE nodes SET silent_before = $1", rules.SuspectAfter+time.Second)
	require.NoError(t, err)

	v, err := s.JudgeRun(ctx, "r1-1", false)
	require.NoError(t, err)
	require.Equal(t, []any{false, false, "node a is silent; its agent may still have run r1-1"}, []any{v.Kept, v.Gone, v.Reason})
}

// TestMachinesWithoutAReservationAreUnwanted, and the other way round; both are
// counted.
func TestMachinesWithoutAReservationAreUnwanted(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	h := node("a", 1024)
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run"}}
	h.Leaks = api.Leaks{Leaks: vm.Leaks{Processes: 2}, Machines: 1}
	destroy := func() []string {
		t.Helper()
		res, err := s.Heartbeat(ctx, h)
		require.NoError(t, err)
		return res.Reply.Destroy
	}
	require.Empty(t, destroy())
	_, err := db.Exec(ctx, "UPDATE reservations SET released_at = clock_timestamp()")
	require.NoError(t, err)
	require.Empty(t, destroy(), "it may be about to end")
	_, err = db.Exec(ctx, "UPDATE reservations SET released_at = clock_timestamp() - $1::interval", rules.LostAfter+time.Second)
	require.NoError(t, err)
	require.Equal(t, []string{"r1-1"}, destroy())
	h.Runs[0].Step = "destroy"
	require.Empty(t, destroy(), "it ends already")

	_, err = db.Exec(ctx, "UPDATE reservations SET released_at = NULL")
	require.NoError(t, err)
	_, err = db.Exec(ctx, "UPDATE topology_runs SET status = 'lost', ended_at = clock_timestamp() - interval '1 second'")
	require.NoError(t, err)
	h.Runs = nil
	require.Empty(t, destroy())
	runs, err := s.ReleaseOrphans(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"r1-1"}, runs)
	runs, err = s.ReleaseOrphans(ctx)
	require.NoError(t, err)
	require.Empty(t, runs)
	shown, err := s.ShowNode(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, int64(1), shown.Orphaned)
	require.Equal(t, h.Leaks, shown.Leaks)
}

func TestMissionThatLostItsWorkflowKeepsItsNodeUntilTheMachineIsGone(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 2, 1000, time.Hour))
	require.NotNil(t, look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	h := node("a", 1024)
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "run"}}
	_, err := s.Heartbeat(ctx, h)
	require.NoError(t, err)

	end := ledger.MissionEnd{Status: "failed", FailureCode: ledger.CodeWorkflowLost, Failure: "gone"}
	require.NoError(t, s.FinishMission(ctx, l.MissionID, l.Launch, end))

	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM mission_phases WHERE name = 'p1' AND status = 'failed' AND failure_code = 'workflow_lost'"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM mission_phases WHERE name = 'p2' AND status = 'cancelled' AND failure_code = 'mission_ended'"))
	runs, err := s.ReleaseOrphans(ctx)
	require.NoError(t, err)
	require.Empty(t, runs, "the machine may still be there")
	res, err := s.Heartbeat(ctx, h)
	require.NoError(t, err)
	require.Equal(t, []string{"r1-1"}, res.Reply.Destroy)
	runs, err = s.ReleaseOrphans(ctx)
	require.NoError(t, err)
	require.Empty(t, runs, "the agent still names it")
	h.Runs = nil
	_, err = s.Heartbeat(ctx, h)
	require.NoError(t, err)
	runs, err = s.ReleaseOrphans(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"r1-1"}, runs)
	require.Zero(t, count(t, db, "SELECT memory_reserved FROM nodes"))
}

// TestACancelledRunHoldsItsRoomUntilItsMachineIsGone: its phase ended while nobody
// could say whether the machine was there.
func TestACancelledRunHoldsItsRoomUntilItsMachineIsGone(t *testing.T) {
	ctx := context.Background()
	cancelled := ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: enough"}
	// Each returns when the room is free.
	for name, free := range map[string]func(t *testing.T, s *store.Store, db *pgx.Conn){
		"the next agent has it, and ends it": func(t *testing.T, s *store.Store, db *pgx.Conn) {
			h := node("a", 1024)
			h.BootID, h.Runs = "another", []api.RunReport{{ID: "r1-1", Step: "run", Started: true, Adopted: true}}
			res, err := s.Heartbeat(ctx, h)
			require.NoError(t, err)
			require.Equal(t, []string{"r1-1"}, res.Reply.Destroy)
			runs, err := s.ReleaseOrphans(ctx)
			require.NoError(t, err)
			require.Empty(t, runs)
			require.Equal(t, 1000, count(t, db, "SELECT memory_reserved FROM nodes"))
			h.Runs, h.Ended = nil, []string{"r1-1"}
			_, err = s.Heartbeat(ctx, h)
			require.NoError(t, err)
		},
		"the next agent does not have it": func(t *testing.T, s *store.Store, _ *pgx.Conn) {
			h := node("a", 1024)
			h.BootID = "another"
			_, err := s.Heartbeat(ctx, h)
			require.NoError(t, err)
			runs, err := s.ReleaseOrphans(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"r1-1"}, runs)
		},
		"its lease is over": func(t *testing.T, s *store.Store, db *pgx.Conn) {
			_, err := db.Exec(ctx, "UPDATE nodes SET silent_before = $1", rules.LostAfter+time.Second)
			require.NoError(t, err)
			runs, err := s.ReleaseOrphans(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"r1-1"}, runs)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, db := open(t, rules)
			register(t, s, node("a", 1024))
			first := launch(t, s, draft("m", 1, 1000, time.Hour))
			require.NotNil(t, look(t, s, first.Phases[0].ID, 1, ledger.WakeFirst).Placed)
			next := launch(t, s, draft("next", 1, 1000, time.Hour))
			require.NotNil(t, look(t, s, next.Phases[0].ID, 1, ledger.WakeFirst).Waiting)

			_, err := s.FinishPhase(ctx, first.Phases[0].ID,
				ledger.RunEnd{Status: "cancelled", FailureCode: "cancelled", Failure: cancelled.Failure, Lingers: true}, cancelled)
			require.NoError(t, err)

			require.Equal(t, 1000, count(t, db, "SELECT memory_reserved FROM nodes"))
			require.NotNil(t, look(t, s, next.Phases[0].ID, 1, ledger.WakeTimer).Waiting, "the machine may be there")
			runs, err := s.ReleaseOrphans(ctx)
			require.NoError(t, err)
			require.Empty(t, runs)

			free(t, s, db)
			require.Zero(t, count(t, db, "SELECT memory_reserved FROM nodes"))
			require.Zero(t, count(t, db, "SELECT orphaned FROM nodes"), "it was left so on purpose")
		})
	}
}
