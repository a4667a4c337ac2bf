package main

import (
	"context"
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

func (c *cli) completeMissions(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.complete(cmd, func(ctx context.Context, e *engine) []string {
		list, _ := ask[api.MissionList](ctx, e, api.SubjectMissionList, api.ListRequest{})
		names := make([]string, len(list.Missions))
		for i, m := range list.Missions {
			names[i] = m.Name
		}
		return names
	})
}

func (c *cli) completePhases(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.completeMissions(cmd, args, word)
	}
	return c.complete(cmd, func(ctx context.Context, e *engine) []string {
		detail, _ := showMission(ctx, e, args[0], 0)
		names := make([]string, len(detail.PhaseList))
		for i, p := range detail.PhaseList {
			names[i] = p.Name
		}
		return names
	})
}

func (c *cli) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.complete(cmd, func(ctx context.Context, e *engine) []string {
		list, _ := ask[api.NodeList](ctx, e, api.SubjectNodeList, api.ListRequest{})
		names := make([]string, len(list.Nodes))
		for i, n := range list.Nodes {
			names[i] = n.ID
		}
		return names
	})
}
