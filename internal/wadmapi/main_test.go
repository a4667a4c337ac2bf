package wadmapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/natstest"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
	"tidewait/internal/wadmapi"
)

// baseURL is the Postgres that all tests of this package share; each test has a
// database and a NATS server of its own.
var baseURL string

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	maybeServe()
	os.Exit(devstacktest.Main(m, func(s *devstack.Stack) { baseURL = s.PostgresURL }, devstack.Postgres))
}

var rules = store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour}

// database gives a test a migrated database of its own.
func database(t testing.TB) (url string, conn *pgx.Conn) {
	t.Helper()
	ctx := context.Background()
	url = devstacktest.Database(t, baseURL)
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(ctx) })
	return url, conn
}

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), url, 20, rules)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

const natsDefaultPayload = 1 << 20

// natsServer is a NATS server with JetStream for one test.
func natsServer(t testing.TB, maxPayload int32) *server.Server {
	t.Helper()
	return natstest.Start(t, &server.Options{
		JetStream: true, StoreDir: t.TempDir(), MaxPayload: maxPayload, MaxPending: 64 << 20,
	})
}

// quiet is a log nobody reads.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

var defaults = config.Wadm{APIPrefix: wadm.DefaultPrefix, Lattice: wadm.DefaultLattice, Concurrency: 64}

// api is a server of the API with everything around it.
type api struct {
	store   *store.Store
	db      *pgx.Conn // beside the store's connections
	dbURL   string
	natsURL string
	conn    *nats.Conn // the clients'
	changed atomic.Int64
	stop    func() error // stops the server and returns what Serve did
}

type options struct {
	settings   config.Wadm // zero: defaults
	maxPayload int32       // 0: NATS' default
	log        *slog.Logger
	storeURL   func(dbURL string) string // where the server finds the database; nil: there
}

func startAPI(t testing.TB, o options) *api {
	t.Helper()
	if o.settings.APIPrefix == "" {
		o.settings = defaults
	}
	if o.maxPayload == 0 {
		o.maxPayload = natsDefaultPayload
	}
	if o.log == nil {
		o.log = quiet()
	}
	a := &api{}
	a.dbURL, a.db = database(t)
	storeURL := a.dbURL
	if o.storeURL != nil {
		storeURL = o.storeURL(a.dbURL)
	}
	a.store = openStore(t, storeURL)
	a.natsURL = natsServer(t, o.maxPayload).ClientURL()
	a.conn = natstest.Connect(t, a.natsURL)
	a.stop = serve(t, &wadmapi.Server{
		Store: a.store, NATS: natstest.Connect(t, a.natsURL), Settings: o.settings, Changed: func() { a.changed.Add(1) }, Log: o.log,
	})
	return a
}

// serveOn is another server of the same database, on another NATS.
func serveOn(t testing.TB, a *api, natsURL string) {
	t.Helper()
	serve(t, &wadmapi.Server{Store: openStore(t, a.dbURL), NATS: natstest.Connect(t, natsURL), Settings: defaults, Log: quiet()})
}

// serve runs a server until the test ends or the returned function is called.
func serve(t testing.TB, s *wadmapi.Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Serve(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		require.NoError(t, err)
	}
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// ask makes one request of the default lattice, such as model.get.shop.
func (a *api) ask(t testing.TB, subject, body string, header nats.Header) string {
	t.Helper()
	return a.askSubject(t, "wadm.api.default."+subject, body, header)
}

func (a *api) askSubject(t testing.TB, subject, body string, header nats.Header) string {
	t.Helper()
	reply, err := a.conn.RequestMsg(&nats.Msg{Subject: subject, Data: []byte(body), Header: header}, 20*time.Second)
	require.NoError(t, err, subject)
	return string(reply.Data)
}

// read asks and decodes the reply.
func read[Reply any](t testing.TB, a *api, subject, body string) Reply {
	t.Helper()
	var reply Reply
	text := a.ask(t, subject, body, nil)
	require.NoError(t, json.Unmarshal([]byte(text), &reply), text)
	return reply
}

// put stores a document and wants it to be stored.
func (a *api) put(t testing.TB, document string) wadm.PutReply {
	t.Helper()
	reply := read[wadm.PutReply](t, a, "model.put", document)
	require.Contains(t, []string{wadm.ResultCreated, wadm.ResultNewVersion}, reply.Result, reply.Message)
	return reply
}

// manifest is a small application.
func manifest(name, version string) string {
	return fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application",`+
		`"metadata":{"name":%q,"annotations":{"version":%q,"description":"the %s"}},`+
		`"spec":{"components":[{"name":"api","type":"component","properties":{"image":"registry.example.com/api:1"},`+
		`"traits":[{"type":"spreadscaler","properties":{"instances":2}}]}]}}`, name, version, name)
}
