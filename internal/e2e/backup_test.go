package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/local"
)

// TestBackupIsRestored backs up what the documentation says, the database and the
// gateway's directory, while a mission runs; loses everything else, Temporal and NATS
// included; and restores it on new ones. What had ended is shown with its results,
// what ran is failed as lost, applications are kept true again, and new launches run.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "echo made > made.txt"}}})
	done := p.ended("m")
	require.Equal(t, "succeeded", done.Status, done.Failure)
	p.must("app", "deploy", "../../examples/apps/hello.yaml")
	p.launch(holder("running"))
	p.running("running")

	dump, gateway := filepath.Join(p.dir, "tidewait.dump"), filepath.Join(p.dir, "backup")
	command(t, "pg_dump", p.Stack.PostgresURL, "-Fc", "-f", dump)
	command(t, "cp", "-a", filepath.Join(p.dir, "gateway"), gateway)
	p.launch(missionDoc{name: "later", phases: []phaseDoc{{name: "work", script: "true"}}})
	require.NoError(t, p.Stop())

	r := restored(t, dump, gateway)
	require.Equal(t, "succeeded", r.show("m").Status)
	var results api.Results
	require.NoError(t, json.Unmarshal([]byte(r.must("mission", "results", "m", "-o", "json")), &results))
	require.Len(t, results.Commits, 1)
	require.Equal(t, done.PhaseList[0].Commit, results.Commits[0].Commit)
	home := filepath.Join(r.dir, "home")
	command(t, "git", "init", "-q", home)
	r.must("mission", "results", "m", "--into", home)
	require.Equal(t, "made\n", command(t, "git", "-C", home, "show", "tidewait/m/1:made.txt"))

	lost := r.ended("running")
	require.Equal(t, "failed", lost.Status)
	require.Equal(t, "Temporal does not know workflow mission.running any more, so nobody works on the mission", lost.Failure)
	r.eventually("the application waits in a workflow of its own", func() bool {
		var list api.WaitList
		require.NoError(t, json.Unmarshal([]byte(r.must("waits", "--code", "never_observed", "-o", "json")), &list))
		return len(list.Waits) == 1 && r.hasWorkflow(api.AppWorkflowID("default", "default", "hello"))
	}, func() any { return r.must("waits", "-o", "json") })
	_, errs, code := r.tidewait("mission", "show", "later")
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "later")

	r.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "true"}}})
	again := r.ended("m")
	require.Equal(t, "succeeded", again.Status, again.Failure)
	require.Equal(t, 2, again.Launch)
	r.nothingLeft()
}

// restored starts the product on services that are new, with a dump of its database
// and a copy of its gateways' directory.
func restored(t *testing.T, dump, gateway string) *product {
	t.Helper()
	ctx := t.Context()
	dir := devstacktest.Dir(t)
	p, err := local.Start(ctx, local.Options{
		Worker: filepath.Join(bin, "tidewait-worker"), Patience: 5 * time.Minute,
		Env:   append([]string{"TIDEWAIT_DATA_DIR=" + dir}, quick...),
		Stack: devstack.Options{Dir: filepath.Join(dir, "stack"), TemporalCLI: devstacktest.TemporalCLI(t)},
	})
	require.NoError(t, err)
	r := &product{Product: p, t: t, dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			r.printLogs()
		}
		require.NoError(t, p.Stop())
	})
	command(t, "pg_restore", "--clean", "--if-exists", "--no-owner", "--exit-on-error", "-d", p.Stack.PostgresURL, dump)
	command(t, "cp", "-a", gateway, filepath.Join(dir, "gateway"))
	r.engine, err = p.StartWorker(ctx, "engine", []string{"engine"})
	require.NoError(t, err)
	r.gateway, err = p.StartWorker(ctx, "gateway", []string{"gateway"}, "TIDEWAIT_GATEWAY_ID=gw")
	require.NoError(t, err)
	r.db, err = pgx.Connect(ctx, p.Stack.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.db.Close(context.Background()) })
	r.nats, err = nats.Connect(p.Stack.NATSURL)
	require.NoError(t, err)
	t.Cleanup(r.nats.Close)
	r.node()
	return r
}

// hasWorkflow asks Temporal's command line, as a person would.
func (p *product) hasWorkflow(id string) bool {
	cmd := exec.CommandContext(p.t.Context(), devstacktest.TemporalCLI(p.t), "workflow", "describe", "--address", p.Stack.TemporalAddress, "--workflow-id", id)
	return cmd.Run() == nil
}

// command runs a program, which must succeed, and returns what it printed.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v", name, args)
	return string(out)
}
