package qemu_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/vmtest"
)

// BenchmarkColdJob boots a guest, puts 1 MB in, runs true, collects 1 MB and
// destroys it.
func BenchmarkColdJob(b *testing.B) {
	backend, err := newBackend(b.TempDir())
	require.NoError(b, err)
	vmtest.BenchmarkJob(b, backend)
}

// BenchmarkRestoredJob is BenchmarkColdJob in machines restored from a snapshot.
func BenchmarkRestoredJob(b *testing.B) {
	backend, err := newFastBackend(b.TempDir())
	require.NoError(b, err)
	defer backend.Close()
	require.NoError(b, backend.Snapshot(b.Context(), vm.Spec{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64}))
	vmtest.BenchmarkJob(b, backend)
	require.Zero(b, backend.Starts().Cold)
}

// BenchmarkBoot boots a guest and destroys it.
func BenchmarkBoot(b *testing.B) {
	backend, err := newBackend(b.TempDir())
	require.NoError(b, err)
	for i := range b.N {
		id := fmt.Sprintf("boot-%d", i)
		_, err := backend.Create(b.Context(), vm.Spec{RunID: id, CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64})
		require.NoError(b, err)
		require.NoError(b, backend.Destroy(b.Context(), id))
	}
}

// BenchmarkStream puts 50 MB into a guest and collects 50 MB.
func BenchmarkStream(b *testing.B) {
	backend, err := newBackend(b.TempDir())
	require.NoError(b, err)
	input := vmtest.Archive(b, 50<<20)
	for i := range b.N {
		id := fmt.Sprintf("stream-%d", i)
		m, err := backend.Create(b.Context(), vm.Spec{RunID: id, CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 256})
		require.NoError(b, err)
		b.StartTimer()
		_, err = m.Inject(b.Context(), bytes.NewReader(input))
		require.NoError(b, err)
		_, err = m.Run(b.Context(), vm.Command{Argv: []string{"mv", "data", "moved"}}, nil)
		require.NoError(b, err)
		_, err = m.Collect(b.Context(), nil, vm.Limits{Files: 10, Bytes: 100 << 20}, io.Discard)
		require.NoError(b, err)
		b.StopTimer()
		require.NoError(b, backend.Destroy(b.Context(), id))
	}
}
