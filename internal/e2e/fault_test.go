package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/local"
)

// faultSteps are the moments at which faults strike. The first lies between the
// commit of a placement and its dispatch; the others are the steps of a run.
var faultSteps = []string{"place", "create", "inject", "run", "collect", "destroy"}

// A fault is something that happens to a part of the product.
type fault struct {
	name string
	// strike makes it happen to what has the run, and returns what ends it. Between
	// the two the product is on its own.
	strike func(*cell) (end func())
	// long are the steps at which a frozen part stays away until others have gone
	// on without it; at the rest it is back within its lease.
	long  []string
	env   []string // of the nodes, beside the usual
	fleet []string // of all, beside the usual
}

// part is what the fault happens to.
func (f fault) part() string {
	part, _, _ := strings.Cut(f.name, " ")
	return part
}

// shortly is how long a part is frozen that is to be back within its lease.
const shortly = 2 * time.Second

var (
	gatewayKilled = fault{name: "gateway SIGKILL", strike: func(c *cell) func() { return c.kill(c.gateway) }}
	engineKilled  = fault{name: "engine SIGKILL", strike: func(c *cell) func() { return c.kill(c.engine) }}
	agentKilled   = fault{name: "agent SIGKILL", strike: func(c *cell) func() { return c.kill(c.agent) }}
	agentReplaced = fault{name: "agent-kept SIGKILL", strike: func(c *cell) func() { return c.kill(c.agent) }, env: []string{keepRuns}, fleet: roomy}
	gatewayFrozen = fault{name: "gateway SIGSTOP", strike: (*cell).freezeGateway, long: []string{"destroy"}}
	engineFrozen  = fault{name: "engine SIGSTOP", strike: (*cell).freezeEngine, long: []string{"place", "destroy"}}
	agentFrozen   = fault{name: "agent SIGSTOP", strike: (*cell).freezeAgent, long: []string{"create", "run", "collect", "destroy"}}
	machineKilled = fault{name: "VMM SIGKILL", strike: (*cell).killMachine}
	postgresAway  = fault{name: "Postgres restart", strike: func(c *cell) func() { return c.restart(c.Stack.Postgres) }}
	natsAway      = fault{name: "NATS restart", strike: func(c *cell) func() { return c.restart(c.Stack.NATS) }}
	temporalAway  = fault{name: "Temporal restart", strike: func(c *cell) func() { return c.restart(c.Stack.Temporal) }}
)

var faults = []fault{
	gatewayKilled, engineKilled, agentKilled, agentReplaced, gatewayFrozen, engineFrozen, agentFrozen, machineKilled, postgresAway, natsAway, temporalAway,
}

// faultStack is a product whose parts are struck.
type faultStack struct {
	*product
	backend string
	agents  []*local.Worker
	standby *local.Worker // an engine that runs only while the other is away
	work    string        // the directory that is every mission's workspace
	twice   string        // the id of the blob that second phases make of it
}

// cell is one fault at one step of a mission's second phase.
type cell struct {
	*faultStack
	fault   fault
	step    string
	mission string
	run     string        // the first of the second phase, such as r2-1
	agent   *local.Worker // that has the run
	hit     string        // the step the run was in when the fault struck
	away    time.Duration // how long what is struck is away; 0: as the fault says
	log     *stepLog
	cgroups []string // of the machine, as far as it had some when it was struck
}

// launch starts a mission whose second phase takes long enough in each of its
// steps to be struck there.
func (c *cell) launch() {
	c.t.Helper()
	path := c.write(missionDoc{name: c.mission, backend: c.backend, phases: []phaseDoc{
		{name: "first", script: "echo first > first.txt"},
		{name: "second", script: "sleep 1; cat big.txt big.txt > twice.txt; cat first.txt > second.txt; echo second >> second.txt"},
	}})
	replaceWorkspace(c.t, path, "{path: "+c.work+"}")
	c.must("mission", "launch", path)
	var phase int
	require.NoError(c.t, c.db.QueryRow(c.t.Context(),
		"SELECT p.id FROM mission_phases p JOIN missions m ON m.id = p.mission_id WHERE m.name = $1 AND p.name = 'second'", c.mission).Scan(&phase))
	c.run = fmt.Sprintf("r%d-1", phase)
}

// moment waits for the cell's moment.
func (c *cell) moment(placed func(run string) (node string)) {
	c.t.Helper()
	if c.step == "place" {
		c.agent = c.agentOf(placed(c.run))
	} else {
		c.agent = c.log.await(c.run, c.step, c.isOver)
	}
}

// strike lets the fault happen and ends it.
func (c *cell) strike() {
	c.t.Helper()
	struck := time.Now()
	end := c.fault.strike(c)
	c.hit = c.log.stepAt(c.run, struck)
	c.cgroups = append(c.cgroups, c.journal().Cgroups...)
	end()
	c.answersAgain()
}

func (c *cell) answersAgain() {
	c.t.Helper()
	c.eventually("an engine answers again", func() bool {
		_, _, code := c.tidewait("mission", "show", c.mission)
		return code == 0
	}, func() any { return nil })
}

// leaseRanOut says whether a node has given all its runs up since the cell began.
func (c *cell) leaseRanOut() bool { return c.log.has("", leaseOver) }

// agentOf is the agent of a node.
func (c *cell) agentOf(node string) *local.Worker {
	c.t.Helper()
	i := slices.IndexFunc(c.agents, func(a *local.Worker) bool { return a.Name == node })
	require.GreaterOrEqual(c.t, i, 0, "node %s is not the test's", node)
	return c.agents[i]
}

// watchPlacements returns what waits until a run is placed. The database tells
// in the moment of the commit.
func (p *product) watchPlacements() (await func(run string) (node string)) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.Stack.PostgresURL)
	require.NoError(p.t, err)
	_, err = conn.Exec(p.t.Context(), `
CREATE OR REPLACE FUNCTION tell_placed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('placed', NEW.id || ' ' || NEW.node_id); RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER tell_placed AFTER INSERT ON topology_runs FOR EACH ROW EXECUTE FUNCTION tell_placed();
LISTEN placed`)
	require.NoError(p.t, err)
	return func(run string) string {
		p.t.Helper()
		ctx, cancel := context.WithTimeout(p.t.Context(), patience)
		defer cancel()
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			n, err := conn.WaitForNotification(ctx)
			require.NoError(p.t, err, "run %s is never placed", run)
			if placed, node, _ := strings.Cut(n.Payload, " "); placed == run {
				return node
			}
		}
	}
}

// kill ends a process as a crash would; it is started again at once.
func (c *cell) kill(w *local.Worker) func() {
	c.t.Helper()
	require.NoError(c.t, w.Kill())
	return func() {
		<-time.After(c.away)
		require.NoError(c.t, w.Start(c.t.Context()))
	}
}

// freeze stops a process in its tracks: in a long cell until others have gone on,
// and else so shortly that nobody takes it for dead.
func (c *cell) freeze(w *local.Worker, othersGoOn func()) func() {
	c.t.Helper()
	require.NoError(c.t, w.Signal(syscall.SIGSTOP))
	return func() {
		switch {
		case c.away > 0:
			<-time.After(c.away)
		case c.isLong():
			othersGoOn()
		default:
			<-time.After(shortly)
		}
		require.NoError(c.t, w.Signal(syscall.SIGCONT))
	}
}

func (c *cell) isLong() bool {
	return c.away == 0 && slices.Contains(c.fault.long, c.step)
}

// freezeAgent freezes a node's agent: in a long cell until the run that took over
// runs its command on the other node, so that the late one meets its successor.
func (c *cell) freezeAgent() func() {
	return c.freeze(c.agent, func() {
		c.eventually("another run has taken over", func() bool {
			return c.log.has(strings.TrimSuffix(c.run, "-1")+"-2", "run") || c.isOver()
		}, func() any { return c.log.events })
	})
}

// freezeGateway freezes the gateway: in a long cell until Temporal has given up
// hearing from it, so that a commit in its hands is made twice.
func (c *cell) freezeGateway() func() {
	return c.freeze(c.gateway, func() { <-time.After(22 * time.Second) }) // its heartbeat timeout is 20 s
}

// freezeEngine freezes the only engine: in a long cell another one is started,
// which has brought the mission to its end when the first goes on.
func (c *cell) freezeEngine() func() {
	return c.freeze(c.engine, func() {
		require.NoError(c.t, c.standby.Start(c.t.Context()))
		defer func() { require.NoError(c.t, c.standby.Stop()) }()
		c.eventually("the mission ends through the other engine", c.isOver, func() any { return nil })
	})
}

// isOver asks the database, which answers whoever is away.
func (c *cell) isOver() bool {
	return c.count("SELECT count(*) FROM missions WHERE name = '"+c.mission+"' AND status NOT IN ('draft', 'running')") == 1
}

// restart kills a service and starts it again.
func (c *cell) restart(s *devstack.Service) func() {
	c.t.Helper()
	require.NoError(c.t, s.Kill())
	return func() {
		<-time.After(c.away)
		require.NoError(c.t, s.Start(c.t.Context()))
		if s == c.Stack.Postgres {
			c.reconnect()
		}
	}
}

// reconnect replaces the connection to a Postgres that was away.
func (p *product) reconnect() {
	p.t.Helper()
	_ = p.db.Close(context.Background())
	fresh, err := pgx.Connect(p.t.Context(), p.Stack.PostgresURL)
	require.NoError(p.t, err)
	p.db = fresh
}

// killMachine kills the process that is the run's machine. When the run is placed
// there is none yet, and nothing is struck.
func (c *cell) killMachine() func() {
	c.t.Helper()
	if c.step == "place" {
		return func() {}
	}
	deadline := time.Now().Add(patience)
	for {
		if machine := c.journal(); machine.PID != 0 {
			_ = syscall.Kill(machine.PID, syscall.SIGKILL) // it may have ended by itself
			return func() {}
		}
		if c.log.has(c.run, "destroy") {
			return func() {} // it is gone already
		}
		require.True(c.t, time.Now().Before(deadline), "run %s never has a machine", c.run)
		<-time.After(time.Millisecond)
	}
}

// machineJournal is what a backend writes down of a machine.
type machineJournal struct {
	PID     int      `json:"pid"`
	Cgroups []string `json:"cgroups"`
}

// journal is that of the run's machine; empty: there is none.
func (c *cell) journal() machineJournal {
	found, err := filepath.Glob(filepath.Join(c.dir, "node", "*", "*", "runs", c.run+".*", "journal.json"))
	require.NoError(c.t, err)
	for _, path := range found {
		var journal machineJournal
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &journal) == nil {
			return journal
		}
	}
	return machineJournal{}
}

// stepLog follows what agents say of the steps of their runs, which is faster than
// anything else could tell.
type stepLog struct {
	t      *testing.T
	paths  map[*local.Worker]string
	read   map[*local.Worker]int64
	rest   map[*local.Worker][]byte
	events []stepEvent
}

// leaseOver is the step that a node's agent takes when its lease has run out; it is of
// no run.
const leaseOver = "lease over"

type stepEvent struct {
	at        time.Time
	agent     *local.Worker
	run, step string
}

// follow reads the logs of these agents from their present end.
func follow(t *testing.T, agents ...*local.Worker) *stepLog {
	t.Helper()
	l := &stepLog{t: t, paths: map[*local.Worker]string{}, read: map[*local.Worker]int64{}, rest: map[*local.Worker][]byte{}}
	for _, a := range agents {
		l.paths[a] = a.LogPath()
		info, err := os.Stat(l.paths[a])
		require.NoError(t, err)
		l.read[a] = info.Size()
	}
	return l
}

func (l *stepLog) more() {
	for agent, path := range l.paths {
		file, err := os.Open(path)
		require.NoError(l.t, err)
		data, err := io.ReadAll(io.NewSectionReader(file, l.read[agent], 1<<30))
		require.NoError(l.t, err)
		require.NoError(l.t, file.Close())
		l.read[agent] += int64(len(data))
		data = append(l.rest[agent], data...)
		end := bytes.LastIndexByte(data, '\n') + 1
		l.rest[agent] = bytes.Clone(data[end:])
		for _, line := range strings.Split(string(data[:end]), "\n") {
			run, step := attribute(line, "run"), attribute(line, "step")
			switch {
			case strings.Contains(line, `msg="no heartbeat was acknowledged for the whole lease`):
				run, step = "", leaseOver
			case !strings.Contains(line, `msg="run takes a step"`):
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, attribute(line, "time"))
			require.NoError(l.t, err)
			l.events = append(l.events, stepEvent{at: at, agent: agent, run: run, step: step})
		}
	}
}

// attribute is the value of an attribute of a line that log/slog wrote.
func attribute(line, name string) string {
	for _, field := range strings.Fields(line) {
		if value, ok := strings.CutPrefix(field, name+"="); ok {
			return value
		}
	}
	return ""
}

func (l *stepLog) find(run, step string) *local.Worker {
	for _, e := range l.events {
		if e.run == run && e.step == step {
			return e.agent
		}
	}
	return nil
}

func (l *stepLog) has(run, step string) bool {
	l.more()
	return l.find(run, step) != nil
}

// await returns the agent that says that a run takes a step, as soon as it does.
func (l *stepLog) await(run, step string, isOver func() bool) *local.Worker {
	l.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick, look := time.NewTicker(time.Millisecond), time.NewTicker(time.Second)
	defer tick.Stop()
	defer look.Stop()
	for over := false; ; {
		l.more()
		if agent := l.find(run, step); agent != nil {
			return agent
		}
		require.False(l.t, over, "the mission has ended, and run %s never came to step %s", run, step)
		select {
		case <-tick.C:
		case <-look.C:
			over = isOver()
		case <-deadline.C:
			l.t.Fatalf("run %s never came to step %s", run, step)
		}
	}
}

// stepAt is the step a run was in at a time; "place": it had not begun.
func (l *stepLog) stepAt(run string, at time.Time) string {
	l.more()
	step := "place"
	for _, e := range l.events {
		if e.run == run && !e.at.After(at) {
			step = e.step
		}
	}
	return step
}
