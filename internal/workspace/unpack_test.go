package workspace_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

func TestUnpackWritesWhatWasArchived(t *testing.T) {
	g, checkout := opened(t, small)
	var stream bytes.Buffer
	_, err := g.Archive(t.Context(), "port", checkout.Head, &stream)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "new", "tree")
	counts, err := workspace.Unpack(bytes.NewReader(stream.Bytes()), dir)
	require.NoError(t, err)
	require.Equal(t, workspace.Unpacked{Files: 4, Bytes: 8 + 10 + 10}, counts)
	text, err := os.ReadFile(filepath.Join(dir, "src", "main.c"))
	require.NoError(t, err)
	require.Equal(t, "int main;\n", string(text))
	script, err := os.Stat(filepath.Join(dir, "src", "run.sh"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), script.Mode())
	target, err := os.Readlink(filepath.Join(dir, "link"))
	require.NoError(t, err)
	require.Equal(t, "src/main.c", target)

	// What is there is not touched.
	_, err = workspace.Unpack(bytes.NewReader(stream.Bytes()), dir)
	requireRefused(t, err, workspace.Diverged, dir+" is not empty, and nothing in it is overwritten; name a directory that is")
}

func TestUnpackWritesNothingOutside(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"a step up":          {file("ok", "x"), file("../escaped", "x")},
		"an absolute name":   {file("/tmp/escaped-by-name", "x")},
		"through a link":     {link("out", ".."), file("out/escaped", "x")},
		"over a link":        {link("out", "../escaped"), file("out", "x")},
		"a directory linked": {link("out", "/tmp"), dir("out/escaped/")},
		"a device":           {{Name: "dev", Typeflag: tar.TypeChar}},
		"twice":              {file("a", "x"), file("a", "y")},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			into := filepath.Join(parent, "into")
			_, err := workspace.Unpack(bytes.NewReader(tarOf(headers...)), into)
			require.ErrorContains(t, err, "unpack into "+into+": ")
			require.NoFileExists(t, filepath.Join(parent, "escaped"))
			require.NoFileExists(t, "/tmp/escaped-by-name")
			require.NoDirExists(t, "/tmp/escaped")
			left, err := os.ReadDir(into)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
	_, err := workspace.Unpack(bytes.NewReader([]byte("no tar")), t.TempDir())
	require.ErrorContains(t, err, "unexpected EOF")
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = workspace.Unpack(bytes.NewReader(nil), path)
	requireRefused(t, err, workspace.Unreadable, "cannot make the directory "+path+": not a directory")
}

func TestStatsOfAPhase(t *testing.T) {
	g, checkout := opened(t, files{"a": "1\n2\n", "gone": "x\n"})
	_, err := g.Commit(t.Context(), request(checkout.Head, "r1-1", tarOf(file("a", "1\n3\n"), file("b\"é", "\x00\x01")), "gone"))
	require.NoError(t, err)
	stats, cut, err := g.Stats(t.Context(), "port", 1, "survey", 10)
	require.NoError(t, err)
	require.False(t, cut)
	require.Equal(t, []workspace.FileStat{
		{Path: "a", Insertions: 1, Deletions: 1}, {Path: "b\"é", Binary: true}, {Path: "gone", Deletions: 1},
	}, stats)
	stats, cut, err = g.Stats(t.Context(), "port", 1, "survey", 2)
	require.NoError(t, err)
	require.True(t, cut)
	require.Len(t, stats, 2)
	_, _, err = g.Stats(t.Context(), "port", 1, "report", 2)
	requireRefused(t, err, workspace.Missing, "launch 1 of mission port has no commit of a phase report")
}

func TestPushMovesABranchOnlyForward(t *testing.T) {
	g, checkout := opened(t, small)
	survey(t, g, checkout.Head, "r1-1", "one\n")
	home := cloned(t, g)
	requireRefused(t, workspace.Push(t.Context(), home, "origin", "tidewait/port/1"), workspace.BadURL, home+` has no remote "origin"; it has none`)

	upstream := t.TempDir()
	gitIn(t, upstream, "init", "-q", "--bare")
	gitIn(t, home, "remote", "add", "upstream", upstream)
	requireRefused(t, workspace.Push(t.Context(), home, "--mirror", "tidewait/port/1"), workspace.BadURL, home+` has no remote "--mirror"; it has upstream`)
	require.NoError(t, workspace.Push(t.Context(), home, "upstream", "tidewait/port/1"))
	require.Equal(t, gitIn(t, home, "rev-parse", "tidewait/port/1"), gitIn(t, upstream, "rev-parse", "tidewait/port/1"))
	require.NoError(t, workspace.Push(t.Context(), home, "upstream", "tidewait/port/1"), "it may be pushed again")

	before := gitIn(t, upstream, "rev-parse", "tidewait/port/1")
	gitIn(t, home, "commit", "-q", "--amend", "--allow-empty", "-m", "another")
	requireRefused(t, workspace.Push(t.Context(), home, "upstream", "tidewait/port/1"), workspace.Diverged,
		"upstream has a branch tidewait/port/1 with other commits, and nothing there is overwritten")
	require.Equal(t, before, gitIn(t, upstream, "rev-parse", "tidewait/port/1"))
	gitIn(t, home, "remote", "add", "odd", "ext::sh -c true")
	require.ErrorContains(t, workspace.Push(t.Context(), home, "odd", "tidewait/port/1"), "odd: transport 'ext' not allowed")
	gitIn(t, home, "remote", "add", "away", filepath.Join(upstream, "nowhere"))
	require.ErrorContains(t, workspace.Push(t.Context(), home, "away", "tidewait/port/1"), "away: ")
}
