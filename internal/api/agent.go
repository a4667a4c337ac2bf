package api

import (
	"strings"
	"time"

	"tidewait/internal/capacity"
	"tidewait/internal/vm"
)

// Subjects on which agents speak to the engine. A reply is sent only after the
// engine's commit. A heartbeat's ends with who sends it, so that NATS can allow
// each agent its own alone.
const (
	SubjectsOfAgents = "tidewait.agent." // what all of them begin with

	subjectNodeHeartbeat    = "tidewait.agent.node."
	subjectGatewayHeartbeat = "tidewait.agent.gateway."

	SubjectNodeHeartbeats    = subjectNodeHeartbeat + "*"    // Heartbeat of any node → HeartbeatReply
	SubjectGatewayHeartbeats = subjectGatewayHeartbeat + "*" // GatewayHeartbeat of any gateway → GatewayReply
	SubjectMayCommit         = "tidewait.agent.commit"       // CommitRequest → nothing
	SubjectGatewayNeeds      = "tidewait.agent.needs"        // NeedsRequest → NeedsReply
)

// SubjectNodeHeartbeat returns the subject of a node's own heartbeats.
func SubjectNodeHeartbeat(node string) string { return subjectNodeHeartbeat + node }

// SubjectGatewayHeartbeat returns the subject of a gateway's own heartbeats.
func SubjectGatewayHeartbeat(gateway string) string { return subjectGatewayHeartbeat + gateway }

// NodeOfHeartbeat returns whose heartbeats come on a subject; false: no node's.
func NodeOfHeartbeat(subject string) (node string, ok bool) {
	return strings.CutPrefix(subject, subjectNodeHeartbeat)
}

// StateRefused is the state of a node whose agent is of a release that does not work
// together with the engine's.
const StateRefused = "refused"

// Heartbeat is what a node's agent says of itself: at fixed intervals, and at
// once when a run changes its step or ends.
type Heartbeat struct {
	Node       string             `json:"node"`
	BootID     string             `json:"bootId"` // of this agent process
	Number     int64              `json:"number"` // of this heartbeat of the process, from 1
	Version    string             `json:"version"`
	Arch       string             `json:"arch"`
	Labels     map[string]string  `json:"labels,omitempty"`
	Total      capacity.Resources `json:"total"`
	StartLimit int64              `json:"startLimit"`
	Backends   map[string]Backend `json:"backends"`
	Images     []string           `json:"images,omitempty"` // by what those that it keeps are known; see mission.ImageKey
	Runs       []RunReport        `json:"runs"`             // every machine the agent has
	Ended      []string           `json:"ended,omitempty"`  // runs whose machine was destroyed since the last acknowledged heartbeat
	// GivenUp are the runs of an earlier agent process that this one could not go
	// on with, and why.
	GivenUp map[string]string `json:"givenUp,omitempty"`
	Leaks   Leaks             `json:"leaks,omitzero"`
}

// Leaks counts what an agent process found on its node, and ended, that nothing
// should have left behind.
type Leaks struct {
	vm.Leaks
	Journals int64 `json:"journals,omitempty"` // of runs, that nobody can read
	Machines int64 `json:"machines,omitempty"` // of runs that the engine did not want
}

// RunOfMachine is the run that a machine belongs to: one of several machines has
// its own id below it.
func RunOfMachine(id string) string {
	run, _, _ := strings.Cut(id, "/")
	return run
}

// RunReport is the state of one run.
type RunReport struct {
	ID      string `json:"id"`
	Step    string `json:"step"`    // pull, create, inject, secrets, run, collect, destroy
	Started bool   `json:"started"` // every machine answers, so that none counts as starting
	// Adopted says that an earlier agent process left the run, and this one waits
	// to be asked to go on with it.
	Adopted   bool          `json:"adopted,omitempty"`
	Accel     string        `json:"accel,omitempty"`
	Kernel    string        `json:"kernel,omitempty"`
	Isolation string        `json:"isolation,omitempty"`
	Start     vm.Start      `json:"start,omitzero"`
	Agents    []AgentReport `json:"agents,omitempty"` // of a composed phase
}

// AgentReport is the state of one of several machines of a run.
type AgentReport struct {
	Name        string   `json:"name"`
	Step        string   `json:"step"` // as of a run, and done once its command has ended
	Started     bool     `json:"started"`
	Accel       string   `json:"accel,omitempty"`
	Kernel      string   `json:"kernel,omitempty"`
	Isolation   string   `json:"isolation,omitempty"`
	Start       vm.Start `json:"start,omitzero"`
	Ended       bool     `json:"ended,omitempty"` // its command has ended
	Stopped     bool     `json:"stopped,omitempty"`
	ExitCode    *int     `json:"exitCode,omitempty"`
	Signal      string   `json:"signal,omitempty"`
	OutOfMemory bool     `json:"outOfMemory,omitempty"`
}

// HeartbeatReply acknowledges a heartbeat.
type HeartbeatReply struct {
	State   string   `json:"state"`
	Destroy []string `json:"destroy,omitempty"` // runs nobody wants any more
	// Epoch is how often the node was given up, from 1. Runs that were placed in
	// an older one are others' by now.
	Epoch int64 `json:"epoch"`
	// End says why the agent is to end all runs and itself; empty: it is not.
	End string `json:"end,omitempty"`
}

// CommitRequest asks whether the results of a run may be made a commit. A run
// that does not count any more is refused with the code [CodeStale].
type CommitRequest struct {
	Run   string `json:"run"`
	Epoch int64  `json:"epoch"` // of its node, as of its placement
}

// CodeStale is the code of an error about a run that does not count any more:
// its phase was placed again or has ended, or its node was given up.
const CodeStale = "stale"

// GatewayHeartbeat is what a gateway says of itself.
type GatewayHeartbeat struct {
	Gateway string `json:"gateway"`
	Version string `json:"version"`
}

// GatewayReply acknowledges a gateway's heartbeat.
type GatewayReply struct {
	Now time.Time `json:"now"`
}

// LaunchRef names one launch of a mission.
type LaunchRef struct {
	Mission string `json:"mission"`
	Launch  int    `json:"launch"`
}

// NeedsRequest asks which of some old launches are still needed.
type NeedsRequest struct {
	Gateway  string      `json:"gateway"`
	Launches []LaunchRef `json:"launches"` // at most 500
}

// NeedsReply are those of them that are.
type NeedsReply struct {
	Needed []LaunchRef `json:"needed"`
}
