package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// TestNegativeControls provokes refusals; each must fail in its own way.
func TestNegativeControls(t *testing.T) {
	p := start(t)
	refused := func(t *testing.T, m missionDoc, code string) {
		t.Helper()
		out, errs, exit := p.tidewait("mission", "launch", p.write(m))
		require.Equal(t, 3, exit, out+errs)
		require.Contains(t, errs, code)
		d := p.show(m.name)
		require.Equal(t, []string{"draft", code}, []string{d.Status, d.FailureCode})
		require.Zero(t, d.Launch)
		require.Zero(t, p.count("SELECT (SELECT count(*) FROM capacity_waits) + (SELECT count(*) FROM topology_runs) + (SELECT count(*) FROM mission_phases)"))
	}
	work := []phaseDoc{{name: "work", script: "true"}}

	t.Run("no nodes at all", func(t *testing.T) {
		refused(t, missionDoc{name: "empty-fleet", phases: work}, "no_nodes_registered")
	})
	node := p.node()
	t.Run("a backend nobody has", func(t *testing.T) {
		refused(t, missionDoc{name: "no-backend", backend: "microvm", phases: work}, "backend_unsupported")
	})
	t.Run("bigger than every node", func(t *testing.T) {
		refused(t, missionDoc{name: "too-big", phases: []phaseDoc{{name: "work", memory: "64Gi", script: "true"}}}, "exceeds_every_node")
	})
	t.Run("the only node that could is down", func(t *testing.T) {
		require.NoError(t, node.Kill())
		p.eventually("the node counts as down", func() bool { return p.nodeState() == "down" }, func() any { return p.nodeState() })
		p.launch(missionDoc{name: "patient", phases: work})
		w := p.waiting("patient")
		require.Equal(t, "nodes_lost", w.Code)
		require.Equal(t, 1, w.Counts.Lost)
		require.NoError(t, node.Start(t.Context()))
		require.Equal(t, "succeeded", p.ended("patient").Status)
	})
	t.Run("the only node that could is retired", func(t *testing.T) {
		p.must("node", "retire", "n1", "--reason", "a test")
		_, errs, exit := p.tidewait("mission", "launch", p.write(missionDoc{name: "nowhere", phases: work}))
		require.Equal(t, 3, exit)
		require.Contains(t, errs, "no_nodes_registered")
		require.Equal(t, "draft", p.show("nowhere").Status)
	})
}

func (p *product) nodeState() string {
	p.t.Helper()
	var n api.NodeDetail
	require.NoError(p.t, jsonOf(p.must("node", "show", "n1", "-o", "json"), &n))
	return n.State
}

// TestCordonAndDrain steers a node while phases wait for it.
func TestCordonAndDrain(t *testing.T) {
	p := start(t)
	p.node()
	p.must("node", "cordon", "n1", "--reason", "a test")
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "sleep 2"}}})
	require.Equal(t, "nodes_draining", p.waiting("m").Code)

	p.must("node", "uncordon", "n1")
	p.running("m")
	p.must("node", "drain", "n1")
	require.Equal(t, "draining", p.nodeState())
	require.Equal(t, "succeeded", p.ended("m").Status, "what runs may end")
	p.eventually("the node is drained", func() bool { return p.nodeState() == "drained" }, func() any { return p.nodeState() })
	p.must("node", "undrain", "n1")
	require.Equal(t, "ready", p.nodeState())
	p.nothingLeft()
}
