package config_test

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/natstest"
	"tidewait/internal/tlstest"
)

var quiet = slog.New(slog.DiscardHandler)

func TestConnectNATSComesBack(t *testing.T) {
	first := natstest.Start(t, &server.Options{})
	port := first.Addr().(*net.TCPAddr).Port
	conn, err := config.ConnectNATS(config.NATS{URL: first.ClientURL()}, "test", quiet)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, "test", conn.Opts.Name)
	require.Equal(t, -1, conn.Opts.MaxReconnect)

	first.Shutdown()
	first.WaitForShutdown()
	natstest.Start(t, &server.Options{Port: port})
	// Being connected is not enough: the end of the first server may not have
	// been noticed yet.
	require.Eventually(t, func() bool { return conn.Stats().Reconnects == 1 && conn.IsConnected() }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, conn.FlushTimeout(5*time.Second))
}

func TestConnectNATSTellsWhere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, err = config.ConnectNATS(config.NATS{URL: "nats://me:secret@" + address}, "test", quiet)
	require.EqualError(t, err, "cannot connect to NATS at nats://"+address+": nats: no servers available for connection")
}

func TestConnectNATSWithTLS(t *testing.T) {
	authority, stranger := tlstest.NewAuthority(t, "ours"), tlstest.NewAuthority(t, "another")
	mutual := natstest.Start(t, &server.Options{TLS: true, TLSVerify: true, TLSTimeout: 5, TLSConfig: authority.Config(t, authority.Server(t), true)})
	client, other := authority.Client(t, "node-a"), stranger.Client(t, "node-a")
	elsewhere := natstest.Start(t, &server.Options{TLS: true, TLSTimeout: 5, TLSConfig: authority.Config(t, authority.Server(t, "nats.example.com"), false)})
	bare := natstest.Start(t, &server.Options{})
	nothing := write(t, filepath.Join(t.TempDir(), "nothing.pem"), "nothing")
	const refused = "cannot connect to NATS at "

	for _, c := range []struct {
		name string
		nats config.NATS
		want string // empty: it connects
	}{
		{"authority and certificate", config.NATS{URL: mutual.ClientURL(), CA: authority.File, Cert: client.Cert, Key: client.Key}, ""},
		{
			"no certificate",
			config.NATS{URL: mutual.ClientURL(), CA: authority.File},
			refused + mutual.ClientURL() + ": …; the server refuses a client without a certificate: give it one with nats.cert and nats.key",
		},
		{
			"a stranger's certificate",
			config.NATS{URL: mutual.ClientURL(), CA: authority.File, Cert: other.Cert, Key: other.Key},
			refused + mutual.ClientURL() + ": …; the server refuses the certificate of nats.cert (" + other.Cert + ")",
		},
		{
			"no authority",
			config.NATS{URL: mutual.ClientURL(), Cert: client.Cert, Key: client.Key},
			refused + mutual.ClientURL() + ": nats: tls error: tls: failed to verify certificate: x509: certificate signed by unknown authority; no authority of this machine has issued the server's certificate: name the one that has with nats.ca",
		},
		{
			"a stranger's authority",
			config.NATS{URL: mutual.ClientURL(), CA: stranger.File, Cert: client.Cert, Key: client.Key},
			refused + mutual.ClientURL() + ": nats: tls error: tls: failed to verify certificate: x509: certificate signed by unknown authority; no authority in nats.ca (" + stranger.File + ") has issued the server's certificate",
		},
		{
			"another host",
			config.NATS{URL: elsewhere.ClientURL(), CA: authority.File},
			refused + elsewhere.ClientURL() + ": nats: tls error: tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs; the server's certificate is of another host than nats.url names",
		},
		{
			"no TLS",
			config.NATS{URL: bare.ClientURL(), CA: authority.File},
			refused + bare.ClientURL() + ": nats: secure connection not available; the server speaks no TLS, and nats.url or nats.ca asks for it",
		},
		{"no file", config.NATS{URL: mutual.ClientURL(), CA: "/nowhere/ca.pem"}, `nats.ca = "/nowhere/ca.pem": open /nowhere/ca.pem: no such file or directory`},
		{"no authorities in it", config.NATS{URL: mutual.ClientURL(), CA: nothing}, `nats.ca = "` + nothing + `": want certificates of authorities in PEM`},
		{
			"the key of another",
			config.NATS{URL: mutual.ClientURL(), CA: authority.File, Cert: client.Cert, Key: other.Key},
			`nats.cert = "` + client.Cert + `", nats.key = "` + other.Key + `": tls: private key does not match public key`,
		},
	} {
		t.Run(c.name, func(t *testing.T) { connects(t, c.nats, c.want) })
	}
}

// connects wants a refusal, or a connection where that is empty. What stands for … may
// be anything: a server may close the connection before its client has read why.
func connects(t *testing.T, n config.NATS, refusal string) {
	t.Helper()
	conn, err := config.ConnectNATS(n, "test", quiet)
	if refusal == "" {
		require.NoError(t, err)
		require.NoError(t, conn.FlushTimeout(time.Minute))
		conn.Close()
		return
	}
	before, after, _ := strings.Cut(refusal, "…")
	require.Error(t, err)
	require.True(t, strings.HasPrefix(err.Error(), before) && strings.HasSuffix(err.Error(), after), err.Error())
}

func TestConnectNATSWithCredentials(t *testing.T) {
	operator, account := natstest.KeyPair(t, nkeys.CreateOperator), natstest.KeyPair(t, nkeys.CreateAccount)
	accountJWT, err := jwt.NewAccountClaims(natstest.Public(t, account)).Encode(operator)
	require.NoError(t, err)
	accounts := &server.MemAccResolver{}
	require.NoError(t, accounts.Store(natstest.Public(t, account), accountJWT))
	authority := tlstest.NewAuthority(t, "ours")
	s := natstest.Start(t, &server.Options{
		TrustedKeys: []string{natstest.Public(t, operator)}, AccountResolver: accounts,
		TLS: true, TLSTimeout: 5, TLSConfig: authority.Config(t, authority.Server(t), false),
	})
	known := credentials(t, account, time.Time{})
	stranger := credentials(t, natstest.KeyPair(t, nkeys.CreateAccount), time.Time{})
	expired := credentials(t, account, time.Now().Add(-time.Hour))
	nothing := write(t, filepath.Join(t.TempDir(), "nothing.creds"), "nothing")
	refused := "cannot connect to NATS at " + s.ClientURL() + ": nats: Authorization Violation; the server does not know "

	for _, c := range []struct {
		name string
		nats config.NATS
		want string // empty: it connects
	}{
		{"credentials", config.NATS{URL: s.ClientURL(), CA: authority.File, Credentials: known}, ""},
		{"none", config.NATS{URL: s.ClientURL(), CA: authority.File}, refused + "a user without a name: give one with nats.credentials, nats.cert, or in nats.url"},
		{"of another account", config.NATS{URL: s.ClientURL(), CA: authority.File, Credentials: stranger}, refused + "the user of nats.credentials (" + stranger + ")"},
		{"expired", config.NATS{URL: s.ClientURL(), CA: authority.File, Credentials: expired}, refused + "the user of nats.credentials (" + expired + ")"},
		{
			"a password",
			config.NATS{URL: "tls://me:secret@" + s.Addr().String(), CA: authority.File},
			"cannot connect to NATS at tls://" + s.Addr().String() + ": nats: Authorization Violation; the server does not know the user in nats.url, or that password",
		},
		{
			"no file",
			config.NATS{URL: s.ClientURL(), Credentials: "/nowhere/me.creds"},
			`nats.credentials = "/nowhere/me.creds": open /nowhere/me.creds: no such file or directory`,
		},
		{"no user in it", config.NATS{URL: s.ClientURL(), Credentials: nothing}, `nats.credentials = "` + nothing + `": want the JWT and the seed of a user, as nsc writes them`},
	} {
		t.Run(c.name, func(t *testing.T) { connects(t, c.nats, c.want) })
	}
}

// credentials makes a user of an account and returns the file that it connects with.
func credentials(t *testing.T, account nkeys.KeyPair, expires time.Time) string {
	t.Helper()
	user := natstest.KeyPair(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(natstest.Public(t, user))
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	token, err := claims.Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	text, err := jwt.FormatUserConfig(token, seed)
	if err != nil { // it would not write a user that has expired
		text = []byte("-----BEGIN NATS USER JWT-----\n" + token + "\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n")
	}
	return write(t, filepath.Join(t.TempDir(), "user.creds"), string(text))
}
