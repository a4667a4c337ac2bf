package oam

// Facts is what other applications need to know of a manifest.
type Facts struct {
	Shared     bool                     `json:"shared,omitempty"`
	Components map[string]ComponentType `json:"components,omitempty"` // that it runs, by name; references are not among them
	IDs        []string                 `json:"ids,omitempty"`        // of what it runs, explicit or following from names, each once, sorted
	References []Reference              `json:"references,omitempty"` // in document order
}

// Reference is a use of a component of a shared application.
type Reference struct {
	Application string        `json:"application"`
	Component   string        `json:"component"`
	Type        ComponentType `json:"type"`
}
