package objects_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/iotest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/objects"
)

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(m.Run())
}

func TestPutMakesFewMessagesOfSmallReads(t *testing.T) {
	stack := devstacktest.Start(t, devstack.NATS)
	nc, err := nats.Connect(stack.NATSURL)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	store, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "b"})
	require.NoError(t, err)
	data := make([]byte, 1<<20+7)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(data)

	for name, size := range map[string]int{"empty": 0, "one": 1, "even": 1 << 20, "odd": 1<<20 + 7} {
		info, err := objects.Put(t.Context(), store, name, iotest.HalfReader(bytes.NewReader(data[:size])))
		require.NoError(t, err, name)
		require.Equal(t, uint64(size), info.Size)
		require.Equal(t, uint32((size+512<<10-1)/(512<<10)), info.Chunks, name)
		got, err := store.GetBytes(t.Context(), name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data[:size], got), name)
	}

	_, err = objects.Put(t.Context(), store, "broken", io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrClosedPipe)))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = store.GetInfo(t.Context(), "broken")
	require.ErrorIs(t, err, jetstream.ErrObjectNotFound, "half an object is none")
}
