package workspace

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReceive wants whatever is accepted to be harmless: every path inside, no
// .git, every link inside, contents within the limits and within the spool.
func FuzzReceive(f *testing.F) {
	for _, h := range []tar.Header{
		{Name: "a/b", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b/c"},
		{Name: "../a", Typeflag: tar.TypeReg},
		{Name: ".git/x", Typeflag: tar.TypeReg},
		{Name: "d/", Typeflag: tar.TypeDir},
		{Name: "h", Typeflag: tar.TypeLink, Linkname: "a"},
		{Name: strings.Repeat("long/", 40), Typeflag: tar.TypeDir},
		{Name: "é", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"TIDEWAIT.x": "y"}},
		{Name: "f", Typeflag: tar.TypeFifo},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		require.NoError(f, w.WriteHeader(&h))
		require.NoError(f, w.Close())
		f.Add(b.Bytes())
	}
	spool, err := os.Create(filepath.Join(f.TempDir(), "spool"))
	require.NoError(f, err)
	limits := Limits{Files: 50, Bytes: 1 << 16}
	f.Fuzz(func(t *testing.T, stream []byte) {
		require.NoError(t, spool.Truncate(0))
		_, err := spool.Seek(0, 0)
		require.NoError(t, err)
		files, err := (&intake{limits: limits, spool: spool}).receive(bytes.NewReader(stream), "")
		if err != nil {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			return
		}
		info, err := spool.Stat()
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), limits.Bytes)
		require.LessOrEqual(t, len(files), limits.Files)
		seen := map[string]bool{}
		for _, file := range files {
			require.True(t, filepath.IsLocal(file.path), file.path)
			require.Equal(t, file.path, filepath.Clean(file.path))
			require.False(t, seen[file.path])
			seen[file.path] = true
			require.NotContains(t, "/"+strings.ToLower(file.path)+"/", "/.git/")
			require.LessOrEqual(t, file.offset+file.size, info.Size())
			if file.mode == modeLink {
				target := make([]byte, file.size)
				_, err := spool.ReadAt(target, file.offset)
				require.NoError(t, err)
				require.True(t, filepath.IsLocal(filepath.Join("root", filepath.Dir(file.path), string(target))))
				require.True(t, strings.HasPrefix(filepath.Join("root", filepath.Dir(file.path), string(target))+"/", "root/"))
			}
		}
	})
}

func TestIsDotGit(t *testing.T) {
	for part, want := range map[string]bool{
		".git": true, ".GIT": true, ".git.": true, ".git . .": true, "git~1": true, "GIT~12": true, ".git:x": true, `x\.git`: true, ".gi\u200ct": true, "\ufeff.git": true,
		"git": false, ".gitx": false, ".git-x": false, "git~": false, "git~x": false, "x.git": false, ".gitignore": false, "": false,
	} {
		require.Equal(t, want, isDotGit(part), "%q", part)
	}
}

func TestQuotePath(t *testing.T) {
	for path, want := range map[string]string{"a/b": `"a/b"`, `a"b\c`: `"a\"b\\c"`, "a\nb\x7f": `"a\012b\177"`, "é": `"é"`} {
		require.Equal(t, want, quotePath(path))
	}
}

func TestGitErrorSentence(t *testing.T) {
	for stderr, want := range map[string]string{
		"warning: x\nfatal: bad thing\nmore\n": "bad thing",
		"remote: hello\nerror: that\n":         "that",
		"Permission denied.\n":                 "Permission denied.",
		"":                                     "exit status 1",
	} {
		require.Equal(t, want, (&gitError{stderr: stderr, cause: errors.New("exit status 1")}).sentence())
	}
}
