package scaler

import "slices"

// Tuple is what tells two links of a lattice apart.
type Tuple struct {
	Source    string `json:"source"`
	Target    string `json:"target"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Package   string `json:"package"`
}

// Tuple returns what tells the link apart.
func (l Link) Tuple() Tuple {
	return Tuple{l.Source, l.Target, l.Name, l.Namespace, l.Package}
}

func (t Tuple) link() *Link {
	return &Link{Source: t.Source, Target: t.Target, Name: t.Name, Namespace: t.Namespace, Package: t.Package}
}

// slot is what a host finds a link by when it is told to delete one: whatever
// its target.
func (t Tuple) slot() Tuple {
	t.Target = ""
	return t
}

// Resources are the things of an application that carry no mark of it, and
// have to be remembered until they are gone: links, and configurations that it
// makes, references to secrets among them. Instances are known by their
// annotations.
type Resources struct {
	Links   []Tuple  `json:"links,omitempty"`
	Configs []string `json:"configs,omitempty"`
}

// Makes returns the resources that scalers make, each once, in their order.
func Makes(list []Scaler) Resources { return resources(list, func(c Config) bool { return c.Managed }) }

// Uses returns the resources that scalers make or need, each once, in their
// order.
func Uses(list []Scaler) Resources { return resources(list, func(Config) bool { return true }) }

func resources(list []Scaler, which func(Config) bool) Resources {
	var r Resources
	for _, s := range list {
		if s.Link != nil {
			r.addLink(s.Link.Tuple())
		}
		for _, c := range s.Needs {
			if which(c) {
				r.addConfig(c.Name)
			}
		}
	}
	return r
}

// And returns what is in r or in o.
func (r Resources) And(o Resources) Resources {
	sum := Resources{Links: slices.Clone(r.Links), Configs: slices.Clone(r.Configs)}
	for _, l := range o.Links {
		sum.addLink(l)
	}
	for _, c := range o.Configs {
		sum.addConfig(c)
	}
	return sum
}

// Empty reports whether there is nothing in it.
func (r Resources) Empty() bool { return len(r.Links) == 0 && len(r.Configs) == 0 }

func (r *Resources) addLink(t Tuple) {
	if !slices.Contains(r.Links, t) {
		r.Links = append(r.Links, t)
	}
}

func (r *Resources) addConfig(name string) {
	if !slices.Contains(r.Configs, name) {
		r.Configs = append(r.Configs, name)
	}
}

// without returns the elements of all that are not in some.
func without[T comparable](all, some []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return slices.Contains(some, x) })
}
