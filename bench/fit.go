package main

import "math"

// powerLaw is y = factor·x^exponent.
type powerLaw struct {
	exponent, factor float64
	r2               float64 // share of the spread of log y that it explains, 0 to 1
}

// fit finds the power law nearest to the points, by least squares over their
// logarithms. It needs two points with different x, all numbers above zero;
// without, everything is NaN.
func fit(x, y []float64) powerLaw {
	n := float64(len(x))
	var sx, sy float64
	for i := range x {
		sx += math.Log(x[i])
		sy += math.Log(y[i])
	}
	mx, my := sx/n, sy/n
	var sxx, sxy, syy float64
	for i := range x {
		dx, dy := math.Log(x[i])-mx, math.Log(y[i])-my
		sxx += dx * dx
		sxy += dx * dy
		syy += dy * dy
	}
	law := powerLaw{exponent: sxy / sxx}
	law.factor = math.Exp(my - law.exponent*mx)
	law.r2 = 1
	if syy > 0 {
		law.r2 = sxy * sxy / (sxx * syy)
	}
	if math.IsNaN(law.exponent) {
		law.r2 = math.NaN()
	}
	return law
}

// at is the value of the law at x.
func (l powerLaw) at(x float64) float64 { return l.factor * math.Pow(x, l.exponent) }
