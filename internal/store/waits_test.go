package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// A node whose turn ends first has no part in the wait of a phase that it could
// never run, although it is of the same pool and is told among the nodes there are.
func TestWaitsOfANodeAreThoseItHasAPartIn(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("small", 1024))
	first := launch(t, s, draft("first", 1, 1000, time.Hour))
	require.Equal(t, "small", look(t, s, first.Phases[0].ID, 1, ledger.WakeFirst).Placed.NodeID)
	register(t, s, node("large", 4096))
	second := launch(t, s, draft("second", 1, 4000, time.Hour))
	require.Equal(t, "large", look(t, s, second.Phases[0].ID, 1, ledger.WakeFirst).Placed.NodeID)
	waiter := launch(t, s, draft("waiter", 1, 3000, time.Hour))
	require.NotNil(t, look(t, s, waiter.Phases[0].ID, 1, ledger.WakeFirst).Waiting)

	list, err := s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	require.Len(t, list.Waits, 1)
	w := list.Waits[0]
	require.Equal(t, []any{"small", "large", "large"}, []any{w.FreesNode, w.BestNode, w.StartsOn})
	require.Equal(t, "large short by 2904 MiB of memory, small too small by 1976 MiB of memory",
		w.Nodes[0].NodeID+" "+w.Nodes[0].Why+", "+w.Nodes[1].NodeID+" "+w.Nodes[1].Why)
	for id, want := range map[string][]string{"small": nil, "large": {"waiter"}, "none": nil} {
		list, err := s.ListWaits(ctx, api.WaitRequest{Node: id}, time.Minute)
		require.NoError(t, err)
		var got []string
		for _, w := range list.Waits {
			got = append(got, w.Mission)
		}
		require.Equal(t, want, got, id)
	}
}

// More waits than a list shows are older than those of the missions listed.
func TestMissionsAreListedWithTheirWaitsHoweverManyAreOlder(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, holder.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	_, err := db.Exec(ctx, `
WITH m AS (INSERT INTO missions (name, document, status) SELECT 'old-' || i, '{"spec": {"phases": []}}', 'running' FROM generate_series(1, 501) i RETURNING id, name)
INSERT INTO open_waits (workflow_id, mission_id, kind, code, reason, since)
SELECT 'mission.' || name, id, 'gateway', 'gateway_unreachable', 'why', clock_timestamp() - interval '1 hour' FROM m`)
	require.NoError(t, err)
	waiter := launch(t, s, draft("waiter", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, waiter.Phases[0].ID, 1, ledger.WakeFirst).Waiting)

	list, err := s.ListMissions(ctx, "", 2, time.Minute)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"waiter", "capacity", "capacity_memory"}, []string{list[0].Name, list[0].Wait.Kind, list[0].Wait.Code})
	require.Equal(t, []string{"old-501", "gateway", "gateway_unreachable"}, []string{list[1].Name, list[1].Wait.Kind, list[1].Wait.Code})
	waits, err := s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	require.Len(t, waits.Waits, 500)
	require.True(t, waits.More)
	detail, err := s.ShowMission(ctx, "waiter", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "capacity_memory", detail.PhaseList[0].Wait.Code)
}
