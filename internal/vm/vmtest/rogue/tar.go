package rogue

import (
	"archive/tar"
	"bytes"
)

// tarOf is a tar stream of one file.
func tarOf(name, content string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		panic(err) // a writer to memory
	}
	_, _ = w.Write([]byte(content))
	_ = w.Close()
	return b.Bytes()
}

// header is that of a file of so many bytes.
func header(name string, size int64) []byte {
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
		panic(err) // a writer to memory
	}
	return b.Bytes()
}
