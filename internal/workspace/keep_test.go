package workspace_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

// keptOf makes the first bundle of launch 1.
func keptOf(t *testing.T, g *workspace.Gateway) []workspace.Kept {
	t.Helper()
	chain, err := g.Chain(t.Context(), "port", 1)
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = g.BundleSince(t.Context(), "port", 1, "", "", &b)
	require.NoError(t, err)
	return []workspace.Kept{{Commit: chain.Head(), Open: opens(b.Bytes())}}
}

func opens(b []byte) func() io.ReadCloser {
	return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
}

// survey commits a file of one run onto the head of launch 1.
func survey(t *testing.T, g *workspace.Gateway, parent, run, content string) string {
	t.Helper()
	c, err := g.Commit(t.Context(), request(parent, run, tarOf(file(run+".txt", content))))
	require.NoError(t, err)
	return c.Commit
}

func TestALaunchIsRestoredFromItsBundles(t *testing.T) {
	g, checkout := opened(t, small)
	kept := keptOf(t, g)
	first := survey(t, g, checkout.Head, "r1-1", "one\n")
	bundle := func(phase, since, commit string) workspace.Kept {
		var b bytes.Buffer
		_, err := g.BundleSince(t.Context(), "port", 1, phase, since, &b)
		require.NoError(t, err)
		return workspace.Kept{Phase: phase, Commit: commit, Open: opens(b.Bytes())}
	}
	kept = append(kept, bundle("", checkout.Head, first))
	second := survey(t, g, first, "r2-1", "two\n")
	kept = append(kept, bundle("", first, second))
	partial := request(second, "r3-1", tarOf(file("half.txt", "half\n")))
	partial.Phase, partial.Partial = "report", "a person stopped it"
	p, err := g.CommitPartial(t.Context(), partial)
	require.NoError(t, err)
	kept = append(kept, bundle("report", second, p.Commit))
	want, err := g.Chain(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, workspace.Chain{Base: checkout.Base, Commits: []string{first, second}, Partial: map[string]string{"report": p.Commit}}, want)

	fresh := newGateway(t, workspace.Options{})
	require.NoError(t, fresh.Restore(t.Context(), "port", 1, checkout.Base, kept))
	got, err := fresh.Chain(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, want, got)
	damage, err := fresh.Damage(t.Context(), "port", true)
	require.NoError(t, err)
	require.Empty(t, damage)
	third := survey(t, fresh, second, "r3-2", "three\n")

	// What is further than the bundles stays where it is.
	require.NoError(t, fresh.Restore(t.Context(), "port", 1, checkout.Base, kept))
	got, err = fresh.Chain(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, []string{first, second, third}, got.Commits)

	// A checkout that is behind catches up.
	behind := newGateway(t, workspace.Options{})
	require.NoError(t, behind.Restore(t.Context(), "port", 1, checkout.Base, kept[:2]))
	require.NoError(t, behind.Restore(t.Context(), "port", 1, checkout.Base, kept))
	got, err = behind.Chain(t.Context(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestNothingIsRestoredOfDamagedBundles leaves a launch unknown rather than half.
func TestNothingIsRestoredOfDamagedBundles(t *testing.T) {
	g, checkout := opened(t, small)
	kept := keptOf(t, g)
	commit := survey(t, g, checkout.Head, "r1-1", "one\n")
	var b bytes.Buffer
	_, err := g.BundleSince(t.Context(), "port", 1, "", checkout.Head, &b)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		bundles []workspace.Kept
		says    string
	}{
		"cut short":      {append(kept[:1:1], workspace.Kept{Commit: commit, Open: opens(b.Bytes()[:b.Len()-8])}), "read the bundle of commit"},
		"no bundle":      {append(kept[:1:1], workspace.Kept{Commit: commit, Open: opens([]byte("gitdir: /etc\n"))}), "is not a git bundle"},
		"another commit": {append(kept[:1:1], workspace.Kept{Commit: strings.Repeat("a", 40), Open: opens(b.Bytes())}), "not aaaaaaaaaaaa as is recorded"},
		"a gap":          {[]workspace.Kept{{Commit: commit, Open: opens(b.Bytes())}}, "read the bundle of commit"},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := newGateway(t, workspace.Options{})
			require.ErrorContains(t, fresh.Restore(t.Context(), "port", 1, checkout.Base, c.bundles), c.says)
			_, err := fresh.Chain(t.Context(), "port", 1)
			requireRefused(t, err, workspace.Missing, "this gateway has no checkout of launch 1 of mission port")
		})
	}
}

func TestDamageIsFoundAndSetAside(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	survey(t, g, checkout.Head, "r1-1", strings.Repeat("some content\n", 100))
	damage, err := g.Damage(t.Context(), "port", false)
	require.NoError(t, err)
	require.Empty(t, damage)
	damage, err = g.Damage(t.Context(), "nobody", true)
	require.NoError(t, err)
	require.Empty(t, damage)

	packs, err := filepath.Glob(filepath.Join(root, "missions", "port.git", "objects", "pack", "*.pack"))
	require.NoError(t, err)
	require.NotEmpty(t, packs)
	for _, pack := range packs {
		require.NoError(t, os.Chmod(pack, 0o600))
		info, err := os.Stat(pack)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(pack, info.Size()/2))
	}
	damage, err = g.Damage(t.Context(), "port", false)
	require.NoError(t, err)
	require.NotEmpty(t, damage)
	aside, err := g.SetAside("port")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "damaged"), filepath.Dir(filepath.Dir(aside)))
	require.FileExists(t, filepath.Join(aside, "HEAD"))
	_, err = g.Chain(t.Context(), "port", 1)
	requireRefused(t, err, workspace.Missing, "this gateway has no checkout of mission port")
}

// TestOddContentIsNoDamage commits what git's own check complains of.
func TestOddContentIsNoDamage(t *testing.T) {
	g, checkout := opened(t, small)
	odd := tarOf(file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = -u./foo\n"))
	_, err := g.Commit(t.Context(), request(checkout.Head, "r1-1", odd))
	require.NoError(t, err)
	for _, deep := range []bool{false, true} {
		damage, err := g.Damage(t.Context(), "port", deep)
		require.NoError(t, err)
		require.Empty(t, damage)
	}
}

// spoiled is a pack with one object that cannot be read.
func spoiled(t *testing.T, repo, pack string, whole []byte, id string) []byte {
	t.Helper()
	for line := range strings.Lines(gitIn(t, repo, "verify-pack", "-v", pack)) {
		if fields := strings.Fields(line); fields[0] == id {
			offset, err := strconv.Atoi(fields[4])
			require.NoError(t, err)
			return slices.Concat(whole[:offset+3], []byte("XX"), whole[offset+5:])
		}
	}
	t.Fatalf("no object %s in %s", id, pack)
	return nil
}

// TestASpoiledObjectIsDamage finds with a deep look what a branch needs.
func TestASpoiledObjectIsDamage(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	checkout := openLaunch(t, g, repository(t, small), 1)
	repo := filepath.Join(root, "missions", "port.git")
	packs, err := filepath.Glob(filepath.Join(repo, "objects", "pack", "*.pack"))
	require.NoError(t, err)
	require.Len(t, packs, 1)
	require.NoError(t, os.Chmod(packs[0], 0o600))
	whole, err := os.ReadFile(packs[0])
	require.NoError(t, err)
	for _, what := range []string{":README.md", "^{tree}"} {
		id := gitIn(t, repo, "rev-parse", checkout.Head+what)
		require.NoError(t, os.WriteFile(packs[0], spoiled(t, repo, packs[0], whole, id), 0o600))
		damage, err := g.Damage(t.Context(), "port", true)
		require.NoError(t, err)
		require.NotEmpty(t, damage)
		_, err = g.Archive(t.Context(), "port", checkout.Head, io.Discard)
		require.True(t, workspace.GitFailed(err), "%v", err)
		require.NoError(t, os.WriteFile(packs[0], whole, 0o600))
	}
	damage, err := g.Damage(t.Context(), "port", true)
	require.NoError(t, err)
	require.Empty(t, damage)
	_, err = g.Archive(t.Context(), "port", strings.Repeat("a", 40), io.Discard)
	require.False(t, workspace.GitFailed(err), "%v", err)
}

// TestADirectoryRemovedUnderAGatewayIsMadeAgain opens a launch after somebody
// removed everything the process had.
func TestADirectoryRemovedUnderAGatewayIsMadeAgain(t *testing.T) {
	root := filepath.Join(t.TempDir(), "gw")
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(root))
	checkout := openLaunch(t, g, repository(t, small), 1)
	require.Equal(t, "tidewait/port/1", checkout.Branch)
}
