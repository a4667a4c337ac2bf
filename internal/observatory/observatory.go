// Package observatory observes lattices for an engine and keeps applications
// true to them. Each observed lattice has a task queue of its own, served by the
// engine that observes it: looks and commands run beside what is known of the
// lattice, and nowhere else.
//
// Temporal decides which engine observes, and gives the lattice to another one
// when heartbeats stay out. That is not mutual exclusion: an engine that was
// frozen does not know yet. So every observation takes an epoch from the
// database; looks return it, commands carry it, and both are refused when the
// database knows a newer one, or when this process has not run for a while.
//
// An Observatory may be used by several goroutines. Its mutex guards the list
// of observations only.
package observatory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"tidewait/internal/health"
	"tidewait/internal/lattice"
	"tidewait/internal/ledger"
	"tidewait/internal/logkey"
	"tidewait/internal/meter"
	"tidewait/internal/store"
	"tidewait/workflows"
)

// Observatory runs the observations of one engine.
type Observatory struct {
	Store    *store.Store
	Temporal client.Client
	NATS     *nats.Conn
	// Connect returns the connection to the hosts of a lattice, and whether it is
	// one of its own, in their NATS account: it is closed when the lattice is not
	// observed any more.
	Connect func(in workflows.LatticeInput) (nc *nats.Conn, own bool, err error)
	Engine  string   // who this is, for people
	Watch   []string // lattices of the default account that are observed without need
	Changed func()   // called when the outbox of applications has got something
	Log     *slog.Logger
	Meter   *meter.Meter   // nil: nothing is counted
	Health  *health.Health // nil: nobody watches

	mu      sync.Mutex
	running map[workflows.LatticeInput]*observation
}

// Times of an observation.
const (
	beatEvery  = 2 * time.Second // heartbeats to Temporal
	frozenFor  = 5 * time.Second // without running, after which an observation is given up: less than its heartbeat timeout
	syncTime   = 15 * time.Second
	needEvery  = 15 * time.Second // looks whether the lattice is needed
	stopWithin = 5 * time.Second
)

// Register adds the observation of lattices to a worker of the queue of
// observers.
func (o *Observatory) Register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(o.Observe, activity.RegisterOptions{Name: workflows.ActivityObserve})
}

// Observe observes a lattice until nobody needs it any more, or another process
// took it over.
func (o *Observatory) Observe(ctx context.Context, in workflows.LatticeInput) error {
	if err := o.wanted(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ob := &observation{Observatory: o, in: in, cancel: cancel, apps: map[ledger.AppKey]*watched{}}
	o.supersede(in, ob)
	defer o.forget(in, ob)
	var err error
	if ob.epoch, err = o.Store.TakeLattice(ctx, in.Account, in.Lattice, o.Engine); err != nil {
		return err
	}
	ob.log = o.Log.With(logkey.Account, in.Account, logkey.Lattice, in.Lattice, "epoch", ob.epoch)
	ob.log.Info("observing")
	err = ob.run(ctx)
	ob.log.Info("observing no more", "why", err)
	return err
}

// wanted returns an error when Temporal has given up on this activity already: a
// process that was frozen while it was handed a lattice must not take it from
// whoever has it by now.
func (o *Observatory) wanted(ctx context.Context) error {
	if err := o.Temporal.RecordActivityHeartbeat(ctx, activity.GetInfo(ctx).TaskToken); err != nil {
		return fmt.Errorf("ask whether the lattice is still to be observed: %w", err)
	}
	return nil
}

// supersede makes ob the observation of a lattice; an older one in this process
// ends.
func (o *Observatory) supersede(in workflows.LatticeInput, ob *observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if older := o.running[in]; older != nil {
		older.cancel(store.ErrSuperseded)
	}
	if o.running == nil {
		o.running = map[workflows.LatticeInput]*observation{}
	}
	o.running[in] = ob
}

func (o *Observatory) forget(in workflows.LatticeInput, ob *observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[in] == ob {
		delete(o.running, in)
	}
}

// control returns the client of a lattice's control interface, and what ends it.
func (o *Observatory) control(in workflows.LatticeInput) (lattice.Client, func(), error) {
	nc, own, err := o.Connect(in)
	if err != nil {
		return lattice.Client{}, nil, fmt.Errorf("connect to the hosts of lattice %s: %w", in.Lattice, err)
	}
	if own {
		return lattice.Client{Conn: nc, Lattice: in.Lattice}, nc.Close, nil
	}
	c := lattice.Client{Conn: nc, Lattice: in.Lattice}
	if in.Account != ledger.DefaultAccount {
		c.Account = in.Account
	}
	return c, func() {}, nil
}

// run observes until ctx ends. The queue of the lattice is served from the first
// complete look at it on, so that nothing is decided on less.
func (ob *observation) run(ctx context.Context) error {
	control, disconnect, err := ob.control(ob.in)
	if err != nil {
		return err
	}
	defer disconnect()
	ob.observer = lattice.NewObserver(control, lattice.Settings{}, ob.log, ob.changed)
	ob.ticked.Store(time.Now().UnixNano())
	ended := make(chan error, 1)
	go func() { ended <- ob.observer.Run(ctx) }()
	defer func() {
		ob.cancel(nil)
		<-ended //nolint:errcheck // why it ended, if it did by itself, has been told
	}()

	ob.loop = ob.Health.Loop("observer of "+ob.in.Account+"/"+ob.in.Lattice, beatEvery)
	defer ob.loop.End()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	if err := ob.awaitSync(ctx, beat); err != nil {
		return err
	}
	ob.synced.Store(ob.observer)
	w := worker.New(ob.Temporal, workflows.LatticeQueue(ob.in.Account, ob.in.Lattice), worker.Options{
		DisableWorkflowWorker: true, WorkerStopTimeout: stopWithin, DisableRegistrationAliasing: true,
		// More serve a busy lattice faster; those of a frozen process swallow as many
		// tasks until they time out.
		MaxConcurrentActivityTaskPollers: 4,
	})
	w.RegisterActivityWithOptions(ob.Assess, activity.RegisterOptions{Name: workflows.ActivityAssess})
	w.RegisterActivityWithOptions(ob.Command, activity.RegisterOptions{Name: workflows.ActivityCommands})
	if _, err := ob.note(ctx); err != nil {
		return err
	}
	if err := w.Start(); err != nil {
		return fmt.Errorf("serve the queue of lattice %s: %w", ob.in.Lattice, err)
	}
	defer w.Stop()
	go ob.wakeAll(ctx)
	go ob.catchUp(ctx)
	go ob.serve(ctx)

	need := time.NewTicker(needEvery)
	defer need.Stop()
	idle := 0
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-activity.GetWorkerStopChannel(ctx):
			return errStopping
		case err := <-ended:
			ended <- nil
			return endOf(ctx, ob.in.Lattice, err)
		case <-beat.C:
			if err := ob.tick(ctx); err != nil {
				return err
			}
		case <-need.C:
			noting, done := context.WithTimeout(ctx, beatEvery) // a database that hangs must not look like a frozen process
			needed, err := ob.note(noting)
			done()
			switch {
			case errors.Is(err, store.ErrSuperseded):
				return err
			case err != nil:
				ob.log.Warn("cannot record how the lattice is", "error", err)
			case needed:
				idle = 0
			default:
				idle++
			}
			if idle > 1 {
				released, err := ob.Store.ReleaseLattice(ctx, ob.in.Account, ob.in.Lattice, ob.epoch)
				if err != nil || released {
					return err
				}
				idle = 0
			}
		}
	}
}

// awaitSync returns when the lattice has been looked at once. A lattice without
// hosts is soon looked at.
func (ob *observation) awaitSync(ctx context.Context, beat *time.Ticker) error {
	limit := time.NewTimer(syncTime)
	defer limit.Stop()
	for {
		select {
		case <-ob.observer.Synced():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-activity.GetWorkerStopChannel(ctx):
			return errStopping
		case <-limit.C:
			return fmt.Errorf("lattice %s could not be looked at within %s", ob.in.Lattice, syncTime)
		case <-beat.C:
			if err := ob.tick(ctx); err != nil {
				return err
			}
		}
	}
}

// errFrozen ends an observation whose process did not run: another one may have
// the lattice by now.
var errFrozen = errors.New("this process has not run for too long to still be sure of the lattice")

// errStopping gives a lattice to another engine at once.
var errStopping = temporal.NewApplicationErrorWithOptions("this engine stops", "Stopping", temporal.ApplicationErrorOptions{
	NextRetryDelay: 10 * time.Millisecond, Category: temporal.ApplicationErrorCategoryBenign,
})

// tick tells Temporal that the observation goes on, if it did go on.
func (ob *observation) tick(ctx context.Context) error {
	if !ob.fresh() {
		return errFrozen
	}
	ob.ticked.Store(time.Now().UnixNano())
	ob.loop.Beat()
	activity.RecordHeartbeat(ctx)
	return nil
}

func (ob *observation) fresh() bool {
	return time.Since(time.Unix(0, ob.ticked.Load())) < frozenFor
}

// note records how many hosts there are, and returns whether anybody needs the
// lattice.
func (ob *observation) note(ctx context.Context) (needed bool, err error) {
	needed, err = ob.Store.NoteLattice(ctx, ob.in.Account, ob.in.Lattice, ob.epoch, ob.hosts())
	return needed || ob.watchedAlways(), err
}

// hosts is how many are alive.
func (ob *observation) hosts() int {
	_, n := ob.observer.Observed()
	return n
}

func (ob *observation) watchedAlways() bool {
	return ob.in.Account == ledger.DefaultAccount && slices.Contains(ob.Watch, ob.in.Lattice)
}

// endOf says why an observer ended: because it was to, when ctx has ended.
func endOf(ctx context.Context, lattice string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the observer of lattice %s ended: %w", lattice, err)
	default:
		return fmt.Errorf("the observer of lattice %s ended", lattice)
	}
}
