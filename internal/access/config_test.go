package access_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/access"
)

// TestTheExampleIsWhatIsWritten fails when a subject has changed. This writes it again:
//
//	tidewait setup nats-config --gateway gateway-a --node node-a,node-b --lattice default > deploy/nats/nats-server.conf
func TestTheExampleIsWhatIsWritten(t *testing.T) {
	written, err := access.Site{Gateways: []string{"gateway-a"}, Nodes: []string{"node-a", "node-b"}, Lattices: []string{"default"}}.Config()
	require.NoError(t, err)
	example, err := os.ReadFile("../../deploy/nats/nats-server.conf")
	require.NoError(t, err)
	require.Equal(t, string(example), string(written))
}
