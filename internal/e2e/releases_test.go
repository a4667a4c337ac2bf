package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"tidewait/internal/api"
)

// laterRelease does not work together with the release under test.
const laterRelease = "0.9.0"

// What each of the two is told.
const (
	saidTooNew = "release 0.9.0 (protocol 1) is too new for release 0.1.0-dev (protocol 1), which answers: programs work together that speak the same protocol and are at most one minor release apart; upgrade what answers, or ask with an older release"
	saidTooOld = "release 0.1.0-dev (protocol 1) is too old for release 0.9.0 (protocol 1), which answers: programs work together that speak the same protocol and are at most one minor release apart; upgrade what asks"
)

// An agent and a command line of a later release are refused in words, and so is the
// command line of the earlier one once the engine has been upgraded; the agent that
// went on asking is taken then.
func TestReleasesThatDoNotSuit(t *testing.T) {
	t.Parallel()
	p := start(t)
	later := buildRelease(t, laterRelease)

	agent := p.begin(later, "later", "run", "--roles", "node", "--node.id", "later")
	agent.logs("the engine refuses this agent for its release", saidTooNew)
	list := p.refusedNode()
	require.Contains(t, list, "later is refused: release_too_new: "+saidTooNew+"\n")
	require.Contains(t, p.must("node", "show", "later"), "release_too_new: "+saidTooNew)
	var known api.NodeList
	require.NoError(t, json.Unmarshal([]byte(p.must("node", "list", "--status", "refused", "-o", "json")), &known))
	require.Len(t, known.Nodes, 1)
	n := known.Nodes[0]
	require.Equal(t, "later refused release_too_new 0.9.0", strings.Join([]string{n.ID, n.State, n.StateCode, n.Version}, " "))
	require.Equal(t, 1, strings.Count(agent.log(), "the engine refuses this agent"), "once, not with every heartbeat")
	require.NotContains(t, agent.out.String(), "ready node")

	doc := p.write(holder("m"))
	for _, args := range [][]string{
		{"node", "list"},
		{"waits"},
		{"mission", "launch", doc},
		{"phase", "nudge", "m", "hold"},
		{"mission", "cancel", "m", "--reason", "no"},
		{"app", "list"},
	} {
		out, errs, code := p.run(filepath.Join(later, "tidewait"), args...)
		require.Equal(t, 2, code, "%v: %s%s", args, out, errs)
		require.Contains(t, errs, saidTooNew, "%v", args)
	}

	require.NoError(t, p.engine.Stop())
	engine := p.begin(later, "engine-later", "run", "--roles", "engine")
	engine.prints("ready engine")
	agent.prints("ready node")
	out, errs, code := p.run(filepath.Join(later, "tidewait"), "node", "list")
	require.Zero(t, code, errs)
	require.NotContains(t, out, "refused")
	for _, args := range [][]string{{"node", "list"}, {"mission", "launch", doc}, {"phase", "nudge", "m", "hold"}, {"app", "list"}} {
		out, errs, code := p.tidewait(args...)
		require.Equal(t, 2, code, "%v: %s%s", args, out, errs)
		require.Contains(t, errs, saidTooOld, "%v", args)
	}
}

// Temporal's histories name the build that worked on them.
func TestHistoriesNameTheBuild(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "p", script: "true"}}})
	require.Equal(t, "succeeded", p.ended("m").Status)
	events := p.temporal.GetWorkflowHistory(t.Context(), api.MissionWorkflowID("m"), "", false, 0)
	builds := map[string]bool{}
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		if a, ok := e.Attributes.(*historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes); ok {
			version := a.WorkflowTaskCompletedEventAttributes.GetDeploymentVersion()
			builds[version.GetBuildId()] = true
			require.Equal(t, "tidewait", version.GetDeploymentName())
		}
	}
	require.Len(t, builds, 1)
	for build := range builds {
		require.Regexp(t, `^0\.1\.0-dev(\+[0-9a-f]{12})?$`, build)
	}
}

// buildRelease builds the programs as the release of this version.
func buildRelease(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, pkg := range map[string]string{"tidewait": "tidewait/starter", "tidewait-worker": "tidewait/worker"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X tidewait/internal/release.version="+version,
			"-o", filepath.Join(dir, name), pkg)
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return dir
}

// process is one of the product's that is not expected to work at once.
type process struct {
	p       *product
	name    string
	out     *syncBuffer
	logPath string
}

// begin starts a worker of the programs in dir and does not wait for it.
func (p *product) begin(dir, name string, args ...string) *process {
	p.t.Helper()
	w := &process{p: p, name: name, out: &syncBuffer{}, logPath: filepath.Join(p.t.TempDir(), name+".log")}
	log, err := os.Create(w.logPath)
	require.NoError(p.t, err)
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), filepath.Join(dir, "tidewait-worker"), args...)
	cmd.Env = append(append(os.Environ(), p.Env()...), "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_MEMORY=600Mi")
	cmd.Stdout, cmd.Stderr = w.out, log
	require.NoError(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return w
}

func (w *process) log() string {
	data, err := os.ReadFile(w.logPath)
	require.NoError(w.p.t, err)
	return string(data)
}

// logs waits for a line with both texts.
func (w *process) logs(what, why string) {
	w.p.t.Helper()
	w.p.eventually(w.name+" logs "+what, func() bool {
		for line := range strings.Lines(w.log()) {
			if strings.Contains(line, what) && strings.Contains(line, why) {
				return true
			}
		}
		return false
	}, func() any { return w.log() })
}

func (w *process) prints(line string) {
	w.p.t.Helper()
	w.p.eventually(w.name+" prints "+line, func() bool { return strings.Contains(w.out.String(), line+"\n") },
		func() any { return w.out.String() + w.log() })
}

// refusedNode waits until the list of nodes says that one is refused.
func (p *product) refusedNode() (list string) {
	p.t.Helper()
	p.eventually("a node is refused", func() bool {
		list = p.must("node", "list")
		return strings.Contains(list, "refused")
	}, func() any { return list })
	return list
}

// run runs a program with the product's environment.
func (p *product) run(program string, args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), p.Env()...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(p.t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// syncBuffer is what a process has printed so far.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
