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
