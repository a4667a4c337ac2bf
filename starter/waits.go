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
	kinds := []string{"capacity", "node", "gateway", "hold", "observer", "lattice", "backoff", "dependency"}
	cmd := &cobra.Command{
		Use:   "waits",
		Short: "List everything that waits: who, why, since, bound, next look, place",
		Long: `List everything that waits, the oldest first. With --watch a terminal is redrawn
every two seconds; elsewhere a line is printed whenever something changes.`,
		Example: `  tidewait waits
  tidewait waits --watch --kind capacity
  tidewait waits --lattice default`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if request.Kind != "" && !slices.Contains(kinds, request.Kind) {
				return usage("--kind %q is not one of %s", request.Kind, strings.Join(kinds, ", "))
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				if watch {
					return c.watchWaits(ctx, e, request)
				}
				list, err := ask[api.WaitList](ctx, e, api.SubjectWaitList, request)
				if err != nil {
					return err
				}
				return c.print(list, list.Now, func(o render.Options) string { return o.Waits(list.Waits) })
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "keep looking until interrupted")
	cmd.Flags().StringVar(&request.Kind, "kind", "", "only this kind: "+strings.Join(kinds, ", "))
	cmd.Flags().StringVar(&request.Code, "code", "", "only this reason code, such as capacity_memory")
	cmd.Flags().StringVar(&request.Mission, "mission", "", "only this mission's")
	cmd.Flags().StringVar(&request.Lattice, "lattice", "", "only applications of this lattice")
	cmd.Flags().StringVar(&request.Application, "app", "", "only this application's")
	mustComplete(cmd, "kind", kinds)
	return cmd
}

// watchWaits shows the list until it is interrupted, which is its normal end.
func (c *cli) watchWaits(ctx context.Context, e *engine, request api.WaitRequest) error {
	var before *api.WaitList
	look := func() (api.WaitList, error) { return ask[api.WaitList](ctx, e, api.SubjectWaitList, request) }
	return watching(ctx, watchInterval, look, func(list api.WaitList) error {
		defer func() { before = &list }()
		return c.showWaits(before, list)
	})
}

// watching looks again and again and shows what it saw, until it is interrupted.
func watching[T any](ctx context.Context, every time.Duration, look func() (T, error), show func(T) error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
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
		}
	}
}

// showWaits shows a list, or what changed in it since the one before.
func (c *cli) showWaits(before *api.WaitList, list api.WaitList) error {
	view := c.view(list.Now)
	switch {
	case c.structured():
		if before != nil && sameWaits(before.Waits, list.Waits) {
			return nil
		}
		return c.stream(list)
	case view.Width > 0:
		const clearScreen = "\x1b[H\x1b[2J"
		_, err := fmt.Fprint(c.out, clearScreen+view.Waits(list.Waits))
		return err
	}
	if before == nil {
		before = &api.WaitList{}
		if len(list.Waits) == 0 {
			fmt.Fprintln(c.out, "nothing waits")
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
