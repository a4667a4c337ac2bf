package remedy

import (
	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
)

// Of is what a person can do about a wait. Kind and Code decide, and who waits:
// Mission and Phase, with Gateway and Node where the wait is for them, or Account,
// Lattice and Application. Nothing else of w is read; of who is not named nothing is
// known that could be done.
func Of(w api.Wait) []Remedy {
	switch {
	case w.Application != "":
		return ofApplication(w)
	case w.Mission == "":
		return nil
	}
	switch w.Kind {
	case ledger.KindCapacity:
		return []Remedy{
			room(capacity.Code(w.Code)),
			NudgePhase("look now", w.Mission, w.Phase),
			giveUp(w),
			ShowMission("see each node and who is ahead", w.Mission),
		}
	case ledger.KindNode:
		return []Remedy{
			Look("restart the agent of node "+w.Node, "tidewait-worker", "run", "--roles", "node", "--node.id", w.Node),
			Look("see the node", "tidewait", "node", "show", w.Node),
			giveUp(w),
		}
	case ledger.KindGateway:
		return []Remedy{gateway(w), giveUp(w)}
	case ledger.KindHold:
		return []Remedy{ReleasePhase(w.Mission, w.Phase), giveUp(w)}
	case ledger.KindBackoff:
		return []Remedy{NudgePhase("try now", w.Mission, w.Phase), giveUp(w)}
	}
	return []Remedy{giveUp(w)}
}

// giveUp ends a mission, or the phase of it that waits.
func giveUp(w api.Wait) Remedy {
	if w.Phase == "" {
		return CancelMission("end the mission", w.Mission)
	}
	return CancelPhase("give up", w.Mission, w.Phase)
}

// gateway is how a gateway takes what it does not take now.
func gateway(w api.Wait) Remedy {
	if w.Code == ledger.CodeResultsBucketFull {
		return ByHand("make room: raise `fleet.bundle_bytes` or the account's storage in NATS, or lower `fleet.result_ttl`, and restart the gateway")
	}
	start := []string{"tidewait-worker", "run", "--roles", "gateway"}
	if w.Gateway != "" {
		start = append(start, "--gateway.id", w.Gateway)
	}
	return Look("start the gateway", start...)
}

// room is how a phase gets a node.
func room(code capacity.Code) Remedy {
	switch code {
	case capacity.CodePlacerUnavailable:
		return ByHand("look at Postgres, and at the engine's log")
	case capacity.CodeNotEvaluated:
		return StartEngine("start an engine, when none runs; one looks within seconds")
	case capacity.CodeNodesDraining:
		return Look("uncordon or undrain a node, or add one", "tidewait", "node", "list")
	case capacity.CodeNodesLost:
		return Look("restart the agents of nodes that do not report, or add a node", "tidewait", "node", "list")
	case capacity.CodeNoNodesRegistered:
		return Look("start a node", "tidewait-worker", "run", "--roles", "node", "--node.id", "NAME")
	}
	return Look("free or add a node that has room", "tidewait", "node", "list")
}

func ofApplication(w api.Wait) []Remedy {
	app := App{w.Account, w.Lattice, w.Application}
	end := app.Do("give up", "undeploy")
	if w.Kind == ledger.KindObserver {
		why := ShowLattice("if engines run, see why none observes it", w.Account, w.Lattice)
		why.Workflow = api.LatticeWorkflowID(w.Account, w.Lattice)
		return []Remedy{StartEngine("start an engine"), why, end}
	}
	return append(mend(w), app.Nudge("try now"), app.Do("see each part of it", "status"), end)
}

// mend gives an application what it lacks.
func mend(w api.Wait) []Remedy {
	hosts := ShowLattice("see which hosts there are, and what they run", w.Account, w.Lattice)
	switch w.Code {
	case scaler.CodeHostsTaken:
		return []Remedy{ByHand("start another host that suits, or stop what else runs under the id there"), hosts}
	case scaler.CodeConfigMissing:
		return []Remedy{Look("make it", "wash", "config", "put", "NAME", "key=value")}
	case scaler.CodeLinkConflict:
		return []Remedy{ByHand("delete the link that is in the way, or give one of the two another name")}
	}
	switch w.Kind {
	case ledger.KindLattice:
		return []Remedy{ByHand("start a host in the lattice that suits"), hosts}
	case ledger.KindBackoff:
		return []Remedy{ByHand("mend what the host complains of, then try now")}
	}
	return []Remedy{ByHand("make what is missing")}
}
