package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// waitingPhases measures what phases cost while they wait for a node, through
// Temporal, at two sizes of the queue, and how fast the heads of the longer one
// are placed when the node is freed again and again.
func waitingPhases(ctx context.Context, b *bench) (lines []line, err error) {
	env := []string{"TIDEWAIT_FLEET_RETRY_INTERVAL=10s", "TIDEWAIT_FLEET_HEAD_WINDOW=64"}
	err = b.with(ctx, "waiting", smallNode, env, func(ctx context.Context, p *product) error {
		w := &waits{bench: b, product: p}
		lines, err = w.measure(ctx)
		return err
	})
	return lines, err
}

// waits is the state of the section.
type waits struct {
	*bench
	product *product
	count   *counting
	there   int // phases that wait
}

// waited is what a span of time cost.
type waited struct {
	counters // a minute
	used     []observed
	phases   int
	tries    float64 // by the phases themselves, a minute
	oldest   float64 // seconds since the oldest look
}

func (w *waits) span() time.Duration { return time.Duration(w.repetitions(60, 10)) * time.Second }

func (w *waits) measure(ctx context.Context) ([]line, error) {
	var err error
	w.say("waiting: watching the idle product for %s", w.span())
	if w.count, err = newCounting(ctx, w.product, time.Second); err != nil {
		return nil, err
	}
	defer w.count.close()
	w.count.idle = counters{} // it is what everything is compared with
	idle, err := w.watch(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := w.product.launch(ctx, "holder", 1, "sleep 3600; true"); err != nil {
		return nil, err
	}
	if err := w.product.untilNumber(ctx, 1, "the holder runs", "SELECT count(*) FROM reservations WHERE released_at IS NULL"); err != nil {
		return nil, err
	}
	var lines []line
	for _, n := range []int{w.pick(100, 10), w.pick(500, 30)} {
		full, err := w.with(ctx, n)
		if err != nil {
			return nil, err
		}
		lines = append(lines, full.lines(idle)...)
	}
	freed, err := w.free(ctx, w.repetitions(100, 10))
	return append(lines, freed...), err
}

// with lets n phases wait and watches them.
func (w *waits) with(ctx context.Context, n int) (waited, error) {
	w.say("waiting: %d phases", n)
	from := w.there
	_, err := w.product.launchAll(ctx, n-from, 1, 8, "true", func(i int) string { return fmt.Sprintf("w%d", from+i) })
	if err != nil {
		return waited{}, err
	}
	w.there = n
	if err := w.product.untilNumber(ctx, float64(n), "all phases wait", "SELECT count(*) FROM capacity_waits"); err != nil {
		return waited{}, err
	}
	if err := watch(ctx, metricsLag); err != nil {
		return waited{}, err
	}
	return w.watch(ctx)
}

// watch measures what a span costs.
func (w *waits) watch(ctx context.Context) (waited, error) {
	p := w.product
	const triesSQL = "SELECT COALESCE(sum((tries ->> 'timer')::float8), 0) FROM capacity_waits"
	before, err := p.number(ctx, triesSQL)
	if err != nil {
		return waited{}, err
	}
	got := waited{phases: w.there}
	began := time.Now()
	total, err := w.count.count(ctx, func(ctx context.Context) (err error) {
		got.used, err = observe(ctx, w.span(), p.engine.PID(), p.Stack.Temporal.PID(), p.Stack.Postgres.PID())
		return err
	})
	if err != nil {
		return waited{}, err
	}
	minutes := time.Since(began).Minutes()
	after, err := p.number(ctx, triesSQL)
	if err != nil {
		return waited{}, err
	}
	got.persistence, got.transactions, got.writes = total.persistence/minutes, total.transactions/minutes, total.writes/minutes
	got.tries = (after - before) / minutes
	got.oldest, err = p.number(ctx, "SELECT COALESCE(extract(epoch FROM clock_timestamp() - min(checked_at)), 0)::float8 FROM capacity_waits")
	return got, err
}

func (g waited) lines(idle waited) []line {
	who := fmt.Sprintf("%d wait: ", g.phases)
	beside := func(measure, unit string, of func(waited) float64) line {
		return line{measure: who + measure, figure: sample{of(g)}, unit: unit, reference: "the same, idle", known: sample{of(idle)}}
	}
	share := func(i int) func(waited) float64 { return func(g waited) float64 { return g.used[i].share } }
	each := (g.persistence - idle.persistence) / g.tries
	return []line{
		beside("Temporal persistence requests a minute", "", func(g waited) float64 { return g.persistence }),
		beside("Postgres transactions a minute", "", func(g waited) float64 { return g.transactions }),
		beside("of those, writing", "", func(g waited) float64 { return g.writes }),
		beside("engine, of one processor", " %", share(0)),
		beside("Temporal, of one processor", " %", share(1)),
		beside("Postgres, of one processor", " %", share(2)),
		beside("engine, resident", " MiB", func(g waited) float64 { return g.used[0].resident }),
		{measure: who + "tries a minute", figure: sample{g.tries}},
		{measure: who + "persistence requests for each of them", figure: sample{each}},
		{measure: who + "age of the oldest look", figure: sample{g.oldest}, unit: " s", aim: atMost(15)},
		{
			measure: who + "persistence requests a minute of 10,000 that wait, calculated",
			figure:  sample{idle.persistence + each*triesOf(10_000)},
		},
	}
}

// triesOf is how often in a minute n phases try that have waited for a while:
// every ten seconds in the head window, and less often the further behind it, but
// at least every five minutes.
func triesOf(n int) float64 {
	const interval, window, longest = 10, 64, 300
	tries := 0.0
	for position := 1; position <= n; position++ {
		tries += 60 / min(max(interval, interval*float64(position)/window), longest)
	}
	return tries
}

const handedOverSQL = `
WITH freed AS (SELECT id, phase_id, lag(released_at) OVER (ORDER BY id) AS at FROM reservations)
SELECT extract(epoch FROM h.ended_at - f.at)::float8 * 1000
FROM freed f JOIN wait_history h ON h.phase_id = f.phase_id AND h.kind = 'capacity' WHERE f.at IS NOT NULL ORDER BY f.id LIMIT $1`

// free ends the holder, so that phase after phase gets the node that the one
// before it has left.
func (w *waits) free(ctx context.Context, n int) ([]line, error) {
	w.say("waiting: the node is freed %d times", n)
	h := &handovers{bench: w.bench, product: w.product}
	if err := h.endHolder(ctx); err != nil {
		return nil, err
	}
	if err := w.product.untilNumber(ctx, float64(n+2), "phases are placed", "SELECT count(*) FROM reservations"); err != nil {
		return nil, err
	}
	rows, err := w.product.db.Query(ctx, handedOverSQL, n)
	if err != nil {
		return nil, err
	}
	took, err := pgx.CollectRows(rows, pgx.RowTo[float64])
	if err != nil {
		return nil, err
	}
	placed := sample(took)
	of := fmt.Sprintf("%d wait: freed capacity to the head's placement, ", w.there)
	return []line{
		{measure: of + fmt.Sprintf("p50 of %d", len(placed)), name: of + "p50", figure: placed.medians(parts), unit: " ms"},
		{measure: of + "p99", figure: sample{placed.quantile(0.99)}, unit: " ms", aim: atMost(250)},
	}, nil
}
