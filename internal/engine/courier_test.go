package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	temporallog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/provision"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
	"tidewait/internal/wadmapi"
	"tidewait/migrations"
	"tidewait/workflows"
)

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(m.Run())
}

const patience = 30 * time.Second

// carrying is a stack with what couriers need, and somebody who listens.
type carrying struct {
	t        *testing.T
	stack    *devstack.Stack
	store    *store.Store
	db       *pgx.Conn
	temporal client.Client
	js       jetstream.JetStream
	heard    *nats.Subscription
	log      *records
}

func startCarrying(t *testing.T) *carrying {
	t.Helper()
	stack := devstacktest.Start(t)
	_, err := migrations.Apply(t.Context(), stack.PostgresURL)
	require.NoError(t, err)
	c := &carrying{t: t, stack: stack, log: &records{}}
	c.store, err = store.Open(t.Context(), stack.PostgresURL, 10, store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour})
	require.NoError(t, err)
	t.Cleanup(c.store.Close)
	c.db, err = pgx.Connect(t.Context(), stack.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.db.Close(context.Background()) })
	c.temporal, err = client.DialContext(t.Context(), client.Options{
		HostPort: stack.TemporalAddress, Namespace: devstack.Namespace, Logger: temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.temporal.Close)
	_, err = provision.SearchAttributes(t.Context(), c.temporal, devstack.Namespace)
	require.NoError(t, err)
	c.eventually("the namespace does not list the search attributes", func() bool {
		missing, err := provision.MissingSearchAttributes(t.Context(), c.temporal, devstack.Namespace)
		return err == nil && len(missing) == 0
	})
	conn, err := nats.Connect(stack.NATSURL)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c.js, err = jetstream.New(conn)
	require.NoError(t, err)
	c.heard, err = conn.SubscribeSync("wadm.>")
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	c.work()
	return c
}

// work has the workflows run, though nobody observes any lattice.
func (c *carrying) work() {
	w := worker.New(c.temporal, workflows.TaskQueue, worker.Options{DisableRegistrationAliasing: true})
	w.RegisterWorkflowWithOptions(workflows.Lattice, workflow.RegisterOptions{Name: api.LatticeWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: api.AppWorkflow})
	require.NoError(c.t, w.Start())
	c.t.Cleanup(w.Stop)
}

func (c *carrying) courier() *engine.Courier {
	return engine.NewCourier(c.store, &wadmapi.Publisher{JS: c.js}, c.temporal, slog.New(slog.NewJSONHandler(c.log, nil)))
}

// run starts a courier until the test ends.
func (c *carrying) run() *engine.Courier {
	courier := c.courier()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); courier.Run(ctx) }()
	c.t.Cleanup(func() { stop(); <-done })
	courier.Kick()
	return courier
}

func (c *carrying) eventually(what string, f func() bool) {
	c.t.Helper()
	require.Eventually(c.t, f, patience, 20*time.Millisecond, what)
}

// left counts what is in the outbox of a channel.
func (c *carrying) left(channel string) (n int) {
	require.NoError(c.t, c.db.QueryRow(context.Background(), `SELECT count(*) FROM application_outbox WHERE channel = $1`, channel).Scan(&n))
	return n
}

func west(name string) ledger.AppKey {
	return ledger.AppKey{Account: "default", Lattice: "west", Name: name}
}

func (c *carrying) put(name, more string) {
	c.t.Helper()
	manifest := fmt.Sprintf(`{"metadata":{"name":%q},"more":%q}`, name, more)
	_, err := c.store.PutApplication(context.Background(), west(name), ledger.AppVersion{Version: "v1", Manifest: json.RawMessage(manifest)}, uuid.New())
	require.NoError(c.t, err)
}

func (c *carrying) deploy(name string) int64 {
	c.t.Helper()
	d, err := c.store.DeployApplication(context.Background(), west(name), nil, "anna", store.DeployOptions{})
	require.NoError(c.t, err)
	return d.Revision
}

func (c *carrying) undeploy(name string) {
	c.t.Helper()
	_, err := c.store.UndeployApplication(context.Background(), west(name), "anna", false)
	require.NoError(c.t, err)
}

// hear takes n messages and returns what each application's said, in order.
func (c *carrying) hear(n int) map[string][]string {
	c.t.Helper()
	told := map[string][]string{}
	for range n {
		msg, err := c.heard.NextMsg(patience)
		require.NoError(c.t, err, "%v", told)
		name, said := read(c.t, msg)
		told[name] = append(told[name], said)
	}
	return told
}

// read takes the application and the kind of a message.
func read(t *testing.T, msg *nats.Msg) (name, said string) {
	t.Helper()
	if rest, ok := strings.CutPrefix(msg.Subject, "wadm.status.west."); ok {
		var status wadm.Status
		require.NoError(t, json.Unmarshal(msg.Data, &status))
		return rest, string(status.Status.Type)
	}
	var event struct {
		Data struct {
			Name     string
			Metadata struct{ Name string }
		}
	}
	require.NoError(t, json.Unmarshal(msg.Data, &event))
	return event.Data.Name + event.Data.Metadata.Name, strings.TrimPrefix(msg.Subject, "wadm.evt.west.")
}

// silent reports whether nothing more was told.
func (c *carrying) silent() bool {
	require.NoError(c.t, c.js.Conn().Flush())
	pending, _, err := c.heard.Pending()
	require.NoError(c.t, err)
	return pending == 0
}

// runs describes a workflow's newest run: its status, or "unknown".
func (c *carrying) runs(workflowID string) string {
	c.t.Helper()
	desc, err := c.temporal.DescribeWorkflow(context.Background(), workflowID, "")
	var unknown *serviceerror.NotFound
	if err != nil {
		require.ErrorAs(c.t, err, &unknown)
		return "unknown"
	}
	return desc.Status.String()
}

func (c *carrying) runID(workflowID string) string {
	c.t.Helper()
	desc, err := c.temporal.DescribeWorkflow(context.Background(), workflowID, "")
	require.NoError(c.t, err)
	return desc.WorkflowExecution.RunID
}

// revisions lists what an application's workflow was told, in order.
func (c *carrying) revisions(name string) (list []int64) {
	c.t.Helper()
	events := c.temporal.GetWorkflowHistory(context.Background(), api.AppWorkflowID("default", "west", name), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(c.t, err)
		if accepted := event.GetWorkflowExecutionUpdateAcceptedEventAttributes(); accepted != nil {
			var r api.AppRevision
			require.NoError(c.t, converter.GetDefaultDataConverter().FromPayloads(accepted.GetAcceptedRequest().GetInput().GetArgs(), &r))
			list = append(list, r.Revision)
		}
	}
	return list
}

// records are what couriers log.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

type record struct {
	Time     time.Time
	Level    string
	Kind     string
	Attempt  int
	Again    time.Duration `json:"again_in"`
	Revision int64
	Error    string
}

// of lists the records of a level about news of a kind.
func (r *records) of(t *testing.T, level, kind string) (list []record) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.text.Bytes()) {
		var rec record
		require.NoError(t, json.Unmarshal(line, &rec))
		if rec.Level == level && rec.Kind == kind {
			list = append(list, rec)
		}
	}
	return list
}

// TestNewsAreCarriedInTheOrderOfEachApplication has two engines carry what three
// applications have to tell.
func TestNewsAreCarriedInTheOrderOfEachApplication(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	names := []string{"a", "b", "c"}
	last := map[string]int64{}
	for _, name := range names {
		c.put(name, "")
	}
	couriers := []*engine.Courier{c.run(), c.run()}
	const rounds = 4
	for range rounds {
		for _, name := range names {
			c.deploy(name)
			c.undeploy(name)
			couriers[0].Kick()
		}
		couriers[1].Kick()
	}
	for _, name := range names {
		last[name] = c.deploy(name)
	}
	couriers[0].Kick()

	var want []string
	for range rounds {
		want = append(want, "manifest_published", "waiting", "manifest_unpublished", "undeployed")
	}
	want = append(want, "manifest_published", "waiting")
	require.Equal(t, map[string][]string{"a": want, "b": want, "c": want}, c.hear(len(names)*len(want)))
	c.eventually("the outbox is not emptied", func() bool { return c.left("nats")+c.left("temporal") == 0 })
	require.True(t, c.silent())
	for _, name := range names {
		told := c.revisions(name)
		require.True(t, slices.IsSorted(told), "%v", told)
		require.Equal(t, last[name], told[len(told)-1])
	}
}

func TestTemporalThatIsDownHoldsUpNothingThatGoesToNATS(t *testing.T) {
	const applications = 16
	t.Parallel()
	c := startCarrying(t)
	require.NoError(t, c.stack.Temporal.Kill())
	for i := range applications {
		c.put(fmt.Sprint("a", i), "")
		c.deploy(fmt.Sprint("a", i))
	}
	began := time.Now()
	c.run()

	told := c.hear(2 * applications)

	require.Less(t, time.Since(began), 8*time.Second, "less than one try at Temporal takes")
	require.Len(t, told, applications)
	for name, said := range told {
		require.Equal(t, []string{"manifest_published", "waiting"}, said, name)
	}
	c.eventually("the outbox of NATS is not emptied", func() bool { return c.left("nats") == 0 })
	require.Equal(t, applications, c.left("temporal"))
	c.eventually("why Temporal was not told is not in the outbox", func() bool {
		var said int
		require.NoError(t, c.db.QueryRow(t.Context(), `SELECT count(*) FROM application_outbox WHERE error <> '' AND attempts > 0`).Scan(&said))
		return said > 0
	})

	require.NoError(t, c.stack.Temporal.Start(t.Context()))
	c.eventually("Temporal is not told", func() bool { return c.left("temporal") == 0 })
	for i := range applications {
		require.Equal(t, "Running", c.runs(fmt.Sprint("app.default.west.a", i)))
	}
	require.Equal(t, "Running", c.runs("lattice.default.west"))
}

// TestNewsThatFailAreTriedAgainAfterGrowingPauses puts a stream in the way of
// Tidewait's for a while.
func TestNewsThatFailAreTriedAgainAfterGrowingPauses(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	_, err := c.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "obstacle", Subjects: []string{"wadm.evt.west.>"}})
	require.NoError(t, err)
	c.put("shop", "")
	revision := c.deploy("shop")
	c.run()

	c.eventually("it is not tried again", func() bool { return len(c.log.of(t, "WARN", "published")) >= 3 })
	var attempts int
	var why string
	require.NoError(t, c.db.QueryRow(t.Context(),
		`SELECT attempts, error FROM application_outbox WHERE kind = 'published'`).Scan(&attempts, &why))
	require.GreaterOrEqual(t, attempts, 3)
	require.Contains(t, why, "tell NATS of west/shop (published): ")
	require.Contains(t, why, "subjects overlap with an existing stream")
	tries := c.log.of(t, "WARN", "published")
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		require.Equal(t, i+1, tries[i].Attempt)
		require.Equal(t, pause, tries[i].Again)
		require.Equal(t, revision, tries[i].Revision)
		if i > 0 {
			require.GreaterOrEqual(t, tries[i].Time.Sub(tries[i-1].Time), tries[i-1].Again-10*time.Millisecond)
		}
	}
	c.eventually("its workflow is not told meanwhile", func() bool { return c.left("temporal") == 0 })
	require.Equal(t, 2, c.left("nats"), "what is behind it waits for it")
	require.True(t, c.silent())

	require.NoError(t, c.js.DeleteStream(t.Context(), "obstacle"))
	require.Equal(t, map[string][]string{"shop": {"manifest_published", "waiting"}}, c.hear(2))
	c.eventually("the outbox is not emptied", func() bool { return c.left("nats") == 0 })
}

func TestNewsThatNoBrokerCarriesAreDropped(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	c.put("shop", strings.Repeat("x", 9<<20))
	revision := c.deploy("shop")
	c.run()

	require.Equal(t, map[string][]string{"shop": {"waiting"}}, c.hear(1))

	c.eventually("the outbox is not emptied", func() bool { return c.left("nats")+c.left("temporal") == 0 })
	dropped := c.log.of(t, "ERROR", "published")
	require.Len(t, dropped, 1)
	require.Equal(t, revision, dropped[0].Revision)
	require.Contains(t, dropped[0].Error, "larger than max_payload of the NATS server")
	require.Empty(t, c.log.of(t, "WARN", "published"))
	require.Equal(t, "Running", c.runs("app.default.west.shop"))
}

func TestBeginStartsTheApplicationsAndTheLatticesWorkflow(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	courier := c.courier()
	const app, lattice = "app.default.west.shop", "lattice.default.west"

	require.NoError(t, courier.Begin(t.Context(), west("shop"), 7))

	require.Equal(t, "Running", c.runs(app))
	require.Equal(t, "Running", c.runs(lattice))
	require.Equal(t, []int64{7}, c.revisions("shop"))
	desc, err := c.temporal.DescribeWorkflow(t.Context(), app, "")
	require.NoError(t, err)
	name, _ := desc.TypedSearchAttributes.GetKeyword(workflows.AttrApp)
	require.Equal(t, "shop", name)
	for id, summary := range map[string]string{app: "application shop in lattice west", lattice: "lattice west"} {
		desc, err := c.temporal.DescribeWorkflow(t.Context(), id, "")
		require.NoError(t, err)
		said, err := desc.GetStaticSummary()
		require.NoError(t, err)
		require.Equal(t, summary, said)
		in, _ := desc.TypedSearchAttributes.GetKeyword(workflows.AttrLattice)
		require.Equal(t, "west", in)
	}

	firstApp, firstLattice := c.runID(app), c.runID(lattice)
	require.NoError(t, courier.Begin(t.Context(), west("shop"), 8))
	require.Equal(t, firstApp, c.runID(app), "there is one already")
	require.Equal(t, firstLattice, c.runID(lattice))
	require.Equal(t, []int64{7, 8}, c.revisions("shop"))

	for _, id := range []string{app, lattice} {
		require.NoError(t, c.temporal.TerminateWorkflow(t.Context(), id, "", "by hand"))
	}
	require.NoError(t, courier.Begin(t.Context(), west("shop"), 0))
	require.Equal(t, "Running", c.runs(app))
	require.Equal(t, "Running", c.runs(lattice))
	require.NotEqual(t, firstApp, c.runID(app))
	require.NotEqual(t, firstLattice, c.runID(lattice))
}

func TestWhatIsNotKeptNeedsNoWorkflow(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	for _, name := range []string{"undeployed", "deleted"} {
		c.put(name, "")
		c.deploy(name)
	}
	c.undeploy("undeployed")
	_, err := c.store.DeleteApplication(t.Context(), west("deleted"), nil, "anna", false)
	require.NoError(t, err)
	require.Equal(t, 2, c.left("temporal"))
	courier := c.run()

	c.eventually("the outbox is not emptied", func() bool { return c.left("temporal") == 0 })
	require.Equal(t, "unknown", c.runs("app.default.west.undeployed"))
	require.Equal(t, "unknown", c.runs("app.default.west.deleted"))
	require.Equal(t, "unknown", c.runs("lattice.default.west"))
	require.Empty(t, c.log.of(t, "WARN", "revised"))

	// A workflow that is there is told.
	c.deploy("undeployed")
	courier.Kick()
	c.eventually("no workflow is begun", func() bool { return c.runs("app.default.west.undeployed") == "Running" })
	c.undeploy("undeployed")
	app, err := c.store.Application(t.Context(), west("undeployed"))
	require.NoError(t, err)
	courier.Kick()
	c.eventually("the workflow is not told", func() bool { return slices.Contains(c.revisions("undeployed"), app.Revision) })
	c.eventually("the outbox is not emptied", func() bool { return c.left("temporal") == 0 })
}

// TestARefusedRevisionIsCarriedAgain tells the workflow of an application that is not
// kept any more, which refuses twice, as one that cannot read what it is told.
func TestARefusedRevisionIsCarriedAgain(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	c.put("shop", "")
	c.deploy("shop")
	c.undeploy("shop")
	app, err := c.store.Application(t.Context(), west("shop"))
	require.NoError(t, err)
	w := worker.New(c.temporal, "stubborn", worker.Options{DisableRegistrationAliasing: true})
	w.RegisterWorkflowWithOptions(stubborn, workflow.RegisterOptions{Name: "stubborn"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "app.default.west.shop", TaskQueue: "stubborn"}, "stubborn")
	require.NoError(t, err)
	c.run()

	var told int64
	require.NoError(t, run.Get(t.Context(), &told))
	require.Equal(t, app.Revision, told)
	c.eventually("the outbox is not emptied", func() bool { return c.left("temporal") == 0 })
}

// stubborn refuses two revisions, and ends with the last one there is after them.
func stubborn(ctx workflow.Context) (revision int64, err error) {
	refused := 0
	err = workflow.SetUpdateHandler(ctx, api.UpdateRevise, func(_ workflow.Context, r api.AppRevision) error {
		if refused < 2 {
			refused++
			return errors.New("cannot read it")
		}
		revision = r.Revision
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = workflow.Await(ctx, func() bool { return revision > 0 && workflow.AllHandlersFinished(ctx) })
	return revision, err
}

// TestTheLatticesWorkflowIsToldOnlyWhenItMayEnd: an observer that is there sees
// what is deployed by itself, and one that has let go is called back.
func TestTheLatticesWorkflowIsToldOnlyWhenItMayEnd(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	courier := c.courier()
	const lattice = "lattice.default.west"
	epoch, err := c.store.TakeLattice(t.Context(), "default", "west", "engine")
	require.NoError(t, err)
	require.NoError(t, courier.Begin(t.Context(), west("shop"), 1))
	require.Equal(t, "unknown", c.runs(lattice), "it is held")
	require.NoError(t, courier.Observe(t.Context(), "default", "west"))
	require.Equal(t, "Running", c.runs(lattice), "that is asked for without regard to that")
	require.Zero(t, c.signals(lattice))

	released, err := c.store.ReleaseLattice(t.Context(), "default", "west", epoch)
	require.NoError(t, err)
	require.True(t, released)
	require.NoError(t, courier.Begin(t.Context(), west("shop"), 2))
	require.Equal(t, 1, c.signals(lattice))
	require.NoError(t, c.temporal.TerminateWorkflow(t.Context(), lattice, "", "by hand"))
	require.NoError(t, courier.Begin(t.Context(), west("shop"), 3))
	require.Equal(t, "Running", c.runs(lattice))
}

// signals counts the signals that the newest run of a workflow got.
func (c *carrying) signals(workflowID string) (n int) {
	c.t.Helper()
	events := c.temporal.GetWorkflowHistory(context.Background(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(c.t, err)
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED {
			n++
		}
	}
	return n
}

// TestThoseWhoReferToAnApplicationLookAgain: nothing may change in the lattice
// when what they refer to is deployed or undeployed.
func TestThoseWhoReferToAnApplicationLookAgain(t *testing.T) {
	t.Parallel()
	c := startCarrying(t)
	web := oam.Reference{Application: "platform", Component: "web", Type: oam.TypeComponent}
	for name, facts := range map[string]oam.Facts{
		"platform": {Shared: true, Components: map[string]oam.ComponentType{"web": oam.TypeComponent}},
		"shop":     {References: []oam.Reference{web}},
		"other":    {},
	} {
		v := ledger.AppVersion{Version: "v1", Manifest: json.RawMessage(`{}`), Facts: facts}
		_, err := c.store.PutApplication(t.Context(), west(name), v, uuid.New())
		require.NoError(t, err)
	}
	courier := c.run()
	deployed := func(name string) {
		t.Helper()
		c.deploy(name)
		courier.Kick()
		c.eventually("the outbox is not emptied", func() bool { return c.left("temporal") == 0 })
	}
	deployed("platform")
	deployed("shop")
	deployed("other")
	require.Zero(t, c.signals("app.default.west.shop"))
	deployed("platform")
	require.Equal(t, 1, c.signals("app.default.west.shop"))
	c.undeploy("platform")
	courier.Kick()
	c.eventually("the outbox is not emptied", func() bool { return c.left("temporal") == 0 })
	require.Equal(t, 2, c.signals("app.default.west.shop"))
	require.Zero(t, c.signals("app.default.west.other"))
	require.Zero(t, c.signals("app.default.west.platform"))
}
