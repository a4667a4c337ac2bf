package main

import (
	"context"
	"fmt"
	"time"
)

// waitingPhases measures the memory and the processor time of the engine's
// process while phases wait and are looked at every ten seconds, beside the same
// process before.
func waitingPhases(ctx context.Context, b *bench) (lines []line, err error) {
	err = b.with(ctx, "waiting", smallNode, []string{"TIDEWAIT_FLEET_RETRY_INTERVAL=10s"}, func(ctx context.Context, p *product) error {
		lines, err = waitMinute(ctx, b, p)
		return err
	})
	return lines, err
}

// observed is what some processes use, and how much of a processor.
type observed struct {
	usage
	share float64 // of one processor, in percent
}

// observe watches processes for a while.
func observe(ctx context.Context, d time.Duration, pids ...int) ([]observed, error) {
	before := make([]usage, len(pids))
	for i, pid := range pids {
		var err error
		if before[i], err = usageOf(pid); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := watch(ctx, d); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after := make([]observed, len(pids))
	for i, pid := range pids {
		u, err := usageOf(pid)
		if err != nil {
			return nil, err
		}
		after[i] = observed{u, 100 * (u.processor - before[i].processor).Seconds() / took.Seconds()}
	}
	return after, nil
}

func waitMinute(ctx context.Context, b *bench, p *product) ([]line, error) {
	n := b.pick(1000, 30)
	span := time.Duration(b.pick(60, 5)) * time.Second
	pids := []int{p.engine.PID(), p.Stack.Temporal.PID(), p.Stack.Postgres.PID()}
	b.say("waiting: watching the idle engine for %s", span)
	idle, err := observe(ctx, span, pids...)
	if err != nil {
		return nil, err
	}
	if _, err := p.launch(ctx, "holder", 1, "sleep 3600"); err != nil {
		return nil, err
	}
	if err := p.untilNumber(ctx, 1, "the holder runs", "SELECT count(*) FROM reservations WHERE released_at IS NULL"); err != nil {
		return nil, err
	}
	b.say("waiting: launching %d missions", n)
	if _, err := p.launchAll(ctx, n, 1, 16, "true", func(i int) string { return fmt.Sprintf("w%d", i) }); err != nil {
		return nil, err
	}
	if err := p.untilNumber(ctx, float64(n), "all phases wait", "SELECT count(*) FROM capacity_waits"); err != nil {
		return nil, err
	}
	b.say("waiting: watching the engine for %s", span)
	passes := "SELECT COALESCE(sum(attempts), 0)::float8 FROM capacity_waits"
	before, err := p.number(ctx, passes)
	if err != nil {
		return nil, err
	}
	busy, err := observe(ctx, span, pids...)
	if err != nil {
		return nil, err
	}
	after, err := p.number(ctx, passes)
	if err != nil {
		return nil, err
	}
	oldest, err := p.number(ctx, "SELECT extract(epoch FROM clock_timestamp() - min(checked_at))::float8 FROM capacity_waits")
	if err != nil {
		return nil, err
	}
	beside := func(measure, unit string, of func(observed) float64, i int) line {
		return line{measure: measure, figure: sample{of(busy[i])}, unit: unit, reference: "the same, idle", known: sample{of(idle[i])}}
	}
	resident := func(o observed) float64 { return o.resident }
	peak := func(o observed) float64 { return o.peak }
	share := func(o observed) float64 { return o.share }
	return []line{
		beside("engine, resident", " MiB", resident, 0),
		beside("engine, resident at most so far", " MiB", peak, 0),
		beside("engine, of one processor", " %", share, 0),
		beside("Temporal, of one processor", " %", share, 1),
		beside("Postgres, of one processor", " %", share, 2),
		{measure: "looks recorded for each phase in a minute", figure: sample{(after - before) / float64(n) * 60 / span.Seconds()}},
		{measure: "age of the oldest look", figure: sample{oldest}, unit: " s", aim: atMost(15)},
	}, nil
}
