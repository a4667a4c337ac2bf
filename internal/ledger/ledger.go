// Package ledger holds the words shared by the store, which keeps the ledger of
// launches, runs and waits, and by the workflows and activities that ask it.
// It is pure.
package ledger

import (
	"time"

	"tidewait/internal/capacity"
	"tidewait/internal/vm"
)

// Wake is what caused the placer to look at a phase.
type Wake string

// The causes of a look.
const (
	WakeFirst Wake = "first" // the phase asked for a node for the first time
	WakeTimer Wake = "timer" // the phase's own retry
	WakeEvent Wake = "event" // capacity was freed or a node changed
	WakeNudge Wake = "nudge" // a person asked
)

// Outcome is what a look at one phase found. Exactly one field is set.
type Outcome struct {
	Placed    *Placed                     `json:"placed,omitempty"`
	Waiting   *Waiting                    `json:"waiting,omitempty"`
	Incapable *capacity.CapabilityRefusal `json:"incapable,omitempty"`
	Ended     *Ended                      `json:"ended,omitempty"`
	Paused    *Pause                      `json:"paused,omitempty"`
}

// Placed is a phase that has a node, and a run there.
type Placed struct {
	RunID   string        `json:"runId"`
	NodeID  string        `json:"nodeId"`
	Attempt int           `json:"attempt"`
	Turn    time.Duration `json:"turn"` // nanoseconds; the longest the run may take
	// Epoch is how often the node had been given up when the run was placed, from
	// 1. Once it has been given up again the run does not count.
	Epoch int64 `json:"epoch,omitempty"`
}

// Waiting is a phase that queues.
type Waiting struct {
	Code      capacity.Code   `json:"code"`
	Sentence  string          `json:"sentence"`
	Since     time.Time       `json:"since"`              // the first refusal, by the database's clock
	Bound     time.Time       `json:"bound"`              // when the wait fails by itself
	Left      time.Duration   `json:"left"`               // nanoseconds from the look to the bound, by the database's clock
	CheckedAt time.Time       `json:"checkedAt"`          // the latest look
	NextCheck time.Time       `json:"nextCheck,omitzero"` // the latest moment of the next look
	Attempts  int             `json:"attempts,omitempty"` // looks so far, this one included
	Position  int             `json:"position"`           // in the pool's queue, from 1
	Counts    capacity.Counts `json:"counts"`             // nodes by what stands in the way
	Starts    *Starts         `json:"starts,omitempty"`
}

// Starts is when and where a phase that queues is expected to start.
type Starts struct {
	By time.Time `json:"by"`
	On string    `json:"on"` // the node
	// Held says that the node is kept for it: it starts by then at the latest,
	// unless another phase goes ahead of it or the node is lost. Otherwise it is
	// an estimate: every run uses its whole turn, and nobody joins the line.
	Held bool `json:"held,omitempty"`
}

// Ended is a phase that has its final status.
type Ended struct {
	Status      string `json:"status"` // succeeded, failed, cancelled
	Commit      string `json:"commit,omitempty"`
	FailureCode string `json:"failureCode,omitempty"`
	Failure     string `json:"failure,omitempty"`
	// By is who ended it, when a person did.
	By *Act `json:"by,omitempty"`
	// Partial is what a cancelled run had made.
	Partial *Partial `json:"partial,omitempty"`
}

// Partial is what a run that was ended early had made by then: a commit on a
// branch of its own, which no phase starts from.
type Partial struct {
	Branch string `json:"branch"`
	Commit string `json:"commit"`
}

// SignalPlaced is the signal that tells a waiting phase it has a node. It
// carries nothing: the phase asks again and gets its placement.
const SignalPlaced = "placed"

// SignalEvict is the signal that ends the run of a phase for its node's sake, so
// that the phase goes back to the queue. Its payload is an [Evict].
const SignalEvict = "evict"

// Evict says which run is to end, and why.
type Evict struct {
	RunID string `json:"runId"`
	Why   string `json:"why"` // one sentence
}

// SignalWaits is the signal that tells a phase that its run waits for something that
// an engine has found, or does not wait any more. Its payload is a [RunWaits].
const SignalWaits = "waits"

// RunWaits is a run that waits, or waits no more.
type RunWaits struct {
	RunID  string    `json:"runId"`
	Code   string    `json:"code,omitempty"` // of a wait for the gateway; empty: it is over
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Bound  time.Time `json:"bound,omitzero"`
}

// CodeDrained is the failure code of a run that was ended because the drain of
// its node was over.
const CodeDrained = "drained"

// CodeWorkflowLost is the failure code of a phase or mission whose workflow was
// terminated, or vanished with Temporal's database.
const CodeWorkflowLost = "workflow_lost"

// Launched is one numbered start of a mission.
type Launched struct {
	MissionID int64           `json:"missionId"`
	Launch    int             `json:"launch"`
	GatewayID string          `json:"gatewayId"`
	StartedAt time.Time       `json:"startedAt"`
	Phases    []LaunchedPhase `json:"phases"`
	Rerun     *Rerun          `json:"rerun,omitempty"`
}

// Rerun is a launch that takes over what the first phases of an earlier one
// made, and begins after them.
type Rerun struct {
	Of     int    `json:"of"`     // the launch
	First  int    `json:"first"`  // index of the phase that is run first
	Commit string `json:"commit"` // that it starts from
}

// LaunchedPhase is a phase's row.
type LaunchedPhase struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// RefusedPhase is a phase that no known node could ever run.
type RefusedPhase struct {
	Phase   string                     `json:"phase"`
	Refusal capacity.CapabilityRefusal `json:"refusal"`
}

// MissionEnd is how a launch ended.
type MissionEnd struct {
	Status      string `json:"status"` // succeeded, failed, cancelled
	FailureCode string `json:"failureCode,omitempty"`
	Failure     string `json:"failure,omitempty"`
	By          *Act   `json:"by,omitempty"` // who ended it, when a person did
}

// RunEnd is how a run ended.
type RunEnd struct {
	RunID       string   `json:"runId,omitempty"` // empty: whichever the phase has
	Status      string   `json:"status"`          // succeeded, failed, cancelled, lost
	Info        vm.Info  `json:"info,omitzero"`   // of the machine, when there was one
	Exit        *vm.Exit `json:"exit,omitempty"`
	FailureCode string   `json:"failureCode,omitempty"`
	Failure     string   `json:"failure,omitempty"`
	// Agents are the machines of a composed phase. One that is missing ended
	// with the run.
	Agents []AgentEnd `json:"agents,omitempty"`
	// Lingers says that the node may still have the run's machine. What the run
	// holds is released when it is known that it has not.
	Lingers bool `json:"lingers,omitempty"`
}

// Verdict is what became of a run whose activity was lost.
type Verdict struct {
	Gone   bool          `json:"gone"`           // the machine is gone, or the node's time is over
	Kept   bool          `json:"kept,omitempty"` // the next agent of the node goes on with the run
	Reason string        `json:"reason"`         // one sentence
	Node   string        `json:"node"`
	Heard  bool          `json:"heard,omitempty"` // its agent has spoken since the loss was noticed
	Since  time.Time     `json:"since"`           // when the loss was noticed
	Until  time.Time     `json:"until"`           // when the node's time is over
	Left   time.Duration `json:"left"`            // nanoseconds until Until
}

// OpenWait is a wait that is not for capacity, as its workflow declares it.
type OpenWait struct {
	WorkflowID string    `json:"workflowId"`
	MissionID  int64     `json:"missionId"`
	PhaseID    int64     `json:"phaseId,omitempty"` // 0: the mission itself waits
	App        *AppKey   `json:"app,omitempty"`     // an application waits, and no mission
	Kind       string    `json:"kind"`              // node, gateway, observer, or capacity when nobody looks
	Code       string    `json:"code"`
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since"`
	Bound      time.Time `json:"bound,omitzero"` // zero: none
}
