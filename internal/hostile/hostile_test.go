package hostile_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/hostile"
	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/workspace"
)

// TestArchives takes every archive of the corpus the way results take: from a
// machine through its node's end of the protocol to the gateway's commit. Then it
// gives it to the gateway alone, as a node would that had been taken over. Each is
// refused where it must be, in the words it must be, and nothing beside the
// gateway's own repository and scratch directory is touched.
func TestArchives(t *testing.T) {
	around := t.TempDir()
	root := filepath.Join(around, "gateway")
	plantCanaries(t, around)
	t.Setenv("TMPDIR", filepath.Join(around, "tmp"))
	g, checkout := openGateway(t, root)
	before := census(t, around, root)
	repo := census(t, root, "")
	limits := vm.Limits{Files: hostile.Files, Bytes: hostile.Bytes}

	for i, a := range hostile.Archives() {
		t.Run(a.Name, func(t *testing.T) {
			var kept bytes.Buffer
			result, err := collect(t, a.Tar, limits, &kept)
			switch {
			case a.Node != "":
				var f *vm.Failure
				require.ErrorAs(t, err, &f)
				require.Contains(t, []vm.FailureCode{vm.CollectFailed, vm.ResultsTooLarge}, f.Code)
				require.Contains(t, f.Message, a.Node)
			default:
				require.NoError(t, err)
				require.Equal(t, digest(a.Tar), result.SHA256)
				require.Equal(t, string(a.Tar), kept.String(), "what is checked is what is kept")
			}

			request := workspace.CommitRequest{
				Mission: "port", Launch: 1, Phase: "survey", Run: fmt.Sprintf("r1-%d", i), Parent: checkout.Base, TreeIn: checkout.Base,
				Parts:   []workspace.Part{{Tar: bytes.NewReader(a.Tar), SHA256: digest(a.Tar)}},
				Subject: "port: survey", Author: workspace.Person{Name: "Ada", Email: "ada@example.org"}, When: time.Unix(1_700_000_000, 0),
				Partial: "so that the branch stays where it is",
			}
			_, err = g.CommitPartial(t.Context(), request)
			if a.Gateway == "" {
				require.NoError(t, err)
			} else {
				var refused *workspace.Refused
				require.ErrorAs(t, err, &refused)
				require.Contains(t, refused.Message, a.Gateway)
				require.Equal(t, repo, census(t, root, ""), "a refused archive leaves the repository as it was")
			}
			repo = census(t, root, "")
			left, err := os.ReadDir(filepath.Join(root, "scratch"))
			require.NoError(t, err)
			require.Empty(t, left)
			require.Equal(t, before, census(t, around, root))
		})
	}
}

// collect is the node's end of the protocol, with a machine at the other that
// sends the archive in frames and tells no lie about it but the archive.
func collect(t *testing.T, archive []byte, limits vm.Limits, w io.Writer) (vm.Result, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	go func() {
		c := guest.NewConn(theirs)
		_ = c.WriteJSON(guest.KindHello, guest.Hello{Proto: guest.Proto, Kernel: "6.1"})
		if kind, _, err := c.Read(); err != nil || kind != guest.KindGet {
			return
		}
		for chunk := range slices.Chunk(archive, guest.ChunkSize) {
			if c.Write(guest.KindTar, chunk) != nil {
				return
			}
		}
		_ = c.WriteJSON(guest.KindTarEnd, guest.TarEnd{Tally: tallyOf(archive)})
	}()
	s, err := guest.Open(t.Context(), ours)
	require.NoError(t, err)
	return s.Get(t.Context(), nil, limits, w)
}

// tallyOf is what a machine would honestly say of an archive, as far as it can
// be read.
func tallyOf(archive []byte) guest.Tally {
	sum := guest.NewSum()
	sum.Write(archive)
	m := guest.Tally{Sum: guest.SumText(sum)}
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if err != nil {
			return m
		}
		if h.Typeflag != tar.TypeDir {
			m.Files++
		}
		m.Bytes += h.Size
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// openGateway is a gateway with one launch of one mission.
func openGateway(t *testing.T, root string) (*workspace.Gateway, workspace.Checkout) {
	t.Helper()
	require.NoError(t, os.Mkdir(root, 0o755))
	g, err := workspace.New(root, workspace.Options{Limits: workspace.Limits{Files: hostile.Files, Bytes: hostile.Bytes}})
	require.NoError(t, err)
	work := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "README"), []byte("a workspace\n"), 0o600))
	var bundle bytes.Buffer
	b, err := workspace.BundleDir(t.Context(), work, &bundle)
	require.NoError(t, err)
	checkout, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 1, Bundle: &bundle, SHA256: b.SHA256, Head: b.Head})
	require.NoError(t, err)
	return g, checkout
}

// plantCanaries puts beside the gateway's directory what the archives aim at.
func plantCanaries(t *testing.T, around string) {
	t.Helper()
	old := time.Unix(1_000_000_000, 123456789)
	for _, name := range []string{"x", "etc/passwd", "etc/cron.d/x", "README", ".git/config", ".git/hooks/post-checkout", "tmp/x", "home/.gitconfig"} {
		path := filepath.Join(around, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("canary\n"), 0o600))
		require.NoError(t, os.Chtimes(path, old, old))
	}
}

// census is every file below a directory but those below without: its mode, size,
// time of change, content and target.
func census(t *testing.T, dir, without string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == without {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = digest(data)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		when := info.ModTime().UnixNano()
		if without == "" && info.IsDir() {
			when = 0 // the gateway's own scratch files come and go
		}
		fmt.Fprintln(&b, strings.TrimPrefix(path, dir), info.Mode(), info.Size(), when, content)
		return nil
	}))
	return b.String()
}
