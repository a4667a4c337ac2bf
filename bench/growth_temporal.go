package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// throughTemporal are the sizes of what a workflow each stands for.
func (b *bench) throughTemporal() []int {
	if b.quick {
		return []int{3, 6, 12}
	}
	return []int{10, 50, 150, 500}
}

// growthOfWaiting lets more and more phases wait for one node, each in a workflow of
// its own.
func growthOfWaiting(ctx context.Context, b *bench) ([]family, error) {
	f := family{
		title: "Phases that wait for one node, through Temporal.", of: "phases", beyond: 10_000,
		curves: newCurves("engine, of one processor", " %", "Temporal, of one processor", " %", "Postgres, of one processor", " %",
			"Temporal persistence requests a minute", "", "Postgres transactions a minute", "", "engine, resident", " MiB", "age of the oldest look", " s"),
	}
	env := []string{"TIDEWAIT_FLEET_RETRY_INTERVAL=10s", "TIDEWAIT_FLEET_HEAD_WINDOW=64"}
	err := b.with(ctx, "growth-temporal", smallNode, env, func(ctx context.Context, p *product) (err error) {
		w := &waits{bench: b, product: p}
		if w.count, err = newCounting(ctx, p, time.Second); err != nil {
			return err
		}
		defer w.count.close()
		w.count.idle = counters{}
		if _, err := p.launch(ctx, "holder", 1, "sleep 3600; true"); err != nil {
			return err
		}
		if err := p.untilNumber(ctx, 1, "the holder runs", "SELECT count(*) FROM reservations WHERE released_at IS NULL"); err != nil {
			return err
		}
		for _, n := range b.throughTemporal() {
			got, err := w.with(ctx, n)
			if err != nil {
				return err
			}
			f.add(n, sample{got.used[0].share}, sample{got.used[1].share}, sample{got.used[2].share},
				sample{got.persistence}, sample{got.transactions}, sample{got.used[0].resident}, sample{got.oldest})
		}
		return nil
	})
	return []family{f}, err
}

// ofKept are the curves of applications that are kept true.
var ofKept = []string{
	"one more deployed", " ms",
	"event of a drift to command", " ms",
	"at rest: engine, of one processor", " %",
	"at rest: Temporal, of one processor", " %",
	"at rest: Temporal persistence requests a minute", "",
	"at rest: engine, resident", " MiB",
}

// growthOfKept adds applications on some hosts, and then hosts below some
// applications.
func growthOfKept(ctx context.Context, b *bench) ([]family, error) {
	few := b.pick(50, 3)
	apps := family{
		title: fmt.Sprintf("Applications, through Temporal, on %d simulated hosts.", few), of: "applications", beyond: 10_000, curves: newCurves(ofKept...),
	}
	hosts := family{
		title: fmt.Sprintf("Simulated hosts with %d applications, through Temporal.", few), of: "hosts", beyond: 10_000, curves: newCurves(ofKept...),
	}
	for _, part := range []struct {
		name string
		into *family
		size func(n int) (hosts, apps int)
	}{
		{"growth-apps", &apps, func(n int) (int, int) { return few, n }},
		{"growth-hosts", &hosts, func(n int) (int, int) { return n, few }},
	} {
		env := []string{"TIDEWAIT_WADM_WATCH=" + wadm.DefaultLattice}
		err := b.with(ctx, part.name, smallNode, env, func(ctx context.Context, p *product) error {
			m := &reconciling{bench: b, product: p}
			return m.keeping(ctx, func(ctx context.Context) error {
				for _, n := range b.throughTemporal() {
					hosts, apps := part.size(n)
					samples, err := m.keptAt(ctx, hosts, apps)
					if err != nil {
						return err
					}
					part.into.add(n, samples...)
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return []family{apps, hosts}, nil
}

// keeping connects to the API and makes a lattice without hosts, for as long as
// do works.
func (m *reconciling) keeping(ctx context.Context, do func(context.Context) error) (err error) {
	if m.api, err = connectAPI(m.product.Stack.NATSURL); err != nil {
		return err
	}
	defer m.api.close()
	nc, err := nats.Connect(m.product.Stack.NATSURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	m.lattice = simhost.NewLattice(nc, simhost.Options{Heartbeat: hostBeat})
	defer m.lattice.Close()
	return do(ctx)
}

// keptAt brings the lattice to so many hosts and applications and measures
// [ofKept]. What is deployed one by one counts among the applications.
func (m *reconciling) keptAt(ctx context.Context, hosts, apps int) ([]sample, error) {
	m.say("growth: %d hosts, %d applications", hosts, apps)
	if err := m.joinHosts(ctx, hosts); err != nil {
		return nil, err
	}
	single := min(m.repetitions(10, 2), apps/2)
	if err := m.deployTo(ctx, apps-single); err != nil {
		return nil, err
	}
	var deployed sample
	for range single {
		began := time.Now()
		if err := m.deployTo(ctx, m.apps+1); err != nil {
			return nil, err
		}
		deployed = append(deployed, milliseconds(time.Since(began)))
	}
	if err := m.settled(ctx); err != nil {
		return nil, err
	}
	if err := watch(ctx, metricsLag); err != nil {
		return nil, err
	}
	rest, err := m.rest(ctx, (&steady{reconciling: m}).span())
	if err != nil {
		return nil, err
	}
	drifts, err := m.driftTimes(ctx, m.repetitions(10, 2))
	return []sample{
		deployed, drifts, {rest.engine.share}, {rest.temporal.share}, {rest.persistence}, {rest.engine.resident},
	}, err
}

// joinHosts starts hosts until there are n and the engine knows them.
func (m *reconciling) joinHosts(ctx context.Context, n int) error {
	missing := n - len(m.hosts)
	for range missing {
		began := time.Now()
		h, err := m.lattice.Start(ctx, simhost.HostSpec{Name: fmt.Sprintf("host-%03d", len(m.hosts))})
		if err != nil {
			return err
		}
		m.hosts = append(m.hosts, simulated{h, began})
		if err := watch(ctx, hostsStart/time.Duration(missing)); err != nil {
			return err
		}
	}
	return m.product.untilNumber(ctx, float64(n), "the engine knows all hosts", "SELECT COALESCE(max(hosts), 0)::float8 FROM lattices")
}

// deployTo stores and deploys applications until n are there and deployed.
func (m *reconciling) deployTo(ctx context.Context, n int) error {
	from := m.apps
	if n <= from {
		return nil
	}
	_, _, err := storm(ctx, askClients, n-from, func(ctx context.Context, c, i int) error {
		if _, err := m.api.clients[c].Put(ctx, keptDocument(from+i)); err != nil {
			return err
		}
		_, err := m.api.clients[c].Deploy(ctx, keptName(from+i), nil)
		return err
	})
	if err != nil {
		return err
	}
	m.apps = n
	return m.untilDeployed(ctx)
}

// driftTimes scales components to 0 behind the engine's back, and returns when its
// commands came, in milliseconds after the events.
func (m *reconciling) driftTimes(ctx context.Context, n int) (took sample, err error) {
	ways, err := m.driftWays(ctx, n)
	for _, w := range ways {
		took = append(took, w.whole())
	}
	return took, err
}
