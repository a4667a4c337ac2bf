package main

import (
	"context"
	"fmt"
	"time"

	"tidewait/internal/wadm"
	"tidewait/workflows"
)

// restart kills the engine, changes the lattice meanwhile, and measures until
// the new engine has looked at every application and repaired what is wrong.
func (m *reconciling) restart(ctx context.Context) ([]line, error) {
	m.say("reconcile: killing and starting the engine")
	before, err := m.epoch(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.product.engine.Kill(); err != nil {
		return nil, err
	}
	id := partID(0, partComponents[0])
	m.lattice.Forget()
	if err := m.scaleToZero(ctx, id); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := m.product.engine.Start(ctx); err != nil {
		return nil, err
	}
	ready := time.Since(began)
	repaired, err := m.untilCorrected(ctx, []string{id}, began)
	if err != nil {
		return nil, err
	}
	first, last, err := m.lookedAt(ctx, before)
	if err != nil {
		return nil, err
	}
	if err := m.settled(ctx); err != nil {
		return nil, err
	}
	told := len(m.told()) - 1 // without the one that was the fault
	used, err := usageOf(m.product.engine.PID())
	if err != nil {
		return nil, err
	}
	seconds := func(measure string, d time.Duration) line {
		return line{measure: measure, figure: sample{d.Seconds()}, unit: " s"}
	}
	return []line{
		seconds("engine started after a kill → ready", ready),
		seconds("engine started after a kill → first look at an application", first.Sub(began)),
		seconds("engine started after a kill → what changed meanwhile is repaired", repaired[0].Sub(began)),
		seconds(fmt.Sprintf("engine started after a kill → all %d statuses are of the new observation", m.apps), last.Sub(began)),
		{measure: "commands that it then sent", figure: sample{float64(told)}, reference: "what was missing", known: sample{1}, aim: atMost(1)},
		{measure: "engine, resident then, with all applications", figure: sample{used.resident}, unit: " MiB"},
	}, nil
}

func (m *reconciling) epoch(ctx context.Context) (int64, error) {
	n, err := m.product.number(ctx, "SELECT epoch::float8 FROM lattices WHERE lattice = $1", wadm.DefaultLattice)
	return int64(n), err
}

// lookedAt returns when the first and the last application was first looked at
// under a newer epoch.
func (m *reconciling) lookedAt(ctx context.Context, epoch int64) (first, last time.Time, err error) {
	for app := range m.apps {
		var at time.Time
		err := until(ctx, keptName(app)+" is looked at", func(ctx context.Context) (bool, error) {
			t, err := m.trace(ctx, app)
			if err == nil {
				at, err = t.firstLookSince(epoch)
			}
			return !at.IsZero(), err
		})
		if err != nil {
			return first, last, err
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last, nil
}

// firstLookSince returns when a look under a newer epoch had ended, or the zero
// time.
func (t traced) firstLookSince(epoch int64) (time.Time, error) {
	for _, w := range t.done {
		if w.name != workflows.ActivityAssess || w.completed.IsZero() {
			continue
		}
		seen, err := w.epoch()
		if err != nil {
			return time.Time{}, err
		}
		if seen > epoch {
			return w.completed, nil
		}
	}
	return time.Time{}, nil
}
