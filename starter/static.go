package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tidewait/internal/mission"
)

// mostPhases is how many phases a page lists.
const mostPhases = 20

// staticDetails is Markdown for Temporal's Web UI: the document in short, and what
// a person can do.
func staticDetails(m mission.Mission, actor string) string {
	var text strings.Builder
	item := func(about, format string, args ...any) {
		fmt.Fprintf(&text, "- **%s:** %s\n", about, fmt.Sprintf(format, args...))
	}
	item("launched by", "%s", actor)
	item("workspace", "%s", whence(m.Spec.Workspace))
	item("backend", "%s", m.Spec.Backend)
	if m.Spec.Priority != nil {
		item("priority", "%d", *m.Spec.Priority)
	}
	if m.Spec.Turn > 0 {
		item("turn", "%s", m.Spec.Turn)
	}
	if m.Spec.MaxWait > 0 {
		item("waits for capacity", "%s at most", m.Spec.MaxWait)
	}
	for _, label := range slices.Sorted(maps.Keys(m.Labels)) {
		item("label", "%s=%s", label, m.Labels[label])
	}
	text.WriteString("\n**phases**\n\n")
	for i, p := range m.Spec.Phases[:min(len(m.Spec.Phases), mostPhases)] {
		item(fmt.Sprintf("%d %s", i+1, p.Name), "%s", phaseWords(p))
	}
	if more := len(m.Spec.Phases) - mostPhases; more > 0 {
		fmt.Fprintf(&text, "- and %d more\n", more)
	}
	return text.String() + missionCommands(m.Name)
}

func missionCommands(name string) string {
	return fmt.Sprintf("\n**you can**\n\n- see all of it: `tidewait mission show %[1]s`\n"+
		"- end it: `tidewait mission cancel %[1]s --reason WHY`, or signal `cancel` with input `{\"actor\": \"you\", \"reason\": \"why\"}`\n"+
		"\n---\n", name) // the Web UI cuts off a page's last pixels
}

// whence is where a mission's files come from.
func whence(w mission.Workspace) string {
	switch {
	case w.Path != "":
		return "`" + w.Path + "`"
	case w.Ref != "":
		return fmt.Sprintf("`%s` at `%s`", w.Git, w.Ref)
	}
	return "`" + w.Git + "`"
}

// phaseWords is a phase in a line.
func phaseWords(p mission.Phase) string {
	machines, sum := 1, p.Resources
	if p.Composed() {
		machines = 0
		for _, a := range p.Agents {
			machines += a.Replicas
			sum.CPUMilli += a.Resources.CPUMilli * int64(a.Replicas)
			sum.MemoryMiB += a.Resources.MemoryMiB * int64(a.Replicas)
		}
	}
	text := fmt.Sprintf("%g CPU, %d MiB of memory", float64(sum.CPUMilli)/1000, sum.MemoryMiB)
	if machines > 1 {
		text += fmt.Sprintf(" in %d machines", machines)
	}
	if p.Attempts > 1 {
		text += fmt.Sprintf(", up to %d attempts", p.Attempts)
	}
	if p.Hold != nil {
		text += ", held until somebody releases it"
	}
	return text
}
