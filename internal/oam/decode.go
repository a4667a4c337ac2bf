package oam

var (
	manifestShape = shape{
		what: "a manifest", keys: []string{"apiVersion", "kind", "metadata", "spec"}, closed: true, shortest: 4,
	}
	metadataShape = shape{
		what: "metadata", keys: []string{"name", "annotations", "labels"}, shortest: 2,
	}
	specificationShape = shape{
		what: "a spec", keys: []string{"components", "policies"}, shortest: 1,
	}
	policyShape = shape{
		what: "a policy", keys: []string{"name", "properties", "type"}, shortest: 3,
	}
	componentShape = shape{
		what: "a component", keys: []string{"name", "type", "properties", "traits"}, shortest: noList,
	}
	propertiesShape = shape{
		what: "a component's properties", keys: []string{"image", "application", "id", "config", "secrets"}, closed: true, shortest: 3,
	}
	sharedRefShape = shape{
		what: "an application reference", keys: []string{"name", "component"}, shortest: 2,
	}
	configShape = shape{
		what: "a config", keys: []string{"name", "properties"}, closed: true, shortest: 2,
	}
	secretShape = shape{
		what: "a secret", keys: []string{"name", "properties"}, shortest: 2,
	}
	secretPropertiesShape = shape{
		what: "a secret's properties", keys: []string{"policy", "key", "field", "version"}, shortest: 2,
	}
)

func (d *decoder) manifest(v value) Manifest {
	f := d.object(v, manifestShape)
	return Manifest{
		APIVersion: d.text(f.required("apiVersion")),
		Kind:       d.text(f.required("kind")),
		Metadata:   d.metadata(f.required("metadata")),
		Spec:       d.specification(f.required("spec")),
	}
}

func (d *decoder) metadata(v value) Metadata {
	f := d.object(v, metadataShape)
	return Metadata{
		Name:        d.text(f.required("name")),
		Annotations: emptyIsNil(d.texts(f.lenient("annotations"))),
		Labels:      emptyIsNil(d.texts(f.lenient("labels"))),
	}
}

func (d *decoder) specification(v value) Specification {
	f := d.object(v, specificationShape)
	return Specification{
		Components: listOf(d, f.required("components"), (*decoder).component),
		Policies:   noneIsNil(listOf(d, f.lenient("policies"), (*decoder).policy)),
	}
}

func (d *decoder) policy(v value) Policy {
	f := d.object(v, policyShape)
	return Policy{
		Name:       d.text(f.required("name")),
		Type:       d.text(f.required("type")),
		Properties: d.texts(f.required("properties")),
	}
}

func (d *decoder) component(v value) Component {
	f := d.object(v, componentShape)
	c := Component{Name: d.text(f.required("name"))}

	strict := d.strict
	d.strict = true
	c.Type = d.componentType(f.required("type"))
	c.Properties = d.properties(f.required("properties"))
	d.strict = strict

	c.Traits = listOf(d, f.optional("traits"), (*decoder).trait)
	return c
}

// componentType reads a type. As wadm's decoder takes the number of a type for
// its name, so does this one.
func (d *decoder) componentType(v value) ComponentType {
	if v.node == nil {
		return ""
	}
	name := v.text
	if whole, ok := parseWhole(v.text); ok && v.kind == number {
		name = whole.String()
	}
	switch {
	case v.kind == text && (name == "component" || name == "actor") || v.kind == number && name == "0":
		return TypeComponent
	case v.kind == text && name == "capability" || v.kind == number && name == "1":
		return TypeCapability
	default:
		d.refuse(v, "a type of component", "the types are component, capability and actor")
		return ""
	}
}

func (d *decoder) properties(v value) Properties {
	f := d.object(v, propertiesShape)
	p := Properties{
		Image:   d.text(f.optional("image")),
		ID:      d.text(f.optional("id")),
		Config:  d.configs(f.lenient("config")),
		Secrets: d.secrets(f.lenient("secrets")),
	}
	if v := f.optional("application"); v.node != nil {
		p.Application = d.sharedRef(v)
	}
	return p
}

func (d *decoder) sharedRef(v value) *SharedRef {
	f := d.object(v, sharedRefShape)
	return &SharedRef{Name: d.text(f.required("name")), Component: d.text(f.required("component"))}
}

func (d *decoder) configs(v value) []Config {
	return noneIsNil(listOf(d, v, (*decoder).config))
}

func (d *decoder) config(v value) Config {
	f := d.object(v, configShape)
	return Config{Name: d.text(f.required("name")), Properties: d.texts(f.optional("properties"))}
}

func (d *decoder) secrets(v value) []Secret {
	return noneIsNil(listOf(d, v, (*decoder).secret))
}

func (d *decoder) secret(v value) Secret {
	f := d.object(v, secretShape)
	return Secret{Name: d.text(f.required("name")), Properties: d.secretProperties(f.required("properties"))}
}

func (d *decoder) secretProperties(v value) SecretProperties {
	f := d.object(v, secretPropertiesShape)
	return SecretProperties{
		Policy:  d.text(f.required("policy")),
		Key:     d.text(f.required("key")),
		Field:   d.text(f.optional("field")),
		Version: d.text(f.optional("version")),
	}
}

func emptyIsNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

func noneIsNil[T any](items []T) []T {
	if len(items) == 0 {
		return nil
	}
	return items
}
