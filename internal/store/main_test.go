package store_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/store"
)

// baseURL is the Postgres that all tests of this package share; each test has a
// database of its own in it.
var baseURL string

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(devstacktest.Main(m, func(s *devstack.Stack) { baseURL = s.PostgresURL }, devstack.Postgres))
}

// rules are short enough for a test to outlast.
var rules = store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour, Ageing: 30 * time.Minute, HeadWindow: 64}

// open gives a test a migrated database of its own.
func open(t testing.TB, r store.Rules) (*store.Store, *pgx.Conn) {
	t.Helper()
	ctx := context.Background()
	url := devstacktest.Database(t, baseURL)
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
