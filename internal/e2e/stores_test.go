package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/local"
)

// searchStreams looks for the secrets in what NATS keeps: every message of every
// stream, with its headers, as the server sends it, for streams are compressed on the
// disk; every object of every bucket; and what is in those that are git bundles. The
// control is found in each kind.
func (p *product) searchStreams(s secrets, control string) {
	p.t.Helper()
	js, err := jetstream.New(p.nats)
	require.NoError(p.t, err)
	streams := map[string][]byte{}
	for info := range js.ListStreams(p.t.Context()).Info() {
		streams[info.Config.Name] = p.messages(js, info.Config.Name)
		p.noneIn(s, streams[info.Config.Name], "the stream "+info.Config.Name)
	}
	for name, planted := range map[string]string{
		api.LogStream: control, "OBJ_" + api.BucketResults("n1"): control, "OBJ_" + api.BucketWorkspaces: "a small workspace",
	} {
		require.Contains(p.t, string(streams[name]), planted, "the control: the search finds it in the stream %s", name)
	}
	for _, bucket := range []string{api.BucketBundles, api.BucketWorkspaces} {
		bundled := p.bundled(js, bucket)
		p.noneIn(s, bundled, "a bundle in "+bucket)
		require.Contains(p.t, string(bundled), map[string]string{api.BucketBundles: control, api.BucketWorkspaces: "a small workspace"}[bucket],
			"the control: the search finds it in the bundles of %s", bucket)
	}
}

// messages are all messages of a stream, with subjects and headers.
func (p *product) messages(js jetstream.JetStream, name string) []byte {
	p.t.Helper()
	stream, err := js.Stream(p.t.Context(), name)
	require.NoError(p.t, err)
	state := stream.CachedInfo().State
	var all bytes.Buffer
	for n := state.FirstSeq; n <= state.LastSeq && state.Msgs > 0; n++ {
		m, err := stream.GetMsg(p.t.Context(), n)
		if err != nil { // it was removed
			require.ErrorIs(p.t, err, jetstream.ErrMsgNotFound)
			continue
		}
		all.WriteString(m.Subject + "\n")
		fmt.Fprintln(&all, m.Header)
		all.Write(m.Data)
	}
	return all.Bytes()
}

// bundled are all git objects of the bundles in a bucket, which git compresses.
func (p *product) bundled(js jetstream.JetStream, bucket string) []byte {
	p.t.Helper()
	store, err := js.ObjectStore(p.t.Context(), bucket)
	require.NoError(p.t, err)
	objects, err := store.List(p.t.Context())
	require.NoError(p.t, err)
	// Each bundle may need those that were made before it.
	slices.SortFunc(objects, func(a, b *jetstream.ObjectInfo) int { return a.ModTime.Compare(b.ModTime) })
	repo, file := p.t.TempDir(), filepath.Join(p.t.TempDir(), "bundle")
	git := func(args ...string) []byte {
		out, err := exec.Command("git", append([]string{"--git-dir", repo}, args...)...).CombinedOutput()
		require.NoError(p.t, err, "%v: %s", args, out)
		return out
	}
	git("init", "--quiet", "--bare", repo)
	for _, o := range objects {
		data, err := store.GetBytes(p.t.Context(), o.Name)
		require.NoError(p.t, err)
		if !bytes.HasPrefix(data, []byte("# v")) {
			continue
		}
		require.NoError(p.t, os.WriteFile(file, data, 0o600))
		git("bundle", "unbundle", file)
	}
	return git("cat-file", "--batch-all-objects", "--batch")
}

// searchWhatIsSaid looks for the secrets in what processes say of themselves while
// they run: metrics, traces, and histories as the temporal command prints them. Each
// has something in it that the test has named.
func (p *product) searchWhatIsSaid(s secrets, control string, telemetry *collector) {
	p.t.Helper()
	var metrics strings.Builder
	for _, w := range []*local.Worker{p.engine, p.gateway, p.agent} {
		metrics.WriteString(get(p.t, w, "/metrics", "").body)
	}
	p.noneIn(s, []byte(metrics.String()), "the metrics")
	for _, named := range []string{`task_queue="node.n1"`, `task_queue="gateway.gw"`} {
		require.Contains(p.t, metrics.String(), named, "the control: the search finds it in the metrics")
	}

	var sent []byte
	p.eventually("what was traced and measured is sent", func() bool {
		telemetry.mu.Lock()
		defer telemetry.mu.Unlock()
		sent = slices.Clone(telemetry.bodies)
		return bytes.Contains(sent, []byte("mission.prints-process")) && bytes.Contains(sent, []byte("gateway.gw"))
	}, func() any { return len(sent) })
	p.noneIn(s, sent, "what is sent over OTLP")

	shown := p.printedHistories()
	p.noneIn(s, shown, "a history as the temporal command prints it")
	require.Contains(p.t, string(shown), control, "the control: the search finds it in a printed history")
}

// printedHistories are those of all workflows, as the temporal command prints them.
func (p *product) printedHistories() []byte {
	p.t.Helper()
	list, err := p.temporal.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{})
	require.NoError(p.t, err)
	var all []byte
	for _, e := range list.Executions {
		out, err := exec.CommandContext(p.t.Context(), devstacktest.TemporalCLI(p.t), "workflow", "show", "--output", "json", "--disable-config-file", "--disable-config-env",
			"--address", p.Stack.TemporalAddress, "-w", e.Execution.WorkflowId, "-r", e.Execution.RunId).Output()
		require.NoError(p.t, err)
		all = append(append(all, out...), payloadsOf(string(out))...)
	}
	return all
}
