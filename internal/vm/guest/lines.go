package guest

import (
	"bytes"

	"tidewait/internal/vm"
)

// lineSplitter gives the lines of a stream to a sink.
type lineSplitter struct {
	stream string
	sink   func(line []byte, taken int, ended bool) // ended: taken counts the end of the line too
	rest   []byte
	skip   int64 // bytes that are not wanted
}

func (l *lineSplitter) write(p []byte) {
	skipped := min(l.skip, int64(len(p)))
	l.skip -= skipped
	p = p[skipped:]
	for len(p) > 0 {
		line, after, ended := bytes.Cut(p, []byte{'\n'})
		cut := false
		if room := vm.MaxLine - len(l.rest); len(line) > room {
			line, after, ended, cut = p[:room], p[room:], false, true
		}
		l.rest = append(l.rest, line...)
		if ended || cut {
			l.emit(ended)
		}
		p = after
	}
}

// flush gives the last line when it had no end.
func (l *lineSplitter) flush() {
	if len(l.rest) > 0 {
		l.emit(false)
	}
}

// emit gives the sink a line of its own, which it may keep.
func (l *lineSplitter) emit(ended bool) {
	taken := len(l.rest)
	if ended {
		taken++
	}
	l.sink(bytes.Clone(l.rest), taken, ended)
	l.rest = l.rest[:0]
}

// transcript gives the lines of both streams to a sink, with their positions.
type transcript struct {
	at       vm.Position
	out, err lineSplitter
}

// newTranscript returns the transcript of output that begins at begin, of which
// what was before from is not wanted.
func newTranscript(begin, from vm.Position, sink vm.LineSink) *transcript {
	t := &transcript{at: from}
	t.out = t.splitter("stdout", &t.at.Stdout, begin.Stdout, sink)
	t.err = t.splitter("stderr", &t.at.Stderr, begin.Stderr, sink)
	if begin.Stdout > from.Stdout || begin.Stderr > from.Stderr {
		lost := max(begin.Lines-from.Lines, 1)
		t.at.Lines = from.Lines + lost
		sink(vm.Line{Lost: lost, End: t.at})
	}
	return t
}

func (t *transcript) splitter(stream string, at *int64, begin int64, sink vm.LineSink) lineSplitter {
	skip := max(*at-begin, 0)
	*at = max(*at, begin)
	return lineSplitter{stream: stream, skip: skip, sink: func(line []byte, taken int, ended bool) {
		*at += int64(taken)
		if ended {
			t.at.Lines++
		}
		sink(vm.Line{Stream: stream, Text: line, End: t.at})
	}}
}

func (t *transcript) flush() {
	t.out.flush()
	t.err.flush()
}
