package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

func nodeCommand(c *cli) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "node",
		Short:   "Look at nodes and take them out of service",
		Example: "  tidewait node drain node-a --reason upgrade --deadline 30m",
	})
	cmd.AddCommand(nodeListCommand(c), nodeShowCommand(c))
	for _, change := range nodeChanges {
		cmd.AddCommand(nodeChangeCommand(c, change))
	}
	return cmd
}

func nodeListCommand(c *cli) *cobra.Command {
	var request api.ListRequest
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List nodes with what is reserved of each",
		Example: "  tidewait node list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				list, err := ask[api.NodeList](ctx, e, api.SubjectNodeList, request)
				if err != nil {
					return err
				}
				return c.print(list, list.Now, func(o render.Options) string { return o.Nodes(list) })
			})
		},
	}
	cmd.Flags().StringVar(&request.Status, "status", "", "only those in this state: ready, cordoned, draining, drained, suspect, down, retired, refused")
	cmd.Flags().IntVar(&request.Limit, "limit", 0, "how many at most (default 500)")
	mustComplete(cmd, "status", []string{"ready", "cordoned", "draining", "drained", "suspect", "down", "retired", "refused"})
	return cmd
}

func nodeShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a node, what runs on it and what waits because of it",
		Example:           "  tidewait node show node-a",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error { return c.showNode(ctx, e, args[0]) })
		},
	}
}

func (c *cli) showNode(ctx context.Context, e *engine, name string) error {
	node, err := ask[api.NodeDetail](ctx, e, api.SubjectNodeShow, api.NameRequest{Name: name})
	if err != nil {
		return err
	}
	waits, err := askWaits(ctx, e, api.WaitRequest{Node: name})
	if err != nil {
		return err
	}
	shown := struct {
		api.NodeDetail
		Waits []api.Wait `json:"waits"`
	}{node, waits.Waits}
	return c.print(shown, waits.Now, func(o render.Options) string { return o.Node(node, waits.Waits) })
}

// nodeChange is a command that moves a node to another state.
type nodeChange struct {
	verb, subject, short string
	deadline             bool   // takes --deadline
	undo                 string // subject of --undo; empty: there is none
}

var nodeChanges = []nodeChange{
	{verb: "cordon", subject: api.SubjectNodeCordon, short: "Give a node no new work; what runs there goes on"},
	{verb: "uncordon", subject: api.SubjectNodeUncordon, short: "Give a cordoned node work again"},
	{verb: "drain", subject: api.SubjectNodeDrain, short: "Give a node no new work and let what runs there end", deadline: true},
	{verb: "undrain", subject: api.SubjectNodeUndrain, short: "End a drain and give the node work again"},
	{verb: "retire", subject: api.SubjectNodeRetire, short: "Take a node out of the fleet for good", undo: api.SubjectNodeUnretire},
}

func nodeChangeCommand(c *cli, change nodeChange) *cobra.Command {
	var request api.NodeRequest
	var deadline time.Duration
	var undo, wait bool
	cmd := &cobra.Command{
		Use:               change.verb + " NAME",
		Short:             change.short,
		Example:           "  tidewait node " + change.verb + " node-a --reason \"kernel upgrade\"",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if deadline < 0 {
				return usage("--deadline %s is negative; give the time that running phases have left, such as 30m", deadline)
			}
			request.Name, request.Deadline = args[0], deadline.Milliseconds()
			subject := change.subject
			if undo {
				subject = change.undo
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				node, err := ask[api.Node](ctx, e, subject, request)
				if err == nil && wait {
					node, err = c.awaitDrained(ctx, e, node)
				}
				if err != nil {
					return err
				}
				return c.print(node, time.Now(), func(render.Options) string {
					return "node " + render.Clean(node.ID) + " is " + node.State + "\n"
				})
			})
		},
	}
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, for everyone who looks at the node later")
	cmd.Flags().StringVar(&request.Actor, "actor", defaultActor(), "who does this")
	if change.deadline {
		cmd.Flags().DurationVar(&deadline, "deadline", 0, "move what still runs to other nodes after this long (default never)")
		cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node holds nothing, and tell what it still holds")
	}
	if change.undo != "" {
		cmd.Flags().BoolVar(&undo, "undo", false, "bring the node back; start its agent afterwards")
	}
	return cmd
}
