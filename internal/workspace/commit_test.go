package workspace_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

func TestCommitKeepsFilesModesLinksAndDeletions(t *testing.T) {
	g, checkout := opened(t, small)
	results := tarOf(dir("./"), dir("./out/"), file("./out/a.txt", "one\ntwo\n"),
		tar.Header{Name: "out/run*", Mode: 0o755, Linkname: "#!/bin/sh\n"},
		link("out/latest", "../src/./main.c"), file(`out/odd "name\é`, ""), dir("empty/"), file("README.md", "read me now\n"),
	)
	result, err := g.Commit(t.Context(), request(checkout.Base, "r1", results, "link", "src/run.sh", "never/was"))
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Equal(t, workspace.Stat{Files: 7, Insertions: 5, Deletions: 3}, result.Stat)

	dir := cloned(t, g)
	require.Equal(t, result.Commit, gitIn(t, dir, "rev-parse", "HEAD"))
	require.Equal(t, result.Tree, gitIn(t, dir, "rev-parse", "HEAD^{tree}"))
	require.Equal(t, checkout.Base, gitIn(t, dir, "rev-parse", "HEAD~1"))
	require.Equal(t, `100644 README.md
100644 out/a.txt
120000 out/latest
100644 "out/odd \"name\\é"
100755 out/run*
100644 src/main.c`, gitIn(t, dir, "-c", "core.quotePath=false", "ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD"))
	require.Equal(t, "one\ntwo", gitIn(t, dir, "show", "HEAD:out/a.txt"))
	require.Equal(t, "../src/./main.c", gitIn(t, dir, "show", "HEAD:out/latest"))
	require.Equal(t, `port: survey

Mission: port
Phase: survey
Run: r1
Tree-In: 4b825dc642cb6eb9a060e54bf8d69288fbee4904`, gitIn(t, dir, "log", "-1", "--format=%B"))
	require.Equal(t, "Ada <ada@example.org> 2026-05-06T12:00:00+00:00 Tidewait <tidewait@localhost> 2026-05-06T12:00:00+00:00",
		gitIn(t, dir, "log", "-1", "--format=%an <%ae> %aI %cn <%ce> %cI"))
	gitIn(t, dir, "fsck", "--strict")
}

func TestCommitReplacesDirectoriesAndFiles(t *testing.T) {
	g, checkout := opened(t, files{"a/b": "1", "c": "2", "d": "->c", "e/f/g": "3"})
	results := tarOf(file("a", "file now\n"), file("c/x", "directory now\n"), file("d/y", "directory now\n"))
	_, err := g.Commit(t.Context(), request(checkout.Base, "r1", results, "a/b", "c", "d", "e"))
	require.NoError(t, err)
	require.Equal(t, "100644 a\n100644 c/x\n100644 d/y", gitIn(t, cloned(t, g), "ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD"))
}

func TestCommitOfNothingIsACommit(t *testing.T) {
	g, checkout := opened(t, small)
	result, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf()))
	require.NoError(t, err)
	require.False(t, result.Changed)
	require.Equal(t, workspace.Stat{}, result.Stat)
	require.NotEqual(t, checkout.Base, result.Commit)
	require.Equal(t, result.Commit, head(t, g))

	// The same files again are no change either.
	again := request(result.Commit, "r2", tarOf(file("README.md", "read me\n")))
	result, err = g.Commit(t.Context(), again)
	require.NoError(t, err)
	require.False(t, result.Changed)
}

func TestModeAloneIsAChange(t *testing.T) {
	g, checkout := opened(t, small)
	result, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(tar.Header{Name: "README.md", Mode: 0o755, Linkname: "read me\n"})))
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Equal(t, workspace.Stat{Files: 1}, result.Stat)
}

func TestCommitIsIdempotentByRun(t *testing.T) {
	g, checkout := opened(t, small)
	first, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "1"))))
	require.NoError(t, err)

	again := request(checkout.Base, "r1", nil)
	again.Parts[0].Tar = unreadable{t}
	repeated, err := g.Commit(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, first, repeated)

	// Also when the branch has moved on since.
	second, err := g.Commit(t.Context(), request(first.Commit, "r2", tarOf(file("b", "2"))))
	require.NoError(t, err)
	repeated, err = g.Commit(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, first, repeated)
	require.Equal(t, second.Commit, head(t, g))
}

type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the results of a run that is committed were read again")
	return 0, io.EOF
}

func TestCommitOfASupersededRun(t *testing.T) {
	g, checkout := opened(t, small)
	first, err := g.Commit(t.Context(), request(checkout.Base, "r2", tarOf(file("a", "1"))))
	require.NoError(t, err)
	_, err = g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "2"))))
	var superseded *workspace.Superseded
	require.ErrorAs(t, err, &superseded)
	require.Equal(t, workspace.Superseded{Branch: "tidewait/port/1", Run: "r1", Expected: checkout.Base, Actual: first.Commit}, *superseded)
	require.Equal(t, fmt.Sprintf("run r1 was superseded: it started from commit %s, but branch tidewait/port/1 is at %s", checkout.Base[:12], first.Commit[:12]), err.Error())
	require.Equal(t, first.Commit, head(t, g))
}

// TestConcurrentCommits races runs for one branch: one wins, the others are
// told so, and no commit is lost or doubled.
func TestConcurrentCommits(t *testing.T) {
	g, checkout := opened(t, small)
	const runs = 8
	results, errs := make([]workspace.CommitResult, runs), make([]error, runs)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			results[i], errs[i] = g.Commit(t.Context(), request(checkout.Base, fmt.Sprintf("r%d", i), tarOf(file("a", fmt.Sprint(i)))))
		})
	}
	wg.Wait()
	won := ""
	for i, err := range errs {
		var superseded *workspace.Superseded
		switch {
		case err == nil && won == "":
			won = results[i].Commit
		case err == nil:
			t.Errorf("two runs won: %s and %s", won, results[i].Commit)
		case !errors.As(err, &superseded):
			t.Errorf("run %d: %v", i, err)
		}
	}
	require.Equal(t, won, head(t, g))
	infos, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Len(t, infos, 1)
}

// TestConcurrentRepeats commits one run many times at once: all get its commit.
func TestConcurrentRepeats(t *testing.T) {
	g, checkout := opened(t, small)
	const repeats = 6
	results, errs := make([]workspace.CommitResult, repeats), make([]error, repeats)
	var wg sync.WaitGroup
	for i := range repeats {
		wg.Go(func() {
			results[i], errs[i] = g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "1"))))
		})
	}
	wg.Wait()
	for i := range repeats {
		require.NoError(t, errs[i])
		require.Equal(t, results[0], results[i])
	}
	infos, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Len(t, infos, 1)
}

// TestHostileResults wants each refused in its own words, with the branch and
// the scratch space as they were.
func TestHostileResults(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{Limits: workspace.Limits{Files: 20, Bytes: 1000}})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, files{"d/e/f": "x", "up": "->.."}), 1)
	deep := strings.Repeat("d/", 64) + "f"
	many := make([]tar.Header, 21)
	for i := range many {
		many[i] = file(fmt.Sprintf("f%d", i), "")
	}

	for name, c := range map[string]struct {
		headers []tar.Header
		code    workspace.Code
		want    string
	}{
		"absolute":              {[]tar.Header{file("/etc/passwd", "")}, "results_refused", `the results were refused: "/etc/passwd" has an absolute name`},
		"up":                    {[]tar.Header{file("../x", "")}, "results_refused", `the results were refused: "../x" has .. in its name`},
		"up inside":             {[]tar.Header{file("a/../../x", "")}, "results_refused", `the results were refused: "a/../../x" has .. in its name`},
		"up directory":          {[]tar.Header{dir("../")}, "results_refused", `the results were refused: ".." has .. in its name`},
		"empty part":            {[]tar.Header{file("a//b", "")}, "results_refused", `the results were refused: "a//b" has an empty part in its name`},
		"dot":                   {[]tar.Header{file("a/./b", "")}, "results_refused", `the results were refused: "a/./b" has an empty part in its name`},
		"file with a slash":     {[]tar.Header{link("a/", "b")}, "results_refused", `the results were refused: "a/" has an empty part in its name`},
		"control character":     {[]tar.Header{file("a\x1b[2Jb", "")}, "results_refused", `the results were refused: "a\x1b[2Jb" has a control character in its name`},
		"newline":               {[]tar.Header{file("a\nM 100644 inline .git/config", "")}, "results_refused", `the results were refused: "a\nM 100644 inline .git/config" has a control character in its name`},
		"not UTF-8":             {[]tar.Header{file("caf\xe9", "")}, "results_refused", `the results were refused: "caf\xe9" has a name that is not UTF-8`},
		"long name":             {[]tar.Header{file(strings.Repeat("n", 256), "")}, "results_refused", `the results were refused: "` + strings.Repeat("n", 256) + `" has a part of more than 255 bytes in its name`},
		"long path":             {[]tar.Header{file(strings.Repeat("1234567/", 512)+"f", "")}, "results_refused", `the results were refused: "` + strings.Repeat("1234567/", 512) + `f" has a name of more than 4096 bytes`},
		"deep":                  {[]tar.Header{file(deep, "")}, "results_refused", `the results were refused: "` + deep + `" lies more than 64 directories deep`},
		".git":                  {[]tar.Header{file(".git/hooks/post-checkout", "")}, "results_refused", `the results were refused: ".git/hooks/post-checkout" has .git in its name`},
		".git directory":        {[]tar.Header{dir("sub/.git/")}, "results_refused", `the results were refused: "sub/.git" has .git in its name`},
		".GIT":                  {[]tar.Header{file("a/.GiT", "")}, "results_refused", `the results were refused: "a/.GiT" has .git in its name`},
		".git with a dot":       {[]tar.Header{file(".git. ./config", "")}, "results_refused", `the results were refused: ".git. ./config" has .git in its name`},
		"git~1":                 {[]tar.Header{file("GIT~1/config", "")}, "results_refused", `the results were refused: "GIT~1/config" has .git in its name`},
		".git stream":           {[]tar.Header{file(".git::$INDEX_ALLOCATION/config", "")}, "results_refused", `the results were refused: ".git::$INDEX_ALLOCATION/config" has .git in its name`},
		".git with a joiner":    {[]tar.Header{file(".g\u200dit/config", "")}, "results_refused", `the results were refused: ".g` + `\u200d` + `it/config" has .git in its name`},
		".git by backslash":     {[]tar.Header{file(`a\.git\config`, "")}, "results_refused", `the results were refused: "a\\.git\\config" has .git in its name`},
		"hard link":             {[]tar.Header{file("a", ""), {Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}}, "results_refused", `the results were refused: "b" is a hard link; only files, directories and symbolic links come back`},
		"device":                {[]tar.Header{{Name: "b", Typeflag: tar.TypeBlock}}, "results_refused", `the results were refused: "b" is a device; only files, directories and symbolic links come back`},
		"character device":      {[]tar.Header{{Name: "c", Typeflag: tar.TypeChar}}, "results_refused", `the results were refused: "c" is a device; only files, directories and symbolic links come back`},
		"fifo":                  {[]tar.Header{{Name: "p", Typeflag: tar.TypeFifo}}, "results_refused", `the results were refused: "p" is a named pipe; only files, directories and symbolic links come back`},
		"setuid":                {[]tar.Header{{Name: "s", Mode: 0o4755}}, "results_refused", `the results were refused: "s" would run as another user`},
		"setgid":                {[]tar.Header{{Name: "s", Mode: 0o2755}}, "results_refused", `the results were refused: "s" would run as another user`},
		"absolute link":         {[]tar.Header{link("l", "/etc/passwd")}, "results_refused", `the results were refused: "l" is a link to the absolute name /etc/passwd`},
		"link out":              {[]tar.Header{link("d/l", "../../x")}, "results_refused", `the results were refused: "d/l" is a link out of the workspace: ../../x`},
		"link out by a link":    {[]tar.Header{link("d/e/l", "../.."), link("m", "d/e/l/../x")}, "results_refused", `the results were refused: "m" is a link with .. after a name: d/e/l/../x`},
		"link into .git":        {[]tar.Header{link("l", ".git/config")}, "results_refused", `the results were refused: "l" is a link into .git`},
		"link to nothing":       {[]tar.Header{link("l", "")}, "results_refused", `the results were refused: "l" is a link to nothing`},
		"link as .gitmodules":   {[]tar.Header{link("a/.GitModules", "x")}, "results_refused", `the results were refused: "a/.GitModules" is a link where git reads its settings`},
		"link control":          {[]tar.Header{link("l", "a\x07")}, "results_refused", `the results were refused: "l" is a link to a name that is not plain text`},
		"under a link":          {[]tar.Header{link("l", "d"), file("l/x", "")}, "results_refused", `the results were refused: "l/x" lies under l, which is no directory`},
		"under a file":          {[]tar.Header{file("a", ""), file("a/b/c", "")}, "results_refused", `the results were refused: "a/b/c" lies under a, which is no directory`},
		"file over a directory": {[]tar.Header{file("a/b", ""), file("a", "")}, "results_refused", `the results were refused: "a" is there twice`},
		"twice":                 {[]tar.Header{file("a", "1"), file("./a", "2")}, "results_refused", `the results were refused: "a" is there twice`},
		"too many files":        {many, "results_too_large", "the results hold more than 20 files and directories"},
		"too many directories":  {[]tar.Header{file(strings.Repeat("d/", 30)+"f", "")}, "results_too_large", "the results hold more than 20 files and directories"},
		"too many bytes":        {[]tar.Header{file("a", strings.Repeat("x", 600)), file("b", strings.Repeat("x", 401))}, "results_too_large", "the results hold more than 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(c.headers...)))
			requireRefused(t, err, c.code, c.want)
			requireUntouched(t, root, checkout)
		})
	}

	t.Run("deleted outside", func(t *testing.T) {
		_, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(), "../x"))
		requireRefused(t, err, "results_refused", `the results were refused: the deleted "../x" has .. in its name`)
	})
	t.Run("deleted .git", func(t *testing.T) {
		_, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(), ".git/config"))
		requireRefused(t, err, "results_refused", `the results were refused: the deleted ".git/config" has .git in its name`)
	})
	t.Run("too many deleted", func(t *testing.T) {
		_, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(), make([]string, 21)...))
		requireRefused(t, err, "results_too_large", "the results delete more than 20 files")
	})
	t.Run("cut off", func(t *testing.T) {
		whole := tarOf(file("a", strings.Repeat("x", 900)))
		r := request(checkout.Base, "r1", whole[:700])
		_, err := g.Commit(t.Context(), r)
		requireRefused(t, err, "results_damaged", "the results are not a whole tar stream")
		requireUntouched(t, root, checkout)
	})
	t.Run("not a tar", func(t *testing.T) {
		_, err := g.Commit(t.Context(), request(checkout.Base, "r1", bytes.Repeat([]byte("x"), 1024)))
		requireRefused(t, err, "results_damaged", "the results are not a whole tar stream")
	})
	t.Run("another digest", func(t *testing.T) {
		r := request(checkout.Base, "r1", tarOf())
		r.Parts[0].SHA256 = strings.Repeat("0", 64)
		_, err := g.Commit(t.Context(), r)
		requireRefused(t, err, "results_damaged", "the results have the SHA-256 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef, not "+strings.Repeat("0", 64)+" as the node said")
		requireUntouched(t, root, checkout)
	})
	t.Run("endless", func(t *testing.T) {
		r := request(checkout.Base, "r1", nil)
		r.Parts[0].Tar = zeroes{}
		_, err := g.Commit(t.Context(), r)
		requireRefused(t, err, "results_too_large", "the results are a stream of more than 1213416 bytes")
	})
	t.Run("declared huge", func(t *testing.T) {
		var b bytes.Buffer
		require.NoError(t, tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1 << 40}))
		_, err := g.Commit(t.Context(), request(checkout.Base, "r1", b.Bytes()))
		requireRefused(t, err, "results_too_large", "the results hold more than 1000 bytes")
	})

	// What hostile results resemble and are not.
	_, err = g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file(".gitignore", "x\n"), file(".github/x", ""), file("git~x", ""), file("..a", ""), file("a..", ""), link("d/e/l", "../../README"), link("here", "."))))
	require.NoError(t, err)
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func requireUntouched(t *testing.T, root string, checkout workspace.Checkout) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(root, "scratch"))
	require.NoError(t, err)
	require.Empty(t, left)
	refs := gitIn(t, filepath.Join(root, "missions", "port.git"), "for-each-ref", "--format=%(refname) %(objectname)")
	require.Equal(t, "refs/heads/tidewait/port/1 "+checkout.Base+"\nrefs/tidewait/base/1 "+checkout.Base, refs)
}

func TestCommitRefusals(t *testing.T) {
	g, checkout := opened(t, small)
	for name, c := range map[string]struct {
		change func(*workspace.CommitRequest)
		code   workspace.Code
		want   string
	}{
		"mission":     {func(r *workspace.CommitRequest) { r.Mission = "other" }, "workspace_missing", "this gateway has no checkout of mission other"},
		"path":        {func(r *workspace.CommitRequest) { r.Mission = "../port" }, "workspace_missing", `"../port" is not a mission's name`},
		"launch":      {func(r *workspace.CommitRequest) { r.Launch = 2 }, "workspace_missing", "this gateway has no checkout of launch 2 of mission port"},
		"parent":      {func(r *workspace.CommitRequest) { r.Parent = "HEAD" }, "workspace_bad_ref", `"HEAD" is not a full commit id`},
		"parent flag": {func(r *workspace.CommitRequest) { r.Parent = "--all" }, "workspace_bad_ref", `"--all" is not a full commit id`},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(checkout.Base, "r1", tarOf())
			c.change(&r)
			_, err := g.Commit(t.Context(), r)
			requireRefused(t, err, c.code, c.want)
		})
	}
	t.Run("trailer", func(t *testing.T) {
		r := request(checkout.Base, "r1\nRun: r2", tarOf())
		_, err := g.Commit(t.Context(), r)
		require.EqualError(t, err, `commit of mission port: "r1\nRun: r2" cannot be the run of a commit`)
	})
	t.Run("subject with lines", func(t *testing.T) {
		r := request(checkout.Base, "r9", tarOf())
		r.Subject, r.Author = "a\n\nRun: forged", workspace.Person{Name: "x\n<y>", Email: "z>"}
		result, err := g.Commit(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "aRun: forged|xy|z", gitIn(t, cloned(t, g), "log", "-1", "--format=%s|%an|%ae", result.Commit))
		infos, err := g.Log(t.Context(), "port", 1)
		require.NoError(t, err)
		require.Equal(t, "r9", infos[0].Run)
	})
}

// TestHooksAndFiltersNeverRun commits beside a hook and attributes that would
// run a program.
func TestHooksAndFiltersNeverRun(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	repo, ran := filepath.Join(root, "missions", "port.git"), filepath.Join(root, "ran")
	for _, hook := range []string{"reference-transaction", "update", "post-update", "pre-commit", "post-commit"} {
		write(t, repo, files{"hooks/" + hook + "*": "#!/bin/sh\ntouch " + ran + "\n"})
	}
	gitIn(t, repo, "config", "filter.evil.clean", "touch "+ran)
	gitIn(t, repo, "config", "filter.evil.smudge", "touch "+ran)
	gitIn(t, repo, "config", "diff.evil.textconv", "touch "+ran)
	gitIn(t, repo, "config", "core.fsmonitor", "touch "+ran)
	result, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file(".gitattributes", "* filter=evil diff=evil text eol=crlf ident export-subst\nb export-ignore\n"), file("a", "$Id$\n"), file("b", "b\r\n"))))
	require.NoError(t, err)
	_, _, err = g.Diff(t.Context(), "port", 1, "survey", 1000)
	require.NoError(t, err)
	var archive bytes.Buffer
	_, err = g.Archive(t.Context(), "port", result.Commit, &archive)
	require.NoError(t, err)
	require.NoFileExists(t, ran)
	require.Equal(t, "$Id$\n", contents(t, archive.Bytes())["a"])
	require.Equal(t, "b\r\n", contents(t, archive.Bytes())["b"])
}

// TestCancelledCommitLeavesNothing ends the context while results arrive.
func TestCancelledCommitLeavesNothing(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	ctx, cancel := context.WithCancel(t.Context())
	r := request(checkout.Base, "r1", tarOf(file("a", "1")))
	r.Parts[0].Tar = io.TeeReader(r.Parts[0].Tar, writerFunc(func(p []byte) { cancel() }))
	_, err = g.Commit(ctx, r)
	require.ErrorIs(t, err, context.Canceled)
	requireUntouched(t, root, checkout)

	_, err = g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "1"))))
	require.NoError(t, err)
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// TestCrashLeftovers starts a gateway on what killed processes left behind.
func TestCrashLeftovers(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	repo := filepath.Join(root, "missions", "port.git")
	left := []string{
		filepath.Join(root, "scratch", "work-dead", "spool"),
		filepath.Join(repo, "refs", "heads", "tidewait", "port", "1.lock"),
		filepath.Join(repo, "packed-refs.lock"),
		filepath.Join(repo, "fast_import_crash_1234"),
		filepath.Join(repo, "objects", "pack", "tmp_pack_abc"),
		filepath.Join(repo, "objects", "pack", "pack-abc.keep"),
		filepath.Join(repo, "refs", "tidewait", "passing", "work-dead"),
	}
	leave := func() {
		for _, path := range left {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			old := time.Now().Add(-time.Hour)
			require.NoError(t, os.Chtimes(path, old, old))
		}
	}

	leave()
	g, err = workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	for _, path := range left {
		require.NoFileExists(t, path)
	}
	requireUntouched(t, root, checkout)

	// A running gateway meets a dead lock too.
	leave()
	_, err = g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "1"))))
	require.NoError(t, err)
}

// TestScratchInUseIsKept opens a second gateway while the first one works.
func TestScratchInUseIsKept(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	r := request(checkout.Base, "r1", tarOf(file("a", "1")))
	second := sync.OnceFunc(func() {
		_, err := workspace.New(root, workspace.Options{})
		require.NoError(t, err)
	})
	r.Parts[0].Tar = io.TeeReader(r.Parts[0].Tar, writerFunc(func(p []byte) { second() }))
	_, err = g.Commit(t.Context(), r)
	require.NoError(t, err)
}

func TestLogAndDiff(t *testing.T) {
	g, checkout := opened(t, small)
	first, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", "1\n2\n"), file("binary", "\x00\x01"))))
	require.NoError(t, err)
	r := request(first.Commit, "r2", tarOf(file("a", "1\n3\n")), "README.md")
	r.Phase, r.Subject, r.When = "review", "port: review", noon.Add(time.Minute)
	second, err := g.Commit(t.Context(), r)
	require.NoError(t, err)

	infos, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, []workspace.CommitInfo{
		{Commit: first.Commit, Phase: "survey", Run: "r1", Subject: "port: survey", When: noon, Stat: workspace.Stat{Files: 2, Insertions: 2}},
		{Commit: second.Commit, Phase: "review", Run: "r2", Subject: "port: review", When: noon.Add(time.Minute), Stat: workspace.Stat{Files: 2, Insertions: 1, Deletions: 2}},
	}, infos)

	const want = `diff --git a/README.md b/README.md
deleted file mode 100644
index d9b4012..0000000
--- a/README.md
+++ /dev/null
@@ -1 +0,0 @@
-read me
diff --git a/a b/a
index 1191247..2b2f2e1 100644
--- a/a
+++ b/a
@@ -1,2 +1,2 @@
 1
-2
+3
`
	text, cut, err := g.Diff(t.Context(), "port", 1, "review", 1000)
	require.NoError(t, err)
	require.False(t, cut)
	require.Equal(t, want, text)

	text, cut, err = g.Diff(t.Context(), "port", 1, "review", 70)
	require.NoError(t, err)
	require.True(t, cut)
	require.Equal(t, "diff --git a/README.md b/README.md\ndeleted file mode 100644\n", text)

	_, _, err = g.Diff(t.Context(), "port", 1, "nothing", 100)
	requireRefused(t, err, "workspace_missing", "launch 1 of mission port has no commit of a phase nothing")
}

func TestDiffOfMuchIsCut(t *testing.T) {
	g, checkout := opened(t, small)
	_, err := g.Commit(t.Context(), request(checkout.Base, "r1", tarOf(file("a", strings.Repeat("0123456789\n", 400_000)))))
	require.NoError(t, err)
	text, cut, err := g.Diff(t.Context(), "port", 1, "survey", 64<<10)
	require.NoError(t, err)
	require.True(t, cut)
	require.True(t, strings.HasSuffix(text, "\n+0123456789\n"))
}

// TestManyCommits fills a branch and opens the next launch, which merges packs.
func TestManyCommits(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	parent := checkout.Base
	for i := range 60 {
		result, err := g.Commit(t.Context(), request(parent, fmt.Sprintf("r%d", i), tarOf(file("a", fmt.Sprint(i)))))
		require.NoError(t, err)
		parent = result.Commit
	}
	openLaunch(t, g, repository(t, small), 2)
	packs, err := filepath.Glob(filepath.Join(root, "missions", "port.git", "objects", "pack", "*.pack"))
	require.NoError(t, err)
	require.Less(t, len(packs), 20)
	require.Equal(t, parent, head(t, g))
	infos, err := g.Log(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Len(t, infos, 60)
	require.Equal(t, "r59", infos[59].Run)
	gitIn(t, filepath.Join(root, "missions", "port.git"), "fsck", "--strict", "--no-dangling")
}

func BenchmarkCommit(b *testing.B) {
	random := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{})
	for name, content := range map[string]func() []byte{
		"1MB random": func() []byte { _, _ = source.Read(random); return random },
		"1MB text": func() []byte {
			var text bytes.Buffer
			for i := 0; text.Len() < 1<<20; i++ {
				fmt.Fprintf(&text, "line %d of %d\n", i, source.Uint64())
			}
			return text.Bytes()
		},
		"nothing": func() []byte { return nil },
	} {
		b.Run(name, func(b *testing.B) {
			g, checkout := opened(b, small)
			parent, n := checkout.Base, 0
			for b.Loop() {
				b.StopTimer()
				n++
				results := tarOf(file("out/data", string(content())))
				r := request(parent, fmt.Sprintf("r%d", n), results)
				b.StartTimer()
				result, err := g.Commit(b.Context(), r)
				require.NoError(b, err)
				parent = result.Commit
			}
		})
	}
}
