package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"tidewait/internal/api"
)

// random is text that nothing else on this machine has.
func random(prefix string) string {
	b := make([]byte, 16)
	rand.Read(b)
	return prefix + "-" + hex.EncodeToString(b)
}

// secrets are those of the gateway of a test.
type secrets struct {
	file, env, command string // values
	dir                string
}

// startWithSecrets runs a stack whose gateway gives three secrets away.
func startWithSecrets(t *testing.T, env ...string) (*product, secrets) {
	t.Helper()
	s := secrets{file: random("file"), env: random("env"), command: random("command"), dir: t.TempDir()}
	require.NoError(t, os.Chmod(s.dir, 0o700))
	for name, value := range map[string]string{"api-token": s.file, "of-the-command": s.command} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(value+"\n"), 0o600))
	}
	p := start(t, append([]string{"TIDEWAIT_LOG_LEVEL=debug"}, env...)...)
	require.NoError(t, p.gateway.Kill())
	var err error
	p.gateway, err = p.StartWorker(t.Context(), "gateway-with-secrets", []string{"gateway"}, "TIDEWAIT_GATEWAY_ID=gw",
		"TIDEWAIT_GATEWAY_SECRET_DIR="+s.dir, "TIDEWAIT_GATEWAY_SECRET_ENV=E2E_SECRET", "E2E_SECRET="+s.env,
		"TIDEWAIT_GATEWAY_SECRET_COMMANDS=print=/bin/cat "+filepath.Join(s.dir, "of-the-command"))
	require.NoError(t, err)
	return p, s
}

const allSecrets = `secrets: [{name: API_TOKEN, from: "file:api-token"}, {name: FROM_ENV, from: "env:E2E_SECRET"}, {name: FROM_COMMAND, from: "command:print"}]`

// TestSecretsAreNowhereElse gives a command its secrets, lets it print them, and
// looks for them everywhere. Beside them goes a control, a plain variable that
// the same search has to find.
func TestSecretsAreNowhereElse(t *testing.T) {
	t.Parallel()
	telemetry := startCollector(t)
	p, s := startWithSecrets(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+telemetry.url, "OTEL_EXPORTER_OTLP_COMPRESSION=none", "OTEL_METRIC_EXPORT_INTERVAL=1000", "OTEL_BSP_SCHEDULE_DELAY=100")
	p.node("TIDEWAIT_NODE_BACKENDS=process,microvm", "TIDEWAIT_NODE_MEMORY=1500Mi")
	control := random("control")
	sum := sha256.Sum256([]byte(s.file + s.env + s.command))

	for _, backend := range []string{"process", "microvm"} {
		t.Run(backend, func(t *testing.T) {
			out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{
				name: "sees-" + backend, backend: backend, phases: []phaseDoc{{
					name: "work", extra: allSecrets + "\nenv: {CONTROL: " + control + "}",
					script: `printf %s%s%s "$API_TOKEN" "$FROM_ENV" "$FROM_COMMAND" | sha256sum > digest.txt; echo $CONTROL > control.txt; echo $CONTROL`,
				}},
			}))
			require.Zerof(t, code, "%s%s", out, errs)
			repo := t.TempDir()
			require.NoError(t, exec.Command("git", "init", "--quiet", repo).Run())
			p.must("mission", "results", "sees-"+backend, "--into", repo)
			digest, err := exec.Command("git", "-C", repo, "show", "tidewait/sees-"+backend+"/1:digest.txt").Output()
			require.NoError(t, err)
			require.Equal(t, hex.EncodeToString(sum[:])+"  -\n", string(digest), "the command sees its secrets")

			name := "prints-" + backend
			p.launch(missionDoc{name: name, backend: backend, phases: []phaseDoc{{
				name: "work", extra: allSecrets + "\nenv: {CONTROL: " + control + "}",
				// Plain, inside a line, encoded, as the name of a command that is not there,
				// and over the place where a long line is cut.
				script: `: ` + control + `; echo "$API_TOKEN"; echo "x${FROM_ENV}y ${FROM_COMMAND}" >&2; printf 'user:%s' "$API_TOKEN" | base64; "$FROM_ENV";` +
					` head -c 65530 /dev/zero | tr '\0' x; echo "$API_TOKEN"; head -c 16380 /dev/zero | tr '\0' y; echo "$API_TOKEN"; env; sleep 600`,
			}}})
			p.running(name)
			var log string
			p.eventually("the log has all of it", func() bool {
				log = p.must("mission", "logs", name)
				return strings.Contains(log, "CONTROL="+control)
			}, func() any { return log })
			p.noneIn(s, []byte(log), "the log")
			require.Contains(t, log, "[API_TOKEN]\n")
			require.Contains(t, log, "x[FROM_ENV]y [FROM_COMMAND]\n")
			require.Contains(t, log, "FROM_ENV=[FROM_ENV]\n")
			require.Contains(t, log, "[FROM_ENV]: not found")
			require.NotContains(t, log, s.file[:12], "no part of it")
			require.NotContains(t, log, s.file[len(s.file)-12:], "no part of it")

			commands := p.commandLines()
			p.noneIn(s, commands, "a list of arguments")
			if backend == "process" {
				require.Contains(t, string(commands), control, "the control: an argument is found")
			}
			p.must("mission", "cancel", name, "--reason", "seen enough", "--keep")
			require.Contains(t, p.ended(name).Failure, "seen enough")
		})
	}

	t.Run("fails", func(t *testing.T) {
		out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{
			name: "fails", phases: []phaseDoc{{name: "work", extra: allSecrets, script: `echo "$API_TOKEN" > "$API_TOKEN"; rm "$API_TOKEN"; exec "$FROM_ENV"`}},
		}))
		require.Equal(t, 1, code)
		p.noneIn(s, []byte(out+errs), "what launch prints")
		require.Equal(t, "command_failed", p.show("fails").FailureCode)
	})

	p.searchEverything(s, control)
	p.searchStreams(s, control)
	p.searchWhatIsSaid(s, control, telemetry)
	p.nothingLeft()
}

func (s secrets) values() map[string]string {
	return map[string]string{"file": s.file, "env": s.env, "command": s.command}
}

// noneIn wants no secret in data, neither as it is nor in base64.
func (p *product) noneIn(s secrets, data []byte, where string) {
	p.t.Helper()
	for name, value := range s.values() {
		if at := bytes.Index(data, []byte(value)); at >= 0 {
			p.t.Fatalf("the secret %s is in %s: %q", name, where, data[max(0, at-100):min(len(data), at+len(value)+100)])
		}
		for _, encoded := range inBase64(value) {
			require.False(p.t, bytes.Contains(data, []byte(encoded)), "the secret %s is in %s, in base64", name, where)
		}
	}
}

// inBase64 is what base64 makes of a text, wherever in what is encoded it stands.
func inBase64(text string) (encoded []string) {
	for before := range 3 {
		whole := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text...))
		encoded = append(encoded, whole[2*before:len(whole)-2]) // but for the ends, which others take part in
	}
	return encoded
}

func TestInBase64(t *testing.T) {
	for _, around := range []string{"", "a", "ab", "abc", "abcd"} {
		whole := base64.StdEncoding.EncodeToString([]byte(around + "the secret of a test" + around))
		found := 0
		for _, encoded := range inBase64("the secret of a test") {
			found += strings.Count(whole, encoded)
		}
		require.Equal(t, 1, found, "%q around it", around)
	}
}

// commandLines are the arguments of every process of this machine.
func (p *product) commandLines() []byte {
	var all []byte
	entries, err := os.ReadDir("/proc")
	require.NoError(p.t, err)
	for _, e := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		all = append(append(all, line...), '\n')
	}
	return all
}

// searchEverything looks for the secrets, and for the control, in all that the
// stack keeps.
func (p *product) searchEverything(s secrets, control string) {
	p.t.Helper()
	for where, data := range map[string][]byte{
		"a history of Temporal": p.histories(), "a table of Postgres": p.tables(), "a checkout": p.checkouts(),
	} {
		p.noneIn(s, data, where)
		require.Contains(p.t, string(data), control, "the control: the search finds it in %s", where)
	}

	found := map[string]bool{} // directories of files with the control
	logs := map[string]bool{}
	snapshot := p.likeASnapshot(control)
	require.NoError(p.t, filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go while the stack runs
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		p.noneIn(s, data, path)
		name, err := filepath.Rel(p.dir, path)
		require.NoError(p.t, err)
		parts := strings.Split(name, string(filepath.Separator))
		if bytes.Contains(data, []byte(control)) {
			found[filepath.Join(parts[:min(2, len(parts)-1)]...)] = true
		}
		if strings.HasSuffix(name, ".log") && bytes.Contains(data, []byte("secrets were given to a run")) {
			logs[parts[len(parts)-1]] = true
		}
		if path == snapshot && bytes.Contains(data, []byte(control)) {
			snapshot = ""
		}
		return nil
	}))
	require.Empty(p.t, snapshot, "the control: the search finds it in the memory of a saved machine")
	for _, part := range []string{"stack/postgres", "stack/nats", "stack/temporal"} {
		require.True(p.t, found[part], "the control: the search finds it below %s; it was found in %v", part, found)
	}
	require.Equal(p.t, map[string]bool{"gateway-with-secrets.log": true}, logs, "the gateway says that it gave secrets away, in a log that was searched")
}

// likeASnapshot writes a file where the node keeps those of saved machines, of their
// size and as private, with a value in the middle of a page of memory. That of a real
// one may come or go while the test looks.
func (p *product) likeASnapshot(value string) string {
	p.t.Helper()
	dir := filepath.Join(p.dir, "node", "n1", "microvm", "snapshots")
	require.DirExists(p.t, dir, "the node keeps its snapshots there")
	path := filepath.Join(dir, "control", "memory")
	require.NoError(p.t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(p.t, os.WriteFile(path, append(make([]byte, 90<<20+123), value...), 0o600))
	return path
}

// histories are those of all workflows, as the server sends them.
func (p *product) histories() []byte {
	p.t.Helper()
	ctx := context.Background()
	var all []byte
	list, err := p.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{})
	require.NoError(p.t, err)
	require.NotEmpty(p.t, list.Executions)
	for _, e := range list.Executions {
		all = append(all, p.eventsOf(e.Execution.WorkflowId, e.Execution.RunId)...)
	}
	return all
}

// eventsOf are those of one run of a workflow, as the server sends them.
func (p *product) eventsOf(workflow, run string) []byte {
	p.t.Helper()
	var all []byte
	events := p.temporal.GetWorkflowHistory(context.Background(), workflow, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(p.t, err)
		raw, err := proto.Marshal(event)
		require.NoError(p.t, err)
		all = append(all, raw...)
	}
	return all
}

// tables are all rows of all tables.
func (p *product) tables() []byte {
	p.t.Helper()
	ctx := context.Background()
	rows, err := p.db.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	require.NoError(p.t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	require.Contains(p.t, names, "public.topology_runs")
	var all bytes.Buffer
	for _, name := range names {
		_, err := p.db.PgConn().CopyTo(ctx, &all, "COPY "+name+" TO STDOUT")
		require.NoError(p.t, err)
	}
	return all.Bytes()
}

// checkouts are all objects of all repositories of the gateway, which git
// compresses.
func (p *product) checkouts() []byte {
	p.t.Helper()
	var all []byte
	require.NoError(p.t, filepath.WalkDir(filepath.Join(p.dir, "gateway"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || !strings.HasSuffix(path, ".git") {
			return err
		}
		out, err := exec.Command("git", "-c", "safe.directory=*", "--git-dir", path, "cat-file", "--batch-all-objects", "--batch").Output()
		all = append(all, out...)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return fs.SkipDir
	}))
	return all
}

func TestSecretsThatTheGatewayDoesNotGive(t *testing.T) {
	t.Parallel()
	p, s := startWithSecrets(t)
	p.node()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "open"), []byte(s.file), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(s.dir, "open"), 0o644)) //nolint:gosec // that it is too open is the point
	for name, c := range map[string]struct{ from, says string }{
		"missing":     {"file:none", "phase work: secret A is not available: file:none is not in the gateway's directory of secrets"},
		"open":        {"file:open", "phase work: secret A is not available: file:open is not safe: its mode is 0644, so that others may read or change it; make it 0600"},
		"not-allowed": {"env:HOME", "phase work: secret A is not available: env:HOME may not be given away: the gateway's gateway.secret_env does not name it"},
		"no-command":  {"command:sh", "phase work: secret A is not available: command:sh may not be run: the gateway's gateway.secret_commands does not name it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, code := p.tidewait("mission", "launch", "--wait", p.write(missionDoc{
				name: name, phases: []phaseDoc{{name: "work", script: "echo it ran", extra: "secrets: [{name: A, from: '" + c.from + "'}]"}},
			}))
			require.Equal(t, 1, code, errs)
			m := p.show(name)
			require.Equal(t, []string{"failed", "secret_unavailable", c.says}, []string{m.Status, m.FailureCode, m.Failure})
			require.NotContains(t, p.must("mission", "logs", name), "it ran")
		})
	}
	p.nothingLeft()
}

// secretOnAFullNode is a mission whose checkout is open and that waits for the
// node, which a holder fills.
func (p *product) secretOnAFullNode() {
	p.t.Helper()
	p.launch(holder("big"))
	p.running("big")
	p.launch(missionDoc{name: "needs", phases: []phaseDoc{{name: "work", extra: allSecrets, script: `test -n "$API_TOKEN"`}}})
	require.Equal(p.t, "capacity", p.waiting("needs").Kind)
}

func TestSecretsWaitForTheirGateway(t *testing.T) {
	t.Parallel()
	p, _ := startWithSecrets(t)
	p.node()
	for i, c := range []struct {
		name       string
		away, back func() error
		least      int // tries while it is away
	}{
		{"killed", p.gateway.Kill, func() error { return p.gateway.Start(t.Context()) }, 2},
		{"frozen", func() error { return p.gateway.Signal(syscall.SIGSTOP) }, func() error { return p.gateway.Signal(syscall.SIGCONT) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.secretOnAFullNode()
			require.NoError(t, c.away())
			p.must("mission", "cancel", "big")

			var w api.Wait
			p.eventually("the phase waits for its gateway", func() bool {
				m := p.show("needs")
				if m.PhaseList[0].Wait == nil {
					return false
				}
				w = *m.PhaseList[0].Wait
				return w.Kind == "gateway" && w.Attempts >= c.least && m.PhaseList[0].Step == "secrets"
			}, func() any { return p.show("needs") })
			reason := fmt.Sprintf("gateway gw does not answer; run r%d-1 needs its secrets API_TOKEN, FROM_ENV, FROM_COMMAND before its command starts", 2*i+2)
			require.Equal(t, []string{"gateway", "gateway_unreachable", reason}, []string{w.Kind, w.Code, w.Reason})
			require.NotNil(t, w.NextCheck)
			require.Less(t, w.Bound.Sub(w.Since), 2*time.Minute+time.Second)
			require.Contains(t, p.must("waits"), reason)
			p.eventually("Temporal shows the same", func() bool {
				details, err := p.detailsOf(w.WorkflowID)
				return err == nil && p.described(w.WorkflowID).same(asListed(w), time.Millisecond) &&
					p.listedAs(w.WorkflowID).same(asListed(w), time.Millisecond) && inDetails(details).same(asListed(w), time.Second)
			}, func() any { return []any{asListed(w).String(), p.described(w.WorkflowID).String()} })
			require.Less(t, p.upserted(w.WorkflowID, "gateway_unreachable").Sub(w.Since), time.Second)

			require.NoError(t, c.back())
			m := p.ended("needs")
			require.Equal(t, "succeeded", m.Status, m.Failure)
			past := m.PhaseList[0].Waits
			require.Equal(t, []string{"gateway", "answered"}, []string{past[len(past)-1].Kind, past[len(past)-1].EndedBy})
			p.nothingLeft()
		})
	}
}

func TestSecretsOfAGatewayThatStaysAway(t *testing.T) {
	t.Parallel()
	p, _ := startWithSecrets(t, "TIDEWAIT_NODE_STEP_TIMEOUT=3s")
	p.node()
	p.secretOnAFullNode()
	require.NoError(t, p.gateway.Kill())
	p.must("mission", "cancel", "big")

	m := p.ended("needs")
	require.Equal(t, []string{
		"failed", "secret_unavailable",
		"phase work: the secrets API_TOKEN, FROM_ENV, FROM_COMMAND could not be had within 3s: gateway gw does not answer",
	}, []string{m.Status, m.FailureCode, m.Failure})
	require.Zero(t, p.count("SELECT count(*) FROM open_waits"))
	require.NoError(t, p.gateway.Start(t.Context()))
	p.nothingLeft()
}

// TestSecretsOfARunThatIsExecutedAgain resets a phase whose run has its secrets:
// the second execution has another key, gets none and counts as lost.
func TestSecretsOfARunThatIsExecutedAgain(t *testing.T) {
	t.Parallel()
	p, _ := startWithSecrets(t)
	p.node()
	p.launch(missionDoc{name: "reset", phases: []phaseDoc{{name: "work", extra: allSecrets, script: `test -n "$API_TOKEN"; sleep 5`}}})
	p.running("reset")

	p.reset("phase.reset.work")

	m := p.ended("reset")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	runs := m.PhaseList[0].Runs
	require.Len(t, runs, 2)
	require.Equal(t, []string{"lost", "succeeded"}, []string{runs[0].Status, runs[1].Status})
	require.Equal(t, "the engine gives the run no secrets: give run r1-1 its secrets: it has had its secrets, for another key: not possible in the present state", runs[0].Failure)
	p.nothingLeft()
}

// TestSecretsOfAgents gives each agent its own, and those of the phase to all.
func TestSecretsOfAgents(t *testing.T) {
	t.Parallel()
	p, s := startWithSecrets(t)
	p.node("TIDEWAIT_NODE_MEMORY=2Gi")
	out, errs, code := p.tidewait("mission", "launch", "--wait", p.write(team(t, "team", "process", `secrets: [{name: SHARED, from: "env:E2E_SECRET"}]`,
		agentDoc{
			name: "author", extra: `secrets: [{name: OWN, from: "file:api-token"}]`,
			script: `printf "$OWN $SHARED" | sha256sum > author.txt; echo "$OWN $SHARED"`,
		},
		agentDoc{
			name: "critic", replicas: 2, extra: `secrets: [{name: OWN, from: "command:print"}]`,
			script: `printf "$OWN $SHARED" | sha256sum > $TIDEWAIT_AGENT.txt; echo "$OWN"`,
		},
		agentDoc{name: "clerk", script: `printf "${OWN-none} $SHARED" | sha256sum > clerk.txt`},
	)))
	require.Zerof(t, code, "%s%s", out, errs)

	git := p.committed("team")
	for file, text := range map[string]string{
		"author": s.file + " " + s.env, "critic-1": s.command + " " + s.env, "critic-2": s.command + " " + s.env, "clerk": "none " + s.env,
	} {
		sum := sha256.Sum256([]byte(text))
		require.Equal(t, hex.EncodeToString(sum[:])+"  -\n", git("show", "tidewait/team/1:"+file+".txt"))
	}
	logs := p.must("mission", "logs", "team")
	for _, line := range []string{"work/author | [author/OWN] [SHARED]\n", "work/critic-1 | [critic/OWN]\n", "work/critic-2 | [critic/OWN]\n"} {
		require.Equal(t, 1, strings.Count(logs, line), logs)
	}

	out, errs, code = p.tidewait("mission", "launch", "--wait", p.write(team(t, "lacks", "process", "",
		agentDoc{name: "author", script: "echo it ran"},
		agentDoc{name: "critic", script: "echo it ran", extra: `secrets: [{name: A, from: "file:none"}]`},
	)))
	require.Equal(t, 1, code, out+errs)
	m := p.show("lacks")
	require.Equal(t, []string{
		"failed", "secret_unavailable", "phase work: secret critic/A is not available: file:none is not in the gateway's directory of secrets",
	}, []string{m.Status, m.FailureCode, m.Failure})
	require.NotContains(t, p.must("mission", "logs", "lacks"), "it ran")

	for where, data := range map[string][]byte{"a history of Temporal": p.histories(), "a table of Postgres": p.tables(), "the log": []byte(logs)} {
		p.noneIn(s, data, where)
	}
	p.nothingLeft()
}
