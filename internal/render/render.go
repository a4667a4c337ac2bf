// Package render turns the API's types into text for people. It is pure: what
// it prints depends on the value and the [Options] alone, so that a mission, a
// node and the list of waits all show one wait in the same words.
package render

import (
	"strings"
	"time"

	"tidewait/internal/columns"
)

// Options says for whom text is made. Every method may be called concurrently.
type Options struct {
	Now    time.Time // ages and remaining times count from here
	Width  int       // columns of the terminal; 0: no limit, nothing is wrapped or cut
	Height int       // its rows, for what is redrawn; 0: no limit
	Colour bool      // with ANSI colours
}

// style is an ANSI "select graphic rendition" parameter; empty is plain.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// statusStyle holds the colour of every status and state that has one.
var statusStyle = map[string]style{
	"succeeded": green, "ready": green,
	"running": cyan, "starting": cyan,
	"pending": yellow, "cordoned": yellow, "draining": yellow, "drained": yellow, "suspect": yellow,
	"failed": red, "lost": red, "down": red,
	"cancelled": dim, "draft": dim, "retired": dim,
}

func (o Options) paint(s style, text string) string {
	if !o.Colour || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (o Options) status(s string) string { return o.paint(statusStyle[s], Clean(s)) }

// labelColumns is the width of the label of a field, its indentation excluded;
// fieldIndent is where its text begins.
const (
	labelColumns = 8
	fieldIndent  = 2 + labelColumns
)

// field returns one indented, labelled line of a block, wrapped to the width
// under its own text.
func (o Options) field(label, text string) string {
	label += strings.Repeat(" ", max(1, labelColumns-len(label)))
	lines := wrap(Clean(text), o.Width-fieldIndent)
	out := "  " + o.paint(dim, label) + lines[0] + "\n"
	for _, line := range lines[1:] {
		out += strings.Repeat(" ", fieldIndent) + line + "\n"
	}
	return out
}

// minWrap is the narrowest column worth wrapping to.
const minWrap = 20

// wrap breaks text at spaces into lines of at most width columns. Words longer
// than that stay whole; a width below minWrap does not wrap.
func wrap(text string, width int) []string {
	if width < minWrap || columns.Of(text) <= width {
		return []string{text}
	}
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		n := columns.Of(word)
		switch {
		case used == 0:
			line, used = word, n
		case used+1+n <= width:
			line, used = line+" "+word, used+1+n
		default:
			lines = append(lines, line)
			line, used = word, n
		}
	}
	return append(lines, line)
}

// Clean makes one line of s that is safe on a terminal: line breaks become
// spaces, other control characters are dropped, and so are those that reverse the
// direction of what follows. Names and sentences can carry what a guest wrote.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x2028, r == 0x2029:
			return -1
		}
		return r
	}, s)
}
