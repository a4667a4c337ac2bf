package api

import "time"

// Workflow ids, types, signals and updates that clients use.
const (
	MissionWorkflow = "mission"
	PhaseWorkflow   = "phase"
	AppWorkflow     = "application"
	LatticeWorkflow = "lattice"
	TaskQueue       = "tidewait"

	UpdateLaunch = "launch" // LaunchRequest → LaunchReply

	UpdateRevise = "revise" // AppRevision, to an application

	SignalNudge   = "nudge"   // Nudge, to a phase or an application
	SignalRelease = "release" // Release, to a phase that is held
	SignalWake    = "wake"    // nothing, to an application whose lattice has changed
	SignalNeeded  = "needed"  // nothing, to a lattice whose observation may be about to end
	SignalCancel  = "cancel"  // Cancel, to a mission or a phase
)

// SeePage is the first thing in a workflow's input, and so what people read first
// who open it in the Web UI: that shows the input above everything else.
const SeePage = "what it is doing or waiting for, and what you can do, is in the tab User Metadata"

// MissionWorkflowID returns the id of a mission's workflow.
func MissionWorkflowID(mission string) string { return "mission." + mission }

// PhaseWorkflowID returns the id of a phase's workflow.
func PhaseWorkflowID(mission, phase string) string { return "phase." + mission + "." + phase }

// AppWorkflowID returns the id of an application's workflow.
func AppWorkflowID(account, lattice, name string) string {
	return "app." + account + "." + lattice + "." + name
}

// LatticeWorkflowID returns the id of the workflow that keeps a lattice observed.
func LatticeWorkflowID(account, lattice string) string { return "lattice." + account + "." + lattice }

// LaunchRequest is the argument of the launch update.
type LaunchRequest struct {
	Document []byte `json:"document"` // mission.Mission's canonical JSON
	Bundle   string `json:"bundle"`   // object in BucketWorkspaces; empty for a remote workspace
	SHA256   string `json:"sha256"`   // of the bundle
	Head     string `json:"head"`     // the commit to start from; empty for a remote workspace
	Actor    string `json:"actor"`
	Rerun    *Rerun `json:"rerun,omitempty"`
}

// Rerun launches a mission again from one of its phases: what the phases before
// it made is taken over from the mission's latest launch. A document beside it
// may have changed from that phase on; without one the launch's own is run.
type Rerun struct {
	Mission string `json:"mission"`
	From    string `json:"from"` // the name of a phase
}

// LaunchReply is the result of an accepted launch.
type LaunchReply struct {
	Mission    string    `json:"mission"`
	Launch     int       `json:"launch"`
	WorkflowID string    `json:"workflowId"`
	RunID      string    `json:"runId"`
	StartedAt  time.Time `json:"startedAt"`
	RerunOf    int       `json:"rerunOf,omitempty"` // the launch that phases are taken over from
}

// Types of the application errors a refused launch carries; the details of
// ErrTypeCapability are a []ledger.RefusedPhase.
const (
	ErrTypeCapability     = "CapabilityRefused"
	ErrTypeRunning        = "MissionRunning"
	ErrTypeNoGateway      = "NoGateway"
	ErrTypeInvalidMission = "InvalidMission" // the document breaks a rule of this fleet
	ErrTypeNoRerun        = "RerunRefused"   // there is nothing to begin from
)

// AttributeMission is the search attribute that names a workflow's mission.
const AttributeMission = "TidewaitMission"

// MissionResult is how a mission's workflow ends: its result when it succeeded
// or stayed a draft, else the details of the error it closed with.
type MissionResult struct {
	Mission     string `json:"mission"`
	Launch      int    `json:"launch"`
	Status      string `json:"status"` // draft, succeeded, failed, cancelled
	FailureCode string `json:"failureCode,omitempty"`
	Failure     string `json:"failure,omitempty"`
}

// AppRevision tells an application's workflow that what is deployed has changed.
type AppRevision struct {
	Revision int64 `json:"revision"`
}

// Nudge asks a waiting phase to be looked at, or an application to try again, now.
type Nudge struct {
	Actor string `json:"actor"`
}

// Cancel asks a mission or a phase to end.
type Cancel struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	// Keep asks for what the run has made by then, as a commit on a branch of its
	// own.
	Keep bool `json:"keep,omitempty"`
}

// Release lets a phase that is held ask for a node.
type Release struct {
	Actor string `json:"actor"`
	Note  string `json:"note,omitempty"`
}
