package workflows

import (
	"tidewait/internal/api"

	"go.temporal.io/sdk/temporal"
)

// Activities, by the task queue that serves them.
const (
	// On the engine's queue.
	ActivityLaunch        = "launch-mission"
	ActivityPlace         = "place-phase"
	ActivityExpire        = "expire-phase"
	ActivityFinishPhase   = "finish-phase"
	ActivityRetryPhase    = "retry-phase"
	ActivityBackOff       = "back-off-phase"
	ActivityRecordActs    = "record-acts"
	ActivityJudgeRun      = "judge-run"
	ActivityNoteWait      = "note-wait"
	ActivityClearWait     = "clear-wait"
	ActivitySetCheckout   = "record-checkout"
	ActivityFinishMission = "finish-mission"

	// On the queue of observers, and on that of one lattice.
	ActivityObserve  = "observe-lattice"
	ActivityAssess   = "assess-application"
	ActivityCommands = "command-hosts"

	// On a gateway's queue.
	ActivityOpenCheckout  = "open-checkout"
	ActivityCommitResults = "commit-results"

	// On a node's queue.
	ActivityExecuteRun = "execute-run"
	ActivityStopRun    = "stop-run"
)

// TaskQueue is the engine's queue.
const TaskQueue = api.TaskQueue

// NodeQueue returns the queue of one node's agent.
func NodeQueue(node string) string { return "node." + node }

// GatewayQueue returns the queue of one gateway.
func GatewayQueue(gateway string) string { return "gateway." + gateway }

// ObserveQueue is the queue of engines that observe lattices.
const ObserveQueue = "observe"

// LatticeQueue returns the queue of a lattice's observer.
func LatticeQueue(account, lattice string) string { return "lattice." + account + "." + lattice }

// Types of application errors, the closed vocabulary between activities and
// workflows. Those of a refused launch are in package api.
const (
	ErrTypeCapacityRefused   = "CapacityRefused"   // benign: still no room; the server tries again
	ErrTypeNodeSilent        = "NodeSilent"        // benign: the node still may have the run
	ErrTypeBucketFull        = "BucketFull"        // benign: a gateway has no room for what it has to keep
	ErrTypeWorkspaceRefused  = "WorkspaceRefused"  // final: a bad URL or ref, an unreadable workspace, unusable results
	ErrTypeRunStale          = "RunStale"          // final: the run does not count any more
	ErrTypeMissionFailed     = "MissionFailed"     // how a failed mission's workflow closes
	ErrTypePhaseFailed       = "PhaseFailed"       // how a failed phase's workflow closes
	ErrTypeLaunchUnavailable = "LaunchUnavailable" // the launch could not be recorded
)

// Search attributes. Each is registered by setup and checked at worker start,
// because upserting an unregistered one blocks a workflow for ever.
var (
	AttrWait    = temporal.NewSearchAttributeKeyKeyword("TidewaitWait")
	AttrReason  = temporal.NewSearchAttributeKeyKeyword("TidewaitReason")
	AttrWhy     = temporal.NewSearchAttributeKeyKeyword("TidewaitWhy") // a sentence, see docs/decisions/0022
	AttrSince   = temporal.NewSearchAttributeKeyTime("TidewaitSince")
	AttrBound   = temporal.NewSearchAttributeKeyTime("TidewaitBound")
	AttrMission = temporal.NewSearchAttributeKeyKeyword(api.AttributeMission)
	AttrNode    = temporal.NewSearchAttributeKeyKeyword("TidewaitNode")
	AttrLattice = temporal.NewSearchAttributeKeyKeyword("TidewaitLattice")
	AttrApp     = temporal.NewSearchAttributeKeyKeyword("TidewaitApp")
)

// SearchAttributes lists every attribute the product uses.
func SearchAttributes() []temporal.SearchAttributeKey {
	return []temporal.SearchAttributeKey{AttrWait, AttrReason, AttrWhy, AttrSince, AttrBound, AttrMission, AttrNode, AttrLattice, AttrApp}
}
