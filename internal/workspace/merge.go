package workspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// changes is what one machine did to the files it started from.
type changes struct {
	agent   string
	files   []result // written
	deleted []string
}

func newChanges(part Part, files []result) changes {
	return changes{agent: part.Agent, files: files, deleted: part.Deleted}
}

// content is a file or link as git has it.
type content struct{ mode, id string }

// baseFiles lists the files and links of a commit by their path.
func baseFiles(ctx context.Context, repo git, commit string) (map[string]content, error) {
	entries, err := listTree(ctx, repo, commit)
	if err != nil {
		return nil, fmt.Errorf("files of commit %.12s: %w", commit, err)
	}
	base := make(map[string]content, len(entries))
	for _, e := range entries {
		if e.mode != "040000" {
			base[e.path] = content{e.mode, e.id}
		}
	}
	return base, nil
}

// merge returns the sum of what several machines did to the same files. Paths
// that nobody changed differently from others are no conflict: the same content
// and mode may be written, and the same file deleted, by several. The error is a
// [*Refused] that names what cannot be had together, and by whom; nothing is left
// out silently, and nobody wins.
func merge(base map[string]content, parts []changes) (files []result, deleted []string, err error) {
	m := &merger{base: base, parts: make([]effect, len(parts)), found: map[string]conflict{}}
	for i, part := range parts {
		m.parts[i] = effectOf(base, part)
	}
	m.samePaths()
	m.filesAgainstDirectories()
	m.removedDirectories()
	if len(m.found) > 0 {
		return nil, nil, m.refusal()
	}
	written := map[string]result{}
	gone := map[string]bool{}
	for _, e := range m.parts {
		maps.Copy(written, e.written)
		maps.Copy(gone, e.deleted)
	}
	for _, path := range slices.Sorted(maps.Keys(written)) {
		files = append(files, written[path])
	}
	return files, slices.Sorted(maps.Keys(gone)), nil
}

// effect is what is different after a machine's changes, and nothing that is the
// same as before.
type effect struct {
	agent   string
	written map[string]result
	deleted map[string]bool // files and links of the base only
	removed map[string]bool // directories of the base that have no file any more
}

func effectOf(base map[string]content, c changes) effect {
	e := effect{agent: c.agent, written: map[string]result{}, deleted: map[string]bool{}}
	kept := map[string]bool{}
	for _, f := range c.files {
		if base[f.path] == (content{f.mode, f.id}) {
			kept[f.path] = true
			continue
		}
		e.written[f.path] = f
	}
	for _, path := range deletedFiles(base, c.deleted) {
		if _, again := e.written[path]; !again && !kept[path] {
			e.deleted[path] = true
		}
	}
	// A file where a directory was, or the other way round, is the end of what
	// was there, whether the machine says so or not.
	for path := range base {
		if e.buries(path) {
			e.deleted[path] = true
		}
	}
	for path := range e.written {
		for above := range ancestors(path) {
			if _, file := base[above]; file {
				e.deleted[above] = true
			}
		}
	}
	e.removed = removedDirectories(base, e)
	return e
}

// buries reports whether a file was written where a directory above path was.
func (e effect) buries(path string) bool {
	for above := range ancestors(path) {
		if _, written := e.written[above]; written {
			return true
		}
	}
	return false
}

// deletedFiles are the files of the base that paths name, or that lie below them.
func deletedFiles(base map[string]content, paths []string) []string {
	var files []string
	directories := map[string]bool{}
	for _, path := range paths {
		if _, file := base[path]; file {
			files = append(files, path)
		} else {
			directories[path] = true
		}
	}
	if len(directories) == 0 {
		return files
	}
	for path := range base {
		for above := range ancestors(path) {
			if directories[above] {
				files = append(files, path)
				break
			}
		}
	}
	return files
}

// removedDirectories are the directories of the base of which an effect leaves no
// file.
func removedDirectories(base map[string]content, e effect) map[string]bool {
	removed := map[string]bool{}
	for path := range e.deleted {
		for above := range ancestors(path) {
			removed[above] = true
		}
	}
	for path := range base {
		if !e.deleted[path] {
			for above := range ancestors(path) {
				delete(removed, above)
			}
		}
	}
	for path := range e.written {
		for above := range ancestors(path) {
			delete(removed, above)
		}
	}
	return removed
}

// ancestors yields the directories above a path, the nearest first.
func ancestors(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for {
			end := strings.LastIndexByte(path, '/')
			if end < 0 {
				return
			}
			if path = path[:end]; !yield(path) {
				return
			}
		}
	}
}

// merger finds what effects contradict each other in.
type merger struct {
	base  map[string]content
	parts []effect
	found map[string]conflict // by path
}

// conflict is one path that cannot be as all machines left it.
type conflict struct {
	path string
	// Who did the one and who did the other; without other, who did different
	// things of the same kind.
	one, other   []string
	did, against string
}

func (m *merger) add(c conflict) {
	if _, known := m.found[c.path]; !known {
		m.found[c.path] = c
	}
}

// samePaths finds files that were written differently, or written and deleted.
func (m *merger) samePaths() {
	writers, deleters := map[string][]int{}, map[string][]string{}
	for i, e := range m.parts {
		for path := range e.written {
			writers[path] = append(writers[path], i)
		}
		for path := range e.deleted {
			deleters[path] = append(deleters[path], e.agent)
		}
	}
	for path, by := range writers {
		first := m.parts[by[0]].written[path]
		did := ""
		for _, i := range by[1:] {
			switch f := m.parts[i].written[path]; {
			case f.id != first.id:
				did = "wrote different content"
			case f.mode != first.mode && did == "":
				did = "wrote it with different modes"
			}
		}
		switch {
		case did != "":
			m.add(conflict{path: path, one: m.agents(by), did: did})
		case len(deleters[path]) > 0:
			m.add(conflict{path: path, one: m.agents(by), did: "wrote it", other: deleters[path], against: "deleted it"})
		}
	}
}

func (m *merger) agents(parts []int) []string {
	names := make([]string, len(parts))
	for i, part := range parts {
		names[i] = m.parts[part].agent
	}
	return names
}

// filesAgainstDirectories finds files that were written where others wrote below.
func (m *merger) filesAgainstDirectories() {
	below := map[string][]string{} // who wrote below a directory
	for _, e := range m.parts {
		for path := range e.written {
			for above := range ancestors(path) {
				if !slices.Contains(below[above], e.agent) {
					below[above] = append(below[above], e.agent)
				}
			}
		}
	}
	files := map[string][]string{}
	for _, e := range m.parts {
		for path := range e.written {
			if len(below[path]) > 0 {
				files[path] = append(files[path], e.agent)
			}
		}
	}
	for path, by := range files {
		m.add(conflict{path: path, one: by, did: "wrote a file", other: below[path], against: "wrote below it"})
	}
}

// removedDirectories finds directories of which one machine left nothing while
// another put something new into them.
func (m *merger) removedDirectories() {
	removers := map[string][]string{}
	for _, e := range m.parts {
		for path := range e.removed {
			removers[path] = append(removers[path], e.agent)
		}
	}
	writers := map[string][]string{}
	for _, e := range m.parts {
		for path := range e.written {
			if _, old := m.base[path]; old {
				continue // whose deletion is a conflict of its own
			}
			for above := range ancestors(path) {
				if len(removers[above]) > 0 {
					if !slices.Contains(writers[above], e.agent) {
						writers[above] = append(writers[above], e.agent)
					}
					break
				}
			}
		}
	}
	for path, by := range writers {
		m.add(conflict{path: path, one: removers[path], did: "deleted the directory", other: by, against: "wrote below it"})
	}
}

// What a refusal names at most.
const (
	maxConflicts      = 10
	maxConflictAgents = 4
	maxConflictPath   = 120 // bytes
)

func (m *merger) refusal() *Refused {
	paths := slices.Sorted(maps.Keys(m.found))
	shown := make([]string, 0, maxConflicts)
	for _, path := range paths[:min(len(paths), maxConflicts)] {
		shown = append(shown, m.found[path].String())
	}
	if rest := len(paths) - len(shown); rest > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", rest))
	}
	noun := "paths"
	if len(paths) == 1 {
		noun = "path"
	}
	return refuse(ResultsConflict, "the results of %d agents conflict in %d %s, and nothing was committed: %s",
		len(m.parts), len(paths), noun, strings.Join(shown, "; "))
}

func (c conflict) String() string {
	path := c.path
	if len(path) > maxConflictPath {
		path = strings.ToValidUTF8(path[:maxConflictPath], "") + "…"
	}
	text := fmt.Sprintf("%q: %s %s", path, people(c.one), c.did)
	if len(c.other) > 0 {
		text += ", " + people(c.other) + " " + c.against
	}
	return text
}

// people lists agents in the order of their document.
func people(agents []string) string {
	shown := slices.Clone(agents[:min(len(agents), maxConflictAgents)])
	if rest := len(agents) - len(shown); rest > 0 {
		shown = append(shown, fmt.Sprintf("%d others", rest))
	}
	last := len(shown) - 1
	if last == 0 {
		return shown[0]
	}
	return strings.Join(shown[:last], ", ") + " and " + shown[last]
}
