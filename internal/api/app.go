package api

import "time"

// AppRequest names an application.
type AppRequest struct {
	Account string `json:"account,omitempty"` // empty: of a single tenant
	Lattice string `json:"lattice"`
	Name    string `json:"name"`
}

// AppDetail is what the API of applications, which is wadm's, has no room for: who
// did what, and the wait as all other lists have it. An application that was
// deleted still has its acts.
type AppDetail struct {
	Now        time.Time  `json:"now"` // the database's clock
	Account    string     `json:"account"`
	Lattice    string     `json:"lattice"`
	Name       string     `json:"name"`
	Deployed   *string    `json:"deployed,omitempty"`   // the version
	DeployedBy string     `json:"deployedBy,omitempty"` // as the client says
	DeployedAt *time.Time `json:"deployedAt,omitempty"`
	Wait       *Wait      `json:"wait,omitempty"`
	Acts       []Act      `json:"acts,omitempty"` // of people, oldest first: the latest 20
}
