package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// enough is how many measurements of a figure each side needs for a difference to
// be told from noise at all, by the test that benchstat uses.
const enough = 4

// verdict is what the difference of one figure amounts to.
type verdict int

const (
	inNoise   verdict = iota // the difference may be chance
	regressed                // worse, and not by chance
	improved
	unjudged // measured too seldom
	equal
)

// difference is one figure of two files.
type difference struct {
	name, unit  string
	before, now float64
	delta       string // as benchstat prints it
	p           string // likewise, with the number of measurements
	verdict     verdict
}

// compare prints benchstat's tables of two files of results, and then in words
// what got worse, what got better, and what is inside the noise.
func compare(ctx context.Context, benchstat, before, now string, out io.Writer) error {
	run := func(args ...string) ([]byte, error) {
		// Tables are told apart by package: machine, load and date are said, not compared.
		cmd := exec.CommandContext(ctx, benchstat, append(append([]string{"-table", "pkg"}, args...), before, now)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		data, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("compare %s with %s: %w: %s", before, now, err, strings.TrimSpace(stderr.String()))
		}
		return data, nil
	}
	for _, path := range []string{before, now} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("there are no results to compare: %w; make bench writes them", err)
		}
	}
	text, err := run()
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	table, err := run("-format", "csv")
	if err != nil {
		return err
	}
	all, err := differences(table)
	if err != nil {
		return err
	}
	return tell(out, all)
}

var errNoFigures = errors.New("the two files have no figure in common")

// differences reads benchstat's CSV.
func differences(table []byte) (all []difference, err error) {
	r := csv.NewReader(bytes.NewReader(table))
	r.FieldsPerRecord = -1
	unit := ""
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read what benchstat printed: %w", err)
		}
		switch {
		case len(row) == 7 && row[2] == "CI":
			unit = row[1]
		case len(row) == 7 && row[0] != "" && row[0] != "geomean":
			if d, ok := judge(row, unit); ok {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return nil, errNoFigures
	}
	return all, nil
}

// judge reads name, old, CI, new, CI, difference and p of one figure. It is none
// when one of the files does not have it.
func judge(row []string, unit string) (difference, bool) {
	d := difference{name: strings.TrimPrefix(row[0], "Tidewait/"), unit: unit, delta: row[5], p: row[6]}
	var errs [2]error
	d.before, errs[0] = strconv.ParseFloat(row[1], 64)
	d.now, errs[1] = strconv.ParseFloat(row[3], 64)
	if errs[0] != nil || errs[1] != nil {
		return d, false
	}
	better := d.now < d.before
	if moreIsBetter[unit] {
		better = !better
	}
	switch {
	case d.before == d.now:
		d.verdict = equal
	case d.delta == "~" && measurements(d.p) < enough:
		d.verdict = unjudged
	case d.delta == "~":
		d.verdict = inNoise
	case better:
		d.verdict = improved
	default:
		d.verdict = regressed
	}
	return d, true
}

// moreIsBetter are the units of rates.
var moreIsBetter = map[string]bool{"1/s": true, "x-rate": true, "MB/s": true, "req/s": true}

// measurements reads the number of the side with fewer of them from "p=0.008 n=5"
// or "p=0.1 n=3+4".
func measurements(p string) int {
	_, text, _ := strings.Cut(p, "n=")
	least := 0
	for part := range strings.SplitSeq(text, "+") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return 0
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least
}

// tell says in words what the differences amount to.
func tell(out io.Writer, all []difference) error {
	of := func(v verdict) []difference {
		return slices.DeleteFunc(slices.Clone(all), func(d difference) bool { return d.verdict != v })
	}
	var b strings.Builder
	list := func(title string, some []difference) {
		fmt.Fprintf(&b, "\n%s: %d\n", title, len(some))
		for _, d := range some {
			fmt.Fprintf(&b, "  %-72s %s → %s %s  %s (%s)\n", d.name, number(d.before), number(d.now), d.unit, change(d), d.p)
		}
	}
	list("Regressions, worse and not by chance (p < 0.05)", of(regressed))
	list("Improvements, better and not by chance", of(improved))
	list("Measured fewer than 4 times, so that nothing can be said", of(unjudged))
	fmt.Fprintf(&b, "\nInside the noise: %d, which is no difference\nThe same: %d\n", len(of(inNoise)), len(of(equal)))
	_, err := io.WriteString(out, b.String())
	return err
}

// change is a difference in percent, whether or not it means anything.
func change(d difference) string {
	if d.delta != "~" {
		return d.delta
	}
	return fmt.Sprintf("%+.1f%%", 100*(d.now/d.before-1))
}
