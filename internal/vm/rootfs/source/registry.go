package source

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"tidewait/internal/mission"
)

// registryOrigin is one repository of a registry.
type registryOrigin struct {
	repository name.Repository
	tag        string
	puller     *remote.Puller
}

// origin finds out where an image is, and whether this node may use it.
func (o Options) origin(i mission.Image) (origin, error) {
	if i.Layout != "" {
		return o.layout(i)
	}
	if len(o.Registries) > 0 && !slices.Contains(o.Registries, i.Registry) {
		return nil, unavailable("this node may not ask the registry %s; node.image_registries has %s", i.Registry, strings.Join(o.Registries, ", "))
	}
	var options []name.Option
	if slices.Contains(o.Insecure, i.Registry) {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(i.Registry, options...)
	if err != nil {
		return nil, unavailable("its registry cannot be asked: %v", err)
	}
	keys, err := o.credentials()
	if err != nil {
		return nil, err
	}
	puller, err := remote.NewPuller(remote.WithAuthFromKeychain(keys), remote.WithTransport(o.transport()), remote.WithUserAgent("tidewait"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 3}))
	if err != nil {
		return nil, unavailable("its registry cannot be asked: %v", err)
	}
	return &registryOrigin{repository: registry.Repo(i.Repository), tag: i.Tag, puller: puller}, nil
}

func (r *registryOrigin) manifest(ctx context.Context, digest string) ([]byte, error) {
	var ref name.Reference = r.repository.Tag(r.tag)
	if digest != "" {
		ref = r.repository.Digest(digest)
	}
	d, err := r.puller.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	return d.Manifest, nil
}

func (r *registryOrigin) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	layer, err := r.puller.Layer(ctx, r.repository.Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

// How long a registry may take to be reached and to begin its answer. The answer
// itself takes as long as a pull may.
const (
	dialTimeout   = 10 * time.Second
	answerTimeout = 30 * time.Second
)

func (o Options) transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout, t.DisableKeepAlives = dialTimeout, answerTimeout, true
	return &guarded{next: t, insecure: o.Insecure}
}

// guarded keeps requests from going where they must not, whoever redirects them,
// and descriptions from being endless.
type guarded struct {
	next     http.RoundTripper
	insecure []string
}

func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !slices.Contains(g.insecure, r.URL.Host) {
		return nil, fmt.Errorf("%s is not spoken to without TLS; node.image_insecure names those that are", r.URL.Host)
	}
	res, err := g.next.RoundTrip(r)
	if err == nil && strings.Contains(r.URL.Path, "/manifests/") {
		res.Body = &bounded{ReadCloser: res.Body}
	}
	return res, err
}

// bounded is an answer that may not be longer than a description.
type bounded struct {
	io.ReadCloser
	n int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.n += n; b.n > maxDescription {
		return n, invalid("its manifest is larger than %d MiB", maxDescription>>20)
	}
	return n, err
}

// keychain has the credentials of registries, by the names that `docker login`
// gives them.
type keychain map[string]authn.AuthConfig

// Resolve implements [authn.Keychain].
func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	host := r.RegistryStr()
	for _, key := range []string{host, "https://" + host, "https://" + host + "/v1/", "https://" + host + "/v2/"} {
		if c, ok := k[key]; ok {
			return authn.FromConfig(c), nil
		}
	}
	return authn.Anonymous, nil
}

// credentials reads the credentials of this node, each time, so that they can be
// changed while it runs.
func (o Options) credentials() (keychain, error) {
	if o.AuthFile == "" {
		return nil, nil
	}
	info, err := os.Stat(o.AuthFile)
	if err != nil {
		return nil, unavailable("the credentials of this node cannot be read: %v", err)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return nil, unavailable("the credentials of this node are not used, because others may read or change %s (mode %04o); chmod it 0600", o.AuthFile, mode)
	}
	raw, err := os.ReadFile(o.AuthFile)
	if err != nil {
		return nil, unavailable("the credentials of this node cannot be read: %v", err)
	}
	var file struct {
		Auths map[string]struct {
			Auth, Username, Password, IdentityToken, RegistryToken string
		} `json:"auths"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, unavailable("the credentials of this node are no JSON as docker login writes it; look at %s", o.AuthFile)
	}
	keys := keychain{}
	for host, a := range file.Auths {
		c := authn.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
		if a.Auth != "" {
			pair, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(string(pair), ":")
			if err != nil || !ok {
				return nil, unavailable("the credentials of this node for %s are not USER:PASSWORD in base64; look at %s", host, o.AuthFile)
			}
			c.Username, c.Password = user, strings.TrimRight(password, "\x00")
		}
		keys[host] = c
	}
	return keys, nil
}
