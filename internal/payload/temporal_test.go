package payload_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"tidewait/internal/codecserver"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/payload"
)

const (
	patience = time.Minute
	queue    = "q"
)

// site is a real Temporal, and what is asked of it in a test.
type site struct {
	t       *testing.T
	address string
	raw     client.Client // decrypts nothing
}

func startSite(t *testing.T) site {
	t.Helper()
	s := site{t: t, address: devstacktest.Start(t, devstack.Temporal).TemporalAddress}
	s.raw = s.client(nil)
	return s
}

// client has a codec and encodes failures; of nil it has neither.
func (s site) client(c *payload.Codec) client.Client {
	s.t.Helper()
	o := client.Options{HostPort: s.address, Namespace: devstack.Namespace, Logger: temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler))}
	if c != nil {
		o.DataConverter = payload.Converter(c)
		o.FailureConverter = payload.FailureConverter(o.DataConverter, c.EncryptsWith() != "")
	}
	tc, err := client.DialContext(s.t.Context(), o)
	require.NoError(s.t, err)
	s.t.Cleanup(tc.Close)
	return tc
}

// serve starts a worker that has the codec; the test or stop ends it.
func (s site) serve(c *payload.Codec) (stop func()) {
	s.t.Helper()
	w := worker.New(s.client(c), queue, worker.Options{StickyScheduleToStartTimeout: time.Second})
	w.RegisterWorkflow(collect)
	w.RegisterWorkflow(fail)
	w.RegisterActivityWithOptions(func(_ context.Context, word string) (string, error) { return "activity heard " + word, nil }, activity.RegisterOptions{Name: "echo"})
	require.NoError(s.t, w.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			w.Stop()
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// collect gathers words from signals and updates until there are as many as wanted,
// sorts them and lets an activity say the last one.
func collect(ctx workflow.Context, first string, wanted int) (string, error) {
	words := []string{first}
	workflow.SetCurrentDetails(ctx, "details of "+first)
	if err := workflow.SetQueryHandler(ctx, "words", func() (string, error) { return strings.Join(words, " "), nil }); err != nil {
		return "", err
	}
	if err := workflow.SetUpdateHandler(ctx, "say", func(_ workflow.Context, word string) (string, error) {
		words = append(words, word)
		return "took " + word, nil
	}); err != nil {
		return "", err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var word string
			workflow.GetSignalChannel(ctx, "word").Receive(ctx, &word)
			words = append(words, word)
		}
	})
	if err := workflow.Await(ctx, func() bool { return len(words) >= wanted }); err != nil {
		return "", err
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second, Summary: "summary of " + first})
	slices.Sort(words)
	var heard string
	err := workflow.ExecuteActivity(ctx, "echo", words[len(words)-1]).Get(ctx, &heard)
	return strings.Join(append(words, heard), " "), err
}

func fail(workflow.Context) error {
	return temporal.NewApplicationError("failed over the manatee", "Kind", "details of the manatee")
}

func (s site) start(c client.Client, id, first string, wanted int) {
	s.t.Helper()
	_, err := c.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: queue, StaticSummary: "summary of " + first, StaticDetails: "details of " + first, Memo: map[string]any{"memo": "memo of " + first},
	}, collect, first, wanted)
	require.NoError(s.t, err)
}

func (s site) result(c client.Client, id string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var text string
	require.NoError(s.t, c.GetWorkflow(ctx, id, "").Get(ctx, &text))
	return text
}

// history is all that the server has of a workflow.
func (s site) history(id string) (events []*historypb.HistoryEvent, raw []byte) {
	s.t.Helper()
	ctx := context.Background()
	for list := s.raw.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); list.HasNext(); {
		e, err := list.Next()
		require.NoError(s.t, err)
		b, err := proto.Marshal(e)
		require.NoError(s.t, err)
		events, raw = append(events, e), append(raw, b...)
	}
	desc, err := s.raw.DescribeWorkflow(ctx, id, "")
	require.NoError(s.t, err)
	b, err := proto.Marshal(desc.RawResponse)
	require.NoError(s.t, err)
	return events, append(raw, b...)
}

// TestNothingOfAWorkflowIsPlain looks for the words of a workflow in all that the
// server gives away of it, after it has found them there without encryption.
func TestNothingOfAWorkflowIsPlain(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	for _, encrypt := range []bool{false, true} {
		c := codec(t, encrypt, "k1")
		tc := s.client(c)
		stop := s.serve(c)
		id := map[bool]string{false: "plain", true: "secret"}[encrypt]
		s.start(tc, id, "walrus", 3)
		require.NoError(t, tc.SignalWorkflow(t.Context(), id, "", "word", "ocelot"))
		u, err := tc.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: id, UpdateName: "say", Args: []any{"pangolin"}, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		require.NoError(t, err)
		var reply string
		require.NoError(t, u.Get(t.Context(), &reply))
		require.Equal(t, "took pangolin", reply)
		require.Equal(t, "ocelot pangolin walrus activity heard walrus", s.result(tc, id))
		desc, err := tc.DescribeWorkflow(t.Context(), id, "")
		require.NoError(t, err)
		summary, err := desc.GetStaticSummary()
		require.NoError(t, err)
		require.Equal(t, "summary of walrus", summary)

		// What is asked of the workflow is not kept, and is encrypted as well.
		for _, query := range []string{"words", "__temporal_workflow_metadata"} {
			answer, err := s.raw.QueryWorkflow(t.Context(), id, "", query)
			require.NoError(t, err)
			var text string
			plainly := answer.Get(&text) == nil || query != "words"
			if encrypt {
				require.ErrorContains(t, answer.Get(&text), "encoding binary/encrypted: payload encoding is not supported", query)
			}
			require.True(t, encrypt || plainly, query)
		}

		failing, err := tc.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id + "-fails", TaskQueue: queue}, fail)
		require.NoError(t, err)
		err = failing.Get(t.Context(), nil)
		require.ErrorContains(t, err, "failed over the manatee")
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, "Kind", app.Type(), "what code decides on is not lost")
		stop()

		_, raw := s.history(id)
		_, failed := s.history(id + "-fails")
		for _, word := range []string{"walrus", "ocelot", "pangolin", "manatee"} {
			require.Equal(t, !encrypt, bytes.Contains(append(raw, failed...), []byte(word)), "%s with encryption %v", word, encrypt)
		}
	}
	s.showsItWithACodecServer(codec(t, true, "k1"))
}

// showsItWithACodecServer asks the temporal command for the encrypted workflow.
func (s site) showsItWithACodecServer(c *payload.Codec) {
	t := s.t
	t.Helper()
	server := httptest.NewServer(codecserver.Handler(codecserver.Options{Codec: c, Token: "sesame", Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	show := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), devstacktest.TemporalCLI(t), append([]string{
			"workflow", "show", "-w", "secret", "--address", s.address, "--disable-config-file", "--disable-config-env",
		}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return string(out)
	}
	for _, c := range []struct {
		args  []string
		reads bool
	}{
		{nil, false},
		{[]string{"--codec-endpoint", server.URL}, false},
		{[]string{"--codec-endpoint", server.URL, "--codec-auth", "Bearer sesame"}, true},
	} {
		text := show(c.args...)
		require.Equal(t, c.reads, strings.Contains(text, "ocelot pangolin walrus activity heard walrus"), "%v: %s", c.args, text)
		history := data(show(append(c.args, "--output", "json")...))
		for _, word := range []string{"walrus", "ocelot", "pangolin", "summary of walrus", "memo of walrus"} {
			require.Equal(t, c.reads, strings.Contains(history, word), "%v: %s", c.args, history)
		}
	}
}

var dataPattern = regexp.MustCompile(`"data": "([A-Za-z0-9+/=]*)"`)

// data is what the payloads of a history in JSON have, which is in base64 there.
func data(text string) string {
	var all strings.Builder
	for _, found := range dataPattern.FindAllStringSubmatch(text, -1) {
		part, _ := base64.StdEncoding.DecodeString(found[1])
		all.Write(append(part, '\n'))
	}
	return all.String()
}

// TestAMixedFleetLosesNothing starts workflows in plain text and goes on with them
// encrypted, beside a worker that has no key.
func TestAMixedFleetLosesNothing(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	without, with := codec(t, false), codec(t, true, "k1")
	stop := s.serve(without)
	s.start(s.client(without), "open", "walrus", 4)
	s.start(s.client(without), "updated", "walrus", 2)
	s.awaitEvent("open", enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
	s.awaitEvent("updated", enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)

	// A client that encrypts comes first. The worker without the key cannot read it,
	// and must not drop it.
	tc := s.client(with)
	require.NoError(t, tc.SignalWorkflow(t.Context(), "open", "", "word", "ocelot"))
	failure := s.awaitEvent("open", enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED).GetWorkflowTaskFailedEventAttributes()
	require.Contains(t, failure.GetFailure().GetMessage(), `the payload is encrypted with key "k1", and this process has none: add that key to temporal.encryption_keys`)
	s.start(tc, "new", "narwhal", 2)
	s.awaitEvent("new", enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED)
	say := func(word string) error {
		u, err := tc.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: "updated", UpdateName: "say", Args: []any{word}, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		if err == nil {
			err = u.Get(t.Context(), nil)
		}
		return err
	}
	require.ErrorContains(t, say("tapir"), `the payload is encrypted with key "k1"`, "an update is refused to whoever sent it")
	stop()

	s.serve(with)
	require.NoError(t, say("tapir"))
	require.Equal(t, "tapir walrus activity heard walrus", s.result(tc, "updated"))
	require.NoError(t, s.client(without).SignalWorkflow(t.Context(), "open", "", "word", "plain"), "from a client that does not encrypt yet")
	require.NoError(t, tc.SignalWorkflow(t.Context(), "new", "", "word", "lynx"))
	u, err := tc.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: "open", UpdateName: "say", Args: []any{"pangolin"}, WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	require.NoError(t, err)
	require.NoError(t, u.Get(t.Context(), nil))
	require.Equal(t, "ocelot pangolin plain walrus activity heard walrus", s.result(tc, "open"))
	require.Equal(t, "lynx narwhal activity heard narwhal", s.result(tc, "new"))
}

// awaitEvent waits until a workflow has an event of a kind, and returns the last.
func (s site) awaitEvent(id string, kind enumspb.EventType) (found *historypb.HistoryEvent) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		events, _ := s.history(id)
		for _, e := range events {
			if e.EventType == kind {
				found = e
			}
		}
		return found != nil
	}, patience, 50*time.Millisecond, "%s has no %s", id, kind)
	return found
}
