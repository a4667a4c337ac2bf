package meter

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tidewait/internal/lattice"
)

// Look is one lattice that this engine observes.
type Look struct {
	Account, Lattice string
	Failing          int // commands that wait for their next try
	Level            int // the most tries in a row that one of them has failed
	Stats            lattice.Stats
}

// Lattices reports the lattices that this engine observes; looks lists them.
// Others report theirs.
func Lattices(from metric.MeterProvider, looks func() []Look) error {
	const own = " Of the lattices that this engine observes."
	of := from.Meter(Name)
	failing, err1 := of.Int64ObservableGauge("tidewait_backoff_commands", metric.WithDescription("Commands that failed and wait for their next try."+own))
	level, err2 := of.Int64ObservableGauge("tidewait_backoff_level", metric.WithDescription("The most tries in a row that one of these commands has failed; the pause doubles with each, to 5 min."+own))
	events, err3 := of.Int64ObservableCounter("tidewait_lattice_events", metric.WithDescription("Events of hosts, by what became of them."+own))
	inventories, err4 := of.Int64ObservableCounter("tidewait_lattice_inventories", metric.WithDescription("Inventories that hosts were asked for, by whether there was an answer."+own))
	resyncs, err5 := of.Int64ObservableCounter("tidewait_lattice_resyncs", metric.WithDescription("Times that a lattice was looked at anew, because something may have been missed."+own))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := of.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, l := range looks() {
			of := []attribute.KeyValue{attribute.String("account", l.Account), attribute.String("lattice", l.Lattice)}
			count := func(counter metric.Int64Observable, n uint64, more ...attribute.KeyValue) {
				put(o, counter, int64(n), append(more, of...)...) //nolint:gosec // it counts from zero
			}
			put(o, failing, l.Failing, of...)
			put(o, level, l.Level, of...)
			count(events, l.Stats.Events, attribute.String("fate", "read"))
			count(events, l.Stats.Duplicates, attribute.String("fate", "duplicate"))
			count(events, l.Stats.Unknown, attribute.String("fate", "unknown"))
			count(events, l.Stats.Unreadable, attribute.String("fate", "unreadable"))
			count(events, l.Stats.Dropped, attribute.String("fate", "dropped"))
			count(inventories, l.Stats.Inventories-l.Stats.Unanswered, attribute.String("answered", "true"))
			count(inventories, l.Stats.Unanswered, attribute.String("answered", "false"))
			count(resyncs, l.Stats.Resyncs)
		}
		return nil
	}, failing, level, events, inventories, resyncs)
	return err
}
