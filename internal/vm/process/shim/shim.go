// Package shim is what the process backend and the first process in its
// namespaces agree on.
package shim

import "tidewait/internal/vm"

// Argument is the first argument of the guest agent when it is to set up
// namespaces; the second is a Config as JSON.
const Argument = "process"

// The descriptors the agent inherits.
const (
	AgentFD = 3 + iota // the agent itself, as a file
	ConnFD             // the connection to the host
	CableFD            // the machine's end of its cable to the segment, with a Network only
)

// Config is what the agent must know before it speaks to the host.
type Config struct {
	Paths   []string    `json:"paths"`             // of the host, to be seen read-only
	MaxFile int64       `json:"maxFile"`           // bytes a file may have
	MaxData int64       `json:"maxData"`           // bytes of memory of one process, where no cgroup limits all; 0: any
	Network *vm.Network `json:"network,omitempty"` // the segment it is on
}
