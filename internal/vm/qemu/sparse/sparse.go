// Package sparse copies and compares files that are mostly holes.
package sparse

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copy makes an empty file one of from's size and with what from holds, and leaves
// its holes.
func Copy(to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	return extents(from, info.Size(), func(start, end int64) error {
		if _, err := from.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(start, io.SeekStart); err != nil {
			return err
		}
		_, err := io.CopyN(to, from, end-start)
		return err
	})
}

// block is what is told apart from a hole, in bytes: the least that file systems
// keep.
const block = 4096

// Sum is the SHA-256, hex, of a file's size and of every block that is not all
// zeros, with its place, so that it does not depend on which zeros are holes. held is
// how many bytes these blocks have.
func Sum(f *os.File) (sum string, held int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	digest := sha256.New()
	number := make([]byte, 8)
	write := func(n int64) {
		binary.BigEndian.PutUint64(number, uint64(n))
		digest.Write(number)
	}
	write(info.Size())
	buf, zeros := make([]byte, block), make([]byte, block)
	next := int64(0)
	err = extents(f, info.Size(), func(start, end int64) error {
		for at := max(start/block*block, next); at < end; at += block {
			next = at + block
			b := buf[:min(block, info.Size()-at)]
			if _, err := f.ReadAt(b, at); err != nil {
				return err
			}
			if bytes.Equal(b, zeros[:len(b)]) {
				continue
			}
			write(at)
			digest.Write(b)
			held += int64(len(b))
		}
		return nil
	})
	return hex.EncodeToString(digest.Sum(nil)), held, err
}

// extents calls do for every part of a file that is not a hole, in order.
func extents(f *os.File, size int64, do func(start, end int64) error) error {
	for at := int64(0); at < size; {
		start, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // no more data
		}
		if err != nil {
			return err
		}
		end, err := f.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := do(start, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}
