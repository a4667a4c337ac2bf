// Package workflows is the durable control flow of missions and nothing else:
// no database, no broker, no clock but the workflow's. What it decides by is
// pure and lives elsewhere; what it does is an activity.
package workflows

import (
	"time"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
	"tidewait/internal/vm"
)

// Fleet is the part of the configuration that workflows need. It is read once,
// when a mission is launched, and travels in inputs.
type Fleet struct {
	RetryInterval  time.Duration `json:"retryInterval"`  // nanoseconds, between tries of a phase that waits
	NodePickup     time.Duration `json:"nodePickup"`     // nanoseconds in which a live agent picks a run up
	StepAllowance  time.Duration `json:"stepAllowance"`  // nanoseconds for a run's steps beside its turn
	AttemptBackoff time.Duration `json:"attemptBackoff"` // nanoseconds between the first two attempts of a phase
}

// MissionInput says nothing but where to look: what to run arrives with the launch
// update.
type MissionInput struct {
	See string `json:"see,omitempty"` // [api.SeePage]
}

// LaunchInput asks the engine to record and launch a mission.
type LaunchInput struct {
	Document []byte     `json:"document"`
	Actor    string     `json:"actor"`
	RunID    string     `json:"runId"` // of the mission's workflow
	Rerun    *api.Rerun `json:"rerun,omitempty"`
}

// LaunchResult is a launch, or why there is none.
type LaunchResult struct {
	Launched ledger.Launched       `json:"launched"`
	Refused  []ledger.RefusedPhase `json:"refused,omitempty"`
	Mission  LaunchedMission       `json:"mission"`
	Fleet    Fleet                 `json:"fleet"`
}

// LaunchedMission is what the workflow needs of the document, and what it shows
// of the launch.
type LaunchedMission struct {
	Name     string         `json:"name"`
	Actor    string         `json:"actor,omitempty"` // who launched it, as they said
	Pool     string         `json:"pool"`
	Git      string         `json:"git,omitempty"` // of a remote workspace
	Ref      string         `json:"ref,omitempty"`
	Turn     time.Duration  `json:"turn"`    // nanoseconds, of each run
	MaxWait  time.Duration  `json:"maxWait"` // nanoseconds, of each wait for capacity
	Priority int            `json:"priority"`
	Phases   []PhaseCommand `json:"phases"`
}

// PhaseCommand is what one phase runs. Of a composed phase, Command, Collect and
// Machine are empty.
type PhaseCommand struct {
	Name     string         `json:"name"`
	Command  vm.Command     `json:"command"`
	Secrets  []string       `json:"secrets,omitempty"` // names of the variables that are; never their values
	Collect  []string       `json:"collect,omitempty"`
	Machine  vm.Spec        `json:"machine"` // without its run id
	Agents   []AgentCommand `json:"agents,omitempty"`
	Attempts int            `json:"attempts"`
	Hold     *ledger.Hold   `json:"hold,omitempty"`
	Requires []string       `json:"requires,omitempty"` // of a node, as "label=value"
}

// AgentCommand is what one or more machines of a composed phase run.
type AgentCommand struct {
	Name       string     `json:"name"`
	Replicas   int        `json:"replicas"`             // machines, from 1
	Designated bool       `json:"designated,omitempty"` // the phase succeeds only when its commands do
	Command    vm.Command `json:"command"`
	Collect    []string   `json:"collect,omitempty"`
	Machine    vm.Spec    `json:"machine"`           // of each, without its run id
	Secrets    []string   `json:"secrets,omitempty"` // names of further variables, beside those of the phase
}

// Object is a blob in the object store.
type Object struct {
	Bucket string `json:"bucket"`
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// OpenCheckoutInput asks a gateway for a launch's checkout.
type OpenCheckoutInput struct {
	Mission string `json:"mission"`
	Launch  int    `json:"launch"`
	Bundle  Object `json:"bundle"`        // of a local workspace
	Head    string `json:"head"`          // the commit to start from, of a local workspace
	URL     string `json:"url,omitempty"` // of a remote workspace
	Ref     string `json:"ref,omitempty"`
	Commit  string `json:"commit,omitempty"` // of an earlier launch, that a rerun starts from
	Of      int    `json:"of,omitempty"`     // that launch
}

// Checkout is a launch's branch and the files its next phase starts from.
type Checkout struct {
	Branch string `json:"branch"`
	Commit string `json:"commit"`
	Tree   string `json:"tree"`
	Input  Object `json:"input"` // a tar of the tree at Commit
}

// SetCheckoutInput records where a launch's results go.
type SetCheckoutInput struct {
	MissionID int64  `json:"missionId"`
	Launch    int    `json:"launch"`
	Branch    string `json:"branch"`
	Base      string `json:"base"`
}

// FinishMissionInput gives a launch its final status.
type FinishMissionInput struct {
	MissionID int64             `json:"missionId"`
	Launch    int               `json:"launch"`
	End       ledger.MissionEnd `json:"end"`
}

// PhaseInput is one phase of a launch.
type PhaseInput struct {
	See       string       `json:"see,omitempty"` // [api.SeePage]
	PhaseID   int64        `json:"phaseId"`
	MissionID int64        `json:"missionId"`
	Mission   string       `json:"mission"`
	Launch    int          `json:"launch"`
	Ordinal   int          `json:"ordinal"`
	Pool      string       `json:"pool"`
	Gateway   string       `json:"gateway"`
	Command   PhaseCommand `json:"command"`
	Checkout  Checkout     `json:"checkout"`
	Last      bool         `json:"last,omitempty"` // no phase starts from this one's files
	Fleet     Fleet        `json:"fleet"`
	// Images are the digests that names of images led to in phases before.
	Images map[string]string `json:"images,omitempty"`
	// Resume is where an earlier run of this workflow stopped to keep its
	// history short.
	Resume PhaseProgress `json:"resume,omitzero"`
}

// PhaseProgress is what a phase remembers across continue-as-new.
type PhaseProgress struct {
	Images  map[string]string `json:"images,omitempty"` // digests that names of images led to, beside those of its input
	Attempt int               `json:"attempt"`          // of placement, from 1
	Lost    int               `json:"lost"`             // runs lost with their node
	Waiting *ledger.Waiting   `json:"waiting,omitempty"`
	// ChangedAt is when the code of the wait changed last; zero: never.
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Gate is what to say at the next look before the queue. It is set while the
	// placer, which has not heard it yet, does not answer.
	Gate *ledger.Gate `json:"gate,omitempty"`
	// Shown is the wait that search attributes show already: they outlive the run
	// that wrote them.
	Shown ShownWait `json:"shown,omitzero"`
}

// PhaseResult is a phase that succeeded.
type PhaseResult struct {
	Checkout Checkout          `json:"checkout"`
	Images   map[string]string `json:"images,omitempty"` // digests that names of images led to, in this phase and before
}

// PlaceInput asks the placer to look at a phase.
type PlaceInput struct {
	PhaseID int64       `json:"phaseId"`
	Attempt int         `json:"attempt"`
	Pool    string      `json:"pool"`
	Wake    ledger.Wake `json:"wake"` // of the first try; later ones are the timer's
	// Retrying makes a refusal an error that the server retries, unless its
	// code is no longer LastCode.
	Retrying bool `json:"retrying,omitempty"`
	// Gate is what is new before the queue; nil: nothing.
	Gate     *ledger.Gate  `json:"gate,omitempty"`
	LastCode capacity.Code `json:"lastCode,omitempty"`
	// ChangedAt is when the code of the wait changed last; zero: never.
	ChangedAt time.Time `json:"changedAt,omitzero"`
}

// ExpireInput asks for a waiting phase's last look.
type ExpireInput struct {
	PhaseID int64  `json:"phaseId"`
	Attempt int    `json:"attempt"`
	Pool    string `json:"pool"`
}

// FinishPhaseInput gives a phase its final status.
type FinishPhaseInput struct {
	PhaseID int64         `json:"phaseId"`
	Run     ledger.RunEnd `json:"run"`
	End     ledger.Ended  `json:"end"`
}

// RetryPhaseInput puts a phase back into the queue.
type RetryPhaseInput struct {
	PhaseID int64         `json:"phaseId"`
	Attempt int           `json:"attempt"`
	Run     ledger.RunEnd `json:"run"`
}

// RecordActsInput is what people did to a phase.
type RecordActsInput struct {
	PhaseID int64        `json:"phaseId"`
	Acts    []ledger.Act `json:"acts"`
}

// JudgeRunInput asks what became of a run whose activity was lost.
type JudgeRunInput struct {
	RunID string `json:"runId"`
	// Retrying makes "not yet known" an error that the server retries.
	Retrying bool `json:"retrying,omitempty"`
	// Until is when the node's time was to be over as of the last answer. Another
	// moment is an answer, too.
	Until time.Time `json:"until,omitzero"`
	// GiveUp has the node end the run, also when its next agent goes on with it.
	GiveUp bool `json:"giveUp,omitempty"`
}

// ExecuteRunInput is a run for a node's agent: create, inject, run, collect,
// destroy.
type ExecuteRunInput struct {
	Mission string        `json:"mission"`
	Launch  int           `json:"launch"`
	Phase   string        `json:"phase"`
	Backend string        `json:"backend"`
	Machine vm.Spec       `json:"machine"` // with its run id; of a composed phase with nothing else
	Command vm.Command    `json:"command"`
	Secrets []string      `json:"secrets,omitempty"` // names of further variables, whose values the node asks for
	Collect []string      `json:"collect,omitempty"`
	Input   Object        `json:"input"` // the same for all machines
	Turn    time.Duration `json:"turn"`  // nanoseconds
	Node    string        `json:"node"`
	Epoch   int64         `json:"epoch,omitempty"` // of the node, as of the placement
	// Resume says that the run was begun before, and is to be gone on with where an
	// earlier agent of the node left it.
	Resume bool `json:"resume,omitempty"`
	// Agents are what the machines of a composed phase run.
	Agents []AgentCommand `json:"agents,omitempty"`
	// Images are the digests that names of images led to earlier in the launch.
	Images map[string]string `json:"images,omitempty"`
}

// StopRunInput tells a node's agent to end a run because a person asked for it:
// TERM, grace, the end of its machine.
type StopRunInput struct {
	RunID  string `json:"runId"`
	Reason string `json:"reason"`
	Keep   bool   `json:"keep,omitempty"` // collect what is there, if the command ends within its grace
}

// ExecuteRunResult is how a run ended on its node. Its machine is gone.
type ExecuteRunResult struct {
	Info vm.Info `json:"info"`
	// Exit is set when the command ended by itself, or within its grace after the
	// run was stopped.
	Exit *vm.Exit `json:"exit,omitempty"`
	// FailureCode and Failure are set when a step failed.
	FailureCode string `json:"failureCode,omitempty"`
	Failure     string `json:"failure,omitempty"`
	// Lost says that the agent no longer had the machine it was asked to go on with.
	Lost bool `json:"lost,omitempty"`
	// Results are set when the command succeeded, and when the run was stopped and
	// what it had made was collected.
	Results Object   `json:"results,omitzero"`
	Deleted []string `json:"deleted,omitempty"`
	// Partial says that the run was stopped, and the results are what it had made.
	Partial bool `json:"partial,omitempty"`
	// Agents are the machines of a composed phase, each with its own end and
	// results. Failed is the name of the one whose end failed the run.
	Agents []AgentResult `json:"agents,omitempty"`
	Failed string        `json:"failed,omitempty"`
	// Images are the digests that the names of its images led to.
	Images map[string]string `json:"images,omitempty"`
}

// AgentResult is how one machine of a composed phase ended.
type AgentResult struct {
	Name    string   `json:"name"`  // of the machine
	Agent   string   `json:"agent"` // the same unless that has replicas
	Info    vm.Info  `json:"info,omitzero"`
	Exit    *vm.Exit `json:"exit,omitempty"`    // of its command, when it ran to an end
	Stopped bool     `json:"stopped,omitempty"` // it was ended with the phase, not by itself
	// FailureCode and Failure are set when a step of it failed.
	FailureCode string `json:"failureCode,omitempty"`
	Failure     string `json:"failure,omitempty"`
	// Results are what it has changed, when that was collected.
	Results *Object  `json:"results,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
}

// CommitResultsInput asks a gateway to make a run's results a commit.
type CommitResultsInput struct {
	Mission string   `json:"mission"`
	Launch  int      `json:"launch"`
	Phase   string   `json:"phase"`
	RunID   string   `json:"runId"`
	Node    string   `json:"node"`
	Epoch   int64    `json:"epoch,omitempty"` // of the node, as of the run's placement
	Parent  string   `json:"parent"`
	TreeIn  string   `json:"treeIn"`
	Results Object   `json:"results"`
	Deleted []string `json:"deleted,omitempty"`
	Last    bool     `json:"last,omitempty"` // the files at the commit are not asked for
	// Parts are the results of the machines of a composed phase, which are to be
	// merged. Results and Deleted are empty then.
	Parts []ResultsPart `json:"parts,omitempty"`
	// Partial says why the run was ended early. Its results are committed to a
	// branch of their own then.
	Partial string `json:"partial,omitempty"`
}

// ResultsPart is what one machine of a composed phase has changed.
type ResultsPart struct {
	Agent   string   `json:"agent"`
	Results Object   `json:"results"`
	Deleted []string `json:"deleted,omitempty"`
}

// LatticeInput starts the workflow that keeps a lattice observed, and each
// observation.
type LatticeInput struct {
	Account string `json:"account"`
	Lattice string `json:"lattice"`
}

// AppInput starts an application's workflow.
type AppInput struct {
	See string        `json:"see,omitempty"` // [api.SeePage]
	Key ledger.AppKey `json:"key"`
	// Resume is where an earlier run stopped to keep its history short. Of a first
	// run it has the wait with which the workflow was started.
	Resume AppResume `json:"resume,omitzero"`
}

// AppResume is what an application remembers across continue-as-new.
type AppResume struct {
	Revision int64          `json:"revision,omitempty"` // of what was deployed at the last look
	Backoff  scaler.Backoff `json:"backoff,omitempty"`
	Wait     ledger.AppWait `json:"wait,omitzero"` // that search attributes show already
}

// ShownWait is what lists show of a wait.
type ShownWait struct {
	Kind   string    `json:"kind"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Bound  time.Time `json:"bound,omitzero"` // zero: none
}

func shownOf(w wait) ShownWait {
	return ShownWait{Kind: w.kind, Code: w.code, Reason: w.reason, Since: w.since, Bound: w.bound}
}

func (s ShownWait) wait() wait {
	return wait{kind: s.Kind, code: s.Code, reason: s.Reason, since: s.Since, bound: s.Bound}
}

// AssessInput asks a lattice's observer to compare an application with its
// lattice, to record how it is, and to say what is to be done.
type AssessInput struct {
	Key      ledger.AppKey    `json:"key"`
	Revision int64            `json:"revision"` // of what was deployed at the last look; 0: there was none
	Backoff  scaler.Backoff   `json:"backoff,omitempty"`
	Pending  []scaler.Command `json:"pending,omitempty"` // sent, and not answered
	Results  []CommandResult  `json:"results,omitempty"` // of commands, since the last look
	Nudged   bool             `json:"nudged,omitempty"`  // what failed is tried again now
	Acts     []ledger.Act     `json:"acts,omitempty"`    // of people, since the last look
}

// AssessResult is what an application needs.
type AssessResult struct {
	Revision   int64           `json:"revision"`
	Deployed   string          `json:"deployed,omitempty"` // the version; meaningless unless IsDeployed
	IsDeployed bool            `json:"isDeployed"`
	Epoch      int64           `json:"epoch"` // of the observation
	Batches    []scaler.Batch  `json:"batches,omitempty"`
	Backoff    scaler.Backoff  `json:"backoff,omitempty"`
	Retry      time.Duration   `json:"retry,omitempty"` // nanoseconds until something that failed is tried again; 0: nothing failed
	Status     string          `json:"status"`          // in one line
	Wait       *ledger.AppWait `json:"wait,omitempty"`
	Clean      bool            `json:"clean,omitempty"` // nothing is deployed, and nothing is left of it
}

// CommandsInput is what one host is told for an application.
type CommandsInput struct {
	Key   ledger.AppKey `json:"key"`
	Epoch int64         `json:"epoch"` // of the look that asked for it; another one is refused
	Batch scaler.Batch  `json:"batch"`
}

// CommandResult is what became of a command.
type CommandResult struct {
	Key     scaler.Key `json:"key"`
	OK      bool       `json:"ok,omitempty"`
	Code    string     `json:"code,omitempty"`    // of a failure
	Message string     `json:"message,omitempty"` // in the host's own words
}
