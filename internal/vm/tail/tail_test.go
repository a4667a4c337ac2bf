package tail

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTail(t *testing.T) {
	var tail Tail
	require.Empty(t, tail.LastLine())
	for range 100_000 {
		_, err := tail.Write([]byte("a line of the console\r\n"))
		require.NoError(t, err)
	}
	_, err := tail.Write([]byte("the last one\r\n\r\n"))
	require.NoError(t, err)
	require.Equal(t, "the last one", tail.LastLine())
	require.LessOrEqual(t, len(tail.buf), 2*tailSize)
}
