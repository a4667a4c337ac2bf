package wadmapi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/wadm"
	"tidewait/internal/wadmapi"
)

// natsAccounts has an account for the server and one for each tenant. Tenants
// use the subjects of a single tenant; NATS puts the account's token before them.
const natsAccounts = `
listen: "127.0.0.1:-1"
jetstream: { store_dir: %q }
accounts: {
  SERVER: {
    jetstream: enabled
    users: [ { user: server, password: s } ]
    exports: [ { service: "*.wadm.api.>" }, { stream: "*.wadm.status.>" }, { stream: "*.wadm.evt.>" } ]
  }
  ACME: {
    users: [ { user: acme, password: s } ]
    imports: [
      { service: { account: SERVER, subject: "ACME.wadm.api.>" }, to: "wadm.api.>" }
      { stream: { account: SERVER, subject: "ACME.wadm.status.>" }, to: "wadm.status.>" }
    ]
  }
  OTHER: {
    users: [ { user: other, password: s } ]
    imports: [
      { service: { account: SERVER, subject: "OTHER.wadm.api.>" }, to: "wadm.api.>" }
      { stream: { account: SERVER, subject: "OTHER.wadm.status.>" }, to: "wadm.status.>" }
    ]
  }
}
`

func accountsServer(t *testing.T) (login func(user string) *nats.Conn) {
	t.Helper()
	store, err := json.Marshal(t.TempDir())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(natsAccounts, "%q", string(store), 1)), 0o600))
	o, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	s := natstest.Start(t, o)
	return func(user string) *nats.Conn {
		conn, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "s"))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		return conn
	}
}

// Tenants in NATS accounts of their own, with clients that know nothing of it.
func TestTenantsInNATSAccounts(t *testing.T) {
	login := accountsServer(t)
	dbURL, _ := database(t)
	db := openStore(t, dbURL)
	settings := defaults
	settings.Multitenant = true
	serve(t, &wadmapi.Server{Store: db, NATS: login("server"), Settings: settings, Log: quiet()})
	js, err := jetstream.New(login("server"))
	require.NoError(t, err)
	p := &wadmapi.Publisher{JS: js, Multitenant: true}

	acme, other := wadm.Client{Conn: login("acme")}, wadm.Client{Conn: login("other")}
	acmeStatus, err := acme.Conn.SubscribeSync("wadm.status.default.shop")
	require.NoError(t, err)
	otherStatus, err := other.Conn.SubscribeSync("wadm.status.default.shop")
	require.NoError(t, err)
	require.NoError(t, acme.Conn.Flush())
	require.NoError(t, other.Conn.Flush())

	ctx := t.Context()
	_, err = acme.Put(ctx, []byte(manifest("shop", "v1")))
	require.NoError(t, err)
	_, err = other.Put(ctx, []byte(manifest("shop", "v2")))
	require.NoError(t, err)
	_, err = acme.Deploy(ctx, "shop", nil)
	require.NoError(t, err)
	tell(t, &api{store: db}, p)

	seen, err := acmeStatus.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Contains(t, string(seen.Data), `"waiting"`)
	require.NoError(t, other.Conn.Flush())
	pending, _, err := otherStatus.Pending()
	require.NoError(t, err)
	require.Zero(t, pending, "another account's status")

	versions, err := other.Versions(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, []wadm.VersionInfo{{Version: "v2"}}, []wadm.VersionInfo(versions.Versions))
	status, err := other.Status(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, wadm.Undeployed, status.Status.Status.Type)
	list, err := acme.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "v1", *list[0].DeployedVersion)
}
