package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tidewait/internal/release"
)

// rootCommand returns the whole command tree over c.
func rootCommand(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "tidewait",
		Short: "Run missions, and keep applications running, with every wait in the open",
		Long: `Tidewait runs missions: ordered phases of work, each in one or more machines that
are placed on a node when the phase starts. And it keeps applications running on
lattices of wasmCloud hosts. What waits says why, since when, until when, and when
it is looked at again.

Exit codes: 0 done; 1 failed or cancelled; 2 wrong usage, an invalid document or
setting, or a release that does not suit the engine's; 3 no known node could ever run
it; 4 the wait ran out; 5 a service does not answer; 130 interrupted.`,
		Example: `  tidewait mission launch examples/missions/hello.yaml --follow
  tidewait waits --watch`,
		Version:       release.This().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(formats, c.format) {
				return fmt.Errorf("--output %q is not one of %s", c.format, strings.Join(formats, ", "))
			}
			c.began = true
			return nil
		},
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.errs)

	flags := root.PersistentFlags()
	flags.StringVarP(&c.format, "output", "o", "table", "table, json or yaml")
	flags.StringVar(&c.configFile, "config", "", "settings file (default ./tidewait.yaml, then /etc/tidewait/tidewait.yaml)")
	flags.String("temporal.address", "", "host:port of Temporal")
	flags.String("temporal.namespace", "", "Temporal namespace")
	flags.String("temporal.profile", "", "profile in Temporal's own settings file")
	flags.String("nats.url", "", "URL of NATS")
	mustComplete(root, "output", formats)

	root.AddCommand(devCommand(c), demoCommand(c), setupCommand(c), missionCommand(c), phaseCommand(c), nodeCommand(c), latticeCommand(c), appCommand(c), waitsCommand(c), negctlCommand(c))
	return group(root)
}

// group makes a command that only holds others: alone it prints its help, and
// a word that is none of its commands is an error.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return fmt.Errorf("%s", text)
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// mustComplete offers values for a flag of cmd, which must exist.
func mustComplete(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
