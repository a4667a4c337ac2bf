package mission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

func TestSecretsThatAreNone(t *testing.T) {
	const sourceHint = "what stands here does not name a secret of the gateway; write file:NAME, env:NAME or command:NAME, never the secret itself"
	many := strings.Repeat("{name: A, from: 'file:a'}, ", 33)
	for name, c := range map[string]struct{ secrets, want string }{
		"a word":        {"token", `10:16: spec.phases[0].secrets: "token" is not a list; write a list of secrets, for example [{name: API_TOKEN, from: 'file:api-token'}]`},
		"too many":      {"[" + many + "]", `10:16: spec.phases[0].secrets: the list has 33 secrets; write at most 32`},
		"not a mapping": {"[A]", `10:17: spec.phases[0].secrets[0]: "A" is not a mapping; write keys with values under it`},
		"no name":       {"[{from: 'file:a'}]", `10:17: spec.phases[0].secrets[0]: "name" is missing; write the name of an environment variable, for example API_TOKEN`},
		"no source":     {"[{name: A}]", `10:17: spec.phases[0].secrets[0]: "from" is missing; write file:NAME, env:NAME or command:NAME`},
		"bad name":      {"[{name: 1A, from: 'file:a'}]", `10:24: spec.phases[0].secrets[0].name: "1A" is not a variable name; write letters, digits and underscores that do not start with a digit`},
		"a value":       {"[{name: A, value: hunter2, from: 'file:a'}]", `10:27: spec.phases[0].secrets[0]: "value" is not a key here; the keys are name, from`},
		"twice":         {"[{name: A, from: 'file:a'}, {name: A, from: 'env:A'}]", `10:51: spec.phases[0].secrets[1].name: "A" is the name of two secrets, first on line 10; give each secret its own variable`},
		"in env":        {"[{name: PLAIN, from: 'file:a'}]", `10:24: spec.phases[0].secrets[0].name: "PLAIN" is in env as well; keep one of them`},
		"the secret":    {"[{name: A, from: hunter2}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
		"its list":      {"[{name: A, from: [hunter2]}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
		"no file":       {"[{name: A, from: 'file:'}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
		"a path":        {"[{name: A, from: 'file:a/b'}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
		"out":           {"[{name: A, from: 'file:..'}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
		"arguments":     {"[{name: A, from: 'command:vault read'}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
		"odd variable":  {"[{name: A, from: 'env:A-B'}]", `10:33: spec.phases[0].secrets[0].from: ` + sourceHint},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mission.Parse("f", []byte(smallest+"      secrets: "+c.secrets+"\n      env: {PLAIN: x}\n"))
			require.EqualError(t, err, "f:"+c.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestAsManySecretsAsAllowed(t *testing.T) {
	var list []string
	for i := range 32 {
		list = append(list, fmt.Sprintf("{name: A%d, from: 'file:a'}", i))
	}
	m, err := mission.Parse("f", []byte(smallest+"      secrets: ["+strings.Join(list, ", ")+"]\n"))
	require.NoError(t, err)
	require.Len(t, m.Spec.Phases[0].Secrets, 32)
	require.Equal(t, mission.Secret{Name: "A31", From: "file:a"}, m.Spec.Phases[0].Secrets[31])
}

func TestParseSource(t *testing.T) {
	for text, want := range map[string]mission.Source{
		"file:api-token": {Kind: "file", Name: "api-token"}, "env:TOKEN_1": {Kind: "env", Name: "TOKEN_1"},
		"command:vault": {Kind: "command", Name: "vault"}, "file:" + strings.Repeat("a", 128): {Kind: "file", Name: strings.Repeat("a", 128)},
	} {
		got, ok := mission.ParseSource(text)
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{
		"", "file", "file:", ":a", "File:a", "file:.a", "file:a b", "file:a:b", "file:a\n", "file:é", "env:1A", "env:A.B", "vault:a",
		"file:" + strings.Repeat("a", 129), "env:" + strings.Repeat("A", 129),
	} {
		_, ok := mission.ParseSource(text)
		require.False(t, ok, "%q", text)
	}
}

func TestSecretsOfAgents(t *testing.T) {
	document := func(phase, author, critic string) []byte {
		return []byte(strings.Replace(smallest, "      run: [echo, hello]\n", phase+`      agents:
        - {name: author, run: [a], `+author+`}
        - {name: critic, run: [a], replicas: 2, `+critic+`}
`, 1))
	}
	const shared = "      secrets: [{name: A, from: 'file:a'}, {name: B, from: 'file:b'}]\n"
	m, err := mission.Parse("f", document(shared, "secrets: [{name: C, from: 'env:C'}]", "secrets: [{name: C, from: 'file:c'}]"))
	require.NoError(t, err)
	phase := m.Spec.Phases[0]
	require.Equal(t, []mission.Secret{{Name: "A", From: "file:a"}, {Name: "B", From: "file:b"}}, phase.Secrets)
	require.Equal(t, []mission.Secret{{Name: "C", From: "env:C"}}, phase.Agents[0].Secrets)
	require.Equal(t, []mission.Secret{
		{Name: "A", From: "file:a"}, {Name: "B", From: "file:b"}, {Name: "author/C", From: "env:C"}, {Name: "critic/C", From: "file:c"},
	}, phase.AllSecrets())

	var many []string
	for i := range 16 {
		many = append(many, fmt.Sprintf("{name: A%d, from: 'file:a'}", i))
	}
	list := "secrets: [" + strings.Join(many, ", ") + "]"
	for name, c := range map[string]struct{ phase, author, critic, want string }{
		"in env": {shared, "env: {B: x}", "env: {}", `f:11:9: spec.phases[0].agents: "B" is a secret of the phase, and in env of agent author; keep one of them`},
		"in its own env": {
			"", "env: {}", "env: {C: x}, secrets: [{name: C, from: 'env:C'}]",
			`f:11:79: spec.phases[0].agents[1].secrets[0].name: "C" is in env as well; keep one of them`,
		},
		"of the phase": {
			shared, "secrets: [{name: A, from: 'file:own'}]", "env: {}",
			`f:11:9: spec.phases[0].agents: "A" is a secret of the phase, and of agent author; keep one of them; those of the phase go to every agent`,
		},
		"too many": {
			"      secrets: [{name: X, from: 'file:a'}]\n", list, list,
			`f:11:9: spec.phases[0].agents: the phase has 33 secrets, those of its agents included; write at most 32`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mission.Parse("f", document(c.phase, c.author, c.critic))
			require.EqualError(t, err, c.want)
		})
	}
}
