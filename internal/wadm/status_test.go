package wadm_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/wadm"
)

// encode is the JSON of v as it stands in a reply, with the three characters
// that encoding/json escapes written as they are.
func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text))
}

func row(name string, status wadm.StatusType, message string) wadm.ScalerStatus {
	return wadm.ScalerStatus{
		ID: "id of " + name, Kind: "SpreadScaler", Name: name,
		Status: wadm.StatusInfo{Type: status, Message: message},
	}
}

func rows(types ...wadm.StatusType) []wadm.ScalerStatus {
	var all []wadm.ScalerStatus
	for _, t := range types {
		all = append(all, row("x", t, ""))
	}
	return all
}

func TestAggregateTypes(t *testing.T) {
	for _, c := range []struct {
		want    wadm.StatusType
		scalers []wadm.StatusType
	}{
		{"deployed", []wadm.StatusType{"deployed", "deployed"}},
		{"undeployed", []wadm.StatusType{"undeployed", "undeployed"}},
		{"failed", []wadm.StatusType{"undeployed", "failed"}},
		{"undeployed", []wadm.StatusType{"reconciling", "undeployed"}},
		{"undeployed", []wadm.StatusType{"deployed", "undeployed"}},
		{"failed", []wadm.StatusType{"deployed", "reconciling", "undeployed", "failed"}},
		{"unhealthy", []wadm.StatusType{"deployed", "unhealthy"}},
		{"reconciling", []wadm.StatusType{"reconciling", "unhealthy"}},
		{"undeployed", nil},
		// Each against the next in precedence.
		{"failed", []wadm.StatusType{"undeployed", "failed"}},
		{"undeployed", []wadm.StatusType{"waiting", "undeployed"}},
		{"waiting", []wadm.StatusType{"reconciling", "waiting"}},
		{"reconciling", []wadm.StatusType{"unhealthy", "reconciling"}},
		{"unhealthy", []wadm.StatusType{"deployed", "unhealthy"}},
		{"waiting", []wadm.StatusType{"waiting"}},
		{"deployed", []wadm.StatusType{"deployed"}},
	} {
		got := wadm.Aggregate(rows(c.scalers...))
		require.Equal(t, c.want, got.Status.Type, "of %v", c.scalers)
		require.Len(t, got.Scalers, len(c.scalers))
	}
}

func TestAggregateMessages(t *testing.T) {
	got := wadm.Aggregate([]wadm.ScalerStatus{
		row("a", wadm.Failed, "  manifest unknown\n"),
		row("b", wadm.Deployed, ""),
		row("c", wadm.Reconciling, " \t"),
		row("d", wadm.Waiting, "no host has zone=eu"),
	})
	require.Equal(t, wadm.Failed, got.Status.Type)
	require.Equal(t, "manifest unknown, no host has zone=eu", got.Status.Message)
	require.Equal(t, "  manifest unknown\n", got.Scalers[0].Status.Message, "a row keeps its own words")
}

func TestAggregateSaysEachThingOnce(t *testing.T) {
	got := wadm.Aggregate([]wadm.ScalerStatus{
		row("a", wadm.Waiting, "no host is alive"),
		row("b", wadm.Waiting, " no host is alive "),
		row("c", wadm.Waiting, "no configuration"),
	})
	require.Equal(t, "no host is alive, no configuration", got.Status.Message)
}

func TestAggregateTakesAdditionsFromItsType(t *testing.T) {
	at := func(second int) *time.Time {
		moment := time.Date(2026, 3, 4, 5, 6, second, 0, time.UTC)
		return &moment
	}
	got := wadm.Aggregate([]wadm.ScalerStatus{
		{Status: wadm.StatusInfo{Type: wadm.Waiting, Reason: "no_eligible_host", Since: at(1)}},
		{Status: wadm.StatusInfo{Type: wadm.Failed}},
		{Status: wadm.StatusInfo{Type: wadm.Failed, Reason: "command_failed", Since: at(9), Attempt: 2, NextAttempt: at(20)}},
		{Status: wadm.StatusInfo{Type: wadm.Failed, Reason: "command_refused", Since: at(8), Attempt: 5, NextAttempt: at(30)}},
		{Status: wadm.StatusInfo{Type: wadm.Deployed, Attempt: 9}},
	})
	require.Equal(t, wadm.StatusInfo{
		Type: wadm.Failed, Reason: "command_failed", Since: at(8), Attempt: 5, NextAttempt: at(20),
	}, got.Status)
}

// What is said of an application is what is said of at least one scaler, and
// depends neither on their order nor on how often something is said.
func TestAggregateProperties(t *testing.T) {
	rank := map[wadm.StatusType]int{"failed": 0, "undeployed": 1, "waiting": 2, "reconciling": 3, "unhealthy": 4, "deployed": 5}
	types := rapid.SampledFrom([]wadm.StatusType{"failed", "undeployed", "waiting", "reconciling", "unhealthy", "deployed"})
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(types, 1, 8).Draw(t, "types")
		want := 5
		for _, s := range drawn {
			want = min(want, rank[s])
		}
		require.Equal(t, want, rank[wadm.Aggregate(rows(drawn...)).Status.Type])
		mixed := rapid.Permutation(append(drawn, drawn...)).Draw(t, "mixed")
		require.Equal(t, want, rank[wadm.Aggregate(rows(mixed...)).Status.Type])
	})
}

func TestStatusTypeIsAClosedSet(t *testing.T) {
	for text, want := range map[string]wadm.StatusType{
		`"waiting"`: wadm.Waiting, `"undeployed"`: wadm.Undeployed, `"reconciling"`: wadm.Reconciling,
		`"deployed"`: wadm.Deployed, `"failed"`: wadm.Failed, `"unhealthy"`: wadm.Unhealthy,
		`"compensating"`: wadm.Reconciling, `"ready"`: wadm.Deployed,
	} {
		var got wadm.StatusType
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{`""`, `"Deployed"`, `"degraded"`, `7`} {
		var got wadm.StatusType
		require.Error(t, json.Unmarshal([]byte(text), &got), text)
	}

	for want, status := range map[string]wadm.StatusType{
		`"waiting"`: wadm.Waiting, `"undeployed"`: wadm.Undeployed, `"reconciling"`: wadm.Reconciling,
		`"deployed"`: wadm.Deployed, `"failed"`: wadm.Failed, `"unhealthy"`: wadm.Unhealthy,
	} {
		require.Equal(t, want, encode(t, status))
	}
	require.Equal(t, `"undeployed"`, encode(t, wadm.StatusType("")), "what is not known yet is undeployed")
	for _, unknown := range []wadm.StatusType{"compensating", "ready", "degraded", "Failed"} {
		_, err := json.Marshal(unknown)
		require.ErrorContains(t, err, "is not a status type")
	}
}

func TestStatusJSON(t *testing.T) {
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	next := since.Add(4 * time.Second)
	for _, c := range []struct {
		about  string
		status wadm.Status
		want   string
	}{
		{
			"not deployed", wadm.NotDeployed(),
			`{"status":{"type":"undeployed"},"version":"","components":[]}`,
		},
		{
			"nothing said",
			wadm.Status{},
			`{"status":{"type":"undeployed"},"version":"","components":[]}`,
		},
		{
			"an empty list of scalers is left out", wadm.NewStatus(wadm.StatusInfo{Type: wadm.Deployed}, []wadm.ScalerStatus{}),
			`{"status":{"type":"deployed"},"version":"","components":[]}`,
		},
		{
			"failed", wadm.Aggregate([]wadm.ScalerStatus{
				row("shop_front-api", wadm.Failed, "manifest unknown"),
				row("shop_front-web -(wasi:http)-> shop_front-api", wadm.Deployed, ""),
			}),
			`{"status":{"type":"failed","message":"manifest unknown"},"scalers":[` +
				`{"id":"id of shop_front-api","kind":"SpreadScaler","name":"shop_front-api",` +
				`"status":{"type":"failed","message":"manifest unknown"}},` +
				`{"id":"id of shop_front-web -(wasi:http)-> shop_front-api","kind":"SpreadScaler",` +
				`"name":"shop_front-web -(wasi:http)-> shop_front-api","status":{"type":"deployed"}}],` +
				`"version":"","components":[]}`,
		},
		{
			"waiting", wadm.AllWaiting([]wadm.ScalerStatus{row("a", "", "")}, "never_observed", "no host yet", since),
			`{"status":{"type":"waiting","message":"no host yet","reason":"never_observed","since":"2026-03-04T05:06:07Z"},` +
				`"scalers":[{"id":"id of a","kind":"SpreadScaler","name":"a","status":` +
				`{"type":"waiting","message":"no host yet","reason":"never_observed","since":"2026-03-04T05:06:07Z"}}],` +
				`"version":"","components":[]}`,
		},
		{
			"every addition",
			wadm.Status{
				Status: wadm.StatusInfo{
					Type: wadm.Failed, Message: "m", Reason: "command_failed", Since: &since, Attempt: 3, NextAttempt: &next,
				},
				Trimmed: true,
			},
			`{"status":{"type":"failed","message":"m","reason":"command_failed","since":"2026-03-04T05:06:07Z",` +
				`"attempt":3,"nextAttempt":"2026-03-04T05:06:11Z"},"version":"","components":[],"trimmed":true}`,
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			require.Equal(t, c.want, encode(t, c.status))
			var back wadm.Status
			require.NoError(t, json.Unmarshal([]byte(c.want), &back))
			require.Equal(t, c.want, encode(t, back), "not the same after decoding")
		})
	}
}

func TestStatusesOfOtherServersDecode(t *testing.T) {
	for about, text := range map[string]string{
		"unknown fields":   `{"status":{"type":"deployed","cause":"x"},"scalers":[],"version":"","components":[],"more":1}`,
		"absent fields":    `{"status":{"type":"deployed"}}`,
		"nulls":            `{"status":{"type":"deployed"},"scalers":null,"components":null}`,
		"old spelling":     `{"status":{"type":"ready"},"version":"","components":[]}`,
		"legacy component": `{"status":{"type":"deployed"},"version":"","components":[{"name":"a","type":"actor","status":{"type":"ready"}}]}`,
	} {
		var got wadm.Status
		require.NoError(t, json.Unmarshal([]byte(text), &got), about)
		require.Equal(t, wadm.Deployed, got.Status.Type, about)
	}
}

// Rows are stored before anybody knows how the scalers are.
func TestRowsWithoutStatusCanBeStored(t *testing.T) {
	text := encode(t, []wadm.ScalerStatus{row("a", "", "")})
	require.Equal(t, `[{"id":"id of a","kind":"SpreadScaler","name":"a","status":{"type":"undeployed"}}]`, text)
	var back []wadm.ScalerStatus
	require.NoError(t, json.Unmarshal([]byte(text), &back))
	require.Equal(t, "id of a", back[0].ID)
}

func TestAllWaitingLeavesItsInput(t *testing.T) {
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	in := []wadm.ScalerStatus{row("a", "", ""), row("b", wadm.Deployed, "")}
	got := wadm.AllWaiting(in, "no_live_hosts", "no host is alive", since)

	require.Equal(t, wadm.StatusInfo{Type: wadm.Waiting, Message: "no host is alive", Reason: "no_live_hosts", Since: &since}, got.Status)
	require.Equal(t, "a", got.Scalers[0].Name)
	require.Equal(t, got.Status, got.Scalers[1].Status)
	require.Equal(t, wadm.Deployed, in[1].Status.Type)
}

func TestSummarizeWritesTheDeprecatedFields(t *testing.T) {
	for _, c := range []struct{ status, legacy wadm.StatusType }{
		{wadm.Waiting, wadm.Undeployed},
		{wadm.Undeployed, wadm.Undeployed},
		{wadm.Reconciling, wadm.Reconciling},
		{wadm.Deployed, wadm.Deployed},
		{wadm.Failed, wadm.Failed},
		{wadm.Unhealthy, wadm.Unhealthy},
	} {
		got := wadm.Summarize("shop", "v1", nil, nil, wadm.NewStatus(wadm.StatusInfo{Type: c.status, Message: "m"}, nil))
		require.Equal(t, c.legacy, got.Status)
		require.Equal(t, c.status, got.DetailedStatus.Status.Type)
		require.Equal(t, "m", *got.StatusMessage)
	}
}

func TestSummaryJSON(t *testing.T) {
	description, deployed := "storefront", "v1"
	require.Equal(t,
		`{"name":"shop-front","version":"v2","description":"storefront","deployed_version":"v1",`+
			`"detailed_status":{"status":{"type":"reconciling","message":"scaling on 1 host"},"version":"","components":[]},`+
			`"status":"reconciling","status_message":"scaling on 1 host"}`,
		encode(t, wadm.Summarize("shop-front", "v2", &description, &deployed,
			wadm.NewStatus(wadm.StatusInfo{Type: wadm.Reconciling, Message: "scaling on 1 host"}, nil))))

	require.Equal(t,
		`{"name":"batch","version":"01JY8Z6Q0V9GJ5C5V2C2T6YQ3N","description":null,"deployed_version":null,`+
			`"detailed_status":{"status":{"type":"undeployed"},"version":"","components":[]},`+
			`"status":"undeployed","status_message":""}`,
		encode(t, wadm.Summarize("batch", "01JY8Z6Q0V9GJ5C5V2C2T6YQ3N", nil, nil, wadm.NotDeployed())))
}
