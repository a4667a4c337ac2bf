package objects_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/objects"
)

// lasting is a bucket on a server that a test can kill, and something to put there.
type lasting struct {
	t      *testing.T
	stack  *devstack.Stack
	nc     *nats.Conn
	bucket jetstream.ObjectStore
	data   []byte
}

func newLasting(t *testing.T) *lasting {
	t.Helper()
	l := &lasting{t: t, stack: devstacktest.Start(t, devstack.NATS), data: make([]byte, 16<<20)}
	var err error
	l.nc, err = nats.Connect(l.stack.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(l.nc.Close)
	js, err := jetstream.New(l.nc)
	require.NoError(t, err)
	l.bucket, err = js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "results"})
	require.NoError(t, err)
	random := rand.NewChaCha8([32]byte{})
	_, err = random.Read(l.data)
	require.NoError(t, err)
	return l
}

func (l *lasting) restart() {
	require.NoError(l.t, l.stack.NATS.Kill())
	require.NoError(l.t, l.stack.NATS.Start(l.t.Context()))
}

// after calls do once, when so many bytes were read.
type after struct {
	io.ReadSeeker
	bytes int
	do    func()
}

func (a *after) Read(p []byte) (int, error) {
	n, err := a.ReadSeeker.Read(p)
	if a.bytes -= n; a.bytes <= 0 && a.do != nil {
		a.do()
		a.do = nil
	}
	return n, err
}

func TestWhatIsKeptSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	require.NoError(t, objects.Keep(t.Context(), l.nc, l.bucket, "r1-1", &after{bytes.NewReader(l.data), 8 << 20, l.restart}))

	got, err := io.ReadAll(objects.Open(t.Context(), l.nc, l.bucket, "r1-1"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(l.data, got))
}

func TestAReaderGoesOnAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	_, err := objects.Put(t.Context(), l.bucket, "input", bytes.NewReader(l.data))
	require.NoError(t, err)
	r := objects.Open(t.Context(), l.nc, l.bucket, "input")
	defer r.Close()
	first := make([]byte, 5<<20)
	_, err = io.ReadFull(r, first)
	require.NoError(t, err)

	l.restart()

	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, bytes.Equal(l.data, append(first, rest...)))
}

func TestWithoutAServerItEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	require.NoError(t, l.stack.NATS.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, objects.Keep(ctx, l.nc, l.bucket, "r1-1", bytes.NewReader(l.data)), context.DeadlineExceeded)
	_, err := objects.Open(ctx, l.nc, l.bucket, "input").Read(make([]byte, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAnObjectThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	_, err := objects.Open(t.Context(), l.nc, l.bucket, "input").Read(make([]byte, 1))
	require.ErrorIs(t, err, jetstream.ErrObjectNotFound)
}

func TestAReadEndsSoonAfterItsContext(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	_, err := objects.Put(t.Context(), l.bucket, "input", bytes.NewReader(l.data))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	object, err := objects.Get(ctx, l.bucket, "input")
	require.NoError(t, err)
	defer object.Close()
	connected, stop := objects.Unbroken(ctx, l.nc)
	defer stop()

	require.NoError(t, l.stack.NATS.Kill())
	<-connected.Done()
	require.ErrorIs(t, context.Cause(connected), objects.ErrInterrupted)
	cancel()

	began := time.Now()
	_, err = io.Copy(io.Discard, object)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), 20*time.Second)
}

// TestAReaderOfWhatIsPutAgainGoesOn with the same bytes, and says so of others.
func TestAReaderOfWhatIsPutAgainGoesOn(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	put := func(data []byte) *jetstream.ObjectInfo {
		info, err := objects.Put(t.Context(), l.bucket, "input", bytes.NewReader(data))
		require.NoError(t, err)
		return info
	}
	js, err := jetstream.New(l.nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "OBJ_results")
	require.NoError(t, err)

	// One that knows what the object is, and comes too late for its chunks.
	require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O.results.C."+put(l.data).NUID)))
	read := make(chan []byte)
	go func() {
		got, _ := io.ReadAll(objects.Open(t.Context(), l.nc, l.bucket, "input"))
		read <- got
	}()
	require.Eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers == 1
	}, 10*time.Second, time.Millisecond)
	put(l.data)
	require.True(t, bytes.Equal(l.data, <-read))

	// One that has read some of it.
	for name, c := range map[string]struct {
		then []byte
		want error
	}{
		"the same": {l.data, nil},
		"others":   {l.data[:12<<20], objects.ErrReplaced},
	} {
		put(l.data)
		r := objects.Open(t.Context(), l.nc, l.bucket, "input")
		first := make([]byte, 5<<20)
		_, err = io.ReadFull(r, first)
		require.NoError(t, err, name)
		put(c.then)
		l.restart() // what is under way to it is lost
		rest, err := io.ReadAll(r)
		require.ErrorIs(t, err, c.want, name)
		if c.want == nil {
			require.True(t, bytes.Equal(l.data, append(first, rest...)))
		}
		require.NoError(t, r.Close())
	}

	// One whose object is removed.
	require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O.results.C."+put(l.data).NUID)))
	failed := make(chan error)
	go func() {
		_, err := io.ReadAll(objects.Open(t.Context(), l.nc, l.bucket, "input"))
		failed <- err
	}()
	require.Eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers > 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, l.bucket.Delete(t.Context(), "input"))
	require.ErrorIs(t, <-failed, jetstream.ErrObjectNotFound)
}
