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
		s.missions, func(ctx context.Context) error { return s.strays(ctx, list) },
		func(ctx context.Context) error { return s.applications(ctx, list) }, s.orphans, s.silent, s.drains, s.audit, s.expire,
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
		why, err := s.lost(ctx, m)
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
	if len(lattices) == 0 && !list {
		return nil
	}
	if !list {
		count, err := s.Temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: runningQuery})
		if err != nil || count.GetCount() == int64(len(lattices)+len(kept)) {
			return err
		}
	}
	running, err := s.running(ctx, runningQuery)
	if err != nil {
		return err
	}
	var errs []error // one that cannot be begun holds up no other
	for in := range lattices {
		s.Loop.Beat()
		id := api.LatticeWorkflowID(in.Account, in.Lattice)
		if _, ok := running[id]; !ok {
			errs = append(errs, s.Courier.Observe(ctx, in.Account, in.Lattice))
		}
		delete(running, id)
	}
	for _, key := range kept {
		s.Loop.Beat()
		id := api.AppWorkflowID(key.Account, key.Lattice, key.Name)
		if _, ok := running[id]; !ok {
			errs = append(errs, s.begin(ctx, key))
		}
		delete(running, id)
	}
	return errors.Join(append(errs, s.wakeUnkept(ctx, running))...)
}

// wakeUnkept has workflows of applications look that nothing is left of. They end then;
// one whose application was undeployed in a time that Temporal has forgotten would not
// know.
func (s Sweep) wakeUnkept(ctx context.Context, running map[string]execution) error {
	var errs []error
	for id, e := range running {
		if e.kind != api.AppWorkflow {
			continue // lattices end by themselves
		}
		s.Loop.Beat()
		if err := s.Temporal.SignalWorkflow(ctx, id, e.run, api.SignalWake, nil); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("wake %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// begin gives an application a workflow if it has none; the list of those that
// run is a little behind. It does not wait for ever for one that takes no update.
func (s Sweep) begin(ctx context.Context, key ledger.AppKey) error {
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	why, _, err := s.closed(ctx, api.AppWorkflowID(key.Account, key.Lattice, key.Name))
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

// execution is a workflow that runs.
type execution struct {
	kind, run string
	started   time.Time
}

// running lists, by their ids, the running workflows that a query names.
func (s Sweep) running(ctx context.Context, query string) (map[string]execution, error) {
	running := map[string]execution{}
	var page []byte
	for {
		res, err := s.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: query, PageSize: 1000, NextPageToken: page,
		})
		if err != nil {
			return nil, err
		}
		for _, e := range res.GetExecutions() {
			running[e.GetExecution().GetWorkflowId()] = execution{
				kind: e.GetType().GetName(), run: e.GetExecution().GetRunId(), started: e.GetStartTime().AsTime(),
			}
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

// lost says why nobody works on a mission, or nothing when somebody does. The workflow
// that runs may be that of another launch, where Temporal was restored from a backup.
func (s Sweep) lost(ctx context.Context, m store.OpenMission) (string, error) {
	id := api.MissionWorkflowID(m.Name)
	why, run, err := s.closed(ctx, id)
	if err == nil && why == "" && run != m.Run {
		var original string
		if original, err = s.originalRun(ctx, id, run); err == nil && original != m.Run {
			why = "workflow " + id + " is that of another launch"
		}
	}
	if why != "" {
		why += ", so nobody works on the mission"
	}
	return why, err
}

// closed says how a workflow ended, or nothing and its run when it runs.
func (s Sweep) closed(ctx context.Context, id string) (why, run string, err error) {
	desc, err := s.Temporal.DescribeWorkflow(ctx, id, "")
	if isGone(err) {
		return "Temporal does not know workflow " + id + " any more", "", nil
	}
	if err != nil {
		return "", "", err
	}
	status := desc.Status
	if status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return "", desc.WorkflowExecution.RunID, nil
	}
	return "workflow " + id + " was closed as " + status.String() + " too early", "", nil
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
