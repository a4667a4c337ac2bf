package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/render"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

func appListCommand(c *cli) *cobra.Command {
	var watch string
	cmd := &cobra.Command{
		Use:   "list [--watch [INTERVAL]]",
		Short: "List a lattice's applications with what each waits for",
		Long: `List a lattice's applications, by name, with what each waits for. With --watch a
terminal is redrawn every INTERVAL (default 2s); elsewhere a line is printed
whenever something changes. A bare number is milliseconds.`,
		Example: `  tidewait app list
  tidewait app list --watch 5s`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			every, err := watchEvery(cmd, watch, args)
			if err != nil {
				return err
			}
			return c.withApps(cmd, nil, func(ctx context.Context, a *apps) error {
				if every > 0 {
					return a.watch(ctx, every)
				}
				return a.list(ctx)
			})
		},
	}
	cmd.Flags().StringVar(&watch, "watch", "", "keep looking until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchInterval.String()
	return cmd
}

// watchEvery reads --watch, --watch=INTERVAL and --watch INTERVAL; 0 is none.
func watchEvery(cmd *cobra.Command, watch string, args []string) (time.Duration, error) {
	if !cmd.Flags().Changed("watch") {
		if len(args) > 0 {
			return 0, usage("list takes no %q; look at one application with `tidewait app status`, or give --lattice", args[0])
		}
		return 0, nil
	}
	if len(args) > 0 {
		watch = args[0]
	}
	every, err := time.ParseDuration(watch)
	if ms, plain := strconv.Atoi(watch); plain == nil {
		every, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err != nil || every < 100*time.Millisecond {
		return 0, usage("--watch %s is no interval; give 100ms or more, such as 5s", watch)
	}
	return every, nil
}

func (a *apps) list(ctx context.Context) error {
	list, err := askApps(ctx, a, a.client.List)
	if err != nil {
		return err
	}
	return a.cli.print(list, time.Now(), func(o render.Options) string { return o.Applications(a.lattice, list) })
}

// watch shows the list until it is interrupted, which is its normal end.
func (a *apps) watch(ctx context.Context, every time.Duration) error {
	var before []wadm.Summary
	first := true
	screen := a.cli.newScreen()
	look := func() ([]wadm.Summary, error) { return askApps(ctx, a, a.client.List) }
	return watching(ctx, every, look, func(list []wadm.Summary) error {
		defer func() { first, before = false, list }()
		if screen != nil {
			return screen.draw(a.cli.view(time.Now()).Applications(a.lattice, list))
		}
		return a.showList(first, before, list)
	})
}

// showList shows a list, or what changed in it since the one before.
func (a *apps) showList(first bool, before, list []wadm.Summary) error {
	view := a.cli.view(time.Now())
	switch {
	case a.cli.structured():
		if !first && reflect.DeepEqual(before, list) {
			return nil
		}
		return a.cli.stream(list)
	case first && len(list) == 0:
		_, err := fmt.Fprint(a.cli.out, view.Applications(a.lattice, list))
		return err
	}
	for _, line := range view.ApplicationChanges(before, list) {
		if _, err := fmt.Fprintln(a.cli.out, line); err != nil {
			return err
		}
	}
	return nil
}

func appGetCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "get [NAME [VERSION]]",
		Short: "Print a version of an application as it is stored",
		Long: `Print a version of an application as it is stored, the newest when none is given:
as YAML, or with -o json as JSON. Both can be put again. Without a NAME the
applications are listed.`,
		Example: `  tidewait app get hello
  tidewait app get hello v1 > hello.yaml`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.withApps(cmd, nil, func(ctx context.Context, a *apps) error { return a.list(ctx) })
			}
			t, err := namedTarget(args)
			if err != nil {
				return err
			}
			return c.withApps(cmd, nil, func(ctx context.Context, a *apps) error { return a.get(ctx, t) })
		},
	}
}

func (a *apps) get(ctx context.Context, t appTarget) error {
	manifest, err := askApps(ctx, a, func(ctx context.Context) (json.RawMessage, error) {
		return a.client.Get(ctx, t.name, t.version)
	})
	if err != nil {
		return err
	}
	document, err := asYAML(manifest)
	if err != nil {
		return failed("the document of application %s cannot be read: %w", t.name, err)
	}
	return a.cli.print(manifest, time.Now(), func(render.Options) string { return string(document) })
}

func appStatusCommand(c *cli) *cobra.Command {
	var watch, follow bool
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show how an application is, and each thing that keeps it so",
		Long: `Show how an application is, why and since when, who did what to it, and how each
of its scalers is: what keeps its components, providers, links and configurations
as the deployed version wants them. With --watch a terminal is redrawn every two
seconds; elsewhere a line is printed whenever something changes. With --follow it
is shown what happens until everything runs, or something has failed: exit code 1.
With -o json and -o yaml it is the same object each time: once, whenever the status
changes with --watch, and as it is in the end with --follow.`,
		Example:           "  tidewait app status hello\n  tidewait app status hello --follow",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := namedTarget(args)
			if err != nil {
				return err
			}
			if watch && follow {
				return usage("--watch looks until it is interrupted, --follow until the application runs; give one of them")
			}
			return c.withApps(cmd, nil, func(ctx context.Context, a *apps) error {
				switch {
				case watch:
					return a.watchStatus(ctx, t.name)
				case follow:
					return a.followStatus(ctx, t.name)
				}
				reply, err := askStatus(ctx, a, t.name)
				if err != nil {
					return err
				}
				shown := a.shown(ctx, t.name, reply)
				return c.print(shown, time.Now(), func(o render.Options) string {
					return o.ApplicationStatus(a.lattice, t.name, *reply.Status, shown.Application)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "keep looking until interrupted")
	cmd.Flags().BoolVar(&follow, "follow", false, "show what happens until it runs or has failed")
	return cmd
}

// shownStatus is a status with what the API of applications has no room for: the one
// shape in which a program gets it, once, whenever it changes, or in the end.
type shownStatus struct {
	wadm.StatusReply
	Application *api.AppDetail `json:"application,omitempty"` // nil: the server is not Tidewait's
}

func (a *apps) shown(ctx context.Context, name string, reply wadm.StatusReply) shownStatus {
	return shownStatus{reply, a.detail(ctx, name)}
}

// detailTimeout bounds what is only asked beside something else.
const detailTimeout = 2 * time.Second

// detail asks who did what to an application, and for its wait. It is nil where no
// engine of Tidewait's tells, as beside a wadm.
func (a *apps) detail(ctx context.Context, name string) *api.AppDetail {
	e := &engine{conn: a.client.Conn, url: a.url}
	detail, err := exchange[api.AppDetail](ctx, e, api.SubjectAppShow, api.AppRequest{Account: a.account, Lattice: a.lattice, Name: name}, peer{timeout: detailTimeout})
	if err != nil {
		return nil
	}
	advise(detail.Wait)
	return &detail
}

// instances asks the lattice's observer how much of an application runs. It is nil
// where nobody observes the lattice.
func (a *apps) instances(ctx context.Context, name string) []scaler.Tally {
	e := &engine{conn: a.client.Conn, url: a.url}
	subject := api.SubjectLattice(cmp.Or(a.account, ledger.DefaultAccount), a.lattice)
	lattice, err := exchange[api.LatticeDetail](ctx, e, subject, struct{}{}, peer{timeout: detailTimeout})
	if err != nil {
		return nil
	}
	for _, app := range lattice.Applications {
		if app.Name == name {
			return app.Instances
		}
	}
	return nil
}

// progress is what is drawn of an application while it is looked at.
func (a *apps) progress(ctx context.Context, name string, status wadm.Status) string {
	detail, tallies := a.detail(ctx, name), a.instances(ctx, name)
	return a.cli.view(time.Now()).ApplicationProgress(a.lattice, name, status, detail, tallies)
}

// watchStatus shows a status until it is interrupted, which is its normal end.
func (a *apps) watchStatus(ctx context.Context, name string) error {
	var before *wadm.Status
	screen := a.cli.newScreen()
	look := func() (wadm.StatusReply, error) { return askStatus(ctx, a, name) }
	return watching(ctx, watchInterval, look, func(reply wadm.StatusReply) error {
		defer func() { before = reply.Status }()
		if screen != nil {
			return screen.draw(a.progress(ctx, name, *reply.Status))
		}
		return a.showStatus(ctx, name, before, reply)
	})
}

// showStatus shows a status, or that it is another than the one before; nil is
// none.
func (a *apps) showStatus(ctx context.Context, name string, before *wadm.Status, reply wadm.StatusReply) error {
	switch {
	case a.cli.structured():
		if reflect.DeepEqual(before, reply.Status) {
			return nil
		}
		return a.cli.stream(a.shown(ctx, name, reply))
	case before != nil && render.SameStatus(before.Status, reply.Status.Status):
		return nil
	}
	_, err := fmt.Fprintln(a.cli.out, statusLine(name, reply.Status.Status))
	return err
}

// followStatus shows what happens until the application runs or has failed.
func (a *apps) followStatus(ctx context.Context, name string) error {
	w := newWaiter(a, name)
	if reply, err := askStatus(ctx, a, name); err != nil {
		return err
	} else if reply.Status.Status.Type == wadm.Undeployed && w.isUndeployed(ctx) {
		return failed("application %s is not deployed; deploy it with %s", name, a.hint("deploy", name))
	}
	err := w.await(ctx)
	if a.cli.structured() && w.reply != nil {
		err = errors.Join(a.cli.print(a.shown(context.WithoutCancel(ctx), name, *w.reply), time.Now(), nil), err)
	}
	if err != nil {
		return err
	}
	return a.fate(ctx, name, w.status(), 0)
}

// statusLine tells how an application is at this moment.
func statusLine(name string, status wadm.StatusInfo) string {
	return fmt.Sprintf("%s  %s is %s", time.Now().UTC().Format("15:04:05Z"), name, render.StatusText(status))
}

func askStatus(ctx context.Context, a *apps, name string) (wadm.StatusReply, error) {
	return askApps(ctx, a, func(ctx context.Context) (wadm.StatusReply, error) { return a.client.Status(ctx, name) })
}

func appHistoryCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "history NAME",
		Short:             "List the versions of an application, oldest first, and who deployed what",
		Example:           "  tidewait app history hello",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := namedTarget(args)
			if err != nil {
				return err
			}
			return c.withApps(cmd, nil, func(ctx context.Context, a *apps) error { return a.history(ctx, t.name) })
		},
	}
}

func (a *apps) history(ctx context.Context, name string) error {
	reply, err := askApps(ctx, a, func(ctx context.Context) (wadm.VersionsReply, error) { return a.client.Versions(ctx, name) })
	if err != nil {
		return err
	}
	if left := reply.Total - len(reply.Versions); left > 0 {
		a.cli.note("tidewait: %s left out: with them the reply would have been too large", counted(left, "version"))
	}
	var acts []api.Act
	if detail := a.detail(ctx, name); detail != nil {
		acts = detail.Acts
	}
	return a.cli.print(withActs(reply.Versions, acts), time.Now(), func(o render.Options) string { return o.Versions(reply.Versions, acts) })
}

// shownVersionInfo is a version with what people did to it.
type shownVersionInfo struct {
	wadm.VersionInfo
	Acts []api.Act `json:"acts,omitempty"`
}

// withActs puts each act beside the version it was about.
func withActs(versions []wadm.VersionInfo, acts []api.Act) []shownVersionInfo {
	list := make([]shownVersionInfo, len(versions))
	for i, v := range versions {
		list[i].VersionInfo = v
		for _, act := range acts {
			if act.Version != nil && *act.Version == v.Version {
				list[i].Acts = append(list[i].Acts, act)
			}
		}
	}
	return list
}

// namedTarget is an application that must be given by its name.
func namedTarget(args []string) (appTarget, error) {
	if !isAppName(args[0]) {
		return appTarget{}, usage("%q is not the name of an application: it has letters, digits, - and _ only", args[0])
	}
	t := appTarget{name: args[0]}
	if len(args) > 1 {
		t.version = &args[1]
	}
	return t, nil
}
