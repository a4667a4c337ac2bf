// Package agent is the node role: it says what the machine offers, takes runs
// from the node's task queue and carries each one through create, inject, run,
// collect and destroy.
//
// Concurrency: Agent.mu guards runs, ended, what the probes have found, and what
// heartbeats say of a run: its report, those of its machines, and whose command has
// ended by itself. No call to NATS or to a backend is made while it is held.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/agent/journal"
	"tidewait/internal/api"
	"tidewait/internal/boot"
	"tidewait/internal/capacity"
	"tidewait/internal/health"
	"tidewait/internal/natsrpc"
	"tidewait/internal/runlog"
	"tidewait/internal/vm"
	"tidewait/internal/vm/keeper"
	"tidewait/internal/vm/rootfs"
)

// Options say what a node is and how it speaks.
type Options struct {
	Node         string
	Version      string
	Labels       map[string]string
	Total        capacity.Resources
	StartLimit   int64
	Heartbeat    time.Duration
	Lease        time.Duration // silence after which every machine is destroyed
	StepTimeout  time.Duration
	KillGrace    time.Duration // of the backends, between TERM and the end of a machine
	ProbeTimeout time.Duration
	Limits       vm.Limits
	// Dir is the node's own directory, for what the next agent has to know: the
	// journal of runs, and the lease, in [LeaseFile]. It is the caller's, by [Lock].
	// Empty: nothing is kept.
	Dir string
	// KeepRuns lets runs outlive the agent, where that is possible, so that the
	// next one goes on with them.
	KeepRuns bool
	Backends []vm.Backend
	// Former are backends that the node offers no more. What an earlier agent left
	// in them is ended.
	Former []vm.Backend
	Images *rootfs.Store // nil: no backend has a use for them
	NATS   *nats.Conn
	Logs   *runlog.Publisher // nil: over NATS, within the default limits
	Log    *slog.Logger
	Loop   *health.Loop // that heartbeats go on; nil: nobody watches
}

// Agent is the agent of one node.
type Agent struct {
	Options
	boot    string
	js      jetstream.JetStream
	results jetstream.ObjectStore
	inputs  jetstream.ObjectStore
	byName  map[string]vm.Backend
	probed  chan struct{} // closed when every backend was probed
	kick    chan struct{}
	lease   *lease
	journal *journal.Journal  // nil: runs do not outlive the agent
	leaks   api.Leaks         // found when the agent started, but for Machines
	givenUp map[string]string // runs of an earlier agent that could not be gone on with, and why
	life    context.Context   // ends when the agent is stopped
	end     context.CancelFunc
	beats   int64 // sent; of Run alone

	mu      sync.Mutex
	reports map[string]api.Backend // of the probes so far
	runs    map[string]*run
	ended   map[string]bool // destroyed, and not yet acknowledged by the engine
	epoch   int64           // of the node, as of the latest acknowledged heartbeat; 0: none
	state   string          // of the node, as of that
	over    bool            // the engine wants no more of the agent
}

// New goes on with the runs of an earlier agent or destroys what it left, probes
// the backends and returns an agent that is ready to work. With runs to go on with
// it does not wait for the probes, which end with ctx, and offers a backend once it
// was probed. It returns an error only when the node could not
// work at all; a backend that fails its probe is reported, not fatal.
func New(ctx context.Context, o Options) (*Agent, error) {
	js, err := jetstream.New(o.NATS)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	a := &Agent{
		Options: o, boot: uuid.NewString(), js: js, byName: map[string]vm.Backend{}, reports: map[string]api.Backend{}, probed: make(chan struct{}),
		kick: make(chan struct{}, 1), runs: map[string]*run{}, ended: map[string]bool{}, givenUp: map[string]string{},
	}
	a.life, a.end = context.WithCancel(context.Background())
	var renewed []func(time.Duration)
	if o.Dir != "" {
		if a.journal, err = journal.Open(filepath.Join(o.Dir, "runs")); err != nil {
			return nil, err
		}
		renewed = append(renewed, a.writeLease)
	}
	if a.lease, err = newLease(o.Lease, a.fence, renewed...); err != nil {
		return nil, err
	}
	if a.results, err = js.ObjectStore(ctx, api.BucketResults(o.Node)); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", api.BucketResults(o.Node), err)
	}
	if a.inputs, err = js.ObjectStore(ctx, api.BucketWorkspaces); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", api.BucketWorkspaces, err)
	}
	if a.Logs == nil {
		if a.Logs, err = runlog.New(o.NATS, runlog.DefaultLimits, o.Log); err != nil {
			return nil, err
		}
	}
	for _, b := range o.Backends {
		a.byName[b.Name()] = b
	}
	if err := a.recover(ctx); err != nil {
		return nil, err
	}
	if len(a.runs) > 0 {
		// They have little time until their lease ends, and a probe boots a machine.
		go a.probeAll(ctx)
	} else {
		a.probeAll(ctx)
	}
	return a, nil
}

// probeAll probes the backends one after another. Until all have been probed no new
// run is begun.
func (a *Agent) probeAll(ctx context.Context) {
	defer close(a.probed)
	for _, b := range a.Backends {
		report := a.probe(ctx, b)
		a.mu.Lock()
		a.reports[b.Name()] = report
		a.mu.Unlock()
	}
	a.hurry()
}

// writeLease tells the keepers of the node's machines how long those may live.
func (a *Agent) writeLease(until time.Duration) {
	if err := keeper.WriteLease(LeaseFile(a.Dir), until); err != nil {
		a.Log.Error("machines will end with a lease that was extended", "error", err)
	}
}

func (a *Agent) probe(ctx context.Context, b vm.Backend) api.Backend {
	ctx, cancel := context.WithTimeout(ctx, a.ProbeTimeout)
	defer cancel()
	r := b.Probe(ctx)
	if r.OK {
		a.Log.Info("backend works", "backend", b.Name(), "accel", r.Info.Accel, "kernel", r.Info.Kernel, "took", r.Took.Round(time.Millisecond))
	} else {
		a.Log.Warn("backend does not work", "backend", b.Name(), "why", r.Why)
	}
	return api.Backend{
		OK: r.OK, Why: r.Why, Accel: r.Info.Accel, Kernel: r.Info.Kernel, Isolation: r.Info.Isolation,
		Enforced: r.Enforced, Network: r.Network, Overhead: r.Overhead, BootMs: r.Took.Milliseconds(),
	}
}

// Run sends heartbeats until ctx ends: at fixed intervals, and at once when a
// run's step matters to placement. It closes ready after the first one that was
// acknowledged. When the engine has not acknowledged any for the lease, every
// machine is destroyed, because the engine will give the phases to others. An
// error, an [*Ended], says that the engine wants no more of the agent.
func (a *Agent) Run(ctx context.Context, ready chan<- struct{}) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go a.lease.watch(ctx)
	tick := time.NewTicker(a.Heartbeat)
	defer tick.Stop()
	acknowledged := time.Now()
	refused := "" // why, as was said last
	for {
		sent := time.Now()
		err := a.beat(ctx)
		a.Loop.Beat()
		var end *Ended
		switch {
		case err == nil:
			acknowledged, refused = sent, ""
			if ready != nil {
				close(ready)
				ready = nil
			}
		case errors.As(err, &end):
			a.Log.Error("the engine tells the agent to end", "why", end.Why)
			return err
		case natsrpc.IsSkew(err):
			if refused != err.Error() {
				refused = err.Error()
				a.Log.Error("the engine refuses this agent for its release; it goes on asking, and no work comes to this node", "why", refused)
			}
		case ctx.Err() == nil:
			a.Log.Warn("heartbeat was not acknowledged", "silent_for", time.Since(acknowledged).Round(time.Second), "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.kick:
			if !pause(ctx, time.Until(sent.Add(beatPause))) {
				return nil
			}
		}
	}
}

// Ended says why the engine wants no more of an agent.
type Ended struct{ Why string }

func (e *Ended) Error() string { return e.Why }

// fence ends every run at once, because the lease has ended.
func (a *Agent) fence() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Log.Warn("no heartbeat was acknowledged for the whole lease: destroying every machine", "lease", a.Lease, "runs", len(a.runs))
	for _, r := range a.runs {
		r.stop(errLeaseEnded)
		// Nobody waits for what TERM would give them time for.
		go r.kill()
	}
}

// Await returns when the node may have machines: an engine has acknowledged a
// heartbeat within the lease. The error says why that is not waited for any more.
func (a *Agent) Await(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.life, func() { cancel(errStopping) })()
	return a.lease.await(ctx)
}

// beatPause is the shortest time between two heartbeats, so that many short
// runs cost few of them.
const beatPause = 200 * time.Millisecond

// pause waits for d, and reports false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// beatTime is how long an acknowledgement may take at least, on a busy machine.
const beatTime = 2 * time.Second

func (a *Agent) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(a.Heartbeat, beatTime))
	defer cancel()
	a.beats++
	h := a.heartbeat()
	var reply api.HeartbeatReply
	sent := boot.Now()
	if err := natsrpc.Ask(ctx, a.NATS, api.SubjectNodeHeartbeat(a.Node), h, &reply); err != nil {
		return err
	}
	if reply.End != "" {
		a.mu.Lock()
		a.over = true
		a.mu.Unlock()
		return &Ended{reply.End}
	}
	a.acknowledge(h.Ended, reply)
	a.lease.renew(sent)
	for _, id := range reply.Destroy {
		a.stopUnwanted(id)
	}
	return nil
}

func (a *Agent) heartbeat() api.Heartbeat {
	backends := a.offers()
	a.mu.Lock()
	defer a.mu.Unlock()
	h := api.Heartbeat{
		Node: a.Node, BootID: a.boot, Number: a.beats, Version: a.Version, Arch: runtime.GOARCH, Labels: a.Labels, Total: a.Total,
		StartLimit: a.StartLimit, Backends: backends, Runs: []api.RunReport{}, Ended: slices.Sorted(maps.Keys(a.ended)),
		GivenUp: a.givenUp, Leaks: a.leaks,
	}
	if a.Images != nil {
		h.Images = a.Images.Keys()
	}
	for _, id := range slices.Sorted(maps.Keys(a.runs)) {
		h.Runs = append(h.Runs, a.runs[id].told())
	}
	return h
}

// offers is what the probes have found, with the starts counted since.
func (a *Agent) offers() map[string]api.Backend {
	a.mu.Lock()
	offers := maps.Clone(a.reports)
	a.mu.Unlock()
	for name, offer := range offers {
		offer.Starts = a.byName[name].Starts()
		offers[name] = offer
	}
	return offers
}

// acknowledge takes what the engine knows by now, and the node's epoch. Runs of an
// older one were given up while the node was silent.
func (a *Agent) acknowledge(ended []string, reply api.HeartbeatReply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ended {
		delete(a.ended, id)
		a.forgetEntry(id)
	}
	a.epoch, a.state = reply.Epoch, reply.State
	for _, r := range a.runs {
		if a.isOver(r.epoch) {
			r.stop(errEpochOver)
		}
	}
}

// isOver reports whether the engine has given up what it placed in an epoch; that
// of 0 is not known. Agent.mu must be held.
func (a *Agent) isOver(epoch int64) bool { return epoch != 0 && epoch < a.epoch }

// Reasons for which the agent itself ends a run.
var (
	errUnwanted    = errors.New("the engine no longer wants the run")
	errLeaseEnded  = errors.New("the engine was silent for the whole lease, so the run is given to another node")
	errEpochOver   = errors.New("the node was silent for so long that the engine gave the run up")
	errSuperseded  = errors.New("a newer attempt of the same run took over")
	errStopping    = errors.New("the node's agent was stopped")
	errTurnIsOver  = errors.New("the turn is over")
	errNoSuchOffer = errors.New("the node does not offer the backend")
)

// Stop ends every run, because the agent stops, and waits until their machines
// are gone or ctx ends. Runs that the next agent can go on with are left to it,
// unless their node is to be emptied, or there is another agent already. None is
// begun from then on.
func (a *Agent) Stop(ctx context.Context) {
	a.mu.Lock()
	a.end() // within the lock, so that what is not in runs is refused
	runs := slices.Collect(maps.Values(a.runs))
	leaving := !a.over && a.state != string(capacity.Draining) && a.state != string(capacity.Retired)
	a.mu.Unlock()
	for _, r := range runs {
		if !leaving || !a.leave(r) {
			r.stop(errStopping)
		}
	}
	select {
	case <-a.probed:
	case <-ctx.Done():
	}
	for {
		a.mu.Lock()
		var next *run
		for _, r := range a.runs {
			next = r
		}
		a.mu.Unlock()
		if next == nil {
			return
		}
		select {
		case <-next.gone:
		case <-ctx.Done():
			return
		}
	}
}

// stopUnwanted ends a run that the engine does not want. One that is being ended
// already is not counted.
func (a *Agent) stopUnwanted(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.runs[id]
	if !ok {
		return
	}
	if r.report.Step != "destroy" {
		a.leaks.Machines++
	}
	r.stop(errUnwanted)
}

// forgetEntry removes a run that nobody will ask for from the journal. Agent.mu
// may be held.
func (a *Agent) forgetEntry(id string) {
	if a.journal == nil {
		return
	}
	if err := a.journal.Remove(id); err != nil {
		a.Log.Warn("a run stays in the journal", "run", id, "error", err)
	}
}

// hurry makes the agent send a heartbeat now.
func (a *Agent) hurry() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}
