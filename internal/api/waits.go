package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
)

// WaitRequest filters the list of waits. Filters add up; what none of them can be
// about is left out: a mission's wait has no lattice, an application's no node.
type WaitRequest struct {
	Kind        string `json:"kind,omitempty"`
	Code        string `json:"code,omitempty"`
	Mission     string `json:"mission,omitempty"`
	Phase       string `json:"phase,omitempty"`
	Account     string `json:"account,omitempty"` // of applications
	Lattice     string `json:"lattice,omitempty"`
	Application string `json:"application,omitempty"`
	// Node leaves the waits that a node has a part in: the phase's run is there, or
	// it is named as one that could run it and does not now, or as the one where it is
	// expected to start.
	Node string `json:"node,omitempty"`
	// OlderThan leaves what has waited at least so many milliseconds.
	OlderThan int64 `json:"olderThanMs,omitempty"`
}

// WaitKinds are all kinds of waits, in the order in which they are told.
func WaitKinds() []string {
	return []string{
		ledger.KindCapacity, ledger.KindNode, ledger.KindGateway, ledger.KindHold,
		ledger.KindObserver, ledger.KindLattice, ledger.KindBackoff, ledger.KindDependency,
	}
}

// WaitCodes are all codes of a kind of wait, or of all kinds when it is empty.
func WaitCodes(kind string) []string {
	all := ledger.WaitCodes()
	if kind != "" {
		return all[kind]
	}
	var codes []string
	for _, k := range WaitKinds() {
		codes = append(codes, all[k]...)
	}
	return codes
}

// Check returns an error for a request that nothing can ever match, and says what
// can.
func (r WaitRequest) Check() error {
	ofMission, ofApplication := r.missionOnly(), r.applicationOnly()
	switch {
	case r.Kind != "" && !slices.Contains(WaitKinds(), r.Kind):
		return fmt.Errorf("%q is no kind of wait; there are %s", r.Kind, strings.Join(WaitKinds(), ", "))
	case r.Code != "" && !slices.Contains(WaitCodes(""), r.Code):
		return fmt.Errorf("%q is no code of a wait; there are %s", r.Code, strings.Join(WaitCodes(""), ", "))
	case r.Code != "" && !slices.Contains(WaitCodes(r.Kind), r.Code):
		return fmt.Errorf("%s is no code of waits of kind %s; those are %s", r.Code, r.Kind, strings.Join(WaitCodes(r.Kind), ", "))
	case r.OlderThan < 0:
		return fmt.Errorf("an age of %s is negative; give one such as 10m", time.Duration(r.OlderThan)*time.Millisecond)
	case ofMission != "" && ofApplication != "":
		return fmt.Errorf("nothing has both a %s and a %s: missions run on nodes, applications in lattices", ofMission, ofApplication)
	}
	return nil
}

// missionOnly names a filter that leaves waits of missions only.
func (r WaitRequest) missionOnly() string {
	switch {
	case r.Mission != "":
		return "mission"
	case r.Phase != "":
		return "phase"
	case r.Node != "":
		return "node"
	}
	return ""
}

// applicationOnly names a filter that leaves waits of applications only.
func (r WaitRequest) applicationOnly() string {
	switch {
	case r.Lattice != "":
		return "lattice"
	case r.Application != "":
		return "application"
	case r.Account != "":
		return "account"
	}
	return ""
}

// OfMissions reports whether waits of missions can match.
func (r WaitRequest) OfMissions() bool { return r.applicationOnly() == "" }

// OfApplications reports whether waits of applications can match.
func (r WaitRequest) OfApplications() bool { return r.missionOnly() == "" }

// NextLookAt is when a wait is looked at again, in a few words, where no clock says
// it: what it waits for is an event, or is asked for in short intervals. It is empty
// where NextCheck says it.
func NextLookAt(w Wait) string {
	switch {
	case w.NextCheck != nil:
		return ""
	case nextLookOfCodes[w.Code] != "":
		return nextLookOfCodes[w.Code]
	}
	return nextLookOfKinds[w.Kind]
}

var (
	nextLookOfKinds = map[string]string{
		ledger.KindNode:       "every 2 s",
		ledger.KindGateway:    "when it answers",
		ledger.KindHold:       "when it is released",
		ledger.KindObserver:   "when it is observed",
		ledger.KindLattice:    "when a host appears",
		ledger.KindBackoff:    "under way",
		ledger.KindDependency: "when it appears",
	}
	// Where that of the kind would be wrong.
	nextLookOfCodes = map[string]string{
		string(capacity.CodePlacerUnavailable): "when it answers",
		ledger.CodeResultsBucketFull:           "every 10 s",
		scaler.CodeHostsTaken:                  "when a host is free",
		scaler.CodeLinkConflict:                "when the link is gone",
	}
)
