package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/negctl"
	"tidewait/internal/render"
)

func negctlCommand(c *cli) *cobra.Command {
	n := &negctlRun{cli: c}
	var list bool
	cmd := &cobra.Command{
		Use:   "negctl",
		Short: "Provoke what must fail, and see it fail in its own way",
		Long: `Start a stack of its own with real worker processes, and provoke the negative
controls on it one after another: refusals, waits, bounds, races and faults. Each
must fail in its own way, with the literal code, rows and exit code. Exit code 0
says that all of them did, 1 that one did not. It takes about three minutes.

With --sabotage one of the product's safeties is taken out first, in the database
of that stack or in programs built for it from the source tree. Exit code 0 says
then that exactly the controls that guard it noticed.`,
		Example: "  tidewait negctl\n  tidewait negctl --only 3,5\n  tidewait negctl --sabotage drop-check\n  tidewait negctl --list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if n.settings, err = c.load(cmd); err != nil {
				return err
			}
			if n.controls, err = negctl.Select(n.only); err != nil {
				return usage("%w", err)
			}
			switch {
			case list:
				return n.list()
			case n.sabotage != "":
				return n.sabotages(cmd.Context())
			}
			return n.plain(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&list, "list", false, "list the controls and the sabotages, run nothing")
	flags.StringSliceVar(&n.only, "only", nil, "ids of controls; a number stands for all that begin with it")
	flags.BoolVar(&n.keep, "keep", false, "leave the stack running until Ctrl-C, to look around")
	flags.StringVar(&n.sabotage, "sabotage", "", "the safety to take out, or all, one after another")
	flags.StringVar(&n.source, "source", ".", "source tree from which a sabotage builds its programs")
	flags.BoolVar(&n.variant, "variant", false, "this program is such a variant")
	_ = flags.MarkHidden("variant") // the flag is there
	var names []string
	for _, s := range negctl.Sabotages() {
		names = append(names, s.Name)
	}
	mustComplete(cmd, "sabotage", append(names, "all"))
	return cmd
}

// negctlRun is one run of the negative controls.
type negctlRun struct {
	*cli
	settings config.Settings
	controls []negctl.Control
	only     []string
	keep     bool
	sabotage string
	source   string
	variant  bool
}

// negctlReport is what a run prints with -o json or yaml.
type negctlReport struct {
	OK       bool            `json:"ok"`
	Took     time.Duration   `json:"took"` // nanoseconds
	Controls []negctl.Result `json:"controls"`
}

// plain runs the controls on the product as it is.
func (n *negctlRun) plain(ctx context.Context) error {
	report, err := n.controlsOn(ctx, nil)
	if err != nil {
		return err
	}
	if n.structured() {
		if err := n.print(report, time.Now(), nil); err != nil {
			return err
		}
	}
	failedOnes := negctl.Failed(report.Controls)
	if n.variant {
		return nil // whoever started it judges
	}
	if len(failedOnes) > 0 {
		return failed("%s did not fail in the way it must: %s", counted(len(failedOnes), "control"), strings.Join(failedOnes, ", "))
	}
	n.say("all %d controls failed in their own way, in %s", len(report.Controls), report.Took.Round(time.Second))
	return nil
}

// controlsOn runs the controls on a stack whose database a sabotage has changed;
// nil: none has.
func (n *negctlRun) controlsOn(ctx context.Context, s *negctl.Sabotage) (negctlReport, error) {
	worker, err := workerPath()
	if err != nil {
		return negctlReport{}, failed("%w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return negctlReport{}, failed("%w", err)
	}
	o := negctl.Options{
		Controls: n.controls, Settings: n.settings, Tidewait: self, Worker: worker, Log: n.log(), Sabotage: s, Variant: n.variant,
		Steps: func(line string) { n.note("· %s", line) },
		Began: n.showBegun, Ended: n.showResult,
	}
	if n.keep {
		o.Keep = func(dir string, env []string) {
			n.note("\nThe stack is in %s; Ctrl-C stops it. In another terminal:\n\n  export %s", dir, exports(env))
			<-ctx.Done()
		}
	}
	began := time.Now()
	results, err := negctl.Run(ctx, o)
	switch {
	case errors.Is(err, context.Canceled):
		return negctlReport{}, interrupted("interrupted; the stack is stopped")
	case err != nil:
		return negctlReport{}, failed("%w", err)
	}
	return negctlReport{OK: len(negctl.Failed(results)) == 0, Took: time.Since(began), Controls: results}, nil
}

// showBegun shows at a terminal which control is run; its result takes that line.
func (n *negctlRun) showBegun(c negctl.Control) {
	if width := n.terminal(); width > 0 && !n.structured() {
		line := []rune(fmt.Sprintf("%-10s %s …", c.ID, c.Provoked))
		fmt.Fprint(n.out, "\r\x1b[K"+string(line[:min(len(line), width-1)]))
	}
}

// showResult prints the result of a control: for people, or as progress beside what is
// printed in the end.
func (n *negctlRun) showResult(r negctl.Result) {
	if n.structured() {
		n.note("%s", strings.TrimSuffix(negctlText(r), "\n"))
		return
	}
	if n.terminal() > 0 {
		fmt.Fprint(n.out, "\r\x1b[K")
	}
	fmt.Fprint(n.out, negctlText(r))
}

func negctlText(r negctl.Result) string {
	verdict := "ok"
	switch {
	case !r.OK:
		verdict = "FAILED"
	case r.NotRun != "":
		verdict = "not run"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %s\n           → %s\n           %s in %s", r.ID, r.Provoked, r.Expected, verdict, r.Took.Round(100*time.Millisecond))
	for _, text := range []string{r.Problem, r.NotRun, strings.Join(slices.Concat(r.Observed, r.Measured), "; ")} {
		if text != "" {
			b.WriteString(": " + text)
			break
		}
	}
	b.WriteString("\n")
	return b.String()
}

// say tells how the whole ended, where a report does not.
func (n *negctlRun) say(format string, args ...any) {
	if n.structured() {
		n.note(format, args...)
		return
	}
	fmt.Fprintf(n.out, "\n"+format+"\n", args...)
}

func (n *negctlRun) list() error {
	list := struct {
		Controls  []negctl.Control  `json:"controls"`
		Sabotages []negctl.Sabotage `json:"sabotages"`
	}{n.controls, negctl.Sabotages()}
	return n.print(list, time.Now(), func(render.Options) string {
		var b strings.Builder
		for _, c := range list.Controls {
			fmt.Fprintf(&b, "%-10s %s\n           → %s\n", c.ID, c.Provoked, c.Expected)
		}
		b.WriteString("\nsabotages\n")
		for _, s := range list.Sabotages {
			fmt.Fprintf(&b, "%-26s %s; noticed by %s\n", s.Name, s.What, strings.Join(s.Guards, ", "))
		}
		return b.String()
	})
}

// sabotageReport is what became of one sabotage.
type sabotageReport struct {
	negctl.Sabotage
	OK      bool     `json:"ok"`
	Noticed []string `json:"noticed"` // ids of the controls that failed
	negctlReport
}

// sabotages runs the controls on products without one of their safeties.
func (n *negctlRun) sabotages(ctx context.Context) error {
	all := negctl.Sabotages()
	wanted := slices.DeleteFunc(slices.Clone(all), func(s negctl.Sabotage) bool { return n.sabotage != "all" && n.sabotage != s.Name })
	if len(wanted) == 0 {
		return usage("there is no sabotage %q; list them with `tidewait negctl --list`", n.sabotage)
	}
	var reports []sabotageReport
	var unnoticed []string
	for _, s := range wanted {
		n.say("%s: %s", s.Name, s.What)
		r, err := n.sabotaged(ctx, s)
		if err != nil {
			return err
		}
		reports = append(reports, r)
		if !r.OK {
			unnoticed = append(unnoticed, s.Name)
		}
		n.say("%s was noticed by %s; it must be by %s", s.Name, orNobody(r.Noticed), strings.Join(s.Guards, ", "))
	}
	if n.structured() {
		if err := n.print(reports, time.Now(), nil); err != nil {
			return err
		}
	}
	if len(unnoticed) > 0 {
		return failed("not noticed as they must be: %s", strings.Join(unnoticed, ", "))
	}
	return nil
}

func orNobody(ids []string) string {
	if len(ids) == 0 {
		return "no control"
	}
	return strings.Join(ids, ", ")
}

func (n *negctlRun) sabotaged(ctx context.Context, s negctl.Sabotage) (sabotageReport, error) {
	report := sabotageReport{Sabotage: s}
	var err error
	if s.Built() {
		report.negctlReport, err = n.variantOf(ctx, s)
	} else {
		report.negctlReport, err = n.controlsOn(ctx, &s)
	}
	if err != nil {
		return report, err
	}
	report.Noticed = negctl.Failed(report.Controls)
	report.OK = slices.Equal(report.Noticed, n.guards(s))
	return report, nil
}

// guards are those of the selected controls that must notice a sabotage.
func (n *negctlRun) guards(s negctl.Sabotage) []string {
	guards := []string{}
	for _, c := range n.controls {
		if slices.Contains(s.Guards, c.ID) {
			guards = append(guards, c.ID)
		}
	}
	return guards
}

// variantOf builds programs without the safety and lets them run the controls on
// themselves.
func (n *negctlRun) variantOf(ctx context.Context, s negctl.Sabotage) (report negctlReport, err error) {
	dir, err := os.MkdirTemp("", "tidewait-variant-")
	if err != nil {
		return report, failed("%w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // machines' unprivileged user executes the guest agent
		return report, failed("%w", err)
	}
	n.note("· building tidewait and tidewait-worker without it")
	if err := s.BuildVariant(ctx, n.source, dir, filepath.Join(binDir(), "tidewait-guest")); err != nil {
		return report, failed("%w", err)
	}
	args := []string{"negctl", "--variant", "-o", "json"}
	if len(n.only) > 0 {
		args = append(args, "--only", strings.Join(n.only, ","))
	}
	if n.keep {
		args = append(args, "--keep")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "tidewait"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it stops its stack
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "PATH="+binDir()+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stderr = n.out // what it says of each control
	if n.structured() {
		cmd.Stderr = n.errs
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return report, interrupted("interrupted; the stack is stopped")
	}
	if unreadable := json.Unmarshal(out, &report); unreadable != nil {
		return report, failed("the variant said nothing that can be read: %w", errors.Join(err, unreadable))
	}
	return report, nil
}
