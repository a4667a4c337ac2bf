package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/devstack"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/wadm"
)

const (
	appCount   = 1000 // stored before anything is asked
	askClients = 32   // each with a connection of its own
	askTime    = 10 * time.Second
)

// applications measures the API that wash speaks: requests of many clients,
// beside an empty request on the same broker and a query by key on the same
// database, and beside wadm itself where -wadm names its program.
func applications(ctx context.Context, b *bench) (lines []line, err error) {
	err = b.with(ctx, "applications", smallNode, nil, func(ctx context.Context, p *product) error {
		m := &asking{bench: b, product: p}
		lines, err = m.measure(ctx)
		return err
	})
	return lines, err
}

// asking is the state of the section.
type asking struct {
	*bench
	product *product
	ours    manifestAPI
	theirs  *manifestAPI // wadm's, when it is measured too
	plain   *pgxpool.Pool
	echo    *nats.Subscription
	puts    int // versions put so far, in all rounds
}

// manifestAPI is one server of the API and the clients that ask it.
type manifestAPI struct {
	clients []wadm.Client
}

func connectAPI(url string) (manifestAPI, error) {
	a := manifestAPI{clients: make([]wadm.Client, askClients)}
	for i := range a.clients {
		nc, err := nats.Connect(url)
		if err != nil {
			a.close()
			return manifestAPI{}, err
		}
		a.clients[i] = wadm.Client{Conn: nc}
	}
	return a, nil
}

func (a manifestAPI) close() {
	for _, c := range a.clients {
		if c.Conn != nil {
			c.Conn.Close()
		}
	}
}

// answers is what a storm of requests met.
type answers struct {
	rate sample // a second, in all
	p50  sample // milliseconds
	p99  sample
}

func (a *answers) add(rate float64, took sample) {
	a.rate = append(a.rate, rate)
	a.p50 = append(a.p50, took.quantile(0.5))
	a.p99 = append(a.p99, took.quantile(0.99))
}

// storm asks n times, from each client one after the other.
func storm(ctx context.Context, clients, n int, ask func(ctx context.Context, client, i int) error) (rate float64, took sample, err error) {
	took = make(sample, n)
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for c := range clients {
		g.Go(func() error {
			for i := c; i < n; i += clients {
				asked := time.Now()
				if err := within(ctx, func(ctx context.Context) error { return ask(ctx, c, i) }); err != nil {
					return err
				}
				took[i] = float64(time.Since(asked).Microseconds()) / 1000
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(n) / time.Since(began).Seconds(), took, err
}

func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return f(ctx)
}

func (m *asking) measure(ctx context.Context) ([]line, error) {
	stop, err := m.prepare(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := m.lines(ctx)
	return lines, errors.Join(err, stop())
}

func (m *asking) prepare(ctx context.Context) (stop func() error, err error) {
	stopWadm := func() error { return nil }
	stop = func() error {
		m.ours.close()
		if m.theirs != nil {
			m.theirs.close()
		}
		if m.plain != nil {
			m.plain.Close()
		}
		return stopWadm()
	}
	fail := func(err error) (func() error, error) { return nil, errors.Join(err, stop()) }
	if m.ours, err = connectAPI(m.product.Stack.NATSURL); err != nil {
		return fail(err)
	}
	if m.wadm != "" {
		var theirs manifestAPI
		if theirs, stopWadm, err = m.startWadm(ctx); err != nil {
			return fail(err)
		}
		m.theirs = &theirs
	}
	if m.echo, err = m.product.nats.Subscribe("bench.echo", func(msg *nats.Msg) { _ = msg.Respond(nil) }); err != nil {
		return fail(err)
	}
	config, err := pgxpool.ParseConfig(m.product.Stack.PostgresURL)
	if err != nil {
		return fail(err)
	}
	config.MaxConns = askClients
	if m.plain, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fail(err)
	}
	return stop, nil
}

// startWadm starts the real thing on a NATS server of its own.
func (m *asking) startWadm(ctx context.Context) (a manifestAPI, stop func() error, err error) {
	m.say("starting wadm, %s", m.wadm)
	stack, err := devstack.Start(ctx, devstack.Options{Dir: filepath.Join(m.dir, "wadm"), Services: []devstack.Name{devstack.NATS}})
	if err != nil {
		return a, nil, err
	}
	cmd := exec.Command(m.wadm, "--nats-server", strings.TrimPrefix(stack.NATSURL, "nats://"))
	if err := cmd.Start(); err != nil {
		return a, nil, errors.Join(err, stopStack(stack))
	}
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it says so by its signal
		return stopStack(stack)
	}
	if a, err = connectAPI(stack.NATSURL); err != nil {
		return a, nil, errors.Join(err, stop())
	}
	err = until(ctx, "wadm answers", func(ctx context.Context) (bool, error) {
		err := within(ctx, func(ctx context.Context) error { _, err := a.clients[0].List(ctx); return err })
		return err == nil, nil
	})
	if err != nil {
		a.close()
		return a, nil, errors.Join(err, stop())
	}
	return a, stop, nil
}

// found are the figures of one server.
type found struct {
	put, get, status, list, listMany answers
}

func (m *asking) lines(ctx context.Context) ([]line, error) {
	var ours, theirs found
	var echo, query answers
	for _, s := range m.servers() {
		if err := m.fill(ctx, s); err != nil {
			return nil, err
		}
	}
	round := func(ctx context.Context, i int) error {
		m.say("applications: round %d", i+1)
		if err := m.references(ctx, &echo, &query); err != nil {
			return err
		}
		if err := m.ask(ctx, m.ours, &ours); err != nil || m.theirs == nil {
			return err
		}
		return m.ask(ctx, *m.theirs, &theirs)
	}
	if err := m.repeat(ctx, m.rounds(5, 1), round, func() bool { return ours.get.rate.per(echo.rate).wide() }); err != nil {
		return nil, err
	}
	lines := m.table(ours, theirs, echo, query)
	memory, err := m.memory(ctx)
	if err != nil {
		return nil, err
	}
	documents, err := m.documents(ctx)
	return append(append(lines, memory...), documents...), err
}

func (m *asking) servers() []manifestAPI {
	if m.theirs == nil {
		return []manifestAPI{m.ours}
	}
	return []manifestAPI{m.ours, *m.theirs}
}

// document is an application of two components and a link, as applications
// usually are.
func appDocument(i int, version string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"core.oam.dev/v1beta1","kind":"Application",`+
		`"metadata":{"name":"%s","annotations":{"version":"%s","description":"the shop's front, number %d"}},`+
		`"spec":{"components":[`+
		`{"name":"api","type":"component","properties":{"image":"registry.example.com/shop/api:1.4.0",`+
		`"config":[{"name":"settings","properties":{"currency":"EUR","country":"NL"}}]},`+
		`"traits":[{"type":"spreadscaler","properties":{"instances":6,"spread":[`+
		`{"name":"eu","requirements":{"region":"eu-west"},"weight":2},{"name":"us","requirements":{"region":"us-east"},"weight":1}]}}]},`+
		`{"name":"web","type":"capability","properties":{"image":"registry.example.com/providers/http:0.27.0"},`+
		`"traits":[{"type":"link","properties":{"namespace":"wasi","package":"http","interfaces":["incoming-handler"],`+
		`"source":{"config":[{"name":"listen","properties":{"address":"0.0.0.0:8080"}}]},"target":{"name":"api"}}}]}]}}`,
		appName(i), version, i)
}

func appName(i int) string { return fmt.Sprintf("shop-%04d", i) }

// fill stores the applications, half of them deployed.
func (m *asking) fill(ctx context.Context, a manifestAPI) error {
	n := m.pick(appCount, 50)
	m.say("applications: storing %d", n)
	_, _, err := storm(ctx, askClients, n, func(ctx context.Context, c, i int) error {
		if _, err := a.clients[c].Put(ctx, appDocument(i, "v1")); err != nil {
			return err
		}
		if i%2 == 1 {
			return nil
		}
		_, err := a.clients[c].Deploy(ctx, appName(i), nil)
		return err
	})
	return err
}

// references measures what the API stands on: a request that nobody works on,
// and a query for one row by its key.
func (m *asking) references(ctx context.Context, echo, query *answers) error {
	rate, took, err := storm(ctx, askClients, m.repetitions(20000, 500), func(ctx context.Context, c, _ int) error {
		_, err := m.ours.clients[c].Conn.RequestWithContext(ctx, "bench.echo", nil)
		return err
	})
	if err != nil {
		return err
	}
	echo.add(rate, took)
	n := m.pick(appCount, 50)
	rate, took, err = storm(ctx, askClients, m.repetitions(20000, 500), func(ctx context.Context, _, i int) error {
		var status string
		return m.plain.QueryRow(ctx, "SELECT status FROM applications WHERE account = $1 AND lattice = $2 AND name = $3",
			ledger.DefaultAccount, wadm.DefaultLattice, appName(i%n)).Scan(&status)
	})
	if err != nil {
		return err
	}
	query.add(rate, took)
	return nil
}

func (m *asking) ask(ctx context.Context, a manifestAPI, f *found) error {
	n := m.pick(appCount, 50)
	m.puts++
	version := fmt.Sprintf("v1.%d", m.puts)
	for _, s := range []struct {
		into    *answers
		clients int
		times   int
		ask     func(ctx context.Context, c, i int) error
	}{
		{&f.put, askClients, n, func(ctx context.Context, c, i int) error {
			_, err := a.clients[c].Put(ctx, appDocument(i, version))
			return err
		}},
		{&f.get, askClients, m.repetitions(5000, 200), func(ctx context.Context, c, i int) error {
			_, err := a.clients[c].Get(ctx, appName(i%n), nil)
			return err
		}},
		{&f.status, askClients, m.repetitions(5000, 200), func(ctx context.Context, c, i int) error {
			_, err := a.clients[c].Status(ctx, appName(i%n))
			return err
		}},
		{&f.list, 1, m.pick(20, 3), func(ctx context.Context, c, _ int) error { return listRaw(ctx, a.clients[c]) }},
		{&f.listMany, askClients, m.pick(200, 40), func(ctx context.Context, c, _ int) error { return listRaw(ctx, a.clients[c]) }},
	} {
		rate, took, err := storm(ctx, s.clients, s.times, s.ask)
		if err != nil {
			return err
		}
		s.into.add(rate, took)
	}
	return nil
}

// listRaw asks for the bare array that wash asks for, and does not read it: what
// is measured is the server.
func listRaw(ctx context.Context, c wadm.Client) error {
	subject := wadm.Subject(wadm.DefaultPrefix, wadm.DefaultLattice, wadm.OpList, "")
	msg, err := c.Conn.RequestWithContext(ctx, subject, nil)
	if err == nil && (len(msg.Data) == 0 || msg.Data[0] != '[') {
		err = fmt.Errorf("list answered %.200s", msg.Data)
	}
	return err
}

func (m *asking) table(ours, theirs found, echo, query answers) []line {
	n := m.pick(appCount, 50)
	lines := []line{
		{measure: "list, 1 client, p50", figure: ours.list.p50, unit: " ms", reference: "empty request, p50", known: echo.p50, aim: atMost(50), absolute: true},
	}
	for _, s := range []struct {
		name         string
		ours, theirs answers
	}{
		{"put", ours.put, theirs.put},
		{"get", ours.get, theirs.get},
		{"status", ours.status, theirs.status},
		{fmt.Sprintf("list of %d", n), ours.listMany, theirs.listMany},
	} {
		with := fmt.Sprintf("%s, %d clients", s.name, askClients)
		lines = append(lines,
			line{measure: with, figure: s.ours.rate, unit: "/s", reference: "empty request", known: echo.rate},
			line{measure: with, figure: s.ours.rate, unit: "/s", reference: "query by key", known: query.rate},
			line{measure: with + ", p99", figure: s.ours.p99, unit: " ms", reference: "empty request, p99", known: echo.p99},
		)
		if m.theirs != nil {
			lines = append(lines,
				line{measure: with, figure: s.ours.rate, unit: "/s", reference: "wadm", known: s.theirs.rate, aim: atLeast(1)},
				line{measure: with + ", p99", figure: s.ours.p99, unit: " ms", reference: "wadm, p99", known: s.theirs.p99, aim: atMost(1)},
			)
		}
	}
	return lines
}

// memory asks very often and looks at the engine's memory.
func (m *asking) memory(ctx context.Context) ([]line, error) {
	n := m.pick(appCount, 50)
	pid := m.product.engine.PID()
	mixed := func(times int) error {
		_, _, err := storm(ctx, askClients, times, func(ctx context.Context, c, i int) error {
			client, name := m.ours.clients[c], appName(i%n)
			var err error
			switch i % 4 {
			case 0:
				_, err = client.Get(ctx, name, nil)
			case 1:
				_, err = client.Versions(ctx, name)
			default:
				_, err = client.Status(ctx, name)
			}
			return err
		})
		return err
	}
	m.say("applications: the engine's memory")
	if err := mixed(m.pick(10_000, 200)); err != nil {
		return nil, err
	}
	before, err := usageOf(pid)
	if err != nil {
		return nil, err
	}
	if err := mixed(m.pick(100_000, 1000)); err != nil {
		return nil, err
	}
	after, err := usageOf(pid)
	if err != nil {
		return nil, err
	}
	return []line{{
		measure: fmt.Sprintf("engine, resident after %d requests", m.pick(100_000, 1000)), figure: sample{after.resident}, unit: " MiB",
		reference: "before", known: sample{before.resident}, aim: atMost(1.1),
	}}, nil
}

// documents reads and checks a document again and again, on one processor.
func (m *asking) documents(ctx context.Context) ([]line, error) {
	src := appDocument(1, "v1")
	doc, err := oam.Parse(src, oam.JSON)
	if err != nil {
		return nil, err
	}
	yaml, err := doc.Manifest.YAML()
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, s := range []struct {
		name   string
		src    []byte
		format oam.Format
	}{{"JSON", src, oam.JSON}, {"YAML", yaml, oam.YAML}} {
		var rate sample
		err := m.repeat(ctx, m.rounds(5, 1), func(context.Context, int) error {
			times := m.pick(10_000, 200)
			began := time.Now()
			for range times {
				doc, err := oam.Parse(s.src, s.format)
				if err != nil {
					return err
				}
				doc.Validate()
			}
			rate = append(rate, float64(times)/time.Since(began).Seconds())
			return nil
		}, rate.wide)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line{
			measure: fmt.Sprintf("documents read and checked, %s of %d bytes", s.name, len(s.src)), figure: rate, unit: "/s", aim: atLeast(2000),
		})
	}
	return lines, nil
}
