package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/local"
	"tidewait/internal/wadm"
)

// TestRollingUpgrade replaces the processes of a product, which is busy with
// missions and an application, by those of another build, one after another.
// Every phase has one run and one commit, no host is told anything twice, and
// workflows that one build began are brought to their end by the other.
func TestRollingUpgrade(t *testing.T) {
	long(t, 45*time.Second)
	current := filepath.Join(t.TempDir(), "tidewait-worker")
	use := func(build string) {
		require.NoError(t, os.RemoveAll(current))
		require.NoError(t, os.Symlink(build, current))
	}
	use(filepath.Join(bin, "tidewait-worker"))
	p := startServices(t, current, keepRuns)
	next := buildWorker(t, "-ldflags", "-X tidewait/internal/release.version=0.1.0-next")
	engines := []*local.Worker{p.role("engine-1", "engine"), p.role("engine-2", "engine")}
	gateway := p.role("gateway", "gateway", "TIDEWAIT_GATEWAY_ID=gw")
	nodes := map[string]*local.Worker{}
	for _, id := range []string{"n1", "n2"} {
		nodes[id] = p.role(id, "node", "TIDEWAIT_NODE_ID="+id, "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2",
			"TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi")
	}
	s := p.lattice("default")
	s.host("h1")
	s.host("h2")
	s.deploy(shop("before", "v1"))
	s.becomes("before", wadm.Deployed)

	p.committedFirst(twoPhases("held"))
	load := &upgradeLoad{product: p}
	for range 3 { // of which one waits for a node
		load.more()
	}
	replace := func(w *local.Worker) {
		require.NoError(t, w.Stop())
		require.NoError(t, w.Start(t.Context()))
		load.more()
	}
	use(next)
	replace(engines[0])
	s.put(shop("during", "v1"))
	_, err := s.api.Deploy(s.ctx(), "during", nil)
	require.NoError(t, err)
	replace(engines[1])
	replace(gateway)
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		load.commandRuns(id)
		replace(nodes[id])
	}

	load.allEnd()
	p.goesOn("held")
	require.Len(t, p.show("held").PhaseList[1].Runs, 1)
	s.nudge("before")
	for _, app := range []string{"before", "during"} {
		s.becomes(app, wadm.Deployed)
		require.Equal(t, []int{4, 1}, []int{s.runs()[app+"-web"], s.runs()[app+"-http"]})
		require.Equal(t, []int{2, 1, 1, 1}, []int{
			s.told()["component.scale "+app+"-web"], s.told()["provider.start "+app+"-http"], s.told()["link.put "+app+"-http"], s.told()["config.put "+app+"-listen"],
		}, "each host was told once")
	}
	require.Equal(t, 2, p.count("SELECT count(*) FROM nodes WHERE version = '0.1.0-next'"))
	require.Equal(t, 1, p.count("SELECT count(*) FROM gateways WHERE version = '0.1.0-next'"))
	require.Equal(t, 2, p.buildsOf("mission.held"), "one build began it, and the other ended it")
	p.eventually("the other build looks at what the first has deployed", func() bool { return p.buildsOf("app.default.default.before") == 2 }, func() any { return nil })
	p.nothingLeft()
	for _, table := range []string{"open_waits", "capacity_waits", "capacity_holds", "topology_runs WHERE status IN ('starting', 'running')"} {
		require.Zero(t, p.count("SELECT count(*) FROM "+table), table)
	}
}

// role starts a worker in one role.
func (p *product) role(name, role string, env ...string) *local.Worker {
	p.t.Helper()
	w, err := p.StartWorker(p.t.Context(), name, []string{role}, env...)
	require.NoError(p.t, err)
	return w
}

// upgradeLoad is the missions that run while processes are replaced.
type upgradeLoad struct {
	*product
	missions []string
}

// more launches one more mission of two phases, of which each fills a node.
func (l *upgradeLoad) more() {
	l.t.Helper()
	name := fmt.Sprintf("m%d", len(l.missions)+1)
	l.missions = append(l.missions, name)
	l.launch(missionDoc{name: name, phases: []phaseDoc{
		{name: "first", memory: "512Mi", script: "sleep 1; echo first > first.txt"},
		{name: "second", memory: "512Mi", script: "sleep 2; cat first.txt > second.txt; echo second >> second.txt"},
	}})
}

// commandRuns waits until a node's one run has begun its command: its agent can be
// replaced then, and the next one goes on with it.
func (l *upgradeLoad) commandRuns(node string) {
	l.t.Helper()
	l.eventually("a command runs on "+node, func() bool {
		return l.count("SELECT count(*) FROM topology_runs WHERE node_id = '"+node+"' AND status = 'running' AND step = 'run' AND ended_at IS NULL AND started_at > now() - interval '1500 milliseconds'") == 1
	}, func() any { return nil })
}

func (l *upgradeLoad) allEnd() {
	l.t.Helper()
	for _, name := range l.missions {
		m := l.ended(name)
		require.Equal(l.t, "succeeded", m.Status, m.Failure)
		for _, p := range m.PhaseList {
			require.Len(l.t, p.Runs, 1, "mission %s: %+v", name, p.Runs)
			require.Equal(l.t, []string{"succeeded", "succeeded"}, []string{p.Status, p.Runs[0].Status})
		}
		l.twoCommits(m)
	}
}

func (l *upgradeLoad) twoCommits(m api.MissionDetail) {
	l.t.Helper()
	git, branch := l.committed(m.Name), "tidewait/"+m.Name+"/1"
	require.Equal(l.t, "3\n", git("rev-list", "--count", branch), "with the one it began with")
	require.Equal(l.t, "first\nsecond\n", git("show", branch+":second.txt"))
}

// buildsOf counts the builds that have worked on a workflow's latest run.
func (p *product) buildsOf(workflow string) int {
	p.t.Helper()
	builds := map[string]bool{}
	history := p.temporal.GetWorkflowHistory(p.t.Context(), workflow, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(p.t, err)
		if done := e.GetWorkflowTaskCompletedEventAttributes(); done != nil {
			builds[done.GetWorkerVersion().GetBuildId()] = true //nolint:staticcheck // workers without versions say it nowhere else
		}
	}
	return len(builds)
}
