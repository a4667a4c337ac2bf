package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewait/internal/capacity"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// longQueue measures passes over a queue of ten thousand phases, of ten shapes,
// in front of a full fleet: how long one takes, how soon freed capacity is given
// to the head, how many are placed a second, and what it costs when nothing
// happens. No Temporal takes part.
func longQueue(ctx context.Context, b *bench) ([]line, error) {
	q := &queueing{placing: placing{bench: b}}
	stop, err := q.start(ctx, "queue", q.fill)
	if err != nil {
		return nil, err
	}
	lines, err := q.measure(ctx)
	return lines, errors.Join(err, stop())
}

// queueing is the state of the section.
type queueing struct {
	placing
	running []int64 // phases that hold a node, the longest first
	waiting []int64
}

const (
	nodesInQueue  = 1000
	runsOfEach    = 4 // of a node, which is full then
	shapesInQueue = 10
	retryInterval = 10 * time.Second
)

// fill registers the nodes, fills them with runs, and lets the queue grow.
func (q *queueing) fill(ctx context.Context) error {
	return q.fillTo(ctx, q.pick(nodesInQueue, 50), runsOfEach, q.pick(10_000, 500))
}

// fillTo does so with so many nodes, so many runs on each, and so many phases that
// wait.
func (q *queueing) fillTo(ctx context.Context, nodes, runs, length int) error {
	q.say("queue: %d nodes, %d runs on each, and %d phases that wait", nodes, runs, length)
	err := q.register(ctx, nodes, capacity.Resources{CPUMilli: 1000 * int64(runs), MemoryMiB: 64 << 10, DiskMiB: 1 << 20, Slots: 64})
	if err != nil {
		return err
	}
	if q.running, err = q.launchShapes(ctx, nodes*runs); err != nil {
		return err
	}
	if err := q.askAll(ctx, q.running, nodes*runs); err != nil {
		return err
	}
	return q.lengthen(ctx, length)
}

// launchShapes launches n phases, which ask for a little more memory each until
// the shapes repeat.
func (q *queueing) launchShapes(ctx context.Context, n int) ([]int64, error) {
	const each = 100 // of a mission
	ids := make([]int64, 0, n)
	for len(ids) < n {
		q.launches++
		name := fmt.Sprintf("m%d", q.launches)
		d := store.Draft{
			Name: name, Actor: "bench", WorkflowRun: name, Priority: 50,
			Document: json.RawMessage(`{"name":"` + name + `","spec":{"backend":"process","phases":[]}}`),
		}
		for p := range min(each, n-len(ids)) {
			d.Phases = append(d.Phases, store.DraftPhase{
				Name: fmt.Sprintf("p%d", p), Turn: time.Hour, MaxWait: 2 * time.Hour,
				Demand: capacity.Demand{Backend: pool, Resources: capacity.Resources{
					CPUMilli: 1000, MemoryMiB: 512 + int64(p%shapesInQueue), DiskMiB: 64, Slots: 1,
				}},
			})
		}
		l, refused, err := q.store.Launch(ctx, d)
		if err != nil {
			return nil, err
		}
		if len(refused) > 0 {
			return nil, fmt.Errorf("a launch was refused: %s", refused[0].Refusal.Sentence)
		}
		for _, p := range l.Phases {
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}

// askAll lets phases ask, many in a pass, and expects so many of them to be
// placed.
func (q *queueing) askAll(ctx context.Context, ids []int64, want int) error {
	const each = 1000
	placed := 0
	for i := 0; i < len(ids); i += each {
		var looks []store.Look
		for _, id := range ids[i:min(i+each, len(ids))] {
			looks = append(looks, look(id))
		}
		res, err := q.store.Pass(ctx, pool, looks, ledger.WakeFirst)
		if err != nil {
			return err
		}
		placed += res.Admitted
	}
	if placed != want {
		return fmt.Errorf("%d phases were placed, not %d", placed, want)
	}
	return nil
}

func (q *queueing) measure(ctx context.Context) ([]line, error) {
	began, err := q.processorTimes()
	if err != nil {
		return nil, err
	}
	quiet, err := q.passes(ctx, q.repetitions(200, 10))
	if err != nil {
		return nil, err
	}
	ended, err := q.processorTimes()
	if err != nil {
		return nil, err
	}
	each := func(i int) sample { return sample{milliseconds(ended[i]-began[i]) / float64(len(quiet))} }
	freed, err := q.freedToHead(ctx, q.repetitions(100, 5))
	if err != nil {
		return nil, err
	}
	rate, err := q.batches(ctx, batchSize, q.rounds(9, 2))
	if err != nil {
		return nil, err
	}
	large, err := q.batches(ctx, q.pick(largeBatch, batchSize), q.rounds(5, 2))
	if err != nil {
		return nil, err
	}
	idle, err := q.idle(ctx)
	if err != nil {
		return nil, err
	}
	return append([]line{
		{measure: "a pass in which nothing changed, p50", figure: quiet.medians(parts), unit: " ms"},
		{measure: "a pass in which nothing changed, p99", figure: sample{quiet.quantile(0.99)}, unit: " ms", aim: atMost(250)},
		{measure: "its processor time in placer and store", figure: each(0), unit: " ms"},
		{measure: "its processor time in Postgres", figure: each(1), unit: " ms"},
		{measure: "freed capacity to the head's placement, p50", figure: freed.medians(parts), unit: " ms", aim: atMost(50)},
		{measure: "freed capacity to the head's placement, p99", figure: sample{freed.quantile(0.99)}, unit: " ms", aim: atMost(250)},
		{measure: fmt.Sprintf("placed out of the queue, %d a pass", batchSize), figure: rate, unit: "/s"},
		{measure: fmt.Sprintf("placed out of the queue, %d a pass", largeBatch), figure: large, unit: "/s", aim: atLeast(25_000)},
	}, idle...), nil
}

// passes is how long n passes take, one after the other, in milliseconds.
func (q *queueing) passes(ctx context.Context, n int) (took sample, err error) {
	q.say("queue: %d passes", n)
	for range n {
		began := time.Now()
		if _, err := q.store.Pass(ctx, pool, nil, ledger.WakeEvent); err != nil {
			return nil, err
		}
		took = append(took, milliseconds(time.Since(began)))
	}
	return took, nil
}

// freedToHead ends n runs one by one and waits for the placer to give their room to
// the head of the queue, in milliseconds from the commit that freed it.
func (q *queueing) freedToHead(ctx context.Context, n int) (took sample, err error) {
	q.say("queue: freeing %d nodes, one by one", n)
	told := make(chan struct{}, 1)
	placer, stop := q.placerThatTells(ctx, func() { told <- struct{}{} })
	defer stop()
	for range n {
		if err := q.finish(ctx, q.running[0]); err != nil {
			return nil, err
		}
		began := time.Now()
		placer.Wake(ctx)
		select {
		case <-told:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		took = append(took, milliseconds(time.Since(began)))
		q.moveUp(1)
	}
	return took, nil
}

// moveUp says that runs ended and that the first in line run instead.
func (q *queueing) moveUp(n int) {
	q.running = append(q.running[n:], q.waiting[:n]...)
	q.waiting = q.waiting[n:]
}

func (q *queueing) placerThatTells(ctx context.Context, tell func()) (*engine.Placer, func()) {
	ctx, cancel := context.WithCancel(ctx)
	p := engine.NewPlacer(ctx, q.store, retryInterval, tell, slog.New(slog.DiscardHandler))
	return p, func() { cancel(); p.Wait() }
}

// batches is how many phases a second are placed when n runs end at a time. The
// queue stays as long as it is.
func (q *queueing) batches(ctx context.Context, n, rounds int) (rates sample, err error) {
	q.say("queue: ending %d runs at a time", n)
	length := len(q.waiting)
	for range rounds {
		if err := q.clear(ctx, [][]int64{q.running[:n/2], q.running[n/2 : n]}); err != nil {
			return nil, err
		}
		began := time.Now()
		res, err := q.store.Pass(ctx, pool, nil, ledger.WakeEvent)
		if err != nil {
			return nil, err
		}
		if res.Admitted != n {
			return nil, errNotPlaced
		}
		rates = append(rates, float64(n)/time.Since(began).Seconds())
		q.moveUp(n)
		if err := q.lengthen(ctx, length); err != nil {
			return nil, err
		}
	}
	return rates, nil
}

// idle watches this process and Postgres while every phase in line asks again
// when it should, and nothing else happens.
func (q *queueing) idle(ctx context.Context) ([]line, error) {
	span := time.Duration(q.repetitions(60, 12)) * time.Second
	q.say("queue: watching %s in which nothing happens", span)
	placer, stop := q.placerThatTells(ctx, func() {})
	defer stop()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	g, asking := errgroup.WithContext(asking)
	asks := 0
	g.Go(func() error { return q.askAsTheyShould(asking, placer, &asks) })
	oldest := 0.0
	g.Go(func() error { return q.watchAge(asking, &oldest) })
	used, err := q.shares(ctx, span)
	cancel()
	if waited := g.Wait(); !errors.Is(waited, context.Canceled) {
		err = errors.Join(err, waited)
	}
	if err != nil {
		return nil, err
	}
	return []line{
		{measure: "nothing happens: retries a second", figure: sample{float64(asks) / span.Seconds()}, unit: "/s"},
		{measure: "nothing happens: placer and store, of one processor", figure: sample{used[0]}, unit: " %"},
		{measure: "nothing happens: Postgres, of one processor", figure: sample{used[1]}, unit: " %"},
		{measure: "nothing happens: the oldest look", figure: sample{oldest}, unit: " s", aim: atMost(15)},
	}, nil
}

// shares are the parts of one processor that this process and Postgres use for a
// while, in percent.
func (q *queueing) shares(ctx context.Context, span time.Duration) (used [2]float64, err error) {
	began, err := q.processorTimes()
	if err != nil {
		return used, err
	}
	if err := watch(ctx, span); err != nil {
		return used, err
	}
	ended, err := q.processorTimes()
	for i := range used {
		used[i] = 100 * (ended[i] - began[i]).Seconds() / span.Seconds()
	}
	return used, err
}

// askAsTheyShould retries as Temporal would: the head window every interval, and
// those behind it so much later that together they ask about as often as five
// windows.
func (q *queueing) askAsTheyShould(ctx context.Context, placer *engine.Placer, asks *int) error {
	const window, windows = 64, 8
	tick := time.NewTicker(retryInterval / (window * windows))
	defer tick.Stop()
	g, ctx := errgroup.WithContext(ctx)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), g.Wait())
		case <-tick.C:
		}
		*asks++
		id := q.waiting[i/windows%window]
		if i%windows > 0 {
			id = q.waiting[(i*37)%len(q.waiting)]
		}
		g.Go(func() error {
			l := look(id)
			l.Wake = ledger.WakeTimer
			_, err := placer.Look(ctx, pool, l)
			return err
		})
	}
}

// watchAge finds the age of the oldest look there ever is, in seconds.
func (q *queueing) watchAge(ctx context.Context, oldest *float64) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		var age float64
		err := q.plain.QueryRow(ctx, "SELECT extract(epoch FROM clock_timestamp() - min(checked_at))::float8 FROM capacity_waits").Scan(&age)
		if err != nil {
			return err
		}
		*oldest = max(*oldest, age)
	}
}
