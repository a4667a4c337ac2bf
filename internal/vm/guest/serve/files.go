package serve

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
)

// baseline is what was unpacked.
type baseline struct {
	entries map[string]entry // regular files and symbolic links, by path
	dirs    map[string]bool
	clock   *changeClock
}

func newBaseline(root *os.Root) *baseline {
	return &baseline{entries: map[string]entry{}, dirs: map[string]bool{}, clock: newChangeClock(root)}
}

// addDir records a directory and those above it.
func (b *baseline) addDir(name string) {
	for ; name != "." && !b.dirs[name]; name = path.Dir(name) {
		b.dirs[name] = true
	}
}

type entry struct {
	mode  fs.FileMode // permissions of a file, ModeSymlink of a link
	size  int64
	sum   uint64
	stamp stamp
	link  string
}

// unpack extracts a tar stream into root, records it in base, and returns what
// it held.
func unpack(root *os.Root, stream io.Reader, base *baseline) (guest.Tally, error) {
	var m guest.Tally
	sum := guest.NewSum()
	in := io.TeeReader(stream, sum)
	tr := tar.NewReader(in)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return m, err
		}
		if err := unpackEntry(root, tr, h, base); err != nil {
			return m, err
		}
		if h.Typeflag != tar.TypeDir {
			m.Files++
			m.Bytes += h.Size
		}
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return m, err
	}
	m.Sum = guest.SumText(sum)
	base.clock.wait()
	return m, nil
}

func unpackEntry(root *os.Root, content io.Reader, h *tar.Header, base *baseline) error {
	name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
	if h.Typeflag == tar.TypeDir && (name == "" || name == ".") {
		return nil
	}
	if err := guest.CheckName(name); err != nil {
		return err
	}
	perm := h.FileInfo().Mode().Perm()
	if h.Typeflag == tar.TypeDir {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		base.addDir(name)
		return root.Chmod(name, perm|0o700)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	base.addDir(path.Dir(name))
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		sum, err := unpackFile(root, name, content, perm)
		if err != nil {
			return err
		}
		e := entry{mode: perm, size: h.Size, sum: sum}
		if err := root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		e.stamp = base.clock.stampOf(info)
		base.entries[name] = e
		return nil
	case tar.TypeSymlink:
		base.entries[name] = entry{mode: fs.ModeSymlink, link: h.Linkname}
		return root.Symlink(h.Linkname, name)
	default:
		return fmt.Errorf("%q is neither a regular file nor a directory nor a symbolic link", name)
	}
}

func unpackFile(root *os.Root, name string, content io.Reader, perm fs.FileMode) (sum uint64, err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return sum, err
	}
	summed := guest.NewSum()
	_, err = io.Copy(io.MultiWriter(f, summed), content)
	err = errors.Join(err, f.Chmod(perm), f.Close())
	return summed.Sum64(), err
}

// changes is what differs from a baseline, in the order of a walk.
type changes struct {
	entries []change
	deleted []string // sorted
}

type change struct {
	name string
	info fs.FileInfo
}

// findChanges compares the workspace with base. Only regular files, symbolic
// links and new empty directories count; sockets, pipes, devices and whatever
// lies in a .git directory are left where they are.
func findChanges(root *os.Root, base *baseline, globs guest.Globs, limits vm.Limits) (changes, error) {
	var c changes
	var bytes int64
	seen := make(map[string]bool, len(base.entries))
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return collectFailed("the workspace cannot be read: %v", err)
		}
		if name == "." {
			return nil
		}
		if guest.InGit(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() || d.Type() == fs.ModeSymlink {
			seen[name] = true
		}
		if !globs.Match(name) {
			return nil
		}
		if err := guest.CheckName(name); err != nil {
			return collectFailed("a result cannot be collected: %v", err)
		}
		info, err := d.Info()
		if err != nil {
			return collectFailed("the workspace cannot be read: %v", err)
		}
		changed, err := differs(root, name, info, base)
		if err != nil {
			return collectFailed("the workspace cannot be read: %v", err)
		}
		if !changed {
			return nil
		}
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		c.entries = append(c.entries, change{name, info})
		if len(c.entries) > limits.Files || bytes > limits.Bytes {
			return tooLarge(limits, name)
		}
		return nil
	})
	if err != nil {
		return changes{}, err
	}
	for name := range base.entries {
		if !seen[name] && globs.Match(name) {
			c.deleted = append(c.deleted, name)
		}
	}
	slices.Sort(c.deleted)
	return c, nil
}

func differs(root *os.Root, name string, info fs.FileInfo, base *baseline) (bool, error) {
	before, known := base.entries[name]
	switch {
	case info.IsDir():
		if base.dirs[name] {
			return false, nil
		}
		return isEmptyDir(root, name)
	case info.Mode()&fs.ModeType == fs.ModeSymlink:
		link, err := root.Readlink(name)
		return !known || before.mode != fs.ModeSymlink || before.link != link, err
	case !info.Mode().IsRegular():
		return false, nil
	case !known || before.mode != info.Mode().Perm() || before.size != info.Size():
		return true, nil
	case base.clock.stampOf(info).same(before.stamp):
		return false, nil
	}
	sum, err := sumFile(root, name)
	return sum != before.sum, err
}

func isEmptyDir(root *os.Root, name string) (bool, error) {
	d, err := root.Open(name)
	if err != nil {
		return false, err
	}
	defer d.Close()
	_, err = d.ReadDir(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

func sumFile(root *os.Root, name string) (sum uint64, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	summed := guest.NewSum()
	if _, err := io.Copy(summed, f); err != nil {
		return 0, err
	}
	return summed.Sum64(), nil
}

// sendChanges streams changes to the host.
func (s *server) sendChanges(c changes) error {
	sum := guest.NewSum()
	frames := bufio.NewWriterSize(frameWriter{s.conn}, guest.ChunkSize)
	tw := tar.NewWriter(io.MultiWriter(sum, frames))
	var m guest.Tally
	for _, e := range c.entries {
		if err := s.sendEntry(tw, e); err != nil {
			return err
		}
		if !e.info.IsDir() {
			m.Files++
		}
		if e.info.Mode().IsRegular() {
			m.Bytes += e.info.Size()
		}
	}
	if err := errors.Join(tw.Close(), frames.Flush()); err != nil {
		return err
	}
	if err := s.sendDeleted(c.deleted); err != nil {
		return err
	}
	m.Sum = guest.SumText(sum)
	return s.conn.WriteJSON(guest.KindTarEnd, guest.TarEnd{Tally: m, Deleted: len(c.deleted)})
}

func (s *server) sendEntry(tw *tar.Writer, e change) error {
	h := &tar.Header{Name: e.name, Mode: int64(e.info.Mode().Perm()), ModTime: e.info.ModTime().Truncate(1e9)}
	switch {
	case e.info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		return tw.WriteHeader(h)
	case e.info.Mode()&fs.ModeType == fs.ModeSymlink:
		link, err := s.root.Readlink(e.name)
		if err != nil {
			return collectFailed("the workspace cannot be read: %v", err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
		return tw.WriteHeader(h)
	}
	f, err := s.root.OpenFile(e.name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return collectFailed("the workspace cannot be read: %v", err)
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, e.info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		return collectFailed("%s became shorter while it was collected", e.name)
	}
	return err
}

// sendDeleted sends the paths in frames that hold them however long they are.
func (s *server) sendDeleted(names []string) error {
	for part := range slices.Chunk(names, 100) {
		if err := s.conn.WriteJSON(guest.KindDeleted, part); err != nil {
			return err
		}
	}
	return nil
}

// frameWriter makes a TAR frame of every write.
type frameWriter struct{ conn *guest.Conn }

func (w frameWriter) Write(p []byte) (int, error) {
	for chunk := range slices.Chunk(p, guest.ChunkSize) {
		if err := w.conn.Write(guest.KindTar, chunk); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func collectFailed(format string, args ...any) error {
	return &vm.Failure{Code: vm.CollectFailed, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(l vm.Limits, name string) error {
	return &vm.Failure{Code: vm.ResultsTooLarge, Message: fmt.Sprintf(
		"the results are larger than %d files and %d bytes (at %s); collect less, or raise the limit", l.Files, l.Bytes, name)}
}
