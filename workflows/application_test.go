package workflows_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

const appID = "app.default.default.shop-front"

var (
	appKey   = ledger.AppKey{Account: "default", Lattice: "default", Name: "shop-front"}
	appInput = workflows.AppInput{Key: appKey}

	latticeAttrs = attrs{
		workflows.AttrWait.ValueSet("lattice"), workflows.AttrReason.ValueSet("never_observed"),
		workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueUnset(),
	}
)

// waitingApp is an application that has been deployed where nobody has seen a
// host.
func waitingApp(revision int64) ledger.Application {
	return ledger.Application{
		Key: appKey, Revision: revision, Deployed: "v2", IsDeployed: true, Since: since,
		Wait: &ledger.AppWait{Kind: "lattice", Code: "never_observed", Reason: "no host of lattice default has been observed yet", Since: since},
	}
}

// shelf is what the database says of the application, as a test changes it.
type shelf struct {
	mu  sync.Mutex
	app ledger.Application
}

func newShelf(f *fakes, app ledger.Application) *shelf {
	s := &shelf{app: app}
	f.loadApp = func(context.Context, ledger.AppKey) (ledger.Application, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.app, nil
	}
	return s
}

func (s *shelf) put(app ledger.Application) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.app = app
}

// application runs an application to its end.
func (e *env) application(in workflows.AppInput) error {
	e.t.Helper()
	e.Register(e)
	e.ExecuteWorkflow(api.AppWorkflow, in)
	require.True(e.t, e.IsWorkflowCompleted())
	return e.GetWorkflowError()
}

// revise sends an update after a time.
func (e *env) revise(after time.Duration, revision int64, before func()) {
	e.RegisterDelayedCallback(func() {
		if before != nil {
			before()
		}
		e.UpdateWorkflow(api.UpdateRevise, "", &testsuite.TestUpdateCallback{
			OnReject:   func(err error) { require.NoError(e.t, err) },
			OnAccept:   func() {},
			OnComplete: func(_ any, err error) { require.NoError(e.t, err) },
		}, api.AppRevision{Revision: revision})
	}, after)
}

func TestApplicationWaitsInSightUntilItIsUndeployed(t *testing.T) {
	e := newEnv(t)
	s := newShelf(e.fakes, waitingApp(7))
	e.upserts(latticeAttrs, noWait())
	e.RegisterDelayedCallback(func() {
		details := e.details()
		for _, part := range []string{
			"application **shop-front** in lattice **default**\n\n**waiting for lattice** (`never_observed`), as of 2026-03-01 08:00:00Z\n",
			"- **why:** no host of lattice default has been observed yet\n- **since:** 2026-03-01 08:00:00Z\n- **fails by itself:** never\n",
			"- **next look:** when a host appears\n- **you can:** start a host in lattice `default`, or undeploy with `tidewait app undeploy shop-front --lattice default`\n",
		} {
			require.Contains(t, details, part)
		}
	}, time.Minute)
	e.revise(time.Hour, 8, func() { s.put(ledger.Application{Key: appKey, Revision: 8}) })
	require.NoError(t, e.application(appInput))
	require.Equal(t, []string{workflows.ActivityLoadApplication}, e.names(), "the database has the wait already")
	require.Len(t, e.all(), 2)
}

// TestApplicationTakesNewsInAnyOrder: news may come twice, late or in the wrong
// order; what the database says now is what counts.
func TestApplicationTakesNewsInAnyOrder(t *testing.T) {
	e := newEnv(t)
	s := newShelf(e.fakes, waitingApp(7))
	e.upserts(latticeAttrs, noWait())
	e.revise(time.Minute, 9, nil)   // deployed again: the wait goes on, nothing is written
	e.revise(2*time.Minute, 9, nil) // twice
	e.revise(3*time.Minute, 8, nil) // late
	e.revise(time.Hour, 10, func() { s.put(ledger.Application{}) })
	require.NoError(t, e.application(appInput))
	require.Len(t, e.all(), 3, "looked at the start, and for what was new")
}

func TestApplicationThatIsGoneCloses(t *testing.T) {
	e := newEnv(t)
	newShelf(e.fakes, ledger.Application{})
	e.upserts()
	require.NoError(t, e.application(appInput))
}

// TestApplicationWithoutDatabaseIsPatient: nothing is decided without knowing
// what is deployed.
func TestApplicationWithoutDatabaseIsPatient(t *testing.T) {
	e := newEnv(t)
	tries := 0
	e.loadApp = func(context.Context, ledger.AppKey) (ledger.Application, error) {
		if tries++; tries < 8 {
			return ledger.Application{}, errors.New("the database does not answer")
		}
		return ledger.Application{}, nil
	}
	require.NoError(t, e.application(appInput))
	require.Equal(t, 8, tries)
}

// TestApplicationKeepsItsWaitAcrossRuns: what is shown already is not written again.
func TestApplicationKeepsItsWaitAcrossRuns(t *testing.T) {
	e := newEnv(t)
	newShelf(e.fakes, waitingApp(7))
	e.upserts(latticeAttrs)
	e.SetContinueAsNewSuggested(false)
	e.RegisterDelayedCallback(func() { e.SetContinueAsNewSuggested(true) }, time.Hour)
	e.revise(2*time.Hour, 8, nil)
	err := e.application(appInput)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)

	var next workflows.AppInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	require.Equal(t, workflows.AppInput{Key: appKey, Resume: workflows.AppResume{Kind: "lattice", Code: "never_observed", Since: since}}, next)

	e = newEnv(t)
	s := newShelf(e.fakes, waitingApp(8))
	e.upserts(noWait()) // the wait is not declared a second time
	e.revise(time.Hour, 9, func() { s.put(ledger.Application{}) })
	require.NoError(t, e.application(next))
}

// TestApplicationOnAServer runs what the engine does: updates that start the
// workflow where there is none, and what a person sees then.
func TestApplicationOnAServer(t *testing.T) {
	s := startServer(t).in(t)
	f := newFakes()
	book := newShelf(f, waitingApp(1))
	s.serve(f)
	s.revise(1)
	eventually(t, func() bool {
		res, err := s.DescribeWorkflow(t.Context(), appID, "")
		require.NoError(t, err)
		kind, ok := res.TypedSearchAttributes.GetKeyword(workflows.AttrWait)
		return ok && kind == "lattice"
	}, "the wait is not in the search attributes")
	for revision := int64(2); revision <= 20; revision++ {
		s.revise(revision)
	}
	book.put(ledger.Application{})
	s.revise(21)
	s.awaitClosed(appID)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, s.newest(appID).Status)
	require.LessOrEqual(t, len(s.history(appID, "")), 20*7+15, "events of 21 deployments and one wait")
}

// revise tells the application's workflow of a revision, as the engine does.
func (s server) revise(revision int64) {
	s.t.Helper()
	update, err := s.UpdateWithStartWorkflow(s.t.Context(), client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: s.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: appID, TaskQueue: workflows.TaskQueue, TypedSearchAttributes: workflows.AppAttributes(appKey),
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, api.AppWorkflow, appInput),
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: appID, UpdateName: api.UpdateRevise, Args: []any{api.AppRevision{Revision: revision}},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	require.NoError(s.t, err)
	require.NoError(s.t, update.Get(s.t.Context(), nil))
}

func recordAppWaited(s server, f *fakes) {
	book := newShelf(f, waitingApp(1))
	s.serve(f)
	s.revise(1)
	s.revise(2)
	book.put(ledger.Application{})
	s.revise(3)
}

func recordAppDeleted(s server, f *fakes) {
	newShelf(f, ledger.Application{})
	s.serve(f)
	s.revise(4)
}
