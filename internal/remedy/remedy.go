// Package remedy says what a person can do: about each kind and code of wait, and
// about missions, phases, applications and lattices. It is one list for every
// place that people look at. It is pure; the words of each place are its own.
package remedy

import (
	"regexp"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// Remedy is one thing that a person can do.
type Remedy = api.Remedy

// Inputs of the signals that people send.
const (
	inputActor  = `{"actor": "you"}`
	inputReason = `{"actor": "you", "reason": "why"}`
	inputNote   = `{"actor": "you", "note": "what you looked at"}`
)

// Look is something to look at.
func Look(what string, command ...string) Remedy {
	return Remedy{What: what, Command: shell(command...)}
}

// ByHand is something that no command does.
func ByHand(what string) Remedy { return Remedy{What: what} }

// NudgePhase lets a phase be looked at, or tried again, at once.
func NudgePhase(what, mission, phase string) Remedy {
	return Remedy{What: what, Command: shell("tidewait", "phase", "nudge", mission, phase), Signal: api.SignalNudge, Input: inputActor}
}

// ReleasePhase ends a hold.
func ReleasePhase(mission, phase string) Remedy {
	return Remedy{
		What: "release it", Command: shell("tidewait", "phase", "release", mission, phase, "--note", "WHAT"),
		Signal: api.SignalRelease, Input: inputNote,
	}
}

// CancelPhase ends a phase.
func CancelPhase(what, mission, phase string) Remedy {
	return Remedy{
		What: what, Command: shell("tidewait", "phase", "cancel", mission, phase, "--reason", "WHY"),
		Signal: api.SignalCancel, Input: inputReason,
	}
}

// CancelMission ends a mission.
func CancelMission(what, mission string) Remedy {
	return Remedy{
		What: what, Command: shell("tidewait", "mission", "cancel", mission, "--reason", "WHY"),
		Signal: api.SignalCancel, Input: inputReason,
	}
}

// ShowMission shows all of a mission.
func ShowMission(what, mission string) Remedy {
	return Look(what, "tidewait", "mission", "show", mission)
}

// Rerun launches a mission again from one of its phases.
func Rerun(what, mission, phase string) Remedy {
	return Look(what, "tidewait", "mission", "rerun", mission, "--from", phase)
}

// Logs shows the output of a mission's phase; an empty phase is of all of them.
func Logs(what, mission, phase string, more ...string) Remedy {
	command := []string{"tidewait", "mission", "logs", mission}
	if phase != "" {
		command = append(command, "--phase", phase)
	}
	return Look(what, append(command, more...)...)
}

// Results shows what a mission left.
func Results(what, mission string) Remedy {
	return Look(what, "tidewait", "mission", "results", mission)
}

// App names an application.
type App struct{ Account, Lattice, Name string }

// Do is a verb of `tidewait app` on an application, and on one of its versions
// where that is given.
func (a App) Do(what, verb string, version ...string) Remedy {
	command := append([]string{"tidewait", "app", verb, a.Name}, version...)
	return Look(what, append(command, inLattice(a.Account, "--lattice", a.Lattice)...)...)
}

// Nudge lets an application be looked at at once.
func (a App) Nudge(what string) Remedy {
	r := a.Do(what, "nudge")
	r.Signal, r.Input = api.SignalNudge, inputActor
	return r
}

// ShowLattice shows a lattice's hosts, and who observes it.
func ShowLattice(what, account, lattice string) Remedy {
	return Look(what, append([]string{"tidewait", "lattice", "show"}, inLattice(account, lattice)...)...)
}

// inLattice are words about a lattice, with the account where there are several.
func inLattice(account string, words ...string) []string {
	if account == "" || account == ledger.DefaultAccount {
		return words
	}
	return append(words, "--account", account)
}

// StartEngine starts an engine.
func StartEngine(what string) Remedy {
	return Look(what, "tidewait-worker", "run", "--roles", "engine")
}

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// shell writes a command as a person can paste it: names come from elsewhere, and
// must not be more than names.
func shell(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if !plainWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
