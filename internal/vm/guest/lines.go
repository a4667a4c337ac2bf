package guest

import (
	"bytes"

	"tidewait/internal/vm"
)

// lineSplitter gives the lines of a stream to a sink.
type lineSplitter struct {
	stream string
	sink   vm.LogSink
	rest   []byte
}

func newLineSplitter(stream string, sink vm.LogSink) *lineSplitter {
	if sink == nil {
		sink = func(string, []byte) {}
	}
	return &lineSplitter{stream: stream, sink: sink}
}

func (l *lineSplitter) write(p []byte) {
	for len(p) > 0 {
		line, after, ended := bytes.Cut(p, []byte{'\n'})
		if room := vm.MaxLine - len(l.rest); len(line) > room {
			line, after, ended = p[:room], p[room:], true
		}
		l.rest = append(l.rest, line...)
		if ended {
			l.emit()
		}
		p = after
	}
}

// flush gives the last line when it had no end.
func (l *lineSplitter) flush() {
	if len(l.rest) > 0 {
		l.emit()
	}
}

// emit gives the sink a line of its own, which it may keep.
func (l *lineSplitter) emit() {
	l.sink(l.stream, bytes.Clone(l.rest))
	l.rest = l.rest[:0]
}
