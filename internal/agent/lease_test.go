package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/boot"
)

// fenced is a lease under watch, and when its fence fell.
type fenced struct {
	*lease
	fell chan time.Duration

	mu    sync.Mutex
	until []time.Duration // as the hook was told
}

func watched(t *testing.T, length time.Duration) *fenced {
	t.Helper()
	f := &fenced{fell: make(chan time.Duration, 16)}
	var err error
	f.lease, err = newLease(length, func() { f.fell <- boot.Now() }, func(until time.Duration) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.until = append(f.until, until)
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.watch(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return f
}

func (f *fenced) falls(t *testing.T) time.Duration {
	t.Helper()
	select {
	case at := <-f.fell:
		return at
	case <-time.After(30 * time.Second):
		require.Fail(t, "the fence does not fall")
		return 0
	}
}

func TestTheLeaseEndsOnTheBootClock(t *testing.T) {
	f := watched(t, 300*time.Millisecond)
	require.False(t, f.ended(), "it was never held")
	sent := boot.Now()
	require.True(t, f.renew(sent))
	require.NoError(t, f.await(t.Context()))

	at := f.falls(t)

	require.GreaterOrEqual(t, at, sent+300*time.Millisecond, "not before its end")
	require.Less(t, at, sent+5*time.Second)
	require.True(t, f.ended())
	require.Equal(t, []time.Duration{sent + 300*time.Millisecond}, f.until)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.await(ctx), context.DeadlineExceeded)

	require.True(t, f.renew(boot.Now()), "a later answer gives it back")
	require.NoError(t, f.await(t.Context()))
	require.False(t, f.ended())
	f.falls(t)
	require.Empty(t, f.fell, "each end is one")
}

func TestARenewedLeaseGoesOn(t *testing.T) {
	f := watched(t, 2*time.Second)
	sent := boot.Now()
	for range 30 {
		sent = boot.Now()
		require.True(t, f.renew(sent))
		pause(t.Context(), 100*time.Millisecond)
		require.Empty(t, f.fell)
	}
	require.GreaterOrEqual(t, f.falls(t), sent+2*time.Second)
	require.Len(t, f.until, 30)
	require.IsIncreasing(t, f.until)
}

// What counts is when a heartbeat was sent, not when its answer came.
func TestALateAnswerRenewsNothing(t *testing.T) {
	f := watched(t, time.Minute)
	require.False(t, f.renew(boot.Now()-2*time.Minute))
	require.True(t, f.renew(boot.Now()))
	require.True(t, f.renew(boot.Now()-30*time.Second), "it is held, for longer than that")
	require.Len(t, f.until, 1)
}

// An answer cannot overtake the fence: what the end of the lease means for runs
// has to happen.
func TestAnAnswerAfterTheEndComesBehindTheFence(t *testing.T) {
	l, err := newLease(50*time.Millisecond, func() {}) // nobody watches: the fence is late
	require.NoError(t, err)
	require.True(t, l.renew(boot.Now()))
	for !l.ended() {
		pause(t.Context(), 5*time.Millisecond)
	}
	require.False(t, l.renew(boot.Now()))
	require.True(t, l.end())
	require.False(t, l.end())
	require.True(t, l.renew(boot.Now()))
}

// TestAStalledDiskDoesNotHoldUpTheFence: nor does what was acknowledged meanwhile
// undo it.
func TestAStalledDiskDoesNotHoldUpTheFence(t *testing.T) {
	fell, stalls, goOn := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	told := 0
	l, err := newLease(300*time.Millisecond, func() { fell <- struct{}{} }, func(time.Duration) {
		if told++; told == 2 {
			stalls <- struct{}{}
			<-goOn
		}
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go l.watch(ctx)
	require.True(t, l.renew(boot.Now()))
	renewed := make(chan bool, 1)
	go func() { renewed <- l.renew(boot.Now() + time.Minute) }()
	<-stalls
	select {
	case <-fell:
	case <-time.After(30 * time.Second):
		require.Fail(t, "the fence does not fall")
	}
	close(goOn)
	require.False(t, <-renewed, "the lease has ended meanwhile")
	require.True(t, l.ended())
	require.True(t, l.renew(boot.Now()+time.Minute), "the next answer gives it back")
}
