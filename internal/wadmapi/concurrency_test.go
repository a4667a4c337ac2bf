package wadmapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/wadm"
	"tidewait/internal/wadmapi"
)

// hold keeps an application's row from everybody else until it is let go.
func hold(t *testing.T, a *api, name string) (letGo func()) {
	t.Helper()
	tx, err := a.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM applications WHERE name = $1 FOR UPDATE`, name)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// stuck waits until so many statements wait for a lock.
func stuck(t *testing.T, a *api, n int) {
	t.Helper()
	watch, err := pgx.Connect(t.Context(), a.dbURL)
	require.NoError(t, err)
	defer watch.Close(context.Background())
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, watch.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting >= n
	}, 10*time.Second, 5*time.Millisecond)
}

func TestASlowRequestHoldsUpNobody(t *testing.T) {
	a := startAPI(t, options{})
	a.put(t, manifest("slow", "v1"))
	a.put(t, manifest("shop", "v1"))
	letGo := hold(t, a, "slow")
	slow := asking(t, a, "model.deploy.slow", "")
	stuck(t, a, 1)
	began := time.Now()
	for i := range 100 {
		require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.deploy.shop", "").Result)
		require.Equal(t, "newversion", a.put(t, manifest("shop", fmt.Sprintf("v%d", i+2))).Result)
		require.Contains(t, a.ask(t, "model.list", "", nil), `"slow"`)
		require.Contains(t, a.ask(t, "model.get.slow", "", nil), `"success"`)
	}
	require.Less(t, time.Since(began), 5*time.Second)
	select {
	case reply := <-slow:
		require.Fail(t, "the row is held", reply)
	default:
	}
	letGo()
	require.Contains(t, <-slow, "acknowledged")
}

// A request that cannot be finished in its time is told so, and so is what waits
// behind it; nothing of it is done.
func TestTimeIsUp(t *testing.T) {
	t.Parallel()
	settings := defaults
	settings.Concurrency = 1
	a := startAPI(t, options{settings: settings})
	a.put(t, manifest("slow", "v1"))
	letGo := hold(t, a, "slow")
	began := time.Now()
	first := asking(t, a, "model.deploy.slow", "")
	stuck(t, a, 1)
	behind := asking(t, a, "model.undeploy.slow", "")
	require.Equal(t, `{"result":"error","message":"the storage did not answer in time (unavailable); it may have been done or not: look before you ask again",`+
		`"name":"slow","version":null}`, <-first)
	require.Contains(t, <-behind, "(unavailable)")
	require.InDelta(t, 8, time.Since(began).Seconds(), 1.5)
	letGo()
	require.Equal(t, []wadm.VersionInfo{{Version: "v1"}}, []wadm.VersionInfo(read[wadm.VersionsReply](t, a, "model.versions.slow", "").Versions))
	require.Zero(t, a.changed.Load())
}

// Stopping a server loses no request: what it took it answers, what comes later
// another one of the group does.
func TestStoppingLosesNothing(t *testing.T) {
	settings := defaults
	settings.Concurrency = 4
	a := startAPI(t, options{settings: settings})
	a.put(t, manifest("slow", "v1"))
	letGo := hold(t, a, "slow")
	replies := make([]<-chan string, 50)
	for i := range replies {
		replies[i] = asking(t, a, "model.deploy.slow", "")
	}
	stuck(t, a, 4)
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	require.Eventually(t, func() bool {
		_, err := a.conn.Request("wadm.api.default.model.history.shop", nil, 100*time.Millisecond)
		return errors.Is(err, nats.ErrNoResponders)
	}, 10*time.Second, 10*time.Millisecond, "a server that stops takes nothing new")
	serveOn(t, a, a.natsURL)
	require.Contains(t, a.ask(t, "model.list", "", nil), `"slow"`)
	select {
	case err := <-stopped:
		require.Fail(t, "it has still to answer", err)
	default:
	}
	letGo()
	for _, reply := range replies {
		require.Contains(t, <-reply, "acknowledged")
	}
	require.NoError(t, <-stopped)
}

func TestALostConnectionEndsServe(t *testing.T) {
	a := startAPI(t, options{})
	conn := natstest.Connect(t, a.natsURL)
	done, ready := make(chan error, 1), make(chan struct{})
	server := &wadmapi.Server{Store: a.store, NATS: conn, Settings: defaults, Log: quiet()}
	go func() { done <- server.Serve(t.Context(), func() { close(ready) }) }()
	<-ready
	conn.Close()
	require.EqualError(t, <-done, "the connection to NATS was closed: requests of the wadm API do not arrive any more")
}

func TestServeRefusesAnEmptyPrefix(t *testing.T) {
	settings := defaults
	settings.APIPrefix = " .. "
	server := &wadmapi.Server{Settings: settings, Log: quiet()}
	require.ErrorContains(t, server.Serve(t.Context(), nil), `wadm.api_prefix " .. " names no subject`)
}

// locked is a log that several goroutines write.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A server without a store crashes in every request that needs one.
func TestACrashIsAnErrorReply(t *testing.T) {
	url := natsServer(t, natsDefaultPayload).ClientURL()
	log := &locked{}
	serve(t, &wadmapi.Server{NATS: natstest.Connect(t, url), Settings: defaults, Log: slog.New(slog.NewTextHandler(log, nil))})
	a := &api{conn: natstest.Connect(t, url)}
	for range 3 {
		require.Equal(t, `{"result":"error","message":"the request crashed inside the server (internal); its log says where"}`,
			a.ask(t, "model.get.shop", "", nil))
	}
	require.Contains(t, a.ask(t, "model.history.shop", "", nil), "not supported", "the server goes on")
	require.Contains(t, log.String(), "wadmapi.(*Server).get")
	require.Contains(t, log.String(), "nil pointer")
}

func TestOneOfManyPutsWins(t *testing.T) {
	a := startAPI(t, options{})
	for round := range 10 {
		const putters = 16
		replies := make([]<-chan string, putters)
		for i := range replies {
			replies[i] = asking(t, a, "model.put", manifest(fmt.Sprintf("shop-%d", round), "v1"))
		}
		won := 0
		for _, r := range replies {
			reply := <-r
			if strings.Contains(reply, `"created"`) {
				won++
				continue
			}
			require.Equal(t, fmt.Sprintf(`{"result":"error","message":"version v1 of shop-%d already exists (conflict); put it with another version"}`, round), reply)
		}
		require.Equal(t, 1, won)
	}
}

// Versions that the server makes up are in the order they were put, and none is
// there twice.
func TestVersionsThatAreMadeUp(t *testing.T) {
	a := startAPI(t, options{})
	replies := make([]<-chan string, 200)
	for i := range replies {
		replies[i] = asking(t, a, "model.put", strings.Replace(manifest("shop", ""), `"version":"",`, "", 1))
	}
	for _, r := range replies {
		require.NotContains(t, <-r, `"error"`)
	}
	var last string
	for range 20 {
		put := a.put(t, strings.Replace(manifest("shop", ""), `"version":"",`, "", 1))
		require.Greater(t, put.CurrentVersion, last)
		last = put.CurrentVersion
	}
	require.Len(t, read[wadm.VersionsReply](t, a, "model.versions.shop", "").Versions, 220)
}
