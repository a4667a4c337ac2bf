package provision

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/config"
	"tidewait/internal/api"
)

// Streams makes the log stream and the buckets that all share, and gives those that are
// there what the settings say.
func Streams(ctx context.Context, js jetstream.JetStream, fleet config.Fleet) error {
	return each(shared(fleet), func(want jetstream.StreamConfig) error { return keep(ctx, js, want) })
}

// MissingStreams makes those of them that are not there. What the others are is for
// those to say who may change it.
func MissingStreams(ctx context.Context, js jetstream.JetStream, fleet config.Fleet) error {
	return each(shared(fleet), func(want jetstream.StreamConfig) error {
		_, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return keep(ctx, js, want)
		}
		return explained(js, err)
	})
}

// NodeBucket makes the bucket for one node's results, or gives it what the settings say.
func NodeBucket(ctx context.Context, js jetstream.JetStream, node string, fleet config.Fleet) error {
	want := bucket(api.BucketResults(node), "results of runs on node "+node, fleet.ObjectTTL, 0, fleet.StreamReplicas)
	if err := keep(ctx, js, want); err != nil {
		return fmt.Errorf("%w (`tidewait setup --node %s` does it for node %s)", err, node, node)
	}
	return nil
}

func each(streams []jetstream.StreamConfig, do func(jetstream.StreamConfig) error) error {
	for _, want := range streams {
		if err := do(want); err != nil {
			return err
		}
	}
	return nil
}

func shared(fleet config.Fleet) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name: api.LogStream, Description: "output of runs, a message a line", Subjects: []string{api.SubjectLogs},
			MaxAge: fleet.LogTTL, MaxBytes: fleet.LogBytes, Discard: jetstream.DiscardOld, Compression: jetstream.S2Compression,
			AllowDirect: true, // so that a node may read its own log and no other
			Replicas:    fleet.StreamReplicas,
		},
		bucket(api.BucketWorkspaces, "workspaces on their way to a gateway or a node", fleet.ObjectTTL, 0, fleet.StreamReplicas),
		bucket(api.BucketBundles, "git bundles of launches", 0, fleet.BundleBytes, fleet.StreamReplicas),
	}
}

// bucket is the stream of an object store, as the client's library makes it. What is in
// it is removed after ttl; 0: never. It holds at most bytes; 0: as many as NATS gives
// the account.
func bucket(name, description string, ttl time.Duration, bytes int64, replicas int) jetstream.StreamConfig {
	if bytes == 0 {
		bytes = -1
	}
	return jetstream.StreamConfig{
		Name: "OBJ_" + name, Description: description, Subjects: []string{"$O." + name + ".C.>", "$O." + name + ".M.>"},
		MaxAge: ttl, MaxBytes: bytes, Discard: jetstream.DiscardNew, AllowRollup: true, AllowDirect: true,
		Replicas: replicas,
	}
}

// keep makes a stream, or changes what is other than wanted of one that is there. It
// asks first: most who start may neither make one nor need to.
func keep(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	stream, err := js.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		if _, err = js.CreateOrUpdateStream(ctx, want); err != nil {
			return fmt.Errorf("make stream %s: %w", want.Name, explained(js, err))
		}
		return nil
	case err != nil:
		return fmt.Errorf("look at stream %s: %w", want.Name, explained(js, err))
	}
	have := stream.CachedInfo().Config
	next := have
	next.Description, next.Subjects = want.Description, want.Subjects
	next.MaxAge, next.MaxBytes = want.MaxAge, want.MaxBytes
	next.AllowDirect, next.Replicas = want.AllowDirect, max(1, want.Replicas)
	if reflect.DeepEqual(next, have) {
		return nil
	}
	if _, err := js.UpdateStream(ctx, next); err != nil {
		return fmt.Errorf("change stream %s to what the settings say: %w", want.Name, explained(js, err))
	}
	return nil
}

// explained says of a request that had no answer that NATS did not let it through,
// where that is so.
func explained(js jetstream.JetStream, err error) error {
	if err == nil {
		return nil
	}
	if refused := js.Conn().LastError(); errors.Is(refused, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w", refused, err)
	}
	return err
}
