package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
)

// completionTimeout keeps the shell responsive when a service is down.
const completionTimeout = 2 * time.Second

// complete asks the engine for words to offer; without an answer there are none.
func (c *cli) complete(cmd *cobra.Command, words func(context.Context, *engine) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	settings, err := c.load(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	e, err := c.engine(ctx, settings)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer e.close()
	return words(ctx, e), cobra.ShellCompDirectiveNoFileComp
}

// first completes the first argument with words of the engine.
func (c *cli) first(cmd *cobra.Command, args []string, words func(context.Context, *engine) []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.complete(cmd, words)
}

// names are those of a list.
func names[T any](list []T, name func(T) string) []string {
	all := make([]string, len(list))
	for i, item := range list {
		all[i] = name(item)
	}
	return all
}

func (c *cli) completeMissions(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.first(cmd, args, func(ctx context.Context, e *engine) []string {
		list, _ := ask[api.MissionList](ctx, e, api.SubjectMissionList, api.ListRequest{})
		return names(list.Missions, func(m api.Mission) string { return m.Name })
	})
}

func (c *cli) completePhases(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.completeMissions(cmd, args, word)
	}
	return c.complete(cmd, func(ctx context.Context, e *engine) []string {
		detail, _ := showMission(ctx, e, args[0], 0)
		return names(detail.PhaseList, func(p api.Phase) string { return p.Name })
	})
}

func (c *cli) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.first(cmd, args, func(ctx context.Context, e *engine) []string {
		list, _ := ask[api.NodeList](ctx, e, api.SubjectNodeList, api.ListRequest{})
		return names(list.Nodes, func(n api.Node) string { return n.ID })
	})
}

// completeWaits offers what there is for the filters of the list of waits.
func (c *cli) completeWaits(cmd *cobra.Command) {
	mustComplete(cmd, "kind", api.WaitKinds())
	codes := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		kind, _ := cmd.Flags().GetString("kind")
		return api.WaitCodes(kind), cobra.ShellCompDirectiveNoFileComp
	}
	for flag, words := range map[string]cobra.CompletionFunc{
		"code": codes, "mission": c.completeMissions, "node": c.completeNodes,
		"lattice": c.completeLattices, "app": c.completeWaitingApps, "phase": c.completeWaitingPhases,
		"account": cobra.NoFileCompletions, "older-than": cobra.NoFileCompletions,
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, words); err != nil {
			panic(err)
		}
	}
}

func (c *cli) completeLattices(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.first(cmd, args, func(ctx context.Context, e *engine) []string {
		list, _ := ask[api.LatticeList](ctx, e, api.SubjectLatticeList, api.ListRequest{})
		all := names(list.Lattices, func(l api.Lattice) string { return l.Lattice })
		return slices.Compact(slices.Sorted(slices.Values(all)))
	})
}

func (c *cli) completeWaitingApps(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.completeWaiting(cmd, func(w api.Wait) string { return w.Application })
}

func (c *cli) completeWaitingPhases(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.completeWaiting(cmd, func(w api.Wait) string { return w.Phase })
}

// completeWaiting offers a word of each wait.
func (c *cli) completeWaiting(cmd *cobra.Command, word func(api.Wait) string) ([]string, cobra.ShellCompDirective) {
	return c.complete(cmd, func(ctx context.Context, e *engine) []string {
		list, _ := ask[api.WaitList](ctx, e, api.SubjectWaitList, api.WaitRequest{})
		words := map[string]bool{}
		for _, w := range list.Waits {
			if word(w) != "" {
				words[word(w)] = true
			}
		}
		return slices.Sorted(maps.Keys(words))
	})
}
