package wadmapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
	"tidewait/internal/wadmapi"
)

// The behaviours that wadm's own integration tests of its API hold it to, on
// documents of our own, and what has to be better.

func TestCreateReadUpdateDelete(t *testing.T) {
	a := startAPI(t, options{})
	require.Equal(t, wadm.PutReply{
		Result: "created", TotalVersions: 1, CurrentVersion: "v0.0.1", Message: "stored query v0.0.1", Name: "query",
	}, a.put(t, manifest("query", "v0.0.1")))

	unversioned := `{apiVersion: core.oam.dev/v1beta1, kind: Application, metadata: {name: example, annotations: {description: an example}},
spec: {components: [{name: a, type: actor, properties: {image: "i:1"}, traits: [{type: spreadscaler, properties: {replicas: 1}}]},
{name: p, type: capability, properties: {image: "i:2"}}]}}`
	first := a.put(t, unversioned)
	require.Equal(t, "created", first.Result)
	require.Equal(t, 1, first.TotalVersions)
	require.Len(t, first.CurrentVersion, 26, "a ULID")

	got := read[wadm.GetReply](t, a, "model.get.example", "")
	require.Equal(t, "success", got.Result)
	require.Equal(t, `{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"example",`+
		`"annotations":{"description":"an example","version":"`+first.CurrentVersion+`"}},"spec":{"components":[`+
		`{"name":"a","type":"component","properties":{"image":"i:1"},"traits":[{"type":"spreadscaler","properties":{"instances":1}}]},`+
		`{"name":"p","type":"capability","properties":{"image":"i:2"}}]}}`, string(got.Manifest))

	models := func() map[string]string {
		versions := map[string]string{}
		for _, m := range read[wadm.ListReply](t, a, "model.get", "").Models {
			versions[m.Name] = m.Version
		}
		return versions
	}
	require.Equal(t, map[string]string{"example": first.CurrentVersion, "query": "v0.0.1"}, models())

	for i, version := range []string{"v0.0.2", "v0.0.3"} {
		reply := a.put(t, manifest("example", version))
		require.Equal(t, "newversion", reply.Result)
		require.Equal(t, i+2, reply.TotalVersions)
		require.Equal(t, version, reply.CurrentVersion)
	}
	require.Equal(t, map[string]string{"example": "v0.0.3", "query": "v0.0.1"}, models())
	versions := func() (list []string) {
		for _, v := range read[wadm.VersionsReply](t, a, "model.versions.example", "").Versions {
			require.False(t, v.Deployed)
			list = append(list, v.Version)
		}
		return list
	}
	require.Equal(t, []string{first.CurrentVersion, "v0.0.2", "v0.0.3"}, versions())
	require.Contains(t, a.ask(t, "model.get.example", `{"version":"v0.0.2"}`, nil), `"version":"v0.0.2"`)

	deleted := read[wadm.DeleteReply](t, a, "model.del.example", `{"version":"v0.0.2"}`)
	require.Equal(t, "deleted", deleted.Result)
	require.Equal(t, []string{first.CurrentVersion, "v0.0.3"}, versions())
	require.Equal(t, "deleted", read[wadm.DeleteReply](t, a, "model.del.example", `{"version":null}`).Result)
	require.Equal(t, "notfound", read[wadm.GetReply](t, a, "model.get.example", "").Result)
	require.Equal(t, "deleted", read[wadm.DeleteReply](t, a, "model.del.query", `{"version":"v0.0.1"}`).Result)
	require.Equal(t, "notfound", read[wadm.GetReply](t, a, "model.get.query", "").Result, "the last version is the application")
}

// tell carries the news of the outbox to NATS, as the engine does.
func tell(t testing.TB, a *api, p *wadmapi.Publisher) {
	t.Helper()
	ctx := context.Background()
	for {
		news, err := a.store.ClaimNews(ctx, 100, time.Minute)
		require.NoError(t, err)
		if len(news) == 0 {
			return
		}
		for _, n := range news {
			if n.Kind != ledger.NewsRevised {
				require.NoError(t, p.Publish(ctx, n))
			}
			require.NoError(t, a.store.NewsDelivered(ctx, []int64{n.ID}))
		}
	}
}

// heard is the next message of a subscription, and its type.
func heard(t testing.TB, sub *nats.Subscription) (eventType string, data json.RawMessage) {
	t.Helper()
	msg, err := sub.NextMsg(10 * time.Second)
	require.NoError(t, err)
	var event wadm.Event
	require.NoError(t, json.Unmarshal(msg.Data, &event))
	require.Equal(t, "1.0", event.SpecVersion)
	require.Equal(t, "wadm", event.Source)
	require.Equal(t, "application/json", event.DataContentType)
	return event.Type, event.Data
}

func TestDeploy(t *testing.T) {
	a := startAPI(t, options{})
	p, js := publisher(t, a.natsURL)
	events, err := a.conn.SubscribeSync("wadm.evt.default.>")
	require.NoError(t, err)
	statuses, err := a.conn.SubscribeSync("wadm.status.default.shop")
	require.NoError(t, err)
	a.put(t, manifest("shop", "v1"))
	a.put(t, manifest("shop", "v2"))
	deploy := func(body string) wadm.DeployReply { return read[wadm.DeployReply](t, a, "model.deploy.shop", body) }
	deployed := func() (version string) {
		for _, v := range read[wadm.VersionsReply](t, a, "model.versions.shop", "").Versions {
			if v.Deployed {
				require.Empty(t, version)
				version = v.Version
			}
		}
		return version
	}
	require.Equal(t, "notfound", read[wadm.DeployReply](t, a, "model.deploy.foobar", "").Result)
	require.Equal(t, "notfound", read[wadm.DeployReply](t, a, "model.undeploy.foobar", "").Result)
	require.Zero(t, a.changed.Load(), "nothing was written to the outbox")

	for i, c := range []struct{ body, version string }{{"", "v2"}, {`{"version":"v1"}`, "v1"}, {`{"version":"latest"}`, "v2"}} {
		reply := deploy(c.body)
		require.Equal(t, "acknowledged", reply.Result)
		require.Equal(t, c.version, *reply.Version)
		require.Equal(t, c.version, deployed())
		require.EqualValues(t, i+1, a.changed.Load())
		tell(t, a, p)
		kind, data := heard(t, events)
		require.Equal(t, "com.wadm.manifest_published", kind)
		require.JSONEq(t, manifest("shop", c.version), string(data))
	}
	seen, err := statuses.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Contains(t, string(seen.Data), `{"status":{"type":"waiting","message":"no host of lattice default has been observed yet`)
	asked := read[struct{ Status json.RawMessage }](t, a, "model.status.shop", "")
	require.Equal(t, string(asked.Status), string(lastMessage(t, js, "wadm_status", "wadm.status.default.shop").Data),
		"what is published is what is answered")

	require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.undeploy.shop", "").Result)
	require.EqualValues(t, 4, a.changed.Load())
	require.Empty(t, deployed())
	tell(t, a, p)
	kind, data := heard(t, events)
	require.Equal(t, "com.wadm.manifest_unpublished", kind)
	require.Equal(t, `{"name":"shop"}`, string(data))
	require.Equal(t, "com.wadm.manifest_unpublished", typeOf(t, lastMessage(t, js, "wadm_events", "wadm.evt.default.manifest_unpublished").Data))
	seen, err = statuses.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, `{"status":{"type":"undeployed","message":"the application is not deployed"},"version":"","components":[]}`, string(seen.Data))

	require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.undeploy.shop", "").Result)
	require.EqualValues(t, 4, a.changed.Load(), "nothing was deployed, so there is nothing to tell")
}

func typeOf(t testing.TB, event []byte) string {
	t.Helper()
	var e wadm.Event
	require.NoError(t, json.Unmarshal(event, &e))
	return e.Type
}

func TestDeletingWhatIsDeployedIsTold(t *testing.T) {
	a := startAPI(t, options{})
	p, _ := publisher(t, a.natsURL)
	events, err := a.conn.SubscribeSync("wadm.evt.default.manifest_unpublished")
	require.NoError(t, err)
	for _, version := range []string{"v1", "v2", "v3"} {
		a.put(t, manifest("shop", version))
	}
	for _, body := range []string{`{"version":"v1"}`, ``} {
		require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.deploy.shop", `{"version":"v1"}`).Result, body)
		require.True(t, read[wadm.DeleteReply](t, a, "model.del.shop", body).Undeploy, body)
		tell(t, a, p)
		kind, _ := heard(t, events)
		require.Equal(t, "com.wadm.manifest_unpublished", kind)
		a.put(t, manifest("shop", "v1"))
	}
}

// wadm tears a running application down when a version is deleted that does not
// exist.
func TestDeletingWhatIsNotThereTouchesNothing(t *testing.T) {
	a := startAPI(t, options{})
	p, _ := publisher(t, a.natsURL)
	a.put(t, manifest("shop", "v1"))
	require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.deploy.shop", "").Result)
	tell(t, a, p)
	events, err := a.conn.SubscribeSync("wadm.evt.>")
	require.NoError(t, err)
	before, changed := a.ask(t, "model.list", "", nil), a.changed.Load()

	require.Equal(t, "noop", read[wadm.DeleteReply](t, a, "model.del.shop", `{"version":"v9"}`).Result)
	require.Equal(t, "noop", read[wadm.DeleteReply](t, a, "model.del.other", ``).Result)
	require.Equal(t, before, a.ask(t, "model.list", "", nil))
	require.Equal(t, changed, a.changed.Load())
	news, err := a.store.ClaimNews(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Empty(t, news)
	require.NoError(t, a.conn.Flush())
	pending, _, err := events.Pending()
	require.NoError(t, err)
	require.Zero(t, pending)
}

// TestARequestThatNobodyWaitsForIsLeftAlone sends what JetStream would send for
// somebody who may only read, see natsrpc.Answerable.
func TestARequestThatNobodyWaitsForIsLeftAlone(t *testing.T) {
	a := startAPI(t, options{})
	require.NoError(t, a.conn.Publish("wadm.api.default.model.put", []byte(manifest("shop", "v1"))))
	require.NoError(t, a.conn.PublishRequest("wadm.api.default.model.put", "wadm.api.default.model.undeploy.shop", []byte(manifest("shop", "v3"))))
	a.put(t, manifest("shop", "v4"))
	require.JSONEq(t, `{"result":"success","message":"1 version of shop","versions":[{"version":"v4","deployed":false}]}`,
		a.ask(t, "model.versions.shop", "", nil))
}

func TestWhoAsksIsStored(t *testing.T) {
	a := startAPI(t, options{})
	a.put(t, manifest("shop", "v1"))
	a.ask(t, "model.deploy.shop", "", nats.Header{"Tidewait-Actor": {"ann@example.com"}})
	app, err := a.store.Application(t.Context(), ledger.AppKey{Account: "default", Lattice: "default", Name: "shop"})
	require.NoError(t, err)
	require.Equal(t, "ann@example.com", app.Actor)
	a.ask(t, "model.deploy.shop", "", nil)
	app, err = a.store.Application(t.Context(), ledger.AppKey{Account: "default", Lattice: "default", Name: "shop"})
	require.NoError(t, err)
	require.Empty(t, app.Actor)
}

// The client of package wadm, which the command line uses.
func TestTheClient(t *testing.T) {
	a := startAPI(t, options{})
	ctx := t.Context()
	c := wadm.Client{Conn: a.conn, Actor: "bob"}
	for i := range 3 {
		put, err := c.Put(ctx, []byte(manifest(fmt.Sprintf("app-%d", i), "v1")))
		require.NoError(t, err)
		require.Equal(t, "v1", put.CurrentVersion)
	}
	_, err := c.Put(ctx, []byte(manifest("app-0", "v1")))
	var refused *wadm.ReplyError
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Message, "already exists")
	list, err := c.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 3)
	_, err = c.Versions(ctx, "nosuch")
	require.ErrorIs(t, err, wadm.ErrNotFound)
	status, err := c.Status(ctx, "nosuch")
	require.NoError(t, err)
	require.Equal(t, wadm.Undeployed, status.Status.Status.Type)
	deployed, err := c.Deploy(ctx, "app-1", nil)
	require.NoError(t, err)
	require.Equal(t, "v1", *deployed.Version)
	manifest, err := c.Get(ctx, "app-1", nil)
	require.NoError(t, err)
	require.Contains(t, string(manifest), `"name":"app-1"`)
	_, err = c.Undeploy(ctx, "app-1")
	require.NoError(t, err)
	gone, err := c.Delete(ctx, "app-1", nil)
	require.NoError(t, err)
	require.Equal(t, "deleted", gone.Result)
}

// What is first wrong is what is answered, in wadm's order.
func TestTheOrderOfChecks(t *testing.T) {
	a := startAPI(t, options{})
	a.put(t, manifest("shop", "v1"))
	twice := `"spec":{"components":[{"name":"a","type":"component","properties":{"image":"i:1"}},{"name":"a","type":"component","properties":{"image":"i:1"}}]}}`
	for _, c := range []struct{ name, version, want string }{
		{"a.b", "latest", "the version latest is not allowed"},
		{"a.b", "v1", `the name \"a.b\" is not allowed`},
		{" a.b ", "v1", `the name \"a.b\" is not allowed`},
		{"shop", "v1", "Duplicate component name in manifest: a"},
	} {
		text := fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":%q,"annotations":{"version":%q}},%s`, c.name, c.version, twice)
		require.Contains(t, a.ask(t, "model.put", text, nil), c.want)
		require.Contains(t, a.ask(t, "model.put", text, nats.Header{"Content-Type": {"text/xml"}}), `the content type \"text/xml\"`)
	}
}
