// Package meter is what Tidewait counts. Its instruments are OpenTelemetry's;
// docs/metrics.md says of each what it means, who reports it and what to do.
//
// There are two sorts. What happened is counted by the process that did it, after
// the commit, so that the sum over all processes is right. What there is at a
// moment is read from the database by every engine alike, so that any one of them
// tells all, and the sum over engines means nothing.
package meter

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// Name is the instrumentation scope of all instruments.
const Name = "tidewait"

// Meter counts what happens. A nil *Meter counts nothing. It is safe for
// concurrent use.
type Meter struct {
	waits      metric.Float64Histogram
	placements metric.Int64Counter
	refusals   metric.Int64Counter
	passes     metric.Float64Histogram
	reconciles metric.Float64Histogram
	commands   metric.Int64Counter
}

// Buckets, in seconds: waits last up to hours, work up to minutes.
var (
	waitBuckets = []float64{0.1, 0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 86400}
	workBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
)

// New makes the instruments.
func New(from metric.MeterProvider) (*Meter, error) {
	of := from.Meter(Name)
	m := &Meter{}
	var errs [6]error
	m.waits, errs[0] = of.Float64Histogram("tidewait_wait_duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(waitBuckets...),
		metric.WithDescription("How long waits lasted that are over, by kind, their last code, and how they ended. Counted by the engine that ended them."))
	m.placements, errs[1] = of.Int64Counter("tidewait_placements",
		metric.WithDescription("Runs that got a node, by what caused the look. Counted by the engine that placed them."))
	m.refusals, errs[2] = of.Int64Counter("tidewait_refusals",
		metric.WithDescription("Looks that a phase asked for and that found no node: not now (capacity) or never (capability). Counted by the engine that looked."))
	m.passes, errs[3] = of.Float64Histogram("tidewait_pass_duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(workBuckets...),
		metric.WithDescription("How long one pass over the queue of a pool took, by result. Counted by the engine that made it."))
	m.reconciles, errs[4] = of.Float64Histogram("tidewait_reconcile_duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(workBuckets...),
		metric.WithDescription("How long it took to compare an application with its lattice, by result. Counted by the engine that observes the lattice."))
	m.commands, errs[5] = of.Int64Counter("tidewait_host_commands",
		metric.WithDescription("Commands to hosts of lattices, by action and outcome. Counted by the engine that observes the lattice."))
	return m, errors.Join(errs[:]...)
}

func kindAndCode(kind, code string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("kind", kind), attribute.String("code", code)}
}

// WaitEnded counts a wait that is over.
func (m *Meter) WaitEnded(ctx context.Context, e store.WaitEnd) {
	if m == nil {
		return
	}
	m.waits.Record(ctx, e.Lasted.Seconds(), metric.WithAttributes(
		append(kindAndCode(e.Kind, e.Code), attribute.String("ended_by", e.EndedBy))...))
}

// Passed counts what a pass over a queue did.
func (m *Meter) Passed(ctx context.Context, res store.PassResult, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.passes.Record(ctx, took.Seconds(), metric.WithAttributes(resultOf(err)))
	for wake, n := range res.Wakes {
		m.placements.Add(ctx, int64(n), metric.WithAttributes(attribute.String("woken_by", string(wake))))
	}
	for code, n := range res.Capacity {
		m.refused(ctx, "capacity", code, n)
	}
	for code, n := range res.Capability {
		m.refused(ctx, "capability", code, n)
	}
}

// Refused counts a launch that no known node could ever run.
func (m *Meter) Refused(ctx context.Context, phases []ledger.RefusedPhase) {
	if m == nil {
		return
	}
	for _, p := range phases {
		m.refused(ctx, "capability", p.Refusal.Code, 1)
	}
}

func (m *Meter) refused(ctx context.Context, class string, code capacity.Code, n int) {
	m.refusals.Add(ctx, int64(n), metric.WithAttributes(attribute.String("class", class), attribute.String("code", string(code))))
}

// Reconciled counts a look at an application.
func (m *Meter) Reconciled(ctx context.Context, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.reconciles.Record(ctx, took.Seconds(), metric.WithAttributes(resultOf(err)))
}

// Commanded counts a command to a host. outcome is ok, or the code of what became
// of it, or unknown.
func (m *Meter) Commanded(ctx context.Context, action, outcome string) {
	if m == nil {
		return
	}
	m.commands.Add(ctx, 1, metric.WithAttributes(attribute.String("action", action), attribute.String("outcome", outcome)))
}

func resultOf(err error) attribute.KeyValue {
	if err != nil {
		return attribute.String("result", "error")
	}
	return attribute.String("result", "ok")
}
