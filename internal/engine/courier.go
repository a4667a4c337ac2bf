package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/health"
	"tidewait/internal/ledger"
	"tidewait/internal/logkey"
	"tidewait/internal/store"
	"tidewait/internal/wadmapi"
	"tidewait/workflows"
)

// Courier carries news of applications from the outbox to NATS and to their
// workflows. Engines share the outbox; of one application each has its news
// carried in order, by one engine at a time. News carried twice is harmless: it
// is numbered by revision.
type Courier struct {
	Store     *store.Store
	Publisher *wadmapi.Publisher
	Temporal  client.Client
	Log       *slog.Logger
	Health    *health.Health           // nil: nobody watches
	kicks     map[string]chan struct{} // by channel
}

// NewCourier returns a courier; Run works it.
func NewCourier(s *store.Store, p *wadmapi.Publisher, c client.Client, log *slog.Logger) *Courier {
	return &Courier{Store: s, Publisher: p, Temporal: c, Log: log, kicks: map[string]chan struct{}{
		store.ChannelNATS: make(chan struct{}, 1), store.ChannelTemporal: make(chan struct{}, 1),
	}}
}

// Kick says that the outbox has something.
func (c *Courier) Kick() {
	for _, kick := range c.kicks {
		token(kick)
	}
}

const (
	courierBatch   = 16 // carried within the claim, however slowly
	courierAtOnce  = 8
	carryTime      = 10 * time.Second
	claimTime      = 30 * time.Second // after that another engine carries what this one took
	carryRetryMost = time.Minute
)

// Run carries news until ctx ends, each channel by itself: one that is down
// holds up nothing of the other.
func (c *Courier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for channel, kick := range c.kicks {
		wg.Go(func() { c.serve(ctx, channel, kick) })
	}
	wg.Wait()
}

func (c *Courier) serve(ctx context.Context, channel string, kick <-chan struct{}) {
	loop := c.Health.Loop("courier to "+channel, DispatchEvery)
	defer loop.End()
	whenKicked(ctx, kick, func() {
		if err := c.drain(ctx, channel, loop); err != nil && ctx.Err() == nil {
			c.Log.Warn("news of applications stay in the outbox and are tried again", "channel", channel, "error", err)
		}
	})
}

// drain carries news of a channel until none is due. Each claim gets the oldest
// news of each application only, so there may be more behind it.
func (c *Courier) drain(ctx context.Context, channel string, loop *health.Loop) error {
	for {
		loop.Beat() // a batch at a time: there may be many
		news, err := c.Store.ClaimNews(ctx, courierBatch, claimTime, channel)
		if err != nil || len(news) == 0 {
			return err
		}
		if err := c.carryAll(ctx, news); err != nil {
			return err
		}
	}
}

func (c *Courier) carryAll(ctx context.Context, news []ledger.News) error {
	delivered := make([]int64, len(news)) // 0: not
	var g errgroup.Group
	g.SetLimit(courierAtOnce)
	for i, n := range news {
		g.Go(func() error {
			carrying, cancel := context.WithTimeout(ctx, carryTime)
			defer cancel()
			err := c.carry(carrying, n)
			if err == nil {
				delivered[i] = n.ID
				return nil
			}
			return c.failed(ctx, n, err)
		})
	}
	err := g.Wait()
	done := make([]int64, 0, len(news))
	for _, id := range delivered {
		if id != 0 {
			done = append(done, id)
		}
	}
	return errors.Join(err, c.Store.NewsDelivered(ctx, done))
}

func (c *Courier) failed(ctx context.Context, n ledger.News, why error) error {
	if ctx.Err() != nil {
		return nil // the claim ends by itself
	}
	log := c.Log.With(logkey.App(n.Key))
	if errors.Is(why, wadmapi.ErrTooLarge) {
		log.Error("news of an application is larger than the broker carries, and was dropped", "kind", n.Kind, "revision", n.Revision, "error", why)
		return c.Store.NewsDelivered(ctx, []int64{n.ID})
	}
	again := carryRetry(n.Attempts)
	log.Warn("news of an application was not delivered", "kind", n.Kind,
		"revision", n.Revision, "attempt", n.Attempts, "again_in", again, "error", why)
	return c.Store.NewsFailed(ctx, n.ID, why.Error(), again)
}

// carryRetry is the pause after a try: 1 s, doubled each time, at most a minute.
func carryRetry(attempts int) time.Duration {
	return min(time.Second<<min(max(attempts-1, 0), 10), carryRetryMost)
}

func (c *Courier) carry(ctx context.Context, n ledger.News) error {
	if n.Kind == ledger.NewsRevised {
		return c.revise(ctx, n)
	}
	return c.Publisher.Publish(ctx, n)
}

// revise tells an application's workflow to look again, and starts it when the
// application is kept and has none. Those that refer to it look again as well:
// what they wait for may be there now, or be gone, or run under another id.
func (c *Courier) revise(ctx context.Context, n ledger.News) error {
	if err := c.reviseOne(ctx, n); err != nil {
		return err
	}
	dependants, err := c.Store.Dependants(ctx, n.Key)
	if err != nil {
		return err
	}
	for _, name := range dependants {
		id := api.AppWorkflowID(n.Key.Account, n.Key.Lattice, name)
		if err := c.Temporal.SignalWorkflow(ctx, id, "", api.SignalWake, nil); err != nil && !isGone(err) {
			return fmt.Errorf("have application %s look again: %w", name, err)
		}
	}
	return nil
}

func (c *Courier) reviseOne(ctx context.Context, n ledger.News) error {
	kept, err := c.Store.Keeps(ctx, n.Key)
	if err != nil {
		return err
	}
	if kept {
		return c.Begin(ctx, n.Key, n.Revision)
	}
	handle, err := c.Temporal.UpdateWorkflow(ctx, revision(n.Key, n.Revision))
	if isGone(err) {
		return nil // nothing is kept, and nobody has to be told
	}
	if err != nil {
		return err
	}
	return handle.Get(ctx, nil)
}

// isGone reports whether an error says that there is no such workflow that runs.
func isGone(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone)
}

// revision is the update that says that what is deployed has changed.
func revision(key ledger.AppKey, number int64) client.UpdateWorkflowOptions {
	return client.UpdateWorkflowOptions{
		WorkflowID:   api.AppWorkflowID(key.Account, key.Lattice, key.Name),
		UpdateName:   api.UpdateRevise,
		Args:         []any{api.AppRevision{Revision: number}},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	}
}

// Begin makes sure that an application's workflow runs and knows of a revision,
// and that its lattice is observed.
func (c *Courier) Begin(ctx context.Context, key ledger.AppKey, number int64) error {
	if err := c.observed(ctx, key.Account, key.Lattice); err != nil {
		return err
	}
	app, err := c.Store.Application(ctx, key)
	if err != nil {
		return err
	}
	in := workflows.AppInput{See: api.SeePage, Key: key}
	if app.Wait != nil {
		in.Resume.Wait = *app.Wait
	}
	update := revision(key, number)
	start := c.Temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: update.WorkflowID, TaskQueue: workflows.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes:    workflows.AppAttributes(key, app.Wait),
		StaticSummary:            fmt.Sprintf("application %s in lattice %s", key.Name, key.Lattice),
		StaticDetails:            workflows.AppDetails(key),
	}, api.AppWorkflow, in)
	handle, err := c.Temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start, UpdateOptions: update,
	})
	if err != nil {
		return err
	}
	return handle.Get(ctx, nil)
}

// observed makes sure that a lattice is observed, or that its workflow runs.
func (c *Courier) observed(ctx context.Context, account, lattice string) error {
	held, err := c.Store.LatticeHeld(ctx, account, lattice)
	if err != nil || held == store.Held {
		return err
	}
	return c.observe(ctx, account, lattice, held)
}

// Observe makes sure that a lattice's workflow runs.
func (c *Courier) Observe(ctx context.Context, account, lattice string) error {
	held, err := c.Store.LatticeHeld(ctx, account, lattice)
	if err != nil {
		return err
	}
	return c.observe(ctx, account, lattice, held)
}

// observe starts a lattice's workflow when it has none. The workflow of one that
// was released is about to end, if it has not ended yet, unless it is told.
func (c *Courier) observe(ctx context.Context, account, lattice string, held store.Holding) error {
	options := client.StartWorkflowOptions{
		ID: api.LatticeWorkflowID(account, lattice), TaskQueue: workflows.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    workflows.LatticeAttributes(lattice),
		StaticSummary:            "lattice " + lattice,
		StaticDetails:            workflows.LatticeDetails(workflows.LatticeInput{Account: account, Lattice: lattice}),
	}
	in := workflows.LatticeInput{Account: account, Lattice: lattice}
	if held == store.Released {
		_, err := c.Temporal.SignalWithStartWorkflow(ctx, options.ID, api.SignalNeeded, nil, options, api.LatticeWorkflow, in)
		return err
	}
	_, err := c.Temporal.ExecuteWorkflow(ctx, options, api.LatticeWorkflow, in)
	return err
}
