package e2e

import (
	"crypto/sha1" //nolint:gosec // git's
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/store"
)

// TestFaultMatrix lets every fault happen at every step of a run, one after
// another. Each mission ends as if nothing had happened, or says truthfully why
// it did not, and nothing of it is left but its commits.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	table := newFaultTable(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			long(t, 100*time.Second)
			s := startFaults(t, "process", f)
			for _, step := range faultSteps {
				t.Run(step, func(t *testing.T) { s.in(t).play(f, step, table) })
			}
		})
	}
}

// faultNodes are what a node of a backend is started with.
var faultNodes = map[string][]string{
	"process": {"TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_MEMORY=600Mi"},
	"microvm": {"TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi"},
}

// startFaults starts a product with two nodes of which each has room for one
// phase, so that a phase which lost its node has another.
func startFaults(t *testing.T, backend string, f fault) *faultStack {
	t.Helper()
	s := &faultStack{product: start(t, f.fleet...), backend: backend, work: t.TempDir()}
	for _, id := range []string{"n1", "n2"} {
		w, err := s.StartNode(t.Context(), id, slices.Concat([]string{
			"TIDEWAIT_LOG_LEVEL=debug", "TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_DISK=4Gi",
			"TIDEWAIT_NODE_BOOT_TIMEOUT=2m", "TIDEWAIT_NODE_PROBE_TIMEOUT=4m",
		}, faultNodes[backend], f.env)...)
		require.NoError(t, err)
		s.agents = append(s.agents, w)
	}
	var err error
	s.standby, err = s.StartWorker(t.Context(), "engine-2", []string{"engine"})
	require.NoError(t, err)
	require.NoError(t, s.standby.Stop())

	line := "the tide waits for no one, and the others wait for the tide....\n"
	big := []byte(strings.Repeat(line, 4<<20/len(line)))
	require.NoError(t, os.WriteFile(filepath.Join(s.work, "big.txt"), big, 0o600))
	sum := sha1.New() //nolint:gosec // git's
	fmt.Fprintf(sum, "blob %d\x00", 2*len(big))
	sum.Write(big)
	sum.Write(big)
	s.twice = hex.EncodeToString(sum.Sum(nil))
	return s
}

func (s *faultStack) in(t *testing.T) *faultStack {
	t.Helper()
	own := *s
	own.product = s.product.in(t)
	return &own
}

// play plays a cell. One whose moment had passed before the fault struck, or whose
// node lost its lease though nothing was away for that long, on a machine that is
// busy with other things, is judged and played again.
func (s *faultStack) play(f fault, step string, table *faultTable) {
	s.t.Helper()
	const tries = 8
	for try := range tries {
		c := &cell{faultStack: s, fault: f, step: step, mission: fmt.Sprintf("%s-%s-%d", strings.ToLower(strings.ReplaceAll(f.name, " ", "-")), step, try+1)}
		began := time.Now()
		c.log = follow(s.t, s.agents...)
		placed := s.watchPlacements()
		c.launch()
		c.moment(placed)
		c.strike()
		m := c.judge(c.wanted())
		table.add(c, m, time.Since(began))
		if c.hit == step && (c.isLong() || !c.leaseRanOut()) {
			return
		}
	}
	s.t.Fatalf("the moment was missed %d times", tries)
}

// want is how the second phase of a cell ends.
type want struct {
	codes []string // of a failure; nil: it succeeds
	lucky bool     // it may succeed all the same
	runs  int      // at most
}

// wanted says what a fault may do to a phase: an agent that dies, or is away for
// longer than its lease, costs it a run, unless its runs are kept and the command
// was begun; a machine that dies fails it, because its
// command may not be one that can be repeated.
func (c *cell) wanted() want {
	switch c.fault.name {
	case machineKilled.name:
		switch c.hit {
		case "create": // which tries again
			return want{codes: []string{"boot_failed", "machine_died"}, lucky: true, runs: 1}
		case "inject":
			return want{codes: []string{"inject_failed", "machine_died"}, runs: 1}
		case "run":
			return want{codes: []string{"machine_died"}, runs: 1}
		case "collect": // of which the machine may have done its part
			return want{codes: []string{"collect_failed", "machine_died"}, lucky: true, runs: 1}
		}
	case agentKilled.name:
		return want{runs: 2}
	case agentReplaced.name:
		switch c.hit {
		case "run", "collect", "destroy": // the next one goes on with it
			return want{runs: 1}
		}
		return want{runs: 2}
	case agentFrozen.name, engineFrozen.name:
		if c.isLong() {
			return want{runs: 2}
		}
	case temporalAway.name:
		return want{runs: 2}
	}
	return want{runs: 1}
}

// judge waits for the mission's end and asserts all that is promised of it.
func (c *cell) judge(want want) api.MissionDetail {
	c.t.Helper()
	m := c.ended(c.mission)
	if c.leaseRanOut() {
		want.runs = max(want.runs, 2)
	}
	first, second := m.PhaseList[0], m.PhaseList[1]
	require.Equal(c.t, "succeeded", first.Status, "%+v", first)
	require.Len(c.t, first.Runs, 1)
	last := second.Runs[len(second.Runs)-1]
	switch {
	case want.codes == nil:
		require.Equal(c.t, []string{"succeeded", "succeeded", "succeeded"}, []string{m.Status, second.Status, last.Status}, "%s; %s", m.Failure, last.Failure)
	case m.Status == "succeeded":
		require.Equal(c.t, []string{"succeeded", "succeeded"}, []string{second.Status, last.Status})
		require.True(c.t, want.lucky, "a phase succeeded on a machine that was killed during %s", c.hit)
	default:
		require.Equal(c.t, []string{"failed", "failed", "failed"}, []string{m.Status, second.Status, last.Status})
		require.Contains(c.t, want.codes, second.FailureCode, second.Failure)
		require.Equal(c.t, []string{second.FailureCode, second.FailureCode}, []string{m.FailureCode, last.FailureCode})
		require.Equal(c.t, "phase second: "+second.Failure, m.Failure)
		require.Empty(c.t, second.Commit)
	}
	require.LessOrEqual(c.t, len(second.Runs), want.runs, "%+v", second.Runs)
	for _, r := range second.Runs[:len(second.Runs)-1] {
		require.Equal(c.t, []string{"lost", "node_lost"}, []string{r.Status, r.FailureCode})
		require.NotEmpty(c.t, r.Failure)
	}
	c.nothingLeftOf()
	c.allHeardOf()
	c.nothingLeftOf()
	c.committedAll(m)
	require.Equal(c.t, m, c.show(c.mission), "nobody who was late has changed anything")
	return m
}

// nothingLeftOf asserts that of a mission that has ended nothing is left but what
// it made.
func (c *cell) nothingLeftOf() {
	c.t.Helper()
	c.nothingLeft()
	c.eventually("every process of a machine is gone", func() bool { return len(c.machineProcesses()) == 0 }, func() any { return c.machineProcesses() })
	for _, dir := range c.cgroups {
		require.NoDirExists(c.t, dir)
	}
	require.Zero(c.t, c.count("SELECT count(*) FROM open_waits"))
	require.Zero(c.t, c.count("SELECT count(*) FROM capacity_waits"))
	require.Zero(c.t, c.count("SELECT count(*) FROM capacity_holds"))
	require.Zero(c.t, c.count("SELECT count(*) FROM topology_runs WHERE status IN ('starting', 'running')"))
	for _, id := range []string{"mission." + c.mission, "phase." + c.mission + ".first", "phase." + c.mission + ".second"} {
		desc, err := c.temporal.DescribeWorkflow(c.t.Context(), id, "")
		require.NoError(c.t, err)
		require.NotEqual(c.t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, desc.Status, id)
	}
	ledger, err := store.Open(c.t.Context(), c.Stack.PostgresURL, 1, store.Rules{})
	require.NoError(c.t, err)
	defer ledger.Close()
	wrong, err := ledger.Audit(c.t.Context())
	require.NoError(c.t, err)
	require.Empty(c.t, wrong)
}

// committedAll asserts that each phase that succeeded has one commit, with what it
// made on what was there before.
func (c *cell) committedAll(m api.MissionDetail) {
	c.t.Helper()
	git, branch := c.committed(c.mission), "tidewait/"+c.mission+"/1"
	subjects := []string{c.mission + ": first"}
	files := "big.txt\nfirst.txt\n"
	commits := []string{m.PhaseList[0].Commit}
	if m.PhaseList[1].Status == "succeeded" {
		subjects = append([]string{c.mission + ": second"}, subjects...)
		files += "second.txt\ntwice.txt\n"
		commits = append([]string{m.PhaseList[1].Commit}, commits...)
		require.Equal(c.t, "first\nsecond\n", git("show", branch+":second.txt"))
		require.Equal(c.t, c.twice+"\n", git("rev-parse", branch+":twice.txt"))
	}
	require.Equal(c.t, files, git("ls-tree", "--name-only", branch))
	require.Equal(c.t, "first\n", git("show", branch+":first.txt"))
	require.Equal(c.t, subjects, strings.Split(git("log", "--format=%s", branch), "\n")[:len(subjects)])
	require.Equal(c.t, fmt.Sprintln(len(subjects)+1), git("rev-list", "--count", branch), "with the one it began with")
	require.Equal(c.t, commits, strings.Split(git("log", "--format=%H", branch), "\n")[:len(commits)])
}

// allHeardOf waits until everybody has been heard of since now, so that what they
// still had to say is said.
func (c *cell) allHeardOf() {
	c.t.Helper()
	var now time.Time
	require.NoError(c.t, c.db.QueryRow(c.t.Context(), "SELECT clock_timestamp()").Scan(&now))
	silent := func() []string {
		rows, err := c.db.Query(c.t.Context(), "SELECT id FROM nodes WHERE heartbeat_at <= $1 UNION SELECT id FROM gateways WHERE heartbeat_at <= $1", now)
		require.NoError(c.t, err)
		defer rows.Close()
		var ids []string
		for rows.Next() {
			var id string
			require.NoError(c.t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(c.t, rows.Err())
		return ids
	}
	c.eventually("all nodes and the gateway are heard of", func() bool { return len(silent()) == 0 }, func() any { return silent() })
}

// machineProcesses lists processes that work in the directory of a node, or in
// namespaces that were made of it, whoever is their parent.
func (c *cell) machineProcesses() []string {
	c.t.Helper()
	nodes := filepath.Join(c.dir, "node") + "/"
	entries, err := os.ReadDir("/proc")
	require.NoError(c.t, err)
	var found []string
	for _, e := range entries {
		if _, err := fmt.Sscanf(e.Name(), "%d", new(int)); err != nil {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		mounts, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "mountinfo"))
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.Contains(string(line), "tidewait-worker") {
			continue // it may have been in the directory of a machine when it started that
		}
		if strings.HasPrefix(cwd, nodes) || strings.Contains(string(mounts), nodes) {
			found = append(found, e.Name()+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// faultTable is what became of the cells, for people.
type faultTable struct {
	mu   sync.Mutex
	rows []string
}

func newFaultTable(t *testing.T) *faultTable {
	t.Helper()
	table := &faultTable{}
	t.Cleanup(func() {
		slices.Sort(table.rows)
		t.Logf("\n%-8s %-17s %-8s %-8s %-10s %-14s %4s %6s\n%s", "BACKEND", "FAULT", "STEP", "HIT", "MISSION", "CODE", "RUNS", "TOOK", strings.Join(table.rows, "\n"))
	})
	return table
}

func (f *faultTable) addRow(row string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, row)
}

func (f *faultTable) add(c *cell, m api.MissionDetail, took time.Duration) {
	step := c.step
	if c.isLong() {
		step += "+"
	}
	f.addRow(fmt.Sprintf("%-8s %-17s %-8s %-8s %-10s %-14s %4d %5.1fs",
		c.backend, c.fault.name, step, c.hit, m.Status, m.FailureCode, len(m.PhaseList[1].Runs), took.Seconds()))
}
