package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// few are the cells that machines of QEMU are struck in whenever tests run: those
// that differ most from one another.
var few = []struct {
	fault fault
	steps []string
}{
	{machineKilled, []string{"run", "collect"}},
	{agentKilled, []string{"create"}},
	{agentFrozen, []string{"run"}},
	{postgresAway, []string{"run"}},
	{natsAway, []string{"inject"}},
}

// faultSettings are variables of the tests. The product, which refuses those that
// it does not know, must not see them.
var faultSettings struct{ minutes, seed string }

func takeFaultSettings() {
	for name, into := range map[string]*string{"TIDEWAIT_FAULT_MINUTES": &faultSettings.minutes, "TIDEWAIT_FAULT_SEED": &faultSettings.seed} {
		*into = os.Getenv(name)
		_ = os.Unsetenv(name)
	}
}

// faultMinutes is how long faults are looked for beyond what every run of the
// tests does; see docs/faults.md.
func faultMinutes(t *testing.T) time.Duration {
	t.Helper()
	if faultSettings.minutes == "" {
		return 0
	}
	minutes, err := strconv.ParseFloat(faultSettings.minutes, 64)
	require.NoError(t, err, "TIDEWAIT_FAULT_MINUTES")
	return time.Duration(minutes * float64(time.Minute))
}

// TestFaultsOfMicroVMs lets faults happen to machines of QEMU: six cells of the
// matrix, and all of it when faults are looked for.
func TestFaultsOfMicroVMs(t *testing.T) {
	table := newFaultTable(t)
	if faultMinutes(t) == 0 {
		long(t, 4*time.Minute)
		s := startFaults(t, "microvm", fault{})
		for _, f := range few {
			for _, step := range f.steps {
				t.Run(f.fault.name+" during "+step, func(t *testing.T) { s.in(t).play(f.fault, step, table) })
			}
		}
		return
	}
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := startFaults(t, "microvm", f)
			for _, step := range faultSteps {
				t.Run(step, func(t *testing.T) { s.in(t).play(f, step, table) })
			}
		})
	}
}

// TestRandomFaults lets two faults happen to each mission, at random moments, for
// random times, both at once or one after the other. The seed that it says plays
// the same rounds again.
func TestRandomFaults(t *testing.T) {
	long(t, time.Minute)
	seed := uint64(1)
	if faultSettings.seed != "" {
		var err error
		seed, err = strconv.ParseUint(faultSettings.seed, 10, 64)
		require.NoError(t, err, "TIDEWAIT_FAULT_SEED")
	}
	t.Logf("TIDEWAIT_FAULT_SEED=%d", seed)
	table := newFaultTable(t)
	s := startFaults(t, "process", fault{})
	until := time.Now().Add(faultMinutes(t))
	for round := 1; round <= 2 || time.Now().Before(until); round++ {
		r := drawRound(seed, round)
		ok := t.Run(r.String(), func(t *testing.T) { s.in(t).playRound(r, round, table) })
		if !ok {
			t.Fatalf("round %d of TIDEWAIT_FAULT_SEED=%d failed; its faults: %s", round, seed, r)
		}
	}
}

// strike is a fault of a round.
type strike struct {
	fault fault
	step  string
	away  time.Duration
}

// faultRound is what happens to one mission.
type faultRound struct {
	strikes [2]strike
	atOnce  bool
}

// drawRound draws a round that depends on nothing but the two numbers.
func drawRound(seed uint64, round int) faultRound {
	random := rand.New(rand.NewPCG(seed, uint64(round))) //nolint:gosec // to be repeated
	var r faultRound
	drawn := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.env != nil }) // all on one stack
	for i := range r.strikes {
		s := strike{fault: drawn[random.IntN(len(drawn))], step: faultSteps[random.IntN(len(faultSteps))]}
		// Most are back within the lease of 6 s; others not before all is given up.
		s.away = time.Duration(100+random.IntN(3000)) * time.Millisecond
		if random.IntN(3) == 0 {
			s.away = time.Duration(8000+random.IntN(6000)) * time.Millisecond
		}
		r.strikes[i] = s
	}
	slices.SortFunc(r.strikes[:], func(a, b strike) int { return slices.Index(faultSteps, a.step) - slices.Index(faultSteps, b.step) })
	if random.IntN(2) == 0 && r.strikes[0].fault.part() != r.strikes[1].fault.part() {
		r.atOnce, r.strikes[1].step = true, r.strikes[0].step
	}
	return r
}

func (r faultRound) String() string {
	var all []string
	for _, s := range r.strikes {
		all = append(all, fmt.Sprintf("%s during %s for %.1fs", s.fault.name, s.step, s.away.Seconds()))
	}
	if r.atOnce {
		return strings.Join(all, " and ")
	}
	return strings.Join(all, ", then ")
}

// playRound strikes a mission twice. Each fault may cost it a run, and one that
// kills a machine may fail it.
func (s *faultStack) playRound(r faultRound, round int, table *faultTable) {
	s.t.Helper()
	began := time.Now()
	expected := want{runs: 3}
	c := &cell{faultStack: s, mission: fmt.Sprintf("round-%d", round)}
	c.log = follow(s.t, s.agents...)
	placed := s.watchPlacements()
	c.launch()
	for i, strike := range r.strikes {
		c.fault, c.step, c.away = strike.fault, strike.step, strike.away
		if strike.fault.part() == "VMM" {
			expected.codes, expected.lucky = []string{"boot_failed", "inject_failed", "machine_died", "collect_failed"}, true
		}
		switch {
		case i == 0:
			c.moment(placed)
		case !r.atOnce:
			c.next()
		}
		if !r.atOnce {
			c.strike()
		}
	}
	if r.atOnce {
		c.strikeAtOnce(r.strikes[:])
	}
	m := c.judge(expected)
	table.addRow(fmt.Sprintf("round %3d  %-9s %d runs %5.1fs  %s", round, m.Status, len(m.PhaseList[1].Runs), time.Since(began).Seconds(), r))
}

// next waits until the phase's run, or one that took its place, has come to the
// cell's step or beyond it.
func (c *cell) next() {
	c.t.Helper()
	phase, _, _ := strings.Cut(c.run, "-")
	least := slices.Index(faultSteps, c.step)
	c.eventually("a run comes to step "+c.step, func() bool {
		c.log.more()
		for _, e := range c.log.events {
			if strings.HasPrefix(e.run, phase+"-") && slices.Index(faultSteps, e.step) >= least {
				c.run, c.agent = e.run, e.agent
				return true
			}
		}
		return false
	}, func() any { return c.log.events })
}

// strikeAtOnce lets several faults happen in the same moment. They end one after
// another: what others need to start comes back first.
func (c *cell) strikeAtOnce(strikes []strike) {
	c.t.Helper()
	order := []string{"Postgres", "NATS", "Temporal", "engine", "gateway", "agent", "VMM"}
	slices.SortFunc(strikes, func(a, b strike) int {
		return slices.Index(order, a.fault.part()) - slices.Index(order, b.fault.part())
	})
	var ends []func()
	for _, s := range strikes {
		one := *c
		one.fault, one.away = s.fault, s.away
		ends = append(ends, s.fault.strike(&one))
	}
	for _, end := range ends {
		end()
	}
	c.answersAgain()
}
