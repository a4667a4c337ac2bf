// Package privatefile reads files that hold keys and tokens, and refuses those that
// others can read too.
package privatefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// open are the bits of a mode that let others read a file, or its group write it.
// The group may read: that is how a pod's volume of secrets is mounted.
const open fs.FileMode = 0o027

// Read returns what a file holds, at most most bytes. What is no regular file, is
// larger, or may be read by others or written by the group is an error, which reads
// on after the file's name, as in "is not a regular file", and shows nothing of it.
func Read(path string, most int64) ([]byte, error) {
	// A pipe that nobody writes to must not hold the process up.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, unreadable(err)
	}
	if err := Check(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("is larger than %d bytes", most)
	}
	return data, nil
}

// Check returns an error for what is no regular file, or may be read by others or
// written by the group. It reads on after the file's name.
func Check(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return errors.New("is not a regular file")
	case mode&open != 0:
		return fmt.Errorf("is not safe: its mode is %04o, so that others may read or change it; make it 0600", mode.Perm())
	}
	return nil
}

// unreadable leaves the path out, which the caller names.
func unreadable(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("cannot be read: %w", err)
}
