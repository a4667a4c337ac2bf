package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// keepRuns lets runs outlive their agent, as they do but in stacks like these.
const keepRuns = "TIDEWAIT_NODE_KEEP_RUNS=true"

// counting prints a number each tenth of a second, until n.
func counting(n int) string {
	return fmt.Sprintf("i=1; while [ $i -le %d ]; do echo $i; i=$((i+1)); sleep 0.1; done; echo made > made.txt", n)
}

// begun returns when so many agents of n1 have begun, or gone on with, the command of
// the first run.
func (p *product) begun(agents int) {
	p.t.Helper()
	const want = `msg="run takes a step" role=node node=n1 run=r1-1 step=run`
	p.eventually(fmt.Sprintf("%d agents have had the command", agents), func() bool {
		data, err := os.ReadFile(filepath.Join(p.dir, "stack", "logs", "n1.log"))
		return err == nil && strings.Count(string(data), want) >= agents
	}, func() any { return nil })
}

// wholeRun checks that a mission of one phase ended as if nothing had happened.
func (p *product) wholeRun(name string, lines int) api.MissionDetail {
	p.t.Helper()
	m := p.ended(name)
	require.Equal(p.t, "succeeded", m.Status, m.Failure)
	require.Len(p.t, m.PhaseList[0].Runs, 1, "it is one run")
	require.Equal(p.t, "succeeded", m.PhaseList[0].Runs[0].Status)
	require.Equal(p.t, 1, m.PhaseList[0].Attempt)
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "work | %d\n", i+1)
	}
	require.Equal(p.t, want.String(), p.must("mission", "logs", name), "each line is there once")
	var results api.Results
	require.NoError(p.t, jsonOf(p.must("mission", "results", name, "-o", "json"), &results))
	require.Len(p.t, results.Commits, 1)
	p.nothingLeft()
	return m
}

// TestRunsOutliveTheirAgent kills the agent during a run, and then tells the next
// ones to end, as an upgrade does.
func TestRunsOutliveTheirAgent(t *testing.T) {
	long(t, 70*time.Second)
	p := start(t, roomy...)
	node := p.node("TIDEWAIT_LOG_LEVEL=debug", keepRuns)
	p.launch(missionDoc{name: "port", phases: []phaseDoc{{name: "work", script: counting(300)}}})
	p.begun(1)
	for i, end := range []func() error{node.Kill, node.Stop, node.Stop} {
		require.NoError(t, end())
		require.NoError(t, node.Start(t.Context()))
		p.begun(i + 2)
	}
	m := p.wholeRun("port", 300)
	took := m.PhaseList[0].Runs[0].EndedAt.Sub(m.PhaseList[0].Runs[0].StartedAt)
	require.Less(t, took, 60*time.Second, "the command was not begun again")
}

func TestMicroVMsOutliveTheirAgent(t *testing.T) {
	long(t, 90*time.Second)
	p := start(t, roomy...)
	node := p.node("TIDEWAIT_LOG_LEVEL=debug", "TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_ACCEL=tcg", "TIDEWAIT_NODE_BOOT_TIMEOUT=40s", keepRuns)
	p.launch(missionDoc{name: "port", backend: "microvm", phases: []phaseDoc{{name: "work", script: counting(150)}}})
	p.begun(1)
	require.NoError(t, node.Kill())
	require.NoError(t, node.Start(t.Context()))
	p.begun(2)
	require.NoError(t, node.Stop())
	require.NoError(t, node.Start(t.Context()))
	p.wholeRun("port", 150)
}

// TestTheKeeperFences leaves a run without an agent for longer than the lease: its
// keeper ends the machine before another node has the phase.
func TestTheKeeperFences(t *testing.T) {
	long(t, 60*time.Second)
	p := start(t)
	node := p.node("TIDEWAIT_LOG_LEVEL=debug", keepRuns)
	p.launch(missionDoc{name: "port", phases: []phaseDoc{{name: "work", script: counting(100)}}})
	p.begun(1)
	machine := p.journaled("r1-1")
	killed := time.Now()
	require.NoError(t, node.Kill())
	other, err := p.StartNode(t.Context(), "n2", "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi")
	require.NoError(t, err)

	require.NoError(t, syscall.Kill(machine.PID, 0), "it goes on without an agent")
	var gone time.Time
	p.eventually("the machine is gone", func() bool { gone = time.Now(); return ended(machine.PID) && ended(machine.Keeper.PID) }, func() any { return machine })
	require.Less(t, gone.Sub(killed), 9*time.Second, "the lease is 6 s")

	m := p.ended("port")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	runs := m.PhaseList[0].Runs
	require.Len(t, runs, 2)
	require.Equal(t, []string{"lost", "n1"}, []string{runs[0].Status, runs[0].Node})
	require.Equal(t, []string{"succeeded", "n2"}, []string{runs[1].Status, runs[1].Node})
	require.True(t, runs[1].StartedAt.After(gone), "placed at %s, gone at %s", runs[1].StartedAt, gone)
	t.Logf("the agent was killed; %s later its machine was gone; %s later the phase was placed again",
		gone.Sub(killed).Round(time.Millisecond), runs[1].StartedAt.Sub(killed).Round(time.Millisecond))
	var results api.Results
	require.NoError(t, jsonOf(p.must("mission", "results", "port", "-o", "json"), &results))
	require.Len(t, results.Commits, 1)
	require.NoError(t, node.Start(t.Context()))
	require.NoError(t, other.Stop())
	p.nothingLeft()
}

// journaledRun are the processes of a run, as its journal names them.
type journaledRun struct {
	PID    int `json:"pid"`
	Keeper struct {
		PID int `json:"pid"`
	} `json:"keeper"`
}

func (p *product) journaled(run string) journaledRun {
	p.t.Helper()
	names, err := filepath.Glob(filepath.Join(p.dir, "node", "n1", "*", "runs", run+".*", "journal.json"))
	require.NoError(p.t, err)
	require.Len(p.t, names, 1)
	data, err := os.ReadFile(names[0])
	require.NoError(p.t, err)
	var j journaledRun
	require.NoError(p.t, json.Unmarshal(data, &j))
	return j
}

// ended reports whether a process has ended, also when nobody has asked how.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestAnAgentThatKeepsNoRuns ends them, and says why those of another are lost.
func TestAnAgentThatKeepsNoRuns(t *testing.T) {
	long(t, 50*time.Second)
	p := start(t, roomy...)
	node := p.node("TIDEWAIT_LOG_LEVEL=debug", keepRuns)
	p.launch(missionDoc{name: "port", phases: []phaseDoc{{name: "work", script: counting(30)}}})
	p.begun(1)
	require.NoError(t, node.Kill())
	p.node("TIDEWAIT_LOG_LEVEL=debug")
	m := p.ended("port")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	require.Len(t, m.PhaseList[0].Runs, 2)
	require.Equal(t, "the agent of node n1 came back without run r1-1: this agent goes on with no runs of another", m.PhaseList[0].Runs[0].Failure)
	p.nothingLeft()
}
