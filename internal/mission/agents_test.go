package mission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

// team is a document with the given agents, on line 9, and further lines.
func team(agents string, more ...string) []byte {
	text := strings.Replace(smallest, "      run: [echo, hello]\n", "      agents: "+agents+"\n", 1)
	for _, line := range more {
		text += "      " + line + "\n"
	}
	return []byte(text)
}

func TestMachinesOfAPhase(t *testing.T) {
	m, err := mission.Parse("f", team("[{name: author, run: [./author], env: {A: b}}, {name: critic, run: [./critic], replicas: 2, resources: {cpus: 0.5}}]", "until: [author]"))
	require.NoError(t, err)

	phase := m.Spec.Phases[0]

	require.True(t, phase.Composed())
	require.Equal(t, []mission.Machine{
		{Name: "author", Designated: true, Resources: mission.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 1024}},
		{Name: "critic-1", Resources: mission.Resources{CPUMilli: 500, MemoryMiB: 512, DiskMiB: 1024}},
		{Name: "critic-2", Resources: mission.Resources{CPUMilli: 500, MemoryMiB: 512, DiskMiB: 1024}},
	}, phase.Machines())
	require.Equal(t, mission.Resources{CPUMilli: 2000, MemoryMiB: 1536, DiskMiB: 3072}, phase.Total())
}

func TestASoloPhaseIsOneMachine(t *testing.T) {
	m, err := mission.Parse("f", []byte(smallest))
	require.NoError(t, err)

	phase := m.Spec.Phases[0]

	require.False(t, phase.Composed())
	require.Equal(t, []mission.Machine{{
		Designated: true, Resources: mission.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 1024},
	}}, phase.Machines())
	require.Equal(t, phase.Resources, phase.Total())
}

// TestTheSameAgentsHaveTheSameDigest holds however they are written: what the
// phase says for all of them, or each for itself.
func TestTheSameAgentsHaveTheSameDigest(t *testing.T) {
	short, err := mission.Parse("f", team("[{name: a, run: [x]}, {name: b, run: [y], env: {M: '2'}}]",
		"resources: {cpus: 2}", "env: {M: '1', N: '3'}", "collect: [out]", "until: [b, a]"))
	require.NoError(t, err)
	long, err := mission.Parse("f", team("[{name: a, run: [x], resources: {cpus: 2}, env: {M: '1', N: '3'}, collect: [out], replicas: 1},"+
		"{name: b, run: [y], resources: {cpus: 2000m}, env: {M: '2', N: '3'}, collect: [out]}]"))
	require.NoError(t, err)

	require.Equal(t, short, long)
	require.Equal(t, `{"name":"hello","spec":{"backend":"microvm","workspace":{"path":"./files"},"phases":[{"name":"greet","image":"default","agents":[`+
		`{"name":"a","replicas":1,"resources":{"cpuMilli":2000,"memoryMiB":512,"diskMiB":1024},"run":["x"],"env":{"M":"1","N":"3"},"collect":["out"]},`+
		`{"name":"b","replicas":1,"resources":{"cpuMilli":2000,"memoryMiB":512,"diskMiB":1024},"run":["y"],"env":{"M":"2","N":"3"},"collect":["out"]}],`+
		`"until":["a","b"],"attempts":1}]}}`, string(short.Canonical()))
}

func TestAgentsThatCannotBe(t *testing.T) {
	const two = "[{name: a, run: [x]}, {name: b, run: [y]}]"
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"beside run":        {team(two, "run: [z]"), `10:12: spec.phases[0].run: "run" cannot stand beside agents; keep one of them: run for one machine, agents for several`},
		"no list":           {team("{a: b}"), `9:15: spec.phases[0].agents: a mapping is not a list; write a list of agents, each with - name:`},
		"no name":           {team("[{run: [x]}]"), `9:16: spec.phases[0].agents[0]: "name" is missing; write the agent's name, for example author`},
		"no run":            {team("[{name: a}]"), `9:16: spec.phases[0].agents[0]: "run" is missing; ` + runHint},
		"unknown key":       {team("[{name: a, run: [x], imge: default}]"), `9:36: spec.phases[0].agents[0]: "imge" is not a key here; did you mean image? the keys are name, run, replicas, resources, image, env, collect, secrets`},
		"no replica":        {team("[{name: a, run: [x], replicas: 0}]"), `9:46: spec.phases[0].agents[0].replicas: 0 is not allowed; write a whole number from 1 to 32`},
		"too many replicas": {team("[{name: a, run: [x], replicas: 33}]"), `9:46: spec.phases[0].agents[0].replicas: 33 is not allowed; write a whole number from 1 to 32`},
		"too many machines": {team("[{name: a, run: [x], replicas: 20}, {name: b, run: [x], replicas: 13}]"), `9:15: spec.phases[0].agents: the list asks for 33 machines; a phase has at most 32, replicas included`},
		"name twice":        {team("[{name: a, run: [x]}, {name: a, run: [x]}]"), `9:37: spec.phases[0].agents[1].name: "a" is taken by agent a on line 9; give each agent its own name; replicas have it with a number`},
		"name of a replica": {team("[{name: a, run: [x], replicas: 2}, {name: a-2, run: [x]}]"), `9:50: spec.phases[0].agents[1].name: "a-2" is taken by agent a on line 9; give each agent its own name; replicas have it with a number`},
		"replica of a name": {team("[{name: a-1, run: [x]}, {name: a, run: [x], replicas: 3}]"), `9:39: spec.phases[0].agents[1].name: "a" has a replica a-1, a name that is taken by agent a-1 on line 9; give each agent its own name`},
		"name too long": {
			team(fmt.Sprintf("[{name: %s, run: [x], replicas: 10}]", strings.Repeat("a", 61))),
			`9:16: spec.phases[0].agents[0].name: "` + strings.Repeat("a", 60) + `…" is too long for its replicas: "` + strings.Repeat("a", 60) + `…" is not a name; write at most 60 characters`,
		},
		"name localhost":   {team("[{name: localhost, run: [x]}]"), `9:23: spec.phases[0].agents[0].name: "localhost" cannot be the name of an agent; every machine is localhost to itself`},
		"name no label":    {team("[{name: A, run: [x]}]"), `9:23: spec.phases[0].agents[0].name: "A" is not a name; ` + nameHint},
		"resources":        {team("[{name: a, run: [x], resources: {cpus: 0}}]"), `9:54: spec.phases[0].agents[0].resources.cpus: 0 is too little; write 0.1 or more`},
		"until alone":      {[]byte(smallest + "      until: [a]\n"), `10:14: spec.phases[0].until: "until" cannot stand without agents; a phase with run succeeds when its command does; remove the key`},
		"until nobody":     {team(two, "until: []"), `10:14: spec.phases[0].until: the list is empty; name one or more agents, or remove the key for all of them`},
		"until a stranger": {team(two, "until: [bb]"), `10:15: spec.phases[0].until[0]: "bb" is not an agent of this phase; did you mean b? the agents are a, b`},
		"until a replica":  {team("[{name: a, run: [x], replicas: 2}]", "until: [a-1]"), `10:15: spec.phases[0].until[0]: "a-1" is not an agent of this phase; the agents are a`},
		"until twice":      {team(two, "until: [b, b]"), `10:18: spec.phases[0].until[1]: "b" is there twice; keep one of them`},
		"until a word":     {team(two, "until: a"), `10:14: spec.phases[0].until: "a" is not a list; write a list of agents, for example [a]`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mission.Parse("f", c.text)
			require.EqualError(t, err, "f:"+c.want)
		})
	}
}

func TestAPhaseMayHaveThirtyTwoMachines(t *testing.T) {
	m, err := mission.Parse("f", team("[{name: a, run: [x], replicas: 31}, {name: b, run: [y]}]"))
	require.NoError(t, err)
	require.Len(t, m.Spec.Phases[0].Machines(), 32)
}
