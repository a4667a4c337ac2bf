package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// Sweep compares open missions with Temporal's executions. Somebody may have
// terminated a workflow, or Temporal may have lost its database: then nobody
// works on the mission any more, and it fails saying so instead of staying
// open for ever. It also settles drains and audits the counters.
type Sweep struct {
	Store    *store.Store
	Temporal client.Client
	Every    time.Duration
	// Freed is called when capacity may have been freed.
	Freed func()
	Log   *slog.Logger
}

// Run sweeps until ctx ends.
func (s Sweep) Run(ctx context.Context) {
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for {
		if err := s.Once(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("a sweep was not finished", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Once does one sweep.
func (s Sweep) Once(ctx context.Context) error {
	return errors.Join(s.missions(ctx), s.orphans(ctx), s.drains(ctx), s.audit(ctx))
}

func (s Sweep) missions(ctx context.Context) error {
	open, err := s.Store.OpenMissions(ctx)
	if err != nil {
		return err
	}
	for _, m := range open {
		why, err := s.lost(ctx, m.Name)
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		s.Log.Warn("a mission lost its workflow", "mission", m.Name, "launch", m.Launch, "why", why)
		end := ledger.MissionEnd{Status: "failed", FailureCode: ledger.CodeWorkflowLost, Failure: why}
		if err := s.Store.FinishMission(ctx, m.ID, m.Launch, end); err != nil {
			return err
		}
	}
	return nil
}

// orphans frees what ended runs still hold once their machines are gone.
func (s Sweep) orphans(ctx context.Context) error {
	runs, err := s.Store.ReleaseOrphans(ctx)
	if len(runs) > 0 {
		s.Log.Info("released what ended runs held", "runs", runs)
		s.Freed()
	}
	return err
}

// lost says why nobody works on a mission, or nothing when somebody does.
func (s Sweep) lost(ctx context.Context, mission string) (string, error) {
	id := api.MissionWorkflowID(mission)
	desc, err := s.Temporal.DescribeWorkflow(ctx, id, "")
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return "Temporal does not know workflow " + id + " any more, so nobody works on the mission", nil
	}
	if err != nil {
		return "", err
	}
	status := desc.Status
	if status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return "", nil
	}
	return "workflow " + id + " was closed as " + status.String() + " before the mission ended, so nobody works on it", nil
}

// drains ends phases whose node has passed its drain deadline, by the same
// signal a person would send.
func (s Sweep) drains(ctx context.Context) error {
	overdue, err := s.Store.SettleDrains(ctx)
	if err != nil {
		return err
	}
	for _, id := range overdue {
		err := s.Temporal.SignalWorkflow(ctx, id, "", api.SignalCancel, api.Cancel{
			Actor: "the drain deadline", Reason: "the node it ran on had to be empty",
		})
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return err
		}
	}
	return nil
}

func (s Sweep) audit(ctx context.Context) error {
	wrong, err := s.Store.Audit(ctx)
	for _, w := range wrong {
		s.Log.Error("a node's counters differ from its reservations", "node", w.Node, "counted", w.Counted, "reserved", w.Reserved)
	}
	return err
}
