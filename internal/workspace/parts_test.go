package workspace_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

// part is what an agent brings back.
func part(t testing.TB, agent string, deleted []string, headers ...tar.Header) workspace.Part {
	t.Helper()
	results := tarOf(headers...)
	return workspace.Part{Agent: agent, Tar: bytes.NewReader(results), SHA256: digest(results), Deleted: deleted}
}

// team is a commit of the results of one run with several machines.
func team(parent, run string, parts ...workspace.Part) workspace.CommitRequest {
	r := request(parent, run, nil)
	r.Parts = parts
	return r
}

func TestPartsAreMergedIntoOneCommit(t *testing.T) {
	g, checkout := opened(t, small)
	executable := tar.Header{Name: "bin/check", Mode: 0o755, Linkname: "#!/bin/sh\n"}

	result, err := g.Commit(t.Context(), team(checkout.Base, "r1",
		part(t, "author", []string{"link"}, file("README.md", "read me now\n"), file("out/author.txt", "a\n"), executable),
		part(t, "critic-1", nil, dir("out/"), file("out/critic-1.txt", "1\n"), executable, file("src/main.c", "int main;\n")),
		part(t, "critic-2", []string{"link", "src/run.sh"}, file("out/critic-2.txt", "2\n"), link("out/latest", "author.txt")),
	))

	require.NoError(t, err)
	require.Equal(t, workspace.Stat{Files: 8, Insertions: 6, Deletions: 3}, result.Stat)
	home := cloned(t, g)
	require.Equal(t, checkout.Base, gitIn(t, home, "rev-parse", "HEAD~1"))
	require.Equal(t, `100644 README.md
100755 bin/check
100644 out/author.txt
100644 out/critic-1.txt
100644 out/critic-2.txt
120000 out/latest
100644 src/main.c`, gitIn(t, home, "ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD"))
	require.Equal(t, "read me now", gitIn(t, home, "show", "HEAD:README.md"))
	require.Equal(t, "2", gitIn(t, home, "show", "HEAD:out/critic-2.txt"))
	require.Equal(t, `port: survey

Mission: port
Phase: survey
Run: r1
Tree-In: 4b825dc642cb6eb9a060e54bf8d69288fbee4904
Agent: author
Agent: critic-1
Agent: critic-2`, gitIn(t, home, "log", "-1", "--format=%B"))
	gitIn(t, home, "fsck", "--strict")

	log, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Len(t, log, 1)
	require.Equal(t, []string{"survey", "r1"}, []string{log[0].Phase, log[0].Run})

	again := team(checkout.Base, "r1", workspace.Part{Agent: "author", Tar: unreadable{t}})
	repeated, err := g.Commit(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, result, repeated, "the results of a run are committed once")
}

func TestPartsThatConflictAreNotCommitted(t *testing.T) {
	g, checkout := opened(t, small)
	conflicting := func() workspace.CommitRequest {
		return team(checkout.Base, "r1",
			part(t, "author", []string{"src/main.c", "src/run.sh"}, file("out.txt", "author\n"), file("fine.txt", "fine\n")),
			part(t, "critic", nil, file("out.txt", "critic\n"), file("src/new.c", "int x;\n")),
		)
	}
	const says = `the results of 2 agents conflict in 2 paths, and nothing was committed: ` +
		`"out.txt": author and critic wrote different content; "src": author deleted the directory, critic wrote below it`

	_, err := g.Commit(t.Context(), conflicting())
	requireRefused(t, err, "results_conflict", says)
	require.Equal(t, checkout.Base, head(t, g))

	partial := conflicting()
	partial.Partial = "cancelled"
	_, err = g.CommitPartial(t.Context(), partial)
	requireRefused(t, err, "results_conflict", says)
	partials, err := g.Partials(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Empty(t, partials)
}

func TestPartsAreRefusedByWhomTheyAreOf(t *testing.T) {
	g := newGateway(t, workspace.Options{Limits: workspace.Limits{Files: 6, Bytes: 100}})
	checkout := openLaunch(t, g, repository(t, small), 1)
	whole := func() workspace.Part { return part(t, "author", []string{"link"}, file("a", "1"), file("b", "2")) }
	damaged := part(t, "critic", nil, file("c", "3"))
	damaged.SHA256 = digest([]byte("another"))
	for name, c := range map[string]struct {
		part workspace.Part
		code workspace.Code
		says string
	}{
		"an escape":          {part(t, "critic", nil, file("../c", "3")), "results_refused", `agent critic: the results were refused: "../c" has .. in its name`},
		"too many in all":    {part(t, "critic", nil, file("c", ""), file("d", ""), file("e", ""), file("f", ""), file("g", "")), "results_too_large", "agent critic: the results hold more than 6 files and directories"},
		"too large in all":   {part(t, "critic", nil, file("c", strings.Repeat("x", 99))), "results_too_large", "agent critic: the results hold more than 100 bytes"},
		"too many deletions": {part(t, "critic", []string{"a", "b", "c", "d", "e", "f"}), "results_too_large", "the results delete more than 6 files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.Commit(t.Context(), team(checkout.Base, "r1", whole(), c.part))
			requireRefused(t, err, c.code, c.says)
			require.Equal(t, checkout.Base, head(t, g))
		})
	}
	t.Run("damaged", func(t *testing.T) {
		_, err := g.Commit(t.Context(), team(checkout.Base, "r1", whole(), damaged))
		require.ErrorContains(t, err, "agent critic: the results have the SHA-256 ")
	})
	t.Run("an agent that would break the message", func(t *testing.T) {
		_, err := g.Commit(t.Context(), team(checkout.Base, "r1", part(t, "critic\nRun: r0", nil)))
		require.EqualError(t, err, `commit of mission port: "critic\nRun: r0" cannot be the agent of a commit`)
	})
}

func TestNoPartsAreACommitToo(t *testing.T) {
	g, checkout := opened(t, small)
	result, err := g.Commit(t.Context(), team(checkout.Base, "r1"))
	require.NoError(t, err)
	require.False(t, result.Changed)
	require.Equal(t, checkout.Base, gitIn(t, cloned(t, g), "rev-parse", "HEAD~1"))
}

// TestPartsMergeToWhatGitMakesOfThemInTurn commits changes of one run at once,
// and in another launch one after another in some order, as runs of their own. A
// real git must have the same tree both times.
func TestPartsMergeToWhatGitMakesOfThemInTurn(t *testing.T) {
	base := files{}
	for i := range 12 {
		base[fmt.Sprintf("d%d/e%d/f%d", i%2, i%3, i)] = fmt.Sprint(i)
	}
	g := newGateway(t, workspace.Options{})
	source := repository(t, base)
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var deleted [3][]string
			var written [3][]tar.Header
			for i := range 12 {
				agent := random.IntN(3)
				path := fmt.Sprintf("d%d/e%d/f%d", i%2, i%3, i)
				switch random.IntN(4) {
				case 0:
					written[agent] = append(written[agent], file(path, "changed"))
				case 1:
					written[agent] = append(written[agent], tar.Header{Name: path, Mode: 0o755, Linkname: fmt.Sprint(i)})
				case 2:
					written[agent] = append(written[agent], file(fmt.Sprintf("new%d/g%d", random.IntN(3), i), "new"), link(fmt.Sprintf("l%d", i), path))
				case 3:
					if i%4 == 0 { // never all of a directory
						deleted[agent] = append(deleted[agent], path)
					}
				}
			}
			parts := func() (all []workspace.Part) {
				for agent := range 3 {
					all = append(all, part(t, fmt.Sprintf("a%d", agent), deleted[agent], written[agent]...))
				}
				return all
			}
			once, turns := int(2*seed+1), int(2*seed+2)
			at := openLaunch(t, g, source, once)
			r := team(at.Base, "r1", parts()...)
			r.Launch = once
			merged, err := g.Commit(t.Context(), r)
			require.NoError(t, err)

			at = openLaunch(t, g, source, turns)
			inTurn := parts()
			random.Shuffle(3, func(i, j int) { inTurn[i], inTurn[j] = inTurn[j], inTurn[i] })
			tree, parent := "", at.Base
			for _, p := range slices.Clone(inTurn) {
				r := team(parent, "r-"+p.Agent, p)
				r.Launch = turns
				commit, err := g.Commit(t.Context(), r)
				require.NoError(t, err)
				tree, parent = commit.Tree, commit.Commit
			}
			require.Equal(t, tree, merged.Tree)
		})
	}
}
