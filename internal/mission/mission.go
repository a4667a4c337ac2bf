// Package mission is the mission document: its types, its parser, its rules and
// its JSON schema. It is pure and knows nothing of how a mission is run.
package mission

import "time"

// APIVersion and Kind identify a mission document.
const (
	APIVersion = "tidewait/v1"
	Kind       = "Mission"
)

// Mission is a validated document with every default filled in.
type Mission struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Spec   Spec              `json:"spec"`
}

// Spec is the work a mission asks for.
type Spec struct {
	Backend   string        `json:"backend"` // "microvm" or "process"
	Workspace Workspace     `json:"workspace"`
	Turn      time.Duration `json:"turn,omitempty"`     // nanoseconds; 0: the fleet's; see [Spec.Bounds]
	MaxWait   time.Duration `json:"maxWait,omitempty"`  // nanoseconds; 0: the fleet's
	Priority  *int          `json:"priority,omitempty"` // 0 to 100, higher first; nil: the fleet's
	Phases    []Phase       `json:"phases"`
}

// Workspace says where a mission's files come from: exactly one of Git and Path.
type Workspace struct {
	Git  string `json:"git,omitempty"`  // a local repository or a URL
	Ref  string `json:"ref,omitempty"`  // default HEAD
	Path string `json:"path,omitempty"` // a directory that need not be a repository
}

// Phase is one step of a mission: solo, with a command of its own, or composed of
// agents. Of a composed phase, Resources, Run, Env and Collect are empty: what the
// document says of them, and of the image, for the whole phase is in its agents.
type Phase struct {
	Name      string            `json:"name"`
	Hold      *Hold             `json:"hold,omitempty"` // nil: it asks for a node as soon as it is its turn
	Resources Resources         `json:"resources,omitzero"`
	Requires  Requires          `json:"requires,omitzero"`
	Image     string            `json:"image"` // [DefaultImage], or see [ParseImage]
	Run       []string          `json:"run,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Secrets   []Secret          `json:"secrets,omitempty"` // none is named like a variable of Env
	Collect   []string          `json:"collect,omitempty"` // slash-separated globs with **; empty: every change
	Agents    []Agent           `json:"agents,omitempty"`
	Until     []string          `json:"until,omitempty"` // the agents whose success is the phase's; of a composed phase never empty
	Attempts  int               `json:"attempts"`        // 1 to 10; default 1
}

// Hold keeps a phase from asking for a node until somebody releases it.
type Hold struct {
	Reason  string        `json:"reason,omitempty"`  // what is to be looked at before, in one sentence
	MaxWait time.Duration `json:"maxWait,omitempty"` // nanoseconds until it fails by itself; 0: it does not
}

// Resources is what one virtual machine of a phase gets.
type Resources struct {
	CPUMilli  int64 `json:"cpuMilli"`  // thousandths of one CPU
	MemoryMiB int64 `json:"memoryMiB"` // mebibytes
	DiskMiB   int64 `json:"diskMiB"`   // mebibytes
}

// Requires restricts the nodes a phase may run on.
type Requires struct {
	Arch   string            `json:"arch,omitempty"` // as in GOARCH; empty: any
	Labels map[string]string `json:"labels,omitempty"`
}
