package meter

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"tidewait/internal/capacity"
	"tidewait/internal/store"
)

// Readings are kept for a moment, so that several readers cost one query; and one
// that the database does not give in time is given up.
const (
	readingLasts = 250 * time.Millisecond
	readingTime  = 2 * time.Second
)

// fleet reports what there is. Its gauges are one callback, so that all of them
// are of the same reading.
type fleet struct {
	store *store.Store
	log   *slog.Logger

	up, waits, nodes, gateways, leaks, orphaned, runs, machines, agents metric.Int64ObservableGauge
	missions, applications, latticeHosts, outbox                        metric.Int64ObservableGauge
	oldest, unbounded, spent, unchecked                                 metric.Float64ObservableGauge
	latticeUnchecked, outboxOldest, listened                            metric.Float64ObservableGauge

	mu      sync.Mutex
	read    time.Time // when the latest reading was begun
	reading store.Gauges
	err     error
}

// shared is said of every gauge but the first.
const shared = " From the database; the same by every engine."

// Fleet reports how much there is of everything, read from the database whenever
// somebody collects. Every engine does so, and all report the same.
func Fleet(from metric.MeterProvider, s *store.Store, log *slog.Logger) error {
	f := &fleet{store: s, log: log}
	of := from.Meter(Name)
	var all []metric.Observable
	var errs []error
	number := func(name, description string) metric.Int64ObservableGauge {
		g, err := of.Int64ObservableGauge(name, metric.WithDescription(description))
		all, errs = append(all, g), append(errs, err)
		return g
	}
	whole := func(name, description string) metric.Int64ObservableGauge { return number(name, description+shared) }
	fraction := func(name, unit, description string) metric.Float64ObservableGauge {
		g, err := of.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description+shared))
		all, errs = append(all, g), append(errs, err)
		return g
	}
	f.up = number("tidewait_database_up", "1 when this engine could read the database for this scrape, else 0; then what comes from it is absent.")
	f.waits = whole("tidewait_waits", "Open waits by kind and code; 0 where nobody waits.")
	f.oldest = fraction("tidewait_wait_age", "s", "How long the oldest open wait of a kind and code has lasted; absent where nobody waits.")
	f.unbounded = fraction("tidewait_wait_unbounded_age", "s", "The same of waits that no bound ends; absent where there is none.")
	f.spent = fraction("tidewait_wait_bound_spent", "", "The largest part of its bound that an open wait of a kind and code has waited; 1 is all of it.")
	f.unchecked = fraction("tidewait_wait_unchecked_age", "s", "How long ago the placer looked at the phase of a pool that it has not looked at for longest.")
	f.nodes = whole("tidewait_nodes", "Nodes by state.")
	f.gateways = whole("tidewait_gateways", "Gateways by whether they were heard within fleet.lost_after.")
	f.leaks = whole("tidewait_leaks", "What agents found and ended that nothing should have left behind, by kind, since each was started.")
	f.orphaned = whole("tidewait_orphaned_reservations", "Reservations that were released because no machine was there, ever.")
	f.runs = whole("tidewait_runs", "Runs that hold room on a node, by backend and state.")
	f.machines = whole("tidewait_machines", "Machines of these runs.")
	f.agents = whole("tidewait_agents", "Of these machines, those of composed phases.")
	f.missions = whole("tidewait_missions_running", "Missions that run.")
	f.applications = whole("tidewait_applications", "Applications by the type of their status.")
	f.latticeHosts = whole("tidewait_lattice_hosts", "Hosts alive in each observed lattice.")
	f.latticeUnchecked = fraction("tidewait_lattice_unchecked_age", "s", "How long ago the observer of a lattice last recorded how it is; it does so every 15 s.")
	f.outbox = whole("tidewait_outbox", "What waits to be carried to Temporal or NATS.")
	f.outboxOldest = fraction("tidewait_outbox_age", "s", "How long the oldest of it has waited.")
	f.listened = fraction("tidewait_listened_age", "s", "How long ago an engine last proved that it can hear nodes.")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := of.RegisterCallback(f.observe, all...)
	return err
}

// observe never fails: what cannot be read is absent, and tidewait_database_up
// says so.
func (f *fleet) observe(ctx context.Context, o metric.Observer) error {
	g, err := f.take(ctx)
	if err != nil {
		put(o, f.up, 0)
		return nil //nolint:nilerr // the rest of the metrics are good
	}
	put(o, f.up, 1)
	f.observeWaits(o, g.Waits)
	f.observeNodes(o, g)
	for _, m := range g.Machines {
		of := []attribute.KeyValue{attribute.String("backend", m.Backend), attribute.String("state", m.State)}
		put(o, f.runs, m.Runs, of...)
		put(o, f.machines, m.Machines, of...)
		put(o, f.agents, m.Agents, of...)
	}
	put(o, f.missions, g.Missions)
	for status, n := range g.Applications {
		put(o, f.applications, n, attribute.String("status", status))
	}
	for _, l := range g.Lattices {
		of := []attribute.KeyValue{attribute.String("account", l.Account), attribute.String("lattice", l.Lattice)}
		put(o, f.latticeHosts, l.Hosts, of...)
		putTime(o, f.latticeUnchecked, l.Unchecked, of...)
	}
	for _, b := range g.Outbox {
		put(o, f.outbox, b.Rows, attribute.String("channel", b.Channel))
		putTime(o, f.outboxOldest, b.Oldest, attribute.String("channel", b.Channel))
	}
	putTime(o, f.listened, g.Listened)
	return nil
}

// observeWaits adds up the pools of each kind and code.
func (f *fleet) observeWaits(o metric.Observer, waits []store.WaitGauge) {
	type key struct{ kind, code string }
	sums := map[key]store.WaitGauge{}
	for kind, codes := range Codes {
		for _, code := range codes {
			sums[key{kind, code}] = store.WaitGauge{}
		}
	}
	unchecked := map[string]time.Duration{}
	for _, w := range waits {
		k := key{w.Kind, w.Code}
		sum := sums[k]
		sum.Open += w.Open
		sum.Oldest, sum.Unbounded, sum.Spent = max(sum.Oldest, w.Oldest), max(sum.Unbounded, w.Unbounded), max(sum.Spent, w.Spent)
		sums[k] = sum
		if w.Pool != "" {
			unchecked[w.Pool] = max(unchecked[w.Pool], w.Unchecked)
		}
	}
	for k, sum := range sums {
		of := kindAndCode(k.kind, k.code)
		put(o, f.waits, sum.Open, of...)
		if sum.Open == 0 {
			continue
		}
		putTime(o, f.oldest, sum.Oldest, of...)
		if sum.Unbounded > 0 {
			putTime(o, f.unbounded, sum.Unbounded, of...)
		}
		if sum.Spent > 0 {
			o.ObserveFloat64(f.spent, sum.Spent, metric.WithAttributes(of...))
		}
	}
	for pool, age := range unchecked {
		putTime(o, f.unchecked, age, attribute.String("pool", pool))
	}
}

func (f *fleet) observeNodes(o metric.Observer, g store.Gauges) {
	for _, state := range []capacity.NodeState{
		capacity.Ready, capacity.Cordoned, capacity.Draining, capacity.Drained, capacity.Suspect, capacity.Down, capacity.Retired,
	} {
		put(o, f.nodes, g.Nodes[state], attribute.String("state", string(state)))
	}
	for _, heard := range []bool{true, false} {
		put(o, f.gateways, g.Gateways[heard], attribute.String("heard", strconv.FormatBool(heard)))
	}
	for _, kind := range leakKinds {
		put(o, f.leaks, g.Leaks[kind], attribute.String("kind", kind))
	}
	put(o, f.orphaned, g.Orphaned)
}

// take reads the database, or what was read a moment ago.
func (f *fleet) take(ctx context.Context) (store.Gauges, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.read) >= readingLasts {
		ctx, cancel := context.WithTimeout(ctx, readingTime)
		defer cancel()
		failed := f.err != nil
		f.reading, f.err = f.store.Gauges(ctx)
		f.read = now
		if f.err != nil && !failed {
			f.log.Warn("what there is cannot be counted; its metrics are absent meanwhile", "error", f.err)
		}
	}
	return f.reading, f.err
}

func put[N int | int64](o metric.Observer, of metric.Int64Observable, n N, labels ...attribute.KeyValue) {
	o.ObserveInt64(of, int64(n), metric.WithAttributes(labels...))
}

func putTime(o metric.Observer, of metric.Float64Observable, d time.Duration, labels ...attribute.KeyValue) {
	o.ObserveFloat64(of, d.Seconds(), metric.WithAttributes(labels...))
}
