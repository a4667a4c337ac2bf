package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/examples"
	"tidewait/internal/api"
	"tidewait/internal/local"
)

func demoCommand(c *cli) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run missions and an application on a stack of their own, and show them waiting",
		Long: `Start the whole stack in a directory of its own and run two missions in real
virtual machines on one node that has room for one of them at a time. The second
phase of "survey" finds the node full because the phase of "big" really runs
there; it is shown waiting, is placed when the node is freed, and its results
are commits. The demo fails where QEMU is missing; nothing stands in for it.

Then an application is deployed into a lattice without hosts, where it waits;
a simulated host joins, and it is deployed; a version with a missing image fails in
the registry's words and is tried again ever more rarely; the version before is
deployed again.`,
		Example: "  tidewait demo\n  tidewait demo --keep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.load(cmd)
			if err != nil {
				return err
			}
			d := &demo{cli: c, settings: s, keep: keep, began: time.Now()}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the stack running until Ctrl-C, to look around")
	return cmd
}

// demo is one run of the demo.
type demo struct {
	*cli
	settings config.Settings
	keep     bool
	began    time.Time

	dir     string
	product *local.Product
	engine  *engine
}

// demoNode is the size of the demo's node: room for one phase at a time.
var demoNode = []string{"TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_MEMORY=1100Mi", "TIDEWAIT_NODE_DISK=4Gi"}

func (d *demo) run(ctx context.Context) (err error) {
	if err := d.makeDir(); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	if err := d.start(ctx); err != nil {
		return err
	}
	defer func() {
		d.engine.close()
		if stopErr := d.product.Stop(); err == nil && stopErr != nil {
			err = failed("%w", stopErr)
		}
	}()
	if err := d.missions(ctx); err != nil {
		return err
	}
	if err := d.applications(ctx); err != nil {
		return err
	}
	d.say("done in %s", time.Since(d.began).Round(time.Second))
	if d.keep {
		fmt.Fprintf(d.out, "\nThe Web UI is at %s; Ctrl-C stops everything.\n", d.product.Stack.UIURL)
		<-ctx.Done()
	}
	return nil
}

// makeDir makes a directory that the unprivileged user of Postgres can reach.
func (d *demo) makeDir() error {
	dir, err := os.MkdirTemp("", "tidewait-demo-")
	if err != nil {
		return failed("%w", err)
	}
	d.dir = dir
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // Postgres's own user must pass through
		return failed("%w", err)
	}
	files, err := fs.Sub(examples.Missions, "missions")
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, "missions"), files)
}

func (d *demo) start(ctx context.Context) error {
	d.say("starting Postgres, NATS, Temporal and Tidewait")
	s := d.settings
	s.DataDir = d.dir
	p, err := d.startLocal(ctx, s, nil)
	if err != nil {
		return failed("%w", err)
	}
	d.product = p
	if err := d.startWorkers(ctx); err != nil {
		return errors.Join(err, p.Stop())
	}
	return nil
}

func (d *demo) startWorkers(ctx context.Context) error {
	for _, v := range d.product.Env() {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return failed("%w", err)
		}
	}
	var err error
	if d.settings, err = config.Load(config.Options{}); err != nil {
		return err
	}
	if _, err = d.product.StartWorker(ctx, "engine", []string{"engine", "gateway"}, "TIDEWAIT_GATEWAY_ID=gateway"); err != nil {
		return failed("%w", err)
	}
	d.say("booting a virtual machine to see what this machine can do")
	if _, err = d.product.StartNode(ctx, "node-a", demoNode...); err != nil {
		return failed("%w", err)
	}
	if d.engine, err = d.cli.engine(ctx, d.settings); err != nil {
		return err
	}
	return d.checkMachine(ctx)
}

// checkMachine says what virtual machines really are here, and fails where
// there are none.
func (d *demo) checkMachine(ctx context.Context) error {
	n, err := ask[api.NodeDetail](ctx, d.engine, api.SubjectNodeShow, api.NameRequest{Name: "node-a"})
	if err != nil {
		return err
	}
	b := n.Backends["microvm"]
	if !b.OK {
		return failed("this machine runs no virtual machines: %s", b.Why)
	}
	d.say("accelerator %s, guest kernel %s, booted in %d ms", b.Accel, b.Kernel, b.BootMs)
	return nil
}

// missions is the main job.
func (d *demo) missions(ctx context.Context) error {
	d.say("launching mission survey (three phases), and mission big, which will hold the node")
	if err := d.cmd(ctx, "mission", "launch", d.file("survey.yaml"), "-o", "json"); err != nil {
		return err
	}
	if err := d.until(ctx, "survey", "its first phase runs", func(m api.MissionDetail) bool {
		return m.PhaseList[0].Status == "running"
	}); err != nil {
		return err
	}
	if err := d.cmd(ctx, "mission", "launch", d.file("big.yaml"), "-o", "json"); err != nil {
		return err
	}
	d.say("waiting until the second phase of survey finds the node full")
	if err := d.until(ctx, "survey", "its second phase waits", func(m api.MissionDetail) bool {
		return len(m.PhaseList) > 1 && m.PhaseList[1].Wait != nil
	}); err != nil {
		return err
	}
	for _, args := range [][]string{{"waits"}, {"mission", "show", "survey"}, {"node", "show", "node-a"}} {
		if err := d.show(ctx, args...); err != nil {
			return err
		}
	}
	d.say("waiting until the node is freed and survey ends")
	if err := d.until(ctx, "survey", "it ended", func(m api.MissionDetail) bool { return m.EndedAt != nil }); err != nil {
		return err
	}
	if err := d.checkWait(ctx); err != nil {
		return err
	}
	return d.results(ctx)
}

// checkWait shows how the wait ended: by the event of freed capacity, at once.
func (d *demo) checkWait(ctx context.Context) error {
	survey, err := ask[api.MissionDetail](ctx, d.engine, api.SubjectMissionShow, api.NameRequest{Name: "survey"})
	if err != nil {
		return err
	}
	big, err := ask[api.MissionDetail](ctx, d.engine, api.SubjectMissionShow, api.NameRequest{Name: "big"})
	if err != nil {
		return err
	}
	if survey.Status != "succeeded" || big.Status != "succeeded" {
		return failed("survey ended as %s (%s), big as %s (%s)", survey.Status, survey.Failure, big.Status, big.Failure)
	}
	waits := survey.PhaseList[1].Waits
	if len(waits) == 0 || waits[0].EndedBy != "placed" {
		return failed("the second phase of survey did not wait and get a node; it says %+v", waits)
	}
	w, run := waits[0], big.PhaseList[0].Runs[0]
	after := w.Ended.Sub(*run.FreedAt)
	d.say("phase extremes waited %s for big's run %s; it was placed %d ms after the node was freed, woken by %s",
		w.Ended.Sub(w.Since).Round(100*time.Millisecond), run.ID, after.Milliseconds(), w.WokenBy)
	if after > time.Second {
		return failed("it was placed only %s after the node was freed; at most a second is allowed", after)
	}
	return nil
}

// results brings the commits home and shows them.
func (d *demo) results(ctx context.Context) error {
	if err := d.show(ctx, "mission", "results", "survey"); err != nil {
		return err
	}
	repo := filepath.Join(d.dir, "home")
	if out, err := exec.CommandContext(ctx, "git", "init", "--quiet", repo).CombinedOutput(); err != nil {
		return failed("git init: %s", out)
	}
	if err := d.show(ctx, "mission", "results", "survey", "--into", repo); err != nil {
		return err
	}
	d.prompt("git log --stat --format='%h %s' tidewait/survey/1")
	git := exec.CommandContext(ctx, "git", "-C", repo, "--no-pager", "log", "--stat", "--format=%h %s", "tidewait/survey/1")
	git.Stdout, git.Stderr = d.out, d.errs
	if err := git.Run(); err != nil {
		return failed("git log: %w", err)
	}
	return nil
}

func (d *demo) file(name string) string { return filepath.Join(d.dir, "missions", name) }

// until asks for a mission until it is as wanted. Every state the demo waits
// for is reached within its patience or not at all.
func (d *demo) until(ctx context.Context, mission, what string, wanted func(api.MissionDetail) bool) error {
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := ask[api.MissionDetail](ctx, d.engine, api.SubjectMissionShow, api.NameRequest{Name: mission})
		if err != nil {
			return err
		}
		if wanted(m) {
			return nil
		}
		if m.EndedAt != nil {
			return failed("mission %s ended as %s before %s: %s", mission, m.Status, what, m.Failure)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return failed("mission %s: still not so after %s: %s", mission, patience, what)
		}
	}
}

// cmd runs a command of this program and hides its output unless it fails.
func (d *demo) cmd(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	if code := runContext(ctx, args, d.in, &out, &out); code != exitDone {
		return failed("tidewait %s ended with %d: %s", strings.Join(args, " "), code, strings.TrimSpace(out.String()))
	}
	return nil
}

// show runs a command of this program as a person would see it.
func (d *demo) show(ctx context.Context, args ...string) error {
	d.prompt("tidewait " + strings.Join(args, " "))
	if code := runContext(ctx, args, d.in, d.out, d.errs); code != exitDone {
		return failed("tidewait %s ended with %d", strings.Join(args, " "), code)
	}
	return nil
}

func (d *demo) prompt(line string) { fmt.Fprintf(d.out, "\n$ %s\n", line) }

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "[%3.0fs] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
