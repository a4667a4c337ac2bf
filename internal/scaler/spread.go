package scaler

import (
	"cmp"
	"math/bits"
	"slices"

	"tidewait/internal/oam"
)

// DefaultSpread is the name of the spread of a scaler that gives none.
const DefaultSpread = "default"

// Share is what one spread gets of a scaler's instances.
type Share struct {
	Spread       string
	Requirements map[string]string // labels that a host must have
	Count        int
}

// Shares divides instances over spreads by weight, and returns them by weight,
// the heaviest first; spreads of equal weight stay in their order. What does not
// divide goes to the heaviest, one each. When all weights are zero they are
// equal. Without spreads everything goes to one that any host suits. Negative
// numbers count as zero.
func Shares(instances int, spreads []oam.SpreadTarget) []Share {
	instances = max(instances, 0)
	if len(spreads) == 0 {
		return []Share{{Spread: DefaultSpread, Count: instances}}
	}
	order := slices.Clone(spreads)
	slices.SortStableFunc(order, func(a, b oam.SpreadTarget) int { return cmp.Compare(weight(b), weight(a)) })

	total := uint64(0)
	for _, s := range order {
		total += weight(s)
	}
	shares := make([]Share, len(order))
	left := instances
	for i, s := range order {
		shares[i] = Share{Spread: s.Name, Requirements: s.Requirements}
		if total > 0 {
			shares[i].Count = portion(instances, weight(s), total)
			left -= shares[i].Count
		}
	}
	for i := range shares {
		// The rest is less than one each, unless all weights are zero.
		extra := left / len(shares)
		if i < left%len(shares) {
			extra++
		}
		shares[i].Count += extra
	}
	return shares
}

// mostWeight bounds a weight, so that no number of them overflows a sum.
const mostWeight = 1 << 40

func weight(s oam.SpreadTarget) uint64 {
	if s.Weight == nil {
		return oam.DefaultWeight
	}
	return uint64(min(max(*s.Weight, 0), mostWeight))
}

// portion is instances*weight/total, rounded down, without overflowing.
func portion(instances int, weight, total uint64) int {
	hi, lo := bits.Mul64(uint64(instances), weight)
	share, _ := bits.Div64(hi, lo, total)
	return int(share)
}

// Eligible reports whether a host with such labels meets the requirements: it
// has each label, with that value.
func Eligible(labels, requirements map[string]string) bool {
	for label, want := range requirements {
		if have, ok := labels[label]; !ok || have != want {
			return false
		}
	}
	return true
}
