package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/vm"
)

func TestNodeShowsHowMachinesStart(t *testing.T) {
	node := fleet().Nodes[0]
	for _, c := range []struct {
		starts vm.Starts
		want   string
	}{
		{vm.Starts{}, ""},
		{vm.Starts{Cold: 3, Why: "snapshots are turned off"}, "  started microvm: 0 from snapshots, 3 cold; snapshots are turned off\n"},
		{vm.Starts{Snapshot: 12, Cold: 1, Snapshots: 1, Bytes: 97 << 20}, "  started microvm: 12 from snapshots, 1 cold; 1 snapshot of 97 MiB kept\n"},
		{
			vm.Starts{Snapshot: 12, Cold: 3, FellBack: 1, Why: "the snapshot failed, and the machine was booted: it did not answer within 5s", Snapshots: 2, Bytes: 190 << 20},
			"  started microvm: 12 from snapshots, 3 cold; 1 snapshot failed; 2 snapshots of 190 MiB kept; " +
				"the snapshot failed, and the machine was booted: it did not answer within 5s\n",
		},
	} {
		offer := node.Backends["microvm"]
		offer.Starts = c.starts
		node.Backends["microvm"] = offer
		shown := plainText.Node(api.NodeDetail{Node: node}, nil)
		if c.want == "" {
			require.NotContains(t, shown, "  started ")
		} else {
			require.Contains(t, shown, c.want)
		}
	}
}

func TestRunShowsHowItsMachineWasStarted(t *testing.T) {
	for _, c := range []struct {
		start vm.Start
		want  string
	}{
		{vm.Start{}, "succeeded; exit 0; tcg, kernel 6.1.0; 7 min"},
		{vm.Start{Kind: vm.StartSnapshot}, "succeeded; exit 0; tcg, kernel 6.1.0, started from a snapshot; 7 min"},
		{
			vm.Start{Kind: vm.StartCold, Why: "there is no snapshot of such a machine yet"},
			"succeeded; exit 0; tcg, kernel 6.1.0, started cold: there is no snapshot of such a machine yet; 7 min",
		},
	} {
		phase := api.Phase{Name: "survey", Ordinal: 1, Status: "succeeded", Attempt: 1, Runs: []api.Run{{
			ID: "r-1", Attempt: 1, Node: "node-a", Status: "succeeded", Accel: "tcg", Kernel: "6.1.0", Start: c.start,
			ExitCode: ptr(0), StartedAt: at("12:11:00"), EndedAt: ptr(at("12:18:30")),
		}}}
		require.Contains(t, plainText.Phase("m", phase), c.want)
	}
}
