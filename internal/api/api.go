// Package api is Tidewait's own request/reply API over NATS: the subjects, the
// requests, the replies and the errors. The engine serves it as the micro
// service "tidewait"; the CLI and any NATS client ask it.
//
// Every request and reply is one JSON object. Times are RFC 3339 in UTC, as the
// database's clock gave them; durations are whole milliseconds.
package api

import (
	"encoding/json"
	"strconv"
	"time"

	"tidewait/internal/capacity"
	"tidewait/internal/vm"
)

// Subjects of the API. Each takes the request type named beside it.
const (
	SubjectMissionList  = "tidewait.api.mission.list"  // ListRequest → MissionList
	SubjectMissionShow  = "tidewait.api.mission.show"  // NameRequest → MissionDetail
	SubjectNodeList     = "tidewait.api.node.list"     // ListRequest → NodeList
	SubjectNodeShow     = "tidewait.api.node.show"     // NameRequest → NodeDetail
	SubjectNodeCordon   = "tidewait.api.node.cordon"   // NodeRequest → Node
	SubjectNodeUncordon = "tidewait.api.node.uncordon" // NodeRequest → Node
	SubjectNodeDrain    = "tidewait.api.node.drain"    // NodeRequest → Node
	SubjectNodeUndrain  = "tidewait.api.node.undrain"  // NodeRequest → Node
	SubjectNodeRetire   = "tidewait.api.node.retire"   // NodeRequest → Node
	SubjectNodeUnretire = "tidewait.api.node.unretire" // NodeRequest → Node
	SubjectWaitList     = "tidewait.api.wait.list"     // WaitRequest → WaitList
	SubjectRelease      = "tidewait.api.release"       // nothing → EngineRelease
	SubjectAppImport    = "tidewait.api.app.import"    // ImportRequest → ImportReply
	SubjectAppShow      = "tidewait.api.app.show"      // AppRequest → AppDetail
)

// SubjectGateway returns the subject on which gateway id serves what only it
// has: "log" (ResultsRequest → Results), "diff" (DiffRequest → Diff) and
// "bundle" (ResultsRequest → BundleReply).
func SubjectGateway(id, verb string) string { return "tidewait.gateway." + id + "." + verb }

// EngineRelease is what an engine is.
type EngineRelease struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

// Error is the reply to a request that failed. Code is from a closed list:
// "not_found", "invalid", "conflict", "unavailable", "internal",
// [CodeSecretUnavailable], and those of package release.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Reply is the envelope of every reply: exactly one of its fields is set.
type Reply struct {
	OK    json.RawMessage `json:"ok,omitempty"`
	Error *Error          `json:"error,omitempty"`
}

// ListRequest asks for a list, filtered.
type ListRequest struct {
	Status string `json:"status,omitempty"` // only those in this status
	Limit  int    `json:"limit,omitempty"`  // default and maximum 500
}

// NameRequest names one thing.
type NameRequest struct {
	Name   string `json:"name"`
	Launch int    `json:"launch,omitempty"` // of a mission; 0: the latest
}

// NodeRequest changes a node's state.
type NodeRequest struct {
	Name     string `json:"name"`
	Actor    string `json:"actor"`
	Reason   string `json:"reason,omitempty"`
	Deadline int64  `json:"deadlineMs,omitempty"` // drain only: milliseconds until running phases are stopped; 0: never
}

// MissionList is the reply to SubjectMissionList, newest first.
type MissionList struct {
	Missions []Mission `json:"missions"`
}

// Mission is one mission in its latest launch.
type Mission struct {
	Name        string     `json:"name"`
	Status      string     `json:"status"` // draft, running, succeeded, failed, cancelled
	Launch      int        `json:"launch"` // 0: never launched
	Backend     string     `json:"backend"`
	Phases      int        `json:"phases"`
	PhasesDone  int        `json:"phasesDone"`
	Current     string     `json:"current,omitempty"` // the phase that runs or waits
	Wait        *Wait      `json:"wait,omitempty"`    // of the current phase
	FailureCode string     `json:"failureCode,omitempty"`
	Failure     string     `json:"failure,omitempty"` // one sentence; also why a draft is one
	Actor       string     `json:"actor,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
	StartedAt   *time.Time `json:"startedAt,omitempty"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
}

// MissionDetail is one launch of a mission, whole.
type MissionDetail struct {
	Mission
	Gateway    string          `json:"gateway,omitempty"`
	Branch     string          `json:"branch,omitempty"`
	BaseCommit string          `json:"baseCommit,omitempty"`
	TargetNode string          `json:"targetNode,omitempty"` // where the current phase was placed
	WorkflowID string          `json:"workflowId"`
	RerunOf    int             `json:"rerunOf,omitempty"` // the launch whose commits it took over
	Expired    []Expired       `json:"expired,omitempty"` // what is not kept any more
	Acts       []Act           `json:"acts,omitempty"`    // of people, to the mission itself
	Document   json.RawMessage `json:"document"`
	PhaseList  []Phase         `json:"phaseList"`
}

// Expired is something of a launch that was kept for some time and is gone, or may
// go at any moment.
type Expired struct {
	What string        `json:"what"` // runs (with the phases), waits, logs, results
	Kept time.Duration `json:"kept"` // nanoseconds
}

// Phase is one phase of a launch.
type Phase struct {
	Name        string     `json:"name"`
	Ordinal     int        `json:"ordinal"` // from 1
	Status      string     `json:"status"`  // pending, running, succeeded, failed, cancelled
	Attempt     int        `json:"attempt"` // from 1
	WorkflowID  string     `json:"workflowId"`
	Node        string     `json:"node,omitempty"` // of the latest run
	Step        string     `json:"step,omitempty"` // of the running run: create, inject, secrets, run, collect, destroy, commit
	Wait        *Wait      `json:"wait,omitempty"`
	Waits       []PastWait `json:"waits,omitempty"` // those that ended, oldest first
	Runs        []Run      `json:"runs,omitempty"`  // oldest first
	Commit      string     `json:"commit,omitempty"`
	TakenFrom   int        `json:"takenFrom,omitempty"` // the launch whose commit a rerun took over; the phase was not run then
	Partial     *Partial   `json:"partial,omitempty"`   // what a cancelled phase had made
	Acts        []Act      `json:"acts,omitempty"`      // of people, oldest first
	FailureCode string     `json:"failureCode,omitempty"`
	Failure     string     `json:"failure,omitempty"`
	StartedAt   *time.Time `json:"startedAt,omitempty"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
}

// Partial is what a phase had made when it was cancelled.
type Partial struct {
	Branch string `json:"branch"`
	Commit string `json:"commit"`
}

// Run is one real attempt of a phase on a node.
type Run struct {
	ID          string     `json:"id"`
	Attempt     int        `json:"attempt"`
	Node        string     `json:"node"`
	Status      string     `json:"status"` // starting, running, succeeded, failed, cancelled, lost
	Step        string     `json:"step"`
	Accel       string     `json:"accel,omitempty"`
	Kernel      string     `json:"kernel,omitempty"`
	Isolation   string     `json:"isolation,omitempty"`
	Start       vm.Start   `json:"start,omitzero"`  // how its machine was started
	Image       string     `json:"image,omitempty"` // that its command had, with a digest; empty: the default
	ExitCode    *int       `json:"exitCode,omitempty"`
	Signal      string     `json:"signal,omitempty"`
	OutOfMemory bool       `json:"outOfMemory,omitempty"` // killed because memory ran out
	FailureCode string     `json:"failureCode,omitempty"`
	Failure     string     `json:"failure,omitempty"`
	StartedAt   time.Time  `json:"startedAt"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
	FreedAt     *time.Time `json:"freedAt,omitempty"` // when its node got the room back; earlier than EndedAt while results are committed
	EndsBy      *time.Time `json:"endsBy,omitempty"`  // when its turn is over
	Agents      []RunAgent `json:"agents,omitempty"`  // the machines of a composed phase, in the order of its document
}

// RunAgent is one machine of a run of a composed phase.
type RunAgent struct {
	Name        string     `json:"name"`
	Machine     string     `json:"machine"`
	Designated  bool       `json:"designated"` // the phase succeeds only when its command does
	Status      string     `json:"status"`     // starting, running, succeeded, failed, stopped, lost
	Step        string     `json:"step"`       // create, inject, run, done (its command has ended), collect, destroy, ended
	Accel       string     `json:"accel,omitempty"`
	Kernel      string     `json:"kernel,omitempty"`
	Start       vm.Start   `json:"start,omitzero"`
	Image       string     `json:"image,omitempty"`
	ExitCode    *int       `json:"exitCode,omitempty"`
	Signal      string     `json:"signal,omitempty"`
	OutOfMemory bool       `json:"outOfMemory,omitempty"`
	Collected   bool       `json:"collected"` // what it changed is in the results
	FailureCode string     `json:"failureCode,omitempty"`
	Failure     string     `json:"failure,omitempty"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
}

// WaitList is the reply to SubjectWaitList, oldest wait first.
type WaitList struct {
	Now   time.Time `json:"now"` // the database's clock, to count ages from
	Waits []Wait    `json:"waits"`
	More  bool      `json:"more,omitempty"` // younger ones were left out: of missions, or of applications, there are more than 500
}

// Wait is the record of something that waits: who, why, since, until, and when
// it is looked at again.
type Wait struct {
	Kind        string                `json:"kind"` // capacity, node, gateway, hold, observer, lattice, backoff, dependency
	Code        string                `json:"code"`
	Reason      string                `json:"reason"` // one sentence
	Mission     string                `json:"mission,omitempty"`
	Phase       string                `json:"phase,omitempty"`
	Account     string                `json:"account,omitempty"` // of an application
	Lattice     string                `json:"lattice,omitempty"`
	Application string                `json:"application,omitempty"`
	WorkflowID  string                `json:"workflowId"`
	Pool        string                `json:"pool,omitempty"`
	Node        string                `json:"node,omitempty"`    // where the run is that the phase has
	Gateway     string                `json:"gateway,omitempty"` // that a wait of this kind is for
	Since       time.Time             `json:"since"`
	Bound       *time.Time            `json:"bound,omitempty"`     // when it fails by itself
	CheckedAt   *time.Time            `json:"checkedAt,omitempty"` // when it was last looked at
	NextCheck   *time.Time            `json:"nextCheck,omitempty"` // the latest moment of the next look
	NextLook    string                `json:"nextLook,omitempty"`  // instead, what leads to it: see NextLookAt; filled in by who shows the wait
	Attempts    int                   `json:"attempts,omitempty"`
	Position    int                   `json:"position,omitempty"` // in the pool's queue, from 1
	Ahead       []string              `json:"ahead,omitempty"`    // "mission/phase" of those in front, at most 5
	Need        *capacity.Resources   `json:"need,omitempty"`     // overhead included where one node decides it
	ShortBy     *capacity.Resources   `json:"shortBy,omitempty"`
	BestNode    string                `json:"bestNode,omitempty"`
	Counts      *capacity.Counts      `json:"counts,omitempty"`
	Nodes       []capacity.NodeReason `json:"nodes,omitempty"`
	StartsBy    *time.Time            `json:"startsBy,omitempty"` // when it is expected to start
	StartsOn    string                `json:"startsOn,omitempty"` // where
	// StartsHeld says that the node is kept for it: it starts by then at the
	// latest, unless another goes ahead of it or the node is lost. Otherwise it is
	// an estimate, for the case that every run uses its whole turn and nobody
	// joins the line.
	StartsHeld bool           `json:"startsHeld,omitempty"`
	FreesAt    *time.Time     `json:"freesAt,omitempty"` // the earliest end of a turn on a capable node
	FreesNode  string         `json:"freesNode,omitempty"`
	WokenBy    map[string]int `json:"wokenBy,omitempty"` // tries by what woke them: first, timer, event, nudge
	YouCan     []Remedy       `json:"youCan,omitempty"`  // what a person can do; filled in by who shows the wait
}

// Remedy is one thing that a person can do: by hand, by a command, by a signal, or
// by one of the latter two.
type Remedy struct {
	What    string `json:"what"`              // a clause; names of settings in it stand in backquotes
	Command string `json:"command,omitempty"` // for a shell; words in capitals are to be filled in

	Signal   string `json:"-"` // the name of one that does the same
	Input    string `json:"-"` // of the signal, as JSON
	Workflow string `json:"-"` // whose page in the Web UI shows what Command does
}

// PastWait is a wait that ended.
type PastWait struct {
	Kind    string    `json:"kind"`
	Code    string    `json:"code"` // the last one
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Ended   time.Time `json:"ended"`
	EndedBy string    `json:"endedBy"` // placed, answered, released, retried, expired, cancelled, lost
	WokenBy string    `json:"wokenBy,omitempty"`
	Actor   string    `json:"actor,omitempty"` // who ended it, when a person did
	Note    string    `json:"note,omitempty"`  // of a release
}

// NodeList is the reply to SubjectNodeList, by id.
type NodeList struct {
	Now   time.Time `json:"now"`
	Nodes []Node    `json:"nodes"`
}

// Node is one machine of the fleet.
type Node struct {
	ID          string             `json:"id"`
	State       string             `json:"state"`               // ready, cordoned, draining, drained, suspect, down, retired, refused
	StateCode   string             `json:"stateCode,omitempty"` // of refused: one of package release
	StateReason string             `json:"stateReason,omitempty"`
	StateActor  string             `json:"stateActor,omitempty"`
	StateSince  time.Time          `json:"stateSince"`
	Deadline    *time.Time         `json:"deadline,omitempty"` // of a drain
	Arch        string             `json:"arch"`
	Labels      map[string]string  `json:"labels,omitempty"`
	Total       capacity.Resources `json:"total"`
	Reserved    capacity.Resources `json:"reserved"`
	Starting    int64              `json:"starting"`
	StartLimit  int64              `json:"startLimit"`
	Images      []string           `json:"images,omitempty"` // names and digests of those it keeps
	Backends    map[string]Backend `json:"backends"`
	Version     string             `json:"version,omitempty"`
	Heartbeat   time.Time          `json:"heartbeatAt"`
	Registered  time.Time          `json:"registeredAt"`
	Uploads     int64              `json:"uploads,omitempty"`  // runs whose machine is gone and whose results are not committed yet
	Epoch       int64              `json:"epoch"`              // how often it was given up, from 1
	Leaks       Leaks              `json:"leaks,omitzero"`     // found since its agent was started
	Orphaned    int64              `json:"orphaned,omitempty"` // reservations that were released because no machine was there
	Decided     string             `json:"decided,omitempty"`  // by a person, when State is suspect or down and it is not ready
}

// Backend is what a node's last probe of a backend found.
type Backend struct {
	OK        bool               `json:"ok"`
	Why       string             `json:"why,omitempty"`
	Accel     string             `json:"accel,omitempty"`
	Kernel    string             `json:"kernel,omitempty"`
	Isolation string             `json:"isolation,omitempty"`
	Enforced  bool               `json:"enforced"`
	Network   bool               `json:"network"` // the machines of a composed phase can reach each other
	Overhead  capacity.Resources `json:"overhead"`
	BootMs    int64              `json:"bootMs,omitempty"`
	Starts    vm.Starts          `json:"starts,omitzero"` // since the agent was started
}

// NodeDetail is a node, the runs that hold it and what people did to it.
type NodeDetail struct {
	Node
	Runs []NodeRun `json:"runs"`
	Acts []Act     `json:"acts,omitempty"` // of people, oldest first: the latest 20
}

// NodeRun is a run that holds a node.
type NodeRun struct {
	ID       string             `json:"id"`
	Mission  string             `json:"mission"`
	Phase    string             `json:"phase"`
	Status   string             `json:"status"`
	Step     string             `json:"step"`
	Reserved capacity.Resources `json:"reserved"`
	Since    time.Time          `json:"since"`
	EndsBy   time.Time          `json:"endsBy"` // the end of its turn
}

// ResultsRequest asks a gateway for the commits of a launch.
type ResultsRequest struct {
	Mission string `json:"mission"`
	Launch  int    `json:"launch"`
	// Partial names a cancelled phase whose branch of partial results is meant
	// instead of the launch's; for "bundle" only.
	Partial string `json:"partial,omitempty"`
}

// Results is the branch of a launch.
type Results struct {
	Branch  string   `json:"branch"`
	Base    string   `json:"base"`
	Commits []Commit `json:"commits"` // oldest first
	// Partial is what cancelled phases had made, each on a branch of its own. No
	// phase starts from it.
	Partial []Commit `json:"partial,omitempty"`
}

// Commit is the result of one phase.
type Commit struct {
	Commit     string    `json:"commit"`
	Phase      string    `json:"phase"`
	Run        string    `json:"run"`
	Subject    string    `json:"subject"`
	When       time.Time `json:"when"`
	Files      int       `json:"files"`
	Insertions int       `json:"insertions"`
	Deletions  int       `json:"deletions"`
	Branch     string    `json:"branch,omitempty"` // of partial results
}

// DiffRequest asks a gateway for what one phase changed.
type DiffRequest struct {
	Mission string `json:"mission"`
	Launch  int    `json:"launch"`
	Phase   string `json:"phase"`
	Stat    bool   `json:"stat,omitempty"` // what it did to each file, instead of the diff
}

// Diff is what one phase changed.
type Diff struct {
	Phase  string     `json:"phase"`
	Commit string     `json:"commit"`
	Text   string     `json:"text,omitempty"`  // a unified diff, cut at 512 KiB
	Files  []FileStat `json:"files,omitempty"` // at most 2,000
	Cut    bool       `json:"cut,omitempty"`   // there is more
}

// FileStat is what a commit did to one file. A binary file has no lines.
type FileStat struct {
	Path       string `json:"path"`
	Binary     bool   `json:"binary,omitempty"`
	Insertions int    `json:"insertions"`
	Deletions  int    `json:"deletions"`
}

// ArchiveRequest asks a gateway for the files of a commit.
type ArchiveRequest struct {
	Mission string `json:"mission"`
	Launch  int    `json:"launch"`
	Phase   string `json:"phase,omitempty"` // whose commit; empty: the latest of the launch
}

// ArchiveReply names a tar of a commit's files in the object store.
type ArchiveReply struct {
	Bucket string `json:"bucket"`
	Object string `json:"object"`
	SHA256 string `json:"sha256"`
	Commit string `json:"commit"`
}

// ImportRequest brings versions of one application from elsewhere. What is
// there already is never changed: an import may be repeated, and may come in
// several requests.
type ImportRequest struct {
	Account  string          `json:"account,omitempty"` // empty: of a single tenant
	Lattice  string          `json:"lattice"`
	Name     string          `json:"name"`
	Versions []ImportVersion `json:"versions"`           // oldest first
	Later    []string        `json:"later,omitempty"`    // names of versions that later requests bring, so that the order can be kept
	Deployed *string         `json:"deployed,omitempty"` // the version to deploy, of this request or stored before; nil: none
	Apply    bool            `json:"apply"`              // false: say what would be done, do nothing
	Actor    string          `json:"actor,omitempty"`
}

// ImportVersion is one version to bring.
type ImportVersion struct {
	Version  string          `json:"version"`
	Manifest json.RawMessage `json:"manifest"`
}

// ImportReply says what became of each version, or would.
type ImportReply struct {
	Versions []ImportedVersion `json:"versions"`           // in the order of the request
	Deployed *string           `json:"deployed,omitempty"` // the version that was to be deployed and is; nil: none was or is
	Why      string            `json:"why,omitempty"`      // what was to be deployed is not
	Needs    []string          `json:"needs,omitempty"`    // shared applications whose deployment it lacks
}

// ImportedVersion is what became of one version.
type ImportedVersion struct {
	Version string `json:"version"`
	What    string `json:"what"`          // one of the Import constants
	Why     string `json:"why,omitempty"` // of a conflict or a refusal
}

// What became of a version.
const (
	ImportAdded    = "added"
	ImportKept     = "kept"     // it was there, the same
	ImportConflict = "conflict" // it was there and is another document, or its place in the order is taken
	ImportSkipped  = "skipped"  // another version of the application is in conflict
	ImportRefused  = "refused"  // it is no document that could run
)

// BundleReply names a git bundle of the branch in the object store.
type BundleReply struct {
	Bucket string `json:"bucket"`
	Object string `json:"object"`
	Branch string `json:"branch"`
	SHA256 string `json:"sha256"`
}

// Object store buckets and the log stream.
const (
	BucketWorkspaces = "tidewait-workspaces" // bundles from the CLI and inputs of phases, by digest
	BucketBundles    = "tidewait-bundles"    // git bundles of launches, beside the gateway that holds them
	LogStream        = "TIDEWAIT_LOGS"
)

// BucketResults returns the bucket a node puts results into.
func BucketResults(node string) string { return "tidewait-results-" + node }

const subjectLog = "tidewait.log."

// SubjectLogs are the logs of all nodes.
const SubjectLogs = subjectLog + ">"

// SubjectNodeLogs returns the subjects of what a node writes.
func SubjectNodeLogs(node string) string { return subjectLog + node + ".>" }

// SubjectLog returns the subject of the log of a run on a node, or of that of one
// agent of it. A message is one line; its header Stream says stdout, stderr or
// system, Time when the node read it.
func SubjectLog(node, mission string, launch int, phase, run, agent string) string {
	subject := subjectLog + node + "." + mission + "." + strconv.Itoa(launch) + "." + phase + "." + run
	if agent != "" {
		subject += "." + agent
	}
	return subject
}

// Header keys of a log message.
const (
	LogHeaderStream = "Stream"
	LogHeaderTime   = "Time" // RFC 3339 with nanoseconds
	// LogHeaderPosition is where a line ends in the output of its command, of which
	// another agent may have to go on: bytes of standard output, bytes of standard
	// error, and lines of both.
	LogHeaderPosition = "Position"
	// LogHeaderSpent is how many bytes of the log's limit are spent with a line
	// that has a position.
	LogHeaderSpent = "Spent"
	LogHeaderLine  = "Line" // whoever wrote it, a dash, and the line's number from 0
)
