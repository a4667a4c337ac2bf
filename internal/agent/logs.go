package agent

import (
	"context"
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
}

// newLogWriter returns the log of a run, or of one agent of it.
func newLogWriter(p *runlog.Publisher, in workflows.ExecuteRunInput, agent string) *logWriter {
	return &logWriter{log: p.Open(in.Machine.RunID, api.SubjectLog(in.Mission, in.Launch, in.Phase, in.Machine.RunID, agent))}
}

// hide takes secrets out of everything that is published from now on.
func (w *logWriter) hide(r *redact.Redactor) {
	w.clean = map[string]*redact.Stream{"stdout": r.Stream(), "stderr": r.Stream()}
}

// line publishes one line. A log that cannot be kept never fails its run.
func (w *logWriter) line(stream string, line []byte) {
	if clean := w.clean[stream]; clean != nil {
		line = clean.Line(line, len(line) == vm.MaxLine) // before it is cut
	}
	if len(line) > maxLogLine {
		line = append(line[:maxLogLine:maxLogLine], "… (line cut)"...)
	}
	w.log.Line(stream, line)
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
