package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/store"
	"tidewait/internal/tlstest"
	"tidewait/migrations"
)

// guarded is a Postgres that takes connections over TLS alone, of clients with a
// certificate for their name and a password.
type guarded struct {
	ours, stranger *tlstest.Authority
	client, other  tlstest.Pair
	port           string // with its colon
}

const postgresPassword = "correct-horse"

func startGuarded(t *testing.T) guarded {
	t.Helper()
	stack := devstacktest.Start(t, devstack.Postgres)
	g := guarded{ours: tlstest.NewAuthority(t, "ours"), stranger: tlstest.NewAuthority(t, "another"), port: strings.TrimPrefix(stack.Postgres.Address(), "127.0.0.1")}
	g.client, g.other = g.ours.Client(t, "engine"), g.stranger.Client(t, "engine")
	admin, err := pgx.Connect(t.Context(), stack.PostgresURL)
	require.NoError(t, err)
	defer admin.Close(t.Context())
	var data, hba string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT current_setting('data_directory'), current_setting('hba_file')").Scan(&data, &hba))
	server := g.ours.Server(t, "localhost")
	for name, from := range map[string]string{"server.crt": server.Cert, "server.key": server.Key, "root.crt": g.ours.File} {
		give(t, data, name, from)
	}
	require.NoError(t, os.WriteFile(hba, []byte("local all all trust\nhostssl all engine 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n"), 0o600))
	for _, statement := range []string{
		"CREATE ROLE engine LOGIN PASSWORD '" + postgresPassword + "'", "GRANT ALL ON DATABASE tidewait TO engine", "GRANT ALL ON SCHEMA public TO engine",
		"ALTER SYSTEM SET ssl_ca_file = 'root.crt'", "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()",
	} {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), g.url(g.ours.File, g.client, "verify-full", postgresPassword))
		if err == nil {
			err = conn.Close(t.Context())
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond, "the server takes its new settings")
	return g
}

// give copies a file to a directory, and to who that belongs.
func give(t *testing.T, dir, name, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
}

func (g guarded) url(ca string, client tlstest.Pair, mode, password string) string {
	url := "postgres://engine:" + password + "@localhost" + g.port + "/tidewait?sslmode=" + mode + "&sslrootcert=" + ca
	if client.Cert != "" {
		url += "&sslcert=" + client.Cert + "&sslkey=" + client.Key
	}
	return url
}

// TestPostgresOverTLS opens a real Postgres that wants TLS, a certificate and a
// password, as engines and migrations do.
func TestPostgresOverTLS(t *testing.T) {
	g := startGuarded(t)
	right := g.url(g.ours.File, g.client, "verify-full", postgresPassword)
	_, err := migrations.Apply(t.Context(), right)
	require.NoError(t, err)
	require.NoError(t, migrations.Check(t.Context(), right))
	s, err := store.Open(t.Context(), right, 2, store.Rules{})
	require.NoError(t, err)
	_, err = s.Now(t.Context())
	require.NoError(t, err)
	s.Close()

	for _, c := range []struct{ name, url, want string }{
		{"a stranger's authority", g.url(g.stranger.File, g.client, "verify-full", postgresPassword), "x509: certificate signed by unknown authority; no authority in sslrootcert of postgres.url has issued the server's certificate"},
		{"another host", strings.Replace(right, "localhost", "127.0.0.1", 1), "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs; the server's certificate is of another host than postgres.url names"},
		{"no certificate", g.url(g.ours.File, tlstest.Pair{}, "verify-full", postgresPassword), "connection requires a valid client certificate (SQLSTATE 28000); the server wants a certificate of one of its authorities: name it with sslcert and sslkey in postgres.url"},
		{"a stranger's certificate", g.url(g.ours.File, g.other, "verify-full", postgresPassword), "connection requires a valid client certificate (SQLSTATE 28000); the server wants a certificate of one of its authorities: name it with sslcert and sslkey in postgres.url"},
		{"no TLS", g.url(g.ours.File, tlstest.Pair{}, "disable", postgresPassword), "; the server takes no such connection: it may want TLS, which is sslmode=verify-full in postgres.url"},
		{"another password", g.url(g.ours.File, g.client, "verify-full", "wrong-horse"), "; the server does not know the user in postgres.url, or that password"},
		{"no file", g.url("/nowhere/ca.pem", g.client, "verify-full", postgresPassword), "unable to read CA file: open /nowhere/ca.pem: no such file or directory"},
		{"no such mode", g.url(g.ours.File, g.client, "verify-some", postgresPassword), "sslmode is invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := store.Open(t.Context(), c.url, 2, store.Rules{})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "horse")
			_, err = migrations.Apply(t.Context(), c.url)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "horse")
			err = migrations.Check(t.Context(), c.url)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "horse")
		})
	}
}
