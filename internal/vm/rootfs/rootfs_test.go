package rootfs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/rootfs"
	"tidewait/internal/vm/rootfs/imagetest"
	"tidewait/internal/vm/rootfs/layers"
	"tidewait/internal/vm/rootfs/source"
)

func open(t *testing.T, o rootfs.Options) *rootfs.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Bytes == 0 {
		o.Bytes = 1 << 30
	}
	if o.Limits == (layers.Limits{}) {
		o.Limits = layers.Limits{Files: 1000, Bytes: 16 << 20}
	}
	if o.PullTimeout == 0 {
		o.PullTimeout = time.Minute
	}
	s, err := rootfs.Open(o)
	require.NoError(t, err)
	return s
}

// failure is what Get refuses with.
func failure(t *testing.T, s *rootfs.Store, name string) vm.Failure {
	t.Helper()
	_, err := s.Get(t.Context(), name, "")
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	return *f
}

// get gets an image that is let go with the test.
func get(t *testing.T, s *rootfs.Store, name, digest string) *rootfs.Root {
	t.Helper()
	r, err := s.Get(t.Context(), name, digest)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// content is the whole of a file system, in which the content of files is as it is.
func content(t *testing.T, r *rootfs.Root) string {
	t.Helper()
	_, err := r.File.Seek(0, io.SeekStart)
	require.NoError(t, err)
	b, err := io.ReadAll(r.File)
	require.NoError(t, err)
	return string(b)
}

func marked(t *testing.T, marker string) v1.Image {
	t.Helper()
	return imagetest.Image(t, nil, imagetest.Tar(t, imagetest.File{Name: "marker", Content: marker}))
}

func TestAnImageOfARegistryIsPulledOnce(t *testing.T) {
	r := imagetest.NewRegistry(t)
	img := imagetest.Image(t, []string{"PATH=/tools", "MODE=fast"},
		imagetest.Tar(t, imagetest.File{Name: "marker", Content: "first layer"}), imagetest.Tar(t, imagetest.File{Name: "marker", Content: "second layer"}))
	r.Push("team/tool:1.2", img)
	dir, name := t.TempDir(), r.Host+"/team/tool:1.2"
	o := rootfs.Options{Dir: dir, Source: source.Options{Insecure: []string{r.Host}}}
	s := open(t, o)

	root := get(t, s, name, "")
	digest := imagetest.Digest(t, img)
	require.Equal(t, digest, root.Digest)
	require.Equal(t, map[string]string{"PATH": "/tools", "MODE": "fast"}, root.Env)
	require.Contains(t, content(t, root), "second layer")
	info, err := root.File.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size()%4096)
	require.Equal(t, os.FileMode(0o444), info.Mode())
	require.Equal(t, []string{digest, name}, s.Keys())
	r.Requests()

	get(t, s, name, "")
	require.Equal(t, []string{"GET /v2/", "GET /v2/team/tool/manifests/1.2", "GET /v2/team/tool/blobs/" + imagetest.Digest(t, config{img})}, r.Requests(), "only what it leads to is asked")
	get(t, s, name, digest)
	get(t, s, r.Host+"/team/tool@"+digest, "")
	require.Empty(t, r.Requests(), "a digest needs no registry")

	s = open(t, o)
	require.Equal(t, []string{digest, name}, s.Keys(), "what is kept is found again")
	require.Contains(t, content(t, get(t, s, name, digest)), "second layer")
	require.Empty(t, r.Requests())
}

// config has the digest of an image's configuration.
type config struct{ v1.Image }

func (c config) Digest() (v1.Hash, error) { return c.ConfigName() }

// TestATagThatMoves leads a tag elsewhere: who has looked it up stays with what
// it was.
func TestATagThatMoves(t *testing.T) {
	r := imagetest.NewRegistry(t)
	first, second := marked(t, "first image"), marked(t, "second image")
	r.Push("tool:latest", first)
	s := open(t, rootfs.Options{Source: source.Options{Insecure: []string{r.Host}}})
	name := r.Host + "/tool:latest"
	require.Equal(t, imagetest.Digest(t, first), get(t, s, name, "").Digest)

	r.Push("tool:latest", second)
	require.Contains(t, content(t, get(t, s, name, imagetest.Digest(t, first))), "first image")
	root := get(t, s, name, "")
	require.Equal(t, imagetest.Digest(t, second), root.Digest)
	require.Contains(t, content(t, root), "second image")
	require.Equal(t, []string{imagetest.Digest(t, second), name, imagetest.Digest(t, first)}, s.Keys(), "the name is of what it leads to now")

	other := open(t, rootfs.Options{Source: source.Options{Insecure: []string{r.Host}}})
	require.Contains(t, content(t, get(t, other, name, imagetest.Digest(t, first))), "first image", "a node that does not have it yet")
}

func TestTheImageForTheArchitecture(t *testing.T) {
	r := imagetest.NewRegistry(t)
	index := imagetest.Index(t, map[string]v1.Image{
		"amd64": imagetest.ImageFor(t, "amd64", nil, imagetest.Tar(t, imagetest.File{Name: "marker", Content: "for amd64"})),
		"arm64": imagetest.ImageFor(t, "arm64", nil, imagetest.Tar(t, imagetest.File{Name: "marker", Content: "for arm64"})),
	})
	r.PushIndex("tool:all", index)
	r.PushIndex("tool:other", imagetest.Index(t, map[string]v1.Image{"riscv64": imagetest.ImageFor(t, "riscv64", nil, imagetest.Tar(t))}))
	r.Push("tool:plain", imagetest.ImageFor(t, "riscv64", nil, imagetest.Tar(t)))
	s := open(t, rootfs.Options{Source: source.Options{Insecure: []string{r.Host}}})

	root := get(t, s, r.Host+"/tool:all", "")
	require.Equal(t, imagetest.Digest(t, index), root.Digest, "the digest is that of the list, for nodes of all kinds")
	require.Contains(t, content(t, root), "for amd64")
	require.Len(t, s.Keys(), 3, "manifest, list and name")
	require.Contains(t, content(t, get(t, s, r.Host+"/tool:all", root.Digest)), "for amd64")

	name := r.Host + "/tool:other"
	require.Equal(t, vm.Failure{Code: vm.ImageInvalid, Message: "the image " + name + " cannot be used: it is not there for linux/amd64, but for linux/riscv64"},
		failure(t, s, name))
	name = r.Host + "/tool:plain"
	require.Equal(t, vm.Failure{Code: vm.ImageInvalid, Message: "the image " + name + " cannot be used: it is for linux/riscv64, and this node is linux/amd64"},
		failure(t, s, name))
}

func TestLayouts(t *testing.T) {
	roots := t.TempDir()
	one, two := filepath.Join(roots, "one"), filepath.Join(roots, "two")
	imagetest.Layout(t, one, map[string]v1.Image{"": marked(t, "the only one")})
	imagetest.Layout(t, two, map[string]v1.Image{"1.2": marked(t, "of the tag 1.2"), "1.3": marked(t, "of the tag 1.3")})
	outside := t.TempDir()
	imagetest.Layout(t, outside, map[string]v1.Image{"": marked(t, "outside")})
	require.NoError(t, os.Symlink(outside, filepath.Join(roots, "way-out")))
	require.NoError(t, os.Mkdir(filepath.Join(roots, "nothing"), 0o755))
	s := open(t, rootfs.Options{Source: source.Options{Layouts: []string{roots}}})

	require.Contains(t, content(t, get(t, s, "oci:"+one, "")), "the only one")
	require.Contains(t, content(t, get(t, s, "oci:"+two+":1.3", "")), "of the tag 1.3")
	require.Contains(t, content(t, get(t, s, "oci:"+two+"@"+imagetest.Digest(t, marked(t, "of the tag 1.2")), "")), "of the tag 1.2")
	for name, want := range map[string]string{
		"oci:" + two:                "the layout " + two + " has 2 images; name one of 1.2, 1.3",
		"oci:" + two + ":1.4":       "the layout " + two + " has no image with the tag 1.4; it has 1.2, 1.3",
		"oci:" + outside:            outside + " is not below a directory of layouts of this node; node.image_layouts names them",
		"oci:" + roots + "/way-out": roots + "/way-out is not below a directory of layouts of this node; node.image_layouts names them",
		"oci:" + roots + "/absent":  "this node has no directory " + roots + "/absent",
		"oci:" + two + "@sha256:" + strings.Repeat("0", 64): "the layout " + two + " does not have sha256:" + strings.Repeat("0", 64),
	} {
		require.Equal(t, vm.Failure{Code: vm.ImageUnavailable, Message: "the image " + name + " cannot be used: " + want}, failure(t, s, name))
	}
	require.Contains(t, failure(t, s, "oci:"+roots+"/nothing").Message, "is no OCI layout")
	require.Contains(t, failure(t, open(t, rootfs.Options{}), "oci:"+one).Message, "this node has no directory of layouts; node.image_layouts names them")

	// Somebody changes a layer.
	blobs, err := filepath.Glob(filepath.Join(one, "blobs/sha256/*"))
	require.NoError(t, err)
	for _, blob := range blobs {
		if b, err := os.ReadFile(blob); err == nil && b[0] == 0x1f {
			b[len(b)-9] ^= 1
			require.NoError(t, os.WriteFile(blob, b, 0o644))
		}
	}
	f := failure(t, open(t, rootfs.Options{Source: source.Options{Layouts: []string{roots}}}), "oci:"+one)
	require.Contains(t, f.Message, "cannot be used")
}

// auth is the behaviour of a registry that wants a user and a password.
func auth(w http.ResponseWriter, r *http.Request, own http.Handler) {
	if user, password, ok := r.BasicAuth(); !ok || user != "robot" || password != "s3cret" {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	own.ServeHTTP(w, r)
}

func TestCredentials(t *testing.T) {
	r := imagetest.NewRegistry(t)
	r.Push("tool:1", marked(t, "behind a password"))
	r.Behave(auth)
	name, file := r.Host+"/tool:1", filepath.Join(t.TempDir(), "auth.json")
	o := rootfs.Options{Source: source.Options{Insecure: []string{r.Host}, AuthFile: file}}
	s := open(t, o)
	write := func(auths string) { require.NoError(t, os.WriteFile(file, []byte(auths), 0o600)) }

	require.Contains(t, failure(t, s, name).Message, "the credentials of this node cannot be read")
	write("{}")
	require.Equal(t, vm.Failure{Code: vm.ImageUnavailable, Message: "the image " + name +
		" cannot be used: its registry does not give it to this node (401, UNAUTHORIZED: authentication required); its credentials are in node.image_auth"}, failure(t, s, name))
	write(`{"auths": {"` + r.Host + `": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("robot:wrong")) + `"}}}`)
	require.Contains(t, failure(t, s, name).Message, "does not give it to this node (401")
	write("no json")
	require.NotContains(t, failure(t, s, name).Message, "no json", "what is in the file is not told")
	write(`{"auths": {"` + r.Host + `": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("robot:s3cret")) + `"}}}`)
	require.NoError(t, os.Chmod(file, 0o644))
	require.Contains(t, failure(t, s, name).Message, "because others may read or change "+file+" (mode 0644); chmod it 0600")
	require.NoError(t, os.Chmod(file, 0o600))
	require.Contains(t, content(t, get(t, s, name, "")), "behind a password")
}

func TestRegistriesThatAreNotAsked(t *testing.T) {
	r := imagetest.NewRegistry(t)
	r.Push("tool:1", marked(t, "x"))
	name := r.Host + "/tool:1"
	s := open(t, rootfs.Options{Source: source.Options{Registries: []string{"registry.example.com"}, Insecure: []string{r.Host}}})
	require.Equal(t, vm.Failure{Code: vm.ImageUnavailable, Message: "the image " + name + " cannot be used: this node may not ask the registry " + r.Host + "; node.image_registries has registry.example.com"},
		failure(t, s, name))
	f := failure(t, open(t, rootfs.Options{}), name)
	require.Equal(t, vm.ImageUnavailable, f.Code, f.Message)
	require.Empty(t, r.Requests(), "nothing is sent without TLS")
}

// TestRegistriesThatLie lets a registry that has the image misbehave: in all it
// is asked, or with manifests or layers only.
func TestRegistriesThatLie(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 10000)
	img := imagetest.Image(t, nil, imagetest.Tar(t, imagetest.File{Name: "marker", Content: big}))
	all, err := img.Layers()
	require.NoError(t, err)
	sent, err := all[0].Compressed()
	require.NoError(t, err)
	blob, err := io.ReadAll(sent)
	require.NoError(t, err)
	manifest := func(_ *imagetest.Registry, r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }
	layer := func(registry *imagetest.Registry, r *http.Request) bool { return registry.IsLayer(r.URL.Path) }
	for name, c := range map[string]struct {
		where func(*imagetest.Registry, *http.Request) bool
		say   func(w http.ResponseWriter, r *http.Request)
		code  vm.FailureCode
		part  string
	}{
		"does not have it": {manifest, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown manifest"}]}`, http.StatusNotFound)
		}, vm.ImageUnavailable, "its registry does not have it (404, MANIFEST_UNKNOWN: unknown manifest)"},
		"has lost a layer": {
			layer, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", http.StatusNotFound) },
			vm.ImageUnavailable, "its registry does not have it (404, Not Found)",
		},
		"is out of order": {
			manifest, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
			vm.ImageUnavailable, "its registry answers with 500",
		},
		"sends another layer": {
			layer, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, len(blob))) },
			vm.ImageInvalid, "what was sent for its layer",
		},
		"breaks off": {layer, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(another[:5])
		}, vm.ImageUnavailable, "broke off after 5 of"},
		"sends too little": {
			layer, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(another[:5]) },
			vm.ImageUnavailable, "broke off after 5 of",
		},
		"sends too much": {
			layer, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(slices.Clone(blob), big...)) },
			vm.ImageInvalid, "more was sent for a layer than its",
		},
		"sends an endless manifest": {
			manifest, func(w http.ResponseWriter, r *http.Request) { endless(w, r, big) },
			vm.ImageInvalid, "its manifest is larger than 4 MiB",
		},
		"sends no manifest": {manifest, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = io.WriteString(w, "<html>")
		}, vm.ImageInvalid, "its manifest is no JSON"},
		"leads elsewhere": {layer, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/secret?token=s3cret", http.StatusTemporaryRedirect)
		}, vm.ImageUnavailable, "127.0.0.1:1 is not spoken to without TLS; node.image_insecure names those that are"},
	} {
		t.Run(name, func(t *testing.T) {
			r := imagetest.NewRegistry(t)
			r.Push("tool:1", img)
			r.Behave(func(w http.ResponseWriter, req *http.Request, own http.Handler) {
				if c.where(r, req) {
					c.say(w, req)
					return
				}
				own.ServeHTTP(w, req)
			})
			dir := t.TempDir()
			s := open(t, rootfs.Options{Dir: dir, Source: source.Options{Insecure: []string{r.Host}}})
			f := failure(t, s, r.Host+"/tool:1")
			require.Equal(t, c.code, f.Code, f.Message)
			require.Contains(t, f.Message, c.part)
			require.NotContains(t, f.Message, "s3cret")
			require.NotContains(t, f.Message, "\n")
			require.Empty(t, s.Keys())
			left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// another is a layer that nobody asked for: an empty tar stream, compressed.
var another = func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 1024))
	_ = w.Close()
	return b.Bytes()
}()

func endless(w http.ResponseWriter, r *http.Request, text string) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// TestBombs are images that are larger than they look.
func TestBombs(t *testing.T) {
	roots := t.TempDir()
	imagetest.Layout(t, filepath.Join(roots, "large"), map[string]v1.Image{"": imagetest.Image(t, nil, imagetest.Tar(t, imagetest.File{Name: "a", Content: strings.Repeat("\x00", 2<<20)}))})
	var many []imagetest.File
	for i := range 200 {
		many = append(many, imagetest.File{Name: fmt.Sprint(i)})
	}
	imagetest.Layout(t, filepath.Join(roots, "many"), map[string]v1.Image{"": imagetest.Image(t, nil, imagetest.Tar(t, many...))})
	// Zeros behind the end of the stream are unpacked, and never written.
	imagetest.Layout(t, filepath.Join(roots, "behind"), map[string]v1.Image{"": imagetest.Image(t, nil, append(imagetest.Tar(t), make([]byte, 200<<20)...))})
	var thick [][]byte
	for i := range 130 {
		thick = append(thick, imagetest.Tar(t, imagetest.File{Name: fmt.Sprint(i)}))
	}
	imagetest.Layout(t, filepath.Join(roots, "thick"), map[string]v1.Image{"": imagetest.Image(t, nil, thick...)})
	s := open(t, rootfs.Options{Limits: layers.Limits{Files: 199, Bytes: 1 << 20}, Source: source.Options{Layouts: []string{roots}}})
	for name, want := range map[string]string{
		"large": "the image is larger than 1 MiB", "many": "the image has more than 199 files", "thick": "it has 130 layers, more than 128",
		"behind": "unpacks to more than",
	} {
		f := failure(t, s, "oci:"+filepath.Join(roots, name))
		require.Equal(t, vm.ImageInvalid, f.Code, name)
		require.Contains(t, f.Message, want, name)
	}
}

// hanging is a registry that stops answering when asked for a layer, until it goes
// on.
func hanging(t *testing.T) (r *imagetest.Registry, asked chan struct{}, goOn func()) {
	t.Helper()
	asked = make(chan struct{}, 100)
	on := make(chan struct{})
	r = imagetest.NewRegistry(t)
	r.Push("tool:1", marked(t, "it came at last"))
	r.Behave(func(w http.ResponseWriter, req *http.Request, own http.Handler) {
		if r.IsLayer(req.URL.Path) {
			asked <- struct{}{}
			select {
			case <-on:
			case <-req.Context().Done():
				return
			}
		}
		own.ServeHTTP(w, req)
	})
	goOn = sync.OnceFunc(func() { close(on) })
	t.Cleanup(goOn)
	return r, asked, goOn
}

func TestARegistryThatHangs(t *testing.T) {
	r, _, _ := hanging(t)
	s := open(t, rootfs.Options{PullTimeout: time.Second, Source: source.Options{Insecure: []string{r.Host}}})
	name := r.Host + "/tool:1"
	require.Equal(t, vm.Failure{Code: vm.ImageUnavailable, Message: "the image " + name + " cannot be used: it did not come within 1s"}, failure(t, s, name))
}

// TestPullsAreShared lets many ask for one image under two names.
func TestPullsAreShared(t *testing.T) {
	r, asked, goOn := hanging(t)
	s := open(t, rootfs.Options{Source: source.Options{Insecure: []string{r.Host}}})
	digest := imagetest.Digest(t, marked(t, "it came at last"))
	names := []string{r.Host + "/tool:1", r.Host + "/tool@" + digest}
	var all sync.WaitGroup
	got := make([]*rootfs.Root, 10)
	for i := range got {
		all.Go(func() {
			root, err := s.Get(t.Context(), names[i%2], "")
			if err == nil {
				got[i] = root
			}
		})
	}
	// One gives up, and the others still get it.
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := s.Get(ctx, names[0], ""); gaveUp <- err }()
	<-asked
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	goOn()
	all.Wait()
	for _, root := range got {
		require.NotNil(t, root)
		require.Contains(t, content(t, root), "it came at last")
		require.NoError(t, root.Close())
	}
	blobs := 0
	for _, request := range r.Requests() {
		if r.IsLayer(request) {
			blobs++
		}
	}
	require.Equal(t, 1, blobs)
}

// TestAPullThatNobodyWaitsFor ends.
func TestAPullThatNobodyWaitsFor(t *testing.T) {
	r, asked, goOn := hanging(t)
	dir := t.TempDir()
	s := open(t, rootfs.Options{Dir: dir, Source: source.Options{Insecure: []string{r.Host}}})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := s.Get(ctx, r.Host+"/tool:1", ""); gaveUp <- err }()
	<-asked
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "making", "*"))
		return err == nil && len(left) == 0
	}, 10*time.Second, 5*time.Millisecond)
	goOn()
	require.Contains(t, content(t, get(t, s, r.Host+"/tool:1", "")), "it came at last", "it can be pulled again")
}

// TestEviction keeps what was used last and what is in use.
func TestEviction(t *testing.T) {
	roots, dir := t.TempDir(), t.TempDir()
	images := map[string]v1.Image{}
	for _, tag := range []string{"a", "b", "c", "d"} {
		images[tag] = imagetest.Image(t, nil, imagetest.Tar(t, imagetest.File{Name: tag, Content: strings.Repeat(tag, 1<<20)}))
	}
	imagetest.Layout(t, filepath.Join(roots, "l"), images)
	o := rootfs.Options{Dir: dir, Bytes: 5 << 19, Source: source.Options{Layouts: []string{roots}}} // room for two
	s := open(t, o)
	name := func(tag string) string { return "oci:" + filepath.Join(roots, "l") + ":" + tag }
	kept := func() []string {
		var tags []string
		for _, key := range s.Keys() {
			if tag, ok := strings.CutPrefix(key, name("")); ok {
				tags = append(tags, tag)
			}
		}
		return tags
	}
	for _, tag := range []string{"a", "b", "a"} {
		root, err := s.Get(t.Context(), name(tag), "")
		require.NoError(t, err)
		require.NoError(t, root.Close())
	}
	inUse, err := s.Get(t.Context(), name("c"), "")
	require.NoError(t, err)
	require.Equal(t, []string{"c", "a"}, kept(), "b was not used for longest")

	for _, tag := range []string{"d", "b"} {
		root, err := s.Get(t.Context(), name(tag), "")
		require.NoError(t, err)
		require.NoError(t, root.Close())
	}
	require.Equal(t, []string{"b", "c"}, kept(), "c is in use")
	require.Contains(t, content(t, inUse), "ccc")

	s = open(t, o) // a restarted agent, whose machine goes on
	for _, tag := range []string{"a", "d", "a"} {
		root, err := s.Get(t.Context(), name(tag), "")
		require.NoError(t, err)
		require.NoError(t, root.Close())
	}
	require.Equal(t, []string{"a", "c"}, kept(), "c is in use still")
	require.NoError(t, inUse.Close())
	root := get(t, s, name("b"), "")
	require.Equal(t, []string{"b", "a"}, kept())
	require.Equal(t, imagetest.Digest(t, images["b"]), root.Digest)

	files, err := filepath.Glob(filepath.Join(dir, "*.*"))
	require.NoError(t, err)
	require.Len(t, files, 4, "nothing else is left")
}

// TestRoomIsMadeBeforeAPull: for what the manifest says is coming, and for what more
// becomes of it.
func TestRoomIsMadeBeforeAPull(t *testing.T) {
	noise := make([]byte, 1<<20) // what cannot be made smaller
	_, err := rand.NewChaCha8([32]byte{}).Read(noise)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		first, second []byte // layers, of which the second one hangs
		room          int64
	}{
		"as large as its manifest says": {nil, noise, 7 << 19},
		"larger than it":                {bytes.Repeat([]byte("much"), 5<<20), []byte("little"), 37 << 19}, // looked at every 16 MiB
	} {
		t.Run(name, func(t *testing.T) {
			roots, images := t.TempDir(), map[string]v1.Image{}
			for _, tag := range []string{"a", "b", "c"} {
				images[tag] = imagetest.Image(t, nil, imagetest.Tar(t, imagetest.File{Name: tag, Content: strings.Repeat(tag, 1<<20)}))
			}
			imagetest.Layout(t, filepath.Join(roots, "l"), images)
			r, asked, _ := hanging(t)
			img := imagetest.Image(t, nil,
				imagetest.Tar(t, imagetest.File{Name: "first", Content: string(c.first)}),
				imagetest.Tar(t, imagetest.File{Name: "second", Content: string(c.second)}))
			r.Behave(nil)
			r.Push("large:1", img)
			parts, err := img.Layers()
			require.NoError(t, err)
			last, err := parts[1].Digest()
			require.NoError(t, err)
			r.Behave(func(w http.ResponseWriter, req *http.Request, own http.Handler) {
				if strings.HasSuffix(req.URL.Path, last.String()) {
					asked <- struct{}{}
					<-req.Context().Done()
					return
				}
				own.ServeHTTP(w, req)
			})
			s := open(t, rootfs.Options{Bytes: c.room, Limits: layers.Limits{Files: 1000, Bytes: 64 << 20}, Source: source.Options{Layouts: []string{roots}, Insecure: []string{r.Host}}})
			kept := func() (n int) {
				for _, key := range s.Keys() {
					if strings.HasPrefix(key, "oci:") {
						n++
					}
				}
				return n
			}
			for tag := range images {
				root, err := s.Get(t.Context(), "oci:"+filepath.Join(roots, "l")+":"+tag, "")
				require.NoError(t, err)
				require.NoError(t, root.Close())
			}
			require.Equal(t, 3, kept())
			ctx, cancel := context.WithCancel(t.Context())
			gaveUp := make(chan error)
			go func() { _, err := s.Get(ctx, r.Host+"/large:1", ""); gaveUp <- err }()
			<-asked
			require.Equal(t, 2, kept())
			cancel()
			require.ErrorIs(t, <-gaveUp, context.Canceled)
		})
	}
}

// TestWhatACrashLeaves is removed, and what was whole is kept.
func TestWhatACrashLeaves(t *testing.T) {
	roots, dir := t.TempDir(), t.TempDir()
	imagetest.Layout(t, filepath.Join(roots, "l"), map[string]v1.Image{"a": marked(t, "image a"), "b": marked(t, "image b"), "c": marked(t, "image c")})
	o := rootfs.Options{Dir: dir, Source: source.Options{Layouts: []string{roots}}}
	s := open(t, o)
	name := func(tag string) string { return "oci:" + filepath.Join(roots, "l") + ":" + tag }
	paths := map[string]string{}
	for _, tag := range []string{"a", "b", "c"} {
		paths[tag] = filepath.Join(dir, strings.TrimPrefix(get(t, s, name(tag), "").Digest, "sha256:"))
	}
	require.NoError(t, os.Remove(paths["b"]+".json"))          // before it was said what it is
	require.NoError(t, os.Truncate(paths["c"]+".erofs", 4096)) // a disk that lost what was written
	for _, rest := range []string{"making/image-1", "making/about-1", "stray.erofs", "stray.json", "note"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, rest), []byte("half"), 0o600))
	}

	s = open(t, o)
	keys := s.Keys()
	require.Len(t, keys, 2)
	require.True(t, slices.Contains(keys, name("a")))
	var left []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, path)
		}
		return err
	}))
	require.ElementsMatch(t, []string{paths["a"] + ".json", paths["a"] + ".erofs"}, left)
	require.Contains(t, content(t, get(t, s, name("b"), "")), "image b")
	require.Contains(t, content(t, get(t, s, name("c"), "")), "image c")

	var about struct{ Names []string }
	raw, err := os.ReadFile(paths["c"] + ".json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &about))
	require.Equal(t, []string{name("c")}, about.Names)
}

// TestTheSameImageGivesTheSameBytes on every node.
func TestTheSameImageGivesTheSameBytes(t *testing.T) {
	roots := t.TempDir()
	imagetest.Layout(t, filepath.Join(roots, "l"), map[string]v1.Image{"": imagetest.Image(t, nil,
		imagetest.Tar(t, imagetest.File{Name: "z"}, imagetest.File{Name: "d/b", Content: "1"}, imagetest.File{Name: "d/a", Content: "2"}, imagetest.File{Name: "l", Link: "d/a"}))})
	var seen []string
	for range 3 {
		s := open(t, rootfs.Options{Source: source.Options{Layouts: []string{roots}}})
		seen = append(seen, content(t, get(t, s, "oci:"+filepath.Join(roots, "l"), "")))
	}
	require.True(t, seen[0] == seen[1] && seen[1] == seen[2])
}
