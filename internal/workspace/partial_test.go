package workspace_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

func TestPartialResultsStayApart(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	at := openLaunch(t, g, repository(t, small), 1)
	req := request(at.Base, "r1", tarOf(file("half.txt", "half\n")))
	req.Partial = "cancelled by ann: wrong\nbranch"

	first, err := g.CommitPartial(t.Context(), req)
	require.NoError(t, err)
	req.Parts[0].Tar = bytes.NewReader(tarOf(file("half.txt", "half\n")))
	again, err := g.CommitPartial(t.Context(), req)
	require.NoError(t, err)

	require.Equal(t, first, again, "a commit that is repeated is the same")
	bare := filepath.Join(root, "missions", "port.git")
	require.Equal(t, at.Base, gitIn(t, bare, "rev-parse", "tidewait/port/1"), "the launch's branch does not move")
	require.Equal(t, first.Commit, gitIn(t, bare, "rev-parse", "tidewait/port/1-partial/survey"))
	require.Equal(t, at.Base, gitIn(t, bare, "rev-parse", "tidewait/port/1-partial/survey^"))
	require.Equal(t, "cancelled by ann: wrongbranch", gitIn(t, bare, "log", "-1", "--format=%(trailers:key=Partial,valueonly)", "tidewait/port/1-partial/survey"))

	whole, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Empty(t, whole)
	partial, err := g.Partials(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Len(t, partial, 1)
	require.Equal(t, []any{first.Commit, "survey", "r1", 1}, []any{partial[0].Commit, partial[0].Phase, partial[0].Run, partial[0].Files})

	var bundle bytes.Buffer
	b, err := g.BundlePartial(t.Context(), "port", 1, "survey", &bundle)
	require.NoError(t, err)
	require.Equal(t, first.Commit, b.Head)
	home := repository(t, small)
	path := filepath.Join(t.TempDir(), "b")
	write(t, filepath.Dir(path), files{"b": bundle.String()})
	commit, err := workspace.FetchInto(t.Context(), home, path, "tidewait/port/1-partial/survey")
	require.NoError(t, err)
	require.Equal(t, first.Commit, commit)

	_, err = g.BundlePartial(t.Context(), "port", 1, "deploy", &bundle)
	requireRefused(t, err, "workspace_missing", "launch 1 of mission port has no partial results of a phase deploy")
}

func TestPartialResultsAreCheckedLikeWholeOnes(t *testing.T) {
	g, at := opened(t, small)
	req := request(at.Base, "r1", tarOf(file("../escape", "x")))
	req.Partial = "cancelled"
	_, err := g.CommitPartial(t.Context(), req)
	var refused *workspace.Refused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, workspace.ResultsRefused, refused.Code)
	partial, err := g.Partials(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Empty(t, partial)
}

func TestALaunchMayStartFromACommitOfAnEarlierOne(t *testing.T) {
	g, at := opened(t, small)
	first, err := g.Commit(t.Context(), request(at.Base, "r1", tarOf(file("a", "1"))))
	require.NoError(t, err)
	second, err := g.Commit(t.Context(), request(first.Commit, "r2", tarOf(file("b", "2"))))
	require.NoError(t, err)

	open := func() (workspace.Checkout, error) {
		return g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 2, Commit: first.Commit})
	}
	got, err := open()
	require.NoError(t, err)
	require.Equal(t, workspace.Checkout{Base: first.Commit, Branch: "tidewait/port/2", Head: first.Commit}, got)
	again, err := open()
	require.NoError(t, err)
	require.Equal(t, got, again)
	earlier, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, second.Commit, earlier[1].Commit, "the earlier launch is what it was")

	const nowhere = "0123456789012345678901234567890123456789"
	_, err = g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 3, Commit: nowhere})
	requireRefused(t, err, "workspace_missing", "this gateway does not have commit 012345678901 of mission port any more; launch the mission again")
	_, err = g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 3, Commit: "--all"})
	requireRefused(t, err, "workspace_bad_ref", `"--all" is not a full commit id`)
}
