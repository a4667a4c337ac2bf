package qemu_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/rootfs/erofs"
	"tidewait/internal/vm/rootfs/layers"
)

// file is an entry of a layer.
type file struct {
	name, content string
	mode          int64
	kind          byte // default: a regular file, or a directory when the name ends with a slash
	link          string
	xattr         string // user.note
	uid           int
}

func layer(t *testing.T, files ...file) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Linkname: f.link, Uid: f.uid, ModTime: time.Unix(1_000_000_000, 0)}
		switch {
		case f.kind != 0:
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if f.xattr != "" {
			h.PAXRecords = map[string]string{"SCHILY.xattr.user.note": f.xattr}
		}
		require.NoError(t, tw.WriteHeader(h))
		_, err := io.WriteString(tw, f.content)
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	return &b
}

// rootOf makes the file system of an image with one layer.
func rootOf(t *testing.T, content *bytes.Buffer) *vm.Root {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image.erofs"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	to := erofs.NewWriter(f)
	tree := layers.New(to, layers.Limits{Files: 20000, Bytes: 64 << 20})
	require.NoError(t, tree.Add(content))
	require.NoError(t, to.Finish(tree.Root()))
	require.NoError(t, f.Chmod(0o444))
	return &vm.Root{Name: "a test's", File: f}
}

func busybox(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/bin/busybox")
	require.NoError(t, err, "install the Debian package busybox-static")
	return string(b)
}

// lines runs a script of the image and returns what it prints.
func lines(t *testing.T, m vm.VM, script string) []string {
	t.Helper()
	var out []string
	exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"sh", "-c", script}}, func(_ string, line []byte) { out = append(out, string(line)) })
	require.NoError(t, err)
	require.Equal(t, vm.Exit{}, exit, "%q", out)
	return out
}

func TestAnImageIsTheRootOfCommands(t *testing.T) {
	for _, way := range []vm.StartKind{vm.StartCold, vm.StartSnapshot} {
		t.Run(string(way), func(t *testing.T) {
			b, err := newFastBackend(t.TempDir())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			many := []file{{name: "many/"}}
			digests := map[string]string{}
			for i := range 700 { // names of more than one block
				name := fmt.Sprintf("many/a file with a long name so that few of them are in a block %04d", i)
				content := strings.Repeat(fmt.Sprintf("%d,", i), i*7)
				sum := sha256.Sum256([]byte(content))
				many, digests["/"+name] = append(many, file{name: name, content: content, mode: 0o644}), hex.EncodeToString(sum[:])
			}
			root := rootOf(t, layer(t, append(many,
				file{name: "usr/bin/busybox", content: busybox(t)},
				file{name: "bin", kind: tar.TypeSymlink, link: "/usr/bin"},
				file{name: "usr/bin/sh", kind: tar.TypeSymlink, link: "/bin/busybox"},
				file{name: "marker", content: "from the image\n", mode: 0o640, xattr: "noted", uid: 70000},
				file{name: "hard", kind: tar.TypeLink, link: "marker"},
				file{name: "empty", mode: 0o600},
				file{name: "setuid", mode: 0o4755, content: "x"},
				file{name: "etc/"}, file{name: "etc/hosts", content: "of the image\n"},
				file{name: "-before a dot", content: "1"},
			)...))
			spec := vm.Spec{RunID: "image", CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64, Image: "a test's", Root: root}
			if way == vm.StartSnapshot {
				require.NoError(t, b.Snapshot(t.Context(), spec))
			}
			m, err := b.Create(t.Context(), spec)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Destroy(context.Background(), "image")) })
			require.Equal(t, way, m.Info().Start.Kind, m.Info().Start.Why)
			require.Equal(t, "a test's", m.Info().Image)
			_, err = m.Inject(t.Context(), layer(t, file{name: "in.txt", content: "injected\n", mode: 0o644}))
			require.NoError(t, err)

			require.Equal(t, []string{"from the image", "injected", "/workspace"}, lines(t, m, "busybox cat /marker in.txt; pwd"))
			require.Equal(t, []string{
				"640 70000 2 1000000000", "600 0 1 1000000000", "4755 0 1 1000000000",
			}, lines(t, m, "busybox stat -c '%a %u %h %Y' /hard /empty /setuid"))
			require.Equal(t, []string{"127.0.0.1 localhost tidewait", "::1 localhost"}, lines(t, m, "busybox cat /etc/hosts"))
			require.Equal(t, []string{
				"-before a dot", "bin", "dev", "empty", "etc", "hard", "many", "marker", "proc", "root", "run", "setuid", "sys", "tmp", "usr", "workspace",
			}, lines(t, m, "busybox ls -A / | busybox sort"), "nothing of the agent's own root directory")
			require.Equal(t, []string{"1777", "tmpfs"}, lines(t, m, "busybox stat -c %a /tmp; busybox stat -f -c %T /tmp"))
			got := map[string]string{}
			for _, line := range lines(t, m, "busybox find /many -type f -exec busybox sha256sum {} +") {
				sum, name, _ := strings.Cut(line, "  ")
				got[name] = sum
			}
			require.Equal(t, digests, got)

			// Commands write where they like, and only the workspace is collected.
			require.Equal(t, []string{"changed", "gone"}, lines(t, m,
				"echo changed > /marker; busybox rm -r /many; busybox cat /marker; test -e /many || echo gone; echo result > out.txt; echo no > /not-collected"))
			var out bytes.Buffer
			res, err := m.Collect(t.Context(), nil, vm.Limits{Files: 10, Bytes: 1 << 20}, &out)
			require.NoError(t, err)
			require.Equal(t, 1, res.Files)
			h, err := tar.NewReader(&out).Next()
			require.NoError(t, err)
			require.Equal(t, "out.txt", h.Name)
		})
	}
}

// TestAnImageWithoutAShell has one program and nothing else.
func TestAnImageWithoutAShell(t *testing.T) {
	b, err := newBackend(t.TempDir())
	require.NoError(t, err)
	root := rootOf(t, layer(t, file{name: "busybox", content: busybox(t)}))
	spec := vm.Spec{RunID: "image", CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64, Image: "a test's", Root: root}
	m, err := b.Create(t.Context(), spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Destroy(context.Background(), "image")) })
	_, err = m.Inject(t.Context(), layer(t, file{name: "in.txt", content: "injected\n", mode: 0o644}))
	require.NoError(t, err)
	var out []string
	sink := func(_ string, line []byte) { out = append(out, string(line)) }

	_, err = m.Run(t.Context(), vm.Command{Argv: []string{"sh", "-c", "true"}}, sink)
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.CommandNotFound, f.Code)

	exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"/busybox", "cat", "in.txt"}}, sink)
	require.NoError(t, err)
	require.Equal(t, vm.Exit{}, exit)
	require.Equal(t, []string{"injected"}, out)
}

// TestImagesThatCannotBeFurnished leads out of the image, or puts a file where a
// directory has to be.
func TestImagesThatCannotBeFurnished(t *testing.T) {
	img, err := guestImage()
	require.NoError(t, err)
	b, err := qemu.New(qemu.Options{Image: img, RunDir: t.TempDir(), Accel: qemu.AccelTCG, BootTimeout: time.Minute})
	require.NoError(t, err)
	spec := vm.Spec{RunID: "image", CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64, Image: "a test's"}
	_, err = b.Create(t.Context(), spec)
	require.EqualError(t, err, "the machine was to have an image, and was given none")

	img.NoRoot = "the kernel of the guest has no module erofs"
	without, err := qemu.New(qemu.Options{Image: img, RunDir: t.TempDir(), Accel: qemu.AccelTCG})
	require.NoError(t, err)
	spec.Root = rootOf(t, layer(t, file{name: "proc", kind: tar.TypeSymlink, link: "/image/scratch"}))
	_, err = without.Create(t.Context(), spec)
	require.EqualError(t, err, "the image a test's cannot be used on this node: the kernel of the guest has no module erofs")

	_, err = b.Create(t.Context(), spec)
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.Failure{Code: vm.ImageInvalid, Message: "the image has a /proc that is no directory"}, *f)

	spec.Root = rootOf(t, layer(t, file{name: "etc/hosts/file", content: "1"}))
	_, err = b.Create(t.Context(), spec)
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.ImageInvalid, f.Code)
	require.Contains(t, f.Message, "the image has an /etc/hosts that cannot be replaced")
}
