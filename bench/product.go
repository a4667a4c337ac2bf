package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/local"
	"tidewait/internal/mission"
	"tidewait/internal/workspace"
)

// patience bounds every wait for a condition; nothing here takes this long.
const patience = 30 * time.Minute

// pollEvery is how often a condition is looked at that nobody reports.
const pollEvery = 20 * time.Millisecond

// product is a running product: one engine, one gateway, one node, each a
// process of its own, and the connections to measure it by.
type product struct {
	*local.Product
	db       *pgx.Conn
	temporal client.Client
	nats     *nats.Conn
	engine   *local.Worker
	gateway  *local.Worker
	node     *local.Worker
	bundle   workspace.Bundle // of the workspace that every mission starts from
}

// node sizes.
var (
	roomyNode = []string{"TIDEWAIT_NODE_CPUS=1000", "TIDEWAIT_NODE_MEMORY=1000Gi", "TIDEWAIT_NODE_DISK=1000Gi", "TIDEWAIT_NODE_SLOTS=400"}
	smallNode = []string{"TIDEWAIT_NODE_CPUS=1", "TIDEWAIT_NODE_MEMORY=1Gi", "TIDEWAIT_NODE_DISK=4Gi"}
)

// startProduct starts the product on a stack of its own. env is for every
// process, node for the node's.
func (b *bench) startProduct(ctx context.Context, name string, node []string, env ...string) (*product, error) {
	b.say("%s: starting the stack", name)
	dir := filepath.Join(b.dir, name)
	l, err := local.Start(ctx, local.Options{
		Worker: b.program("tidewait-worker"),
		Env:    append([]string{"TIDEWAIT_DATA_DIR=" + dir, "TIDEWAIT_LOG_LEVEL=warn"}, env...),
		Stack:  devstack.Options{Dir: filepath.Join(dir, "stack"), TemporalCLI: b.program("temporal")},
	})
	if err != nil {
		return nil, err
	}
	p := &product{Product: l}
	if err := p.begin(ctx, dir, node); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *product) begin(ctx context.Context, dir string, node []string) error {
	var err error
	if p.engine, err = p.StartWorker(ctx, "engine", []string{"engine"}); err != nil {
		return err
	}
	if p.gateway, err = p.StartWorker(ctx, "gateway", []string{"gateway"}, "TIDEWAIT_GATEWAY_ID=gateway"); err != nil {
		return err
	}
	if p.node, err = p.StartNode(ctx, "node", append([]string{"TIDEWAIT_NODE_BACKENDS=process"}, node...)...); err != nil {
		return err
	}
	if p.db, err = pgx.Connect(ctx, p.Stack.PostgresURL); err != nil {
		return err
	}
	if p.temporal, err = client.DialContext(ctx, client.Options{HostPort: p.Stack.TemporalAddress, Logger: quietLogger()}); err != nil {
		return err
	}
	if p.nats, err = nats.Connect(p.Stack.NATSURL); err != nil {
		return err
	}
	return p.upload(ctx, dir)
}

func (p *product) stop() error {
	if p.nats != nil {
		p.nats.Close()
	}
	if p.temporal != nil {
		p.temporal.Close()
	}
	var err error
	if p.db != nil {
		err = p.db.Close(context.Background())
	}
	return errors.Join(err, p.Stop())
}

// with runs f on a product and stops it.
func (b *bench) with(ctx context.Context, name string, node, env []string, f func(context.Context, *product) error) error {
	p, err := b.startProduct(ctx, name, node, env...)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, p), p.stop())
}

func stopStack(s *devstack.Stack) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.Stop(ctx)
}

// upload puts a small workspace into the object store, as a launch would.
func (p *product) upload(ctx context.Context, dir string) error {
	work := filepath.Join(dir, "workspace")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("a small workspace\n"), 0o600); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "workspace.bundle"))
	if err != nil {
		return err
	}
	defer file.Close()
	if p.bundle, err = workspace.BundleDir(ctx, work, file); err != nil {
		return err
	}
	if _, err := file.Seek(0, 0); err != nil {
		return err
	}
	js, err := jetstream.New(p.nats)
	if err != nil {
		return err
	}
	store, err := js.ObjectStore(ctx, api.BucketWorkspaces)
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, jetstream.ObjectMeta{Name: p.bundle.SHA256}, file)
	return err
}

// document is the canonical form of a mission whose phases, p1 to pN, all run
// the same shell script.
func document(name string, phases int, script string) ([]byte, error) {
	text := fmt.Sprintf("apiVersion: tidewait/v1\nkind: Mission\nmetadata: {name: %s}\nspec:\n"+
		"  backend: process\n  workspace: {path: /workspace}\n  phases:\n", name)
	for i := range phases {
		text += fmt.Sprintf("    - {name: p%d, resources: {cpus: 1, memory: 128Mi, disk: 64Mi}, run: [sh, -c, %q]}\n", i+1, script)
	}
	m, err := mission.Parse(name+".yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return m.Canonical(), nil
}

// launch launches a mission as the command line does, with the workspace that
// is there already.
func (p *product) launch(ctx context.Context, name string, phases int, script string) (client.WorkflowRun, error) {
	doc, err := document(name, phases, script)
	if err != nil {
		return nil, err
	}
	id := api.MissionWorkflowID(name)
	start := p.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: id, TaskQueue: api.TaskQueue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
	}, api.MissionWorkflow, struct{}{})
	update, err := p.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: id, UpdateName: api.UpdateLaunch, WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{api.LaunchRequest{
				Document: doc, Bundle: p.bundle.SHA256, SHA256: p.bundle.SHA256, Head: p.bundle.Head, Actor: "bench",
			}},
		},
	})
	if err != nil {
		return nil, err
	}
	if err := update.Get(ctx, nil); err != nil {
		return nil, err
	}
	return start.Get(ctx)
}

// launchAll launches n missions at once; the i-th is named by name. A limit of
// 0 is none.
func (p *product) launchAll(ctx context.Context, n, phases, limit int, script string, name func(int) string) ([]client.WorkflowRun, error) {
	runs := make([]client.WorkflowRun, n)
	g, ctx := errgroup.WithContext(ctx)
	if limit > 0 {
		g.SetLimit(limit)
	}
	for i := range runs {
		g.Go(func() (err error) {
			runs[i], err = p.launch(ctx, name(i), phases, script)
			return err
		})
	}
	return runs, g.Wait()
}

// awaitAll returns when all workflows have ended well.
func awaitAll(ctx context.Context, runs []client.WorkflowRun) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range runs {
		g.Go(func() error { return r.Get(ctx, nil) })
	}
	return g.Wait()
}

// cancelPhase asks a phase to end.
func (p *product) cancelPhase(ctx context.Context, mission, phase string) error {
	return p.temporal.SignalWorkflow(ctx, api.PhaseWorkflowID(mission, phase), "", api.SignalCancel, api.Cancel{Actor: "bench", Reason: "its time is over"})
}

// number asks Postgres for one number.
func (p *product) number(ctx context.Context, sql string, args ...any) (float64, error) {
	var n float64
	err := p.db.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

// until looks at a condition until it holds.
func until(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not so after %s: %s", patience, what))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := holds(ctx)
		if err != nil || ok {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// untilNumber looks at a number in Postgres until it is at least n.
func (p *product) untilNumber(ctx context.Context, n float64, what, sql string, args ...any) error {
	return until(ctx, what, func(ctx context.Context) (bool, error) {
		now, err := p.number(ctx, sql, args...)
		return now >= n, err
	})
}

// watch lets time pass that is itself measured, such as the minute whose CPU use
// is counted.
func watch(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
