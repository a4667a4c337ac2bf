package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
)

// waitAt is what one place shows of a wait.
type waitAt struct {
	kind, code   string
	since, bound time.Time // bound zero: none
}

// same reports whether two places agree. Places differ in how fine their clocks are.
func (w waitAt) same(o waitAt, within time.Duration) bool {
	return w.kind == o.kind && w.code == o.code && w.since.Sub(o.since).Abs() < within && w.bound.Sub(o.bound).Abs() < within
}

func (w waitAt) String() string {
	return fmt.Sprintf("%s %s since %s until %s", w.kind, w.code, w.since.Format(time.RFC3339Nano), w.bound.Format(time.RFC3339Nano))
}

// asListed is what a list of waits says of one.
func asListed(w api.Wait) waitAt {
	at := waitAt{kind: w.Kind, code: w.Code, since: w.Since}
	if w.Bound != nil {
		at.bound = *w.Bound
	}
	return at
}

// row is a wait as Postgres has it.
type row struct {
	waitAt
	reason             string
	position, attempts int
	checked            time.Time
}

// rowOf reads the one wait of a workflow; nil: it has none.
func (p *product) rowOf(workflow string) *row {
	p.t.Helper()
	rows, err := p.db.Query(p.t.Context(), `
SELECT kind, code, reason, since, bound, 0, attempts, checked_at FROM open_waits WHERE workflow_id = $1
UNION ALL
SELECT 'capacity', w.code, p.capacity_note, w.since, w.bound, w.position, w.attempts, w.checked_at
FROM capacity_waits w JOIN mission_phases p ON p.id = w.phase_id JOIN missions m ON m.id = p.mission_id
WHERE 'phase.' || m.name || '.' || p.name = $1 AND p.capacity_blocked_since = w.since`, workflow)
	require.NoError(p.t, err)
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (row, error) {
		var w row
		var bound *time.Time
		err := r.Scan(&w.kind, &w.code, &w.reason, &w.since, &bound, &w.position, &w.attempts, &w.checked)
		if bound != nil {
			w.bound = *bound
		}
		return w, err
	})
	require.NoError(p.t, err)
	require.LessOrEqual(p.t, len(found), 1, "%s waits for one thing at a time", workflow)
	if len(found) == 0 {
		return nil
	}
	return &found[0]
}

// attributeIn decodes a search attribute; nothing is its zero value.
func attributeIn[T any](fields map[string]*commonpb.Payload, name string) (value T) {
	if p := fields[name]; p != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(p, &value) // one that was unset is null
	}
	return value
}

func asAttributes(s *commonpb.SearchAttributes) waitAt {
	f := s.GetIndexedFields()
	return waitAt{
		kind: attributeIn[string](f, "TidewaitWait"), code: attributeIn[string](f, "TidewaitReason"),
		since: attributeIn[time.Time](f, "TidewaitSince"), bound: attributeIn[time.Time](f, "TidewaitBound"),
	}
}

// described is what a workflow's search attributes say.
func (p *product) described(workflow string) waitAt {
	p.t.Helper()
	desc, err := p.temporal.DescribeWorkflow(p.t.Context(), workflow, "")
	require.NoError(p.t, err)
	return asAttributes(desc.RawResponse.GetWorkflowExecutionInfo().GetSearchAttributes())
}

// listedAs is what Temporal's list says of a workflow.
func (p *product) listedAs(workflow string) waitAt {
	p.t.Helper()
	list, err := p.temporal.ListWorkflow(p.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf(`WorkflowId = "%s" AND ExecutionStatus = "Running" AND TidewaitWait IS NOT NULL`, workflow),
	})
	require.NoError(p.t, err)
	if len(list.GetExecutions()) != 1 {
		return waitAt{}
	}
	return asAttributes(list.GetExecutions()[0].GetSearchAttributes())
}

// detailsOf are a workflow's current details.
func (p *product) detailsOf(workflow string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	value, err := p.temporal.QueryWorkflow(ctx, workflow, "", "__temporal_workflow_metadata")
	if err != nil {
		return "", err
	}
	var m sdkpb.WorkflowMetadata
	err = value.Get(&m)
	return m.GetCurrentDetails(), err
}

// What current details say of a wait: its code, since and bound, to the second.
var (
	detailKind  = regexp.MustCompile(`\*\*waiting for ([a-z ]+)\*\*`)
	detailCode  = regexp.MustCompile("\\(`([a-z_]+)`\\)")
	detailSince = regexp.MustCompile(`(?m)^- \*\*since:\*\* ([0-9: -]{19})Z`)
	detailBound = regexp.MustCompile(`(?m)^- \*\*(?:fails by itself|placed again by):\*\* ([0-9: -]{19})Z`)
)

// inDetails reads the wait that current details tell of.
func inDetails(text string) waitAt {
	find := func(in *regexp.Regexp) string {
		if m := in.FindStringSubmatch(text); m != nil {
			return m[1]
		}
		return ""
	}
	moment := func(in *regexp.Regexp) time.Time {
		t, _ := time.Parse(time.DateTime, find(in)) // nothing is the zero time
		return t
	}
	kinds := map[string]string{"release": "hold", "the next try": "backoff"}
	kind := find(detailKind)
	if k, ok := kinds[kind]; ok {
		kind = k
	}
	return waitAt{kind: kind, code: find(detailCode), since: moment(detailSince), bound: moment(detailBound)}
}

// upserted is when a workflow's search attributes had a code for the first time.
func (p *product) upserted(workflow, code string) time.Time {
	p.t.Helper()
	return p.first(workflow, "search attributes with the code "+code, func(e *historypb.HistoryEvent) bool {
		return attributeIn[string](attributesOf(e), "TidewaitReason") == code
	})
}

// scheduled is when a workflow asked for an activity first.
func (p *product) scheduled(workflow, activity string) time.Time {
	p.t.Helper()
	return p.first(workflow, "activity "+activity, func(e *historypb.HistoryEvent) bool {
		return e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == activity
	})
}

// failed is when an activity of a workflow failed with a type of error first.
func (p *product) failed(workflow, errorType string) time.Time {
	p.t.Helper()
	return p.first(workflow, "failure "+errorType, func(e *historypb.HistoryEvent) bool {
		return e.GetActivityTaskFailedEventAttributes().GetFailure().GetApplicationFailureInfo().GetType() == errorType
	})
}

// first is the time of the first event of a workflow's newest run that is what is
// looked for.
func (p *product) first(workflow, what string, is func(*historypb.HistoryEvent) bool) time.Time {
	p.t.Helper()
	history := p.temporal.GetWorkflowHistory(p.t.Context(), workflow, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(p.t, err)
		if is(e) {
			return e.GetEventTime().AsTime()
		}
	}
	p.t.Fatalf("workflow %s never had %s", workflow, what)
	return time.Time{}
}

func attributesOf(e *historypb.HistoryEvent) map[string]*commonpb.Payload {
	if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
		return started.GetSearchAttributes().GetIndexedFields()
	}
	return e.GetUpsertWorkflowSearchAttributesEventAttributes().GetSearchAttributes().GetIndexedFields()
}

// pending is what the failure of a pending activity says of a refusal.
type pending struct {
	sentence string
	waiting  ledger.Waiting
	next     time.Time // try; zero: one is under way
}

// pendingOf reads the failure of the activity that a phase waits with.
func (p *product) pendingOf(workflow string) (got pending, ok bool) {
	p.t.Helper()
	desc, err := p.temporal.DescribeWorkflow(p.t.Context(), workflow, "")
	require.NoError(p.t, err)
	for _, a := range desc.RawResponse.GetPendingActivities() {
		info := a.GetLastFailure().GetApplicationFailureInfo()
		if info.GetType() != "CapacityRefused" || a.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			continue
		}
		require.NoError(p.t, converter.GetDefaultDataConverter().FromPayloads(info.GetDetails(), &got.waiting))
		got.sentence, got.next = a.GetLastFailure().GetMessage(), a.GetNextAttemptScheduleTime().AsTime()
		return got, true
	}
	return got, false
}

// cliWaits is `tidewait waits -o json`, by workflow.
func (p *product) cliWaits() map[string]api.Wait {
	p.t.Helper()
	var list api.WaitList
	require.NoError(p.t, jsonOf(p.must("waits", "-o", "json"), &list))
	byWorkflow := map[string]api.Wait{}
	for _, w := range list.Waits {
		require.NotContains(p.t, byWorkflow, w.WorkflowID, "one line for each")
		byWorkflow[w.WorkflowID] = w
	}
	return byWorkflow
}

// cliMission is `tidewait mission show -o json`.
func (p *product) cliMission(name string) (m api.MissionDetail) {
	p.t.Helper()
	require.NoError(p.t, jsonOf(p.must("mission", "show", name, "-o", "json"), &m))
	return m
}

// cliStatus is `tidewait app status -o json`.
func (s *site) cliStatus(app string) wadm.StatusInfo {
	s.t.Helper()
	var reply struct{ Status wadm.Status }
	require.NoError(s.t, jsonOf(s.must("app", "status", app, "--lattice", s.name, "-o", "json"), &reply))
	return reply.Status.Status
}

// wireStatus is what a client of wadm is answered.
func (s *site) wireStatus(app string) (info wadm.StatusInfo) {
	s.t.Helper()
	msg, err := s.nc.RequestWithContext(s.ctx(), "wadm.api."+s.name+".model.status."+app, nil)
	require.NoError(s.t, err)
	var reply struct {
		Status struct{ Status json.RawMessage }
	}
	require.NoError(s.t, json.Unmarshal(msg.Data, &reply))
	require.NoError(s.t, json.Unmarshal(reply.Status.Status, &info))
	return info
}

// inStatus is the wait that a status of wadm tells of, which has no kind.
func inStatus(info wadm.StatusInfo, kind string) waitAt {
	at := waitAt{kind: kind, code: info.Reason}
	if info.Since != nil {
		at.since = *info.Since
	}
	return at
}

// passes are the sessions that wait for a lock of a placer.
func (p *product) passes() int {
	p.t.Helper()
	return p.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
}

// placerLock is the lock that passes over one pool take.
type placerLock struct {
	conn *pgx.Conn
	came chan error
}

// lockPlacer asks for the lock of a pool's passes, and does not wait for it.
func (p *product) lockPlacer(pool string) *placerLock {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.Stack.PostgresURL)
	require.NoError(p.t, err)
	l := &placerLock{conn, make(chan error, 1)}
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT pg_advisory_lock(hashtextextended('tidewait.placer.' || $1, 0))", pool)
		l.came <- err
	}()
	return l
}

// held waits until the lock has been got.
func (l *placerLock) held(p *product) {
	p.t.Helper()
	select {
	case err := <-l.came:
		require.NoError(p.t, err)
	case <-time.After(patience):
		p.t.Fatal("a lock of the placer was not to be had")
	}
}

func (l *placerLock) free(p *product) {
	p.t.Helper()
	require.NoError(p.t, l.conn.Close(p.t.Context()))
}
