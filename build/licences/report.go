package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// report is the page about all modules.
func report(modules []module) string {
	var b strings.Builder
	b.WriteString(`# Licences of dependencies

Every Go module that Tidewait is built or tested with, as ` + "`make licences`" + ` finds them; a test fails when this page
is not what it prints, or when a licence is not among ` + strings.Join(allowed, ", ") + `.
Why the direct ones are there is in [dependencies](dependencies.md).

`)
	b.WriteString(counts(modules))
	for _, part := range []struct {
		title   string
		shipped bool
	}{{"In the programs", true}, {"In tests and benchmarks alone", false}} {
		fmt.Fprintf(&b, "\n## %s\n\n| module | version | licence | |\n|---|---|---|---|\n", part.title)
		for _, m := range modules {
			if m.shipped == part.shipped {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Path, m.Version, cmp.Or(strings.Join(m.licences, ", "), "none"), map[bool]string{true: "indirect", false: "direct"}[m.Indirect])
			}
		}
	}
	return b.String()
}

// counts says how many modules have which licence.
func counts(modules []module) string {
	by := map[string]int{}
	for _, m := range modules {
		for _, name := range m.licences {
			by[name]++
		}
	}
	var b strings.Builder
	b.WriteString("| licence | modules |\n|---|---|\n")
	for _, name := range allowed {
		if by[name] > 0 {
			fmt.Fprintf(&b, "| %s | %d |\n", name, by[name])
		}
	}
	several := slices.DeleteFunc(slices.Clone(modules), func(m module) bool { return len(m.licences) < 2 })
	for _, m := range modules {
		if why := exceptions[m.Path+"@"+m.Version]; why != "" {
			fmt.Fprintf(&b, "\nAn exception: `%s` %s. %s.\n", m.Path, m.Version, why)
		}
	}
	if len(several) > 0 {
		fmt.Fprintf(&b, "\nOf %d modules, %d have more than one licence, for different files or to choose from, and are counted with each.\n", len(modules), len(several))
	}
	return b.String()
}
