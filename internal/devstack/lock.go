package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockDir makes sure that one stack at most uses a directory. The lock ends
// with the process that holds it.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the stack's directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("a stack is already running in %s, of process %s: stop it, or choose another directory with data_dir",
			dir, strings.TrimSpace(string(holder)))
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintln(os.Getpid()))); err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return file, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// unlockDir gives a directory free; doing it again does nothing.
func unlockDir(file *os.File) error {
	if err := file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("cannot unlock the stack's directory: %w", err)
	}
	return nil
}
