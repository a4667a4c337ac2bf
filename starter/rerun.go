package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"tidewait/internal/api"
	"tidewait/internal/mission"
)

func rerunCommand(c *cli) *cobra.Command {
	var (
		wait, follow bool
		file         string
		rerun        api.Rerun
	)
	cmd := &cobra.Command{
		Use:   "rerun NAME --from PHASE",
		Short: "Launch a mission again from one of its phases",
		Long: `Launch a mission again, as a new launch that begins with PHASE and with what the
phases before it committed in the mission's latest launch. Nothing is taken from
the workspace again. A mission that runs is refused, and so is a phase that comes
after one without a commit. From the first phase, the new launch begins with what
the first phase began with.

What is run is the document of the latest launch. With --file another one is: it
may have changed from PHASE on, and in everything that is not a phase; a phase
whose commit is taken over must be what it was.

With --wait or --follow the exit code is the mission's fate, as of launch.`,
		Example: `  tidewait mission rerun nightly-port --from build
  tidewait mission rerun nightly-port --from build --file nightly-port.yaml --follow`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
	}
	cmd.Flags().StringVar(&rerun.From, "from", "", "the phase to begin with")
	cmd.Flags().StringVar(&file, "file", "", "a document that has changed from that phase on (default: the latest launch's)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the mission has ended")
	cmd.Flags().BoolVar(&follow, "follow", false, "wait, and show what happens")
	mustCompleteFrom(c, cmd)
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if rerun.From == "" {
			return usage("name the phase to begin with: --from PHASE")
		}
		rerun.Mission = args[0]
		l := launcher{cli: c, actor: *actor, rerun: &rerun}
		var err error
		if file != "" {
			if l.document, err = c.readDocument(file); err != nil {
				return err
			}
			if name := l.document.mission.Name; name != rerun.Mission {
				return usage("%s is the document of mission %s, not of %s", file, name, rerun.Mission)
			}
		}
		if l.settings, err = c.load(cmd); err != nil {
			return err
		}
		if err := l.connect(cmd.Context()); err != nil {
			return err
		}
		defer l.close()
		return l.run(cmd.Context(), wait, follow)
	}
	return cmd
}

// mustCompleteFrom offers the phases of the mission that is named already.
func mustCompleteFrom(c *cli, cmd *cobra.Command) {
	err := cmd.RegisterFlagCompletionFunc("from", func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.completePhases(cmd, args[:1], word)
	})
	if err != nil {
		panic(err)
	}
}

// rerunRequest asks for a rerun. The workspace is where the latest launch left it.
func (l *launcher) rerunRequest() api.LaunchRequest {
	r := api.LaunchRequest{Rerun: l.rerun, Actor: l.actor}
	if l.document.mission.Name != "" {
		r.Document = l.document.mission.Canonical()
	}
	return r
}

// rerunOptions are those of a launch; of the document only the name need be known.
func (l *launcher) rerunOptions() client.StartWorkflowOptions {
	o := startOptions(mission.Mission{Name: l.rerun.Mission}, l.actor)
	o.StaticSummary = fmt.Sprintf("mission %s, again from phase %s", l.rerun.Mission, l.rerun.From)
	o.StaticDetails = fmt.Sprintf("- **launched by:** %s\n- **begins:** with phase **%s**, from what the phases before it committed\n", l.actor, l.rerun.From) +
		missionCommands(l.rerun.Mission)
	return o
}
