package workspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// tree is the files of a checkout: a path and a content of one letter, which is a
// capital where the file is executable.
type tree map[string]string

func (t tree) base() map[string]content {
	base := map[string]content{}
	for path, text := range t {
		base[path] = content{modeOf(text), strings.ToLower(text)}
	}
	return base
}

func modeOf(text string) string {
	if text != strings.ToLower(text) {
		return modeExecutable
	}
	return modeFile
}

// by is what an agent did: a path it wrote, with its content, or a dash where it
// deleted.
func by(agent string, did tree) changes {
	c := changes{agent: agent}
	for _, path := range slices.Sorted(maps.Keys(did)) {
		if did[path] == "-" {
			c.deleted = append(c.deleted, path)
			continue
		}
		c.files = append(c.files, result{path: path, mode: modeOf(did[path]), id: strings.ToLower(did[path])})
	}
	return c
}

// apply is what merge's answer makes of a base.
func apply(base tree, files []result, deleted []string) tree {
	after := maps.Clone(base)
	for _, path := range deleted {
		delete(after, path)
	}
	for _, f := range files {
		for path := range after {
			if strings.HasPrefix(path, f.path+"/") || strings.HasPrefix(f.path, path+"/") {
				delete(after, path) // as git does
			}
		}
		text := f.id
		if f.mode == modeExecutable {
			text = strings.ToUpper(text)
		}
		after[f.path] = text
	}
	return after
}

func TestMerge(t *testing.T) {
	base := tree{"a": "1", "d/x": "2", "d/y": "3", "e/f/g": "4", "z": "5"}
	for name, c := range map[string]struct {
		did  []changes
		want tree // with what is no longer there as a dash
	}{
		"apart":                             {[]changes{by("p", tree{"a": "9", "n": "1"}), by("q", tree{"d/x": "-", "m/n": "2"})}, tree{"a": "9", "n": "1", "d/x": "-", "m/n": "2"}},
		"nothing":                           {[]changes{by("p", nil), by("q", nil)}, nil},
		"the same content":                  {[]changes{by("p", tree{"n": "q", "a": "w"}), by("q", tree{"n": "q", "a": "w"})}, tree{"n": "q", "a": "w"}},
		"the same executable":               {[]changes{by("p", tree{"n": "Q"}), by("q", tree{"n": "Q"})}, tree{"n": "Q"}},
		"the same deletion":                 {[]changes{by("p", tree{"d/x": "-", "d/y": "-"}), by("q", tree{"d/x": "-", "d/y": "-"})}, tree{"d/x": "-", "d/y": "-"}},
		"a write of what is there":          {[]changes{by("p", tree{"a": "1"}), by("q", tree{"a": "9"})}, tree{"a": "9"}},
		"a write of what another deletes":   {[]changes{by("p", tree{"a": "1"}), by("q", tree{"a": "-"})}, tree{"a": "-"}},
		"a deletion of what is not there":   {[]changes{by("p", tree{"n": "-"}), by("q", tree{"n": "1"})}, tree{"n": "1"}},
		"a file for a directory":            {[]changes{by("p", tree{"d": "1", "d/x": "-", "d/y": "-"}), by("q", tree{"a": "2"})}, tree{"d": "1", "d/x": "-", "d/y": "-", "a": "2"}},
		"a directory for a file":            {[]changes{by("p", tree{"a": "-", "a/b": "1"}), by("q", tree{"a": "-", "a/c": "2"})}, tree{"a": "-", "a/b": "1", "a/c": "2"}},
		"a name that begins like another":   {[]changes{by("p", tree{"dd": "1"}), by("q", tree{"d/x": "9"})}, tree{"dd": "1", "d/x": "9"}},
		"a directory emptied but for one":   {[]changes{by("p", tree{"d/x": "-"}), by("q", tree{"d/n": "1"})}, tree{"d/x": "-", "d/n": "1"}},
		"a directory emptied and filled":    {[]changes{by("p", tree{"d/x": "-", "d/y": "-", "d/m": "1"}), by("q", tree{"d/n": "1"})}, tree{"d/x": "-", "d/y": "-", "d/m": "1", "d/n": "1"}},
		"a directory emptied by two halves": {[]changes{by("p", tree{"d/x": "-"}), by("q", tree{"d/y": "-"}), by("r", tree{"d/n": "1"})}, tree{"d/x": "-", "d/y": "-", "d/n": "1"}},
		"a directory named as deleted":      {[]changes{by("p", tree{"e": "-"}), by("q", tree{"a": "2"})}, tree{"e/f/g": "-", "a": "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(base)
			for path, text := range c.want {
				if want[path] = text; text == "-" {
					delete(want, path)
				}
			}
			files, deleted, err := merge(base.base(), c.did)
			require.NoError(t, err)
			require.Equal(t, want, apply(base, files, deleted))
		})
	}
}

func TestConflicts(t *testing.T) {
	base := tree{"a": "1", "d/x": "2", "d/y": "3", "e/f/g": "4", "z": "5"}
	long := strings.Repeat("long/", 30) + "name"
	for name, c := range map[string]struct {
		did  []changes
		want string
	}{
		"different content": {
			[]changes{by("p", tree{"n": "q"}), by("q", tree{"n": "w"})}, `2 agents conflict in 1 path, and nothing was committed: "n": p and q wrote different content`,
		},
		"different modes": {
			[]changes{by("p", tree{"n": "q"}), by("q", tree{"n": "Q"})}, `2 agents conflict in 1 path, and nothing was committed: "n": p and q wrote it with different modes`,
		},
		"a write and a deletion": {
			[]changes{by("p", tree{"a": "-"}), by("q", tree{"a": "w"}), by("r", nil)},
			`3 agents conflict in 1 path, and nothing was committed: "a": q wrote it, p deleted it`,
		},
		"a mode and a deletion": {
			[]changes{by("p", tree{"a": "-"}), by("q", tree{"z": "5"}), by("r", tree{"d/x": "Q"}), by("s", tree{"d/x": "-"})},
			`4 agents conflict in 1 path, and nothing was committed: "d/x": r wrote it, s deleted it`,
		},
		"a file against a directory": {
			[]changes{by("p", tree{"n": "1"}), by("q", tree{"n/m/o": "1"}), by("r", tree{"n/m/p": "1"})},
			`3 agents conflict in 1 path, and nothing was committed: "n": p wrote a file, q and r wrote below it`,
		},
		"a file against a file deeper down": {
			[]changes{by("p", tree{"d": "1", "d/x": "-", "d/y": "-"}), by("q", tree{"d/x": "9"})},
			`2 agents conflict in 2 paths, and nothing was committed: "d": p wrote a file, q wrote below it; "d/x": q wrote it, p deleted it`,
		},
		"a directory deleted and written into": {
			[]changes{by("p", tree{"d/x": "-", "d/y": "-"}), by("q", tree{"d/n": "1", "d/m/o": "1"})},
			`2 agents conflict in 1 path, and nothing was committed: "d": p deleted the directory, q wrote below it`,
		},
		"a directory within a deleted one": {
			[]changes{by("p", tree{"e/f/g": "-"}), by("q", tree{"e/n": "1"})},
			`2 agents conflict in 1 path, and nothing was committed: "e": p deleted the directory, q wrote below it`,
		},
		"a file replaced without a word": {
			[]changes{by("p", tree{"a/b": "1"}), by("q", tree{"a": "9"})},
			`2 agents conflict in 1 path, and nothing was committed: "a": q wrote it, p deleted it`,
		},
		"a directory replaced without a word": {
			[]changes{by("p", tree{"d": "1"}), by("q", tree{"d/x": "9"})},
			`2 agents conflict in 2 paths, and nothing was committed: "d": p wrote a file, q wrote below it; "d/x": q wrote it, p deleted it`,
		},
		"many agents": {
			[]changes{by("p", tree{"n": "1"}), by("q", tree{"n": "2"}), by("r", tree{"n": "3"}), by("s", tree{"n": "4"}), by("t", tree{"n": "5"}), by("u", tree{"n": "6"})},
			`6 agents conflict in 1 path, and nothing was committed: "n": p, q, r, s and 2 others wrote different content`,
		},
		"many paths": {
			[]changes{by("p", many("1")), by("q", many("2"))},
			`2 agents conflict in 14 paths, and nothing was committed: ` + strings.Join(manyConflicts(10), "; ") + "; and 4 more",
		},
		"a long path": {
			[]changes{by("p", tree{long: "1"}), by("q", tree{long: "2"})},
			`2 agents conflict in 1 path, and nothing was committed: "` + long[:120] + `…": p and q wrote different content`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := merge(base.base(), c.did)
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, Code("results_conflict"), refused.Code)
			require.Equal(t, "the results of "+c.want, refused.Message)
		})
	}
}

func many(text string) tree {
	did := tree{}
	for i := range 14 {
		did[fmt.Sprintf("f%02d", i)] = text
	}
	return did
}

func manyConflicts(n int) []string {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf(`"f%02d": p and q wrote different content`, i))
	}
	return texts
}

// TestMergeIsWhatAllTreesAgreeOn compares merge with a plain look at whole trees:
// two of them contradict each other when a path differs from the base in both and
// is not the same, when one has a file where the other has one below, or when a
// directory is gone in one and has something new in the other. Where nothing
// does, every order of the machines gives the same tree, and that is the merge.
func TestMergeIsWhatAllTreesAgreeOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genTree.Draw(t, "base")
		trees := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) tree { return edited(t, base) }), 1, 4).Draw(t, "trees")
		var parts []changes
		for i, after := range trees {
			parts = append(parts, by(string(rune('p'+i)), difference(base, after)))
		}

		files, deleted, err := merge(base.base(), parts)

		if at := disagreement(base, trees); at != "" {
			var refused *Refused
			require.ErrorAs(t, err, &refused, at)
			require.Equal(t, ResultsConflict, refused.Code)
			return
		}
		require.NoError(t, err)
		got := apply(base, files, deleted)
		for range 3 {
			order := rapid.Permutation(parts).Draw(t, "order")
			one := maps.Clone(base)
			for _, part := range order {
				one = apply(one, part.files, part.deleted)
			}
			require.Equal(t, one, got)
		}
	})
}

var (
	genPath = rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f/a"})
	genText = rapid.SampledFrom([]string{"q", "w", "Q"})
	genTree = rapid.Custom(func(t *rapid.T) tree { return edited(t, nil) })
)

// edited is a tree after a few random writes and deletions.
func edited(t *rapid.T, base tree) tree {
	after := maps.Clone(base)
	if after == nil {
		after = tree{}
	}
	for range rapid.IntRange(0, 5).Draw(t, "edits") {
		path := genPath.Draw(t, "path")
		if rapid.Bool().Draw(t, "delete") {
			maps.DeleteFunc(after, func(p, _ string) bool { return p == path || strings.HasPrefix(p, path+"/") })
			continue
		}
		after = apply(after, []result{{path: path, mode: modeFile, id: "x"}}, nil)
		after[path] = genText.Draw(t, "text")
	}
	return after
}

// difference is what a machine says that turns a base into a tree.
func difference(base, after tree) tree {
	did := tree{}
	for path, text := range after {
		if base[path] != text {
			did[path] = text
		}
	}
	for path := range base {
		if _, there := after[path]; !there {
			did[path] = "-"
		}
	}
	return did
}

// disagreement is a path in which two trees contradict each other, or "".
func disagreement(base tree, trees []tree) string {
	for i := range trees {
		for j := range trees {
			if i != j {
				if at := contradiction(base, trees[i], trees[j]); at != "" {
					return at
				}
			}
		}
	}
	return ""
}

func contradiction(base, one, other tree) string {
	for path, did := range difference(base, one) {
		against, both := difference(base, other)[path]
		if both && against != did {
			return path
		}
	}
	for path := range difference(base, one) {
		for below := range difference(base, other) {
			if one[path] != "" && other[below] != "" && strings.HasPrefix(below, path+"/") {
				return path
			}
		}
	}
	for old := range base {
		for directory := range ancestors(old) {
			for added := range other {
				if !has(one, directory) && base[added] == "" && strings.HasPrefix(added, directory+"/") {
					return directory
				}
			}
		}
	}
	return ""
}

// has reports whether a tree has a file below a directory.
func has(t tree, directory string) bool {
	for path := range t {
		if strings.HasPrefix(path, directory+"/") {
			return true
		}
	}
	return false
}

func TestOfAgentNamesWhoseResultsWereRefused(t *testing.T) {
	refused := refuse(ResultsDamaged, "the results are not a whole tar stream")
	require.EqualError(t, ofAgent("critic", refused), "agent critic: the results are not a whole tar stream")
	require.Same(t, refused, ofAgent("", refused))
	other := errors.New("the disk is full")
	require.Same(t, other, ofAgent("critic", other))
}
