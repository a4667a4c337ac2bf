package workflows_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// env runs workflows in virtual time with fake activities.
type env struct {
	*testsuite.TestWorkflowEnvironment
	*fakes
	t testing.TB

	missionBy *ledger.Act // who ended the mission, as it was recorded
}

func newEnv(t testing.TB) *env {
	t.Helper()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(quiet)
	e := &env{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), fakes: newFakes(), t: t}
	e.RegisterWorkflowWithOptions(workflows.Mission, workflow.RegisterOptions{Name: api.MissionWorkflow})
	e.RegisterWorkflowWithOptions(workflows.Phase, workflow.RegisterOptions{Name: api.PhaseWorkflow})
	e.RegisterWorkflowWithOptions(workflows.Lattice, workflow.RegisterOptions{Name: api.LatticeWorkflow})
	e.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: api.AppWorkflow})
	e.SetStartTime(since)
	// The environment knows its workflow by another id than phases do.
	e.OnSignalExternalWorkflow(mock.Anything, missionID, "", ledger.SignalPhaseWaits, mock.Anything).
		Return(func(_, _, _, name string, said any) error { e.SignalWorkflow(name, said); return nil }).Maybe()
	return e
}

// phase runs a phase to its end.
func (e *env) phase(in workflows.PhaseInput) (workflows.PhaseResult, error) {
	e.t.Helper()
	e.Register(e)
	e.ExecuteWorkflow(api.PhaseWorkflow, in)
	require.True(e.t, e.IsWorkflowCompleted())
	var res workflows.PhaseResult
	if err := e.GetWorkflowError(); err != nil {
		return res, err
	}
	return res, e.GetWorkflowResult(&res)
}

// endedPhase runs a phase to an end that is no success, and returns it as the
// workflow closes with it.
func (e *env) endedPhase(in workflows.PhaseInput) ledger.Ended {
	e.t.Helper()
	_, err := e.phase(in)
	require.Error(e.t, err)
	return endedIn(e.t, err)
}

func endedIn(t testing.TB, err error) ledger.Ended {
	t.Helper()
	var (
		app      *temporal.ApplicationError
		canceled *temporal.CanceledError
		ended    ledger.Ended
	)
	if errors.As(err, &canceled) {
		require.NoError(t, canceled.Details(&ended))
		require.Equal(t, "cancelled", ended.Status)
		return ended
	}
	require.ErrorAs(t, err, &app)
	require.Equal(t, workflows.ErrTypePhaseFailed, app.Type())
	require.True(t, app.NonRetryable())
	require.NoError(t, app.Details(&ended))
	require.Equal(t, ended.Failure, app.Message())
	return ended
}

// details returns what the workflow shows of itself now, or why it cannot be
// asked. Activities may call it.
func (e *env) details() string {
	var m sdkpb.WorkflowMetadata
	value, err := e.QueryWorkflow("__temporal_workflow_metadata")
	if err == nil {
		err = value.Get(&m)
	}
	if err != nil {
		return err.Error()
	}
	page, ok := strings.CutSuffix(m.GetCurrentDetails(), "\n---\n")
	require.True(e.t, ok || page == "", page)
	return page
}

// detailsMeanwhile are the details for an activity to look at while its workflow
// goes on, between two of the workflow's tasks.
func (e *env) detailsMeanwhile() string {
	page := make(chan string, 1)
	e.RegisterDelayedCallback(func() { page <- e.details() }, 0)
	return <-page
}

// upserts expects exactly these writes of search attributes, each a list.
func (e *env) upserts(writes ...[]temporal.SearchAttributeUpdate) {
	for _, w := range writes {
		e.OnUpsertTypedSearchAttributes(temporal.NewSearchAttributes(w...)).Return(nil).Once()
	}
	e.t.Cleanup(func() { e.AssertExpectations(e.t) })
}

// What the pages of the phase survey say at their beginning and end.
const (
	surveyHeader = "phase 1 **survey** of mission [port](/namespaces/{namespace}/workflows/mission.port), launch 3\n\n"
	endSurvey    = "- end it: `tidewait phase cancel port survey --reason WHY`, or signal `cancel` with input `{\"actor\": \"you\", \"reason\": \"why\"}`\n"
	giveUpSurvey = "- give up: `tidewait phase cancel port survey --reason WHY`, or signal `cancel` with input `{\"actor\": \"you\", \"reason\": \"why\"}`\n"
)

// local is the queue of a local activity in the test environment: the
// workflow's own.
const local = "default-test-taskqueue"

type attrs = []temporal.SearchAttributeUpdate

// placedAttrs is what a phase writes that gets a node without having waited.
var placedAttrs = attrs{workflows.AttrNode.ValueSet("node-a")}

// waitAttrs is what a phase writes when it starts to wait for capacity.
func waitAttrs(code string) attrs {
	return attrs{
		workflows.AttrWait.ValueSet("capacity"), workflows.AttrReason.ValueSet(code), workflows.AttrWhy.ValueSet(map[string]string{
			"capacity_cpu":    "every node that could run it is full, and lacks CPUs most",
			"behind_in_queue": "others ahead of it in line got the room",
		}[code]),
		workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueSet(since.Add(boundAfter)),
	}
}

// noWait clears the wait, with whatever else is written then.
func noWait(more ...temporal.SearchAttributeUpdate) attrs {
	return append(more, workflows.AttrWait.ValueUnset(), workflows.AttrReason.ValueUnset(), workflows.AttrWhy.ValueUnset(),
		workflows.AttrSince.ValueUnset(), workflows.AttrBound.ValueUnset())
}

// cancelBy is what is recorded of a cancel signal; run ids are empty here.
func cancelBy(actor, note string) *ledger.Act {
	return &ledger.Act{Key: "/cancel", Verb: "cancel", Actor: actor, Note: note}
}

func heartbeatLost() error { return temporal.NewHeartbeatTimeoutError() }

func notPickedUp() error {
	return temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
}

func final(message, kind string, details ...any) error {
	return temporal.NewNonRetryableApplicationError(message, kind, nil, details...)
}

// stillRefused is what the place activity answers while nothing has changed.
func stillRefused(w ledger.Waiting) error {
	return temporal.NewApplicationErrorWithOptions(w.Sentence, workflows.ErrTypeCapacityRefused, temporal.ApplicationErrorOptions{
		Category: temporal.ApplicationErrorCategoryBenign, Details: []any{w},
	})
}
