package scaler

import (
	"slices"

	"tidewait/internal/oam"
)

// Tally is how much of a component or provider there is, of how much is wanted.
type Tally struct {
	Name    string `json:"name"` // its id
	Running int    `json:"running"`
	Desired int    `json:"desired"`
}

// Count tells what runs of the components and providers that an application wants,
// in their order. What an earlier version started, and other applications, does not
// count; nor does more than is wanted in a place. A daemon scaler wants its
// instances on every host that suits.
func Count(app string, desired []Scaler, hosts []Host) []Tally {
	var tallies []Tally
	for i, s := range desired {
		first := slices.IndexFunc(desired, func(o Scaler) bool { return o.ID == s.ID }) == i
		if s.Workload == nil || !first {
			continue
		}
		wanted := 0
		for _, n := range spreads(s) {
			if s.Kind != KindDaemon {
				wanted += n.Count
			}
		}
		running := 0
		for _, h := range hosts {
			if s.Kind == KindDaemon {
				wanted += onHost(s, h)
			}
			running += runsOn(app, s, h)
		}
		tallies = append(tallies, Tally{Name: s.Name, Running: min(running, wanted), Desired: wanted})
	}
	return tallies
}

// onHost is how many instances a daemon scaler wants on a host: those of the first
// spread that it suits.
func onHost(s Scaler, h Host) int {
	for _, n := range spreads(s) {
		if n.eligible(h.Labels) {
			return n.Count
		}
	}
	return 0
}

// runsOn counts the instances on a host that are a scaler's. A provider that
// somebody else started serves as well as one's own.
func runsOn(app string, s Scaler, h Host) int {
	entries, provider := h.Components, s.Workload.Type == oam.TypeCapability
	if provider {
		entries = h.Providers
	}
	n := 0
	for _, e := range entries {
		own := Owned(e.Annotations, app)
		if e.ID == s.Workload.ID && (own && e.Annotations[AnnotationScaler] == s.ID || !own && provider) {
			n += e.Count
		}
	}
	return n
}
