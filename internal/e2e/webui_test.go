package e2e

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// allThatWaits is the query for all that waits, as docs/operations.md has it.
const allThatWaits = `ExecutionStatus="Running" AND TidewaitWait IS NOT NULL`

// TestWebUI opens Temporal's Web UI in a browser, as a person would who is paged,
// and reads there what waits and why.
func TestWebUI(t *testing.T) {
	long(t, 70*time.Second)
	// The engine cannot reach the hosts of lattice dark.
	p := startStack(t, devstack.Options{UI: true}, "TIDEWAIT_FLEET_ATTEMPT_BACKOFF=5m", "TIDEWAIT_WADM_URLS=dark=nats://127.0.0.1:1")
	dark := p.site("default", "dark", p.connect(), p.connect())
	dark.put(shop("blind", "v1"))
	p.must("app", "deploy", "blind", "v1", "--lattice", "dark")
	p.node()
	p.launch(missionDoc{name: "flaky", phases: []phaseDoc{{name: "fetch", extra: "attempts: 3", script: "exit 7"}}})
	p.until("flaky", "it backs off", func(m api.MissionDetail) bool {
		return m.PhaseList[0].Wait != nil && m.PhaseList[0].Wait.Kind == "backoff"
	})
	p.launch(missionDoc{name: "nightly-index", phases: []phaseDoc{{name: "hold", memory: "300Mi", script: "sleep 600"}}})
	p.running("nightly-index")
	p.launch(missionDoc{name: "port", extra: "priority: 70", phases: []phaseDoc{
		{name: "fetch", memory: "128Mi", script: "echo sources > sources.txt"}, {name: "build", memory: "512Mi", script: "make"}, {name: "report", script: "make report"},
	}})
	p.launch(missionDoc{name: "review", phases: []phaseDoc{{name: "publish", extra: "hold: {reason: somebody reads the numbers first}", script: "./publish"}}})
	west := p.lattice("west")
	west.deploy(shop("shop", "v1"))
	east := p.lattice("east")
	const missing = "registry.example.com/http:0.22.1"
	east.l.Script(simhost.Rule{Image: missing, Fetch: simhost.ManifestUnknown})
	east.host("h1")
	store := shop("store", "v1")
	store["spec"].(object)["components"].([]object)[1]["properties"].(object)["image"] = missing
	east.deploy(store)
	p.until("port", "its second phase waits", func(m api.MissionDetail) bool { return m.PhaseList[1].Wait != nil })
	east.until("store", "it has failed some times", func(s wadm.Status) bool { return s.Status.Attempt >= 4 })
	p.listedAre(`ExecutionStatus="Running" AND TidewaitReason="observer_absent"`, 1)
	p.listedAre(allThatWaits, 6)

	b := startBrowser(t, p.Stack.UIURL)
	t.Run("a person adds the columns", func(t *testing.T) { addsColumns(b.in(t)) })
	t.Run("the list shows every wait and why", func(t *testing.T) { readsTheList(b.in(t)) })
	t.Run("a waiting phase", func(t *testing.T) { readsAPhase(b.in(t), p) })
	t.Run("its mission", func(t *testing.T) { readsAMission(b.in(t), p) })
	t.Run("a held phase", func(t *testing.T) { readsAHold(b.in(t), p) })
	t.Run("a running phase", func(t *testing.T) { readsARun(b.in(t), p) })
	t.Run("a phase that failed and will be tried again", func(t *testing.T) { readsABackoff(b.in(t), p) })
	t.Run("a backing-off application", func(t *testing.T) { readsAnApplication(b.in(t), p) })
	t.Run("a lattice without hosts", func(t *testing.T) { readsNeverObserved(b.in(t), p) })
	t.Run("a lattice that nobody observes", func(t *testing.T) {
		readsAnUnobservedLattice(b.in(t), p)
	})
	t.Run("queries of the documentation", func(t *testing.T) { runsDocumentedQueries(p.in(t)) })
}

// listedAre waits until as many workflows as that are listed.
func (p *product) listedAre(query string, n int) {
	p.t.Helper()
	p.eventually(query, func() bool { return p.listed(query) == n }, func() any { return p.listed(query) })
}

// listURL is the address of the list of workflows under a query. With a name the
// Web UI keeps it as a saved view.
func listURL(query, name string) string {
	q := url.Values{"query": {query}}
	if name != "" {
		q.Set("savedQuery", name)
	}
	return "/namespaces/default/workflows?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

// page is the address of a workflow's tab with what it says of itself.
func (p *product) page(workflow string) string {
	p.t.Helper()
	d, err := p.temporal.DescribeWorkflow(p.t.Context(), workflow, "")
	require.NoError(p.t, err)
	return "/namespaces/default/workflows/" + workflow + "/" + d.WorkflowExecution.RunID + "/user-metadata"
}

// addsColumns does what docs/operations.md says of columns.
func addsColumns(b *browser) {
	b.open(listURL(allThatWaits, "every wait"), "phase.port.build")
	require.Contains(b.t, b.text(), "every wait", "the address keeps it as a saved view")
	require.NotContains(b.t, b.text(), "TidewaitWhy")
	b.do(chromedp.Click(`[data-testid="workflows-summary-table-configuration-button"]`))
	b.eventually("the gear offers the column", func() bool {
		return b.evaluate(`(() => {
	const row = Array.from(document.querySelectorAll('li, div')).filter(e => e.innerText && e.innerText.trim() === 'TidewaitWhy' && e.querySelector('button')).pop();
	if (row) row.querySelector('button').click();
	return row ? 'added' : '';
})()`) == "added"
	})
	b.open(listURL(allThatWaits, ""), "no host of lattice west has been observed yet; nothing is started until one appears")
}

func readsTheList(b *browser) {
	columns, err := json.Marshal(map[string]any{"default": []map[string]string{
		{"label": "Workflow ID"}, {"label": "TidewaitReason"}, {"label": "TidewaitSince"}, {"label": "TidewaitWhy"}, {"label": "TidewaitBound"},
	}})
	require.NoError(b.t, err)
	b.evaluate("(localStorage.setItem('namespace-workflow-table-columns', " + quoted(string(columns)) + "), '')")
	b.open(listURL(allThatWaits, ""), "phase.port.build")
	moment := regexp.MustCompile(`20\d\d-\d\d-\d\d UTC \d\d:\d\d:\d\d\.\d\d`)
	b.eventually("the list shows the columns", func() bool { return moment.MatchString(b.text()) })
	text := moment.ReplaceAllString(b.text(), "MOMENT")
	for _, part := range []string{
		"phase.port.build\tcapacity_memory\tMOMENT\tevery node that could run it is full, and lacks memory most; it needs 1 CPU, 512 MiB of memory and 64 MiB of disk (+16 MiB of memory overhead) on backend process\tMOMENT",
		"phase.review.publish\tawaiting_release\tMOMENT\theld by its document until somebody releases it: somebody reads the numbers first",
		"phase.flaky.fetch\tcommand_failed\tMOMENT\tattempt 1 of 3 failed: command \"sh\" exited with code 7; attempt 2 begins after a pause of 5m0s",
		"app.default.west.shop\tnever_observed\tMOMENT\tno host of lattice west has been observed yet; nothing is started until one appears",
		"app.default.dark.blind\tobserver_absent\tMOMENT\tno engine observes lattice dark, so nobody knows what runs there",
		"app.default.east.store\tcommand_failed\tMOMENT\tfailed to fetch provider: failed to fetch provider under OCI reference `registry.example.com/http:0.22.1`",
	} {
		require.Contains(b.t, text, part)
	}
	b.do(chromedp.Click(`[aria-label="Collapse saved views"]`))
	width := ""
	b.eventually("the table has its place", func() (rests bool) {
		now := b.evaluate(`String(document.querySelector('table').getBoundingClientRect().left)`)
		rests, width = now == width, now
		return rests
	})
	b.shoot("list")
}

func quoted(s string) string {
	data, _ := json.Marshal(s) // of a string it cannot fail
	return string(data)
}

func readsAPhase(b *browser, p *product) {
	b.open(p.page("phase.port.build"), "waiting for capacity")
	b.says(
		"port · phase 2 build · 1 CPU / 512 MiB",
		"command: sh -c make\n", "needs: 1 CPU, 512 MiB of memory and 64 MiB of disk on backend process\n", "priority: 70\n", ", on gateway gw\n",
		"phase 2 build of mission port, launch 1\n",
		"waiting for capacity (capacity_memory), as of 20",
		"why: needs 1 CPU, 512 MiB of memory and 64 MiB of disk (+16 MiB of memory overhead) on backend process; n1 is short by 244 MiB of memory; 1st in line, and n1 is held for it\n",
		"since: 20", "fails by itself: 20", ", 2h after it began\n", "place in line: 1\n", "nodes: 1 known: 1 full\n",
		"next look: every 1s, and whenever capacity is freed; the pending activity shows the latest\n",
		"look now: tidewait phase nudge port build, or signal nudge with input {\"actor\": \"you\"}\n",
		"give up: tidewait phase cancel port build --reason WHY, or signal cancel with input {\"actor\": \"you\", \"reason\": \"why\"}\n",
	)
	b.shoot("phase")
	b.open(strings.Replace(p.page("phase.port.build"), "user-metadata", "pending-activities", 1), "place-phase")
	b.says("needs 1 CPU, 512 MiB of memory and 64 MiB of disk (+16 MiB of memory overhead) on backend process; n1 is short by 244 MiB of memory; 1st in line", "CapacityRefused")
	b.shoot("pending-activity")
	b.open(strings.Replace(p.page("phase.port.build"), "user-metadata", "history", 1), "Event History")
	b.waitFor(`"see": "what it is doing or waiting for, and what you can do, is in the tab User Metadata"`)
	b.waitFor("the wait fails at 20")
	b.shoot("history")
}

func readsAMission(b *browser, p *product) {
	b.open(p.page("mission.port"), "is waiting for capacity")
	b.says(
		"mission port: 3 phases on process", "priority: 70\n", "2 build: 1 CPU, 512 MiB of memory\n",
		"on gateway gw, branch tidewait/port/1\n", "phase 2 of 3 is waiting for capacity (capacity_memory), as of 20",
		"phase: phase.port.build, whose page says what you can do\n", "1 fetch: succeeded, commit ", "2 build: waits\n", "3 report: not begun\n",
		"end the mission: tidewait mission cancel port --reason WHY, or signal cancel with input",
	)
	b.shoot("mission")
	b.open(b.link("phase.port.build"), "Pending Activities")
	require.Contains(b.t, b.evaluate("location.pathname"), "/namespaces/default/workflows/phase.port.build/")
}

func readsAHold(b *browser, p *product) {
	b.open(p.page("phase.review.publish"), "waiting for release")
	b.says("why: held by its document until somebody releases it: somebody reads the numbers first\n", "fails by itself: never\n",
		"release it: tidewait phase release review publish --note WHAT, or signal release with input {\"actor\": \"you\", \"note\": \"what you looked at\"}\n")
	b.shoot("hold")
}

func readsARun(b *browser, p *product) {
	b.open(p.page("phase.nightly-index.hold"), "running on node")
	b.says("running on node n1 as run r", "turn ends: 20", " at the latest, after 1h\n",
		"follow its output: tidewait mission logs nightly-index --phase hold --follow\n")
	b.shoot("running")
}

func readsABackoff(b *browser, p *product) {
	b.open(p.page("phase.flaky.fetch"), "waiting for the next try")
	b.says("waiting for the next try (command_failed), as of 20", "why: attempt 1 of 3 failed: command “sh” exited with code 7; attempt 2 begins after a pause of 5m0s\n",
		"attempts: 3, with pauses from 5m on\n", "try now: tidewait phase nudge flaky fetch, or signal nudge with input {\"actor\": \"you\"}\n")
	b.shoot("attempts")
}

func readsAnApplication(b *browser, p *product) {
	b.open(p.page("app.default.east.store"), "waiting for the next try")
	b.says("application store in lattice east", "waiting for the next try (command_failed), as of 20",
		"why: failed to fetch provider: failed to fetch provider under OCI reference registry.example.com/http:0.22.1: ", "manifest unknown", "(attempt ",
		"mend what the host complains of, then try now\n",
		"try now: tidewait app nudge store --lattice east, or signal nudge with input {\"actor\": \"you\"}\n",
		"give up: tidewait app undeploy store --lattice east")
	b.shoot("application")
}

func readsNeverObserved(b *browser, p *product) {
	b.open(p.page("app.default.west.shop"), "waiting for lattice")
	b.says("waiting for lattice (never_observed), as of 20", "why: no host of lattice west has been observed yet; nothing is started until one appears\n",
		"next look: when a host appears or changes its labels\n", "start a host in the lattice that suits\n", "see which hosts there are, and what they run: tidewait lattice show west\n")
	b.shoot("lattice")
}

func readsAnUnobservedLattice(b *browser, p *product) {
	b.open(p.page("app.default.dark.blind"), "waiting for observer")
	b.says("waiting for observer (observer_absent), as of 20", "why: no engine observes lattice dark, so nobody knows what runs there\n",
		"start an engine: tidewait-worker run --roles engine\n", "if engines run, see why none observes it: lattice.default.dark\n")
	b.shoot("observer")
	b.open(p.page("lattice.default.dark"), "who waits here")
	b.says("lattice dark of account default\n", "observed by: the engine that is the worker of the pending activity observe-lattice")
	b.shoot("unobserved")
	b.open(strings.Replace(p.page("lattice.default.dark"), "user-metadata", "pending-activities", 1), "observe-lattice")
	b.says("127.0.0.1:1")
}

// documented are the queries that documents tell people to use.
var documented = regexp.MustCompile("--query '([^']+)'|(?m)^\\| [a-z ]+ \\| `(ExecutionStatus[^`]+)` \\|")

// runsDocumentedQueries runs each of them: Temporal refuses one that it does not
// understand.
func runsDocumentedQueries(p *product) {
	found := map[string]int{}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/waits/*.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(p.t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(p.t, err)
			for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
				query := m[1] + m[2]
				found[query] = p.listed(query)
			}
		}
	}
	require.Greater(p.t, len(found), 12)
	for query, want := range map[string]int{
		allThatWaits: 6,
		`ExecutionStatus="Running" AND TidewaitWait="capacity"`:                                       1,
		`ExecutionStatus="Running" AND TidewaitWait IN ("hold", "gateway", "observer", "dependency")`: 2,
		`ExecutionStatus="Running" AND TidewaitWait IS NOT NULL AND TidewaitBound IS NULL`:            5,
		`ExecutionStatus="Running" AND TidewaitWhy STARTS_WITH "no host"`:                             1,
	} {
		got, ok := found[query]
		require.Truef(p.t, ok, "no document has %s", query)
		require.Equal(p.t, want, got, query)
	}
}
