package simhost

import (
	"fmt"
	"path"
	"strings"
)

// The two kinds of artifacts, as hosts name them in errors.
const (
	componentKind = "component"
	providerKind  = "provider"
)

const (
	fileScheme    = "file://"
	builtinScheme = "wasmcloud+builtin://"
)

// FetchFault says why the image under a reference cannot be fetched, in the
// host's words. kind is component or provider.
type FetchFault func(kind, reference string) string

// Verbatim is a fetch that ends in these words.
func Verbatim(words string) FetchFault {
	return func(string, string) string { return words }
}

// ManifestUnknown is a registry's 404 for the tag.
func ManifestUnknown(kind, reference string) string {
	return envelope(kind, reference, "manifest unknown")
}

// NameUnknown is a registry's 404 for the repository.
func NameUnknown(kind, reference string) string {
	return envelope(kind, reference, "repository name not known to registry")
}

// Denied is a registry's 403.
func Denied(kind, reference string) string {
	return envelope(kind, reference, "requested access to the resource is denied")
}

// RateLimited is a registry's 429.
func RateLimited(kind, reference string) string {
	return envelope(kind, reference, "You have reached your pull rate limit")
}

// Unauthorized is a registry's 401.
func Unauthorized(kind, reference string) string {
	return bytesFault(kind, reference, "Not authorized: url "+manifestURL(reference))
}

// RegistryBroken is a registry's 500.
func RegistryBroken(kind, reference string) string {
	return bytesFault(kind, reference, "Server error: url "+manifestURL(reference)+", code: 500, message: internal server error")
}

// WrongMediaType is an artifact that is no component and no provider.
func WrongMediaType(kind, reference string) string {
	return bytesFault(kind, reference, "Incompatible layer media type: application/x-unknown")
}

// ConnectionRefused is a registry that is not there.
func ConnectionRefused(kind, reference string) string {
	return unreachable(kind, reference, "tcp connect error: Connection refused (os error 111)")
}

// NoSuchRegistry is a registry whose name does not resolve.
func NoSuchRegistry(kind, reference string) string {
	return unreachable(kind, reference, "dns error: failed to lookup address information: Name or service not known")
}

// NoSuchFile is a file reference to nothing.
func NoSuchFile(kind, reference string) string {
	const words = "No such file or directory (os error 2)"
	if kind == componentKind {
		return "failed to read component: " + words
	}
	return fmt.Sprintf("failed to read provider: failed to load provider archive: failed to load target [x86_64-linux] from PAR from file [%s]: %s",
		bare(reference), words)
}

// NotAnArchive is a file reference to something else than a provider's archive.
func NotAnArchive(string, string) string {
	return "failed to read provider: failed to load provider archive: failed to read entire block"
}

// NotWasm are the words for an image whose bytes are no WebAssembly, for [Rule.Invalid].
const NotWasm = "failed to extract module claims: I/O error: magic header not detected: bad magic number - expected=[\n" +
	"    0x0,\n    0x61,\n    0x73,\n    0x6d,\n] actual=[\n    0x6e,\n    0x6f,\n    0x74,\n    0x20,\n] (at offset 0x0)"

// TruncatedCache are the words for an image that several fetches of one host
// wrote at once, for [Rule.Invalid]. The next attempt works.
const TruncatedCache = "failed to extract module claims: I/O error: unexpected end-of-file (at offset 0x0)"

func envelope(kind, reference, words string) string {
	return bytesFault(kind, reference,
		fmt.Sprintf("Registry error: url %s, envelope: OCI API errors: [OCI API error: %s]", manifestURL(reference), words))
}

func unreachable(kind, reference, words string) string {
	return bytesFault(kind, reference, fmt.Sprintf("error sending request for url (%s): client error (Connect): %s", manifestURL(reference), words))
}

func bytesFault(kind, reference, words string) string {
	return pathFault(kind, reference, "failed to fetch OCI bytes: "+words)
}

func pathFault(kind, reference, words string) string {
	return fmt.Sprintf("failed to fetch %s under OCI reference `%s`: failed to fetch OCI path: %s", kind, bare(reference), words)
}

// manifestURL is what a host asks a registry for.
func manifestURL(reference string) string {
	name, tag := strings.ToLower(bare(reference)), "latest"
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name, tag = name[:i], name[i+1:]
	}
	registry, repository, slashed := strings.Cut(name, "/")
	switch {
	case !slashed:
		registry, repository = "index.docker.io", "library/"+name
	case !strings.ContainsAny(registry, ".:") && registry != "localhost":
		registry, repository = "index.docker.io", name
	}
	return fmt.Sprintf("https://%s/v2/%s/manifests/%s", registry, repository, tag)
}

// bare is a reference without its scheme: how hosts report providers' images.
func bare(reference string) string {
	for _, scheme := range []string{fileScheme, "oci://", "https://", "http://", builtinScheme} {
		if rest, is := strings.CutPrefix(reference, scheme); is {
			return rest
		}
	}
	return reference
}

// fetched returns the host's words when the image cannot be fetched.
func fetched(kind, reference string, e Rule) (fault string) {
	words := malformed(kind, reference)
	if words == "" && e.Fetch != nil {
		words = e.Fetch(kind, reference)
	}
	if words == "" {
		return ""
	}
	if kind == providerKind && strings.HasPrefix(words, unreadable) {
		return "failed to parse provider reference: " + words
	}
	return fmt.Sprintf("failed to fetch %s: %s", kind, words)
}

const unreadable = "failed to parse reference as OCI reference"

// malformed returns what hosts find wrong with a reference without asking anybody.
func malformed(kind, reference string) string {
	scheme, rest, schemed := strings.Cut(reference, "://")
	switch {
	case reference == "":
		return pathFault(kind, reference, "repository name must have at least one component")
	case strings.HasPrefix(reference, builtinScheme):
		return "nothing to fetch for a builtin"
	case strings.HasPrefix(reference, fileScheme):
		return ""
	case schemed && scheme != "oci" && scheme != "http" && scheme != "https":
		return pathFault(kind, reference, "invalid reference format")
	case !schemed && strings.Contains(reference, " "):
		return unreadable + ": invalid domain character"
	case schemed && strings.Contains(rest, " "):
		return pathFault(kind, reference, "invalid reference format")
	case strings.HasSuffix(reference, ":latest"):
		return pathFault(kind, reference, "fetching images tagged 'latest' is currently prohibited in this host. "+
			"This option can be overridden with WASMCLOUD_OCI_ALLOW_LATEST")
	}
	return ""
}

// Claims are what an image is signed with. Empty fields are null on the wire.
type Claims struct {
	Subject  string // the image's own key
	Issuer   string
	Name     string
	Version  string
	Revision int
	Alias    string   // of components
	Tags     []string // of components
}

// component shows claims as events about components do.
func (c *Claims) component() map[string]any {
	return map[string]any{
		"call_alias": orNull(c.Alias), "issuer": c.Issuer, "tags": c.Tags, "name": orNull(c.Name),
		"version": orNull(c.Version), "revision": c.Revision, "not_before_human": "never", "expires_human": "never",
	}
}

// provider shows claims as events about providers do.
func (c *Claims) provider() map[string]any {
	return map[string]any{
		"issuer": c.Issuer, "tags": nil, "name": orNull(c.Name), "version": orNull(c.Version),
		"not_before_human": "never", "expires_human": "never",
	}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// archiveClaims are those of a provider's archive that no rule describes:
// archives are always signed.
func archiveClaims(reference string) *Claims {
	name, version := path.Base(bare(reference)), "0.1.0"
	if i := strings.IndexByte(name, ':'); i >= 0 {
		name, version = name[:i], name[i+1:]
	}
	name = strings.TrimSuffix(name, ".par")
	return &Claims{Subject: publicKey('V', reference), Issuer: publicKey('A', reference), Name: name, Version: version, Revision: 1}
}
