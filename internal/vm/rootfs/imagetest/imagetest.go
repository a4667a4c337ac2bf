// Package imagetest makes images for tests, and a registry that has them.
package imagetest

import (
	"archive/tar"
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// File is an entry of a layer: a file, a directory when Name ends with a slash, or
// a symbolic link when Link is set.
type File struct {
	Name, Content, Link string
}

// Tar is a layer's tar stream.
func Tar(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(f.Content))}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := io.WriteString(w, f.Content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Image is an image for this machine's architecture, of the given layers.
func Image(t testing.TB, env []string, layers ...[]byte) v1.Image {
	t.Helper()
	return ImageFor(t, runtime.GOARCH, env, layers...)
}

// ImageFor is an image for an architecture.
func ImageFor(t testing.TB, arch string, env []string, layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	for _, content := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
		require.NoError(t, err)
		img, err = mutate.AppendLayers(img, layer)
		require.NoError(t, err)
	}
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Env = "linux", arch, env
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

// Index is a list of images for architectures.
func Index(t testing.TB, images map[string]v1.Image) v1.ImageIndex {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		if img := images[arch]; img != nil {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
			})
		}
	}
	return index
}

// Digest is the digest of an image or an index.
func Digest(t testing.TB, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	h, err := of.Digest()
	require.NoError(t, err)
	return h.String()
}

// Layout puts images into a new OCI layout in a directory, by their tags; one
// without a tag has none.
func Layout(t testing.TB, dir string, images map[string]v1.Image) {
	t.Helper()
	path, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	for tag, img := range images {
		var options []layout.Option
		if tag != "" {
			options = append(options, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}))
		}
		require.NoError(t, path.AppendImage(img, options...))
	}
}

// Behaviour is what a registry does with a request in place of its own.
type Behaviour func(w http.ResponseWriter, r *http.Request, own http.Handler)

// Registry is a registry on a port of loopback, spoken to without TLS.
type Registry struct {
	Host string
	t    testing.TB

	mu       sync.Mutex
	behave   Behaviour
	requests []string
	layers   map[string]bool // digests
}

// NewRegistry starts a registry.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{t: t, layers: map[string]bool{}}
	own := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		behave := r.behave
		r.requests = append(r.requests, req.Method+" "+req.URL.Path)
		r.mu.Unlock()
		if behave == nil {
			own.ServeHTTP(w, req)
			return
		}
		behave(w, req, own)
	}))
	t.Cleanup(server.Close)
	r.Host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// Behave makes the registry do something else from now on.
func (r *Registry) Behave(b Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behave = b
}

// Requests returns what was asked for since the last time, as METHOD PATH.
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.requests
	r.requests = nil
	return all
}

// IsLayer reports whether the path of a request is that of a layer.
func (r *Registry) IsLayer(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.layers[path[strings.LastIndex(path, "/")+1:]]
}

// Push puts an image into the registry under REPOSITORY:TAG.
func (r *Registry) Push(repository string, img v1.Image) {
	r.t.Helper()
	require.NoError(r.t, remote.Write(r.tag(repository), img))
	manifest, err := img.Manifest()
	require.NoError(r.t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, layer := range manifest.Layers {
		r.layers[layer.Digest.String()] = true
	}
	r.requests = nil
}

// PushIndex puts an index and its images into the registry.
func (r *Registry) PushIndex(repository string, index v1.ImageIndex) {
	r.t.Helper()
	require.NoError(r.t, remote.WriteIndex(r.tag(repository), index))
}

func (r *Registry) tag(repository string) name.Tag {
	r.t.Helper()
	tag, err := name.NewTag(r.Host+"/"+repository, name.Insecure)
	require.NoError(r.t, err)
	return tag
}

// Tool compiles the static program of package tool, for an image without a shell.
func Tool(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tool")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "tidewait/internal/vm/rootfs/imagetest/tool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	program, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(program)
}

// Busybox is a layer with busybox as its shell, and with a marker.
func Busybox(t testing.TB, marker string) []byte {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	require.NoError(t, err, "install the Debian package busybox-static")
	return Tar(t, File{Name: "bin/busybox", Content: string(program)}, File{Name: "bin/sh", Link: "busybox"}, File{Name: "marker", Content: marker})
}
