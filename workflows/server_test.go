package workflows_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/provision"
	"tidewait/workflows"
)

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(m.Run())
}

var quiet = temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler))

// server is a real Temporal with the product's search attributes.
type server struct {
	t testing.TB
	client.Client
}

func startServer(t testing.TB) server {
	t.Helper()
	return startServerWith(t)
}

// startServerWith starts one with further dynamic configuration, each key=value.
func startServerWith(t testing.TB, settings ...string) server {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Options{
		Dir: devstacktest.Dir(t), Services: []devstack.Name{devstack.Temporal}, TemporalCLI: devstacktest.TemporalCLI(t), TemporalSettings: settings,
	})
	require.NoError(t, err)
	t.Cleanup(func() { devstacktest.Stop(t, stack) })
	c, err := client.DialContext(t.Context(), client.Options{HostPort: stack.TemporalAddress, Namespace: devstack.Namespace, Identity: "tidewait-test", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = provision.SearchAttributes(t.Context(), c, devstack.Namespace)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		missing, err := provision.MissingSearchAttributes(t.Context(), c, devstack.Namespace)
		return err == nil && len(missing) == 0
	}, 30*time.Second, 50*time.Millisecond, "the namespace does not list the search attributes")
	return server{t, c}
}

// in is the server for one part of a test: a client like the other, that
// fails that part. Workflows which are still open at its end are terminated.
func (s server) in(t *testing.T) server {
	s.t = t
	t.Cleanup(func() {
		for _, id := range []string{missionID, surveyID, reportID, appID, latticeID} {
			_ = s.TerminateWorkflow(context.Background(), id, "", "the test has ended") // most have closed
		}
	})
	return s
}

// serve polls the engine's queue, and those of one node and one gateway, until
// the test ends.
func (s server) serve(f *fakes) {
	s.t.Helper()
	s.serveQueues(f, workflows.TaskQueue, workflows.NodeQueue("node-a"), workflows.GatewayQueue("gw-1"), workflows.ObserveQueue, workflows.LatticeQueue("default", "default"))
}

// serveQueues polls these queues alone.
func (s server) serveQueues(f *fakes, queues ...string) {
	s.t.Helper()
	for _, queue := range queues {
		w := worker.New(s.Client, queue, worker.Options{
			DisableRegistrationAliasing: true, MaxHeartbeatThrottleInterval: 100 * time.Millisecond,
		})
		w.RegisterWorkflowWithOptions(workflows.Mission, workflow.RegisterOptions{Name: api.MissionWorkflow})
		w.RegisterWorkflowWithOptions(workflows.Phase, workflow.RegisterOptions{Name: api.PhaseWorkflow})
		w.RegisterWorkflowWithOptions(workflows.Lattice, workflow.RegisterOptions{Name: api.LatticeWorkflow})
		w.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: api.AppWorkflow})
		f.Register(w)
		require.NoError(s.t, w.Start())
		s.t.Cleanup(w.Stop)
	}
}

var launchRequest = api.LaunchRequest{Document: []byte(`{"name":"port"}`), Bundle: "b1", SHA256: "b1", Head: "c0", Actor: "ann"}

// launch starts a mission as the command line does.
func (s server) launch(req api.LaunchRequest) (api.LaunchReply, error) {
	s.t.Helper()
	var reply api.LaunchReply
	update, err := s.UpdateWithStartWorkflow(s.t.Context(), client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: s.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: missionID, TaskQueue: workflows.TaskQueue,
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		}, api.MissionWorkflow, workflows.MissionInput{}),
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: missionID, UpdateName: api.UpdateLaunch, Args: []any{req}, WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return reply, err
	}
	return reply, update.Get(s.t.Context(), &reply)
}

const (
	missionID = "mission.port"
	surveyID  = "phase.port.survey"
	reportID  = "phase.port.report"
)

// runPhase starts a phase, and returns when its run has begun; the gate lets it end.
func (s server) runPhase(f *fakes) gate {
	s.t.Helper()
	g := newGate()
	f.executeRun = g.run
	s.serve(f)
	s.startPhase(phaseInput())
	g.await(s.t)
	return g
}

// runMission launches a mission, and returns when the run of its first phase has
// begun; the gate lets it end.
func (s server) runMission(f *fakes) gate {
	s.t.Helper()
	g := newGate()
	f.executeRun = g.run
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
	g.await(s.t)
	return g
}

func (s server) startPhase(in workflows.PhaseInput) client.WorkflowRun {
	s.t.Helper()
	run, err := s.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{
		ID: surveyID, TaskQueue: workflows.TaskQueue, WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, api.PhaseWorkflow, in)
	require.NoError(s.t, err)
	return run
}

// history returns the events of a run so far; the newest run when runID is empty.
func (s server) history(id, runID string) []*historypb.HistoryEvent {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var events []*historypb.HistoryEvent
	for it := s.GetWorkflowHistory(ctx, id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		require.NoError(s.t, err)
		events = append(events, e)
	}
	return events
}

// newest describes the newest run of a workflow.
func (s server) newest(id string) client.WorkflowExecutionMetadata {
	s.t.Helper()
	desc, err := s.DescribeWorkflow(s.t.Context(), id, "")
	require.NoError(s.t, err)
	return desc.WorkflowExecutionMetadata
}

// count returns how many events are of a type.
func count(events []*historypb.HistoryEvent, kind enumspb.EventType) int {
	n := 0
	for _, e := range events {
		if e.GetEventType() == kind {
			n++
		}
	}
	return n
}

// eventually fails the test when the condition does not come true in time.
func eventually(t testing.TB, condition func() bool, format string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, condition, 30*time.Second, 20*time.Millisecond, format, args...)
}

// gate is a door that runs wait at, sending heartbeats, until a test opens it.
type gate struct {
	arrived chan string // run ids
	opened  chan struct{}
}

func newGate() gate { return gate{make(chan string, 100), make(chan struct{})} }

func (g gate) run(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
	g.arrived <- in.Machine.RunID
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case <-g.opened:
			return ran(), nil
		case <-ctx.Done():
			return workflows.ExecuteRunResult{}, ctx.Err()
		case <-beat.C:
			activity.RecordHeartbeat(ctx)
		}
	}
}

// await returns the run that arrived next.
func (g gate) await(t testing.TB) string {
	t.Helper()
	select {
	case run := <-g.arrived:
		return run
	case <-time.After(30 * time.Second):
		require.Fail(t, "no run came to the gate")
		return ""
	}
}
