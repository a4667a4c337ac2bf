package meter

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tidewait/internal/health"
)

// Loops reports how long ago each loop of this process came round.
func Loops(from metric.MeterProvider, h *health.Health) error {
	_, err := from.Meter(Name).Float64ObservableGauge("tidewait_loop_age", metric.WithUnit("s"),
		metric.WithDescription("How long ago a loop of this process came round. Of this process alone."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			for _, l := range h.Ages() {
				o.Observe(l.Age.Seconds(), metric.WithAttributes(attribute.String("loop", l.Loop)))
			}
			return nil
		}))
	return err
}
