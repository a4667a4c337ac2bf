package process_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/vmtest"
)

// BenchmarkKeptJob is BenchmarkJob with a keeper.
func BenchmarkKeptJob(b *testing.B) {
	backend, err := newBackend(b.TempDir())
	require.NoError(b, err)
	vmtest.BenchmarkJob(b, keeping{backend})
}

// keeping is a backend whose machines have keepers.
type keeping struct{ vm.Backend }

func (k keeping) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	s.Keep = true
	return k.Backend.Create(ctx, s)
}

// BenchmarkJob creates, puts 1 MB in, runs a command, collects 1 MB and destroys.
func BenchmarkJob(b *testing.B) {
	backend, err := newBackend(b.TempDir())
	require.NoError(b, err)
	vmtest.BenchmarkJob(b, backend)
}

// BenchmarkNoop creates, runs true, collects nothing and destroys.
func BenchmarkNoop(b *testing.B) {
	backend, err := newBackend(b.TempDir())
	require.NoError(b, err)
	for i := range b.N {
		id := fmt.Sprintf("noop-%d", i)
		m, err := backend.Create(b.Context(), vm.Spec{RunID: id, CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64})
		require.NoError(b, err)
		exit, err := m.Run(b.Context(), vm.Command{Argv: []string{"true"}}, nil)
		require.NoError(b, err)
		require.Equal(b, vm.Exit{}, exit)
		_, err = m.Collect(b.Context(), nil, vm.Limits{Files: 1, Bytes: 1}, io.Discard)
		require.NoError(b, err)
		require.NoError(b, backend.Destroy(b.Context(), id))
	}
}
