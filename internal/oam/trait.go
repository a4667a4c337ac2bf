package oam

import "encoding/json"

var traitShape = shape{what: "a trait", keys: []string{"type", "properties"}, closed: true, shortest: 2}

// trait reads a trait by the shape of its properties, whatever its type: a link
// if they can be one, else a scaler, else anything.
func (d *decoder) trait(v value) Trait {
	f := d.object(v, traitShape)
	t := Trait{Type: d.text(f.required("type"))}
	properties := f.required("properties")
	if properties.node == nil || d.err != nil {
		return t
	}
	if mayBeLink(properties) {
		asLink := d.attempt(t.Type)
		asLink.viaJSON = true
		if parts := asLink.linkParts(properties); asLink.err == nil {
			t.Link = d.link(parts)
			d.notes.addAll(asLink.notes)
			return t
		}
	}
	asScaler := d.attempt(t.Type)
	if spread := asScaler.spread(properties); asScaler.err == nil {
		t.Spread = &spread
		d.notes.addAll(asScaler.notes)
		return t
	}
	if asScaler.outOfRange && isScaler(t.Type) {
		d.err = asScaler.err
		return t
	}
	t.Custom = d.custom(properties)
	return t
}

// attempt returns a decoder that finds out whether properties have a shape. What
// other types than ours carry is taken for ours as seldom as wadm does.
func (d *decoder) attempt(traitType string) *decoder {
	return &decoder{format: d.format, strict: true, exact: traitType != TraitLink && !isScaler(traitType)}
}

func (d *decoder) custom(v value) json.RawMessage {
	raw, err := compactJSON(v.plain())
	if err != nil {
		d.fail(v, "the properties cannot be written as JSON: "+err.Error())
	}
	return raw
}

func isScaler(traitType string) bool {
	return traitType == TraitSpreadScaler || traitType == TraitDaemonScaler
}
