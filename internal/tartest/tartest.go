// Package tartest makes tar streams for tests.
package tartest

import (
	"archive/tar"
	"bytes"
)

// Of is a tar stream of headers; a regular file's content is its Linkname, and what
// has no mode has 0644.
func Of(headers ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, content, h.Linkname = tar.TypeReg, h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		must(w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		must(err)
	}
	must(w.Close())
	return b.Bytes()
}

// File is a regular file for [Of].
func File(name, content string) tar.Header { return tar.Header{Name: name, Linkname: content} }

// Link is a symbolic link.
func Link(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

// Dir is a directory.
func Dir(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}

func must(err error) {
	if err != nil {
		panic(err) // of a writer to memory: the headers are wrong
	}
}
