package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// TestNegativeControls provokes refusals; each must fail in its own way.
func TestNegativeControls(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// TestEveryKindOfWaitIsSeen makes phases and missions wait for something other
// than capacity, and finds each wait where people look.
func TestEveryKindOfWaitIsSeen(t *testing.T) {
	long(t, 30*time.Second)
	p := start(t, "TIDEWAIT_FLEET_LEASE=40s", "TIDEWAIT_FLEET_LOST_AFTER=60s")
	node := p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "sleep 2; echo x > x.txt"}}})
	p.running("m")
	require.NoError(t, p.gateway.Kill())

	w := p.waiting("m")
	require.Equal(t, []string{"gateway", "gateway_unreachable", "m", "work", "phase.m.work"}, []string{w.Kind, w.Code, w.Mission, w.Phase, w.WorkflowID})
	require.Contains(t, w.Reason, "gateway gw does not pick up")
	require.Contains(t, p.must("waits"), "gateway_unreachable")
	require.NoError(t, p.gateway.Start(t.Context()))
	m := p.ended("m")
	require.Equal(t, "succeeded", m.Status)
	require.Equal(t, []string{"gateway", "answered"}, []string{m.PhaseList[0].Waits[0].Kind, m.PhaseList[0].Waits[0].EndedBy})

	p.launch(missionDoc{name: "n", phases: []phaseDoc{{name: "work", script: "sleep 600"}}})
	p.running("n")
	require.NoError(t, node.Signal(syscall.SIGSTOP))
	w = p.waiting("n")
	require.Equal(t, []string{"node", "node_silent", "n", "work"}, []string{w.Kind, w.Code, w.Mission, w.Phase})
	require.NoError(t, node.Signal(syscall.SIGCONT))
	p.until("n", "it runs again", func(m api.MissionDetail) bool {
		return m.PhaseList[0].Attempt == 2 && m.PhaseList[0].Step == "run"
	})
	p.must("mission", "cancel", "n")
	p.ended("n")
	require.Contains(t, p.must("waits"), "nothing waits")
	p.nothingLeft()
}

// TestPostgresAway stops the database under a waiting and a running phase.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "runs", phases: []phaseDoc{{name: "work", memory: "512Mi", script: "sleep 4; echo x > x.txt"}}})
	p.running("runs")
	p.launch(missionDoc{name: "waits", phases: []phaseDoc{{name: "work", script: "true"}}})
	before := p.waiting("waits")

	require.NoError(t, p.Stack.Postgres.Kill())
	require.NoError(t, p.Stack.Postgres.Start(t.Context()))
	var err error
	p.db, err = pgx.Connect(t.Context(), p.Stack.PostgresURL)
	require.NoError(t, err)
	defer func() { _ = p.db.Close(context.Background()) }()

	require.Equal(t, "succeeded", p.ended("runs").Status)
	m := p.ended("waits")
	require.Equal(t, "succeeded", m.Status)
	require.True(t, before.Since.Equal(m.PhaseList[0].Waits[0].Since))
	p.nothingLeft()
}

// TestNothingStandsInForQEMU takes QEMU away: the node says so, and a mission
// that asks for a virtual machine is refused, although the node could run
// processes.
func TestNothingStandsInForQEMU(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm,process", "TIDEWAIT_NODE_QEMU=/nowhere/qemu")
	out := p.must("node", "show", "n1")
	require.Contains(t, out, "microvm: unusable: ")
	require.Contains(t, out, "/nowhere/qemu")

	_, errs, exit := p.tidewait("mission", "launch", p.write(missionDoc{name: "vm", backend: "microvm", phases: []phaseDoc{{name: "work", script: "true"}}}))
	require.Equal(t, 3, exit)
	require.Contains(t, errs, "backend_unsupported")
	require.Contains(t, errs, "/nowhere/qemu", "the refusal says why")
	require.Equal(t, "draft", p.show("vm").Status)
	require.Zero(t, p.count("SELECT count(*) FROM topology_runs"))
}
