package e2e

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/local"
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

	for _, engine := range []*local.Worker{p.engine, second} {
		seen := scrape(t, engine)
		require.Equal(t, samples{`{code="capacity_memory",kind="capacity"}`: 1}, seen.with("tidewait_waits"))
		require.Contains(t, seen, `tidewait_waits{code="awaiting_release",kind="hold"}`, "what nobody waits for is zero, not absent")
		require.Len(t, seen.with("tidewait_wait_age_seconds"), 1)
		require.Len(t, seen.with("tidewait_wait_bound_spent"), 1)
		require.Empty(t, seen.with("tidewait_wait_unbounded_age_seconds"))
		require.Equal(t, samples{`{state="ready"}`: 1}, seen.with("tidewait_nodes"))
		require.Equal(t, samples{`{heard="true"}`: 1}, seen.with("tidewait_gateways"))
		require.Equal(t, samples{`{backend="process",state="running"}`: 1}, seen.with("tidewait_machines"))
		require.InDelta(t, 1, seen["tidewait_database_up"], 0)
	}

	p.must("mission", "cancel", "big", "--reason", "the test is done with it")
	p.ended("small")
	sum := samples{}
	for _, engine := range []*local.Worker{p.engine, second} {
		for series, value := range scrape(t, engine) {
			sum[series] += value
		}
	}
	require.Equal(t, samples{`{woken_by="event"}`: 1, `{woken_by="first"}`: 1}, sum.with("tidewait_placements_total"))
	require.Equal(t, samples{`{code="capacity_memory",ended_by="placed",kind="capacity"}`: 1}, sum.with("tidewait_wait_duration_seconds_count"))
	require.Empty(t, sum.with("tidewait_waits"))
	require.GreaterOrEqual(t, sum[`tidewait_refusals_total{class="capacity",code="capacity_memory"}`], 1.0)
}
