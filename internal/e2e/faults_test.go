package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
)

func TestRestartsKeepTheFirstRefusal(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "small", phases: []phaseDoc{{name: "work", script: "true"}}})
	before := p.waiting("small")

	require.NoError(t, p.engine.Kill())
	require.NoError(t, p.engine.Start(t.Context()))
	p.reset("phase.small.work")

	after := p.until("small", "it is looked at again", func(m api.MissionDetail) bool {
		w := m.PhaseList[0].Wait
		return w != nil && w.CheckedAt.After(*before.CheckedAt)
	}).PhaseList[0].Wait
	require.True(t, before.Since.Equal(after.Since), "neither a restart nor a reset moves the first refusal")
	require.True(t, before.Bound.Equal(*after.Bound))

	p.must("mission", "cancel", "big")
	require.Equal(t, "succeeded", p.ended("small").Status)
	p.nothingLeft()
}

// reset resets a workflow to its first workflow task, as the Web UI's button does.
func (p *product) reset(workflowID string) {
	p.t.Helper()
	ctx := context.Background()
	iter := p.temporal.GetWorkflowHistory(ctx, workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iter.HasNext() {
		e, err := iter.Next()
		require.NoError(p.t, err)
		if e.GetEventType() != enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			continue
		}
		desc, err := p.temporal.DescribeWorkflow(ctx, workflowID, "")
		require.NoError(p.t, err)
		_, err = p.temporal.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
			Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: desc.WorkflowExecution.RunID},
			Reason: "a test", WorkflowTaskFinishEventId: e.GetEventId(), RequestId: workflowID + "-reset",
		})
		require.NoError(p.t, err)
		return
	}
	p.t.Fatalf("workflow %s has no completed task", workflowID)
}

func TestBoundIsNotMovedByRestartOrReset(t *testing.T) {
	long(t, 30*time.Second)
	p := start(t)
	p.node()
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "late", extra: "maxWait: 15s", phases: []phaseDoc{{name: "work", script: "true"}}})
	w := p.waiting("late")
	require.Equal(t, 15*time.Second, w.Bound.Sub(w.Since))

	require.NoError(t, p.engine.Kill())
	require.NoError(t, p.engine.Start(t.Context()))
	p.reset("phase.late.work")

	m := p.ended("late")
	require.Equal(t, []string{"failed", "wait_exceeded"}, []string{m.Status, m.FailureCode})
	require.Contains(t, m.Failure, "waited 15s for capacity, the longest allowed; at last: needs 1 CPU, 256 MiB of memory")
	ended := m.PhaseList[0].EndedAt
	require.False(t, ended.Before(*w.Bound))
	require.Less(t, ended.Sub(*w.Bound), 5*time.Second)
	_, _, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{name: "code", extra: "maxWait: 10s", phases: []phaseDoc{{name: "work", script: "true"}}}))
	require.Equal(t, 4, code, "the wait ran out")
	p.must("mission", "cancel", "big")
	p.ended("big")
	p.nothingLeft()
}

// TestTemporalLosesTheWorkflow terminates workflows, and empties Temporal's
// database: nobody works on the missions any more, and they say so.
func TestTemporalLosesTheWorkflow(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	ctx := t.Context()

	t.Run("mission terminated", func(t *testing.T) {
		p.launch(holder("mission-ended"))
		p.running("mission-ended")
		require.NoError(t, p.temporal.TerminateWorkflow(ctx, "mission.mission-ended", "", "a test"))
		m := p.ended("mission-ended")
		require.Equal(t, []string{"failed", "workflow_lost"}, []string{m.Status, m.FailureCode})
		p.nothingLeft()
	})
	t.Run("phase terminated", func(t *testing.T) {
		p.launch(holder("phase-ended"))
		p.running("phase-ended")
		require.NoError(t, p.temporal.TerminateWorkflow(ctx, "phase.phase-ended.hold", "", "a test"))
		m := p.ended("phase-ended")
		require.Equal(t, []string{"failed", "workflow_lost"}, []string{m.Status, m.FailureCode})
		p.nothingLeft()
	})
	t.Run("phase reset while it runs", func(t *testing.T) {
		p.launch(missionDoc{name: "phase-reset", phases: []phaseDoc{{name: "work", script: "sleep 5; echo x > x.txt"}}})
		p.running("phase-reset")
		p.reset("phase.phase-reset.work")
		m := p.ended("phase-reset")
		require.Equal(t, "succeeded", m.Status, m.Failure)
		p.nothingLeft()
	})
	t.Run("mission reset while it runs", func(t *testing.T) {
		p.launch(missionDoc{name: "mission-reset", phases: []phaseDoc{{name: "work", script: "sleep 5; echo x > x.txt"}}})
		p.running("mission-reset")
		p.reset("mission.mission-reset")
		m := p.ended("mission-reset")
		require.Equal(t, "succeeded", m.Status, m.Failure)
		p.nothingLeft()
	})
	t.Run("database emptied", func(t *testing.T) {
		p.launch(holder("forgotten"))
		p.running("forgotten")
		p.launch(missionDoc{name: "waits", phases: []phaseDoc{{name: "work", script: "true"}}})
		p.waiting("waits")
		require.NoError(t, p.Stack.Temporal.Kill())
		p.emptyTemporal()
		require.NoError(t, p.Stack.Temporal.Start(ctx))
		p.eventually("Temporal is provisioned", func() bool { return p.Provision(ctx) == nil }, func() any { return nil })
		for _, name := range []string{"forgotten", "waits"} {
			m := p.ended(name)
			require.Equal(t, []string{"failed", "workflow_lost"}, []string{m.Status, m.FailureCode}, name)
		}
		p.nothingLeft()
	})
}

// emptyTemporal removes the database of a Temporal that is not running.
func (p *product) emptyTemporal() {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "stack", "temporal", "*"))
	require.NoError(p.t, err)
	require.NotEmpty(p.t, found)
	for _, f := range found {
		require.NoError(p.t, os.RemoveAll(f))
	}
}
