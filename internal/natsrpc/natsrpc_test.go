package natsrpc_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natsrpc"
	"tidewait/internal/natstest"
)

// TestRequestsByDeputyAreLeftAlone lets others send a request to a service: JetStream,
// which delivers what is stored and answers questions wherever somebody wants it, and
// another service, whose reply is to become the request.
func TestRequestsByDeputyAreLeftAlone(t *testing.T) {
	s := natstest.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	nc := natstest.Connect(t, s.ClientURL())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, AllowDirect: true})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", []byte(`{}`))
	require.NoError(t, err)
	var done atomic.Int64
	serve(t, nc, "deed", func() { done.Add(1) })
	serve(t, nc, "question", func() {})
	arrived, err := nc.SubscribeSync("deed")
	require.NoError(t, err)

	create, err := json.Marshal(map[string]any{"stream_name": "S", "config": map[string]any{
		"name": "c", "deliver_subject": "deed", "ack_policy": "none", "deliver_policy": "all", "mem_storage": true,
	}})
	require.NoError(t, err)
	for _, deputy := range []struct {
		name, subject, reply string
		body                 []byte
	}{
		{"a push consumer", "$JS.API.CONSUMER.CREATE.S.c", nc.NewInbox(), create},
		{"a stored message", "$JS.API.DIRECT.GET.S.s", "deed", nil},
		{"what is known of a stream", "$JS.API.STREAM.INFO.S", "deed", nil},
		{"whoever wants no reply", "deed", "", nil},
	} {
		require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: deputy.subject, Reply: deputy.reply, Data: deputy.body}), deputy.name)
		_, err := arrived.NextMsg(time.Minute)
		require.NoError(t, err, deputy.name)
	}
	require.NoError(t, nc.PublishRequest("question", "deed", nil))
	require.Zero(t, done.Load())
	_, err = nc.Request("question", nil, time.Minute)
	require.NoError(t, err)
	_, err = nc.Request("deed", nil, time.Minute)
	require.NoError(t, err)
	pending, _, err := arrived.Pending()
	require.NoError(t, err)
	require.Equal(t, 1, pending, "the control alone, and no reply of the other service")
	require.Equal(t, int64(1), done.Load(), "the control: whoever waits for the reply is served")
	require.NoError(t, stream.DeleteConsumer(t.Context(), "c"))
}

func serve(t *testing.T, nc *nats.Conn, subject string, do func()) {
	t.Helper()
	ready := make(chan struct{})
	go func() {
		_ = natsrpc.Service{
			Name: subject, Version: "0.0.0", Log: slog.New(slog.DiscardHandler), Code: func(error) string { return "" },
			Handlers: map[string]natsrpc.Handler{subject: func(context.Context, []byte) (any, error) { do(); return nil, nil }}, //nolint:nilnil // nothing to say
		}.Serve(t.Context(), nc, func() { close(ready) })
	}()
	<-ready
}
