package provision_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/natstest"
	"tidewait/internal/provision"
)

// TestAServerThatLostItsData: what is connected makes streams and buckets again when
// NATS comes back without them.
func TestAServerThatLostItsData(t *testing.T) {
	first := serverOn(t, -1)
	nc := natstest.Connect(t, first.ClientURL())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	fleet := config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20}
	provide := func(ctx context.Context) error {
		if err := provision.MissingStreams(ctx, js, fleet); err != nil {
			return err
		}
		return provision.NodeBucket(ctx, js, "n1", fleet)
	}
	require.NoError(t, provide(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { provision.AfterReconnect(ctx, nc, slog.New(slog.DiscardHandler), provide); close(ended) }()

	port := first.Addr().(*net.TCPAddr).Port
	first.Shutdown()
	first.WaitForShutdown()
	serverOn(t, port)

	eventually(t, "the node's results can be stored again", func(ctx context.Context) error {
		bucket, err := js.ObjectStore(ctx, api.BucketResults("n1"))
		if err != nil {
			return err
		}
		_, err = bucket.PutBytes(ctx, "run", []byte("what a run made"))
		return err
	})
	for _, name := range []string{api.LogStream, "OBJ_" + api.BucketWorkspaces, "OBJ_" + api.BucketBundles} {
		_, err := js.Stream(t.Context(), name)
		require.NoError(t, err, name)
	}
	stop()
	<-ended
}

// serverOn is a server with an empty store; port -1: a free one.
func serverOn(t *testing.T, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(time.Minute))
	return s
}
