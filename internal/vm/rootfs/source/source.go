// Package source reads images where they are: in registries and in OCI layouts
// on the node. What it gives away is what the digests say, or an error.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"tidewait/internal/mission"
	"tidewait/internal/vm"
)

// Options say which images a node may use.
type Options struct {
	// Registries are the hosts, with their ports, that may be asked; none: any.
	Registries []string
	// Insecure are those that are spoken to without TLS.
	Insecure []string
	// AuthFile is a file as `docker login` writes it, without helpers; empty: none.
	AuthFile string
	// Layouts are the directories below which OCI layouts may be; none: nowhere.
	Layouts []string
}

// Limits of what describes an image.
const (
	maxDescription = 4 << 20 // bytes of a manifest, an index and a configuration, each
	maxLayers      = 128
)

// Image is an image for one architecture.
type Image struct {
	Digest   string // of what the name leads to: a manifest, or a list of them
	Manifest string // digest of the manifest for the architecture
	Env      map[string]string
	Layers   []Layer // the lowest first

	from origin
}

// origin is a place that images come from. Errors are of this package's
// [unavailable] or [invalid], or of ctx.
type origin interface {
	// manifest reads a manifest or a list of them: by its digest, or by the tag of
	// the name when digest is empty.
	manifest(ctx context.Context, digest string) ([]byte, error)
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// Open finds an image for an architecture, as in GOARCH. What i has as a digest
// decides, and otherwise its tag does. Its errors are [*vm.Failure] or ctx's.
func (o Options) Open(ctx context.Context, i mission.Image, arch string) (*Image, error) {
	from, err := o.origin(i)
	if err != nil {
		return nil, err
	}
	raw, err := from.manifest(ctx, i.Digest)
	if err != nil {
		return nil, explain(ctx, err)
	}
	img := &Image{Digest: digestOf(raw), from: from}
	if i.Digest != "" && img.Digest != i.Digest {
		return nil, invalid("what was sent for %s has the digest %s", i.Digest, img.Digest)
	}
	if raw, err = img.choose(ctx, raw, arch); err != nil {
		return nil, explain(ctx, err)
	}
	return img, explain(ctx, img.read(ctx, raw, arch))
}

// choose returns the manifest for an architecture.
func (img *Image) choose(ctx context.Context, raw []byte, arch string) ([]byte, error) {
	var list v1.IndexManifest
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, invalid("its manifest is no JSON: %v", err)
	}
	if len(list.Manifests) == 0 {
		return raw, nil
	}
	var offered []string
	for _, m := range list.Manifests {
		if m.Platform == nil {
			continue
		}
		if m.Platform.OS == "linux" && m.Platform.Architecture == arch {
			return img.manifest(ctx, m.Digest.String())
		}
		offered = append(offered, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	slices.Sort(offered)
	return nil, invalid("it is not there for linux/%s, but for %s", arch, orNothing(strings.Join(slices.Compact(offered), ", ")))
}

func orNothing(text string) string {
	if text == "" {
		return "nothing that it names"
	}
	return text
}

// manifest reads a manifest by its digest, which is checked.
func (img *Image) manifest(ctx context.Context, digest string) ([]byte, error) {
	raw, err := img.from.manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	if got := digestOf(raw); got != digest {
		return nil, invalid("what was sent for the manifest %s has the digest %s", digest, got)
	}
	return raw, nil
}

// read takes over what a manifest and its configuration say.
func (img *Image) read(ctx context.Context, raw []byte, arch string) error {
	img.Manifest = digestOf(raw)
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return invalid("its manifest cannot be read: %v", err)
	}
	config, err := img.config(ctx, m.Config)
	if err != nil {
		return err
	}
	switch {
	case config.OS != "" && config.OS != "linux", config.Architecture != "" && config.Architecture != arch:
		return invalid("it is for %s/%s, and this node is linux/%s", config.OS, config.Architecture, arch)
	case len(m.Layers) == 0:
		return invalid("it has no layers")
	case len(m.Layers) > maxLayers:
		return invalid("it has %d layers, more than %d", len(m.Layers), maxLayers)
	case len(m.Layers) != len(config.RootFS.DiffIDs):
		return invalid("its manifest has %d layers, and its configuration %d", len(m.Layers), len(config.RootFS.DiffIDs))
	}
	for n, d := range m.Layers {
		if !d.MediaType.IsLayer() || len(d.URLs) > 0 || d.Digest.Algorithm != "sha256" || d.Size < 0 {
			return invalid("its layer %s, of the type %s, cannot be used", d.Digest, d.MediaType)
		}
		img.Layers = append(img.Layers, Layer{from: img.from, descriptor: d, diffID: config.RootFS.DiffIDs[n].String()})
	}
	img.Env = environment(config.Config.Env)
	return nil
}

func (img *Image) config(ctx context.Context, d v1.Descriptor) (*v1.ConfigFile, error) {
	if d.Size < 0 || d.Size > maxDescription {
		return nil, invalid("its configuration has %d bytes", d.Size)
	}
	blob, err := img.from.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	raw, err := io.ReadAll(io.LimitReader(blob, maxDescription+1))
	if err != nil {
		return nil, err
	}
	if got := digestOf(raw); got != d.Digest.String() {
		return nil, invalid("what was sent for its configuration %s has the digest %s", d.Digest, got)
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, invalid("its configuration cannot be read: %v", err)
	}
	return &config, nil
}

func environment(list []string) map[string]string {
	env := map[string]string{}
	for _, pair := range list {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" && !strings.Contains(pair, "\x00") {
			env[name] = value
		}
	}
	return env
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func unavailable(format string, args ...any) error {
	return &vm.Failure{Code: vm.ImageUnavailable, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &vm.Failure{Code: vm.ImageInvalid, Message: fmt.Sprintf(format, args...)}
}

// explain makes a sentence of what a library said. Addresses are left out: those
// that registries redirect to may have credentials in them.
func explain(ctx context.Context, err error) error {
	var (
		failure *vm.Failure
		answer  *transport.Error
		address *url.Error
		dns     *net.DNSError
	)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &failure):
		return failure
	case errors.As(err, &answer):
		return refused(answer)
	case errors.As(err, &dns):
		return unavailable("its registry has no address: %s", dns.Err)
	case errors.As(err, &address):
		return unavailable("its registry was not reached: %v", address.Err)
	}
	return unavailable("%v", err)
}

// refused is what a registry's answer means.
func refused(answer *transport.Error) error {
	said := http.StatusText(answer.StatusCode)
	for _, d := range answer.Errors {
		said = strings.TrimSuffix(string(d.Code)+": "+d.Message, ": ")
		break
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return unavailable("its registry does not give it to this node (%d, %.200s); its credentials are in node.image_auth", answer.StatusCode, said)
	case http.StatusNotFound:
		return unavailable("its registry does not have it (404, %.200s)", said)
	}
	return unavailable("its registry answers with %d, %.200s", answer.StatusCode, said)
}
