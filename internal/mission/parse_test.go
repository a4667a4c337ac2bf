package mission_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

const smallest = `apiVersion: tidewait/v1
kind: Mission
metadata: {name: hello}
spec:
  backend: microvm
  workspace: {path: ./files}
  phases:
    - name: greet
      run: [echo, hello]
`

const largest = `# every key there is
apiVersion: tidewait/v1
kind: Mission
metadata:
  name: nightly-port
  labels: {team: platform, example.org/tier: "3"}
spec:
  backend: process
  workspace: {git: "https://example.org/port.git", ref: release/1.2}
  turn: 45m
  maxWait: 90s
  priority: 0
  phases:
    - name: survey
      resources: {cpus: 500m, memory: 2Gi, disk: 64Mi}
      requires: {arch: arm64, labels: {zone: eu}}
      image: default
      run: [sh, -c, "make survey", ""]
      env: {MODE: fast, _1: "true"}
      secrets: [{name: API_TOKEN, from: file:api-token}, {name: _2, from: "command:vault.ci"}]
      collect: ["out/**", "*.[ch]"]
      attempts: 10
    - name: review
      hold: {reason: look at the survey first, maxWait: 24h}
      resources: {cpus: 1.25}
      run: [./review]
    - name: talk
      resources: {cpus: 0.5, memory: 256Mi}
      env: {MODE: fast, ROOM: a}
      collect: ["out/**"]
      agents:
        - {name: author, run: [./author], collect: []}
        - name: critic
          run: [./critic, -v]
          replicas: 2
          resources: {memory: 1Gi}
          env: {ROOM: b}
      until: [critic]
`

func TestParseFillsDefaultsIn(t *testing.T) {
	m, err := mission.Parse("hello.yaml", []byte(smallest))
	require.NoError(t, err)
	require.Equal(t, mission.Mission{
		Name: "hello",
		Spec: mission.Spec{
			Backend:   "microvm",
			Workspace: mission.Workspace{Path: "./files"},
			Phases: []mission.Phase{{
				Name:      "greet",
				Resources: mission.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 1024},
				Image:     "default",
				Run:       []string{"echo", "hello"},
				Attempts:  1,
			}},
		},
	}, m)
}

func TestParseReadsEveryKey(t *testing.T) {
	m, err := mission.Parse("port.yaml", []byte(largest))
	require.NoError(t, err)
	require.Equal(t, mission.Mission{
		Name:   "nightly-port",
		Labels: map[string]string{"team": "platform", "example.org/tier": "3"},
		Spec: mission.Spec{
			Backend:   "process",
			Workspace: mission.Workspace{Git: "https://example.org/port.git", Ref: "release/1.2"},
			Turn:      45 * time.Minute,
			MaxWait:   90 * time.Second,
			Priority:  new(0),
			Phases: []mission.Phase{
				{
					Name:      "survey",
					Resources: mission.Resources{CPUMilli: 500, MemoryMiB: 2048, DiskMiB: 64},
					Requires:  mission.Requires{Arch: "arm64", Labels: map[string]string{"zone": "eu"}},
					Image:     "default",
					Run:       []string{"sh", "-c", "make survey", ""},
					Env:       map[string]string{"MODE": "fast", "_1": "true"},
					Secrets:   []mission.Secret{{Name: "API_TOKEN", From: "file:api-token"}, {Name: "_2", From: "command:vault.ci"}},
					Collect:   []string{"out/**", "*.[ch]"},
					Attempts:  10,
				},
				{
					Name:      "review",
					Hold:      &mission.Hold{Reason: "look at the survey first", MaxWait: 24 * time.Hour},
					Resources: mission.Resources{CPUMilli: 1250, MemoryMiB: 512, DiskMiB: 1024},
					Image:     "default",
					Run:       []string{"./review"},
					Attempts:  1,
				},
				{
					Name:  "talk",
					Image: "default",
					Agents: []mission.Agent{
						{
							Name: "author", Replicas: 1, Resources: mission.Resources{CPUMilli: 500, MemoryMiB: 256, DiskMiB: 1024},
							Run: []string{"./author"}, Env: map[string]string{"MODE": "fast", "ROOM": "a"},
						},
						{
							Name: "critic", Replicas: 2, Resources: mission.Resources{CPUMilli: 500, MemoryMiB: 1024, DiskMiB: 1024},
							Run: []string{"./critic", "-v"}, Env: map[string]string{"MODE": "fast", "ROOM": "b"}, Collect: []string{"out/**"},
						},
					},
					Until:    []string{"critic"},
					Attempts: 1,
				},
			},
		},
	}, m)
}

func TestParseReadsJSON(t *testing.T) {
	m, err := mission.Parse("hello.json", []byte(`{
	"apiVersion": "tidewait/v1", "kind": "Mission", "metadata": {"name": "hello"},
	"spec": {
		"backend": "process", "workspace": {"git": "."},
		"phases": [{"name": "greet", "run": ["echo", "a\tb\/\u00e9\\/\ud83d\ude00"], "resources": {"cpus": 0.1}}]
	}
}`))
	require.NoError(t, err)
	require.Equal(t, "HEAD", m.Spec.Workspace.Ref)
	require.Equal(t, []string{"echo", "a\tb/é\\/😀"}, m.Spec.Phases[0].Run)
	require.EqualValues(t, 100, m.Spec.Phases[0].Resources.CPUMilli)
}

func TestAliasesAreFollowed(t *testing.T) {
	text := strings.Replace(smallest, "run: [echo, hello]", `run: &command [echo, hello]
    - name: again
      run: *command`, 1)
	m, err := mission.Parse("hello.yaml", []byte(text))
	require.NoError(t, err)
	require.Equal(t, []string{"echo", "hello"}, m.Spec.Phases[1].Run)
}

// TestParseTellsEverythingAtOnce is the document people really write wrong.
func TestParseTellsEverythingAtOnce(t *testing.T) {
	_, err := mission.Parse("bad.yaml", []byte(`apiVersion: tidewait/v1
kind: Mission
metadata: {name: Nightly_Port}
spec:
  backend: firecracker
  workspace: {git: ./repo, path: ./repo}
  turn: 1 hour
  maxWait: 3600
  priority: 101
  phase: []
  phases:
    - name: survey
      resources: {cpus: 0.05, memory: lots, disk: 512}
      requires: {arch: x86, labels: {"zone!": eu}}
      image: debian:13
      run: make test
      run: [make]
      env: {1A: x, PORT: 8080}
      collect: [../out, /etc, "a**", ok/**]
      attempts: 0
    - name: survey
      run: [sleep, 30]
    - name: review
      hold: later
      agents: []
    - nmae: x
`))
	require.EqualError(t, err, `bad.yaml:3:18: metadata.name: "Nightly_Port" is not a name; write at most 63 small letters, digits and dashes that start and end with a letter or digit
bad.yaml:5:12: spec.backend: "firecracker" is not allowed; write microvm or process
bad.yaml:6:34: spec.workspace.path: "path" cannot stand beside git; keep one of them
bad.yaml:7:9: spec.turn: "1 hour" is not a duration; write for example 90s, 30m or 2h
bad.yaml:8:12: spec.maxWait: 3600 has no unit; write for example 90s, 30m or 2h
bad.yaml:9:13: spec.priority: 101 is not allowed; write a whole number from 0 to 100
bad.yaml:10:3: spec: "phase" is not a key here; did you mean phases? the keys are backend, workspace, turn, maxWait, priority, phases
bad.yaml:13:25: spec.phases[0].resources.cpus: 0.05 is too little; write 0.1 or more
bad.yaml:13:39: spec.phases[0].resources.memory: "lots" is not a quantity; write for example 512Mi or 2Gi
bad.yaml:13:51: spec.phases[0].resources.disk: 512 has no unit; write for example 512Mi or 2Gi
bad.yaml:14:24: spec.phases[0].requires.arch: "x86" is not allowed; write amd64 or arm64
bad.yaml:14:38: spec.phases[0].requires.labels.zone!: "zone!" is not a label name; write at most 63 letters, digits, dashes, underscores and dots that start and end with a letter or digit; a DNS name and a slash may stand before it
bad.yaml:15:14: spec.phases[0].image: "debian:13" names no registry; write default, or for example registry.example.com/team/tool:1.2, docker.io/library/debian:13, either with @sha256:…, or oci:/srv/images/tool:1.2 for a layout on the nodes
bad.yaml:16:12: spec.phases[0].run: "make test" is not a list; write the command as a list, for example [sh, -c, "make test"]
bad.yaml:17:7: spec.phases[0].run: "run" is there twice, first on line 16; keep one of them
bad.yaml:18:13: spec.phases[0].env.1A: "1A" is not a variable name; write letters, digits and underscores that do not start with a digit
bad.yaml:18:26: spec.phases[0].env.PORT: 8080 is not text; write "8080" with the quotes
bad.yaml:19:17: spec.phases[0].collect[0]: "../out" contains ..; write a relative glob, for example out/** or *.txt
bad.yaml:19:25: spec.phases[0].collect[1]: "/etc" is not relative to the workspace; write a relative glob, for example out/** or *.txt
bad.yaml:19:31: spec.phases[0].collect[2]: "a**" joins ** with other characters; write a relative glob, for example out/** or *.txt
bad.yaml:20:17: spec.phases[0].attempts: 0 is not allowed; write a whole number from 1 to 10
bad.yaml:21:7: spec.phases[1].name: "survey" is the name of two phases, first on line 12; give each phase its own name
bad.yaml:22:20: spec.phases[1].run[1]: 30 is not text; write "30" with the quotes
bad.yaml:24:13: spec.phases[2].hold: "later" is not allowed; write true, or for example {reason: look at the survey first, maxWait: 24h}
bad.yaml:25:15: spec.phases[2].agents: the list is empty; write one or more agents, or run for a phase of one machine
bad.yaml:26:7: spec.phases[3]: "nmae" is not a key here; did you mean name? the keys are name, resources, requires, image, run, env, collect, attempts, hold, agents, until, secrets
bad.yaml:26:7: spec.phases[3]: "name" is missing; write the phase's name, for example survey
bad.yaml:26:7: spec.phases[3]: "run" is missing; write the command as a list, for example [sh, -c, "make test"]`)
}

func TestFindingsAreTyped(t *testing.T) {
	text := strings.Replace(smallest, "run: [echo, hello]", "run: [echo, hello]\n      resources: {memory: lots}", 1)
	_, err := mission.Parse("dir/hello.yaml", []byte(text))
	var invalid *mission.Invalid
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, []mission.Finding{{
		File: "dir/hello.yaml", Line: 10, Column: 27,
		Key:     "spec.phases[0].resources.memory",
		Found:   `"lots"`,
		Problem: "is not a quantity",
		Allowed: "write for example 512Mi or 2Gi",
	}}, invalid.Findings)
}

func TestDocumentsThatAreNone(t *testing.T) {
	deep := "apiVersion: " + strings.Repeat("[", 30) + strings.Repeat("]", 30)
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		this, last := string(rune('1'+i)), string(rune('0'+i))
		bomb.WriteString("a" + this + ": &a" + this + " [" + strings.TrimSuffix(strings.Repeat("*a"+last+", ", 10), ", ") + "]\n")
	}

	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "f:1:1: the file is empty; write a mission that starts with apiVersion: tidewait/v1"},
		"only a comment": {"# nothing\n", "f:1:1: the file is empty; write a mission that starts with apiVersion: tidewait/v1"},
		"only a marker":  {"---\n", "f:1:1: the file is empty; write a mission that starts with apiVersion: tidewait/v1"},
		"null":           {"null\n", "f:1:1: the file is empty; write a mission that starts with apiVersion: tidewait/v1"},
		"text":           {"hello\n", `f:1:1: "hello" is not a mapping; write keys with values under it`},
		"list":           {"- a\n", "f:1:1: a list is not a mapping; write keys with values under it"},
		"two documents":  {smallest + "---\n" + smallest, "f:10:1: the file holds more than one document; write each mission into its own file"},
		"not UTF-8":      {"kind: Mission\nname: caf\xe9\n", "f:2:1: the file is not UTF-8 text; save it as UTF-8"},
		"UTF-16":         {"\xff\xfek\x00", "f:1:1: the file is not UTF-8 text; save it as UTF-8"},
		"too large":      {"# " + strings.Repeat("x", 256<<10), "f:1:1: the file has 262146 bytes; a mission has at most 262144"},
		"too deep":       {deep, "f:1:1: the document is nested more than 20 deep; a mission needs 8"},
		"alias bomb":     {bomb.String(), "f:1:1: the document has more than 200000 values once its aliases are written out; write fewer aliases"},
		"alias to self":  {"a: &a [*a]\n", "f:1:1: the document is nested more than 20 deep; a mission needs 8"},
		"unknown alias":  {"a: *b\n", "f:1:1: the text is not YAML: unknown anchor 'b' referenced"},
		"broken":         {"a: [1\nb: 2\n", "f:1:1: the text is not YAML: did not find expected ',' or ']'"},
		"tab":            {"a:\n\tb: 1\n", "f:2:1: the text is not YAML: found character that cannot start any token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mission.Parse("f", []byte(c.text))
			require.EqualError(t, err, c.want)
		})
	}
}

// TestOneMistake changes one line of a good document and expects one finding.
func TestOneMistake(t *testing.T) {
	for name, c := range map[string]struct{ old, replacement, want string }{
		"apiVersion":           {"tidewait/v1", "v1", `1:13: apiVersion: "v1" is not allowed; write tidewait/v1`},
		"kind":                 {"kind: Mission", "kind: Job", `2:7: kind: "Job" is not allowed; write Mission`},
		"kind missing":         {"kind: Mission\n", "", `1:1: "kind" is missing; write kind: Mission`},
		"metadata null":        {"{name: hello}", "", `3:10: metadata: nothing is not a mapping; write keys with values under it`},
		"unknown at the top":   {"kind:", "author: me\nkind:", `2:1: "author" is not a key here; the keys are apiVersion, kind, metadata, spec`},
		"name empty":           {"name: hello", `name: ""`, `3:18: metadata.name: "" is not a name; ` + nameHint},
		"name too long":        {"name: hello", "name: " + strings.Repeat("a", 64), `3:18: metadata.name: "` + strings.Repeat("a", 60) + `…" is not a name; ` + nameHint},
		"name a number":        {"name: hello", "name: 7", `3:18: metadata.name: 7 is not text; write "7" with the quotes`},
		"name ends in a dash":  {"name: hello", "name: hello-", `3:18: metadata.name: "hello-" is not a name; ` + nameHint},
		"name with a newline":  {"name: hello", `name: "hello\n"`, `3:18: metadata.name: "hello\n" is not a name; ` + nameHint},
		"label value":          {"name: hello", "name: hello, labels: {a: -x}", `3:37: metadata.labels.a: "-x" is not a label value; ` + labelHint},
		"label prefix":         {"name: hello", "name: hello, labels: {A/b: x}", `3:34: metadata.labels.A/b: "A/b" is not a label name; ` + labelHint + "; a DNS name and a slash may stand before it"},
		"label a number":       {"name: hello", "name: hello, labels: {a: 1}", `3:37: metadata.labels.a: 1 is not text; write "1" with the quotes`},
		"no source":            {"{path: ./files}", "{}", "6:14: spec.workspace: the workspace has no source; write git: REPOSITORY or path: DIRECTORY"},
		"ref beside path":      {"{path: ./files}", "{path: ., ref: main}", `6:29: spec.workspace.ref: "ref" cannot stand beside path; a ref is of a git repository`},
		"path empty":           {"./files", `""`, `6:21: spec.workspace.path: "" is empty; write a directory, for example ./files`},
		"transport helper":     {"path: ./files", `git: "ext::sh -c id"`, `6:20: spec.workspace.git: "ext::sh -c id" names a transport helper, which is never run; ` + gitHint},
		"option as a URL":      {"path: ./files", "git: --upload-pack=id", `6:20: spec.workspace.git: "--upload-pack=id" starts with a dash; ` + gitHint},
		"password":             {"path: ./files", "git: https://me:secret@example.org/x", `6:20: spec.workspace.git: "https://me:...@example.org/x" contains a password; ` + gitHint},
		"ref an option":        {"path: ./files", "git: ., ref: -x", `6:28: spec.workspace.ref: "-x" starts with a dash; write a branch, a tag or a full commit id`},
		"ref an expression":    {"path: ./files", "git: ., ref: main~1", `6:28: spec.workspace.ref: "main~1" contains a character that no ref may have; write a branch, a tag or a full commit id`},
		"turn too short":       {"  phases:", "  turn: 5s\n  phases:", `7:9: spec.turn: "5s" is too short; write 10s or more`},
		"turn negative":        {"  phases:", "  turn: -1h\n  phases:", `7:9: spec.turn: "-1h" is too short; write 10s or more`},
		"turn a list":          {"  phases:", "  turn: [1h]\n  phases:", `7:9: spec.turn: a list is not a duration; write for example 90s, 30m or 2h`},
		"priority a fraction":  {"  phases:", "  priority: 1.5\n  phases:", `7:13: spec.priority: 1.5 is not allowed; write a whole number from 0 to 100`},
		"priority quoted":      {"  phases:", "  priority: \"5\"\n  phases:", `7:13: spec.priority: "5" is not allowed; write a whole number from 0 to 100`},
		"priority hexadecimal": {"  phases:", "  priority: 0x10\n  phases:", `7:13: spec.priority: 0x10 is not allowed; write a whole number from 0 to 100`},
		"phases empty":         {"phases:\n    - name: greet\n      run: [echo, hello]", "phases: []", "7:11: spec.phases: the list is empty; write one or more phases"},
		"phases a mapping":     {"phases:\n    - name: greet\n      run: [echo, hello]", "phases: {}", "7:11: spec.phases: a mapping is not a list; write a list of phases, each with - name:"},
		"merge key":            {"name: greet", "<<: {name: greet}\n      name: greet", `8:7: spec.phases[0]: "<<" cannot be used; merge keys are not supported; write the keys out or use an alias for the whole value`},
		"key a list":           {"name: greet", "[a]: b\n      name: greet", `8:7: spec.phases[0]: a list cannot be a key; a key is a word`},
		"run a null":           {"[echo, hello]", "[echo, ~]", `9:19: spec.phases[0].run[1]: nothing is not text; write a string`},
		"run nothing":          {"[echo, hello]", `[""]`, `9:13: spec.phases[0].run[0]: "" is no command; ` + runHint},
		"run a zero byte":      {"hello]", `"a\0b"]`, `9:19: spec.phases[0].run[1]: "a\x00b" contains a zero byte; remove it`},
		"run too long":         {"hello]", strings.Repeat("x", 128<<10) + "]", `9:19: spec.phases[0].run[1]: "` + strings.Repeat("x", 60) + `…" is longer than 128 KiB; put it into a file of the workspace`},
		"cpus finer":           {"name: greet", "resources: {cpus: 1.0005}\n      name: greet", `8:25: spec.phases[0].resources.cpus: 1.0005 is finer than a thousandth of a CPU; ` + cpusHint},
		"cpus too many":        {"name: greet", "resources: {cpus: 257}\n      name: greet", `8:25: spec.phases[0].resources.cpus: 257 is too much; write 256 or less`},
		"cpus too few":         {"name: greet", "resources: {cpus: 99m}\n      name: greet", `8:25: spec.phases[0].resources.cpus: "99m" is too little; write 0.1 or more`},
		"cpus negative":        {"name: greet", "resources: {cpus: -1}\n      name: greet", `8:25: spec.phases[0].resources.cpus: -1 is not a number of CPUs; ` + cpusHint},
		"cpus infinite":        {"name: greet", "resources: {cpus: .inf}\n      name: greet", `8:25: spec.phases[0].resources.cpus: .inf is not a number of CPUs; ` + cpusHint},
		"memory too little":    {"name: greet", "resources: {memory: 127Mi}\n      name: greet", `8:27: spec.phases[0].resources.memory: "127Mi" is too little; write 128Mi or more`},
		"memory too much":      {"name: greet", "resources: {memory: 17Ti}\n      name: greet", `8:27: spec.phases[0].resources.memory: "17Ti" is too much; write 16Ti or less`},
		"disk decimal unit":    {"name: greet", "resources: {disk: 1GB}\n      name: greet", `8:25: spec.phases[0].resources.disk: "1GB" is not a quantity; write for example 512Mi or 2Gi`},
		"collect an open set":  {"name: greet", "collect: ['a[']\n      name: greet", `8:17: spec.phases[0].collect[0]: "a[" has a bracket that is not closed or is empty; ` + globHint},
		"collect empty part":   {"name: greet", "collect: [a//b]\n      name: greet", `8:17: spec.phases[0].collect[0]: "a//b" has an empty part between slashes; ` + globHint},
		"hold a word":          {"name: greet", "hold: \"true\"\n      name: greet", `8:13: spec.phases[0].hold: "true" is not allowed; ` + holdHint},
		"hold a list":          {"name: greet", "hold: [true]\n      name: greet", `8:13: spec.phases[0].hold: a list is not allowed; ` + holdHint},
		"hold nothing":         {"name: greet", "hold:\n      name: greet", `8:12: spec.phases[0].hold: nothing is not allowed; ` + holdHint},
		"hold an old word":     {"name: greet", "hold: yes\n      name: greet", `8:13: spec.phases[0].hold: "yes" is not allowed; ` + holdHint},
		"hold unknown key":     {"name: greet", "hold: {until: noon}\n      name: greet", `8:14: spec.phases[0].hold: "until" is not a key here; the keys are reason, maxWait`},
		"hold without reason":  {"name: greet", "hold: {reason: ' '}\n      name: greet", `8:22: spec.phases[0].hold.reason: " " is empty; write one short sentence, for example: look at the survey first`},
		"hold too short":       {"name: greet", "hold: {maxWait: 9s}\n      name: greet", `8:23: spec.phases[0].hold.maxWait: "9s" is too short; write 10s or more`},
		"attempts too many":    {"name: greet", "attempts: 11\n      name: greet", `8:17: spec.phases[0].attempts: 11 is not allowed; write a whole number from 1 to 10`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(smallest, c.old, c.replacement, 1)
			require.NotEqual(t, smallest, text)
			_, err := mission.Parse("f", []byte(text))
			require.EqualError(t, err, "f:"+c.want)
		})
	}
}

const (
	nameHint  = "write at most 63 small letters, digits and dashes that start and end with a letter or digit"
	labelHint = "write at most 63 letters, digits, dashes, underscores and dots that start and end with a letter or digit"
	gitHint   = "write a directory such as ./repo or a URL such as https://example.org/repo.git; credentials belong to the gateway's git configuration"
	holdHint  = "write true, or for example {reason: look at the survey first, maxWait: 24h}"
	runHint   = `write the command as a list, for example [sh, -c, "make test"]`
	cpusHint  = "write for example 2, 0.5 or 500m"
	globHint  = "write a relative glob, for example out/** or *.txt"
)

func TestPhaseCount(t *testing.T) {
	head, _, _ := strings.Cut(smallest, "    - name: greet")
	document := func(n int) []byte {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			b.WriteString("    - {name: p" + strings.Repeat("x", i%50) + string(rune('a'+i/50)) + ", run: [a]}\n")
		}
		return []byte(b.String())
	}
	m, err := mission.Parse("f", document(100))
	require.NoError(t, err)
	require.Len(t, m.Spec.Phases, 100)
	_, err = mission.Parse("f", document(101))
	require.EqualError(t, err, "f:8:5: spec.phases: the list has 101 phases; write at most 100")
}

func TestManyFindingsAreCut(t *testing.T) {
	text := smallest + "      collect: [" + strings.Repeat("/, ", 130) + "]\n"
	_, err := mission.Parse("f", []byte(text))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 101)
	require.Equal(t, "and 30 more", lines[100])
}

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		spec          mission.Spec
		turn, maxWait time.Duration
		err           string
	}{
		"the fleet's": {mission.Spec{}, time.Hour, 2 * time.Hour, ""},
		"lowered":     {mission.Spec{Turn: time.Minute, MaxWait: time.Second}, time.Minute, time.Second, ""},
		"equal":       {mission.Spec{Turn: time.Hour, MaxWait: 2 * time.Hour}, time.Hour, 2 * time.Hour, ""},
		"turn":        {mission.Spec{Turn: 61 * time.Minute}, 0, 0, "spec.turn: 1h1m0s is longer than the fleet's turn of 1h0m0s; lower it or remove the key"},
		"max wait":    {mission.Spec{MaxWait: 3 * time.Hour}, 0, 0, "spec.maxWait: 3h0m0s is longer than the fleet's longest wait of 2h0m0s; lower it or remove the key"},
	} {
		t.Run(name, func(t *testing.T) {
			turn, maxWait, err := c.spec.Bounds(time.Hour, 2*time.Hour)
			if c.err != "" {
				require.EqualError(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.turn, turn)
			require.Equal(t, c.maxWait, maxWait)
		})
	}
}

func TestWorkspaceRemoteAndResolve(t *testing.T) {
	for git, want := range map[string]string{
		"https://example.org/a.git": "",
		"file:///srv/a.git":         "",
		"git@example.org:a.git":     "",
		"host:a":                    "",
		".":                         "/missions",
		"./repo":                    "/missions/repo",
		"../repo":                   "/repo",
		"/srv/a/":                   "/srv/a",
		"./odd:name":                "/missions/odd:name",
	} {
		t.Run(git, func(t *testing.T) {
			w := mission.Workspace{Git: git, Ref: "main"}
			require.Equal(t, want == "", w.Remote())
			if want == "" {
				want = git
			}
			require.Equal(t, mission.Workspace{Git: want, Ref: "main"}, w.Resolve("/missions"))
		})
	}
	require.Equal(t, mission.Workspace{Path: "/missions/files"}, mission.Workspace{Path: "./files"}.Resolve("/missions"))
}

func TestAHoldMayBeOffOrOn(t *testing.T) {
	for text, want := range map[string]*mission.Hold{"false": nil, "true": {}, "{}": {}, "{maxWait: 1h}": {MaxWait: time.Hour}} {
		m, err := mission.Parse("f", []byte(strings.Replace(smallest, "name: greet", "name: greet\n      hold: "+text, 1)))
		require.NoError(t, err, text)
		require.Equal(t, want, m.Spec.Phases[0].Hold, text)
	}
}

func TestCanonicalAndDigest(t *testing.T) {
	m, err := mission.Parse("hello.yaml", []byte(smallest))
	require.NoError(t, err)
	m.Labels = map[string]string{"b": "2", "a": "1"}
	require.Equal(t, `{"name":"hello","labels":{"a":"1","b":"2"},"spec":{"backend":"microvm","workspace":{"path":"./files"},`+
		`"phases":[{"name":"greet","resources":{"cpuMilli":1000,"memoryMiB":512,"diskMiB":1024},"image":"default","run":["echo","hello"],"attempts":1}]}}`,
		string(m.Canonical()))
	require.Equal(t, "73bc9904cc8deb45004746a08d696c08c12b7d4a28f380a6a5579edbb4fd759c", m.Digest())

	var again mission.Mission
	require.NoError(t, json.Unmarshal(m.Canonical(), &again))
	require.Equal(t, m, again)
}
