package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
)

func phaseCommand(c *cli) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "phase",
		Short:   "Steer one phase of a running mission",
		Example: "  tidewait phase nudge nightly-port build",
	})
	cmd.AddCommand(phaseNudgeCommand(c), phaseCancelCommand(c))
	return cmd
}

func phaseNudgeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "nudge MISSION PHASE",
		Short:             "Look at a waiting phase now; its bound does not move",
		Example:           "  tidewait phase nudge nightly-port build",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: c.completePhases,
	}
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := toPhase(args[0], args[1])
		s.name, s.argument = api.SignalNudge, api.Nudge{Actor: *actor}
		s.done = s.target + " is looked at now"
		return c.signal(cmd, s)
	}
	return cmd
}

func phaseCancelCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:               "cancel MISSION PHASE",
		Short:             "Cancel a phase that waits or runs",
		Example:           `  tidewait phase cancel nightly-port build --reason "not needed"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: c.completePhases,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for everyone who looks at the phase later")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := toPhase(args[0], args[1])
		s.name, s.argument = api.SignalCancel, api.Cancel{Actor: *actor, Reason: reason}
		s.done = s.target + " is being cancelled"
		return c.signal(cmd, s)
	}
	return cmd
}

// toPhase returns a signal to a phase, its name and argument still to be filled in.
func toPhase(mission, phase string) workflowSignal {
	return workflowSignal{
		workflow: api.PhaseWorkflowID(mission, phase),
		target:   fmt.Sprintf("phase %q of mission %s", phase, mission),
		lookup:   "tidewait mission show " + mission,
	}
}
