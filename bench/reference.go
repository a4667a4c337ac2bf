package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
)

// The reference: workflows that take the same steps as the product's and do
// nothing in them.
const (
	bareWorkflow = "bench-bare"
	bareActivity = "bench-nothing"
)

func bareQueue(kind string) string { return "bench." + kind }

// bare runs steps one after another.
func bare(ctx workflow.Context, steps []step) error {
	for i, s := range steps {
		if err := bareStep(ctx, i, s); err != nil {
			return err
		}
	}
	return nil
}

func bareStep(ctx workflow.Context, i int, s step) error {
	switch s.Queue {
	case "":
		ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID: fmt.Sprintf("%s.%d", workflow.GetInfo(ctx).WorkflowExecution.ID, i), TaskQueue: bareQueue(onEngine),
		})
		return workflow.ExecuteChildWorkflow(ctx, bareWorkflow, s.Child).Get(ctx, nil)
	case isLocal:
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: time.Minute})
		return workflow.ExecuteLocalActivity(ctx, nothing).Get(ctx, nil)
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: bareQueue(s.Queue), StartToCloseTimeout: 10 * time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	return workflow.ExecuteActivity(ctx, bareActivity).Get(ctx, nil)
}

func nothing(context.Context) error { return nil }

// reference is the workers of the bare workflows, with the limits that the
// product's have.
type reference struct {
	temporal client.Client
	workers  []worker.Worker
	started  int
}

func startReference(c client.Client) (*reference, error) {
	r := &reference{temporal: c}
	for kind, o := range map[string]worker.Options{
		onEngine:  {DisableRegistrationAliasing: true},
		onGateway: {DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 8},
		onNode:    {DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 400},
	} {
		w := worker.New(c, bareQueue(kind), o)
		w.RegisterActivityWithOptions(nothing, activity.RegisterOptions{Name: bareActivity})
		if kind == onEngine {
			w.RegisterWorkflowWithOptions(bare, workflow.RegisterOptions{Name: bareWorkflow})
		}
		if err := w.Start(); err != nil {
			r.stop()
			return nil, err
		}
		r.workers = append(r.workers, w)
	}
	return r, nil
}

func (r *reference) stop() {
	for _, w := range r.workers {
		w.Stop()
	}
}

// run starts n workflows at once and waits for them.
func (r *reference) run(ctx context.Context, n int, steps []step) ([]client.WorkflowRun, error) {
	runs := make([]client.WorkflowRun, n)
	r.started++
	g, starting := errgroup.WithContext(ctx)
	for i := range runs {
		g.Go(func() (err error) {
			runs[i], err = r.temporal.ExecuteWorkflow(starting, client.StartWorkflowOptions{
				ID: fmt.Sprintf("bench.%d.%d", r.started, i), TaskQueue: bareQueue(onEngine),
			}, bareWorkflow, steps)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return runs, awaitAll(ctx, runs)
}
