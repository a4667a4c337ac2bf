package observatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"tidewait/internal/health"
	"tidewait/internal/heartbeat"
	"tidewait/internal/lattice"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
	"tidewait/workflows"
)

// observation is one lattice observed under one epoch.
type observation struct {
	*Observatory
	in       workflows.LatticeInput
	epoch    int64
	observer *lattice.Observer
	cancel   context.CancelCauseFunc
	log      *slog.Logger
	loop     *health.Loop
	ticked   atomic.Int64 // when this process last ran, as Unix nanoseconds
	changes  atomic.Int64 // of the lattice that were told
	links    keyed        // one command about links of one source at a time: hosts lose all but one

	mu      sync.Mutex // guards the rest
	apps    map[ledger.AppKey]*watched
	unwoken map[ledger.AppKey]bool // that were to be woken, and could not be told
	unclean map[ledger.AppKey]bool // of which something may be left, and the database could not be told
	births  map[string]time.Time   // of live hosts: when they started
	configs map[string]time.Time   // of changes of configurations; zero: it was read for the first time
}

// errStale is the type of the error of work for another epoch. It is final: the
// application looks again, at whoever observes the lattice now.
const errStale = "StaleEpoch"

// Assess compares an application with its lattice, records how it is, and says
// what is to be done.
func (ob *observation) Assess(ctx context.Context, in workflows.AssessInput) (res workflows.AssessResult, err error) {
	begun := time.Now()
	defer func() { ob.Meter.Reconciled(ctx, time.Since(begun), err) }()
	if !ob.fresh() {
		return workflows.AssessResult{}, errFrozen
	}
	if len(in.Acts) > 0 {
		if err := ob.Store.RecordApplicationActs(ctx, in.Key, in.Acts); err != nil {
			return workflows.AssessResult{}, err
		}
	}
	task, err := ob.Store.Task(ctx, in.Key)
	if err != nil {
		return workflows.AssessResult{}, err
	}
	before := ob.changes.Load()
	manifest, err := deployed(in.Key, task)
	if err != nil {
		return workflows.AssessResult{}, err
	}
	references, missing, err := ob.resolve(ctx, in.Key, &manifest)
	if err != nil {
		return workflows.AssessResult{}, err
	}
	plan, err := ob.input(ctx, in, task, manifest)
	if err != nil {
		return workflows.AssessResult{}, err
	}
	planned := scaler.Plan(plan)
	out := planned
	out.Rows = slices.Clone(planned.Rows)
	tellMissing(missing, plan, &out)
	a := ob.assessment(in.Key, task, plan, out)
	stale, err := ob.Store.Assess(ctx, a.Assessment)
	if errors.Is(err, store.ErrSuperseded) {
		ob.cancel(err)
	}
	if err != nil {
		return workflows.AssessResult{}, err
	}
	if a.changed {
		ob.Changed()
	}
	res = workflows.AssessResult{
		Revision: task.Revision, Deployed: task.Version, IsDeployed: task.IsDeployed, Epoch: ob.epoch,
		Backoff: out.Backoff, Status: a.line, Wait: a.Wait, Clean: a.Clean,
	}
	if stale { // what is deployed has changed while it was looked at
		res.Retry = time.Millisecond
		res.Clean = false
		return res, nil
	}
	res.Batches = out.Batches
	if !out.Retry.IsZero() {
		res.Retry = max(time.Until(out.Retry), time.Millisecond)
	}
	if len(plan.State.Unread) > 0 && len(plan.State.Hosts) > 0 && (res.Retry == 0 || res.Retry > readAgain) {
		res.Retry = readAgain
	}
	if a.Clean { // its configurations are nobody's concern any more
		_ = ob.observer.Want(ctx, in.Key.Name, nil)
	}
	if !ob.remember(in.Key, watched{input: plan, out: planned, shared: references}, a.Clean, before) {
		res.Retry, res.Clean = time.Millisecond, false
	}
	return res, nil
}

// deployed is the manifest that is deployed; without one, it wants nothing.
func deployed(key ledger.AppKey, task store.Task) (m oam.Manifest, err error) {
	if !task.IsDeployed {
		return m, nil
	}
	if err := json.Unmarshal(task.Manifest, &m); err != nil {
		return m, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("version %s of application %s is stored and cannot be read", task.Version, key), "UnreadableManifest", err)
	}
	return m, nil
}

// input puts together what a plan depends on.
func (ob *observation) input(
	ctx context.Context, in workflows.AssessInput, task store.Task, manifest oam.Manifest,
) (scaler.Input, error) {
	plan := scaler.Input{
		App: in.Key.Name, Lattice: in.Key.Lattice, Owned: task.Owned, Pending: in.Pending,
		Now: time.Now().UTC().Truncate(time.Microsecond), // as the database keeps it: everywhere a wait has one since
	}
	if task.IsDeployed {
		plan.Desired = scaler.List(manifest)
		var status wadm.Status
		if err := json.Unmarshal(task.Status, &status); err == nil {
			plan.Previous = status.Scalers
		}
		if w := task.Wait; w != nil {
			plan.Waited = map[string]time.Time{w.Code: w.Since}
		}
	}
	plan.Backoff = ob.backoff(in, task, plan)
	names := plan.Names()
	err := ob.observer.Want(ctx, in.Key.Name, names)
	plan.State = ob.observer.State(names)
	if err := ob.others(ctx, &plan, in.Key); err != nil {
		return plan, err
	}
	switch {
	case err == nil, len(plan.State.Hosts) == 0: // nobody to ask, and nothing to be told anybody
		return plan, nil
	case mayBeAnswered(err) && activity.GetInfo(ctx).Attempt < readTries:
		return plan, err
	}
	ob.log.Warn("a configuration cannot be read", "application", in.Key.String(), "error", err)
	return plan, nil
}

// What hosts do not answer about a configuration is asked again at once for
// readTries looks, and then by each look, which is taken after readAgain: the
// status says meanwhile what is not known.
const (
	readTries = 3
	readAgain = 15 * time.Second
)

// mayBeAnswered reports whether asking again may help. What hosts answer with
// nonsense, or refuse, must not keep an application from being looked at.
func mayBeAnswered(err error) bool {
	return slices.ContainsFunc([]error{
		lattice.ErrTimeout, lattice.ErrNobody, lattice.ErrCutOff, context.Canceled, context.DeadlineExceeded,
	}, func(target error) bool { return errors.Is(err, target) })
}

// others finds what other applications want, where that matters.
func (ob *observation) others(ctx context.Context, plan *scaler.Input, key ledger.AppKey) error {
	if !plan.ConcernsOthers() {
		return nil
	}
	manifests, err := ob.Store.OtherManifests(ctx, key)
	if err != nil {
		return err
	}
	plan.Wired = map[string][]scaler.Link{}
	for _, raw := range manifests {
		var m oam.Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("read what else is deployed in lattice %s: %w", key.Lattice, err)
		}
		if _, _, err := ob.resolve(ctx, key, &m); err != nil {
			return err
		}
		list := scaler.List(m)
		plan.Others = plan.Others.And(scaler.Uses(list))
		plan.Wired[m.Metadata.Name] = scaler.Wires(list)
	}
	return nil
}

// backoff counts what failed and forgets what deserves a new chance: all of it
// when something else is deployed or a person asks, what failed on a host that
// has started since, and what needs a configuration that has changed since.
func (ob *observation) backoff(in workflows.AssessInput, task store.Task, plan scaler.Input) scaler.Backoff {
	b := in.Backoff
	switch anew := in.Revision == 0; { // a workflow that was terminated or reset
	case in.Nudged, in.Revision != task.Revision && !anew:
		b = nil
	default:
		b = b.Recall(plan.Previous, plan.Now)
	}
	for _, r := range in.Results {
		switch {
		case r.OK:
			b = b.Without(func(f scaler.Failure) bool { return f.Key == r.Key })
		case in.Revision == task.Revision:
			b = b.Failed(r.Key, r.Code, r.Message, plan.Now, rand.Float64()) //nolint:gosec // a jitter is no secret
		}
	}
	needs := map[string][]string{}
	for _, s := range plan.Desired {
		for _, c := range s.Needs {
			needs[s.ID] = append(needs[s.ID], c.Name)
		}
	}
	ob.mu.Lock()
	defer ob.mu.Unlock()
	return b.Without(func(f scaler.Failure) bool {
		if ob.births[f.Host].After(f.Since) { // the lattice's own failures have no host
			return true
		}
		for _, name := range needs[f.Subject] {
			if ob.configs[name].After(f.Since) {
				return true
			}
		}
		return false
	})
}

// resolve gives references to shared applications the ids of what they refer to.
// It reports whether there are any, and which of them nothing satisfies.
func (ob *observation) resolve(ctx context.Context, key ledger.AppKey, m *oam.Manifest) (refers bool, missing []missingShared, err error) {
	references := m.Facts().References
	if len(references) == 0 {
		return false, nil, nil
	}
	shared, err := ob.Store.Shared(ctx, key.Account, key.Lattice, references)
	if err != nil {
		return true, nil, err
	}
	*m = m.Resolve(shared.IDs)
	for _, ref := range shared.Missing {
		id, known := shared.IDs[ref]
		if !known {
			id = oam.ComponentID(ref.Application, ref.Component, "")
		}
		missing = append(missing, missingShared{ref, id})
	}
	return true, missing, nil
}

// missingShared is a component of a shared application that is not deployed, and
// the id under which it would run.
type missingShared struct {
	oam.Reference
	id string
}

// tellMissing says of links with components of shared applications that are not
// deployed any more that they wait for these.
func tellMissing(missing []missingShared, plan scaler.Input, out *scaler.Outcome) {
	if len(plan.State.Hosts) == 0 {
		return
	}
	for _, ref := range missing {
		for i, s := range plan.Desired {
			if s.Link == nil || s.Link.Source != ref.id && s.Link.Target != ref.id || out.Rows[i].Status.Type == wadm.Failed {
				continue
			}
			info := wadm.StatusInfo{
				Type: wadm.Waiting, Reason: ledger.CodeSharedMissing, Since: &plan.Now,
				Message: fmt.Sprintf("%s %s of shared application %s is not deployed", ref.Type, ref.Component, ref.Application),
			}
			for _, was := range plan.Previous {
				if was.ID == s.ID && was.Status.Reason == info.Reason {
					info.Since = was.Status.Since
				}
			}
			out.Rows[i].Status = info
		}
	}
}

// assessed is what is recorded of a look.
type assessed struct {
	store.Assessment
	line    string // the status in one line
	changed bool
}

func (ob *observation) assessment(key ledger.AppKey, task store.Task, plan scaler.Input, out scaler.Outcome) assessed {
	status := out.Status()
	if !task.IsDeployed && len(out.Troubles) == 0 {
		status = wadm.NotDeployed()
		status.Status.Message = "the application is not deployed"
	}
	if !task.Observed && ob.hosts() == 0 && task.IsDeployed {
		neverObserved(&status, plan)
	}
	a := assessed{Assessment: store.Assessment{
		Key: key, Epoch: ob.epoch, Revision: task.Revision, Owned: out.Owned,
		Clean: !task.IsDeployed && out.Settled && out.Owned.Empty() && len(plan.Pending) == 0,
	}}
	a.Status, _ = wadm.Encode(status) // of plain values
	a.changed = string(a.Status) != string(task.Status)
	a.line = string(status.Status.Type)
	if status.Status.Message != "" {
		a.line += ": " + status.Status.Message
	}
	if !task.IsDeployed && len(plan.State.Hosts) == 0 && !out.Owned.Empty() {
		a.line = "its links and configurations are deleted when a host appears"
	}
	a.Wait = waitIn(status)
	return a
}

// neverObserved says of a lattice nobody has seen a host of that this is so.
func neverObserved(status *wadm.Status, plan scaler.Input) {
	reason := ledger.NeverObserved(plan.Lattice)
	since := plan.Now
	for _, was := range plan.Previous {
		if was.Status.Reason == ledger.CodeNeverObserved && was.Status.Since != nil {
			since = *was.Status.Since
		}
	}
	*status = wadm.AllWaiting(status.Scalers, ledger.CodeNeverObserved, reason, since)
}

// waitIn is the wait of an application: that of its status, or else the first
// that one of its scalers tells of, beside something that is no wait.
func waitIn(status wadm.Status) *ledger.AppWait {
	w := waitOf(status.Status)
	for i := 0; w == nil && i < len(status.Scalers); i++ {
		w = waitOf(status.Scalers[i].Status)
	}
	return w
}

// waitOf is the wait that a status tells of, if it does.
func waitOf(info wadm.StatusInfo) *ledger.AppWait {
	kind := ledger.KindOf(info.Reason)
	if kind == "" || info.Since == nil {
		return nil
	}
	w := &ledger.AppWait{Kind: kind, Code: info.Reason, Reason: info.Message, Since: *info.Since, Attempts: info.Attempt}
	if info.NextAttempt != nil {
		w.Next = *info.NextAttempt
	}
	return w
}

// Command tells one host what an application needs of it, one command after the
// other, and returns what became of each. After one that failed the rest is
// left: they may depend on it, and the next look asks for them again.
func (ob *observation) Command(ctx context.Context, in workflows.CommandsInput) ([]workflows.CommandResult, error) {
	if in.Epoch != ob.epoch {
		return nil, errorStale("the look that asked for the commands was at an earlier observation")
	}
	defer heartbeat.Keep(ctx, beatEvery, heartbeat.Bare)()
	var results []workflows.CommandResult
	for _, c := range in.Batch.Commands {
		r, err := ob.tell(ctx, c)
		if err != nil {
			return nil, err
		}
		results = append(results, workflows.CommandResult{Key: c.Key, OK: r.OK, Code: r.Code, Message: r.Message})
		if !r.OK {
			break
		}
	}
	return results, nil
}

// holds returns an error unless the lattice is this observation's at this moment:
// one command of several may take a minute.
func (ob *observation) holds(ctx context.Context) error {
	err := ob.Store.HoldsLattice(ctx, ob.in.Account, ob.in.Lattice, ob.epoch)
	switch {
	case errors.Is(err, store.ErrSuperseded):
		ob.cancel(err)
		return errorStale(err.Error())
	case err != nil:
		return err
	case !ob.fresh(): // asked last: whoever is frozen here notices
		return errorStale(errFrozen.Error())
	}
	return nil
}

// tell carries one command out, if the lattice is still this observation's when
// its turn has come. Its error says that nothing is known of the command.
func (ob *observation) tell(ctx context.Context, c scaler.Command) (lattice.Result, error) {
	if c.Link != nil {
		defer ob.links.lock(c.Link.Source)()
	}
	if err := ob.holds(ctx); err != nil {
		return lattice.Result{}, err
	}
	r := ob.observer.Execute(ctx, c)
	ob.Meter.Commanded(ctx, string(c.Action), outcomeOf(ctx, r))
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case saysNothing(r):
		return r, errorStale(r.Message)
	}
	return r, nil
}

// outcomeOf is what is counted of a command.
func outcomeOf(ctx context.Context, r lattice.Result) string {
	switch {
	case ctx.Err() != nil || saysNothing(r):
		return "unknown"
	case r.OK:
		return "ok"
	}
	return r.Code
}

// saysNothing reports whether a command was not sent because the observation has
// ended, which is no failure of the host.
func saysNothing(r lattice.Result) bool { return !r.OK && r.Code == "" }

func errorStale(why string) error {
	return temporal.NewApplicationErrorWithOptions(why, errStale, temporal.ApplicationErrorOptions{
		NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign,
	})
}

// keyed is a mutex for each of many keys. Keys are never forgotten: there are as
// many as sources of links in a lattice.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*sync.Mutex{}
	}
	l := k.locks[key]
	if l == nil {
		l = &sync.Mutex{}
		k.locks[key] = l
	}
	k.mu.Unlock()
	l.Lock()
	return l.Unlock
}
