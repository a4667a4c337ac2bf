package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"tidewait/activities"
	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/engine"
	"tidewait/internal/gateway"
	"tidewait/internal/ledger"
	"tidewait/internal/natstest"
	"tidewait/internal/objects"
	"tidewait/internal/provision"
	"tidewait/internal/store"
	"tidewait/internal/tartest"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// committing is an engine and a gateway that commits results.
type committing struct {
	*placing
	gateway  *gateway.Gateway
	js       jetstream.JetStream
	checkout workflows.Checkout
}

func startCommitting(t *testing.T) *committing {
	t.Helper()
	c := &committing{placing: startPlacing(t)}
	conn := natstest.Connect(t, natstest.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL())
	var err error
	c.js, err = jetstream.New(conn)
	require.NoError(t, err)
	fleet := config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 64 << 20}
	require.NoError(t, provision.Streams(t.Context(), c.js, fleet))
	require.NoError(t, provision.NodeBucket(t.Context(), c.js, "a", fleet))
	c.serve(conn)
	repo := t.TempDir()
	git(t, repo, "init", "-q", "-b", "main")
	git(t, repo, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-q", "--allow-empty", "-m", "first")
	checkouts, err := workspace.New(t.TempDir(), workspace.Options{Protocols: []string{"file"}, Roots: []string{repo}})
	require.NoError(t, err)
	c.gateway = &gateway.Gateway{ID: "gw", Checkouts: checkouts, JS: c.js, NATS: conn, Log: slog.New(slog.DiscardHandler)}
	c.checkout, err = c.gateway.Open(t.Context(), workflows.OpenCheckoutInput{Mission: "m", Launch: 1, URL: repo})
	require.NoError(t, err)
	return c
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func (c *committing) serve(conn *nats.Conn) {
	placer, _ := c.start(time.Hour)
	s := engine.Server{Store: c.store, Placer: placer, Version: "0.0.0", Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Serve(ctx, conn, func() { close(ready) }) }()
	<-ready
	c.t.Cleanup(func() {
		stop()
		require.NoError(c.t, <-done)
	})
}

// place launches mission m, whose phase gets a run.
func (c *committing) place() (phase int64, first ledger.Placed) {
	c.t.Helper()
	phase = c.phase("m")
	return phase, c.lookAt(phase, 1)
}

func (c *committing) lookAt(phase int64, attempt int) ledger.Placed {
	c.t.Helper()
	res, err := c.store.Pass(c.t.Context(), "process", []store.Look{{PhaseID: phase, Attempt: attempt, Wake: ledger.WakeFirst}}, ledger.WakeFirst)
	require.NoError(c.t, err)
	require.NotNil(c.t, res.Outcomes[phase].Placed)
	return *res.Outcomes[phase].Placed
}

// commit lets a run bring a file, by the gateway's own activity.
func (c *committing) commit(p ledger.Placed, content string) (workflows.Checkout, error) {
	c.t.Helper()
	bucket, err := c.js.ObjectStore(c.t.Context(), api.BucketResults("a"))
	require.NoError(c.t, err)
	_, err = objects.Put(c.t.Context(), bucket, p.RunID, bytes.NewReader(tartest.Of(tartest.File("made.txt", content))))
	require.NoError(c.t, err)

	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	act := &activities.Gateway{Gateway: c.gateway}
	env.RegisterActivity(act.CommitResults)
	value, err := env.ExecuteActivity(act.CommitResults, workflows.CommitResultsInput{
		Mission: "m", Launch: 1, Phase: "p", RunID: p.RunID, Node: p.NodeID, Epoch: p.Epoch, Parent: c.checkout.Commit, TreeIn: c.checkout.Tree,
		Results: workflows.Object{Bucket: api.BucketResults("a"), Name: p.RunID}, Last: true,
	})
	if err != nil {
		return workflows.Checkout{}, err
	}
	var out workflows.Checkout
	return out, value.Get(&out)
}

func (c *committing) commits() []workspace.CommitInfo {
	c.t.Helper()
	all, err := c.gateway.Checkouts.Log(c.t.Context(), "m", 1)
	require.NoError(c.t, err)
	return all
}

func requireStale(t *testing.T, err error, says string) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, []any{"RunStale", true}, []any{app.Type(), app.NonRetryable()})
	require.Contains(t, app.Message(), says)
}

// A run that comes back after its phase was placed again commits nothing, whoever
// is first.
func TestALateRunCannotCommit(t *testing.T) {
	c := startCommitting(t)
	phase, late := c.place()
	_, err := c.db.Exec(t.Context(), "UPDATE nodes SET heartbeat_at = heartbeat_at - interval '3 hours'; UPDATE listening SET since = since - interval '3 hours'")
	require.NoError(t, err)
	_, err = c.store.Listen(t.Context())
	require.NoError(t, err)
	v, err := c.store.JudgeRun(t.Context(), late.RunID, false)
	require.NoError(t, err)
	require.True(t, v.Gone, v.Reason)

	_, err = c.commit(late, "late")
	requireStale(t, err, "node a was given up since it was placed: epoch 1 is over, it is 2 now")

	_, err = c.store.RetryPhase(t.Context(), phase, 1, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
	require.NoError(t, err)
	_, err = c.store.Heartbeat(t.Context(), c.heartbeat())
	require.NoError(t, err)
	again := c.lookAt(phase, 2)
	_, err = c.commit(late, "late")
	requireStale(t, err, "commit what run "+late.RunID+" has made: it has ended as lost: the run does not count any more")
	require.Empty(t, c.commits())

	made, err := c.commit(again, "in time")
	require.NoError(t, err)
	require.Len(t, c.commits(), 1)
	_, err = c.store.FinishPhase(t.Context(), phase, ledger.RunEnd{RunID: again.RunID, Status: "succeeded"}, ledger.Ended{Status: "succeeded", Commit: made.Commit})
	require.NoError(t, err)

	_, err = c.commit(late, "late")
	require.Error(t, err)
	repeated, err := c.commit(again, "in time")
	require.NoError(t, err, "what was committed stays so, whoever asks again")
	require.Equal(t, made, repeated)
	require.Equal(t, []string{again.RunID, made.Commit}, []string{c.commits()[0].Run, c.commits()[0].Commit})
}

// While no engine answers nothing is committed and nothing is refused.
func TestACommitWaitsForAnEngine(t *testing.T) {
	c := startCommitting(t)
	_, run := c.place()
	alone := natstest.Connect(t, natstest.Start(t, &server.Options{}).ClientURL())
	engines := c.gateway.NATS
	c.gateway.NATS = alone

	_, err := c.commit(run, "x")

	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable())
	require.ErrorContains(t, err, "ask whether run "+run.RunID+" may commit")
	require.Empty(t, c.commits())
	c.gateway.NATS = engines
	_, err = c.commit(run, "x")
	require.NoError(t, err)
}
