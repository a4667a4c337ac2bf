package lattice

import (
	"time"

	"tidewait/internal/scaler"
)

// Health is what a host last said of a provider.
type Health string

// A provider that never was healthy says the same as one that always was, so
// that of both nothing is known.
const (
	HealthUnknown Health = ""
	Healthy       Health = "healthy"
	Unhealthy     Health = "unhealthy"
)

// Entry is a component or a provider on a host. A host has at most one of an id.
type Entry struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"` // that its author gave it
	Image       string            `json:"image,omitempty"`
	Count       int               `json:"count"` // of a provider always 1
	Annotations map[string]string `json:"annotations,omitempty"`
	Health      Health            `json:"health,omitempty"` // of a provider
}

// App is the application that the entry was started for; empty when none was.
func (e Entry) App() string {
	app := e.Annotations[scaler.AnnotationApp]
	if !scaler.Owned(e.Annotations, app) {
		return ""
	}
	return app
}

// instances is what a scaler sees of the entry.
func (e Entry) instances() scaler.Instances {
	return scaler.Instances{
		ID: e.ID, Image: e.Image, Count: e.Count, Annotations: e.Annotations,
		Unhealthy: e.Health == Unhealthy,
	}
}

// Host is a live host as it is shown to people.
type Host struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels"`
	Version    string            `json:"version"`
	Uptime     time.Duration     `json:"uptime"`     // nanoseconds
	LastSeen   time.Time         `json:"lastSeen"`   // of its last event or answer
	LeaseEnd   time.Time         `json:"leaseEnd"`   // when it is asked unless it is heard of before
	Components []Entry           `json:"components"` // by id
	Providers  []Entry           `json:"providers"`  // by id
}

// HostInfo is a host's answer to a ping.
type HostInfo struct {
	ID      string
	Name    string
	Labels  map[string]string
	Lattice string
	Version string
	Uptime  time.Duration
}

// Inventory is a host's answer to what it runs.
type Inventory struct {
	Host       string
	Name       string
	Labels     map[string]string
	Version    string
	Uptime     time.Duration
	Components []Entry
	Providers  []Entry
}
