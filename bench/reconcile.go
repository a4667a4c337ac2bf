package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

const (
	hostBeat   = 30 * time.Second // between two heartbeats of a simulated host, as real ones have it
	hostsStart = 10 * time.Second // in which all hosts start, so that they do not beat at once
)

// reconcile measures how applications are kept true on simulated hosts, which
// live in this process and are reached through the product's NATS server.
func reconcile(ctx context.Context, b *bench) (lines []line, err error) {
	env := []string{"TIDEWAIT_WADM_WATCH=" + wadm.DefaultLattice}
	err = b.with(ctx, "reconcile", smallNode, env, func(ctx context.Context, p *product) error {
		m := &reconciling{bench: b, product: p, apps: b.pick(500, 10)}
		lines, err = m.measure(ctx)
		return err
	})
	return lines, err
}

// reconciling is the state of the section.
type reconciling struct {
	*bench
	product *product
	count   *counting
	api     manifestAPI
	lattice *simhost.Lattice
	hosts   []simulated
	apps    int
}

// simulated is a host and when it began its life, from which its heartbeats are
// counted.
type simulated struct {
	*simhost.Host
	began time.Time
}

func (m *reconciling) measure(ctx context.Context) (lines []line, err error) {
	span := time.Duration(m.repetitions(20, 3)) * time.Second
	if m.count, err = newCounting(ctx, m.product, span); err != nil {
		return nil, err
	}
	defer m.count.close()
	if m.api, err = connectAPI(m.product.Stack.NATSURL); err != nil {
		return nil, err
	}
	defer m.api.close()
	nc, err := nats.Connect(m.product.Stack.NATSURL)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	m.lattice = simhost.NewLattice(nc, simhost.Options{Heartbeat: hostBeat})
	defer m.lattice.Close()

	idle := &steady{reconciling: m}
	if err := idle.without(ctx); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) ([]line, error){m.deployAll, idle.with, m.drifts, m.goodbyes, m.kills, m.restart} {
		more, err := part(ctx)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// startHosts starts hosts one after the other and waits until the engine knows
// all of them.
func (m *reconciling) startHosts(ctx context.Context, n int) error {
	m.say("reconcile: starting %d hosts", n)
	for i := range n {
		began := time.Now()
		h, err := m.lattice.Start(ctx, simhost.HostSpec{Name: fmt.Sprintf("host-%03d", i)})
		if err != nil {
			return err
		}
		m.hosts = append(m.hosts, simulated{h, began})
		if err := watch(ctx, hostsStart/time.Duration(n)); err != nil {
			return err
		}
	}
	return m.product.untilNumber(ctx, float64(n), "the engine knows all hosts", "SELECT COALESCE(max(hosts), 0)::float8 FROM lattices")
}

// The parts of an application: three components with a scaler each, a provider,
// a link between two of them and its configuration.
var (
	partComponents = []string{"web", "api", "job"}
	partProvider   = "http"
)

const partsOfApp = 4 // what is told to hosts; the link and its configuration are the lattice's

// minimum is how many commands the deployment of one application takes.
const minimum = partsOfApp + 2

func keptName(i int) string { return fmt.Sprintf("kept-%04d", i) }

// partID is the id of a component or provider of an application.
func partID(i int, part string) string { return oam.ComponentID(keptName(i), part, "") }

func keptDocument(i int) []byte {
	components := ""
	for _, name := range partComponents {
		components += fmt.Sprintf(`{"name":"%s","type":"component","properties":{"image":"registry.example.com/kept/%[1]s:1.0.0"},`+
			`"traits":[{"type":"spreadscaler","properties":{"instances":1}}]},`, name)
	}
	return fmt.Appendf(nil, `{"apiVersion":"core.oam.dev/v1beta1","kind":"Application",`+
		`"metadata":{"name":"%s","annotations":{"version":"v1"}},"spec":{"components":[%s`+
		`{"name":"%s","type":"capability","properties":{"image":"registry.example.com/providers/http:0.27.0"},`+
		`"traits":[{"type":"link","properties":{"namespace":"wasi","package":"http","interfaces":["incoming-handler"],`+
		`"source":{"config":[{"name":"listen","properties":{"address":"0.0.0.0:8080"}}]},"target":{"name":"web"}}}]}]}}`,
		keptName(i), components, partProvider)
}

// untilDeployed returns when all applications are.
func (m *reconciling) untilDeployed(ctx context.Context) error {
	return m.product.untilNumber(ctx, float64(m.apps), "all applications are deployed",
		"SELECT count(*)::float8 FROM applications WHERE status_type = 'deployed'")
}

// appWorkflow is the id of an application's workflow.
func appWorkflow(i int) string {
	return api.AppWorkflowID(ledger.DefaultAccount, wadm.DefaultLattice, keptName(i))
}

// events counts the events of all applications, and of their lattice.
func (m *reconciling) events(ctx context.Context) (float64, error) {
	lengths := make([]float64, m.apps+1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range lengths {
		id := latticeWorkflow()
		if i < m.apps {
			id = appWorkflow(i)
		}
		g.Go(func() (err error) {
			lengths[i], err = (&counted{product: m.product}).events(ctx, id)
			return err
		})
	}
	err := g.Wait()
	sum := 0.0
	for _, n := range lengths {
		sum += n
	}
	return sum, err
}

// untilQuiet returns when nothing is written to the histories any more.
func (m *reconciling) untilQuiet(ctx context.Context) error {
	last := -1.0
	return until(ctx, "the workflows are at rest", func(ctx context.Context) (bool, error) {
		now, err := m.events(ctx)
		if err != nil || now == last {
			return true, err
		}
		last = now
		return false, watch(ctx, time.Second)
	})
}

// settled returns when all applications are as they should be and nothing
// happens.
func (m *reconciling) settled(ctx context.Context) error {
	if err := m.untilDeployed(ctx); err != nil {
		return err
	}
	return m.untilQuiet(ctx)
}
