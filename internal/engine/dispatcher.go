package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"tidewait/internal/health"
	"tidewait/internal/store"
)

// DispatchEvery is how often the outbox is read without a hint that there is
// something in it: what another engine left behind when it died.
const DispatchEvery = 2 * time.Second

// Dispatcher carries signals from the outbox to workflows. A signal carried
// twice is harmless: its receiver looks again and finds nothing new.
type Dispatcher struct {
	store    *store.Store
	temporal client.Client
	log      *slog.Logger
	kick     chan struct{}
	Loop     *health.Loop // nil: nobody watches
}

// NewDispatcher returns a dispatcher; Run works it.
func NewDispatcher(s *store.Store, c client.Client, log *slog.Logger) *Dispatcher {
	return &Dispatcher{store: s, temporal: c, log: log, kick: make(chan struct{}, 1)}
}

// Kick says that the outbox has something.
func (d *Dispatcher) Kick() { token(d.kick) }

// Run carries signals until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) {
	whenKicked(ctx, d.kick, func() {
		if err := d.drain(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("signals stay in the outbox and are tried again", "error", err)
		}
	})
}

// whenKicked works whenever it is kicked, and now and then without, until ctx
// ends.
func whenKicked(ctx context.Context, kick <-chan struct{}, work func()) {
	tick := time.NewTicker(DispatchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-tick.C:
		}
		work()
	}
}

const dispatchBatch = 100

func (d *Dispatcher) drain(ctx context.Context) error {
	d.Loop.Beat()
	for {
		signals, err := d.store.Signals(ctx, dispatchBatch)
		if err != nil || len(signals) == 0 {
			return err
		}
		done := make([]int64, 0, len(signals))
		for _, s := range signals {
			d.Loop.Beat() // there may be many, and none takes long
			if err = d.carry(ctx, s); err != nil {
				break
			}
			done = append(done, s.ID)
		}
		if clearErr := d.store.Delivered(ctx, done); clearErr != nil || err != nil {
			return errors.Join(err, clearErr)
		}
	}
}

// carry sends one signal. A workflow that is gone needs none: the sweep ends
// what it left.
func (d *Dispatcher) carry(ctx context.Context, s store.Signal) error {
	var payload any
	if string(s.Payload) != "{}" {
		payload = s.Payload
	}
	err := d.temporal.SignalWorkflow(ctx, s.WorkflowID, "", s.Name, payload)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
