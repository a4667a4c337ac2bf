package render

import (
	"cmp"
	"fmt"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/vm"
)

// Missions returns a table, in the order given.
func (o Options) Missions(missions []api.Mission) string {
	if len(missions) == 0 {
		return "no missions\n"
	}
	rows := make([][]cell, len(missions))
	for i, m := range missions {
		started := dash
		if m.StartedAt != nil {
			started = text(o.moment(*m.StartedAt))
		}
		rows[i] = []cell{
			text(m.Name),
			statusCell(m.Status),
			text(fmt.Sprint(m.Launch)),
			text(m.Backend),
			text(fmt.Sprintf("%d/%d", m.PhasesDone, m.Phases)),
			started,
			textOrDash(o.missionNow(m)),
		}
	}
	return o.table([]string{"MISSION", "STATUS", "LAUNCH", "BACKEND", "PHASES", "STARTED", "NOW"}, rows)
}

// missionNow says in one line what a mission does, or why it ended.
func (o Options) missionNow(m api.Mission) string {
	switch {
	case m.Wait != nil:
		text := o.waitLine(*m.Wait)
		if m.Wait.Phase == "" { // the mission itself waits
			return text
		}
		return fmt.Sprintf("%q %s", m.Wait.Phase, text)
	case m.Failure != "":
		return failure(m.FailureCode, m.Failure)
	case m.Current != "":
		return fmt.Sprintf("%q", m.Current)
	}
	return ""
}

func failure(code, sentence string) string {
	if code == "" || sentence == "" {
		return code + sentence
	}
	return code + ": " + sentence
}

// Mission returns one launch of a mission, whole.
func (o Options) Mission(m api.MissionDetail) string {
	var out strings.Builder
	out.WriteString(o.missionHead(m))
	for _, p := range m.PhaseList {
		out.WriteString("\n" + o.Phase(m.Name, p))
	}
	return out.String()
}

func (o Options) missionTitle(m api.MissionDetail) string {
	parts := []string{o.paint(bold, "mission "+Clean(m.Name)), o.status(m.Status)}
	if m.Launch > 0 {
		parts = append(parts, fmt.Sprintf("launch %d", m.Launch))
	}
	if m.StartedAt != nil {
		parts = append(parts, o.span(*m.StartedAt, m.EndedAt))
	}
	return strings.Join(parts, "   ") + "\n"
}

func (o Options) missionHead(m api.MissionDetail) string {
	out := o.missionTitle(m)
	add := func(label, text string) {
		if text != "" {
			out += o.field(label, text)
		}
	}
	add(failureLabel(m.Status), failure(m.FailureCode, m.Failure))
	add("backend", m.Backend)
	add("by", m.Actor)
	if m.RerunOf > 0 {
		add("rerun", fmt.Sprintf("of launch %d", m.RerunOf))
	}
	add("gateway", m.Gateway)
	if m.Branch != "" {
		text := m.Branch
		if m.BaseCommit != "" {
			text += " from " + short(m.BaseCommit)
		}
		add("branch", text)
	}
	add("node", m.TargetNode)
	for _, e := range m.Expired {
		add("expired", expired(e))
	}
	for _, a := range m.Acts {
		add(o.act(a))
	}
	return out + o.missionWait(m)
}

// expired says what of a launch is not kept any more.
func expired(e api.Expired) string {
	what := map[string]string{"runs": "phases and runs", "waits": "waits that ended"}[e.What]
	return cmp.Or(what, e.What) + ", which are kept for " + Duration(e.Kept)
}

// missionWait returns what the mission itself waits for, such as a gateway that
// is to open its checkout. The waits of its phases are shown with them.
func (o Options) missionWait(m api.MissionDetail) string {
	if m.Wait == nil || m.Wait.Phase != "" {
		return ""
	}
	return o.field("waits", o.paint(yellow, WaitingFor(*m.Wait))+", "+o.elapsed(*m.Wait)) + o.waitFields(*m.Wait)
}

// failureLabel introduces the sentence about a mission that did not succeed.
func failureLabel(status string) string {
	if status == "draft" || status == "cancelled" {
		return "why"
	}
	return "failed"
}

// short cuts a commit to what people quote.
func short(commit string) string {
	if len(commit) <= 12 {
		return commit
	}
	return commit[:12]
}

// Phase returns one phase of a mission: its title, what it waits for, what it
// waited for and its runs.
func (o Options) Phase(mission string, p api.Phase) string {
	out := o.phaseTitle(mission, p)
	if p.Wait != nil {
		out += o.waitFields(*p.Wait)
	}
	if p.Failure != "" {
		out += o.field(failureLabel(p.Status), failure(p.FailureCode, p.Failure))
	}
	for _, a := range p.Acts {
		out += o.field(o.act(a))
	}
	for _, w := range p.Waits {
		out += o.field("waited", o.pastWait(w))
	}
	for _, r := range p.Runs {
		out += o.field("run", o.run(r, p.Failure))
		for _, a := range r.Agents {
			out += o.field("agent", o.agent(a))
		}
	}
	if p.Commit != "" {
		text := short(p.Commit)
		if p.TakenFrom > 0 {
			text += fmt.Sprintf(", taken over from launch %d", p.TakenFrom)
		}
		out += o.field("commit", text)
	}
	if p.Partial != nil {
		out += o.field("partial", fmt.Sprintf("%s on branch %s; no phase starts from it", short(p.Partial.Commit), p.Partial.Branch))
	}
	return out
}

// act returns the label and the text of what a person did.
func (o Options) act(a api.Act) (label, text string) {
	text = "by " + a.Who() + ", " + o.moment(a.At)
	if a.Version != nil {
		text += ", version " + versionCell(*a.Version).text
	}
	if a.Note != "" {
		text += ": " + a.Note
	}
	return a.Verb, text
}

func (o Options) phaseName(mission string, p api.Phase) string {
	return o.paint(bold, fmt.Sprintf("phase %d %q of mission %s", p.Ordinal, p.Name, Clean(mission)))
}

func (o Options) phaseTitle(mission string, p api.Phase) string {
	parts := []string{o.phaseName(mission, p)}
	status := o.status(p.Status)
	switch {
	case p.Wait != nil:
		parts = append(parts, status+" · "+o.paint(yellow, WaitingFor(*p.Wait)), o.elapsed(*p.Wait))
	case p.Status == "running" && p.Step != "":
		parts = append(parts, status+" · "+Clean(p.Step))
	default:
		parts = append(parts, status)
	}
	if p.Wait == nil && p.StartedAt != nil {
		parts = append(parts, o.span(*p.StartedAt, p.EndedAt))
	}
	if p.Node != "" && p.Wait == nil {
		parts = append(parts, "on "+Clean(p.Node))
	}
	return strings.Join(parts, "   ") + "\n"
}

func (o Options) pastWait(w api.PastWait) string {
	return fmt.Sprintf("%s for %s, %s; last reason %s: %s",
		o.span(w.Since, &w.Ended), w.Kind, endedBy(w), w.Code, w.Reason)
}

func endedBy(w api.PastWait) string {
	text := "then " + w.EndedBy
	if w.Actor != "" {
		text += " by " + w.Actor
	}
	if w.Note != "" {
		text += " (" + w.Note + ")"
	}
	if w.WokenBy != "" {
		text += ", woken by " + w.WokenBy
	}
	return text
}

// run describes a run; its failure is left out where it is told already.
func (o Options) run(r api.Run, told string) string {
	parts := []string{
		fmt.Sprintf("%s, attempt %d on %s: %s", r.ID, r.Attempt, r.Node, r.Status),
	}
	if r.EndedAt == nil && r.Step != "" {
		parts[0] += " (" + r.Step + ")"
	}
	if outcome := RunOutcome(r); outcome != "" {
		parts = append(parts, outcome)
	}
	if len(r.Agents) > 0 {
		parts = append(parts, count(int64(len(r.Agents)), "machine"))
	}
	if where := runWhere(r); where != "" {
		parts = append(parts, where)
	}
	parts = append(parts, o.span(r.StartedAt, r.EndedAt))
	if r.Failure != told {
		parts = append(parts, failure(r.FailureCode, r.Failure))
	}
	return strings.Join(parts, "; ")
}

// agent describes one machine of a run of a composed phase.
func (o Options) agent(a api.RunAgent) string {
	parts := []string{fmt.Sprintf("%s, machine %s: %s", a.Name, a.Machine, a.Status)}
	if a.EndedAt == nil && a.Step != "" {
		parts[0] += " (" + a.Step + ")"
	}
	if !a.Designated {
		parts[0] += ", not designated"
	}
	if outcome := agentOutcome(a); outcome != "" {
		parts = append(parts, outcome)
	}
	if started := started(a.Start); started != "" {
		parts = append(parts, started)
	}
	if a.Image != "" {
		parts = append(parts, "image "+a.Image)
	}
	if a.Failure != "" {
		parts = append(parts, failure(a.FailureCode, a.Failure))
	}
	if a.EndedAt != nil && !a.Collected && a.Step == "ended" {
		parts = append(parts, "nothing collected")
	}
	return strings.Join(parts, "; ")
}

func agentOutcome(a api.RunAgent) string {
	return RunOutcome(api.Run{ExitCode: a.ExitCode, Signal: a.Signal, OutOfMemory: a.OutOfMemory})
}

// RunOutcome returns how a run's command ended: "exit 1", "killed by TERM", "out
// of memory", or nothing while that is not known.
func RunOutcome(r api.Run) string {
	switch {
	case r.OutOfMemory:
		return "out of memory"
	case r.Signal != "":
		return "killed by " + r.Signal
	case r.ExitCode != nil:
		return fmt.Sprintf("exit %d", *r.ExitCode)
	}
	return ""
}

// runWhere names what the command ran on. What isolates it is the same for every
// run of a node's backend, and told with the node.
func runWhere(r api.Run) string {
	var parts []string
	if r.Accel != "" {
		parts = append(parts, r.Accel)
	}
	if r.Kernel != "" {
		parts = append(parts, "kernel "+r.Kernel)
	}
	if started := started(r.Start); started != "" {
		parts = append(parts, started)
	}
	if r.Image != "" {
		parts = append(parts, "image "+r.Image)
	}
	return strings.Join(parts, ", ")
}

func started(s vm.Start) string {
	switch s.Kind {
	case vm.StartSnapshot:
		return "started from a snapshot"
	case vm.StartCold:
		return strings.TrimSuffix("started cold: "+s.Why, ": ")
	}
	return ""
}

// Results returns the commits of a launch.
func (o Options) Results(r api.Results) string {
	head := "branch " + Clean(r.Branch)
	if r.Base != "" {
		head += " from " + short(Clean(r.Base))
	}
	whole := "no results yet\n"
	if len(r.Commits) > 0 {
		whole = o.commits(r.Commits)
	}
	out := o.paint(bold, head) + "\n" + whole
	if len(r.Partial) > 0 {
		out += o.paint(bold, "partial, of cancelled phases; each is on "+partialBranches(r)) + "\n" + o.commits(r.Partial)
	}
	return out
}

// partialBranches names the branches of partial results: one, or what they share.
func partialBranches(r api.Results) string {
	if len(r.Partial) == 1 {
		return "branch " + Clean(r.Partial[0].Branch)
	}
	return "a branch " + Clean(r.Branch) + "-partial/PHASE"
}

func (o Options) commits(commits []api.Commit) string {
	rows := make([][]cell, len(commits))
	for i, c := range commits {
		rows[i] = []cell{
			text(short(c.Commit)),
			text(c.Phase),
			text(c.Run),
			text(fmt.Sprint(c.Files)),
			text(fmt.Sprintf("+%d -%d", c.Insertions, c.Deletions)),
			text(o.moment(c.When)),
			text(c.Subject),
		}
	}
	return o.table([]string{"COMMIT", "PHASE", "RUN", "FILES", "LINES", "WHEN", "SUBJECT"}, rows)
}
