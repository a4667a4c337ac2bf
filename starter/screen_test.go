package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawnOn returns a screen on a display.
func drawnOn(d *display) *screen {
	return &screen{out: writerTo{d}, size: func() (int, int) { return d.columns, d.rows }}
}

// writerTo is a terminal in raw mode: a line feed does not return.
type writerTo struct{ *display }

func (w writerTo) Write(p []byte) (int, error) {
	w.write(string(p))
	return len(p), nil
}

func TestScreenWritesChangedLinesOnly(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, size: func() (int, int) { return 80, 24 }}
	require.NoError(t, s.draw("mission m\nphase a\nphase b\n"))
	require.Equal(t, "\x1b[Jmission m\x1b[K\r\nphase a\x1b[K\r\nphase b\x1b[K\r\n", out.String())

	out.Reset()
	require.NoError(t, s.draw("mission m\nphase a succeeded\nphase b\n"))
	require.Equal(t, "\r\x1b[3A\r\nphase a succeeded\x1b[K\r\n\r\n\x1b[J", out.String())
	require.NotContains(t, out.String(), "\x1b[2J", "a cleared screen flickers")
	require.NotContains(t, out.String(), "\x1b[?25l", "whoever kills it would be left without a cursor")
}

func TestFold(t *testing.T) {
	require.Equal(t, []string{"0123456789", "", "ab"}, fold("0123456789\n\nab\n", 10))
	require.Equal(t, []string{"0123456789", "a", "b"}, fold("0123456789a\nb", 10))
	require.Equal(t, []string{"\x1b[1m01234\x1b[0m·6789"}, fold("\x1b[1m01234\x1b[0m·6789\n", 10))
	require.Equal(t, []string{"\x1b[1m0123", "45\x1b[0m"}, fold("\x1b[1m012345\x1b[0m\n", 4))
	require.Equal(t, []string{"日本", "語x"}, fold("日本語x\n", 5), "two columns each")
	require.Equal(t, []string{"\x1b[1m日", "本\x1b[0m"}, fold("\x1b[1m日本\x1b[0m\n", 3))
	require.Equal(t, []string{"日", "本"}, fold("日本\n", 1), "what has no room is there all the same")
	require.Equal(t, []string{"e\u0301e\u0301", "e\u0301"}, fold("e\u0301e\u0301e\u0301\n", 2))
}

// A block that the terminal has broken anew is as high as it is now, or what is drawn
// next begins in the wrong row.
func TestTheHeightOfABlockCountsColumns(t *testing.T) {
	s := &screen{shown: []string{"日本語", "", "ab", "\x1b[1m0123\x1b[0m"}}
	require.Equal(t, 4, s.height(6))
	require.Equal(t, 5, s.height(4), "日本 and 語")
	require.Equal(t, 7, s.height(3), "a character is not broken: 日, 本, 語")
}

func TestBlocksHigherThanTheTerminalEndEarlyAndSaySo(t *testing.T) {
	d := &display{}
	d.resize(20, 5)
	s := drawnOn(d)
	tall := "1\n2\n3\n4\n5\n6\n"
	for range 3 {
		require.NoError(t, s.draw(tall))
		require.Equal(t, "1\n2\n3\n… 3 more lines\n", d.String(), "nothing is drawn twice")
	}
	require.NoError(t, s.finish(tall))
	require.Equal(t, tall, d.String(), "the last is whole")
}

func TestWhatIsBelowTheBlockGoes(t *testing.T) {
	d := &display{}
	d.resize(20, 5)
	s := drawnOn(d)
	require.NoError(t, s.draw("one\n"))
	d.write("^C")
	require.NoError(t, s.draw("two\n"))
	require.Equal(t, "two\n", d.String())
}

// Whatever is drawn on whatever terminal, and however it changes its size, what is
// seen is what was printed before, and the last block.
func TestScreenShowsTheLastBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &display{}
		d.resize(rapid.IntRange(8, 60).Draw(t, "columns"), rapid.IntRange(30, 40).Draw(t, "rows"))
		d.write("$ tidewait\r\n")
		s := drawnOn(d)
		blocks := rapid.SliceOfN(rapid.SliceOfN(rapid.StringMatching(`[a-c ]{0,24}[a-c]`), 1, 6), 1, 8).Draw(t, "blocks")
		for i, lines := range blocks {
			if rapid.Bool().Draw(t, "resize") {
				d.resize(rapid.IntRange(8, 60).Draw(t, "columns"), d.rows)
			}
			require.NoError(t, s.draw(strings.Join(lines, "\n")+"\n"))
			want := "$ tidewait\n"
			for _, l := range fold(strings.Join(lines, "\n"), d.columns) {
				want += strings.TrimRight(l, " ") + "\n"
			}
			require.Equal(t, strings.TrimPrefix(unwrapped(want), "$ tidewait"), strings.TrimPrefix(unwrapped(d.String()), "$ tidewait"), fmt.Sprint(i))
		}
	})
}

// unwrapped leaves out what breaking a line that was printed before may add.
func unwrapped(s string) string { return strings.Replace(s, "$ tidewa\nit", "$ tidewait", 1) }
