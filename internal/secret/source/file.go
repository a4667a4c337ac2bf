package source

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"tidewait/internal/privatefile"
)

// openDir are the bits of a directory's mode that let others write to it.
const openDir fs.FileMode = 0o022

// file reads a file of the directory. Links may lead to other files in it, and
// nowhere else.
func (s Sources) file(name string) (value []byte, why string) {
	if s.Dir == "" {
		return nil, "may not be given away: the gateway has no directory of secrets, which gateway.secret_dir would name"
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, "cannot be read: the gateway's directory of secrets cannot be opened"
	}
	defer root.Close()
	if dir, err := root.Stat("."); err != nil || dir.Mode()&openDir != 0 {
		return nil, "is not trusted: others may write to the gateway's directory of secrets; take that from them, as with chmod go-w"
	}
	// A pipe that nobody writes to must not hold the gateway up.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, whyClosed(err)
	}
	defer file.Close()
	return read(file)
}

func whyClosed(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is not in the gateway's directory of secrets"
	case errors.Is(err, fs.ErrPermission):
		return "cannot be read: the gateway may not open it"
	}
	return "cannot be read: it is no file of the gateway's directory of secrets"
}

func read(file *os.File) (value []byte, why string) {
	info, err := file.Stat()
	if err != nil {
		return nil, "cannot be read"
	}
	if err := privatefile.Check(info); err != nil {
		return nil, err.Error()
	}
	value, err = io.ReadAll(io.LimitReader(file, maxRead+1))
	if err != nil {
		return nil, "cannot be read"
	}
	return value, ""
}
