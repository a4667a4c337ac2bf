package access_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/access"
	"tidewait/internal/natstest"
)

// TestUsersInJWTs gives two nodes and an engine their permissions in credentials, as a
// server with an operator has them.
func TestUsersInJWTs(t *testing.T) {
	operator, account := natstest.KeyPair(t, nkeys.CreateOperator), natstest.KeyPair(t, nkeys.CreateAccount)
	known := &server.MemAccResolver{}
	token, err := jwt.NewAccountClaims(natstest.Public(t, account)).Encode(operator)
	require.NoError(t, err)
	require.NoError(t, known.Store(natstest.Public(t, account), token))
	s := natstest.Start(t, &server.Options{TrustedKeys: []string{natstest.Public(t, operator)}, AccountResolver: known})

	engine, _ := connect(t, s, account, access.Engine())
	a, refused := connect(t, s, account, access.Node("node-a"))
	_, err = engine.Subscribe("tidewait.agent.node.*", func(m *nats.Msg) { _ = m.Respond([]byte(m.Subject)) })
	require.NoError(t, err)
	require.NoError(t, engine.Flush())

	reply, err := a.Request("tidewait.agent.node.node-a", nil, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "tidewait.agent.node.node-a", string(reply.Data))

	require.NoError(t, a.Publish("tidewait.agent.node.node-b", nil))
	require.ErrorContains(t, <-refused, `Permissions Violation for Publish to "tidewait.agent.node.node-b"`)
	_, err = a.SubscribeSync("_INBOX.node.node-b.>")
	require.NoError(t, err)
	require.ErrorContains(t, <-refused, `Permissions Violation for Subscription to "_INBOX.node.node-b.>"`)
}

func connect(t *testing.T, s *server.Server, account nkeys.KeyPair, u access.User) (*nats.Conn, <-chan error) {
	t.Helper()
	pair := natstest.KeyPair(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(natstest.Public(t, pair))
	claims.Name = u.Name
	claims.Pub.Allow.Add(u.Publish...)
	claims.Sub.Allow.Add(u.Subscribe...)
	if u.Responds {
		claims.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: 2 * time.Minute}
	}
	token, err := claims.Encode(account)
	require.NoError(t, err)
	seed, err := pair.Seed()
	require.NoError(t, err)
	text, err := jwt.FormatUserConfig(token, seed)
	require.NoError(t, err)
	creds := filepath.Join(t.TempDir(), "user.creds")
	require.NoError(t, os.WriteFile(creds, text, 0o600))
	refused := make(chan error, 10)
	nc, err := config.ConnectNATS(config.NATS{URL: s.ClientURL(), Credentials: creds, InboxPrefix: u.InboxPrefix()}, u.Name, slog.New(slog.DiscardHandler),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc, refused
}
