package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/agent"
	"tidewait/internal/agent/journal"
	"tidewait/internal/api"
	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/process"
	"tidewait/workflows"
)

// node is a node whose agents follow one another.
type node struct {
	t      *testing.T
	dir    string
	first  *bench // whose NATS all of them use
	engine *answering
	state  atomic.Pointer[string]
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	t.Cleanup(n.clear)
	n.first = newBenchWith(t, func(o *agent.Options) { o.Node = "n1" })
	ready := "ready"
	n.state.Store(&ready)
	n.engine = &answering{beats: make(chan api.Heartbeat, 1000)}
	sub, err := n.first.NATS.Subscribe(api.SubjectNodeHeartbeats, func(m *nats.Msg) {
		var h api.Heartbeat
		if json.Unmarshal(m.Data, &h) != nil {
			return
		}
		reply := api.HeartbeatReply{State: *n.state.Load(), Epoch: 1}
		if end := n.engine.end.Load(); end != nil {
			reply.End = *end
		}
		ok, _ := json.Marshal(reply)
		data, _ := json.Marshal(api.Reply{OK: ok})
		_ = m.Respond(data)
		n.engine.beats <- h
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return n
}

// clear ends the machines that a test which failed has left: they have keepers, and
// would live until their lease ends.
func (n *node) clear() {
	b, err := process.New(process.Options{Agent: guestAgent, RunDir: filepath.Join(n.dir, "process"), KillGrace: grace})
	require.NoError(n.t, err)
	left, err := b.List(context.Background())
	require.NoError(n.t, err)
	for _, run := range left {
		require.NoError(n.t, b.Destroy(context.Background(), run))
	}
}

// generation is one agent of the node.
type generation struct {
	*bench
	beat api.Heartbeat // its first
	end  func()        // ends its heartbeats
}

func (n *node) next(change func(*agent.Options)) *generation {
	n.t.Helper()
	g := n.start(change)
	for b := g.beat; len(b.Backends) == 0; b = <-n.engine.beats { // until they are probed
	}
	return g
}

func (n *node) start(change func(*agent.Options)) *generation {
	n.t.Helper()
	o := n.first.Options
	o.Dir, o.KeepRuns, o.Heartbeat = filepath.Join(n.dir, "node"), true, 100*time.Millisecond
	backend, err := process.New(process.Options{
		Agent: guestAgent, RunDir: filepath.Join(n.dir, "process"), KillGrace: grace, Lease: agent.LeaseFile(o.Dir),
	})
	require.NoError(n.t, err)
	o.Backends = []vm.Backend{backend}
	change(&o)
	a, err := agent.New(n.t.Context(), o)
	require.NoError(n.t, err)
	g := &generation{bench: &bench{Agent: a, backend: backend, js: n.first.js, input: n.first.input}}
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan struct{})
	for len(n.engine.beats) > 0 {
		<-n.engine.beats
	}
	go func() {
		defer close(done)
		if g.Run(ctx, ready) != nil {
			g.Stop(context.Background())
		}
	}()
	<-ready
	g.beat = <-n.engine.beats
	g.end = func() { stop(); <-done }
	n.t.Cleanup(g.end)
	return g
}

// stop ends a generation as SIGTERM does.
func (g *generation) stop() {
	g.end()
	g.Stop(context.Background())
}

func as(change func(*agent.Options)) func(*agent.Options) { return change }

var usual = as(func(*agent.Options) {})

// log returns the lines of a run, with their streams.
func (b *bench) log(t *testing.T, run string) []string {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), api.LogStream)
	require.NoError(t, err)
	c, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{"tidewait.log.>"}})
	require.NoError(t, err)
	var lines []string
	for {
		m, err := c.FetchNoWait(1)
		require.NoError(t, err)
		msg, ok := <-m.Messages()
		if !ok {
			return lines
		}
		if strings.Contains(msg.Subject(), run) {
			lines = append(lines, msg.Headers().Get(api.LogHeaderStream)+": "+string(msg.Data()))
		}
	}
}

func resumed(in workflows.ExecuteRunInput) workflows.ExecuteRunInput {
	in.Resume = true
	return in
}

const ticking = `i=1; while [ $i -le 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done; echo made > made.txt`

func TestTheNextAgentGoesOn(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, ticking)
	done := a.begin(t, in)
	for range 2 { // and the one after it
		a.stop()
		got := <-done
		require.EqualError(t, got.err, "the node's agent was stopped, and the next one goes on with the run")
		a = n.next(usual)
		require.Len(t, a.beat.Runs, 1)
		require.Equal(t, api.RunReport{
			ID: "r1-1", Step: "run", Started: true, Adopted: true,
			Accel: "none", Kernel: a.beat.Runs[0].Kernel, Isolation: a.beat.Runs[0].Isolation,
		}, a.beat.Runs[0])
		require.NotEmpty(t, a.beat.Runs[0].Kernel)
		require.Empty(t, a.beat.GivenUp)
		require.Equal(t, api.Leaks{}, a.beat.Leaks)
		done = a.begin(t, resumed(in))
	}
	got := <-done
	require.NoError(t, got.err)
	require.Equal(t, &vm.Exit{}, got.res.Exit, got.res.Failure)
	require.Equal(t, []string{"made.txt"}, a.files(t, &got.res.Results))
	a.nothingLeft(t)
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("stdout: %d", i+1))
	}
	require.Equal(t, want, a.log(t, "r1-1"))
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(n.dir, "node", "runs"))
		return err == nil && len(left) == 0
	}, 10*time.Second, time.Millisecond, "what the engine has heard of is forgotten")
}

// slowProbe is a backend whose probe takes until it is told to end.
type slowProbe struct {
	*process.Backend
	end chan struct{}
}

func (s slowProbe) Probe(ctx context.Context) vm.Report {
	<-s.end
	return s.Backend.Probe(ctx)
}

// TestRunsDoNotWaitForProbes: a run is gone on with while backends are probed, and a
// new one is not begun.
func TestRunsDoNotWaitForProbes(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, ticking)
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)

	end := make(chan struct{})
	b := n.start(func(o *agent.Options) { o.Backends = []vm.Backend{slowProbe{o.Backends[0].(*process.Backend), end}} })
	require.Empty(t, b.beat.Backends)
	require.Equal(t, "r1-1", b.beat.Runs[0].ID)
	begun, other := make(chan string, 8), make(chan ended, 1)
	go func() {
		res, err := b.Execute(context.Background(), b.solo("r2-1", 1, "true"), func(step string) { begun <- step })
		other <- ended{res, err}
	}()
	res, err := b.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, &vm.Exit{}, res.Exit, res.Failure)
	require.Empty(t, begun)
	close(end)
	got := <-other
	require.NoError(t, got.err)
	require.Equal(t, &vm.Exit{}, got.res.Exit, got.res.Failure)
	require.Equal(t, "create", <-begun)
}

func TestTheTurnGoesOn(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, "while :; do sleep 0.05; done")
	in.Turn = 4 * time.Second
	began := time.Now()
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)
	b := n.next(usual)
	res, err := b.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, "turn_exceeded", res.FailureCode)
	require.GreaterOrEqual(t, time.Since(began), 4*time.Second)
	require.Less(t, time.Since(began), 7*time.Second, "the turn began with the first agent")
	b.nothingLeft(t)
}

// TestACommandThatEndedInItsTurnHas: it counts when it ended, not when the next agent
// was there to see it.
func TestACommandThatEndedInItsTurnHas(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   string
	}{
		"in time":  {"echo ready; sleep 0.3; echo made > made.txt", ""},
		"too late": {"echo ready; sleep 2.6; echo made > made.txt", "turn_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.next(usual)
			in := a.solo("r1-1", 1, c.script)
			in.Turn = 2500 * time.Millisecond
			began := boot.Now()
			done := a.begin(t, in)
			require.Eventually(t, func() bool { return len(a.log(t, "r1-1")) == 1 }, 10*time.Second, time.Millisecond)
			a.stop()
			require.Error(t, (<-done).err)
			require.Eventually(t, func() bool { return boot.Now() > began+3*time.Second }, 10*time.Second, 10*time.Millisecond)

			b := n.next(func(o *agent.Options) { o.StepTimeout = 2 * time.Second })
			res, err := b.Execute(t.Context(), resumed(in), nil)
			require.NoError(t, err)
			require.Equal(t, c.want, res.FailureCode, res.Failure)
			if c.want == "" {
				require.Equal(t, &vm.Exit{}, res.Exit)
				require.Equal(t, []string{"made.txt"}, b.files(t, &res.Results))
			}
			b.nothingLeft(t)
		})
	}
}

// TestTheTurnOfARunThatNobodyAsksForEnds, some time after it would have.
func TestTheTurnOfARunThatNobodyAsksForEnds(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, "while :; do sleep 0.05; done")
	in.Turn = 4 * time.Second
	began := time.Now()
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)
	b := n.start(func(o *agent.Options) { o.StepTimeout = time.Second })
	require.Len(t, b.beat.Runs, 1)
	for b := range n.engine.beats {
		if len(b.Runs) == 0 {
			require.Equal(t, []string{"r1-1"}, b.Ended)
			break
		}
	}
	require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
	b.nothingLeft(t)
}

func TestAnAdoptedRunCanBeStopped(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, `trap 'echo half > made.txt; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	done := a.begin(t, in)
	require.Eventually(t, func() bool { return len(a.log(t, "r1-1")) == 1 }, 10*time.Second, time.Millisecond)
	a.stop()
	require.Error(t, (<-done).err)
	b := n.next(usual)
	done = b.begin(t, resumed(in))
	require.NoError(t, b.StopRun("r1-1", "enough", true))
	got := <-done
	require.NoError(t, got.err)
	require.Equal(t, "cancelled", got.res.FailureCode)
	require.Equal(t, &vm.Exit{Code: 3}, got.res.Exit)
	require.True(t, got.res.Partial)
	require.Equal(t, []string{"made.txt"}, b.files(t, &got.res.Results))
	b.nothingLeft(t)
}

func TestAnAdoptedRunThatNobodyAsksForCanBeStopped(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, "sleep 3600")
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)
	b := n.next(usual)
	require.NoError(t, b.StopRun("r1-1", "enough", false))
	require.Eventually(t, func() bool {
		left, err := b.backend.List(t.Context())
		return err == nil && len(left) == 0
	}, 10*time.Second, time.Millisecond)
	res, err := b.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteRunResult{Lost: true, Failure: "the agent does not have the run any more that it was to go on with"}, res)
}

// TestWhatCannotBeGoneOnWithEnds: the agent says why.
func TestWhatCannotBeGoneOnWithEnds(t *testing.T) {
	t.Run("the node is to be emptied", func(t *testing.T) {
		n := newNode(t)
		draining := "draining"
		n.state.Store(&draining)
		a := n.next(usual)
		done := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
		a.stop()
		got := <-done
		require.NoError(t, got.err)
		require.True(t, got.res.Lost)
		require.Equal(t, "the node's agent was stopped", got.res.Failure)
		a.nothingLeft(t)
	})
	t.Run("the engine wants no more of the agent", func(t *testing.T) {
		n := newNode(t)
		a := n.next(usual)
		done := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
		why := "another agent process speaks for node n1"
		n.engine.end.Store(&why)
		got := <-done
		require.NoError(t, got.err)
		require.True(t, got.res.Lost)
		a.nothingLeft(t)
	})
	t.Run("several machines", func(t *testing.T) {
		n := newNode(t)
		a := n.next(usual)
		done := a.begin(t, a.team("r1-1", member("a", 1, "sleep 3600"), member("b", 1, "sleep 3600")))
		a.stop()
		got := <-done
		require.NoError(t, got.err)
		require.True(t, got.res.Lost)
		require.Equal(t, "the node's agent was stopped", got.res.Failure)
		a.nothingLeft(t)
	})
	t.Run("the next agent does not", func(t *testing.T) {
		n := newNode(t)
		a := n.next(usual)
		done := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
		a.stop()
		require.Error(t, (<-done).err)
		b := n.next(func(o *agent.Options) { o.KeepRuns = false })
		require.Empty(t, b.beat.Runs)
		require.Equal(t, map[string]string{"r1-1": "this agent goes on with no runs of another"}, b.beat.GivenUp)
		require.Equal(t, api.Leaks{}, b.beat.Leaks)
		b.nothingLeft(t)
	})
	t.Run("its backend does not come up", func(t *testing.T) {
		n := newNode(t)
		a := n.next(usual)
		done := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
		a.stop()
		require.Error(t, (<-done).err)
		keeper := n.keeper()
		b := n.next(func(o *agent.Options) { o.Backends = []vm.Backend{n.unusable()} })
		require.Equal(t, map[string]string{"r1-1": "backend process cannot be used: its program is not there"}, b.beat.GivenUp)
		b.nothingLeft(t)
		ends(t, keeper)
	})
	t.Run("its backend is not offered any more", func(t *testing.T) {
		n := newNode(t)
		a := n.next(usual)
		done := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
		a.stop()
		require.Error(t, (<-done).err)
		keeper := n.keeper()
		b := n.start(func(o *agent.Options) { o.Backends, o.Former = nil, []vm.Backend{n.unusable()} })
		require.Equal(t, map[string]string{"r1-1": "backend process cannot be used: its program is not there"}, b.beat.GivenUp)
		b.nothingLeft(t)
		ends(t, keeper)
	})
	t.Run("its keeper was killed", func(t *testing.T) {
		n := newNode(t)
		a := n.next(usual)
		done := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
		a.stop()
		require.Error(t, (<-done).err)
		require.NoError(t, n.keeper().Kill())
		b := n.next(usual)
		require.Equal(t, map[string]string{"r1-1": "adopt run r1-1: its keeper is gone"}, b.beat.GivenUp)
		b.nothingLeft(t)
	})
}

// TestAFrozenKeeperHoldsNobodyUp: its machine is ended, and the others go on.
func TestAFrozenKeeperHoldsNobodyUp(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	frozen := a.begin(t, a.solo("r1-1", 1, "sleep 3600"))
	keeper := n.keeper()
	in := a.solo("r2-1", 1, ticking)
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-frozen).err)
	require.Error(t, (<-done).err)
	require.NoError(t, keeper.Signal(syscall.SIGSTOP))
	b := n.next(usual)
	require.Equal(t, map[string]string{"r1-1": "adopt run r1-1: the machine's keeper did not answer within 5s"}, b.beat.GivenUp)
	res, err := b.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, &vm.Exit{}, res.Exit, res.Failure)
	b.nothingLeft(t)
}

// TestRunsOfUnknownBackendsAreNotGivenUp: nobody can say that their machines are
// gone.
func TestRunsOfUnknownBackendsAreNotGivenUp(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, ticking)
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)
	o := a.Options
	o.Backends = nil
	_, err := agent.New(t.Context(), o)
	require.EqualError(t, err, "an earlier agent left run r1-1 in backend process, of which this one knows nothing: "+
		"start an agent that does, so that its machine is ended")

	b := n.next(usual)
	res, err := b.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, &vm.Exit{}, res.Exit, res.Failure)
}

// unusable is the node's backend when it does not come up.
func (n *node) unusable() *host.Unusable {
	n.t.Helper()
	u, err := host.NewUnusable("process", filepath.Join(n.dir, "process"), errors.New("its program is not there"))
	require.NoError(n.t, err)
	return u
}

// ends asserts that a process ends: one of an earlier generation is this one's child,
// which has to be waited for.
func ends(t *testing.T, p *os.Process) {
	t.Helper()
	require.Eventually(t, func() bool { return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) }, 10*time.Second, time.Millisecond)
}

// keeper is the process of the only keeper.
func (n *node) keeper() *os.Process {
	n.t.Helper()
	names, err := filepath.Glob(filepath.Join(n.dir, "process", "runs", "*", "journal.json"))
	require.NoError(n.t, err)
	require.Len(n.t, names, 1)
	b, err := os.ReadFile(names[0])
	require.NoError(n.t, err)
	var j struct {
		Keeper struct {
			PID int `json:"pid"`
		} `json:"keeper"`
	}
	require.NoError(n.t, json.Unmarshal(b, &j))
	p, err := os.FindProcess(j.Keeper.PID)
	require.NoError(n.t, err)
	return p
}

// TestJournalsOfRuns: what an agent left in each step, without a machine.
func TestJournalsOfRuns(t *testing.T) {
	n := newNode(t)
	j, err := journal.Open(filepath.Join(n.dir, "node", "runs"))
	require.NoError(t, err)
	entry := func(run, step string) journal.Entry {
		in := n.first.solo(run, 1, "true")
		return journal.Entry{Input: in, Step: step, BootID: boot.ID(), EndsAt: boot.Now() + time.Minute}
	}
	require.NoError(t, j.Write(entry("r1-1", "create")))
	require.NoError(t, j.Write(entry("r2-1", "run")))
	ended := entry("r3-1", "destroy")
	ended.Result = &workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 9}, Images: map[string]string{"alpine": "sha256:1"}}
	require.NoError(t, j.Write(ended))
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "node", "runs", "r4-1.json"), []byte(`{"step":`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "node", "runs", "r5-1.json.new"), nil, 0o600))

	a := n.next(usual)
	require.Equal(t, map[string]string{"r1-1": "its machine is gone", "r2-1": "its machine is gone"}, a.beat.GivenUp)
	require.Equal(t, api.Leaks{Journals: 1}, a.beat.Leaks)
	require.Equal(t, []api.RunReport{{ID: "r3-1", Step: "destroy", Started: true, Adopted: true}}, a.beat.Runs)
	res, err := a.Execute(t.Context(), resumed(ended.Input), nil)
	require.NoError(t, err)
	require.Equal(t, *ended.Result, res, "a result that was there is not made again")
}

// TestANodeHasOneAgent: a second process waits for the first, and says why it does
// not work.
func TestANodeHasOneAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	first, err := agent.Lock(t.Context(), dir)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = agent.Lock(ctx, dir)
	require.EqualError(t, err, "another agent process uses "+dir+": stop it, or give one of the two a node.id of its own")
	require.NoError(t, first.Close())
	second, err := agent.Lock(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

// TestAStoppedAgentBeginsNothing: neither a run that it left, of which it does not
// say that it is lost, nor one that is new.
func TestAStoppedAgentBeginsNothing(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, ticking)
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)
	b := n.next(usual)
	b.stop()
	for _, in := range []workflows.ExecuteRunInput{resumed(in), b.solo("r2-1", 1, "true")} {
		res, err := b.Execute(t.Context(), in, nil)
		require.EqualError(t, err, "the node's agent was stopped")
		require.Equal(t, workflows.ExecuteRunResult{}, res)
	}
	c := n.next(usual)
	res, err := c.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, &vm.Exit{}, res.Exit, res.Failure)
}

// TestARunIsLeftInTheMomentItIsAskedFor: an agent that is stopped while it takes up
// a run of an earlier one leaves it, in whatever order the two happen.
func TestARunIsLeftInTheMomentItIsAskedFor(t *testing.T) {
	n := newNode(t)
	a := n.next(usual)
	in := a.solo("r1-1", 1, "sleep 3600")
	done := a.begin(t, in)
	a.stop()
	require.Error(t, (<-done).err)
	for range 3 {
		b := n.next(usual)
		require.Empty(t, b.beat.GivenUp)
		b.end()
		asked := make(chan ended, 1)
		go func() {
			res, err := b.Execute(context.Background(), resumed(in), nil)
			asked <- ended{res, err}
		}()
		b.Stop(t.Context())
		got := <-asked
		require.Error(t, got.err, got.res.Failure)
	}
	b := n.next(usual)
	require.Len(t, b.beat.Runs, 1)
	require.NoError(t, b.StopRun("r1-1", "enough", false))
	res, err := b.Execute(t.Context(), resumed(in), nil)
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteRunResult{Lost: true, Failure: "the agent does not have the run any more that it was to go on with"}, res)
}
