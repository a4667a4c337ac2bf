package lattice

import (
	"time"

	"tidewait/internal/scaler"
)

// Event is what a host published. Host is the one that says so, whatever host
// its data name: those repeat what a command said. It is one token of a subject.
type Event struct {
	ID   string
	Type string // without the prefix that all types have
	Host string
	Time time.Time // by the host's clock
	Data any       // one of the types below
}

// The data of events.
type (
	// HostStarted is published once by a host, which runs nothing yet.
	HostStarted struct {
		Name    string
		Labels  map[string]string
		Version string
	}

	// HostStopped is a host's goodbye, also of all that ran there.
	HostStopped struct{}

	// HostHeartbeat is what an inventory would answer, published from time to time.
	HostHeartbeat struct{ Inventory }

	// LabelsChanged has all labels of the host.
	LabelsChanged struct{ Labels map[string]string }

	// ComponentScaled says that a host has so many instances now. Annotations
	// and image are those of what was there before, if something was.
	ComponentScaled struct{ Entry }

	// ComponentScaleFailed says that so many instances were asked for and why
	// nothing changed.
	ComponentScaleFailed struct {
		Entry
		Error string
	}

	// ProviderStarted says that a provider's process was started.
	ProviderStarted struct{ Entry }

	// ProviderStartFailed says why a provider was not started.
	ProviderStartFailed struct{ ID, Image, Error string }

	// ProviderStopped says that a provider is gone from its host.
	ProviderStopped struct{ ID, Reason string }

	// ProviderHealth is the outcome of a check of a provider.
	ProviderHealth struct {
		ID string
		// Health is unknown when the check had the outcome of the one before.
		Health Health
	}

	// LinkSet is a link that was put, in full.
	LinkSet struct{ scaler.Link }

	// LinkSetFailed says why a link was not put.
	LinkSetFailed struct {
		scaler.Link
		Error string
	}

	// LinkDeleted is the link that was deleted. Without a target there was none.
	LinkDeleted struct{ scaler.Tuple }

	// ConfigSet names a configuration that was put.
	ConfigSet struct{ Name string }

	// ConfigDeleted names a configuration that does not exist any more.
	ConfigDeleted struct{ Name string }
)
