package store_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/store"
	"tidewait/migrations"
)

// baseURL is the Postgres that all tests of this package share; each test has a
// database of its own in it.
var baseURL string

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	stack, err := devstack.Start(ctx, devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = stack.Stop(ctx) }()
	baseURL = stack.PostgresURL
	return m.Run()
}

var databases atomic.Int64

// rules are short enough for a test to outlast.
var rules = store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour}

// open gives a test a migrated database of its own.
func open(t testing.TB, r store.Rules) (*store.Store, *pgx.Conn) {
	t.Helper()
	ctx := context.Background()
	name := fmt.Sprintf("t%d", databases.Add(1))
	admin, err := pgx.Connect(ctx, baseURL)
	require.NoError(t, err)
	_, err = admin.Exec(ctx, "CREATE DATABASE "+name)
	require.NoError(t, err)
	require.NoError(t, admin.Close(ctx))

	cfg, err := pgx.ParseConfig(baseURL)
	require.NoError(t, err)
	url := fmt.Sprintf("postgres://%s@%s:%d/%s", cfg.User, cfg.Host, cfg.Port, name)
	_, err = migrations.Apply(ctx, url)
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(ctx) })
	return another(t, conn, r), conn
}

// another is a second engine's store on the database of conn.
func another(t testing.TB, conn *pgx.Conn, r store.Rules) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), conn.Config().ConnString(), 20, r)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}
