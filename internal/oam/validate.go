package oam

import (
	"fmt"
	"iter"
	"strconv"
)

// Validate returns what breaks a rule: first of wadm's rules in its order, so
// that the first error is the one wadm would tell, then of those wadm does not
// have.
func (d *Document) Validate() []Finding {
	c := checker{Document: d, names: map[string]int{}}
	for i, component := range d.Manifest.Spec.Components {
		if _, twice := c.names[component.Name]; !twice {
			c.names[component.Name] = i
		}
	}
	for _, rule := range rules {
		rule(&c)
	}
	c.found.addAll(d.notes)
	return c.found.all()
}

var rules = []func(*checker){
	(*checker).name,
	(*checker).versionLatest,
	(*checker).labelKeys,
	(*checker).annotationKeys,
	(*checker).components,
	(*checker).linkTargets,
	(*checker).interfaces,
	(*checker).danglingLinks,
	(*checker).policiesOfSecrets,
	(*checker).shapesOfTraits,
	(*checker).imagesAndReferences,
	(*checker).duplicateLinks,
	(*checker).duplicateLinkConfigs,
	(*checker).deprecatedLinkConfigs,

	(*checker).version,
	(*checker).ids,
	(*checker).scalers,
	(*checker).header,
	(*checker).policies,
	(*checker).images,
	(*checker).links,
	(*checker).ignoredTraits,
	(*checker).conflicts,
}

// checker collects findings about a document.
type checker struct {
	*Document
	names map[string]int // of components: index of the first
	found findings
}

func (c *checker) error(rule, path, format string, args ...any) {
	c.add(Error, rule, path, fmt.Sprintf(format, args...))
}

func (c *checker) warn(rule, path, format string, args ...any) {
	c.add(Warning, rule, path, fmt.Sprintf(format, args...))
}

func (c *checker) add(level Level, rule, path, message string) {
	f := Finding{Level: level, Rule: rule, Path: path, Message: message}
	if c.tree != nil && c.found.hasRoom(level) {
		_, at := c.tree.find(path)
		f.Line, f.Column = at.line, at.column
	}
	c.found.add(f)
}

func entryIndex(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func componentPath(i int, rest string) string { return fmt.Sprintf("spec.components[%d]%s", i, rest) }

// place is a trait in the manifest.
type place struct{ component, trait int }

// path leads to the trait's properties and on.
func (p place) path(rest string) string {
	return componentPath(p.component, fmt.Sprintf(".traits[%d].properties%s", p.trait, rest))
}

// traits are all traits, in order.
func (c *checker) traits() iter.Seq2[place, Trait] {
	return func(yield func(place, Trait) bool) {
		for i, component := range c.Manifest.Spec.Components {
			for j, t := range component.Traits {
				if !yield(place{i, j}, t) {
					return
				}
			}
		}
	}
}

// linkTraits are the traits of type link that are links.
func (c *checker) linkTraits() iter.Seq2[place, *Link] {
	return func(yield func(place, *Link) bool) {
		for p, t := range c.traits() {
			if t.Type == TraitLink && t.Link != nil && !yield(p, t.Link) {
				return
			}
		}
	}
}
