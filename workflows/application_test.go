package workflows_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
	"tidewait/workflows"
)

const (
	appID     = "app.default.default.shop-front"
	latticeID = "lattice.default.default"
)

var (
	appKey   = ledger.AppKey{Account: "default", Lattice: "default", Name: "shop-front"}
	appInput = workflows.AppInput{Key: appKey}

	latticeAttrs = waitsFor("lattice", "never_observed", "no host of lattice default has been observed yet", since)

	undeployed = workflows.AssessResult{Epoch: 1, Clean: true, Status: "undeployed: the application is not deployed"}

	// What one host is told in tests.
	scaleKey = scaler.Key{Subject: "s1", Host: "NHOST"}
	scaleUp  = scaler.Batch{Host: "NHOST", Commands: []scaler.Command{
		{Key: scaleKey, Action: scaler.Scale, ID: "shop_front-api", Image: "r/api:1", Count: 2},
	}}
)

// waitsFor is what an application writes that starts to wait.
func waitsFor(kind, code, why string, from time.Time) attrs {
	return attrs{
		workflows.AttrWait.ValueSet(kind), workflows.AttrReason.ValueSet(code), workflows.AttrWhy.ValueSet(why),
		workflows.AttrSince.ValueSet(from), workflows.AttrBound.ValueUnset(),
	}
}

// waitingApp is an application that has been deployed where nobody has seen a
// host.
func waitingApp(revision int64) workflows.AssessResult {
	return workflows.AssessResult{
		Revision: revision, Deployed: "v2", IsDeployed: true, Epoch: 1, Status: "waiting: no host",
		Wait: &ledger.AppWait{Kind: "lattice", Code: "never_observed", Reason: "no host of lattice default has been observed yet", Since: since},
	}
}

func deployedApp() workflows.AssessResult {
	return workflows.AssessResult{Revision: 1, Deployed: "v2", IsDeployed: true, Epoch: 1, Status: "deployed"}
}

// failingApp is one that a host refuses, until the time of its next try.
func failingApp(retry time.Duration) workflows.AssessResult {
	res := deployedApp()
	res.Status, res.Retry = "failed: manifest unknown", retry
	res.Backoff = scaler.Backoff{{Key: scaleKey, Code: "command_failed", Message: "manifest unknown", Attempts: 1, Since: since, Next: since.Add(retry)}}
	res.Wait = &ledger.AppWait{Kind: "backoff", Code: "command_failed", Reason: "manifest unknown", Since: since}
	return res
}

func allWell(b scaler.Batch) []workflows.CommandResult {
	var all []workflows.CommandResult
	for _, c := range b.Commands {
		all = append(all, workflows.CommandResult{Key: c.Key, OK: true})
	}
	return all
}

// script answers looks one after the other; the last answer holds.
type script struct {
	mu      sync.Mutex
	answers []workflows.AssessResult
	asked   []workflows.AssessInput
}

func newScript(f *fakes, answers ...workflows.AssessResult) *script {
	s := &script{answers: answers}
	f.assess = func(_ context.Context, in workflows.AssessInput) (workflows.AssessResult, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, in)
		answer := s.answers[0]
		if len(s.answers) > 1 {
			s.answers = s.answers[1:]
		}
		return answer, nil
	}
	return s
}

func (s *script) then(answer workflows.AssessResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = []workflows.AssessResult{answer}
}

func (s *script) looks() []workflows.AssessInput {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
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

// signal sends a signal after a time.
func (e *env) signal(after time.Duration, name string, arg any) {
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(name, arg) }, after)
}

func TestApplicationWaitsInSightUntilItIsUndeployed(t *testing.T) {
	e := newEnv(t)
	s := newScript(e.fakes, waitingApp(7))
	e.upserts(latticeAttrs, noWait())
	e.RegisterDelayedCallback(func() {
		details := e.details()
		for _, part := range []string{
			"application **shop-front** in lattice [default](/namespaces/{namespace}/workflows/lattice.default.default), account **default**\n\n**waiting for lattice** (`never_observed`), as of 2026-03-01 08:00:00Z\n",
			"- **why:** no host of lattice default has been observed yet\n- **since:** 2026-03-01 08:00:00Z\n- **fails by itself:** never\n",
			"- **next look:** when a host appears or changes its labels\n",
			"- start a host in the lattice that suits\n- see which hosts there are, and what they run: `tidewait lattice show default`\n",
			"- try now: `tidewait app nudge shop-front --lattice default`, or signal `nudge` with input `{\"actor\": \"you\"}`\n",
			"- give up: `tidewait app undeploy shop-front --lattice default`\n",
		} {
			require.Contains(t, details, part)
		}
	}, time.Minute)
	e.revise(time.Hour, 8, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))
	require.Equal(t, []string{workflows.ActivityAssess}, e.names(), "the observer has recorded the wait already")
	require.Len(t, e.all(), 2)
	require.Equal(t, "lattice.default.default", e.all()[0].Queue)
	require.Equal(t, int64(7), s.looks()[1].Revision, "the second look knows what was deployed at the first")
}

// TestApplicationTakesNewsInAnyOrder: news may come twice, late or in the wrong
// order; what is deployed now is what counts.
func TestApplicationTakesNewsInAnyOrder(t *testing.T) {
	e := newEnv(t)
	s := newScript(e.fakes, waitingApp(7))
	e.upserts(latticeAttrs, noWait())
	e.revise(time.Minute, 9, nil)   // deployed again: the wait goes on, nothing is written
	e.revise(2*time.Minute, 9, nil) // twice
	e.revise(3*time.Minute, 8, nil) // late
	e.revise(time.Hour, 10, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))
	require.Len(t, e.all(), 3, "looked at the start, and for what was new")
}

func TestApplicationThatIsGoneCloses(t *testing.T) {
	e := newEnv(t)
	newScript(e.fakes, undeployed)
	e.upserts()
	require.NoError(t, e.application(appInput))
}

// TestApplicationSendsAndLooksAgain: what a look asks for is sent, each host's
// part at once, and the next look is told what came of it.
func TestApplicationSendsAndLooksAgain(t *testing.T) {
	e := newEnv(t)
	other := scaler.Batch{Host: "NOTHER", Commands: []scaler.Command{{
		Key: scaler.Key{Subject: "s2", Host: "NOTHER"}, Action: scaler.StartProvider, ID: "shop_front-web", Image: "r/web:1",
	}}}
	begin := deployedApp()
	begin.Status, begin.Batches = "reconciling", []scaler.Batch{scaleUp, other}
	s := newScript(e.fakes, begin, deployedApp())
	e.revise(time.Hour, 2, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))

	sent := inputs[workflows.CommandsInput](e.fakes)
	require.ElementsMatch(t, []workflows.CommandsInput{
		{Key: appKey, Epoch: 1, Batch: scaleUp}, {Key: appKey, Epoch: 1, Batch: other},
	}, sent)
	var reported []workflows.CommandResult
	for _, look := range s.looks()[1:] {
		reported = append(reported, look.Results...)
	}
	require.ElementsMatch(t, append(allWell(scaleUp), allWell(other)...), reported, "each result is told once")
	require.Empty(t, s.looks()[len(s.looks())-1].Pending)
}

// TestApplicationListensWhileHostsWork: a look while commands are under way knows
// of them.
func TestApplicationListensWhileHostsWork(t *testing.T) {
	e := newEnv(t)
	begin := deployedApp()
	begin.Batches = []scaler.Batch{scaleUp}
	s := newScript(e.fakes, begin, deployedApp())
	e.Register(e)
	e.OnActivity(workflows.ActivityCommands, mock.Anything, mock.Anything).After(time.Minute).Return(allWell(scaleUp), nil)
	e.signal(10*time.Second, api.SignalWake, nil)
	e.revise(time.Hour, 2, func() { s.then(undeployed) })
	e.ExecuteWorkflow(api.AppWorkflow, appInput)
	require.NoError(t, e.GetWorkflowError())
	looks := s.looks()
	require.Len(t, looks, 4, "at the start, woken, when the host was done, and undeployed")
	require.Equal(t, scaleUp.Commands, looks[1].Pending)
	require.Empty(t, looks[1].Results)
	require.Equal(t, allWell(scaleUp), looks[2].Results)
	require.Empty(t, looks[2].Pending)
}

// TestApplicationBacksOff: what failed is tried again when its time has come, by
// one timer, and at once when a person asks.
func TestApplicationBacksOff(t *testing.T) {
	e := newEnv(t)
	s := newScript(e.fakes, failingApp(4*time.Minute), failingApp(4*time.Minute), failingApp(4*time.Minute))
	e.upserts(waitsFor("backoff", "command_failed", "manifest unknown", since), noWait())
	e.RegisterDelayedCallback(func() {
		require.Contains(t, e.details(), "- **next look:** 2026-03-01 08:04:00Z, or when the lattice changes\n")
		require.Contains(t, e.details(), "- try now: `tidewait app nudge shop-front --lattice default`, or signal `nudge` with input")
	}, time.Second)
	e.signal(5*time.Minute, api.SignalNudge, api.Nudge{Actor: "ann"})
	e.revise(6*time.Minute, 2, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))
	looks := s.looks()
	require.Len(t, looks, 4, "at the start, after 4 minutes, nudged after 5, and undeployed")
	require.Equal(t, []bool{false, false, true, false}, []bool{looks[0].Nudged, looks[1].Nudged, looks[2].Nudged, looks[3].Nudged})
	require.Equal(t, failingApp(4*time.Minute).Backoff, looks[1].Backoff)
}

// TestApplicationSaysWhoNudged: whoever looks is told once of each nudge, also of
// those that name nobody.
func TestApplicationSaysWhoNudged(t *testing.T) {
	e := newEnv(t)
	s := newScript(e.fakes, failingApp(time.Hour))
	e.signal(time.Minute, api.SignalNudge, api.Nudge{Actor: "ann"})
	e.RegisterDelayedCallback(func() {
		e.SignalWorkflow(api.SignalNudge, nil)
		e.SignalWorkflow(api.SignalNudge, map[string]any{"actor": "bob", "note": "the image is there"})
	}, 2*time.Minute)
	e.revise(3*time.Minute, 2, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))
	var told [][]ledger.Act
	for _, in := range s.looks() {
		told = append(told, in.Acts)
	}
	require.Equal(t, [][]ledger.Act{
		nil,
		{{Key: "/nudge/1", Verb: "nudge", Actor: "ann"}},
		{{Key: "/nudge/2", Verb: "nudge"}},
		{{Key: "/nudge/3", Verb: "nudge", Actor: "bob", Note: "the image is there"}},
		nil,
	}, told, "the test environment's runs have no id")
}

// TestApplicationAfterLostCommands: commands whose engine died are not counted
// as failed; the lattice is looked at instead.
func TestApplicationAfterLostCommands(t *testing.T) {
	e := newEnv(t)
	begin := deployedApp()
	begin.Batches = []scaler.Batch{scaleUp}
	s := newScript(e.fakes, begin, deployedApp())
	e.commands = func(context.Context, workflows.CommandsInput) ([]workflows.CommandResult, error) {
		return nil, final("another engine observes the lattice now", "StaleEpoch")
	}
	e.revise(time.Hour, 2, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))
	looks := s.looks()
	require.Len(t, looks, 3)
	require.Empty(t, looks[1].Results)
	require.Empty(t, looks[1].Pending)
}

// TestApplicationWithoutObserver: nobody who looks is a wait of its own, with the
// database told, and over as soon as somebody does.
func TestApplicationWithoutObserver(t *testing.T) {
	e := newEnv(t)
	s := newScript(e.fakes, deployedApp())
	real, tries := e.assess, 0
	e.assess = func(ctx context.Context, in workflows.AssessInput) (workflows.AssessResult, error) {
		if tries++; tries == 1 {
			return workflows.AssessResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		if tries == 2 {
			require.Contains(t, e.details(), "**waiting for observer** (`observer_absent`)")
			require.Contains(t, e.details(), "no engine observes lattice default")
		}
		return real(ctx, in)
	}
	from := since.Add(-20 * time.Second)
	e.upserts(waitsFor("observer", "observer_absent", "no engine observes lattice default, so nobody knows what runs there", from), noWait())
	e.revise(time.Hour, 2, func() { s.then(undeployed) })
	require.NoError(t, e.application(appInput))
	noted := inputs[ledger.OpenWait](e.fakes)
	require.Len(t, noted, 1)
	require.Equal(t, &appKey, noted[0].App)
	require.Equal(t, "observer", noted[0].Kind)
	require.Equal(t, []string{
		workflows.ActivityAssess, workflows.ActivityNoteWait, workflows.ActivityAssess, workflows.ActivityClearWait, workflows.ActivityAssess,
	}, e.names())
}

// TestApplicationWithoutDatabaseIsPatient: nothing is decided without knowing
// what is deployed.
func TestApplicationWithoutDatabaseIsPatient(t *testing.T) {
	e := newEnv(t)
	tries := 0
	e.assess = func(context.Context, workflows.AssessInput) (workflows.AssessResult, error) {
		if tries++; tries < 8 {
			return workflows.AssessResult{}, errors.New("the database does not answer")
		}
		return undeployed, nil
	}
	require.NoError(t, e.application(appInput))
	require.Equal(t, 8, tries)
}

// TestApplicationKeepsItsStateAcrossRuns: what is shown already is not written
// again, and what has failed is not forgotten.
func TestApplicationKeepsItsStateAcrossRuns(t *testing.T) {
	e := newEnv(t)
	newScript(e.fakes, failingApp(0))
	e.upserts(waitsFor("backoff", "command_failed", "manifest unknown", since))
	e.RegisterDelayedCallback(func() { e.SetContinueAsNewSuggested(true) }, time.Hour)
	e.signal(2*time.Hour, api.SignalWake, nil)
	err := e.application(appInput)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)

	var next workflows.AppInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	require.Equal(t, workflows.AppInput{Key: appKey, Resume: workflows.AppResume{
		Revision: 1, Backoff: failingApp(0).Backoff, Wait: ledger.AppWait{Kind: "backoff", Code: "command_failed", Reason: "manifest unknown", Since: since},
	}}, next)

	e = newEnv(t)
	s := newScript(e.fakes, failingApp(0))
	e.upserts(noWait()) // the wait is not declared a second time
	e.revise(time.Hour, 9, func() { s.then(undeployed) })
	require.NoError(t, e.application(next))
	require.Equal(t, failingApp(0).Backoff, s.looks()[0].Backoff)
}

// TestApplicationThatIsWokenFasterThanItLooksBeginsAnew: a wake that comes with each
// look does not have the history grow for ever.
func TestApplicationThatIsWokenFasterThanItLooksBeginsAnew(t *testing.T) {
	e := newEnv(t)
	looks := 0
	e.assess = func(context.Context, workflows.AssessInput) (workflows.AssessResult, error) {
		if looks++; looks == 3 {
			e.SetContinueAsNewSuggested(true)
		}
		if looks < 50 {
			e.SignalWorkflow(api.SignalWake, nil)
		}
		return failingApp(0), nil
	}
	e.upserts(waitsFor("backoff", "command_failed", "manifest unknown", since))
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, e.application(appInput), &again)
	require.Equal(t, 3, looks)
}

// TestApplicationOnAServer runs what the engine does: updates that start the
// workflow where there is none, a storm of signals, and what a person sees then.
func TestApplicationOnAServer(t *testing.T) {
	s := startServer(t).in(t)
	f := newFakes()
	looks := newScript(f, waitingApp(1))
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
	const storm = 2000
	for range storm {
		require.NoError(t, s.SignalWorkflow(t.Context(), appID, "", api.SignalWake, nil))
	}
	looks.then(undeployed)
	s.revise(21)
	s.awaitClosed(appID)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, s.newest(appID).Status)
	require.Less(t, len(looks.looks()), storm/2, "signals that come together cost one look")
}

// revise tells the application's workflow of a revision, as the engine does.
func (s server) revise(revision int64) {
	s.t.Helper()
	update, err := s.UpdateWithStartWorkflow(s.t.Context(), client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: s.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: appID, TaskQueue: workflows.TaskQueue, TypedSearchAttributes: workflows.AppAttributes(appKey, nil),
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
	looks := newScript(f, waitingApp(1))
	s.serve(f)
	s.revise(1)
	s.revise(2)
	looks.then(undeployed)
	s.revise(3)
}

func recordAppDeleted(s server, f *fakes) {
	newScript(f, undeployed)
	s.serve(f)
	s.revise(4)
}

func recordAppFailed(s server, f *fakes) {
	begin := deployedApp()
	begin.Batches = []scaler.Batch{scaleUp}
	looks := newScript(f, begin, failingApp(time.Second), failingApp(time.Hour))
	s.serve(f)
	s.revise(1)
	eventually(s.t, func() bool { return len(looks.looks()) >= 3 }, "it was not looked at again")
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), appID, "", api.SignalNudge, api.Nudge{Actor: "ann"}))
	eventually(s.t, func() bool { return len(looks.looks()) >= 4 }, "a nudge was not looked at")
	looks.then(undeployed)
	s.revise(2)
}

func recordAppUnobserved(s server, f *fakes) {
	looks := newScript(f, deployedApp())
	real, missed := f.assess, false
	f.assess = func(ctx context.Context, in workflows.AssessInput) (workflows.AssessResult, error) {
		if !missed {
			missed = true
			return workflows.AssessResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		return real(ctx, in)
	}
	s.serve(f)
	s.revise(1)
	looks.then(undeployed)
	s.revise(2)
}

func recordLattice(s server, f *fakes) {
	s.serve(f)
	s.startLattice()
}
