package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// drifts scales components to 0 behind the engine's back, one after the other,
// and measures until the engine's command comes.
func (m *reconciling) drifts(ctx context.Context) ([]line, error) {
	n := m.repetitions(50, 3)
	m.say("reconcile: scaling %d components to 0", n)
	ways, err := m.driftWays(ctx, n)
	if err != nil {
		return nil, err
	}
	var whole, share sample
	shares := make([]sample, 4)
	for _, w := range ways {
		whole, share = append(whole, w.whole()), append(share, 100*w.temporal/w.whole())
		for k, ms := range []float64{w.noticed, w.assess, w.temporal, w.sent} {
			shares[k] = append(shares[k], ms)
		}
	}
	lines := []line{
		{measure: fmt.Sprintf("event of a drift → command, p50 of %d", n), name: "event of a drift to command, p50", figure: whole.medians(parts), unit: " ms", aim: atMost(300)},
		{measure: "the same, p99", figure: sample{whole.quantile(0.99)}, unit: " ms"},
	}
	for k, name := range []string{
		"until the workflow is woken", "the look, while it runs", "in Temporal, between these", "from the command's activity to the host",
	} {
		lines = append(lines, line{measure: "of that, " + name + ", p50", figure: shares[k].medians(parts), unit: " ms"})
	}
	return append(lines, line{measure: "Temporal's share, p50", figure: share.medians(parts), unit: " %"}), nil
}

// driftWays does so n times.
func (m *reconciling) driftWays(ctx context.Context, n int) ([]way, error) {
	events, err := m.product.nats.SubscribeSync("wasmbus.evt." + wadm.DefaultLattice + ".component_scaled")
	if err != nil {
		return nil, err
	}
	defer func() { _ = events.Unsubscribe() }()
	if err := m.product.nats.Flush(); err != nil {
		return nil, err
	}
	ways := make([]way, n)
	for i := range ways {
		if ways[i], err = m.drift(ctx, i%m.apps, partComponents[i%len(partComponents)], events); err != nil {
			return nil, err
		}
	}
	return ways, nil
}

// drift scales one component to 0 on its host.
func (m *reconciling) drift(ctx context.Context, app int, part string, events *nats.Subscription) (way, error) {
	id := partID(app, part)
	m.lattice.Forget()
	if err := m.scaleToZero(ctx, id); err != nil {
		return way{}, err
	}
	happened, err := scaledToZero(ctx, events, id)
	if err != nil {
		return way{}, err
	}
	received, err := m.untilCorrected(ctx, []string{id}, happened)
	if err != nil {
		return way{}, err
	}
	if err := m.untilQuietApp(ctx, app); err != nil {
		return way{}, err
	}
	t, err := m.trace(ctx, app)
	if err != nil {
		return way{}, err
	}
	return t.wayTo(happened, received[0])
}

// scaleToZero tells the host of a component to stop it.
func (m *reconciling) scaleToZero(ctx context.Context, id string) error {
	for _, h := range m.lattice.Hosts() {
		if slices.Contains(runs(h), id) {
			body, err := json.Marshal(map[string]any{"component_id": id, "host_id": h.ID(), "count": 0})
			if err != nil {
				return err
			}
			return m.command(ctx, 0, wadm.DefaultLattice, "component.scale."+h.ID(), body)
		}
	}
	return fmt.Errorf("%s runs nowhere", id)
}

// runs lists the ids of what a host runs.
func runs(h *simhost.Host) (ids []string) {
	i := h.Inventory()
	for _, c := range i.Components {
		ids = append(ids, c.ID)
	}
	for _, p := range i.Providers {
		ids = append(ids, p.ID)
	}
	return ids
}

// scaledToZero returns when a host says that it stopped a component.
func scaledToZero(ctx context.Context, events *nats.Subscription, id string) (at time.Time, err error) {
	err = within(ctx, func(ctx context.Context) error {
		for {
			msg, err := events.NextMsgWithContext(ctx)
			if err != nil {
				return err
			}
			var e struct {
				Time time.Time `json:"time"`
				Data struct {
					ID  string `json:"component_id"`
					Max int    `json:"max_instances"`
				} `json:"data"`
			}
			if err := json.Unmarshal(msg.Data, &e); err != nil {
				return err
			}
			if e.Data.ID == id && e.Data.Max == 0 {
				at = e.Time
				return nil
			}
		}
	})
	return at, err
}

// untilCorrected returns when hosts received the first command to start each of
// some ids again, in order of time.
func (m *reconciling) untilCorrected(ctx context.Context, ids []string, since time.Time) ([]time.Time, error) {
	var received []time.Time
	err := until(ctx, "what is missing is started again", func(context.Context) (bool, error) {
		first := map[string]time.Time{}
		for _, c := range m.told() {
			if _, seen := first[c.ID]; !seen && c.Time.After(since) && starts(c) && slices.Contains(ids, c.ID) {
				first[c.ID] = c.Time
			}
		}
		received = received[:0]
		for _, at := range first {
			received = append(received, at)
		}
		return len(first) == len(ids), nil
	})
	slices.SortFunc(received, time.Time.Compare)
	return received, err
}

// starts reports whether a command is one to start something.
func starts(c simhost.Call) bool {
	var body struct{ Count int }
	return c.Command == "provider.start" || c.Command == "component.scale" && json.Unmarshal(c.Body, &body) == nil && body.Count > 0
}

func (m *reconciling) untilQuietApp(ctx context.Context, app int) error {
	last := -1.0
	return until(ctx, appWorkflow(app)+" is at rest", func(ctx context.Context) (bool, error) {
		now, err := (&counted{product: m.product}).events(ctx, appWorkflow(app))
		if err != nil || now == last {
			return true, err
		}
		last = now
		return false, watch(ctx, 300*time.Millisecond)
	})
}

// losses are hosts that were lost, and the commands that made up for it.
type losses struct {
	first, last, all sample // milliseconds after a host was known to be lost
	known            sample // seconds until that
	commands         int    // received
	needed           int
}

// lose waits for the commands that make up for a lost host.
func (m *reconciling) lose(ctx context.Context, l *losses, ids []string, since func(context.Context) (time.Time, error)) error {
	gone, err := since(ctx)
	if err != nil {
		return err
	}
	received, err := m.untilCorrected(ctx, ids, gone)
	if err != nil {
		return err
	}
	for _, at := range received {
		l.all = append(l.all, milliseconds(at.Sub(gone)))
	}
	if len(received) > 0 {
		l.first = append(l.first, milliseconds(received[0].Sub(gone)))
		l.last = append(l.last, milliseconds(received[len(received)-1].Sub(gone)))
	}
	if err := m.settled(ctx); err != nil {
		return err
	}
	l.commands, l.needed = l.commands+len(m.told()), l.needed+len(ids)
	return nil
}

func (l losses) lines(from string) []line {
	lines := []line{
		{measure: fmt.Sprintf("%s → first command, p50 of %d", from, len(l.first)), name: from + " to first command", figure: l.first, unit: " ms"},
		{measure: "the same, p99", figure: sample{l.first.quantile(0.99)}, unit: " ms"},
		{measure: fmt.Sprintf("%s → each of %d commands, p50", from, len(l.all)), name: from + " to each command", figure: l.all.medians(parts), unit: " ms"},
		{measure: "the same, p99", figure: sample{l.all.quantile(0.99)}, unit: " ms"},
		{measure: from + " → last command, p50", figure: l.last, unit: " ms"},
		{measure: "the same, p99", figure: sample{l.last.quantile(0.99)}, unit: " ms"},
	}
	return append(lines, line{
		measure: from + ": commands", figure: sample{float64(l.commands)},
		reference: "what had run there", known: sample{float64(l.needed)}, aim: atMost(1),
	})
}

// goodbyes stops hosts, one after the other.
func (m *reconciling) goodbyes(ctx context.Context) ([]line, error) {
	n := m.repetitions(5, 2)
	m.say("reconcile: stopping %d hosts", n)
	var l losses
	for range n {
		h := m.hosts[0]
		m.hosts = m.hosts[1:]
		ids := runs(h.Host)
		m.lattice.Forget()
		stopped := time.Now()
		h.Stop()
		if err := m.lose(ctx, &l, ids, func(context.Context) (time.Time, error) { return stopped, nil }); err != nil {
			return nil, err
		}
	}
	return l.lines("goodbye of a host"), nil
}

// beforeBeat is how long before its next heartbeat a host is killed: it is
// believed in until some seconds after that was due, and then asked.
const beforeBeat = 500 * time.Millisecond

// kills kills hosts, one after the other.
func (m *reconciling) kills(ctx context.Context) ([]line, error) {
	n := m.repetitions(5, 1)
	m.say("reconcile: killing %d hosts", n)
	var l losses
	for range n {
		h, in := m.nextToBeat()
		if err := watch(ctx, in-beforeBeat); err != nil {
			return nil, err
		}
		ids := runs(h.Host)
		m.lattice.Forget()
		killed := time.Now()
		h.Kill()
		err := m.lose(ctx, &l, ids, func(ctx context.Context) (time.Time, error) {
			noticed, err := m.noticed(ctx)
			l.known = append(l.known, noticed.Sub(killed).Seconds())
			return noticed, err
		})
		if err != nil {
			return nil, err
		}
	}
	lines := []line{{measure: "host killed just before a heartbeat → noticed", figure: l.known, unit: " s"}}
	return append(lines, l.lines("loss of a host noticed")...), nil
}

// nextToBeat takes the host whose heartbeat is due next.
func (m *reconciling) nextToBeat() (simulated, time.Duration) {
	now := time.Now()
	due := func(h simulated) time.Duration {
		in := hostBeat - now.Sub(h.began)%hostBeat
		if in < 2*beforeBeat {
			in += hostBeat
		}
		return in
	}
	slices.SortFunc(m.hosts, func(a, b simulated) int { return int(due(a) - due(b)) })
	h := m.hosts[0]
	m.hosts = m.hosts[1:]
	return h, due(h)
}

// noticed returns when the engine knew that there is a host less, by the clock
// of Postgres, which is this machine's.
func (m *reconciling) noticed(ctx context.Context) (at time.Time, err error) {
	err = until(ctx, "the engine misses the host", func(ctx context.Context) (bool, error) {
		var hosts int
		err := m.product.db.QueryRow(ctx, "SELECT hosts, checked_at FROM lattices WHERE lattice = $1", wadm.DefaultLattice).Scan(&hosts, &at)
		return hosts <= len(m.hosts), err
	})
	return at, err
}
