package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// A phase that lost its node is placed before those who asked after it, and waits
// only once it is refused again.
func TestAPhaseThatLostItsNodeKeepsItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		end   ledger.RunEnd
		drain bool
	}{
		"lost":    {end: ledger.RunEnd{Status: "lost", FailureCode: "node_lost"}},
		"drained": {end: ledger.RunEnd{Status: "cancelled", FailureCode: "drained"}, drain: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s, db := open(t, patient)
			register(t, s, node("a", 1024))
			var ids []int64
			for _, mission := range []string{"first", "second", "third", "fourth"} {
				ids = append(ids, launch(t, s, draft(mission, 1, 1000, time.Hour)).Phases[0].ID)
				o := look(t, s, ids[len(ids)-1], 1, ledger.WakeFirst)
				require.Equal(t, mission == "first", o.Placed != nil)
			}
			positions := func() (all []int) {
				waits, err := s.ListWaits(ctx, api.WaitRequest{}, time.Second)
				require.NoError(t, err)
				at := map[string]int{}
				for _, w := range waits.Waits {
					at[w.Mission] = w.Position
				}
				return []int{at["first"], at["second"], at["third"], at["fourth"]}
			}
			require.Equal(t, []int{0, 1, 2, 3}, positions())
			if c.drain {
				require.NoError(t, change(t, s, "a", capacity.Draining))
			} else {
				listens(t, s, db, 5*time.Minute)
			}

			attempt, err := s.RetryPhase(ctx, ids[0], 1, c.end)
			require.NoError(t, err)
			require.Equal(t, 2, attempt)
			require.Equal(t, 1, count(t, db, "SELECT count(*) FROM mission_phases WHERE id = $1 AND status = 'pending' AND capacity_blocked_since IS NULL AND capacity_note IS NULL", ids[0]))
			require.Equal(t, []int{0, 1, 2, 3}, positions(), "it does not wait yet")

			before, err := s.Now(ctx)
			require.NoError(t, err)
			o := look(t, s, ids[0], 2, ledger.WakeFirst)
			require.NotNil(t, o.Waiting)
			require.False(t, o.Waiting.Since.Before(before), "it waits from now on")
			require.Equal(t, map[bool]capacity.Code{true: "nodes_draining", false: "nodes_lost"}[c.drain], o.Waiting.Code)
			_, err = s.Pass(ctx, pool, nil, ledger.WakeEvent)
			require.NoError(t, err)
			require.Equal(t, 1, o.Waiting.Position)

			if c.drain {
				require.NoError(t, change(t, s, "a", capacity.Ready))
			}
			register(t, s, node("a", 2048)) // room for two
			res, err := s.Pass(ctx, pool, nil, ledger.WakeEvent)
			require.NoError(t, err)
			require.Equal(t, 2, res.Admitted)
			require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE id = $1 AND attempt = 2", store.RunID(ids[0], 2)))
			require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE id = $1", store.RunID(ids[1], 1)))
			require.Equal(t, []int{0, 0, 1, 2}, positions())
		})
	}
}

// What a node is may change while phases wait for it.
func TestLabelsChangeWhilePhasesWait(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, patient)
	eu := node("a", 1024)
	eu.Labels = map[string]string{"zone": "eu"}
	register(t, s, eu, node("b", 1024))
	require.NoError(t, change(t, s, "a", capacity.Cordoned))
	d := draft("m", 1, 1000, time.Hour)
	d.Phases[0].Demand.Labels = map[string]string{"zone": "eu"}
	id := launch(t, s, d).Phases[0].ID
	require.Equal(t, capacity.CodeNodesDraining, look(t, s, id, 1, ledger.WakeFirst).Waiting.Code)

	b := node("b", 1024)
	b.BootID, b.Labels, b.Arch = "boot-2", map[string]string{"zone": "eu"}, "arm64"
	res, err := s.Heartbeat(ctx, b)
	require.NoError(t, err)
	require.True(t, res.Changed, "those who wait are looked at")
	require.Equal(t, "b", look(t, s, id, 1, ledger.WakeEvent).Placed.NodeID)
	n, err := s.ShowNode(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, []any{"arm64", map[string]string{"zone": "eu"}}, []any{n.Arch, n.Labels})

	d = draft("other", 1, 10, time.Hour)
	d.Phases[0].Demand.Labels = map[string]string{"zone": "eu"}
	other := launch(t, s, d).Phases[0].ID
	b.BootID, b.Labels = "boot-3", nil
	_, err = s.Heartbeat(ctx, b)
	require.NoError(t, err)
	require.NotNil(t, look(t, s, other, 1, ledger.WakeFirst).Waiting, "node a could, were it not cordoned")
	require.NoError(t, change(t, s, "a", capacity.Retired))
	require.Equal(t, capacity.CodeLabelsUnmatched, look(t, s, other, 1, ledger.WakeTimer).Incapable.Code)
}

func TestADrainIsOverWhenResultsHaveArrived(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, patient)
	register(t, s, node("a", 1024))
	id := launch(t, s, draft("m", 1, 1000, time.Hour)).Phases[0].ID
	placed := look(t, s, id, 1, ledger.WakeFirst).Placed
	require.NoError(t, s.ChangeNode(ctx, store.NodeChange{Node: "a", Actor: "ann", Reason: "upgrade", To: capacity.Draining, Deadline: time.Hour}))
	settle := func() []string {
		runs, err := s.SettleDrains(ctx)
		require.NoError(t, err)
		return runs
	}
	require.Empty(t, settle())
	_, err := db.Exec(ctx, "UPDATE nodes SET drain_deadline = now() - interval '1 second'")
	require.NoError(t, err)
	require.Equal(t, []string{placed.RunID}, settle())
	require.Empty(t, settle(), "it is told once")
	signals, err := s.Signals(ctx, 10)
	require.NoError(t, err)
	require.Len(t, signals, 1)
	require.Equal(t, []string{"phase.m.p1", "evict"}, []string{signals[0].WorkflowID, signals[0].Name})
	require.JSONEq(t, `{"runId": "r1-1", "why": "node a had to be empty: its drain by ann (upgrade) has passed its deadline"}`, string(signals[0].Payload))
	_, err = db.Exec(ctx, "UPDATE topology_runs SET evicted_at = now() - interval '2 minutes'")
	require.NoError(t, err)
	require.Equal(t, []string{placed.RunID}, settle(), "and again, when that did nothing")

	h := node("a", 1024)
	h.Ended = []string{placed.RunID}
	_, err = s.Heartbeat(ctx, h)
	require.NoError(t, err)
	settle()
	n, err := s.ShowNode(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, []any{"draining", int64(1), int64(0)}, []any{n.State, n.Uploads, n.Reserved.Slots})
	require.ErrorContains(t, change(t, s, "a", capacity.Retired), "node a still holds the results of 1 run(s) that are not committed yet")
	finish(t, s, id)
	settle()
	require.Equal(t, "drained", state(t, s, "a"))
	require.NoError(t, change(t, s, "a", capacity.Retired))
	res, err := s.Heartbeat(ctx, node("a", 1024))
	require.NoError(t, err)
	require.Equal(t, "node a is retired by me: a test; to use it again, `tidewait node retire a --undo`, then start the agent", res.Reply.End)
	require.Equal(t, "retired", state(t, s, "a"))
	require.NoError(t, s.ReinstateNode(ctx, store.NodeChange{Node: "a"}))
	require.Equal(t, "ready", state(t, s, "a"))
}

// A silence is shown with what a person had decided.
func TestASilentNodeStillSaysWhatItWas(t *testing.T) {
	s, db := open(t, patient)
	register(t, s, node("a", 1024))
	require.NoError(t, change(t, s, "a", capacity.Cordoned))
	listens(t, s, db, 70*time.Second)

	n, err := s.ShowNode(context.Background(), "a")

	require.NoError(t, err)
	require.Equal(t, []string{"suspect", "cordoned", "no heartbeat for 1m10s; it was cordoned: a test", "me"}, []string{n.State, n.Decided, n.StateReason, n.StateActor})
	require.WithinDuration(t, n.Heartbeat.Add(time.Minute), n.StateSince, time.Second)
	require.NoError(t, change(t, s, "a", capacity.Draining), "a silent node can be drained")
	require.Equal(t, "suspect", state(t, s, "a"))
	register(t, s, node("a", 1024))
	require.Equal(t, "drained", state(t, s, "a"))
}
