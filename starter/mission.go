package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

func missionCommand(c *cli) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "mission",
		Short:   "Launch missions and look at them",
		Example: "  tidewait mission launch nightly-port.yaml --wait",
	})
	cmd.AddCommand(
		validateCommand(c), launchCommand(c), rerunCommand(c), missionListCommand(c), missionShowCommand(c),
		resultsCommand(c), logsCommand(c), missionCancelCommand(c),
	)
	return cmd
}

func missionListCommand(c *cli) *cobra.Command {
	var request api.ListRequest
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List missions, newest first, with what each waits for",
		Example: "  tidewait mission list --status running",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				list, err := ask[api.MissionList](ctx, e, api.SubjectMissionList, request)
				if err != nil {
					return err
				}
				for _, m := range list.Missions {
					advise(m.Wait)
				}
				return c.print(list, time.Now(), func(o render.Options) string { return o.Missions(list.Missions) })
			})
		},
	}
	cmd.Flags().StringVar(&request.Status, "status", "", "only those in this status: draft, running, succeeded, failed, cancelled")
	cmd.Flags().IntVar(&request.Limit, "limit", 0, "how many at most (default 500)")
	mustComplete(cmd, "status", []string{"draft", "running", "succeeded", "failed", "cancelled"})
	return cmd
}

func missionShowCommand(c *cli) *cobra.Command {
	var launch int
	var follow bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one launch of a mission: its phases, runs and waits",
		Long: `Show one launch of a mission: its phases, runs and waits, and who did what to it.
With --follow it is shown what happens until the mission has ended, and the exit
code is the mission's fate, as that of launch --follow. With -o json and -o yaml it is
the same object with --follow, as it is in the end.`,
		Example: `  tidewait mission show nightly-port
  tidewait mission show nightly-port --follow`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error {
				detail, err := showMission(ctx, e, args[0], launch)
				if err != nil {
					return err
				}
				if follow {
					return c.followMission(ctx, e, detail)
				}
				return c.print(detail, time.Now(), func(o render.Options) string { return o.Mission(detail) })
			})
		},
	}
	addLaunch(cmd, &launch)
	cmd.Flags().BoolVar(&follow, "follow", false, "show what happens until the mission has ended")
	return cmd
}

// followMission shows what happens to a launch until it has ended.
func (c *cli) followMission(ctx context.Context, e *engine, m api.MissionDetail) error {
	if m.Status == "draft" {
		return failed("mission %s is a draft, which does not run; launch it with `tidewait mission launch FILE --follow`", m.Name)
	}
	ended, err := newFollower(c, e, m.Name, m.Launch).toTheEnd(ctx)
	if err != nil {
		return err
	}
	if c.structured() {
		if err := c.print(ended, time.Now(), nil); err != nil {
			return err
		}
	}
	return fate(api.MissionResult{Mission: m.Name, Launch: m.Launch, Status: ended.Status, FailureCode: ended.FailureCode, Failure: ended.Failure})
}

// addLaunch gives cmd the flag --launch.
func addLaunch(cmd *cobra.Command, launch *int) {
	cmd.Flags().IntVar(launch, "launch", 0, "number of the launch (default the latest)")
}

func showMission(ctx context.Context, e *engine, name string, launch int) (api.MissionDetail, error) {
	detail, err := ask[api.MissionDetail](ctx, e, api.SubjectMissionShow, api.NameRequest{Name: name, Launch: launch})
	adviseMission(&detail)
	return detail, err
}

func missionCancelCommand(c *cli) *cobra.Command {
	var reason string
	var keep bool
	cmd := &cobra.Command{
		Use:   "cancel NAME",
		Short: "Cancel a running mission; its machines are destroyed, its results kept",
		Long:  `Cancel a running mission. What its phases have committed stays. ` + keepText,
		Example: `  tidewait mission cancel nightly-port --reason "wrong branch"
  tidewait mission cancel nightly-port --reason "takes too long" --keep`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for everyone who looks at the mission later")
	addKeep(cmd, &keep)
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.signal(cmd, workflowSignal{
			workflow: api.MissionWorkflowID(args[0]),
			name:     api.SignalCancel,
			argument: api.Cancel{Actor: *actor, Reason: reason, Keep: keep},
			target:   "mission " + args[0],
			lookup:   "tidewait mission show " + args[0],
			done:     fmt.Sprintf("mission %s is being cancelled", args[0]),
		})
	}
	return cmd
}
