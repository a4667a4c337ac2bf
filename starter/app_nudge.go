package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

func appNudgeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nudge NAME",
		Short: "Try again now what hosts have refused or failed at",
		Long: `Try again now what hosts have refused or failed at, instead of when its time has
come. What has failed before is not counted any more.`,
		Example:           "  tidewait app nudge hello",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeApps,
	}
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := namedTarget(args)
		if err != nil {
			return err
		}
		settings, err := c.appSettings(cmd)
		if err != nil {
			return err
		}
		account, err := appAccount(cmd)
		if err != nil {
			return err
		}
		target := fmt.Sprintf("application %s in lattice %s", t.name, settings.Wadm.Lattice)
		return c.signal(cmd, workflowSignal{
			workflow: api.AppWorkflowID(cmp.Or(account, ledger.DefaultAccount), settings.Wadm.Lattice, t.name),
			name:     api.SignalNudge, argument: api.Nudge{Actor: *actor},
			target: target, lookup: "tidewait app status " + t.name, done: target + " is tried again now",
		})
	}
	return cmd
}
