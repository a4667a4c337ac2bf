package meter

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tidewait/internal/vm"
)

// Starts reports how this node's backends started machines.
func Starts(from metric.MeterProvider, backends []vm.Backend) error {
	of := from.Meter(Name)
	starts, err1 := of.Int64ObservableCounter("tidewait_machine_starts",
		metric.WithDescription("Machines that were started, by how: restored from a snapshot, booted cold, or booted because a snapshot failed. By the agent of the node."))
	kept, err2 := of.Int64ObservableGauge("tidewait_snapshots", metric.WithDescription("Snapshots of booted machines that are kept. By the agent of the node."))
	bytes, err3 := of.Int64ObservableGauge("tidewait_snapshot", metric.WithUnit("By"), metric.WithDescription("How large they are together. By the agent of the node."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err := of.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, b := range backends {
			s, backend := b.Starts(), attribute.String("backend", b.Name())
			put(o, starts, s.Snapshot, backend, attribute.String("how", "snapshot"))
			put(o, starts, s.Cold-s.FellBack, backend, attribute.String("how", "cold"))
			put(o, starts, s.FellBack, backend, attribute.String("how", "fell_back"))
			put(o, kept, s.Snapshots, backend)
			put(o, bytes, s.Bytes, backend)
		}
		return nil
	}, starts, kept, bytes)
	return err
}
