package keep

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/keeper"
)

// Bounds of a wait.
const (
	wait = 10 * time.Second
	tick = time.Millisecond
)

// talk is a conversation between a guest and programs, with frames between them.
type talk struct {
	t *testing.T
	*frames
	machine *guest.Conn // the guest's end
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	inside, outside := pair(t)
	return &talk{t, newFrames(outside), guest.NewConn(inside)}
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	a, file, err := keeper.SocketPair(unix.SOCK_STREAM)
	require.NoError(t, err)
	b, err = keeper.Conn(file)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// first attaches the program that is there from the start.
func (k *talk) first() *guest.Conn {
	mine, theirs := pair(k.t)
	k.attach(theirs)
	return guest.NewConn(mine)
}

// next attaches another, and returns what it is told.
func (k *talk) next() (*guest.Conn, keeper.State) {
	k.t.Helper()
	mine, theirs := pair(k.t)
	told, failed := make(chan keeper.State, 1), make(chan error, 1)
	go func() { // what it is told after that it has to read
		failed <- k.attachTold(theirs, func(s keeper.State) error { told <- s; return nil })
	}()
	select {
	case state := <-told:
		return guest.NewConn(mine), state
	case err := <-failed:
		require.NoError(k.t, err)
		return guest.NewConn(mine), <-told // both came at once
	}
}

func (k *talk) says(kind guest.Kind, payload string) {
	k.t.Helper()
	require.NoError(k.t, k.machine.Write(kind, []byte(payload)))
}

func hears(t *testing.T, c *guest.Conn, kind guest.Kind, payload string) {
	t.Helper()
	got, b, err := c.Read()
	require.NoError(t, err)
	require.Equal(t, kind.String()+" "+payload, got.String()+" "+string(b))
}

func TestFramesGoBothWays(t *testing.T) {
	k := newTalk(t)
	p := k.first()
	k.says(guest.KindHello, `{"proto":2}`)
	hears(t, p, guest.KindHello, `{"proto":2}`)
	require.NoError(t, p.Write(guest.KindExec, []byte("{}")))
	hears(t, k.machine, guest.KindExec, "{}")
	require.NoError(t, k.machine.Close())
	_, _, err := p.Read()
	require.ErrorIs(t, err, io.EOF)
	<-k.over
}

func TestTheNextProgramIsToldAll(t *testing.T) {
	k := newTalk(t)
	k.remember()
	p := k.first()
	k.says(guest.KindHello, `{"proto":2}`)
	hears(t, p, guest.KindHello, `{"proto":2}`)
	require.NoError(t, p.Write(guest.KindExec, []byte("{}")))
	hears(t, k.machine, guest.KindExec, "{}")
	k.says(guest.KindLog, "\x01one\n")
	k.says(guest.KindLog, "\x01tw")
	k.says(guest.KindLog, "\x02err\n")
	for _, said := range []string{"\x01one\n", "\x01tw", "\x02err\n"} {
		hears(t, p, guest.KindLog, said)
	}
	require.NoError(t, p.Close())
	k.says(guest.KindLog, "\x01o\n")
	k.says(guest.KindBeat, "{}")
	before := boot.Now()
	require.Zero(t, k.state().EndedAt)
	k.says(guest.KindExit, `{"code":3}`)
	require.Eventually(t, func() bool { return k.state().Ended }, wait, tick)

	for range 2 {
		q, state := k.next()
		require.WithinRange(t, time.Unix(0, int64(state.EndedAt)), time.Unix(0, int64(before)), time.Unix(0, int64(boot.Now())))
		state.EndedAt = 0
		require.Equal(t, keeper.State{Proto: 1, Hello: json.RawMessage(`{"proto":2}`), Executed: true, Ended: true}, state)
		hears(t, q, guest.KindLog, "\x01one\ntw")
		hears(t, q, guest.KindLog, "\x02err\n")
		hears(t, q, guest.KindLog, "\x01o\n")
		hears(t, q, guest.KindExit, `{"code":3}`)
	}
}

// TestAnAnswerThatNobodyWaitsForIsThrownAway: a program that asks for results and
// goes leaves the rest of them to nobody.
func TestAnAnswerThatNobodyWaitsForIsThrownAway(t *testing.T) {
	k := newTalk(t)
	p := k.first()
	require.NoError(t, p.Write(guest.KindGet, []byte(`{"files":1}`)))
	hears(t, k.machine, guest.KindGet, `{"files":1}`)
	k.says(guest.KindTar, "of the first")
	hears(t, p, guest.KindTar, "of the first")
	require.NoError(t, p.Close())

	q, _ := k.next()
	require.NoError(t, q.Write(guest.KindGet, []byte(`{"files":2}`)))
	k.says(guest.KindTar, "of the first still")
	k.says(guest.KindTarEnd, "1")
	hears(t, k.machine, guest.KindGet, `{"files":2}`)
	k.says(guest.KindTar, "of the second")
	k.says(guest.KindTarEnd, "2")
	hears(t, q, guest.KindTar, "of the second")
	hears(t, q, guest.KindTarEnd, "2")
}

// TestAFrameThatWasNotFinishedIsNone: a program that is killed while it writes does
// not break the conversation.
func TestAFrameThatWasNotFinishedIsNone(t *testing.T) {
	k := newTalk(t)
	mine, theirs := pair(t)
	k.attach(theirs)
	_, err := mine.Write([]byte{0, 0, 1, 0, byte(guest.KindSignal), '{'})
	require.NoError(t, err)
	require.NoError(t, mine.Close())
	q, _ := k.next()
	require.NoError(t, q.Write(guest.KindGet, []byte("{}")))
	hears(t, k.machine, guest.KindGet, "{}")
}

// TestAProgramThatDoesNotListenIsReplaced: another takes its place although the
// guest's frames are stuck on the way to it.
func TestAProgramThatDoesNotListenIsReplaced(t *testing.T) {
	k := newTalk(t)
	k.remember()
	p := k.first()
	require.NoError(t, p.Write(guest.KindExec, []byte("{}")))
	hears(t, k.machine, guest.KindExec, "{}")
	big := "\x01" + strings.Repeat("x", 100<<10)
	said := make(chan error, 1)
	go func() {
		for range 30 {
			if err := k.machine.Write(guest.KindLog, []byte(big)); err != nil {
				said <- err
				return
			}
		}
		said <- k.machine.Write(guest.KindExit, []byte(`{"code":0}`))
	}()
	kind, _, err := p.Read() // and no more
	require.NoError(t, err)
	require.Equal(t, guest.KindLog, kind)
	q, _ := k.next()
	size := 0
	for {
		kind, b, err := q.Read()
		require.NoError(t, err)
		if kind == guest.KindExit {
			break
		}
		size += len(b) - 1
	}
	require.Equal(t, 30*100<<10, size)
	require.NoError(t, <-said)
}

// TestOutputIsBounded: the end of what was printed is remembered, and how much
// there was before it.
func TestOutputIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o output
		var all [3]strings.Builder
		for i := range rapid.IntRange(1, 60).Draw(t, "writes") {
			stream := rapid.SampledFrom([]byte{1, 2}).Draw(t, "stream")
			n := rapid.SampledFrom([]int{1, 100, maxChunk, 300 << 10}).Draw(t, "size")
			b := strings.Repeat(fmt.Sprintf("%d\n", i), n)[:n]
			o.add(stream, []byte(b))
			all[stream].WriteString(b)
		}
		var kept [3]strings.Builder
		size := 0
		for _, c := range o.chunks {
			kept[c.stream].Write(c.bytes)
			size += len(c.bytes) + chunkCost
		}
		if size != o.size || size > maxOutput {
			t.Fatalf("%d bytes are remembered, %d counted", size, o.size)
		}
		forgotten := all[1].String()[:o.begin.Stdout] + all[2].String()[:o.begin.Stderr]
		if all[1].String()[o.begin.Stdout:] != kept[1].String() || all[2].String()[o.begin.Stderr:] != kept[2].String() {
			t.Fatal("what is remembered is not the end")
		}
		if n := int64(strings.Count(forgotten, "\n")); n != o.begin.Lines {
			t.Fatalf("%d lines are forgotten, %d counted", n, o.begin.Lines)
		}
		if total := int64(all[1].Len() + all[2].Len()); total <= maxOutput-60*chunkCost && o.begin != (vm.Position{}) {
			t.Fatalf("of %d bytes something is forgotten", total)
		}
	})
}

// TestOutputOfManyPiecesIsBounded: what is remembered takes no more memory for being
// said byte by byte, and what says nothing takes none.
func TestOutputOfManyPiecesIsBounded(t *testing.T) {
	var o output
	for i := range 1 << 20 {
		o.add(byte(1+i%2), []byte("x"))
		o.add(byte(1+i%2), nil)
		o.add(byte(3+i%2), []byte("x"))
	}
	require.Len(t, o.chunks, maxOutput/(1+chunkCost))
	require.Equal(t, int64(1<<20), o.begin.Stdout+o.begin.Stderr+int64(len(o.chunks)))
}

// TestADetachedProgramAsksNothing: the next one was told that nothing was executed.
func TestADetachedProgramAsksNothing(t *testing.T) {
	k := newTalk(t)
	k.first()
	old := k.current()
	_, state := k.next()
	require.False(t, state.Executed)

	require.False(t, k.ask(old, guest.KindExec, []byte("{}")))
	require.False(t, k.ask(old, guest.KindGet, nil))
	require.False(t, k.frames.state().Executed)
	require.Empty(t, k.asked)
}
