package scaler_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
)

func weighted(weights ...int) []oam.SpreadTarget {
	spreads := make([]oam.SpreadTarget, len(weights))
	for i := range weights {
		spreads[i] = oam.SpreadTarget{Name: fmt.Sprintf("s%d", i+1), Weight: &weights[i]}
	}
	return spreads
}

func counts(shares []scaler.Share) string {
	text := ""
	for _, s := range shares {
		text += fmt.Sprintf("%s %d, ", s.Spread, s.Count)
	}
	return text
}

func TestShares(t *testing.T) {
	absent := []oam.SpreadTarget{{Name: "s1"}, {Name: "s2"}}
	for _, c := range []struct {
		instances int
		spreads   []oam.SpreadTarget
		want      string
	}{
		{12, nil, "default 12, "},
		{1, weighted(100), "s1 1, "},
		{10, weighted(100, 100), "s1 5, s2 5, "},
		{10, absent, "s1 5, s2 5, "},
		{7, weighted(30, 40), "s2 4, s1 3, "},
		{7, weighted(100, 100), "s1 4, s2 3, "},
		{103, weighted(42, 3, 37, 384), "s4 85, s1 10, s3 8, s2 0, "},
		{103, weighted(42, 3, 37), "s1 53, s3 47, s2 3, "},
		{412, weighted(50, 25, 25), "s1 206, s2 103, s3 103, "},
		{9, weighted(33, 33, 33), "s1 3, s2 3, s3 3, "},
		{12, weighted(25, 25, 50), "s3 6, s1 3, s2 3, "},
		{5, weighted(40, 40, 20), "s1 2, s2 2, s3 1, "},
		{5, weighted(40, 40), "s1 3, s2 2, "},
		{3, weighted(40, 20), "s1 2, s2 1, "},
		{2, weighted(1, 1, 1, 1), "s1 1, s2 1, s3 0, s4 0, "},
		{1, weighted(10, 90), "s2 1, s1 0, "},
		{0, weighted(3, 5), "s2 0, s1 0, "},
		{0, nil, "default 0, "},
		// A weight that is not given is 100.
		{4, append(weighted(300), oam.SpreadTarget{Name: "s2"}), "s1 3, s2 1, "},
		// What wadm dies of.
		{5, weighted(0, 0), "s1 3, s2 2, "},
		{-3, weighted(1, 2), "s2 0, s1 0, "},
		{3, weighted(-1, 1), "s2 3, s1 0, "},
		{math.MaxInt, weighted(math.MaxInt, math.MaxInt), "s1 4611686018427387904, s2 4611686018427387903, "},
	} {
		t.Run(fmt.Sprintf("%d over %d", c.instances, len(c.spreads)), func(t *testing.T) {
			require.Equal(t, c.want, counts(scaler.Shares(c.instances, c.spreads)))
		})
	}
}

func TestSharesKeepRequirementsAndInput(t *testing.T) {
	light, heavy := 1, 2
	spreads := []oam.SpreadTarget{
		{Name: "us", Requirements: map[string]string{"zone": "us"}, Weight: &light},
		{Name: "eu", Requirements: map[string]string{"zone": "eu"}, Weight: &heavy},
	}
	require.Equal(t, []scaler.Share{
		{Spread: "eu", Requirements: map[string]string{"zone": "eu"}, Count: 2},
		{Spread: "us", Requirements: map[string]string{"zone": "us"}, Count: 1},
	}, scaler.Shares(3, spreads))
	require.Equal(t, "us", spreads[0].Name, "the manifest's order was changed")
}

func TestSharesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instances := rapid.IntRange(0, 10_000).Draw(t, "instances")
		spreads := weighted(rapid.SliceOfN(rapid.IntRange(0, 500), 1, 8).Draw(t, "weights")...)
		for i := range spreads {
			if rapid.IntRange(0, 4).Draw(t, "absent") == 0 {
				spreads[i].Weight = nil
			}
		}
		weight := func(name string) int {
			i := slices.IndexFunc(spreads, func(s oam.SpreadTarget) bool { return s.Name == name })
			if spreads[i].Weight == nil {
				return 100
			}
			return *spreads[i].Weight
		}
		position := func(name string) int {
			return slices.IndexFunc(spreads, func(s oam.SpreadTarget) bool { return s.Name == name })
		}

		shares := scaler.Shares(instances, spreads)

		require.Len(t, shares, len(spreads))
		sum := 0
		for i, s := range shares {
			sum += s.Count
			require.GreaterOrEqual(t, s.Count, 0)
			if i == 0 {
				continue
			}
			before := shares[i-1]
			require.GreaterOrEqual(t, weight(before.Spread), weight(s.Spread), "not by weight")
			require.GreaterOrEqual(t, before.Count, s.Count, "less for more weight")
			if weight(before.Spread) == weight(s.Spread) {
				require.Less(t, position(before.Spread), position(s.Spread), "not stable")
				require.LessOrEqual(t, before.Count-s.Count, 1, "unequal for equal weights")
			}
		}
		require.Equal(t, instances, sum)
		require.Equal(t, shares, scaler.Shares(instances, spreads), "not the same twice")
	})
}

func TestEligible(t *testing.T) {
	labels := map[string]string{"zone": "eu", "disk": "ssd", "empty": ""}
	require.True(t, scaler.Eligible(labels, nil))
	require.True(t, scaler.Eligible(labels, map[string]string{}))
	require.True(t, scaler.Eligible(nil, nil))
	require.True(t, scaler.Eligible(labels, map[string]string{"zone": "eu"}))
	require.True(t, scaler.Eligible(labels, map[string]string{"zone": "eu", "disk": "ssd"}))
	require.True(t, scaler.Eligible(labels, map[string]string{"empty": ""}))
	require.False(t, scaler.Eligible(labels, map[string]string{"zone": "eu", "disk": "hdd"}))
	require.False(t, scaler.Eligible(labels, map[string]string{"zone": "EU"}), "values are compared as they are")
	require.False(t, scaler.Eligible(labels, map[string]string{"gpu": ""}), "an absent label is not an empty one")
	require.False(t, scaler.Eligible(nil, map[string]string{"zone": "eu"}))
}
