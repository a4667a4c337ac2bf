package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/runlog"
	"tidewait/internal/secret/redact"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// maxLogLine is where a line is cut, and says so.
const maxLogLine = 16 << 10

// logWriter takes a machine's output to its log. It is used by one goroutine.
type logWriter struct {
	log   *runlog.Log
	clean map[string]*redact.Stream // by stream; takes secrets out
	// position is where the line ends in the command's output, of a run that
	// another agent may go on with.
	position string
}

// newLogWriter returns the log of a run, or of one agent of it.
func newLogWriter(a *Agent, in workflows.ExecuteRunInput, agent string) *logWriter {
	return &logWriter{log: a.Logs.Open(in.Machine.RunID, api.SubjectLog(a.Node, in.Mission, in.Launch, in.Phase, in.Machine.RunID, agent))}
}

// hide takes secrets out of everything that is published from now on.
func (w *logWriter) hide(r *redact.Redactor) {
	w.clean = map[string]*redact.Stream{"stdout": r.Stream(), "stderr": r.Stream()}
}

// resumeTime is how long NATS may take to say how far a log got.
const resumeTime = 10 * time.Second

// resume returns how far an earlier agent got with the log, so that each line is
// kept once. It does not end with ctx: whoever stops a run wants its last lines.
func (w *logWriter) resume(ctx context.Context, log *slog.Logger) (from vm.Position) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTime)
	defer cancel()
	at, err := w.log.Resume(ctx)
	if err == nil && at != "" {
		_, err = fmt.Sscanf(at, "%d %d %d", &from.Stdout, &from.Stderr, &from.Lines)
	}
	if err != nil {
		log.Warn("nobody can say how far the log got: lines may be in it twice", "error", err)
		return vm.Position{}
	}
	return from
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
	if clean := w.clean[stream]; clean != nil {
		line = clean.Line(line, len(line) == vm.MaxLine) // before it is cut
	}
	if len(line) > maxLogLine {
		line = append(line[:maxLogLine:maxLogLine], "… (line cut)"...)
	}
	w.log.LineAt(stream, line, w.position)
}

// flushTime is how long the end of a run waits for its last lines to be stored.
// They are stored later when that is too short.
const flushTime = 2 * time.Second

// flushLogs ends the logs of a run.
func (a *Agent) flushLogs(run string) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := a.Logs.Close(ctx, run); err != nil {
		a.Log.Warn("a log is behind", "run", run, "error", err)
	}
}
