package api

import (
	"time"

	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

// SubjectLatticeList takes a ListRequest and answers a LatticeList.
const SubjectLatticeList = "tidewait.api.lattice.list"

// SubjectLattice returns the subject on which the engine that observes a lattice
// tells of it: nothing → LatticeDetail. Nobody answers where no engine does.
func SubjectLattice(account, lattice string) string {
	return "tidewait.lattice." + account + "." + lattice + ".show"
}

// LatticeList is the reply to SubjectLatticeList, by account and name.
type LatticeList struct {
	Now      time.Time `json:"now"` // the database's clock
	Lattices []Lattice `json:"lattices"`
}

// Lattice is a lattice that is or was observed.
type Lattice struct {
	Account       string     `json:"account"`
	Lattice       string     `json:"lattice"`
	Observer      string     `json:"observer"` // the engine that took it last
	Epoch         int64      `json:"epoch"`    // grows with each engine that takes it
	TakenAt       time.Time  `json:"takenAt"`
	ObservedSince *time.Time `json:"observedSince,omitempty"` // when its first host ever was seen
	Hosts         int        `json:"hosts"`                   // alive, as of CheckedAt
	CheckedAt     *time.Time `json:"checkedAt,omitempty"`
	Applications  int        `json:"applications"` // deployed
}

// LatticeDetail is what the engine that observes a lattice knows of it now.
type LatticeDetail struct {
	Now      time.Time      `json:"now"` // that engine's clock
	Account  string         `json:"account"`
	Lattice  string         `json:"lattice"`
	Observer string         `json:"observer"`
	Epoch    int64          `json:"epoch"`
	Since    time.Time      `json:"since"` // when it knew the lattice completely first
	Hosts    []lattice.Host `json:"hosts"` // alive, by id
	Stats    lattice.Stats  `json:"stats"` // of events and questions since then
	// Applications are those that it keeps, by name, as of its latest look at each.
	Applications []LatticeApp `json:"applications,omitempty"`
}

// LatticeApp is how much of an application runs.
type LatticeApp struct {
	Name      string         `json:"name"`
	Instances []scaler.Tally `json:"instances"` // of its components and providers, in their order
}
