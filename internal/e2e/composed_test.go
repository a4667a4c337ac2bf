package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// agentDoc is an agent of a composed phase of a test.
type agentDoc struct {
	name     string
	replicas int
	memory   string // default 128Mi
	script   string
	extra    string // further keys, such as collect: [out]
}

// team is a mission of one composed phase.
func team(t *testing.T, name, backend, extra string, agents ...agentDoc) missionDoc {
	t.Helper()
	var lines strings.Builder
	lines.WriteString("agents:\n")
	for _, a := range agents {
		script, err := json.Marshal(a.script)
		require.NoError(t, err)
		if a.memory == "" {
			a.memory = "128Mi"
		}
		fmt.Fprintf(&lines, "  - name: %s\n    replicas: %d\n    run: [sh, -c, %s]\n    resources: {cpus: 0.2, memory: %s, disk: 64Mi}\n",
			a.name, max(a.replicas, 1), script, a.memory)
		if a.extra != "" {
			lines.WriteString("    " + a.extra + "\n")
		}
	}
	return missionDoc{name: name, backend: backend, phases: []phaseDoc{{name: "work", extra: strings.TrimSuffix(lines.String(), "\n") + "\n" + extra}}}
}

// committed fetches a mission's results and returns git in them.
func (p *product) committed(name string) func(args ...string) string {
	p.t.Helper()
	repo := p.t.TempDir()
	require.NoError(p.t, exec.Command("git", "init", "--quiet", repo).Run())
	p.must("mission", "results", name, "--into", repo)
	return func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput()
		require.NoError(p.t, err, string(out))
		return string(out)
	}
}

// agentsOf returns how the machines of a mission's last run ended, by name.
func agentsOf(m api.MissionDetail) map[string]api.RunAgent {
	runs := m.PhaseList[0].Runs
	agents := map[string]api.RunAgent{}
	for _, a := range runs[len(runs)-1].Agents {
		agents[a.Name] = a
	}
	return agents
}

func TestAComposedPhaseSucceedsWithItsDesignatedAgents(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node("TIDEWAIT_NODE_MEMORY=2Gi")

	out, errs, code := p.tidewait("mission", "launch", "--wait", "--follow", p.write(team(t, "team", "process", "until: [author, critic]",
		agentDoc{name: "author", script: "until busybox wget -q -O - http://server/README >/dev/null 2>&1; do sleep 0.1; done; echo written > author.txt; echo author is done"},
		agentDoc{name: "critic", replicas: 2, script: "echo $TIDEWAIT_REPLICA > $TIDEWAIT_AGENT.txt; echo read README"},
		agentDoc{name: "server", script: "trap 'echo closed > server.txt; exit 0' TERM; echo up; busybox httpd -p 80; while :; do sleep 0.1; done"},
		agentDoc{name: "clerk", script: "echo half > clerk.txt; while :; do sleep 0.1; done"},
	)))
	require.Zerof(t, code, "%s%s", out, errs)

	m := p.show("team")
	require.Equal(t, "succeeded", m.Status)
	require.Len(t, m.PhaseList[0].Runs, 1)
	agents := agentsOf(m)
	require.Len(t, agents, 5)
	for _, name := range []string{"author", "critic-1", "critic-2", "server", "clerk"} {
		require.Equal(t, "r1-1/"+name, agents[name].Machine)
		require.Equal(t, "ended", agents[name].Step)
		require.NotEmpty(t, agents[name].Kernel)
	}
	for _, name := range []string{"author", "critic-1", "critic-2"} {
		require.Equal(t, []any{"succeeded", true, true, 0}, []any{agents[name].Status, agents[name].Designated, agents[name].Collected, *agents[name].ExitCode}, name)
	}
	require.Equal(t, []any{"stopped", false, true, 0}, []any{agents["server"].Status, agents["server"].Designated, agents["server"].Collected, *agents["server"].ExitCode})
	require.Equal(t, []any{"stopped", false, false}, []any{agents["clerk"].Status, agents["clerk"].Designated, agents["clerk"].Collected})

	git := p.committed("team")
	require.Equal(t, "README\nauthor.txt\ncritic-1.txt\ncritic-2.txt\nserver.txt\n", git("ls-tree", "--name-only", "tidewait/team/1"))
	require.Equal(t, "2\n", git("show", "tidewait/team/1:critic-2.txt"))
	require.Equal(t, "2\n", git("rev-list", "--count", "tidewait/team/1"), "the workspace and one commit")

	logs := p.must("mission", "logs", "team", "--phase", "work")
	for _, line := range []string{"work/author | author is done\n", "work/critic-1 | read README\n", "work/critic-2 | read README\n", "work/server | up\n"} {
		require.Equal(t, 1, strings.Count(logs, line), logs)
	}
	require.Equal(t, "work/critic-2 | read README\n", p.must("mission", "logs", "team", "--agent", "critic-2"))
	p.nothingLeft()
}

func TestAnAgentThatIsNotDesignatedMayFail(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()

	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(team(t, "team", "process", "until: [author]",
		agentDoc{name: "author", script: "sleep 3; echo written > author.txt"},
		agentDoc{name: "helper", script: "echo half > helper.txt; exit 3"},
	)))
	require.Zerof(t, code, "%s%s", out, errs)

	m := p.show("team")
	helper := agentsOf(m)["helper"]
	require.Equal(t, []any{"failed", false, 3}, []any{helper.Status, helper.Collected, *helper.ExitCode})
	require.Equal(t, "README\nauthor.txt\n", p.committed("team")("ls-tree", "--name-only", "tidewait/team/1"))
	require.Contains(t, p.must("mission", "show", "team"), "helper, machine r1-1/helper: failed, not designated; exit 3; nothing collected")
	p.nothingLeft()
}

func TestComposedPhasesFailTruthfully(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	for _, test := range []struct {
		name, code, says string
		extra            string
		agents           []agentDoc
	}{
		{
			name: "exit", code: "command_failed", says: `phase work: agent critic-2: command "sh" exited with code 7`,
			agents: []agentDoc{{name: "author", script: "sleep 600"}, {name: "critic", replicas: 2, script: "test $TIDEWAIT_REPLICA = 1 || exit 7; sleep 600"}},
		},
		{
			name: "conflict", code: "results_conflict",
			says: `phase work: the results of 2 agents conflict in 1 path, and nothing was committed: "README": author wrote it, critic deleted it`,
			agents: []agentDoc{
				{name: "author", script: "echo more >> README; echo fine > author.txt"}, {name: "critic", script: "rm README; echo fine > critic.txt"},
			},
		},
		{
			name: "start", code: "command_not_found", says: "phase work: machine helper: ", extra: "until: [author]",
			agents: []agentDoc{{name: "author", script: "sleep 600"}, {name: "helper", script: "true"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := p.write(team(t, test.name, "process", test.extra, test.agents...))
			if test.name == "start" {
				replaceInFile(t, path, `run: [sh, -c, "true"]`, `run: [/nowhere/helper]`)
			}
			began := time.Now()
			out, errs, code := p.tidewait("mission", "launch", "--wait", path)
			require.Equal(t, 1, code, out+errs)
			require.Less(t, time.Since(began), 30*time.Second, "the rest was stopped")
			m := p.show(test.name)
			require.Equal(t, []string{"failed", test.code}, []string{m.Status, m.FailureCode})
			require.True(t, strings.HasPrefix(m.Failure, test.says), m.Failure)
			require.Empty(t, m.PhaseList[0].Commit)
			var results api.Results
			require.NoError(t, json.Unmarshal([]byte(p.must("mission", "results", test.name, "-o", "json")), &results))
			require.Empty(t, results.Commits, "nothing was committed")
			p.nothingLeft()
		})
	}
}

func TestAComposedPhaseWaitsAndIsPlacedAsOne(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_RETRY_INTERVAL=1h") // so that the event alone places it
	p.node("TIDEWAIT_NODE_MEMORY=700Mi")
	p.launch(missionDoc{name: "half", phases: []phaseDoc{{name: "hold", memory: "256Mi", script: "sleep 600"}}})
	p.running("half")
	p.launch(team(t, "team", "process", "", agentDoc{name: "one", script: "echo 1 > one"}, agentDoc{name: "two", replicas: 2, script: "true"}))

	w := p.waiting("team")

	require.Equal(t, "capacity_memory", w.Code)
	require.Equal(t, "needs 3 machines with 0.6 CPUs, 384 MiB of memory and 192 MiB of disk in all (+48 MiB of memory overhead) on backend process; "+
		"n1 is short by 4 MiB of memory; 1st in line, and n1 is held for it", w.Reason)
	require.Zero(t, p.count("SELECT count(*) FROM run_agents"), "two would fit, and none is there")

	p.until("team", "its own retry has looked once", func(m api.MissionDetail) bool { return m.PhaseList[0].Wait != nil && m.PhaseList[0].Wait.Attempts >= 2 })
	p.must("mission", "cancel", "half", "--reason", "the test is done with it")
	m := p.ended("team")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	require.Equal(t, []string{"placed", "event"}, []string{m.PhaseList[0].Waits[0].EndedBy, m.PhaseList[0].Waits[0].WokenBy})
	require.Equal(t, 1, p.count("SELECT count(*) FROM reservations WHERE slots = 3 AND memory = 432"))
	p.nothingLeft()
}

func TestCancelEndsAllMachinesOfAPhase(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(team(t, "team", "process", "",
		agentDoc{name: "one", script: "echo half > one.txt; exec sleep 600"},
		agentDoc{name: "two", replicas: 2, script: "trap '' TERM; echo half > two.txt; while :; do sleep 0.1; done"}))
	p.until("team", "all commands run", func(m api.MissionDetail) bool {
		return m.PhaseList[0].Step == "run" && agentsOf(m)["two-2"].Step == "run"
	})

	began := time.Now()
	p.must("mission", "cancel", "team", "--reason", "enough")
	m := p.ended("team")

	require.Less(t, time.Since(began), 12*time.Second)
	require.Equal(t, "cancelled", m.Status)
	for name, a := range agentsOf(m) {
		require.Equal(t, "stopped", a.Status, name)
	}
	require.Equal(t, "SIGTERM", agentsOf(m)["one"].Signal)
	p.nothingLeft()
}

func TestTheTurnIsOfAllMachinesTogether(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	mission := team(t, "team", "process", "", agentDoc{name: "one", script: "echo done"}, agentDoc{name: "two", script: "sleep 600"})
	mission.extra = "turn: 10s"

	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(mission))

	require.Equal(t, 1, code, out+errs)
	m := p.show("team")
	require.Equal(t, []string{"failed", "turn_exceeded", "phase work: the run took longer than its turn of 10s and was stopped"}, []string{m.Status, m.FailureCode, m.Failure})
	require.Equal(t, []string{"succeeded", "stopped"}, []string{agentsOf(m)["one"].Status, agentsOf(m)["two"].Status})
	require.False(t, agentsOf(m)["one"].Collected)
	p.nothingLeft()
}

func TestTheAgentsDeathLosesAllMachinesOfAPhase(t *testing.T) {
	t.Parallel()
	p := start(t)
	node := p.node()
	p.launch(team(t, "team", "process", "",
		agentDoc{name: "one", script: "sleep 2; echo 1 > one.txt"}, agentDoc{name: "two", script: "sleep 2; echo 2 > two.txt"}))
	p.running("team")

	require.NoError(t, node.Kill())
	require.NoError(t, node.Start(t.Context()))

	m := p.ended("team")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	runs := m.PhaseList[0].Runs
	require.Len(t, runs, 2)
	require.Equal(t, "lost", runs[0].Status)
	require.Equal(t, []string{"lost", "lost"}, []string{runs[0].Agents[0].Status, runs[0].Agents[1].Status})
	require.Equal(t, "README\none.txt\ntwo.txt\n", p.committed("team")("ls-tree", "--name-only", "tidewait/team/1"))
	p.nothingLeft()
}

func TestAComposedPhaseInMicroVMs(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi")

	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(team(t, "team", "microvm", "until: [author]",
		agentDoc{name: "author", script: "until busybox wget -q -O from-server.txt http://server/name; do sleep 0.2; done; hostname > author.txt"},
		agentDoc{name: "server", script: "mkdir www && hostname > www/name && exec busybox httpd -f -p 80 -h www", extra: "collect: [none]"},
	)))
	require.Zerof(t, code, "%s%s", out, errs)

	m := p.show("team")
	agents := agentsOf(m)
	require.Equal(t, []any{"succeeded", true}, []any{agents["author"].Status, agents["author"].Collected})
	require.Equal(t, "stopped", agents["server"].Status)
	for name, a := range agents {
		require.Contains(t, []string{"tcg", "kvm"}, a.Accel, name)
	}
	require.Contains(t, m.PhaseList[0].Runs[0].Isolation, "a private network with the machines of its run only")
	git := p.committed("team")
	require.Equal(t, "README\nauthor.txt\nfrom-server.txt\n", git("ls-tree", "--name-only", "tidewait/team/1"))
	require.Equal(t, "server\n", git("show", "tidewait/team/1:from-server.txt"))
	require.Equal(t, "author\n", git("show", "tidewait/team/1:author.txt"))
	p.nothingLeft()
}

func TestWhatAllMachinesHaveMadeIsKept(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(team(t, "team", "process", "",
		agentDoc{name: "one", script: "echo half > one.txt; echo ready; sleep 600"},
		agentDoc{name: "two", script: "echo half > two.txt; echo ready; sleep 600"},
		agentDoc{name: "deaf", script: "trap '' TERM; echo half > deaf.txt; echo ready; while :; do sleep 0.1; done"}))
	p.running("team")
	p.eventually("all have written", func() bool {
		return strings.Count(p.must("mission", "logs", "team"), "| ready\n") == 3
	}, func() any { return p.must("mission", "logs", "team") })

	p.must("mission", "cancel", "team", "--keep", "--reason", "enough")
	m := p.ended("team")

	require.Equal(t, "cancelled", m.Status)
	phase := m.PhaseList[0]
	require.NotNil(t, phase.Partial, phase.Failure)
	require.Contains(t, phase.Failure, "; nothing could be kept of deaf")
	require.Equal(t, []bool{true, true, false}, []bool{agentsOf(m)["one"].Collected, agentsOf(m)["two"].Collected, agentsOf(m)["deaf"].Collected})
	var results api.Results
	require.NoError(t, json.Unmarshal([]byte(p.must("mission", "results", "team", "-o", "json")), &results))
	require.Empty(t, results.Commits)
	require.Len(t, results.Partial, 1)
	require.Equal(t, 2, results.Partial[0].Files)
	p.nothingLeft()
}

func TestTheMachinesOfAPhaseReachEachOtherByName(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(team(t, "team", "process", "until: [author]",
		agentDoc{name: "author", script: "until busybox wget -q -O from-server.txt http://server/name; do sleep 0.2; done"},
		agentDoc{name: "server", script: "mkdir www && hostname > www/name && exec busybox httpd -f -p 80 -h www", extra: "collect: [none]"},
	)))
	require.Zerof(t, code, "%s%s", out, errs)
	require.Equal(t, "server\n", p.committed("team")("show", "tidewait/team/1:from-server.txt"))
	p.nothingLeft()
}

func TestTheExampleOfAComposedPhase(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node("TIDEWAIT_NODE_MEMORY=1Gi")
	example, err := filepath.Abs("../../examples/missions/composed.yaml")
	require.NoError(t, err)
	text, err := os.ReadFile(example)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "composed.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	replaceInFile(t, path, "backend: microvm", "backend: process")
	replaceInFile(t, path, "./sample-repo", filepath.Join(filepath.Dir(example), "sample-repo"))

	out, errs, code := p.tidewait("mission", "launch", "--wait", path)
	require.Zerof(t, code, "%s%s", out, errs)

	git := p.committed("composed")
	require.Equal(t, "out/critic-1.txt\nout/critic-2.txt\nout/extremes.csv\n", git("diff", "--name-only", "tidewait/composed/1~1", "tidewait/composed/1"))
	require.Equal(t, "145\n", git("show", "tidewait/composed/1:out/critic-2.txt"))
	require.Equal(t, "review/critic-1 | 2026-03 has 145 lines\n", p.must("mission", "logs", "composed", "--agent", "critic-1"))
	p.nothingLeft()
}
