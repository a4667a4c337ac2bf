package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// family is figures that were measured at the same sizes.
type family struct {
	title  string
	of     string // what a size is a number of
	sizes  []int
	beyond int // the size that is calculated
	curves []curve
}

// curve is how one figure grows: a sample for each size of its family.
type curve struct {
	measure, unit string
	at            []sample
}

// newCurves returns curves without a size yet; names are measures and units by turns.
func newCurves(names ...string) []curve {
	curves := make([]curve, 0, len(names)/2)
	for i := 0; i < len(names); i += 2 {
		curves = append(curves, curve{measure: names[i], unit: names[i+1]})
	}
	return curves
}

// add appends the samples of the next size, one for each curve.
func (f *family) add(size int, samples ...sample) {
	f.sizes = append(f.sizes, size)
	for i := range f.curves {
		f.curves[i].at = append(f.curves[i].at, samples[i])
	}
}

// growing is the law of a curve over some of its sizes. What was not above zero
// at one of them has no law.
func (f family) growing(c curve, from int) powerLaw {
	var x, y []float64
	for i := from; i < len(f.sizes); i++ {
		x, y = append(x, float64(f.sizes[i])), append(y, c.at[i].median())
	}
	return fit(x, y)
}

// calculated is what a curve comes to at the size beyond those that were measured,
// when it goes on as it grew in its last step. What falls is taken to stay.
func (f family) calculated(c curve) float64 {
	last := len(f.sizes) - 1
	grows := 0.0
	if law := f.growing(c, last-1); law.exponent > 0 {
		grows = law.exponent
	}
	return c.at[last].median() * math.Pow(float64(f.beyond)/float64(f.sizes[last]), grows)
}

// table returns the lines of a family's table.
func (f family) table() [][]string {
	head := []string{"measured with so many " + f.of}
	for _, n := range f.sizes {
		head = append(head, thousands(n))
	}
	table := [][]string{append(head, "exponent (R²)", "last step", "calculated: "+thousands(f.beyond))}
	for _, c := range f.curves {
		cells := []string{c.measure}
		for _, s := range c.at {
			cells = append(cells, number(s.median())+c.unit)
		}
		whole, last := f.growing(c, 0), f.growing(c, len(f.sizes)-2)
		cells = append(cells, fmt.Sprintf("%s (%s)", exponent(whole.exponent), exponent(whole.r2)), exponent(last.exponent), number(f.calculated(c))+c.unit)
		table = append(table, cells)
	}
	return table
}

func exponent(e float64) string {
	if math.IsNaN(e) || math.IsInf(e, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f", e)
}

// thousands writes a number with a comma between each three digits.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func printFamilies(w io.Writer, families []family) {
	for i, f := range families {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n\n", f.title)
		printTable(w, f.table())
	}
}

// lines are the figures of all families for a file of results.
func familyLines(families []family) (lines []line) {
	for _, f := range families {
		for _, c := range f.curves {
			for i, s := range c.at {
				lines = append(lines, line{
					measure: strings.Join([]string{f.of, c.measure}, ": "), name: fmt.Sprintf("%s: %s/n=%d", f.of, c.measure, f.sizes[i]),
					figure: s, unit: c.unit,
				})
			}
		}
	}
	return lines
}
