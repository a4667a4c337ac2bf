package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// roomy is a lease that a restart on a busy machine does not outlast.
var roomy = []string{"TIDEWAIT_FLEET_SUSPECT_AFTER=8s", "TIDEWAIT_FLEET_LEASE=40s", "TIDEWAIT_FLEET_LOST_AFTER=60s"}

// part is something of the control plane that a test takes away for a while.
type part interface {
	Kill() error
	Start(ctx context.Context) error
}

// controls are the parts that the lease of a node hangs on.
func (p *product) controls() map[string]part {
	return map[string]part{"engine": p.engine, "NATS": p.Stack.NATS, "Postgres": p.Stack.Postgres}
}

// away takes a part away until the agent of node n1 has logged a line that
// matches, and starts it again.
func (p *product) away(away part, line string) {
	p.t.Helper()
	before, err := os.ReadFile(p.agent.LogPath())
	require.NoError(p.t, err)
	require.NoError(p.t, away.Kill())
	wanted := regexp.MustCompile(line)
	p.eventually("the agent logs "+line, func() bool {
		log, err := os.ReadFile(p.agent.LogPath())
		require.NoError(p.t, err)
		return wanted.Match(log[len(before):])
	}, func() any { return nil })
	require.NoError(p.t, away.Start(p.t.Context()))
	if away == part(p.Stack.Postgres) {
		p.db, err = pgx.Connect(p.t.Context(), p.Stack.PostgresURL)
		require.NoError(p.t, err)
	}
}

// n1 returns what is known of node n1.
func (p *product) n1() api.NodeDetail {
	p.t.Helper()
	var n api.NodeDetail
	require.NoError(p.t, json.Unmarshal([]byte(p.must("node", "show", "n1", "-o", "json")), &n))
	return n
}

// untilN1 asks for node n1 until it is as wanted. That nobody answers is not.
func (p *product) untilN1(what string, wanted func(api.NodeDetail) bool) api.NodeDetail {
	p.t.Helper()
	var n api.NodeDetail
	p.eventually(what, func() bool {
		out, _, code := p.tidewait("node", "show", "n1", "-o", "json")
		n = api.NodeDetail{}
		return code == 0 && json.Unmarshal([]byte(out), &n) == nil && wanted(n)
	}, func() any { return n })
	return n
}

// oneCommit asserts that a mission has the one commit of its phase's last run.
func (p *product) oneCommit(m api.MissionDetail) {
	p.t.Helper()
	var results api.Results
	require.NoError(p.t, jsonOf(p.must("mission", "results", m.Name, "-o", "json"), &results))
	require.Len(p.t, results.Commits, 1)
	last := m.PhaseList[0].Runs[len(m.PhaseList[0].Runs)-1]
	require.Equal(p.t, []string{m.PhaseList[0].Commit, last.ID}, []string{results.Commits[0].Commit, results.Commits[0].Run})
}

// A short outage of anything that a node's lease hangs on kills nothing: the run
// does not even notice.
func TestAShortOutageKillsNothing(t *testing.T) {
	long(t, 60*time.Second)
	p := start(t, roomy...)
	p.node(roomy...)
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "sleep 30; echo done > done.txt"}}})
	p.running("m")
	began := time.Now()

	for name, part := range p.controls() {
		p.away(part, "heartbeat was not acknowledged")
		p.untilN1("n1 is heard after "+name, func(n api.NodeDetail) bool { return n.State == "ready" && time.Since(n.Heartbeat) < 2*time.Second })
		m := p.show("m")
		require.Equal(t, "running", m.PhaseList[0].Status, name)
		require.Len(t, m.PhaseList[0].Runs, 1, name)
	}
	t.Logf("three outages within %s", time.Since(began).Round(100*time.Millisecond))

	m := p.ended("m")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	require.Len(t, m.PhaseList[0].Runs, 1)
	require.Equal(t, []any{"succeeded", 1, 1}, []any{m.PhaseList[0].Runs[0].Status, m.PhaseList[0].Runs[0].Attempt, m.PhaseList[0].Attempt})
	require.EqualValues(t, 1, p.n1().Epoch)
	p.oneCommit(m)
	p.nothingLeft()
}

// After an outage longer than a node may be silent the machine is gone, since its
// agent could not know; nobody is given up for the silence, and the phase is
// placed again before those behind it.
func TestALongOutageCostsARun(t *testing.T) {
	for _, name := range []string{"engine", "NATS", "Postgres"} {
		t.Run(name, func(t *testing.T) {
			long(t, 60*time.Second)
			p := start(t)
			p.node()
			p.launch(missionDoc{name: "first", phases: []phaseDoc{{name: "work", memory: "512Mi", script: "sleep 12; echo done > done.txt"}}})
			p.running("first")
			p.launch(missionDoc{name: "second", phases: []phaseDoc{{name: "work", memory: "512Mi", script: "true"}}})
			p.waiting("second")

			p.away(p.controls()[name], `heartbeat was not acknowledged.* silent_for=1[1-9]s`)
			require.Empty(t, p.machines(), "the fence has fallen")
			p.untilN1("n1 is heard", func(n api.NodeDetail) bool { return n.State == "ready" })

			second := p.ended("second")
			first := p.ended("first")
			require.Equal(t, []string{"succeeded", "succeeded"}, []string{first.Status, second.Status}, first.Failure+second.Failure)
			runs := first.PhaseList[0].Runs
			require.Len(t, runs, 2, "one run is lost, and its phase has one attempt only")
			require.Equal(t, []string{"lost", "succeeded"}, []string{runs[0].Status, runs[1].Status})
			require.Equal(t, "the engine was silent for the whole lease, so the run is given to another node", runs[0].Failure)
			require.Len(t, second.PhaseList[0].Runs, 1)
			require.True(t, runs[1].StartedAt.Before(second.PhaseList[0].Runs[0].StartedAt), "it has kept its place")
			require.EqualValues(t, 1, p.n1().Epoch, "nobody was given up for the outage")
			log, err := os.ReadFile(p.agent.LogPath())
			require.NoError(t, err)
			require.Contains(t, string(log), "no heartbeat was acknowledged for the whole lease: destroying every machine")
			p.oneCommit(first)
			p.nothingLeft()
		})
	}
}

// An agent that is frozen for longer than a node may be silent loses its run to
// another node. When it goes on it fences itself at once, and what it has made is
// refused.
func TestALateAgentFencesItself(t *testing.T) {
	long(t, 60*time.Second)
	p := start(t)
	p.node()
	_, err := p.StartNode(t.Context(), "n2", "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi")
	require.NoError(t, err)
	p.must("node", "cordon", "n2")
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "sleep 20; echo done > done.txt"}}})
	p.running("m")
	p.must("node", "uncordon", "n2")

	require.NoError(t, p.agent.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = p.agent.Signal(syscall.SIGCONT) })
	down := p.untilN1("n1 is down", func(n api.NodeDetail) bool { return n.State == "down" })
	require.Contains(t, down.StateReason, "no heartbeat for ")
	m := p.until("m", "it runs on n2", func(m api.MissionDetail) bool { return m.PhaseList[0].Node == "n2" && m.PhaseList[0].Step == "run" })
	require.Equal(t, []string{"lost", "running"}, []string{m.PhaseList[0].Runs[0].Status, m.PhaseList[0].Runs[1].Status})
	require.Regexp(t, `^node n1 has been silent for 1\ds$`, m.PhaseList[0].Runs[0].Failure)

	thawed := time.Now()
	require.NoError(t, p.agent.Signal(syscall.SIGCONT))
	p.eventually("the late machine is gone", func() bool {
		found, err := filepath.Glob(filepath.Join(p.dir, "node", "n1", "*", "runs", "r*-*"))
		require.NoError(t, err)
		return len(found) == 0
	}, func() any { return p.machines() })
	t.Logf("the late machine was gone %s after its agent went on", time.Since(thawed).Round(time.Millisecond))
	require.Less(t, time.Since(thawed), 5*time.Second, "that long before its command had ended")
	back := p.untilN1("n1 is heard", func(n api.NodeDetail) bool { return n.State == "ready" })
	require.EqualValues(t, 2, back.Epoch)

	m = p.ended("m")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	require.Len(t, m.PhaseList[0].Runs, 2)
	p.oneCommit(m)
	log, err := os.ReadFile(p.agent.LogPath())
	require.NoError(t, err)
	require.Contains(t, string(log), "no heartbeat was acknowledged for the whole lease: destroying every machine")
	p.nothingLeft()
}

// The deadline of a drain moves phases on: their work is kept as far as it goes,
// they keep their place, and it costs them nothing.
func TestADrainMovesPhasesOn(t *testing.T) {
	long(t, 60*time.Second)
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "first", phases: []phaseDoc{{name: "work", memory: "512Mi", script: `
		echo half > made.txt; trap 'echo more >> made.txt; exit 0' TERM; echo ready
		i=0; while [ $i -lt 80 ]; do sleep 0.1; i=$((i+1)); done; echo whole > made.txt`}}})
	p.logged("first", "ready")
	p.launch(missionDoc{name: "second", phases: []phaseDoc{{name: "work", memory: "512Mi", script: "true"}}})
	p.waiting("second")

	p.must("node", "drain", "n1", "--deadline", "1s", "--reason", "kernel upgrade", "--actor", "ann")
	p.fails(1, "node n1 still holds 1 machine(s); drain it first", "node", "retire", "n1")
	n := p.untilN1("n1 is drained", func(n api.NodeDetail) bool { return n.State == "drained" })
	require.Equal(t, []string{"kernel upgrade", "ann"}, []string{n.StateReason, n.StateActor})
	require.Nil(t, n.Deadline)
	m := p.until("first", "it waits", func(m api.MissionDetail) bool { return m.PhaseList[0].Wait != nil })
	require.Equal(t, "pending", m.PhaseList[0].Status)
	require.Equal(t, []any{"nodes_draining", 1}, []any{m.PhaseList[0].Wait.Code, m.PhaseList[0].Wait.Position})
	require.True(t, m.PhaseList[0].Wait.Since.After(m.PhaseList[0].Runs[0].StartedAt), "it waits anew")
	run := m.PhaseList[0].Runs[0]
	require.Equal(t, []string{"cancelled", "drained"}, []string{run.Status, run.FailureCode})
	require.Regexp(t, `^node n1 had to be empty: its drain by ann \(kernel upgrade\) has passed its deadline; `+
		`what it had made is commit [0-9a-f]{40} of branch tidewait/first/1-partial/work$`, run.Failure)
	require.Equal(t, "half\nmore", p.partialFile("first", "work", "made.txt"))
	p.until("second", "it is second", func(m api.MissionDetail) bool { return m.PhaseList[0].Wait != nil && m.PhaseList[0].Wait.Position == 2 })

	p.must("node", "undrain", "n1")
	second, first := p.ended("second"), p.ended("first")
	require.Equal(t, []string{"succeeded", "succeeded"}, []string{first.Status, second.Status}, first.Failure+second.Failure)
	require.Len(t, first.PhaseList[0].Runs, 2)
	require.True(t, first.PhaseList[0].Runs[1].StartedAt.Before(second.PhaseList[0].Runs[0].StartedAt), "it has kept its place")
	p.oneCommit(first)
	p.nothingLeft()

	t.Run("and waits for results that are not committed", func(t *testing.T) {
		p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "sleep 2; echo x > x.txt"}}})
		p.running("m")
		require.NoError(t, p.gateway.Kill())
		p.until("m", "its machine is gone", func(m api.MissionDetail) bool { return m.PhaseList[0].Step == "commit" })
		p.must("node", "drain", "n1", "--reason", "disk swap")
		p.fails(1, "node n1 still holds the results of 1 run(s) that are not committed yet; drain it first", "node", "retire", "n1")
		n := p.n1()
		require.Equal(t, []any{"draining", int64(1), int64(0)}, []any{n.State, n.Uploads, n.Reserved.Slots})
		require.Contains(t, p.must("node", "show", "n1"), "uploads 1: ")
		waits, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		require.Equal(t, "node n1 holds the results of 1 run(s) that are not committed yet\n", p.told(waits, "node", "drain", "n1", "--wait"))
		require.NoError(t, p.gateway.Start(t.Context()))
		require.Equal(t, "node n1 is drained\n", p.must("node", "drain", "n1", "--wait"))
		require.Equal(t, "succeeded", p.ended("m").Status)
	})

	t.Run("and a retired node stays out until a person brings it back", func(t *testing.T) {
		p.must("node", "retire", "n1", "--reason", "sold", "--actor", "ann")
		select {
		case <-p.agent.Ended():
		case <-time.After(patience):
			t.Fatal("the agent goes on")
		}
		const line = "node n1 is retired by ann: sold; to use it again, `tidewait node retire n1 --undo`, then start the agent"
		log, err := os.ReadFile(p.agent.LogPath())
		require.NoError(t, err)
		require.Contains(t, string(log), "the engine tells the agent to end")
		require.Contains(t, string(log), line)
		require.ErrorContains(t, p.agent.Start(t.Context()), "ended at once")
		require.Equal(t, "retired", p.n1().State)
		p.fails(1, "node n1 is retired", "node", "uncordon", "n1")

		require.Equal(t, "node n1 is ready\n", p.must("node", "retire", "n1", "--undo"))
		p.fails(1, "node n1 is ready, not retired", "node", "retire", "n1", "--undo")
		require.NoError(t, p.agent.Start(t.Context()))
		p.launch(missionDoc{name: "again", phases: []phaseDoc{{name: "work", script: "true"}}})
		require.Equal(t, "succeeded", p.ended("again").Status)
		p.nothingLeft()
	})
}

// partialFile returns a file of what a run that was ended early had made.
func (p *product) partialFile(mission, phase, file string) string {
	p.t.Helper()
	repo := p.repository()
	p.must("mission", "results", mission, "--into", repo, "--partial", phase)
	return strings.TrimSpace(p.git(repo, "show", "tidewait/"+mission+"/1-partial/"+phase+":"+file))
}

// told runs the CLI until ctx ends, and returns what it has told by then.
func (p *product) told(ctx context.Context, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "tidewait"), args...)
	cmd.Env = append(os.Environ(), p.Env()...)
	var errs strings.Builder
	cmd.Stderr = &errs
	require.Error(p.t, cmd.Run(), "it goes on")
	return errs.String()
}
