package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		x, y                 []float64
		exponent, factor, r2 float64
	}{
		"constant":               {[]float64{10, 100, 1000}, []float64{7, 7, 7}, 0, 7, 1},
		"linear":                 {[]float64{10, 100, 1000}, []float64{20, 200, 2000}, 1, 2, 1},
		"quadratic":              {[]float64{1, 2, 4, 8}, []float64{3, 12, 48, 192}, 2, 3, 1},
		"square root":            {[]float64{1, 4, 16}, []float64{5, 10, 20}, 0.5, 5, 1},
		"falling":                {[]float64{1, 10}, []float64{10, 1}, -1, 10, 1},
		"a start that costs":     {[]float64{10, 100, 1000}, []float64{10, 10, 100}, 0.5, math.Pow(10, 1.0/3), 0.75},
		"two of the same size":   {[]float64{10, 10, 1000}, []float64{1, 1, 100}, 1, 0.1, 1},
		"noise that cancels out": {[]float64{10, 10, 1000, 1000}, []float64{5, 20, 500, 2000}, 1, 1, 0.9169},
	} {
		t.Run(name, func(t *testing.T) {
			law := fit(c.x, c.y)
			require.InDelta(t, c.exponent, law.exponent, 1e-9)
			require.InDelta(t, c.factor, law.factor, 1e-9)
			require.InDelta(t, c.r2, law.r2, 1e-4)
		})
	}
	require.InDelta(t, 20000.0, fit([]float64{10, 100}, []float64{20, 200}).at(10_000), 1e-6)
	for name, x := range map[string][]float64{"no points": nil, "one point": {10}, "one size": {10, 10}} {
		t.Run(name, func(t *testing.T) {
			law := fit(x, make([]float64, len(x)))
			require.True(t, math.IsNaN(law.exponent), "%v", law)
			require.True(t, math.IsNaN(law.r2), "%v", law)
		})
	}
}

func TestFitFindsEveryLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := powerLaw{
			exponent: rapid.Float64Range(-2, 3).Draw(t, "exponent"),
			factor:   rapid.Float64Range(0.001, 1000).Draw(t, "factor"),
		}
		sizes := []float64{10, 50, 300, 4000}
		y := make([]float64, len(sizes))
		for i, x := range sizes {
			y[i] = want.at(x)
		}
		got := fit(sizes, y)
		if math.Abs(got.exponent-want.exponent) > 1e-6 || math.Abs(got.factor/want.factor-1) > 1e-6 {
			t.Fatalf("found %v, not %v", got, want)
		}
	})
}
