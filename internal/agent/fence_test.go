package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/agent"
	"tidewait/internal/api"
	"tidewait/internal/vm"
	"tidewait/internal/vm/process"
	"tidewait/workflows"
)

// answering is the engine as an agent sees it: it answers heartbeats, or does not.
type answering struct {
	silent atomic.Bool
	epoch  atomic.Int64
	end    atomic.Pointer[string]
	wants  atomic.Bool // false: no machine is wanted
	beats  chan api.Heartbeat
}

func answer(t *testing.T, conn *nats.Conn) *answering {
	t.Helper()
	e := &answering{beats: make(chan api.Heartbeat, 1000)}
	e.epoch.Store(1)
	e.wants.Store(true)
	sub, err := conn.Subscribe(api.SubjectNodeHeartbeats, func(m *nats.Msg) {
		var h api.Heartbeat
		if json.Unmarshal(m.Data, &h) != nil || e.silent.Load() {
			return
		}
		reply := api.HeartbeatReply{State: "ready", Epoch: e.epoch.Load()}
		if end := e.end.Load(); end != nil {
			reply.End = *end
		}
		for _, r := range h.Runs {
			if !e.wants.Load() {
				reply.Destroy = append(reply.Destroy, r.ID)
			}
		}
		ok, _ := json.Marshal(reply)
		data, _ := json.Marshal(api.Reply{OK: ok})
		_ = m.Respond(data)
		e.beats <- h
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return e
}

// beating runs the agent of a bench until the test ends.
func beating(t *testing.T, change func(*agent.Options)) (*bench, *answering, <-chan error) {
	t.Helper()
	b := newBenchWith(t, change)
	e := answer(t, b.NATS)
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	done := make(chan struct{})
	go func() { ended <- b.Run(ctx, ready); close(done) }()
	<-ready
	t.Cleanup(func() { stop(); <-done })
	return b, e, ended
}

// solo is a run of one machine whose command ignores TERM.
func (b *bench) solo(run string, epoch int64, script string) workflows.ExecuteRunInput {
	return workflows.ExecuteRunInput{
		Mission: "port", Launch: 1, Phase: "work", Backend: "process", Machine: vm.Spec{RunID: run, CPUMilli: 500, MemoryMiB: 128, DiskMiB: 64},
		Input: b.input, Turn: time.Minute, Node: "n1", Epoch: epoch, Command: vm.Command{Argv: []string{"sh", "-c", script}},
	}
}

const deaf = "trap '' TERM; while :; do sleep 0.05; done"

type ended struct {
	res workflows.ExecuteRunResult
	err error
}

// begin executes a run, and returns when its command runs.
func (b *bench) begin(t *testing.T, in workflows.ExecuteRunInput) <-chan ended {
	t.Helper()
	running, done := make(chan struct{}), make(chan ended, 1)
	go func() {
		res, err := b.Execute(context.Background(), in, func(step string) {
			if step == "run" {
				close(running)
			}
		})
		done <- ended{res, err}
	}()
	<-running
	return done
}

// The end of the lease kills at once: no grace, and no waiting for a heartbeat
// that hangs.
func TestTheFenceKillsAtOnce(t *testing.T) {
	const lease = 1500 * time.Millisecond
	b, e, _ := beating(t, func(o *agent.Options) {
		o.Heartbeat, o.Lease = 300*time.Millisecond, lease
		slow, err := process.New(process.Options{Agent: guestAgent, RunDir: t.TempDir(), KillGrace: time.Minute})
		require.NoError(t, err)
		o.Backends = []vm.Backend{slow}
	})
	alone := b.begin(t, b.solo("r1-1", 1, deaf))
	team := b.begin(t, b.team("r2-1", member("a", 1, deaf), member("b", 2, deaf)))

	e.silent.Store(true)
	began := time.Now()
	for _, done := range []<-chan ended{alone, team} {
		got := <-done
		require.NoError(t, got.err)
		require.True(t, got.res.Lost)
		require.Equal(t, "the engine was silent for the whole lease, so the run is given to another node", got.res.Failure)
	}
	took := time.Since(began)
	require.Less(t, took, 20*time.Second, "the grace of the commands is a minute")
	t.Logf("three machines were gone %s after the engine fell silent, with a lease of %s", took.Round(time.Millisecond), lease)

	again, err := b.Execute(t.Context(), b.solo("r3-1", 1, "true"), nil)
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteRunResult{Lost: true, Failure: "the engine was silent for the whole lease, so the run is given to another node"}, again)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Await(ctx), context.DeadlineExceeded)

	e.epoch.Store(2)
	e.silent.Store(false)
	require.NoError(t, b.Await(t.Context()))
	again, err = b.Execute(t.Context(), b.solo("r3-1", 1, "true"), nil)
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteRunResult{Lost: true, Failure: "the node was silent for so long that the engine gave the run up"}, again)
	res, err := b.Execute(t.Context(), b.solo("r3-2", 2, "true"), nil)
	require.NoError(t, err)
	require.Empty(t, res.Failure)
	require.Equal(t, &vm.Exit{}, res.Exit)
}

// A node that was given up without having noticed is told with the next answer.
func TestAnOldEpochEndsItsRuns(t *testing.T) {
	b, e, _ := beating(t, func(o *agent.Options) { o.Heartbeat = 100 * time.Millisecond })
	old := b.begin(t, b.solo("r1-1", 1, "while :; do sleep 0.05; done"))
	unknown := b.begin(t, b.solo("r2-1", 0, "sleep 3"))

	e.epoch.Store(2)

	got := <-old
	require.NoError(t, got.err)
	require.True(t, got.res.Lost)
	require.Equal(t, "the node was silent for so long that the engine gave the run up", got.res.Failure)
	got = <-unknown
	require.NoError(t, got.err)
	require.Equal(t, &vm.Exit{}, got.res.Exit, "that of an unknown epoch goes on")
	b.nothingLeft(t)
}

// A run that is executed again after its room was given back holds nothing, and is
// ended for it. Its phase is placed again.
func TestARunThatIsNotWantedIsLost(t *testing.T) {
	b, e, _ := beating(t, func(o *agent.Options) { o.Heartbeat = 100 * time.Millisecond })
	done := b.begin(t, b.solo("r1-1", 1, "while :; do sleep 0.05; done"))

	e.wants.Store(false)

	got := <-done
	require.NoError(t, got.err)
	require.True(t, got.res.Lost)
	require.Equal(t, "the engine no longer wants the run", got.res.Failure)
	b.nothingLeft(t)
}

func TestAnAgentThatIsNotWantedEnds(t *testing.T) {
	b, e, ended := beating(t, func(o *agent.Options) { o.Heartbeat = 100 * time.Millisecond })
	why := "node n1 is retired by ann"

	e.end.Store(&why)

	var end *agent.Ended
	require.ErrorAs(t, <-ended, &end)
	require.Equal(t, why, end.Why)
	b.nothingLeft(t)
}

func TestHeartbeatsAreNumbered(t *testing.T) {
	_, e, _ := beating(t, func(o *agent.Options) { o.Heartbeat = 20 * time.Millisecond })
	for want := int64(1); want <= 5; want++ {
		require.Equal(t, want, (<-e.beats).Number, fmt.Sprint("heartbeat ", want))
	}
}

// Nobody waits for the lease of an agent that is stopped.
func TestAStoppedAgentIsNotWaitedFor(t *testing.T) {
	b := newBench(t)
	done := make(chan error, 1)
	go func() { done <- b.Await(context.Background()) }()

	b.Stop(t.Context())

	require.EqualError(t, <-done, "the node's agent was stopped")
	require.Error(t, b.Await(t.Context()))
}
