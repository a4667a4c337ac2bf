package engine_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/migrations"
)

// placing is a database with one node that has room for one phase.
type placing struct {
	t     *testing.T
	store *store.Store
	db    *pgx.Conn
}

func startPlacing(t *testing.T) *placing {
	t.Helper()
	url := devstacktest.Start(t, devstack.Postgres).PostgresURL
	_, err := migrations.Apply(t.Context(), url)
	require.NoError(t, err)
	p := &placing{t: t}
	p.store, err = store.Open(t.Context(), url, 10, store.Rules{
		SuspectAfter: time.Hour, LostAfter: 2 * time.Hour, Ageing: time.Hour, HeadWindow: 64,
	})
	require.NoError(t, err)
	t.Cleanup(p.store.Close)
	p.db, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close(context.Background()) })
	_, err = p.store.GatewayHeartbeat(t.Context(), api.GatewayHeartbeat{Gateway: "gw"})
	require.NoError(t, err)
	_, err = p.store.Heartbeat(t.Context(), p.heartbeat())
	require.NoError(t, err)
	return p
}

// heartbeat is what the node's agent says.
func (p *placing) heartbeat() api.Heartbeat {
	return api.Heartbeat{
		Node: "a", BootID: "boot-1", Arch: "amd64", Total: capacity.Resources{CPUMilli: 1000, MemoryMiB: 1000, DiskMiB: 1000, Slots: 4},
		Backends: map[string]api.Backend{"process": {OK: true, Accel: "none"}},
	}
}

// phase launches a mission of one phase that fills the node.
func (p *placing) phase(name string) int64 {
	l, refused, err := p.store.Launch(p.t.Context(), store.Draft{
		Name: name, WorkflowRun: name, Document: json.RawMessage(`{"name":"` + name + `","spec":{"backend":"process","phases":[]}}`),
		Phases: []store.DraftPhase{{
			Name: "p", Turn: time.Hour, MaxWait: time.Hour,
			Demand: capacity.Demand{Backend: "process", Resources: capacity.Resources{CPUMilli: 1000, MemoryMiB: 100, Slots: 1}},
		}},
	})
	require.NoError(p.t, err)
	require.Empty(p.t, refused)
	return l.Phases[0].ID
}

// start runs a placer until the test ends. told has a token for each pass that
// placed a phase which did not ask.
func (p *placing) start(retry time.Duration) (placer *engine.Placer, told chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	told = make(chan struct{}, 16)
	placer = engine.NewPlacer(ctx, p.store, retry, func() { told <- struct{}{} }, slog.New(slog.DiscardHandler))
	p.t.Cleanup(func() { cancel(); placer.Wait() })
	return placer, told
}

func (p *placing) look(placer *engine.Placer, id int64) ledger.Outcome {
	o, err := placer.Look(p.t.Context(), "process", store.Look{PhaseID: id, Attempt: 1, Wake: ledger.WakeFirst})
	require.NoError(p.t, err)
	return o
}

// A pool in which somebody waits is looked at even when no event and no retry
// asks for it, as long as anybody waits there.
func TestThePlacerLooksAtWaitingPhasesByItself(t *testing.T) {
	p := startPlacing(t)
	placer, told := p.start(100 * time.Millisecond)
	holder, waiter := p.phase("holder"), p.phase("waiter")
	require.NotNil(t, p.look(placer, holder).Placed)
	first := p.look(placer, waiter).Waiting
	require.NotNil(t, first)

	// The record of the wait is kept young although nobody asks.
	_, err := p.db.Exec(t.Context(), "UPDATE capacity_waits SET checked_at = checked_at - interval '1 hour'")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var young bool
		err := p.db.QueryRow(t.Context(), "SELECT checked_at > clock_timestamp() - interval '1 minute' FROM capacity_waits").Scan(&young)
		return err == nil && young
	}, patience, 20*time.Millisecond)

	_, err = p.store.FinishPhase(t.Context(), holder, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
	require.NoError(t, err)
	select {
	case <-told:
	case <-time.After(patience):
		require.Fail(t, "nobody placed the phase that waited")
	}
	require.NotNil(t, p.look(placer, waiter).Placed)
}
