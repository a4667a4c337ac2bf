package gateway

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The size of what found no room is of use for as long as somebody tries again; what
// nobody asks for any more is not kept for the life of the process.
func TestSizesAreForgottenWhenNobodyAsks(t *testing.T) {
	at := func(minutes int) time.Time { return time.Date(2026, 3, 1, 8, minutes, 0, 0, time.UTC) }
	var s sizes
	require.Equal(t, int64(0), s.of("results/a", at(0)))
	s.set("results/a", 100, at(0))
	s.set("results/b", 200, at(1))
	require.Equal(t, int64(100), s.of("results/a", at(59)), "it waits for room")

	s.set("results/c", 300, at(90))

	require.Equal(t, []string{"results/a", "results/c"}, slices.Sorted(maps.Keys(s.objects)))
	require.Equal(t, int64(0), s.of("results/b", at(90)))
	s.set("results/a", 0, at(91))
	require.Equal(t, int64(0), s.of("results/a", at(91)), "it found room")
	require.Equal(t, []string{"results/c"}, slices.Sorted(maps.Keys(s.objects)))
}
