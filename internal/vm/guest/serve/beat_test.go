package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm/guest"
)

// slowStream is a stream on which a write takes as long as its reader wants.
type slowStream struct{ begun, read chan struct{} }

func (s slowStream) Write(p []byte) (int, error) {
	s.begun <- struct{}{}
	<-s.read
	return len(p), nil
}

func (slowStream) Read([]byte) (int, error) { select {} }
func (slowStream) Close() error             { return nil }

func TestNoBeatComesAfterTheLast(t *testing.T) {
	stream := slowStream{begun: make(chan struct{}, 1), read: make(chan struct{})}
	s := &server{conn: guest.NewConn(stream)}
	stop := s.beat()
	<-stream.begun

	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Fatal("the beat was over before it was told")
	case <-time.After(100 * time.Millisecond):
	}
	close(stream.read)
	<-stopped
	require.Empty(t, stream.begun)
}
