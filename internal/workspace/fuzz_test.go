package workspace_test

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"tidewait/internal/workspace"
)

// FuzzUnpack lets a gateway send any archive: nothing of it is outside of the
// directory, and nothing is left when it is refused.
func FuzzUnpack(f *testing.F) {
	archive := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(archive(tar.Header{Name: "a/b", Size: 3, Mode: 0o755}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a/b"}))
	f.Add(archive(tar.Header{Name: "../b", Size: 3, Mode: 0o644}))
	f.Add(archive(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, tar.Header{Name: "l/b", Size: 1, Mode: 0o644}))
	f.Add(archive(tar.Header{Name: "p", Typeflag: tar.TypeFifo}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, stream []byte) {
		around := t.TempDir()
		dir := filepath.Join(around, "dir")
		if _, err := workspace.Unpack(bytes.NewReader(stream), dir); err != nil {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Fatalf("%v is left, though: %v", left, err)
			}
		}
		beside, err := os.ReadDir(around)
		if err != nil || len(beside) != 1 {
			t.Fatalf("beside the directory there are %v, %v", beside, err)
		}
		err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if kind := entry.Type(); err == nil && !kind.IsRegular() && !kind.IsDir() && kind != fs.ModeSymlink {
				t.Fatalf("%s is of the kind %s", path, kind)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
