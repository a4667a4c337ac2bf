package ledger

import "tidewait/internal/vm"

// Agent is one machine of a composed phase.
type Agent struct {
	Name       string `json:"name"`
	Designated bool   `json:"designated,omitempty"` // the phase succeeds only when its command does
}

// How an agent of a composed phase ended.
const (
	AgentSucceeded = "succeeded" // by itself, with 0
	AgentFailed    = "failed"    // by itself, otherwise
	AgentStopped   = "stopped"   // with the phase
	AgentLost      = "lost"      // nobody knows
)

// AgentEnd is how one machine of a composed phase ended.
type AgentEnd struct {
	Name        string   `json:"name"`
	Status      string   `json:"status"` // one of the constants above
	Info        vm.Info  `json:"info,omitzero"`
	Exit        *vm.Exit `json:"exit,omitempty"`
	Collected   bool     `json:"collected,omitempty"` // what it changed is in the results of the run
	FailureCode string   `json:"failureCode,omitempty"`
	Failure     string   `json:"failure,omitempty"`
}
