package vmtest

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// BenchmarkJob runs whole jobs: create, 1 MB in, a command that does nothing, 1
// MB out, destroy.
func BenchmarkJob(b *testing.B, backend vm.Backend) {
	input := Archive(b, 1<<20)
	b.ResetTimer()
	for i := range b.N {
		id := fmt.Sprintf("job-%d", i)
		m, err := backend.Create(b.Context(), vm.Spec{RunID: id, CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64})
		require.NoError(b, err)
		_, err = m.Inject(b.Context(), bytes.NewReader(input))
		require.NoError(b, err)
		exit, err := m.Run(b.Context(), vm.Command{Argv: []string{"mv", "data", "moved"}}, nil)
		require.NoError(b, err)
		require.Equal(b, vm.Exit{}, exit)
		result, err := m.Collect(b.Context(), nil, vm.Limits{Files: 10, Bytes: 2 << 20}, io.Discard)
		require.NoError(b, err)
		require.Equal(b, int64(1<<20), result.Bytes)
		require.NoError(b, backend.Destroy(b.Context(), id))
	}
}

// Archive is a tar stream with one file named data of n random bytes.
func Archive(tb testing.TB, n int) []byte {
	tb.Helper()
	data := make([]byte, n)
	_, err := rand.Read(data)
	require.NoError(tb, err)
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	require.NoError(tb, tw.WriteHeader(&tar.Header{Name: "data", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(n)}))
	_, err = tw.Write(data)
	require.NoError(tb, err)
	require.NoError(tb, tw.Close())
	return buf.Bytes()
}
