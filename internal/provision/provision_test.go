package provision_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
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

// TestReplicas: on a cluster of three servers everything has as many copies as was
// asked for, also what was made with fewer, and is read when any one server is gone.
func TestReplicas(t *testing.T) {
	servers := cluster(t, 3)
	urls := ""
	for _, s := range servers {
		urls += s.ClientURL() + ","
	}
	nc := natstest.Connect(t, urls[:len(urls)-1])
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	fleet := config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20, StreamReplicas: 1}
	streams := []string{api.LogStream, "OBJ_" + api.BucketWorkspaces, "OBJ_" + api.BucketBundles, "OBJ_" + api.BucketResults("n1")}
	for _, replicas := range []int{1, 3} {
		fleet.StreamReplicas = replicas
		provide := func(c context.Context) error {
			if err := provision.Streams(c, js, fleet); err != nil {
				return err
			}
			return provision.NodeBucket(c, js, "n1", fleet)
		}
		eventually(t, "streams and buckets are there", provide)
		for _, name := range streams {
			stream, err := js.Stream(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, replicas, stream.CachedInfo().Config.Replicas, name)
		}
	}

	bundles, err := js.ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	eventually(t, "an object is stored", func(ctx context.Context) error {
		_, err := bundles.PutBytes(ctx, "launch", []byte("what a mission made"))
		return err
	})
	eventually(t, "every copy is current", func(ctx context.Context) error { return current(ctx, js, "OBJ_"+api.BucketBundles) })
	servers[0].Shutdown()
	servers[0].WaitForShutdown()
	eventually(t, "the object is read without the server", func(ctx context.Context) error {
		data, err := bundles.GetBytes(ctx, "launch")
		if err == nil && string(data) != "what a mission made" {
			err = fmt.Errorf("it is %q", data)
		}
		return err
	})
}

// cluster starts servers that hold JetStream together. Each has to know the ports
// of the others when it starts.
func cluster(t *testing.T, n int) []*server.Server {
	t.Helper()
	ports := make([]int, n)
	var routes []*url.URL
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		require.NoError(t, l.Close())
	}
	servers := make([]*server.Server, n)
	for i, port := range ports {
		servers[i] = natstest.Start(t, &server.Options{
			ServerName: fmt.Sprintf("n%d", i), JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
		})
	}
	return servers
}

// current returns an error while some copy of a stream lags behind.
func current(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	c := stream.CachedInfo().Cluster
	if c == nil || len(c.Replicas) != 2 {
		return fmt.Errorf("%v are its copies", c)
	}
	for _, r := range c.Replicas {
		if !r.Current {
			return fmt.Errorf("%s is not current", r.Name)
		}
	}
	return nil
}

// eventually tries until do succeeds: a cluster elects its leaders in its own time.
func eventually(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		once, stop := context.WithTimeout(ctx, 5*time.Second)
		err := do(once)
		stop()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not so in time: %s: %v", what, err)
		}
	}
}
