package workflows

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// The words of a workflow's page, in the Markdown that Temporal's Web UI shows.

// pageEnd ends a page. The Web UI cuts off a page's last pixels: they are a line's.
const pageEnd = "\n---\n"

// showPage makes a text the workflow's current details.
func showPage(ctx workflow.Context, text string) { workflow.SetCurrentDetails(ctx, text+pageEnd) }

// remedy is one thing that a person can do: by hand, by a command, by a signal,
// or by one of the latter two.
type remedy struct {
	what    string
	command string
	signal  string // its name
	input   string // of the signal, as JSON
}

func (r remedy) markdown() string {
	var ways []string
	if r.command != "" {
		ways = append(ways, "`"+r.command+"`")
	}
	if r.signal != "" {
		ways = append(ways, fmt.Sprintf("signal `%s` with input `%s`", r.signal, r.input))
	}
	if len(ways) == 0 {
		return "- " + r.what + "\n"
	}
	return "- " + r.what + ": " + strings.Join(ways, ", or ") + "\n"
}

// youCan lists what a person can do; nothing when there is nothing.
func youCan(remedies ...remedy) string {
	if len(remedies) == 0 {
		return ""
	}
	text := "\n**you can**\n\n"
	for _, r := range remedies {
		text += r.markdown()
	}
	return text
}

// Inputs of the signals that people send.
const (
	inputActor  = `{"actor": "you"}`
	inputReason = `{"actor": "you", "reason": "why"}`
	inputNote   = `{"actor": "you", "note": "what you looked at"}`
)

// What a person can do to a phase.
func nudgePhase(what, mission, phase string) remedy {
	return remedy{what, fmt.Sprintf("tidewait phase nudge %s %s", mission, phase), api.SignalNudge, inputActor}
}

func releasePhase(mission, phase string) remedy {
	return remedy{"release it", fmt.Sprintf("tidewait phase release %s %s --note WHAT", mission, phase), api.SignalRelease, inputNote}
}

func cancelPhase(what, mission, phase string) remedy {
	return remedy{what, fmt.Sprintf("tidewait phase cancel %s %s --reason WHY", mission, phase), api.SignalCancel, inputReason}
}

func cancelMission(mission string) remedy {
	return remedy{"end the mission", fmt.Sprintf("tidewait mission cancel %s --reason WHY", mission), api.SignalCancel, inputReason}
}

// linkTo is a link to the page of a workflow's newest run. The Web UI puts the
// namespace in.
func linkTo(text, workflowID string) string {
	return fmt.Sprintf("[%s](/namespaces/{namespace}/workflows/%s)", text, url.PathEscape(workflowID))
}

// item is a line of a list that begins with what it is about.
func item(about, text string) string { return fmt.Sprintf("- **%s:** %s\n", about, text) }

var markup = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`, `<`, `\<`)

// plain is a sentence of somebody else, such as a host, on one line and without
// markup.
func plain(s string) string { return markup.Replace(strings.Join(strings.Fields(s), " ")) }

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
		item("observed by", "the engine that is the worker of the pending activity `observe-lattice`, for as long as that is started; "+
			"one that is only scheduled, or fails again and again, means that nobody observes the lattice, and its last failure says why") +
		item("who waits here", "[applications that wait](/namespaces/{namespace}/workflows?query="+waiting+")") +
		item("ends", "when nothing is deployed in the lattice or left to clean up; closed by hand, it is started again by the next sweep") +
		youCan(
			remedy{what: "see its hosts, and who observes it", command: "tidewait lattice show " + in.Lattice},
			remedy{what: "start an engine, when none observes it", command: "tidewait-worker run --roles engine"},
		)
}

// running is the page of a phase whose run was placed, as of now.
func (p *phase) running(placed ledger.Placed, now time.Time) string {
	text := fmt.Sprintf("**running** on node **%s** as run `%s`\n\n", placed.NodeID, placed.RunID) +
		item("since", stamp(now)) +
		item("turn ends", fmt.Sprintf("%s at the latest, after %s", stamp(now.Add(placed.Turn)), length(placed.Turn)))
	if before := placed.Attempt - 1; before > 0 {
		text += item("runs before", fmt.Sprintf("%d, %d of them lost with their nodes", before, p.progress.Lost))
	}
	if w := p.waits.shown; w.kind != "" {
		text += item("waited", fmt.Sprintf("%s for %s (`%s`), since %s", length(now.Sub(w.since)), w.what(), w.code, stamp(w.since)))
	}
	text += item("step", "the pending activity shows it in its heartbeat") + p.in.Command.running()
	return text + youCan(
		remedy{what: "follow its output", command: fmt.Sprintf("tidewait mission logs %s --phase %s --follow", p.in.Mission, p.in.Command.Name)},
		cancelPhase("end it", p.in.Mission, p.in.Command.Name),
	)
}

// endMarkdown is the page of a phase that has ended: why, and what it left.
func (p *phase) endMarkdown(end *phaseEnd) string {
	text := fmt.Sprintf("**%s**", end.Status)
	if end.FailureCode != "" {
		text += fmt.Sprintf(" (`%s`)", end.FailureCode)
	}
	text += ", at " + stamp(workflow.Now(p.ctx)) + "\n\n"
	if end.Failure != "" {
		text += item("why", plain(end.Failure))
	}
	if p.ran != nil {
		text += item("run", fmt.Sprintf("`%s` on node **%s**", p.ran.RunID, p.ran.NodeID))
	}
	switch {
	case end.Commit != "":
		text += item("left", fmt.Sprintf("commit `%s` on branch `%s`", end.Commit, p.in.Checkout.Branch))
	case end.Partial != nil:
		text += item("left", fmt.Sprintf("commit `%s` on branch `%s`, what its run had made by then", end.Partial.Commit, end.Partial.Branch))
	default:
		text += item("left", "nothing")
	}
	return text + agentsMarkdown(end.run.Agents) + youCan(p.afterwards(end)...)
}

// afterwards is what a person can do when a phase has ended.
func (p *phase) afterwards(end *phaseEnd) []remedy {
	var can []remedy
	if p.ran != nil {
		can = append(can, remedy{what: "read its output", command: fmt.Sprintf("tidewait mission logs %s --phase %s", p.in.Mission, p.in.Command.Name)})
	}
	if end.Commit != "" || end.Partial != nil {
		can = append(can, remedy{what: "see what it left", command: "tidewait mission results " + p.in.Mission})
	}
	if end.Status != "succeeded" {
		can = append(can, rerunFrom(p.in.Mission, p.in.Command.Name))
	}
	return can
}

func rerunFrom(mission, phase string) remedy {
	return remedy{what: "begin again from it, when the mission has ended", command: fmt.Sprintf("tidewait mission rerun %s --from %s", mission, phase)}
}
