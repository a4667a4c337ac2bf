package runlog

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/natstest"
	"tidewait/internal/provision"
)

// broker is a NATS server that can be stopped, and started again on its data.
type broker struct {
	*server.Server
	options server.Options
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{options: server.Options{JetStream: true, StoreDir: t.TempDir()}}
	b.start(t)
	address, ok := b.Addr().(*net.TCPAddr)
	require.True(t, ok)
	b.options.Port = address.Port
	return b
}

func (b *broker) start(t *testing.T) {
	t.Helper()
	options := b.options
	b.Server = natstest.Start(t, &options)
}

func (b *broker) stop() {
	b.Shutdown()
	b.WaitForShutdown()
}

// publisher connects as a node does, but tries again sooner.
func (b *broker) publisher(t *testing.T, l Limits) *Publisher {
	t.Helper()
	conn, err := nats.Connect(b.ClientURL(), nats.ReconnectBufSize(-1), nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.NoError(t, provision.Streams(t.Context(), js, config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 64 << 20}))
	p, err := New(conn, l, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return p
}

// stored returns all lines of a subject that are stored, in order.
func (b *broker) stored(t *testing.T, subject string) []string {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t, b.ClientURL()))
	require.NoError(t, err)
	consumer, err := js.OrderedConsumer(t.Context(), api.LogStream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	require.NoError(t, err)
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	var lines []string
	for left := consumer.CachedInfo().NumPending; left > 0; {
		msg, err := messages.Next()
		require.NoError(t, err)
		meta, err := msg.Metadata()
		require.NoError(t, err)
		left = meta.NumPending
		lines = append(lines, msg.Headers().Get(api.LogHeaderStream)+" "+string(msg.Data()))
	}
	return lines
}

const subject = "tidewait.log.n1.m.1.work.r1-1"

var wide = Limits{Bytes: 1 << 30, Rate: 1 << 30, Buffer: 1 << 30}

func numbered(from, to int) []string {
	var lines []string
	for i := from; i < to; i++ {
		lines = append(lines, fmt.Sprintf("stdout line %d", i))
	}
	return lines
}

func write(l *Log, from, to int) {
	for i := from; i < to; i++ {
		l.Line("stdout", fmt.Appendf(nil, "line %d", i))
	}
}

func TestLinesAreStoredInOrder(t *testing.T) {
	b := newBroker(t)
	p := b.publisher(t, wide)
	l := p.Open("r1-1", subject)
	other := p.Open("r1-1", subject+".author")
	write(l, 0, 5000)
	other.Line("stderr", []byte("\x1b[31m\xff not text\x00"))
	require.NoError(t, p.Close(t.Context(), "r1-1"))
	require.Equal(t, numbered(0, 5000), b.stored(t, subject))
	require.Equal(t, []string{"stderr \x1b[31m\xff not text\x00"}, b.stored(t, subject+".author"))
	l.Line("stdout", []byte("too late"))
	require.Len(t, b.stored(t, subject), 5000)
	require.NoError(t, p.Close(t.Context(), "r1-1"), "it may be closed again")
	require.NoError(t, p.Close(t.Context(), "nobody"))
}

// TestAnOutageOfNATSLosesNoLine stops the server several times in the middle of a
// log: each line is stored once and in order.
func TestAnOutageOfNATSLosesNoLine(t *testing.T) {
	b := newBroker(t)
	p := b.publisher(t, wide)
	l := p.Open("r1-1", subject)
	next := 0
	for range 3 {
		written := make(chan struct{})
		go func(from int) {
			write(l, from, from+20_000)
			close(written)
		}(next)
		b.stop()
		<-written
		next += 20_000
		b.start(t)
	}
	b.stop()
	write(l, next, next+1000) // all of them while nobody is there
	next += 1000
	b.start(t)
	require.NoError(t, p.Close(t.Context(), "r1-1"))
	require.Equal(t, numbered(0, next), b.stored(t, subject))
}

// TestALongOutageIsSaid fills the buffer while NATS is away.
func TestALongOutageIsSaid(t *testing.T) {
	b := newBroker(t)
	p := b.publisher(t, Limits{Bytes: 1 << 30, Rate: 1 << 30, Buffer: 100 * (LineCost + 7)})
	l := p.Open("r1-1", subject)
	b.stop()
	write(l, 10, 210)
	b.start(t)
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 0
	}, time.Minute, 5*time.Millisecond)
	write(l, 210, 211)
	require.NoError(t, p.Close(t.Context(), "r1-1"))
	lines := b.stored(t, subject)
	require.Len(t, lines, 101)
	require.Equal(t, []string{
		"stdout line 108", "system 101 lines (808 bytes) were lost here: NATS did not take them in time", "stdout line 210",
	}, lines[98:])
}

// TestOneLogDoesNotHoldUpAnother lets one machine flood while another speaks.
func TestOneLogDoesNotHoldUpAnother(t *testing.T) {
	b := newBroker(t)
	p := b.publisher(t, Limits{Bytes: 1 << 20, Rate: 64 << 10, Buffer: 1 << 20})
	flood, quiet := p.Open("r1-1", subject), p.Open("r2-1", "tidewait.log.n1.m.1.work.r2-1")
	for range 200_000 {
		flood.Line("stdout", []byte("y"))
	}
	quiet.Line("stdout", []byte("still here"))
	require.NoError(t, p.Close(t.Context(), "r2-1"))
	require.Equal(t, []string{"stdout still here"}, b.stored(t, "tidewait.log.n1.m.1.work.r2-1"))
	require.NoError(t, p.Close(t.Context(), "r1-1"))
	lines := b.stored(t, subject)
	require.Less(t, len(lines), 3*burst*(64<<10)/(LineCost+1), "most of the flood is dropped")
	require.Regexp(t, `^system \d+ lines \(\d+ bytes\) were dropped here: more than 65536 bytes came in a second$`, lines[len(lines)-1])
}

// TestALogIsGoneOnWith: the next writer knows how far the one before it got, and
// spends what that one left.
func TestALogIsGoneOnWith(t *testing.T) {
	b := newBroker(t)
	limits := Limits{Bytes: 4000, Rate: 1 << 20, Buffer: 1 << 20}
	p := b.publisher(t, limits)
	first := p.Open("r1-1", "tidewait.log.n1.m.1.p.r1-1")
	at, err := first.Resume(t.Context())
	require.NoError(t, err)
	require.Empty(t, at, "there is no line yet")
	for i := range 3 {
		first.LineAt("stdout", fmt.Appendf(nil, "line %d", i), fmt.Sprintf("%d 0 %d", 7*(i+1), i+1))
	}
	require.NoError(t, p.Close(t.Context(), "r1-1"))

	next := p.Open("r1-1", "tidewait.log.n1.m.1.p.r1-1")
	at, err = next.Resume(t.Context())
	require.NoError(t, err)
	require.Equal(t, "21 0 3", at)
	for i := range 20 {
		next.LineAt("stdout", []byte("more"), fmt.Sprintf("%d 0 %d", 21+5*(i+1), 3+i+1))
	}
	require.Eventually(t, func() bool {
		stored, err := next.lastStored(t.Context())
		return err == nil && stored.Header.Get(api.LogHeaderPosition) == "81 0 15"
	}, 10*time.Second, time.Millisecond, "of 3000 bytes 594 are spent, and each line costs 196: twelve more, and then a word that has no place of its own")
	require.NoError(t, p.Close(t.Context(), "r1-1"))

	last := p.Open("r1-1", "tidewait.log.n1.m.1.p.r1-1")
	at, err = last.Resume(t.Context())
	require.NoError(t, err)
	require.Equal(t, "121 0 23", at)
	last.LineAt("stdout", []byte("the end"), "129 0 24")
	require.NoError(t, p.Close(t.Context(), "r1-1"))
	lines := b.stored(t, "tidewait.log.n1.m.1.p.r1-1")
	require.Contains(t, lines[len(lines)-1], "the end", "a log that was cut keeps its last lines")
}

// TestWhatIsDroppedIsNotSpent: the next writer of a log of which a flood was left out
// may write what the one before it might have written.
func TestWhatIsDroppedIsNotSpent(t *testing.T) {
	b := newBroker(t)
	// Room for 100 lines of 200 bytes as they come, four seconds' worth of the rate
	// being 20 of them.
	p := b.publisher(t, Limits{Bytes: 20_000 * tailShare / (tailShare - 1), Rate: 1000, Buffer: 1 << 20})
	first := p.Open("r1-1", subject)
	for i := range 1000 {
		first.LineAt("stdout", []byte("12345678"), fmt.Sprintf("%d 0 %d", 9*(i+1), i+1))
	}
	require.NoError(t, p.Close(t.Context(), "r1-1"))
	require.Equal(t, "system 980 lines (7840 bytes) were dropped here: more than 1000 bytes came in a second", b.stored(t, subject)[20])

	wide := b.publisher(t, Limits{Bytes: 20_000 * tailShare / (tailShare - 1), Rate: 1 << 20, Buffer: 1 << 20})
	next := wide.Open("r1-1", subject)
	at, err := next.Resume(t.Context())
	require.NoError(t, err)
	require.Equal(t, "180 0 20", at)
	for i := range 200 {
		next.LineAt("stdout", fmt.Appendf(nil, "%08d", i), fmt.Sprintf("%d 0 %d", 180+9*(i+1), 20+i+1))
	}
	require.NoError(t, wide.Close(t.Context(), "r1-1"))
	lines := b.stored(t, subject)
	require.Equal(t, "stdout 00000079", lines[100], "80 of its own, behind the 20 before them")
	require.Contains(t, lines[101], "the log is cut here")
}
