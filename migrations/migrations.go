// Package migrations holds the database schema as numbered SQL files and
// applies them. Migrations go forward only.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"tidewait/internal/postgres"
)

//go:embed *.sql
var files embed.FS

// ErrSchema says that a database's schema is not the one this binary knows.
var ErrSchema = errors.New("database schema does not fit this binary")

// Applied is one migration that Apply executed.
type Applied struct {
	Version int64
	File    string
}

// Apply brings the database at url up to date. Concurrent callers are held
// back by an advisory lock in the database, so each migration runs once. A
// database that a newer binary has migrated is an error that wraps [ErrSchema].
func Apply(ctx context.Context, url string) ([]Applied, error) {
	p, db, err := provider(url)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	results, err := p.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("apply migrations: %w", postgres.Explain(err))
	}
	current, latest, err := p.GetVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read schema version: %w", postgres.Explain(err))
	}
	if current > latest {
		return nil, newer(current, latest)
	}
	applied := make([]Applied, 0, len(results))
	for _, r := range results {
		applied = append(applied, Applied{Version: r.Source.Version, File: r.Source.Path})
	}
	return applied, nil
}

// Check returns an error that wraps [ErrSchema] unless the database at url has
// exactly the migrations this binary knows.
func Check(ctx context.Context, url string) error {
	p, db, err := provider(url)
	if err != nil {
		return err
	}
	defer db.Close()
	current, latest, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", postgres.Explain(err))
	}
	switch {
	case current < latest:
		return fmt.Errorf("%w: it is at version %d, this binary needs %d; run `tidewait-worker migrate`", ErrSchema, current, latest)
	case current > latest:
		return newer(current, latest)
	}
	return nil
}

func newer(current, latest int64) error {
	return fmt.Errorf("%w: it is at version %d, this binary knows only %d; use a newer tidewait-worker", ErrSchema, current, latest)
}

func provider(url string) (*goose.Provider, *sql.DB, error) {
	sqlFiles, err := fs.Sub(files, ".")
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, fmt.Errorf("open database: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, sqlFiles, goose.WithSessionLocker(locker))
	if err != nil {
		db.Close()
		return nil, nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, db, nil
}
