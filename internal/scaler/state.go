package scaler

// State is what is known of a lattice. What has nothing to do with the
// application that is planned for may be left out.
type State struct {
	Hosts   []Host                       // that are alive; in no particular order
	Links   []Link                       // all of them, as a host answers
	Configs map[string]map[string]string // that exist, at least of those in [Input.Names]
	Unread  map[string]bool              // configurations of which nobody said whether they exist
}

// Host is a live host and what runs there.
type Host struct {
	ID         string
	Labels     map[string]string
	Components []Instances // at most one entry for each id
	Providers  []Instances // likewise
}

// Instances is the one entry that a host has for a component or provider.
type Instances struct {
	ID          string
	Image       string // what really runs, not what was asked for last; empty when the host does not say
	Count       int    // at least 1; of a provider always 1
	Annotations map[string]string
	Unhealthy   bool // of a provider: its last check failed
}

// Keys of the annotations that instances carry, and the value that marks them as
// managed. They are wadm's, so that each takes over what the other started.
const (
	AnnotationManagedBy = "wasmcloud.dev/managed-by"
	AnnotationApp       = "wasmcloud.dev/appspec"
	AnnotationScaler    = "wasmcloud.dev/scaler"
	AnnotationSpread    = "wasmcloud.dev/spread_name"

	managedBy = "wadm"
)

// Owned reports whether instances with such annotations were started for an
// application. All others are foreign: nothing is ever told to them.
func Owned(annotations map[string]string, app string) bool {
	// The application first: nearly everything on a busy host is another one's.
	return annotations[AnnotationApp] == app && annotations[AnnotationManagedBy] == managedBy
}

func annotations(app, scaler, spread string) map[string]string {
	return map[string]string{
		AnnotationManagedBy: managedBy, AnnotationApp: app,
		AnnotationScaler: scaler, AnnotationSpread: spread,
	}
}
