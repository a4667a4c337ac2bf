package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"tidewait/internal/mission"
)

// refName is the annotation that names an image of a layout.
const refName = "org.opencontainers.image.ref.name"

// layoutOrigin is an OCI layout in a directory.
type layoutOrigin struct {
	dir string // without symbolic links
	tag string
}

// layout finds a layout below the directories that may have some.
func (o Options) layout(i mission.Image) (origin, error) {
	if len(o.Layouts) == 0 {
		return nil, unavailable("this node has no directory of layouts; node.image_layouts names them")
	}
	dir, err := filepath.EvalSymlinks(i.Layout)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, unavailable("this node has no directory %s", i.Layout)
		}
		return nil, unavailable("the layout cannot be read: %v", err)
	}
	for _, root := range o.Layouts {
		if root, err = filepath.EvalSymlinks(root); err == nil && (dir == root || strings.HasPrefix(dir, root+"/")) {
			return &layoutOrigin{dir: dir, tag: i.Tag}, nil
		}
	}
	return nil, unavailable("%s is not below a directory of layouts of this node; node.image_layouts names them", i.Layout)
}

func (l *layoutOrigin) manifest(_ context.Context, digest string) ([]byte, error) {
	if digest == "" {
		d, err := l.named()
		if err != nil {
			return nil, err
		}
		digest = d.Digest.String()
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, invalid("the digest %q is none", digest)
	}
	blob, err := l.open(hash)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return readDescription(blob)
}

// named is the image of the tag, or the only one there is.
func (l *layoutOrigin) named() (v1.Descriptor, error) {
	index, err := layout.ImageIndexFromPath(l.dir)
	if err != nil {
		return v1.Descriptor{}, unavailable("%s is no OCI layout: %v", l.dir, err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return v1.Descriptor{}, invalid("the index of the layout cannot be read: %v", err)
	}
	var tags []string
	for _, d := range list.Manifests {
		if tag := d.Annotations[refName]; tag != "" {
			tags = append(tags, tag)
			if tag == l.tag {
				return d, nil
			}
		}
	}
	slices.Sort(tags)
	switch {
	case l.tag != "":
		return v1.Descriptor{}, unavailable("the layout %s has no image with the tag %s; it has %s", l.dir, l.tag, orNothing(strings.Join(tags, ", ")))
	case len(list.Manifests) != 1:
		return v1.Descriptor{}, unavailable("the layout %s has %d images; name one of %s", l.dir, len(list.Manifests), orNothing(strings.Join(tags, ", ")))
	}
	return list.Manifests[0], nil
}

func (l *layoutOrigin) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return l.open(d.Digest)
}

func (l *layoutOrigin) open(h v1.Hash) (io.ReadCloser, error) {
	blob, err := layout.Path(l.dir).Blob(h)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unavailable("the layout %s does not have %s", l.dir, h)
	}
	if file, ok := blob.(*os.File); ok && err == nil {
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			file.Close()
			return nil, unavailable("the layout %s has %s, and it is no file", l.dir, h)
		}
	}
	return blob, err
}

func readDescription(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxDescription+1))
	if err == nil && len(raw) > maxDescription {
		return nil, invalid("its manifest is larger than %d MiB", maxDescription>>20)
	}
	return raw, err
}
