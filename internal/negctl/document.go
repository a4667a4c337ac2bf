package negctl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// document is a mission on a small workspace.
type document struct {
	name    string
	backend string   // default process
	spec    []string // further lines of spec, such as "turn: 10m"
	phases  []phase
}

type phase struct {
	name   string // default work
	memory string // default 256Mi
	disk   string // default 64Mi
	script string
	agents []agent  // of a composed phase, which has no script
	extra  []string // further lines
}

type agent struct {
	name, cpus, memory, disk, script string
}

// work is a mission of one phase that runs a script in so much memory.
func work(name, memory, script string, spec ...string) document {
	return document{name: name, spec: spec, phases: []phase{{memory: memory, script: script}}}
}

// holder fills a node of a trial until it is cancelled.
func holder(name string) document { return work(name, "512Mi", "sleep 600") }

// write writes the document into dir and returns its path.
func (d document) write(dir, name, workspace string) (string, error) {
	if d.backend == "" {
		d.backend = "process"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: tidewait/v1\nkind: Mission\nmetadata: {name: %s}\nspec:\n  backend: %s\n  workspace: {path: %s}\n",
		name, d.backend, workspace)
	for _, line := range d.spec {
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("  phases:\n")
	for _, p := range d.phases {
		p.write(&b)
	}
	path := filepath.Join(dir, name+".yaml")
	return path, os.WriteFile(path, []byte(b.String()), 0o600)
}

func (p phase) write(b *strings.Builder) {
	if p.name == "" {
		p.name = "work"
	}
	fmt.Fprintf(b, "    - name: %s\n", p.name)
	if len(p.agents) == 0 {
		fmt.Fprintf(b, "      resources: {cpus: 1, memory: %s, disk: %s}\n      run: [sh, -c, %s]\n",
			cmp.Or(p.memory, "256Mi"), cmp.Or(p.disk, "64Mi"), quoted(p.script))
	} else {
		b.WriteString("      agents:\n")
	}
	for _, a := range p.agents {
		fmt.Fprintf(b, "        - name: %s\n          run: [sh, -c, %s]\n          resources: {cpus: %s, memory: %s, disk: %s}\n",
			a.name, quoted(a.script), a.cpus, a.memory, a.disk)
	}
	for _, line := range p.extra {
		b.WriteString("      " + line + "\n")
	}
}

func quoted(script string) string {
	text, err := json.Marshal(script)
	if err != nil {
		panic(err) // a string
	}
	return string(text)
}
