package ledger

import (
	"slices"

	"tidewait/internal/capacity"
	"tidewait/internal/scaler"
)

// Kinds of waits that are not of an application alone.
const (
	KindCapacity = "capacity" // for room on a node
	KindNode     = "node"     // for what became of a run whose activity was lost
	KindGateway  = "gateway"  // for the holder of a mission's checkout
	KindObserver = "observer" // for an engine that observes a lattice
)

// Codes of waits that nobody but workflows and the engine decide on.
const (
	CodeNodeSilent         = "node_silent"
	CodeGatewayUnreachable = "gateway_unreachable"
	CodeResultsBucketFull  = "results_bucket_full"
	CodeObserverAbsent     = "observer_absent"
	CodeSharedMissing      = "shared_application_missing"
)

// WaitCodes are all kinds of waits there are, and of each all its codes. The
// database takes no others.
func WaitCodes() map[string][]string {
	return map[string][]string{
		KindCapacity: capacityCodes(),
		KindNode:     {CodeNodeSilent},
		KindGateway:  {CodeGatewayUnreachable, CodeResultsBucketFull},
		KindHold:     {CodeAwaitingRelease},
		KindObserver: {CodeObserverAbsent},
		KindLattice: {
			CodeNeverObserved, scaler.CodeNoLiveHosts, scaler.CodeNoEligibleHost, scaler.CodeNotEnoughHosts, scaler.CodeHostsTaken,
		},
		KindBackoff:    {scaler.CodeCommandFailed, scaler.CodeCommandRefused, scaler.CodeCommandTimedOut},
		KindDependency: {scaler.CodeConfigMissing, scaler.CodeSecretMissing, CodeSharedMissing, scaler.CodeLinkConflict},
	}
}

func capacityCodes() []string {
	var codes []string
	for _, c := range capacity.WaitCodes() {
		codes = append(codes, string(c))
	}
	return codes
}

// KindOf returns the kind of the waits of applications that a code is of; empty:
// none.
func KindOf(code string) string {
	codes := WaitCodes()
	for _, kind := range []string{KindLattice, KindBackoff, KindDependency} {
		if slices.Contains(codes[kind], code) {
			return kind
		}
	}
	return ""
}
