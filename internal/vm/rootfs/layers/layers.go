// Package layers makes one tree of files of the layers of an image. The tree is
// in memory and the content goes straight into a file system image, so that
// nothing a layer says can touch the host's own files.
package layers

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strings"

	"tidewait/internal/vm"
	"tidewait/internal/vm/rootfs/erofs"
)

// Limits bound what an image may hold.
type Limits struct {
	Files int   // entries of all layers together, also those that later ones hide
	Bytes int64 // their content
}

const (
	maxPath  = 4096
	maxDepth = 1024     // directories in each other
	maxLinks = 40       // symbolic links on the way to one file
	maxNames = 64 << 20 // bytes of all names, targets of links and attributes together
)

// Tree is the files of the layers so far. It is not safe for concurrent use.
type Tree struct {
	limits Limits
	to     *erofs.Writer
	root   *erofs.Inode

	files   int
	bytes   int64
	names   int
	written map[place]bool        // by the present layer
	fresh   map[*erofs.Inode]bool // directories below which that wrote something
	hidden  map[*erofs.Inode]bool // directories of which nothing is left from before it
}

// place is a name in a directory.
type place struct {
	dir  *erofs.Inode
	name string
}

// New returns an empty tree whose content goes to to.
func New(to *erofs.Writer, l Limits) *Tree {
	return &Tree{limits: l, to: to, root: erofs.NewDir(0o755)}
}

// Root returns the root directory of the tree.
func (t *Tree) Root() *erofs.Inode { return t.root }

// Add puts a layer, which is a tar stream, over those before. What is wrong with
// it is a [*vm.Failure]; other errors are those of reading and writing.
func (t *Tree) Add(layer io.Reader) error {
	t.written, t.fresh, t.hidden = map[place]bool{}, map[*erofs.Inode]bool{}, map[*erofs.Inode]bool{}
	in := &noting{from: layer}
	tr := tar.NewReader(in)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			if in.err != nil {
				return in.err
			}
			return invalid("a layer is no tar stream: %v", err)
		}
		if err := t.entry(h, tr, in); err != nil {
			return err
		}
	}
}

// noting is a reader that remembers why it ended, so that a stream that broke is
// told from one that was never right.
type noting struct {
	from io.Reader
	err  error
}

func (n *noting) Read(p []byte) (int, error) {
	read, err := n.from.Read(p)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return read, err
}

func invalid(format string, args ...any) error {
	return &vm.Failure{Code: vm.ImageInvalid, Message: fmt.Sprintf(format, args...)}
}

func (t *Tree) entry(h *tar.Header, content io.Reader, in *noting) error {
	if t.files++; t.files > t.limits.Files {
		return invalid("the image has more than %d files", t.limits.Files)
	}
	if t.names += len(h.Name) + len(h.Linkname); t.names > maxNames {
		return invalid("the names in the image are longer than %d MiB", maxNames>>20)
	}
	parts, err := split(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if h.Typeflag == tar.TypeDir {
			t.attributes(t.root, h)
		}
		return nil
	}
	above, err := t.directory(parts[:len(parts)-1])
	if err != nil {
		return err
	}
	dir, name := above[len(above)-1], parts[len(parts)-1]
	if rest, ok := strings.CutPrefix(name, ".wh."); ok {
		t.whiteout(dir, rest)
		return nil
	}
	file, err := t.make(h, content, in, dir.Children[name])
	if err != nil || file == nil {
		return err
	}
	dir.Children[name] = file
	t.written[place{dir, name}] = true
	for i := len(above) - 1; i >= 0 && !t.fresh[above[i]]; i-- { // those above a fresh one are fresh
		t.fresh[above[i]] = true
	}
	return nil
}

// split refuses names that would lead out of the image.
func split(name string) ([]string, error) {
	if len(name) > maxPath || strings.Contains(name, "\x00") {
		return nil, invalid("the image has a file whose name is longer than %d bytes or has a zero byte", maxPath)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			return nil, invalid("the image has a file that leads out of it: %q", name)
		}
		if err := erofs.CheckName(part); err != nil {
			return nil, invalid("the image has a file whose name cannot be used: %v", err)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// directory returns the way to a directory, from the root, making what is not
// there. Symbolic links of layers before are followed, as a command in the image
// would.
func (t *Tree) directory(parts []string) ([]*erofs.Inode, error) {
	above := []*erofs.Inode{t.root} // the way here
	links := 0
	for len(parts) > 0 {
		name, dir := parts[0], above[len(above)-1]
		parts = parts[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			above = above[:max(len(above)-1, 1)]
			continue
		}
		next := dir.Children[name]
		switch {
		case next == nil:
			next = erofs.NewDir(0o755)
			dir.Children[name] = next
			if t.files++; t.files > t.limits.Files {
				return nil, invalid("the image has more than %d files", t.limits.Files)
			}
		case next.IsDir():
		case next.Link == "":
			return nil, invalid("the image has a file below %q, which is no directory", name)
		default:
			if links++; links > maxLinks {
				return nil, invalid("the image has a file behind more than %d symbolic links", maxLinks)
			}
			if path.IsAbs(next.Link) {
				above = above[:1]
			}
			parts = append(strings.Split(next.Link, "/"), parts...)
			continue
		}
		if above = append(above, next); len(above) > maxDepth {
			return nil, invalid("the image has more than %d directories in each other", maxDepth)
		}
	}
	return above, nil
}

// Of whiteouts, what follows the prefix.
const (
	opaque  = ".wh..opq"
	special = ".wh."
)

// whiteout carries out a whiteout. What the present layer wrote stays, before it
// and after it.
func (t *Tree) whiteout(dir *erofs.Inode, name string) {
	switch {
	case name == opaque:
		t.hide(dir)
	case strings.HasPrefix(name, special):
		// Of union file systems that nobody uses any more.
	default:
		t.remove(dir, name)
	}
}

// remove takes away what layers before had under a name.
func (t *Tree) remove(dir *erofs.Inode, name string) {
	switch {
	case dir.Children[name] == nil:
	case dir.Children[name].IsDir() && (t.written[place{dir, name}] || t.fresh[dir.Children[name]]):
		t.hide(dir.Children[name])
	case !t.written[place{dir, name}]:
		delete(dir.Children, name)
	}
}

// hide removes what layers before had in a directory. There is nothing of them the
// second time.
func (t *Tree) hide(dir *erofs.Inode) {
	if t.hidden[dir] {
		return
	}
	t.hidden[dir] = true
	for name := range maps.Clone(dir.Children) {
		t.remove(dir, name)
	}
}

// make makes the file of an entry; nil: there is none to make. before is what has
// its name.
func (t *Tree) make(h *tar.Header, content io.Reader, in *noting, before *erofs.Inode) (*erofs.Inode, error) {
	file := &erofs.Inode{}
	switch h.Typeflag {
	case tar.TypeDir:
		if before != nil && before.IsDir() {
			file = before
		} else {
			file = erofs.NewDir(0)
		}
		file.Mode = erofs.TypeDir
	case tar.TypeReg, tar.TypeRegA: //nolint:staticcheck // old layers have it
		file.Mode = erofs.TypeRegular
		var err error
		if file.Content, err = t.content(content, in); err != nil {
			return nil, err
		}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= erofs.BlockSize {
			return nil, invalid("the image has a symbolic link with a target of %d bytes: %q", len(h.Linkname), h.Name)
		}
		file.Mode, file.Link = erofs.TypeSymlink, h.Linkname
	case tar.TypeLink:
		return t.linked(h)
	case tar.TypeChar, tar.TypeBlock:
		file.Mode = erofs.TypeChar
		if h.Typeflag == tar.TypeBlock {
			file.Mode = erofs.TypeBlock
		}
		file.Major, file.Minor = uint32(h.Devmajor&0xfff), uint32(h.Devminor&0xfffff) //nolint:gosec // masked
	case tar.TypeFifo:
		file.Mode = erofs.TypeFIFO
	case tar.TypeXGlobalHeader:
		return nil, nil
	default:
		return nil, invalid("the image has a file of a type that is not known: %q, type %q", h.Name, h.Typeflag)
	}
	t.attributes(file, h)
	return file, nil
}

// linked is the file that a hard link leads to.
func (t *Tree) linked(h *tar.Header) (*erofs.Inode, error) {
	parts, err := split(h.Linkname)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, invalid("the image has a hard link to its root directory: %q", h.Name)
	}
	above, err := t.directory(parts[:len(parts)-1])
	if err != nil {
		return nil, err
	}
	target := above[len(above)-1].Children[parts[len(parts)-1]]
	if target == nil || target.IsDir() {
		return nil, invalid("the image has a hard link to what is no file of it: %q to %q", h.Name, h.Linkname)
	}
	return target, nil
}

// content writes the content of a file, within the limit of all of them.
func (t *Tree) content(from io.Reader, in *noting) (erofs.Content, error) {
	left := t.limits.Bytes - t.bytes
	c, err := t.to.Content(io.LimitReader(from, left+1))
	t.bytes += c.Size()
	switch {
	case t.bytes > t.limits.Bytes:
		return c, invalid("the image is larger than %d MiB", t.limits.Bytes>>20)
	case in.err != nil:
		return c, in.err
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader):
		return c, invalid("a layer is no tar stream: %v", err)
	}
	return c, err
}

const (
	xattrRecord = "SCHILY.xattr."
	permissions = 0o7777
)

func (t *Tree) attributes(file *erofs.Inode, h *tar.Header) {
	file.Mode = file.Mode&^permissions | uint16(h.Mode&permissions)            //nolint:gosec // masked
	file.UID, file.GID, file.ModTime = uint32(h.Uid), uint32(h.Gid), h.ModTime //nolint:gosec // as tar says
	file.Xattrs = nil
	for record, value := range maps.All(h.PAXRecords) {
		name, ok := strings.CutPrefix(record, xattrRecord)
		// Those of the overlay's own are not for a layer to say.
		if !ok || !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "security.") {
			continue
		}
		if t.names += len(name) + len(value); t.names > maxNames {
			return
		}
		if file.Xattrs == nil {
			file.Xattrs = map[string]string{}
		}
		file.Xattrs[name] = value
	}
}
