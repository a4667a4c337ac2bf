package agent_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/agent"
	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/natstest"
	"tidewait/internal/provision"
	"tidewait/internal/tartest"
	"tidewait/internal/vm"
	"tidewait/internal/vm/process"
	"tidewait/internal/vm/vmtest"
	"tidewait/workflows"
)

// guestAgent is built once for all tests.
var guestAgent string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidewait-agent-")
	if err == nil {
		defer os.RemoveAll(dir)
		guestAgent, err = vmtest.BuildAgent(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const grace = 500 * time.Millisecond

// bench is a node's agent with the backend process, and the NATS it speaks to.
type bench struct {
	*agent.Agent
	backend *process.Backend
	js      jetstream.JetStream
	input   workflows.Object
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, func(*agent.Options) {})
}

func newBenchWith(t *testing.T, change func(*agent.Options)) *bench {
	t.Helper()
	conn := natstest.Connect(t, natstest.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL())
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	fleet := config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 64 << 20}
	require.NoError(t, provision.Streams(t.Context(), js, fleet))
	require.NoError(t, provision.NodeBucket(t.Context(), js, "n1", fleet))
	b := &bench{js: js}
	b.backend, err = process.New(process.Options{Agent: guestAgent, RunDir: t.TempDir(), KillGrace: grace})
	require.NoError(t, err)
	o := agent.Options{
		Node: "n1", Total: capacity.Resources{CPUMilli: 4000, MemoryMiB: 4096, DiskMiB: 4096, Slots: 16}, StartLimit: 2, Heartbeat: time.Hour, Lease: time.Hour,
		StepTimeout: time.Minute, KillGrace: grace, ProbeTimeout: time.Minute, Limits: vm.Limits{Files: 100, Bytes: 1 << 20},
		Backends: []vm.Backend{b.backend}, NATS: conn, Log: slog.New(slog.DiscardHandler),
	}
	change(&o)
	b.Agent, err = agent.New(t.Context(), o)
	require.NoError(t, err)
	b.input = b.put(t, "README", "a small workspace\n")
	return b
}

// put stores a workspace of one file.
func (b *bench) put(t *testing.T, name, content string) workflows.Object {
	t.Helper()
	stream := tartest.Of(tartest.File(name, content))
	store, err := b.js.ObjectStore(t.Context(), api.BucketWorkspaces)
	require.NoError(t, err)
	_, err = store.PutBytes(t.Context(), "input", stream)
	require.NoError(t, err)
	sum := sha256.Sum256(stream)
	return workflows.Object{Bucket: api.BucketWorkspaces, Name: "input", SHA256: hex.EncodeToString(sum[:])}
}

func (b *bench) team(run string, agents ...workflows.AgentCommand) workflows.ExecuteRunInput {
	return workflows.ExecuteRunInput{
		Mission: "port", Launch: 1, Phase: "review", Backend: "process", Machine: vm.Spec{RunID: run}, Input: b.input,
		Turn: time.Minute, Node: "n1", Agents: agents,
	}
}

func member(name string, replicas int, script string) workflows.AgentCommand {
	return workflows.AgentCommand{
		Name: name, Replicas: replicas, Command: vm.Command{Argv: []string{"sh", "-c", script}},
		Machine: vm.Spec{CPUMilli: 500, MemoryMiB: 128, DiskMiB: 64},
	}
}

func deciding(c workflows.AgentCommand) workflows.AgentCommand {
	c.Designated = true
	return c
}

// files lists what an object holds.
func (b *bench) files(t *testing.T, o *workflows.Object) []string {
	t.Helper()
	require.NotNil(t, o)
	store, err := b.js.ObjectStore(t.Context(), o.Bucket)
	require.NoError(t, err)
	content, err := store.GetBytes(t.Context(), o.Name)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.Equal(t, o.SHA256, hex.EncodeToString(sum[:]))
	var names []string
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if err != nil {
			return names
		}
		names = append(names, h.Name)
	}
}

// nothingLeft asserts that the backend has no machine, but for that of a probe,
// which an agent that goes on with runs does not wait for.
func (b *bench) nothingLeft(t *testing.T) {
	t.Helper()
	left, err := b.backend.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, slices.DeleteFunc(left, func(run string) bool { return strings.HasPrefix(run, "probe") }))
}

// brief is how a machine ended, without what differs from run to run.
func brief(a workflows.AgentResult) string {
	text := a.Name
	if a.Stopped {
		text += " stopped"
	}
	if a.Exit != nil {
		text += fmt.Sprintf(" exit %d%s", a.Exit.Code, a.Exit.Signal)
	}
	if a.FailureCode != "" {
		text += " " + a.FailureCode
	}
	if a.Results != nil {
		text += " collected"
	}
	return text
}

func briefs(res workflows.ExecuteRunResult) []string {
	var all []string
	for _, a := range res.Agents {
		all = append(all, brief(a))
	}
	return all
}

func TestMachinesOfATeamEndTogether(t *testing.T) {
	b := newBench(t)
	const (
		waits  = "while :; do sleep 0.05; done"
		server = "trap 'exit 0' TERM; busybox httpd -p 80; " + waits
		served = "until busybox wget -q -O - http://server/README >/dev/null 2>&1; do sleep 0.05; done; "
	)
	for name, c := range map[string]struct {
		agents       []workflows.AgentCommand
		failed, code string
		says         string
		ends         []string
	}{
		"success": {
			agents: []workflows.AgentCommand{
				deciding(member("author", 1, served+"echo a > author.txt")), deciding(member("critic", 2, "rm README; echo c > $TIDEWAIT_AGENT.txt")),
				member("server", 1, server), member("clerk", 1, waits),
			},
			ends: []string{
				"author exit 0 collected", "critic-1 exit 0 collected", "critic-2 exit 0 collected", "server stopped exit 0 collected", "clerk stopped",
			},
		},
		"failure": {
			agents: []workflows.AgentCommand{deciding(member("author", 1, waits)), deciding(member("critic", 2, served+"test $TIDEWAIT_REPLICA = 2 && exit 7; "+waits)), member("server", 1, server)},
			failed: "critic-2",
			ends:   []string{"author stopped", "critic-1 stopped", "critic-2 exit 7", "server stopped exit 0"},
		},
		"no such command": {
			agents: []workflows.AgentCommand{deciding(member("author", 1, waits)), {
				Name: "helper", Replicas: 1, Command: vm.Command{Argv: []string{"/nowhere/helper"}}, Machine: vm.Spec{CPUMilli: 500, MemoryMiB: 128, DiskMiB: 64},
			}},
			failed: "helper", code: "command_not_found", says: "machine helper: the command \"/nowhere/helper\" does not exist",
			ends: []string{"author stopped", "helper command_not_found"},
		},
		"too many results": {
			agents: []workflows.AgentCommand{member("author", 1, "echo a > a.txt"), member("critic", 1, "for i in $(seq 200); do echo > f$i; done")},
			failed: "critic", code: "results_too_large", says: "machine critic: ",
			ends: []string{"author exit 0", "critic exit 0 results_too_large"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := strings.ReplaceAll(name, " ", "-")

			res, err := b.Execute(t.Context(), b.team(run, c.agents...), nil)

			require.NoError(t, err)
			require.Equal(t, []string{c.failed, c.code}, []string{res.Failed, res.FailureCode})
			require.Truef(t, strings.HasPrefix(res.Failure, c.says), res.Failure)
			ends := briefs(res)
			if name == "too many results" { // the other may be quicker
				ends[0] = strings.TrimSuffix(ends[0], " collected")
			}
			for i := range ends { // some may not have begun
				ends[i] = strings.Replace(ends[i], " stopped exit 0SIGTERM", " stopped", 1)
			}
			require.Equal(t, c.ends, ends)
			if name == "success" {
				require.Equal(t, []string{"author.txt"}, b.files(t, res.Agents[0].Results))
				require.Equal(t, []string{"critic-2.txt"}, b.files(t, res.Agents[2].Results))
				require.Equal(t, []string{"README"}, res.Agents[2].Deleted)
				require.Equal(t, "success/critic-2", res.Agents[2].Results.Name)
			}
			b.nothingLeft(t)
		})
	}
}

// TestAMachineThatDoesNotStartLeavesNone has a machine whose id is too long.
func TestAMachineThatDoesNotStartLeavesNone(t *testing.T) {
	b := newBench(t)
	run := strings.Repeat("r", 500)

	res, err := b.Execute(t.Context(), b.team(run, deciding(member("author", 1, "true")), member("critic-with-a-name", 1, "true")), nil)

	require.NoError(t, err)
	require.Equal(t, []string{"critic-with-a-name", "boot_failed", "machine critic-with-a-name: a run id of 519 bytes cannot be used; 1 to 512 are allowed"},
		[]string{res.Failed, res.FailureCode, res.Failure})
	require.Equal(t, []string{"author stopped", "critic-with-a-name boot_failed"}, briefs(res))
	b.nothingLeft(t)
}

// said waits until every one of the machines of a run has printed ready.
func (b *bench) said(t *testing.T, run string, machines ...string) {
	t.Helper()
	consumer, err := b.js.OrderedConsumer(t.Context(), api.LogStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{api.SubjectLog("*", "port", 1, "review", run, "*")},
	})
	require.NoError(t, err)
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(machines) > 0 {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		require.NoError(t, err)
		if string(msg.Data()) == "ready" {
			who := msg.Subject()[strings.LastIndex(msg.Subject(), ".")+1:]
			machines = slices.DeleteFunc(machines, func(m string) bool { return m == who })
		}
	}
}

func TestATeamThatIsStopped(t *testing.T) {
	b := newBench(t)
	agents := []workflows.AgentCommand{
		deciding(member("one", 1, "echo half > one.txt; echo ready; while :; do sleep 0.05; done")),
		member("two", 1, "echo whole > two.txt; echo ready"),
		member("deaf", 1, "trap '' TERM; echo half > deaf.txt; echo ready; while :; do sleep 0.05; done"),
	}
	for name, c := range map[string]struct {
		keep bool
		says string
		ends []string
	}{
		"kept": {
			true, "nothing could be kept of deaf (the command did not end within its grace of 500ms)",
			[]string{"one stopped exit 0SIGTERM collected", "two exit 0 collected", "deaf stopped collect_failed"},
		},
		"not kept": {false, "enough", []string{"one stopped exit 0SIGTERM", "two exit 0", "deaf stopped"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := strings.ReplaceAll(name, " ", "-")
			ended := make(chan workflows.ExecuteRunResult, 1)
			go func() {
				res, err := b.Execute(context.WithoutCancel(t.Context()), b.team(run, agents...), nil)
				if err != nil {
					res.Failure = err.Error()
				}
				ended <- res
			}()
			b.said(t, run, "one", "two", "deaf")

			require.NoError(t, b.StopRun(run, "enough", c.keep))

			res := <-ended
			require.Equal(t, []any{"cancelled", c.says, c.keep}, []any{res.FailureCode, res.Failure, res.Partial})
			ends := briefs(res)
			ends[1] = strings.NewReplacer(" stopped", "", "SIGTERM", "").Replace(ends[1]) // it may have been on its way out
			require.Equal(t, c.ends, ends)
			b.nothingLeft(t)
		})
	}
}

// TestHeartbeatsTellOfEachMachine reads what the agent says while a run goes on.
func TestHeartbeatsTellOfEachMachine(t *testing.T) {
	b := newBench(t)
	beats := make(chan *nats.Msg, 100)
	sub, err := b.NATS.ChanSubscribe(api.SubjectNodeHeartbeats, beats)
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = b.Run(ctx, nil) }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Execute(ctx, b.team("r1-1", deciding(member("one", 1, "while :; do sleep 0.05; done")), member("two", 1, "exit 3")), nil)
	}()

	wanted := `"agents":[{"name":"one","step":"run","started":true,"accel":"none",`
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for told := ""; !strings.Contains(told, wanted) || !strings.Contains(told, `"ended":true,"exitCode":3}`); {
		select {
		case msg := <-beats:
			told = string(msg.Data)
			require.NoError(t, msg.Respond([]byte(`{"ok":{"state":"ready"}}`)))
		case <-deadline.C:
			t.Fatal("no heartbeat tells of both machines; the last one: " + told)
		}
	}
	stop()
	<-ended
	b.nothingLeft(t)
}
