package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"tidewait/activities"
	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/engine"
	"tidewait/internal/meter"
	"tidewait/internal/observatory"
	"tidewait/internal/store"
	"tidewait/internal/wadmapi"
	"tidewait/migrations"
	"tidewait/workflows"
)

func runEngine(ctx context.Context, svc *services, ready func()) error {
	s := svc.settings
	if err := migrations.Check(ctx, s.Postgres.URL); err != nil {
		return err
	}
	rules := store.Rules{
		SuspectAfter: s.Fleet.SuspectAfter, LostAfter: s.Fleet.LostAfter, Ageing: s.Fleet.Ageing, HeadWindow: s.Fleet.HeadWindow,
	}
	db, err := store.Open(ctx, s.Postgres.URL, s.Postgres.MaxConns, rules)
	if err != nil {
		return err
	}
	defer db.Close()
	db.OnWaitEnd(svc.meter.WaitEnded)
	if err := meter.Fleet(svc.meters, db, svc.log); err != nil {
		return err
	}
	svc.health.Check("engine: postgres", db.Ping)

	g, ctx := errgroup.WithContext(ctx)
	dispatcher := engine.NewDispatcher(db, svc.temporal, svc.log)
	placer := engine.NewPlacer(ctx, db, s.Fleet.RetryInterval, dispatcher.Kick, svc.log)
	defer placer.Wait()
	placer.Meter, placer.Health, dispatcher.Loop = svc.meter, svc.health, svc.health.Loop("dispatcher", engine.DispatchEvery)
	freed := func() { placer.Wake(ctx) }
	publisher := &wadmapi.Publisher{JS: svc.js, Multitenant: s.Wadm.Multitenant}
	if err := publisher.EnsureStreams(ctx); err != nil {
		return err
	}
	courier := engine.NewCourier(db, publisher, svc.temporal, svc.log)
	courier.Health = svc.health
	applications := wadmapi.Server{Store: db, NATS: svc.nats, Settings: s.Wadm, Changed: courier.Kick, Log: svc.log, Served: svc.served("engine: " + s.Wadm.APIPrefix)}
	lattices := &observatory.Observatory{
		Store: db, Temporal: svc.temporal, NATS: svc.nats, Connect: svc.hosts, Engine: engineID(), Watch: s.Wadm.Watch, Changed: courier.Kick, Log: svc.log,
		Meter: svc.meter, Health: svc.health,
	}
	kept := engine.Retention{Runs: s.Fleet.RunTTL, Waits: s.Fleet.WaitTTL, Results: s.Fleet.ResultTTL, Logs: s.Fleet.LogTTL}
	sweep := engine.Sweep{
		Store: db, Temporal: svc.temporal, Every: s.Fleet.SweepInterval, Freed: freed, Courier: courier, Watch: s.Wadm.Watch, Kept: kept, Log: svc.log,
		Loop: svc.health.Loop("sweep", s.Fleet.SweepInterval),
	}
	server := engine.Server{
		Store: db, Placer: placer, Retry: s.Fleet.RetryInterval, Kept: kept, Changed: courier.Kick, Version: version, Log: svc.log,
		Served: svc.served("engine: tidewait.api"),
	}
	listening := engine.Listening{
		Store: db, NATS: svc.nats, Every: rules.ListenEvery(), Log: svc.log, Loop: svc.health.Loop("listening", rules.ListenEvery()),
	}
	secrets := engine.Secrets{Store: db, NATS: svc.nats, Version: version, Log: svc.log, Noted: dispatcher.Kick, Served: svc.served("engine: tidewait.secrets")}

	w := worker.New(svc.temporal, workflows.TaskQueue, worker.Options{
		WorkerStopTimeout: stopTime, DisableRegistrationAliasing: true,
		DeploymentOptions: build(),
		// A workflow whose engine died is worked on by another within a second.
		StickyScheduleToStartTimeout: time.Second,
		// Pollers of each kind of their own. Those that take turns all wait on the
		// sticky queue for up to a minute after their process was frozen while there
		// was something in it, and nobody else's workflows are worked on then.
		WorkflowTaskPollerBehavior: worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
			InitialNumberOfPollers: 2, MinimumNumberOfPollers: 2, MaximumNumberOfPollers: 8,
		}),
	})
	registerWorkflows(w)
	(&activities.Engine{Store: db, Placer: placer, Fleet: s.Fleet, Freed: freed, Meter: svc.meter}).Register(w)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	observed := &slots{size: observedAtOnce}
	observers := worker.New(svc.temporal, workflows.ObserveQueue, worker.Options{
		Interceptors:          []interceptor.WorkerInterceptor{observed},
		DeploymentOptions:     build(),
		DisableWorkflowWorker: true, WorkerStopTimeout: stopTime, DisableRegistrationAliasing: true,
		MaxConcurrentActivityExecutionSize: observed.size, MaxHeartbeatThrottleInterval: time.Second,
		// A frozen process still polls, and what it is handed is lost for as long as a
		// heartbeat may stay out: let that happen once only.
		MaxConcurrentActivityTaskPollers: 1,
	})
	lattices.Register(observers)
	if err := meter.Lattices(svc.meters, lattices.Looks); err != nil {
		return err
	}
	if err := observers.Start(); err != nil {
		return err
	}
	defer observers.Stop()

	svc.checkQueue("engine", workflows.TaskQueue, enumspb.TASK_QUEUE_TYPE_WORKFLOW, nil)
	svc.checkQueue("engine", workflows.ObserveQueue, enumspb.TASK_QUEUE_TYPE_ACTIVITY, observed)

	g.Go(func() error { dispatcher.Run(ctx); return nil })
	g.Go(func() error { sweep.Run(ctx); return nil })
	g.Go(func() error { listening.Run(ctx); return nil })
	g.Go(func() error { courier.Run(ctx); return nil })
	serving := make(chan struct{}, 3)
	up := func() { serving <- struct{}{} }
	g.Go(func() error { return server.Serve(ctx, svc.nats, up) })
	g.Go(func() error { return applications.Serve(ctx, up) })
	g.Go(func() error { return secrets.Serve(ctx, up) })
	g.Go(func() error { return readyWhen(ctx, serving, cap(serving), ready) })
	return g.Wait()
}

// hosts returns the connection to the hosts of a lattice.
func (s *services) hosts(in workflows.LatticeInput) (*nats.Conn, bool, error) {
	n, own := s.settings.LatticeNATS(in.Account, in.Lattice)
	if !own {
		return s.nats, false, nil
	}
	nc, err := config.ConnectNATS(n, "tidewait-worker, lattice "+in.Lattice, s.log)
	return nc, true, err
}

// observedAtOnce is how many lattices one engine observes.
const observedAtOnce = 100

// engineID names this process for people.
func engineID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "engine"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// readyWhen calls ready when n parts are up.
func readyWhen(ctx context.Context, up <-chan struct{}, n int, ready func()) error {
	for range n {
		select {
		case <-up:
		case <-ctx.Done():
			return nil
		}
	}
	ready()
	return nil
}

func registerWorkflows(w worker.WorkflowRegistry) {
	w.RegisterWorkflowWithOptions(workflows.Mission, workflow.RegisterOptions{Name: api.MissionWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Phase, workflow.RegisterOptions{Name: api.PhaseWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Lattice, workflow.RegisterOptions{Name: api.LatticeWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: api.AppWorkflow})
}
