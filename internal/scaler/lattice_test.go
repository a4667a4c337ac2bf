package scaler_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"tidewait/internal/scaler"
)

// lattice is a tiny model of hosts and what they do with commands. It fails the
// test on every command that a real host would refuse or that would do nothing.
type lattice struct {
	app     string
	hosts   map[string]*scaler.Host
	config  map[string][]string // of each entry, by host and id: which a state does not show
	links   []scaler.Link
	configs map[string]map[string]string
	bad     map[string]string // hosts that start nothing, and what they say
	log     []scaler.Command  // what was carried out
}

func newLattice(app string) *lattice {
	return &lattice{
		app: app, hosts: map[string]*scaler.Host{}, config: map[string][]string{},
		configs: map[string]map[string]string{}, bad: map[string]string{},
	}
}

func (l *lattice) join(id string, labels map[string]string) *scaler.Host {
	l.hosts[id] = &scaler.Host{ID: id, Labels: labels}
	return l.hosts[id]
}

func (l *lattice) leave(id string) { delete(l.hosts, id) }

// state is a copy of what can be seen, hosts in the order of a map.
func (l *lattice) state() scaler.State {
	s := scaler.State{Links: slices.Clone(l.links), Configs: maps.Clone(l.configs)}
	for _, h := range l.hosts {
		seen := *h
		seen.Components, seen.Providers = slices.Clone(h.Components), slices.Clone(h.Providers)
		s.Hosts = append(s.Hosts, seen)
	}
	return s
}

// entries returns where a host keeps what a command is about.
func (l *lattice) entries(t require.TestingT, c scaler.Command) *[]scaler.Instances {
	h := l.hosts[c.Host]
	require.NotNil(t, h, "a command for a host that is not there: %+v", c)
	if c.Action == scaler.Scale {
		return &h.Components
	}
	return &h.Providers
}

// carryOut does what a command says and returns what went wrong.
func (l *lattice) carryOut(t require.TestingT, c scaler.Command) (failure string) {
	l.log = append(l.log, c)
	switch c.Action {
	case scaler.PutConfig:
		require.Empty(t, c.Host)
		require.NotNil(t, c.Values)
		have, exists := l.configs[c.ID]
		require.False(t, exists && maps.Equal(have, c.Values), "configuration %s is put again", c.ID)
		l.configs[c.ID] = c.Values
	case scaler.DeleteConfig:
		require.Contains(t, l.configs, c.ID)
		require.False(t, l.uses(c.ID), "configuration %s is deleted while it is used", c.ID)
		delete(l.configs, c.ID)
	case scaler.PutLink:
		l.putLink(t, *c.Link)
	case scaler.DeleteLink:
		l.deleteLink(t, *c.Link)
	default:
		return l.onInstances(t, c)
	}
	return ""
}

// uses reports whether something that runs, or a link, was given a configuration.
func (l *lattice) uses(config string) bool {
	for at := range l.instances() {
		if slices.Contains(l.config[at], config) {
			return true
		}
	}
	return slices.ContainsFunc(l.links, func(o scaler.Link) bool {
		return slices.Contains(o.SourceConfig, config) || slices.Contains(o.TargetConfig, config)
	})
}

func (l *lattice) putLink(t require.TestingT, link scaler.Link) {
	for _, name := range slices.Concat(link.SourceConfig, link.TargetConfig) {
		require.Contains(t, l.configs, name, "a link before its configuration")
	}
	for i, o := range l.links {
		if o.Tuple() == link.Tuple() {
			require.NotEqual(t, o, link, "a link is put again")
			l.links[i] = link
			return
		}
		sameSlot := o.Source == link.Source && o.Name == link.Name && o.Namespace == link.Namespace && o.Package == link.Package
		for _, i := range o.Interfaces {
			require.False(t, sameSlot && slices.Contains(link.Interfaces, i), "a link that a host refuses: %+v beside %+v", link, o)
		}
	}
	l.links = append(l.links, link)
}

// deleteLink deletes the first link of that source and name, as hosts do.
func (l *lattice) deleteLink(t require.TestingT, link scaler.Link) {
	i := slices.IndexFunc(l.links, func(o scaler.Link) bool {
		return o.Source == link.Source && o.Name == link.Name && o.Namespace == link.Namespace && o.Package == link.Package
	})
	require.GreaterOrEqual(t, i, 0, "a link is deleted that is not there")
	require.NotEqual(t, foreignSource, l.links[i].Target, "somebody else's link is deleted")
	l.links = slices.Delete(l.links, i, i+1)
}

func (l *lattice) onInstances(t require.TestingT, c scaler.Command) (failure string) {
	entries := l.entries(t, c)
	at := slices.IndexFunc(*entries, func(e scaler.Instances) bool { return e.ID == c.ID })
	if at >= 0 {
		require.True(t, scaler.Owned((*entries)[at].Annotations, l.app), "somebody else's instance is named: %+v", c)
	}
	key := c.Host + "/" + c.ID
	if c.Action == scaler.StopProvider || c.Action == scaler.Scale && c.Count == 0 {
		require.GreaterOrEqual(t, at, 0, "what does not run is stopped: %+v", c)
		*entries = slices.Delete(*entries, at, at+1)
		return ""
	}

	require.True(t, scaler.Owned(c.Annotations, l.app), "instances would be nobody's: %+v", c)
	for _, name := range c.Config {
		require.Contains(t, l.configs, name, "a start before its configuration")
	}
	if why, bad := l.bad[c.Host]; bad {
		return why
	}
	started := scaler.Instances{ID: c.ID, Image: c.Image, Count: max(c.Count, 1), Annotations: c.Annotations}
	if at < 0 {
		*entries = append(*entries, started)
		l.config[key] = c.Config
		return ""
	}
	have := (*entries)[at]
	require.Equal(t, scaler.Scale, c.Action, "a provider is started twice: %+v", c)
	require.Equal(t, have.Image, c.Image, "a host does not replace an image while it runs")
	require.Equal(t, l.config[key], c.Config)
	require.NotEqual(t, have.Count, c.Count, "a host does nothing for the same count: %+v", c)
	(*entries)[at] = started
	return ""
}

const foreignSource = "somebody-else"

// foreign is an entry that nobody, or another application, started.
func foreign(id string, annotations map[string]string) scaler.Instances {
	return scaler.Instances{ID: id, Image: apiImage, Count: 2, Annotations: annotations}
}

// picture is what runs, in one line for each entry.
func (l *lattice) picture() []string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(l.hosts)) {
		h := l.hosts[id]
		for _, e := range slices.Concat(h.Components, h.Providers) {
			by := e.Annotations[scaler.AnnotationSpread]
			if !scaler.Owned(e.Annotations, l.app) {
				by = "foreign"
			}
			all = append(all, fmt.Sprintf("%s: %s %d %s", id, e.ID, e.Count, by))
		}
	}
	slices.Sort(all)
	return all
}
