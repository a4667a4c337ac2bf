package oam

import "fmt"

var (
	manifestShape         = shape{"a manifest", []string{"apiVersion", "kind", "metadata", "spec"}, true}
	metadataShape         = shape{"metadata", []string{"name", "annotations", "labels"}, false}
	specificationShape    = shape{"a spec", []string{"components", "policies"}, false}
	policyShape           = shape{"a policy", []string{"name", "type", "properties"}, false}
	componentShape        = shape{"a component", []string{"name", "type", "properties", "traits"}, false}
	propertiesShape       = shape{"a component's properties", []string{"image", "application", "id", "config", "secrets"}, true}
	sharedRefShape        = shape{"an application reference", []string{"name", "component"}, false}
	configShape           = shape{"a config", []string{"name", "properties"}, true}
	secretShape           = shape{"a secret", []string{"name", "properties"}, false}
	secretPropertiesShape = shape{"a secret's properties", []string{"policy", "key", "field", "version"}, false}
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

	c.Traits = noneIsNil(listOf(d, f.optional("traits"), (*decoder).trait))
	return c
}

func (d *decoder) componentType(v value) ComponentType {
	switch written := d.text(v); written {
	case "component", "actor":
		return TypeComponent
	case "capability":
		return TypeCapability
	default:
		if v.node != nil {
			d.fail(v, fmt.Sprintf("%s is no type of component; the types are component, capability and actor", quote(written)))
		}
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
