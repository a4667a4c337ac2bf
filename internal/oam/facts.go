package oam

import "slices"

// Facts is what other applications need to know of a manifest.
type Facts struct {
	Shared     bool                     `json:"shared,omitempty"`
	Components map[string]ComponentType `json:"components,omitempty"` // that it runs, by name; references are not among them
	IDs        []string                 `json:"ids,omitempty"`        // of what it runs, explicit or following from names, each once, sorted
	Explicit   map[string]string        `json:"explicit,omitempty"`   // those ids that do not follow from names, by name
	References []Reference              `json:"references,omitempty"` // in document order
}

// Reference is a use of a component of a shared application.
type Reference struct {
	Application string        `json:"application"`
	Component   string        `json:"component"`
	Type        ComponentType `json:"type"`
}

// Facts returns what other applications need to know of the manifest.
func (m Manifest) Facts() Facts {
	facts := Facts{Shared: m.Shared()}
	for _, c := range m.Spec.Components {
		if ref := c.Properties.Application; ref != nil {
			facts.References = append(facts.References, Reference{Application: ref.Name, Component: ref.Component, Type: c.Type})
			continue
		}
		if facts.Components == nil {
			facts.Components = map[string]ComponentType{}
		}
		facts.Components[c.Name] = c.Type
		if c.Properties.ID != "" {
			if facts.Explicit == nil {
				facts.Explicit = map[string]string{}
			}
			facts.Explicit[c.Name] = c.Properties.ID
		}
		facts.IDs = append(facts.IDs, ComponentID(m.Metadata.Name, c.Name, c.Properties.ID))
	}
	slices.Sort(facts.IDs)
	facts.IDs = slices.Compact(facts.IDs)
	return facts
}

// Resolve returns the manifest with the ids under which the components of shared
// applications run that it refers to. An id that it says itself stays, and so
// does a reference of which no id is known.
func (m Manifest) Resolve(ids map[Reference]string) Manifest {
	m.Spec.Components = slices.Clone(m.Spec.Components)
	for i := range m.Spec.Components {
		c := &m.Spec.Components[i]
		if ref := c.Properties.Application; ref != nil && c.Properties.ID == "" {
			c.Properties.ID = ids[Reference{Application: ref.Name, Component: ref.Component, Type: c.Type}]
		}
	}
	return m
}
