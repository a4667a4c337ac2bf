package oam

var (
	linkShape = shape{
		what:     "a link",
		keys:     []string{"name", "namespace", "package", "interfaces", "source", "target"},
		oldKeys:  []string{"source_config", "target_config"},
		shortest: noList,
	}
	configDefinitionShape = shape{what: "a link's source", keys: []string{"config", "secrets"}}
	targetShape           = shape{what: "a link's target", keys: []string{"name", "config", "secrets"}, shortest: 1}
)

// neededOfLink are the keys without which nothing is a link.
var neededOfLink = []string{"namespace", "package", "interfaces"}

// mayBeLink keeps most of what is none from being read as a link.
func mayBeLink(v value) bool {
	for _, name := range neededOfLink {
		if v.last(name) == nil {
			return false
		}
	}
	return true
}

// linkParts is what makes properties a link: both ends, and the other keys.
type linkParts struct {
	fields
	source *ConfigDefinition
	target Target
}

// linkParts fails when the properties are not those of a link.
func (d *decoder) linkParts(v value) linkParts {
	f := d.object(v, linkShape)
	parts := linkParts{fields: f, target: d.linkTarget(f), source: d.linkSource(f)}
	for _, name := range neededOfLink {
		f.required(name)
	}
	return parts
}

// linkTarget reads a target, or the name of one and its configs beside it. A
// missing one has no name.
func (d *decoder) linkTarget(f fields) Target {
	v := f.get("target")
	switch {
	case v.node == nil:
		return Target{}
	case v.kind == text:
		return Target{Name: v.text, Config: d.configs(f.lenient("target_config"))}
	default:
		t := d.object(v, targetShape)
		return Target{
			Name:    d.text(t.required("name")),
			Config:  d.configs(t.lenient("config")),
			Secrets: d.secrets(t.lenient("secrets")),
		}
	}
}

// linkSource reads a source or, without one, configs in the old place.
func (d *decoder) linkSource(f fields) *ConfigDefinition {
	var source *ConfigDefinition
	if v := f.lenient("source_config"); v.node != nil {
		source = &ConfigDefinition{Config: d.configs(v)}
	}
	if v := f.lenient("source"); v.node != nil {
		s := d.object(v, configDefinitionShape)
		source = &ConfigDefinition{Config: d.configs(s.lenient("config")), Secrets: d.secrets(s.lenient("secrets"))}
	}
	return source
}

// link reads what a link says in words. Properties that are a link are nothing
// else when one of these is wrong: then the document is.
func (d *decoder) link(parts linkParts) *Link {
	strict := d.strict
	d.strict = true
	defer func() { d.strict = strict }()
	return &Link{
		Name:       d.text(parts.get("name")),
		Namespace:  d.text(parts.get("namespace")),
		Package:    d.text(parts.get("package")),
		Interfaces: listOf(d, parts.get("interfaces"), (*decoder).text),
		Source:     parts.source,
		Target:     parts.target,
	}
}
