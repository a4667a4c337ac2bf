package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"tidewait/internal/release"
)

// results is a file of figures in the format of Go's benchmarks, which benchstat
// reads: one line for each measurement of a figure, and one for each ratio to its
// reference.
type results struct {
	w io.WriteCloser
}

// saveTo begins such a file, or goes on with it when it is there. What it was
// measured on stands before the figures.
func saveTo(path string, machine []string) (*results, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // it is to be read by others
	if err != nil {
		return nil, err
	}
	head := []string{
		"goos: " + runtime.GOOS, "goarch: " + runtime.GOARCH, "cpu: " + cpuModel(), "pkg: tidewait/bench",
		"release: " + release.BuildID(), "measured: " + time.Now().UTC().Format(time.DateTime),
	}
	for i, line := range machine {
		head = append(head, fmt.Sprintf("machine-%d: %s", i+1, line))
	}
	head = append(head, "Unit 1/s better=higher", "Unit x-rate better=higher", "Unit events assume=exact")
	_, err = fmt.Fprintln(file, strings.Join(head, "\n"))
	return &results{w: file}, err
}

// section writes the figures of a section, with the load that they were measured
// under.
func (r *results) section(name, load string, lines []line) error {
	if _, err := fmt.Fprintf(r.w, "load-%s: %s\n", name, load); err != nil {
		return err
	}
	seen := map[string]bool{}
	keys := benchKeys(lines)
	for i, l := range lines {
		figure := "BenchmarkTidewait/" + name + "/" + keys[i]
		unit, scale := benchUnit(l.unit)
		if !seen[figure] { // several lines may compare one figure
			seen[figure] = true
			if err := r.write(figure, l.figure, scale, unit); err != nil {
				return err
			}
		}
		if len(l.known) > 0 && !seen[figure+l.reference] {
			seen[figure+l.reference] = true
			if err := r.write(figure+"/vs="+slug(l.reference), l.figure.per(l.known), 1, ratioUnit(unit)); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchKeys are the parts of names that tell the figures of a section apart. A line
// that says "the same" or "of that" is about the one before it that does not.
func benchKeys(lines []line) []string {
	keys := make([]string, len(lines))
	about := ""
	for i, l := range lines {
		keys[i] = slug(l.key())
		first, _, _ := strings.Cut(l.measure, " ")
		if about != "" && (first == "the" && strings.HasPrefix(l.measure, "the same") || first == "of" || first == "its" || first == "that") {
			keys[i] = about + "/" + keys[i]
		} else {
			about = keys[i]
		}
	}
	return keys
}

func (r *results) write(name string, figure sample, scale float64, unit string) error {
	for _, value := range figure {
		if value != value { // not a number: there was nothing to measure
			continue
		}
		if _, err := fmt.Fprintf(r.w, "%s 1 %g %s\n", name, value*scale, unit); err != nil {
			return err
		}
	}
	return nil
}

func (r *results) close() error {
	if r == nil {
		return nil
	}
	return r.w.Close()
}

// benchUnit is what benchstat calls a unit, and by what a figure has to be
// multiplied for it.
func benchUnit(unit string) (name string, scale float64) {
	switch unit {
	case "/s":
		return "1/s", 1
	case " ms":
		return "sec", 1e-3
	case " s":
		return "sec", 1
	case " MiB":
		return "B", 1 << 20
	case " KiB":
		return "B", 1 << 10
	case " %":
		return "percent", 1
	case " events":
		return "events", 1
	}
	return "count", 1
}

// ratioUnit tells rates, of which more is better, from everything else.
func ratioUnit(unit string) string {
	if unit == "1/s" {
		return "x-rate"
	}
	return "x"
}

// slug makes words a part of a benchmark's name.
func slug(words string) string {
	words = strings.ReplaceAll(words, "→", "to")
	fields := strings.FieldsFunc(strings.ToLower(words), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(fields, "_")
}

// machine says what is measured on, one line for each thing.
func (b *bench) machine() []string {
	lines := []string{fmt.Sprintf("%s, %d processors, Linux %s; %s", cpuModel(), runtime.NumCPU(), kernelRelease(), runtime.Version())}
	for _, command := range [][]string{
		{"postgres", "--version"},
		{b.program("temporal"), "--version"},
		{"qemu-system-x86_64", "--version"},
		{"git", "--version"},
	} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if first, _, _ := strings.Cut(string(out), "\n"); err == nil {
			lines = append(lines, first)
		}
	}
	return lines
}
