package migrations_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/migrations"
)

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(m.Run())
}

func TestMigrations(t *testing.T) {
	ctx := context.Background()
	url := devstacktest.Start(t, devstack.Postgres).PostgresURL

	files, err := filepath.Glob("0*.sql") // in order
	require.NoError(t, err)
	latest, err := strconv.Atoi(files[len(files)-1][:5])
	require.NoError(t, err)

	err = migrations.Check(ctx, url)
	require.ErrorIs(t, err, migrations.ErrSchema)
	require.ErrorContains(t, err, "it is at version 0, this binary needs "+strconv.Itoa(latest)+"; run `tidewait-worker migrate`")

	// Several workers may be started at once: each migration runs once.
	applied := make([][]migrations.Applied, 4)
	var g errgroup.Group
	for i := range applied {
		g.Go(func() (err error) {
			applied[i], err = migrations.Apply(ctx, url)
			return err
		})
	}
	require.NoError(t, g.Wait())
	total := 0
	for _, a := range applied {
		total += len(a)
	}
	require.Equal(t, len(files), total)
	require.NoError(t, migrations.Check(ctx, url))

	db, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { _ = db.Close(ctx) }()
	var kind string
	for column, want := range map[string]string{"capacity_blocked_since": "timestamp with time zone", "capacity_note": "text"} {
		require.NoError(t, db.QueryRow(ctx, `
SELECT data_type FROM information_schema.columns WHERE table_name = 'mission_phases' AND column_name = $1`, column).Scan(&kind))
		require.Equal(t, want, kind)
	}

	_, err = db.Exec(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
	require.NoError(t, err)
	err = migrations.Check(ctx, url)
	_, applying := migrations.Apply(ctx, url)
	require.Equal(t, err, applying, "an older release leaves it alone, too")
	require.ErrorIs(t, err, migrations.ErrSchema)
	require.ErrorContains(t, err, "it is at version 99999, this binary knows only "+strconv.Itoa(latest)+"; use a newer tidewait-worker")
}
