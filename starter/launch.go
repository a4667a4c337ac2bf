package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/mission"
	"tidewait/internal/render"
)

// launchTimeout bounds how long an engine may take to accept or refuse a launch.
const launchTimeout = 30 * time.Second

// attributeMission finds a mission's workflows in Temporal's lists.
var attributeMission = temporal.NewSearchAttributeKeyKeyword(api.AttributeMission)

func launchCommand(c *cli) *cobra.Command {
	var wait, follow bool
	cmd := &cobra.Command{
		Use:   "launch FILE",
		Short: "Launch a mission",
		Long: `Launch a mission. A local workspace is bundled and uploaded; uncommitted changes
of a repository are not part of it. A mission that no known node could ever run is
refused and stays a draft. FILE may be - for standard input.

With --wait or --follow the exit code is the mission's fate: 0 succeeded,
1 failed or cancelled, 3 refused, 4 the wait for capacity, or for a release, ran
out. Interrupting the command leaves the mission running.`,
		Example: `  tidewait mission launch nightly-port.yaml
  tidewait mission launch nightly-port.yaml --follow`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the mission has ended")
	cmd.Flags().BoolVar(&follow, "follow", false, "wait, and show what happens")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := c.readDocument(args[0])
		if err != nil {
			return err
		}
		settings, err := c.load(cmd)
		if err != nil {
			return err
		}
		l := launcher{cli: c, settings: settings, document: d, actor: *actor}
		if err := l.connect(cmd.Context()); err != nil {
			return err
		}
		defer l.close()
		return l.run(cmd.Context(), wait, follow)
	}
	return cmd
}

// launcher launches one document, or one mission again.
type launcher struct {
	*cli
	settings config.Settings
	document document // of a rerun: none, or what has changed
	actor    string
	rerun    *api.Rerun // nil: a launch from the start

	temporal client.Client
	engine   *engine
}

func (l *launcher) connect(ctx context.Context) error {
	var err error
	if l.temporal, err = l.dialNamespace(ctx, l.settings); err != nil {
		return err
	}
	if l.engine, err = l.cli.engine(ctx, l.settings); err != nil {
		l.temporal.Close()
	}
	return err
}

func (l *launcher) close() {
	l.engine.close()
	l.temporal.Close()
}

func (l *launcher) name() string {
	if l.rerun != nil {
		return l.rerun.Mission
	}
	return l.document.mission.Name
}

func (l *launcher) run(ctx context.Context, wait, follow bool) error {
	if err := l.checkIdle(ctx); err != nil {
		return err
	}
	reply, err := l.launch(ctx)
	if err != nil {
		return err
	}
	if !wait && !follow {
		return l.print(reply, time.Now(), func(render.Options) string {
			return launchedText(reply) + "see it with: tidewait mission show " + reply.Mission + "\n"
		})
	}
	if l.structured() {
		l.note("%s", strings.TrimSpace(launchedText(reply)))
	} else {
		fmt.Fprint(l.out, launchedText(reply))
	}
	result, err := l.await(ctx, reply, follow)
	if err != nil {
		return err
	}
	if err := l.print(result, time.Now(), func(render.Options) string { return endText(result, follow) }); err != nil {
		return err
	}
	return fate(result)
}

func launchedText(reply api.LaunchReply) string {
	if reply.RerunOf > 0 {
		return fmt.Sprintf("mission %s is launched again: launch %d, after what launch %d made, workflow %s\n",
			reply.Mission, reply.Launch, reply.RerunOf, reply.WorkflowID)
	}
	return fmt.Sprintf("mission %s is launched: launch %d, workflow %s\n", reply.Mission, reply.Launch, reply.WorkflowID)
}

// endText tells of a success; one that was followed is told already, and every
// other end is the command's error.
func endText(result api.MissionResult, followed bool) string {
	if followed || result.Status != "succeeded" {
		return ""
	}
	return "mission " + result.Mission + " succeeded\n"
}

// checkIdle asks the engine for the mission, so that a launch that cannot work
// is refused before anything is bundled: no engine answers, or it runs already.
func (l *launcher) checkIdle(ctx context.Context) error {
	detail, err := showMission(ctx, l.engine, l.name(), 0)
	switch {
	case isNotFound(err) && l.rerun == nil:
		return nil
	case err != nil:
		return err
	case detail.Status == "running":
		return alreadyRunning(l.name())
	}
	return nil
}

func alreadyRunning(name string) error {
	return failed("mission %s is running already; see it with `tidewait mission show %s`, or end it with `tidewait mission cancel %s --reason WHY`",
		name, name, name)
}

func (l *launcher) launch(ctx context.Context) (api.LaunchReply, error) {
	if l.rerun != nil {
		return l.start(ctx, l.rerunOptions(), l.rerunRequest())
	}
	request, err := l.bundled(ctx)
	if err != nil {
		return api.LaunchReply{}, err
	}
	return l.start(ctx, startOptions(l.document.mission, l.actor), request)
}

func (l *launcher) start(ctx context.Context, options client.StartWorkflowOptions, request api.LaunchRequest) (api.LaunchReply, error) {
	reply, err := l.updateWithStart(ctx, options, request)
	if err != nil {
		return reply, l.launchFault(ctx, err)
	}
	return reply, nil
}

// bundled asks for a launch of the document, after its workspace was sent.
func (l *launcher) bundled(ctx context.Context) (api.LaunchRequest, error) {
	source, err := l.document.workspace()
	if err != nil {
		return api.LaunchRequest{}, err
	}
	bundle, err := l.sendWorkspace(ctx, l.engine, l.settings, source)
	return api.LaunchRequest{
		Document: l.document.mission.Canonical(), Bundle: bundle.SHA256, SHA256: bundle.SHA256, Head: bundle.Head, Actor: l.actor,
	}, err
}

// updateWithStart starts the mission's workflow and waits for its answer to the
// launch: one request, so that no workflow is left without a launch.
func (l *launcher) updateWithStart(ctx context.Context, options client.StartWorkflowOptions, request api.LaunchRequest) (api.LaunchReply, error) {
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	var reply api.LaunchReply
	update, err := l.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: l.temporal.NewWithStartWorkflowOperation(options, api.MissionWorkflow, map[string]string{"see": api.SeePage}),
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID:   api.MissionWorkflowID(l.name()),
			UpdateName:   api.UpdateLaunch,
			Args:         []any{request},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return reply, err
	}
	return reply, update.Get(ctx, &reply)
}

func startOptions(m mission.Mission, actor string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       api.MissionWorkflowID(m.Name),
		TaskQueue:                api.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes:    temporal.NewSearchAttributes(attributeMission.ValueSet(m.Name)),
		StaticSummary:            fmt.Sprintf("mission %s: %s on %s", m.Name, phaseCount(m), m.Spec.Backend),
		StaticDetails:            staticDetails(m, actor),
	}
}

// launchFault explains why a launch did not happen.
func (l *launcher) launchFault(ctx context.Context, err error) error {
	var (
		application *temporal.ApplicationError
		started     *serviceerror.WorkflowExecutionAlreadyStarted
		slow        *client.WorkflowUpdateServiceTimeoutOrCanceledError
		invalid     *serviceerror.InvalidArgument
	)
	switch {
	case ctx.Err() != nil:
		return interrupted("interrupted; the launch may have happened, see `tidewait mission show %s`", l.name())
	case errors.As(err, &application):
		return l.refused(application)
	case errors.As(err, &started):
		return alreadyRunning(l.name())
	case errors.As(err, &slow), errors.Is(err, context.DeadlineExceeded):
		return unreachable("no engine has taken the launch of mission %s in %s; does one poll Temporal's task queue %q? The launch may still happen, see `tidewait mission show %s`",
			l.name(), launchTimeout, api.TaskQueue, l.name())
	case errors.As(err, &invalid) && strings.Contains(err.Error(), attributeMission.GetName()):
		return unreachable("Temporal does not know the search attribute %s; register it with `tidewait setup`", attributeMission.GetName())
	}
	return temporalFault(fmt.Errorf("cannot launch mission %s: %w", l.name(), err))
}

func (l *launcher) refused(err *temporal.ApplicationError) error {
	switch err.Type() {
	case api.ErrTypeRunning:
		return alreadyRunning(l.name())
	case api.ErrTypeNoGateway:
		return unreachable("mission %s is not launched: %s", l.name(), err.Message())
	case api.ErrTypeNoRerun:
		return failed("mission %s is not launched again: %s", l.name(), err.Message())
	case api.ErrTypeInvalidMission:
		return usage("mission %s is not launched: %s", l.name(), err.Message())
	case api.ErrTypeCapability:
		return &fault{exitCapability, errors.New(capabilityText(l.name(), err.Message(), refusedPhases(err)))}
	}
	return failed("mission %s is not launched: %s", l.name(), err.Message())
}

// refusedPhases returns the refusals that an error carries. Details of another
// shape give none: the error's message says the same in short.
func refusedPhases(err *temporal.ApplicationError) []ledger.RefusedPhase {
	var phases []ledger.RefusedPhase
	if !err.HasDetails() || err.Details(&phases) != nil {
		return nil
	}
	return slices.DeleteFunc(phases, func(p ledger.RefusedPhase) bool { return p.Refusal.Code == "" })
}

// capabilityText says why a mission stays a draft, node by node.
func capabilityText(name, summary string, phases []ledger.RefusedPhase) string {
	text := fmt.Sprintf("mission %s stays draft: no known node could ever run it", name)
	if len(phases) == 0 {
		return text + ": " + render.Clean(summary)
	}
	for _, p := range phases {
		r := p.Refusal
		text += fmt.Sprintf("\n  phase %q: %s: %s", p.Phase, r.Code, render.Clean(r.Sentence))
		for _, n := range r.Nodes {
			text += fmt.Sprintf("\n    %s: %s", render.Clean(n.NodeID), render.Clean(n.Why))
		}
		if more := r.Counts.Total() - len(r.Nodes); more > 0 && len(r.Nodes) > 0 {
			text += fmt.Sprintf("\n    and %d more of %d nodes", more, r.Counts.Total())
		}
	}
	return text
}

// fate is how a launch that was waited for ends the command.
func fate(r api.MissionResult) error {
	why := r.Status
	if r.Failure != "" {
		why += ": " + render.Clean(r.Failure)
	}
	switch {
	case r.Status == "succeeded":
		return nil
	case r.Status == "draft":
		return &fault{exitCapability, fmt.Errorf("mission %s stays %s", r.Mission, why)}
	case r.FailureCode == "wait_exceeded":
		return &fault{exitWaitExceeded, fmt.Errorf("mission %s %s", r.Mission, why)}
	}
	return failed("mission %s %s", r.Mission, why)
}
