package workflows_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// named are the events that people see in a timeline, and what each must say for
// itself.
var named = map[enumspb.EventType]bool{
	enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:                  true,
	enumspb.EVENT_TYPE_TIMER_STARTED:                            true,
	enumspb.EVENT_TYPE_MARKER_RECORDED:                          true, // a local activity
	enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: true,
}

// TestEveryActivityAndTimerSaysWhatItIsFor goes through all recorded histories.
func TestEveryActivityAndTimerSaysWhatItIsFor(t *testing.T) {
	files := historiesOf(t, "*", "*")
	seen := map[enumspb.EventType]int{}
	for _, file := range files {
		for _, e := range readHistory(t, file).GetEvents() {
			if !named[e.GetEventType()] || isVersion(e) {
				continue
			}
			seen[e.GetEventType()]++
			summary := text(t, e.GetUserMetadata().GetSummary())
			require.NotEmptyf(t, summary, "%s: event %d, %s, has no summary", file, e.GetEventId(), e.GetEventType())
			require.LessOrEqual(t, len(summary), 200, "%s: event %d", file, e.GetEventId())
		}
	}
	for kind := range named {
		require.Greaterf(t, seen[kind], 3, "the histories have nearly no %s", kind)
	}
}

// isVersion reports whether a marker is the SDK's own.
func isVersion(e *historypb.HistoryEvent) bool {
	name := e.GetMarkerRecordedEventAttributes().GetMarkerName()
	return name != "" && name != "LocalActivity"
}

func text(t testing.TB, p *commonpb.Payload) string {
	t.Helper()
	if p == nil {
		return ""
	}
	var s string
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(p, &s))
	return s
}

// TestSearchAttributesAreWrittenOnTransitionsOnly counts what a phase writes that
// is refused, nudged three times, refused for another reason, placed, run and
// committed.
func TestSearchAttributesAreWrittenOnTransitionsOnly(t *testing.T) {
	s := startServer(t).in(t)
	f := newFakes()
	looks := make(chan ledger.Wake, 100)
	var code, placed atomic.Bool
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		looks <- in.Wake
		switch {
		case !in.Retrying:
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		case placed.Load():
			return placedOn("node-a", in.Attempt), nil
		case code.Load() && in.LastCode == capacity.CodeCPU:
			return refusedFor(capacity.CodeBehindInQueue, boundAfter), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
	}
	s.serve(f)
	in := phaseInput()
	in.Fleet.RetryInterval = time.Hour // what looks are taken is the test's to say
	run := s.startPhase(in)
	require.Equal(t, ledger.WakeFirst, next(t, looks))
	require.Equal(t, ledger.WakeTimer, next(t, looks))
	nudge := func() {
		require.NoError(t, s.SignalWorkflow(t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "ann"}))
		require.Equal(t, ledger.WakeNudge, next(t, looks))
		s.settled()
	}
	for range 3 {
		nudge()
	}
	code.Store(true)
	nudge()
	require.Equal(t, ledger.WakeTimer, next(t, looks), "under the other code")
	placed.Store(true)
	nudge()
	require.NoError(t, run.Get(t.Context(), nil))

	const (
		full   = "every node that could run it is full, and lacks CPUs most"
		behind = "others ahead of it in line got the room"
		from   = "2026-03-01T08:00:00Z"
		until  = "2026-03-01T10:00:00Z"
	)
	require.Equal(t, []map[string]string{
		{"TidewaitWait": "capacity", "TidewaitReason": "capacity_cpu", "TidewaitWhy": full, "TidewaitSince": from, "TidewaitBound": until},
		{"TidewaitWait": "capacity", "TidewaitReason": "behind_in_queue", "TidewaitWhy": behind, "TidewaitSince": from, "TidewaitBound": until},
		{"TidewaitWait": "", "TidewaitReason": "", "TidewaitWhy": "", "TidewaitSince": "", "TidewaitBound": "", "TidewaitNode": "node-a"},
	}, upsertedIn(t, s.history(surveyID, run.GetRunID())))
}

// upsertedIn are the writes of search attributes in a history, each as text; what
// is taken away is empty.
func upsertedIn(t testing.TB, history []*historypb.HistoryEvent) []map[string]string {
	t.Helper()
	var all []map[string]string
	for _, e := range history {
		upsert := e.GetUpsertWorkflowSearchAttributesEventAttributes()
		if upsert == nil {
			continue
		}
		values := map[string]string{}
		for name, value := range upsert.GetSearchAttributes().GetIndexedFields() {
			values[name] = strings.Trim(strings.Trim(string(value.GetData()), `"`), "[]")
			if values[name] == "null" {
				values[name] = ""
			}
		}
		all = append(all, values)
	}
	return all
}

// TestEverySignalUpdateAndQueryIsDescribed asks each workflow what it takes, as the
// Web UI and `temporal workflow metadata` do.
func TestEverySignalUpdateAndQueryIsDescribed(t *testing.T) {
	s := startServer(t).in(t)
	f := newFakes()
	g := newGate()
	f.executeRun = g.run
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	f.observe = func(ctx context.Context, _ workflows.LatticeInput) error {
		select {
		case <-ended:
		case <-ctx.Done():
		}
		return nil
	}
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(t, err)
	g.await(t)
	s.revise(1)
	_, err = s.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: latticeID, TaskQueue: workflows.TaskQueue}, api.LatticeWorkflow,
		workflows.LatticeInput{Account: "default", Lattice: "default"})
	require.NoError(t, err)

	for id, want := range map[string][]string{
		missionID: {"cancel", "launch", "phase-waits"},
		surveyID:  {"cancel", "evict", "nudge", "placed", "release"},
		appID:     {"nudge", "revise", "wake"},
		latticeID: {"needed"},
	} {
		m := s.metadata(id)
		names := map[string]bool{}
		for _, definitions := range [][]*sdkpb.WorkflowInteractionDefinition{
			m.GetDefinition().GetQueryDefinitions(), m.GetDefinition().GetSignalDefinitions(), m.GetDefinition().GetUpdateDefinitions(),
		} {
			for _, d := range definitions {
				require.NotEmptyf(t, d.GetDescription(), "%s of %s", d.GetName(), id)
				names[d.GetName()] = true
			}
		}
		for _, name := range want {
			require.Truef(t, names[name], "%s takes no %s", id, name)
		}
		require.NotEmpty(t, m.GetCurrentDetails(), id)
	}
}

func (s server) metadata(id string) *sdkpb.WorkflowMetadata {
	s.t.Helper()
	value, err := s.QueryWorkflow(s.t.Context(), id, "", "__temporal_workflow_metadata")
	require.NoError(s.t, err)
	var m sdkpb.WorkflowMetadata
	require.NoError(s.t, value.Get(&m))
	return &m
}

// TestAMissionTellsWhichPhaseWaits: the page of a mission says what the phase that
// is under way waits for, and that it waits no more.
func TestAMissionTellsWhichPhaseWaits(t *testing.T) {
	s := startServer(t).in(t)
	f := newFakes()
	g := newGate()
	f.executeRun = g.run
	var free atomic.Bool
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		switch {
		case in.PhaseID == 7 || free.Load():
			return placedOn("node-a", in.Attempt), nil
		case !in.Retrying:
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
	}
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(t, err)
	g.await(t)
	shows := func(part string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(s.metadata(missionID).GetCurrentDetails(), part) }, "the mission does not say %q", part)
	}
	shows("**phase 1 of 2 is under way**\n\n- **phase:** [phase.port.survey](/namespaces/{namespace}/workflows/phase.port.survey)\n")
	close(g.opened)

	shows("**phase 2 of 2 is waiting for capacity** (`capacity_cpu`), as of ")
	details := s.metadata(missionID).GetCurrentDetails()
	require.Contains(t, details, "- **phase:** [phase.port.report](/namespaces/{namespace}/workflows/phase.port.report), whose page says what you can do\n"+
		"- **why:** no node has 2 CPUs free\n- **since:** 2026-03-01 08:00:00Z\n- **fails by itself:** 2026-03-01 10:00:00Z, 2h after it began\n"+
		"\n**phases**\n\n- **1 survey:** succeeded, commit `c1`\n- **2 report:** waits\n")

	free.Store(true)
	require.NoError(t, s.SignalWorkflow(t.Context(), reportID, "", api.SignalNudge, nil))
	s.awaitClosed(missionID)
	require.Contains(t, s.metadata(missionID).GetCurrentDetails(), "**succeeded**, at ")
	require.Equal(t, 2, count(s.history(missionID, ""), enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED), "it waits, and it waits no more")
	require.Equal(t, 2, count(s.history(reportID, ""), enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED))
}
