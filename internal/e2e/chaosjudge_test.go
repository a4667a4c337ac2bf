package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

type wadmStatus = wadm.Status

// chaosLoad is what a round's faults happen to.
type chaosLoad struct {
	round      int
	working    []string // missions of two phases, which fill the nodes
	queued     string   // waits for a node
	held       string   // waits for a person
	late       string   // is launched while faults happen
	app, last  string   // applications: deployed while faults happen, and the round before
	queuedFrom time.Time
	heldFrom   time.Time
}

func (l chaosLoad) missions() []string {
	return append(slices.Clone(l.working), l.queued, l.held, l.late)
}

// play plays a round and asserts what is promised of it.
func (c *chaos) play(r chaosRound, round int, table *chaosTable) {
	c.t.Helper()
	began := time.Now()
	l := c.work(round)
	struck := make(chan error, 1)
	go func() { struck <- c.strikeAll(r) }()
	c.workMore(l)
	require.NoError(c.t, <-struck)
	c.recovers()

	again := c.judgeMissions(r, l)
	ended := map[string]int{}
	for _, name := range l.missions() {
		m := c.show(name)
		ended[strings.TrimSuffix(m.Status+" "+m.FailureCode, " ")]++
	}
	apps := c.judgeApplications(l)
	c.keepsWaiting()
	c.leavesNothing(l)
	require.Empty(c.t, c.booked.wrong())
	table.add("%5d  %-24s  %-12s  %5d  %5.0fs  %s", round, countedBy(ended), apps, again, time.Since(began).Seconds(), r)
}

func countedBy(by map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%d %s", by[what], what))
	}
	return strings.Join(all, ", ")
}

// work gives the product something to do: two missions that fill the nodes, one
// that waits for a node and one that waits for a person.
func (c *chaos) work(round int) chaosLoad {
	c.t.Helper()
	name := func(what string) string { return fmt.Sprintf("%s-%d", what, round) }
	l := chaosLoad{
		round: round, working: []string{name("east"), name("west")}, queued: name("queued"), held: name("held"), late: name("late"),
		app: fmt.Sprintf("shop%d", round), last: fmt.Sprintf("shop%d", round-1),
	}
	for _, mission := range l.working {
		c.launch(missionDoc{name: mission, phases: []phaseDoc{
			{name: "first", memory: "512Mi", script: "sleep 3; echo first > first.txt"},
			{name: "second", memory: "512Mi", script: "sleep 1; cat first.txt > second.txt; echo second >> second.txt"},
		}})
	}
	for _, mission := range l.working {
		c.until(mission, "its first phase has a node", func(m api.MissionDetail) bool { return m.PhaseList[0].Status == "running" })
	}
	c.launch(missionDoc{name: l.queued, phases: []phaseDoc{{name: "work", memory: "512Mi", script: "echo queued > queued.txt"}}})
	c.launch(missionDoc{name: l.held, phases: []phaseDoc{{name: "work", memory: "128Mi", script: "echo held > held.txt", extra: "hold: true"}}})
	l.queuedFrom, l.heldFrom = c.waiting(l.queued).Since, c.waiting(l.held).Since
	c.shop.put(shop(l.app, "v1"))
	return l
}

// workMore asks for more while faults happen, again and again until it is heard.
func (c *chaos) workMore(l chaosLoad) {
	c.t.Helper()
	path := c.write(missionDoc{name: l.late, phases: []phaseDoc{{name: "work", memory: "128Mi", script: "echo late > late.txt"}}})
	var heard error
	c.eventually("application "+l.app+" is deployed", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		_, heard = c.shop.api.Deploy(ctx, l.app, nil)
		return heard == nil
	}, func() any { return fmt.Sprint(heard) })
	var said string
	c.eventually("mission "+l.late+" is launched", func() bool {
		if _, _, code := c.tidewait("mission", "show", l.late); code == 0 {
			return true // the answer to an earlier try was lost
		}
		_, errs, code := c.tidewait("mission", "launch", path)
		said = errs
		return code == 0
	}, func() any { return said })
}

// recovers waits until all parts are there again and have been heard of.
func (c *chaos) recovers() {
	c.t.Helper()
	c.eventually("the tests' own connection is back", c.nats.IsConnected, func() any { return c.nats.Status().String() })
	c.reconnect()
	for name, w := range c.workers {
		select {
		case <-w.Ended():
			c.t.Fatalf("%s has ended by itself: see %s", name, w.LogPath())
		default:
		}
	}
	c.eventually("engines answer", func() bool { _, _, code := c.tidewait("mission", "list"); return code == 0 }, func() any { return nil })
	c.cell().allHeardOf()
}

// cell is what looks at things that a cell of the matrix looks at as well.
func (c *chaos) cell() *cell { return &cell{faultStack: &faultStack{product: c.product}} }

// chaosFiles is what each mission makes, by phase: the files and their contents.
var chaosFiles = map[string][]map[string]string{
	"east":   {{"first.txt": "first\n"}, {"second.txt": "first\nsecond\n"}},
	"west":   {{"first.txt": "first\n"}, {"second.txt": "first\nsecond\n"}},
	"queued": {{"queued.txt": "queued\n"}},
	"held":   {{"held.txt": "held\n"}},
	"late":   {{"late.txt": "late\n"}},
}

// judgeMissions waits for the end of all missions. It returns how many runs were
// repeated.
func (c *chaos) judgeMissions(r chaosRound, l chaosLoad) (again int) {
	c.t.Helper()
	held := c.show(l.held).PhaseList[0]
	require.Equal(c.t, "pending", held.Status)
	require.True(c.t, held.Wait != nil && held.Wait.Since.Equal(l.heldFrom), "what waits for a person waits since %s: %+v", l.heldFrom, held.Wait)
	c.must("phase", "release", l.held, "work")
	for _, name := range l.missions() {
		m := c.ended(name)
		c.endedTruthfully(r, m)
		for _, p := range m.PhaseList {
			again += max(len(p.Runs)-1, 0)
		}
	}
	queued := c.show(l.queued).PhaseList[0]
	first := slices.IndexFunc(queued.Waits, func(w api.PastWait) bool { return w.Kind == "capacity" })
	require.GreaterOrEqual(c.t, first, 0, "%+v", queued.Waits)
	require.True(c.t, queued.Waits[first].Since.Equal(l.queuedFrom), "it waited for a node since %s: %+v", l.queuedFrom, queued.Waits)
	return again
}

// codes are those with which a phase may fail because of a round's faults.
func (r chaosRound) codes() []string {
	var codes []string
	if r.has(killed, chaosMachines...) {
		codes = append(codes, "boot_failed", "inject_failed", "machine_died", "collect_failed")
	}
	if r.has(diskFull, "n1", "n2") {
		codes = append(codes, "boot_failed", "inject_failed", "collect_failed", "command_failed")
	}
	return codes
}

func (c *chaos) endedTruthfully(r chaosRound, m api.MissionDetail) {
	c.t.Helper()
	made := map[string]string{}
	commits := 0
	for i, p := range m.PhaseList {
		require.LessOrEqual(c.t, len(p.Runs), 1+len(r.strikes), "a fault costs a phase one run at most: %+v", p.Runs)
		for _, run := range p.Runs[:max(len(p.Runs)-1, 0)] {
			require.Equal(c.t, []string{"lost", "node_lost"}, []string{run.Status, run.FailureCode}, "%+v", run)
			require.NotEmpty(c.t, run.Failure)
		}
		switch p.Status {
		case "succeeded":
			require.Equal(c.t, "succeeded", p.Runs[len(p.Runs)-1].Status)
			require.NotEmpty(c.t, p.Commit)
			kind, _ := cutLast(m.Name)
			maps.Copy(made, chaosFiles[kind][i])
			commits++
		case "failed":
			require.Contains(c.t, r.codes(), p.FailureCode, p.Failure)
			require.NotEmpty(c.t, p.Failure)
			require.Empty(c.t, p.Commit)
			require.Equal(c.t, []string{"failed", p.FailureCode, "phase " + p.Name + ": " + p.Failure}, []string{m.Status, m.FailureCode, m.Failure})
			require.Equal(c.t, []string{"failed", p.FailureCode}, []string{p.Runs[len(p.Runs)-1].Status, p.Runs[len(p.Runs)-1].FailureCode})
		default: // it comes after one that failed
			require.Equal(c.t, []string{"failed", "cancelled"}, []string{m.Status, p.Status}, "%+v", p)
			require.Empty(c.t, p.Runs)
		}
	}
	require.Equal(c.t, commits == len(m.PhaseList), m.Status == "succeeded", m.Failure)
	if commits > 0 {
		c.holds(m, commits, made)
	}
}

// holds asserts that a mission's branch has so many commits, and what was made.
func (c *chaos) holds(m api.MissionDetail, commits int, made map[string]string) {
	c.t.Helper()
	git, branch := c.committed(m.Name), "tidewait/"+m.Name+"/1"
	require.Equal(c.t, fmt.Sprintln(commits+1), git("rev-list", "--count", branch), "with the one it began with")
	made["README"] = "a small workspace\n"
	require.Equal(c.t, strings.Join(slices.Sorted(maps.Keys(made)), "\n")+"\n", git("ls-tree", "--name-only", branch))
	for file, content := range made {
		require.Equal(c.t, content, git("show", branch+":"+file))
	}
}

// judgeApplications waits until what was deployed is there, once, and undeploys
// what the round before had deployed.
func (c *chaos) judgeApplications(l chaosLoad) string {
	c.t.Helper()
	there := []string{l.app}
	if c.count("SELECT count(*) FROM applications WHERE name = '"+l.last+"' AND deployed_version IS NOT NULL") == 1 {
		there = append(there, l.last)
	}
	for _, app := range there {
		c.shop.becomes(app, wadm.Deployed)
		c.isThere(app)
	}
	if len(there) == 1 {
		return "1 deployed"
	}
	c.eventually(l.last+" is undeployed", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.shop.api.Undeploy(ctx, l.last)
		return err == nil
	}, func() any { return nil })
	c.eventually("nothing is left of "+l.last, func() bool {
		runs := c.shop.runs()
		return runs[l.last+"-web"]+runs[l.last+"-http"] == 0 && !slices.Contains(c.shop.linked(), l.last+"-http->"+l.last+"-web") &&
			c.count("SELECT count(*) FROM reconciliations WHERE name = '"+l.last+"'") == 0
	}, func() any { return []any{c.shop.places(), c.shop.linked()} })
	return "2 deployed"
}

// isThere asserts that hosts run what an application says, and that its latest
// published status is the one that is told.
func (c *chaos) isThere(app string) {
	c.t.Helper()
	c.eventually(app+" runs, once", func() bool {
		runs := c.shop.runs()
		return runs[app+"-web"] == 4 && runs[app+"-http"] == 1 && slices.Contains(c.shop.linked(), app+"-http->"+app+"-web")
	}, func() any { return []any{c.shop.places(), c.shop.linked()} })
	values, there := c.shop.l.Config(app + "-listen")
	require.True(c.t, there)
	require.Equal(c.t, map[string]string{"value": "8080"}, values)
	js, err := jetstream.New(c.nats)
	require.NoError(c.t, err)
	stream, err := js.Stream(c.t.Context(), "wadm_status")
	require.NoError(c.t, err)
	var last wadmStatus
	c.eventually("the status of "+app+" is published", func() bool {
		msg, err := stream.GetLastMsgForSubject(c.t.Context(), "wadm.status.default."+app)
		return err == nil && json.Unmarshal(msg.Data, &last) == nil && last.Status.Type == wadm.Deployed
	}, func() any { return last })
}

// keepsWaiting asserts that what waits for a host that never comes does so since it
// began to.
func (c *chaos) keepsWaiting() {
	c.t.Helper()
	got := c.dark.until("moon", "waiting", func(got wadmStatus) bool { return got.Status.Reason == "never_observed" })
	require.Equal(c.t, c.dimmed, *got.Status.Since)
}

// leavesNothing asserts that of what has ended nothing is left.
func (c *chaos) leavesNothing(l chaosLoad) {
	c.t.Helper()
	c.nothingLeft()
	c.eventually("every process of a machine is gone", func() bool { return len(c.machineProcesses()) == 0 }, func() any { return c.machineProcesses() })
	require.Equal(c.t, 1, c.count("SELECT count(*) FROM open_waits"), "of application moon")
	for _, table := range []string{"capacity_waits", "capacity_holds", "topology_runs WHERE status IN ('starting', 'running')", "mission_phases WHERE status IN ('pending', 'running')"} {
		require.Zero(c.t, c.count("SELECT count(*) FROM "+table), table)
	}
	c.eventually("nothing is left to be told", func() bool {
		return c.count("SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM application_outbox)") == 0
	}, func() any { return nil })
	want := []string{"app.default.dark.moon", "app.default.default." + l.app, "lattice.default.dark", "lattice.default.default"}
	c.eventually("no other workflow runs", func() bool { return slices.Equal(want, c.running()) }, func() any { return c.running() })
	ledger, err := store.Open(c.t.Context(), c.Stack.PostgresURL, 1, store.Rules{})
	require.NoError(c.t, err)
	defer ledger.Close()
	wrong, err := ledger.Audit(c.t.Context())
	require.NoError(c.t, err)
	require.Empty(c.t, wrong)
}

// machineProcesses lists processes in namespaces of their own that were made of a
// node's directory, and those that work there. Whoever shares the test's namespace
// sees the file systems that the test has mounted, and so does init, of which nobody
// is told which namespace it is in.
func (c *chaos) machineProcesses() []string {
	own, err := os.Readlink("/proc/self/ns/mnt")
	require.NoError(c.t, err)
	nodes := filepath.Join(c.dir, "node") + "/"
	entries, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(c.t, err)
	var found []string
	for _, dir := range entries {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.Contains(string(line), "tidewait-worker") {
			continue // it may be in a machine's directory while it starts that
		}
		namespace, _ := os.Readlink(filepath.Join(dir, "ns", "mnt"))
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if strings.HasPrefix(cwd, nodes) || namespace != "" && namespace != own && strings.Contains(string(mounts), nodes) {
			found = append(found, filepath.Base(dir)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// running are the ids of the workflows that run.
func (c *chaos) running() []string {
	found, err := c.temporal.ListWorkflow(c.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Running'"})
	if err != nil {
		return []string{err.Error()}
	}
	var ids []string
	for _, e := range found.GetExecutions() {
		ids = append(ids, e.GetExecution().GetWorkflowId())
	}
	slices.Sort(ids)
	return ids
}

// objectsGo waits until no object is left that a mission needed on its way.
func (c *chaos) objectsGo() {
	c.t.Helper()
	if len(c.disks) == 0 {
		return // too long to be waited for in every run of the tests
	}
	js, err := jetstream.New(c.nats)
	require.NoError(c.t, err)
	left := func() map[string]int {
		counts := map[string]int{}
		for _, bucket := range []string{api.BucketWorkspaces, api.BucketResults("n1"), api.BucketResults("n2")} {
			store, err := js.ObjectStore(c.t.Context(), bucket)
			require.NoError(c.t, err)
			objects, _ := store.List(c.t.Context()) // an error says that there is none
			if len(objects) > 0 {
				counts[bucket] = len(objects)
			}
		}
		return counts
	}
	c.eventually("every object is deleted", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// bookings watches what nodes hold, beside whoever books them.
type bookings struct {
	conn *pgx.Conn // nil: the database is away

	mu    sync.Mutex
	found []string
	looks int
}

func (b *bookings) wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.found)
}

// watchBookings looks ten times a second, until the test ends.
func watchBookings(t *testing.T, url string) *bookings {
	t.Helper()
	b := &bookings{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				b.look(ctx, url)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if b.conn != nil {
			_ = b.conn.Close(context.Background())
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		t.Logf("%d looks at what nodes hold", b.looks)
		require.Positive(t, b.looks)
	})
	return b
}

// look reads all of it in one statement, which is one moment.
func (b *bookings) look(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if b.conn == nil || b.conn.IsClosed() {
		var err error
		if b.conn, err = pgx.Connect(ctx, url); err != nil {
			b.conn = nil
			return
		}
	}
	var nodes []booked
	var held []booked
	if b.conn.QueryRow(ctx, `
SELECT (SELECT COALESCE(json_agg(json_build_object('node', id, 'cpu', cpu_total, 'memory', memory_total, 'disk', disk_total, 'slots', slots_total)), '[]') FROM nodes),
       (SELECT COALESCE(json_agg(json_build_object('node', node_id, 'phase', phase_id, 'cpu', cpu, 'memory', memory, 'disk', disk, 'slots', slots)), '[]')
        FROM reservations WHERE released_at IS NULL)`).Scan(&nodes, &held) != nil {
		_ = b.conn.Close(ctx)
		return
	}
	sums, phases := map[string]booked{}, map[int64]int{}
	for _, r := range held {
		sum := sums[r.Node]
		sums[r.Node] = booked{CPU: sum.CPU + r.CPU, Memory: sum.Memory + r.Memory, Disk: sum.Disk + r.Disk, Slots: sum.Slots + r.Slots}
		phases[r.Phase]++
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	for _, n := range nodes {
		if sum := sums[n.Node]; sum.CPU > n.CPU || sum.Memory > n.Memory || sum.Disk > n.Disk || sum.Slots > n.Slots {
			b.found = append(b.found, fmt.Sprintf("node %s has %+v and holds %+v", n.Node, n, sum))
		}
	}
	for phase, n := range phases {
		if n > 1 {
			b.found = append(b.found, fmt.Sprintf("phase %d holds %d places", phase, n))
		}
	}
}

// booked is what a node has, or a reservation takes.
type booked struct {
	Node                     string
	Phase                    int64
	CPU, Memory, Disk, Slots int64
}
