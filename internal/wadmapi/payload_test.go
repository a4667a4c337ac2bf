package wadmapi_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/wadm"
)

// large is an application with so many scalers.
func large(name string, components int) string {
	list := make([]string, components)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"c%d","type":"component","properties":{"image":"registry.example.com/c:1"},`+
			`"traits":[{"type":"spreadscaler","properties":{"instances":1}}]}`, i)
	}
	return fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":%q,"annotations":{"version":"v1"}},`+
		`"spec":{"components":[%s]}}`, name, strings.Join(list, ","))
}

func deployAll(t *testing.T, a *api, n, components int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("app-%03d", i)
		a.put(t, large(name, components))
		require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.deploy."+name, "").Result)
	}
}

// setStatus writes what an application's workflow would.
func setStatus(t *testing.T, a *api, name string, status wadm.Status) {
	t.Helper()
	raw, err := json.Marshal(status)
	require.NoError(t, err)
	tag, err := a.db.Exec(t.Context(), `UPDATE applications SET status = $2, status_type = $3, status_message = $4 WHERE name = $1`,
		name, raw, string(status.Status.Type), status.Status.Message)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

func summaries(t *testing.T, reply string) []wadm.Summary {
	t.Helper()
	var list []wadm.Summary
	require.NoError(t, json.Unmarshal([]byte(reply), &list))
	return list
}

func TestScalersAreLeftOutFirst(t *testing.T) {
	const max = 16 << 10
	a := startAPI(t, options{maxPayload: max})
	deployAll(t, a, 4, 12)
	whole := summaries(t, a.ask(t, "model.list", `{"limit":2}`, nil))
	require.Len(t, whole[0].DetailedStatus.Scalers, 12)
	require.False(t, whole[0].DetailedStatus.Trimmed)

	for _, list := range [][]wadm.Summary{
		summaries(t, a.ask(t, "model.list", "", nil)), read[wadm.ListReply](t, a, "model.get", "").Models,
	} {
		require.Len(t, list, 4)
		for _, m := range list {
			require.Empty(t, m.DetailedStatus.Scalers)
			require.True(t, m.DetailedStatus.Trimmed)
			require.Equal(t, wadm.Waiting, m.DetailedStatus.Status.Type)
			require.Equal(t, "never_observed", m.DetailedStatus.Status.Reason)
			require.Equal(t, "no host of lattice default has been observed yet; nothing is started until one appears", m.DetailedStatus.Status.Message)
		}
	}
	got := read[wadm.ListReply](t, a, "model.get", "")
	require.Equal(t, "4 applications", got.Message)
	require.Zero(t, got.Total)
	require.Empty(t, got.Next)
}

func TestMessagesAreCutNext(t *testing.T) {
	const max = 16 << 10
	a := startAPI(t, options{maxPayload: max})
	for i := range 3 {
		name := fmt.Sprintf("app-%d", i)
		a.put(t, manifest(name, "v1"))
		setStatus(t, a, name, wadm.NewStatus(wadm.StatusInfo{Type: wadm.Failed, Message: strings.Repeat("é", 2000)}, nil))
	}
	list := summaries(t, a.ask(t, "model.list", "", nil))
	require.Len(t, list, 3)
	want := strings.Repeat("é", 48) + "…"
	require.Equal(t, want, list[0].DetailedStatus.Status.Message)
	require.Equal(t, want, *list[0].StatusMessage)
	require.Equal(t, wadm.Failed, list[0].Status)
	require.False(t, list[0].DetailedStatus.Trimmed, "there were no scalers to leave out")

	status := read[wadm.StatusReply](t, a, "model.status.app-1", "")
	require.Equal(t, strings.Repeat("é", 2000), status.Status.Status.Message, "one alone fits")
	setStatus(t, a, "app-1", wadm.NewStatus(wadm.StatusInfo{Type: wadm.Failed, Message: strings.Repeat("é", 20_000)}, nil))
	require.Equal(t, want, read[wadm.StatusReply](t, a, "model.status.app-1", "").Status.Status.Message)
}

func TestAListEndsEarlyLast(t *testing.T) {
	const max, applications = 16 << 10, 100
	log := &locked{}
	a := startAPI(t, options{maxPayload: max, log: slog.New(slog.NewTextHandler(log, nil))})
	deployAll(t, a, applications, 1)

	first := read[wadm.ListReply](t, a, "model.get", "")
	require.Equal(t, applications, first.Total)
	shown := len(first.Models)
	require.Greater(t, shown, 20)
	require.Less(t, shown, applications)
	require.Equal(t, fmt.Sprintf("app-%03d", shown-1), first.Next)
	require.Equal(t, fmt.Sprintf("%d of 100 applications; those behind next are asked for with after", shown), first.Message)

	bare := a.ask(t, "model.list", "", nil)
	require.LessOrEqual(t, len(bare), max)
	require.GreaterOrEqual(t, len(summaries(t, bare)), shown)
	require.Greater(t, len(bare), max-1000, "as many as fit")
	require.Contains(t, log.String(), "a list of applications ends early")

	// A client that knows the additions sees them all.
	all, err := wadm.Client{Conn: a.conn}.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, applications)
	for i, m := range all {
		require.Equal(t, fmt.Sprintf("app-%03d", i), m.Name)
	}
}

func TestTheNewestVersionsThatFit(t *testing.T) {
	const max, versions = 8 << 10, 300
	a := startAPI(t, options{maxPayload: max})
	for i := range versions {
		a.put(t, manifest("shop", fmt.Sprintf("v%03d", i)))
	}
	require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.deploy.shop", `{"version":"v007"}`).Result)
	text := a.ask(t, "model.versions.shop", "", nil)
	require.LessOrEqual(t, len(text), max)
	reply := read[wadm.VersionsReply](t, a, "model.versions.shop", "")
	require.Equal(t, versions, reply.Total)
	require.Equal(t, wadm.VersionInfo{Version: "v007", Deployed: true}, reply.Versions[0])
	rest := reply.Versions[1:]
	require.Greater(t, len(text), max-1200, "as many as fit")
	for i, v := range rest {
		require.Equal(t, wadm.VersionInfo{Version: fmt.Sprintf("v%03d", versions-len(rest)+i)}, v)
	}
	require.Equal(t, fmt.Sprintf("the newest %d of 300 versions of shop; more do not fit into a reply", len(rest)), reply.Message)

	require.Equal(t, "acknowledged", read[wadm.DeployReply](t, a, "model.deploy.shop", `{"version":"v299"}`).Result)
	require.Equal(t, wadm.VersionInfo{Version: "v299", Deployed: true}, read[wadm.VersionsReply](t, a, "model.versions.shop", "").Versions[len(rest)-1])
}

func TestAPutThatCouldNotBeToldIsRefused(t *testing.T) {
	const max = 16 << 10
	a := startAPI(t, options{maxPayload: max})
	// As YAML it is short.
	anchored := "apiVersion: core.oam.dev/v1beta1\nkind: Application\nmetadata: {name: shop, annotations: {version: v1}}\nspec:\n  components:\n" +
		"  - &c\n    name: c0\n    type: component\n    properties: {image: \"registry.example.com/c:1\"}\n" +
		"    traits: [{type: custom, properties: &p [" + strings.TrimSuffix(strings.Repeat("xxxxxxxxx, ", 300), ", ") + "]}]\n"
	for i := 1; i < 6; i++ {
		anchored += fmt.Sprintf("  - {name: c%d, type: component, properties: {image: \"i:1\"}, traits: [{type: custom, properties: *p}]}\n", i)
	}
	require.Less(t, len(anchored), 4<<10)
	reply := a.ask(t, "model.put", anchored, nil)
	require.Regexp(t, `^\{"result":"error","message":"the manifest in a reply or an event has 2\d{4} bytes and NATS takes 16384 \(too large\): raise max_payload of the NATS server"\}$`, reply)
	require.Equal(t, "[]", a.ask(t, "model.list", "", nil))

	fits := document("fits", `{"version":"v1","description":"`+strings.Repeat("d", max-4096-300)+`"}`)
	require.Equal(t, "created", a.put(t, fits).Result)
	require.Equal(t, "success", read[wadm.GetReply](t, a, "model.get.fits", "").Result)
	require.Len(t, summaries(t, a.ask(t, "model.list", "", nil)), 1)
}

// What was stored when the NATS server took more is answered with an error.
func TestAReplyThatCannotBeMadeSmaller(t *testing.T) {
	a := startAPI(t, options{maxPayload: 64 << 10})
	a.put(t, document("shop", `{"version":"v1","description":"`+strings.Repeat("d", 40<<10)+`"}`))
	small := &api{conn: natstest.Connect(t, natsServer(t, 16<<10).ClientURL())}
	small.natsURL = small.conn.ConnectedUrl()
	serveOn(t, a, small.natsURL)
	const want = `and NATS takes 16384 (too large): raise max_payload of the NATS server"}`
	require.Contains(t, small.ask(t, "model.get.shop", "", nil), want)
	require.Contains(t, small.ask(t, "model.list", "", nil), `{"result":"error","message":"not even one application fits into a reply: NATS takes 16384 bytes (too large)`)
	require.Contains(t, small.ask(t, "model.get", "", nil), `"models":[]`)
	require.Contains(t, small.ask(t, "model.versions.shop", "", nil), `"success"`)
}

// A put with more warnings than fit is still a put.
func TestWarningsThatDoNotFit(t *testing.T) {
	const max = 24 << 10
	a := startAPI(t, options{maxPayload: max})
	list := make([]string, 170)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"c%d","type":"component","properties":{"image":"registry.example.com/c:1"}}`, i)
	}
	text := a.ask(t, "model.put", fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"w","annotations":{"version":"v1"}},`+
		`"spec":{"components":[%s]}}`, strings.Join(list, ",")), nil)
	require.LessOrEqual(t, len(text), max)
	var reply wadm.PutReply
	require.NoError(t, json.Unmarshal([]byte(text), &reply))
	require.Equal(t, "created", reply.Result)
	shown := len(reply.Warnings) - 1
	require.Greater(t, shown, 20)
	require.Equal(t, "no-scaler", reply.Warnings[0].Rule)
	require.Equal(t, wadm.Warning{
		Rule: "trimmed", Message: fmt.Sprintf("%d more warnings left out: the reply would have been too large", 170-shown),
	}, reply.Warnings[shown])
}
