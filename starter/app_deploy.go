package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

func appPutCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put [FILE]",
		Short: "Store a version of an application without deploying it",
		Long: `Store a version of an application without deploying it. FILE may be an http(s)
URL; without one, or with -, the document is read from standard input. The
annotation version names the version; without one the server makes a name.`,
		Example: `  tidewait app put hello.yaml`,
		Args:    cobra.MaximumNArgs(1),
	}
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source := "-"
		if len(args) > 0 {
			source = args[0]
		}
		d, err := c.loadApp(cmd.Context(), source)
		if err != nil {
			return err
		}
		return c.withApps(cmd, actor, func(ctx context.Context, a *apps) error {
			reply, err := a.put(ctx, d)
			if err != nil {
				return err
			}
			return c.print(reply, time.Now(), func(render.Options) string { return a.storedText(reply) })
		})
	}
	return cmd
}

// put stores a document and tells of the server's warnings.
func (a *apps) put(ctx context.Context, d appDocument) (wadm.PutReply, error) {
	document, err := d.json()
	if err != nil {
		return wadm.PutReply{}, err
	}
	reply, err := askApps(ctx, a, func(ctx context.Context) (wadm.PutReply, error) { return a.client.Put(ctx, document) })
	a.warn(reply.Warnings, d.findings)
	return reply, err
}

func (a *apps) storedText(reply wadm.PutReply) string {
	return render.Clean(fmt.Sprintf("stored %s version %s in lattice %s; it has %s",
		reply.Name, shownVersion(reply.CurrentVersion), a.lattice, counted(reply.TotalVersions, "version"))) + "\n"
}

// shownVersion makes a version without a name visible.
func shownVersion(version string) string {
	if version == "" {
		return `""`
	}
	return version
}

func appDeployCommand(c *cli) *cobra.Command {
	var flags deployFlags
	cmd := &cobra.Command{
		Use:   "deploy FILE | deploy NAME [VERSION]",
		Short: "Make a version of an application the one that is kept running",
		Long: `Make a version of an application the one that is kept running. A FILE (or an
http(s) URL, or - for standard input) is put and its version deployed; of a NAME
the newest version is deployed when none is given.

The server's word that it is deployed says nothing about whether it runs yet, so
its status is shown as well. With --wait or --follow it is shown what happens, and
the command ends when everything runs, or with exit code 1 as soon as something has
failed; what has failed is tried again all the same.`,
		Example: `  tidewait app deploy hello.yaml --wait
  tidewait app deploy hello v1`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.completeAppsOrFiles,
	}
	cmd.Flags().BoolVar(&flags.replace, "replace", false, "delete the document's version first (of a document without one, the whole application)")
	cmd.Flags().BoolVar(&flags.wait, "wait", false, "wait until it runs or has failed")
	cmd.Flags().BoolVar(&flags.wait, "follow", false, "the same as --wait, which shows what happens as well")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", 0, "with --wait: give up with exit code 4 after this long (default never)")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if flags.timeout < 0 || flags.timeout > 0 && !flags.wait {
			return usage("--timeout %s is how long --wait waits; give both, and a time such as 5m", flags.timeout)
		}
		d := &deployer{cli: c, flags: flags}
		if err := d.read(cmd.Context(), args); err != nil {
			return err
		}
		return c.withApps(cmd, actor, func(ctx context.Context, a *apps) error {
			d.apps = a
			return d.run(ctx)
		})
	}
	return cmd
}

type deployFlags struct {
	replace, wait bool
	timeout       time.Duration
}

// deployer is one deployment.
type deployer struct {
	*apps
	cli      *cli
	flags    deployFlags
	document *appDocument // nil when the application is stored already
	target   appTarget
	report   deployReport
}

// deployReport is the structured output: what was done, and how the application
// is now.
type deployReport struct {
	Deleted *wadm.DeleteReply `json:"deleted,omitempty"`
	Put     *wadm.PutReply    `json:"put,omitempty"`
	Deploy  *wadm.DeployReply `json:"deploy,omitempty"`
	Status  *wadm.Status      `json:"status,omitempty"`
}

// read finds out what is to be deployed.
func (d *deployer) read(ctx context.Context, args []string) error {
	if isAppName(args[0]) {
		if d.flags.replace {
			return usage("--replace puts a document in place of its version; give the document's file instead of %s", args[0])
		}
		var err error
		d.target, err = d.cli.targetOf(ctx, args)
		return err
	}
	if len(args) > 1 {
		return usage("%s is a document, which says its version; leave out %q", shownSource(args[0]), args[1])
	}
	document, err := d.cli.loadApp(ctx, args[0])
	if err != nil {
		return err
	}
	d.document, d.target = &document, targetIn(document.manifest)
	return nil
}

// run does it, and reports what was done even when the rest fails.
func (d *deployer) run(ctx context.Context) error {
	err := d.deploy(ctx)
	if err == nil {
		err = d.settle(ctx)
	}
	if d.cli.structured() && d.report != (deployReport{}) {
		err = errors.Join(d.cli.print(d.report, time.Now(), nil), err)
	}
	return err
}

func (d *deployer) deploy(ctx context.Context) error {
	if d.document != nil {
		if err := d.putDocument(ctx); err != nil {
			return err
		}
	}
	reply, err := askApps(ctx, d.apps, func(ctx context.Context) (wadm.DeployReply, error) {
		return d.client.Deploy(ctx, d.target.name, d.target.version)
	})
	if err != nil {
		return d.notDeployed(err)
	}
	d.report.Deploy = &reply
	d.warn(reply.Warnings, nil)
	version := ""
	if reply.Version != nil {
		version = " version " + shownVersion(*reply.Version)
	}
	d.say("deployed %s%s in lattice %s", reply.Name, version, d.lattice)
	return nil
}

// putDocument stores the document; from then on its version is what is meant,
// whatever else is put.
func (d *deployer) putDocument(ctx context.Context) error {
	if d.flags.replace {
		d.deleteFirst(ctx)
	}
	reply, err := d.put(ctx, *d.document)
	if err != nil {
		if strings.Contains(err.Error(), "already exists") && !d.flags.replace && d.target.version != nil {
			return failed("%w; name another version in the document, deploy the one that is stored with %s, or put this document in its place with --replace",
				err, d.hint("deploy", d.target.name, shownVersion(*d.target.version)))
		}
		return err
	}
	d.report.Put = &reply
	d.target.version = &reply.CurrentVersion
	d.say("%s", strings.TrimSuffix(d.storedText(reply), "\n"))
	return nil
}

// deleteFirst makes room for the document. When it cannot, the put will say so.
func (d *deployer) deleteFirst(ctx context.Context) {
	reply, err := askApps(ctx, d.apps, func(ctx context.Context) (wadm.DeleteReply, error) {
		return d.client.Delete(ctx, d.target.name, d.target.version)
	})
	if err != nil {
		d.cli.note("tidewait: nothing was deleted first: %v", err)
		return
	}
	d.report.Deleted = &reply
	d.warn(reply.Warnings, nil)
	d.say("%s", reply.Message)
}

// notDeployed says what is stored all the same.
func (d *deployer) notDeployed(err error) error {
	if d.report.Put == nil {
		return err
	}
	return fmt.Errorf("%s version %s is stored, but not deployed: %w", d.report.Put.Name, shownVersion(d.report.Put.CurrentVersion), err)
}

// settle shows how the application is, and waits until it runs when asked to.
func (d *deployer) settle(ctx context.Context) error {
	if d.flags.wait {
		return d.await(ctx)
	}
	reply, err := askStatus(ctx, d.apps, d.target.name)
	if err != nil {
		return fmt.Errorf("%s is deployed, but how it is cannot be told: %w", d.target.name, err)
	}
	d.report.Status = reply.Status
	d.say("%s", render.StatusText(reply.Status.Status))
	return nil
}

var errWaitedLongEnough = errors.New("waited long enough")

func (d *deployer) await(ctx context.Context) error {
	if d.flags.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.flags.timeout, errWaitedLongEnough)
		defer cancel()
	}
	w := newWaiter(d.apps, d.target.name)
	err := w.await(ctx)
	d.report.Status = w.status()
	if err != nil {
		return err
	}
	return d.fate(ctx, d.target.name, w.status(), d.flags.timeout)
}

// fate turns the end of a wait into the command's own. status is nil when the
// server never told it, timeout 0 when there was none.
func (a *apps) fate(ctx context.Context, name string, status *wadm.Status, timeout time.Duration) error {
	text := "not known to run"
	if status != nil {
		switch status.Status.Type {
		case wadm.Deployed:
			return nil
		case wadm.Failed:
			return failed("application %s has %s; it is tried again: see it with %s", name, render.StatusText(status.Status), a.hint("status", name))
		}
		text = render.StatusText(status.Status)
	}
	switch {
	case errors.Is(context.Cause(ctx), errWaitedLongEnough):
		return &fault{exitWaitExceeded, fmt.Errorf("after %s application %s is still %s; it stays deployed: see it with %s",
			timeout, name, text, a.hint("status", name))}
	case ctx.Err() != nil:
		return interrupted("interrupted; application %s stays deployed: see it with %s, or end it with %s",
			name, a.hint("status", name), a.hint("undeploy", name))
	}
	return failed("application %s was undeployed while this waited for it", name)
}

// say tells what was done, as soon as it is.
func (d *deployer) say(format string, args ...any) {
	if !d.cli.structured() {
		fmt.Fprintln(d.cli.out, render.Clean(fmt.Sprintf(format, args...)))
	}
}
