package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/columns"
	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
)

// waitsFor says what each kind of wait waits for.
var waitsFor = map[string]string{
	"capacity":   "waiting for capacity",
	"node":       "waiting for its node",
	"gateway":    "waiting for the gateway",
	"hold":       "waiting for release",
	"observer":   "waiting for an observer",
	"lattice":    "waiting for a host",
	"backoff":    "backing off",
	"dependency": "waiting for a dependency",
}

// WaitingFor says what w waits for: "waiting for release".
func WaitingFor(w api.Wait) string { return cmp.Or(waitsFor[w.Kind], "waiting") }

// elapsed returns how long w has lasted and what its bound is:
// "41 min of 120 (fails 14:19:05Z)".
func (o Options) elapsed(w api.Wait) string {
	if w.Bound == nil {
		return Duration(o.Now.Sub(w.Since)) + ", no bound"
	}
	then := "fails"
	if w.Kind == "node" { // the phase is placed again, on another node
		then = "placed again by"
	}
	return elapsedOf(o.Now.Sub(w.Since), w.Bound.Sub(w.Since)) + " (" + then + " " + o.clock(*w.Bound) + ")"
}

// waitFields returns the lines under the header of what waits.
func (o Options) waitFields(w api.Wait) string {
	var out strings.Builder
	add := func(label, text string) {
		if text != "" {
			out.WriteString(o.field(label, text))
		}
	}
	add("why", why(w))
	add("since", o.moment(w.Since))
	add("node", w.Node)
	add("need", need(w))
	add("place", place(w))
	add("nodes", nodes(w))
	for _, n := range w.Nodes {
		add("", n.NodeID+": "+n.Why)
	}
	add("starts", o.starts(w))
	add("frees", o.frees(w))
	switch {
	case w.Kind == ledger.KindHold: // nobody looks: it is told
	case w.Kind == ledger.KindBackoff && w.NextCheck != nil:
		add("tries", fmt.Sprintf("%d failed, next %s", w.Attempts, o.moment(*w.NextCheck)))
	case w.Kind == ledger.KindBackoff && w.Attempts > 0:
		add("tries", fmt.Sprintf("%d failed, the next one is under way", w.Attempts))
	default:
		add("looked", o.looked(w))
	}
	return out.String() + o.youCan(w)
}

// youCan lists what a person can do about w, but for looking at what is shown. A
// command that does not fit behind what it does has a line of its own, which is not
// broken, so that it can be copied.
func (o Options) youCan(w api.Wait) string {
	here := remedy.ShowMission("", w.Mission).Command
	if w.Application != "" {
		here = remedy.App{Account: w.Account, Lattice: w.Lattice, Name: w.Application}.Do("", "status").Command
	}
	return o.remedies(w, here)
}

// remedies are those of w but for the command here, which shows what is shown.
func (o Options) remedies(w api.Wait, here string) string {
	out, label := "", "you can"
	for _, r := range remedy.Of(w) {
		if r.Command == here {
			continue
		}
		out += o.remedy(label, r)
		label = ""
	}
	return out
}

func (o Options) remedy(label string, r api.Remedy) string {
	command := Clean(r.Command)
	switch {
	case command == "":
		return o.field(label, r.What)
	case o.Width > 0 && fieldIndent+columns.Of(r.What+": "+command) > o.Width:
		return o.field(label, r.What+":") + strings.Repeat(" ", fieldIndent+2) + command + "\n"
	}
	return o.field(label, r.What+": "+command)
}

func need(w api.Wait) string {
	if w.Need == nil {
		return ""
	}
	text := resources(*w.Need)
	if w.ShortBy != nil && *w.ShortBy != (capacity.Resources{}) {
		text += "; short by " + resources(*w.ShortBy)
		if w.BestNode != "" {
			text += " on " + w.BestNode
		}
	}
	return text
}

func place(w api.Wait) string {
	if w.Position == 0 {
		return ""
	}
	text := ordinal(w.Position) + " in line"
	if w.Pool != "" {
		text += " for " + w.Pool
	}
	if len(w.Ahead) == 0 {
		return text
	}
	text += ", behind " + strings.Join(w.Ahead, ", ")
	if more := w.Position - 1 - len(w.Ahead); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// nodes counts the fleet by what stands in the way; the parts add up to it.
func nodes(w api.Wait) string {
	if w.Counts == nil {
		return ""
	}
	c := *w.Counts
	var parts []string
	for _, part := range []struct {
		n    int
		text string
	}{
		{c.Fit, "with room"},
		{c.Full, "full"},
		{c.Starting, "starting as many as it may"},
		{c.Held, "held for the head of the line"},
		{c.Cordoned, "cordoned"},
		{c.Draining, "draining"},
		{c.Lost, "lost"},
		{c.Incapable, "cannot ever"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.text))
		}
	}
	text := fmt.Sprintf("%d known", c.Total())
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// starts says when w is expected to start, how sure that is, and whether it
// would come too late.
func (o Options) starts(w api.Wait) string {
	if w.StartsBy == nil {
		return ""
	}
	when, where := o.moment(*w.StartsBy), ""
	if w.StartsOn != "" {
		where = " on " + w.StartsOn
	}
	text := "about " + when + where + ", if every run uses its whole turn and nobody joins the line"
	if w.StartsHeld {
		text = "by " + when + where + " at the latest, unless another goes ahead of it"
	}
	if w.Bound != nil && w.StartsBy.After(*w.Bound) {
		text += "; its wait fails before that"
	}
	return text
}

func (o Options) frees(w api.Wait) string {
	if w.FreesAt == nil {
		return ""
	}
	text := "earliest " + o.moment(*w.FreesAt)
	if w.FreesNode != "" {
		text += " if the run on " + w.FreesNode + " uses its whole turn"
	}
	return text
}

func (o Options) looked(w api.Wait) string {
	var parts []string
	if w.CheckedAt != nil {
		text := o.moment(*w.CheckedAt)
		if w.Attempts > 0 {
			text += fmt.Sprintf(", attempt %d", w.Attempts)
		}
		parts = append(parts, text)
	} else if w.Kind == "capacity" {
		parts = append(parts, "not yet")
	}
	if w.NextCheck != nil {
		parts = append(parts, "next by "+o.moment(*w.NextCheck))
	} else if next := api.NextLookAt(w); next != "" && w.CheckedAt != nil {
		parts = append(parts, "next "+next)
	}
	if woken := wokenBy(w.WokenBy); woken != "" {
		parts = append(parts, "woken by: "+woken)
	}
	return strings.Join(parts, "; ")
}

// wakes lists what can wake a wait, in the order it is shown.
var wakes = []string{"first", "timer", "event", "nudge"}

func wokenBy(counts map[string]int) string {
	names := slices.Clone(wakes)
	for name := range counts {
		if !slices.Contains(wakes, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names[len(wakes):])
	var parts []string
	for _, name := range names {
		if n := counts[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(parts, ", ")
}

// expected is when w is expected to start, in a few words: "by" is a latest
// moment, "about" an estimate.
func (o Options) expected(w api.Wait) string {
	switch {
	case w.StartsBy == nil:
		return ""
	case w.StartsHeld:
		return ", by " + o.clock(*w.StartsBy)
	default:
		return ", about " + o.clock(*w.StartsBy)
	}
}

// Waiter names what waits: "mission/phase", "lattice/application" with the
// account before it unless it is the only one, or the workflow where it is
// neither.
func Waiter(w api.Wait) string {
	switch {
	case w.Application != "":
		return ledger.AppKey{Account: w.Account, Lattice: w.Lattice, Name: w.Application}.String()
	case w.Mission == "":
		return w.WorkflowID
	case w.Phase == "":
		return w.Mission
	}
	return w.Mission + "/" + w.Phase
}

// WaitChanges returns a line for each wait that began, changed its code or its
// place, or ended between two lists. A wait is the same wait while its workflow,
// kind and start are the same.
func (o Options) WaitChanges(before, after []api.Wait) []string {
	type key struct {
		workflow, kind string
		since          int64
	}
	of := func(w api.Wait) key { return key{w.WorkflowID, w.Kind, w.Since.UnixNano()} }
	old, current := map[key]api.Wait{}, map[key]bool{}
	for _, w := range before {
		old[of(w)] = w
	}
	var lines []string
	add := func(w api.Wait, rest string) {
		lines = append(lines, o.clock(o.Now)+"  "+Clean(Waiter(w)+" "+rest))
	}
	for _, w := range after {
		current[of(w)] = true
		was, known := old[of(w)]
		switch {
		case !known:
			add(w, "is "+o.waitLine(w))
		case was.Code != w.Code:
			add(w, "is still "+o.changedWaitLine(w))
		case was.Position != w.Position:
			add(w, "is still "+WaitingFor(w)+", now "+place(w))
		}
	}
	for _, w := range before {
		if !current[of(w)] {
			add(w, "waits no longer, after "+Duration(o.Now.Sub(w.Since)))
		}
	}
	return lines
}

// waitLine is w in a sentence: what it waits for, for how long, and why.
func (o Options) waitLine(w api.Wait) string { return o.waiting(w) + ": " + why(w) }

// changedWaitLine is the same of one that has waited for another reason so far.
func (o Options) changedWaitLine(w api.Wait) string { return o.waiting(w) + ", now: " + why(w) }

func (o Options) waiting(w api.Wait) string { return WaitingFor(w) + ", " + o.elapsed(w) }

func why(w api.Wait) string { return failure(w.Code, w.Reason) }
