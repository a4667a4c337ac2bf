package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/internal/vm"
)

// TestNodesThatHaveTheImageArePreferred follows what nodes tell of their images
// into placement, and what a run had into its record.
func TestNodesThatHaveTheImageArePreferred(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	small, large := node("a-small", 1024), node("b-large", 8192)
	register(t, s, small)
	register(t, s, large)
	place := func(mission string) (int64, string) {
		d := draft(mission, 1, 512, time.Hour)
		d.Phases[0].Demand.Images = []string{"registry.example.com/tool:1"}
		id := launch(t, s, d).Phases[0].ID
		res, err := s.Pass(ctx, d.Phases[0].Demand.Backend, []store.Look{{PhaseID: id, Attempt: 1, Wake: ledger.WakeFirst}}, ledger.WakeFirst)
		require.NoError(t, err)
		require.NotNil(t, res.Outcomes[id].Placed)
		return id, res.Outcomes[id].Placed.NodeID
	}
	_, on := place("before")
	require.Equal(t, "a-small", on, "nobody has it, and this one is filled best")

	large.Images = []string{"sha256:other", "registry.example.com/tool:1"}
	register(t, s, large)
	id, on := place("after")
	require.Equal(t, "b-large", on)
	shown, err := s.ShowNode(ctx, "b-large")
	require.NoError(t, err)
	require.Equal(t, large.Images, shown.Images)

	_, err = s.FinishPhase(ctx, id, ledger.RunEnd{Status: "succeeded", Info: vm.Info{Image: "registry.example.com/tool:1@sha256:1"}}, ledger.Ended{Status: "succeeded"})
	require.NoError(t, err)
	m, err := s.ShowMission(ctx, "after", 0, time.Second)
	require.NoError(t, err)
	require.Equal(t, "registry.example.com/tool:1@sha256:1", m.PhaseList[0].Runs[0].Image)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs WHERE image <> ''"))

	large.Images = nil
	register(t, s, large)
	_, on = place("evicted")
	require.Equal(t, "a-small", on)
}
