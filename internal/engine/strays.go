package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
	"tidewait/internal/logkey"
	"tidewait/internal/store"
)

// unrecorded is how long the workflow of a launch may run before the database
// knows of it. It gives up by itself when no launch comes, and one that comes is
// recorded as soon as the database answers, as it does when a sweep gets this far.
const unrecorded = 5 * time.Minute

// closing is how long a workflow may take to close after it has recorded its end.
const closing = 10 * time.Second

const runningMissions = "WorkflowType = '" + api.MissionWorkflow + "' AND ExecutionStatus = 'Running'"

// strays ends the workflows of missions whose launch is over, or unknown, to the
// database: Temporal or the database was restored from a backup. One whose phase is
// held would wait for ever, and keep its mission from being launched. They are listed
// only when there are more than there should be, or when list says so.
func (s Sweep) strays(ctx context.Context, list bool) error {
	open, err := s.Store.OpenMissions(ctx)
	if err != nil {
		return err
	}
	if !list {
		count, err := s.Temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: runningMissions})
		if err != nil || count.GetCount() <= int64(len(open)) {
			return err
		}
	}
	wanted := map[string]string{} // the run of each open mission's workflow
	for _, m := range open {
		wanted[api.MissionWorkflowID(m.Name)] = m.Run
	}
	running, err := s.running(ctx, runningMissions)
	if err != nil {
		return err
	}
	var errs []error // one that cannot be ended holds up no other
	for id, e := range running {
		s.Loop.Beat()
		if run, ok := wanted[id]; !ok || run != e.run {
			errs = append(errs, s.endStray(ctx, id, e))
		}
	}
	return errors.Join(errs...)
}

// endStray cancels the workflow of a mission unless it is that of the latest launch
// and open, or may be about to record one.
func (s Sweep) endStray(ctx context.Context, id string, e execution) error {
	mission := strings.TrimPrefix(id, api.MissionWorkflowID(""))
	original, err := s.originalRun(ctx, id, e.run)
	if err != nil {
		return err
	}
	latest, err := s.Store.LatestLaunch(ctx, mission)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	var why string
	switch {
	case latest.Run == original && latest.EndedFor < closing:
		return nil // it runs, after a reset maybe, or has just ended
	case latest.Run == original:
		why = "the database says that its launch has ended"
	case latest.StartedAt != nil && e.started.Before(*latest.StartedAt):
		why = "the database knows a later launch"
	case time.Since(e.started) > unrecorded:
		why = "the database does not know its launch"
	default:
		return nil
	}
	s.Log.Warn("a mission's workflow is cancelled: nobody waits for it any more", logkey.Mission, mission, "run", e.run, "why", why)
	if err := s.Temporal.CancelWorkflow(ctx, id, e.run); err != nil && !isGone(err) {
		return fmt.Errorf("cancel workflow %s: %w", id, err)
	}
	return nil
}

// originalRun is the run that a workflow had before anybody reset it, which is the
// one that launches are recorded by. It is in the first event of its history.
func (s Sweep) originalRun(ctx context.Context, id, run string) (string, error) {
	events := s.Temporal.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !events.HasNext() {
		return run, nil
	}
	first, err := events.Next()
	if err != nil {
		return "", fmt.Errorf("read how workflow %s began: %w", id, err)
	}
	return first.GetWorkflowExecutionStartedEventAttributes().GetOriginalExecutionRunId(), nil
}
