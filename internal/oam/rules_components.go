package oam

import (
	"strings"
	"unicode"

	"github.com/distribution/reference"
)

// components reports names and explicit ids that are there twice, each repeat.
func (c *checker) components() {
	names, ids := map[string]bool{}, map[string]bool{}
	for i, component := range c.Manifest.Spec.Components {
		if name := component.Name; names[name] {
			c.error(RuleDuplicateComponent, componentPath(i, ".name"), "Duplicate component name in manifest: %s", name)
		}
		names[component.Name] = true
		id := component.Properties.ID
		if id != "" && ids[id] {
			c.error(RuleDuplicateID, componentPath(i, ".properties.id"), "Duplicate component identifier in manifest: %s", id)
		}
		ids[id] = true
	}
}

// imagesAndReferences reports at most one thing per component.
func (c *checker) imagesAndReferences() {
	for i, component := range c.Manifest.Spec.Components {
		p := component.Properties
		switch ref := p.Application; {
		case p.Image != "" && ref != nil:
			c.error(RuleImageOrApplication, componentPath(i, ".properties"),
				"component %s has both an image and an application; keep one of them", quote(component.Name))
		case p.Image == "" && ref == nil:
			c.error(RuleImageOrApplication, componentPath(i, ".properties"),
				"component %s has neither an image nor an application; give one of them", quote(component.Name))
		case ref != nil && len(p.Config) > 0:
			c.error(RuleReferenceConfig, componentPath(i, ".properties.config"),
				"component %s belongs to the application %s and cannot be given config here", quote(component.Name), quote(ref.Name))
		case ref != nil && len(p.Secrets) > 0:
			c.error(RuleReferenceSecrets, componentPath(i, ".properties.secrets"),
				"component %s belongs to the application %s and cannot be given secrets here", quote(component.Name), quote(ref.Name))
		case ref != nil && firstScaler(component) >= 0:
			c.error(RuleReferenceScaler, place{i, firstScaler(component)}.path(""),
				"component %s belongs to the application %s and cannot be scaled here", quote(component.Name), quote(ref.Name))
		}
	}
}

func firstScaler(component Component) int {
	for i, t := range component.Traits {
		if isScaler(t.Type) {
			return i
		}
	}
	return -1
}

// ids reports what cannot run under its id: two at once, or as a subject.
func (c *checker) ids() {
	type owner struct {
		name     string
		explicit bool
	}
	owners := map[string]owner{}
	for i, component := range c.Manifest.Spec.Components {
		p := component.Properties
		if p.ID != "" && p.Application != nil {
			c.warn(RuleReferenceID, componentPath(i, ".properties.id"),
				"the id has no effect; the id of component %s is that in the application %s", quote(component.Name), quote(p.Application.Name))
		}
		if p.Application != nil {
			continue
		}
		if !isToken(p.ID) {
			c.error(RuleIDToken, componentPath(i, ".properties.id"),
				"the id %s cannot be part of a NATS subject; leave out spaces, dots, asterisks and greater-than signs", quote(p.ID))
		}
		id := ComponentID(c.Manifest.Metadata.Name, component.Name, p.ID)
		mine := owner{component.Name, p.ID != ""}
		other, taken := owners[id]
		switch {
		case !taken:
			owners[id] = mine
		case other.name != mine.name && (!other.explicit || !mine.explicit):
			c.error(RuleIDCollision, componentPath(i, ""), "components %s and %s would both run under the id %s; give one of them an id of its own",
				quote(other.name), quote(mine.name), quote(id))
		}
	}
}

func isToken(id string) bool {
	return !strings.ContainsAny(id, ".*>") && !strings.ContainsFunc(id, func(char rune) bool {
		return unicode.IsSpace(char) || unicode.IsControl(char)
	})
}

func (c *checker) images() {
	for i, component := range c.Manifest.Spec.Components {
		image := component.Properties.Image
		if image == "" || strings.HasPrefix(image, "file://") {
			continue
		}
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			c.warn(RuleImageReference, componentPath(i, ".properties.image"),
				"the image %s is neither an OCI reference nor a file:// address: %v", quote(image), err)
		}
	}
}
