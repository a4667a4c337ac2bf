// Command bench measures Tidewait's speed and memory, each figure beside a
// reference that is measured in the same run, and prints one table a section.
// It starts everything it needs and cleans up after itself. See README.md for
// how to read the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tidewait/internal/devstack"
)

func main() {
	devstack.MaybeRunNATS()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// section is one question and the tables that answer it.
type section struct {
	name, title string
	measure     func(context.Context, *bench) ([]line, error)
	// grow is in place of measure where the answer is how something grows. It takes
	// long, and is measured only when it is asked for.
	grow func(context.Context, *bench) ([]family, error)
}

var sections = []section{
	{name: "placements", title: "Placements, 1,000 nodes", measure: placements},
	{name: "phases", title: "Phases, end to end, no-op command on the process backend", measure: phases},
	{name: "history", title: "History events", measure: history},
	{name: "freed", title: "From freed capacity to the phase that waited for it", measure: freed},
	{name: "microvm", title: "A job in a microVM, booted and from a snapshot, and as a process", measure: microVMJobs},
	{name: "waiting", title: "Phases that wait, through Temporal", measure: waitingPhases},
	{name: "applications", title: "The API of applications, 1,000 stored", measure: applications},
	{name: "reconcile", title: "Applications kept true, simulated hosts", measure: reconcile},
	{name: "queue", title: "10,000 waiting phases at the store and the placer", measure: longQueue},
	{name: "growth", title: "Growth", grow: growth},
}

// bench is what sections share.
type bench struct {
	bin   string // directory of the product's programs
	dir   string // of this run; removed at the end
	quick bool   // whether it works, not how fast
	short bool   // fewer repetitions at the same sizes
	saved *results
	wadm  string    // a wadm to measure beside; empty: none
	tries int       // refused tries of the wait whose events are counted
	out   io.Writer // tables
	note  io.Writer // progress
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == "compare" {
		return runCompare(ctx, args[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "sections to measure, by name or number, separated by commas")
	quick := flags.Bool("quick", false, "few repetitions and small counts: whether it works, not how fast")
	short := flags.Bool("short", false, "fewer repetitions at the same sizes: all of it takes a quarter of an hour")
	save := flags.String("save", "", "file to append the figures to, in the format of Go's benchmarks")
	bin := flags.String("bin", "", "directory with tidewait-worker, tidewait-guest and temporal (default: the repository's bin)")
	tries := flags.Int("tries", 120, "refused tries of the wait whose events are counted; 720 are a wait of two hours, and take twelve minutes")
	wadm := flags.String("wadm", "", "a program of wadm 0.21 to measure beside in the section applications")
	profile := flags.String("cpuprofile", "", "file for a CPU profile of this program, which is the store and the placer in the sections 1 and 9")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *profile != "" {
		stop, err := profileTo(*profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	chosen, err := choose(*only, flags.Args())
	if err != nil {
		return err
	}
	b := &bench{bin: *bin, quick: *quick, short: *short, wadm: *wadm, tries: *tries, out: os.Stdout, note: os.Stderr}
	if err := b.findPrograms(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := os.Chmod(b.dir, 0o755); err != nil { //nolint:gosec // Postgres's own user must pass through
		return err
	}
	for _, text := range b.machine() {
		fmt.Fprintln(b.out, text)
	}
	if *save != "" {
		if b.saved, err = saveTo(*save, b.machine()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.saved.close()) }()
	}
	for _, s := range chosen {
		if err := b.section(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// profileTo profiles this program until stop is called.
func profileTo(path string) (stop func() error, err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// choose returns the sections that were asked for, as a list and as further words;
// without either all that are not measured apart.
func choose(only string, words []string) ([]section, error) {
	if only != "" {
		words = append(strings.Split(only, ","), words...)
	}
	if len(words) == 0 {
		return slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return s.grow != nil }), nil
	}
	var chosen []section
	for _, word := range words {
		word = strings.TrimSpace(word)
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == word })
		if n, err := strconv.Atoi(word); err == nil && n >= 1 && n <= len(sections) {
			i = n - 1
		}
		if i < 0 {
			return nil, fmt.Errorf("there is no section %q; there are %s", word, sectionNames())
		}
		chosen = append(chosen, sections[i])
	}
	return chosen, nil
}

// runCompare is the command line of compare.
func runCompare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	benchstat := flags.String("benchstat", "benchstat", "the program benchstat")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("compare wants two files of results: that of before, and the new one")
	}
	return compare(ctx, *benchstat, flags.Arg(0), flags.Arg(1), os.Stdout)
}

func sectionNames() string {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = fmt.Sprintf("%d %s", i+1, s.name)
	}
	return strings.Join(names, ", ")
}

// findPrograms looks for the programs that make build and make deps leave.
func (b *bench) findPrograms() error {
	if b.bin == "" {
		root, err := moduleRoot()
		if err != nil {
			return err
		}
		b.bin = filepath.Join(root, "bin")
	}
	for _, name := range []string{"tidewait-worker", "tidewait-guest", "temporal"} {
		if _, err := os.Stat(filepath.Join(b.bin, name)); err != nil {
			return fmt.Errorf("there is no %s in %s: run make deps build", name, b.bin)
		}
	}
	return nil
}

func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }

// moduleRoot is the directory with go.mod, at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run it inside the repository, or name the programs' directory with -bin")
		}
		dir = filepath.Dir(dir)
	}
}

func (b *bench) section(ctx context.Context, s section) error {
	before := loadAverage()
	began := time.Now()
	var lines []line
	var families []family
	var err error
	if s.grow != nil {
		families, err = s.grow(ctx, b)
	} else {
		lines, err = s.measure(ctx, b)
	}
	if err != nil {
		return err
	}
	number := slices.IndexFunc(sections, func(other section) bool { return other.name == s.name }) + 1
	fmt.Fprintf(b.out, "\n## %d. %s\n\nTook %s; load average %s before, %s after, on %d processors.\n\n",
		number, s.title, time.Since(began).Round(time.Second), before, loadAverage(), runtime.NumCPU())
	if s.grow != nil {
		printFamilies(b.out, families)
		lines = familyLines(families)
	} else {
		printTable(b.out, newTable(lines))
	}
	if b.saved == nil {
		return nil
	}
	return b.saved.section(s.name, before, lines)
}

// say tells a person who watches what happens.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.note, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// pick returns the usual count, or the small one of a quick run.
func (b *bench) pick(usual, quick int) int {
	if b.quick {
		return quick
	}
	return usual
}

// rounds returns the usual number of rounds, or just enough of them for a comparison.
func (b *bench) rounds(usual, quick int) int {
	if b.short {
		return enough
	}
	return b.pick(usual, quick)
}

// repetitions is for what is only done often for the sake of precision, and for
// seconds in which something is watched.
func (b *bench) repetitions(usual, quick int) int {
	if b.short {
		return max(quick, usual*2/5)
	}
	return b.pick(usual, quick)
}

// parts is into how many a sample of latencies is divided; see [sample.medians].
const parts = 5

// repeat runs rounds: as many as asked for, and up to twice as many while wide
// says that what was measured is too spread to be believed.
func (b *bench) repeat(ctx context.Context, rounds int, round func(context.Context, int) error, wide func() bool) error {
	for i := 0; i < rounds || (!b.quick && !b.short && i < 2*rounds && wide()); i++ {
		if err := round(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

func kernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for text := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(text, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
