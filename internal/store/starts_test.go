package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/internal/vm"
)

// TestHowMachinesAreStarted follows what an agent says of its starts into the
// records of the node and of the run.
func TestHowMachinesAreStarted(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	const microvm = "microvm"
	h := node("a", 1024)
	h.StartLimit, h.Backends = 1, map[string]api.Backend{microvm: {OK: true, Accel: "tcg"}}
	register(t, s, h)
	d := draft("m", 1, 1000, time.Hour)
	d.Phases[0].Demand.Backend = microvm
	l := launch(t, s, d)
	looks := []store.Look{{PhaseID: l.Phases[0].ID, Attempt: 1, Wake: ledger.WakeFirst}}
	res, err := s.Pass(ctx, microvm, looks, ledger.WakeFirst)
	require.NoError(t, err)
	require.NotNil(t, res.Outcomes[l.Phases[0].ID].Placed)
	require.Equal(t, 1, count(t, db, "SELECT starting FROM nodes"), "a machine that starts holds a start slot beside its run slot")

	offer := h.Backends[microvm]
	offer.Starts = vm.Starts{Snapshot: 7, Cold: 2, FellBack: 1, Why: "the snapshot failed", Snapshots: 1, Bytes: 97 << 20}
	h.Backends = map[string]api.Backend{microvm: offer}
	cold := vm.Start{Kind: vm.StartCold, Why: "there is no snapshot of such a machine yet"}
	h.Runs = []api.RunReport{{ID: "r1-1", Step: "inject", Started: true, Accel: "tcg", Start: cold}}
	_, err = s.Heartbeat(ctx, h)
	require.NoError(t, err)
	require.Zero(t, count(t, db, "SELECT starting FROM nodes"), "a machine that answers holds its run slot alone")
	require.Equal(t, 1, count(t, db, "SELECT slots_reserved FROM nodes"))

	shown, err := s.ShowNode(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, offer.Starts, shown.Backends[microvm].Starts)
	mission, err := s.ShowMission(ctx, "m", 0, time.Second)
	require.NoError(t, err)
	require.Equal(t, cold, mission.PhaseList[0].Runs[0].Start)

	_, err = s.FinishPhase(ctx, l.Phases[0].ID,
		ledger.RunEnd{Status: "succeeded", Info: vm.Info{Start: vm.Start{Kind: vm.StartSnapshot}}}, ledger.Ended{Status: "succeeded"})
	require.NoError(t, err)
	mission, err = s.ShowMission(ctx, "m", 0, time.Second)
	require.NoError(t, err)
	require.Equal(t, vm.StartSnapshot, mission.PhaseList[0].Runs[0].Start.Kind, "the result of the run is the last word")
}
