package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// allowed are the licences a dependency may have, by their SPDX names: what they ask
// for is to name the authors. MPL-2.0 asks for the source of changed files of the
// module itself, and none is changed.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// exceptions are modules in one version that may be used though the check says no,
// and why.
var exceptions = map[string]string{
	"github.com/nexus-rpc/nexus-proto-annotations@v0.1.0": "Its authors put no licence into it. Temporal's API for Go, which is MIT, " +
		"cannot do without it: 233 lines that protoc generated. To be looked at again with each version",
}

// A known licence has all of these words, and none of those. Case does not count, and
// slashes are spaces, as in comments.
type known struct {
	name     string
	has, not []string
}

var licences = []known{
	{name: "AGPL", has: []string{"gnu affero general public license"}, not: []string{"mozilla public license"}},
	{name: "LGPL", has: []string{"gnu lesser general public license"}, not: []string{"mozilla public license"}},
	{name: "GPL", has: []string{"gnu general public license"}, not: []string{"mozilla public license"}},
	{name: "SSPL", has: []string{"server side public license"}},
	{name: "BUSL", has: []string{"business source license"}},
	{name: "MPL-2.0", has: []string{"mozilla public license", "version 2.0"}},
	{name: "Apache-2.0", has: []string{"apache license", "version 2.0"}},
	{name: "ISC", has: []string{"permission to use, copy, modify, and or distribute this software for any purpose with or without fee is hereby granted"}},
	{name: "ISC", has: []string{"permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"}},
	{
		name: "BSD-3-Clause",
		has:  []string{"redistribution and use in source and binary forms, with or without modification, are permitted", "endorse or promote products derived from this software"},
		not:  []string{"all advertising materials"},
	},
	{
		name: "BSD-2-Clause",
		has:  []string{"redistribution and use in source and binary forms, with or without modification, are permitted"},
		not:  []string{"all advertising materials", "endorse or promote"},
	},
	{name: "MIT", has: []string{"permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"}},
}

// unknown is the licence of a text that is none of these.
const unknown = "unknown"

var spaces = regexp.MustCompile(`[\s*#/]+`)

// licencesOf tells the licences that a text has, of which there may be several.
func licencesOf(text string) []string {
	text = spaces.ReplaceAllString(strings.ToLower(text), " ")
	in := func(words string) bool { return strings.Contains(text, words) }
	var found []string
	for _, k := range licences {
		if !slices.ContainsFunc(k.has, func(words string) bool { return !in(words) }) && !slices.ContainsFunc(k.not, in) {
			found = append(found, k.name)
		}
	}
	if len(found) == 0 {
		return []string{unknown}
	}
	return found
}

// notOfCode are the ends of names of files about the documentation, and of programs.
var notOfCode = map[string]bool{".docs": true, ".go": true}

var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([-._].*)?$`)

// licencesIn tells the licences in the root of a module, and in which files they are.
// A module may have several, of which all are listed.
func licencesIn(dir string) (names, files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("look for the licence: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || notOfCode[filepath.Ext(e.Name())] {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, fmt.Errorf("read the licence: %w", err)
		}
		names, files = append(names, licencesOf(string(text))...), append(files, e.Name())
	}
	slices.Sort(names)
	return slices.Compact(names), files, nil
}

// check wants an allowed licence for each module, and no other, but for exceptions.
func check(modules []module) error {
	var faults []string
	for _, m := range modules {
		odd := slices.DeleteFunc(slices.Clone(m.licences), func(name string) bool { return slices.Contains(allowed, name) })
		switch {
		case exceptions[m.Path+"@"+m.Version] != "":
		case len(m.licences) == 0:
			faults = append(faults, fmt.Sprintf("%s %s has no licence in its root", m.Path, m.Version))
		case len(odd) > 0:
			faults = append(faults, fmt.Sprintf("%s %s has the licence %s in %s, which is not among those allowed: %s",
				m.Path, m.Version, strings.Join(odd, ", "), strings.Join(m.files, ", "), strings.Join(allowed, ", ")))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d modules may not be used:\n  %s", len(faults), len(modules), strings.Join(faults, "\n  "))
}
