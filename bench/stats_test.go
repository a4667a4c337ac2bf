package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	for _, test := range []struct {
		name string
		s    sample
		q    float64
		want float64
	}{
		{"one value", sample{7}, 0.99, 7},
		{"middle of three", sample{9, 1, 4}, 0.5, 4},
		{"between two", sample{2, 1}, 0.5, 1.5},
		{"least", sample{3, 2, 8}, 0, 2},
		{"most", sample{3, 8, 2}, 1, 8},
		{"a tenth above the first", sample{10, 20}, 0.1, 11},
	} {
		t.Run(test.name, func(t *testing.T) { require.InDelta(t, test.want, test.s.quantile(test.q), 1e-9) })
	}
	require.True(t, math.IsNaN(sample{}.median()))
}

func TestQuantileLiesWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sample(rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "sample"))
		before := append(sample(nil), s...)
		low := rapid.Float64Range(0, 1).Draw(t, "low")
		high := rapid.Float64Range(low, 1).Draw(t, "high")
		require.LessOrEqual(t, s.least(), s.quantile(low)+1e-6)
		require.LessOrEqual(t, s.quantile(low), s.quantile(high)+1e-6)
		require.LessOrEqual(t, s.quantile(high), s.most()+1e-6)
		require.Equal(t, before, s, "a sample keeps its order")
	})
}

func TestWide(t *testing.T) {
	require.True(t, sample{100}.wide(), "one measurement says nothing of the spread")
	require.False(t, sample{90, 100, 140}.wide())
	require.True(t, sample{90, 100, 141}.wide())
}

func TestPer(t *testing.T) {
	require.Equal(t, sample{0.5, 4}, sample{1, 8}.per(sample{2, 2}))
	require.Equal(t, sample{2, 4}, sample{34, 68}.per(sample{17}), "one reference holds for all")
	require.Equal(t, sample{1, 2}, sample{2, 4, 6}.per(sample{2, 2}), "what has no partner is left out")
}

func TestAim(t *testing.T) {
	require.True(t, atLeast(0.1).met(0.1))
	require.False(t, atLeast(0.1).met(0.09))
	require.True(t, atMost(60).met(60))
	require.False(t, atMost(60).met(61))
}

func TestMedians(t *testing.T) {
	require.Equal(t, sample{2, 5}, sample{1, 2, 3, 4, 5, 6}.medians(2))
	require.Equal(t, sample{2, 5.5}, sample{1, 2, 3, 4, 5, 6, 7}.medians(2))
	require.Equal(t, sample{3}, sample{1, 2, 3, 4, 5}.medians(2))
	require.True(t, math.IsNaN(sample{}.medians(5)[0]))
}
