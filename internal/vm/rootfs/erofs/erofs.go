// Package erofs writes read-only file systems in the format EROFS, uncompressed,
// as Linux 5.4 and later mounts them. Content goes into the image as it comes;
// the names are written at the end. The same tree gives the same bytes.
//
// See fs/erofs/erofs_fs.h in Linux for the layout on disk.
package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// BlockSize is the size of a block, in bytes.
const BlockSize = 4096

// File types, as in the mode of a Unix file.
const (
	TypeFIFO    = 0o010000
	TypeChar    = 0o020000
	TypeDir     = 0o040000
	TypeBlock   = 0o060000
	TypeRegular = 0o100000
	TypeSymlink = 0o120000
	typeMask    = 0o170000
)

// Inode is a file of any type. Several names may lead to one that is no directory.
type Inode struct {
	Mode         uint16 // type and permissions
	UID, GID     uint32
	ModTime      time.Time
	Link         string            // target of a symbolic link
	Major, Minor uint32            // of a device
	Xattrs       map[string]string // those of namespaces that Linux does not have here are left out
	Content      Content           // of a regular file
	Children     map[string]*Inode // of a directory, never nil there

	parent *Inode // of a directory
	links  uint32
	number uint32 // from 1
	slot   int64  // offset in the table of inodes
	block  uint32 // the first of its content
	size   int64
}

// Content is what [Writer.Content] wrote.
type Content struct {
	block uint32
	size  int64
}

// Size returns the length in bytes.
func (c Content) Size() int64 { return c.size }

// NewDir returns an empty directory.
func NewDir(permissions uint16) *Inode {
	return &Inode{Mode: TypeDir | permissions, Children: map[string]*Inode{}}
}

// IsDir reports whether the file is a directory.
func (i *Inode) IsDir() bool { return i.Mode&typeMask == TypeDir }

// Writer writes one file system. Its first error sticks.
type Writer struct {
	to    io.WriteSeeker
	block uint32 // the next
	err   error
}

// NewWriter returns a writer of a file system that begins where to stands now,
// which has to be its beginning.
func NewWriter(to io.WriteSeeker) *Writer {
	w := &Writer{to: to}
	w.write(make([]byte, BlockSize)) // for the superblock, which comes last
	return w
}

// Written returns the bytes written so far.
func (w *Writer) Written() int64 { return int64(w.block) * BlockSize }

// write adds whole blocks; what is missing of the last one is zeros.
func (w *Writer) write(b []byte) (first uint32) {
	first = w.block
	if w.err == nil {
		_, w.err = w.to.Write(b)
	}
	w.filled(int64(len(b)))
	return first
}

// filled accounts for n bytes that were written, and completes the last block.
func (w *Writer) filled(n int64) {
	if rest := n % BlockSize; rest != 0 && w.err == nil {
		_, w.err = w.to.Write(make([]byte, BlockSize-rest))
	}
	blocks := (n + BlockSize - 1) / BlockSize
	if int64(w.block)+blocks > math.MaxUint32 {
		w.err = errors.Join(w.err, errors.New("the file system is larger than 16 TiB"))
		return
	}
	w.block += uint32(blocks)
}

// Content writes the content of a file: all that from has.
func (w *Writer) Content(from io.Reader) (Content, error) {
	if w.err != nil {
		return Content{}, w.err
	}
	first := w.block
	n, err := io.Copy(w.to, from)
	w.filled(n)
	if err == nil {
		err = w.err
	}
	return Content{block: first, size: n}, err
}

// Finish writes the names, with root as the root directory, and the superblock.
// The tree must not change any more.
func (w *Writer) Finish(root *Inode) error {
	inodes := number(root)
	for _, i := range inodes {
		w.locate(i)
	}
	end := layOut(inodes)
	for _, i := range inodes {
		if i.IsDir() {
			w.writeDir(i)
		}
	}
	meta := w.block
	table := make([]byte, end)
	for _, i := range inodes {
		i.encode(table[i.slot:])
	}
	w.write(table)
	if w.err != nil {
		return w.err
	}
	if _, err := w.to.Seek(superOffset, io.SeekStart); err != nil {
		return err
	}
	_, err := w.to.Write(superblock(root, len(inodes), meta, w.block))
	return err
}

// number gives every inode its number and counts its names, in an order that
// depends on the names alone.
func number(root *Inode) []*Inode {
	var all []*Inode
	root.parent, root.links = root, 1 // its ".." stands for the name that it does not have
	queue := []*Inode{root}
	add := func(i *Inode) {
		all = append(all, i)
		i.number = uint32(len(all)) //nolint:gosec // nobody has so many files
	}
	add(root)
	for len(queue) > 0 {
		dir := queue[0]
		queue = queue[1:]
		dir.links++ // its own "."
		for _, name := range slices.Sorted(maps.Keys(dir.Children)) {
			child := dir.Children[name]
			if child.number == 0 {
				add(child)
			}
			child.links++
			if child.IsDir() {
				child.parent = dir
				dir.links++
				queue = append(queue, child)
			}
		}
	}
	return all
}

// locate says where the content is, and writes what is not there yet.
func (w *Writer) locate(i *Inode) {
	switch i.Mode & typeMask {
	case TypeRegular:
		i.block, i.size = i.Content.block, i.Content.size
	case TypeSymlink:
		i.size = int64(len(i.Link))
		i.block = w.write([]byte(i.Link))
	case TypeDir:
		i.size = int64(len(dirBlocks(i))) * BlockSize
	}
}

// Sizes and offsets on disk.
const (
	superOffset = 1024
	inodeSize   = 64
	slotSize    = 32 // a nid counts these
	direntSize  = 12
	firstSlot   = inodeSize // so that no inode has the number 0, which means none
)

// layOut gives each inode its place, and returns where the last one ends.
func layOut(inodes []*Inode) int64 {
	at := int64(firstSlot)
	for _, i := range inodes {
		i.slot = at
		at += (inodeSize + int64(len(i.xattrs())) + inodeSize - 1) / inodeSize * inodeSize
	}
	return at
}

func (i *Inode) nid() uint64 { return uint64(i.slot) / slotSize } //nolint:gosec // an offset

// encode writes the inode and its extended attributes.
func (i *Inode) encode(b []byte) {
	const extended = 1 // and bits 1 to 3 are zero: content in whole blocks
	le := binary.LittleEndian
	attributes := i.xattrs()
	le.PutUint16(b[0:], extended)
	if len(attributes) > 0 {
		le.PutUint16(b[2:], uint16((len(attributes)-xattrHeader)/4+1)) //nolint:gosec // bounded by xattrs
	}
	le.PutUint16(b[4:], i.Mode)
	le.PutUint64(b[8:], uint64(i.size)) //nolint:gosec // a size
	switch i.Mode & typeMask {
	case TypeChar, TypeBlock:
		le.PutUint32(b[16:], i.Minor&0xff|i.Major<<8|i.Minor&^0xff<<12)
	default:
		le.PutUint32(b[16:], i.block)
	}
	le.PutUint32(b[20:], i.number)
	le.PutUint32(b[24:], i.UID)
	le.PutUint32(b[28:], i.GID)
	if !i.ModTime.IsZero() {
		le.PutUint64(b[32:], uint64(i.ModTime.Unix()))       //nolint:gosec // two's complement, as Linux reads it
		le.PutUint32(b[40:], uint32(i.ModTime.Nanosecond())) //nolint:gosec // less than a second
	}
	le.PutUint32(b[44:], i.links)
	copy(b[inodeSize:], attributes)
}

// Of extended attributes.
const (
	xattrHeader = 12
	maxXattrs   = 16 << 10 // bytes for one file
)

// xattrNamespaces are those that Linux keeps by number.
var xattrNamespaces = []struct {
	prefix string
	index  byte
}{{"user.", 1}, {"trusted.", 4}, {"security.", 6}}

// xattrs are the extended attributes as they stand behind the inode.
func (i *Inode) xattrs() []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(i.Xattrs)) {
		value := i.Xattrs[name]
		for _, space := range xattrNamespaces {
			rest, ok := strings.CutPrefix(name, space.prefix)
			if !ok || rest == "" || len(rest) > 255 || b.Len()+len(name)+len(value) > maxXattrs {
				continue
			}
			b.Write([]byte{byte(len(rest)), space.index, byte(len(value)), byte(len(value) >> 8)})
			b.WriteString(rest)
			b.WriteString(value)
			b.Write(make([]byte, -b.Len()&3))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return append(make([]byte, xattrHeader), b.Bytes()...)
}

// dirBlocks are the names of a directory, those of one block together.
func dirBlocks(dir *Inode) [][]string {
	names := append(slices.Collect(maps.Keys(dir.Children)), ".", "..")
	slices.Sort(names)
	var blocks [][]string
	used := BlockSize + 1
	for _, name := range names {
		if used += direntSize + len(name); used > BlockSize {
			blocks, used = append(blocks, nil), direntSize+len(name)
		}
		last := len(blocks) - 1
		blocks[last] = append(blocks[last], name)
	}
	return blocks
}

// fileTypes are the types of directory entries.
var fileTypes = map[uint16]byte{
	TypeRegular: 1, TypeDir: 2, TypeChar: 3, TypeBlock: 4, TypeFIFO: 5, TypeSymlink: 7,
}

func (w *Writer) writeDir(dir *Inode) {
	for n, names := range dirBlocks(dir) {
		block := make([]byte, BlockSize)
		at := direntSize * len(names) // of the name
		for k, name := range names {
			child := dir.Children[name]
			switch name {
			case ".":
				child = dir
			case "..":
				child = dir.parent
			}
			entry := block[k*direntSize:]
			binary.LittleEndian.PutUint64(entry, child.nid())
			binary.LittleEndian.PutUint16(entry[8:], uint16(at)) //nolint:gosec // inside the block
			entry[10] = fileTypes[child.Mode&typeMask]
			at += copy(block[at:], name)
		}
		if first := w.write(block); n == 0 {
			dir.block = first
		}
	}
}

func superblock(root *Inode, inodes int, meta, blocks uint32) []byte {
	const (
		magic      = 0xE0F5E1E2
		blockBits  = 12
		superblock = 128
	)
	b := make([]byte, superblock)
	le := binary.LittleEndian
	le.PutUint32(b[0:], magic)
	b[12] = blockBits
	le.PutUint16(b[14:], uint16(root.nid())) //nolint:gosec // the root comes first
	le.PutUint64(b[16:], uint64(inodes))     //nolint:gosec // a count
	le.PutUint32(b[36:], blocks)
	le.PutUint32(b[40:], meta)
	return b
}

// MaxName is the longest name in a directory, in bytes.
const MaxName = 255

// CheckName refuses what cannot be a name in a directory.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q is no name", name)
	case len(name) > MaxName:
		return fmt.Errorf("the name %.40q… is longer than %d bytes", name, MaxName)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%q is no name", name)
	}
	return nil
}
