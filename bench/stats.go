package main

import (
	"math"
	"slices"
)

// sample is one figure, measured several times.
type sample []float64

// quantile returns the value below which a share q of the sample lies, by
// linear interpolation between the two nearest; NaN of an empty sample.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// medians divides the sample, which is in the order of its measurement, into parts
// and returns the median of each, so that a figure of one run shows its spread. A
// sample with fewer than three for each part stays whole.
func (s sample) medians(parts int) sample {
	if len(s) < 3*parts {
		return sample{s.median()}
	}
	found := make(sample, parts)
	for i := range found {
		found[i] = s[i*len(s)/parts : (i+1)*len(s)/parts].median()
	}
	return found
}

func (s sample) median() float64 { return s.quantile(0.5) }
func (s sample) least() float64  { return s.quantile(0) }
func (s sample) most() float64   { return s.quantile(1) }

// wideSpread is the distance from the least to the most, as a share of the
// median, from which on a sample is too spread to be believed.
const wideSpread = 0.5

// wide reports whether the sample needs more repetitions.
func (s sample) wide() bool {
	return len(s) < 2 || s.most()-s.least() > wideSpread*math.Abs(s.median())
}

// per divides each measurement by its reference, which was measured next to it.
// Where one of the two was measured more often, the rest is left out; a
// reference of one measurement holds for all.
func (s sample) per(reference sample) sample {
	if len(reference) == 1 {
		reference = slices.Repeat(reference, len(s))
	}
	ratios := make(sample, min(len(s), len(reference)))
	for i := range ratios {
		ratios[i] = s[i] / reference[i]
	}
	return ratios
}

// aim is what a figure or a ratio ought to be.
type aim struct {
	most  bool // the bound is the most; otherwise the least
	bound float64
}

func atLeast(bound float64) *aim { return &aim{bound: bound} }
func atMost(bound float64) *aim  { return &aim{most: true, bound: bound} }

func (a aim) met(value float64) bool {
	if a.most {
		return value <= a.bound
	}
	return value >= a.bound
}
