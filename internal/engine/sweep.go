package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"tidewait/internal/api"
	"tidewait/internal/health"
	"tidewait/internal/ledger"
	"tidewait/internal/logkey"
	"tidewait/internal/store"
	"tidewait/workflows"
)

// Sweep compares open missions with Temporal's executions. Somebody may have
// terminated a workflow, or Temporal may have lost its database: then nobody
// works on the mission any more, and it fails saying so instead of staying
// open for ever. A deployed application gets its workflow again. The sweep also
// gives up silent nodes, settles drains, audits the counters and removes what was
// kept for long enough.
type Sweep struct {
	Store    *store.Store
	Temporal client.Client
	Every    time.Duration
	// Freed is called when capacity may have been freed.
	Freed func()
	// Courier begins what is to be kept and is not.
	Courier *Courier
	Kept    Retention
	Watch   []string // lattices of the default account that are observed without need
	Log     *slog.Logger
	Loop    *health.Loop // nil: nobody watches
}

// listEvery is after how many sweeps all workflows are listed, although there
// are as many as there should be.
const listEvery = 10

// Run sweeps until ctx ends.
func (s Sweep) Run(ctx context.Context) {
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := s.once(ctx, n%listEvery == 0); err != nil && ctx.Err() == nil {
			s.Log.Warn("a sweep was not finished", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// once does one sweep.
func (s Sweep) once(ctx context.Context, list bool) error {
	var errs []error
	for _, part := range []func(context.Context) error{
		s.missions, func(ctx context.Context) error { return s.applications(ctx, list) }, s.orphans, s.silent, s.drains, s.audit, s.expire,
	} {
		s.Loop.Beat()
		errs = append(errs, part(ctx))
	}
	s.Loop.Beat()
	return errors.Join(errs...)
}

func (s Sweep) missions(ctx context.Context) error {
	open, err := s.Store.OpenMissions(ctx)
	if err != nil {
		return err
	}
	for _, m := range open {
		s.Loop.Beat() // there may be many, and none takes long
		why, err := s.lost(ctx, m.Name)
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		s.Log.Warn("a mission lost its workflow", logkey.Mission, m.Name, logkey.Launch, m.Launch, "why", why)
		end := ledger.MissionEnd{Status: "failed", FailureCode: ledger.CodeWorkflowLost, Failure: why}
		if err := s.Store.FinishMission(ctx, m.ID, m.Launch, end); err != nil {
			return err
		}
	}
	return nil
}

// applications gives those that are kept a workflow when theirs is gone, and has
// their lattices observed. Temporal is asked to list workflows only when it
// counts others than there should be, or when list says so: reading one row
// costs its database as much as counting all.
func (s Sweep) applications(ctx context.Context, list bool) error {
	kept, err := s.Store.ApplicationsToKeep(ctx, "", "")
	if err != nil {
		return err
	}
	lattices := map[workflows.LatticeInput]bool{}
	for _, name := range s.Watch {
		lattices[workflows.LatticeInput{Account: ledger.DefaultAccount, Lattice: name}] = true
	}
	for _, key := range kept {
		lattices[workflows.LatticeInput{Account: key.Account, Lattice: key.Lattice}] = true
	}
	if len(lattices) == 0 {
		return nil
	}
	if !list {
		count, err := s.Temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: runningQuery})
		if err != nil || count.GetCount() == int64(len(lattices)+len(kept)) {
			return err
		}
	}
	running, err := s.running(ctx)
	if err != nil {
		return err
	}
	var errs []error // one that cannot be begun holds up no other
	for in := range lattices {
		s.Loop.Beat()
		if !running[api.LatticeWorkflowID(in.Account, in.Lattice)] {
			errs = append(errs, s.Courier.Observe(ctx, in.Account, in.Lattice))
		}
	}
	for _, key := range kept {
		s.Loop.Beat()
		if !running[api.AppWorkflowID(key.Account, key.Lattice, key.Name)] {
			errs = append(errs, s.begin(ctx, key))
		}
	}
	return errors.Join(errs...)
}

// begin gives an application a workflow if it has none; the list of those that
// run is a little behind. It does not wait for ever for one that takes no update.
func (s Sweep) begin(ctx context.Context, key ledger.AppKey) error {
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	why, err := s.closed(ctx, api.AppWorkflowID(key.Account, key.Lattice, key.Name))
	if err != nil || why == "" {
		return err
	}
	s.Log.With(logkey.App(key)).Warn("an application that is kept had no workflow; it gets a new one", "why", why)
	if err := s.Courier.Begin(ctx, key, 0); err != nil {
		return fmt.Errorf("begin application %s again: %w", key, err)
	}
	return nil
}

const runningQuery = "WorkflowType IN ('" + api.AppWorkflow + "', '" + api.LatticeWorkflow + "') AND ExecutionStatus = 'Running'"

// running lists the workflows of applications and lattices that run.
func (s Sweep) running(ctx context.Context) (map[string]bool, error) {
	running := map[string]bool{}
	var page []byte
	for {
		res, err := s.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: runningQuery, PageSize: 1000, NextPageToken: page,
		})
		if err != nil {
			return nil, err
		}
		for _, e := range res.GetExecutions() {
			running[e.GetExecution().GetWorkflowId()] = true
		}
		if page = res.GetNextPageToken(); len(page) == 0 {
			return running, nil
		}
	}
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
	why, err := s.closed(ctx, api.MissionWorkflowID(mission))
	if why != "" {
		why += ", so nobody works on the mission"
	}
	return why, err
}

// closed says how a workflow ended, or nothing when it runs.
func (s Sweep) closed(ctx context.Context, id string) (string, error) {
	desc, err := s.Temporal.DescribeWorkflow(ctx, id, "")
	if isGone(err) {
		return "Temporal does not know workflow " + id + " any more", nil
	}
	if err != nil {
		return "", err
	}
	status := desc.Status
	if status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return "", nil
	}
	return "workflow " + id + " was closed as " + status.String() + " too early", nil
}

// silent gives up nodes that have been silent for too long.
func (s Sweep) silent(ctx context.Context) error {
	nodes, err := s.Store.DeclareLost(ctx)
	if len(nodes) > 0 {
		s.Log.Warn("nodes are given up: they have been silent for too long", "nodes", nodes)
	}
	return err
}

// drains has the runs ended whose node has passed its drain deadline.
func (s Sweep) drains(ctx context.Context) error {
	runs, err := s.Store.SettleDrains(ctx)
	if len(runs) > 0 {
		s.Log.Info("runs are to end: the drain of their node is over", "runs", runs)
	}
	return err
}

func (s Sweep) audit(ctx context.Context) error {
	wrong, err := s.Store.Audit(ctx)
	for _, w := range wrong {
		s.Log.Error("a node's counters differ from its reservations", logkey.Node, w.Node, "counted", w.Counted, "reserved", w.Reserved)
	}
	return err
}
