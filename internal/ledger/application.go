package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"tidewait/internal/oam"
	"tidewait/internal/wadm"
)

// AppKey names an application.
type AppKey struct {
	Account string `json:"account"` // DefaultAccount when there is a single tenant
	Lattice string `json:"lattice"`
	Name    string `json:"name"`
}

// DefaultAccount is the account of everything when there is a single tenant.
const DefaultAccount = "default"

func (k AppKey) String() string {
	if k.Account == DefaultAccount {
		return k.Lattice + "/" + k.Name
	}
	return k.Account + "/" + k.Lattice + "/" + k.Name
}

// AppVersion is one version of an application, ready to be stored.
type AppVersion struct {
	Version     string
	Description *string
	Manifest    json.RawMessage // in its normal form
	Scalers     []wadm.ScalerStatus
	Facts       oam.Facts
	PutBy       string // as the client says; empty: it did not
}

// Application is what is known of one, and how it waits.
type Application struct {
	Key        AppKey    `json:"key"`
	Revision   int64     `json:"revision"` // of what is deployed; 0: nothing is known of the application
	Deployed   string    `json:"deployed"` // version; meaningless unless IsDeployed
	IsDeployed bool      `json:"isDeployed"`
	Actor      string    `json:"actor,omitempty"` // who deployed it, as the client says
	Since      time.Time `json:"since,omitzero"`  // of the deployment
	Wait       *AppWait  `json:"wait,omitempty"`  // what it waits for
}

// AppWait is why an application waits.
type AppWait struct {
	Kind   string    `json:"kind"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Of a back-off: the tries so far, and when the next one comes. Zero: now, or
	// there is none.
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
}

// Kinds of the waits of applications.
const (
	KindLattice    = "lattice"    // for a host that suits
	KindBackoff    = "backoff"    // for the next try of what failed
	KindDependency = "dependency" // for what somebody else has to make
)

// CodeNeverObserved is the code of the wait in a lattice nobody has seen a host
// of.
const CodeNeverObserved = "never_observed"

// NeverObserved is the reason of that wait, in one sentence.
func NeverObserved(lattice string) string {
	return fmt.Sprintf("no host of lattice %s has been observed yet; nothing is started until one appears", lattice)
}

// Kinds of news about an application.
const (
	NewsPublished   = "published"   // it was deployed; payload: the manifest
	NewsUnpublished = "unpublished" // it was undeployed or deleted
	NewsStatus      = "status"      // payload: a wadm.Status
	NewsRevised     = "revised"     // for its workflow
)

// News is a row of the outbox of applications.
type News struct {
	ID       int64
	Key      AppKey
	Kind     string
	Revision int64
	Payload  json.RawMessage
	At       time.Time // of the commit
	Attempts int       // this one included
}
