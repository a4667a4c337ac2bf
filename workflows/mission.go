package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// launchPatience is how long a mission's workflow waits for the launch that it
// was started with before it gives up.
const launchPatience = time.Minute

// Mission runs one launch of a mission: it records the draft, refuses it when
// no known node could ever run a phase, opens the checkout on a gateway and
// runs the phases in order, each as a child. A refused launch completes with
// the status draft; a failed one fails with the phase's reason.
func Mission(ctx workflow.Context, _ MissionInput) (api.MissionResult, error) {
	m := &mission{ctx: ctx}
	m.work, m.stop = workflow.WithCancel(ctx)
	m.listen()
	err := workflow.SetUpdateHandlerWithOptions(ctx, api.UpdateLaunch, m.launch, workflow.UpdateHandlerOptions{
		Description: "record and launch the mission; sent once, by `tidewait mission launch`",
	})
	if err != nil {
		return api.MissionResult{}, err
	}
	ok, err := workflow.AwaitWithTimeout(ctx, launchPatience, func() bool { return m.launched != nil || m.refusal != "" })
	if err != nil {
		return api.MissionResult{}, err
	}
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return api.MissionResult{}, err
	}
	if !ok || m.refusal != "" {
		return api.MissionResult{Mission: m.name, Status: "draft", FailureCode: m.refusalCode, Failure: m.refusal}, nil
	}
	return m.close(m.run())
}

// mission is the state of one Mission workflow.
type mission struct {
	ctx  workflow.Context // ends with native cancellation
	work workflow.Context // ends with that, or with a cancel signal
	stop workflow.CancelFunc

	name     string
	launched *LaunchResult
	refusal  string
	// refusalCode is the reason code of a refused launch.
	refusalCode string
	request     api.LaunchRequest
	waits       waits
	cancel      *api.Cancel
	current     string // workflow id of the phase that runs
}

// listen passes a cancel signal on to the phase that runs, with who and why.
func (m *mission) listen() {
	cancels := workflow.GetSignalChannelWithOptions(m.ctx, api.SignalCancel, workflow.SignalChannelOptions{
		Description: `end the mission and the phase that waits or runs. Input: {"actor": "you", "reason": "why"}`,
	})
	workflow.Go(m.ctx, func(ctx workflow.Context) {
		var c api.Cancel
		cancels.Receive(ctx, &c)
		m.cancel = &c
		if m.current != "" {
			// A phase that has just ended is not there to be told; the loop
			// below sees the signal all the same.
			_ = workflow.SignalExternalWorkflow(ctx, m.current, "", api.SignalCancel, c).Get(ctx, nil)
		}
		m.stop()
	})
}

// launch is the update a mission's workflow is started with.
func (m *mission) launch(ctx workflow.Context, req api.LaunchRequest) (api.LaunchReply, error) {
	if m.launched != nil || m.refusal != "" {
		return api.LaunchReply{}, temporal.NewNonRetryableApplicationError("this workflow has had its launch", api.ErrTypeRunning, nil)
	}
	m.request = req
	run := workflow.GetInfo(ctx).WorkflowExecution
	var res LaunchResult
	in := LaunchInput{Document: req.Document, Actor: req.Actor, RunID: run.RunID}
	err := workflow.ExecuteActivity(withEngine(ctx, "record the draft and ask whether any node could ever run it"), ActivityLaunch, in).Get(ctx, &res)
	if err != nil {
		return api.LaunchReply{}, m.refuse(err)
	}
	m.name = res.Mission.Name
	if len(res.Refused) > 0 {
		first := res.Refused[0]
		m.refusalCode = string(first.Refusal.Code)
		m.refusal = fmt.Sprintf("phase %s: %s", first.Phase, first.Refusal.Sentence)
		return api.LaunchReply{}, temporal.NewNonRetryableApplicationError(m.refusal, api.ErrTypeCapability, nil, res.Refused)
	}
	m.launched = &res
	return api.LaunchReply{
		Mission: m.name, Launch: res.Launched.Launch, WorkflowID: run.ID, RunID: run.RunID, StartedAt: res.Launched.StartedAt,
	}, nil
}

// refuse ends a launch that could not even be recorded, so that the workflow
// does not stay open for nothing.
func (m *mission) refuse(err error) error {
	m.refusal, m.refusalCode = rootMessage(err), ErrTypeLaunchUnavailable
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		m.refusalCode = app.Type()
		return temporal.NewNonRetryableApplicationError(app.Message(), app.Type(), nil)
	}
	return temporal.NewNonRetryableApplicationError(m.refusal, ErrTypeLaunchUnavailable, nil)
}

// run opens the checkout and runs the phases. It returns the phase failure or
// cancellation that ended the mission.
func (m *mission) run() error {
	l := m.launched
	m.waits.header = fmt.Sprintf("mission **%s**, launch %d\n\n", m.name, l.Launched.Launch)
	checkout, err := m.open()
	for i := 0; err == nil && m.work.Err() == nil && i < len(l.Mission.Phases); i++ {
		checkout, err = m.phase(i, checkout)
	}
	if err == nil {
		err = m.work.Err()
	}
	return err
}

func (m *mission) open() (Checkout, error) {
	l := m.launched
	workflow.SetCurrentDetails(m.ctx, m.waits.header+"opening the checkout")
	in := OpenCheckoutInput{
		Mission: m.name, Launch: l.Launched.Launch, Head: m.request.Head, URL: l.Mission.Git, Ref: l.Mission.Ref,
		Bundle: Object{Bucket: api.BucketWorkspaces, Name: m.request.Bundle, SHA256: m.request.SHA256},
	}
	var c Checkout
	if err := onGateway(m.work, &m.waits, l.Launched.GatewayID, "open the checkout", ActivityOpenCheckout, in, &c); err != nil {
		return c, err
	}
	set := SetCheckoutInput{MissionID: l.Launched.MissionID, Launch: l.Launched.Launch, Branch: c.Branch, Base: c.Commit}
	return c, workflow.ExecuteActivity(withEngine(m.work, "record the branch"), ActivitySetCheckout, set).Get(m.work, nil)
}

func (m *mission) phase(i int, from Checkout) (Checkout, error) {
	l := m.launched
	command := l.Mission.Phases[i]
	m.current = api.PhaseWorkflowID(m.name, command.Name)
	workflow.SetCurrentDetails(m.ctx, fmt.Sprintf("%sphase %d of %d: **%s**, workflow `%s`\n",
		m.waits.header, i+1, len(l.Mission.Phases), command.Name, m.current))
	ctx := workflow.WithChildOptions(m.work, workflow.ChildWorkflowOptions{
		WorkflowID:            m.current,
		TaskQueue:             TaskQueue,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WaitForCancellation:   true,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         phaseSummary(m.name, i+1, command),
		StaticDetails:         phaseDetails(m.name, command),
		TypedSearchAttributes: temporal.NewSearchAttributes(AttrMission.ValueSet(m.name)),
	})
	in := PhaseInput{
		PhaseID: l.Launched.Phases[i].ID, Mission: m.name, Launch: l.Launched.Launch, Ordinal: i + 1, Pool: l.Mission.Pool,
		Gateway: l.Launched.GatewayID, Command: command, Checkout: from, Fleet: l.Fleet,
	}
	var res PhaseResult
	err := workflow.ExecuteChildWorkflow(ctx, api.PhaseWorkflow, in).Get(ctx, &res)
	m.current = ""
	return res.Checkout, err
}

func phaseSummary(mission string, ordinal int, c PhaseCommand) string {
	return clip(fmt.Sprintf("%s · phase %d %s · %s CPU / %d MiB", mission, ordinal, c.Name, cpus(c.Machine.CPUMilli), c.Machine.MemoryMiB))
}

func phaseDetails(mission string, c PhaseCommand) string {
	return fmt.Sprintf("- **command:** `%s`\n- **look now:** signal `nudge`, or `tidewait phase nudge %[2]s %[3]s`\n"+
		"- **end it:** signal `cancel`, or `tidewait phase cancel %[2]s %[3]s`\n", clip(fmt.Sprint(c.Command.Argv)), mission, c.Name)
}

func cpus(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%.1f", float64(milli)/1000)
}

// close records how the launch ended and closes the workflow the same way.
func (m *mission) close(err error) (api.MissionResult, error) {
	l := m.launched.Launched
	end := m.end(err)
	ctx, stop := workflow.NewDisconnectedContext(m.ctx)
	defer stop()
	in := FinishMissionInput{MissionID: l.MissionID, Launch: l.Launch, End: end}
	if err := workflow.ExecuteActivity(withEngine(ctx, "record: "+end.Status), ActivityFinishMission, in).Get(ctx, nil); err != nil {
		return api.MissionResult{}, err
	}
	res := api.MissionResult{Mission: m.name, Launch: l.Launch, Status: end.Status, FailureCode: end.FailureCode, Failure: end.Failure}
	if err := m.waits.clear(m.ctx, fmt.Sprintf("**%s** %s", end.Status, end.Failure)); err != nil {
		return res, err
	}
	switch end.Status {
	case "cancelled":
		return res, temporal.NewCanceledError(res)
	case "failed":
		return res, temporal.NewNonRetryableApplicationError(end.Failure, ErrTypeMissionFailed, nil, res)
	}
	return res, nil
}

// end says in the mission's words how its last phase ended it.
func (m *mission) end(err error) ledger.MissionEnd {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return ledger.MissionEnd{Status: "succeeded"}
	case m.cancel != nil:
		return ledger.MissionEnd{Status: "cancelled", FailureCode: codeCancelled, Failure: cancelSentence(*m.cancel)}
	case temporal.IsCanceledError(err):
		return ledger.MissionEnd{Status: "cancelled", FailureCode: codeCancelled, Failure: "cancelled through Temporal, or its phase was"}
	case isTerminated(err):
		return ledger.MissionEnd{
			Status: "failed", FailureCode: ledger.CodeWorkflowLost,
			Failure: "the workflow of a phase was terminated; the phase's machine is destroyed",
		}
	case errors.As(err, &app) && app.Type() == ErrTypePhaseFailed:
		var ended ledger.Ended
		if app.Details(&ended) == nil {
			return ledger.MissionEnd{Status: "failed", FailureCode: ended.FailureCode, Failure: ended.Failure}
		}
	case errors.As(err, &app) && app.Type() == ErrTypeWorkspaceRefused:
		var code string
		if app.Details(&code) == nil {
			return ledger.MissionEnd{Status: "failed", FailureCode: code, Failure: app.Message()}
		}
	}
	return ledger.MissionEnd{Status: "failed", FailureCode: codeInternal, Failure: rootMessage(err)}
}

func isTerminated(err error) bool {
	var terminated *temporal.TerminatedError
	return errors.As(err, &terminated)
}

func cancelSentence(c api.Cancel) string {
	return (&cancellation{by: &c}).sentence("")
}
