package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/local"
	"tidewait/internal/simhost"
)

// TestChaos lets faults happen to a product that is busy with missions and
// applications, round after round. Whatever happens, all of them end truthfully,
// nothing that was committed is lost, and nothing is left behind. One round is
// always played; make faults plays more.
func TestChaos(t *testing.T) {
	long(t, 80*time.Second)
	until := faultMinutes(t)
	seed, first := uint64(7), 0
	if faultSettings.seed != "" {
		var err error
		seed, err = strconv.ParseUint(faultSettings.seed, 10, 64)
		require.NoError(t, err, "TIDEWAIT_FAULT_SEED")
	}
	if faultSettings.round != "" {
		var err error
		first, err = strconv.Atoi(faultSettings.round)
		require.NoError(t, err, "TIDEWAIT_FAULT_ROUND")
	}
	t.Logf("TIDEWAIT_FAULT_SEED=%d", seed)
	worker, clocks := filepath.Join(bin, "tidewait-worker"), until > 0
	if clocks {
		worker = buildWithClock(t)
	}
	c := startChaos(t, worker, clocks)
	table, began := &chaosTable{}, time.Now()
	t.Cleanup(func() { t.Log(table) })
	for round := first; round == first || time.Since(began) < until; round++ {
		r := drawChaos(seed, round, until > 0)
		t.Logf("round %d: %s", round, r)
		if !t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { c.in(t).play(r, round, table) }) {
			t.Fatalf("round %d of TIDEWAIT_FAULT_SEED=%d failed; its faults: %s; TIDEWAIT_FAULT_ROUND=%d begins with it", round, seed, r, round)
		}
	}
	c.objectsGo()
}

// chaos is a product of which every part can be struck: two engines, a gateway,
// two nodes and two hosts, each with wires of its own to the services it uses.
type chaos struct {
	*product
	workers map[string]*local.Worker // by their names
	wires   map[string]*wire         // by part and service, as in "n1-NATS"
	clocks  map[string]clock         // of workers
	disks   map[string]string        // where a worker's own file system is
	hosts   *chaosHosts
	shop    *site // where applications are deployed
	dark    *site // where no host ever is
	dimmed  time.Time
	booked  *bookings
}

// chaosHosts are the hosts that run now.
type chaosHosts struct {
	mu    sync.Mutex
	alive map[string]*simhost.Host
}

var (
	chaosWorkers = []string{"engine-1", "engine-2", "gateway", "n1", "n2"}
	chaosHosted  = []string{"h1", "h2"}
	chaosWires   = []string{
		"engine-1-NATS", "engine-1-Postgres", "engine-1-Temporal", "engine-2-NATS", "engine-2-Postgres", "engine-2-Temporal",
		"gateway-NATS", "gateway-Temporal", "n1-NATS", "n1-Temporal", "n2-NATS", "n2-Temporal", "hosts-NATS",
	}
	chaosDisks    = []string{"gateway", "n1", "n2"}
	chaosServices = []string{"NATS", "Postgres", "Temporal"}
	chaosMachines = []string{"machine on n1", "machine on n2"}
)

// objectsKept is how long objects outlive what they were made for.
const objectsKept = 90 * time.Second

// startChaos starts it all, with workers of this program.
func startChaos(t *testing.T, program string, clocks bool) *chaos {
	t.Helper()
	c := &chaos{
		product: startServices(t, program, "TIDEWAIT_FLEET_OBJECT_TTL="+objectsKept.String(), "TIDEWAIT_LOG_LEVEL=debug"),
		workers: map[string]*local.Worker{}, wires: map[string]*wire{}, clocks: map[string]clock{}, disks: map[string]string{},
		hosts: &chaosHosts{alive: map[string]*simhost.Host{}},
	}
	for _, name := range chaosWires {
		_, service := cutLast(name)
		c.wires[name] = newWire(t, map[string]string{
			"NATS": c.Stack.NATS.Address(), "Postgres": c.Stack.Postgres.Address(), "Temporal": c.Stack.Temporal.Address(),
		}[service])
	}
	if clocks {
		c.mountDisks()
	}
	for _, name := range chaosWorkers {
		env := c.wired(name)
		if clocks {
			c.clocks[name] = newClock(t)
			env = append(env, c.clocks[name].env())
		}
		c.workers[name] = c.startWorker(name, env)
	}
	c.engine, c.gateway = c.workers["engine-1"], c.workers["gateway"]
	hosts, err := nats.Connect("nats://"+c.wires["hosts-NATS"].address(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(hosts.Close)
	c.shop = c.site("default", "default", hosts, c.nats)
	c.dark = c.site("default", "dark", c.nats, c.nats)
	for _, name := range chaosHosted {
		c.hosts.alive[name] = c.shop.host(name)
	}
	c.dark.deploy(shop("moon", "v1"))
	got := c.dark.until("moon", "waiting", func(got wadmStatus) bool { return got.Status.Reason == "never_observed" })
	c.dimmed = *got.Status.Since
	c.booked = watchBookings(t, c.Stack.PostgresURL)
	return c
}

// startServices starts the services, and no worker yet.
func startServices(t *testing.T, program string, env ...string) *product {
	t.Helper()
	stacks.take(t)
	ctx, dir := t.Context(), devstacktest.Dir(t)
	started, err := local.Start(ctx, local.Options{
		Worker: program, Patience: 2 * time.Minute,
		Env:   append(append([]string{"TIDEWAIT_DATA_DIR=" + dir}, quick...), env...),
		Stack: devstack.Options{Dir: filepath.Join(dir, "stack"), TemporalCLI: devstacktest.TemporalCLI(t)},
	})
	require.NoError(t, err)
	p := &product{Product: started, t: t, dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			p.printAllLogs()
		}
		require.NoError(t, started.Stop())
	})
	p.db, err = pgx.Connect(ctx, p.Stack.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close(context.Background()) })
	p.temporal, err = client.DialContext(ctx, client.Options{HostPort: p.Stack.TemporalAddress})
	require.NoError(t, err)
	t.Cleanup(p.temporal.Close)
	p.nats, err = nats.Connect(p.Stack.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(p.nats.Close)
	return p
}

func (p *product) printAllLogs() {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "stack", "logs", "*.log"))
	for _, path := range logs {
		if data, err := os.ReadFile(path); err == nil {
			p.t.Logf("%s:\n%s", filepath.Base(path), tail(data, 6000))
		}
	}
}

// in is the same for one round.
func (c *chaos) in(t *testing.T) *chaos {
	t.Helper()
	own := *c
	own.product = c.product.in(t)
	own.shop, own.dark = c.shop.beside(own.product), c.dark.beside(own.product)
	return &own
}

// beside is the same lattice, for a test that asks it through p.
func (s *site) beside(p *product) *site {
	return &site{product: p, account: s.account, name: s.name, l: s.l, nc: s.nc, api: s.api, statuses: map[string][]wadmStatus{}}
}

// startWorker starts a worker in the role that its name says.
func (c *chaos) startWorker(name string, env []string) *local.Worker {
	c.t.Helper()
	role, _, _ := strings.Cut(name, "-")
	switch role {
	case "gateway":
		env = append(env, "TIDEWAIT_GATEWAY_ID=gw")
	case "n1", "n2":
		role = "node"
		env = append(env, "TIDEWAIT_NODE_ID="+name, "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2",
			"TIDEWAIT_NODE_MEMORY=900Mi", "TIDEWAIT_NODE_DISK=4Gi")
	}
	w, err := c.StartWorker(c.t.Context(), name, []string{role}, env...)
	require.NoError(c.t, err)
	return w
}

// wired are the variables with which a worker uses its own wires.
func (c *chaos) wired(name string) []string {
	env := []string{"TIDEWAIT_NATS_URL=nats://" + c.wires[name+"-NATS"].address(), "TIDEWAIT_TEMPORAL_ADDRESS=" + c.wires[name+"-Temporal"].address()}
	if w := c.wires[name+"-Postgres"]; w != nil {
		env = append(env, "TIDEWAIT_POSTGRES_URL="+strings.Replace(c.Stack.PostgresURL, c.Stack.Postgres.Address(), w.address(), 1))
	}
	return env
}

// mountDisks gives those that keep files a small file system each.
func (c *chaos) mountDisks() {
	c.t.Helper()
	for _, name := range chaosDisks {
		dir := filepath.Join(c.dir, "node", name)
		if name == "gateway" {
			dir = filepath.Join(c.dir, "gateway", "gw")
		}
		require.NoError(c.t, os.MkdirAll(dir, 0o755)) //nolint:gosec // as the product makes it
		require.NoError(c.t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=755"), "a file system that can be filled takes root")
		c.t.Cleanup(func() {
			for _, w := range c.workers {
				_ = w.Stop() // what it works in is about to go
			}
			require.NoError(c.t, unix.Unmount(dir, unix.MNT_DETACH))
		})
		c.disks[name] = dir
	}
}

// strike lets a fault happen, and ends it when it has lasted.
func (c *chaos) strike(s chaosStrike) error {
	<-time.After(s.at)
	end, err := c.begin(s)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	<-time.After(s.lasts)
	if err := end(); err != nil {
		return fmt.Errorf("end of %s: %w", s, err)
	}
	return nil
}

// strikeAll plays the faults of a round, each at its moment.
func (c *chaos) strikeAll(r chaosRound) error {
	var all errgroup.Group
	for _, s := range r.strikes {
		all.Go(func() error { return c.strike(s) })
	}
	return all.Wait()
}

func (c *chaos) begin(s chaosStrike) (end func() error, err error) {
	if w := c.workers[s.where]; w != nil {
		return c.strikeWorker(w, s)
	}
	if w := c.wires[s.where]; w != nil {
		w.strike(s.fault)
		return func() error { w.mend(); return nil }, nil
	}
	switch s.where {
	case "h1", "h2":
		return c.strikeHost(s)
	case "machine on n1", "machine on n2":
		return func() error { return nil }, c.killMachine(strings.TrimPrefix(s.where, "machine on "))
	}
	return c.strikeService(map[string]*devstack.Service{"NATS": c.Stack.NATS, "Postgres": c.Stack.Postgres, "Temporal": c.Stack.Temporal}[s.where], s)
}

func (c *chaos) strikeWorker(w *local.Worker, s chaosStrike) (end func() error, err error) {
	switch s.fault {
	case killed:
		return func() error { return c.again(w) }, w.Kill()
	case stopped:
		return func() error { return c.again(w) }, w.Stop()
	case frozen:
		return func() error { return w.Signal(syscall.SIGCONT) }, w.Signal(syscall.SIGSTOP)
	case skewedClock:
		return func() error { return c.clocks[s.where].set(0) }, c.clocks[s.where].set(s.skew)
	case diskFull:
		return c.fill(c.disks[s.where])
	}
	panic(s.fault)
}

// again starts a worker, as whatever supervises it does, until it stays. What it
// needs may be away.
func (c *chaos) again(w *local.Worker) error {
	deadline := time.Now().Add(patience)
	for {
		err := w.Start(c.t.Context())
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// fill leaves no byte of a file system free.
func (c *chaos) fill(dir string) (free func() error, err error) {
	path := filepath.Join(dir, "full")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for size := 1 << 20; size > 0; {
		if _, err := file.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return nil, err
		}
	}
	return func() error { return os.Remove(path) }, nil
}

func (w *wire) strike(fault string) {
	w.set(func() {
		w.cut, w.stalled, w.delay = fault == cut, fault == stalled, map[string]time.Duration{slow: 200 * time.Millisecond}[fault]
	})
}

func (c *chaos) strikeHost(s chaosStrike) (end func() error, err error) {
	c.hosts.mu.Lock()
	h := c.hosts.alive[s.where]
	c.hosts.mu.Unlock()
	if s.fault == frozen {
		h.Freeze()
		return func() error { h.Thaw(); return nil }, nil
	}
	h.Kill()
	return func() error {
		var again *simhost.Host
		deadline := time.Now().Add(patience)
		for {
			again, err = c.shop.l.Start(c.t.Context(), simhost.HostSpec{Name: s.where})
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
		}
		c.hosts.mu.Lock()
		defer c.hosts.mu.Unlock()
		c.hosts.alive[s.where] = again
		return nil
	}, nil
}

func (c *chaos) strikeService(service *devstack.Service, s chaosStrike) (end func() error, err error) {
	if s.fault == frozen {
		return service.Thaw, service.Freeze()
	}
	return func() error { return service.Start(c.t.Context()) }, service.Kill()
}

// killMachine kills what runs on a node; it may be nothing.
func (c *chaos) killMachine(node string) error {
	found, err := filepath.Glob(filepath.Join(c.dir, "node", node, "*", "runs", "r*-*.*", "journal.json"))
	if err != nil {
		return err
	}
	for _, path := range found {
		var machine machineJournal
		data, err := os.ReadFile(path)
		if err != nil || jsonOf(string(data), &machine) != nil || machine.PID == 0 {
			continue // it has just ended
		}
		_ = syscall.Kill(machine.PID, syscall.SIGKILL)
	}
	return nil
}

// cutLast splits a name at its last hyphen.
func cutLast(name string) (before, after string) {
	i := strings.LastIndex(name, "-")
	return name[:i], name[i+1:]
}
