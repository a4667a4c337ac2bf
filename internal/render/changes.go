package render

import (
	"fmt"

	"tidewait/internal/api"
)

// MissionChanges returns a line for everything that happened to a launch between
// two looks at it: waits that began, changed their reason or ended, runs, steps
// and ends. Waits that began and ended in between are told too. With no earlier
// look everything that has happened so far is told.
func (o Options) MissionChanges(before *api.MissionDetail, after api.MissionDetail) []string {
	c := changes{o: o}
	if before == nil {
		before = &api.MissionDetail{}
		c.add("mission %s, launch %d: %s on %s", after.Name, after.Launch, count(int64(after.Phases), "phase"), after.Backend)
	}
	old := map[string]api.Phase{}
	for _, p := range before.PhaseList {
		old[p.Name] = p
	}
	for _, p := range after.PhaseList {
		c.phase(old[p.Name], p)
	}
	if after.Status != before.Status && after.EndedAt != nil {
		c.add("mission %s %s%s", after.Name, after.Status, because(after.FailureCode, after.Failure))
	}
	return c.lines
}

type changes struct {
	o     Options
	lines []string
}

func (c *changes) add(format string, args ...any) {
	c.lines = append(c.lines, c.o.clock(c.o.Now)+"  "+Clean(fmt.Sprintf(format, args...)))
}

func (c *changes) phase(was, is api.Phase) {
	title := fmt.Sprintf("phase %d %q", is.Ordinal, is.Name)
	c.pastWaits(title, was, is)
	c.runs(title, was, is)
	c.wait(title, was.Wait, is.Wait)
	if is.Status == was.Status {
		return
	}
	switch is.Status {
	case "succeeded":
		c.add("%s succeeded%s", title, committed(is))
	case "failed", "cancelled":
		c.add("%s %s%s", title, is.Status, because(is.FailureCode, is.Failure))
	}
}

// pastWaits tells of the waits that ended since.
func (c *changes) pastWaits(title string, was, is api.Phase) {
	for _, w := range is.Waits[min(len(was.Waits), len(is.Waits)):] {
		text := w.EndedBy
		if w.Actor != "" {
			text += " by " + w.Actor
		}
		if w.EndedBy == "placed" && is.Node != "" {
			text += " on " + is.Node
		}
		c.add("%s %s after waiting %s for %s (%s: %s)", title, text, Duration(w.Ended.Sub(w.Since)), w.Kind, w.Code, w.Reason)
	}
}

func (c *changes) runs(title string, was, is api.Phase) {
	old := map[string]api.Run{}
	for _, r := range was.Runs {
		old[r.ID] = r
	}
	for _, r := range is.Runs {
		before, known := old[r.ID]
		if !known {
			c.add("%s starts on %s: run %s, attempt %d", title, r.Node, r.ID, r.Attempt)
		}
		ended := r.EndedAt != nil && before.EndedAt == nil
		if r.Step != before.Step && r.Step != "" && !ended {
			c.add("%s step %s", title, r.Step)
		}
		c.agents(title, before, r)
		if ended {
			c.add("%s run %s %s after %s%s", title, r.ID, r.Status, Duration(r.EndedAt.Sub(r.StartedAt)), outcome(r))
		}
	}
}

// agents tells of the machines of a composed phase whose commands ended.
func (c *changes) agents(title string, was, is api.Run) {
	ended := map[string]bool{}
	for _, a := range was.Agents {
		ended[a.Name] = a.EndedAt != nil
	}
	for _, a := range is.Agents {
		if a.EndedAt == nil || ended[a.Name] {
			continue
		}
		text := ""
		if outcome := agentOutcome(a); outcome != "" {
			text = ": " + outcome
		}
		if a.Failure != "" {
			text = because(a.FailureCode, a.Failure)
		}
		c.add("%s agent %s %s%s", title, a.Name, a.Status, text)
	}
}

func outcome(r api.Run) string {
	if r.Failure != "" {
		return because(r.FailureCode, r.Failure)
	}
	if text := RunOutcome(r); text != "" {
		return ": " + text
	}
	return ""
}

func (c *changes) wait(title string, was, is *api.Wait) {
	switch {
	case is == nil:
	case was == nil || was.Kind != is.Kind || !was.Since.Equal(is.Since):
		c.add("%s is %s", title, c.o.waitLine(*is))
	case was.Code != is.Code:
		c.add("%s is still %s", title, c.o.changedWaitLine(*is))
	}
}

func committed(p api.Phase) string {
	if p.Commit == "" {
		return ""
	}
	text := ", commit " + short(p.Commit)
	if p.TakenFrom > 0 {
		text += fmt.Sprintf(", taken over from launch %d", p.TakenFrom)
	}
	return text
}

func because(code, sentence string) string {
	if text := failure(code, sentence); text != "" {
		return ": " + text
	}
	return ""
}
