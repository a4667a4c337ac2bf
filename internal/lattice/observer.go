package lattice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/scaler"
)

// Observer keeps a projection of one lattice true while Run runs, and carries
// out commands. Make one with [NewObserver], and run it once: it forgets nothing
// that it has seen, and knows of nothing from before.
type Observer struct {
	client   Client
	settings Settings
	onChange func(Change)
	log      *slog.Logger

	// The clock, which tests set before anything else is called.
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
	ticks <-chan time.Time // instead of a ticker

	synced  chan struct{} // closed after the first full reading
	changed chan struct{} // holds one element while there is a pending change
	resync  chan struct{} // holds one element while a reading is asked for
	slots   chan struct{} // one element for each open question

	first sync.Mutex // see the package's comment

	mu         sync.Mutex // guards all that follows
	known      *Projection
	pending    Change
	recent     recent
	stats      Stats
	since      time.Time          // of the first full reading
	run        context.Context    // of Run; nil before and after
	questions  map[string]*asking // open ones, by host
	strangers  map[string]int     // hosts that are not known, and how often they were asked
	background sync.WaitGroup     // of questions
	wants      map[string][]string
	linksRead  bool      // since there were hosts
	linksDue   time.Time // when links are read again, for no host answers with old ones then; zero: with everything
	waiting    map[target][]*expectation
}

// NewObserver returns an observer of the lattice that a client speaks to.
// onChange is told what changed, in order and one at a time; it may take its
// time, and may call the observer.
func NewObserver(c Client, s Settings, log *slog.Logger, onChange func(Change)) *Observer {
	s = s.withDefaults()
	return &Observer{
		client: c, settings: s, onChange: onChange,
		log: log,
		now: time.Now, after: time.After,
		synced: make(chan struct{}), changed: make(chan struct{}, 1), resync: make(chan struct{}, 1),
		slots:     make(chan struct{}, s.Parallel),
		known:     NewProjection(Terms{Lease: s.Lease, Grace: s.Grace, Questions: s.Questions}),
		questions: map[string]*asking{}, strangers: map[string]int{},
		wants: map[string][]string{}, waiting: map[target][]*expectation{},
	}
}

// Run observes until ctx ends, which is no error, or until it cannot: because
// the connection is closed, or has been away for too long.
func (o *Observer) Run(ctx context.Context) error {
	if err := o.client.ready("observe lattice " + o.client.Lattice); err != nil {
		return err
	}
	events, err := o.client.Conn.SubscribeSync(o.client.events())
	if err != nil {
		return fmt.Errorf("subscribe to events of lattice %s: %w", o.client.Lattice, err)
	}
	defer func() { _ = events.Unsubscribe() }()
	status := o.client.Conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer o.client.Conn.RemoveStatusListener(status)

	tasks, running := errgroup.WithContext(ctx)
	o.begin(running)
	defer o.end()
	tasks.Go(func() error { return o.listen(running, events) })
	tasks.Go(func() error { return o.keep(running) })
	tasks.Go(func() error { return o.watch(running, status) })
	tasks.Go(func() error { return o.tell(running) })
	if err := tasks.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (o *Observer) begin(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.run = ctx
}

func (o *Observer) running() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.run != nil
}

// end waits until no question is open any more.
func (o *Observer) end() {
	o.mu.Lock()
	o.run = nil
	o.mu.Unlock()
	o.background.Wait()
}

// listen reads events.
func (o *Observer) listen(ctx context.Context, events *nats.Subscription) error {
	for {
		msg, err := events.NextMsgWithContext(ctx)
		switch {
		case err == nil:
			o.hear(msg.Data)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer):
			o.mu.Lock()
			o.stats.Dropped++
			o.mu.Unlock()
			o.readAgain()
		default:
			return fmt.Errorf("read events of lattice %s: %w", o.client.Lattice, err)
		}
	}
}

// hear folds one event in.
func (o *Observer) hear(message []byte) {
	e, err := DecodeEvent(message)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case errors.Is(err, ErrUnknownEvent):
		o.stats.Unknown++
	case err != nil:
		o.stats.Unreadable++
		o.log.Debug("an event was passed over", "error", err)
	case !o.recent.add(e.ID):
		o.stats.Duplicates++
	default:
		o.stats.Events++
		change, q := o.known.Apply(e, o.now())
		o.fold(change)
		o.meet(e)
		o.ask(q)
		switch e.Data.(type) {
		case LinkSet, LinkDeleted:
			o.linksDue = o.now().Add(staleLinks)
		}
	}
}

// fold takes up a change of the projection. The caller holds mu.
func (o *Observer) fold(c Change) {
	if c.Empty() {
		return
	}
	o.forsake(c)
	o.pending = o.pending.And(c)
	if len(c.Hosts) > 0 && o.known.Len() == 0 {
		o.linksRead = false
	}
	wake(o.changed)
}

// tell hands changes out.
func (o *Observer) tell(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.changed:
		}
		o.mu.Lock()
		change := o.pending
		o.pending = Change{}
		o.mu.Unlock()
		if !change.Empty() { // the one before may have had all of it
			o.onChange(change)
		}
	}
}

// wake makes sure that a channel of one element has it.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// watch keeps an eye on the connection. Without one, nothing is heard and so
// nothing is known; when it is back, everything is read again.
func (o *Observer) watch(ctx context.Context, status <-chan nats.Status) error {
	var blind <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-blind:
			return fmt.Errorf("observe lattice %s: %w for %s", o.client.Lattice, ErrCutOff, o.settings.Blind)
		case now := <-status:
			switch {
			case now == nats.CLOSED:
				return fmt.Errorf("observe lattice %s: %w", o.client.Lattice, nats.ErrConnectionClosed)
			case now == nats.CONNECTED:
				blind = nil
				o.mu.Lock()
				o.known.Excuse(o.now())
				o.mu.Unlock()
				o.readAgain()
			case blind == nil:
				blind = o.after(o.settings.Blind)
			}
		}
	}
}

// Synced is closed when the lattice has been read in full for the first time.
func (o *Observer) Synced() <-chan struct{} { return o.synced }

// Observed returns since when the lattice is known in full, and how many hosts
// are alive. The time is zero before.
func (o *Observer) Observed() (since time.Time, hosts int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since, o.known.Len()
}

// State returns what scalers see, with those of the named configurations that
// exist and are wanted.
func (o *Observer) State(names []string) scaler.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known.State(names)
}

// Hosts returns the live hosts by id, as they are shown to people.
func (o *Observer) Hosts() []Host {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known.Hosts(o.now())
}

// Stats returns the counters.
func (o *Observer) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Hosts = o.known.Len()
	return s
}
