package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/guest"
)

// The virtio bus of the kernel, and the kinds of devices on it (virtio 1.2,
// section 5) whose drivers wait for the run.
const (
	virtioBus   = "/sys/bus/virtio"
	autoprobe   = virtioBus + "/drivers_autoprobe"
	virtioNet   = "0x0001"
	virtioBlock = "0x0002"
)

// loadRunModules loads the drivers of disks and, where the machine has a use for
// them, those of its network and of its root directory, and keeps them from their
// devices. To load a driver takes far longer than to bind it, most of it for the
// kernel's check of its signature, and a snapshot spares a run the one. The other has
// to come after it where the device is not the saved machine's.
func loadRunModules() error {
	if err := os.WriteFile(autoprobe, []byte("0"), 0); err != nil {
		return fmt.Errorf("keep drivers from their devices: %w", err)
	}
	if err := loadModules(guest.RunModulesDir); err != nil {
		return err
	}
	if len(unbound(virtioNet)) > 0 {
		if err := loadModules(guest.NetworkModulesDir); err != nil {
			return err
		}
	}
	if len(unbound(virtioBlock)) > 1 { // beside the scratch disk there is that of the root directory
		if err := loadModules(guest.RootModulesDir); err != nil {
			return err
		}
	}
	return nil
}

// bindDevices gives the devices of a kind to their driver, whose name is that of its
// module. When it returns they are there.
func bindDevices(kind, driver string) error {
	for _, device := range unbound(kind) {
		err := os.WriteFile(filepath.Join(virtioBus, "drivers", driver, "bind"), []byte(device), 0)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("bind %s to %s: %w", device, driver, err)
		}
	}
	return nil
}

// devices are the names of the devices of a kind.
func devices(kind string) []string {
	var names []string
	dirs, _ := filepath.Glob(virtioBus + "/devices/*")
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "device"))
		if err == nil && strings.TrimSpace(string(b)) == kind {
			names = append(names, filepath.Base(dir))
		}
	}
	return names
}

// unbound are those of them that no driver has.
func unbound(kind string) []string {
	return slices.DeleteFunc(devices(kind), func(name string) bool {
		_, err := os.Lstat(filepath.Join(virtioBus, "devices", name, "driver"))
		return !errors.Is(err, fs.ErrNotExist)
	})
}
