package mission

import "slices"

// field is one key a mapping may have.
type field struct {
	name     string
	required string // what to write when it is missing; empty: optional
	unless   string // the key that stands in for a missing one
}

// shape is the closed list of keys of one kind of mapping.
type shape []field

func (s shape) has(name string) bool { return slices.Contains(s.names(), name) }

func (s shape) names() []string {
	var names []string
	for _, f := range s {
		names = append(names, f.name)
	}
	return names
}

const runHint = `write the command as a list, for example [sh, -c, "make test"]`

// The shapes of a document. mission.schema.json says the same for editors.
var (
	documentShape = shape{
		{name: "apiVersion", required: "write apiVersion: " + APIVersion},
		{name: "kind", required: "write kind: " + Kind},
		{name: "metadata", required: "write metadata: {name: NAME}"},
		{name: "spec", required: "write the backend, the workspace and the phases under it"},
	}
	metadataShape = shape{
		{name: "name", required: "write the mission's name, for example nightly-port"},
		{name: "labels"},
	}
	specShape = shape{
		{name: "backend", required: "write microvm or process"},
		{name: "workspace", required: "write for example workspace: {git: ./repo} or workspace: {path: ./files}"},
		{name: "turn"},
		{name: "maxWait"},
		{name: "priority"},
		{name: "phases", required: "write a list of one or more phases"},
	}
	workspaceShape = shape{
		{name: "git"},
		{name: "ref"},
		{name: "path"},
	}
	phaseShape = shape{
		{name: "name", required: "write the phase's name, for example survey"},
		{name: "resources"},
		{name: "requires"},
		{name: "image"},
		{name: "run", required: runHint, unless: "agents"},
		{name: "env"},
		{name: "collect"},
		{name: "attempts"},
		{name: "hold"},
		{name: "agents"},
		{name: "until"},
		{name: "secrets"},
	}
	secretShape = shape{
		{name: "name", required: "write the name of an environment variable, for example API_TOKEN"},
		{name: "from", required: "write file:NAME, env:NAME or command:NAME"},
	}
	agentShape = shape{
		{name: "name", required: "write the agent's name, for example author"},
		{name: "run", required: runHint},
		{name: "replicas"},
		{name: "resources"},
		{name: "image"},
		{name: "env"},
		{name: "collect"},
		{name: "secrets"},
	}
	holdShape = shape{
		{name: "reason"},
		{name: "maxWait"},
	}
	resourcesShape = shape{
		{name: "cpus"},
		{name: "memory"},
		{name: "disk"},
	}
	requiresShape = shape{
		{name: "arch"},
		{name: "labels"},
	}
)

// suggest returns the name nearest to a mistyped one, or "" when none is near.
func suggest(mistyped string, names []string) string {
	if len(mistyped) > 40 {
		return ""
	}
	best, nearest := "", min(2, len(mistyped)/2)+1
	for _, name := range names {
		if d := distance(mistyped, name); d < nearest {
			best, nearest = name, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short strings, letter case
// ignored, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if lower(a[i]) != lower(b[j]) {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
