package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/natstest"
)

// TestMain runs the command line as a shell would: with no settings of the
// machine around it.
func TestMain(m *testing.M) {
	if args := os.Getenv(childArgs); args != "" {
		os.Exit(run(strings.Fields(args), os.Stdin, os.Stdout, os.Stderr))
	}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "TIDEWAIT_") || strings.HasPrefix(name, "TEMPORAL_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("USER", "ann")
	os.Exit(m.Run())
}

// outcome is what one command line did.
type outcome struct {
	code        int
	out, errors string
}

// tidewait runs a command line.
func tidewait(args ...string) outcome { return tidewaitWith(context.Background(), "", args...) }

func tidewaitWith(ctx context.Context, stdin string, args ...string) outcome {
	var out, errs bytes.Buffer
	code := runContext(ctx, args, strings.NewReader(stdin), &out, &errs)
	return outcome{code, out.String(), errs.String()}
}

// bus is a NATS server with JetStream and a peer that answers on it.
type bus struct {
	t    *testing.T
	url  string
	conn *nats.Conn

	mu    sync.Mutex
	asked map[string][]string // bodies of requests by subject
}

func newBus(t *testing.T) *bus {
	t.Helper()
	url := natstest.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL()
	return &bus{t: t, url: url, conn: natstest.Connect(t, url), asked: map[string][]string{}}
}

// answer replies to every request on subject with what reply returns: content,
// or an *api.Error.
func (b *bus) answer(subject string, reply func() any) {
	b.t.Helper()
	_, err := b.conn.Subscribe(subject, func(msg *nats.Msg) {
		b.mu.Lock()
		b.asked[subject] = append(b.asked[subject], string(msg.Data))
		b.mu.Unlock()
		var envelope api.Reply
		switch content := reply().(type) {
		case *api.Error:
			envelope.Error = content
		default:
			text, err := json.Marshal(content)
			if err != nil {
				panic(err)
			}
			envelope.OK = text
		}
		text, err := json.Marshal(envelope)
		if err != nil {
			panic(err)
		}
		_ = msg.Respond(text)
	})
	require.NoError(b.t, err)
	require.NoError(b.t, b.conn.Flush())
}

func always(content any) func() any { return func() any { return content } }

// requests returns the bodies of the requests on subject so far.
func (b *bus) requests(subject string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.asked[subject]...)
}

func (b *bus) jetstream() jetstream.JetStream {
	b.t.Helper()
	js, err := jetstream.New(b.conn)
	require.NoError(b.t, err)
	return js
}

// run runs a command line against this bus.
func (b *bus) run(args ...string) outcome { return tidewait(append(args, "--nats.url", b.url)...) }
