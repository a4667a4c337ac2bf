package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
	"tidewait/internal/secret/redact"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// Bounds of a run's log. What exceeds them is cut, and the log says so.
const (
	maxLogBytes = 16 << 20
	maxLogLine  = 16 << 10
)

// logWriter publishes a run's output to JetStream, a message a line. It is used
// by one goroutine.
type logWriter struct {
	js      jetstream.JetStream
	subject string
	left    int
	log     *slog.Logger
	clean   map[string]*redact.Stream // by stream; takes secrets out
	// position is where the line ends in the command's output, of a run that
	// another agent may go on with.
	position string
}

// newLogWriter returns the log of a run, or of one agent of it.
func newLogWriter(js jetstream.JetStream, in workflows.ExecuteRunInput, agent string, log *slog.Logger) *logWriter {
	return &logWriter{js: js, subject: api.SubjectLog(in.Mission, in.Launch, in.Phase, in.Machine.RunID, agent), left: maxLogBytes, log: log}
}

// hide takes secrets out of everything that is published from now on.
func (w *logWriter) hide(r *redact.Redactor) {
	w.clean = map[string]*redact.Stream{"stdout": r.Stream(), "stderr": r.Stream()}
}

// resumeTime is how long NATS may take to say how far a log got.
const resumeTime = 10 * time.Second

// resume returns how far an earlier agent got with the log, so that each line is
// kept once. It does not end with ctx: whoever stops a run wants its last lines.
func (w *logWriter) resume(ctx context.Context) vm.Position {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTime)
	defer cancel()
	at, err := w.lastPosition(ctx)
	if err != nil {
		w.log.Warn("nobody can say how far the log got: lines may be in it twice", "subject", w.subject, "error", err)
	}
	w.left = maxLogBytes - int(min(at.Stdout+at.Stderr, maxLogBytes+1))
	return at
}

func (w *logWriter) lastPosition(ctx context.Context) (at vm.Position, err error) {
	stream, err := w.js.Stream(ctx, api.LogStream)
	if err != nil {
		return at, err
	}
	last, err := stream.GetLastMsgForSubject(ctx, w.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return at, nil // there is none yet
	}
	if err != nil {
		return at, err
	}
	if _, err := fmt.Sscanf(last.Header.Get(api.LogHeaderPosition), "%d %d %d", &at.Stdout, &at.Stderr, &at.Lines); err != nil {
		return vm.Position{}, fmt.Errorf("read the position of a line: %w", err)
	}
	return at, nil
}

// lineAt publishes one line of a run that another agent may go on with, or that
// there are lines which nobody has kept.
func (w *logWriter) lineAt(l vm.Line) {
	w.position = fmt.Sprintf("%d %d %d", l.End.Stdout, l.End.Stderr, l.End.Lines)
	if l.Lost > 0 {
		l.Stream, l.Text = "system", fmt.Appendf(nil, "%d lines were lost while the node's agent was away", l.Lost)
	}
	w.line(l.Stream, l.Text)
}

// line publishes one line. A log that cannot be kept never fails its run.
func (w *logWriter) line(stream string, line []byte) {
	if w.left < 0 {
		return
	}
	if clean := w.clean[stream]; clean != nil {
		line = clean.Line(line, len(line) == vm.MaxLine) // before it is cut
	}
	if len(line) > maxLogLine {
		line = append(line[:maxLogLine:maxLogLine], "… (line cut)"...)
	}
	w.left -= len(line) + 1
	if w.left < 0 {
		stream, line = "system", fmt.Appendf(nil, "the log was cut after %d MiB", maxLogBytes>>20)
	}
	msg := nats.NewMsg(w.subject)
	msg.Data = append([]byte(nil), line...)
	msg.Header.Set(api.LogHeaderStream, stream)
	msg.Header.Set(api.LogHeaderTime, time.Now().UTC().Format(time.RFC3339Nano))
	if w.position != "" {
		msg.Header.Set(api.LogHeaderPosition, w.position)
	}
	if _, err := w.js.PublishMsgAsync(msg); err != nil {
		w.log.Warn("a log line was lost", "subject", w.subject, "error", err)
	}
}

// flushLogs waits a moment for the last lines of a run to be kept, with those of
// the others that are on their way.
func (a *Agent) flushLogs(run string) {
	select {
	case <-a.js.PublishAsyncComplete():
	case <-time.After(2 * time.Second):
		a.Log.Warn("the last log lines of a run may be lost", "run", run)
	}
}
