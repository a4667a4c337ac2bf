package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tidewait/internal/mission"
	"tidewait/internal/remedy"
	"tidewait/internal/webui"
)

// mostPhases is how many phases a page lists.
const mostPhases = 20

// staticDetails is Markdown for Temporal's Web UI: the document in short, and what
// a person can do.
func staticDetails(m mission.Mission, actor string) string {
	var text strings.Builder
	item := func(about, words string) { text.WriteString(webui.Item(about, words)) }
	item("launched by", webui.By(actor))
	item("workspace", whence(m.Spec.Workspace))
	item("backend", m.Spec.Backend)
	if m.Spec.Priority != nil {
		item("priority", strconv.Itoa(*m.Spec.Priority))
	}
	if m.Spec.Turn > 0 {
		item("turn", m.Spec.Turn.String())
	}
	if m.Spec.MaxWait > 0 {
		item("waits for capacity", m.Spec.MaxWait.String()+" at most")
	}
	for _, label := range slices.Sorted(maps.Keys(m.Labels)) {
		item("label", webui.Plain(label+"="+m.Labels[label]))
	}
	text.WriteString("\n**phases**\n\n")
	for i, p := range m.Spec.Phases[:min(len(m.Spec.Phases), mostPhases)] {
		item(fmt.Sprintf("%d %s", i+1, p.Name), phaseWords(p))
	}
	if more := len(m.Spec.Phases) - mostPhases; more > 0 {
		fmt.Fprintf(&text, "- and %d more\n", more)
	}
	return text.String() + missionCommands(m.Name)
}

func missionCommands(name string) string {
	return webui.YouCan(remedy.ShowMission("see all of it", name), remedy.CancelMission("end it", name)) + webui.PageEnd
}

// whence is where a mission's files come from.
func whence(w mission.Workspace) string {
	switch {
	case w.Path != "":
		return webui.Code(w.Path)
	case w.Ref != "":
		return webui.Code(w.Git) + " at " + webui.Code(w.Ref)
	}
	return webui.Code(w.Git)
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
