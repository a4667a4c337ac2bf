package capacity_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
)

// generated is a fleet and a queue in front of it.
type generated struct {
	fleet []capacity.Node
	queue []capacity.Waiting
}

const generatedFleets = 10_000

// TestCountsAddUpToTheFleet reads the numbers out of the sentences of refusals, and
// out of what the API gives away, and compares them with an account of the fleet
// that shares nothing with the code that wrote them.
func TestCountsAddUpToTheFleet(t *testing.T) {
	anything := rapid.Custom(func(t *rapid.T) generated { return generated{anyFleet(t), anyQueue(t)} })
	told := map[capacity.Code]int{}
	for seed := range generatedFleets {
		g := anything.Example(seed)
		a := account{generated: g, verdicts: capacity.Pass(g.fleet, g.queue)}
		a.settle()
		for i, v := range a.verdicts {
			if v.Capacity != nil {
				told[v.Capacity.Code]++
				a.checks(t, fmt.Sprintf("fleet %d, item %d: %s", seed, i, v.Capacity.Sentence), g.queue[i], v)
			}
		}
	}
	t.Logf("refusals by code: %v", told)
	for _, code := range capacityCodes {
		require.Positive(t, told[code], "no fleet was refused with %s", code)
	}
}

// account is a fleet as a pass leaves it, counted by hand.
type account struct {
	generated
	verdicts []capacity.Verdict
	free     map[string]capacity.Resources
	starting map[string]int64
	line     []int64 // those refused, in order
	holds    map[int64]bool
}

// settle takes what was placed.
func (a *account) settle() {
	a.free, a.starting, a.holds = map[string]capacity.Resources{}, map[string]int64{}, map[int64]bool{}
	for _, n := range a.fleet {
		a.free[n.ID], a.starting[n.ID] = n.Free, n.Starting
	}
	for i, v := range a.verdicts {
		switch {
		case v.Placement != nil:
			a.free[v.Placement.NodeID] = a.free[v.Placement.NodeID].Sub(v.Placement.Need)
			a.starting[v.Placement.NodeID] += a.queue[i].Demand.Resources.Slots
		case v.Capacity != nil:
			a.line = append(a.line, v.ID)
			a.holds[v.ID] = v.Hold != nil
		}
	}
}

// needs is what a demand takes of a node: each machine has its own overhead.
func needs(n capacity.Node, d capacity.Demand) (cpu, memory, disk, slots int64) {
	r, over, machines := d.Resources, n.Backends[d.Backend].Overhead, d.Resources.Slots
	return r.CPUMilli + machines*over.CPUMilli, r.MemoryMiB + machines*over.MemoryMiB, r.DiskMiB + machines*over.DiskMiB, machines
}

// standing says in one word how a node stands to a demand.
func (a *account) standing(n capacity.Node, d capacity.Demand) string {
	offer := n.Backends[d.Backend]
	cpu, memory, disk, slots := needs(n, d)
	fits := func(r capacity.Resources) bool {
		return cpu <= r.CPUMilli && memory <= r.MemoryMiB && disk <= r.DiskMiB && slots <= r.Slots
	}
	switch {
	case n.State == "retired":
		return "unknown"
	case !offer.OK, d.Network && !offer.Network, d.Arch != "" && d.Arch != n.Arch:
		return "incapable"
	case d.Labels["zone"] != "" && d.Labels["zone"] != n.Labels["zone"], d.Labels["disk"] != "" && d.Labels["disk"] != n.Labels["disk"]:
		return "incapable"
	case !fits(n.Allocatable):
		return "incapable"
	case n.State == "suspect", n.State == "down":
		return "lost"
	case n.State == "draining", n.State == "drained":
		return "draining"
	case n.State != "ready":
		return "cordoned"
	case !fits(a.free[n.ID]):
		return "full"
	case n.StartLimit > 0 && a.starting[n.ID] > 0 && a.starting[n.ID]+slots > n.StartLimit:
		return "starting"
	}
	return "held" // there is room, and the demand was refused
}

// tally counts the fleet by standing, as the fields of the API are named.
func (a *account) tally(d capacity.Demand) map[string]int {
	counts := map[string]int{"fit": 0, "full": 0, "starting": 0, "held": 0, "cordoned": 0, "draining": 0, "lost": 0, "incapable": 0}
	for _, n := range a.fleet {
		if s := a.standing(n, d); s != "unknown" {
			counts[s]++
		}
	}
	return counts
}

// The parts of a sentence that have numbers in them.
var (
	saysAsk      = regexp.MustCompile(`^needs (?:(\d+) machines with )?([^;]*?)(?: in all)?(?: \(\+([^)]*) overhead\))? on backend (\w+)`)
	saysNearest  = regexp.MustCompile(`the nearest of (\d+) nodes, (node-\d+), is (?:now )?(.*?); \d`)
	saysOnly     = regexp.MustCompile(`; (?:[^;]*placed first and )?(node-\d+) is (?:now )?(short by .*?|starting .*?); \d`)
	saysRoom     = regexp.MustCompile(`(node-\d+) has room but is (?:now )?starting (\d+) of at most (\d+) machines`)
	saysHeld     = regexp.MustCompile(`it fits on (node-\d+), which is held for #(\d+); `)
	saysClosed   = regexp.MustCompile(`(?:of (\d+) nodes that could run it, |the only node that could run it, node-\d+, )(.*?); \d`)
	saysClosedBy = regexp.MustCompile(`(?:(\d+) (?:is|are)|is) (not reporting|draining|cordoned)`)
	saysTogether = regexp.MustCompile(`; (\d+) nodes have (.*?) free in sum, but the nearest, (node-\d+), is short by (.*?); \d`)
	saysLine     = regexp.MustCompile(`; (\d+)(?:st|nd|rd|th) in line(?: behind (#\d+(?:(?:, | and )#\d+)*)(?: and (\d+) others?)?)?(?:, and node-\d+ is held for it)?$`)
	saysAmount   = regexp.MustCompile(`([\d.]+) (CPU|MiB of memory|GiB of memory|MiB of disk|GiB of disk|slot)`)
)

// amounts adds up what a phrase lists: thousandths of a CPU, MiB, slots.
func amounts(t require.TestingT, phrase string) (r capacity.Resources) {
	for _, m := range saysAmount.FindAllStringSubmatch(phrase, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		switch m[2] {
		case "CPU":
			r.CPUMilli += int64(v*1000 + 0.5)
		case "MiB of memory":
			r.MemoryMiB += int64(v)
		case "GiB of memory":
			r.MemoryMiB += int64(v * 1024)
		case "MiB of disk":
			r.DiskMiB += int64(v)
		case "GiB of disk":
			r.DiskMiB += int64(v * 1024)
		case "slot":
			r.Slots += int64(v)
		}
	}
	return r
}

// checks compares one refusal, as a person and as a program reads it, with the
// account.
func (a *account) checks(t *testing.T, what string, item capacity.Waiting, v capacity.Verdict) {
	t.Helper()
	d, sentence := item.Demand, v.Capacity.Sentence
	tally := a.tally(d)
	known := 0
	for _, n := range tally {
		known += n
	}
	raw, err := json.Marshal(v.Capacity.Counts)
	require.NoError(t, err)
	var counts map[string]int
	require.NoError(t, json.Unmarshal(raw, &counts))
	require.Equal(t, tally, counts, what)
	sum := 0
	for _, n := range counts {
		sum += n
	}
	require.Equal(t, known, sum, what)
	ready, closed := tally["full"]+tally["starting"]+tally["held"], tally["lost"]+tally["draining"]+tally["cordoned"]
	require.Equal(t, known, ready+closed+tally["incapable"], what)

	a.checkAsk(t, what, d, sentence)
	a.checkLine(t, what, v, sentence)
	switch v.Capacity.Code {
	case capacity.CodeNoNodesRegistered:
		require.Zero(t, known, what)
	case capacity.CodeNodesLost, capacity.CodeNodesDraining:
		require.Zero(t, ready, what)
		checkClosed(t, what, tally, sentence)
	case capacity.CodeFragmented:
		a.checkTogether(t, what, d, ready, sentence)
	case capacity.CodeHeldForHead:
		require.Positive(t, tally["held"], what)
		m := saysHeld.FindStringSubmatch(sentence)
		require.NotNil(t, m, what)
		require.Equal(t, "held", a.standing(a.node(m[1]), d), what)
		owner, err := strconv.ParseInt(m[2], 10, 64)
		require.NoError(t, err)
		require.True(t, a.holds[owner], "%s: #%d has a hold", what, owner)
	default:
		a.checkNearest(t, what, d, ready, sentence)
	}
}

func (a *account) node(id string) capacity.Node {
	for _, n := range a.fleet {
		if n.ID == id {
			return n
		}
	}
	return capacity.Node{}
}

// checkAsk reads what was asked for, the overhead of some node of its kind apart.
func (a *account) checkAsk(t *testing.T, what string, d capacity.Demand, sentence string) {
	t.Helper()
	m := saysAsk.FindStringSubmatch(sentence)
	require.NotNil(t, m, what)
	asked := amounts(t, m[2])
	asked.Slots = 1
	if m[1] != "" {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		asked.Slots = int64(n)
	}
	require.Equal(t, d.Resources, asked, what)
	require.Equal(t, d.Backend, m[4], what)
	if m[3] == "" {
		return
	}
	over, possible := amounts(t, m[3]), false
	for _, n := range a.fleet {
		_, memory, _, _ := needs(n, d)
		possible = possible || memory-d.Resources.MemoryMiB == over.MemoryMiB
	}
	require.True(t, possible, what)
}

// checkLine reads who is ahead: the first three by name, the rest by number.
func (a *account) checkLine(t *testing.T, what string, v capacity.Verdict, sentence string) {
	t.Helper()
	m := saysLine.FindStringSubmatch(sentence)
	require.NotNil(t, m, what)
	position, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	require.Equal(t, v.ID, a.line[position-1], what)
	var names []string
	for _, id := range a.line[:min(position-1, 3)] {
		names = append(names, "#"+strconv.FormatInt(id, 10))
	}
	require.Equal(t, names, regexp.MustCompile(`#\d+`).FindAllString(m[2], -1), what)
	others := 0
	if m[3] != "" {
		others, err = strconv.Atoi(m[3])
		require.NoError(t, err)
	}
	require.Equal(t, position-1, len(names)+others, what)
}

// checkNearest reads how many nodes take such work, and what the nearest lacks:
// with what it has free that is what was asked for.
func (a *account) checkNearest(t *testing.T, what string, d capacity.Demand, ready int, sentence string) {
	t.Helper()
	if m := saysRoom.FindStringSubmatch(sentence); m != nil {
		n := a.node(m[1])
		require.Equal(t, "starting", a.standing(n, d), what)
		require.Equal(t, []string{strconv.FormatInt(a.starting[n.ID], 10), strconv.FormatInt(n.StartLimit, 10)}, m[2:], what)
		return
	}
	m := saysNearest.FindStringSubmatch(sentence)
	if m == nil {
		only := saysOnly.FindStringSubmatch(sentence)
		require.NotNil(t, only, what)
		m = []string{"", "1", only[1], only[2]}
	}
	require.Equal(t, strconv.Itoa(ready), m[1], what)
	require.True(t, strings.HasPrefix(m[3], "short by "), what)
	require.Equal(t, a.lacks(a.node(m[2]), d), amounts(t, m[3]), what)
}

// lacks is by how much a demand exceeds what a node has free.
func (a *account) lacks(n capacity.Node, d capacity.Demand) capacity.Resources {
	cpu, memory, disk, slots := needs(n, d)
	free := a.free[n.ID]
	return capacity.Resources{
		CPUMilli: max(cpu-free.CPUMilli, 0), MemoryMiB: max(memory-free.MemoryMiB, 0),
		DiskMiB: max(disk-free.DiskMiB, 0), Slots: max(slots-free.Slots, 0),
	}
}

// checkTogether reads what the nodes that take such work have free together.
func (a *account) checkTogether(t *testing.T, what string, d capacity.Demand, ready int, sentence string) {
	t.Helper()
	m := saysTogether.FindStringSubmatch(sentence)
	require.NotNil(t, m, what)
	require.Equal(t, strconv.Itoa(ready), m[1], what)
	var free capacity.Resources
	for _, n := range a.fleet {
		switch a.standing(n, d) {
		case "full", "starting", "held":
			f := a.free[n.ID]
			free.CPUMilli, free.MemoryMiB = free.CPUMilli+max(f.CPUMilli, 0), free.MemoryMiB+max(f.MemoryMiB, 0)
			free.DiskMiB, free.Slots = free.DiskMiB+max(f.DiskMiB, 0), free.Slots+max(f.Slots, 0)
		}
	}
	require.Equal(t, free, amounts(t, m[2]), what)
	require.Equal(t, a.lacks(a.node(m[3]), d), amounts(t, m[4]), what)
}

// checkClosed reads why no node takes such work: the parts add up to all of them.
func checkClosed(t *testing.T, what string, tally map[string]int, sentence string) {
	t.Helper()
	m := saysClosed.FindStringSubmatch(sentence)
	require.NotNil(t, m, what)
	all := 1
	if m[1] != "" {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		all = n
	}
	said := map[string]int{"not reporting": 0, "draining": 0, "cordoned": 0}
	sum := 0
	for _, part := range saysClosedBy.FindAllStringSubmatch(m[2], -1) {
		n := 1
		if part[1] != "" {
			var err error
			n, err = strconv.Atoi(part[1])
			require.NoError(t, err)
		}
		said[part[2]] += n
		sum += n
	}
	require.Equal(t, all, sum, what)
	require.Equal(t, map[string]int{"not reporting": tally["lost"], "draining": tally["draining"], "cordoned": tally["cordoned"]}, said, what)
}

// TestTheAccountCanDiffer is for a sentence that says something else than is so.
func TestTheAccountCanDiffer(t *testing.T) {
	fleet := []capacity.Node{{
		ID: "node-00", State: capacity.Ready, Backends: map[string]capacity.Offer{"process": {OK: true}},
		Allocatable: capacity.Resources{CPUMilli: 4000, MemoryMiB: 4096, Slots: 4}, Free: capacity.Resources{CPUMilli: 500, MemoryMiB: 4096, Slots: 4},
	}}
	queue := []capacity.Waiting{{ID: 7, Longest: time.Hour, Demand: capacity.Demand{
		Backend: "process", Resources: capacity.Resources{CPUMilli: 1500, MemoryMiB: 1536, Slots: 1},
	}}}
	a := account{generated: generated{fleet, queue}, verdicts: capacity.Pass(fleet, queue)}
	a.settle()
	require.Equal(t, "needs 1.5 CPUs and 1.5 GiB of memory on backend process; node-00 is short by 1 CPU; 1st in line, and node-00 is held for it",
		a.verdicts[0].Capacity.Sentence)
	require.Equal(t, capacity.Resources{CPUMilli: 1500, MemoryMiB: 1536}, amounts(t, "1.5 CPUs and 1.5 GiB of memory"))
	require.Equal(t, capacity.Resources{CPUMilli: 1000}, a.lacks(fleet[0], queue[0].Demand))
	require.Equal(t, map[string]int{"fit": 0, "full": 1, "starting": 0, "held": 0, "cordoned": 0, "draining": 0, "lost": 0, "incapable": 0}, a.tally(queue[0].Demand))
}
