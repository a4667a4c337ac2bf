package devstack

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAPortIsChosenOnce: nothing listens yet on a port that a stack has chosen,
// and another stack, of this process or another, does not choose it.
func TestAPortIsChosenOnce(t *testing.T) {
	var mine, other claims
	port, err := choosePort("NATS", 0, 0, &mine)
	require.NoError(t, err)
	require.False(t, mine.claim(port), "not twice for one stack either")
	require.False(t, other.claim(port))
	_, err = choosePort("NATS", port, 0, &other)
	require.ErrorContains(t, err, "is in use on 127.0.0.1")

	mine.release()
	mine.release()
	listener, err := net.Listen("tcp", loopback(port))
	require.NoError(t, err)
	require.False(t, other.claim(port), "somebody listens there")
	require.NoError(t, listener.Close())
	require.True(t, other.claim(port))
	other.release()
}
