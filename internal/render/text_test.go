package render_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                    "0 s",
		0:                               "0 s",
		300 * time.Millisecond:          "300 ms",
		6*time.Second + 900_000_000:     "6 s",
		119 * time.Second:               "119 s",
		2 * time.Minute:                 "2 min",
		119 * time.Minute:               "119 min",
		5*time.Hour + 12*time.Minute:    "5 h 12 min",
		76*time.Hour + 30*time.Minute:   "3 d 4 h",
		48*time.Hour - time.Millisecond: "47 h 59 min",
	} {
		require.Equal(t, want, render.Duration(d), d.String())
	}
}

func TestBoundsInTheUnitThatFits(t *testing.T) {
	for _, test := range []struct {
		since, bound time.Time
		want         string
	}{
		{at("12:19:05"), at("14:19:05"), "41 min of 120 (fails 14:19:05Z)"},
		{at("12:59:50"), at("14:59:50"), "17 s of 120 min (fails 14:59:50Z)"},
		{at("12:59:50"), at("13:00:20"), "17 s of 30 (fails 13:00:20Z)"},
		{at("13:00:00"), at("13:02:00").AddDate(0, 0, 1), "7 s of 24 h (fails 2026-12-01 13:02:00Z)"},
		{at("12:00:07"), at("22:00:06"), "60 min of 600 (fails 22:00:06Z)"},
		{at("12:00:07"), at("22:00:07"), "60 min of 10 h (fails 22:00:07Z)"},
		{at("10:00:07"), at("10:00:07").AddDate(0, 0, 3), "3 h of 72 (fails 2026-12-03 10:00:07Z)"},
		{at("13:00:09"), at("14:00:09"), "0 s of 60 min (fails 14:00:09Z)"},
	} {
		p := api.Phase{Name: "p", Ordinal: 1, Status: "pending", Wait: &api.Wait{Kind: "capacity", Since: test.since, Bound: &test.bound}}
		title, _, _ := strings.Cut(plainText.Phase("m", p), "\n")
		require.Equal(t, `phase 1 "p" of mission m   pending · waiting for capacity   `+test.want, title)
	}
}

func TestPlacesInLine(t *testing.T) {
	for position, want := range map[int]string{
		1: "1st in line", 2: "2nd in line", 3: "3rd in line", 4: "4th in line",
		11: "11th in line", 12: "12th in line", 13: "13th in line", 21: "21st in line", 111: "111th in line",
	} {
		p := api.Phase{Name: "p", Wait: &api.Wait{Kind: "capacity", Position: position}}
		require.Contains(t, plainText.Phase("m", p), "  place   "+want+"\n")
	}
	p := api.Phase{Name: "p", Wait: &api.Wait{Kind: "capacity", Position: 9, Pool: "microvm", Ahead: []string{"a/1", "b/2"}}}
	require.Contains(t, plainText.Phase("m", p), "  place   9th in line for microvm, behind a/1, b/2 and 6 more\n")
	p.Wait.StartsBy, p.Wait.StartsOn, p.Wait.StartsHeld = ptr(at("13:31:00")), "node-a", true
	require.Contains(t, plainText.Phase("m", p), "  starts  by 13:31:00Z (in 30 min) on node-a at the latest, unless another goes ahead of it\n")
	require.Contains(t, plainText.Waits([]api.Wait{*p.Wait}), "  9, by 13:31:00Z  ")
}

func TestLogLines(t *testing.T) {
	header := func(stream string) map[string][]string {
		return map[string][]string{"Stream": {stream}, "Time": {"2026-11-30T13:00:05.123456789Z"}}
	}
	subject := api.SubjectLog("node-a", "m", 1, "build", "r-1", "")
	out := render.LogLineOf(subject, header("stdout"), []byte("hello\x1b[2J\n"))
	require.Equal(t, render.LogLine{Node: "node-a", Phase: "build", Run: "r-1", Stream: "stdout", Time: "2026-11-30T13:00:05.123456789Z", Line: "hello\x1b[2J"}, out)
	require.Equal(t, "build | hello\x1b[2J", plainText.LogLine(out, false))
	require.Equal(t, "2026-11-30T13:00:05.123Z build | hello\x1b[2J", plainText.LogLine(out, true))

	terminal := render.Options{Now: now, Width: 80}
	require.Equal(t, "build | hello[2J", terminal.LogLine(out, false))
	colour := render.Options{Now: now, Width: 80, Colour: true}
	require.Equal(t, "\x1b[2mbuild ! \x1b[0m\x1b[31moops\x1b[0m", colour.LogLine(render.LogLineOf(subject, header("stderr"), []byte("oops")), false))
	require.Equal(t, "build * booted", terminal.LogLine(render.LogLineOf(subject, header("system"), []byte("booted")), false))
	require.Equal(t, render.LogLine{Line: "x"}, render.LogLineOf("", nil, []byte("x")))

	ofAgent := render.LogLineOf(api.SubjectLog("node-a", "m", 1, "review", "r-1", "critic-2"), header("stdout"), []byte("fine"))
	require.Equal(t, render.LogLine{Node: "node-a", Phase: "review", Run: "r-1", Agent: "critic-2", Stream: "stdout", Time: "2026-11-30T13:00:05.123456789Z", Line: "fine"}, ofAgent)
	require.Equal(t, "review/critic-2 | fine", plainText.LogLine(ofAgent, false))
}

func TestDiff(t *testing.T) {
	d := api.Diff{Text: "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\x1b[2J\n+new\tline\r\n same\n"}
	require.Equal(t, d.Text, plainText.Diff(d), "patch(1) must be able to take it")
	colour := render.Options{Width: 80, Colour: true}
	require.Equal(t, "\x1b[1m--- a/f\x1b[0m\n\x1b[1m+++ b/f\x1b[0m\n\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-old[2J\x1b[0m\n\x1b[32m+new\tline\x1b[0m\n same\n", colour.Diff(d))
}

// What a guest or a person wrote must never steer a terminal, nor break a line
// of a table.
func TestNoControlCharacterSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 40, -1).Draw(t, "text")
		o := render.Options{Now: now, Width: rapid.IntRange(0, 200).Draw(t, "width")}
		wait := fullWait()
		wait.Mission, wait.Phase, wait.Reason, wait.Code, wait.Ahead = text, text, text, text, []string{text}
		table := o.Waits([]api.Wait{wait})
		lines := strings.Count(table, "\n")
		if strings.Contains(table, "… cut: ") || o.Width > 0 && o.Width < 70 {
			lines-- // that something is cut is told in a line of its own
		}
		require.LessOrEqual(t, lines, 2)
		block := o.Phase(text, api.Phase{
			Name: text, Status: text, Node: text, Wait: &wait, Failure: text,
			Runs: []api.Run{{ID: text, Failure: text, Signal: text}},
		})
		for _, r := range table + block {
			require.True(t, r == '\n' || !unicode.IsControl(r), "%q in %q", r, table+block)
		}
	})
}

func TestWrappedLinesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := fullWait()
		wait.Reason = strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,12}`), 1, 40).Draw(t, "words"), " ")
		o := render.Options{Now: now, Width: rapid.IntRange(50, 160).Draw(t, "width")}
		_, fields, _ := strings.Cut(o.Phase("m", api.Phase{Name: "p", Wait: &wait}), "\n")
		for line := range strings.Lines(fields) {
			if strings.HasPrefix(line, "            tidewait ") { // a command is not broken
				continue
			}
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), o.Width, line)
		}
		require.Equal(t, "capacity_memory: "+wait.Reason, whyOf(fields))
	})
}

// whyOf joins the wrapped lines of the reason again.
func whyOf(fields string) string {
	why, _, _ := strings.Cut(fields, "  since")
	return strings.Join(strings.Fields(why)[1:], " ")
}
