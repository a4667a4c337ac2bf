package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"tidewait/internal/columns"
)

// screen is the block of lines at the end of a terminal's output that is drawn
// again and again in its place. It writes only the lines that have changed, each
// time with one write, and leaves the cursor below the block: whoever is
// interrupted between two draws, and however, leaves the terminal as it was. The
// zero value of everything but out and size is an empty screen.
type screen struct {
	out  io.Writer
	size func() (columns, rows int)

	shown []string // the lines of the terminal that are the block
	width int      // of the terminal when they were drawn
}

// newScreen returns a screen on the command's output, or nil where nothing can be
// redrawn: it is no terminal, or one that cannot move its cursor.
func (c *cli) newScreen() *screen {
	file, ok := c.out.(*os.File)
	if !ok || c.structured() || c.terminal() == 0 || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{out: c.out, size: func() (int, int) { return terminalSize(file) }}
}

// terminalSize is that of the usual terminal where it cannot be told.
func terminalSize(file *os.File) (columns, rows int) {
	columns, rows, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 {
		columns = 80
	}
	if err != nil || rows <= 0 {
		rows = 24
	}
	return columns, rows
}

// draw puts block in the place of the one before. Of a block that is higher than
// the terminal the end is left out, and the last line says so.
func (s *screen) draw(block string) error {
	columns, rows := s.size()
	lines := fold(block, columns)
	if room := rows - 1; len(lines) > room && room > 0 { // the cursor is in the last row
		more := len(lines) - room + 1
		lines = append(lines[:room-1:room-1], fold(fmt.Sprintf("… %d more lines", more), columns)[0])
	}
	return s.replace(lines, columns)
}

// finish puts all of block in the place of the one before, however high it is. What
// is drawn next comes below it.
func (s *screen) finish(block string) error {
	columns, _ := s.size()
	err := s.replace(fold(block, columns), columns)
	s.leave()
	return err
}

// leave lets the block stand. What is drawn next comes below it.
func (s *screen) leave() { s.shown = nil }

func (s *screen) replace(lines []string, columns int) error {
	var text strings.Builder
	up := s.height(columns)
	if up > 0 {
		fmt.Fprintf(&text, "\r\x1b[%dA", up)
	}
	if s.width != columns { // the terminal may have broken the lines anew
		text.WriteString("\x1b[J")
		s.shown = nil
	}
	for i, line := range lines {
		if i >= len(s.shown) || s.shown[i] != line {
			text.WriteString(line + "\x1b[K")
		}
		text.WriteString("\r\n")
	}
	if len(lines) < len(s.shown) || up > 0 {
		text.WriteString("\x1b[J") // what was below, and what was typed there
	}
	s.shown, s.width = lines, columns
	_, err := io.WriteString(s.out, text.String())
	return err
}

// height is how many rows the block takes now: a terminal that has become narrower
// breaks lines that were drawn when it was wider.
func (s *screen) height(columns int) int {
	n := 0
	for _, line := range s.shown {
		n += len(fold(line+"\n", columns))
	}
	return n
}

// fold breaks what is wider than the terminal, so that each line takes one row.
func fold(block string, width int) []string {
	var lines []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		for visible(line) > width {
			head, rest := splitVisible(line, width)
			if rest == "" { // of one character, which is wider than the terminal
				break
			}
			lines, line = append(lines, head), rest
		}
		lines = append(lines, line)
	}
	return lines
}

// splitVisible cuts a line behind so many columns. Colours count for none, and may
// go on in the rest.
func splitVisible(line string, width int) (head, rest string) {
	seen := 0
	for i := 0; i < len(line); {
		if code := escape(line[i:]); code > 0 {
			i += code
			continue
		}
		r, n := utf8.DecodeRuneInString(line[i:])
		if seen += columns.OfRune(r); seen > width && i > 0 {
			return line[:i], line[i:]
		}
		i += n
	}
	return line, ""
}

// visible counts the columns of a line, its colours left out.
func visible(line string) int {
	n := 0
	for i := 0; i < len(line); {
		if code := escape(line[i:]); code > 0 {
			i += code
			continue
		}
		r, size := utf8.DecodeRuneInString(line[i:])
		i, n = i+size, n+columns.OfRune(r)
	}
	return n
}

// escape is the length of the colour that a text begins with; 0: it does not.
func escape(text string) int {
	if !strings.HasPrefix(text, "\x1b[") {
		return 0
	}
	end := strings.IndexByte(text, 'm')
	return end + 1
}
