package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tidewait/internal/vm/guest"
)

// wanted are the modules a guest needs unless its kernel has them built in: the
// two ways virtio devices are found and the port to the host. runWanted are the
// drivers of what each run has its own of: the disk. They are loaded when the
// machine becomes that of a run, which may be after it was restored from a
// snapshot. networkWanted are loaded then where the machine has a network, and
// rootWanted where commands have a root directory of their own; a kernel without
// those is used, and has no such machines.
var (
	wanted        = []string{"virtio_mmio", "virtio_pci", "virtio_console"}
	runWanted     = []string{"virtio_blk"}
	networkWanted = []string{"virtio_net"}
	rootWanted    = []string{"erofs", "overlay"}
)

const kernelPackage = "linux-image-cloud-amd64"

// module is a kernel module, decompressed.
type module struct {
	name string
	data []byte
	dir  string // where the guest agent finds it, which is when it is loaded
}

// readKernel reads the newest cloud kernel, or the newest other one, that is
// there with its modules.
func (in *inputs) readKernel(o Options) error {
	kernels, err := filepath.Glob(filepath.Join(o.BootDir, "vmlinuz-*"))
	if err != nil {
		return err
	}
	if len(kernels) == 0 {
		return &MissingError{What: fmt.Sprintf("there is no kernel (vmlinuz-*) in %s", o.BootDir), Package: kernelPackage}
	}
	slices.SortFunc(kernels, func(a, b string) int {
		if a, b := isCloud(a), isCloud(b); a != b {
			if a {
				return -1
			}
			return 1
		}
		return -compareVersions(a, b)
	})
	var failed []error
	for _, k := range kernels {
		version := strings.TrimPrefix(filepath.Base(k), "vmlinuz-")
		modules, noRoot, err := readModules(filepath.Join(o.ModulesDir, version))
		if err != nil {
			failed = append(failed, fmt.Errorf("kernel %s: %w", version, err))
			continue
		}
		if in.kernel, err = os.ReadFile(k); err != nil {
			return fmt.Errorf("read the kernel: %w", err)
		}
		in.version, in.modules, in.noRoot = version, modules, noRoot
		return nil
	}
	return &MissingError{What: fmt.Sprintf("no kernel in %s can be used: %v", o.BootDir, errors.Join(failed...)), Package: kernelPackage}
}

func isCloud(kernel string) bool { return strings.HasSuffix(kernel, "cloud-amd64") }

// compareVersions orders names by the numbers in them, then by their letters.
func compareVersions(a, b string) int {
	as, bs := splitNumbers(a), splitNumbers(b)
	for i := range min(len(as), len(bs)) {
		an, aErr := strconv.Atoi(as[i])
		bn, bErr := strconv.Atoi(bs[i])
		switch {
		case aErr == nil && bErr == nil && an != bn:
			return an - bn
		case (aErr != nil || bErr != nil) && as[i] != bs[i]:
			return strings.Compare(as[i], bs[i])
		}
	}
	return len(as) - len(bs)
}

// splitNumbers cuts a string between digits and everything else.
func splitNumbers(s string) []string {
	var parts []string
	for len(s) > 0 {
		digits := s[0] >= '0' && s[0] <= '9'
		n := strings.IndexFunc(s, func(r rune) bool { return (r >= '0' && r <= '9') != digits })
		if n < 0 {
			n = len(s)
		}
		parts, s = append(parts, s[:n]), s[n:]
	}
	return parts
}

// readModules reads the wanted modules of a kernel and what they depend on, in
// the order of loading. noRoot says which of rootWanted the kernel does not have.
func readModules(dir string) (modules []module, noRoot string, err error) {
	deps, err := readDependencies(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, "", err
	}
	builtin, err := builtinModules(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, "", err
	}
	var files []string
	for _, set := range []struct {
		dir   string
		names []string
	}{{guest.ModulesDir, wanted}, {guest.RunModulesDir, runWanted}, {guest.NetworkModulesDir, networkWanted}, {guest.RootModulesDir, rootWanted}} {
		for _, name := range set.names {
			file, ok := deps.file[name]
			switch {
			case ok:
			case builtin[name]:
				continue
			case set.dir == guest.RootModulesDir:
				noRoot = "the kernel of the guest has no module " + name
				continue
			default:
				return nil, "", fmt.Errorf("it has no module %s", name)
			}
			files = appendInOrder(files, file, deps.needs)
		}
		for _, file := range files[len(modules):] {
			data, err := readModule(filepath.Join(dir, file))
			if err != nil {
				return nil, "", err
			}
			modules = append(modules, module{moduleName(file), data, set.dir})
		}
	}
	return modules, noRoot, nil
}

// dependencies is the content of modules.dep.
type dependencies struct {
	file  map[string]string   // by module name
	needs map[string][]string // by file
}

func readDependencies(name string) (dependencies, error) {
	d := dependencies{file: map[string]string{}, needs: map[string][]string{}}
	b, err := os.ReadFile(name)
	if err != nil {
		return d, fmt.Errorf("read its module dependencies: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		file, needs, ok := strings.Cut(line, ":")
		if ok {
			d.file[moduleName(file)] = file
			d.needs[file] = strings.Fields(needs)
		}
	}
	return d, nil
}

func builtinModules(name string) (map[string]bool, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read its built-in modules: %w", err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		names[moduleName(strings.TrimSpace(line))] = true
	}
	return names, nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// appendInOrder appends file after everything it needs. A module's own line
// lists all of it, but not in the order of loading: the lines of what it needs
// decide that.
func appendInOrder(files []string, file string, needs map[string][]string) []string {
	if slices.Contains(files, file) {
		return files
	}
	for _, n := range needs[file] {
		files = appendInOrder(files, n, needs)
	}
	return append(files, file)
}

func readModule(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read a module: %w", err)
	}
	switch filepath.Ext(name) {
	case ".ko":
		return b, nil
	case ".gz":
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if b, err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return b, nil
	default:
		return nil, fmt.Errorf("the module %s is compressed in a way that cannot be read; decompress it (unxz, unzstd) and run depmod", name)
	}
}

var errDynamic = errors.New("it is dynamically linked")

// readStatic reads a program that runs without any library.
func readStatic(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Linux program: %w", name, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s: %w", name, errDynamic)
		}
	}
	return b, nil
}

// applets lists where busybox wants to be linked to.
func applets(ctx context.Context, busybox string) ([]string, error) {
	out, err := exec.CommandContext(ctx, busybox, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("list the applets of %s: %w", busybox, err)
	}
	return strings.Fields(string(out)), nil
}

// Missing reports whether err says that a file is not there that a Debian
// package would bring, and which.
func Missing(err error) (pkg string, ok bool) {
	var m *MissingError
	if errors.As(err, &m) {
		return m.Package, true
	}
	return "", false
}
