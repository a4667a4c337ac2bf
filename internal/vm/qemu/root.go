package qemu

import (
	"errors"
	"fmt"
	"os"

	"tidewait/internal/vm"
)

// diskOfRoot is the file of the root directory of a machine's commands. It is
// closed when the machine has it, unless it is somebody else's.
type diskOfRoot struct {
	*os.File // nil: there is none
	own      bool
}

// Close closes what was opened for the machine alone.
func (d diskOfRoot) Close() error {
	if !d.own {
		return nil
	}
	return d.File.Close()
}

// openRoot is the disk of the root directory. A machine that is to become a
// snapshot has an empty one, since its driver finds the run's own later.
func openRoot(s vm.Spec) (diskOfRoot, error) {
	switch {
	case s.Root == nil:
		return diskOfRoot{}, nil
	case s.Root.File != nil:
		return diskOfRoot{File: s.Root.File}, nil
	}
	empty, err := os.CreateTemp("", "tidewait-empty-")
	if err != nil {
		return diskOfRoot{}, fmt.Errorf("make an empty disk: %w", err)
	}
	if err := errors.Join(os.Remove(empty.Name()), empty.Chmod(0o444), empty.Truncate(1<<20)); err != nil {
		empty.Close()
		return diskOfRoot{}, fmt.Errorf("make an empty disk: %w", err)
	}
	return diskOfRoot{File: empty, own: true}, nil
}

// checkRoot refuses machines whose commands are to have a root directory that
// they cannot have.
func (b *Backend) checkRoot(s vm.Spec) error {
	switch {
	case s.Image == "" && s.Root == nil:
		return nil
	case s.Root == nil:
		return errors.New("the machine was to have an image, and was given none")
	case b.opts.Image.NoRoot != "":
		return &vm.Failure{Code: vm.ImageUnavailable, Message: fmt.Sprintf("the image %s cannot be used on this node: %s", s.Image, b.opts.Image.NoRoot)}
	}
	return nil
}
