package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"tidewait/internal/vm"
)

// said is a registry that answers with whatever it likes.
type said struct{ manifestText, configText []byte }

func (s said) manifest(context.Context, string) ([]byte, error) { return s.manifestText, nil }

func (s said) blob(context.Context, v1.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.configText)), nil
}

// FuzzDescription lets a registry describe an image in any way. In its manifest
// CONFIG and SIZE stand for what its configuration has. What is taken is whole: a
// digest for each layer, and variables that are some.
func FuzzDescription(f *testing.F) {
	const layer = `{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":1}`
	for _, manifest := range []string{
		`{"schemaVersion":2,"config":{"digest":"CONFIG","size":SIZE},"layers":[` + layer + `]}`,
		`{"manifests":[{"platform":{"os":"linux","architecture":"amd64"},"digest":"sha256:00"}]}`,
		`{"manifests":[{}]}`, `null`, `[]`, ``,
	} {
		for _, config := range []string{
			`{"os":"linux","architecture":"amd64","config":{"Env":["A=b","=c","d"]},"rootfs":{"diff_ids":["sha256:0000000000000000000000000000000000000000000000000000000000000000"]}}`,
			`{}`, `null`,
		} {
			f.Add([]byte(manifest), []byte(config))
		}
	}
	f.Fuzz(func(t *testing.T, manifest, config []byte) {
		text := strings.NewReplacer("CONFIG", digestOf(config), "SIZE", strconv.Itoa(len(config))).Replace(string(manifest))
		img := &Image{from: said{[]byte(text), config}}
		raw, err := img.choose(t.Context(), []byte(text), "amd64")
		if err == nil {
			err = img.read(t.Context(), raw, "amd64")
		}
		var failure *vm.Failure
		if err != nil {
			if !errors.As(err, &failure) {
				t.Fatalf("%s is refused with %v", text, err)
			}
			return
		}
		if len(img.Layers) == 0 || len(img.Layers) > maxLayers {
			t.Fatalf("%s has %d layers", text, len(img.Layers))
		}
		for name, value := range img.Env {
			if name == "" || strings.Contains(name+value, "\x00") {
				t.Fatalf("%s has the variable %q", text, name)
			}
		}
	})
}
