package api

import (
	"cmp"
	"time"
)

// Act is something a person did to a mission, a phase, a node or an application.
type Act struct {
	// Verb is nudge, cancel or release of a mission and its phases; cordon,
	// uncordon, drain, undrain, retire or unretire of a node; put, deploy, undeploy,
	// delete or nudge of an application.
	Verb    string    `json:"verb"`
	Actor   string    `json:"actor,omitempty"`   // as the client says; empty: it did not
	Note    string    `json:"note,omitempty"`    // why
	Version *string   `json:"version,omitempty"` // of the application that was put, deployed or deleted
	Via     string    `json:"via,omitempty"`     // one of the Via constants
	At      time.Time `json:"at"`
}

// The doors by which an act can come.
const (
	ViaTemporal = "temporal" // a signal, of the command line or the Web UI
	ViaNATS     = "nats"     // a request to Tidewait's own API
	ViaWadm     = "wadm"     // a request to the API of applications
)

// Who names the one who did it. Of one who gave no name it says by which door they
// came.
func (a Act) Who() string {
	door := map[string]string{
		ViaTemporal: "the Temporal API", ViaNATS: "Tidewait's NATS API", ViaWadm: "the wadm API",
	}[a.Via]
	if door == "" {
		return cmp.Or(a.Actor, "somebody")
	}
	return cmp.Or(a.Actor, "somebody through "+door)
}
