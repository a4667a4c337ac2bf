package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// childArgs makes a process of the test binary the command line itself.
const childArgs = "TEST_COMMAND_LINE"

// terminal is a pseudo terminal with a person before it, who sees what a terminal
// of that size would show.
type terminal struct {
	t      *testing.T
	master *os.File
	slave  *os.File

	mu      sync.Mutex
	display display
	raw     strings.Builder
	changed chan struct{}
}

func newTerminal(t *testing.T, columns, rows int) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	master := os.NewFile(uintptr(fd), "ptmx") // not blocking, so that its reads end when it is closed
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	term := &terminal{t: t, master: master, slave: slave, changed: make(chan struct{}, 1)}
	term.resize(columns, rows)
	go term.read()
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	return term
}

func (term *terminal) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := term.master.Read(buffer)
		if err != nil {
			return
		}
		term.mu.Lock()
		term.raw.Write(buffer[:n])
		term.display.write(string(buffer[:n]))
		term.mu.Unlock()
		select {
		case term.changed <- struct{}{}:
		default:
		}
	}
}

// resize gives the terminal another size and tells its process, as a window does.
func (term *terminal) resize(columns, rows int) {
	term.t.Helper()
	term.mu.Lock()
	term.display.resize(columns, rows)
	term.mu.Unlock()
	size := unix.Winsize{Row: uint16(rows), Col: uint16(columns)} //nolint:gosec // small numbers
	require.NoError(term.t, unix.IoctlSetWinsize(int(term.slave.Fd()), unix.TIOCSWINSZ, &size))
}

// sees waits until what the terminal shows is so.
func (term *terminal) sees(what string, is func(shown string) bool) {
	term.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if is(term.shown()) {
			return
		}
		select {
		case <-term.changed:
		case <-deadline:
			require.FailNow(term.t, "the terminal never showed "+what, "it shows:\n%s\nafter %q", term.shown(), term.written())
		}
	}
}

func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.display.String()
}

func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.raw.String()
}

// runs starts the command line in a process of its own with the terminal as its
// controlling one, so that what is typed there reaches it.
func (term *terminal) runs(env []string, args ...string) *exec.Cmd {
	term.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childArgs+"="+strings.Join(args, " "), "TERM=xterm", "LANG=C.UTF-8"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(term.t, cmd.Start())
	term.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// exitOf waits for the end of a command.
func exitOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func (term *terminal) types(text string) {
	term.t.Helper()
	_, err := term.master.WriteString(text)
	require.NoError(term.t, err)
}

// display is what a terminal shows: enough of one to fail for what a real one would
// make a mess of. Lines that are too long go on in the next row; a narrower window
// breaks them anew.
type display struct {
	columns, rows int
	lines         []line // all there were, those above the window first
	row, col      int    // of the cursor; row counts in lines
	hidden        bool   // the cursor
	rest          string // of an escape or a character that has not come whole
}

type line struct {
	text []rune
	soft bool // it goes on in the next one
}

func (d *display) resize(columns, rows int) {
	was := d.columns
	d.columns, d.rows = columns, rows
	if was == 0 || was == columns {
		return
	}
	var whole []line
	cursor := 0
	for i := 0; i < len(d.lines); i++ {
		joined := d.lines[i].text
		if i == d.row {
			cursor = len(whole)
		}
		for d.lines[i].soft && i+1 < len(d.lines) {
			i++
			if i == d.row {
				cursor = len(whole)
			}
			joined = append(joined, d.lines[i].text...)
		}
		whole = append(whole, line{text: joined})
	}
	d.lines = nil
	for i, l := range whole {
		if i == cursor {
			d.row = len(d.lines)
		}
		for len(l.text) > columns {
			d.lines = append(d.lines, line{l.text[:columns:columns], true})
			l.text = l.text[columns:]
		}
		d.lines = append(d.lines, line{text: l.text})
	}
}

func (d *display) write(text string) {
	text, d.rest = d.rest+text, ""
	for text != "" {
		if text[0] == 0x1b {
			end := strings.IndexAny(text, "ABCDHJKmhl")
			if end < 0 {
				d.rest = text
				return
			}
			d.escape(text[2:end], text[end])
			text = text[end+1:]
			continue
		}
		if !utf8.FullRuneInString(text) {
			d.rest = text
			return
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		d.put(r)
	}
}

func (d *display) put(r rune) {
	switch r {
	case '\r':
		d.col = 0
	case '\n':
		d.at(d.row).soft = false
		d.row++
		d.at(d.row)
	default:
		if d.col == d.columns {
			d.at(d.row).soft = true
			d.row, d.col = d.row+1, 0
		}
		l := d.at(d.row)
		for len(l.text) <= d.col {
			l.text = append(l.text, ' ')
		}
		l.text[d.col] = r
		d.col++
	}
}

func (d *display) at(row int) *line {
	for len(d.lines) <= row {
		d.lines = append(d.lines, line{})
	}
	return &d.lines[row]
}

// top is the first line in the window, above which the cursor cannot go.
func (d *display) top() int { return max(0, len(d.lines)-d.rows) }

func (d *display) escape(argument string, verb byte) {
	n, _ := strconv.Atoi(argument)
	switch verb {
	case 'A':
		d.row = max(d.row-max(n, 1), d.top())
	case 'K':
		l := d.at(d.row)
		l.text = l.text[:min(d.col, len(l.text))]
		l.soft = false
	case 'J':
		if argument == "2" {
			d.lines, d.row, d.col = nil, 0, 0
			return
		}
		l := d.at(d.row)
		l.text = l.text[:min(d.col, len(l.text))]
		d.lines = d.lines[:d.row+1]
	case 'h', 'l':
		if argument == "?25" {
			d.hidden = verb == 'l'
		}
	case 'm':
	default:
		panic(fmt.Sprintf("escape %q %c", argument, verb))
	}
}

// String is the text of the window and of what has gone out of it, without blanks
// at ends of lines.
func (d *display) String() string {
	var out strings.Builder
	for i, l := range d.lines {
		if l.soft {
			out.WriteString(string(l.text))
			continue
		}
		out.WriteString(strings.TrimRight(string(l.text), " "))
		if i+1 < len(d.lines) {
			out.WriteByte('\n')
		}
	}
	return out.String()
}
