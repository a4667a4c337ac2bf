package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/local"
	"tidewait/internal/natsrpc"
)

// quick makes every interval short enough to be waited for, in the proportions
// of the defaults.
var quick = []string{
	"TIDEWAIT_FLEET_RETRY_INTERVAL=1s", "TIDEWAIT_FLEET_HEARTBEAT_INTERVAL=500ms", "TIDEWAIT_FLEET_SUSPECT_AFTER=3s",
	"TIDEWAIT_FLEET_LEASE=6s", "TIDEWAIT_FLEET_LOST_AFTER=10s", "TIDEWAIT_FLEET_SWEEP_INTERVAL=1s", "TIDEWAIT_NODE_KILL_GRACE=2s",
}

// patience bounds every wait of a test; nothing here takes this long, even where
// others use the processors.
const patience = 3 * time.Minute

// product is a running product and what a test asks it with.
type product struct {
	*local.Product
	t        *testing.T
	dir      string
	db       *pgx.Conn
	temporal client.Client
	nats     *nats.Conn // nil: the product uses one that is not the stack's
	engine   *local.Worker
	gateway  *local.Worker
	agent    *local.Worker // of node n1
}

// start runs the stack, an engine and a gateway, each a process of its own.
func start(t *testing.T, env ...string) *product {
	t.Helper()
	return startOn(t, nil, env...)
}

// startOn does so with these services of the stack; none are all.
func startOn(t *testing.T, services []devstack.Name, env ...string) *product {
	t.Helper()
	return startStack(t, devstack.Options{Services: services}, env...)
}

// startStack does so on a stack with these options, in a directory of its own.
func startStack(t *testing.T, stack devstack.Options, env ...string) *product {
	t.Helper()
	stacks.take(t)
	ctx := t.Context()
	dir := devstacktest.Dir(t)
	stack.Dir, stack.TemporalCLI = filepath.Join(dir, "stack"), devstacktest.TemporalCLI(t)
	p, err := local.Start(ctx, local.Options{
		Worker: filepath.Join(bin, "tidewait-worker"), Patience: 5 * time.Minute,
		Env:   append(append([]string{"TIDEWAIT_DATA_DIR=" + dir}, quick...), env...),
		Stack: stack,
	})
	require.NoError(t, err)
	pr := &product{Product: p, t: t, dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			pr.printLogs()
		}
		require.NoError(t, p.Stop())
	})
	pr.engine, err = p.StartWorker(ctx, "engine", []string{"engine"})
	require.NoError(t, err)
	pr.gateway, err = p.StartWorker(ctx, "gateway", []string{"gateway"}, "TIDEWAIT_GATEWAY_ID=gw")
	require.NoError(t, err)
	pr.db, err = pgx.Connect(ctx, p.Stack.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pr.db.Close(context.Background()) })
	pr.temporal, err = client.DialContext(ctx, client.Options{HostPort: p.Stack.TemporalAddress})
	require.NoError(t, err)
	t.Cleanup(pr.temporal.Close)
	if p.Stack.NATS != nil {
		pr.nats, err = nats.Connect(p.Stack.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(pr.nats.Close)
	}
	return pr
}

func (p *product) printLogs() {
	for _, name := range []string{"engine", "gateway", "n1"} {
		data, err := os.ReadFile(filepath.Join(p.dir, "stack", "logs", name+".log"))
		if err == nil {
			p.t.Logf("%s:\n%s", name, tail(data, 4000))
		}
	}
}

func tail(data []byte, n int) []byte { return data[max(0, len(data)-n):] }

// node starts the agent of node n1, which has room for one phase of a test.
func (p *product) node(env ...string) *local.Worker {
	p.t.Helper()
	w, err := p.StartNode(p.t.Context(), "n1", append([]string{
		"TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi",
		"TIDEWAIT_NODE_BOOT_TIMEOUT=2m", "TIDEWAIT_NODE_PROBE_TIMEOUT=4m", // where many boot on two cores
	}, env...)...)
	require.NoError(p.t, err)
	p.agent = w
	return w
}

// tidewait runs the CLI and returns what it printed and its exit code.
func (p *product) tidewait(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	return p.run(filepath.Join(bin, "tidewait"), args...)
}

// must runs the CLI, which must succeed.
func (p *product) must(args ...string) string {
	p.t.Helper()
	out, errs, code := p.tidewait(args...)
	require.Zerof(p.t, code, "tidewait %s: %s%s", strings.Join(args, " "), out, errs)
	return out
}

// launch writes a mission document and launches it.
func (p *product) launch(m missionDoc) {
	p.t.Helper()
	p.must("mission", "launch", p.write(m))
}

func (p *product) write(m missionDoc) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), m.name+".yaml")
	require.NoError(p.t, os.WriteFile(path, []byte(m.yaml(p.t)), 0o600))
	return path
}

// show asks an engine for a mission as the CLI does, without the cost of a process
// for each of many looks.
func (p *product) show(name string) api.MissionDetail {
	p.t.Helper()
	m, err := p.ask(name)
	require.NoError(p.t, err)
	return m
}

func (p *product) ask(name string) (m api.MissionDetail, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err = natsrpc.Ask(ctx, p.nats, api.SubjectMissionShow, api.NameRequest{Name: name}, &m)
	return m, err
}

// until asks for a mission until it is as wanted. There may be no engine to ask for
// a while.
func (p *product) until(name, what string, wanted func(api.MissionDetail) bool) api.MissionDetail {
	p.t.Helper()
	var m api.MissionDetail
	p.eventually(what, func() bool {
		var err error
		if m, err = p.ask(name); errors.Is(err, nats.ErrNoResponders) {
			return false
		}
		require.NoError(p.t, err)
		return wanted(m)
	}, func() any { return m })
	return m
}

// eventually waits for a condition; state says what was seen instead.
func (p *product) eventually(what string, holds func() bool, state func() any) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			seen, _ := json.MarshalIndent(state(), "", "  ")
			p.t.Fatalf("not so after %s: %s; seen: %s", patience, what, seen)
		}
	}
}

func (p *product) ended(name string) api.MissionDetail {
	p.t.Helper()
	return p.until(name, "mission "+name+" ends", func(m api.MissionDetail) bool { return m.EndedAt != nil })
}

func (p *product) waiting(name string) api.Wait {
	p.t.Helper()
	m := p.until(name, "phase waits", func(m api.MissionDetail) bool { return m.PhaseList[0].Wait != nil })
	return *m.PhaseList[0].Wait
}

func (p *product) running(name string) {
	p.t.Helper()
	p.until(name, "phase runs its command", func(m api.MissionDetail) bool { return m.PhaseList[0].Step == "run" })
}

func (p *product) count(sql string) int {
	p.t.Helper()
	var n int
	require.NoError(p.t, p.db.QueryRow(context.Background(), sql).Scan(&n))
	return n
}

// nothingLeft asserts that no reservation and no machine outlives the missions.
func (p *product) nothingLeft() {
	p.t.Helper()
	p.eventually("every reservation is released", func() bool {
		return p.count("SELECT count(*) FROM reservations WHERE released_at IS NULL") == 0
	}, func() any { return nil })
	require.Zero(p.t, p.count("SELECT COALESCE(sum(cpu_reserved + memory_reserved + disk_reserved + slots_reserved + starting), 0)::int FROM nodes"))
	p.eventually("every machine is gone", func() bool { return len(p.machines()) == 0 }, func() any { return p.machines() })
}

// machines lists what the backends keep on disk for machines, whichever agent
// they belonged to, and processes that work in this test's directory.
func (p *product) machines() []string {
	found, err := filepath.Glob(filepath.Join(p.dir, "node", "*", "*", "runs", "r*-*"))
	require.NoError(p.t, err)
	return append(found, p.processes("qemu-system", "tidewait-guest")...)
}

// processes lists running programs whose command line names this test's
// directory and one of the given words.
func (p *product) processes(words ...string) []string {
	entries, err := os.ReadDir("/proc")
	require.NoError(p.t, err)
	var found []string
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(p.dir)) {
			continue
		}
		for _, w := range words {
			if bytes.Contains(line, []byte(w)) {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return found
}

// missionDoc is a mission on a small workspace.
type missionDoc struct {
	name    string
	backend string // default process
	extra   string // further lines of spec
	phases  []phaseDoc
}

type phaseDoc struct {
	name   string
	cpus   string // default 1
	memory string // default 256Mi
	disk   string // default 64Mi
	script string // empty: extra has agents
	extra  string // further lines of the phase
}

func (m missionDoc) yaml(t *testing.T) string {
	t.Helper()
	work := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "README"), []byte("a small workspace\n"), 0o600))
	var b strings.Builder
	if m.backend == "" {
		m.backend = "process"
	}
	fmt.Fprintf(&b, "apiVersion: tidewait/v1\nkind: Mission\nmetadata: {name: %s}\nspec:\n  backend: %s\n  workspace: {path: %s}\n", m.name, m.backend, work)
	for _, line := range strings.Split(strings.TrimSpace(m.extra), "\n") {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString("  phases:\n")
	for _, p := range m.phases {
		if p.memory == "" {
			p.memory = "256Mi"
		}
		script, err := json.Marshal(p.script)
		require.NoError(t, err)
		fmt.Fprintf(&b, "    - name: %s\n      resources: {cpus: %s, memory: %s, disk: %s}\n", p.name, cmp.Or(p.cpus, "1"), p.memory, cmp.Or(p.disk, "64Mi"))
		if p.script != "" {
			fmt.Fprintf(&b, "      run: [sh, -c, %s]\n", script)
		}
		for _, line := range strings.Split(strings.TrimSpace(p.extra), "\n") {
			fmt.Fprintf(&b, "      %s\n", line)
		}
	}
	return b.String()
}

// holder is a mission whose phase fills the node of a test until it is cancelled.
func holder(name string) missionDoc {
	return missionDoc{name: name, phases: []phaseDoc{{name: "hold", memory: "512Mi", script: "sleep 600"}}}
}
