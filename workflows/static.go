package workflows

import (
	"fmt"
	"strings"

	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
	"tidewait/internal/webui"
)

// What stays true of a workflow for as long as it runs: its static summary and
// details.

func phaseSummary(mission string, ordinal int, c PhaseCommand) string {
	machines, sum := "", c.total()
	if n := c.machines(); n > 1 {
		machines = fmt.Sprintf("%d machines · ", n)
	}
	return clip(fmt.Sprintf("%s · phase %d %s · %s%s CPU / %d MiB", mission, ordinal, c.Name, machines, cpus(sum.CPUMilli), sum.MemoryMiB))
}

func phaseDetails(l *LaunchResult, c PhaseCommand) string {
	m := l.Mission
	text := c.commands() + webui.Item("needs", c.needs(m.Pool)) +
		webui.Item("bounds", fmt.Sprintf("a run's turn is %s; a wait for capacity fails after %s", length(m.Turn), length(m.MaxWait))) +
		webui.Item("priority", fmt.Sprint(m.Priority))
	if c.Attempts > 1 {
		text += webui.Item("attempts", fmt.Sprintf("%d, with pauses from %s on", c.Attempts, length(l.Fleet.AttemptBackoff)))
	}
	if len(c.Secrets) > 0 {
		text += webui.Item("secrets", strings.Join(c.Secrets, ", "))
	}
	text += webui.Item("launched by", fmt.Sprintf("%s, on gateway %s", webui.By(m.Actor), l.Launched.GatewayID))
	can := []remedy.Remedy{remedy.NudgePhase("look now", m.Name, c.Name)}
	if h := c.Hold; h != nil {
		text += webui.Item("held", heldFor(*h))
		can = append(can, remedy.ReleasePhase(m.Name, c.Name))
	}
	return text + webui.YouCan(append(can, remedy.CancelPhase("end it", m.Name, c.Name))...) + webui.PageEnd
}

// needs says what a phase asks of a node, without what its backend adds.
func (c PhaseCommand) needs(pool string) string {
	sum := c.total()
	text := fmt.Sprintf("%s CPU, %d MiB of memory and %d MiB of disk on backend %s", cpus(sum.CPUMilli), sum.MemoryMiB, sum.DiskMiB, pool)
	if len(c.Requires) > 0 {
		text += ", of a node with " + strings.Join(c.Requires, ", ")
	}
	return text
}

func heldFor(h ledger.Hold) string {
	text := "until somebody releases it"
	if h.MaxWait > 0 {
		text += fmt.Sprintf(", for %s at most", length(h.MaxWait))
	}
	if h.Reason != "" {
		text += ": " + webui.Plain(h.Reason)
	}
	return text
}

func cpus(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%.1f", float64(milli)/1000)
}

// AppDetails are the static details of an application's workflow.
func AppDetails(key ledger.AppKey) string {
	app := remedy.App(key)
	return webui.Item("application", fmt.Sprintf("`%s` in lattice `%s` of account `%s`; what is deployed is the database's to say", key.Name, key.Lattice, key.Account)) +
		webui.Item("lives", "while it is deployed or something is left of it; closed by hand, it is started again by the next sweep") +
		webui.YouCan(
			app.Do("see its status", "status"),
			app.Do("see its versions, and which is deployed", "history"),
			app.Nudge("try what has failed again now"),
			app.Do("end it", "undeploy"),
		) + webui.PageEnd
}

// LatticeDetails are the static details of a lattice's workflow.
func LatticeDetails(in LatticeInput) string {
	return webui.Item("lattice", fmt.Sprintf("`%s` of account `%s`", in.Lattice, in.Account)) +
		webui.Item("lives", "while something is deployed in it or left to clean up; closed by hand, it is started again by the next sweep") +
		webui.YouCan(remedy.ShowLattice("see its hosts, and who observes it", in.Account, in.Lattice)) + webui.PageEnd
}
