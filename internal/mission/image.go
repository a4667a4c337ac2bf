package mission

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/distribution/reference"
)

// DefaultImage is the image of a phase that names none: the node's own small
// guest.
const DefaultImage = "default"

// layoutScheme starts the name of an image in a directory of a node.
const layoutScheme = "oci:"

// maxImage is the longest name of an image, in bytes.
const maxImage = 1024

// Image says where the root file system of a phase's machines comes from: a
// registry, or an OCI layout in a directory of the node.
type Image struct {
	Registry   string // host or host:port; empty: the image is in Layout
	Repository string // in the registry
	Layout     string // absolute path
	Tag        string // may be empty when there is a digest, or for a layout that holds one image
	Digest     string // sha256:HEX; empty: the tag decides
}

// ParseImage reads the name of an image other than [DefaultImage]:
// REGISTRY/REPOSITORY:TAG, REGISTRY/REPOSITORY@DIGEST, both of them, or
// oci:/DIRECTORY with a tag or a digest behind it or not. Problem is a clause
// for people, and empty when the name is right.
func ParseImage(text string) (i Image, problem string) {
	if len(text) > maxImage {
		return Image{}, "is longer than 1024 bytes"
	}
	if directory, ok := strings.CutPrefix(text, layoutScheme); ok {
		return parseLayout(directory)
	}
	return parseReference(text)
}

func parseReference(text string) (i Image, problem string) {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Image{}, "is not an image reference"
	}
	// Without a host, which has a dot or a port, a default registry would be
	// meant, and people would have to know which.
	host, _, ok := strings.Cut(text, "/")
	if !ok || (!strings.ContainsAny(host, ".:") && host != "localhost") {
		return Image{}, "names no registry"
	}
	i.Registry, i.Repository = reference.Domain(named), reference.Path(named)
	if tagged, ok := named.(reference.Tagged); ok {
		i.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		i.Digest = digested.Digest().String()
	}
	switch {
	case i.Tag == "" && i.Digest == "":
		return Image{}, "names no version"
	case i.Digest != "" && !isDigest(i.Digest):
		return Image{}, "has a digest that is not sha256"
	}
	return i, ""
}

func isDigest(text string) bool {
	hex, ok := strings.CutPrefix(text, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// parseLayout reads what stands behind oci:. A directory with a colon or an at
// sign in its last element cannot be named.
func parseLayout(text string) (i Image, problem string) {
	rest, digest, hasDigest := strings.Cut(text, "@")
	slash := strings.LastIndexByte(rest, '/')
	i.Layout, i.Digest = rest, digest
	hasTag := false
	if colon := strings.LastIndexByte(rest, ':'); colon > slash {
		i.Layout, i.Tag, hasTag = rest[:colon], rest[colon+1:], true
	}
	switch {
	case !path.IsAbs(i.Layout) || path.Clean(i.Layout) != i.Layout || i.Layout == "/" || strings.ContainsFunc(i.Layout, unicode.IsControl):
		return Image{}, "names no absolute directory"
	case hasTag && (i.Tag == "" || reference.TagRegexp.FindString(i.Tag) != i.Tag):
		return Image{}, "has a tag that is none"
	case hasDigest && !isDigest(digest):
		return Image{}, "has a digest that is not sha256"
	}
	return i, ""
}

// ImageKey is by what nodes say which images they have: the digest of a name
// that has one, which says everything, and otherwise the name itself.
func ImageKey(name string) string {
	if i, problem := ParseImage(name); problem == "" && i.Digest != "" {
		return i.Digest
	}
	return name
}

// Images returns the images of the machines of a phase but the default, each
// once, in the order of the document.
func (p Phase) Images() []string {
	names := []string{p.Image}
	if p.Composed() {
		names = nil
		for _, a := range p.Agents {
			names = append(names, a.Image)
		}
	}
	var images []string
	for _, name := range names {
		if name != "" && name != DefaultImage && !slices.Contains(images, name) {
			images = append(images, name)
		}
	}
	return images
}

const imageHint = "write default, or for example registry.example.com/team/tool:1.2, docker.io/library/debian:13, either with @sha256:…, or oci:/srv/images/tool:1.2 for a layout on the nodes"

func (r *reader) image(v value) string {
	text, ok := r.text(v)
	if !ok || text == DefaultImage {
		return text
	}
	if _, problem := ParseImage(text); problem != "" {
		r.refuse(v, problem, imageHint)
		return text
	}
	r.images = append(r.images, v)
	return text
}

// imagesFor refuses images that the backend has no use for.
func (r *reader) imagesFor(backend string) {
	if backend != "process" {
		return
	}
	for _, v := range r.images {
		r.refuse(v, "cannot be used with backend process, whose commands are the node's own programs", "write backend: microvm, or image: default")
	}
}
