package lattice

import (
	"context"
	"errors"
	"slices"
	"time"
)

// asking is the questions to one host for its inventory: one that is open, and
// the next one, which all share who ask meanwhile.
type asking struct {
	open bool
	next []chan error
}

// Limits on hosts that are heard of and not known.
const (
	maxStrangers  = 1000
	strangerTries = 3
)

// ask asks what an event left open. The caller holds mu.
func (o *Observer) ask(q Questions) {
	for _, id := range q.Hosts {
		if o.admissible(id) {
			o.inquire(id)
		}
	}
	for _, name := range q.Configs {
		o.inBackground(func(ctx context.Context) { _ = o.readConfig(ctx, name) })
	}
	if q.Links {
		o.linksDue = o.now().Add(staleLinks)
	}
}

// admissible reports whether a host may be asked: one that is known, or one more
// of a limited number that are not. The caller holds mu.
func (o *Observer) admissible(id string) bool {
	if _, asked := o.strangers[id]; asked || o.known.Has(id) {
		return true
	}
	if len(o.strangers) >= maxStrangers {
		o.stats.Strangers++
		return false
	}
	o.strangers[id] = 0
	return true
}

// inBackground does something beside Run, and not at all without it. The caller
// holds mu.
func (o *Observer) inBackground(f func(context.Context)) {
	ctx := o.run
	if ctx == nil {
		return
	}
	o.background.Go(func() { f(ctx) })
}

// inquire asks a host for its inventory. The channel gets the outcome of a
// question that was sent after this call. The caller holds mu.
func (o *Observer) inquire(id string) <-chan error {
	outcome := make(chan error, 1)
	if o.run == nil {
		outcome <- context.Canceled
		return outcome
	}
	a := o.questions[id]
	if a == nil {
		a = &asking{}
		o.questions[id] = a
		o.inBackground(func(ctx context.Context) { o.question(ctx, id, a) })
	}
	a.next = append(a.next, outcome)
	return outcome
}

// question asks a host as often as somebody wants to know.
func (o *Observer) question(ctx context.Context, id string, a *asking) {
	for {
		o.slots <- struct{}{}
		o.mu.Lock()
		askers := a.next
		a.next = nil
		if len(askers) == 0 {
			delete(o.questions, id)
			o.mu.Unlock()
			<-o.slots
			return
		}
		o.stats.Inventories++
		a.open = true
		mark := o.known.Mark()
		o.mu.Unlock()

		inv, err := o.client.Inventory(ctx, id)
		alive := err == nil
		if errors.Is(err, ErrTimeout) {
			alive = o.answersPing(ctx, id)
		}
		<-o.slots
		if err == nil {
			o.readFirst(ctx)
		}
		o.mu.Lock()
		o.answered(ctx, id, inv, mark, err, alive)
		a.open = false
		o.mu.Unlock()
		for _, asker := range askers {
			asker <- err
		}
	}
}

// answersPing reports whether a host that did not say what it runs is alive all
// the same: one that waits for a provider to end keeps that question waiting.
func (o *Observer) answersPing(ctx context.Context, id string) bool {
	infos, _ := o.client.Ping(ctx, o.settings.PingWindow)
	for _, info := range infos {
		if info.ID == id && o.ours(info) {
			return true
		}
	}
	return false
}

func (o *Observer) ours(info HostInfo) bool {
	return info.Lattice == "" || info.Lattice == o.client.Lattice
}

// answered folds in the outcome of a question. The caller holds mu.
func (o *Observer) answered(ctx context.Context, id string, inv Inventory, asked Mark, err error, alive bool) {
	now := o.now()
	var refused *Refused
	switch {
	case err == nil:
		o.fold(o.known.Inventory(inv, asked, now))
		delete(o.strangers, id)
		return
	case ctx.Err() != nil, errors.Is(err, ErrCutOff):
		return
	case errors.As(err, &refused), errors.Is(err, ErrUnreadable):
		o.log.Warn("a host does not say what it runs", "host", id, "error", err)
		o.known.Alive(id, now)
		delete(o.strangers, id)
	case alive:
		o.known.Renew(id, now)
	default:
		o.fold(o.known.Silent(id, errors.Is(err, ErrNobody), now))
	}
	o.stats.Unanswered++
	if tries, stranger := o.strangers[id]; stranger {
		o.strangers[id] = tries + 1
	}
}

// keep reads everything at first, from time to time and when asked to, and looks
// at leases.
func (o *Observer) keep(ctx context.Context) error {
	ticks := o.ticks
	if ticks == nil {
		ticker := time.NewTicker(o.settings.Tick)
		defer ticker.Stop()
		ticks = ticker.C
	}
	o.readAgain()
	next := o.now().Add(o.settings.Resync)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.resync:
			o.readAll(ctx)
			next = o.now().Add(o.settings.Resync)
		case <-ticks:
			if now := o.now(); now.Before(next) {
				o.tick(now)
			} else {
				o.readAgain()
			}
		}
	}
}

// readAgain asks for a reading of everything.
func (o *Observer) readAgain() { wake(o.resync) }

// tick asks those hosts that have to be asked by now.
func (o *Observer) tick(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	due := o.known.Due(now)
	for id, tries := range o.strangers {
		if tries < strangerTries {
			due = append(due, id)
		} else {
			delete(o.strangers, id)
		}
	}
	for _, id := range due {
		if a := o.questions[id]; a == nil || !a.open {
			o.inquire(id)
		}
	}
	if !o.linksDue.IsZero() && !now.Before(o.linksDue) && o.known.Len() > 0 {
		o.linksDue = time.Time{}
		o.inBackground(func(ctx context.Context) { o.readLinks(ctx) })
	}
	if o.since.IsZero() {
		o.readAgain()
	}
}

// readAll reads the whole lattice: who is there, what each host runs, links and
// configurations.
func (o *Observer) readAll(ctx context.Context) {
	found, err := o.find(ctx)
	if err != nil {
		o.log.Warn("the hosts of a lattice cannot be asked who they are", "error", err)
		return
	}
	if len(found) > 0 {
		if !o.linksDueSoon() {
			o.readLinks(ctx)
		}
		_ = o.readConfigs(ctx, o.wanted())
	}
	for _, outcome := range found {
		select {
		case <-outcome: //nolint:errcheck // what came of it is folded in and counted
		case <-ctx.Done():
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Resyncs++
	if o.since.IsZero() {
		o.since = o.now()
		close(o.synced)
	}
}

// find asks all hosts who they are, and each for its inventory as soon as it
// says so. It returns the outcomes of those that answered in time, and of those
// that are known.
func (o *Observer) find(ctx context.Context) ([]<-chan error, error) {
	var outcomes []<-chan error
	asked := map[string]bool{}
	inquire := func(id string) {
		if !asked[id] {
			asked[id] = true
			outcomes = append(outcomes, o.inquire(id))
		}
	}

	ended := make(chan error, 1)
	o.mu.Lock()
	for _, h := range o.known.State(nil).Hosts {
		inquire(h.ID)
	}
	o.inBackground(func(ctx context.Context) {
		ended <- o.client.ping(ctx, o.settings.PingWindow+latePing, func(info HostInfo) {
			o.mu.Lock()
			defer o.mu.Unlock()
			switch {
			case !o.ours(info):
				o.stats.Foreign++
			case o.admissible(info.ID):
				inquire(info.ID)
			}
		})
	})
	o.mu.Unlock()

	timer := time.NewTimer(o.settings.PingWindow)
	defer timer.Stop()
	var err error
	select {
	case err = <-ended:
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(outcomes), err
}

// readFirst reads links and configurations before the first host is let in:
// otherwise they would seem not to be there.
func (o *Observer) readFirst(ctx context.Context) {
	o.first.Lock()
	defer o.first.Unlock()
	o.mu.Lock()
	read := o.linksRead
	o.mu.Unlock()
	if !read {
		o.readLinks(ctx)
		_ = o.readConfigs(ctx, o.wanted())
	}
	o.mu.Lock()
	o.linksRead = true
	o.mu.Unlock()
}

func (o *Observer) readLinks(ctx context.Context) {
	o.mu.Lock()
	mark := o.known.Mark()
	o.mu.Unlock()
	links, err := o.client.Links(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.log.Warn("the links of a lattice are not to be had", "error", err)
		o.linksDue = o.now().Add(staleLinks)
		return
	}
	o.fold(o.known.Links(links, mark))
	o.linksRead = true
}

func (o *Observer) linksDueSoon() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.linksDue.IsZero()
}

// ownLink notes what was done to a link.
func (o *Observer) ownLink(f func(*Projection) Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fold(f(o.known))
	o.linksDue = o.now().Add(staleLinks)
}
