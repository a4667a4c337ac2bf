package oam

import (
	"bytes"
	"encoding/json"
	"maps"
)

// JSON returns the normal form: what is stored, and what clients get. It is
// compact; json.Marshal of a manifest says the same.
func (m Manifest) JSON() ([]byte, error) { return compactJSON(m) }

// WithVersion returns a copy with the version annotation set.
func (m Manifest) WithVersion(v string) Manifest {
	annotations := maps.Clone(m.Metadata.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationVersion] = v
	m.Metadata.Annotations = annotations
	return m
}

// compactJSON is json.Marshal without escapes for HTML.
func compactJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads a manifest like [Parse], but for the limits: those are of
// documents that people write.
func (m *Manifest) UnmarshalJSON(data []byte) error {
	return unmarshal(data, m, (*decoder).manifest)
}

// UnmarshalJSON reads a trait as it is read in a manifest.
func (t *Trait) UnmarshalJSON(data []byte) error {
	return unmarshal(data, t, (*decoder).trait)
}

func unmarshal[T any](data []byte, into *T, read func(*decoder, value) T) error {
	tree, err := readKeptJSON(data)
	if err != nil {
		return err
	}
	d := decoder{format: JSON}
	result := read(&d, value{node: tree})
	if d.err != nil {
		return d.err
	}
	*into = result
	return nil
}

// MarshalJSON writes lists that must be there as lists.
func (s Specification) MarshalJSON() ([]byte, error) {
	type plain Specification
	if s.Components == nil {
		s.Components = []Component{}
	}
	return compactJSON(plain(s))
}

// MarshalJSON writes properties, which must be there, as a mapping.
func (p Policy) MarshalJSON() ([]byte, error) {
	type plain Policy
	if p.Properties == nil {
		p.Properties = map[string]string{}
	}
	return compactJSON(plain(p))
}

// MarshalJSON writes lists that must be there as lists.
func (l Link) MarshalJSON() ([]byte, error) {
	type plain Link
	if l.Interfaces == nil {
		l.Interfaces = []string{}
	}
	return compactJSON(plain(l))
}

// MarshalJSON writes the type and the properties, whichever they are.
func (t Trait) MarshalJSON() ([]byte, error) {
	var written struct {
		Type       string `json:"type"`
		Properties any    `json:"properties"`
	}
	written.Type = t.Type
	switch {
	case t.Link != nil:
		written.Properties = t.Link
	case t.Spread != nil:
		written.Properties = t.Spread
	default:
		written.Properties = t.Custom
	}
	return compactJSON(written)
}
