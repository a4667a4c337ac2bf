package rogue

import (
	"archive/tar"
	"bytes"

	"tidewait/internal/tartest"
)

// tarOf is a tar stream of one file.
func tarOf(name, content string) []byte { return tartest.Of(tartest.File(name, content)) }

// header is that of a file of so many bytes.
func header(name string, size int64) []byte {
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
		panic(err) // a writer to memory
	}
	return b.Bytes()
}
