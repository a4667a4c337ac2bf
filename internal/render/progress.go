package render

import (
	"fmt"
	"slices"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// bar draws part of a whole.
func (o Options) bar(part, whole int64) string {
	width := 24
	if o.Width > 0 && o.Width < 60 {
		width = 12
	}
	full := 0
	if whole > 0 {
		full = int(min(max(part, 0), whole) * int64(width) / whole)
	}
	return o.paint(cyan, strings.Repeat("█", full)) + o.paint(dim, strings.Repeat("░", width-full))
}

// barLine is a bar under a title, with the same in words beside it.
func (o Options) barLine(label string, part, whole int64, words string) string {
	return "  " + o.paint(dim, label+strings.Repeat(" ", max(1, labelColumns-len(label)))) + o.bar(part, whole) + "  " + Clean(words) + "\n"
}

// Progress returns a launch in the few lines that matter while it runs: one per
// phase, with a bar of the turn of one that runs, and the whole wait of one that
// waits. Where the terminal has no room for all phases, those that are over and
// those whose turn has not come are told together.
func (o Options) Progress(m api.MissionDetail) string {
	blocks := make([]string, len(m.PhaseList))
	lines := 0
	for i, p := range m.PhaseList {
		blocks[i] = o.phaseProgress(m.Name, p)
		lines += strings.Count(blocks[i], "\n")
	}
	head := o.missionTitle(m) + o.missionWait(m)
	if o.Height > 0 && strings.Count(head, "\n")+lines > o.Height {
		blocks = o.fold(m.PhaseList, blocks)
	}
	return head + strings.Join(blocks, "")
}

func (o Options) phaseProgress(mission string, p api.Phase) string {
	switch {
	case p.Wait != nil:
		out := o.phaseTitle(mission, p)
		if b := p.Wait.Bound; b != nil {
			out = o.phaseName(mission, p) + "   " + o.status(p.Status) + " · " + o.paint(yellow, WaitingFor(*p.Wait)) + "\n" +
				o.barLine("waited", int64(o.Now.Sub(p.Wait.Since)), int64(b.Sub(p.Wait.Since)), o.elapsed(*p.Wait))
		}
		return out + o.waitFields(*p.Wait)
	case p.Status == "running" && len(p.Runs) > 0:
		return o.phaseTitle(mission, p) + o.turn(p.Runs[len(p.Runs)-1])
	case p.Failure != "":
		return o.phaseTitle(mission, p) + o.field("failed", failure(p.FailureCode, p.Failure))
	}
	return o.phaseTitle(mission, p)
}

// turn is how much of its turn a run has used.
func (o Options) turn(r api.Run) string {
	if r.EndsBy == nil || r.EndedAt != nil {
		return ""
	}
	used, whole := o.Now.Sub(r.StartedAt), r.EndsBy.Sub(r.StartedAt)
	return o.barLine("turn", int64(used), int64(whole), elapsedOf(used, whole)+" (ends by "+o.clock(*r.EndsBy)+")")
}

// fold puts the phases before the first that is not over, and those behind the last
// that has begun, into a line each.
func (o Options) fold(phases []api.Phase, blocks []string) []string {
	first, last := 0, len(phases)
	for first < len(phases) && phases[first].Status == "succeeded" {
		first++
	}
	for last > first && phases[last-1].Status == "pending" && phases[last-1].Wait == nil {
		last--
	}
	var folded []string
	together := func(n int, words string) {
		if n > 0 {
			folded = append(folded, o.paint(dim, count(int64(n), "phase")+" "+words)+"\n")
		}
	}
	together(first, "succeeded")
	folded = append(folded, blocks[first:last]...)
	together(len(phases)-last, "pending")
	return folded
}

// ApplicationProgress returns how an application is while it is waited for: a bar of
// its instances, and one of each of its components and providers when there are
// several, and those of its scalers that are not satisfied. Of instances nothing is known while nobody observes the lattice.
func (o Options) ApplicationProgress(lattice, name string, s wadm.Status, detail *api.AppDetail, tallies []scaler.Tally) string {
	wait := appWait(lattice, name, s, detail)
	out := o.applicationTitle(lattice, name, s, wait)
	if len(tallies) > 0 && s.Status.Type != wadm.Undeployed {
		var running, desired int64
		for _, t := range tallies {
			running, desired = running+int64(t.Running), desired+int64(t.Desired)
		}
		out += o.barLine("runs", running, desired, fmt.Sprintf("%d of %s", running, count(desired, "instance")))
		for _, t := range tallies {
			if len(tallies) > 1 {
				out += o.barLine("", int64(t.Running), int64(t.Desired), fmt.Sprintf("%d of %d  %s", t.Running, t.Desired, t.Name))
			}
		}
	}
	out += o.applicationState(s, wait)
	unsettled := slices.DeleteFunc(slices.Clone(s.Scalers), func(s wadm.ScalerStatus) bool { return s.Status.Type == wadm.Deployed })
	if len(unsettled) > 0 {
		out += "\n" + o.scalers(unsettled)
	}
	return out
}
