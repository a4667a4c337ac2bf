package scaler

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func anyDemands(t *rapid.T) (demands []demand, owner []int) {
	owner = make([]int, rapid.IntRange(0, 6).Draw(t, "hosts"))
	for h := range owner {
		owner[h] = nobody
	}
	for d := range rapid.IntRange(0, 4).Draw(t, "demands") {
		x := demand{count: rapid.IntRange(1, 9).Draw(t, "count"), need: 1}
		if rapid.Bool().Draw(t, "provider") {
			x.need = x.count
		}
		for h := range owner {
			if rapid.Bool().Draw(t, "suits") {
				x.hosts = append(x.hosts, h)
				if owner[h] == nobody && rapid.IntRange(0, 2).Draw(t, "has") == 0 {
					owner[h] = d
				}
			}
		}
		demands = append(demands, x)
	}
	return demands, owner
}

// satisfiable is the most that can be had of all needs, by trying everything.
func satisfiable(demands []demand, h, hosts int, left []int) int {
	if h == hosts {
		return 0
	}
	best := satisfiable(demands, h+1, hosts, left)
	for d := range demands {
		if left[d] > 0 && slices.Contains(demands[d].hosts, h) {
			left[d]--
			best = max(best, 1+satisfiable(demands, h+1, hosts, left))
			left[d]++
		}
	}
	return best
}

func TestMatchSatisfiesAsMuchAsCanBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demands, owner := anyDemands(t)
		before := slices.Clone(owner)
		var needs []int
		for _, d := range demands {
			needs = append(needs, d.need)
		}
		most := satisfiable(demands, 0, len(owner), needs)

		match(demands, owner)

		got, had := make([]int, len(demands)), make([]int, len(demands))
		for h, d := range owner {
			if d != nobody {
				require.Contains(t, demands[d].hosts, h, "a host that does not suit")
				got[d]++
			}
			if before[h] != nobody {
				had[before[h]]++
				require.NotEqual(t, nobody, d, "a host was given up for nothing")
			}
		}
		sum := 0
		for d := range demands {
			sum += min(got[d], demands[d].need)
			require.GreaterOrEqual(t, got[d], min(had[d], demands[d].need), "a need that was met is not any more")
		}
		require.Equal(t, most, sum)

		again := slices.Clone(owner)
		match(demands, again)
		require.Equal(t, owner, again, "not the same when done again")
	})
}

func TestWidenGivesFreeHostsToThoseWithMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demands, owner := anyDemands(t)
		match(demands, owner)
		before := slices.Clone(owner)
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for h := range owner {
				if !yield(h) {
					return
				}
			}
		})).Draw(t, "order")

		widen(demands, owner, order)

		count := func(owners []int, d int) (n int) {
			for _, o := range owners {
				if o == d {
					n++
				}
			}
			return n
		}
		for h := range owner {
			if before[h] != nobody {
				require.Equal(t, before[h], owner[h], "a host that was not free")
			}
		}
		for d, x := range demands {
			had, has := count(before, d), count(owner, d)
			require.LessOrEqual(t, has, max(had, x.count), "more hosts than instances")
			if had == 0 {
				require.Zero(t, has)
				continue
			}
			for _, h := range x.hosts {
				require.True(t, owner[h] != nobody || has >= x.count, "a host stays free that suits")
			}
		}
	})
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		have []int
		by   int
		want []int
	}{
		{nil, 3, nil},
		{[]int{0}, 3, []int{3}},
		{[]int{0, 0, 0}, 7, []int{3, 2, 2}},
		{[]int{5, 0, 1}, 3, []int{5, 2, 2}},
		{[]int{2, 2, 0}, 1, []int{2, 2, 1}},
		{[]int{3, 3, 3}, -1, []int{3, 3, 2}},
		{[]int{9, 1, 4}, -6, []int{4, 1, 3}},
		{[]int{2, 2}, -4, []int{0, 0}},
		{[]int{2, 2}, 0, []int{2, 2}},
	} {
		have := slices.Clone(c.have)
		level(have, c.by)
		require.Equal(t, c.want, have, "%v by %d", c.have, c.by)
	}
}

// One at a time, to where there is least, or from where there is most, comes out
// the same.
func TestLevelIsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 8).Draw(t, "have")
		sum := 0
		for _, n := range have {
			sum += n
		}
		by := rapid.IntRange(-sum, 60).Draw(t, "by")

		want := slices.Clone(have)
		for range max(by, 0) {
			want[slices.Index(want, slices.Min(want))]++
		}
		for range max(-by, 0) {
			want[slices.Index(want, slices.Max(want))]--
		}
		got := slices.Clone(have)
		level(got, by)

		require.Equal(t, slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got)))
		for i := range got {
			require.GreaterOrEqual(t, got[i], min(have[i], have[i]+by))
			require.LessOrEqual(t, got[i], max(have[i], have[i]+by))
		}
	})
}
