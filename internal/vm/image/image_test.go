package image

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree is a directory that looks like the inputs of an image.
type tree struct {
	t         *testing.T
	dir       string
	noOverlay bool
}

func newTree(t *testing.T) tree { return tree{t: t, dir: t.TempDir()} }

func (tr tree) write(name, content string) {
	tr.t.Helper()
	file := filepath.Join(tr.dir, name)
	require.NoError(tr.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(tr.t, os.WriteFile(file, []byte(content), 0o644))
}

// kernel adds a kernel whose modules have the given extension.
func (tr tree) kernel(version, ext string) {
	dir := "modules/" + version + "/"
	var dep strings.Builder
	add := func(name, needs string) {
		file := "kernel/" + name + ext
		content := "module " + name
		if ext == ".ko.gz" {
			var buf bytes.Buffer
			w := gzip.NewWriter(&buf)
			_, _ = w.Write([]byte(content))
			require.NoError(tr.t, w.Close())
			content = buf.String()
		}
		tr.write(dir+file, content)
		dep.WriteString(file + ":")
		for n := range strings.FieldsSeq(needs) {
			dep.WriteString(" kernel/" + n + ext)
		}
		dep.WriteString("\n")
	}
	add("virtio_console", "virtio virtio_ring")
	add("virtio_blk", "virtio virtio_ring")
	add("virtio_net", "net_failover failover virtio virtio_ring")
	add("net_failover", "failover")
	add("failover", "")
	add("virtio_pci", "virtio virtio_ring")
	add("virtio", "virtio_ring")
	add("virtio_ring", "")
	add("erofs", "libcrc32c")
	add("libcrc32c", "")
	if !tr.noOverlay {
		add("overlay", "")
	}
	tr.write(dir+"modules.dep", dep.String())
	tr.write(dir+"modules.builtin", "kernel/virtio-mmio.ko\n")
	tr.write("boot/vmlinuz-"+version, "kernel "+version)
}

func (tr tree) options() Options {
	return Options{
		Dir:        filepath.Join(tr.dir, "image"),
		Agent:      "/bin/busybox", // any static program will do
		BootDir:    filepath.Join(tr.dir, "boot"),
		ModulesDir: filepath.Join(tr.dir, "modules"),
	}
}

func TestBuild(t *testing.T) {
	for _, ext := range []string{".ko", ".ko.gz"} {
		t.Run(ext, func(t *testing.T) {
			tr := newTree(t)
			tr.kernel("6.1.0-9-cloud-amd64", ext)
			tr.kernel("6.1.0-10-cloud-amd64", ext)
			tr.kernel("6.12.0-1-amd64", ext)
			img, err := Build(t.Context(), tr.options())
			require.NoError(t, err)
			require.Equal(t, "6.1.0-10-cloud-amd64", img.KernelVersion)
			require.Equal(t, []string{"virtio_ring", "virtio", "virtio_pci", "virtio_console", "virtio_blk", "failover", "net_failover", "virtio_net", "libcrc32c", "erofs", "overlay"}, img.Modules)
			require.Equal(t, []string{"virtio_blk"}, img.RunModules)
			require.Equal(t, []string{"failover", "net_failover", "virtio_net"}, img.NetworkModules)
			require.Equal(t, []string{"libcrc32c", "erofs", "overlay"}, img.RootModules)
			require.Empty(t, img.NoRoot)
			kernel, err := os.ReadFile(img.Kernel)
			require.NoError(t, err)
			require.Equal(t, "kernel 6.1.0-10-cloud-amd64", string(kernel))

			root := unpack(t, img.Initrd)
			module, err := os.ReadFile(filepath.Join(root, "modules/02-virtio_pci.ko"))
			require.NoError(t, err)
			require.Equal(t, "module virtio_pci", string(module))
			module, err = os.ReadFile(filepath.Join(root, "run-modules/04-virtio_blk.ko"))
			require.NoError(t, err)
			require.Equal(t, "module virtio_blk", string(module))
			module, err = os.ReadFile(filepath.Join(root, "network-modules/07-virtio_net.ko"))
			require.NoError(t, err)
			require.Equal(t, "module virtio_net", string(module))
			module, err = os.ReadFile(filepath.Join(root, "root-modules/09-erofs.ko"))
			require.NoError(t, err)
			require.Equal(t, "module erofs", string(module))
			link, err := os.Readlink(filepath.Join(root, "bin/sh"))
			require.NoError(t, err)
			require.Equal(t, "/bin/busybox", link)
			info, err := os.Stat(filepath.Join(root, "init"))
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o755), info.Mode())
		})
	}
}

// unpack extracts an initramfs with busybox's cpio.
func unpack(t *testing.T, initrd string) string {
	t.Helper()
	f, err := os.Open(initrd)
	require.NoError(t, err)
	defer f.Close()
	cmd := exec.Command("/bin/busybox", "cpio", "-i", "-d", "-m")
	cmd.Dir, cmd.Stdin = t.TempDir(), f
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s (install the Debian package busybox-static)", out)
	return cmd.Dir
}

// TestAKernelWithoutOverlay is used, and says what it cannot do, also when the
// image is not built again.
func TestAKernelWithoutOverlay(t *testing.T) {
	tr := newTree(t)
	tr.noOverlay = true
	tr.kernel("6.1.0-9-cloud-amd64", ".ko")
	for range 2 {
		img, err := Build(t.Context(), tr.options())
		require.NoError(t, err)
		require.Equal(t, "the kernel of the guest has no module overlay", img.NoRoot)
	}
}

func TestBuildsOnlyWhenInputsChange(t *testing.T) {
	tr := newTree(t)
	tr.kernel("6.1.0-9-cloud-amd64", ".ko")
	first, err := Build(t.Context(), tr.options())
	require.NoError(t, err)
	before, err := os.Stat(first.Initrd)
	require.NoError(t, err)

	again, err := Build(t.Context(), tr.options())
	require.NoError(t, err)
	require.Equal(t, first, again)
	after, err := os.Stat(first.Initrd)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))

	tr.write("modules/6.1.0-9-cloud-amd64/kernel/virtio.ko", "another")
	changed, err := Build(t.Context(), tr.options())
	require.NoError(t, err)
	require.NotEqual(t, first.Digest, changed.Digest)
	after, err = os.Stat(first.Initrd)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))

	var description map[string]any
	b, err := os.ReadFile(filepath.Join(tr.dir, "image/image.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &description))
	require.Equal(t, changed.Digest, description["digest"])
	require.Equal(t, "6.1.0-9-cloud-amd64", description["kernelVersion"])

	require.NoError(t, os.Remove(changed.Initrd))
	_, err = Build(t.Context(), tr.options())
	require.NoError(t, err)
	require.FileExists(t, changed.Initrd)
}

func TestWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(tr tree, o *Options)
		pkg     string
		message string
	}{
		{"no kernel", func(tr tree, o *Options) { o.BootDir = tr.dir }, "linux-image-cloud-amd64", "there is no kernel"},
		{"no modules", func(_ tree, o *Options) { o.ModulesDir = "/nowhere" }, "linux-image-cloud-amd64", "module dependencies"},
		{"no busybox", func(_ tree, o *Options) { o.Busybox = "/nowhere/busybox" }, "busybox-static", "no statically linked busybox at /nowhere/busybox"},
		{"a dynamic busybox", func(_ tree, o *Options) { o.Busybox = "/usr/bin/env" }, "busybox-static", "no statically linked busybox at /usr/bin/env"},
		{"compressed modules", func(tr tree, _ *Options) {
			tr.write("modules/6.1.0-9-cloud-amd64/modules.dep", "k/virtio_blk.ko.xz:\nk/virtio_pci.ko.xz:\nk/virtio_console.ko.xz:\n")
			tr.write("modules/6.1.0-9-cloud-amd64/k/virtio_pci.ko.xz", "x")
		}, "linux-image-cloud-amd64", "virtio_pci.ko.xz is compressed in a way that cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTree(t)
			tr.kernel("6.1.0-9-cloud-amd64", ".ko")
			o := tr.options()
			c.change(tr, &o)
			_, err := Build(t.Context(), o)
			require.ErrorContains(t, err, c.message)
			pkg, ok := Missing(err)
			require.True(t, ok)
			require.Equal(t, c.pkg, pkg)
			require.ErrorContains(t, err, "apt-get install "+c.pkg)
		})
	}
	t.Run("no agent", func(t *testing.T) {
		tr := newTree(t)
		o := tr.options()
		o.Agent = filepath.Join(tr.dir, "tidewait-guest")
		_, err := Build(t.Context(), o)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "the guest agent: open "+o.Agent)
	})
}

func TestCompareVersions(t *testing.T) {
	sorted := []string{"vmlinuz-5.10.0-1", "vmlinuz-6.1.0-9", "vmlinuz-6.1.0-10", "vmlinuz-6.1.0-10-rt", "vmlinuz-6.12.0-1"}
	shuffled := []string{sorted[3], sorted[1], sorted[4], sorted[0], sorted[2]}
	slices.SortFunc(shuffled, compareVersions)
	require.Equal(t, sorted, shuffled)
}

// TestThisMachine builds from the machine's own kernel.
func TestThisMachine(t *testing.T) {
	img, err := Build(t.Context(), Options{Dir: t.TempDir(), Agent: "/bin/busybox"})
	require.NoError(t, err)
	require.Contains(t, img.Modules, "virtio_blk")
	require.Less(t, slices.Index(img.Modules, "virtio_ring"), slices.Index(img.Modules, "virtio"))
}
