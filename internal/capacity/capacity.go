// Package capacity decides where a phase may run. It is pure: a fleet and a
// demand go in, a [Placement], a [CapacityRefusal] or a [CapabilityRefusal]
// comes out. It reads no clock, no database and no configuration: what it is told
// of time counts from the moment of the decision. All its functions may be called
// concurrently.
package capacity

import "time"

// Resources is an amount of the things a node runs out of.
type Resources struct {
	CPUMilli  int64 `json:"cpuMilli"`  // thousandths of one CPU
	MemoryMiB int64 `json:"memoryMiB"` // mebibytes
	DiskMiB   int64 `json:"diskMiB"`   // mebibytes
	Slots     int64 `json:"slots"`     // virtual machines
}

// Add returns the sum of r and o.
func (r Resources) Add(o Resources) Resources {
	return Resources{r.CPUMilli + o.CPUMilli, r.MemoryMiB + o.MemoryMiB, r.DiskMiB + o.DiskMiB, r.Slots + o.Slots}
}

// Sub returns r less o; a dimension may become negative.
func (r Resources) Sub(o Resources) Resources {
	return Resources{r.CPUMilli - o.CPUMilli, r.MemoryMiB - o.MemoryMiB, r.DiskMiB - o.DiskMiB, r.Slots - o.Slots}
}

// Times returns r multiplied by n.
func (r Resources) Times(n int64) Resources {
	return Resources{r.CPUMilli * n, r.MemoryMiB * n, r.DiskMiB * n, r.Slots * n}
}

// Fits reports whether r fits into free in every dimension.
func (r Resources) Fits(free Resources) bool {
	return r.CPUMilli <= free.CPUMilli && r.MemoryMiB <= free.MemoryMiB &&
		r.DiskMiB <= free.DiskMiB && r.Slots <= free.Slots
}

// Demand is what a phase asks of one node. A composed phase is one demand: the
// sum of its virtual machines, all or nothing. CPUs, memory and slots must be
// more than zero; a phase may ask for no disk.
type Demand struct {
	Backend string            `json:"backend"`
	Arch    string            `json:"arch,omitempty"`   // empty: any
	Labels  map[string]string `json:"labels,omitempty"` // each must be equal on the node
	// Network says that the machines are to reach each other.
	Network bool `json:"network,omitempty"`
	// Resources is the sum over the phase's virtual machines, without the
	// backend's overhead; Slots is their number.
	Resources Resources `json:"resources"`
	// Images are what the phase's machines start from. Of the nodes with room, one
	// that has more of them is preferred; none has to have any.
	Images []string `json:"images,omitempty"`
}

// NodeState is where a node stands in its life.
type NodeState string

// The states of a node. Only a ready node receives work; every state but
// retired still counts when asking whether the fleet could ever run a demand.
const (
	Ready    NodeState = "ready"
	Cordoned NodeState = "cordoned"
	Draining NodeState = "draining"
	Drained  NodeState = "drained"
	Suspect  NodeState = "suspect"
	Down     NodeState = "down"
	Retired  NodeState = "retired"
)

// Offer is one backend of a node, as its last probe found it.
type Offer struct {
	OK       bool      `json:"ok"`
	Why      string    `json:"why,omitempty"` // why not, when not OK or without Network
	Network  bool      `json:"network"`       // several machines can reach each other
	Overhead Resources `json:"overhead"`      // added to the demand for each virtual machine
}

// Node is one machine of the fleet at one moment. IDs are unique in a fleet, in
// whose order nothing depends. Free may be negative when a node was made smaller.
type Node struct {
	ID          string
	State       NodeState
	Arch        string
	Labels      map[string]string
	Backends    map[string]Offer
	Allocatable Resources     // what an empty node can give
	Free        Resources     // what is not reserved now
	Runs        []Run         // what holds the rest, in any order; those of a node whose runs are not known are left out
	RunsAge     time.Duration // how long ago it was that the ends of Runs were counted from
	Starting    int64         // virtual machines that are starting now
	Images      []string      // that are there already
	StartLimit  int64         // how many may start at once; 0: no limit; a larger composed phase starts alone
}

// Run is what one run holds of a node, and the latest moment at which it gives
// that back.
type Run struct {
	Holds  Resources
	EndsIn time.Duration // from the moment that Node.RunsAge says; past when it is overdue
}

// offered reports whether n has the backend of d, with a network where d asks for
// one.
func (d Demand) offered(n *Node) bool {
	o := n.Backends[d.Backend]
	return o.OK && (o.Network || !d.Network)
}

// Need returns what d takes from node n, the backend's overhead included.
func (d Demand) Need(n Node) Resources {
	return d.Resources.Add(n.Backends[d.Backend].Overhead.Times(d.Resources.Slots))
}

// Placement is the admission of a demand to a node.
type Placement struct {
	NodeID string
	Need   Resources // what to reserve, overhead included
}

// Code is a machine-readable reason. The codes are a closed list.
type Code string

// Codes of a capacity refusal: the fleet could run it, not now.
const (
	CodeCPU               Code = "capacity_cpu"
	CodeMemory            Code = "capacity_memory"
	CodeDisk              Code = "capacity_disk"
	CodeSlots             Code = "capacity_slots"
	CodeFragmented        Code = "capacity_fragmented"
	CodeBehindInQueue     Code = "behind_in_queue"
	CodeHeldForHead       Code = "held_for_head"
	CodeStartingLimit     Code = "starting_limit"
	CodeNodesDraining     Code = "nodes_draining"
	CodeNodesLost         Code = "nodes_lost"
	CodeNoNodesRegistered Code = "no_nodes_registered"
	CodeNotEvaluated      Code = "not_evaluated"
	CodePlacerUnavailable Code = "placer_unavailable"
)

// WaitCodes are the codes with which a phase waits for capacity: those of a
// refusal, and the two of a phase that nobody has looked at.
func WaitCodes() []Code {
	return []Code{
		CodeCPU, CodeMemory, CodeDisk, CodeSlots, CodeFragmented, CodeBehindInQueue, CodeHeldForHead, CodeStartingLimit,
		CodeNodesDraining, CodeNodesLost, CodeNoNodesRegistered, CodeNotEvaluated, CodePlacerUnavailable,
	}
}

// Codes of a capability refusal: no known node could ever run it.
// An empty fleet at launch uses [CodeNoNodesRegistered].
const (
	CodeBackendUnsupported Code = "backend_unsupported"
	CodeExceedsEveryNode   Code = "exceeds_every_node"
	CodeLabelsUnmatched    Code = "labels_unmatched"
	CodeArchUnmatched      Code = "arch_unmatched"
	CodeRequestInvalid     Code = "request_invalid"
)

// Counts says how many nodes stand in the way for which cause. Every node that
// is not retired is in exactly one field, so the fields add up to the fleet.
type Counts struct {
	Fit       int `json:"fit"`       // could take it now
	Full      int `json:"full"`      // right kind, no room
	Starting  int `json:"starting"`  // right kind, room, too many machines starting
	Held      int `json:"held"`      // right kind, room, held for the head of the queue
	Cordoned  int `json:"cordoned"`  // right kind, takes no new work
	Draining  int `json:"draining"`  // right kind, draining or drained
	Lost      int `json:"lost"`      // right kind, suspect or down
	Incapable int `json:"incapable"` // could not run it even when empty
}

// Total returns the number of nodes counted.
func (c Counts) Total() int {
	return c.Fit + c.Full + c.Starting + c.Held + c.Cordoned + c.Draining + c.Lost + c.Incapable
}

// NodeReason is why one node does not take a demand.
type NodeReason struct {
	NodeID string `json:"node"`
	Why    string `json:"why"`             // a short clause, such as "short by 512 MiB of memory"
	Never  bool   `json:"never,omitempty"` // of a capacity refusal: it could not take it even when empty, so the wait is not about it
}

// CapacityRefusal says that some known node could run the demand, but none has
// room for it now. The phase queues.
type CapacityRefusal struct {
	Code     Code         `json:"code"`
	Sentence string       `json:"sentence"`
	Counts   Counts       `json:"counts"`
	Nodes    []NodeReason `json:"nodes,omitempty"`    // at most [MaxNodeReasons], the nearest to fitting first
	BestNode string       `json:"bestNode,omitempty"` // the nearest to fitting of those that take work; may be none
	ShortBy  Resources    `json:"shortBy"`            // what BestNode lacks; zero where nothing
}

func (r *CapacityRefusal) Error() string { return string(r.Code) + ": " + r.Sentence }

// CapabilityRefusal says that no known node could run the demand even when
// empty. Waiting would not help.
type CapabilityRefusal struct {
	Code     Code         `json:"code"`
	Sentence string       `json:"sentence"`
	Counts   Counts       `json:"counts"`
	Nodes    []NodeReason `json:"nodes,omitempty"` // at most [MaxNodeReasons]
}

func (r *CapabilityRefusal) Error() string { return string(r.Code) + ": " + r.Sentence }

// MaxNodeReasons bounds the per-node reasons in a refusal; the counts always
// cover the whole fleet.
const MaxNodeReasons = 8
