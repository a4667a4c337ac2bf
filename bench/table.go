package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// line is one line of a section's table.
type line struct {
	measure   string
	name      string // for comparisons, where the measure has numbers that differ from run to run; empty: the measure
	figure    sample
	unit      string // such as "/s" or " ms"
	reference string // what it is compared with; empty: nothing
	known     sample // the reference's figure, in the same unit
	aim       *aim   // of the ratio, or of the figure where there is no reference
	absolute  bool   // the aim is the figure's although there is a reference
}

func (l line) key() string { return cmp.Or(l.name, l.measure) }

// newTable returns the lines of a table in Markdown's form.
func newTable(lines []line) [][]string {
	table := [][]string{{"measure", "median (min–max)", "reference", "median (min–max)", "ratio (min–max)", "aim", "met"}}
	for _, l := range lines {
		table = append(table, l.cells())
	}
	return table
}

func (l line) cells() []string {
	cells := []string{l.measure, spread(l.figure, l.unit), l.reference, "", "", "", ""}
	judged := l.figure.median()
	unit := l.unit
	if len(l.known) > 0 {
		ratio := l.figure.per(l.known)
		cells[3], cells[4] = spread(l.known, l.unit), spread(ratio, " ×")
		if !l.absolute {
			judged, unit = ratio.median(), " ×"
		}
	}
	if l.aim != nil {
		sign := "≥ "
		if l.aim.most {
			sign = "≤ "
		}
		cells[5] = sign + number(l.aim.bound) + unit
		cells[6] = "no"
		if l.aim.met(judged) {
			cells[6] = "yes"
		}
	}
	return cells
}

// spread is a sample as its median and what it lies between.
func spread(s sample, unit string) string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return number(s[0]) + unit
	}
	return fmt.Sprintf("%s%s (%s–%s)", number(s.median()), unit, number(s.least()), number(s.most()))
}

// number shows three significant digits, and whole numbers whole.
func number(f float64) string {
	switch size := math.Abs(f); {
	case math.IsNaN(f):
		return "–"
	case f == math.Trunc(f) || size >= 100:
		return fmt.Sprintf("%.0f", f)
	case size >= 10:
		return fmt.Sprintf("%.1f", f)
	case size >= 0.1:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.3f", f)
}

// printTable writes a table with aligned columns; the first line is its head.
func printTable(w io.Writer, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	for i, cells := range table {
		printCells(w, cells, widths)
		if i == 0 {
			rule := make([]string, len(cells))
			for j := range rule {
				rule[j] = strings.Repeat("-", widths[j])
			}
			printCells(w, rule, widths)
		}
	}
}

func printCells(w io.Writer, cells []string, widths []int) {
	for i, cell := range cells {
		fmt.Fprint(w, "| ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)), " ")
	}
	fmt.Fprintln(w, "|")
}
