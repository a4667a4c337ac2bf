package oam

import (
	"maps"
	"slices"
	"strings"
)

// knownInterfaces are those of namespaces that are questioned.
var knownInterfaces = map[string]map[string][]string{
	"wrpc": {
		"blobstore": {"blobstore"},
		"http":      {"incoming-handler", "outgoing-handler"},
		"keyvalue":  {"atomics", "store"},
	},
	"wasi": {
		"blobstore": {"blobstore"},
		"config":    {"runtime"},
		"http":      {"incoming-handler", "outgoing-handler"},
		"keyvalue":  {"atomics", "batch", "store", "watch"},
		"logging":   {"logging"},
	},
	"wasmcloud": {
		"messaging": {"consumer", "handler"},
	},
}

// linkTargets reports all targets that are not in the manifest at once,
// whatever the type of the trait.
func (c *checker) linkTargets() {
	missing := map[string]bool{}
	var first string
	for p, t := range c.traits() {
		if t.Link == nil {
			continue
		}
		if _, ok := c.names[t.Link.Target.Name]; ok {
			continue
		}
		if len(missing) == 0 {
			first = p.path(".target.name")
		}
		missing[t.Link.Target.Name] = true
	}
	if len(missing) > 0 {
		c.error(RuleLinkTarget, first, "The following capability component(s) are missing from the manifest: [%s]",
			strings.Join(quoteAll(slices.Sorted(maps.Keys(missing))), ", "))
	}
}

func quoteAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote(text)
	}
	return quoted
}

func (c *checker) interfaces() {
	for p, link := range c.linkTraits() {
		packages, known := knownInterfaces[link.Namespace]
		if !known {
			continue
		}
		interfaces, known := packages[link.Package]
		for i, name := range link.Interfaces {
			path := p.path(entryIndex(".interfaces", i))
			switch {
			case !known:
				c.warn(RuleUnknownInterface, path, "%s:%s/%s is not known: the packages of %s are %s",
					link.Namespace, link.Package, name, link.Namespace, strings.Join(slices.Sorted(maps.Keys(packages)), ", "))
			case !slices.Contains(interfaces, name):
				c.warn(RuleUnknownInterface, path, "%s:%s/%s is not known: the interfaces of %s:%s are %s",
					link.Namespace, link.Package, name, link.Namespace, link.Package, strings.Join(interfaces, ", "))
			}
		}
	}
}

// danglingLinks repeats what linkTargets finds, a link at a time, and looks at
// what was meant to be a link.
func (c *checker) danglingLinks() {
	for p, t := range c.traits() {
		switch {
		case t.Type != TraitLink:
		case t.Link != nil:
			c.targetKnown(p, t.Link.Target.Name)
		case t.Custom != nil:
			c.targetOfCustom(p, t)
		}
	}
}

func (c *checker) targetKnown(p place, name string) {
	if _, ok := c.names[name]; !ok {
		c.warn(RuleDanglingLink, p.path(".target.name"), "the link's target %s is no component of the manifest", quote(name))
	}
}

func (c *checker) targetOfCustom(p place, t Trait) {
	properties := c.properties(p, t)
	if properties == nil {
		return // shapesOfTraits says so
	}
	target := properties.last("target")
	if target == nil {
		c.error(RuleLinkWithoutTarget, p.path(""), "the link has no target; name a component under target.name")
		return
	}
	name := target.last("name")
	if name == nil || name.kind != text {
		c.error(RuleLinkWithoutTarget, p.path(".target"), "the link's target has no name; name a component under target.name")
		return
	}
	c.targetKnown(p, name.text)
}

// duplicateLinks reports each repeat of an interface within a component's links
// of one name.
func (c *checker) duplicateLinks() {
	type identity struct {
		component                      int
		name, namespace, pkg, contract string
	}
	seen := map[identity]bool{}
	for p, link := range c.linkTraits() {
		for i, contract := range link.Interfaces {
			id := identity{p.component, link.LinkName(), link.Namespace, link.Package, contract}
			if seen[id] {
				c.error(RuleDuplicateLink, p.path(entryIndex(".interfaces", i)),
					"Duplicate link found inside component %s: %s:%s/%s is linked under the name %s already; give the links names of their own",
					quote(c.Manifest.Spec.Components[p.component].Name), link.Namespace, link.Package, contract, quote(link.LinkName()))
			}
			seen[id] = true
		}
	}
}

// duplicateLinkConfigs reports each repeat of a managed config's name within
// all links.
func (c *checker) duplicateLinkConfigs() {
	seen := map[string]bool{}
	check := func(p place, end string, configs []Config) {
		for i, config := range configs {
			if !config.Managed() {
				continue
			}
			if seen[config.Name] {
				c.error(RuleDuplicateLinkConfig, p.path(entryIndex(end, i)+".name"),
					"the name %s is that of another config of a link; give properties in one place and only the name in others", quote(config.Name))
			}
			seen[config.Name] = true
		}
	}
	for p, link := range c.linkTraits() {
		check(p, ".target.config", link.Target.Config)
		if link.Source != nil {
			check(p, ".source.config", link.Source.Config)
		}
	}
}

// deprecatedLinkConfigs looks at the text: the normal form has no trace of it.
func (c *checker) deprecatedLinkConfigs() {
	if c.tree == nil {
		return
	}
	for p, t := range c.traits() {
		if t.Type != TraitLink {
			continue
		}
		properties := c.properties(p, t)
		for _, end := range []string{"source", "target"} {
			if properties.last(end+"_config") != nil {
				c.warn(RuleDeprecatedLinkConfig, p.path("."+end+"_config"), "%s_config is an old name; write %s with config under it", end, end)
			}
		}
	}
}

// links reports links that have no effect, or not the one that is meant.
func (c *checker) links() {
	type identity struct {
		component                    int
		target, name, namespace, pkg string
	}
	seen := map[identity]bool{}
	for p, link := range c.linkTraits() {
		if len(link.Interfaces) == 0 {
			c.warn(RuleNoInterfaces, p.path(".interfaces"), "the link has no interfaces and connects nothing")
		}
		source := c.Manifest.Spec.Components[p.component]
		if i, ok := c.names[link.Target.Name]; ok && source.Type == TypeCapability && c.Manifest.Spec.Components[i].Type == TypeCapability {
			c.warn(RuleProviderLink, p.path(".target.name"), "the link is ignored: %s and %s are both capabilities, and one end must be a component",
				quote(source.Name), quote(link.Target.Name))
		}
		id := identity{p.component, link.Target.Name, link.LinkName(), link.Namespace, link.Package}
		if seen[id] {
			c.warn(RuleLinkOverwritten, p.path(""), "the host keeps only the last of several links named %s from %s to %s for %s:%s; list all interfaces in one link",
				quote(link.LinkName()), quote(source.Name), quote(link.Target.Name), link.Namespace, link.Package)
		}
		seen[id] = true
	}
}
