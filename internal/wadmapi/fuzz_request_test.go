package wadmapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// results are all values of the field result, for whatever was asked.
var results = []string{"error", "success", "notfound", "created", "newversion", "deleted", "noop", "acknowledged", "ok"}

// Any bytes to any operation are answered, once, with an error object or a valid
// reply, and the server goes on.
func FuzzRequest(f *testing.F) {
	operations := []string{
		"list", "get", "get.shop", "put", "del.shop", "versions.shop", "deploy.shop", "undeploy.shop", "status.shop", "history.shop", "nope", "get.a.b",
	}
	for i := range operations {
		for _, body := range []string{
			"", "{}", `{"version":"v1"}`, `{"version":null}`, "[]", "null", "x", "\xff\x00", manifest("shop", "v1"), `{"after":"a","limit":1}`,
			"apiVersion: a\nkind: k\nmetadata: {name: shop}\nspec: {components: [{name: c, type: component, properties: {image: 'i:1'}}]}\n",
		} {
			f.Add(uint8(i), []byte(body), "", "")
		}
	}
	f.Add(uint8(3), []byte(manifest("shop", "v1")), "application/json", "ann")
	f.Add(uint8(3), []byte(manifest("shop", "v1")), "application/yaml", "\xff")
	f.Add(uint8(6), []byte{}, "text/plain", strings.Repeat("a", 300))
	a := startAPI(f, options{})

	f.Fuzz(func(t *testing.T, operation uint8, body []byte, contentType, actor string) {
		op := operations[int(operation)%len(operations)]
		header := nats.Header{}
		if contentType != "" {
			header["Content-Type"] = []string{contentType}
		}
		if actor != "" {
			header["Tidewait-Actor"] = []string{actor}
		}
		if len(body) > 1<<19 || len(contentType)+len(actor) > 1<<16 || strings.ContainsAny(contentType+actor, "\r\n") {
			return // NATS would not carry it as one message
		}
		inbox := nats.NewInbox()
		sub, err := a.conn.SubscribeSync(inbox)
		require.NoError(t, err)
		defer func() { _ = sub.Unsubscribe() }()
		require.NoError(t, a.conn.PublishMsg(&nats.Msg{Subject: "wadm.api.default.model." + op, Reply: inbox, Header: header, Data: body}))
		msg, err := sub.NextMsg(12 * time.Second)
		require.NoError(t, err, "no answer to %s %q", op, body)

		if op == "list" && msg.Data[0] == '[' {
			var list []struct{ Name string }
			require.NoError(t, json.Unmarshal(msg.Data, &list))
			return
		}
		var reply struct {
			Result  string  `json:"result"`
			Message *string `json:"message"`
		}
		require.NoError(t, json.Unmarshal(msg.Data, &reply), "%s", msg.Data)
		require.True(t, slices.Contains(results, reply.Result), "%s", msg.Data)
		require.NotNil(t, reply.Message)
		require.NotContains(t, *reply.Message, "(internal)", "%s %q", op, body)
		pending, _, err := sub.Pending()
		require.NoError(t, err)
		require.Zero(t, pending, "a second reply")
	})
}
