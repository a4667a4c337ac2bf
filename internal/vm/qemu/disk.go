package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"tidewait/internal/vm/qemu/sparse"
)

// minDisk is the least size of a scratch disk, in MiB.
const minDisk = 16

// newDisk makes a disk with an empty ext4 file system; see copyDisk.
func (b *Backend) newDisk(ctx context.Context, dir string, mib int64) (*os.File, error) {
	template, err := b.templateDisk(ctx, max(mib, minDisk))
	if err != nil {
		return nil, err
	}
	defer template.Close()
	return b.copyDisk(dir, template)
}

// copyDisk makes a disk like another and returns it open and without a name: it
// goes when the machine and this program have closed it.
func (b *Backend) copyDisk(dir string, from *os.File) (*os.File, error) {
	name := filepath.Join(dir, "scratch.ext4")
	disk, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the scratch disk: %w", err)
	}
	if err := errors.Join(os.Remove(name), b.user.Own(disk), sparse.Copy(disk, from)); err != nil {
		disk.Close()
		return nil, fmt.Errorf("make the scratch disk: %w", err)
	}
	return disk, nil
}

// templateDisk opens the disk of a size that others are copied from.
func (b *Backend) templateDisk(ctx context.Context, mib int64) (*os.File, error) {
	b.disks.Lock()
	defer b.disks.Unlock()
	name := filepath.Join(b.runs.Root(), fmt.Sprintf("template-%dMiB.ext4", mib))
	f, err := os.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := makeExt4(ctx, name+".new", mib); err != nil {
		return nil, errors.Join(err, os.RemoveAll(name+".new"))
	}
	if err := os.Rename(name+".new", name); err != nil {
		return nil, err
	}
	return os.Open(name)
}

func makeExt4(ctx context.Context, name string, mib int64) error {
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		if mkfs = "/usr/sbin/mkfs.ext4"; !isFile(mkfs) {
			return errors.New("mkfs.ext4 is missing; install the Debian package e2fsprogs")
		}
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(mib<<20), f.Close()); err != nil {
		return fmt.Errorf("make a disk of %d MiB: %w", mib, err)
	}
	// A disk that lives as long as one run needs no journal, and no space kept
	// for root. Small inodes would count time in whole seconds.
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-I", "256", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", name)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make a disk of %d MiB: mkfs.ext4: %w: %s", mib, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
