package oam

// maxInstances is more than a lattice runs of one component.
const maxInstances = 1_000_000

// shapesOfTraits reports links and scalers whose properties are something else,
// and says why.
func (c *checker) shapesOfTraits() {
	for p, t := range c.traits() {
		switch {
		case t.Type == TraitLink && t.Spread != nil:
			c.error(RuleLinkProperties, p.path(""), "the properties of the link are those of a scaler; %s", linkShape.hint())
		case t.Type == TraitLink && t.Link == nil:
			c.badShape(RuleLinkProperties, p, t, func(d *decoder, v value) { d.linkParts(v) })
		case isScaler(t.Type) && t.Link == nil && t.Spread == nil:
			c.badShape(RuleScalerProperties, p, t, func(d *decoder, v value) { d.spread(v) })
		case isScaler(t.Type) && t.Link != nil:
			c.warn(RuleTraitIgnored, p.path(""), "the properties of the %s are those of a link; it is neither one nor the other and has no effect", t.Type)
		}
	}
}

// badShape reads the properties once more, for the reason they are not what the
// type says.
func (c *checker) badShape(rule string, p place, t Trait, read func(*decoder, value)) {
	path, reason := p.path(""), "there are none"
	if properties := c.properties(p, t); properties != nil {
		d := decoder{strict: true, viaJSON: t.Type == TraitLink}
		read(&d, value{properties, path})
		if d.err != nil {
			path, reason = d.err.Path, d.err.Message
		}
	}
	c.error(rule, path, "the properties are not those of a %s: %s", t.Type, reason)
}

// properties are those of a trait as they stand in the text or, without one, as
// they are kept.
func (c *checker) properties(p place, t Trait) *node {
	if c.tree != nil {
		written, _ := c.tree.find(p.path(""))
		return written
	}
	kept, _ := readKeptJSON(t.Custom)
	return kept
}

// ignoredTraits reports traits of types that mean nothing.
func (c *checker) ignoredTraits() {
	for p, t := range c.traits() {
		if t.Type != TraitLink && !isScaler(t.Type) {
			c.warn(RuleTraitIgnored, componentPath(p.component, entryIndex(".traits", p.trait)), "traits of type %s have no effect; the types are %s, %s and %s",
				quote(t.Type), TraitLink, TraitSpreadScaler, TraitDaemonScaler)
		}
	}
}

// scalers reports numbers nothing can run by, and components that do not run.
func (c *checker) scalers() {
	for i, component := range c.Manifest.Spec.Components {
		scalers := 0
		for j, t := range component.Traits {
			if !isScaler(t.Type) || t.Spread == nil {
				continue
			}
			scalers++
			p := place{i, j}
			if scalers == 2 {
				c.warn(RuleSeveralScalers, p.path(""), "component %s has several scalers, which act on the same instances; keep one of them", quote(component.Name))
			}
			c.numbers(p, t.Spread)
			c.spreadNames(p, t.Spread)
		}
		if firstScaler(component) < 0 && component.Type == TypeComponent && component.Properties.Image != "" {
			c.warn(RuleNoScaler, componentPath(i, ""), "component %s has no scaler and will never be started; add a trait of type %s", quote(component.Name), TraitSpreadScaler)
		}
	}
}

func (c *checker) numbers(p place, s *Spread) {
	if s.Instances > maxInstances {
		c.error(RuleInstances, p.path(".instances"), "%d instances are too many; at most %d are possible", s.Instances, maxInstances)
	}
	if len(s.Spread) == 0 {
		return
	}
	for _, target := range s.Spread {
		if target.Weight == nil || *target.Weight > 0 {
			return
		}
	}
	c.error(RuleWeights, p.path(".spread"), "all weights are 0, so that no share can be computed; give one of them at least 1")
}

func (c *checker) spreadNames(p place, s *Spread) {
	seen := map[string]bool{}
	for i, target := range s.Spread {
		if seen[target.Name] {
			c.warn(RuleDuplicateSpread, p.path(entryIndex(".spread", i)+".name"), "the name %s is that of another spread here; instances could not be told apart", quote(target.Name))
		}
		seen[target.Name] = true
	}
}
