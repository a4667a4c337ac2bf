package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/vm"
)

// TestFastStarts runs a mission whose machine is booted, and one whose machine is
// restored from the snapshot that is made in between.
func TestFastStarts(t *testing.T) {
	long(t, 60*time.Second)
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi")
	starts := func() vm.Starts {
		var n api.NodeDetail
		require.NoError(t, json.Unmarshal([]byte(p.must("node", "show", "n1", "-o", "json")), &n))
		return n.Backends["microvm"].Starts
	}
	job := func(name string) api.Run {
		p.launch(missionDoc{name: name, backend: "microvm", phases: []phaseDoc{{name: "work", script: "uname -r > kernel.txt"}}})
		m := p.ended(name)
		require.Equal(t, "succeeded", m.Status, m.Failure)
		return m.PhaseList[0].Runs[0]
	}

	cold := vm.Start{Kind: vm.StartCold, Why: "there is no snapshot of such a machine yet"}
	require.Equal(t, cold, job("first").Start)
	p.eventually("a snapshot is made", func() bool { return starts().Snapshots == 1 }, func() any { return starts() })

	require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, job("second").Start)
	require.Contains(t, p.must("mission", "show", "second"), ", started from a snapshot;")
	p.eventually("both starts are counted", func() bool {
		s := starts()
		return s.Cold == 1 && s.Snapshot == 1 && s.FellBack == 0 && s.Why == ""
	}, func() any { return starts() })
	require.Contains(t, p.must("node", "show", "n1"), "  started microvm: 1 from snapshots, 1 cold; 1 snapshot of ")
	p.nothingLeft()
}
