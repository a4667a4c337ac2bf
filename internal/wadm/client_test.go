package wadm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/wadm"
)

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, natstest.Start(t, &server.Options{}).ClientURL())
}

// sent is a request as it was on the wire.
type sent struct {
	subject string
	header  nats.Header
	body    string
}

// peer answers the next requests with the given bytes, one after the other. What
// it returns gives the requests.
func peer(t *testing.T, conn *nats.Conn, replies ...string) func() []sent {
	t.Helper()
	var mu sync.Mutex
	var got []sent
	sub, err := conn.Subscribe(">", func(msg *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if msg.Reply == "" || len(got) == len(replies) {
			return
		}
		got = append(got, sent{msg.Subject, msg.Header, string(msg.Data)})
		_ = msg.Respond([]byte(replies[len(got)-1]))
	})
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return func() []sent {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// The requests are those of wadm-client 0.10, byte for byte.
func TestRequestsAreThoseOfOtherClients(t *testing.T) {
	conn := connect(t)
	v1 := "v1"
	c := wadm.Client{Conn: conn}
	for _, test := range []struct {
		name  string
		do    func(context.Context) error
		reply string
		want  sent
	}{
		{
			"put", func(ctx context.Context) error { _, err := c.Put(ctx, []byte(`{"kind":"Application"}`)); return err },
			`{"result":"created","total_versions":1,"current_version":"v1","message":"","name":"a"}`,
			sent{"wadm.api.default.model.put", nats.Header{"Content-Type": {"application/json"}}, `{"kind":"Application"}`},
		},
		{
			"get", func(ctx context.Context) error { _, err := c.Get(ctx, "a", nil); return err },
			`{"result":"success","message":"","manifest":{}}`,
			sent{"wadm.api.default.model.get.a", nil, ""},
		},
		{
			"get of a version", func(ctx context.Context) error { _, err := c.Get(ctx, "a", &v1); return err },
			`{"result":"success","message":"","manifest":{}}`,
			sent{"wadm.api.default.model.get.a", nil, `{"version":"v1"}`},
		},
		{
			"list", func(ctx context.Context) error { _, err := c.List(ctx); return err },
			`{"result":"success","message":"","models":[]}`,
			sent{"wadm.api.default.model.get", nil, ""},
		},
		{
			"versions", func(ctx context.Context) error { _, err := c.Versions(ctx, "a"); return err },
			`{"result":"success","message":"","versions":[]}`,
			sent{"wadm.api.default.model.versions.a", nil, ""},
		},
		{
			"del", func(ctx context.Context) error { _, err := c.Delete(ctx, "a", nil); return err },
			`{"result":"noop","message":"","undeploy":false}`,
			sent{"wadm.api.default.model.del.a", nil, ""},
		},
		{
			"del of a version", func(ctx context.Context) error { _, err := c.Delete(ctx, "a", &v1); return err },
			`{"result":"deleted","message":"","undeploy":true}`,
			sent{"wadm.api.default.model.del.a", nil, `{"version":"v1"}`},
		},
		{
			"deploy", func(ctx context.Context) error { _, err := c.Deploy(ctx, "a", nil); return err },
			`{"result":"acknowledged","message":"","name":"a","version":"v1"}`,
			sent{"wadm.api.default.model.deploy.a", nil, ""},
		},
		{
			"deploy of a version", func(ctx context.Context) error { _, err := c.Deploy(ctx, "a", &v1); return err },
			`{"result":"acknowledged","message":"","name":"a","version":"v1"}`,
			sent{"wadm.api.default.model.deploy.a", nil, `{"version":"v1"}`},
		},
		{
			"undeploy", func(ctx context.Context) error { _, err := c.Undeploy(ctx, "a"); return err },
			`{"result":"acknowledged","message":"","name":"a","version":null}`,
			sent{"wadm.api.default.model.undeploy.a", nil, ""},
		},
		{
			"status", func(ctx context.Context) error { _, err := c.Status(ctx, "a"); return err },
			`{"result":"ok","message":"","status":{"status":{"type":"undeployed"},"version":"","components":[]}}`,
			sent{"wadm.api.default.model.status.a", nil, ""},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := peer(t, conn, test.reply)
			require.NoError(t, test.do(ctx(t)))
			require.Equal(t, []sent{test.want}, got())
		})
	}
}

func TestWhereAndWhoAsks(t *testing.T) {
	conn := connect(t)
	got := peer(t, conn, `{"result":"acknowledged","message":"","name":"a","version":null}`)
	_, err := wadm.Client{Conn: conn, Prefix: "my.api", Lattice: "coast", Actor: "ann@desk\r\nX: y"}.Undeploy(ctx(t), "a")
	require.NoError(t, err)
	require.Equal(t, []sent{{"my.api.coast.model.undeploy.a", nats.Header{"Tidewait-Actor": {"ann@desk  X: y"}}, ""}}, got())
}

func TestListFollowsThePages(t *testing.T) {
	conn := connect(t)
	page := func(name, next string) string {
		return fmt.Sprintf(`{"result":"success","message":"","models":[{"name":%q,"version":"v1","description":null,
			"deployed_version":null,"detailed_status":{"status":{"type":"compensating"},"version":"","components":[]},
			"status":"undeployed","status_message":null}],"total":2,"next":%q}`, name, next)
	}
	got := peer(t, conn, page("a", "a"), page("b", ""))
	list, err := wadm.Client{Conn: conn}.List(ctx(t))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, []string{list[0].Name, list[1].Name})
	require.Equal(t, wadm.Reconciling, list[0].DetailedStatus.Status.Type)
	require.Equal(t, []sent{{"wadm.api.default.model.get", nil, ""}, {"wadm.api.default.model.get", nil, `{"after":"a"}`}}, got())

	peer(t, conn, page("a", "a"), page("a", "a"))
	_, err = wadm.Client{Conn: conn}.List(ctx(t))
	require.EqualError(t, err, `the list of applications does not end: behind "a" comes "a" again`)
}

func TestRepliesAreRead(t *testing.T) {
	conn := connect(t)
	c := wadm.Client{Conn: conn}

	peer(t, conn, `{"result":"newversion","total_versions":2,"current_version":"v2","message":"m","name":"a","warnings":[{"rule":"r","path":"p","line":3,"message":"w"}]}`)
	put, err := c.Put(ctx(t), []byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, wadm.PutReply{
		Result: "newversion", TotalVersions: 2, CurrentVersion: "v2", Message: "m", Name: "a",
		Warnings: []wadm.Warning{{Rule: "r", Path: "p", Line: 3, Message: "w"}},
	}, put)

	peer(t, conn, `{"result":"success","message":"m","manifest":{"b":1,"a":2}}`)
	manifest, err := c.Get(ctx(t), "a", nil)
	require.NoError(t, err)
	require.Equal(t, json.RawMessage(`{"b":1,"a":2}`), manifest)

	peer(t, conn, `{"result":"success","message":"m","versions":[{"version":"v1","deployed":true},{"version":"","deployed":false}]}`)
	versions, err := c.Versions(ctx(t), "a")
	require.NoError(t, err)
	require.Equal(t, []wadm.VersionInfo{{Version: "v1", Deployed: true}, {}}, []wadm.VersionInfo(versions.Versions))

	peer(t, conn, `{"result":"noop","message":"m","undeploy":false}`)
	deleted, err := c.Delete(ctx(t), "a", nil)
	require.NoError(t, err)
	require.Equal(t, wadm.DeleteReply{Result: "noop", Message: "m"}, deleted)

	peer(t, conn, `{"result":"ok","message":"m","status":{"status":{"type":"ready"},"version":"","components":[]}}`)
	status, err := c.Status(ctx(t), "a")
	require.NoError(t, err)
	require.Equal(t, wadm.Deployed, status.Status.Status.Type)
}

func TestRefusals(t *testing.T) {
	conn := connect(t)
	c := wadm.Client{Conn: conn}

	// As wadm 0.21.1 writes it, message first.
	peer(t, conn, `{"message":"Manifest version v1 already exists","result":"error"}`)
	_, err := c.Put(ctx(t), []byte(`{}`))
	var refused *wadm.ReplyError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wadm.ReplyError{Operation: "put", Result: "error", Message: "Manifest version v1 already exists"}, *refused)
	require.NotErrorIs(t, err, wadm.ErrNotFound)

	peer(t, conn, `{"result":"notfound","message":"no a","name":"a","version":null}`)
	_, err = c.Deploy(ctx(t), "a", nil)
	require.ErrorIs(t, err, wadm.ErrNotFound)
	require.EqualError(t, err, "no a")

	// The list is mandatory in a reply, and no error has it.
	peer(t, conn, `{"result":"error","message":""}`)
	_, err = c.List(ctx(t))
	require.EqualError(t, err, "the server answered get with error and did not say why")

	for reply, text := range map[string]string{
		``:                             `the reply on wadm.api.default.model.status.a is not one of wadm's API: ""`,
		`{}`:                           `the reply on wadm.api.default.model.status.a is not one of wadm's API: "{}"`,
		`[]`:                           `the reply on wadm.api.default.model.status.a is not one of wadm's API: "[]"`,
		`{"result":"ok","message":""}`: `the server knows how application a is and did not send it`,
	} {
		peer(t, conn, reply)
		_, err = c.Status(ctx(t), "a")
		require.EqualError(t, err, text)
	}
	peer(t, conn, `{"result":"ok","message":"","status":{"status":{"type":"asleep"}}}`)
	_, err = c.Status(ctx(t), "a")
	require.EqualError(t, err, `read the reply on wadm.api.default.model.status.a: "asleep" is not a status type`)
}

func TestNobodyAndNothingAreToldApart(t *testing.T) {
	conn := connect(t)
	c := wadm.Client{Conn: conn}
	_, err := c.Status(ctx(t), "a")
	require.ErrorIs(t, err, nats.ErrNoResponders)
	require.EqualError(t, err, "ask wadm.api.default.model.status.a: nats: no responders available for request")

	_, err = conn.SubscribeSync("wadm.api.>")
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Status(soon, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, nats.ErrNoResponders)

	_, err = c.Put(ctx(t), make([]byte, 2<<20))
	require.ErrorIs(t, err, nats.ErrMaxPayload)
}

func TestWhatCannotBeASubjectIsNotSent(t *testing.T) {
	conn := connect(t)
	got := peer(t, conn)
	for _, name := range []string{"", "a.b", "a b", "*", ">", "a\r\nPUB x", "\x7f"} {
		_, err := wadm.Client{Conn: conn}.Status(ctx(t), name)
		require.EqualError(t, err, fmt.Sprintf("%q cannot be the name of an application: it must be one token of a NATS subject, without dots, spaces, * and >", name))
	}
	_, err := wadm.Client{Conn: conn, Lattice: "a.b"}.List(ctx(t))
	require.EqualError(t, err, `"a.b" cannot be the name of a lattice: it must be one token of a NATS subject, without dots, spaces, * and >`)
	_, err = wadm.Client{Conn: conn, Prefix: "wadm..api"}.List(ctx(t))
	require.EqualError(t, err, `"" cannot be a token of the prefix of requests: it must be one token of a NATS subject, without dots, spaces, * and >`)
	require.Empty(t, got())
}
