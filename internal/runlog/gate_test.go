package runlog

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)

func line(after time.Duration, text string) entry {
	return entry{at: noon.Add(after), stream: "stdout", text: []byte(text)}
}

func texts(entries []entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.stream+" "+string(e.text))
	}
	return out
}

func TestALogWithinItsLimitsIsKept(t *testing.T) {
	g := newGate(Limits{Bytes: 1 << 20, Rate: 1 << 20})
	var out []entry
	for i := range 100 {
		out = append(out, g.admit(line(0, fmt.Sprint(i)))...)
	}
	require.Len(t, out, 100)
	require.Equal(t, []string{"stdout 0", "stdout 1"}, texts(out[:2]))
	require.Empty(t, g.close(noon))
}

func TestAFloodIsDroppedAndSaid(t *testing.T) {
	g := newGate(Limits{Bytes: 1 << 20, Rate: 1000}) // four seconds' worth are 20 lines of 200
	var out []entry
	for i := range 50 {
		out = append(out, g.admit(line(0, fmt.Sprintf("%08d", i)))...)
	}
	require.Len(t, out, 20)
	require.Empty(t, g.admit(line(900*time.Millisecond, "not yet")), "it goes on when a second's worth may come")
	require.Equal(t, []string{"system 31 lines (247 bytes) were dropped here: more than 1000 bytes came in a second", "stdout then"},
		texts(g.admit(line(time.Second, "then"))))

	for range 3 {
		g.admit(line(time.Second, strings.Repeat("x", 300)))
	}
	require.Equal(t, []string{"system 2 lines (600 bytes) were dropped here: more than 1000 bytes came in a second"}, texts(g.close(noon)))

	// A line larger than all that may come at once is not held back for ever.
	g = newGate(Limits{Bytes: 1 << 20, Rate: 1000})
	require.Equal(t, []int{1}, []int{len(g.admit(line(0, strings.Repeat("x", 9000))))})
	require.Empty(t, g.admit(line(time.Second, "x")))
	require.Len(t, g.admit(line(time.Minute, "x")), 2)
}

func TestALogThatIsCutKeepsItsLastLines(t *testing.T) {
	g := newGate(Limits{Bytes: 8000, Rate: 1 << 30}) // 6000 as it comes, 2000 of the end
	var out []entry
	for i := range 100 {
		out = append(out, g.admit(line(0, fmt.Sprintf("%08d", i)))...) // 200 each
	}
	require.Len(t, out, 31)
	require.Equal(t, []string{
		"stdout 00000029", "system the log is cut here: it may have 8000 bytes in all; its last lines follow when the machine ends",
	}, texts(out[29:]))
	require.Equal(t, []string{
		"system 60 lines (480 bytes) were dropped here",
		"stdout 00000090", "stdout 00000091", "stdout 00000092", "stdout 00000093", "stdout 00000094",
		"stdout 00000095", "stdout 00000096", "stdout 00000097", "stdout 00000098", "stdout 00000099",
	}, texts(g.close(noon)))
	require.Empty(t, g.close(noon))
}

// TestWhatIsDroppedIsCounted wants every line kept or counted, in order, and the
// bounds held, whatever comes.
func TestWhatIsDroppedIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Bytes: rapid.Int64Range(4000, 100_000).Draw(t, "bytes"), Rate: rapid.Int64Range(200, 20_000).Draw(t, "rate")}
		g := newGate(limits)
		var out []entry
		at, sent := time.Duration(0), 0
		for i := range rapid.IntRange(0, 400).Draw(t, "lines") {
			at += time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond
			out = append(out, g.admit(line(at, fmt.Sprintf("%05d", i)+strings.Repeat("x", rapid.IntRange(0, 500).Draw(t, "size"))))...)
			sent++
		}
		out = append(out, g.close(noon.Add(at))...)
		var cost, counted int64
		var kept []string
		for _, e := range out {
			cost += e.cost()
			var n int64
			switch {
			case e.stream == "stdout":
				kept = append(kept, string(e.text[:5]))
			case bytes.Contains(e.text, []byte("dropped here")):
				_, err := fmt.Sscanf(string(e.text), "%d", &n)
				if err != nil {
					t.Fatal(err)
				}
				counted += n
			}
		}
		if counted+int64(len(kept)) != int64(sent) {
			t.Fatalf("%d lines came, %d are kept and %d counted", sent, len(kept), counted)
		}
		for i := 1; i < len(kept); i++ {
			if kept[i-1] >= kept[i] {
				t.Fatalf("%s came before %s", kept[i-1], kept[i])
			}
		}
		const notices = 4 * (LineCost + 150)
		if cost > limits.Bytes+notices {
			t.Fatalf("a log of %d bytes has %d", limits.Bytes, cost)
		}
		if most := float64(limits.Rate)*(at.Seconds()+burst) + float64(tailRoom(limits)) + 2*notices; float64(cost) > most+1000 {
			t.Fatalf("%d bytes in %s at %d a second", cost, at, limits.Rate)
		}
	})
}
