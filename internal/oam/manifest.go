package oam

import "encoding/json"

// Manifest is an application document in its normal form: deprecated spellings
// are gone, absent things are absent.
type Manifest struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   Metadata      `json:"metadata"`
	Spec       Specification `json:"spec"`
}

// Metadata names and describes an application.
type Metadata struct {
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Keys of annotations that mean something.
const (
	AnnotationVersion     = "version"
	AnnotationDescription = "description"
	AnnotationShared      = "experimental.wasmcloud.dev/shared" // "true": other applications may refer to its components
)

// LatestVersion is no version: where a version is asked for, it means the newest.
const LatestVersion = "latest"

// Specification is what an application runs.
type Specification struct {
	Components []Component `json:"components"`
	Policies   []Policy    `json:"policies,omitempty"`
}

// Policy says where secrets come from.
type Policy struct {
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Properties map[string]string `json:"properties"`
}

// SecretPolicyType is the type of policies that secrets name.
const SecretPolicyType = "policy.secret.wasmcloud.dev/v1alpha1"

// ComponentType says what an entry of spec.components is.
type ComponentType string

// The types of components.
const (
	TypeComponent  ComponentType = "component"  // a Wasm component; "actor" is an old spelling
	TypeCapability ComponentType = "capability" // a capability provider
)

// Component is one entry of spec.components.
type Component struct {
	Name       string        `json:"name"`
	Type       ComponentType `json:"type"`
	Properties Properties    `json:"properties"`
	Traits     []Trait       `json:"traits,omitzero"` // nil: none were given
}

// Properties of a component or a provider. Exactly one of Image and Application
// is set in a valid document.
type Properties struct {
	Image       string     `json:"image,omitempty"`
	Application *SharedRef `json:"application,omitempty"` // instead of an image: a component of a shared application
	ID          string     `json:"id,omitempty"`          // explicit; empty: it follows from the names
	Config      []Config   `json:"config,omitempty"`
	Secrets     []Secret   `json:"secrets,omitempty"`
}

// SharedRef names a component of a shared application.
type SharedRef struct {
	Name      string `json:"name"` // of the application
	Component string `json:"component"`
}

// Config names a configuration. With properties, even none, it is managed: made
// and kept by the application. Without, it is somebody else's and must exist.
type Config struct {
	Name       string            `json:"name"`
	Properties map[string]string `json:"properties,omitzero"` // nil: not managed; empty: managed and empty
}

// Managed reports whether the application makes and keeps the configuration.
func (c Config) Managed() bool { return c.Properties != nil }

// Secret names a secret and where it is.
type Secret struct {
	Name       string           `json:"name"`
	Properties SecretProperties `json:"properties"`
}

// SecretProperties say which secret of which policy's backend it is.
type SecretProperties struct {
	Policy  string `json:"policy"`
	Key     string `json:"key"`
	Field   string `json:"field,omitempty"`
	Version string `json:"version,omitempty"`
}

// Types of traits that mean something. A trait of any other type is kept and
// ignored.
const (
	TraitLink         = "link"
	TraitSpreadScaler = "spreadscaler"
	TraitDaemonScaler = "daemonscaler"
)

// Trait is one trait of a component. Exactly one of Link, Spread and Custom is
// set. Which one follows from the shape of the properties alone, not from Type.
type Trait struct {
	Type   string
	Link   *Link
	Spread *Spread
	Custom json.RawMessage // compact JSON; "null" when there were none
}

// Link connects its component to another one.
type Link struct {
	Name       string            `json:"name,omitempty"` // empty: "default"
	Namespace  string            `json:"namespace"`
	Package    string            `json:"package"`
	Interfaces []string          `json:"interfaces"`
	Source     *ConfigDefinition `json:"source,omitempty"`
	Target     Target            `json:"target"`
}

// DefaultLinkName is the name of a link that gives none.
const DefaultLinkName = "default"

// LinkName is the link's name, given or default.
func (l Link) LinkName() string {
	if l.Name == "" {
		return DefaultLinkName
	}
	return l.Name
}

// ConfigDefinition is what one end of a link is configured with.
type ConfigDefinition struct {
	Config  []Config `json:"config,omitempty"`
	Secrets []Secret `json:"secrets,omitempty"`
}

// Target is the far end of a link.
type Target struct {
	Name    string   `json:"name"` // of an entry of spec.components
	Config  []Config `json:"config,omitempty"`
	Secrets []Secret `json:"secrets,omitempty"`
}

// Spread is the properties of a spreadscaler or daemonscaler: how many
// instances, and where. For a daemonscaler the number is for each eligible host.
type Spread struct {
	Instances int            `json:"instances"` // "replicas" is an old spelling
	Spread    []SpreadTarget `json:"spread,omitempty"`
}

// SpreadTarget is a share of the instances for the hosts with certain labels.
type SpreadTarget struct {
	Name         string            `json:"name"`
	Requirements map[string]string `json:"requirements,omitempty"` // labels; none: every host
	Weight       *int              `json:"weight,omitempty"`       // nil: DefaultWeight
}

// DefaultWeight is the weight of a spread that gives none.
const DefaultWeight = 100

// Version is the version annotation, "" when there is none.
func (m Manifest) Version() string { return m.Metadata.Annotations[AnnotationVersion] }

// Description is the description annotation, nil when there is none.
func (m Manifest) Description() *string {
	if text, ok := m.Metadata.Annotations[AnnotationDescription]; ok {
		return &text
	}
	return nil
}

// Shared reports whether other applications may refer to the components.
func (m Manifest) Shared() bool { return m.Metadata.Annotations[AnnotationShared] == "true" }
