package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// longGrace is the product's own grace, with silences that leave room for it.
var longGrace = []string{"TIDEWAIT_NODE_KILL_GRACE=10s", "TIDEWAIT_FLEET_LEASE=30s", "TIDEWAIT_FLEET_LOST_AFTER=60s"}

// backends are those of a node that a test runs a mission on, and how it is
// started.
var backends = map[string][]string{
	"process": nil,
	"microvm": {"TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi"},
}

// about is how long a test of a backend takes here, beyond what most take.
var about = map[string]time.Duration{"microvm": time.Minute}

// machineGone cancels a mission and returns after what time its machine was gone.
func (p *product) machineGone(args ...string) time.Duration {
	p.t.Helper()
	require.NotEmpty(p.t, p.machines())
	began := time.Now()
	p.must(args...)
	p.eventually("the machine is gone", func() bool { return len(p.machines()) == 0 }, func() any { return p.machines() })
	return time.Since(began)
}

func TestACancelledRunIsGoneInTime(t *testing.T) {
	t.Parallel()
	for backend, env := range backends {
		t.Run(backend, func(t *testing.T) {
			long(t, about[backend])
			p := start(t, longGrace...)
			p.node(append(env, longGrace...)...)
			// PID 1 of the guest and a trap of the shell: the command hears TERM and ignores it.
			p.launch(missionDoc{name: "stubborn", backend: backend, phases: []phaseDoc{{name: "work", script: "trap '' TERM; echo deaf; while :; do sleep 1; done"}}})
			p.running("stubborn")
			p.logged("stubborn", "deaf")

			took := p.machineGone("mission", "cancel", "stubborn", "--reason", "enough", "--actor", "ann")

			t.Logf("%s: a command that ignores TERM was gone with its machine after %s", backend, took.Round(time.Millisecond))
			require.GreaterOrEqual(t, took, 10*time.Second, "it had its grace")
			require.Less(t, took, 12*time.Second)
			m := p.ended("stubborn")
			require.Equal(t, []string{"cancelled", "cancelled by ann: enough"}, []string{m.Status, m.Failure})
			require.Equal(t, []string{"cancelled", "cancelled by ann: enough"}, []string{m.PhaseList[0].Runs[0].Status, m.PhaseList[0].Runs[0].Failure})

			p.launch(missionDoc{name: "polite", backend: backend, phases: []phaseDoc{{name: "work", script: "trap 'exit 3' TERM; echo polite; while :; do sleep 0.1; done"}}})
			p.running("polite")
			p.logged("polite", "polite")
			took = p.machineGone("phase", "cancel", "polite", "work")
			t.Logf("%s: a command that ends on TERM was gone with its machine after %s", backend, took.Round(time.Millisecond))
			require.Less(t, took, 3*time.Second)
			m = p.ended("polite")
			require.Equal(t, "cancelled", m.Status)
			require.Equal(t, 3, *m.PhaseList[0].Runs[0].ExitCode, "how it ended is known")
			require.Nil(t, m.PhaseList[0].Partial)
			p.nothingLeft()
		})
	}
}

// logged waits until a mission's log has a line.
func (p *product) logged(name, line string) {
	p.t.Helper()
	p.eventually("the log of "+name+" has "+line, func() bool {
		out, _, code := p.tidewait("mission", "logs", name)
		return code == 0 && len(out) > 0
	}, func() any { return nil })
}

func TestWhatACancelledRunHadMadeIsKept(t *testing.T) {
	t.Parallel()
	for backend, env := range backends {
		t.Run(backend, func(t *testing.T) {
			long(t, about[backend])
			p := start(t, longGrace...)
			p.node(append(env, longGrace...)...)
			p.launch(missionDoc{name: "m", backend: backend, phases: []phaseDoc{
				{name: "survey", script: "echo whole > survey.txt"},
				{name: "build", script: "echo half > build.txt; rm README; trap 'echo more >> build.txt; exit 0' TERM; echo built; while :; do sleep 0.1; done"},
			}})
			p.until("m", "the second phase runs", func(m api.MissionDetail) bool { return m.PhaseList[1].Step == "run" })
			p.logged("m", "built")
			p.eventually("the command has begun", func() bool {
				out, _, _ := p.tidewait("mission", "logs", "m", "--phase", "build")
				return out != ""
			}, func() any { return nil })

			took := p.machineGone("mission", "cancel", "m", "--reason", "takes too long", "--actor", "ann", "--keep")

			t.Logf("%s: the machine was gone after %s, its work kept", backend, took.Round(time.Millisecond))
			require.Less(t, took, 12*time.Second)
			m := p.ended("m")
			require.Equal(t, []string{"cancelled", "cancelled by ann: takes too long"}, []string{m.Status, m.Failure})
			build := m.PhaseList[1]
			require.Equal(t, []string{"cancelled", "", "cancelled"}, []string{build.Status, build.Commit, build.Runs[0].Status}, "never a success")
			require.NotNil(t, build.Partial, build.Failure)
			require.Equal(t, "tidewait/m/1-partial/build", build.Partial.Branch)
			require.Contains(t, p.must("mission", "show", "m"), " on branch tidewait/m/1-partial/build; no phase starts from it\n")

			var results api.Results
			require.NoError(t, jsonOf(p.must("mission", "results", "m", "-o", "json"), &results))
			require.Len(t, results.Commits, 1)
			require.Len(t, results.Partial, 1)
			require.Equal(t, build.Partial.Commit, results.Partial[0].Commit)
			require.Contains(t, p.must("mission", "results", "m"), "partial, of cancelled phases; each is on branch tidewait/m/1-partial/build\n")

			repo := p.repository()
			p.must("mission", "results", "m", "--into", repo)
			p.must("mission", "results", "m", "--into", repo, "--partial", "build")
			require.Equal(t, "half\nmore", p.git(repo, "show", "tidewait/m/1-partial/build:build.txt"))
			require.Equal(t, "build.txt\nsurvey.txt", p.git(repo, "ls-tree", "--name-only", "tidewait/m/1-partial/build"))
			require.Equal(t, "README\nsurvey.txt", p.git(repo, "ls-tree", "--name-only", "tidewait/m/1"), "the launch's branch is as it was")
			require.Equal(t, p.git(repo, "rev-parse", "tidewait/m/1"), p.git(repo, "rev-parse", "tidewait/m/1-partial/build^"))
			require.Equal(t, "m: build (partial)", p.git(repo, "log", "-1", "--format=%s", "tidewait/m/1-partial/build"))
			require.Equal(t, "cancelled by ann: takes too long", p.git(repo, "log", "-1", "--format=%(trailers:key=Partial,valueonly)", "tidewait/m/1-partial/build"))
			p.fails(1, "launch 1 of mission m has no partial results of a phase survey", "mission", "results", "m", "--into", repo, "--partial", "survey")

			// It is not what a rerun takes over.
			p.fails(2, "there is no such phase", "mission", "rerun", "m", "--from", "nothing")
			p.nothingLeft()
		})
	}
}

func TestACancelSaysWhenThereIsNothingToKeep(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{{name: "work", script: "trap '' TERM; echo deaf; while :; do sleep 1; done"}}})
	p.running("m")
	p.logged("m", "deaf")
	p.must("phase", "cancel", "m", "work", "--actor", "ann", "--reason", "enough", "--keep")
	m := p.ended("m")
	require.Equal(t, "cancelled", m.Status)
	require.Equal(t, "cancelled by ann: enough; nothing that it had made could be kept: the command did not end within its grace of 2s", m.PhaseList[0].Failure)
	p.nothingLeft()
}

func TestHowACommandEndedIsToldApart(t *testing.T) {
	t.Parallel()
	for backend, env := range backends {
		t.Run(backend, func(t *testing.T) {
			long(t, about[backend])
			p := start(t)
			p.node(env...)
			for _, test := range []struct {
				name, script, code, says string
				exit                     int // of no signal
				signal                   string
				oom                      bool
				shown                    string
			}{
				{name: "code", script: "exit 7", code: "command_failed", says: `command "sh" exited with code 7`, exit: 7, shown: "failed; exit 7;"},
				{name: "signal", script: "kill -SEGV $$", code: "command_failed", says: `command "sh" was ended by SIGSEGV`, signal: "SIGSEGV", shown: "failed; killed by SIGSEGV;"},
				{name: "kill", script: "kill -KILL $$", code: "command_failed", says: `command "sh" was ended by SIGKILL`, signal: "SIGKILL", shown: "failed; killed by SIGKILL;"},
				{
					name: "memory", script: "echo x > made.txt; tail /dev/zero", code: "out_of_memory", exit: 137, oom: true,
					says: `command "sh" was killed because the machine's 256 MiB of memory ran out`, shown: "failed; out of memory;",
				},
			} {
				t.Run(test.name, func(t *testing.T) {
					p := p.in(t)
					p.launch(missionDoc{name: test.name, backend: backend, phases: []phaseDoc{{name: "work", script: test.script}}})
					m := p.ended(test.name)
					require.Equal(t, []string{"failed", test.code, "phase work: " + test.says}, []string{m.Status, m.FailureCode, m.Failure})
					r := m.PhaseList[0].Runs[0]
					require.Equal(t, []any{test.code, test.oom}, []any{r.FailureCode, r.OutOfMemory})
					if test.oom {
						// The kernel ends the shell with its child, or the shell says that the child was.
						require.True(t, r.Signal == "SIGKILL" || r.ExitCode != nil && *r.ExitCode == 137, "%+v", r)
					} else {
						require.Equal(t, test.signal, r.Signal)
						if test.signal == "" {
							require.Equal(t, test.exit, *r.ExitCode)
						}
					}
					require.Contains(t, p.must("mission", "show", test.name), test.shown)
				})
			}
			p.nothingLeft()
		})
	}
}

// TestLimitsSayWhatTheyAre passes each limit of a run, and finds its own code.
func TestLimitsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, env, script, disk, extra, code, says string
	}{
		{name: "turn", script: "sleep 600", extra: "turn: 10s", code: "turn_exceeded", says: "the run took longer than its turn of 10s and was stopped"},
		{name: "inject", env: "TIDEWAIT_NODE_STEP_TIMEOUT=1us", script: "true", code: "step_timeout", says: "putting the workspace into the machine took longer than 1µs"},
		{
			name: "collect", env: "TIDEWAIT_NODE_STEP_TIMEOUT=1s", script: "truncate -s 3G sparse", disk: "4Gi", code: "step_timeout",
			says: "collecting the results took longer than 1s",
		},
		{name: "files", env: "TIDEWAIT_NODE_RESULT_FILES=5", script: "touch a b c d e f g", code: "results_too_large", says: "the results are larger than 5 files and "},
		{name: "size", env: "TIDEWAIT_NODE_RESULT_BYTES=1000", script: "head -c 1001 /dev/zero > big", code: "results_too_large", says: "and 1000 bytes (at big)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			env := []string{"TIDEWAIT_NODE_DISK=8Gi", "TIDEWAIT_NODE_RESULT_BYTES=8589934592"}
			if test.env != "" {
				env = append(env, test.env)
			}
			p.node(env...)
			path := p.write(missionDoc{name: test.name, extra: test.extra, phases: []phaseDoc{{name: "work", script: test.script}}})
			if test.disk != "" {
				replaceInFile(t, path, "disk: 64Mi", "disk: "+test.disk)
			}
			p.must("mission", "launch", path)
			m := p.ended(test.name)
			require.Equal(t, []string{"failed", test.code}, []string{m.Status, m.FailureCode}, m.Failure)
			require.Contains(t, m.Failure, test.says)
			require.Empty(t, m.PhaseList[0].Commit)
			p.nothingLeft()
		})
	}
}
