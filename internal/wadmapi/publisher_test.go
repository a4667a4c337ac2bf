package wadmapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/natstest"
	"tidewait/internal/wadmapi"
)

func publisher(t testing.TB, url string) (*wadmapi.Publisher, jetstream.JetStream) {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t, url))
	require.NoError(t, err)
	return &wadmapi.Publisher{JS: js}, js
}

func streamConfig(t testing.TB, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	require.NoError(t, err)
	return stream.CachedInfo().Config
}

var (
	shop      = ledger.AppKey{Account: ledger.DefaultAccount, Lattice: "default", Name: "shop"}
	committed = time.Date(2026, 2, 1, 10, 0, 0, 123456000, time.UTC)
)

func statusNews(id, revision int64, body string) ledger.News {
	return ledger.News{ID: id, Key: shop, Kind: ledger.NewsStatus, Revision: revision, Payload: json.RawMessage(body), At: committed}
}

func lastMessage(t testing.TB, js jetstream.JetStream, stream, subject string) *jetstream.RawStreamMsg {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	require.NoError(t, err)
	msg, err := s.GetLastMsgForSubject(t.Context(), subject)
	require.NoError(t, err)
	return msg
}

func TestTheStreamsAreAsWadmMakesThem(t *testing.T) {
	p, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	require.NoError(t, p.EnsureStreams(t.Context()))
	require.NoError(t, p.EnsureStreams(t.Context()), "they are there already")

	status := streamConfig(t, js, "wadm_status")
	require.Equal(t, []string{"wadm.status.*.*"}, status.Subjects)
	require.EqualValues(t, 10, status.MaxMsgsPerSubject)
	require.True(t, status.AllowDirect)
	require.Zero(t, status.MaxAge)
	require.Equal(t, jetstream.LimitsPolicy, status.Retention)
	require.Equal(t, jetstream.FileStorage, status.Storage)

	events := streamConfig(t, js, "wadm_events")
	require.Equal(t, []string{"wadm.evt.*.>"}, events.Subjects)
	require.Equal(t, 70*time.Second, events.MaxAge)
	require.Equal(t, jetstream.LimitsPolicy, events.Retention)
}

func TestStreamsOfAFormerWadmAreAdopted(t *testing.T) {
	ctx := t.Context()
	p, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	former := jetstream.StreamConfig{
		Name: "wadm_status", Subjects: []string{"wadm.status.*.*"}, Description: "a former wadm's", MaxMsgsPerSubject: 3,
		Storage: jetstream.MemoryStorage, MaxBytes: 1 << 20,
	}
	_, err := js.CreateStream(ctx, former)
	require.NoError(t, err)
	_, err = js.Publish(ctx, "wadm.status.default.shop", []byte(`{"status":{"type":"deployed"},"version":"","components":[]}`))
	require.NoError(t, err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "wadm_events", Subjects: []string{"wadm.evt.>"}, MaxAge: time.Hour})
	require.NoError(t, err)

	require.NoError(t, p.EnsureStreams(ctx))
	status := streamConfig(t, js, "wadm_status")
	require.True(t, status.AllowDirect, "what readers need and it lacked")
	require.Equal(t, "a former wadm's", status.Description)
	require.EqualValues(t, 3, status.MaxMsgsPerSubject)
	require.EqualValues(t, 1<<20, status.MaxBytes)
	require.Equal(t, jetstream.MemoryStorage, status.Storage)
	require.Equal(t, []string{"wadm.evt.>"}, streamConfig(t, js, "wadm_events").Subjects, "it takes the events already")

	// What the former wadm said last is older than any news.
	require.NoError(t, p.Publish(ctx, statusNews(1, 1, `{"status":{"type":"undeployed"},"version":"","components":[]}`)))
	last := lastMessage(t, js, "wadm_status", "wadm.status.default.shop")
	require.EqualValues(t, 2, last.Sequence)
	require.JSONEq(t, `{"status":{"type":"undeployed"},"version":"","components":[]}`, string(last.Data))
}

func TestAStatusIsPublished(t *testing.T) {
	ctx := t.Context()
	p, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	watched, err := js.Conn().SubscribeSync("wadm.status.default.shop")
	require.NoError(t, err)

	body := `{"status":{"type":"waiting","message":"no <host> & no end"},"version":"","components":[]}`
	require.NoError(t, p.Publish(ctx, statusNews(11, 7, body)))
	seen, err := watched.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, body, string(seen.Data), "a subscriber without JetStream gets the status and nothing around it")
	require.Equal(t, "7", seen.Header.Get("Tidewait-Revision"))

	last := lastMessage(t, js, "wadm_status", "wadm.status.default.shop")
	require.EqualValues(t, 1, last.Sequence)
	require.Equal(t, body, string(last.Data))

	// Said again, or in other words: nothing.
	require.NoError(t, p.Publish(ctx, statusNews(11, 7, body)))
	require.NoError(t, p.Publish(ctx, statusNews(12, 8, `{"components":[], "version":"", "status":{"message":"no <host> & no end","type":"waiting"}}`)))
	require.EqualValues(t, 1, lastMessage(t, js, "wadm_status", "wadm.status.default.shop").Sequence)
}

func TestALateStatusOverwritesNothing(t *testing.T) {
	ctx := t.Context()
	p, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	subject := "wadm.status.default.shop"
	state := func() string { return string(lastMessage(t, js, "wadm_status", subject).Data) }

	require.NoError(t, p.Publish(ctx, statusNews(20, 5, `"five"`)))
	require.NoError(t, p.Publish(ctx, statusNews(10, 4, `"four"`)), "an older revision")
	require.Equal(t, `"five"`, state())
	require.NoError(t, p.Publish(ctx, statusNews(19, 5, `"five, before"`)), "an earlier status of the same revision")
	require.Equal(t, `"five"`, state())
	require.NoError(t, p.Publish(ctx, statusNews(21, 5, `"five, later"`)))
	require.Equal(t, `"five, later"`, state())

	// A database that was restored numbers from where its copy was.
	restored := statusNews(3, 2, `"two, a day later"`)
	restored.At = committed.Add(24 * time.Hour)
	require.NoError(t, p.Publish(ctx, restored))
	require.Equal(t, `"two, a day later"`, state())
}

// Many processes publish statuses of one application in any order, at the same
// time: the stream never goes back, and the newest is the last.
func TestStatusesInAnyOrderAtOnce(t *testing.T) {
	url := natsServer(t, natsDefaultPayload).ClientURL()
	first, js := publisher(t, url)
	require.NoError(t, first.EnsureStreams(t.Context()))
	const publishers, revisions = 4, 12
	errs := make(chan error, publishers*revisions)
	var wg sync.WaitGroup
	for range publishers {
		p, _ := publisher(t, url)
		wg.Go(func() {
			for revision := range int64(revisions) {
				errs <- p.Publish(t.Context(), statusNews(revision, revision, fmt.Sprintf(`{"n":%d}`, revision)))
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	stream, err := js.Stream(t.Context(), "wadm_status")
	require.NoError(t, err)
	require.EqualValues(t, 10, stream.CachedInfo().State.Msgs)
	var before int
	for sequence := stream.CachedInfo().State.FirstSeq; sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(t.Context(), sequence)
		require.NoError(t, err)
		var status struct{ N int }
		require.NoError(t, json.Unmarshal(msg.Data, &status))
		require.Greater(t, status.N, before)
		before = status.N
	}
	require.Equal(t, revisions-1, before)
}

func TestEvents(t *testing.T) {
	ctx := t.Context()
	p, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	watched, err := js.Conn().SubscribeSync("wadm.evt.default.>")
	require.NoError(t, err)
	published := ledger.News{
		ID: 1, Key: shop, Kind: ledger.NewsPublished, Revision: 7, At: committed,
		Payload: json.RawMessage(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"shop"},"spec":{"components":[]}}`),
	}
	require.NoError(t, p.Publish(ctx, published))
	seen, err := watched.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "wadm.evt.default.manifest_published", seen.Subject)
	const id = "933c693d-023a-5422-9a53-118641831443"
	require.Equal(t, `{"specversion":"1.0","id":"`+id+`","type":"com.wadm.manifest_published","source":"wadm",`+
		`"datacontenttype":"application/json","time":"2026-02-01T10:00:00.123456Z",`+
		`"data":{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"shop"},"spec":{"components":[]}}}`,
		string(seen.Data))

	require.NoError(t, p.Publish(ctx, published), "told again")
	unpublished := ledger.News{ID: 2, Key: shop, Kind: ledger.NewsUnpublished, Revision: 8, At: committed, Payload: json.RawMessage("{}")}
	require.NoError(t, p.Publish(ctx, unpublished))
	last := lastMessage(t, js, "wadm_events", "wadm.evt.default.manifest_unpublished")
	require.EqualValues(t, 2, last.Sequence, "what is told again is in the stream once")
	var event struct {
		ID   string
		Data json.RawMessage
	}
	require.NoError(t, json.Unmarshal(last.Data, &event))
	require.Equal(t, `{"name":"shop"}`, string(event.Data))
	require.NotEqual(t, id, event.ID)

	require.ErrorContains(t, p.Publish(ctx, ledger.News{Key: shop, Kind: ledger.NewsRevised}), `news of kind "revised" are not for NATS`)
}

// wadm's way to tell accounts apart is a wildcard, which NATS does not allow.
func TestNATSRefusesAWildcardForTheAccount(t *testing.T) {
	_, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	for _, subject := range []string{"*.wadm.status.*.*", "*.wadm.evt.*.>", "$JS.wadm.status.*.*", "$SYS.wadm.evt.*.>", "$NRG.wadm.status.*.*", "$JSC.wadm.evt.*.>"} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{subject}})
		require.ErrorContains(t, err, "overlap", subject)
	}
}

func TestAccountsHaveSubjectsOfTheirOwn(t *testing.T) {
	ctx := t.Context()
	url := natsServer(t, natsDefaultPayload).ClientURL()
	p, js := publisher(t, url)
	p.Multitenant = true
	require.NoError(t, p.EnsureStreams(ctx))
	// A subscriber hears what no stream takes, so that nobody says there is none.
	_, err := js.Conn().SubscribeSync("*.wadm.>")
	require.NoError(t, err)

	for i, account := range []string{"ACME", "$G", "default", "ACME"} {
		n := statusNews(int64(i), int64(i), fmt.Sprintf(`"%d"`, i))
		n.Key.Account = account
		require.NoError(t, p.Publish(ctx, n))
		require.Equal(t, fmt.Sprintf(`"%d"`, i), string(lastMessage(t, js, "wadm_status", account+".wadm.status.default.shop").Data))
		n.Kind, n.Payload = ledger.NewsUnpublished, nil
		require.NoError(t, p.Publish(ctx, n))
		lastMessage(t, js, "wadm_events", account+".wadm.evt.default.manifest_unpublished")
	}
	require.Equal(t, []string{"default.wadm.status.*.*", "ACME.wadm.status.*.*", "$G.wadm.status.*.*"},
		streamConfig(t, js, "wadm_status").Subjects)
	require.Equal(t, []string{"default.wadm.evt.*.>", "ACME.wadm.evt.*.>", "$G.wadm.evt.*.>"},
		streamConfig(t, js, "wadm_events").Subjects)
}

// Streams that are deleted while the publisher runs are made again.
func TestStreamsComeBack(t *testing.T) {
	ctx := t.Context()
	p, js := publisher(t, natsServer(t, natsDefaultPayload).ClientURL())
	require.NoError(t, p.EnsureStreams(ctx))
	require.NoError(t, js.DeleteStream(ctx, "wadm_status"))
	require.NoError(t, js.DeleteStream(ctx, "wadm_events"))
	require.Error(t, p.Publish(ctx, statusNews(1, 1, `"one"`)))
	require.NoError(t, p.Publish(ctx, statusNews(1, 1, `"one"`)))
	require.Equal(t, `"one"`, string(lastMessage(t, js, "wadm_status", "wadm.status.default.shop").Data))

	require.NoError(t, js.DeleteStream(ctx, "wadm_events"))
	// With a subscriber the publish is not refused; it waits for an answer.
	_, err := js.Conn().SubscribeSync("wadm.evt.>")
	require.NoError(t, err)
	gone := ledger.News{ID: 2, Key: shop, Kind: ledger.NewsUnpublished, Revision: 2, At: committed}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	require.Error(t, p.Publish(short, gone))
	require.NoError(t, p.Publish(ctx, gone))
	lastMessage(t, js, "wadm_events", "wadm.evt.default.manifest_unpublished")
}

func TestNewsThatAreTooLarge(t *testing.T) {
	ctx := t.Context()
	p, js := publisher(t, natsServer(t, 16<<10).ClientURL())
	large := ledger.News{ID: 1, Key: shop, Kind: ledger.NewsPublished, Revision: 1, At: committed}
	large.Payload = json.RawMessage(`{"a":"` + strings.Repeat("x", 15<<10) + `"}`)
	require.ErrorIs(t, p.Publish(ctx, large), wadmapi.ErrTooLarge)

	rows := make([]string, 100)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"%064d","kind":"SpreadScaler","name":"n","status":{"type":"waiting","message":"m"}}`, i)
	}
	status := statusNews(2, 2, `{"status":{"type":"waiting","message":"m","reason":"never_observed"},"scalers":[`+strings.Join(rows, ",")+`],"version":"","components":[]}`)
	require.NoError(t, p.Publish(ctx, status))
	require.Equal(t, `{"status":{"type":"waiting","message":"m","reason":"never_observed"},"version":"","components":[],"trimmed":true}`,
		string(lastMessage(t, js, "wadm_status", "wadm.status.default.shop").Data))
}
