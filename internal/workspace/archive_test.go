package workspace_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

// contents is what a tar stream holds: files by path, links as ->, directories
// with a slash.
func contents(t testing.TB, stream []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	r := tar.NewReader(bytes.NewReader(stream))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		found[h.Name] = string(content)
		if h.Typeflag == tar.TypeSymlink {
			found[h.Name] = "->" + h.Linkname
		}
	}
}

func TestArchive(t *testing.T) {
	content := files{
		"README.md": "read me\n", "src/main.c": "int main;\n", "src/run.sh*": "#!/bin/sh\n", "link": "->../out of it",
		".gitattributes": "secret export-ignore\n*.c export-subst\n", "secret": "kept\n", "empty": "", strings.Repeat("long/", 60) + "é": "x",
	}
	g, checkout := opened(t, content)
	var first, second bytes.Buffer
	manifest, err := g.Archive(t.Context(), "port", checkout.Base, &first)
	require.NoError(t, err)
	require.Equal(t, 8, manifest.Files)
	require.EqualValues(t, 72, manifest.Bytes)
	require.Equal(t, digest(first.Bytes()), manifest.SHA256)

	again, err := g.Archive(t.Context(), "port", checkout.Base, &second)
	require.NoError(t, err)
	require.Equal(t, manifest, again)
	require.Equal(t, first.Bytes(), second.Bytes())

	found := contents(t, first.Bytes())
	require.Contains(t, found, "src/")
	for name, text := range content {
		require.Equal(t, text, found[strings.TrimSuffix(name, "*")], name)
	}
	r := tar.NewReader(&first)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.Zero(t, h.Uid+h.Gid)
		require.Equal(t, "2026-01-02T03:04:05Z", h.ModTime.UTC().Format("2006-01-02T15:04:05Z"))
		switch h.Name {
		case "src/run.sh", "src/":
			require.EqualValues(t, 0o755, h.Mode)
		case "README.md":
			require.EqualValues(t, 0o644, h.Mode)
		}
	}
}

// TestArchiveRoundTrip commits what was archived: nothing has changed.
func TestArchiveRoundTrip(t *testing.T) {
	g, checkout := opened(t, small)
	var stream bytes.Buffer
	manifest, err := g.Archive(t.Context(), "port", checkout.Base, &stream)
	require.NoError(t, err)
	result, err := g.Commit(t.Context(), request(checkout.Base, "r1", stream.Bytes()))
	require.NoError(t, err)
	require.False(t, result.Changed)
	require.Equal(t, manifest.Tree, result.Tree)
}

func TestArchiveOfAnEmptyTree(t *testing.T) {
	g, checkout := opened(t, files{})
	var stream bytes.Buffer
	manifest, err := g.Archive(t.Context(), "port", checkout.Base, &stream)
	require.NoError(t, err)
	require.Equal(t, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", manifest.Tree)
	require.Equal(t, "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef", manifest.SHA256)
	require.Empty(t, contents(t, stream.Bytes()))
}

func TestArchiveOfASubmoduleIsAnEmptyDirectory(t *testing.T) {
	dir := repository(t, small)
	gitIn(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub/module")
	gitIn(t, dir, "commit", "-q", "-m", "submodule")
	g := newGateway(t, workspace.Options{})
	checkout := openLaunch(t, g, dir, 1)
	var stream bytes.Buffer
	_, err := g.Archive(t.Context(), "port", checkout.Base, &stream)
	require.NoError(t, err)
	require.Contains(t, contents(t, stream.Bytes()), "sub/module/")
}

func TestArchiveRefusals(t *testing.T) {
	g, checkout := opened(t, small)
	absent := strings.Repeat("0123456789", 4)
	for name, c := range map[string]struct {
		mission, commit string
		code            workspace.Code
		want            string
	}{
		"mission":   {"other", checkout.Base, "workspace_missing", "this gateway has no checkout of mission other"},
		"commit":    {"port", absent, "workspace_missing", "this gateway's checkout of mission port has no commit " + absent},
		"not an id": {"port", "--output=/tmp/x", "workspace_bad_ref", `"--output=/tmp/x" is not a full commit id`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.Archive(t.Context(), c.mission, c.commit, io.Discard)
			requireRefused(t, err, c.code, c.want)
		})
	}
}

// TestArchiveRefusesHostileTrees reads a tree that no git would check out.
func TestArchiveRefusesHostileTrees(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	openLaunch(t, g, repository(t, small), 1)
	repo := filepath.Join(root, "missions", "port.git")
	blob := gitIn(t, repo, "hash-object", "-w", "--stdin")
	path := filepath.Join(t.TempDir(), "tree")
	raw := make([]byte, 20)
	_, err = fmt.Sscanf(blob, "%x", &raw)
	require.NoError(t, err)
	for name, problem := range map[string]string{"..": "has .. in its name", ".git": "has .git in its name"} {
		require.NoError(t, os.WriteFile(path, append([]byte("100644 "+name+"\x00"), raw...), 0o600))
		tree := gitIn(t, repo, "hash-object", "-w", "--literally", "-t", "tree", path)
		commit := gitIn(t, repo, "commit-tree", "-m", "hostile", tree)
		_, err = g.Archive(t.Context(), "port", commit, io.Discard)
		requireRefused(t, err, "workspace_unreadable", fmt.Sprintf("commit %s cannot be unpacked safely: %q %s", commit[:12], name, problem))
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestArchiveStopsWithItsReader(t *testing.T) {
	g, checkout := opened(t, files{"big": strings.Repeat("0123456789abcdef", 1<<18)})
	_, err := g.Archive(t.Context(), "port", checkout.Base, failingWriter{})
	require.ErrorIs(t, err, io.ErrClosedPipe)
}
