package workspace

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Unpacked counts what [Unpack] wrote.
type Unpacked struct {
	Files int   // regular files and symbolic links
	Bytes int64 // content of the regular files
}

// Unpack writes the files of a tar stream made by [Gateway.Archive] into a
// directory, which is made when it is not there and has to be empty. Nothing is
// written outside of it, whatever the stream says, and nothing is left in it when
// it fails.
func Unpack(stream io.Reader, dir string) (Unpacked, error) {
	var counts Unpacked
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return counts, refuse(Unreadable, "cannot make the directory %s: %s", dir, reason(err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return counts, refuse(Unreadable, "cannot write to %s: %s", dir, reason(err))
	}
	defer root.Close()
	there, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return counts, refuse(Unreadable, "cannot read %s: %s", dir, reason(err))
	}
	if len(there) > 0 {
		return counts, refuse(Diverged, "%s is not empty, and nothing in it is overwritten; name a directory that is", dir)
	}
	if err := unpackAll(tar.NewReader(stream), root, &counts); err != nil {
		return Unpacked{}, errors.Join(fmt.Errorf("unpack into %s: %w", dir, err), empty(root))
	}
	return counts, nil
}

func unpackAll(stream *tar.Reader, root *os.Root, counts *Unpacked) error {
	for {
		header, err := stream.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackOne(stream, header, root, counts); err != nil {
			return err
		}
	}
}

func unpackOne(content io.Reader, header *tar.Header, root *os.Root, counts *Unpacked) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(header.Name, 0o755)
	case tar.TypeSymlink:
		counts.Files++
		return root.Symlink(header.Linkname, header.Name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%q is neither a file, a directory nor a symbolic link", header.Name)
	}
	if isSparse(header) {
		return fmt.Errorf("%q has holes, which no file of a checkout has", header.Name)
	}
	mode := fs.FileMode(0o666) // what the user's mask leaves of it, as git does
	if header.Mode&0o100 != 0 {
		mode = 0o777
	}
	file, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, content)
	counts.Files++
	counts.Bytes += n
	return errors.Join(err, file.Close())
}

// isSparse reports whether a file says that it has holes: a few bytes of a stream
// would become as many of the disk as they like.
func isSparse(header *tar.Header) bool {
	for name := range header.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// empty removes everything in a directory.
func empty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, root.RemoveAll(e.Name()))
	}
	return err
}
