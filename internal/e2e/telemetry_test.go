package e2e

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"tidewait/internal/local"
	"tidewait/internal/wadm"
)

// samples are what a worker reports, by series as they are written.
type samples map[string]float64

// scrape reads a worker's metrics.
func scrape(t *testing.T, w *local.Worker) samples {
	t.Helper()
	found := samples{}
	lines := bufio.NewScanner(strings.NewReader(get(t, w, "/metrics", "").body))
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndex(line, " ")
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		require.NoError(t, err, line)
		found[line[:at]] = value
	}
	return found
}

type answer struct {
	code int
	body string
}

// get asks a worker for a page of its own.
func get(t *testing.T, w *local.Worker, path, accept string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, string(body)}
}

// with are the series of a metric that are not zero.
func (s samples) with(metric string) samples {
	found := samples{}
	for series, value := range s {
		if name, _, _ := strings.Cut(series, "{"); name == metric && value != 0 {
			found[strings.TrimPrefix(series, metric)] = value
		}
	}
	return found
}

// TestMetrics: what waits, and what happens to it, is told by every engine; what is
// counted, is counted once.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	second, err := p.StartWorker(t.Context(), "engine-2", []string{"engine"})
	require.NoError(t, err)
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "small", phases: []phaseDoc{{name: "work", script: "true"}}})
	p.waiting("small")
	p.launch(missionDoc{name: "held", phases: []phaseDoc{{name: "work", script: "true", extra: "hold: true"}}})
	p.phaseWait("held", 0, "hold")

	for _, engine := range []*local.Worker{p.engine, second} {
		want := samples{`{code="capacity_memory",kind="capacity"}`: 1, `{code="awaiting_release",kind="hold"}`: 1}
		var seen samples
		p.eventually("the waits are told", func() bool {
			seen = scrape(t, engine)
			return maps.Equal(want, seen.with("tidewait_waits"))
		}, func() any { return seen.with("tidewait_waits") })
		require.Contains(t, seen, `tidewait_waits{code="node_silent",kind="node"}`, "what nobody waits for is zero, not absent")
		require.Len(t, seen.with("tidewait_wait_age_seconds"), 2)
		require.Len(t, seen.with("tidewait_wait_bound_spent"), 1)
		require.Contains(t, seen, `tidewait_wait_bound_spent{code="capacity_memory",kind="capacity"}`)
		require.Len(t, seen.with("tidewait_wait_unbounded_age_seconds"), 1)
		require.Contains(t, seen, `tidewait_wait_unbounded_age_seconds{code="awaiting_release",kind="hold"}`)
		require.Less(t, seen[`tidewait_wait_unchecked_age_seconds{pool="process"}`], 15.0)
		require.Equal(t, samples{`{state="ready"}`: 1}, seen.with("tidewait_nodes"))
		require.Equal(t, samples{`{heard="true"}`: 1}, seen.with("tidewait_gateways"))
		require.Equal(t, samples{`{backend="process",state="running"}`: 1}, seen.with("tidewait_machines"))
		require.Equal(t, samples{"": 3}, seen.with("tidewait_missions_running"))
		require.Equal(t, samples{"": 1}, seen.with("tidewait_database_up"))
	}

	p.must("phase", "release", "held", "work")
	p.eventually("the release ends that wait", func() bool {
		return maps.Equal(samples{`{code="capacity_memory",kind="capacity"}`: 2}, scrape(t, second).with("tidewait_waits"))
	}, func() any { return scrape(t, second).with("tidewait_waits") })
	p.must("mission", "cancel", "big", "--reason", "the test is done with it")
	p.ended("small")
	p.ended("held")
	p.eventually("nobody waits", func() bool {
		return len(scrape(t, p.engine).with("tidewait_waits"))+len(scrape(t, second).with("tidewait_waits")) == 0
	}, func() any { return scrape(t, second).with("tidewait_waits") })
	sum := samples{}
	for _, engine := range []*local.Worker{p.engine, second} {
		for series, value := range scrape(t, engine) {
			sum[series] += value
		}
	}
	require.InDelta(t, 3, total(sum.with("tidewait_placements_total")), 0)
	require.InDelta(t, 1, sum[`tidewait_placements_total{woken_by="first"}`], 0)
	require.Equal(t, samples{
		`{code="capacity_memory",ended_by="placed",kind="capacity"}`: 2,
		`{code="awaiting_release",ended_by="released",kind="hold"}`:  1,
	}, sum.with("tidewait_wait_duration_seconds_count"))
	require.GreaterOrEqual(t, sum[`tidewait_refusals_total{class="capacity",code="capacity_memory"}`], 2.0)

	_, _, code := p.tidewait("mission", "launch", p.write(missionDoc{name: "giant", phases: []phaseDoc{{name: "work", memory: "4096Gi", script: "true"}}}))
	require.Equal(t, 3, code)
	refused := `tidewait_refusals_total{class="capability",code="exceeds_every_node"}`
	require.InDelta(t, 1, scrape(t, p.engine)[refused]+scrape(t, second)[refused], 0)
}

func total(s samples) (sum float64) {
	for _, value := range s {
		sum += value
	}
	return sum
}

// collector takes what is sent over OTLP.
type collector struct {
	url string

	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics map[string]bool // instances of services that sent some
	bodies  []byte          // of all requests
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{metrics: map[string]bool{}}
	mux := http.NewServeMux()
	take := func(path string, request proto.Message, take func()) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.bodies = append(c.bodies, body...)
			proto.Reset(request)
			if err == nil {
				err = proto.Unmarshal(body, request)
			}
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			take()
			w.Header().Set("Content-Type", "application/x-protobuf")
		})
	}
	traces, metrics := &collectortrace.ExportTraceServiceRequest{}, &collectormetrics.ExportMetricsServiceRequest{}
	take("/v1/traces", traces, func() {
		for _, resource := range traces.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					c.spans = append(c.spans, proto.Clone(span).(*tracepb.Span))
				}
			}
		}
	})
	take("/v1/metrics", metrics, func() {
		for _, resource := range metrics.GetResourceMetrics() {
			for _, attribute := range resource.GetResource().GetAttributes() {
				if attribute.GetKey() == "service.instance.id" {
					c.metrics[attribute.GetValue().GetStringValue()] = true
				}
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// workflows are those that the spans of a trace name.
func (c *collector) workflows(trace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for _, span := range c.spans {
		if hex.EncodeToString(span.GetTraceId()) != trace {
			continue
		}
		for _, attribute := range span.GetAttributes() {
			if attribute.GetKey() == "temporalWorkflowID" && !slices.Contains(found, attribute.GetValue().GetStringValue()) {
				found = append(found, attribute.GetValue().GetStringValue())
			}
		}
	}
	return found
}

// records are the log records of a worker, which logs JSON.
func (p *product) records(w *local.Worker) []object {
	p.t.Helper()
	data, err := os.ReadFile(w.LogPath())
	require.NoError(p.t, err)
	var records []object
	for line := range bytes.Lines(data) {
		var r object
		require.NoErrorf(p.t, json.Unmarshal(line, &r), "%s", line)
		records = append(records, r)
	}
	return records
}

// says waits until a record of a worker has all of these values.
func (p *product) says(w *local.Worker, want object) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("a record of %s has %v", w.Name, want), func() bool {
		return slices.ContainsFunc(p.records(w), func(r object) bool {
			for key, value := range want {
				if r[key] != value {
					return false
				}
			}
			return true
		})
	}, func() any { return p.records(w) })
}

var exemplar = regexp.MustCompile(`(?m)^tidewait_reconcile_duration_seconds_bucket\{.*# \{.*trace_id="([0-9a-f]{32})"`)

// TestTelemetryLeads: from an alert to the metric, from the metric to the trace and
// to the log records, from these to the workflow.
func TestTelemetryLeads(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	p := start(t, "TIDEWAIT_LOG_FORMAT=json",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=500")
	p.node()
	s := p.lattice("prod")
	s.host("h")
	s.deploy(shop("shop", "v1"))
	s.becomes("shop", wadm.Deployed)
	p.must("mission", "launch", "--wait", p.write(missionDoc{name: "small", phases: []phaseDoc{{name: "work", script: "true"}}}))
	run := p.show("small").PhaseList[0].Runs[0].ID

	// Log records carry what they are about.
	p.says(p.engine, object{"msg": "a workflow begins", "mission": "small", "phase": "work", "WorkflowType": "phase"})
	p.says(p.engine, object{"msg": "a workflow has ended", "mission": "small", "phase": "work"})
	p.says(p.engine, object{"msg": "a run is placed", "role": "engine", "mission": "small", "phase": "work", "run": run, "node": "n1", "woken_by": "first"})
	p.says(p.engine, object{"msg": "a workflow begins", "account": "default", "lattice": "prod", "application": "shop"})
	p.says(p.engine, object{"msg": "observing", "role": "engine", "account": "default", "lattice": "prod"})
	p.says(p.agent, object{"msg": "a run begins", "mission": "small", "phase": "work", "launch": 1.0, "run": run, "node": "n1"})
	p.says(p.agent, object{"msg": "a run has ended", "mission": "small", "phase": "work", "launch": 1.0, "run": run, "node": "n1"})
	p.says(p.agent, object{"msg": "backend works", "role": "node", "node": "n1"})

	// A bucket of a histogram leads to a trace, and the trace to the workflow.
	found := exemplar.FindStringSubmatch(get(t, p.engine, "/metrics", "application/openmetrics-text; version=1.0.0").body)
	require.NotNil(t, found, "there is an exemplar")
	p.eventually("the trace names its workflow", func() bool {
		return slices.Contains(c.workflows(found[1]), "app.default.prod.shop")
	}, func() any { return c.workflows(found[1]) })
	p.eventually("each process sends metrics under a name of its own", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.metrics) == 3
	}, func() any { return c.metrics })

	// What dashboard and rules name is there, and what is there is documented.
	_, err := p.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "unknown", TaskQueue: "tidewait"}, "unknown")
	require.NoError(t, err)
	p.says(p.engine, object{"WorkflowType": "unknown", "level": "WARN"})
	require.NoError(t, p.temporal.TerminateWorkflow(t.Context(), "unknown", "", "the test is done with it"))
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "late", phases: []phaseDoc{{name: "work", script: "true"}}})
	p.waiting("late")
	p.must("mission", "cancel", "late")
	p.ended("late")
	p.launch(missionDoc{name: "later", phases: []phaseDoc{{name: "work", script: "true"}}})
	p.waiting("later")
	p.launch(missionDoc{name: "held", phases: []phaseDoc{{name: "work", script: "true", extra: "hold: true"}}})
	p.phaseWait("held", 0, "hold")
	all, named := samples{}, namedMetrics(t)
	absent := func() map[string]string { // gauges are a moment old
		for _, w := range []*local.Worker{p.engine, p.gateway, p.agent} {
			maps.Copy(all, scrape(t, w))
		}
		missing := maps.Clone(named)
		maps.DeleteFunc(missing, func(metric, _ string) bool { return slices.Contains(all.reported(), metric) })
		return missing
	}
	p.eventually("somebody reports what rules and panels name", func() bool { return len(absent()) == 0 }, func() any { return absent() })
	documented := documentedMetrics(t)
	for _, metric := range all.reported() {
		if strings.HasPrefix(metric, "tidewait_") {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				metric = strings.TrimSuffix(metric, suffix)
			}
			require.Contains(t, documented, metric, "docs/metrics.md has a row for it")
		}
	}
	for _, metric := range documented {
		require.Truef(t, slices.ContainsFunc(all.reported(), func(name string) bool { return strings.HasPrefix(name, metric) }), "docs/metrics.md has %s, which nobody reports", metric)
	}
}

// health is what a worker says of itself.
type health struct {
	code   int
	failed map[string]string // checks, and why
	names  []string          // of all checks
}

func healthOf(t *testing.T, w *local.Worker, page string) health {
	t.Helper()
	a := get(t, w, page+"?verbose", "")
	var report struct {
		OK     bool `json:"ok"`
		Checks []struct {
			Name  string `json:"name"`
			OK    bool   `json:"ok"`
			Error string `json:"error"`
		} `json:"checks"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &report), a.body)
	h := health{code: a.code, failed: map[string]string{}}
	for _, check := range report.Checks {
		h.names = append(h.names, check.Name)
		if !check.OK {
			h.failed[check.Name] = check.Error
		}
	}
	require.Equal(t, report.OK, a.code == http.StatusOK)
	require.Equal(t, report.OK, len(h.failed) == 0)
	return h
}

// fails waits until exactly these checks of a worker fail.
func (p *product) failing(w *local.Worker, page string, want ...string) health {
	p.t.Helper()
	var h health
	p.eventually(fmt.Sprintf("%s of %s fails with %q", page, w.Name, want), func() bool {
		h = healthOf(p.t, w, page)
		return slices.Equal(slices.Sorted(maps.Keys(h.failed)), want)
	}, func() any { return h.failed })
	return h
}

// TestARetiredNodeIsNoConcern: its agent ends, and the process goes on with its
// other role, alive and ready.
func TestARetiredNodeIsNoConcern(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_TELEMETRY_STUCK_AFTER=1s")
	both, err := p.StartWorker(t.Context(), "both", []string{"gateway", "node"}, "TIDEWAIT_GATEWAY_ID=both", "TIDEWAIT_NODE_ID=both",
		"TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi")
	require.NoError(t, err)
	require.Contains(t, p.failing(both, "/readyz").names, "node: works")
	require.Equal(t, []string{"heartbeat of gateway both", "heartbeat of node both"}, p.failing(both, "/livez").names)

	p.must("node", "retire", "both")
	p.eventually("the node is no part of the process", func() bool {
		return !slices.Contains(healthOf(t, both, "/readyz").names, "node: works")
	}, func() any { return healthOf(t, both, "/readyz").names })
	require.Equal(t, []string{"heartbeat of gateway both"}, p.failing(both, "/livez").names)
	require.Equal(t, []string{"gateway: queue gateway.both", "gateway: results", "gateway: secrets", "gateway: works", "nats", "temporal"},
		p.failing(both, "/readyz").names)
}

// TestHealth: a process is ready while what it needs answers and what it serves is
// served, and alive while its loops come round; either says what is not so.
func TestHealth(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_TELEMETRY_STUCK_AFTER=2s")
	p.node()
	engine := p.failing(p.engine, "/readyz")
	require.Equal(t, []string{
		"engine: postgres", "engine: queue observe", "engine: queue tidewait", "engine: tidewait.api", "engine: tidewait.secrets",
		"engine: wadm.api", "engine: works", "nats", "temporal",
	}, engine.names)
	require.Equal(t, []string{"gateway: queue gateway.gw", "gateway: results", "gateway: secrets", "gateway: works", "nats", "temporal"},
		p.failing(p.gateway, "/readyz").names)
	require.Equal(t, []string{"nats", "node: queue node.n1", "node: works", "temporal"}, p.failing(p.agent, "/readyz").names)
	require.Equal(t, []string{"courier to nats", "courier to temporal", "dispatcher", "listening", "sweep"}, p.failing(p.engine, "/livez").names)
	require.Equal(t, []string{"heartbeat of node n1"}, p.failing(p.agent, "/livez").names)
	require.Equal(t, []string{"heartbeat of gateway gw"}, p.failing(p.gateway, "/livez").names)
	require.Equal(t, answer{http.StatusOK, "[+]heartbeat of node n1 ok\nlivez check passed\n"}, get(t, p.agent, "/livez", ""))
	require.JSONEq(t, `{"ok": true, "checks": [{"name": "heartbeat of node n1", "ok": true}]}`, get(t, p.agent, "/livez", "application/json").body)

	// A database that does not answer: the engine is not ready, and the loops that
	// ask it without a bound are named. The others need no database.
	require.NoError(t, p.Stack.Postgres.Freeze())
	h := p.failing(p.engine, "/readyz", "engine: postgres")
	require.Equal(t, http.StatusServiceUnavailable, h.code)
	require.Equal(t, "no answer within 2s", h.failed["engine: postgres"])
	h = p.failing(p.engine, "/livez", "courier to nats", "courier to temporal", "dispatcher", "sweep")
	require.Equal(t, http.StatusServiceUnavailable, h.code)
	require.Regexp(t, `^it has not come round for [0-9]+s; it should every 1s$`, h.failed["sweep"])
	require.Regexp(t, `(?m)^\[-\]sweep failed: it has not come round for [0-9]+s; it should every 1s$`, get(t, p.engine, "/livez", "").body)
	require.Equal(t, samples{}, scrape(t, p.engine).with("tidewait_database_up"))
	require.NotContains(t, scrape(t, p.engine).reported(), "tidewait_waits", "what cannot be read is absent, not zero")
	p.failing(p.gateway, "/readyz")
	require.NoError(t, p.Stack.Postgres.Thaw())
	p.failing(p.engine, "/readyz")
	p.failing(p.engine, "/livez")

	// Temporal is gone: nobody is ready, and everybody is alive.
	require.NoError(t, p.Stack.Temporal.Kill())
	for worker, queues := range map[*local.Worker][]string{
		p.engine: {"engine: queue observe", "engine: queue tidewait"}, p.gateway: {"gateway: queue gateway.gw"}, p.agent: {"node: queue node.n1"},
	} {
		p.failing(worker, "/readyz", append(queues, "temporal")...)
	}
	require.NoError(t, p.Stack.Temporal.Start(t.Context()))

	// NATS is frozen: the same, and the node's loop goes on without an answer.
	for _, worker := range []*local.Worker{p.engine, p.gateway, p.agent} {
		p.failing(worker, "/readyz")
	}
	require.NoError(t, p.Stack.NATS.Freeze())
	for _, worker := range []*local.Worker{p.engine, p.gateway, p.agent} {
		require.Equal(t, "no answer within 2s", p.failing(worker, "/readyz", "nats").failed["nats"])
	}
	p.failing(p.agent, "/livez")
	require.NoError(t, p.Stack.NATS.Thaw())
	for _, worker := range []*local.Worker{p.engine, p.gateway, p.agent} {
		p.failing(worker, "/readyz")
	}
}
