package scaler

import "tidewait/internal/oam"

// Kinds of scalers, as statuses show them.
const (
	KindSpread = "SpreadScaler" // so many instances, shared out over hosts
	KindDaemon = "DaemonScaler" // so many instances on each host
	KindLink   = "LinkScaler"   // a link between two ids
)

// Scaler is one thing that an application wants to be true of its lattice.
// Exactly one of Workload and Link is set.
type Scaler struct {
	// ID is the lower-case hexadecimal SHA-256 of what the scaler is about. It
	// is written onto the instances it starts, so two scalers with one ID are
	// the same to every host. How many instances, and where, is no part of it.
	ID   string
	Kind string
	Name string

	App      string    // the application whose manifest asks for it
	Workload *Workload // of a spread or daemon scaler
	Link     *Link     // of a link scaler
	Needs    []Config  // what must exist before, in the order of the manifest
}

// Workload is a component or a capability provider that has to run.
type Workload struct {
	Type      oam.ComponentType
	ID        string
	Image     string
	Config    []string           // names in the order hosts get them: configurations, then secrets
	Instances int                // of a daemon scaler: on each eligible host
	Spread    []oam.SpreadTarget // in the order of the manifest; none: every host is eligible
}

// Link is a link that has to exist. Two links with one source, name, namespace
// and package are the same to a host, which keeps the last one put.
type Link struct {
	Source       string   `json:"source"` // id of a component or provider
	Target       string   `json:"target"` // id of a component or provider
	Name         string   `json:"name"`
	Namespace    string   `json:"namespace"`
	Package      string   `json:"package"`
	Interfaces   []string `json:"interfaces,omitempty"`
	SourceConfig []string `json:"sourceConfig,omitempty"` // names in the order hosts get them: configurations, then secrets
	TargetConfig []string `json:"targetConfig,omitempty"`
}

// Config is a named configuration of the lattice. The reference to a secret is
// kept as one too.
type Config struct {
	Name    string
	Managed bool              // the application makes and keeps it; otherwise it must exist
	Values  map[string]string // of a managed one
	Secret  bool
}
