package capacity_test

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/capacity"
)

// The simulation plays fleets of three nodes with random phases, event by event:
// a phase arrives, a run ends, a node is cordoned or comes back. After each
// event the scheduler under test decides about the queue. The same seed brings
// the same phases to every scheduler.

const (
	ageing = 30 * time.Minute
	turn   = time.Hour
)

// job is one phase: what it asks, what it may use, and what it does use.
type job struct {
	id       int64
	priority int
	demand   capacity.Demand
	longest  time.Duration // its turn
	lasts    time.Duration // at most longest
	asked    time.Duration // since the beginning of the simulation, as all moments are
	started  time.Duration
}

func (j *job) rank() time.Duration { return j.asked - time.Duration(j.priority)*ageing }

// shapes are sizes of phases, most of them small. The largest fills a node.
var shapes = []struct {
	weight int
	cpus   int64
}{{55, 1}, {25, 2}, {12, 4}, {8, 8}}

// workload draws the phases, in the order of their coming.
type workload struct {
	rng    *rand.Rand
	spread int // priorities are 50 plus or minus this
	next   int64
}

func (w *workload) draw(now time.Duration) *job {
	w.next++
	j := &job{id: w.next, asked: now, priority: 50, longest: turn}
	if w.spread > 0 {
		j.priority += w.rng.IntN(2*w.spread+1) - w.spread
	}
	cpus := shapes[0].cpus
	for at, i := w.rng.IntN(100), 0; at >= 0; i++ {
		at -= shapes[i].weight
		cpus = shapes[i].cpus
	}
	j.demand = demand(asks(cpus*1000, cpus*gib*(1+w.rng.Int64N(2)), 0, 1))
	if w.rng.IntN(2) == 0 {
		j.longest = time.Duration(5+w.rng.IntN(56)) * time.Minute
	}
	j.lasts = j.longest
	if w.rng.IntN(4) > 0 { // three of four end earlier than they may
		j.lasts = time.Duration(float64(j.longest) * (0.1 + 0.9*w.rng.Float64()))
	}
	return j
}

// simulation is one fleet on its way through time.
type simulation struct {
	now    time.Duration
	fleet  []capacity.Node
	queue  []*job
	events events
	place  scheduler

	started  int
	busy     float64 // hours of one CPU
	longest  time.Duration
	backlog  int // phases that always wait; 0: they come at random
	load     workload
	draw     func(now time.Duration) *job // the next phase
	outlive  bool                         // one run in ten ends later than it may
	arrivals *rand.Rand
	gap      time.Duration // mean time between arrivals
	cordons  *rand.Rand    // nil: nodes stay
	promised map[int64]time.Duration
	wrong    []string
}

// scheduler decides which waiting jobs start where. It returns the node of each
// job of the queue, by index; empty: it goes on waiting.
type scheduler func(s *simulation) []string

type event struct {
	at time.Duration
	do func(*simulation)
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (s *simulation) after(d time.Duration, do func(*simulation)) {
	heap.Push(&s.events, event{s.now + d, do})
}

func newSimulation(seed uint64, place scheduler) *simulation {
	s := &simulation{
		place: place, promised: map[int64]time.Duration{},
		load:     workload{rng: rand.New(rand.NewPCG(seed, 1))},
		arrivals: rand.New(rand.NewPCG(seed, 2)),
	}
	s.draw = s.load.draw
	for i, cpus := range []int64{8, 8, 4} {
		s.fleet = append(s.fleet, node(fmt.Sprintf("node-%d", i), func(n *capacity.Node) {
			n.Allocatable = capacity.Resources{CPUMilli: cpus * 1000, MemoryMiB: cpus * 3 * gib, DiskMiB: gib, Slots: 64}
			n.Free = n.Allocatable
		}))
	}
	return s
}

// run plays until the end and returns the share of the CPUs that was used.
func (s *simulation) run(end time.Duration) (utilisation float64) {
	if s.gap > 0 {
		s.after(0, arrive)
	}
	if s.cordons != nil {
		s.after(0, cordon)
	}
	s.pass()
	for len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event) //nolint:forcetypeassert // events holds nothing else
		s.now = e.at
		e.do(s)
		if len(s.events) == 0 || s.events[0].at > s.now { // what happens in one moment is one
			s.pass()
		}
	}
	return s.busy / (20 * end.Hours())
}

func arrive(s *simulation) {
	s.join(s.draw(s.now))
	s.after(time.Duration(s.arrivals.ExpFloat64()*float64(s.gap)), arrive)
}

// join puts a job into the queue, by rank. Whoever is behind it there is
// promised nothing any more.
func (s *simulation) join(j *job) {
	i, _ := slices.BinarySearchFunc(s.queue, j, func(a, b *job) int { return int(a.rank() - b.rank()) })
	for i < len(s.queue) && s.queue[i].rank() == j.rank() && s.queue[i].id < j.id {
		i++
	}
	for _, behind := range s.queue[i:] {
		delete(s.promised, behind.id)
	}
	s.queue = slices.Insert(s.queue, i, j)
}

// cordon takes a node away for a while, and another one later.
func cordon(s *simulation) {
	i := s.cordons.IntN(len(s.fleet))
	s.fleet[i].State = capacity.Cordoned
	clear(s.promised)
	s.after(time.Duration(s.cordons.IntN(90))*time.Minute, func(s *simulation) { s.fleet[i].State = capacity.Ready })
	s.after(2*time.Hour+time.Duration(s.cordons.IntN(20))*time.Hour, cordon)
}

// pass fills the queue up, lets the scheduler decide, and starts what it placed.
func (s *simulation) pass() {
	for len(s.queue) < s.backlog {
		s.join(s.draw(s.now))
	}
	nodes := s.place(s)
	waiting := s.queue[:0]
	for i, j := range s.queue {
		if nodes[i] == "" {
			waiting = append(waiting, j)
			continue
		}
		s.start(j, nodes[i])
	}
	clear(s.queue[len(waiting):])
	placed := len(waiting) < len(s.queue)
	s.queue = waiting
	if placed && s.backlog > 0 {
		s.pass()
	}
}

func (s *simulation) start(j *job, id string) {
	i := slices.IndexFunc(s.fleet, func(n capacity.Node) bool { return n.ID == id })
	n := &s.fleet[i]
	need := j.demand.Need(*n)
	n.Free = n.Free.Sub(need)
	if !(capacity.Resources{}).Fits(n.Free) || n.State != capacity.Ready {
		s.fault("job %d is booked on %s, which is %s and has %+v left", j.id, id, n.State, n.Free)
	}
	if by, ok := s.promised[j.id]; ok && s.now > by {
		s.fault("job %d started at %s although it was promised to start by %s", j.id, s.now, by)
	}
	delete(s.promised, j.id)
	run := capacity.Run{Holds: need, EndsIn: s.now + j.longest} // of the simulation, until a decision asks
	n.Runs = append(n.Runs, run)
	s.started++
	j.started = s.now
	s.longest = max(s.longest, s.now-j.asked)
	s.busy += j.lasts.Hours() * float64(j.demand.Resources.CPUMilli) / 1000
	lasts := j.lasts
	if s.outlive && j.id%10 == 0 {
		lasts = j.longest + 20*time.Minute
	}
	s.after(lasts, func(s *simulation) {
		n := &s.fleet[i]
		n.Free = n.Free.Add(need)
		n.Runs = slices.Delete(n.Runs, slices.Index(n.Runs, run), slices.Index(n.Runs, run)+1)
	})
}

func (s *simulation) fault(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// tidewait is the scheduler under test. What it promises to the head of the
// queue it must keep for as long as nobody ahead joins and no node goes away.
func tidewait(s *simulation) []string {
	queue := make([]capacity.Waiting, len(s.queue))
	for i, j := range s.queue {
		queue[i] = capacity.Waiting{ID: j.id, Demand: j.demand, Longest: j.longest}
	}
	verdicts, held := capacity.Decide(s.fleetNow(), queue)
	nodes := make([]string, len(queue))
	for i, v := range verdicts {
		if v.Placement != nil {
			nodes[i] = v.Placement.NodeID
		}
	}
	s.promise(nodes, held)
	return nodes
}

// fleetNow is the fleet with the ends of its runs counted from now.
func (s *simulation) fleetNow() []capacity.Node {
	fleet := slices.Clone(s.fleet)
	for i := range fleet {
		fleet[i].Runs = slices.Clone(fleet[i].Runs)
		for k := range fleet[i].Runs {
			fleet[i].Runs[k].EndsIn -= s.now
		}
	}
	return fleet
}

// twoPools is two schedulers, each with a queue of its own over the same nodes.
// Each is told what the other held at its latest pass, if they are careful.
type twoPools struct {
	careful bool
	holds   [2]*capacity.Hold // In counts from the simulation's beginning
}

func poolOf(j *job) int { return int(j.id % 2) }

func (p *twoPools) place(s *simulation) []string {
	nodes := make([]string, len(s.queue))
	fleet := s.fleetNow()
	// What one pool places may be ahead of what the other holds already, so both
	// look again until nothing changes.
	for p.pass(s, 0, nodes, fleet) || p.pass(s, 1, nodes, fleet) {
	}
	p.pass(s, 0, nodes, fleet)
	s.promise(nodes, p.first(s, nodes))
	return nodes
}

// pass is a pass of one pool, and reports whether it placed anything.
func (p *twoPools) pass(s *simulation, pool int, nodes []string, fleet []capacity.Node) (placed bool) {
	var queue []capacity.Waiting
	var index []int
	for i, j := range s.queue {
		if poolOf(j) == pool && nodes[i] == "" {
			queue, index = append(queue, capacity.Waiting{ID: j.id, Demand: j.demand, Longest: j.longest}), append(index, i)
		}
	}
	verdicts, held := capacity.Decide(fleet, queue, p.others(s, 1-pool)...)
	for i, v := range verdicts {
		if v.Placement == nil {
			continue
		}
		placed = true
		nodes[index[i]] = v.Placement.NodeID
		n := &fleet[slices.IndexFunc(fleet, func(n capacity.Node) bool { return n.ID == v.Placement.NodeID })]
		n.Free = n.Free.Sub(v.Placement.Need)
		n.Runs = append(n.Runs, capacity.Run{Holds: v.Placement.Need, EndsIn: queue[i].Longest})
	}
	p.holds[pool] = held
	if held != nil && held.In >= 0 {
		held.In += s.now
	}
	return placed
}

// others is what a pool held at its latest pass, as the other one is told.
func (p *twoPools) others(s *simulation, pool int) []capacity.Other {
	h := p.holds[pool]
	if h == nil || !p.careful {
		return nil
	}
	o := capacity.Other{Hold: *h}
	if h.In >= 0 {
		o.In = max(h.In-s.now, 0)
	}
	for _, j := range s.queue {
		if j.id == h.Owner {
			return []capacity.Other{o}
		}
		if poolOf(j) != pool {
			o.Ahead++
		}
	}
	return nil
}

// first is the hold of the head that is ahead of the other.
func (p *twoPools) first(s *simulation, nodes []string) *capacity.Hold {
	for i, j := range s.queue {
		h := p.holds[poolOf(j)]
		if nodes[i] == "" && h != nil && h.Owner == j.id {
			from := *h
			from.In = max(h.In-s.now, -1)
			return &from
		}
	}
	return nil
}

func (s *simulation) promise(nodes []string, held *capacity.Hold) {
	for i, j := range s.queue {
		by, ok := s.promised[j.id]
		if !ok || nodes[i] != "" {
			continue
		}
		switch {
		case held == nil || held.Owner != j.id:
			s.fault("at %s the head %d lost its hold to nobody ahead of it", s.now, j.id)
		case held.In < 0 || s.now+held.In > by:
			s.fault("at %s the start of head %d moved from %s by %s", s.now, j.id, by, s.now+held.In-by)
		}
	}
	clear(s.promised)
	if held != nil && held.In >= 0 {
		s.promised[held.Owner] = s.now + held.In
	}
}

// greedy starts whatever fits, in order: the best effort, which promises nothing
// to anybody. strict stops at the first that does not fit.
func greedy(s *simulation) []string { return byHand(s, false) }
func strict(s *simulation) []string { return byHand(s, true) }

func byHand(s *simulation, stop bool) []string {
	free := make([]capacity.Resources, len(s.fleet))
	for i, n := range s.fleet {
		if n.State == capacity.Ready {
			free[i] = n.Free
		}
	}
	nodes := make([]string, len(s.queue))
	for q, j := range s.queue {
		best, left := -1, int64(math.MaxInt64)
		for i, n := range s.fleet {
			need := j.demand.Need(n)
			if need.Fits(free[i]) && free[i].CPUMilli-need.CPUMilli < left {
				best, left = i, free[i].CPUMilli-need.CPUMilli
			}
		}
		if best >= 0 {
			free[best] = free[best].Sub(j.demand.Need(s.fleet[best]))
			nodes[q] = s.fleet[best].ID
		} else if stop {
			break
		}
	}
	return nodes
}

// hoursVariable asks for a longer simulation than that of a usual test run.
const hoursVariable = "TIDEWAIT_SIMULATED_HOURS"

// simulatedHours is how long all fleets together are played.
func simulatedHours(t *testing.T) int {
	hours := os.Getenv(hoursVariable)
	if hours == "" {
		return 100_000
	}
	n, err := strconv.Atoi(hours)
	require.NoError(t, err, hoursVariable)
	return n
}

// eachLasts is how long one fleet is played, in hours.
const eachLasts = 2500

// played is what became of many fleets.
type played struct {
	utilisation float64
	longest     time.Duration // wait, over all fleets
	started     int
	wrong       []string
}

// play runs fleets of different seeds side by side until they lasted for hours
// in all.
func play(hours int, place scheduler, prepare func(*simulation, uint64)) played {
	fleets := max(hours/eachLasts, 1)
	sims, used := make([]*simulation, fleets), make([]float64, fleets)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range fleets {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			sims[i] = newSimulation(uint64(i), place)
			prepare(sims[i], uint64(i))
			used[i] = sims[i].run(eachLasts * time.Hour)
		})
	}
	wg.Wait()
	var all played
	for i, s := range sims {
		all.utilisation += used[i] / float64(fleets)
		all.longest = max(all.longest, s.longest)
		all.started += s.started
		all.wrong = append(all.wrong, s.wrong...)
	}
	return all
}

func (p played) log(t *testing.T, name string) {
	t.Helper()
	t.Logf("%-12s %.1f %% of the CPUs used, longest wait %s, %d phases started", name, 100*p.utilisation, p.longest.Round(time.Minute), p.started)
	require.Empty(t, p.wrong[:min(len(p.wrong), 5)], name)
}

// Most of the simulated time phases come at random, two thirds of what the fleet
// can do, and nodes are cordoned about twice a day.
func TestSimulationOfPhasesThatComeAtRandom(t *testing.T) {
	hours := simulatedHours(t) * 4 / 5
	random := func(spread int) func(*simulation, uint64) {
		return func(s *simulation, seed uint64) {
			s.gap, s.load.spread = 5*time.Minute, spread
			s.cordons = rand.New(rand.NewPCG(seed, 3))
		}
	}
	ours := play(hours/2, tidewait, random(0))
	ours.log(t, "tidewait")
	byPriority := play(hours/2, tidewait, random(10))
	byPriority.log(t, "by priority")
	best := play(hours/2, greedy, random(0))
	best.log(t, "best effort")
	fifo := play(hours/2, strict, random(0))
	fifo.log(t, "strict")

	require.Greater(t, ours.started, hours/2*11, "what was played is worth looking at")
	require.GreaterOrEqual(t, ours.utilisation, 0.95*best.utilisation)
	require.LessOrEqual(t, ours.longest, fifo.longest, "nobody waits longer than in strict order")
	require.LessOrEqual(t, ours.longest, 6*time.Hour)
	require.LessOrEqual(t, byPriority.longest, 15*time.Hour, "ageing makes up for twenty steps of priority in ten hours")
}

// The rest of the time twelve phases wait at every moment, so that nothing but
// the order decides how much of the fleet is used.
func TestSimulationOfASaturatedFleet(t *testing.T) {
	hours := simulatedHours(t) / 5
	full := func(spread int) func(*simulation, uint64) {
		return func(s *simulation, _ uint64) { s.backlog, s.load.spread = 12, spread }
	}
	ours := play(hours/2, tidewait, full(0))
	ours.log(t, "tidewait")
	byPriority := play(hours/2, tidewait, full(10))
	byPriority.log(t, "by priority")
	best := play(hours/2, greedy, full(0))
	best.log(t, "best effort")
	fifo := play(hours/2, strict, full(0))
	fifo.log(t, "strict")

	require.GreaterOrEqual(t, ours.utilisation, 0.95*best.utilisation)
	require.GreaterOrEqual(t, ours.utilisation, 0.93)
	require.GreaterOrEqual(t, byPriority.utilisation, 0.90)
	require.LessOrEqual(t, fifo.utilisation, 0.85, "strict order leaves room unused, or the test says nothing")
	require.LessOrEqual(t, ours.longest, 8*time.Hour)
	require.GreaterOrEqual(t, best.longest, 12*time.Hour, "best effort lets large phases starve, or the test says nothing")
	require.LessOrEqual(t, byPriority.longest, 18*time.Hour)
}

// Two pools over the same nodes keep out of each other's way: of their heads the
// one that is ahead is never delayed. Without each other's holds it would be.
func TestSimulationOfTwoPoolsOnTheSameNodes(t *testing.T) {
	careful := newSimulation(1, (&twoPools{careful: true}).place)
	careful.backlog, careful.load.spread = 12, 3
	used := careful.run(2500 * time.Hour)
	require.Empty(t, careful.wrong[:min(len(careful.wrong), 5)])
	require.GreaterOrEqual(t, used, 0.90)
	require.LessOrEqual(t, careful.longest, 12*time.Hour)

	careless := newSimulation(1, (&twoPools{}).place)
	careless.backlog, careless.load.spread = 12, 3
	careless.run(500 * time.Hour)
	require.NotEmpty(t, careless.wrong)
}

// A run that outlives its turn breaks the promise to the head, and the
// simulation notices.
func TestSimulationNoticesBrokenPromises(t *testing.T) {
	s := newSimulation(1, tidewait)
	s.backlog = 12
	s.outlive = true
	s.run(200 * time.Hour)
	require.NotEmpty(t, s.wrong)
	require.Contains(t, s.wrong[0], "the start of head")
}

// One phase waits while an endless stream of others would take whatever is free.
func TestNobodyStarves(t *testing.T) {
	const large, small = 8, 1
	for name, tt := range map[string]struct {
		place    scheduler
		cpus     int64 // of the phase that waits
		priority int   // of those in the stream; its own is 50
		bound    time.Duration
	}{
		"a large phase in a stream of small ones waits for those ahead, and for one turn":          {tidewait, large, 50, 2 * turn},
		"where nothing is held for it, it never starts":                                            {greedy, large, 50, 0},
		"a phase in a stream of more urgent ones waits until it has aged, and then like any other": {tidewait, small, 60, 10*ageing + 2*turn},
		"a large one as well": {tidewait, large, 60, 10*ageing + 2*turn},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(1, tt.place)
			s.fleet = s.fleet[:1]
			s.backlog = 9
			one := &job{id: 1, priority: 50, demand: demand(asks(tt.cpus*1000, gib, 0, 1)), longest: turn, lasts: turn}
			rng := rand.New(rand.NewPCG(1, 1))
			next := int64(1)
			s.draw = func(now time.Duration) *job {
				next++
				lasts := time.Duration(20+rng.IntN(40)) * time.Minute
				return &job{id: next, priority: tt.priority, demand: demand(asks(1000, gib, 0, 1)), longest: turn, lasts: lasts, asked: now}
			}
			s.pass()
			s.after(time.Minute, func(s *simulation) { one.asked = s.now; s.join(one) })
			s.run(1000 * time.Hour)
			require.Empty(t, s.wrong)
			waits := slices.Contains(s.queue, one)
			require.Equal(t, tt.bound == 0, waits)
			if !waits {
				require.LessOrEqual(t, one.started-one.asked, tt.bound)
			}
		})
	}
}
