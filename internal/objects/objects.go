// Package objects puts streams into the JetStream object store.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/nats-io/nats.go/jetstream"
)

// chunk is the size of the messages an object is made of. The client has at
// most 4,000 of them under way and gives up when a busy server lets it wait
// for the next; this size keeps that bound beyond the largest result a node
// may give, and a message within the server's usual limit of 1 MiB.
const chunk = 512 << 10

// Put stores what r gives under a name, in place of what was there. It returns
// when the server has all of it.
func Put(ctx context.Context, store jetstream.ObjectStore, name string, r io.Reader) (*jetstream.ObjectInfo, error) {
	meta := jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}}
	return store.Put(ctx, meta, whole{r})
}

// whole fills every read as far as it can. The client makes a message of each
// read, however small, and a pipe gives small ones.
type whole struct{ io.Reader }

func (w whole) Read(p []byte) (int, error) {
	n, err := io.ReadFull(w.Reader, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// Costs of an object beside its bytes, which a server counts for the limit of a
// bucket: of each message, and of what describes the object.
const (
	chunkCost = 256
	metaCost  = 2 << 10
)

// Size is about what a bucket spends on an object of so many bytes.
func Size(bytes int64) int64 { return bytes + (bytes/chunk+1)*chunkCost + metaCost }

// Free is how many bytes a bucket can take by its own limit. The server and the
// account may have less.
func Free(ctx context.Context, store jetstream.ObjectStore) (int64, error) {
	status, err := store.Status(ctx)
	if err != nil {
		return 0, err
	}
	bucket, ok := status.(*jetstream.ObjectBucketStatus)
	if !ok {
		return 0, fmt.Errorf("the status of bucket %s says nothing of its limit", status.Bucket())
	}
	most := bucket.StreamInfo().Config.MaxBytes
	if most < 0 {
		return math.MaxInt64, nil
	}
	return max(most-int64(status.Size()), 0), nil //nolint:gosec // the size of a bucket fits
}
