package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNATSConfig(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../deploy/nats/nats-server.conf")
	require.NoError(t, err)
	got := tidewait("setup", "nats-config", "--gateway", "gateway-a", "--node", "node-a,node-b", "--lattice", "default")
	require.Equal(t, outcome{code: 0, out: string(example)}, got)
	require.Equal(t, outcome{code: 2, errors: "tidewait: --node \"a.b\" is not a name\n"}, tidewait("setup", "nats-config", "--node", "a.b"))
}

func TestNATSUsers(t *testing.T) {
	t.Parallel()
	got := tidewait("setup", "nats-users", "--node", "node-a", "-o", "json")
	require.Zero(t, got.code, got.errors)
	var users []natsUser
	require.NoError(t, json.Unmarshal([]byte(got.out), &users))
	require.Len(t, users, 5)
	require.Equal(t, "node.node-a", users[1].Name)
	require.Contains(t, users[1].Publish, "tidewait.agent.node.node-a")
	require.Equal(t, []string{"_INBOX.node.node-a.>"}, users[1].Subscribe)
	text := tidewait("setup", "nats-users", "--node", "node-a").out
	require.Contains(t, text, "node.node-a in account TIDEWAIT, nats.inbox_prefix _INBOX.node.node-a\n")
	require.Contains(t, text, "  publish    tidewait.agent.node.node-a\n")
}
