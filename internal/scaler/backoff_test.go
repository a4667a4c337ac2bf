package scaler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/scaler"
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
