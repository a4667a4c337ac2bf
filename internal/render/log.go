package render

import (
	"fmt"
	"strings"
	"time"

	"tidewait/internal/api"
)

// LogLine is one line of a run's log.
type LogLine struct {
	Node   string `json:"node"` // which wrote it
	Phase  string `json:"phase"`
	Run    string `json:"run"`
	Agent  string `json:"agent,omitempty"` // of a composed phase
	Stream string `json:"stream"`          // stdout, stderr or system
	Time   string `json:"time,omitempty"`  // RFC 3339, when the node read it
	Line   string `json:"line"`
}

// LogLineOf reads a message of the log stream, see [api.SubjectLog].
func LogLineOf(subject string, header map[string][]string, data []byte) LogLine {
	tokens := strings.Split(subject, ".")
	line := LogLine{
		Stream: first(header[api.LogHeaderStream]),
		Time:   first(header[api.LogHeaderTime]),
		Line:   strings.TrimSuffix(string(data), "\n"),
	}
	const node, phase, run, agent = 2, 5, 6, 7 // after tidewait and log; the mission and the launch stand between
	if len(tokens) > run {
		line.Node, line.Phase, line.Run = tokens[node], tokens[phase], tokens[run]
	}
	if len(tokens) > agent {
		line.Agent = tokens[agent]
	}
	return line
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// logMark sets a line of a stream apart where colours do not.
var logMark = map[string]string{"stderr": "!", "system": "*"}

var logStyle = map[string]style{"stderr": red, "system": dim}

// LogLine returns one line of a log after the name of its phase and agent. On a terminal
// control characters are dropped: a guest must not steer it.
func (o Options) LogLine(l LogLine, timestamps bool) string {
	mark := logMark[l.Stream]
	if mark == "" {
		mark = "|"
	}
	who := l.Phase
	if l.Agent != "" {
		who += "/" + l.Agent
	}
	prefix := who + " " + mark + " "
	if when, err := time.Parse(time.RFC3339Nano, l.Time); timestamps && err == nil {
		prefix = when.UTC().Format("2006-01-02T15:04:05.000Z ") + prefix
	}
	content := l.Line
	if o.Width > 0 {
		content = Clean(content)
	}
	return o.paint(dim, prefix) + o.paint(logStyle[l.Stream], content)
}

// diffStyle colours a line of a unified diff by how it begins.
var diffStyle = []struct {
	prefix string
	style  style
}{
	{"+++", bold}, {"---", bold}, {"diff ", bold}, {"@@", cyan}, {"+", green}, {"-", red},
}

// Diff returns a unified diff. Without colours and away from a terminal it is
// the diff as it came, which patch(1) takes.
func (o Options) Diff(d api.Diff) string {
	if o.Width == 0 && !o.Colour {
		return d.Text
	}
	var out strings.Builder
	for line := range strings.Lines(d.Text) {
		text := strings.TrimSuffix(line, "\n")
		out.WriteString(o.paint(lineStyle(text), printable(text)) + "\n")
	}
	return out.String()
}

func lineStyle(line string) style {
	for _, s := range diffStyle {
		if strings.HasPrefix(line, s.prefix) {
			return s.style
		}
	}
	return plain
}

// printable drops what could steer a terminal and keeps tabs.
func printable(line string) string {
	parts := strings.Split(line, "\t")
	for i, part := range parts {
		parts[i] = Clean(part)
	}
	return strings.Join(parts, "\t")
}

// Stats returns what each phase did to each file.
func (o Options) Stats(diffs []api.Diff) string {
	var rows [][]cell
	for _, d := range diffs {
		for _, f := range d.Files {
			changed := fmt.Sprintf("+%d -%d", f.Insertions, f.Deletions)
			if f.Binary {
				changed = "binary"
			}
			rows = append(rows, []cell{text(d.Phase), text(short(d.Commit)), text(changed), text(f.Path)})
		}
	}
	if len(rows) == 0 {
		return "nothing was changed\n"
	}
	return o.table([]string{"PHASE", "COMMIT", "LINES", "FILE"}, rows)
}
