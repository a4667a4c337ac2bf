package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/natsrpc"
	"tidewait/internal/natstest"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
	"tidewait/migrations"
)

// importing is an engine that serves imports, and its store.
type importing struct {
	t     *testing.T
	conn  *nats.Conn
	store *store.Store
	news  *atomic.Int64 // how often there was some
}

func startImporting(t *testing.T) *importing {
	t.Helper()
	stack := devstacktest.Start(t, devstack.Postgres)
	_, err := migrations.Apply(t.Context(), stack.PostgresURL)
	require.NoError(t, err)
	s, err := store.Open(t.Context(), stack.PostgresURL, 4, store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	conn := natstest.Connect(t, natstest.Start(t, &server.Options{}).ClientURL())

	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	news := &atomic.Int64{}
	go func() {
		s := engine.Server{Store: s, Changed: func() { news.Add(1) }, Version: "0.0.0", Log: slog.New(slog.DiscardHandler)}
		done <- s.Serve(ctx, conn, func() { close(ready) })
	}()
	<-ready
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return &importing{t, conn, s, news}
}

func (i *importing) ask(r api.ImportRequest) (api.ImportReply, error) {
	var reply api.ImportReply
	ctx, cancel := context.WithTimeout(i.t.Context(), 30*time.Second)
	defer cancel()
	err := natsrpc.Ask(ctx, i.conn, api.SubjectAppImport, r, &reply)
	return reply, err
}

func (i *importing) must(r api.ImportRequest) api.ImportReply {
	i.t.Helper()
	reply, err := i.ask(r)
	require.NoError(i.t, err)
	return reply
}

func (i *importing) history(name string) []wadm.VersionInfo {
	i.t.Helper()
	versions, err := i.store.ApplicationVersions(context.Background(), ledger.AppKey{Account: "default", Lattice: "east", Name: name})
	if err != nil {
		require.ErrorIs(i.t, err, store.ErrNotFound)
	}
	return versions
}

// doc is a document of an application with one component.
func doc(name, version, component string) api.ImportVersion {
	return api.ImportVersion{Version: version, Manifest: json.RawMessage(fmt.Sprintf(
		`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":%q,"annotations":{"version":%q}},"spec":{"components":[%s]}}`,
		name, version, component))}
}

const (
	plain  = `{"name":"a","type":"component","properties":{"image":"registry.example.com/a:1"},"traits":[{"type":"spreadscaler","properties":{"instances":1}}]}`
	other  = `{"name":"b","type":"component","properties":{"image":"registry.example.com/b:1"},"traits":[{"type":"spreadscaler","properties":{"instances":1}}]}`
	broken = `{"name":"a","type":"component","properties":{"image":"registry.example.com/a:1"},"traits":[{"type":"spreadscaler","properties":{"instances":1,"spread":[{"name":"x","requirements":{},"weight":0}]}}]}`
	named  = `{"name":"a","type":"component","properties":{"image":"registry.example.com/a:1","id":"taken"},"traits":[{"type":"spreadscaler","properties":{"instances":1}}]}`
	refers = `{"name":"a","type":"component","properties":{"application":{"name":"platform","component":"a"}}}`
)

func request(name string, deployed *string, versions ...api.ImportVersion) api.ImportRequest {
	return api.ImportRequest{Lattice: "east", Name: name, Versions: versions, Deployed: deployed, Apply: true, Actor: "ann@desk"}
}

func ptr[T any](v T) *T { return &v }

func TestImport(t *testing.T) {
	i := startImporting(t)

	t.Run("in order, first dry, and repeatedly", func(t *testing.T) {
		r := request("shop", ptr("v10"), doc("shop", "v10", plain), doc("shop", "v2", other))
		r.Apply = false
		added := api.ImportReply{Versions: []api.ImportedVersion{{Version: "v10", What: "added"}, {Version: "v2", What: "added"}}, Deployed: ptr("v10")}
		require.Equal(t, added, i.must(r))
		require.Empty(t, i.history("shop"))
		require.Zero(t, i.news.Load())
		r.Apply = true
		require.Equal(t, added, i.must(r))
		require.Equal(t, int64(1), i.news.Load())
		require.Equal(t, []wadm.VersionInfo{{Version: "v10", Deployed: true}, {Version: "v2"}}, i.history("shop"))
		app, err := i.store.Application(t.Context(), ledger.AppKey{Account: "default", Lattice: "east", Name: "shop"})
		require.NoError(t, err)
		require.Equal(t, []string{"ann@desk", "never_observed"}, []string{app.Actor, app.Wait.Code})

		kept := api.ImportReply{Versions: []api.ImportedVersion{{Version: "v10", What: "kept"}, {Version: "v2", What: "kept"}}, Deployed: ptr("v10")}
		require.Equal(t, kept, i.must(r))
		again, err := i.store.Application(t.Context(), ledger.AppKey{Account: "default", Lattice: "east", Name: "shop"})
		require.NoError(t, err)
		require.Equal(t, app.Revision, again.Revision, "nothing is deployed again")
	})

	t.Run("what is deployed here stays", func(t *testing.T) {
		reply := i.must(request("shop", ptr("v2"), doc("shop", "v10", plain), doc("shop", "v2", other)))
		require.Nil(t, reply.Deployed)
		require.Equal(t, `version "v10" is deployed here, and stays`, reply.Why)
		require.Equal(t, []wadm.VersionInfo{{Version: "v10", Deployed: true}, {Version: "v2"}}, i.history("shop"))
	})

	t.Run("a conflict keeps everything as it is", func(t *testing.T) {
		reply := i.must(request("shop", ptr("v10"), doc("shop", "v10", plain), doc("shop", "v2", plain), doc("shop", "v3", plain)))
		require.Equal(t, api.ImportReply{
			Versions: []api.ImportedVersion{
				{Version: "v10", What: "kept"},
				{Version: "v2", What: "conflict", Why: "a different manifest is stored under this version"},
				{Version: "v3", What: "skipped", Why: "another version of the application is in conflict"},
			},
			Why: "a version of the application is in conflict",
		}, reply)
		require.Len(t, i.history("shop"), 2)
	})

	t.Run("what could not run is refused, the rest is brought", func(t *testing.T) {
		reply := i.must(request("half", ptr("v2"), doc("half", "v1", plain), doc("half", "v2", broken), doc("other", "v3", plain), doc("half", "latest", plain),
			api.ImportVersion{Version: "v4", Manifest: json.RawMessage(`{"kind":7}`)}))
		whats := []string{}
		for _, v := range reply.Versions {
			whats = append(whats, v.Version+" "+v.What)
		}
		require.Equal(t, []string{"v1 added", "v2 refused", "v3 refused", "latest refused", "v4 refused"}, whats)
		require.Contains(t, reply.Versions[1].Why, "spec.components[0].traits[0]")
		require.Equal(t, `it is a document of application "other"`, reply.Versions[2].Why)
		require.Nil(t, reply.Deployed)
		require.Equal(t, `version "v2" is refused`, reply.Why)
		require.Equal(t, []wadm.VersionInfo{{Version: "v1"}}, i.history("half"))
	})

	t.Run("what cannot be deployed is stored", func(t *testing.T) {
		i.must(request("first", ptr("v1"), doc("first", "v1", named)))
		reply := i.must(request("second", ptr("v1"), doc("second", "v1", named)))
		require.Equal(t, api.ImportReply{
			Versions: []api.ImportedVersion{{Version: "v1", What: "added"}},
			Why:      `the id "taken" belongs to application first, which is deployed in the same lattice; give the component or provider another id`,
		}, reply)
		require.Equal(t, []wadm.VersionInfo{{Version: "v1"}}, i.history("second"))
		reply = i.must(request("third", ptr("v9"), doc("third", "v1", plain)))
		require.Equal(t, `it has no version "v9"`, reply.Why)
	})

	t.Run("shared applications come first", func(t *testing.T) {
		consumer := request("consumer", ptr("v1"), doc("consumer", "v1", refers))
		reply := i.must(consumer)
		require.Equal(t, []string{"platform"}, reply.Needs)
		require.Nil(t, reply.Deployed)
		platform := doc("platform", "v1", plain)
		platform.Manifest = json.RawMessage(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"platform",` +
			`"annotations":{"experimental.wasmcloud.dev/shared":"true","version":"v1"}},"spec":{"components":[` + plain + `]}}`)
		i.must(request("platform", ptr("v1"), platform))
		require.Equal(t, api.ImportReply{Versions: []api.ImportedVersion{{Version: "v1", What: "kept"}}, Deployed: ptr("v1")}, i.must(consumer))
	})

	t.Run("the order is kept over several requests", func(t *testing.T) {
		i.must(request("parts", nil, doc("parts", "v2", plain)))
		r := request("parts", nil, doc("parts", "v1", plain))
		r.Later = []string{"v2"}
		require.Equal(t, api.ImportReply{Versions: []api.ImportedVersion{
			{Version: "v1", What: "conflict", Why: `version "v2", which came after it, is stored already`},
		}}, i.must(r))
		require.Equal(t, []wadm.VersionInfo{{Version: "v2"}}, i.history("parts"))
		r.Later = []string{"v3"}
		r.Versions = []api.ImportVersion{doc("parts", "v2", plain)}
		require.Equal(t, api.ImportReply{Versions: []api.ImportedVersion{{Version: "v2", What: "kept"}}}, i.must(r))
	})

	t.Run("names that are none", func(t *testing.T) {
		var refused *api.Error
		_, err := i.ask(request("a.b", nil, doc("a.b", "v1", plain)))
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "invalid", refused.Code)
		r := request("shop", nil)
		r.Lattice = ""
		_, err = i.ask(r)
		require.EqualError(t, err, `the request is not valid: "default" and "" are not the names of an account and a lattice`)
		r.Lattice, r.Account = "east", "a.b"
		_, err = i.ask(r)
		require.EqualError(t, err, `the request is not valid: "a.b" and "east" are not the names of an account and a lattice`)
		r = request("shop", nil, doc("shop", "v7", plain))
		r.Actor = "\xff"
		_, err = i.ask(r)
		require.NoError(t, err, "JSON makes it a replacement character")
		r.Actor = "nul\x00"
		_, err = i.ask(r)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "invalid", refused.Code, refused.Message)
	})
}
