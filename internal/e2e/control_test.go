package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
)

// phaseWait waits until the n-th phase of a mission, from 0, waits for a kind.
func (p *product) phaseWait(name string, n int, kind string) api.Wait {
	p.t.Helper()
	m := p.until(name, "phase waits for "+kind, func(m api.MissionDetail) bool {
		return len(m.PhaseList) > n && m.PhaseList[n].Wait != nil && m.PhaseList[n].Wait.Kind == kind
	})
	return *m.PhaseList[n].Wait
}

// fails runs the CLI, which must end with an exit code and say something.
func (p *product) fails(code int, says string, args ...string) {
	p.t.Helper()
	out, errs, got := p.tidewait(args...)
	require.Equal(p.t, code, got, out+errs)
	require.Contains(p.t, errs, says)
}

// listed counts the workflows that Temporal lists for a query.
func (p *product) listed(query string) int {
	p.t.Helper()
	res, err := p.temporal.CountWorkflow(p.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
	require.NoError(p.t, err)
	return int(res.GetCount())
}

func (p *product) git(repo string, args ...string) string {
	p.t.Helper()
	out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput()
	require.NoError(p.t, err, string(out))
	return strings.TrimSpace(string(out))
}

func (p *product) repository() string {
	p.t.Helper()
	repo := p.t.TempDir()
	require.NoError(p.t, exec.Command("git", "init", "--quiet", repo).Run())
	return repo
}

func TestAHeldPhaseWaitsForItsRelease(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{
		{name: "survey", script: "sleep 2; echo x > x.txt"},
		{name: "review", script: "sleep 2; cat x.txt > y.txt", extra: "hold: {reason: look at the survey first}"},
	}})
	p.running("m")
	p.fails(1, `phase "survey" of mission m is not held: it is running; look with`, "phase", "release", "m", "survey")
	p.fails(1, `phase "review" of mission m is not held: it has not been reached; look with`, "phase", "release", "m", "review")
	p.fails(1, `mission m has no phase "deploy" in launch 1`, "phase", "release", "m", "deploy")

	w := p.phaseWait("m", 1, "hold")
	require.Equal(t, []string{"awaiting_release", "m", "review", "phase.m.review", "held by its document until somebody releases it: look at the survey first"},
		[]string{w.Code, w.Mission, w.Phase, w.WorkflowID, w.Reason})
	require.Nil(t, w.Bound)
	require.Contains(t, p.must("waits", "--kind", "hold"), "m/review  hold  awaiting_release")
	require.Contains(t, p.must("mission", "list"), `"review" waiting for release`)
	shown := p.must("mission", "show", "m")
	require.Contains(t, shown, `phase 2 "review" of mission m   pending · waiting for release   `)
	require.Contains(t, shown, ", no bound\n  why     awaiting_release: held by its document until somebody releases it: look at the survey first\n")
	p.eventually("Temporal lists the hold", func() bool {
		return p.listed(`ExecutionStatus="Running" AND TidewaitWait="hold" AND TidewaitReason="awaiting_release" AND TidewaitMission="m"`) == 1
	}, func() any { return nil })

	// Nothing but a release ends it: not a nudge, not a restart, not a reset.
	p.must("phase", "nudge", "m", "review", "--actor", "bob")
	require.NoError(t, p.engine.Kill())
	require.NoError(t, p.engine.Start(t.Context()))
	p.reset("phase.m.review")
	again := p.until("m", "the nudge is recorded", func(m api.MissionDetail) bool { return len(m.PhaseList[1].Acts) == 1 }).PhaseList[1]
	require.Equal(t, []string{"nudge", "bob"}, []string{again.Acts[0].Verb, again.Acts[0].Actor})
	require.NotNil(t, again.Wait)
	require.Equal(t, "hold", again.Wait.Kind)
	require.True(t, w.Since.Equal(again.Wait.Since), "since is stamped once")

	p.must("phase", "release", "m", "review", "--note", "the survey is fine", "--actor", "ann")
	p.until("m", "the phase runs", func(m api.MissionDetail) bool { return m.PhaseList[1].Step == "run" })
	p.reset("phase.m.review")
	m := p.ended("m")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	review := m.PhaseList[1]
	require.Len(t, review.Waits, 1, "what was released is not held again")
	require.Equal(t, []string{"hold", "released", "ann", "the survey is fine"},
		[]string{review.Waits[0].Kind, review.Waits[0].EndedBy, review.Waits[0].Actor, review.Waits[0].Note})
	require.True(t, w.Since.Equal(review.Waits[0].Since))
	require.Len(t, review.Acts, 2)
	require.Equal(t, []string{"release", "ann", "the survey is fine"}, []string{review.Acts[1].Verb, review.Acts[1].Actor, review.Acts[1].Note})
	require.Contains(t, p.must("mission", "show", "m"), "then released by ann (the survey is fine); last reason awaiting_release: ")
	p.fails(1, `phase "review" of mission m is not held: it has succeeded`, "phase", "release", "m", "review")
	p.nothingLeft()
}

func TestAHoldWithABoundFailsByItself(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{name: "m", phases: []phaseDoc{
		{name: "work", script: "true", extra: "hold: {maxWait: 10s}"},
	}}))
	require.Equal(t, 4, code, out+errs)
	m := p.show("m")
	require.Equal(t, []string{"failed", "wait_exceeded", "phase work: waited 10s for its release, the longest allowed; it was held by its document until somebody releases it"},
		[]string{m.Status, m.FailureCode, m.Failure})
	w := m.PhaseList[0].Waits[0]
	require.Equal(t, []string{"hold", "expired"}, []string{w.Kind, w.EndedBy})
	require.InDelta(t, 10*time.Second, w.Ended.Sub(w.Since), float64(2*time.Second))
	require.Zero(t, p.count("SELECT count(*) FROM topology_runs"))
}

// TestCancelEndsAWaitAtOnce cancels phases that are held, that back off, and that
// queue.
func TestCancelEndsAWaitAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_ATTEMPT_BACKOFF=4m")
	p.node()
	p.launch(missionDoc{name: "held", phases: []phaseDoc{{name: "work", script: "true", extra: "hold: true"}}})
	p.launch(missionDoc{name: "backs-off", phases: []phaseDoc{{name: "work", script: "exit 7", extra: "attempts: 3"}}})
	p.phaseWait("backs-off", 0, "backoff")
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "queues", phases: []phaseDoc{{name: "work", script: "true"}}})
	for name, kind := range map[string]string{"held": "hold", "backs-off": "backoff", "queues": "capacity"} {
		p.phaseWait(name, 0, kind)
		asked := p.now()
		p.must("mission", "cancel", name, "--reason", "not needed", "--actor", "ann")
		m := p.ended(name)
		t.Logf("%s: the phase ended %s after the command was started, the mission %s", kind,
			m.PhaseList[0].EndedAt.Sub(asked).Round(time.Millisecond), m.EndedAt.Sub(asked).Round(time.Millisecond))
		require.Less(t, m.EndedAt.Sub(asked), time.Second)
		require.Equal(t, []string{"cancelled", "cancelled", "cancelled by ann: not needed"}, []string{m.Status, m.PhaseList[0].Status, m.Failure})
		w := m.PhaseList[0].Waits[0]
		require.Equal(t, []string{kind, "cancelled"}, []string{w.Kind, w.EndedBy})
		if kind != "capacity" {
			require.Equal(t, "ann", w.Actor)
		}
		require.Len(t, m.Acts, 1)
		require.Equal(t, []string{"cancel", "ann", "not needed"}, []string{m.Acts[0].Verb, m.Acts[0].Actor, m.Acts[0].Note})
		require.Len(t, m.PhaseList[0].Acts, 1)
	}
	require.Contains(t, p.must("waits"), "nothing waits")
	p.must("mission", "cancel", "big")
	p.ended("big")
	p.nothingLeft()
}

// now is the database's clock.
func (p *product) now() time.Time {
	p.t.Helper()
	var now time.Time
	require.NoError(p.t, p.db.QueryRow(p.t.Context(), "SELECT clock_timestamp()").Scan(&now))
	return now
}

func TestFailedAttemptsBackOff(t *testing.T) {
	long(t, 30*time.Second)
	p := start(t, "TIDEWAIT_FLEET_ATTEMPT_BACKOFF=3s")
	node := p.node()
	// The first run is lost with its node and takes no attempt; the other three fail.
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", extra: "attempts: 3", script: "sleep 1; exit 1"}}})
	p.running("m")
	require.NoError(t, node.Kill())
	require.NoError(t, node.Start(t.Context()))

	first := p.phaseWait("m", 0, "backoff")
	require.Equal(t, []any{"command_failed", 1, `attempt 1 of 3 failed: command "sh" exited with code 1; attempt 2 begins after a pause of 3s`},
		[]any{first.Code, first.Attempts, first.Reason})
	require.Equal(t, 3*time.Second, first.NextCheck.Sub(first.Since))
	require.Nil(t, first.Bound)
	require.Contains(t, p.must("waits", "--kind", "backoff"), "m/work  backoff  command_failed")
	second := p.until("m", "the second attempt fails", func(m api.MissionDetail) bool {
		return m.PhaseList[0].Wait != nil && m.PhaseList[0].Wait.Attempts == 2
	}).PhaseList[0].Wait
	require.Equal(t, 6*time.Second, second.NextCheck.Sub(second.Since))
	require.Contains(t, p.must("mission", "show", "m"), "\n  tries   2 failed, next ")
	p.reset("phase.m.work")
	require.True(t, second.Since.Equal(p.phaseWait("m", 0, "backoff").Since), "a reset does not move it")

	m := p.ended("m")
	require.Equal(t, []string{"failed", "command_failed", `phase work: command "sh" exited with code 1`}, []string{m.Status, m.FailureCode, m.Failure})
	var runs []string
	for _, r := range m.PhaseList[0].Runs {
		runs = append(runs, r.Status)
	}
	require.Equal(t, []string{"lost", "failed", "failed", "failed"}, runs, "a reset gives no more attempts")
	var ends []string
	for _, w := range m.PhaseList[0].Waits {
		if w.Kind == "backoff" {
			ends = append(ends, w.EndedBy+" "+w.WokenBy)
		}
	}
	require.Equal(t, []string{"retried timer", "retried timer"}, ends)
	p.nothingLeft()
}

func TestANudgeEndsABackOff(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_ATTEMPT_BACKOFF=4m")
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{
		name: "work", extra: "attempts: 2", script: fmt.Sprintf("test $(date +%%s) -ge %d && echo x > x.txt", time.Now().Add(6*time.Second).Unix()),
	}}})
	w := p.phaseWait("m", 0, "backoff")
	p.eventually("the command would succeed", func() bool { return time.Since(w.Since) > 7*time.Second }, func() any { return nil })

	p.must("phase", "nudge", "m", "work", "--actor", "ann")

	m := p.ended("m")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	past := m.PhaseList[0].Waits[0]
	require.Equal(t, []string{"backoff", "retried", "nudge", "ann"}, []string{past.Kind, past.EndedBy, past.WokenBy, past.Actor})
	p.nothingLeft()
}

func TestAMissionIsLaunchedAgainFromAPhase(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	doc := missionDoc{name: "m", phases: []phaseDoc{
		{name: "survey", script: "date +%N > survey.txt"},
		{name: "build", script: "exit 7"},
		{name: "report", script: "cat survey.txt build.txt > report.txt"},
	}}
	path := p.write(doc)
	p.fails(1, "mission m", "mission", "rerun", "m", "--from", "build")
	_, _, code := p.tidewait("mission", "launch", "--wait", path)
	require.Equal(t, 1, code)
	first := p.show("m")
	require.Equal(t, "succeeded", first.PhaseList[0].Status)

	p.fails(2, "name the phase to begin with: --from PHASE", "mission", "rerun", "m")
	p.fails(2, `phase "deploy" of mission m: there is no such phase; its phases are survey, build, report`, "mission", "rerun", "m", "--from", "deploy")
	p.fails(1, `mission m is not launched again: phase "build" has no commit in launch 1, where it is failed; rerun from it or from an earlier phase`,
		"mission", "rerun", "m", "--from", "report")
	changed := filepath.Join(t.TempDir(), "changed.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), "+%N", "+%s", 1)), 0o600))
	p.fails(1, `mission m is not launched again: phase "survey" is not what it was in the launch whose commit would be taken over`,
		"mission", "rerun", "m", "--from", "build", "--file", changed)
	require.Equal(t, 1, p.show("m").Launch, "nothing of that was a launch")

	// The same document fails the same way, from the same commit.
	_, _, code = p.tidewait("mission", "rerun", "m", "--from", "build", "--wait")
	require.Equal(t, 1, code)
	second := p.show("m")
	require.Equal(t, []any{2, 1, first.PhaseList[0].Commit, "tidewait/m/2"}, []any{second.Launch, second.RerunOf, second.BaseCommit, second.Branch})

	// A document that has changed from there on succeeds.
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), "exit 7", "sleep 2; echo built > build.txt", 1)), 0o600))
	out := p.must("mission", "rerun", "m", "--from", "build", "--file", changed, "--actor", "ann")
	require.Contains(t, out, "mission m is launched again: launch 3, after what launch 2 made, workflow mission.m")
	p.fails(1, "mission m is running already", "mission", "rerun", "m", "--from", "build")
	third := p.ended("m")
	require.Equal(t, "succeeded", third.Status, third.Failure)
	require.Equal(t, []any{"succeeded", 2, first.PhaseList[0].Commit}, []any{third.PhaseList[0].Status, third.PhaseList[0].TakenFrom, third.PhaseList[0].Commit})
	require.Empty(t, third.PhaseList[0].Runs)
	require.Equal(t, "ann", third.Actor)
	shown := p.must("mission", "show", "m")
	require.Contains(t, shown, "\n  rerun   of launch 2\n")
	require.Contains(t, shown, ", taken over from launch 2\n")
	repo := p.repository()
	p.must("mission", "results", "m", "--into", repo)
	require.Equal(t, "m: report\nm: build\nm: survey", strings.Join(strings.Split(p.git(repo, "log", "--format=%s", "tidewait/m/3"), "\n")[:3], "\n"))

	// From the first phase the launch begins where that began, in the first launch.
	_, _, code = p.tidewait("mission", "rerun", "m", "--from", "survey", "--wait")
	require.Zero(t, code)
	fourth := p.show("m")
	require.Equal(t, []any{4, 3, first.BaseCommit}, []any{fourth.Launch, fourth.RerunOf, fourth.BaseCommit})
	require.NotEqual(t, first.PhaseList[0].Commit, fourth.PhaseList[0].Commit)
	p.nothingLeft()
}
