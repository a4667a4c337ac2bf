package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/wadm"
)

// steady looks at the product while nothing is to be done: without hosts, with
// hosts, and with applications on them.
type steady struct {
	*reconciling
	empty, hosted rest
}

// rest is what a time of rest costs.
type rest struct {
	engine, temporal observed
	persistence      float64 // a minute
	beats            float64 // heartbeats of hosts, a minute
}

func (m *reconciling) rest(ctx context.Context, d time.Duration) (rest, error) {
	var beats atomic.Int64
	sub, err := m.product.nats.Subscribe("wasmbus.evt."+wadm.DefaultLattice+".host_heartbeat", func(*nats.Msg) { beats.Add(1) })
	if err != nil {
		return rest{}, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	before, err := persistenceRequests(ctx, m.product.Stack.MetricsURL)
	if err != nil {
		return rest{}, err
	}
	began := time.Now()
	used, err := observe(ctx, d, m.product.engine.PID(), m.product.Stack.Temporal.PID())
	if err != nil {
		return rest{}, err
	}
	after, err := persistenceRequests(ctx, m.product.Stack.MetricsURL)
	minutes := time.Since(began).Minutes()
	return rest{used[0], used[1], (after - before) / minutes, float64(beats.Load()) / minutes}, err
}

// metricsLag is how long it takes until Temporal shows what it has done: the
// questions about histories would be counted otherwise.
const metricsLag = 15 * time.Second

func (s *steady) span() time.Duration { return time.Duration(s.repetitions(60, 5)) * time.Second }

// without measures what comes before the applications.
func (s *steady) without(ctx context.Context) (err error) {
	s.say("reconcile: watching the engine without hosts")
	if s.empty, err = s.rest(ctx, s.span()/3); err != nil {
		return err
	}
	if err := s.startHosts(ctx, s.pick(100, 5)); err != nil {
		return err
	}
	s.say("reconcile: watching the engine with hosts")
	s.hosted, err = s.rest(ctx, s.span())
	return err
}

// with measures the same with the applications.
func (s *steady) with(ctx context.Context) ([]line, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	s.say("reconcile: watching the engine with hosts and applications")
	before, err := s.events(ctx)
	if err != nil {
		return nil, err
	}
	if err := watch(ctx, metricsLag); err != nil {
		return nil, err
	}
	began := time.Now()
	full, err := s.rest(ctx, s.span())
	if err != nil {
		return nil, err
	}
	after, err := s.events(ctx)
	if err != nil {
		return nil, err
	}
	hourly := (after - before) / float64(s.apps) / time.Since(began).Hours()
	const kib = 1024
	beside := func(measure, unit string, of func(rest) float64) line {
		return line{measure: measure, figure: sample{of(full)}, unit: unit, reference: "hosts alone", known: sample{of(s.hosted)}}
	}
	return []line{
		{
			measure: fmt.Sprintf("heartbeats of %d hosts in a minute of rest, every %s each", len(s.hosts), hostBeat),
			figure:  sample{full.beats}, reference: "hosts alone", known: sample{s.hosted.beats},
		},
		{measure: "history events in that minute, all applications and the lattice", figure: sample{after - before}, unit: " events", aim: atMost(0)},
		{measure: "history events of an application in an hour at that rate", figure: sample{hourly}, unit: " events", aim: atMost(15)},
		{
			measure: "Temporal persistence requests in that minute", figure: sample{full.persistence},
			reference: "no hosts, no applications", known: sample{s.empty.persistence},
		},
		beside("Temporal persistence requests in that minute", "", func(r rest) float64 { return r.persistence }),
		beside("engine, of one processor", " %", func(r rest) float64 { return r.engine.share }),
		beside("Temporal, of one processor", " %", func(r rest) float64 { return r.temporal.share }),
		beside("engine, resident", " MiB", func(r rest) float64 { return r.engine.resident }),
		{measure: "of that, for an application", figure: sample{(full.engine.resident - s.hosted.engine.resident) * kib / float64(s.apps)}, unit: " KiB"},
		{
			measure: "of that, for a host without applications",
			figure:  sample{(s.hosted.engine.resident - s.empty.engine.resident) * kib / float64(len(s.hosts))}, unit: " KiB",
		},
	}, nil
}
