package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

// watchInterval lies between two looks of a command that watches.
const watchInterval = 2 * time.Second

func waitsCommand(c *cli) *cobra.Command {
	var request api.WaitRequest
	var watch bool
	var older time.Duration
	cmd := &cobra.Command{
		Use:   "waits",
		Short: "List everything that waits: who, why, since, bound, next look, place",
		Long: `List everything that waits, the oldest first, a line each. Filters add up.

A node's waits (--node) are those it has a part in: the phase has its run there, or
waits for capacity, could run there, and names the node among those that have no
room for it now, or as the one where it is expected to start.

With --watch a terminal is redrawn every two seconds; elsewhere a line is printed
whenever something changes. On a terminal columns that it has no room for are left
out, and long reasons are cut; -o json and -o yaml have all of everything.`,
		Example: `  tidewait waits
  tidewait waits --watch --kind capacity
  tidewait waits --node node-a --older-than 10m
  tidewait waits --lattice default`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request.OlderThan = older.Milliseconds()
			if err := request.Check(); err != nil {
				return &fault{exitUsage, err}
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				if watch {
					return c.watchWaits(ctx, e, request)
				}
				list, err := askWaits(ctx, e, request)
				if err != nil {
					return err
				}
				return c.print(list, list.Now, func(o render.Options) string { return waitsText(o, request, list) })
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&watch, "watch", false, "keep looking until interrupted")
	flags.StringVar(&request.Kind, "kind", "", "only this kind: "+strings.Join(api.WaitKinds(), ", "))
	flags.StringVar(&request.Code, "code", "", "only this reason code, such as capacity_memory")
	flags.StringVar(&request.Mission, "mission", "", "only this mission's")
	flags.StringVar(&request.Phase, "phase", "", "only phases of this name")
	flags.StringVar(&request.Node, "node", "", "only those that this node has a part in")
	flags.StringVar(&request.Lattice, "lattice", "", "only applications of this lattice")
	flags.StringVar(&request.Application, "app", "", "only applications of this name")
	flags.StringVar(&request.Account, "account", "", "only applications of this tenant's account, where there are several")
	flags.DurationVar(&older, "older-than", 0, "only what has waited at least this long, such as 10m")
	c.completeWaits(cmd)
	return cmd
}

// askWaits asks for a list of waits, and adds what a person can do about each.
func askWaits(ctx context.Context, e *engine, request api.WaitRequest) (api.WaitList, error) {
	list, err := ask[api.WaitList](ctx, e, api.SubjectWaitList, request)
	adviseAll(list.Waits)
	return list, err
}

// waitsText is the list for people. An empty one says of what there is none.
func waitsText(o render.Options, request api.WaitRequest, list api.WaitList) string {
	text := o.Waits(list.Waits)
	if what := filters(request); len(list.Waits) == 0 && what != "" {
		text = "nothing waits with " + what + "\n"
	}
	if list.More {
		text += fmt.Sprintf("only the %d oldest are listed; filters show others\n", len(list.Waits))
	}
	return text
}

// filters says what a request asks for, as it was asked.
func filters(r api.WaitRequest) string {
	var parts []string
	for _, f := range []struct{ flag, value string }{
		{"kind", r.Kind},
		{"code", r.Code},
		{"mission", r.Mission},
		{"phase", r.Phase},
		{"node", r.Node},
		{"lattice", r.Lattice},
		{"app", r.Application},
		{"account", r.Account},
	} {
		if f.value != "" {
			parts = append(parts, "--"+f.flag+" "+render.Clean(f.value))
		}
	}
	if r.OlderThan > 0 {
		parts = append(parts, "--older-than "+(time.Duration(r.OlderThan)*time.Millisecond).String())
	}
	return strings.Join(parts, " ")
}

// watchWaits shows the list until it is interrupted, which is its normal end.
func (c *cli) watchWaits(ctx context.Context, e *engine, request api.WaitRequest) error {
	var before *api.WaitList
	screen := c.newScreen()
	look := func() (api.WaitList, error) { return askWaits(ctx, e, request) }
	return watching(ctx, watchInterval, look, func(list api.WaitList) error {
		defer func() { before = &list }()
		if screen != nil {
			return screen.draw(waitsText(c.view(list.Now), request, list))
		}
		return c.showWaits(request, before, list)
	})
}

// watching looks again and again and shows what it saw, until it is interrupted.
func watching[T any](ctx context.Context, every time.Duration, look func() (T, error), show func(T) error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	resized := resizes(ctx)
	for {
		seen, err := look()
		if ctx.Err() != nil {
			return interrupted("interrupted")
		}
		if err != nil {
			return err
		}
		if err := show(seen); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return interrupted("interrupted")
		case <-ticker.C:
		case <-resized:
		}
	}
}

// showWaits shows a list, or what changed in it since the one before.
func (c *cli) showWaits(request api.WaitRequest, before *api.WaitList, list api.WaitList) error {
	view := c.view(list.Now)
	if c.structured() {
		if before != nil && sameWaits(before.Waits, list.Waits) {
			return nil
		}
		return c.stream(list)
	}
	if before == nil {
		before = &api.WaitList{}
		if len(list.Waits) == 0 {
			fmt.Fprint(c.out, waitsText(view, request, list))
		}
	}
	for _, line := range view.WaitChanges(before.Waits, list.Waits) {
		if _, err := fmt.Fprintln(c.out, line); err != nil {
			return err
		}
	}
	return nil
}

// sameWaits compares what render.Options.WaitChanges tells of.
func sameWaits(a, b []api.Wait) bool {
	return slices.EqualFunc(a, b, func(x, y api.Wait) bool {
		return x.WorkflowID == y.WorkflowID && x.Kind == y.Kind && x.Since.Equal(y.Since) &&
			x.Code == y.Code && x.Position == y.Position
	})
}
