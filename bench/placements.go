package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/devstack"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/migrations"
)

const (
	fleetSize  = 1000
	batchSize  = 100
	largeBatch = 1000
	pool       = "process"
	poolConns  = 40
	oneAtATime = ", one at a time"
)

// placements measures how fast phases get nodes: through the store one at a
// time, through the placer, which serves those that ask together in one pass,
// and a hundred and a thousand to a pass. The reference is a transaction of one
// INSERT.
func placements(ctx context.Context, b *bench) ([]line, error) {
	m := &placing{bench: b}
	m.say("starting Postgres, with %d nodes", fleetSize)
	stop, err := m.start(ctx, "placements", m.open)
	if err != nil {
		return nil, err
	}
	lines, err := m.measure(ctx)
	return lines, errors.Join(err, stop())
}

// placing is the state of the section.
type placing struct {
	*bench
	stack    *devstack.Stack
	store    *store.Store
	plain    *pgxpool.Pool // for the reference
	launches int           // drafts so far; each has a name of its own
}

// start starts Postgres in a directory of its own, connects to it and fills it.
func (m *placing) start(ctx context.Context, dir string, fill func(context.Context) error) (stop func() error, err error) {
	m.stack, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(m.dir, dir), Services: []devstack.Name{devstack.Postgres},
	})
	if err != nil {
		return nil, err
	}
	stop = func() error {
		if m.store != nil {
			m.store.Close()
		}
		if m.plain != nil {
			m.plain.Close()
		}
		return stopStack(m.stack)
	}
	if err = m.connect(ctx); err == nil {
		err = fill(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func (m *placing) open(ctx context.Context) error {
	return m.register(ctx, fleetSize, capacity.Resources{CPUMilli: 64_000, MemoryMiB: 256 << 10, DiskMiB: 1 << 20, Slots: 64})
}

// register registers n nodes that are alike.
func (m *placing) register(ctx context.Context, n int, total capacity.Resources) error {
	for i := range n {
		_, err := m.store.Heartbeat(ctx, api.Heartbeat{
			Node: fmt.Sprintf("node-%04d", i), BootID: "boot", Version: "1", Arch: "amd64", Total: total,
			Backends: map[string]api.Backend{pool: {OK: true, Accel: "none"}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// connect makes the schema, opens the store and the reference's pool, and
// registers a gateway.
func (m *placing) connect(ctx context.Context) error {
	url := m.stack.PostgresURL
	if _, err := migrations.Apply(ctx, url); err != nil {
		return err
	}
	var err error
	if m.store, err = store.Open(ctx, url, poolConns, store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour, Ageing: 30 * time.Minute, HeadWindow: 64}); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = poolConns
	if m.plain, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if _, err := m.plain.Exec(ctx, "CREATE TABLE bench_rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, word text NOT NULL)"); err != nil {
		return err
	}
	_, err = m.store.GatewayHeartbeat(ctx, api.GatewayHeartbeat{Gateway: "gateway"})
	return err
}

// rates are the figures of one number of clients.
type rates struct {
	insert, place, finish, both, placer, batch sample
	large, own, postgres                       sample // a thousand a pass, and the processor time of each placement
}

func (m *placing) measure(ctx context.Context) ([]line, error) {
	clients := []int{1, 8, 32}
	found := make([]rates, len(clients))
	err := m.repeat(ctx, m.rounds(5, 2), func(ctx context.Context, i int) error {
		for j, n := range clients {
			m.say("placements: round %d, %d clients", i+1, n)
			if err := m.round(ctx, n, &found[j]); err != nil {
				return err
			}
		}
		return nil
	}, func() bool {
		for _, r := range found {
			if r.place.per(r.insert).wide() || r.batch.per(r.insert).wide() {
				return true
			}
		}
		return false
	})
	var lines []line
	for j, n := range clients {
		lines = append(lines, found[j].lines(n)...)
	}
	return lines, err
}

func (r rates) lines(clients int) []line {
	who := fmt.Sprintf("%d clients: ", clients)
	if clients == 1 {
		who = "1 client: "
	}
	one := func(measure string, figure sample, a *aim) line {
		return line{measure: who + measure, figure: figure, unit: "/s", reference: "INSERT", known: r.insert, aim: a}
	}
	lines := []line{
		one("place"+oneAtATime, r.place, atLeast(0.1)),
		one("finish"+oneAtATime, r.finish, nil),
		one("place and finish"+oneAtATime, r.both, nil),
		one("place through the placer", r.placer, nil),
		one(fmt.Sprintf("place, %d a pass", batchSize), r.batch, atLeast(1)),
	}
	if clients > 1 { // they would wait for each other
		return lines
	}
	large := one(fmt.Sprintf("place, %d a pass", largeBatch), r.large, atLeast(25_000))
	large.absolute = true
	return append(lines, large,
		line{measure: "of those, each one's processor time in placer and store", figure: r.own, unit: " µs"},
		line{measure: "of those, each one's processor time in Postgres", figure: r.postgres, unit: " µs"})
}

// round measures everything once, close together in time.
func (m *placing) round(ctx context.Context, clients int, r *rates) error {
	each := max(m.pick(200, 40)/clients, 5) // of each client
	passes := max(m.pick(16, 4)/clients, 1)
	work, err := m.phases(ctx, clients, each)
	if err != nil {
		return err
	}
	again, err := m.phases(ctx, clients, each)
	if err != nil {
		return err
	}
	asked, err := m.phases(ctx, clients, 2*each)
	if err != nil {
		return err
	}
	many, err := m.phases(ctx, batchSize, passes*clients)
	if err != nil {
		return err
	}
	placer, stopPlacer := m.newPlacer(ctx)
	defer stopPlacer()

	for _, part := range []struct {
		into *sample
		n    int // of what is counted
		do   func(context.Context, int) error
	}{
		{&r.insert, clients * each * 5, func(ctx context.Context, _ int) error { return m.insert(ctx, each*5) }},
		{&r.place, clients * each, func(ctx context.Context, c int) error { return eachOf(ctx, work[c], m.place) }},
		{&r.finish, clients * each, func(ctx context.Context, c int) error { return eachOf(ctx, work[c], m.finish) }},
		{&r.both, clients * each, func(ctx context.Context, c int) error { return eachOf(ctx, again[c], m.place, m.finish) }},
		{&r.placer, clients * each * 2, func(ctx context.Context, c int) error {
			return eachOf(ctx, asked[c], func(ctx context.Context, id int64) error { return ask(ctx, placer, id) })
		}},
		{&r.batch, clients * passes * batchSize, func(ctx context.Context, c int) error {
			return m.placeBatches(ctx, many, c*passes, passes)
		}},
	} {
		took, err := timed(ctx, clients, part.do)
		if err != nil {
			return err
		}
		*part.into = append(*part.into, float64(part.n)/took.Seconds())
	}
	if clients == 1 {
		most, err := m.placeLarge(ctx, r)
		if err != nil {
			return err
		}
		many = append(many, most...)
	}
	return m.clear(ctx, append(asked, many...))
}

// placeLarge places a thousand phases in each of a few passes, and returns them.
func (m *placing) placeLarge(ctx context.Context, r *rates) ([][]int64, error) {
	passes := m.pick(5, 1)
	many, err := m.phases(ctx, largeBatch, passes)
	if err != nil {
		return nil, err
	}
	before, err := m.processorTimes()
	if err != nil {
		return nil, err
	}
	took, err := timed(ctx, 1, func(ctx context.Context, _ int) error { return m.placeBatches(ctx, many, 0, passes) })
	if err != nil {
		return nil, err
	}
	after, err := m.processorTimes()
	if err != nil {
		return nil, err
	}
	n := float64(largeBatch * passes)
	r.large = append(r.large, n/took.Seconds())
	r.own = append(r.own, 1000*milliseconds(after[0]-before[0])/n)
	r.postgres = append(r.postgres, 1000*milliseconds(after[1]-before[1])/n)
	return many, nil
}

// processorTimes are those of this process, without its children, and of
// Postgres so far.
func (m *placing) processorTimes() ([2]time.Duration, error) {
	own, err := ownProcessorTime(os.Getpid())
	if err != nil {
		return [2]time.Duration{}, err
	}
	postgres, err := processorTime(m.stack.Postgres.PID())
	return [2]time.Duration{own, postgres}, err
}

// timed runs one call of do for each client at once, and returns how long they
// took together.
func timed(ctx context.Context, clients int, do func(ctx context.Context, client int) error) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for c := range clients {
		g.Go(func() error { return do(ctx, c) })
	}
	err := g.Wait()
	return time.Since(began), err
}

func eachOf(ctx context.Context, ids []int64, steps ...func(context.Context, int64) error) error {
	for _, id := range ids {
		for _, step := range steps {
			if err := step(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// phases launches missions and returns their phases' ids: missions rows of
// length phases.
func (m *placing) phases(ctx context.Context, missions, length int) ([][]int64, error) {
	ids := make([][]int64, missions)
	for i := range ids {
		m.launches++
		name := fmt.Sprintf("m%d", m.launches)
		d := store.Draft{
			Name: name, Actor: "bench", WorkflowRun: name,
			Document: json.RawMessage(`{"name":"` + name + `","spec":{"backend":"process","phases":[]}}`),
		}
		for p := range length {
			d.Phases = append(d.Phases, store.DraftPhase{
				Name: fmt.Sprintf("p%d", p), Turn: time.Hour, MaxWait: time.Hour,
				Demand: capacity.Demand{Backend: pool, Resources: capacity.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64, Slots: 1}},
			})
		}
		l, refused, err := m.store.Launch(ctx, d)
		if err != nil {
			return nil, err
		}
		if len(refused) > 0 {
			return nil, fmt.Errorf("a launch was refused: %s", refused[0].Refusal.Sentence)
		}
		for _, p := range l.Phases {
			ids[i] = append(ids[i], p.ID)
		}
	}
	return ids, nil
}

func (m *placing) insert(ctx context.Context, n int) error {
	for range n {
		if _, err := m.plain.Exec(ctx, "INSERT INTO bench_rows (word) VALUES ($1)", "a short word"); err != nil {
			return err
		}
	}
	return nil
}

func look(id int64) store.Look { return store.Look{PhaseID: id, Attempt: 1, Wake: ledger.WakeFirst} }

var errNotPlaced = errors.New("a phase was not placed although there is room")

func (m *placing) place(ctx context.Context, id int64) error {
	return m.pass(ctx, []store.Look{look(id)})
}

func (m *placing) pass(ctx context.Context, looks []store.Look) error {
	res, err := m.store.Pass(ctx, pool, looks, ledger.WakeFirst)
	if err != nil {
		return err
	}
	for _, l := range looks {
		if res.Outcomes[l.PhaseID].Placed == nil {
			return errNotPlaced
		}
	}
	return nil
}

// placeBatches places column after column of phases: each pass has one phase of
// each mission.
func (m *placing) placeBatches(ctx context.Context, missions [][]int64, from, n int) error {
	for i := from; i < from+n; i++ {
		looks := make([]store.Look, len(missions))
		for j, ids := range missions {
			looks[j] = look(ids[i])
		}
		if err := m.pass(ctx, looks); err != nil {
			return err
		}
	}
	return nil
}

func (m *placing) newPlacer(ctx context.Context) (*engine.Placer, func()) {
	ctx, cancel := context.WithCancel(ctx)
	p := engine.NewPlacer(ctx, m.store, 10*time.Second, func() {}, slog.New(slog.DiscardHandler))
	return p, func() { cancel(); p.Wait() }
}

func ask(ctx context.Context, p *engine.Placer, id int64) error {
	outcome, err := p.Look(ctx, pool, look(id))
	if err == nil && outcome.Placed == nil {
		err = errNotPlaced
	}
	return err
}

func (m *placing) finish(ctx context.Context, id int64) error {
	_, err := m.store.FinishPhase(ctx, id, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
	return err
}

// clear ends the phases that a round placed and did not end.
func (m *placing) clear(ctx context.Context, missions [][]int64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, ids := range missions {
		g.Go(func() error { return eachOf(ctx, ids, m.finish) })
	}
	return g.Wait()
}
