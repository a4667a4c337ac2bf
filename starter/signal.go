package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"

	"tidewait/internal/render"
)

// workflowSignal is one message to a running workflow.
type workflowSignal struct {
	workflow string // id
	name     string
	argument any
	target   string // what it concerns, for people
	lookup   string // the command that shows the target
	done     string // what to say when it was taken
}

// signalled is the structured output of a command that signals.
type signalled struct {
	WorkflowID string `json:"workflowId"`
	Signal     string `json:"signal"`
	Argument   any    `json:"argument"`
}

// signal sends s through Temporal and says so.
func (c *cli) signal(cmd *cobra.Command, s workflowSignal) error {
	settings, err := c.load(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if err := c.suits(ctx, settings); err != nil {
		return err
	}
	temporal, err := c.dialNamespace(ctx, settings)
	if err != nil {
		return err
	}
	defer temporal.Close()

	err = temporal.SignalWorkflow(ctx, s.workflow, "", s.name, s.argument)
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return failed("%s is not running: Temporal has no open workflow %s; look with `%s`", s.target, s.workflow, s.lookup)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return temporalFault(err)
	}
	report := signalled{WorkflowID: s.workflow, Signal: s.name, Argument: s.argument}
	return c.print(report, time.Now(), func(render.Options) string { return s.done + "\n" })
}
