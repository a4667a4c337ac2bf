package rootfs_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"tidewait/internal/vm/rootfs"
	"tidewait/internal/vm/rootfs/imagetest"
	"tidewait/internal/vm/rootfs/layers"
	"tidewait/internal/vm/rootfs/source"
)

// BenchmarkPull pulls an image of 5,000 files and 80 MB, of which half does not
// compress, from a layout.
func BenchmarkPull(b *testing.B) {
	random := rand.NewChaCha8([32]byte{1})
	var files []imagetest.File
	content := make([]byte, 16<<10)
	for i := range 5000 {
		_, _ = random.Read(content[:8<<10])
		files = append(files, imagetest.File{Name: fmt.Sprintf("dir%d/file%d", i%100, i), Content: string(content)})
	}
	roots := b.TempDir()
	imagetest.Layout(b, filepath.Join(roots, "l"), map[string]v1.Image{"": imagetest.Image(b, nil, imagetest.Tar(b, files...))})
	b.SetBytes(5000 * int64(len(content)))
	for b.Loop() {
		s, err := rootfs.Open(rootfs.Options{
			Dir: b.TempDir(), Bytes: 1 << 30, PullTimeout: time.Minute,
			Limits: layers.Limits{Files: 10000, Bytes: 1 << 30}, Source: source.Options{Layouts: []string{roots}},
		})
		require.NoError(b, err)
		r, err := s.Get(b.Context(), "oci:"+filepath.Join(roots, "l"), "")
		require.NoError(b, err)
		info, err := r.File.Stat()
		require.NoError(b, err)
		b.ReportMetric(float64(info.Size())/1e6, "MB/image")
		require.NoError(b, r.Close())
	}
}
