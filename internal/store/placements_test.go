package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// placementSetting is a number that make placements sets.
func placementSetting(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// TestPlacements lets several engines place, refuse and release at random while
// nodes are drained and lost, and while the connections of the engines break in
// the middle of their transactions. In the end every row is read and added up
// here: no node was ever booked beyond what it has, and nothing holds anything.
// The make target placements does so a million times.
func TestPlacements(t *testing.T) {
	seed := placementSetting(t, "TIDEWAIT_PLACEMENT_SEED", 1)
	w := newWorld(t, seed, int64(placementSetting(t, "TIDEWAIT_PLACEMENTS", 2000))) //nolint:gosec // a count
	if minutes := placementSetting(t, "TIDEWAIT_PLACEMENT_MINUTES", 0); minutes > 0 {
		w.until = time.Now().Add(time.Duration(minutes) * time.Minute) //nolint:gosec // a duration
	}
	began := time.Now()
	w.run()
	require.False(t, t.Failed())
	took := time.Since(began)
	w.end()
	t.Logf("TIDEWAIT_PLACEMENT_SEED=%d: %d operations in %s, %.0f a second\n%s", seed, w.operations.Load(), took.Round(time.Second),
		float64(w.operations.Load())/took.Seconds(), w.table())
	require.GreaterOrEqual(t, w.fullest, 0.9, "nodes were never full, so that nothing was shown")
	for _, what := range []string{"placed", "refused", "released", "lost with its node", "node given up", "node drained", "connection broken", "orphan released", "engine started again", "audit"} {
		require.Positive(t, w.counts[what], "%s: %v", what, w.counts)
	}
}

// world is what the engines of the test share.
type world struct {
	t      *testing.T
	db     *pgx.Conn    // for audits, and for the clock
	s      *store.Store // of whom nothing breaks, for the gateway
	url    string
	lanes  []*lane
	agents []*placeAgent
	target int64
	until  time.Time // zero: not bounded

	operations atomic.Int64
	still      sync.RWMutex // held for an audit, so that nobody is at work

	mu      sync.Mutex
	counts  map[string]int
	placed  map[string]string // runs that an engine was told of since the last audit, and their nodes
	lingers map[string]bool   // runs of phases that ended while nobody knew whether the machine is gone
	fullest float64           // the largest part of any node that an audit found held
}

// placeAgent is a node's agent, which has the machines it has.
type placeAgent struct {
	id       string
	memory   int64
	mu       sync.Mutex // held while it speaks
	boot     int
	number   int64
	epoch    int64
	silent   bool // its lease has ended: it begins nothing until it is heard again
	machines map[string]bool
	ended    []string
}

func newWorld(t *testing.T, seed uint64, target int64) *world {
	t.Helper()
	s, db := open(t, patient)
	w := &world{t: t, db: db, s: s, url: db.Config().ConnString(), target: target, counts: map[string]int{}, placed: map[string]string{}, lingers: map[string]bool{}}
	// What a crash of the server may cost is not what this is about.
	_, err := db.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{db.Config().Database}.Sanitize()+" SET synchronous_commit = off")
	require.NoError(t, err)
	w.beat()
	_, err = s.Listen(t.Context())
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), "UPDATE listening SET since = since - interval '1 day'")
	require.NoError(t, err)
	for i, memory := range []int64{1024, 2048, 2048, 4096, 8192} {
		a := &placeAgent{id: fmt.Sprintf("n%d", i+1), memory: memory, machines: map[string]bool{}}
		w.agents = append(w.agents, a)
		require.NoError(t, a.speak(t.Context(), s))
	}
	for i := range 4 {
		l := &lane{w: w, id: i, random: rand.New(rand.NewPCG(seed, uint64(i)))} //nolint:gosec // to be repeated
		at, err := url.Parse(w.url)
		require.NoError(t, err)
		l.wire = newUnsteady(t, at.Host)
		at.Host = l.wire.address()
		l.url = at.String()
		require.NoError(t, l.start())
		t.Cleanup(func() { l.s.Close() })
		w.lanes = append(w.lanes, l)
	}
	return w
}

// beat lets the gateway of all missions live on.
func (w *world) beat() {
	w.t.Helper()
	_, err := w.s.GatewayHeartbeat(w.t.Context(), api.GatewayHeartbeat{Gateway: "gw"})
	require.NoError(w.t, err)
}

// speak is a heartbeat. What it says and what the agent does take turns.
func (a *placeAgent) speak(ctx context.Context, s *store.Store) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number++
	h := node(a.id, a.memory)
	h.BootID, h.Number, h.Ended = fmt.Sprintf("%s-%d", a.id, a.boot), a.number, a.ended
	for _, run := range slices.Sorted(maps.Keys(a.machines)) {
		h.Runs = append(h.Runs, api.RunReport{ID: run, Step: "run", Started: true})
	}
	res, err := s.Heartbeat(ctx, h)
	if err != nil {
		return err
	}
	a.ended, a.silent, a.epoch = nil, false, res.Reply.Epoch
	for _, run := range res.Reply.Destroy {
		if a.machines[run] {
			delete(a.machines, run)
			a.ended = append(a.ended, run)
		}
	}
	return nil
}

// crash starts the agent anew, without its machines.
func (a *placeAgent) crash() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.boot++
	a.number, a.ended = 0, nil
	clear(a.machines)
}

func (w *world) agent(id string) *placeAgent {
	return w.agents[slices.IndexFunc(w.agents, func(a *placeAgent) bool { return a.id == id })]
}

func (w *world) count(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what] += n
}

// run has all engines work until enough is done, and audits now and then.
func (w *world) run() {
	w.t.Helper()
	var all sync.WaitGroup
	for _, l := range w.lanes {
		all.Go(func() {
			for !w.over() {
				w.still.RLock()
				l.act()
				w.still.RUnlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			w.still.Lock()
			w.audit()
			w.still.Unlock()
			w.beat()
		}
	}
}

func (w *world) over() bool {
	return w.operations.Load() >= w.target || w.t.Failed() || !w.until.IsZero() && time.Now().After(w.until)
}

// lane is one engine, and the missions it works on.
type lane struct {
	w       *world
	id      int
	random  *rand.Rand
	wire    *unsteady
	url     string
	s       *store.Store
	started int
	open    []*placeTask
}

// placeTask is a phase that has not ended.
type placeTask struct {
	phase   int64
	attempt int
	placed  *ledger.Placed
	doubted bool // its activity was lost: it has no result, and ends when it is known to be gone
	mission *placeMission
}

type placeMission struct {
	id     int64
	launch int
	open   int // phases
}

func (l *lane) start() (err error) {
	l.s, err = store.Open(context.Background(), l.url, 4, patient)
	return err
}

// do calls the store until it answers. A call whose connection was broken may have
// done what it was to do, and is made again, as Temporal does with an activity.
func (l *lane) do(call func(context.Context) error) error {
	for {
		if l.random.IntN(30) == 0 {
			l.wire.breakAfter(1+l.random.IntN(8), l.random.IntN(2) == 0)
		}
		before := l.wire.breaks()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := call(ctx)
		cancel()
		l.w.operations.Add(1)
		if err == nil || l.wire.breaks() == before {
			return err
		}
		l.w.count("connection broken", 1)
	}
}

// must is do where nothing else may go wrong.
func (l *lane) must(what string, call func(context.Context) error) bool {
	if err := l.do(call); err != nil {
		l.w.t.Errorf("engine %d: %s: %v", l.id, what, err)
		return false
	}
	return true
}

// act does one thing at random.
func (l *lane) act() {
	if len(l.open) < 6 || l.random.IntN(20) == 0 && len(l.open) < 15 {
		l.launch()
		return
	}
	switch n := l.random.IntN(100); {
	case n < 45:
		l.look()
	case n < 70:
		l.finish()
	case n < 80:
		l.judge()
	case n < 92:
		l.hear()
	case n < 94:
		l.crashAgent()
	case n < 95:
		l.silence()
	case n < 97:
		l.decide()
	case n < 99:
		l.sweep()
	default:
		l.s.Close()
		l.must("open the database again", func(context.Context) error { return l.start() })
		l.w.count("engine started again", 1)
	}
}

// launch starts a mission of one to three phases. That no node could ever run one
// does not happen: none is larger than the largest node.
func (l *lane) launch() {
	l.started++
	d := draft(fmt.Sprintf("m%d-%d", l.id, l.started), 1+l.random.IntN(3), 0, time.Hour)
	if l.random.IntN(5) == 0 {
		d.Phases[0].MaxWait = time.Microsecond
	}
	for i := range d.Phases {
		d.Phases[i].Demand.Resources = capacity.Resources{
			CPUMilli: 100 * (1 + l.random.Int64N(15)), MemoryMiB: 64 << l.random.IntN(6), DiskMiB: 10, Slots: 1 + l.random.Int64N(3),
		}
	}
	var launched ledger.Launched
	if !l.must("launch", func(ctx context.Context) (err error) {
		var refused []ledger.RefusedPhase
		launched, refused, err = l.s.Launch(ctx, d)
		if err == nil && len(refused) > 0 {
			return fmt.Errorf("refused: %+v", refused)
		}
		return err
	}) {
		return
	}
	m := &placeMission{id: launched.MissionID, launch: launched.Launch, open: len(launched.Phases)}
	for _, p := range launched.Phases {
		l.open = append(l.open, &placeTask{phase: p.ID, attempt: 1, mission: m})
	}
}

// look asks for nodes for some phases, whatever they have already.
func (l *lane) look() {
	looks := map[int64]store.Look{}
	for range 1 + l.random.IntN(4) {
		task := l.open[l.random.IntN(len(l.open))]
		looks[task.phase] = store.Look{PhaseID: task.phase, Attempt: task.attempt, Wake: ledger.WakeTimer, Expire: l.random.IntN(10) == 0}
	}
	var res store.PassResult
	if !l.must("pass", func(ctx context.Context) (err error) {
		res, err = l.s.Pass(ctx, pool, slices.Collect(maps.Values(looks)), ledger.WakeTimer)
		return err
	}) {
		return
	}
	for phase, o := range res.Outcomes {
		task := l.open[slices.IndexFunc(l.open, func(task *placeTask) bool { return task.phase == phase })]
		switch {
		case o.Placed != nil:
			l.begin(task, *o.Placed)
		case o.Waiting != nil:
			l.w.count("refused", 1)
		case o.Ended != nil:
			l.w.count("waited too long", 1)
			l.close(task)
		default:
			l.w.t.Errorf("phase %d: %+v", phase, o)
		}
	}
}

// begin has the node's agent start the machine of a run, unless it must not any
// more.
func (l *lane) begin(task *placeTask, placed ledger.Placed) {
	if task.placed != nil && task.placed.RunID == placed.RunID {
		return
	}
	task.placed, task.doubted, task.attempt = &placed, false, placed.Attempt
	a := l.w.agent(placed.NodeID)
	a.mu.Lock()
	if !a.silent && placed.Epoch >= a.epoch {
		a.machines[placed.RunID] = true
	}
	a.mu.Unlock()
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.counts["placed"]++
	l.w.placed[placed.RunID] = placed.NodeID
}

// pick returns a phase that has a node, whether its run is doubted or not; nil:
// there is none.
func (l *lane) pick(doubted bool) *placeTask {
	running := slices.DeleteFunc(slices.Clone(l.open), func(task *placeTask) bool { return task.placed == nil || task.doubted && !doubted })
	if len(running) == 0 {
		return nil
	}
	return running[l.random.IntN(len(running))]
}

// finish ends a run whose machine is there, and its phase with it. The agent may
// be the first to say so.
func (l *lane) finish() {
	task := l.pick(false)
	if task == nil {
		return
	}
	a := l.w.agent(task.placed.NodeID)
	a.mu.Lock()
	has := a.machines[task.placed.RunID]
	if has {
		delete(a.machines, task.placed.RunID)
		a.ended = append(a.ended, task.placed.RunID)
	}
	a.mu.Unlock()
	if !has {
		return // it was lost, which judge notices
	}
	if l.random.IntN(3) == 0 {
		l.must("heartbeat", func(ctx context.Context) error { return a.speak(ctx, l.s) })
	}
	status := []string{"succeeded", "succeeded", "failed", "cancelled"}[l.random.IntN(4)]
	var got ledger.Ended
	if !l.must("finish", func(ctx context.Context) (err error) {
		got, err = l.s.FinishPhase(ctx, task.phase, ledger.RunEnd{RunID: task.placed.RunID, Status: status}, ledger.Ended{Status: status})
		return err
	}) {
		return
	}
	if got.Status != status {
		l.w.t.Errorf("phase %d was to end as %s and has ended as %+v", task.phase, status, got)
	}
	l.w.count("released", 1)
	l.close(task)
}

// judge is what follows a lost activity. When the run is gone, the phase goes back
// into the queue.
func (l *lane) judge() {
	task := l.pick(true)
	if task == nil {
		return
	}
	task.doubted = true
	run := *task.placed
	var v ledger.Verdict
	if !l.must("judge", func(ctx context.Context) (err error) { v, err = l.s.JudgeRun(ctx, run.RunID, false); return err }) {
		return
	}
	if !v.Gone {
		if l.random.IntN(3) == 0 {
			l.cancel(task)
		}
		return
	}
	a := l.w.agent(run.NodeID)
	a.mu.Lock()
	has := a.machines[run.RunID]
	a.mu.Unlock()
	if has {
		l.w.t.Errorf("%s is gone, they say, and %s has it: %s", run.RunID, run.NodeID, v.Reason)
	}
	var next int
	if !l.must("retry", func(ctx context.Context) (err error) {
		next, err = l.s.RetryPhase(ctx, task.phase, run.Attempt, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
		return err
	}) {
		return
	}
	if next != run.Attempt+1 {
		l.w.t.Errorf("phase %d is at attempt %d after %d", task.phase, next, run.Attempt)
	}
	task.placed, task.attempt = nil, next
	l.w.count("lost with its node", 1)
}

// cancel ends a phase while its node may still have the machine. What it holds is
// released when that is known to be gone.
func (l *lane) cancel(task *placeTask) {
	l.w.mu.Lock()
	l.w.lingers[task.placed.RunID] = true
	l.w.mu.Unlock()
	l.must("cancel", func(ctx context.Context) error {
		_, err := l.s.FinishPhase(ctx, task.phase, ledger.RunEnd{Status: "cancelled", Lingers: true}, ledger.Ended{Status: "cancelled"})
		return err
	})
	l.close(task)
}

func (l *lane) anyAgent() *placeAgent { return l.w.agents[l.random.IntN(len(l.w.agents))] }

// hear renews a node's lease.
func (l *lane) hear() {
	a := l.anyAgent()
	l.must("heartbeat", func(ctx context.Context) error { return a.speak(ctx, l.s) })
}

func (l *lane) crashAgent() {
	a := l.anyAgent()
	a.crash()
	l.w.count("agent crashed", 1)
	l.must("heartbeat", func(ctx context.Context) error { return a.speak(ctx, l.s) })
}

// silence lets a node be silent until it is given up. Its agent has destroyed what
// it has by then.
func (l *lane) silence() {
	a := l.anyAgent()
	a.mu.Lock()
	a.silent = true
	clear(a.machines)
	ok := l.must("silence", func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, l.w.url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "UPDATE nodes SET heartbeat_at = heartbeat_at - interval '10 minutes', lost_at = lost_at - interval '10 minutes' WHERE id = $1", a.id)
		return err
	})
	a.mu.Unlock()
	if ok {
		l.sweep()
	}
}

// decide is a person's decision about a node.
func (l *lane) decide() {
	c := store.NodeChange{Node: l.anyAgent().id, Actor: "ann", Deadline: time.Duration(l.random.IntN(2)) * time.Millisecond}
	c.To = []capacity.NodeState{capacity.Ready, capacity.Ready, capacity.Ready, capacity.Cordoned, capacity.Draining}[l.random.IntN(5)]
	err := l.do(func(ctx context.Context) error { return l.s.ChangeNode(ctx, c) })
	if err != nil && !errors.Is(err, store.ErrConflict) {
		l.w.t.Errorf("engine %d: change node: %v", l.id, err)
	}
	if err == nil && c.To == capacity.Draining {
		l.w.count("node drained", 1)
	}
}

func (l *lane) sweep() {
	l.must("listen", func(ctx context.Context) error { _, err := l.s.Listen(ctx); return err })
	l.must("declare lost", func(ctx context.Context) error {
		given, err := l.s.DeclareLost(ctx)
		l.w.count("node given up", len(given))
		return err
	})
	l.must("settle drains", func(ctx context.Context) error { _, err := l.s.SettleDrains(ctx); return err })
	l.must("release orphans", func(ctx context.Context) error {
		runs, err := l.s.ReleaseOrphans(ctx)
		l.w.count("orphan released", len(runs))
		return err
	})
}

// close ends the mission of the last of its phases.
func (l *lane) close(task *placeTask) {
	l.open = slices.DeleteFunc(l.open, func(other *placeTask) bool { return other == task })
	if task.mission.open--; task.mission.open == 0 {
		l.must("finish mission", func(ctx context.Context) error {
			return l.s.FinishMission(ctx, task.mission.id, task.mission.launch, ledger.MissionEnd{Status: "succeeded"})
		})
	}
}

// end has all that is open end, and audits what is there then, to the last row.
func (w *world) end() {
	w.t.Helper()
	for _, l := range w.lanes {
		for len(l.open) > 0 && !w.t.Failed() {
			task := l.open[0]
			l.must("cancel", func(ctx context.Context) error {
				_, err := l.s.FinishPhase(ctx, task.phase, ledger.RunEnd{Status: "cancelled"}, ledger.Ended{Status: "cancelled"})
				return err
			})
			l.close(task)
		}
	}
	for _, a := range w.agents {
		a.crash()
		w.lanes[0].must("heartbeat", func(ctx context.Context) error { return a.speak(ctx, w.lanes[0].s) })
	}
	w.lanes[0].sweep()
	w.audit()
	w.auditAll()
}

func (w *world) table() string {
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		lines = append(lines, fmt.Sprintf("%10d  %s", w.counts[what], what))
	}
	return strings.Join(append(lines, fmt.Sprintf("%9.0f%%  of a node held, at most", 100*w.fullest)), "\n")
}
