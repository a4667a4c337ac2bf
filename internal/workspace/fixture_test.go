package workspace_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/tartest"
	"tidewait/internal/workspace"
)

// gitIn runs a real git in dir and returns what it printed.
func gitIn(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// files is a directory's content: a path that ends in * is executable, a value
// that starts with -> is a link.
type files map[string]string

func write(t testing.TB, dir string, content files) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(dir, strings.TrimSuffix(name, "*"))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(text, "->"); ok {
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, "*") {
			mode = 0o755
		}
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
}

// repository makes a repository with one commit of content on branch main.
func repository(t testing.TB, content files) string {
	t.Helper()
	dir := t.TempDir()
	gitIn(t, dir, "init", "-q", "-b", "main")
	write(t, dir, content)
	gitIn(t, dir, "add", "-A", "-f")
	gitIn(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

var small = files{"README.md": "read me\n", "src/main.c": "int main;\n", "src/run.sh*": "#!/bin/sh\n", "link": "->src/main.c"}

func newGateway(t testing.TB, o workspace.Options) *workspace.Gateway {
	t.Helper()
	g, err := workspace.New(t.TempDir(), o)
	require.NoError(t, err)
	return g
}

// opened is a gateway with launch 1 of mission port, made from content.
func opened(t testing.TB, content files) (*workspace.Gateway, workspace.Checkout) {
	t.Helper()
	g := newGateway(t, workspace.Options{})
	return g, openLaunch(t, g, repository(t, content), 1)
}

func openLaunch(t testing.TB, g *workspace.Gateway, dir string, launch int) workspace.Checkout {
	t.Helper()
	var bundle bytes.Buffer
	b, err := workspace.BundleRepo(t.Context(), dir, "HEAD", &bundle)
	require.NoError(t, err)
	checkout, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: launch, Bundle: &bundle, SHA256: b.SHA256, Head: b.Head})
	require.NoError(t, err)
	return checkout
}

var tarOf, file, link, dir = tartest.Of, tartest.File, tartest.Link, tartest.Dir

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var noon = time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)

// request is a commit of the results of one run of phase survey.
func request(parent, run string, results []byte, deleted ...string) workspace.CommitRequest {
	return workspace.CommitRequest{
		Mission: "port", Launch: 1, Phase: "survey", Run: run, Parent: parent,
		TreeIn:  "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
		Parts:   []workspace.Part{{Tar: bytes.NewReader(results), SHA256: digest(results), Deleted: deleted}},
		Subject: "port: survey", Author: workspace.Person{Name: "Ada", Email: "ada@example.org"}, When: noon,
	}
}

// millis is how long git says that it tried.
var millis = regexp.MustCompile(` after \d+ ms:`)

// requireRefused wants a refusal with exactly this code and sentence.
func requireRefused(t testing.TB, err error, code workspace.Code, message string) {
	t.Helper()
	var refused *workspace.Refused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, message, millis.ReplaceAllString(refused.Message, " after N ms:"))
	require.Equal(t, code, refused.Code)
}

// cloned fetches the branch of launch 1 into a fresh repository, checks it out
// and returns the directory.
func cloned(t testing.TB, g *workspace.Gateway) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle")
	out, err := os.Create(path)
	require.NoError(t, err)
	_, err = g.BundleBranch(t.Context(), "port", 1, false, out)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	dir := t.TempDir()
	gitIn(t, dir, "init", "-q")
	_, err = workspace.FetchInto(t.Context(), dir, path, "tidewait/port/1")
	require.NoError(t, err)
	gitIn(t, dir, "checkout", "-q", "tidewait/port/1")
	return dir
}

func head(t testing.TB, g *workspace.Gateway) string {
	t.Helper()
	return gitIn(t, cloned(t, g), "rev-parse", "HEAD")
}
