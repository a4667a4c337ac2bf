// Package objects puts streams into the JetStream object store.
package objects

import (
	"context"
	"errors"
	"io"

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
