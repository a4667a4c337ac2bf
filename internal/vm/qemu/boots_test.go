package qemu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// bootsWanted is the environment variable that says how many machines TestBoots
// boots; make boots sets it. Without it the test boots a few, to see that it works.
const bootsWanted = "TIDEWAIT_BOOTS"

// TestBoots boots machines one after another, runs a command in each and destroys
// it. Not one may fail, however slow the machine is, and nothing is left.
func TestBoots(t *testing.T) {
	count := 2
	if text := os.Getenv(bootsWanted); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err, bootsWanted)
	}
	dir := t.TempDir()
	b, err := newBackend(dir)
	require.NoError(t, err)
	var boots, whole []time.Duration
	var failures []string
	for i := range count {
		began := time.Now()
		booted, err := bootOnce(t.Context(), b, fmt.Sprintf("boot-%d", i))
		if err != nil {
			failures = append(failures, fmt.Sprintf("boot %d: %v", i+1, err))
			continue
		}
		boots, whole = append(boots, booted), append(whole, time.Since(began))
		if (i+1)%20 == 0 {
			t.Logf("%d of %d, %d failures so far", i+1, count, len(failures))
		}
	}
	t.Logf("%d boots, %d failures\n%s", count, len(failures), bootTable(boots, whole))
	require.Empty(t, failures)
	left, err := os.ReadDir(filepath.Join(dir, "runs"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// bootOnce boots a machine, runs a command in it and destroys it. It returns how
// long the boot took.
func bootOnce(ctx context.Context, b vm.Backend, run string) (booted time.Duration, err error) {
	defer func() { err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx), run)) }()
	began := time.Now()
	m, err := b.Create(ctx, vm.Spec{RunID: run, CPUMilli: 1000, MemoryMiB: 192, DiskMiB: 64})
	if err != nil {
		return 0, err
	}
	booted = time.Since(began)
	exit, err := m.Run(ctx, vm.Command{Argv: []string{"true"}}, nil)
	if err == nil && exit != (vm.Exit{}) {
		err = fmt.Errorf("the command ended with %+v", exit)
	}
	return booted, err
}

// bootTable shows how long machines took.
func bootTable(boots, whole []time.Duration) string {
	var b strings.Builder
	b.WriteString("| measure | p50 | p95 | max |\n| --- | --- | --- | --- |\n")
	for _, line := range []struct {
		what string
		took []time.Duration
	}{{"until the guest agent answers", boots}, {"boot, a command, destroy", whole}} {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", line.what, share(line.took, 0.5), share(line.took, 0.95), share(line.took, 1))
	}
	return b.String()
}

// share is the duration that a share q of all does not exceed.
func share(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)].Round(10 * time.Millisecond)
}
