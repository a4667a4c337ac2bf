package runlog

import (
	"fmt"
	"time"
)

// Limits bound the log of one machine. Every line counts for its bytes and
// [LineCost] more.
type Limits struct {
	Bytes  int64 // of the whole log
	Rate   int64 // bytes a second; several seconds' worth may come at once
	Buffer int64 // bytes that are held while NATS is away
}

// DefaultLimits are those of an installation that sets none.
var DefaultLimits = Limits{Bytes: 16 << 20, Rate: 1 << 20, Buffer: 4 << 20}

// LineCost is about what the server stores with each line: subject, headers and
// its own record. Without it a flood of empty lines would cost nothing.
const LineCost = 192

const (
	burst = 4 // seconds' worth of the rate that may come at once
	// A log that is cut keeps room for its last lines, which say how it ended: so
	// much, or a quarter of it.
	tailBytes = 64 << 10
	tailShare = 4
)

// entry is a line on its way.
type entry struct {
	at       time.Time
	stream   string // stdout, stderr or system
	text     []byte
	position string // where the line ends in what the machine has said; empty: nobody asks
	spent    int64  // of what the log may have, with this line
}

func (e entry) cost() int64 { return int64(len(e.text)) + LineCost }

func system(at time.Time, format string, args ...any) entry {
	return entry{at: at, stream: "system", text: fmt.Appendf(nil, format, args...)}
}

// dropped counts lines that are left out at one place.
type dropped struct{ lines, bytes int64 }

func (d *dropped) add(e entry) {
	d.lines++
	d.bytes += int64(len(e.text))
}

func (d *dropped) String() string {
	if d.lines == 1 {
		return fmt.Sprintf("1 line (%d bytes) was", d.bytes)
	}
	return fmt.Sprintf("%d lines (%d bytes) were", d.lines, d.bytes)
}

// gate decides which lines of a machine are kept. What is left out is counted,
// and said where it was. It is pure: time is what the lines say.
type gate struct {
	limits Limits
	left   int64 // of the part that is kept as it comes

	allowance float64 // bytes that may come now
	last      time.Time
	flood     dropped // since the last line that came through
	flooded   bool    // until a second's worth may come again

	cut    bool    // the part that is kept as it comes is full
	tail   []entry // the latest lines behind it
	behind int64   // their cost
	middle dropped // between the two
}

func newGate(l Limits) *gate {
	return &gate{limits: l, left: l.Bytes - tailRoom(l), allowance: float64(burst * l.Rate)}
}

func tailRoom(l Limits) int64 { return min(tailBytes, l.Bytes/tailShare) }

// spent is what the log has used of the part that is kept as it comes.
func (g *gate) spent() int64 { return g.limits.Bytes - tailRoom(g.limits) - g.left }

// resume goes on where an earlier writer of the log has spent so much. A log that
// was cut stays so.
func (g *gate) resume(spent int64) {
	g.left -= spent
	g.cut = g.left < 0
}

// admit returns what is to be kept now that a line has come.
func (g *gate) admit(e entry) []entry {
	if g.cut {
		g.keepLast(e)
		return nil
	}
	if !g.inTime(e) {
		g.flood.add(e)
		return nil
	}
	out := append(g.sayFlood(e.at), e)
	for i := range out {
		g.left -= out[i].cost()
		out[i].spent = g.spent()
	}
	if g.left >= 0 {
		return out
	}
	g.cut = true
	g.keepLast(e)
	said := system(e.at, "the log is cut here: it may have %d bytes in all; its last lines follow when the machine ends", g.limits.Bytes)
	said.spent = g.spent()
	return append(out[:len(out)-1], said)
}

// inTime reports whether a line is within the rate.
func (g *gate) inTime(e entry) bool {
	if passed := e.at.Sub(g.last); !g.last.IsZero() && passed > 0 {
		g.allowance = min(g.allowance+passed.Seconds()*float64(g.limits.Rate), float64(burst*g.limits.Rate))
	}
	g.last = e.at
	need := float64(e.cost())
	if g.flooded {
		need = max(need, float64(g.limits.Rate))
	}
	// A line that is larger than what may ever come at once comes when all of it may.
	if g.flooded = g.allowance < min(need, float64(burst*g.limits.Rate)); g.flooded {
		return false
	}
	g.allowance -= float64(e.cost())
	return true
}

func (g *gate) sayFlood(at time.Time) []entry {
	if g.flood.lines == 0 {
		return nil
	}
	said := system(at, "%s dropped here: more than %d bytes came in a second", &g.flood, g.limits.Rate)
	g.flood = dropped{}
	g.allowance -= float64(said.cost())
	return []entry{said}
}

func (g *gate) keepLast(e entry) {
	g.tail = append(g.tail, e)
	for g.behind += e.cost(); g.behind > tailRoom(g.limits); g.tail = g.tail[1:] {
		g.middle.add(g.tail[0])
		g.behind -= g.tail[0].cost()
	}
}

// close returns what is left to be kept when the machine has ended.
func (g *gate) close(at time.Time) []entry {
	out := g.sayFlood(at)
	if g.middle.lines > 0 {
		out = append(out, system(at, "%s dropped here", &g.middle))
	}
	out = append(out, g.tail...)
	g.tail, g.middle = nil, dropped{}
	return out
}
