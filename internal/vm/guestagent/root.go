package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
)

// Where the root directory of an image is put together. It is on the disk of the
// image, which nobody writes to, with what commands write over it on the scratch
// disk, beside the workspace. The agent's own root directory is not in it.
const (
	imageDir     = "/image"
	imageLower   = imageDir + "/lower"
	imageScratch = imageDir + "/scratch"
	imageRoot    = imageDir + "/root"
)

// mountRoot makes the root directory of commands. hosts is the content of its
// /etc/hosts.
func mountRoot(scratch, hosts string) error {
	device, err := disk(guest.RootDisk)
	if err != nil {
		return err
	}
	if err := mount(device, imageLower, "erofs", unix.MS_RDONLY|unix.MS_NODEV, ""); err != nil {
		return err
	}
	if err := mountScratch(scratch, imageScratch, unix.MS_NODEV); err != nil {
		return err
	}
	if err := withoutLostFound(imageScratch); err != nil {
		return err
	}
	for _, dir := range []string{"upper", "work", "workspace"} {
		if err := os.Mkdir(imageScratch+"/"+dir, 0o755); err != nil {
			return err
		}
	}
	layers := "lowerdir=" + imageLower + ",upperdir=" + imageScratch + "/upper,workdir=" + imageScratch + "/work"
	if err := mount("overlay", imageRoot, "overlay", unix.MS_NODEV, layers); err != nil {
		return err
	}
	// Both have the workspace under one name.
	if err := mount(imageScratch+"/workspace", workspace, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return furnish(hosts)
}

// furnish puts into the root directory of commands what an image does not have,
// or has for itself only.
func furnish(hosts string) error {
	root, err := os.OpenRoot(imageRoot)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range []struct {
		dir    string
		source string // empty: only the directory has to be there
		perm   fs.FileMode
	}{
		{"proc", "/proc", 0o755},
		{"sys", "/sys", 0o755},
		{"dev", "/dev", 0o755},
		{"run", "/run", 0o755},
		{"tmp", "/tmp", 0o777 | fs.ModeSticky},
		{"workspace", workspace, 0o755},
		{"root", "", 0o700},
		{"etc", "", 0o755},
	} {
		if err := ensureDir(root, m.dir, m.perm); err != nil {
			return err
		}
		if m.source == "" {
			continue
		}
		if err := unix.Mount(m.source, path.Join(imageRoot, m.dir), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s in the image: %w", m.source, err)
		}
	}
	if err := root.Remove("etc/hosts"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &vm.Failure{Code: vm.ImageInvalid, Message: fmt.Sprintf("the image has an /etc/hosts that cannot be replaced: %v", err)}
	}
	return root.WriteFile("etc/hosts", []byte(hosts), 0o644)
}

// ensureDir makes a directory at the top of an image unless there is one. What
// else an image has there would lead out of it, or hide what is put there.
func ensureDir(root *os.Root, name string, perm fs.FileMode) error {
	err := root.Mkdir(name, perm.Perm())
	if err == nil {
		return root.Chmod(name, perm)
	}
	info, statErr := root.Lstat(name)
	switch {
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("make /%s in the image: %w", name, err)
	case statErr != nil:
		return statErr
	case !info.IsDir():
		return &vm.Failure{Code: vm.ImageInvalid, Message: fmt.Sprintf("the image has a /%s that is no directory", name)}
	}
	return nil
}
