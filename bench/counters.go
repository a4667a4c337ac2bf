package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	temporallog "go.temporal.io/sdk/log"
)

// counters are what Postgres and Temporal have done so far.
type counters struct {
	transactions float64 // committed in the product's database
	writes       float64 // of those, transactions that changed something
	persistence  float64 // requests of Temporal to its database
	at           time.Time
}

func (c counters) minus(before counters) counters {
	return counters{
		transactions: c.transactions - before.transactions, writes: c.writes - before.writes,
		persistence: c.persistence - before.persistence, at: before.at,
	}
}

// without takes away what an idle product does in the same time.
func (c counters) without(idle counters, idleFor, took time.Duration) counters {
	share := took.Seconds() / idleFor.Seconds()
	return counters{
		transactions: c.transactions - idle.transactions*share, writes: c.writes - idle.writes*share,
		persistence: c.persistence - idle.persistence*share, at: c.at,
	}
}

// each is the share of one of n.
func (c counters) each(n int) counters {
	return counters{
		transactions: c.transactions / float64(n), writes: c.writes / float64(n),
		persistence: c.persistence / float64(n), at: c.at,
	}
}

// counting reads counters. Its connection is to another database, so that it
// does not count itself.
type counting struct {
	product *product
	db      *pgx.Conn
	idle    counters // in idleFor
	idleFor time.Duration
}

func newCounting(ctx context.Context, p *product, idleFor time.Duration) (*counting, error) {
	address, err := url.Parse(p.Stack.PostgresURL)
	if err != nil {
		return nil, err
	}
	address.Path = "/postgres"
	c := &counting{product: p}
	if c.db, err = pgx.Connect(ctx, address.String()); err != nil {
		return nil, err
	}
	before, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := watch(ctx, idleFor); err != nil {
		return nil, err
	}
	after, err := c.read(ctx)
	c.idle, c.idleFor = after.minus(before), after.at.Sub(before.at)
	return c, err
}

func (c *counting) close() { _ = c.db.Close(context.Background()) }

// count returns what f makes Postgres and Temporal do, beyond what they do anyway.
func (c *counting) count(ctx context.Context, f func(context.Context) error) (counters, error) {
	before, err := c.read(ctx)
	if err != nil {
		return counters{}, err
	}
	if err := f(ctx); err != nil {
		return counters{}, err
	}
	after, err := c.read(ctx)
	return after.minus(before).without(c.idle, c.idleFor, after.at.Sub(before.at)), err
}

// flushedSQL tells whether every session has reported its transactions: Postgres
// does so when a session is used a second after its last report, or has been
// idle for ten.
const flushedSQL = `
SELECT COALESCE(bool_and(state = 'idle' AND (state_change > $1::timestamptz + interval '1100 ms'
    OR state_change < clock_timestamp() - interval '10200 ms')), true)
FROM pg_stat_activity WHERE datname = 'tidewait' AND backend_type = 'client backend' AND pid <> $2`

func (c *counting) read(ctx context.Context) (counters, error) {
	n := counters{}
	var err error
	if n.persistence, err = persistenceRequests(ctx, c.product.Stack.MetricsURL); err != nil {
		return n, err
	}
	if err := c.db.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::float8, clock_timestamp()").Scan(&n.writes, &n.at); err != nil {
		return n, err
	}
	own := c.product.db.PgConn().PID()
	err = until(ctx, "every session of Postgres has reported its transactions", func(ctx context.Context) (flushed bool, err error) {
		err = c.db.QueryRow(ctx, flushedSQL, n.at, own).Scan(&flushed)
		return flushed, err
	})
	if err != nil {
		return n, err
	}
	err = c.db.QueryRow(ctx, "SELECT xact_commit, clock_timestamp() FROM pg_stat_database WHERE datname = 'tidewait'").Scan(&n.transactions, &n.at)
	return n, err
}

// persistenceRequests asks Temporal for its own count.
func persistenceRequests(ctx context.Context, address string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask Temporal for its metrics: %w", err)
	}
	defer response.Body.Close()
	return sumOf(response.Body, "persistence_requests")
}

// sumOf adds the values of a metric over all its labels, in Prometheus's text
// form.
func sumOf(metrics io.Reader, name string) (float64, error) {
	var sum float64
	found := false
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum, found = sum+value, true
	}
	if !found && lines.Err() == nil {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return sum, lines.Err()
}

// quietLogger is for clients whose words would stand between the tables.
func quietLogger() temporallog.Logger {
	return temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler))
}
