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
	m := &mission{ctx: ctx, cancel: newCancellation(ctx, "end the mission and the phase that waits or runs.")}
	m.work = m.cancel.work
	workflow.Go(ctx, m.listen)
	workflow.Go(ctx, m.hear)
	err := workflow.SetUpdateHandlerWithOptions(ctx, api.UpdateLaunch, m.launch, workflow.UpdateHandlerOptions{
		Validator:   m.admit,
		Description: "record and launch the mission; sent once, by `tidewait mission launch`",
	})
	if err != nil {
		return api.MissionResult{}, err
	}
	if err := m.awaitLaunch(); err != nil {
		return api.MissionResult{}, err
	}
	if m.launched == nil {
		showPage(ctx, m.draftMarkdown())
		return api.MissionResult{Mission: m.name, Status: "draft", FailureCode: m.refusalCode, Failure: m.refusal}, nil
	}
	return m.close(m.run())
}

// mission is the state of one Mission workflow.
type mission struct {
	ctx    workflow.Context // ends with native cancellation
	work   workflow.Context // ends with that, or with a cancel signal
	cancel cancellation

	asked    bool // the launch has come
	request  api.LaunchRequest
	name     string
	launched *LaunchResult // nil: not launched
	// refusal and refusalCode say why there is no launch.
	refusal, refusalCode string

	images   map[string]string // digests that names of images led to
	waits    waits
	current  string // workflow id of the phase that runs; empty: none
	starting bool   // that workflow is not there yet

	at      int              // index of the phase that is under way
	commits []string         // of the phases before it, "" where another launch made it
	heard   ledger.PhaseWait // the latest word of that phase
	branch  string           // where the results go; empty: not known yet
}

// listen passes a cancel signal on to the phase that runs, with who and why.
func (m *mission) listen(ctx workflow.Context) {
	if workflow.Await(ctx, func() bool { return m.cancel.signalled() && !m.starting }) != nil {
		return
	}
	if m.current != "" {
		// A phase that has just ended is not there to be told, and need not be.
		_ = workflow.SignalExternalWorkflow(ctx, m.current, "", api.SignalCancel, *m.cancel.by).Get(ctx, nil)
	}
	m.cancel.stop()
}

// awaitLaunch returns when the launch has been tried. What it may have recorded
// must come to an end, so neither its patience nor a cancellation interrupts it.
func (m *mission) awaitLaunch() error {
	ok, err := awaitAtMost(m.work, launchPatience, "until no launch is expected any more", func() bool { return m.asked })
	if err == nil && !ok {
		m.refusalCode, m.refusal = ErrTypeLaunchUnavailable, fmt.Sprintf("no launch came in %s", launchPatience)
	}
	if !m.asked {
		return err
	}
	ctx, stop := workflow.NewDisconnectedContext(m.ctx)
	defer stop()
	return workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
}

// admit refuses a second launch, which would run under the first one's number.
func (m *mission) admit(workflow.Context, api.LaunchRequest) error {
	if m.asked {
		return temporal.NewNonRetryableApplicationError("this workflow has had its launch", api.ErrTypeRunning, nil)
	}
	return nil
}

// launch is the update a mission's workflow is started with. The run id that it
// records stays the same when the workflow is reset, and so does the launch.
func (m *mission) launch(ctx workflow.Context, req api.LaunchRequest) (api.LaunchReply, error) {
	m.asked, m.request = true, req
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	info := workflow.GetInfo(ctx)
	var res LaunchResult
	in := LaunchInput{Document: req.Document, Actor: req.Actor, RunID: info.OriginalRunID, Rerun: req.Rerun}
	err := callEngine(ctx, "record the draft and ask whether any node could ever run it", ActivityLaunch, in, &res)
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
	reply := api.LaunchReply{
		Mission: m.name, Launch: res.Launched.Launch, StartedAt: res.Launched.StartedAt,
		WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
	}
	if r := res.Launched.Rerun; r != nil {
		reply.RerunOf = r.Of
	}
	return reply, nil
}

// refuse ends a launch that could not even be recorded, so that the workflow
// does not stay open for nothing.
func (m *mission) refuse(err error) error {
	m.refusal, m.refusalCode = rootMessage(err), ErrTypeLaunchUnavailable
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		m.refusalCode = app.Type()
	}
	return temporal.NewNonRetryableApplicationError(m.refusal, m.refusalCode, nil)
}

// missionEnd is a mission's final status on its way out of the workflow.
type missionEnd struct{ ledger.MissionEnd }

func (e *missionEnd) Error() string { return e.Failure }

func failedMission(code, sentence string) *missionEnd {
	return &missionEnd{ledger.MissionEnd{Status: "failed", FailureCode: code, Failure: sentence}}
}

// run opens the checkout and runs the phases. It returns the failure or the
// cancellation that ended the mission.
func (m *mission) run() error {
	m.waits.header = m.header()
	m.waits.missionID = m.launched.Launched.MissionID
	m.waits.of.Mission = m.name
	m.at, m.commits = m.first(), make([]string, m.first())
	checkout, err := m.open()
	if err != nil {
		return err
	}
	for i := m.first(); i < len(m.launched.Mission.Phases); i++ {
		if m.cancel.requested() {
			return workflow.ErrCanceled
		}
		if checkout, err = m.phase(i, checkout); err != nil {
			return err
		}
		m.commits = append(m.commits, checkout.Commit)
	}
	return nil
}

// first is the index of the phase to begin with; those before it were taken over.
func (m *mission) first() int {
	if r := m.launched.Launched.Rerun; r != nil {
		return r.First
	}
	return 0
}

// open opens the checkout and records where the results go.
func (m *mission) open() (Checkout, error) {
	showPage(m.ctx, m.waits.header+"opening the checkout\n")
	c, err := m.checkout()
	if err != nil {
		return c, err
	}
	l := m.launched.Launched
	m.branch, m.waits.header = c.Branch, m.headerOn(c.Branch)
	set := SetCheckoutInput{MissionID: l.MissionID, Launch: l.Launch, Branch: c.Branch, Base: c.Commit}
	return c, callEngine(m.work, "record the branch", ActivitySetCheckout, set, nil)
}

// checkout returns where the launch's branch stands, making it when it is not
// there.
func (m *mission) checkout() (Checkout, error) {
	l := m.launched
	in := OpenCheckoutInput{
		Mission: m.name, Launch: l.Launched.Launch, Head: m.request.Head, URL: l.Mission.Git, Ref: l.Mission.Ref,
		Bundle: Object{Bucket: api.BucketWorkspaces, Name: m.request.Bundle, SHA256: m.request.SHA256},
	}
	if r := l.Launched.Rerun; r != nil {
		in = OpenCheckoutInput{Mission: m.name, Launch: l.Launched.Launch, Commit: r.Commit, Of: r.Of}
	}
	var c Checkout
	err := onGateway(m.work, &m.waits, l.Launched.GatewayID, "open the checkout", ActivityOpenCheckout, in, &c)
	if code, sentence, ok := refusedBy(err, "workspace_refused"); ok {
		return c, failedMission(code, sentence)
	}
	return c, err
}

// phase runs one phase and returns the checkout that the next one starts from.
func (m *mission) phase(i int, from Checkout) (Checkout, error) {
	l := m.launched
	command := l.Mission.Phases[i]
	if from.Input == (Object{}) {
		// The phase before was found ended by an earlier run of this workflow.
		var err error
		if from, err = m.checkout(); err != nil {
			return from, err
		}
	}
	id := api.PhaseWorkflowID(m.name, command.Name)
	m.at, m.heard = i, ledger.PhaseWait{}
	m.show()
	ctx := workflow.WithChildOptions(m.work, workflow.ChildWorkflowOptions{
		WorkflowID:            id,
		TaskQueue:             TaskQueue,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WaitForCancellation:   true,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         phaseSummary(m.name, i+1, command),
		StaticDetails:         phaseDetails(l, command),
		TypedSearchAttributes: temporal.NewSearchAttributes(AttrMission.ValueSet(m.name)),
	})
	in := PhaseInput{
		See: api.SeePage, PhaseID: l.Launched.Phases[i].ID, Mission: m.name, Launch: l.Launched.Launch, Ordinal: i + 1, Pool: l.Mission.Pool,
		MissionID: l.Launched.MissionID, Gateway: l.Launched.GatewayID, Command: command, Checkout: from,
		Last: i == len(l.Mission.Phases)-1, Fleet: l.Fleet, Images: m.images,
	}
	res, err := m.child(ctx, id, in)
	m.images = pinned(m.images, res.Images)
	if err != nil && !m.cancel.requested() {
		err = phaseFailure(command.Name, err)
	}
	return res.Checkout, err
}

// How often a mission asks whether a phase's workflow that it did not start has
// ended: soon at first, then rarely, since each time costs ten events.
const (
	followFirst = time.Second
	followMost  = 2 * time.Minute
)

// child runs a phase's workflow. One may run already, left by an earlier run of
// this workflow that was reset or terminated: its end is waited for, and the new
// one finds the phase ended and closes the same way.
func (m *mission) child(ctx workflow.Context, id string, in PhaseInput) (PhaseResult, error) {
	m.current = id
	defer func() { m.current = "" }()
	for pause := followFirst; ; pause = min(2*pause, followMost) {
		var res PhaseResult
		m.starting = true
		child := workflow.ExecuteChildWorkflow(ctx, api.PhaseWorkflow, in)
		err := child.GetChildWorkflowExecution().Get(ctx, nil)
		m.starting = false
		if err == nil {
			err = child.Get(ctx, &res)
		}
		if !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return res, err
		}
		if err := m.follow(ctx, id, pause); err != nil {
			return res, err
		}
	}
}

// follow waits a little for a workflow that is not this one's child. A native
// cancellation, which only reaches children, is passed on to it.
func (m *mission) follow(ctx workflow.Context, id string, pause time.Duration) error {
	err := workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{Summary: "has " + id + " ended?"}).Get(ctx, nil)
	if err != nil {
		cancel, stop := workflow.NewDisconnectedContext(ctx)
		defer stop()
		_ = workflow.RequestCancelExternalWorkflow(cancel, id, "").Get(cancel, nil) // one that has just ended need not be told
	}
	return err
}

// phaseFailure is the end of a mission whose phase did not succeed, and names
// the phase.
func phaseFailure(name string, err error) *missionEnd {
	var (
		app        *temporal.ApplicationError
		canceled   *temporal.CanceledError
		terminated *temporal.TerminatedError
		ended      ledger.Ended
	)
	switch {
	case errors.As(err, &terminated):
		return failedMission(ledger.CodeWorkflowLost, fmt.Sprintf("phase %s: its workflow was terminated; its machine is destroyed", name))
	case errors.As(err, &canceled):
		if canceled.Details(&ended) != nil {
			ended.Failure = "cancelled through Temporal"
		}
		return &missionEnd{ledger.MissionEnd{Status: "cancelled", FailureCode: codeCancelled, Failure: fmt.Sprintf("phase %s: %s", name, ended.Failure)}}
	case errors.As(err, &app) && app.Type() == ErrTypePhaseFailed && app.Details(&ended) == nil:
		return failedMission(ended.FailureCode, fmt.Sprintf("phase %s: %s", name, ended.Failure))
	}
	return failedMission(codeInternal, fmt.Sprintf("phase %s: %s", name, rootMessage(err)))
}

// close records how the launch ended and closes the workflow the same way.
func (m *mission) close(err error) (api.MissionResult, error) {
	l := m.launched.Launched
	end := m.end(err)
	ctx, stop := workflow.NewDisconnectedContext(m.ctx)
	defer stop()
	in := FinishMissionInput{MissionID: l.MissionID, Launch: l.Launch, End: end}
	if err := callEngine(ctx, "record: "+end.Status, ActivityFinishMission, in, nil); err != nil {
		return api.MissionResult{}, err
	}
	res := api.MissionResult{Mission: m.name, Launch: l.Launch, Status: end.Status, FailureCode: end.FailureCode, Failure: end.Failure}
	if err := m.waits.end(m.ctx, m.endMarkdown(end)); err != nil {
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

// end returns the launch's final status.
func (m *mission) end(err error) ledger.MissionEnd {
	var end *missionEnd
	switch {
	case err == nil:
		return ledger.MissionEnd{Status: "succeeded"}
	case errors.As(err, &end):
		return end.MissionEnd
	case m.cancel.requested():
		return ledger.MissionEnd{Status: "cancelled", FailureCode: codeCancelled, Failure: m.cancel.sentence("cancelled through Temporal"), By: m.cancel.act()}
	}
	return failedMission(codeInternal, rootMessage(err)).MissionEnd
}
