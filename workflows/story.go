package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
	"tidewait/internal/webui"
)

// A mission's page tells of all its phases. What the one that is under way waits
// for, that phase says by a signal.

// tellMission says to the mission that the phase waits, or does not any more: w is
// empty then. A mission that is not there need not be told.
func (p *phase) tellMission(w wait) {
	if workflow.GetInfo(p.ctx).ParentWorkflowExecution == nil {
		return
	}
	ctx, _ := workflow.NewDisconnectedContext(p.ctx)
	workflow.SignalExternalWorkflow(ctx, api.MissionWorkflowID(p.in.Mission), "", ledger.SignalPhaseWaits, ledger.PhaseWait{
		Phase: p.in.Command.Name, At: workflow.Now(p.ctx).UTC(),
		Kind: w.kind, Code: w.code, Reason: w.reason, Since: w.since, Bound: w.bound,
	})
}

// hear keeps what phases say.
func (m *mission) hear(ctx workflow.Context) {
	words := workflow.GetSignalChannelWithOptions(ctx, ledger.SignalPhaseWaits, workflow.SignalChannelOptions{
		Description: "sent by the phase that is under way when it begins to wait, waits for something else, or waits no more",
	})
	for {
		var said ledger.PhaseWait
		words.Receive(ctx, &said)
		// What was said earlier may come later.
		if m.current != "" && said.Phase == m.launched.Mission.Phases[m.at].Name && !said.At.Before(m.heard.At) {
			m.heard = said
			m.show()
		}
	}
}

// show shows how far the mission is.
func (m *mission) show() {
	showPage(m.ctx, m.waits.header+m.standing())
}

// header names the mission and its launch.
func (m *mission) header() string {
	l := m.launched
	text := fmt.Sprintf("mission **%s**, launch %d by %s, on gateway **%s**", m.name, l.Launched.Launch, webui.By(l.Mission.Actor), l.Launched.GatewayID)
	if r := l.Launched.Rerun; r != nil {
		text += fmt.Sprintf("; it goes on from launch %d with phase %s", r.Of, l.Mission.Phases[r.First].Name)
	}
	return text + "\n\n"
}

func (m *mission) headerOn(branch string) string {
	return strings.TrimSpace(m.header()) + fmt.Sprintf(", branch `%s`\n\n", branch)
}

// standing is the mission's page while a phase is under way.
func (m *mission) standing() string {
	w := m.heard
	name := m.launched.Mission.Phases[m.at].Name
	var text string
	if w.Kind == "" {
		text = fmt.Sprintf("**phase %d of %d is under way**\n\n", m.at+1, len(m.launched.Mission.Phases)) + webui.Item("phase", m.link(m.at))
	} else {
		waiting := wait{kind: w.Kind, code: w.Code, reason: w.Reason, since: w.Since, bound: w.Bound}
		text = fmt.Sprintf("**phase %d of %d is waiting for %s** (`%s`), as of %s\n\n",
			m.at+1, len(m.launched.Mission.Phases), waiting.what(), w.Code, stamp(w.At)) +
			webui.Item("phase", m.link(m.at)+", whose page says what you can do") +
			webui.Item("why", webui.Plain(w.Reason)) + webui.Item("since", stamp(w.Since)) + webui.Item(waiting.boundIs(), waiting.until())
	}
	return text + m.phases(func(i int) string {
		switch {
		case i > m.at:
			return ""
		case w.Kind == "":
			return "under way"
		}
		return "waits"
	}) + webui.YouCan(
		remedy.ShowMission("see all of it", m.name),
		remedy.Logs("follow its output", m.name, name, "--follow"),
		remedy.CancelMission("end the mission", m.name),
	)
}

// link leads to the workflow of a phase.
func (m *mission) link(i int) string {
	id := api.PhaseWorkflowID(m.name, m.launched.Mission.Phases[i].Name)
	return webui.Link(id, id)
}

// mostPhases is how many phases of a mission are listed, around the one it is at.
const mostPhases = 12

// phases lists the phases, each with what it left or, from the one that the
// mission is at on, what status says.
func (m *mission) phases(status func(int) string) string {
	all := m.launched.Mission.Phases
	first := max(0, min(m.at-mostPhases/2, len(all)-mostPhases))
	last := min(first+mostPhases, len(all))
	text := "\n**phases**\n\n"
	if first > 0 {
		text += fmt.Sprintf("- %d before these\n", first)
	}
	for i := first; i < last; i++ {
		now := "not begun"
		if i < len(m.commits) {
			now = "succeeded, commit `" + m.commits[i] + "`"
			if m.commits[i] == "" {
				now = "taken over from an earlier launch"
			}
		} else if said := status(i); said != "" {
			now = said
		}
		text += webui.Item(fmt.Sprintf("%d %s", i+1, all[i].Name), now)
	}
	if left := len(all) - last; left > 0 {
		text += fmt.Sprintf("- %d after these\n", left)
	}
	return text
}

// endMarkdown is the page of a mission that has ended: why, and what it left.
func (m *mission) endMarkdown(end ledger.MissionEnd) string {
	text := endedAs(end.Status, end.FailureCode, end.Failure, workflow.Now(m.ctx))
	left := "nothing"
	if n := len(m.commits); n > m.first() {
		left = fmt.Sprintf("commit `%s` on branch `%s`", m.commits[n-1], m.branch)
	}
	text += webui.Item("left", left) + m.phases(func(i int) string {
		if i == m.at && end.Status != "succeeded" && m.branch != "" {
			return end.Status + ", " + m.link(i)
		}
		return ""
	})
	var can []remedy.Remedy
	if m.branch != "" {
		can = append(can,
			remedy.Results("see what each phase left", m.name),
			remedy.Logs("read its output", m.name, ""))
		if end.Status != "succeeded" {
			name := m.launched.Mission.Phases[m.at].Name
			can = append(can, remedy.Rerun("begin again from phase "+name, m.name, name))
		}
	}
	return text + webui.YouCan(append(can, remedy.ShowMission("see how long it waited, and for what", m.name))...)
}

// draftMarkdown is the page of a launch that was refused.
func (m *mission) draftMarkdown() string {
	text := fmt.Sprintf("**not launched** (`%s`), at %s\n\n", m.refusalCode, stamp(workflow.Now(m.ctx))) + webui.Item("why", webui.Plain(m.refusal))
	if m.name == "" {
		return text
	}
	return fmt.Sprintf("mission **%s** stays a draft\n\n", m.name) + text + webui.YouCan(
		remedy.Look("see what nodes there are", "tidewait", "node", "list"),
		remedy.Look("launch it again, when the document asks for less or a node offers more", "tidewait", "mission", "launch", "FILE"),
	)
}
