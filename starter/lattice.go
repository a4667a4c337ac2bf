package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/render"
)

func latticeCommand(c *cli) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "lattice",
		Short:   "Look at lattices, their hosts and who observes them",
		Example: "  tidewait lattice list\n  tidewait lattice show default",
	})
	cmd.AddCommand(latticeListCommand(c), latticeShowCommand(c))
	return cmd
}

func latticeListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the lattices that are or were observed",
		Example: "  tidewait lattice list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				list, err := ask[api.LatticeList](ctx, e, api.SubjectLatticeList, api.ListRequest{})
				if err != nil {
					return err
				}
				return c.print(list, list.Now, func(o render.Options) string { return o.Lattices(list) })
			})
		},
	}
}

func latticeShowCommand(c *cli) *cobra.Command {
	var account string
	cmd := &cobra.Command{
		Use:   "show [LATTICE]",
		Short: "Show the hosts of a lattice, what they run, and what waits there",
		Long: `Show the hosts of a lattice and what they run, as the engine that observes it
knows them now. A lattice is observed while something is deployed there, or when
the setting wadm.watch names it. Without a name it is the lattice of wadm.lattice.`,
		Example:           "  tidewait lattice show default",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeLattices,
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := c.load(cmd)
			if err != nil {
				return err
			}
			name := settings.Wadm.Lattice
			if len(args) > 0 {
				name = args[0]
			}
			for what, token := range map[string]string{"a lattice": name, "an account": account} {
				if token == "" || strings.ContainsAny(token, ".*> \t\r\n") {
					return usage("%q is not the name of %s: it is one token of a NATS subject, such as default", token, what)
				}
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error { return c.showLattice(ctx, e, account, name) })
		},
	}
	cmd.Flags().StringVar(&account, "account", ledger.DefaultAccount, "the tenant's account, where there are several")
	return cmd
}

func (c *cli) showLattice(ctx context.Context, e *engine, account, name string) error {
	detail, err := exchange[api.LatticeDetail](ctx, e, api.SubjectLattice(account, name), struct{}{}, peer{
		name:    "engine that observes lattice " + name,
		remedy:  "a lattice is observed while something is deployed there: see `tidewait lattice list` and `tidewait waits --lattice " + name + "`",
		timeout: engineTimeout,
	})
	if err != nil {
		return err
	}
	waits, err := askWaits(ctx, e, api.WaitRequest{Account: account, Lattice: name})
	if err != nil {
		return err
	}
	shown := struct {
		api.LatticeDetail
		Waits []api.Wait `json:"waits"`
	}{detail, waits.Waits}
	return c.print(shown, detail.Now, func(o render.Options) string { return o.Lattice(detail, waits.Waits) })
}
