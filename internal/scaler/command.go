package scaler

import (
	"cmp"
	"slices"
)

// Action is what a command asks for.
type Action string

// The actions.
const (
	PutConfig     Action = "put_config"
	DeleteConfig  Action = "delete_config"
	DeleteLink    Action = "delete_link"
	PutLink       Action = "put_link"
	StopProvider  Action = "stop_provider"
	Scale         Action = "scale" // of a component; Count 0 stops it
	StartProvider Action = "start_provider"
)

// actions in the order in which one host is given commands: what makes room, or
// is needed, before what wants it.
var actions = []Action{PutConfig, DeleteLink, PutLink, StopProvider, Scale, StartProvider, DeleteConfig}

// Command is one request to a host. Its fields are those of the control
// interface; which are set follows from the action.
type Command struct {
	Key
	Action      Action            `json:"action"`
	ID          string            `json:"id,omitempty"` // of the component or provider; the configuration's name
	Image       string            `json:"image,omitempty"`
	Count       int               `json:"count,omitempty"`
	Config      []string          `json:"config,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Values      map[string]string `json:"values,omitempty"`
	Link        *Link             `json:"link,omitempty"`
}

// Key says whose command it is and where it goes. Failures are counted for each.
type Key struct {
	// Subject is the id of a scaler, or the name of a configuration. Where no
	// scaler asks for something, it is the id of a component or provider, or
	// the source of a link.
	Subject string `json:"subject"`
	Host    string `json:"host,omitempty"` // empty: any host, for what belongs to the lattice
}

// same reports whether two commands are about one thing, whatever they do to it.
func (c Command) same(o Command) bool {
	if c.Host != o.Host {
		return false
	}
	switch {
	case c.Link != nil && o.Link != nil:
		return c.Link.Tuple() == o.Link.Tuple()
	case c.Link != nil || o.Link != nil:
		return false
	}
	return c.ID == o.ID && c.onInstances() == o.onInstances()
}

func (c Command) onInstances() bool {
	return c.Action == Scale || c.Action == StartProvider || c.Action == StopProvider
}

// Batch is what one host is told, in this order. With an empty Host it is for
// the lattice, and any host answers.
type Batch struct {
	Host     string    `json:"host,omitempty"`
	Commands []Command `json:"commands"`
}

// batches groups commands by host, the lattice's first.
func batches(commands []Command) []Batch {
	slices.SortStableFunc(commands, func(a, b Command) int {
		return cmp.Or(
			cmp.Compare(a.Host, b.Host),
			cmp.Compare(slices.Index(actions, a.Action), slices.Index(actions, b.Action)),
		)
	})
	var all []Batch
	for _, c := range commands {
		if n := len(all); n == 0 || all[n-1].Host != c.Host {
			all = append(all, Batch{Host: c.Host})
		}
		last := &all[len(all)-1]
		last.Commands = append(last.Commands, c)
	}
	return all
}
