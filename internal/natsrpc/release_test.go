package natsrpc

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/natstest"
	"tidewait/internal/release"
)

const subjectOfPeople = "tidewait.api.question"

var heartbeats = api.SubjectNodeHeartbeat("n1")

// serve starts a service of a release and returns a connection to it, and the
// refusals that it tells of.
func serve(t *testing.T, of release.Release, parallel int) (*nats.Conn, chan string) {
	t.Helper()
	nc := natstest.Connect(t, natstest.Start(t, &server.Options{}).ClientURL())
	refused := make(chan string, 10)
	answer := With(func(context.Context, struct{}) (any, error) { return "answered", nil })
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Service{
			Name: "test", Version: "1.0.0", Release: of, Parallel: parallel, Log: slog.New(slog.DiscardHandler),
			Handlers: map[string]Handler{subjectOfPeople: answer, heartbeats: answer},
			Code:     func(error) string { return "" },
			Refused: func(ctx context.Context, data []byte, skew *release.Skew) {
				refused <- Subject(ctx) + " " + string(data) + " " + skew.Code()
			},
		}.Serve(ctx, nc, func() { close(ready) })
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	<-ready
	return nc, refused
}

// question is a request whose headers say r; nil: they say nothing.
func question(t *testing.T, nc *nats.Conn, subject string, r *release.Release) api.Reply {
	t.Helper()
	msg := &nats.Msg{Subject: subject, Data: []byte(`{}`)}
	if r != nil {
		msg.Header = r.Header()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	require.NoError(t, err)
	var reply api.Reply
	require.NoError(t, json.Unmarshal(answer.Data, &reply))
	return reply
}

func TestRequestsOfOtherReleases(t *testing.T) {
	for name, parallel := range map[string]int{"one at a time": 0, "several at once": 2} {
		t.Run(name, func(t *testing.T) {
			nc, refused := serve(t, release.Release{Version: "2.5.0", Protocol: 4}, parallel)
			for _, c := range []struct {
				subject string
				asks    *release.Release
				code    string // empty: it is answered
			}{
				{subjectOfPeople, nil, ""},
				{subjectOfPeople, &release.Release{Version: "2.4.9", Protocol: 4}, ""},
				{subjectOfPeople, &release.Release{Version: "2.3.0", Protocol: 4}, "release_too_old"},
				{subjectOfPeople, &release.Release{Version: "2.5.0", Protocol: 5}, "release_too_new"},
				{heartbeats, &release.Release{Version: "2.6.0", Protocol: 4}, ""},
				{heartbeats, nil, "release_too_old"},
			} {
				reply := question(t, nc, c.subject, c.asks)
				if c.code == "" {
					require.Nil(t, reply.Error, "%s of %v", c.subject, c.asks)
					require.JSONEq(t, `"answered"`, string(reply.OK))
					continue
				}
				require.NotNil(t, reply.Error, "%s of %v", c.subject, c.asks)
				require.Equal(t, c.code, reply.Error.Code)
				require.Equal(t, c.subject+" {} "+c.code, <-refused)
			}
			require.Empty(t, refused)
		})
	}
}

func TestAskSaysItsRelease(t *testing.T) {
	nc, _ := serve(t, release.Release{}, 0)
	var answer string
	require.NoError(t, Ask(t.Context(), nc, heartbeats, struct{}{}, &answer))
	require.Equal(t, "answered", answer)
}

// A server of another release is refused by who asks, too: it may be one that
// judges by other rules.
func TestRepliesOfOtherReleases(t *testing.T) {
	for _, c := range []struct {
		answers *release.Release
		refused bool
	}{
		{nil, false},
		{&release.Release{Version: "0.2.0", Protocol: 1}, false},
		{&release.Release{Version: "0.3.0", Protocol: 1}, true},
		{&release.Release{Version: "0.1.0", Protocol: 2}, true},
	} {
		nc := natstest.Connect(t, natstest.Start(t, &server.Options{}).ClientURL())
		_, err := nc.Subscribe(subjectOfPeople, func(msg *nats.Msg) {
			reply := &nats.Msg{Subject: msg.Reply, Data: []byte(`{"ok":"answered"}`)}
			if c.answers != nil {
				reply.Header = c.answers.Header()
			}
			_ = nc.PublishMsg(reply)
		})
		require.NoError(t, err)
		var answer string
		err = Ask(t.Context(), nc, subjectOfPeople, struct{}{}, &answer)
		if !c.refused {
			require.NoError(t, err)
			continue
		}
		require.True(t, IsSkew(err), "%v: %v", c.answers, err)
		var refused *api.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "release_too_old", refused.Code)
	}
}
