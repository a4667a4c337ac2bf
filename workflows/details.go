package workflows

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
	"tidewait/internal/webui"
)

// The words of a workflow's page, in the Markdown that Temporal's Web UI shows.

// showPage makes a text the workflow's current details.
func showPage(ctx workflow.Context, text string) { workflow.SetCurrentDetails(ctx, text+webui.PageEnd) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// length is a duration to the second, without units of which there are none: 2h,
// 1m49s.
func length(d time.Duration) string {
	d = d.Round(time.Second)
	s := d.String()
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return strings.TrimSuffix(s, "0m0s")
	case d >= time.Minute && d%time.Minute == 0:
		return strings.TrimSuffix(s, "0s")
	}
	return s
}

// latticeMarkdown is a lattice's page. Who observes it is the activity's to say.
func latticeMarkdown(in LatticeInput) string {
	waiting := url.QueryEscape(fmt.Sprintf(`ExecutionStatus="Running" AND TidewaitLattice="%s" AND TidewaitWait IS NOT NULL`, in.Lattice))
	return fmt.Sprintf("lattice **%s** of account **%s**\n\n", in.Lattice, in.Account) +
		webui.Item("observed by", "the engine that is the worker of the pending activity `observe-lattice`, for as long as that is started; "+
			"one that is only scheduled, or fails again and again, means that nobody observes the lattice, and its last failure says why") +
		webui.Item("who waits here", "[applications that wait](/namespaces/{namespace}/workflows?query="+waiting+")") +
		webui.Item("ends", "when nothing is deployed in the lattice or left to clean up; closed by hand, it is started again by the next sweep") +
		webui.YouCan(
			remedy.ShowLattice("see its hosts, and who observes it", in.Account, in.Lattice),
			remedy.StartEngine("start an engine, when none observes it"),
		)
}

// running is the page of a phase whose run was placed, as of now.
func (p *phase) running(placed ledger.Placed, now time.Time) string {
	text := fmt.Sprintf("**running** on node **%s** as run `%s`\n\n", placed.NodeID, placed.RunID) +
		webui.Item("since", stamp(now)) +
		webui.Item("turn ends", fmt.Sprintf("%s at the latest, after %s", stamp(now.Add(placed.Turn)), length(placed.Turn)))
	if before := placed.Attempt - 1; before > 0 {
		text += webui.Item("runs before", fmt.Sprintf("%d, %d of them lost with their nodes", before, p.progress.Lost))
	}
	if w := p.waits.shown; w.kind != "" {
		text += webui.Item("waited", fmt.Sprintf("%s for %s (`%s`), since %s", length(now.Sub(w.since)), w.what(), w.code, stamp(w.since)))
	}
	text += webui.Item("step", "the pending activity shows it in its heartbeat") + p.in.Command.running()
	return text + webui.YouCan(
		remedy.Logs("follow its output", p.in.Mission, p.in.Command.Name, "--follow"),
		remedy.CancelPhase("end it", p.in.Mission, p.in.Command.Name),
	)
}

// endMarkdown is the page of a phase that has ended: why, and what it left.
func (p *phase) endMarkdown(end *phaseEnd) string {
	text := endedAs(end.Status, end.FailureCode, end.Failure, workflow.Now(p.ctx))
	if p.ran != nil {
		text += webui.Item("run", fmt.Sprintf("`%s` on node **%s**", p.ran.RunID, p.ran.NodeID))
	}
	switch {
	case end.Commit != "":
		text += webui.Item("left", fmt.Sprintf("commit `%s` on branch `%s`", end.Commit, p.in.Checkout.Branch))
	case end.Partial != nil:
		text += webui.Item("left", fmt.Sprintf("commit `%s` on branch `%s`, what its run had made by then", end.Partial.Commit, end.Partial.Branch))
	default:
		text += webui.Item("left", "nothing")
	}
	return text + agentsMarkdown(end.run.Agents) + webui.YouCan(p.afterwards(end)...)
}

// endedAs begins the page of what has ended: how, and why it failed where it did.
func endedAs(status, code, failure string, at time.Time) string {
	text := fmt.Sprintf("**%s**", status)
	if code != "" {
		text += fmt.Sprintf(" (`%s`)", code)
	}
	text += ", at " + stamp(at) + "\n\n"
	if failure != "" {
		text += webui.Item("why", webui.Plain(failure))
	}
	return text
}

// afterwards is what a person can do when a phase has ended.
func (p *phase) afterwards(end *phaseEnd) []remedy.Remedy {
	var can []remedy.Remedy
	if p.ran != nil {
		can = append(can, remedy.Logs("read its output", p.in.Mission, p.in.Command.Name))
	}
	if end.Commit != "" || end.Partial != nil {
		can = append(can, remedy.Results("see what it left", p.in.Mission))
	}
	if end.Status != "succeeded" {
		can = append(can, remedy.Rerun("begin again from it, when the mission has ended", p.in.Mission, p.in.Command.Name))
	}
	return can
}
