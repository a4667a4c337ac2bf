package lattice

import (
	"maps"
	"slices"

	"tidewait/internal/scaler"
)

// PutLink notes a link that was put.
func (p *Projection) PutLink(l scaler.Link) Change {
	p.seq++
	var c changes
	p.putLink(l, &c)
	return p.changed(&c)
}

// DeleteLink notes a link that was deleted.
func (p *Projection) DeleteLink(t scaler.Tuple) Change {
	p.seq++
	var c changes
	p.dropLink(t, &c)
	return p.changed(&c)
}

func (p *Projection) putLink(l scaler.Link, c *changes) {
	t := l.Tuple()
	p.touched[t] = p.seq
	i := p.link(t)
	switch {
	case i < 0:
		p.links = append(slices.Clip(p.links), l)
	case sameLink(p.links[i], l):
		return
	default:
		p.links = slices.Clone(p.links)
		p.links[i] = l
	}
	note(&c.links, t)
}

// deleteLink folds in an event. One without a target found no link, which is
// news when one is known.
func (p *Projection) deleteLink(t scaler.Tuple, c *changes, q *Questions) {
	if t.Target != "" {
		p.dropLink(t, c)
		return
	}
	q.Links = slices.ContainsFunc(p.links, func(l scaler.Link) bool {
		known := l.Tuple()
		known.Target = ""
		return known == t
	})
}

func (p *Projection) dropLink(t scaler.Tuple, c *changes) {
	p.touched[t] = p.seq
	if i := p.link(t); i >= 0 {
		p.links = slices.Delete(slices.Clone(p.links), i, i+1)
		note(&c.links, t)
	}
}

func (p *Projection) link(t scaler.Tuple) int {
	return slices.IndexFunc(p.links, func(l scaler.Link) bool { return l.Tuple() == t })
}

// sameLink compares links in full, order included: a host keeps it.
func sameLink(a, b scaler.Link) bool {
	return a.Tuple() == b.Tuple() && slices.Equal(a.Interfaces, b.Interfaces) &&
		slices.Equal(a.SourceConfig, b.SourceConfig) && slices.Equal(a.TargetConfig, b.TargetConfig)
}

// Links folds in what was answered to a question of that mark, unless a later
// one is answered already. Links that have been heard of since then stay as they
// are.
func (p *Projection) Links(answered []scaler.Link, asked Mark) Change {
	p.seq++
	if p.told > uint64(asked) {
		return Change{}
	}
	p.told = uint64(asked)
	var c changes
	maps.DeleteFunc(p.touched, func(_ scaler.Tuple, at uint64) bool { return at <= uint64(asked) })
	before := make(map[scaler.Tuple]scaler.Link, len(p.links))
	for _, l := range p.links {
		before[l.Tuple()] = l
	}
	after := make([]scaler.Link, 0, len(answered))
	taken := map[scaler.Tuple]bool{}
	for _, l := range answered {
		t := l.Tuple()
		have, there := before[t]
		if _, newer := p.touched[t]; newer {
			if l = have; !there {
				continue
			}
		}
		if taken[t] {
			continue
		}
		taken[t] = true
		after = append(after, l)
		if !there || !sameLink(have, l) {
			note(&c.links, t)
		}
	}
	for _, l := range p.links {
		t := l.Tuple()
		if taken[t] {
			continue
		}
		if _, newer := p.touched[t]; newer {
			after = append(after, l)
			continue
		}
		note(&c.links, t)
	}
	p.links = after
	return p.changed(&c)
}

// Want sets which configurations are wanted, and returns those of them that are
// not known.
func (p *Projection) Want(names map[string]bool) (unknown []string) {
	maps.DeleteFunc(p.configs, func(name string, _ *config) bool { return !names[name] })
	for name := range names {
		c := p.configs[name]
		if c == nil {
			c = &config{}
			p.configs[name] = c
		}
		if !c.known {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// Wanted returns the names of the configurations that are wanted.
func (p *Projection) Wanted() []string { return slices.Sorted(maps.Keys(p.configs)) }

// Config folds in what was answered about a configuration to a question of that
// mark, unless it has been heard of since then.
func (p *Projection) Config(name string, values map[string]string, found bool, asked Mark) Change {
	p.seq++
	var c changes
	if have := p.configs[name]; have != nil && have.told <= uint64(asked) {
		have.told = uint64(asked)
		have.set(name, values, found, &c)
	}
	return p.changed(&c)
}

// SetConfig notes the values of a configuration that was put, or that it was
// deleted.
func (p *Projection) SetConfig(name string, values map[string]string, found bool) Change {
	p.seq++
	var c changes
	p.setConfig(name, values, found, &c)
	return p.changed(&c)
}

func (p *Projection) setConfig(name string, values map[string]string, found bool, c *changes) {
	if have := p.configs[name]; have != nil {
		have.told = p.seq
		have.set(name, values, found, c)
	}
}

func (have *config) set(name string, values map[string]string, found bool, c *changes) {
	if have.found != found || found && !maps.Equal(have.values, values) {
		note(&c.configs, name)
	}
	have.known, have.found, have.values = true, found, values
}
