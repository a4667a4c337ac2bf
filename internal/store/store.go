// Package store keeps Tidewait's state in Postgres. Nothing above it writes SQL.
//
// Every method is one transaction, is safe for concurrent use by any number of
// processes, and reads time from the database's clock only.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"tidewait/internal/postgres"
)

// Errors that callers decide on. Each is wrapped with what was asked.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("not possible in the present state")
	// ErrStale is of a run that is its phase's no longer: nothing of it may be
	// kept, and trying again does not help.
	ErrStale = errors.New("the run does not count any more")
)

// Rules are the parts of the configuration that decide what rows mean.
type Rules struct {
	SuspectAfter time.Duration // silence after which a node gets no new work
	LostAfter    time.Duration // silence after which a node counts as down
	Ageing       time.Duration // of waiting is worth one step of priority; 0: priority counts for nothing
	HeadWindow   int           // places in line whose record follows every change; further back it is a few seconds old
}

// Store is a pool of connections to one database.
type Store struct {
	pool   *pgxpool.Pool
	rules  Rules
	fleets fleets
	queues queues
	// waitEnded is told of each wait that was ended; nil: nobody is.
	waitEnded func(context.Context, WaitEnd)
}

// Open connects to the database at url with at most maxConns connections.
// It does not touch the schema.
func Open(ctx context.Context, url string, maxConns int32, rules Rules) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres.url: %w", err)
	}
	if maxConns > 0 {
		cfg.MaxConns = maxConns
	}
	// The plans do not depend on the values, and planning costs more than
	// executing for most of these statements.
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	// A process that is frozen, or cut off, in the middle of a transaction would
	// hold its locks, and with them everybody else, for as long as that lasts.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "5000"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to postgres at %s: %w", cfg.ConnConfig.Host, postgres.Explain(err))
	}
	return &Store{pool: pool, rules: rules}, nil
}

// Close ends all connections.
func (s *Store) Close() { s.pool.Close() }

// Now returns the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.pool.QueryRow(ctx, "SELECT now()").Scan(&now)
	return now.UTC(), err
}

const maxTxTries = 5

// tx runs f in a transaction, again when Postgres broke a deadlock or f
// returned errAgain.
func (s *Store) tx(ctx context.Context, f func(pgx.Tx) error) error {
	var err error
	for range maxTxTries {
		var noted noting
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			noted.Tx = tx
			return f(&noted)
		})
		if err == nil {
			s.tell(ctx, &noted)
		}
		if !errors.Is(err, errAgain) && !isSerialization(err) {
			return err
		}
	}
	return fmt.Errorf("gave up after %d tries: %w", maxTxTries, err)
}

// errAgain says that a row changed between the look and the update.
var errAgain = errors.New("a row changed meanwhile")

func isSerialization(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// Unreachable reports whether an error says that the database did not answer,
// and nothing about what was asked: a call that may be repeated can be.
func Unreachable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		const connectionClass, shutdownClass = "08", "57P0"
		return strings.HasPrefix(pg.Code, connectionClass) || strings.HasPrefix(pg.Code, shutdownClass)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded)
}

// exec sends the queued statements in one round trip and returns the first error.
func exec(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
