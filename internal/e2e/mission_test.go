package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

func TestMissionInMicroVMs(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi")

	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{
		name: "vm", backend: "microvm", phases: []phaseDoc{
			{name: "one", script: "uname -r > kernel.txt && rm README"},
			{name: "two", script: "test ! -e README && wc -c < kernel.txt > size.txt"},
		},
	}))
	require.Zerof(t, code, "%s%s", out, errs)

	m := p.show("vm")
	require.Equal(t, "succeeded", m.Status)
	run := m.PhaseList[0].Runs[0]
	require.Contains(t, []string{"tcg", "kvm"}, run.Accel)
	require.NotEmpty(t, run.Kernel)

	repo := t.TempDir()
	require.NoError(t, exec.Command("git", "init", "--quiet", repo).Run())
	p.must("mission", "results", "vm", "--into", repo)
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	require.Equal(t, run.Kernel+"\n", git("show", "tidewait/vm/1:kernel.txt"))
	require.Equal(t, "kernel.txt\nsize.txt\n", git("ls-tree", "--name-only", "tidewait/vm/1"))
	require.Equal(t, "Mission: vm\nPhase: two\nRun: r2-1\n", git("log", "-1", "--format=%(trailers:key=Mission,key=Phase,key=Run)", "tidewait/vm/1")[:len("Mission: vm\nPhase: two\nRun: r2-1\n")])
	p.nothingLeft()
}

func TestSecondPhaseWaitsAndIsPlacedWhenTheNodeIsFreed(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(holder("big"))
	p.running("big")

	p.launch(missionDoc{name: "small", phases: []phaseDoc{{name: "work", script: "echo done > done.txt"}}})
	w := p.waiting("small")

	require.Equal(t, []any{"capacity", "capacity_memory", "small", "work", "phase.small.work", 1}, []any{w.Kind, w.Code, w.Mission, w.Phase, w.WorkflowID, w.Position})
	require.Equal(t, 2*time.Hour, w.Bound.Sub(w.Since))
	require.Equal(t, 1, w.Counts.Total())
	require.Equal(t, 1, w.Counts.Full)
	require.Equal(t, "n1", w.FreesNode)
	require.Zero(t, p.count("SELECT count(*) FROM topology_runs t JOIN mission_phases p ON p.id = t.phase_id WHERE p.name = 'work'"), "a refused phase has no run")

	for n := w.Attempts; n < 10; {
		n = p.waiting("small").Attempts
	}
	require.True(t, w.Since.Equal(p.waiting("small").Since), "ten retries do not move the first refusal")

	p.must("mission", "cancel", "big", "--reason", "the test is done with it")
	m := p.ended("small")
	require.Equal(t, "succeeded", m.Status)
	past := m.PhaseList[0].Waits
	require.Len(t, past, 1)
	require.Equal(t, []string{"placed", "event"}, []string{past[0].EndedBy, past[0].WokenBy})
	after := past[0].Ended.Sub(*p.show("big").PhaseList[0].Runs[0].FreedAt)
	require.Positive(t, after)
	require.Less(t, after, time.Second)
	require.Equal(t, "cancelled", p.show("big").Status)
	p.nothingLeft()
}

func TestNudgeLooksAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_RETRY_INTERVAL=1h")
	p.node()
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "small", phases: []phaseDoc{{name: "work", script: "true"}}})
	before := p.waiting("small")

	p.must("phase", "nudge", "small", "work")

	after := p.until("small", "it was looked at for the nudge", func(m api.MissionDetail) bool {
		return m.PhaseList[0].Wait != nil && m.PhaseList[0].Wait.WokenBy["nudge"] == 1
	}).PhaseList[0].Wait
	require.True(t, before.Since.Equal(after.Since))
	require.True(t, before.Bound.Equal(*after.Bound), "a nudge never moves the bound")

	began := time.Now()
	p.must("phase", "cancel", "small", "work", "--reason", "not needed")
	m := p.ended("small")
	require.Less(t, time.Since(began), 5*time.Second)
	require.Equal(t, "cancelled", m.PhaseList[0].Status)
	require.Contains(t, m.PhaseList[0].Failure, "not needed")
	require.Equal(t, "cancelled", m.PhaseList[0].Waits[0].EndedBy)
}

func TestFailuresSayWhyAndLeaveNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	for _, test := range []struct {
		name, script, extra, code, says string
		run                             string // whole run line instead of script
	}{
		{name: "exit", script: "exit 7", code: "command_failed", says: `phase work: command "sh" exited with code 7`},
		{name: "signal", script: "kill -SEGV $$", code: "command_failed", says: `phase work: command "sh" was ended by SIGSEGV`},
		{name: "turn", script: "sleep 600", extra: "turn: 10s", code: "turn_exceeded", says: "phase work: the run took longer than its turn of 10s and was stopped"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{
				name: test.name, extra: test.extra, phases: []phaseDoc{{name: "work", script: "echo x > README; " + test.script}},
			}))
			require.Equal(t, 1, code, out+errs)
			m := p.show(test.name)
			require.Equal(t, []string{"failed", test.code, test.says}, []string{m.Status, m.FailureCode, m.Failure})
			var results api.Results
			require.NoError(t, jsonOf(p.must("mission", "results", test.name, "-o", "json"), &results))
			require.Empty(t, results.Commits, "the checkout is as it was")
		})
	}
	t.Run("no such command", func(t *testing.T) {
		doc := missionDoc{name: "missing", phases: []phaseDoc{{name: "work", script: "true"}}}
		path := p.write(doc)
		replaceInFile(t, path, `run: [sh, -c, "true"]`, `run: [no-such-command]`)
		_, _, code := p.tidewait("mission", "launch", "--wait", path)
		require.Equal(t, 1, code)
		m := p.show("missing")
		require.Equal(t, "command_not_found", m.FailureCode)
		require.Contains(t, m.Failure, "no-such-command")
	})
	t.Run("bad ref", func(t *testing.T) {
		repo := filepath.Join(t.TempDir(), "repo")
		require.NoError(t, exec.Command("git", "init", "--quiet", repo).Run())
		require.NoError(t, exec.Command("git", "-C", repo, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--allow-empty", "-m", "x").Run())
		path := p.write(missionDoc{name: "badref", phases: []phaseDoc{{name: "work", script: "true"}}})
		replaceWorkspace(t, path, "{git: "+repo+", ref: nowhere}")
		_, errs, code := p.tidewait("mission", "launch", path)
		require.Equal(t, 1, code)
		require.Contains(t, errs, "nowhere")
		require.Zero(t, p.count("SELECT count(*) FROM missions WHERE name = 'badref'"), "nothing is recorded")
	})
	t.Run("bad url", func(t *testing.T) {
		path := p.write(missionDoc{name: "badurl", phases: []phaseDoc{{name: "work", script: "true"}}})
		replaceWorkspace(t, path, "{git: 'file:///nowhere/repo'}")
		_, _, code := p.tidewait("mission", "launch", "--wait", path)
		require.Equal(t, 1, code)
		require.Equal(t, "workspace_bad_url", p.show("badurl").FailureCode)
	})
	p.nothingLeft()
}

func TestGuestThatDies(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi")
	p.launch(missionDoc{name: "dies", backend: "microvm", phases: []phaseDoc{{name: "work", script: "sleep 600"}}})
	p.running("dies")

	require.NoError(t, exec.Command("pkill", "-KILL", "-P", itoa(p.agent.PID()), "qemu-system").Run())

	m := p.ended("dies")
	require.Equal(t, []string{"failed", "machine_died"}, []string{m.Status, m.FailureCode})
	p.nothingLeft()
}
