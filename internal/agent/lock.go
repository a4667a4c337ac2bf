package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The lock of a node's directory is waited for as long as an agent that was told to
// end may take for it.
const (
	lockWait  = 20 * time.Second
	lockPause = 50 * time.Millisecond
)

// Lock makes a node's directory, which is made when it is not there, this process's
// alone, until the file is closed or the process has ended. It is taken before
// anything else in the directory is touched, and kept until nothing is done there
// any more: two agents that take each other's machines over would end them.
func Lock(ctx context.Context, dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the directory of the node: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock the directory of the node: %w", err), f.Close())
		case !pause(ctx, lockPause):
			return nil, errors.Join(fmt.Errorf("another agent process uses %s: stop it, or give one of the two a node.id of its own", dir), f.Close())
		}
	}
}
