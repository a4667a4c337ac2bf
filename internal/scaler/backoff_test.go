package scaler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

func TestDelaysDoubleUpToFiveMinutes(t *testing.T) {
	key := scaler.Key{Subject: "s", Host: "n1"}
	var b scaler.Backoff
	var delays []time.Duration
	for range 12 {
		b = b.Failed(key, scaler.CodeCommandRefused, "no", noon, 0.5)
		f, ok := b.Find(key)
		require.True(t, ok)
		delays = append(delays, f.Next.Sub(noon))
	}
	require.Equal(t, []time.Duration{
		1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second, 128 * time.Second, 256 * time.Second, 300 * time.Second, 300 * time.Second, 300 * time.Second,
	}, delays)
}

func TestFailedKeepsTheFirstTimeAndTheLastWords(t *testing.T) {
	key := scaler.Key{Subject: "s", Host: "n1"}
	first := scaler.Backoff{}.Failed(key, scaler.CodeCommandRefused, "no", noon, 0)
	second := first.Failed(key, scaler.CodeCommandTimedOut, "nothing was heard", noon.Add(time.Minute), 0)
	require.Equal(t, scaler.Backoff{{
		Key: key, Code: "command_timed_out", Message: "nothing was heard", Attempts: 2, Since: noon,
		Next: noon.Add(time.Minute + 1600*time.Millisecond),
	}}, second)
	require.Equal(t, 1, first[0].Attempts, "the receiver was changed")
}

func TestRecallTakesUpWhatTheStatusTellsOf(t *testing.T) {
	later := noon.Add(time.Hour)
	next := noon.Add(2 * time.Second)
	rows := []wadm.ScalerStatus{
		{ID: "s", Status: wadm.StatusInfo{
			Type: wadm.Failed, Reason: "command_failed", Since: &noon, Attempt: 3, NextAttempt: &next,
			Message: "no (attempt 1) at all (attempt 3, next attempt 2026-03-04T12:00:02Z), and more",
		}},
		{ID: "r", Status: wadm.StatusInfo{Type: wadm.Failed, Reason: "link_conflict", Since: &noon, Message: "in the way"}},
		{ID: "q", Status: wadm.StatusInfo{Type: wadm.Deployed}},
	}
	recalled := scaler.Backoff{}.Recall(rows, later)
	require.Equal(t, scaler.Backoff{{
		Key: scaler.Key{Subject: "s"}, Code: "command_failed", Message: "no (attempt 1) at all", Attempts: 3, Since: noon, Next: later, Recalled: true,
	}}, recalled)

	// The first host that it fails on again is the one it was.
	key := scaler.Key{Subject: "s", Host: "n1"}
	failed := recalled.Failed(key, scaler.CodeCommandRefused, "still no", later, 0.5)
	require.Equal(t, scaler.Backoff{{
		Key: key, Code: "command_refused", Message: "still no", Attempts: 4, Since: noon, Next: later.Add(8 * time.Second),
	}}, failed)
	require.Equal(t, failed, failed.Recall(rows, later), "what is known is known better")
	two := failed.Failed(scaler.Key{Subject: "s", Host: "n2"}, "", "", later, 0.5)
	require.Equal(t, []any{1, later}, []any{two[1].Attempts, two[1].Since})
}

func TestAFailureWithoutAHostIsNotAnothersToTakeUp(t *testing.T) {
	b := scaler.Backoff{}.Failed(scaler.Key{Subject: "s"}, "", "", noon, 0).Failed(scaler.Key{Subject: "s", Host: "n1"}, "", "", noon.Add(time.Hour), 0)
	require.Len(t, b, 2)
	require.Equal(t, noon.Add(time.Hour), b[1].Since)
}

func TestRecalledFailuresAreShownUntilTheyAreNotTrueAnyMore(t *testing.T) {
	e := newEngine(shop(component("api", spread(1))))
	e.join("n1", nil)
	e.bad["n1"] = "manifest unknown"
	e.fail(t, 3)
	require.Equal(t, 3, e.rows[0].Status.Attempt)
	e.backoff = scaler.Backoff{}.Recall(e.rows, e.now)
	o := e.plan()
	require.Len(t, o.Batches, 1, "it is tried at once")
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "command_failed", Since: &noon, Attempt: 3, Message: "manifest unknown (attempt 3, trying again now)",
	}, o.Rows[0].Status)
	delete(e.bad, "n1")
	o = e.settle(t)
	require.Equal(t, wadm.Deployed, o.Rows[0].Status.Type)
	require.Empty(t, o.Backoff)
}

// fail carries plans out until so many tries have failed.
func (e *engine) fail(t require.TestingT, tries int) {
	for range tries {
		e.round(t)
		e.now = e.plan().Retry
	}
}

func TestWithoutForgets(t *testing.T) {
	b := scaler.Backoff{}.
		Failed(scaler.Key{Subject: "s", Host: "n1"}, "", "", noon, 0).
		Failed(scaler.Key{Subject: "s", Host: "n2"}, "", "", noon, 0).
		Failed(scaler.Key{Subject: "r", Host: "n1"}, "", "", noon, 0)
	left := b.Without(func(f scaler.Failure) bool { return f.Host == "n1" })
	require.Len(t, left, 1)
	require.Equal(t, "n2", left[0].Host)
	require.Len(t, b, 3)
	_, found := left.Find(scaler.Key{Subject: "r", Host: "n1"})
	require.False(t, found)
}

func TestDelaysAreWithinAFifth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := scaler.Key{Subject: "s"}
		attempts := rapid.IntRange(1, 200).Draw(t, "attempts")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		b := scaler.Backoff{{Key: key, Attempts: attempts - 1}}.Failed(key, "", "", noon, random)
		d := b[0].Next.Sub(noon)
		want := 300.0
		if attempts <= 9 {
			want = float64(int(1) << (attempts - 1))
		}
		require.InDelta(t, want, d.Seconds(), want*0.2+0.000001)
	})
}
