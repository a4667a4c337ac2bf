package mission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MaxMachines is how many machines a phase may have.
const MaxMachines = 32

// Agent is one command of a composed phase, in one or more machines.
type Agent struct {
	Name      string            `json:"name"`
	Replicas  int               `json:"replicas"`        // machines that run it, from 1
	Resources Resources         `json:"resources"`       // of each of them
	Image     string            `json:"image,omitempty"` // of each of them; empty: [DefaultImage]
	Run       []string          `json:"run"`
	Env       map[string]string `json:"env,omitempty"`
	Secrets   []Secret          `json:"secrets,omitempty"` // beside those of the phase, which all of its agents have
	Collect   []string          `json:"collect,omitempty"` // as of a phase
}

// Machine is one machine of a phase.
type Machine struct {
	Name       string // the agent's, with a number when it has replicas; empty: the phase is solo
	Designated bool   // the phase succeeds only when its command does
	Resources  Resources
}

// Composed reports whether the phase consists of agents.
func (p Phase) Composed() bool { return len(p.Agents) > 0 }

// Machines returns the machines of a phase in the order of its document, replicas
// by their number. A solo phase has one.
func (p Phase) Machines() []Machine {
	if !p.Composed() {
		return []Machine{{Designated: true, Resources: p.Resources}}
	}
	var machines []Machine
	for _, a := range p.Agents {
		for replica := 1; replica <= a.Replicas; replica++ {
			machines = append(machines, Machine{Name: a.machine(replica), Designated: p.Designates(a), Resources: a.Resources})
		}
	}
	return machines
}

// Designates reports whether the phase succeeds only when the agent does.
func (p Phase) Designates(a Agent) bool { return slices.Contains(p.Until, a.Name) }

// Total returns the sum of what the machines of a phase get.
func (p Phase) Total() Resources {
	var sum Resources
	for _, m := range p.Machines() {
		sum.CPUMilli += m.Resources.CPUMilli
		sum.MemoryMiB += m.Resources.MemoryMiB
		sum.DiskMiB += m.Resources.DiskMiB
	}
	return sum
}

// machine is the name of one of the agent's machines.
func (a Agent) machine(replica int) string {
	if a.Replicas == 1 {
		return a.Name
	}
	return a.Name + "-" + strconv.Itoa(replica)
}

// composed reads the agents of a phase, for which what the phase itself says is
// the default. A phase without agents comes back as it is.
func (r *reader) composed(phase Phase, fields map[string]value) Phase {
	agents, hasAgents := fields["agents"]
	until, hasUntil := fields["until"]
	if !hasAgents {
		if hasUntil {
			r.about(until, `"until"`, "cannot stand without agents", "a phase with run succeeds when its command does; remove the key")
		}
		return phase
	}
	if run, ok := fields["run"]; ok {
		r.about(run, `"run"`, "cannot stand beside agents", "keep one of them: run for one machine, agents for several")
	}
	phase.Agents = r.agents(agents, phase)
	r.sharedSecrets(agents, phase)
	phase.Resources, phase.Image, phase.Run, phase.Env, phase.Collect = Resources{}, DefaultImage, nil, nil, nil
	phase.Until = agentNames(phase.Agents)
	if hasUntil {
		phase.Until = r.until(until, phase.Until)
	}
	return phase
}

func agentNames(agents []Agent) []string {
	var names []string
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return names
}

func (r *reader) agents(v value, defaults Phase) []Agent {
	items, ok := r.list(v, "write a list of agents, each with - name:")
	if !ok {
		return nil
	}
	if len(items) == 0 {
		r.about(v, "the list", "is empty", "write one or more agents, or run for a phase of one machine")
	}
	var agents []Agent
	machines := 0
	taken := map[string]string{} // what has a name, by the name
	for _, item := range items {
		agent := r.agent(item, defaults)
		machines += agent.Replicas
		agents = append(agents, agent)
		r.claim(value{item.Node, item.key + ".name"}, agent, taken)
	}
	if machines > MaxMachines {
		r.about(v, "the list", fmt.Sprintf("asks for %d machines", machines), fmt.Sprintf("a phase has at most %d, replicas included", MaxMachines))
	}
	return agents
}

// claim refuses a name that an earlier agent or one of its replicas has.
func (r *reader) claim(v value, a Agent, taken map[string]string) {
	if !IsName(a.Name) {
		return // a finding already
	}
	names := []string{a.Name}
	if a.Replicas > 1 {
		for replica := 1; replica <= a.Replicas; replica++ {
			names = append(names, a.machine(replica))
		}
	}
	who := "agent " + a.Name + " on line " + strconv.Itoa(v.Line)
	for _, name := range names {
		switch other := taken[name]; {
		case !IsName(name):
			r.about(v, quote(a.Name), "is too long for its replicas: "+quote(name)+" is not a name", "write at most 60 characters")
			return
		case other != "" && name == a.Name:
			r.about(v, quote(name), "is taken by "+other, "give each agent its own name; replicas have it with a number")
			return
		case other != "":
			r.about(v, quote(a.Name), "has a replica "+name+", a name that is taken by "+other, "give each agent its own name")
			return
		}
	}
	for _, name := range names {
		taken[name] = who
	}
}

func (r *reader) agent(v value, defaults Phase) Agent {
	agent := Agent{Replicas: 1, Resources: defaults.Resources, Image: defaults.Image, Env: defaults.Env, Collect: defaults.Collect}
	fields := r.object(v, agentShape)
	for name, field := range fields {
		switch name {
		case "name":
			agent.Name = r.agentName(field)
		case "run":
			agent.Run = r.run(field)
		case "replicas":
			agent.Replicas = max(r.whole(field, 1, MaxMachines), 1)
		case "resources":
			agent.Resources = r.resources(field, defaults.Resources)
		case "image":
			agent.Image = r.image(field)
		case "env":
			agent.Env = merged(defaults.Env, r.env(field))
		case "collect":
			agent.Collect = r.collect(field)
		}
	}
	if field, ok := fields["secrets"]; ok {
		agent.Secrets = r.secrets(field, agent.Env)
	}
	if agent.Image == DefaultImage {
		agent.Image = ""
	}
	return agent
}

// agentName reads a name under which the others find a machine.
func (r *reader) agentName(v value) string {
	name := r.name(v)
	if name == "localhost" {
		r.refuse(v, "cannot be the name of an agent", "every machine is localhost to itself")
	}
	return name
}

// merged returns the phase's variables with the agent's own over them.
func merged(defaults, own map[string]string) map[string]string {
	env := maps.Clone(defaults)
	if env == nil {
		return own
	}
	maps.Copy(env, own)
	return env
}

// until reads the names of the designated agents, and returns them in the order
// of the agents.
func (r *reader) until(v value, agents []string) []string {
	items, ok := r.list(v, "write a list of agents, for example ["+example(agents)+"]")
	if !ok {
		return nil
	}
	if len(items) == 0 {
		r.about(v, "the list", "is empty", "name one or more agents, or remove the key for all of them")
	}
	var named []string
	for _, item := range items {
		name, ok := r.text(item)
		switch {
		case !ok:
		case !slices.Contains(agents, name):
			r.refuse(item, "is not an agent of this phase", unknownAgent(name, agents))
		case slices.Contains(named, name):
			r.refuse(item, "is there twice", "keep one of them")
		default:
			named = append(named, name)
		}
	}
	slices.SortFunc(named, func(a, b string) int { return slices.Index(agents, a) - slices.Index(agents, b) })
	return named
}

func unknownAgent(name string, agents []string) string {
	hint := "the agents are " + strings.Join(agents, ", ")
	if near := suggest(name, agents); near != "" {
		return "did you mean " + near + "? " + hint
	}
	return hint
}

func example(agents []string) string {
	if len(agents) == 0 {
		return "author"
	}
	return agents[0]
}
