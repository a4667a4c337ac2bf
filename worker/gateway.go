package main

import (
	"context"
	"path/filepath"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"tidewait/activities"
	"tidewait/internal/gateway"
	"tidewait/internal/logkey"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

func runGateway(ctx context.Context, svc *services, ready func()) error {
	s := svc.settings
	id, err := s.Gateway.EffectiveID()
	if err != nil {
		return err
	}
	svc.log = svc.log.With(logkey.Gateway, id)
	checkouts, err := workspace.New(filepath.Join(s.DataDir, "gateway", id), workspace.Options{
		Protocols: s.Gateway.Protocols, Roots: s.Gateway.Roots, GitConfig: s.Gateway.GitConfig, Logger: svc.log,
		Limits: workspace.Limits{Files: s.Node.ResultFiles, Bytes: s.Node.ResultBytes},
	})
	if err != nil {
		return err
	}
	g := &gateway.Gateway{
		ID: id, Version: version, Checkouts: checkouts, Secrets: s.Gateway.Secrets(), JS: svc.js, NATS: svc.nats,
		Heartbeat: s.Fleet.HeartbeatInterval, Log: svc.log, Loop: svc.health.Loop("heartbeat of gateway "+id, s.Fleet.HeartbeatInterval),
		Served:    svc.served,
		Retention: gateway.Retention{Results: s.Fleet.ResultTTL, Objects: s.Fleet.ObjectTTL, Every: s.Fleet.SweepInterval},
	}
	taken := &slots{size: 8}
	w := worker.New(svc.temporal, workflows.GatewayQueue(id), worker.Options{
		Interceptors:          []interceptor.WorkerInterceptor{taken},
		DeploymentOptions:     build(),
		DisableWorkflowWorker: true, WorkerStopTimeout: stopTime, MaxConcurrentActivityExecutionSize: taken.size,
	})
	(&activities.Gateway{Gateway: g}).Register(w)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	svc.checkQueue("gateway", workflows.GatewayQueue(id), enumspb.TASK_QUEUE_TYPE_ACTIVITY, taken)
	return g.Run(ctx, svc.nats, ready)
}
