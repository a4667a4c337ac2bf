// Package image builds what a microVM boots: a kernel and one initramfs with
// the guest agent, the kernel modules it needs and busybox. Everything comes
// from Debian packages on this machine; nothing is downloaded.
package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/guest"
)

// format changes whenever the same inputs give another image.
const format = 4

// Options say what to build an image from. Empty fields have defaults.
type Options struct {
	Dir        string // where the image is kept; required
	Agent      string // the guest agent; default: tidewait-guest beside the running program
	Busybox    string // a static busybox; default: /bin/busybox
	BootDir    string // holds vmlinuz-VERSION; default: /boot
	ModulesDir string // holds VERSION/modules.dep; default: /lib/modules
}

// Image is a guest image on disk.
type Image struct {
	Kernel        string   `json:"-"` // path of the kernel
	Initrd        string   `json:"-"` // path of the initramfs
	KernelVersion string   `json:"kernelVersion"`
	Modules       []string `json:"modules"`    // in the order of loading
	RunModules    []string `json:"runModules"` // those of them that are loaded when the machine becomes that of a run
	// NetworkModules are those that are loaded then where the machine has a network.
	NetworkModules []string `json:"networkModules"`
	// RootModules are those that are loaded then where commands have a root
	// directory of their own.
	RootModules []string `json:"rootModules"`
	// NoRoot says why they cannot have one; empty: they can.
	NoRoot  string    `json:"noRoot,omitempty"`
	Digest  string    `json:"digest"` // of everything the image was built from, hex
	BuiltAt time.Time `json:"builtAt"`
}

// MissingError says that a file the image is built from is not there, and which
// Debian package brings it.
type MissingError struct {
	What    string
	Package string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s; install the Debian package %s (apt-get install %s)", e.What, e.Package, e.Package)
}

// Build makes the image of o.Dir when it is not there or was built from other
// inputs, and returns it. Processes that build the same directory at the same
// time wait for each other.
func Build(ctx context.Context, o Options) (Image, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Image{}, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return Image{}, fmt.Errorf("make the image directory: %w", err)
	}
	unlock, err := lock(o.Dir)
	if err != nil {
		return Image{}, err
	}
	defer unlock()

	in, err := readInputs(ctx, o)
	if err != nil {
		return Image{}, err
	}
	if img, err := load(o.Dir); err == nil && img.Digest == in.digest() {
		return img, nil
	}
	return write(o.Dir, in)
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("the guest image needs a directory")
	}
	if o.Agent == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find the guest agent: %w", err)
		}
		o.Agent = filepath.Join(filepath.Dir(self), "tidewait-guest")
	}
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&o.Busybox, "/bin/busybox")
	set(&o.BootDir, "/boot")
	set(&o.ModulesDir, "/lib/modules")
	return o, nil
}

func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the image directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the image directory: %w", err)
	}
	return func() { f.Close() }, nil
}

// load reads an image that was built before.
func load(dir string) (Image, error) {
	b, err := os.ReadFile(filepath.Join(dir, "image.json"))
	if err != nil {
		return Image{}, err
	}
	img := imageIn(dir)
	if err := json.Unmarshal(b, &img); err != nil {
		return Image{}, err
	}
	for _, f := range []string{img.Kernel, img.Initrd} {
		if _, err := os.Stat(f); err != nil {
			return Image{}, err
		}
	}
	return img, nil
}

func imageIn(dir string) Image {
	return Image{Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd")}
}

// write puts an image into dir. image.json goes first and comes back last, so
// that a half-written image is never taken for one.
func write(dir string, in *inputs) (Image, error) {
	img := imageIn(dir)
	img.KernelVersion = in.version
	img.Digest, img.NoRoot = in.digest(), in.noRoot
	img.BuiltAt = time.Now().UTC().Truncate(time.Second)
	for _, m := range in.modules {
		img.Modules = append(img.Modules, m.name)
		switch m.dir {
		case guest.RunModulesDir:
			img.RunModules = append(img.RunModules, m.name)
		case guest.NetworkModulesDir:
			img.NetworkModules = append(img.NetworkModules, m.name)
		case guest.RootModulesDir:
			img.RootModules = append(img.RootModules, m.name)
		}
	}
	description, err := json.MarshalIndent(img, "", "  ")
	if err != nil {
		return Image{}, err
	}
	initrd, err := initramfs(in)
	if err != nil {
		return Image{}, err
	}
	if err := os.Remove(filepath.Join(dir, "image.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Image{}, fmt.Errorf("replace the guest image: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"vmlinuz", in.kernel}, {"initrd", initrd}, {"image.json", append(description, '\n')}} {
		if err := replaceFile(filepath.Join(dir, f.name), f.data); err != nil {
			return Image{}, fmt.Errorf("write the guest image: %w", err)
		}
	}
	return img, nil
}

// replaceFile leaves machines that have the old file open undisturbed.
func replaceFile(name string, data []byte) error {
	tmp := name + ".new"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// initramfs makes the first root filesystem.
func initramfs(in *inputs) ([]byte, error) {
	var buf bytes.Buffer
	c := &cpioWriter{w: &buf}
	for _, d := range []string{"bin", "dev", "etc", "modules", "network-modules", "proc", "root", "root-modules", "run", "run-modules", "sbin", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "usr/local", "usr/local/bin", "var", "workspace"} {
		c.dir(d)
	}
	c.char("dev/console", 0o600, 5, 1)
	c.char("dev/null", 0o666, 1, 3)
	c.file("init", 0o755, in.agent)
	c.file("bin/busybox", 0o755, in.busybox)
	made := map[string]bool{"bin/busybox": true, "init": true}
	for _, applet := range in.applets {
		if dir := path.Dir(applet); !made[applet] && (dir == "bin" || dir == "sbin" || dir == "usr/bin" || dir == "usr/sbin") {
			c.symlink(applet, "/bin/busybox")
			made[applet] = true
		}
	}
	for i, m := range in.modules {
		c.file(fmt.Sprintf("%s/%02d-%s.ko", m.dir[1:], i, m.name), 0o644, m.data)
	}
	c.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	c.file("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	c.file("etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nhosts: files\n"))
	if err := c.close(); err != nil {
		return nil, fmt.Errorf("write the initramfs: %w", err)
	}
	return buf.Bytes(), nil
}

// inputs are the contents an image is built from.
type inputs struct {
	version string
	noRoot  string // why commands cannot have a root directory of their own
	kernel  []byte
	modules []module
	agent   []byte
	busybox []byte
	applets []string // paths without the first slash, sorted
}

func (in *inputs) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "format %d kernel %s applets %s\n", format, in.version, strings.Join(in.applets, " "))
	addPart(h, in.kernel)
	addPart(h, in.agent)
	addPart(h, in.busybox)
	for _, m := range in.modules {
		fmt.Fprintf(h, "dir %s\n", m.dir)
		addPart(h, []byte(m.name))
		addPart(h, m.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func addPart(h hash.Hash, b []byte) {
	fmt.Fprintf(h, "%d:", len(b))
	h.Write(b)
}

func readInputs(ctx context.Context, o Options) (*inputs, error) {
	in := &inputs{}
	var err error
	if in.agent, err = readStatic(o.Agent); err != nil {
		return nil, fmt.Errorf("the guest agent: %w; build it with make, or set its path", err)
	}
	if in.busybox, err = readStatic(o.Busybox); errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDynamic) {
		return nil, &MissingError{What: fmt.Sprintf("there is no statically linked busybox at %s", o.Busybox), Package: "busybox-static"}
	} else if err != nil {
		return nil, fmt.Errorf("read busybox: %w", err)
	}
	if in.applets, err = applets(ctx, o.Busybox); err != nil {
		return nil, err
	}
	if err := in.readKernel(o); err != nil {
		return nil, err
	}
	slices.Sort(in.applets)
	return in, nil
}
