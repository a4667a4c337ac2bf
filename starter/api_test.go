package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
)

var since = time.Date(2026, 11, 30, 12, 19, 5, 0, time.UTC)

func exampleWaits() api.WaitList {
	now, bound := since.Add(41*time.Minute), since.Add(2*time.Hour)
	return api.WaitList{Now: now, Waits: []api.Wait{{
		Kind: "capacity", Code: "capacity_memory", Reason: "short by 512 MiB of memory on <node-b>", Mission: "m", Phase: "build",
		WorkflowID: "phase.m.build", Since: since, Bound: &bound, Position: 2, Need: &capacity.Resources{CPUMilli: 1000, Slots: 1},
	}}}
}

func TestWaitsInEveryFormat(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectWaitList, always(exampleWaits()))
	require.Equal(t, outcome{0, `WHO      KIND      CODE             SINCE      WAITED                           NEXT LOOK  PLACE  REASON
m/build  capacity  capacity_memory  12:19:05Z  41 min of 120 (fails 14:19:05Z)  -          2      short by 512 MiB of memory on <node-b>
`, ""}, b.run("waits", "--kind", "capacity", "--code", "capacity_memory", "--mission", "m"))
	require.Equal(t, outcome{0, `{
  "now": "2026-11-30T13:00:05Z",
  "waits": [
    {
      "kind": "capacity",
      "code": "capacity_memory",
      "reason": "short by 512 MiB of memory on <node-b>",
      "mission": "m",
      "phase": "build",
      "workflowId": "phase.m.build",
      "since": "2026-11-30T12:19:05Z",
      "bound": "2026-11-30T14:19:05Z",
      "position": 2,
      "need": {
        "cpuMilli": 1000,
        "memoryMiB": 0,
        "diskMiB": 0,
        "slots": 1
      },
      "youCan": [
        {
          "what": "free or add a node that has room",
          "command": "tidewait node list"
        },
        {
          "what": "look now",
          "command": "tidewait phase nudge m build"
        },
        {
          "what": "give up",
          "command": "tidewait phase cancel m build --reason WHY"
        },
        {
          "what": "see each node and who is ahead",
          "command": "tidewait mission show m"
        }
      ]
    }
  ]
}
`, ""}, b.run("waits", "-o", "json"))
	require.Equal(t, outcome{0, `now: "2026-11-30T13:00:05Z"
waits:
  - kind: capacity
    code: capacity_memory
    reason: short by 512 MiB of memory on <node-b>
    mission: m
    phase: build
    workflowId: phase.m.build
    since: "2026-11-30T12:19:05Z"
    bound: "2026-11-30T14:19:05Z"
    position: 2
    need:
      cpuMilli: 1000
      memoryMiB: 0
      diskMiB: 0
      slots: 1
    youCan:
      - what: free or add a node that has room
        command: tidewait node list
      - what: look now
        command: tidewait phase nudge m build
      - what: give up
        command: tidewait phase cancel m build --reason WHY
      - what: see each node and who is ahead
        command: tidewait mission show m
`, ""}, b.run("waits", "-o", "yaml"))
	require.Equal(t, []string{`{"kind":"capacity","code":"capacity_memory","mission":"m"}`, `{}`, `{}`}, b.requests(api.SubjectWaitList))
}

// Strings that YAML would read as something else stay strings.
func TestYAMLKeepsStrings(t *testing.T) {
	text, err := asYAML(map[string]any{"a": "true", "b": "007", "c": "two\nlines", "d": []string{}, "e": map[string]string{}, "f": "null", "g": 1.5, "h": nil})
	require.NoError(t, err)
	require.Equal(t, `a: "true"
b: "007"
c: |-
  two
  lines
d: []
e: {}
f: "null"
g: 1.5
h: null
`, string(text))
}

func TestWaitsWatchPrintsChanges(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	ctx, cancel := context.WithCancel(context.Background())
	looks := 0
	b.answer(api.SubjectWaitList, func() any {
		list := exampleWaits()
		looks++
		switch looks {
		case 2:
			list.Waits[0].Code, list.Waits[0].Reason = "capacity_cpu", "every CPU is taken"
		case 3:
			list.Waits = nil
		case 4:
			cancel()
		}
		return list
	})
	got := tidewaitWith(ctx, "", "waits", "--watch", "--nats.url", b.url)
	require.Equal(t, outcome{130, `13:00:05Z  m/build is waiting for capacity, 41 min of 120 (fails 14:19:05Z): capacity_memory: short by 512 MiB of memory on <node-b>
13:00:05Z  m/build is still waiting for capacity, 41 min of 120 (fails 14:19:05Z), now: capacity_cpu: every CPU is taken
13:00:05Z  m/build waits no longer, after 41 min
`, "tidewait: interrupted\n"}, got)
}

func TestMissionList(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionList, always(api.MissionList{Missions: []api.Mission{
		{Name: "m", Status: "draft", Backend: "microvm", Phases: 1, FailureCode: "backend_unsupported", Failure: "no node offers microvm"},
	}}))
	require.Equal(t, outcome{0, `MISSION  STATUS  LAUNCH  BACKEND  PHASES  STARTED  NOW
m        draft   0       microvm  0/1     -        backend_unsupported: no node offers microvm
`, ""}, b.run("mission", "list", "--status", "draft", "--limit", "7"))
	require.Equal(t, []string{`{"status":"draft","limit":7}`}, b.requests(api.SubjectMissionList))
}

func TestMissionShow(t *testing.T) {
	b := newBus(t)
	detail := api.MissionDetail{
		Mission:    api.Mission{Name: "m", Status: "draft", Backend: "microvm", Phases: 1},
		WorkflowID: "mission.m", Document: json.RawMessage(`{"name":"m"}`),
		PhaseList: []api.Phase{{Name: "build", Ordinal: 1, Status: "pending", Attempt: 1, WorkflowID: "phase.m.build"}},
	}
	b.answer(api.SubjectMissionShow, always(detail))
	require.Equal(t, outcome{0, `mission m   draft
  backend microvm

phase 1 "build" of mission m   pending
`, ""}, b.run("mission", "show", "m", "--launch", "3"))
	require.Equal(t, []string{`{"name":"m","launch":3}`}, b.requests(api.SubjectMissionShow))

	got := b.run("mission", "show", "m", "-o", "json")
	var back api.MissionDetail
	require.NoError(t, json.Unmarshal([]byte(got.out), &back))
	require.Equal(t, "mission.m", back.WorkflowID)
	require.JSONEq(t, `{"name":"m"}`, string(back.Document))
}

func TestTheAPIsErrorsAreTold(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(&api.Error{Code: "not_found", Message: "there is no mission x"}))
	b.answer(api.SubjectNodeRetire, always(&api.Error{Code: "conflict", Message: "node a still has 2 runs"}))
	_, err := b.conn.Subscribe(api.SubjectNodeList, func(msg *nats.Msg) { _ = msg.Respond([]byte("gibberish")) })
	require.NoError(t, err)
	require.NoError(t, b.conn.Flush())
	require.Equal(t, outcome{1, "", "tidewait: there is no mission x\n"}, b.run("mission", "show", "x"))
	require.Equal(t, outcome{1, "", "tidewait: node a still has 2 runs\n"}, b.run("node", "retire", "a"))
	require.Equal(t, 1, b.run("node", "list").code)
}

func TestNodes(t *testing.T) {
	b := newBus(t)
	node := api.Node{
		ID: "node-a", State: "ready", StateSince: since, Arch: "amd64", Heartbeat: since, Registered: since,
		Total: capacity.Resources{CPUMilli: 4000, MemoryMiB: 8192, DiskMiB: 1024, Slots: 8}, Reserved: capacity.Resources{CPUMilli: 500},
	}
	b.answer(api.SubjectNodeList, always(api.NodeList{Now: since.Add(2 * time.Second), Nodes: []api.Node{node}}))
	b.answer(api.SubjectNodeShow, always(api.NodeDetail{Node: node}))
	b.answer(api.SubjectWaitList, always(api.WaitList{Now: since.Add(2 * time.Second)}))
	require.Equal(t, outcome{0, `NODE    STATE  ARCH   CPU    MEMORY      DISK        SLOTS  SEEN     BACKENDS
node-a  ready  amd64  0.5/4  0/8192 MiB  0/1024 MiB  0/8    2 s ago  none
`, ""}, b.run("node", "list"))
	require.Equal(t, outcome{0, `node node-a   ready   since 12:19:05Z (2 s ago)
  arch    amd64
  cpu     0.5 of 4 reserved, 3.5 free
  memory  0 of 8192 MiB reserved, 8192 free
  disk    0 of 1024 MiB reserved, 1024 free
  slots   0 of 8 reserved, 8 free
  seen    12:19:05Z (2 s ago)
  joined  12:19:05Z (2 s ago)
`, ""}, b.run("node", "show", "node-a"))
}

func TestNodeChanges(t *testing.T) {
	b := newBus(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, test := range []struct{ verb, subject, state string }{
		{"cordon", api.SubjectNodeCordon, "cordoned"},
		{"uncordon", api.SubjectNodeUncordon, "ready"},
		{"drain", api.SubjectNodeDrain, "draining"},
		{"undrain", api.SubjectNodeUndrain, "ready"},
		{"retire", api.SubjectNodeRetire, "retired"},
	} {
		b.answer(test.subject, always(api.Node{ID: "node-a", State: test.state}))
		require.Equal(t, outcome{0, "node node-a is " + test.state + "\n", ""}, b.run("node", test.verb, "node-a", "--reason", "upgrade"))
		require.Equal(t, []string{`{"name":"node-a","actor":"ann@` + host + `","reason":"upgrade"}`}, b.requests(test.subject))
	}
	b.run("node", "drain", "node-a", "--deadline", "30m", "--actor", "bob")
	require.Equal(t, `{"name":"node-a","actor":"bob","deadlineMs":1800000}`, b.requests(api.SubjectNodeDrain)[1])
}

func TestResults(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Status: "succeeded", Launch: 2}, Gateway: "gw-1"}))
	b.answer(api.SubjectGateway("gw-1", "log"), always(api.Results{Branch: "tidewait/m/2", Base: "aaaa", Commits: []api.Commit{
		{Commit: "bbbb", Phase: "survey", Run: "r-1", Subject: "survey", When: since},
		{Commit: "cccc", Phase: "build", Run: "r-2", Subject: "build", When: since},
	}}))
	b.answer(api.SubjectGateway("gw-1", "diff"), always(api.Diff{Text: "+new\n", Cut: true}))

	got := b.run("mission", "results", "m", "--phase", "build")
	require.Equal(t, 0, got.code)
	require.Regexp(t, `^branch tidewait/m/2 from aaaa\nCOMMIT .*\ncccc    build  r-2 .* build\n$`, got.out)
	require.Equal(t, []string{`{"mission":"m","launch":2}`}, b.requests(api.SubjectGateway("gw-1", "log")))

	got = b.run("mission", "results", "m", "--diff")
	require.Equal(t, outcome{0, "+new\n+new\n", `tidewait: the diff of phase "survey" is cut; fetch the branch for the whole with --into
tidewait: the diff of phase "build" is cut; fetch the branch for the whole with --into
`}, got)
	require.Equal(t, []string{
		`{"mission":"m","launch":2,"phase":"survey"}`, `{"mission":"m","launch":2,"phase":"build"}`,
	}, b.requests(api.SubjectGateway("gw-1", "diff")))

	require.Equal(t, outcome{1, "", "tidewait: phase \"nope\" of mission m has committed nothing\n"}, b.run("mission", "results", "m", "--phase", "nope"))
}

func TestResultsOfADraft(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Status: "draft"}}))
	require.Equal(t, outcome{1, "", "tidewait: mission m has no results: it is draft and no gateway holds it\n"}, b.run("mission", "results", "m"))
}

func TestABundleThatIsNotWhatWasPromisedIsRefused(t *testing.T) {
	b := newBus(t)
	store, err := b.jetstream().CreateObjectStore(context.Background(), jetstream.ObjectStoreConfig{Bucket: api.BucketWorkspaces})
	require.NoError(t, err)
	_, err = store.PutString(context.Background(), "o", "not the bundle")
	require.NoError(t, err)
	sum := sha256.Sum256([]byte("the bundle"))
	promised := hex.EncodeToString(sum[:])
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Launch: 1}, Gateway: "gw-1"}))
	b.answer(api.SubjectGateway("gw-1", "bundle"), always(api.BundleReply{Bucket: api.BucketWorkspaces, Object: "o", Branch: "b", SHA256: promised}))
	got := b.run("mission", "results", "m", "--into", t.TempDir())
	require.Equal(t, 1, got.code)
	require.Equal(t, "tidewait: the object o has the digest 8289ae260051b6b3580defd55f30c99ceba8d0daffd1c7dcbd86497e2801eca3, not "+promised+"; nothing was taken from it\n", got.errors)
}

// logBus has a log of two launches of mission m.
func logBus(t *testing.T) *bus {
	b := newBus(t)
	ctx := context.Background()
	_, err := b.jetstream().CreateStream(ctx, jetstream.StreamConfig{Name: api.LogStream, Subjects: []string{"tidewait.log.>"}})
	require.NoError(t, err)
	b.logLine(1, "build", "r-0", "stdout", "old launch")
	b.logLine(2, "survey", "r-1", "stdout", "looking")
	b.logLine(2, "build", "r-2", "stderr", "oops")
	b.logLine(2, "build", "r-3", "system", "booted")
	return b
}

func (b *bus) logLine(launch int, phase, run, stream, text string) {
	b.t.Helper()
	b.agentLine(launch, phase, run, "", stream, text)
}

func (b *bus) agentLine(launch int, phase, run, agent, stream, text string) {
	b.t.Helper()
	msg := nats.NewMsg(api.SubjectLog("node-a", "m", launch, phase, run, agent))
	msg.Header.Set(api.LogHeaderStream, stream)
	msg.Header.Set(api.LogHeaderTime, "2026-11-30T13:00:05.5Z")
	msg.Data = []byte(text)
	_, err := b.jetstream().PublishMsg(context.Background(), msg)
	require.NoError(b.t, err)
}

// logged is the document of the mission that a logBus has logs of.
const logged = `{"spec": {"phases": [{"name": "survey"}, {"name": "build"},
	{"name": "review", "agents": [{"name": "author", "replicas": 1}, {"name": "critic", "replicas": 2}]}]}}`

func TestLogs(t *testing.T) {
	t.Parallel()
	b := logBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 2}, Document: []byte(logged)}))
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "survey | looking\nbuild ! oops\nbuild * run r-3\nbuild * booted\n"},
		{[]string{"--phase", "build"}, "build ! oops\nbuild * run r-3\nbuild * booted\n"},
		{[]string{"--run", "r-3", "-t"}, "2026-11-30T13:00:05.500Z build * booted\n"},
		{[]string{"--phase", "survey", "--tail", "1"}, "survey | looking\n"},
		{[]string{"--tail", "1"}, "build * booted\n"},
		{[]string{"--tail", "0"}, ""},
		{[]string{"--since", "1h"}, ""},
		{[]string{"--since", "876000h", "--run", "r-1"}, "survey | looking\n"},
		{[]string{"--run", "r-1", "-o", "json"}, `{"node":"node-a","phase":"survey","run":"r-1","stream":"stdout","time":"2026-11-30T13:00:05.5Z","line":"looking"}` + "\n"},
	} {
		require.Equal(t, outcome{0, test.want, ""}, b.run(append([]string{"mission", "logs", "m"}, test.args...)...), "%q", test.args)
	}
}

func TestLogsOfAgents(t *testing.T) {
	t.Parallel()
	b := logBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 2}, Document: []byte(logged)}))
	b.agentLine(2, "review", "r-4", "author", "stdout", "written")
	b.agentLine(2, "review", "r-4", "critic-1", "stderr", "bad")
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "survey | looking\nbuild ! oops\nbuild * run r-3\nbuild * booted\nreview/author | written\nreview/critic-1 ! bad\n"},
		{[]string{"--phase", "review"}, "review/author | written\nreview/critic-1 ! bad\n"},
		{[]string{"--run", "r-4"}, "review/author | written\nreview/critic-1 ! bad\n"},
		{[]string{"--agent", "critic-1"}, "review/critic-1 ! bad\n"},
		{[]string{"--agent", "critic-2"}, ""},
		{[]string{"--agent", "critic"}, "review/critic-1 ! bad\n"},
		{[]string{"--agent", "author", "-o", "json"}, `{"node":"node-a","phase":"review","run":"r-4","agent":"author","stream":"stdout","time":"2026-11-30T13:00:05.5Z","line":"written"}` + "\n"},
	} {
		require.Equal(t, outcome{0, test.want, ""}, b.run(append([]string{"mission", "logs", "m"}, test.args...)...), "%q", test.args)
	}
}

func TestLogsOfNobodyAreRefused(t *testing.T) {
	t.Parallel()
	b := logBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 2}, Document: []byte(logged)}))
	for want, args := range map[string][]string{
		`mission m has no phase "none"; it has survey, build, review`:        {"--phase", "none"},
		`mission m has no agent "reader"; it has author, critic-1, critic-2`: {"--agent", "reader"},
		`--agent author: no phase that was asked for has several machines`:   {"--agent", "author", "--phase", "build"},
		`--phase "*" is not a name`:                                          {"--phase", "*"},
		`--run ">" is not a name`:                                            {"--run", ">"},
		`--since says how long ago, such as 10m`:                             {"--since", "-1s"},
	} {
		require.Equal(t, outcome{2, "", "tidewait: " + want + "\n"}, b.run(append([]string{"mission", "logs", "m"}, args...)...))
	}
}

// TestLogsThatExpiredSaySo has a log of which nothing, or not the first part, is
// kept any more.
func TestLogsThatExpiredSaySo(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	_, err := b.jetstream().CreateStream(context.Background(), jetstream.StreamConfig{Name: api.LogStream, Subjects: []string{"tidewait.log.>"}, MaxAge: 3 * time.Hour})
	require.NoError(t, err)
	ago := func(hours int) *time.Time {
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		return &at
	}
	detail := api.MissionDetail{Mission: api.Mission{Name: "m", Status: "succeeded", Launch: 2, StartedAt: ago(5), EndedAt: ago(4)}}
	b.answer(api.SubjectMissionShow, func() any { return detail })
	require.Equal(t, outcome{0, "", "tidewait: logs are kept for 3 h 0 min; those of launch 2 have expired\n"}, b.run("mission", "logs", "m"))
	detail.EndedAt = ago(1)
	require.Equal(t, outcome{0, "", "tidewait: logs are kept for 3 h 0 min; the first lines of launch 2 may have expired\n"}, b.run("mission", "logs", "m"))
	detail.StartedAt = ago(2)
	require.Equal(t, outcome{0, "", ""}, b.run("mission", "logs", "m"))
}

func TestLogsOfMoreThanOneBatch(t *testing.T) {
	t.Parallel()
	b := logBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 3}}))
	want := ""
	for i := range 1200 {
		b.logLine(3, "p", "r", "stdout", "line "+strconv.Itoa(i))
		want += "p | line " + strconv.Itoa(i) + "\n"
	}
	require.Equal(t, outcome{0, want, ""}, b.run("mission", "logs", "m"))
}

func TestLogsFollowToTheEnd(t *testing.T) {
	t.Parallel()
	b := logBus(t)
	looks := 0
	b.answer(api.SubjectMissionShow, func() any {
		looks++
		status := "running"
		if looks > 1 {
			b.logLine(2, "build", "r-3", "stdout", "last words")
			status = "succeeded"
		}
		return api.MissionDetail{Mission: api.Mission{Name: "m", Status: status, Launch: 2}}
	})
	require.Equal(t,
		outcome{0, "survey | looking\nbuild ! oops\nbuild * run r-3\nbuild * booted\nbuild | last words\n", ""},
		b.run("mission", "logs", "m", "--follow"))
}

func TestCompletionAsksTheEngine(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionList, always(api.MissionList{Missions: []api.Mission{{Name: "m"}, {Name: "n"}}}))
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{PhaseList: []api.Phase{{Name: "build"}}}))
	b.answer(api.SubjectNodeList, always(api.NodeList{Nodes: []api.Node{{ID: "node-a"}}}))
	t.Setenv("TIDEWAIT_NATS_URL", b.url)
	require.Equal(t, "m\nn\n:4\n", tidewait("__complete", "mission", "show", "").out)
	require.Equal(t, "build\n:4\n", tidewait("__complete", "phase", "nudge", "m", "").out)
	require.Equal(t, "node-a\n:4\n", tidewait("__complete", "node", "drain", "").out)
	require.Equal(t, "table\njson\nyaml\n:4\n", tidewait("__complete", "waits", "-o", "").out)
	t.Setenv("TIDEWAIT_NATS_URL", "nats://"+closedPort(t))
	require.Equal(t, ":4\n", tidewait("__complete", "mission", "show", "").out)
}
