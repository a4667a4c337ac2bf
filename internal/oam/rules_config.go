package oam

import (
	"iter"
	"maps"
)

// policiesOfSecrets looks at policies that secrets name, and at no others.
func (c *checker) policiesOfSecrets() {
	policies := map[string]Policy{}
	for _, p := range c.Manifest.Spec.Policies {
		policies[p.Name] = p
	}
	for path, secret := range c.secrets() {
		name := secret.Properties.Policy
		path += ".properties.policy"
		switch policy, known := policies[name]; {
		case !known:
			c.error(RuleUnknownPolicy, path, "secret %s names the policy %s, which is not in spec.policies", quote(secret.Name), quote(name))
		case policy.Type != SecretPolicyType:
			c.error(RulePolicyType, path, "secret %s names the policy %s, which has the type %s; %s is wanted", quote(secret.Name), quote(name), quote(policy.Type), SecretPolicyType)
		default:
			if _, ok := policy.Properties["backend"]; !ok {
				c.error(RulePolicyBackend, path, "secret %s names the policy %s, which has no backend among its properties", quote(secret.Name), quote(name))
			}
		}
	}
}

func (c *checker) policies() {
	seen := map[string]bool{}
	for i, p := range c.Manifest.Spec.Policies {
		if seen[p.Name] {
			c.warn(RuleDuplicatePolicy, entryIndex("spec.policies", i)+".name", "the name %s is that of another policy; the last one counts", quote(p.Name))
		}
		seen[p.Name] = true
	}
}

// conflicts reports configs and secrets that are kept under one name on the
// lattice with different contents: the last one written counts, for everybody.
func (c *checker) conflicts() {
	app := c.Manifest.Metadata.Name
	configs := map[string]Config{}
	for path, config := range c.configs() {
		if !config.Managed() {
			continue
		}
		name := ConfigName(app, config)
		other, taken := configs[name]
		switch {
		case !taken:
			configs[name] = config
		case !maps.Equal(other.Properties, config.Properties):
			c.conflict(RuleConfigConflict, path, "config", config.Name, other.Name, name)
		}
	}
	secrets := map[string]Secret{}
	for path, secret := range c.secrets() {
		name := SecretName(app, secret.Name)
		other, taken := secrets[name]
		switch {
		case !taken:
			secrets[name] = secret
		case other.Properties != secret.Properties:
			c.conflict(RuleSecretConflict, path, "secret", secret.Name, other.Name, name)
		}
	}
}

func (c *checker) conflict(rule, path, what, name, other, kept string) {
	c.warn(rule, path+".name", "%s %s and %s %s before it have different properties, but both are kept as %s; name one of them differently",
		what, quote(name), what, quote(other), quote(kept))
}

// secrets are all secrets with the paths to them: of each component those of its
// links, then its own.
func (c *checker) secrets() iter.Seq2[string, Secret] {
	return collect(c, func(end ConfigDefinition) []Secret { return end.Secrets }, ".secrets")
}

// configs are all configs with the paths to them, in the same order.
func (c *checker) configs() iter.Seq2[string, Config] {
	return collect(c, func(end ConfigDefinition) []Config { return end.Config }, ".config")
}

func collect[T any](c *checker, of func(ConfigDefinition) []T, key string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		each := func(path string, end ConfigDefinition) bool {
			for i, item := range of(end) {
				if !yield(entryIndex(path+key, i), item) {
					return false
				}
			}
			return true
		}
		for i, component := range c.Manifest.Spec.Components {
			for j, t := range component.Traits {
				if t.Link == nil {
					continue
				}
				p, target := place{i, j}, t.Link.Target
				if !each(p.path(".target"), ConfigDefinition{target.Config, target.Secrets}) {
					return
				}
				if t.Link.Source != nil && !each(p.path(".source"), *t.Link.Source) {
					return
				}
			}
			if own := component.Properties; !each(componentPath(i, ".properties"), ConfigDefinition{own.Config, own.Secrets}) {
				return
			}
		}
	}
}
