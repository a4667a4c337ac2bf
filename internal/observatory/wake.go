package observatory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/lattice"
	"tidewait/internal/ledger"
	"tidewait/internal/logkey"
	"tidewait/internal/scaler"
)

// watched is what the latest look at an application found, so that what changes
// in the lattice wakes its workflow only when that makes a difference. It does
// not change.
type watched struct {
	input scaler.Input
	out   scaler.Outcome
	ids   []string         // of its components and providers, and of the ends of its links
	uses  scaler.Resources // and what it has made
	// shared says that it refers to shared applications, whose deployment is no
	// part of a plan: whatever concerns it makes a difference.
	shared bool
}

const (
	wakeAtOnce   = 16
	catchUpEvery = 5 * time.Second
)

// remember keeps what a look found. It reports whether that still holds: what
// has changed in the lattice since the look began, at which so many changes had
// been told, could not wake anybody for it.
func (ob *observation) remember(key ledger.AppKey, w watched, clean bool, before int64) (holds bool) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	if clean {
		delete(ob.apps, key)
		return true
	}
	in, out := &w.input, w.out
	in.Previous, in.Backoff, in.Owned = out.Rows, out.Backoff, out.Owned
	in.State = scaler.State{}       // it is looked at anew, and is large
	for _, b := range out.Batches { // they are under way from now on
		in.Pending = append(in.Pending[:len(in.Pending):len(in.Pending)], b.Commands...)
	}
	w.uses = scaler.Uses(in.Desired).And(in.Owned)
	for _, s := range in.Desired {
		if s.Workload != nil {
			w.ids = append(w.ids, s.Workload.ID)
		}
		if s.Link != nil {
			w.ids = append(w.ids, s.Link.Source, s.Link.Target)
		}
	}
	unknown := ob.apps[key] == nil // so nobody has been woken for it yet
	ob.apps[key] = &w
	if ob.changes.Load() == before {
		return true
	}
	return (!unknown || !w.shared) && !w.differs(ob.observer.State(w.input.Names()), time.Now())
}

// changed is told by the observer what is different in the lattice.
func (ob *observation) changed(c lattice.Change) {
	concerned, unknown := ob.concerned(c)
	var names []string
	for _, w := range concerned {
		names = append(names, w.input.Names()...)
	}
	state, now := ob.observer.State(names), time.Now()
	maps.DeleteFunc(concerned, func(_ ledger.AppKey, w *watched) bool { return !w.shared && !w.differs(state, now) })
	strangers := slices.DeleteFunc(unknown, func(key ledger.AppKey) bool { return !runsFor(key.Name, state.Hosts) })
	if len(c.Hosts) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		if _, err := ob.note(ctx); err != nil {
			ob.log.Warn("cannot record how the lattice is", "error", err)
		}
		cancel()
	}
	ob.wake(slices.Collect(maps.Keys(concerned)))
	ob.cleanUp(strangers)
}

// concerned takes note of a change, and returns what is known of the
// applications that it concerns, and which of those that it names are not known.
func (ob *observation) concerned(c lattice.Change) (known map[ledger.AppKey]*watched, unknown []ledger.AppKey) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.changes.Add(1) // whoever remembers a look from now on sees to the change itself
	ob.remark(c, time.Now())
	known = map[ledger.AppKey]*watched{}
	for key, w := range ob.apps {
		if c.Concerns(key.Name, w.ids, w.uses) {
			known[key] = w
		}
	}
	for _, name := range c.Apps {
		key := ledger.AppKey{Account: ob.in.Account, Lattice: ob.in.Lattice, Name: name}
		if ob.apps[key] == nil {
			unknown = append(unknown, key)
		}
	}
	return known, unknown
}

// remark notes what gives failures a new chance. That a host is seen for the
// first time does not: it may have run for long under another observer. Nor does
// that a configuration is read for the first time. The caller holds mu.
func (ob *observation) remark(c lattice.Change, now time.Time) {
	if len(c.Hosts)+len(c.Started) > 0 {
		ob.births = map[string]time.Time{}
		for _, h := range ob.observer.Hosts() {
			ob.births[h.ID] = now.Add(-h.Uptime)
		}
	}
	if ob.configs == nil {
		ob.configs = map[string]time.Time{}
	}
	for _, name := range c.Configs {
		if _, read := ob.configs[name]; read {
			ob.configs[name] = now
		} else {
			ob.configs[name] = time.Time{}
		}
	}
}

// runsFor reports whether anything that was started for an application runs.
func runsFor(app string, hosts []scaler.Host) bool {
	return slices.ContainsFunc(hosts, func(h scaler.Host) bool {
		its := func(i scaler.Instances) bool { return scaler.Owned(i.Annotations, app) }
		return slices.ContainsFunc(h.Components, its) || slices.ContainsFunc(h.Providers, its)
	})
}

// cleanUp has what is left of applications cleaned up that are known and not
// deployed: a host that was away while they were undeployed comes back with it.
// Of what nobody knows here nothing is touched.
func (ob *observation) cleanUp(keys []ledger.AppKey) {
	for i, key := range keys {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		found, err := ob.Store.LeftOver(ctx, key)
		cancel()
		if err != nil {
			ob.log.Warn("cannot have an application cleaned up; it is tried again", logkey.Application, key.Name, "error", err)
			ob.missed(&ob.unclean, keys[i:]...)
			return
		}
		if found {
			ob.log.Info("something is left of an application that is not deployed", logkey.Application, key.Name)
			ob.Changed()
		}
	}
}

// differs reports whether a look at the lattice as it is now would find anything
// else than the latest one did.
func (w *watched) differs(state scaler.State, now time.Time) bool {
	in := w.input
	in.State, in.Now = state, now
	out := scaler.Plan(in)
	if len(out.Batches) > 0 || out.Settled != w.out.Settled || len(out.Rows) != len(w.out.Rows) {
		return true
	}
	for i, row := range out.Rows {
		was := w.out.Rows[i].Status
		if row.Status.Type != was.Type || row.Status.Message != was.Message || row.Status.Reason != was.Reason {
			return true
		}
	}
	return false
}

// wakeAll wakes everything that is to be kept in the lattice: what happened
// while nobody looked is not known.
func (ob *observation) wakeAll(ctx context.Context) {
	for {
		keys, err := ob.Store.ApplicationsToKeep(ctx, ob.in.Account, ob.in.Lattice)
		if err == nil {
			ob.wake(keys)
			return
		}
		ob.log.Warn("cannot list what is to be kept in the lattice; it is tried again", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// wake tells workflows to look. One that is gone is started by the sweep.
func (ob *observation) wake(keys []ledger.AppKey) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(wakeAtOnce)
	for _, key := range keys {
		g.Go(func() error {
			err := ob.Temporal.SignalWorkflow(ctx, api.AppWorkflowID(key.Account, key.Lattice, key.Name), "", api.SignalWake, nil)
			var gone *serviceerror.NotFound
			if err != nil && !errors.As(err, &gone) {
				ob.log.Warn("cannot wake an application; it is tried again", logkey.Application, key.Name, "error", err)
				ob.missed(&ob.unwoken, key)
			}
			return nil
		})
	}
	_ = g.Wait() // none returns an error
}

// missed adds to what catchUp does.
func (ob *observation) missed(due *map[ledger.AppKey]bool, keys ...ledger.AppKey) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	if *due == nil {
		*due = map[ledger.AppKey]bool{}
	}
	for _, key := range keys {
		(*due)[key] = true
	}
}

// catchUp does until ctx ends what Temporal or the database did not take when it
// was due: nothing else may ever change that would be a reason to do it.
func (ob *observation) catchUp(ctx context.Context) {
	tick := time.NewTicker(catchUpEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ob.mu.Lock()
		unwoken, unclean := slices.Collect(maps.Keys(ob.unwoken)), slices.Collect(maps.Keys(ob.unclean))
		clear(ob.unwoken)
		clear(ob.unclean)
		ob.mu.Unlock()
		ob.wake(unwoken)
		ob.cleanUp(unclean)
	}
}
