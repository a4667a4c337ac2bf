package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/render"
)

func phaseCommand(c *cli) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "phase",
		Short:   "Steer one phase of a running mission",
		Example: "  tidewait phase nudge nightly-port build",
	})
	cmd.AddCommand(phaseNudgeCommand(c), phaseCancelCommand(c), phaseReleaseCommand(c))
	return cmd
}

func phaseNudgeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nudge MISSION PHASE",
		Short: "Look at a waiting phase now; its bound does not move",
		Long: `Look at a phase that waits for capacity now, or end its pause after a failed
attempt. A bound does not move, and a hold stays until it is released.`,
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
	var keep bool
	cmd := &cobra.Command{
		Use:   "cancel MISSION PHASE",
		Short: "Cancel a phase that waits or runs, and its mission with it",
		Long:  `Cancel a phase that waits or runs; its mission ends with it. ` + keepText,
		Example: `  tidewait phase cancel nightly-port build --reason "not needed"
  tidewait phase cancel nightly-port build --reason "takes too long" --keep`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: c.completePhases,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for everyone who looks at the phase later")
	addKeep(cmd, &keep)
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := toPhase(args[0], args[1])
		s.name, s.argument = api.SignalCancel, api.Cancel{Actor: *actor, Reason: reason, Keep: keep}
		s.done = s.target + " is being cancelled"
		return c.signal(cmd, s)
	}
	return cmd
}

// keepText explains --keep.
const keepText = `A command that
runs gets TERM and, after the node's kill_grace, is killed with its machine.

With --keep, what a command that ends on TERM has made by then is committed to a
branch of its own, tidewait/MISSION/LAUNCH-partial/PHASE. It is never a result:
the phase is cancelled, and nothing starts from that branch.`

func addKeep(cmd *cobra.Command, keep *bool) {
	cmd.Flags().BoolVar(keep, "keep", false, "commit what a run has made by then to a branch of its own")
}

func phaseReleaseCommand(c *cli) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "release MISSION PHASE",
		Short: "Let a phase that is held ask for a node",
		Long: `Let a phase whose document says hold ask for a node. Who released it, and the
note, stay with the phase. It is not held again in this launch.`,
		Example: `  tidewait phase release nightly-port review
  tidewait phase release nightly-port review --note "the survey is fine"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: c.completePhases,
	}
	cmd.Flags().StringVar(&note, "note", "", "what was looked at, for everyone who looks at the phase later")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := c.withEngine(cmd, func(ctx context.Context, e *engine) error { return checkHeld(ctx, e, args[0], args[1]) })
		if err != nil {
			return err
		}
		s := toPhase(args[0], args[1])
		s.name, s.argument = api.SignalRelease, api.Release{Actor: *actor, Note: note}
		s.done = s.target + " is released"
		return c.signal(cmd, s)
	}
	return cmd
}

// checkHeld refuses a release of what is not held: nobody would hear of it.
func checkHeld(ctx context.Context, e *engine, mission, phase string) error {
	detail, err := showMission(ctx, e, mission, 0)
	if err != nil {
		return err
	}
	for _, p := range detail.PhaseList {
		if p.Name != phase {
			continue
		}
		if p.Wait != nil && p.Wait.Kind == ledger.KindHold {
			return nil
		}
		return failed("phase %q of mission %s is not held: it %s; look with `tidewait mission show %s`", phase, mission, phaseNow(p), mission)
	}
	return failed("mission %s has no phase %q in launch %d; look with `tidewait mission show %s`", mission, phase, detail.Launch, mission)
}

// phaseNow says in a few words what a phase does.
func phaseNow(p api.Phase) string {
	switch {
	case p.Wait != nil:
		return "is " + render.WaitingFor(*p.Wait)
	case p.Status == "pending":
		return "has not been reached"
	case p.Status == "running":
		return "is running"
	}
	return "has " + map[string]string{"succeeded": "succeeded", "failed": "failed", "cancelled": "been cancelled"}[p.Status]
}

// toPhase returns a signal to a phase, its name and argument still to be filled in.
func toPhase(mission, phase string) workflowSignal {
	return workflowSignal{
		workflow: api.PhaseWorkflowID(mission, phase),
		target:   fmt.Sprintf("phase %q of mission %s", phase, mission),
		lookup:   "tidewait mission show " + mission,
	}
}
