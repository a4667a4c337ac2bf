package workflows

import (
	"fmt"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
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
	text := c.commands() + item("needs", c.needs(m.Pool)) +
		item("bounds", fmt.Sprintf("a run's turn is %s; a wait for capacity fails after %s", length(m.Turn), length(m.MaxWait))) +
		item("priority", fmt.Sprint(m.Priority))
	if c.Attempts > 1 {
		text += item("attempts", fmt.Sprintf("%d, with pauses from %s on", c.Attempts, length(l.Fleet.AttemptBackoff)))
	}
	if len(c.Secrets) > 0 {
		text += item("secrets", strings.Join(c.Secrets, ", "))
	}
	text += item("launched by", fmt.Sprintf("%s, on gateway %s", by(m.Actor), l.Launched.GatewayID))
	can := []remedy{nudgePhase("look now", m.Name, c.Name)}
	if h := c.Hold; h != nil {
		text += item("held", heldFor(*h))
		can = append(can, releasePhase(m.Name, c.Name))
	}
	return text + youCan(append(can, cancelPhase("end it", m.Name, c.Name))...) + pageEnd
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
		text += ": " + plain(h.Reason)
	}
	return text
}

// by is who did something, as they said.
func by(actor string) string {
	if actor == "" {
		return "somebody"
	}
	return plain(actor)
}

func cpus(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%.1f", float64(milli)/1000)
}

// AppDetails are the static details of an application's workflow.
func AppDetails(key ledger.AppKey) string {
	a := application{key: key}
	return item("application", fmt.Sprintf("`%s` in lattice `%s` of account `%s`; what is deployed is the database's to say", key.Name, key.Lattice, key.Account)) +
		item("lives", "while it is deployed or something is left of it; closed by hand, it is started again by the next sweep") +
		youCan(
			remedy{what: "see its status", command: a.cli("status")},
			remedy{what: "see its versions, and which is deployed", command: a.cli("history")},
			remedy{"try what has failed again now", a.cli("nudge"), api.SignalNudge, inputActor},
			remedy{what: "end it", command: a.cli("undeploy")},
		) + pageEnd
}

// LatticeDetails are the static details of a lattice's workflow.
func LatticeDetails(in LatticeInput) string {
	return item("lattice", fmt.Sprintf("`%s` of account `%s`", in.Lattice, in.Account)) +
		item("lives", "while something is deployed in it or left to clean up; closed by hand, it is started again by the next sweep") +
		youCan(remedy{what: "see its hosts, and who observes it", command: "tidewait lattice show " + in.Lattice}) + pageEnd
}
