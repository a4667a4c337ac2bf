package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReportIsUpToDate(t *testing.T) {
	modules, err := modulesOf("../..")
	require.NoError(t, err)
	require.NoError(t, check(modules))
	written, err := os.ReadFile("../../docs/licences.md")
	require.NoError(t, err)
	require.Equal(t, report(modules), string(written), "docs/licences.md is out of date: run `make licences`")
}

// TestEveryDirectDependencyIsExplained looks for each in the first table of
// docs/dependencies.md, with its version and a reason.
func TestEveryDirectDependencyIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/dependencies.md")
	require.NoError(t, err)
	rows := explained(string(text))
	modules, err := modulesOf("../..")
	require.NoError(t, err)
	for _, m := range modules {
		if m.Indirect {
			continue
		}
		row, ok := rows[m.Path]
		require.True(t, ok, "docs/dependencies.md does not explain %s", m.Path)
		require.Contains(t, row.versions, m.Version, "docs/dependencies.md has %s for %s", row.versions, m.Path)
		delete(rows, m.Path)
	}
	require.Empty(t, rows, "docs/dependencies.md explains what is no direct dependency")
}

func TestExplained(t *testing.T) {
	require.Equal(t, map[string]explanation{
		"a.example/b": {"v1.2.0, v3.0.0"}, "c.example/d": {"v1.2.0, v3.0.0"},
	}, explained("# Title\n## Go modules\n| module | version | for | else |\n|---|---|---|---|\n"+
		"| `a.example/b`, `c.example/d` | v1.2.0, v3.0.0 | a reason with `code/x.y` | none |\n"+
		"| `e.example/f` | v1.0.0 |  | none |\n\n## Others\n| `g.example/h` | v1.0.0 | x | y |\n"))
}

type explanation struct{ versions string }

var quoted = regexp.MustCompile("`([^`]+)`")

// explained reads the table below "Go modules". A row without a reason explains
// nothing.
func explained(text string) map[string]explanation {
	_, table, _ := strings.Cut(text, "## Go modules")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]explanation{}
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.TrimSpace(cells[3]) == "" {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = explanation{strings.TrimSpace(cells[2])}
		}
	}
	return rows
}

func TestLicences(t *testing.T) {
	const (
		mit    = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated documentation files (the \"Software\")"
		bsd    = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that"
		apache = "  Apache License\n  Version 2.0, January 2004"
	)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"MIT", mit, []string{"MIT"}},
		{"in comments", "// " + strings.ReplaceAll(mit, "\n", "\n// "), []string{"MIT"}},
		{"BSD with two clauses", bsd, []string{"BSD-2-Clause"}},
		{"BSD with three", bsd + "\nnor may be used to endorse or promote products derived from\nthis software", []string{"BSD-3-Clause"}},
		{"BSD with four", bsd + "\nAll advertising materials", []string{"unknown"}},
		{"two in a file", apache + mit, []string{"Apache-2.0", "MIT"}},
		{"MPL names others", "Mozilla Public License Version 2.0 ... GNU General Public License", []string{"MPL-2.0"}},
		{"GPL", "GNU GENERAL PUBLIC LICENSE\nVersion 3", []string{"GPL"}},
		{"AGPL", "GNU AFFERO GENERAL PUBLIC LICENSE", []string{"AGPL"}},
		{"nothing", "do as you like", []string{"unknown"}},
	} {
		require.ElementsMatch(t, c.want, licencesOf(c.text), c.name)
	}
}

func TestCheckRefuses(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"LICENSE": "Apache License Version 2.0", "COPYING.md": "GNU General Public License", "LICENSE.docs": "what is for documentation", "licence.go": "package x",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	names, files, err := licencesIn(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"Apache-2.0", "GPL"}, names)
	require.Equal(t, []string{"COPYING.md", "LICENSE"}, files)
	require.EqualError(t, check([]module{
		{Path: "a.example/fine", Version: "v1.0.0", licences: []string{"MIT"}},
		{Path: "b.example/copyleft", Version: "v1.1.0", licences: names, files: files},
		{Path: "c.example/none", Version: "v1.2.0"},
	}), "2 of 3 modules may not be used:\n"+
		"  b.example/copyleft v1.1.0 has the licence GPL in COPYING.md, LICENSE, which is not among those allowed: Apache-2.0, BSD-2-Clause, BSD-3-Clause, ISC, MIT, MPL-2.0\n"+
		"  c.example/none v1.2.0 has no licence in its root")
}
