package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// What happens to a part.
const (
	killed      = "SIGKILL"
	stopped     = "SIGTERM"
	frozen      = "SIGSTOP"
	cut         = "cut"
	stalled     = "stalled"
	slow        = "slow"
	diskFull    = "disk full"
	skewedClock = "clock set"
)

// chaosKind is a fault and the parts it may happen to.
type chaosKind struct {
	fault string
	where []string
}

// chaosKinds are drawn one after another in a random order, so that each comes
// once in four rounds. The last ones take a build and file systems of their own.
var (
	chaosKinds = []chaosKind{
		{killed, chaosWorkers},
		{frozen, chaosWorkers},
		{stopped, chaosWorkers},
		{killed, chaosServices},
		{frozen, chaosServices},
		{killed, chaosMachines},
		{killed, chaosHosted},
		{frozen, chaosHosted},
		{cut, chaosWires},
		{stalled, chaosWires},
		{slow, chaosWires},
		{cut, chaosWires},
	}
	chaosKindsOfMore = []chaosKind{
		{diskFull, chaosDisks},
		{skewedClock, chaosWorkers},
		{diskFull, chaosDisks},
	}
)

const chaosAtOnce = 3 // faults of a round

// chaosStrike is one fault of a round.
type chaosStrike struct {
	fault, where string
	at, lasts    time.Duration // since the round's work is under way
	skew         time.Duration // of a clock
}

func (s chaosStrike) String() string {
	text := fmt.Sprintf("%s %s at %.1fs for %.1fs", s.where, s.fault, s.at.Seconds(), s.lasts.Seconds())
	if s.skew != 0 {
		text += fmt.Sprintf(" wrong by %s", s.skew)
	}
	return text
}

type chaosRound struct{ strikes []chaosStrike }

func (r chaosRound) String() string {
	var all []string
	for _, s := range r.strikes {
		all = append(all, s.String())
	}
	return strings.Join(all, "; ")
}

// drawChaos draws a round that depends on nothing but these.
func drawChaos(seed uint64, round int, more bool) chaosRound {
	kinds := slices.Clone(chaosKinds)
	if more {
		kinds = append(kinds, chaosKindsOfMore...)
	}
	cycle := len(kinds) / chaosAtOnce
	shuffled := rand.New(rand.NewPCG(seed, uint64(round/cycle))) //nolint:gosec // to be repeated
	shuffled.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	random := rand.New(rand.NewPCG(seed, 1<<32+uint64(round))) //nolint:gosec // to be repeated
	var r chaosRound
	for _, kind := range kinds[round%cycle*chaosAtOnce:][:chaosAtOnce] {
		free := slices.DeleteFunc(slices.Clone(kind.where), r.strikesPart)
		s := chaosStrike{
			fault: kind.fault, where: free[random.IntN(len(free))],
			at:    time.Duration(random.IntN(6000)) * time.Millisecond,
			lasts: time.Duration(100+random.IntN(3000)) * time.Millisecond,
		}
		if more && random.IntN(3) == 0 { // not before all is given up
			s.lasts = time.Duration(8000+random.IntN(6000)) * time.Millisecond
		}
		if kind.fault == skewedClock {
			by := []time.Duration{3 * time.Second, time.Minute, time.Hour, 48 * time.Hour, 10 * 365 * 24 * time.Hour}
			s.skew = by[random.IntN(len(by))]
			if random.IntN(2) == 0 {
				s.skew = -s.skew
			}
		}
		r.strikes = append(r.strikes, s)
	}
	slices.SortFunc(r.strikes, func(a, b chaosStrike) int { return int(a.at - b.at) })
	return r
}

// strikesPart reports whether something of the round happens to a part already.
func (r chaosRound) strikesPart(where string) bool {
	return slices.ContainsFunc(r.strikes, func(s chaosStrike) bool { return s.where == where })
}

// has reports whether a round has a fault at one of these places.
func (r chaosRound) has(fault string, where ...string) bool {
	return slices.ContainsFunc(r.strikes, func(s chaosStrike) bool { return s.fault == fault && slices.Contains(where, s.where) })
}

// chaosTable is what became of the rounds, for people.
type chaosTable struct {
	mu   sync.Mutex
	rows []string
}

func (c *chaosTable) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, fmt.Sprintf(format, args...))
}

func (c *chaosTable) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("\n%5s  %-24s  %-12s  %5s  %6s  %s\n%s\n", "ROUND", "MISSIONS", "APPLICATIONS", "AGAIN", "TOOK", "FAULTS", strings.Join(c.rows, "\n"))
}
