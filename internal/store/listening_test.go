package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// patient are rules that no real time of a test outlasts; what a test wants to be
// over it moves into the past.
var patient = store.Rules{SuspectAfter: time.Minute, LostAfter: 4 * time.Minute, HeadWindow: 64}

// past lets time pass for the ledger: all of its clocks are set back.
func past(t testing.TB, db *pgx.Conn, d time.Duration) {
	t.Helper()
	for _, sql := range []string{
		"UPDATE nodes SET heartbeat_at = heartbeat_at - $1::interval, lost_at = lost_at - $1::interval",
		"UPDATE listening SET since = since - $1::interval, heard_at = heard_at - $1::interval",
	} {
		_, err := db.Exec(context.Background(), sql, d)
		require.NoError(t, err)
	}
}

// listens lets an engine listen without a gap while time passes.
func listens(t testing.TB, s *store.Store, db *pgx.Conn, d time.Duration) {
	t.Helper()
	for step := 20 * time.Second; d > 0; d -= step {
		past(t, db, min(step, d))
		res, err := s.Listen(context.Background())
		require.NoError(t, err)
		require.Zero(t, res.Gap)
	}
}

func state(t testing.TB, s *store.Store, id string) string {
	t.Helper()
	n, err := s.ShowNode(context.Background(), id)
	require.NoError(t, err)
	list, err := s.ListNodes(context.Background(), n.State)
	require.NoError(t, err)
	require.NotEmpty(t, list.Nodes, "list and show say the same")
	return n.State
}

func TestSilenceCountsWhileSomebodyListens(t *testing.T) {
	s, db := open(t, patient)
	register(t, s, node("a", 1024))

	listens(t, s, db, 50*time.Second)
	require.Equal(t, "ready", state(t, s, "a"))
	listens(t, s, db, 20*time.Second)
	require.Equal(t, "suspect", state(t, s, "a"))
	lost, err := s.DeclareLost(context.Background())
	require.NoError(t, err)
	require.Empty(t, lost)

	listens(t, s, db, 180*time.Second)
	n, err := s.ShowNode(context.Background(), "a")
	require.NoError(t, err)
	require.Equal(t, "down", n.State)
	require.Regexp(t, `^no heartbeat for 4m1\ds$`, n.StateReason)
	require.WithinDuration(t, n.Heartbeat.Add(4*time.Minute), n.StateSince, 10*time.Second)
	require.EqualValues(t, 1, n.Epoch)

	for _, want := range [][]string{{"a"}, {}} {
		lost, err := s.DeclareLost(context.Background())
		require.NoError(t, err)
		require.Equal(t, want, lost, "a silence counts once")
	}
	res, err := s.Heartbeat(context.Background(), node("a", 1024))
	require.NoError(t, err)
	require.EqualValues(t, 2, res.Reply.Epoch, "the agent hears that it was given up")
	require.Equal(t, "ready", state(t, s, "a"))
}

// An outage of all engines, of NATS or of the database looks the same: for as long
// as it lasts nobody listens.
func TestAfterAnOutageEveryNodeGetsAFreshGrace(t *testing.T) {
	s, db := open(t, patient)
	register(t, s, node("a", 1024), node("quiet", 1024))
	listens(t, s, db, 70*time.Second)
	register(t, s, node("a", 1024))
	require.Equal(t, []string{"ready", "suspect"}, []string{state(t, s, "a"), state(t, s, "quiet")})

	past(t, db, time.Hour)
	require.Equal(t, []string{"ready", "suspect"}, []string{state(t, s, "a"), state(t, s, "quiet")}, "nobody listened")
	for range 2 { // whoever comes first
		res, err := another(t, db, patient).Listen(context.Background())
		require.NoError(t, err)
		require.Equal(t, res.Gap > 0, res.Gap > time.Hour)
	}
	lost, err := s.DeclareLost(context.Background())
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, []string{"ready", "suspect"}, []string{state(t, s, "a"), state(t, s, "quiet")}, "who was suspect before stays so")

	listens(t, s, db, 50*time.Second)
	require.Equal(t, "ready", state(t, s, "a"))
	listens(t, s, db, 20*time.Second)
	require.Equal(t, "suspect", state(t, s, "a"))
	listens(t, s, db, 160*time.Second)
	require.Equal(t, []string{"suspect", "suspect"}, []string{state(t, s, "a"), state(t, s, "quiet")}, "a whole grace for both")
	listens(t, s, db, 20*time.Second)
	require.Equal(t, []string{"down", "down"}, []string{state(t, s, "a"), state(t, s, "quiet")})
}

// Outages that follow each other do not add up to a silence.
func TestOutagesDoNotAddUp(t *testing.T) {
	s, db := open(t, patient)
	register(t, s, node("a", 1024))
	for range 10 {
		past(t, db, 10*time.Minute)
		res, err := s.Listen(context.Background())
		require.NoError(t, err)
		require.Positive(t, res.Gap)
		listens(t, s, db, 40*time.Second)
	}
	require.Equal(t, "ready", state(t, s, "a"))
}

func TestAShortOutageIsNoGap(t *testing.T) {
	s, db := open(t, patient)
	register(t, s, node("a", 1024))
	past(t, db, 29*time.Second)

	res, err := s.Listen(context.Background())

	require.NoError(t, err)
	require.Zero(t, res.Gap)
	require.Equal(t, "ready", state(t, s, "a"))
}

// The run of a node that falls silent is judged by what was listened to, and not
// by the clock.
func TestARunIsGivenUpAfterAFullGraceOnly(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, patient)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	placed := look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed
	require.EqualValues(t, 1, placed.Epoch)
	judge := func() ledger.Verdict {
		t.Helper()
		v, err := s.JudgeRun(ctx, placed.RunID, false)
		require.NoError(t, err)
		return v
	}
	listens(t, s, db, 200*time.Second)
	require.InDelta(t, 40, judge().Left.Seconds(), 10)

	past(t, db, time.Hour)
	require.False(t, judge().Gone, "an engine that was frozen has heard nobody")
	_, err := s.Listen(ctx)
	require.NoError(t, err)
	require.InDelta(t, 240, judge().Left.Seconds(), 10, "a whole grace")
	listens(t, s, db, 60*time.Second)
	require.InDelta(t, 180, judge().Left.Seconds(), 10, "its end stays where it is, though its silence was longer before")
	listens(t, s, db, 160*time.Second)
	require.False(t, judge().Gone)
	require.NoError(t, s.MayCommit(ctx, placed.RunID, placed.Epoch), "until it is given up it may come back")

	listens(t, s, db, 20*time.Second)
	v := judge()
	require.True(t, v.Gone)
	require.Equal(t, "node a has been silent for 4m0s", v.Reason)
	require.ErrorIs(t, s.MayCommit(ctx, placed.RunID, placed.Epoch), store.ErrStale)
	require.ErrorContains(t, s.MayCommit(ctx, placed.RunID, placed.Epoch), "node a was given up since it was placed: epoch 1 is over, it is 2 now")
	require.True(t, judge().Gone)
	n, err := s.ShowNode(ctx, "a")
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Epoch, "asking again gives it up no more")

	attempt, err := s.RetryPhase(ctx, l.Phases[0].ID, 1, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
	require.NoError(t, err)
	require.Equal(t, 2, attempt)
	register(t, s, node("a", 1024))
	again := look(t, s, l.Phases[0].ID, 2, ledger.WakeFirst).Placed
	require.Equal(t, &ledger.Placed{RunID: "r1-2", NodeID: "a", Attempt: 2, Turn: time.Hour, Epoch: 2}, again)
	require.Equal(t, again, look(t, s, l.Phases[0].ID, 2, ledger.WakeTimer).Placed, "asking again gives the same")
	require.ErrorContains(t, s.MayCommit(ctx, "r1-1", 1), "it has ended as lost: the run does not count any more")
	require.ErrorContains(t, s.MayCommit(ctx, "r1-2", 1), "it was placed in epoch 2 of node a, not in 1")
	require.ErrorContains(t, s.MayCommit(ctx, "r9-1", 1), "there is no such run")
	require.NoError(t, s.MayCommit(ctx, "r1-2", 2))

	_, err = s.FinishPhase(ctx, l.Phases[0].ID, ledger.RunEnd{RunID: "r1-1", Status: "succeeded"}, ledger.Ended{Status: "succeeded", Commit: "c1"})
	require.ErrorIs(t, err, store.ErrStale, "nor does it make the phase succeed")
	ended, err := s.FinishPhase(ctx, l.Phases[0].ID, ledger.RunEnd{RunID: "r1-2", Status: "succeeded"}, ledger.Ended{Status: "succeeded", Commit: "c2"})
	require.NoError(t, err)
	require.Equal(t, "c2", ended.Commit)
	require.ErrorContains(t, s.MayCommit(ctx, "r1-2", 2), "it has ended as succeeded")
}

// A run that its agent had done with before the node fell silent is complete, and
// waits for its gateway only.
func TestAFinishedRunOutlivesItsNode(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, patient)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	placed := look(t, s, l.Phases[0].ID, 1, ledger.WakeFirst).Placed
	h := node("a", 1024)
	h.Ended = []string{placed.RunID}
	_, err := s.Heartbeat(ctx, h)
	require.NoError(t, err)
	listens(t, s, db, 5*time.Minute)
	lost, err := s.DeclareLost(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, lost)

	require.NoError(t, s.MayCommit(ctx, placed.RunID, placed.Epoch))
}

func TestAHeartbeatThatWasOvertakenChangesNothing(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, patient)
	beat := func(boot string, number int64, memory int64) (api.HeartbeatReply, error) {
		h := node("a", memory)
		h.BootID, h.Number = boot, number
		res, err := s.Heartbeat(ctx, h)
		return res.Reply, err
	}
	_, err := beat("first", 7, 1024)
	require.NoError(t, err)
	_, err = beat("first", 7, 1024)
	require.NoError(t, err, "the answer may have been lost")
	_, err = beat("first", 6, 512)
	require.ErrorIs(t, err, store.ErrConflict)
	_, err = beat("second", 1, 2048)
	require.NoError(t, err, "another process counts anew")

	reply, err := beat("first", 8, 512)

	require.NoError(t, err)
	require.Equal(t, "another agent process speaks for node a; stop one of the two, or give it a node.id of its own", reply.End)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM nodes WHERE memory_total = 2048 AND boot_id = 'second' AND beat = 1"))
	for i := range 40 {
		_, err = beat(string(rune('a'+i)), 1, 2048)
		require.NoError(t, err)
	}
	require.Equal(t, 32, count(t, db, "SELECT cardinality(former_boots) FROM nodes"))
}
