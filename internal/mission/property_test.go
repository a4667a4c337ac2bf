package mission_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"tidewait/internal/mission"
)

// TestAnyMissionRoundTrips writes a generated mission as people would and reads
// it back, in YAML and in JSON, and through its canonical form.
func TestAnyMissionRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genMission().Draw(t, "mission")

		text, err := yaml.Marshal(written(want))
		require.NoError(t, err)
		got, err := mission.Parse("generated.yaml", text)
		require.NoError(t, err, string(text))
		require.Equal(t, want, got)

		text, err = json.Marshal(written(want))
		require.NoError(t, err)
		got, err = mission.Parse("generated.json", text)
		require.NoError(t, err, string(text))
		require.Equal(t, want, got)

		var again mission.Mission
		require.NoError(t, json.Unmarshal(want.Canonical(), &again))
		require.Equal(t, want, again)
		require.Equal(t, want.Digest(), again.Digest())
	})
}

func genMission() *rapid.Generator[mission.Mission] {
	return rapid.Custom(func(t *rapid.T) mission.Mission {
		m := mission.Mission{
			Name:   genName.Draw(t, "name"),
			Labels: genLabels.Draw(t, "labels"),
			Spec: mission.Spec{
				Backend:   rapid.SampledFrom([]string{"microvm", "process"}).Draw(t, "backend"),
				Workspace: genWorkspace.Draw(t, "workspace"),
				Turn:      genDuration.Draw(t, "turn"),
				MaxWait:   genDuration.Draw(t, "max wait"),
				Priority:  new(rapid.IntRange(0, 100).Draw(t, "priority")),
			},
		}
		for _, name := range rapid.SliceOfNDistinct(genName, 1, 5, rapid.ID[string]).Draw(t, "phases") {
			phase := mission.Phase{
				Name: name,
				Requires: mission.Requires{
					Arch:   rapid.SampledFrom([]string{"", "amd64", "arm64"}).Draw(t, "arch"),
					Labels: genLabels.Draw(t, "requires"),
				},
				Image:    "default",
				Secrets:  genSecrets.Draw(t, "secrets"),
				Attempts: rapid.IntRange(1, 10).Draw(t, "attempts"),
				Hold:     genHold.Draw(t, "hold"),
			}
			if rapid.Bool().Draw(t, "composed") {
				phase.Agents = genAgents.Draw(t, "agents")
				if m.Spec.Backend == "microvm" {
					for i := range phase.Agents {
						phase.Agents[i].Image = genImage.Draw(t, "image")
					}
				}
				phase.Until = genUntil(phase.Agents).Draw(t, "until")
			} else {
				phase.Resources, phase.Run = genResources.Draw(t, "resources"), genRun.Draw(t, "run")
				phase.Env, phase.Collect = genEnv.Draw(t, "env"), genGlobs.Draw(t, "collect")
				if m.Spec.Backend == "microvm" {
					phase.Image = cmp.Or(genImage.Draw(t, "image"), mission.DefaultImage)
				}
			}
			m.Spec.Phases = append(m.Spec.Phases, phase)
		}
		return m
	})
}

var (
	genName      = rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?`)
	genLabelName = rapid.StringMatching(`([a-z]{1,5}(\.[a-z]{1,5}){0,2}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?`)
	genLabels    = genMap(genLabelName, rapid.StringMatching(`([A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?)?`))
	// Whatever a shell script may hold. It starts with a letter, because the
	// YAML writer of this test breaks text that starts with white space.
	genText = rapid.Map(rapid.StringOf(rapid.RuneFrom([]rune("aZ09 \n\t'\"\\#:-{}[]&*!|>%@`,?~$=é漢😀\u0085\u2028"))),
		func(s string) string { return "s" + s })
	genImage    = rapid.SampledFrom([]string{"", "registry.example.com/tool:1", "oci:/srv/images/tool:1@" + someDigest})
	genDuration = rapid.Map(rapid.SampledFrom([]int64{0, 10, 61, 3600, 360000}), func(s int64) time.Duration { return time.Duration(s) * time.Second })
	genHold     = rapid.Custom(func(t *rapid.T) *mission.Hold {
		if !rapid.Bool().Draw(t, "held") {
			return nil
		}
		return &mission.Hold{
			Reason:  rapid.SampledFrom([]string{"", "look at the survey first", "ask 漢"}).Draw(t, "reason"),
			MaxWait: genDuration.Draw(t, "max wait"),
		}
	})
	// Names that those of env, which are shorter, and of each other never are.
	genSecrets      = genSecretsOf(`S[A-Z_]{9,20}`)
	genAgentSecrets = genSecretsOf(`A[A-Z_]{9,20}`)
	genGlobs        = rapid.Custom(func(t *rapid.T) []string {
		var globs []string
		for range rapid.IntRange(0, 3).Draw(t, "globs") {
			parts := rapid.SliceOfN(rapid.SampledFrom([]string{"**", "*", "out", "*.[ch]", "a?", "[^x]y"}), 1, 4).Draw(t, "parts")
			globs = append(globs, strings.Join(parts, "/"))
		}
		return globs
	})
	genResources = rapid.Custom(func(t *rapid.T) mission.Resources {
		return mission.Resources{
			CPUMilli:  rapid.Int64Range(100, 256000).Draw(t, "cpus"),
			MemoryMiB: rapid.Int64Range(128, 16<<20).Draw(t, "memory"),
			DiskMiB:   rapid.Int64Range(64, 256<<20).Draw(t, "disk"),
		}
	})
	genRun = rapid.Custom(func(t *rapid.T) []string {
		return append([]string{"sh"}, rapid.SliceOfN(genText, 0, 3).Draw(t, "arguments")...)
	})
	genEnv    = genMap(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,8}`), genText)
	genAgents = rapid.Custom(func(t *rapid.T) []mission.Agent {
		var agents []mission.Agent
		// Names without dashes are never that of another's replica.
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9]{0,20}`), 1, 4, rapid.ID[string]).Draw(t, "names") {
			agents = append(agents, mission.Agent{
				Name: name, Replicas: rapid.IntRange(1, 8).Draw(t, "replicas"), Resources: genResources.Draw(t, "resources"),
				Run: genRun.Draw(t, "run"), Env: genEnv.Draw(t, "env"), Collect: genGlobs.Draw(t, "collect"),
				Secrets: genAgentSecrets.Draw(t, "secrets"),
			})
		}
		return agents
	})
	genWorkspace = rapid.SampledFrom([]mission.Workspace{
		{Git: "./repo", Ref: "HEAD"},
		{Git: "https://example.org/a.git", Ref: "release/1.2"},
		{Git: "git@example.org:a.git", Ref: "0123456789abcdef0123456789abcdef01234567"},
		{Path: "./files"},
		{Path: "/srv/with space"},
	})
)

func genSecretsOf(names string) *rapid.Generator[[]mission.Secret] {
	return rapid.Custom(func(t *rapid.T) []mission.Secret {
		var secrets []mission.Secret
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(names), 0, 3, rapid.ID[string]).Draw(t, "names") {
			from := rapid.SampledFrom([]string{"file:a", "file:api-token.2", "env:_X9", "command:Vault_1"}).Draw(t, "from")
			secrets = append(secrets, mission.Secret{Name: name, From: from})
		}
		return secrets
	})
}

func genMap(keys, values *rapid.Generator[string]) *rapid.Generator[map[string]string] {
	return rapid.Map(rapid.MapOfN(keys, values, 0, 3), func(m map[string]string) map[string]string {
		if len(m) == 0 {
			return nil
		}
		return m
	})
}

// genUntil draws one or more agents, in their order.
func genUntil(agents []mission.Agent) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		var until []string
		for i, a := range agents {
			if rapid.Bool().Draw(t, "designated") || i == len(agents)-1 && until == nil {
				until = append(until, a.Name)
			}
		}
		return until
	})
}

// written is the document a person would write for m, keys with default values
// left out.
func written(m mission.Mission) map[string]any {
	metadata := map[string]any{"name": m.Name}
	unlessEmpty(metadata, "labels", m.Labels)
	workspace := map[string]any{}
	for key, text := range map[string]string{"git": m.Spec.Workspace.Git, "path": m.Spec.Workspace.Path} {
		if text != "" {
			workspace[key] = text
		}
	}
	if ref := m.Spec.Workspace.Ref; ref != "HEAD" && ref != "" {
		workspace["ref"] = ref
	}
	var phases []any
	for _, p := range m.Spec.Phases {
		phases = append(phases, writtenPhase(p))
	}
	spec := map[string]any{"backend": m.Spec.Backend, "workspace": workspace, "phases": phases, "priority": *m.Spec.Priority}
	for key, d := range map[string]time.Duration{"turn": m.Spec.Turn, "maxWait": m.Spec.MaxWait} {
		if d != 0 {
			spec[key] = d.String()
		}
	}
	return map[string]any{"apiVersion": "tidewait/v1", "kind": "Mission", "metadata": metadata, "spec": spec}
}

func writtenResources(r mission.Resources) map[string]any {
	resources := map[string]any{"cpus": fmt.Sprintf("%dm", r.CPUMilli)}
	if r.CPUMilli%10 == 0 {
		resources["cpus"] = float64(r.CPUMilli) / 1000
	}
	if r.MemoryMiB != 512 {
		resources["memory"] = fmt.Sprintf("%dMi", r.MemoryMiB)
	}
	if r.DiskMiB != 1024 {
		resources["disk"] = fmt.Sprintf("%dMi", r.DiskMiB)
	}
	return resources
}

// writtenCommand is what a solo phase and an agent have in common.
func writtenCommand(name string, r mission.Resources, run []string, env map[string]string, collect []string) map[string]any {
	command := map[string]any{"name": name, "resources": writtenResources(r), "run": run}
	unlessEmpty(command, "env", env)
	if len(collect) > 0 {
		command["collect"] = collect
	}
	return command
}

func writeSecrets(into map[string]any, secrets []mission.Secret) {
	var list []any
	for _, s := range secrets {
		list = append(list, map[string]any{"name": s.Name, "from": s.From})
	}
	if len(list) > 0 {
		into["secrets"] = list
	}
}

// writtenAgents leaves out of the agents what all of them share, when they do:
// the phase says it.
func writtenAgents(p mission.Phase) map[string]any {
	phase := map[string]any{"name": p.Name}
	shared := len(p.Agents[0].Collect) > 0
	for _, a := range p.Agents {
		shared = shared && slices.Equal(a.Collect, p.Agents[0].Collect)
	}
	if shared {
		phase["collect"] = p.Agents[0].Collect
	}
	var agents []any
	for _, a := range p.Agents {
		agent := writtenCommand(a.Name, a.Resources, a.Run, a.Env, a.Collect)
		writeSecrets(agent, a.Secrets)
		if shared {
			delete(agent, "collect")
		}
		if a.Image != "" {
			agent["image"] = a.Image
		}
		if a.Replicas != 1 {
			agent["replicas"] = a.Replicas
		}
		agents = append(agents, agent)
	}
	phase["agents"] = agents
	if len(p.Until) < len(p.Agents) {
		phase["until"] = p.Until
	}
	return phase
}

func writtenPhase(p mission.Phase) map[string]any {
	requires := map[string]any{}
	if p.Requires.Arch != "" {
		requires["arch"] = p.Requires.Arch
	}
	unlessEmpty(requires, "labels", p.Requires.Labels)
	phase := writtenCommand(p.Name, p.Resources, p.Run, p.Env, p.Collect)
	if p.Image != mission.DefaultImage {
		phase["image"] = p.Image
	}
	if p.Composed() {
		phase = writtenAgents(p)
	}
	writeSecrets(phase, p.Secrets)
	phase["requires"] = requires
	if p.Attempts != 1 {
		phase["attempts"] = p.Attempts
	}
	if p.Hold != nil {
		phase["hold"] = writtenHold(*p.Hold)
	}
	return phase
}

func writtenHold(h mission.Hold) any {
	hold := map[string]any{}
	if h.Reason != "" {
		hold["reason"] = h.Reason
	}
	if h.MaxWait != 0 {
		hold["maxWait"] = h.MaxWait.String()
	}
	if len(hold) == 0 {
		return true
	}
	return hold
}

func unlessEmpty(into map[string]any, key string, m map[string]string) {
	if len(m) > 0 {
		into[key] = m
	}
}
