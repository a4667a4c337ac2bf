package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

// TestLogsOfAMission reads the logs of a mission with several phases, runs and
// agents as a person would.
func TestLogsOfAMission(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_ATTEMPT_BACKOFF=100ms")
	p.node("TIDEWAIT_NODE_LOG_BYTES=1000000", "TIDEWAIT_NODE_LOG_RATE=20000")
	follow := exec.CommandContext(t.Context(), filepath.Join(bin, "tidewait"), "mission", "logs", "talk", "-f")
	follow.Env = append(os.Environ(), p.Env()...)
	p.launch(missionDoc{name: "talk", phases: []phaseDoc{
		{name: "first", script: `echo to stdout; echo to stderr >&2; printf 'no newline'`},
		{name: "again", script: `echo try; test -e /tmp/never`, extra: "attempts: 2"},
	}})
	out, err := follow.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, follow.Start())
	lines := bufio.NewScanner(out)
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
	}
	require.NoError(t, follow.Wait())
	m := p.show("talk")
	require.Equal(t, "failed", m.Status)
	require.ElementsMatch(t, []string{"first | to stdout", "first ! to stderr", "first | no newline"}, seen[:3])
	runs := m.PhaseList[1].Runs
	require.Len(t, runs, 2)
	require.Equal(t, []string{"again | try", "again * run " + runs[1].ID, "again | try"}, seen[3:])

	require.Equal(t, strings.Join(seen, "\n")+"\n", p.must("mission", "logs", "talk"), "what was followed is what is kept")
	require.Equal(t, "again | try\n", p.must("mission", "logs", "talk", "--tail", "1"))
	require.Equal(t, "again | try\n", p.must("mission", "logs", "talk", "--run", runs[1].ID))
	require.Len(t, strings.Split(p.must("mission", "logs", "talk", "--phase", "first", "--since", "1h"), "\n"), 4)
	var line render.LogLine
	require.NoError(t, json.Unmarshal([]byte(p.must("mission", "logs", "talk", "--phase", "again", "--tail", "1", "-o", "json")), &line))
	require.Equal(t, []string{"again", runs[1].ID, "stdout", "try"}, []string{line.Phase, line.Run, line.Stream, line.Line})
	p.fails(2, `mission talk has no phase "other"; it has first, again`, "mission", "logs", "talk", "--phase", "other")
	p.fails(2, `no phase that was asked for has several machines`, "mission", "logs", "talk", "--agent", "critic")
	p.fails(2, `--run ">" is not a name`, "mission", "logs", "talk", "--run", ">")

	p.launch(missionDoc{name: "team", phases: []phaseDoc{{name: "review", extra: `agents:
  - {name: author, run: [sh, -c, echo written], resources: {cpus: 0.5, memory: 128Mi, disk: 64Mi}}
  - {name: critic, replicas: 2, run: [sh, -c, echo read], resources: {cpus: 0.5, memory: 128Mi, disk: 64Mi}}`}}})
	require.Equal(t, "succeeded", p.ended("team").Status)
	require.Equal(t, "review/author | written\n", p.must("mission", "logs", "team", "--agent", "author"))
	require.ElementsMatch(t, []string{"review/critic-1 | read", "review/critic-2 | read", ""},
		strings.Split(p.must("mission", "logs", "team", "--agent", "critic"), "\n"))
	p.fails(2, `mission team has no agent "reader"; it has author, critic-1, critic-2`, "mission", "logs", "team", "--agent", "reader")

	// A flood is cut, says so, and keeps its last line.
	p.launch(missionDoc{name: "flood", phases: []phaseDoc{{name: "work", script: `yes | head -n 1000000; echo the end`}}})
	require.Equal(t, "succeeded", p.ended("flood").Status)
	flood := p.must("mission", "logs", "flood")
	require.Less(t, len(flood), 100_000)
	require.Regexp(t, `(?m)^work \* \d+ lines \(\d+ bytes\) were dropped here: more than 20000 bytes came in a second$`, flood)

	// NATS goes away in the middle of a log, and comes back.
	p.launch(missionDoc{name: "cut", phases: []phaseDoc{{name: "work", script: `for i in $(seq 40); do echo $i; sleep 0.1; done`}}})
	p.eventually("it speaks", func() bool { return p.must("mission", "logs", "cut") != "" }, func() any { return nil })
	require.NoError(t, p.Stack.NATS.Kill())
	require.NoError(t, p.Stack.NATS.Start(t.Context()))
	require.Equal(t, "succeeded", p.ended("cut").Status)
	var want strings.Builder
	for i := 1; i <= 40; i++ {
		want.WriteString("work | " + itoa(i) + "\n")
	}
	p.eventually("every line is there once", func() bool { return p.must("mission", "logs", "cut") == want.String() },
		func() any { return p.must("mission", "logs", "cut") })
	p.nothingLeft()
}

// TestResultsComeHome takes results home in every way there is.
func TestResultsComeHome(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{
		{name: "first", script: "mkdir bin; echo 'echo hello' > bin/tool; chmod +x bin/tool; ln -s bin/tool tool; echo one >> README"},
		{name: "second", script: "rm README; echo two > two.txt"},
	}})
	d := p.ended("m")
	require.Equal(t, "succeeded", d.Status, d.Failure)

	var results api.Results
	require.NoError(t, json.Unmarshal([]byte(p.must("mission", "results", "m", "-o", "json")), &results))
	require.Equal(t, d.BaseCommit, results.Base)
	require.Equal(t, []string{d.PhaseList[0].Commit, d.PhaseList[1].Commit}, []string{results.Commits[0].Commit, results.Commits[1].Commit})
	require.Equal(t, []int{3, 3, 0}, []int{results.Commits[0].Files, results.Commits[0].Insertions, results.Commits[0].Deletions})
	var stats []api.Diff
	require.NoError(t, json.Unmarshal([]byte(p.must("mission", "results", "m", "--stat", "--phase", "second", "-o", "json")), &stats))
	require.Equal(t, []api.Diff{{Phase: "second", Commit: d.PhaseList[1].Commit, Files: []api.FileStat{
		{Path: "README", Deletions: 2}, {Path: "two.txt", Insertions: 1},
	}}}, stats)
	require.Contains(t, p.must("mission", "results", "m", "--stat"), "+1 -0  bin/tool\n")

	dir := t.TempDir()
	latest, first := filepath.Join(dir, "latest"), filepath.Join(dir, "first")
	require.Contains(t, p.must("mission", "results", "m", "--export", latest), "3 files of commit "+d.PhaseList[1].Commit[:12]+" are in "+latest)
	require.NoFileExists(t, filepath.Join(latest, "README"))
	require.NoDirExists(t, filepath.Join(latest, ".git"))
	hello, err := exec.CommandContext(t.Context(), "sh", "-c", filepath.Join(latest, "tool")).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(hello))
	p.must("mission", "results", "m", "--export", first, "--phase", "first")
	text, err := os.ReadFile(filepath.Join(first, "README"))
	require.NoError(t, err)
	require.Equal(t, "a small workspace\none\n", string(text))
	p.fails(1, latest+" is not empty", "mission", "results", "m", "--export", latest)
	tar := p.must("mission", "results", "m", "--export", "-")
	require.Contains(t, tar, "bin/tool")
	p.fails(2, "different questions", "mission", "results", "m", "--diff", "--stat")

	home, upstream := filepath.Join(dir, "home"), filepath.Join(dir, "upstream")
	p.git(dir, "init", "-q", home)
	p.git(dir, "init", "-q", "--bare", upstream)
	p.fails(1, `but was not pushed: `+home+` has no remote "origin"; it has none`, "mission", "results", "m", "--into", home, "--push")
	p.git(home, "remote", "add", "origin", upstream)
	require.Contains(t, p.must("mission", "results", "m", "--into", home, "--push"), "it was pushed to origin\n")
	require.Equal(t, d.PhaseList[1].Commit, strings.TrimSpace(p.git(upstream, "rev-parse", "tidewait/m/1")))

	// What cannot take the branch is refused, and loses nothing.
	p.fails(2, "is not a directory", "mission", "results", "m", "--into", filepath.Join(dir, "nowhere"))
	p.fails(1, "is not a git repository", "mission", "results", "m", "--into", latest)
	p.git(home, "checkout", "-q", "tidewait/m/1")
	require.NoError(t, os.WriteFile(filepath.Join(home, "two.txt"), []byte("changed\n"), 0o600))
	p.git(home, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-am", "mine")
	mine := p.git(home, "rev-parse", "HEAD")
	p.fails(1, "is checked out in "+home, "mission", "results", "m", "--into", home)
	p.git(home, "checkout", "-q", "-b", "main")
	p.fails(1, "with other commits", "mission", "results", "m", "--into", home)
	require.Equal(t, mine, p.git(home, "rev-parse", "tidewait/m/1"))
	p.nothingLeft()
}
