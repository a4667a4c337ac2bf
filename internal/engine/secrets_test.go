package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/engine"
	"tidewait/internal/gateway"
	"tidewait/internal/ledger"
	"tidewait/internal/mission"
	"tidewait/internal/natsrpc"
	"tidewait/internal/natstest"
	"tidewait/internal/secret/seal"
	"tidewait/internal/secret/source"
	"tidewait/internal/store"
	"tidewait/migrations"
)

// guarded are NATS users as a cluster should have them: each role may do what it
// needs, and nothing of what the others do.
const guarded = `
authorization {
  users: [
    {user: engine, password: p, permissions: {
      publish: ["tidewait.secrets.seal.*", "_INBOX.>", "_R_.>"]
      subscribe: ["tidewait.secrets.run.*", "$SRV.>", "_INBOX.>"], allow_responses: true}}
    {user: gw, password: p, permissions: {
      publish: ["tidewait.agent.gateway.gw"]
      subscribe: ["tidewait.secrets.seal.gw", "tidewait.gateway.gw.>", "$SRV.>", "_INBOX.>"], allow_responses: true}}
    {user: n1, password: p, permissions: {publish: ["tidewait.secrets.run.n1"], subscribe: ["_INBOX.>"]}}
    {user: n2, password: p, permissions: {publish: ["tidewait.secrets.run.n2"], subscribe: ["_INBOX.>"]}}
    {user: cli, password: p, permissions: {publish: ["tidewait.api.>", "tidewait.gateway.>"], subscribe: ["_INBOX.>"]}}
  ]
}`

// giving is an engine and a gateway that give secrets to runs.
type giving struct {
	t     *testing.T
	db    *pgx.Conn
	store *store.Store
	nats  *server.Server
}

const secretValue = "correct horse battery staple"

func startGiving(t *testing.T) *giving {
	t.Helper()
	stack := devstacktest.Start(t, devstack.Postgres)
	_, err := migrations.Apply(t.Context(), stack.PostgresURL)
	require.NoError(t, err)
	s, err := store.Open(t.Context(), stack.PostgresURL, 4, store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	db, err := pgx.Connect(t.Context(), stack.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	conf := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(conf, []byte(guarded), 0o600))
	options, err := server.ProcessConfigFile(conf)
	require.NoError(t, err)
	g := &giving{t: t, db: db, store: s, nats: natstest.Start(t, options)}

	secrets := engine.Secrets{Store: s, NATS: g.connect("engine"), Version: "0.0.0", Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- secrets.Serve(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	for _, node := range []string{"n1", "n2"} {
		_, err := s.Heartbeat(t.Context(), api.Heartbeat{
			Node: node, BootID: "b", Version: "1", Arch: "amd64", Backends: map[string]api.Backend{"process": {OK: true, Accel: "none"}},
			Total: capacity.Resources{CPUMilli: 4000, MemoryMiB: 4096, DiskMiB: 4096, Slots: 4},
		})
		require.NoError(t, err)
	}
	_, err = s.GatewayHeartbeat(t.Context(), api.GatewayHeartbeat{Gateway: "gw"})
	require.NoError(t, err)
	return g
}

func (g *giving) connect(user string) *nats.Conn {
	g.t.Helper()
	conn, err := nats.Connect(g.nats.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(g.t, err)
	g.t.Cleanup(conn.Close)
	return conn
}

// startGateway runs the gateway with one file.
func (g *giving) startGateway() {
	g.t.Helper()
	dir := g.t.TempDir()
	require.NoError(g.t, os.Chmod(dir, 0o700))
	require.NoError(g.t, os.WriteFile(filepath.Join(dir, "token"), []byte(secretValue+"\n"), 0o600))
	sources := source.Sources{Dir: dir, Time: time.Minute, Commands: map[string][]string{"blocked": {"/bin/sleep", "600"}}}
	gw := gateway.Gateway{ID: "gw", Version: "0.0.0", Secrets: sources, Heartbeat: time.Hour, Log: slog.New(slog.DiscardHandler)}
	conn := g.connect("gw")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gw.Run(ctx, conn, nil) }()
	g.t.Cleanup(func() {
		stop()
		require.NoError(g.t, <-done)
	})
	require.Eventually(g.t, func() bool { return g.nats.NumSubscriptions() > 0 && g.served(api.SubjectSealSecrets("gw")) }, 30*time.Second, time.Millisecond)
}

// served reports whether somebody answers on a subject, as the engine may ask.
func (g *giving) served(subject string) bool {
	_, err := g.connect("engine").Request(subject, []byte("{}"), time.Second)
	return err == nil
}

// run launches a mission with one phase and places it.
func (g *giving) run(name, from string) (placed ledger.Placed, phase int64) {
	g.t.Helper()
	p := mission.Phase{Name: "work", Run: []string{"true"}, Attempts: 1}
	if from != "" {
		p.Secrets = []mission.Secret{{Name: "TOKEN", From: from}}
	}
	m := mission.Mission{Name: name, Spec: mission.Spec{Backend: "process", Phases: []mission.Phase{p}}}
	l, refused, err := g.store.Launch(g.t.Context(), store.Draft{
		Name: name, Document: m.Canonical(), Actor: "test", WorkflowRun: name,
		Phases: []store.DraftPhase{{
			Name: "work", Turn: time.Hour, MaxWait: time.Hour,
			Demand: capacity.Demand{Backend: "process", Resources: capacity.Resources{CPUMilli: 100, MemoryMiB: 128, DiskMiB: 64, Slots: 1}},
		}},
	})
	require.NoError(g.t, err)
	require.Empty(g.t, refused)
	phase = l.Phases[0].ID
	looks := []store.Look{{PhaseID: phase, Attempt: 1, Wake: ledger.WakeFirst}}
	res, err := g.store.Pass(g.t.Context(), "process", looks, ledger.WakeFirst)
	require.NoError(g.t, err)
	require.NotNil(g.t, res.Outcomes[phase].Placed)
	return *res.Outcomes[phase].Placed, phase
}

func (g *giving) ask(as, node, run string, key []byte) (seal.Sealed, error) {
	var sealed seal.Sealed
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Second)
	defer cancel()
	err := natsrpc.Ask(ctx, g.connect(as), api.SubjectNodeSecrets(node), api.SecretsRequest{Run: run, Key: key, Left: 60_000}, &sealed)
	return sealed, err
}

func (g *giving) refused(code, says, as, node, run string, key []byte) {
	g.t.Helper()
	sealed, err := g.ask(as, node, run, key)
	var answer *api.Error
	require.ErrorAs(g.t, err, &answer)
	require.Equal(g.t, []string{code, says}, []string{answer.Code, answer.Message})
	require.Empty(g.t, sealed.Secrets)
}

func newKey(t *testing.T) *seal.Key {
	t.Helper()
	k, err := seal.NewKey()
	require.NoError(t, err)
	return k
}

// otherNode is the node that a run is not on.
func otherNode(node string) string { return map[string]string{"n1": "n2", "n2": "n1"}[node] }

func TestARunGetsItsSecrets(t *testing.T) {
	g := startGiving(t)
	g.startGateway()
	run, phase := g.run("m", "file:token")
	key := newKey(t)

	sealed, err := g.ask(run.NodeID, run.NodeID, run.RunID, key.Public())
	require.NoError(t, err)
	binding := seal.Binding{Mission: "m", Launch: 1, Phase: "work", Run: run.RunID, Node: run.NodeID}
	secrets, err := key.Open(binding, []string{"TOKEN"}, sealed)
	require.NoError(t, err)
	require.Equal(t, []seal.Secret{{Name: "TOKEN", Value: secretValue}}, secrets)
	wire, err := json.Marshal(sealed)
	require.NoError(t, err)
	require.NotContains(t, string(wire), "horse")

	again, err := g.ask(run.NodeID, run.NodeID, run.RunID, key.Public())
	require.NoError(t, err, "an answer that was lost can be asked for again")
	_, err = key.Open(binding, []string{"TOKEN"}, again)
	require.NoError(t, err)

	const had = "give run r1-1 its secrets: it has had its secrets, for another key: not possible in the present state"
	g.refused("conflict", had, run.NodeID, run.NodeID, run.RunID, newKey(t).Public())

	_, err = g.store.FinishPhase(t.Context(), phase, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
	require.NoError(t, err)
	g.refused("conflict", "give run r1-1 its secrets: it is not running any more: not possible in the present state",
		run.NodeID, run.NodeID, run.RunID, key.Public())
}

func TestNobodyElseGetsSecrets(t *testing.T) {
	g := startGiving(t)
	g.startGateway()
	key := newKey(t).Public()
	run, phase := g.run("m", "file:token")
	away := otherNode(run.NodeID)
	const refusal = ": not possible in the present state"

	g.refused("conflict", "give run r1-1 its secrets: it is not on node "+away+refusal, away, away, run.RunID, key)
	g.refused("not_found", "give run r9-9 its secrets: there is no such run: not found", run.NodeID, run.NodeID, "r9-9", key)
	g.refused("invalid", "the request is not valid: 3 bytes that are no public key: crypto/ecdh: invalid public key", run.NodeID, run.NodeID, run.RunID, []byte("key"))

	bare, _ := g.run("bare", "")
	g.refused("conflict", "phase work of mission bare has no secrets"+refusal, bare.NodeID, bare.NodeID, bare.RunID, key)
	gone, _ := g.run("gone", "file:none")
	g.refused("secret_unavailable", "secret TOKEN is not available: file:none is not in the gateway's directory of secrets", gone.NodeID, gone.NodeID, gone.RunID, key)

	// Where NATS guards its subjects, nobody asks in another's name, nor the gateway.
	for as, subject := range map[string]string{
		away: api.SubjectNodeSecrets(run.NodeID), "cli": api.SubjectNodeSecrets(run.NodeID), run.NodeID: api.SubjectSealSecrets("gw"), "gw": api.SubjectSealSecrets("gw"),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		err := natsrpc.Ask(ctx, g.connect(as), subject, api.SecretsRequest{Run: run.RunID, Key: key}, &seal.Sealed{})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "%s asks on %s", as, subject)
	}
	var claimed int
	require.NoError(t, g.db.QueryRow(t.Context(), `SELECT count(*) FROM topology_runs WHERE id = $1 AND secrets_key IS NOT NULL`, run.RunID).Scan(&claimed))
	require.Zero(t, claimed)

	// A run whose node was silent is judged; until it is heard it gets nothing.
	_, err := g.db.Exec(t.Context(), `UPDATE topology_runs SET suspected_at = now() WHERE id = $1`, run.RunID)
	require.NoError(t, err)
	g.refused("conflict", "give run r1-1 its secrets: it is not running any more"+refusal, run.NodeID, run.NodeID, run.RunID, key)
	_, err = g.db.Exec(t.Context(), `UPDATE topology_runs SET suspected_at = NULL WHERE id = $1`, run.RunID)
	require.NoError(t, err)
	_, err = g.ask(run.NodeID, run.NodeID, run.RunID, key)
	require.NoError(t, err, "the control: this run may")

	attempt, err := g.store.RetryPhase(t.Context(), phase, 1, ledger.RunEnd{Status: "lost"})
	require.NoError(t, err)
	require.Equal(t, 2, attempt)
	g.refused("conflict", "give run r1-1 its secrets: it is not running any more"+refusal, run.NodeID, run.NodeID, run.RunID, key)
}

func TestASilentGatewayIsAWait(t *testing.T) {
	g := startGiving(t)
	run, phase := g.run("m", "file:token")
	key := newKey(t).Public()
	waits := func() []api.Wait {
		list, err := g.store.ListWaits(t.Context(), api.WaitRequest{}, time.Second)
		require.NoError(t, err)
		return list.Waits
	}
	g.refused("unavailable", "gateway gw does not answer", run.NodeID, run.NodeID, run.RunID, key)
	first := waits()
	require.Len(t, first, 1)
	require.Equal(t, []any{
		"gateway", "gateway_unreachable", "m", "work", "phase.m.work", 1,
		"gateway gw does not answer; run r1-1 needs its secrets TOKEN before its command starts",
	}, []any{first[0].Kind, first[0].Code, first[0].Mission, first[0].Phase, first[0].WorkflowID, first[0].Attempts, first[0].Reason})
	require.Equal(t, time.Minute, first[0].Bound.Sub(first[0].Since).Round(time.Second))

	g.refused("unavailable", "gateway gw does not answer", run.NodeID, run.NodeID, run.RunID, key)
	second := waits()
	require.Equal(t, 2, second[0].Attempts)
	require.True(t, first[0].Since.Equal(second[0].Since))
	require.True(t, first[0].Bound.Equal(*second[0].Bound))

	g.startGateway()
	_, err := g.ask(run.NodeID, run.NodeID, run.RunID, key)
	require.NoError(t, err)
	require.Empty(t, waits())
	g.history(phase, "answered")
}

func (g *giving) history(phase int64, endedBy ...string) {
	g.t.Helper()
	rows, err := g.db.Query(g.t.Context(), `SELECT ended_by FROM wait_history WHERE phase_id = $1 AND kind = 'gateway' ORDER BY id`, phase)
	require.NoError(g.t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(g.t, err)
	require.Equal(g.t, endedBy, got)
}

// TestTheWaitEndsWithTheRun looks at each way in which a run ends.
func TestTheWaitEndsWithTheRun(t *testing.T) {
	g := startGiving(t)
	ctx := t.Context()
	for name, c := range map[string]struct {
		end  func(phase int64) error
		says string
	}{
		"lost": {func(phase int64) error {
			_, err := g.store.RetryPhase(ctx, phase, 1, ledger.RunEnd{Status: "lost"})
			return err
		}, "lost"},
		"failed": {func(phase int64) error {
			_, err := g.store.FinishPhase(ctx, phase, ledger.RunEnd{Status: "failed"}, ledger.Ended{Status: "failed", FailureCode: "secret_unavailable"})
			return err
		}, "lost"},
		"cancelled": {func(phase int64) error {
			_, err := g.store.FinishPhase(ctx, phase, ledger.RunEnd{Status: "cancelled"}, ledger.Ended{Status: "cancelled"})
			return err
		}, "cancelled"},
		"again": {func(phase int64) error {
			_, err := g.store.BackOff(ctx, ledger.BackOff{PhaseID: phase, Attempt: 1, Attempts: 2, First: time.Hour, Run: ledger.RunEnd{Status: "failed"}})
			return err
		}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			run, phase := g.run(name, "file:token")
			g.refused("unavailable", "gateway gw does not answer", run.NodeID, run.NodeID, run.RunID, newKey(t).Public())
			require.NoError(t, c.end(phase))
			g.history(phase, c.says)

			require.NoError(t, g.store.NoteSecretsWait(ctx, run.RunID, "late", time.Minute, time.Second))
			var open int
			require.NoError(t, g.db.QueryRow(ctx, `SELECT count(*) FROM open_waits WHERE phase_id = $1 AND kind = 'gateway'`, phase).Scan(&open))
			require.Zero(t, open, "a run that has ended does not wait")
		})
	}
}

// TestSecretsThatTakeLongHoldNobodyUp has more of them under way than a service
// has instances.
func TestSecretsThatTakeLongHoldNobodyUp(t *testing.T) {
	g := startGiving(t)
	g.startGateway()
	key := newKey(t).Public()
	ctx, giveUp := context.WithCancel(t.Context())
	var slow errgroup.Group
	for i := range 6 {
		run, _ := g.run(fmt.Sprintf("slow%d", i), "command:blocked")
		conn := g.connect(run.NodeID)
		slow.Go(func() error {
			return natsrpc.Ask(ctx, conn, api.SubjectNodeSecrets(run.NodeID), api.SecretsRequest{Run: run.RunID, Key: key, Left: 60_000}, &seal.Sealed{})
		})
	}
	require.Eventually(t, func() bool {
		var claimed int
		err := g.db.QueryRow(ctx, `SELECT count(*) FROM topology_runs WHERE secrets_key IS NOT NULL`).Scan(&claimed)
		return err == nil && claimed == 6
	}, 30*time.Second, 10*time.Millisecond, "all of them are asked for side by side")
	run, _ := g.run("quick", "file:token")
	_, err := g.ask(run.NodeID, run.NodeID, run.RunID, key)
	require.NoError(t, err)
	giveUp()
	require.ErrorIs(t, slow.Wait(), context.Canceled)
}
