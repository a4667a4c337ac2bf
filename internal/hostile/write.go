package hostile

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"

	"tidewait/internal/tartest"
)

var of, file, link, dir = tartest.Of, tartest.File, tartest.Link, tartest.Dir

func must(err error) {
	if err != nil {
		panic(err) // of a writer to memory: the corpus itself is wrong
	}
}

const (
	blockSize = 512
	checksum  = 148 // offset of the checksum in a header
	kindAt    = 156 // offset of the kind in a header
)

// sum sets the checksum of the first header of a stream.
func sum(stream []byte) {
	for i := range 8 {
		stream[checksum+i] = ' '
	}
	total := 0
	for _, b := range stream[:blockSize] {
		total += int(b)
	}
	copy(stream[checksum:], fmt.Sprintf("%06o\x00 ", total))
}

// typed is an empty file of a kind that tar's writer would not write.
func typed(kind byte) []byte {
	b := of(file("t", ""))
	b[kindAt] = kind
	sum(b)
	return b
}

// prefixed is a file whose name is split over two fields of its header.
func prefixed(prefix, name string) []byte {
	b := of(file(name, ""))
	copy(b[345:], prefix)
	sum(b)
	return b
}

// declared is the header of a file of so many bytes, without them.
func declared(size int64) []byte {
	var b bytes.Buffer
	must(tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}))
	return b.Bytes()
}

// special is an entry of a kind that carries its content for the entry after it.
func special(kind byte, content string) []byte {
	b := of(file("special", content))
	b[kindAt] = kind
	sum(b)
	return b[:len(b)-2*blockSize]
}

// pax is a file with an extended header.
func pax(name string, records map[string]string) []byte {
	var content strings.Builder
	for key, value := range records {
		content.WriteString(record(key, value))
	}
	return append(special(tar.TypeXHeader, content.String()), of(file(name, ""))...)
}

// record is one line of an extended header, which begins with its own length.
func record(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	size := len(rest) + 1
	for size != len(rest)+len(fmt.Sprint(size)) {
		size = len(rest) + len(fmt.Sprint(size))
	}
	return fmt.Sprint(size) + rest
}

// gnuLong is a file whose name is in an entry of its own, as GNU's tar has it.
func gnuLong(name string, kind byte) []byte {
	return append(special(kind, name+"\x00"), of(file("x", ""))...)
}

// sparse is a file of the given size in which there is nothing.
func sparse(size string) []byte {
	return pax("GNUSparseFile.0/a", map[string]string{
		"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "a", "GNU.sparse.size": size,
		"GNU.sparse.numblocks": "0", "GNU.sparse.map": "",
	})
}

// extended are n extended headers of 8 KiB each, and no file at all.
func extended(kind byte, n int) []byte {
	one := special(kind, record("comment", strings.Repeat("x", 8<<10)))
	return append(bytes.Repeat(one, n), make([]byte, 2*blockSize)...)
}
