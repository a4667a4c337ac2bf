package workspace_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

func TestBundleRepo(t *testing.T) {
	dir := repository(t, small)
	gitIn(t, dir, "tag", "-a", "v1", "-m", "annotated")
	first := gitIn(t, dir, "rev-parse", "HEAD")
	gitIn(t, dir, "checkout", "-q", "-b", "feature/x")
	gitIn(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
	second := gitIn(t, dir, "rev-parse", "HEAD")
	refs := gitIn(t, dir, "for-each-ref")

	for ref, want := range map[string]string{"HEAD": second, "main": first, "v1": first, "feature/x": second, "refs/tags/v1": first, first: first} {
		t.Run(ref, func(t *testing.T) {
			var out bytes.Buffer
			b, err := workspace.BundleRepo(t.Context(), dir, ref, &out)
			require.NoError(t, err)
			require.Equal(t, workspace.Bundle{Head: want, Ref: ref, SHA256: digest(out.Bytes()), Bytes: int64(out.Len())}, b)
		})
	}
	require.Equal(t, refs, gitIn(t, dir, "for-each-ref"))
	require.Empty(t, gitIn(t, dir, "status", "--porcelain"))
}

func TestBundleRepoOfABareRepositoryAndAWorktree(t *testing.T) {
	dir := repository(t, small)
	bare, tree := filepath.Join(t.TempDir(), "bare.git"), filepath.Join(t.TempDir(), "tree")
	gitIn(t, dir, "clone", "-q", "--bare", dir, bare)
	gitIn(t, dir, "worktree", "add", "-q", "-b", "other", tree)
	for _, place := range []string{bare, tree} {
		b, err := workspace.BundleRepo(t.Context(), place, "", io.Discard)
		require.NoError(t, err)
		require.Equal(t, gitIn(t, dir, "rev-parse", "HEAD"), b.Head)
		require.Zero(t, b.Dirty)
	}
}

func TestBundleRepoCountsWhatIsNotCommitted(t *testing.T) {
	dir := repository(t, files{"a": "1\n", "b": "2\n", ".gitignore": "ignored\n"})
	gitIn(t, dir, "branch", "old")
	gitIn(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
	write(t, dir, files{"a": "changed\n", "new": "", "ignored": ""})
	require.NoError(t, os.Remove(filepath.Join(dir, "b")))
	b, err := workspace.BundleRepo(t.Context(), dir, "HEAD", io.Discard)
	require.NoError(t, err)
	require.Equal(t, 3, b.Dirty)
	b, err = workspace.BundleRepo(t.Context(), dir, "old", io.Discard)
	require.NoError(t, err)
	require.Zero(t, b.Dirty)
}

func TestBundleRepoRefusals(t *testing.T) {
	full := repository(t, small)
	fresh := t.TempDir()
	gitIn(t, fresh, "init", "-q")
	plain := t.TempDir()
	shallow := filepath.Join(t.TempDir(), "shallow")
	gitIn(t, full, "clone", "-q", "--depth=1", "file://"+full, shallow)
	sha256 := t.TempDir()
	gitIn(t, sha256, "init", "-q", "--object-format=sha256")
	for name, c := range map[string]struct {
		dir, ref string
		code     workspace.Code
		want     string
	}{
		"absent":          {plain + "/absent", "", "workspace_unreadable", plain + "/absent is not a directory"},
		"a file":          {full + "/README.md", "", "workspace_unreadable", full + "/README.md is not a directory"},
		"plain directory": {plain, "", "workspace_unreadable", plain + " is not a git repository; use path: instead of git: for a plain directory"},
		"a part of one":   {full + "/src", "", "workspace_unreadable", full + "/src is not a git repository; use path: instead of git: for a plain directory"},
		"no commit":       {fresh, "", "workspace_empty", fresh + " has no commit yet; commit something first"},
		"unknown ref":     {full, "nope", "workspace_bad_ref", full + " has no branch, tag or commit nope"},
		"ref an option":   {full, "--all", "workspace_bad_ref", `"--all" starts with a dash; name a branch, a tag or a full commit id`},
		"expression":      {full, "HEAD~1", "workspace_bad_ref", `"HEAD~1" contains a character that no ref may have; name a branch, a tag or a full commit id`},
		"shallow":         {shallow, "", "workspace_unreadable", shallow + " is a shallow clone, which lacks history; run git fetch --unshallow in it, or use path: instead of git:"},
		"other hash":      {sha256, "", "workspace_unreadable", sha256 + " stores its objects by sha256, which is not supported; use path: instead of git:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := workspace.BundleRepo(t.Context(), c.dir, c.ref, io.Discard)
			requireRefused(t, err, c.code, c.want)
		})
	}
	t.Run("damaged", func(t *testing.T) {
		dir := repository(t, files{"a": "1\n"})
		blob := gitIn(t, dir, "rev-parse", "HEAD:a")
		require.NoError(t, os.Remove(filepath.Join(dir, ".git", "objects", blob[:2], blob[2:])))
		_, err := workspace.BundleRepo(t.Context(), dir, "", io.Discard)
		requireRefused(t, err, "workspace_unreadable", "cannot read the repository "+dir+": unable to read "+blob)
	})
}

func TestBundleDir(t *testing.T) {
	content := files{
		"a": "1\n", "run.sh*": "#!/bin/sh\n", "sub/link": "->../a", "ignored": "kept\n", ".gitignore": "ignored\n",
		".gitattributes": "* text eol=crlf\n", "crlf": "x\r\n", "odd \"name\\é": "odd", ".git/config": "left out", "sub/.git": "left out",
	}
	dir := t.TempDir()
	write(t, dir, content)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	var out bytes.Buffer
	b, err := workspace.BundleDir(t.Context(), dir, &out)
	require.NoError(t, err)
	require.Equal(t, workspace.Bundle{Head: b.Head, SHA256: digest(out.Bytes()), Bytes: int64(out.Len())}, b)

	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	again, err := workspace.BundleDir(t.Context(), copied, io.Discard)
	require.NoError(t, err)
	require.Equal(t, b.Head, again.Head)

	g := newGateway(t, workspace.Options{})
	checkout, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 1, Bundle: &out, SHA256: b.SHA256, Head: b.Head})
	require.NoError(t, err)
	var stream bytes.Buffer
	manifest, err := g.Archive(t.Context(), "port", checkout.Base, &stream)
	require.NoError(t, err)
	require.Equal(t, 8, manifest.Files)
	found := contents(t, stream.Bytes())
	for name, text := range content {
		if strings.Contains(name, ".git/") || strings.HasSuffix(name, "/.git") {
			require.NotContains(t, found, name)
			continue
		}
		require.Equal(t, text, found[strings.TrimSuffix(name, "*")], name)
	}
}

func TestBundleDirOfNothing(t *testing.T) {
	b, err := workspace.BundleDir(t.Context(), t.TempDir(), io.Discard)
	require.NoError(t, err)
	require.Equal(t, "2a21be1e2e18cf475acbfb66a3825f714e7e4c0f", b.Head)
}

func TestBundleDirRefusals(t *testing.T) {
	dir := t.TempDir()
	_, err := workspace.BundleDir(t.Context(), dir+"/absent", io.Discard)
	requireRefused(t, err, "workspace_unreadable", "cannot read the directory "+dir+"/absent: no such file or directory")

	write(t, dir, files{"a": "1", "sub/b": "2"})
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "sub", "pipe"), 0o600))
	_, err = workspace.BundleDir(t.Context(), dir, io.Discard)
	requireRefused(t, err, "workspace_unreadable", "cannot read "+dir+"/sub/pipe: it is neither a file, a directory nor a symbolic link")

	require.NoError(t, os.Rename(filepath.Join(dir, "sub", "pipe"), filepath.Join(dir, "sub", "a\nb")))
	_, err = workspace.BundleDir(t.Context(), dir, io.Discard)
	requireRefused(t, err, "workspace_unreadable", `"sub/a\nb" in `+dir+" has a control character in its name")
}

// TestFetchInto brings results home: first whole, then onto what is there.
func TestFetchInto(t *testing.T) {
	g := newGateway(t, workspace.Options{})
	home := repository(t, small)
	checkout := openLaunch(t, g, home, 1)
	bundleTo := func(haveBase bool) (string, workspace.Bundle, error) {
		path := filepath.Join(t.TempDir(), "bundle")
		out, err := os.Create(path)
		require.NoError(t, err)
		b, err := g.BundleBranch(t.Context(), "port", 1, haveBase, out)
		require.NoError(t, out.Close())
		return path, b, err
	}
	_, _, err := bundleTo(true)
	requireRefused(t, err, "workspace_missing", "launch 1 of mission port has no results yet")

	first, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "1"))))
	require.NoError(t, err)
	has, err := workspace.HasCommit(t.Context(), home, checkout.Base)
	require.NoError(t, err)
	require.True(t, has)
	has, err = workspace.HasCommit(t.Context(), home, first.Commit)
	require.NoError(t, err)
	require.False(t, has)

	thin, b, err := bundleTo(true)
	require.NoError(t, err)
	content, err := os.ReadFile(thin)
	require.NoError(t, err)
	require.Equal(t, workspace.Bundle{Head: first.Commit, Ref: "tidewait/port/1", SHA256: digest(content), Bytes: int64(len(content))}, b)
	commit, err := workspace.FetchInto(t.Context(), home, thin, "tidewait/port/1")
	require.NoError(t, err)
	require.Equal(t, first.Commit, commit)
	require.Equal(t, first.Commit, gitIn(t, home, "rev-parse", "tidewait/port/1"))
	require.Equal(t, "main", gitIn(t, home, "branch", "--show-current"))

	second, err := g.Commit(t.Context(), request(first.Commit, "r2", tarOf(file("a", "2"))))
	require.NoError(t, err)
	whole, _, err := bundleTo(false)
	require.NoError(t, err)
	commit, err = workspace.FetchInto(t.Context(), home, whole, "tidewait/port/1")
	require.NoError(t, err)
	require.Equal(t, second.Commit, commit)

	t.Run("the base is not there", func(t *testing.T) {
		stranger := repository(t, files{"x": "y"})
		_, err := workspace.FetchInto(t.Context(), stranger, thin, "tidewait/port/1")
		requireRefused(t, err, "workspace_damaged", stranger+" lacks the commit the mission started from; fetch the whole history")
	})
	t.Run("other commits", func(t *testing.T) {
		gitIn(t, home, "branch", "-f", "tidewait/port/1", "main")
		gitIn(t, home, "checkout", "-q", "tidewait/port/1")
		_, err := workspace.FetchInto(t.Context(), home, whole, "tidewait/port/1")
		requireRefused(t, err, "workspace_diverged", "branch tidewait/port/1 is checked out in "+home+"; check out another one and fetch again")
		gitIn(t, home, "commit", "-q", "--allow-empty", "-m", "mine")
		mine := gitIn(t, home, "rev-parse", "HEAD")
		gitIn(t, home, "checkout", "-q", "main")
		_, err = workspace.FetchInto(t.Context(), home, whole, "tidewait/port/1")
		requireRefused(t, err, "workspace_diverged", home+" has a branch tidewait/port/1 with other commits; rename or delete it and fetch again")
		require.Equal(t, mine, gitIn(t, home, "rev-parse", "tidewait/port/1"))
	})
	t.Run("no repository", func(t *testing.T) {
		plain := t.TempDir()
		_, err := workspace.FetchInto(t.Context(), plain, whole, "tidewait/port/1")
		requireRefused(t, err, "workspace_unreadable", plain+" is not a git repository; use path: instead of git: for a plain directory")
	})
	t.Run("branch an option", func(t *testing.T) {
		_, err := workspace.FetchInto(t.Context(), home, whole, "--x")
		requireRefused(t, err, "workspace_bad_ref", `"--x" starts with a dash`)
	})
}
