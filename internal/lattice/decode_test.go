package lattice_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

var shopLink = scaler.Link{
	Source: "shop_front-web", Target: "shop_front-api", Name: "default", Namespace: "wasi", Package: "http",
	Interfaces: []string{"incoming-handler"}, SourceConfig: []string{"shop_front-listen"}, TargetConfig: []string{},
}

func TestDecodeEventReadsWhatARealHostPublishes(t *testing.T) {
	component := lattice.Entry{ID: "shop_front-api", Image: "file:///art/hello-a.wasm", Count: 2, Annotations: annotations("s1")}
	stopped := component
	stopped.Image, stopped.Count = "file:///art/hello-b.wasm", 0
	labels := map[string]string{"hostcore.arch": "x86_64", "hostcore.os": "linux", "hostcore.osfamily": "unix", "zone": "eu"}
	fewer := map[string]string{"hostcore.arch": "x86_64", "hostcore.os": "linux", "zone": "eu"}
	failing := scaler.Link{
		Source: "shop_front-web", Target: "shop_front-api", Name: "default", Namespace: "wasi", Package: "http",
		Interfaces: []string{"incoming-handler"}, SourceConfig: []string{"shop_front-listen"}, TargetConfig: []string{"nope"},
	}
	want := []any{
		lattice.HostStarted{Name: "falling-lake-1169", Labels: labels, Version: "1.9.2"},
		lattice.HostHeartbeat{Inventory: lattice.Inventory{Host: host1, Name: "falling-lake-1169", Labels: fewer, Version: "1.9.2", Uptime: 30 * time.Second}},
		lattice.HostHeartbeat{Inventory: lattice.Inventory{
			Host: host1, Name: "falling-lake-1169", Labels: fewer, Version: "1.9.2", Uptime: 90 * time.Second, Components: []lattice.Entry{component},
		}},
		lattice.HostStopped{},
		lattice.ComponentScaled{Entry: component},
		lattice.ComponentScaled{Entry: lattice.Entry{ID: "signed", Image: "file:///art/hello-signed.wasm", Count: 1, Annotations: annotations("s1")}},
		lattice.ComponentScaled{Entry: stopped},
		lattice.ComponentScaleFailed{
			Entry: lattice.Entry{ID: "fail-0", Image: "file:///art/nofile.wasm", Count: 1, Annotations: annotations("s1")},
			Error: "failed to fetch component: failed to read component: No such file or directory (os error 2)",
		},
		lattice.ComponentScaleFailed{
			Entry: lattice.Entry{ID: "signed", Image: "file:///art/hello-signed.wasm", Count: 1, Annotations: annotations("s1")},
			Error: "Unable to fetch requested config: Config nosuch does not exist",
		},
		lattice.ComponentScaleFailed{
			Entry: lattice.Entry{ID: "oci", Image: "127.0.0.1:15000/missing/api:1.0.0", Count: 1, Annotations: annotations("s1")},
			Error: "failed to fetch component: failed to fetch component under OCI reference `127.0.0.1:15000/missing/api:1.0.0`: failed to fetch OCI path: failed to fetch OCI bytes: Registry error: url http://127.0.0.1:15000/v2/missing/api/manifests/1.0.0, envelope: OCI API errors: [OCI API error: manifest unknown]",
		},
		lattice.ProviderStarted{Entry: lattice.Entry{ID: "shop_front-web", Image: "/art/http-server.par", Count: 1, Annotations: annotations("s7")}},
		lattice.ProviderStarted{Entry: lattice.Entry{ID: "nover", Image: "/art/sleeper-nover.par", Count: 1, Annotations: annotations("s7")}},
		lattice.ProviderStarted{Entry: lattice.Entry{ID: "bi", Image: "http-server", Count: 1, Annotations: annotations("s7")}},
		lattice.ProviderStartFailed{
			ID: "shop_front-web", Image: "file:///art/nofile.par",
			Error: "failed to fetch provider: failed to read provider: failed to load provider archive: failed to load target [x86_64-linux] from PAR from file [/art/nofile.par]: No such file or directory (os error 2)",
		},
		lattice.ProviderStopped{ID: "shop_front-web", Reason: "stop"},
		lattice.ProviderHealth{ID: "sl-tttf", Health: lattice.Healthy},
		lattice.ProviderHealth{ID: "sl-fft", Health: lattice.HealthUnknown},
		lattice.ProviderHealth{ID: "sl-tttf", Health: lattice.Unhealthy},
		lattice.LinkSet{Link: shopLink},
		lattice.LinkSetFailed{
			Link:  failing,
			Error: "Failed to validate configuration and secrets. Configuration shop_front-listen not found in config store. Configuration nope not found in config store. ",
		},
		lattice.LinkDeleted{Tuple: shopLink.Tuple()},
		lattice.LinkDeleted{Tuple: scaler.Tuple{Source: "shop_front-web", Name: "default", Namespace: "wasi", Package: "http"}},
		lattice.ConfigSet{Name: "shop_front-settings"},
		lattice.ConfigDeleted{Name: "shop_front-settings"},
		lattice.LabelsChanged{Labels: map[string]string{"hostcore.arch": "x86_64", "hostcore.os": "linux", "hostcore.osfamily": "unix", "tier": "silver", "zone": "eu"}},
	}
	messages := capturedEvents(t)
	require.Len(t, messages, len(want))
	for i, w := range want {
		e, err := lattice.DecodeEvent([]byte(messages[i]))
		require.NoError(t, err)
		require.Equal(t, w, e.Data)
	}

	e, err := lattice.DecodeEvent([]byte(messages[0]))
	require.NoError(t, err)
	require.Equal(t, "01a22c8d-9ceb-9e92-127e-f4c06654d31b", e.ID)
	require.Equal(t, "host_started", e.Type)
	require.Equal(t, host1, e.Host)
	require.Equal(t, time.Date(2026, 11, 30, 13, 3, 27, 979006777, time.UTC), e.Time)
}

// event makes a message of a type and data.
func event(kind, data string) string {
	return `{"specversion":"1.0","id":"1","type":"com.wasmcloud.lattice.` + kind + `","source":"NA","time":"2026-11-30T13:03:27Z","data":` + data + `}`
}

func TestDecodeEventTakesWhatOtherHostsMayPublish(t *testing.T) {
	for _, c := range []struct {
		name, message string
		want          any
	}{
		{
			"fields that are not known", event("config_set", `{"config_name":"a","more":[{"x":1}]}`),
			lattice.ConfigSet{Name: "a"},
		},
		{
			"components under their old name", event("host_heartbeat", `{"actors":[{"id":"a","max_instances":1}]}`),
			lattice.HostHeartbeat{Inventory: lattice.Inventory{Host: "NA", Components: []lattice.Entry{{ID: "a", Count: 1}}}},
		},
		{
			"the data of another host", event("component_scaled", `{"component_id":"a","host_id":"NB","max_instances":4294967295,"annotations":null}`),
			lattice.ComponentScaled{Entry: lattice.Entry{ID: "a", Count: 4294967295}},
		},
		{
			"an entry twice, and one without instances", event("host_heartbeat", `{"components":[{"id":"a","max_instances":1},{"id":"a","max_instances":2},{"id":"b","max_instances":0}],"providers":[{"id":"a"},{"id":"a"}]}`),
			lattice.HostHeartbeat{Inventory: lattice.Inventory{
				Host: "NA", Components: []lattice.Entry{{ID: "a", Count: 1}}, Providers: []lattice.Entry{{ID: "a", Count: 1}},
			}},
		},
		{
			"a link without a name", event("linkdef_set", `{"source_id":"a","target":"b","wit_namespace":"wasi","wit_package":"http","interfaces":[]}`),
			lattice.LinkSet{Link: scaler.Link{Source: "a", Target: "b", Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{}}},
		},
		{
			"data in base64",
			`{"id":"1","type":"com.wasmcloud.lattice.config_deleted","source":"NA","data_base64":"` + base64.StdEncoding.EncodeToString([]byte(`{"config_name":"a"}`)) + `"}`,
			lattice.ConfigDeleted{Name: "a"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := lattice.DecodeEvent([]byte(c.message))
			require.NoError(t, err)
			require.Equal(t, c.want, e.Data)
			require.Equal(t, "NA", e.Host)
		})
	}
}

func TestDecodeEventRefusesWhatItCannotRead(t *testing.T) {
	long := strings.Repeat("a", 2000)
	for _, c := range []struct{ name, message, want string }{
		{"nothing", "", "it cannot be read: the event is not a CloudEvent: unexpected end of JSON input"},
		{"a list", "[]", "it cannot be read: the event is not a CloudEvent: json: cannot unmarshal array into Go value of type lattice.envelope"},
		{"a type of somebody else", `{"id":"1","type":"com.example.host_started","source":"NA","data":{}}`, `the event is of an unknown type: "com.example.host_started"`},
		{"a type of the future", event("host_painted", "{}"), `the event is of an unknown type: "com.wasmcloud.lattice.host_painted"`},
		{"no source", strings.Replace(event("host_stopped", "{}"), `"NA"`, `""`, 1), `it cannot be read: host_stopped: the source "" cannot be part of a NATS subject`},
		{"a source that is a wildcard", strings.Replace(event("host_stopped", "{}"), `"NA"`, `">"`, 1), `the source ">" cannot be part`},
		{"a source of two tokens", strings.Replace(event("host_stopped", "{}"), `"NA"`, `"NA.NB"`, 1), `the source "NA.NB" cannot be part`},
		{"a source with a space", strings.Replace(event("host_stopped", "{}"), `"NA"`, `"NA NB"`, 1), `the source "NA NB" cannot be part`},
		{"a source with a line break", strings.Replace(event("host_stopped", "{}"), `"NA"`, `"NA\nNB"`, 1), `the source "NA\nNB" cannot be part`},
		{"a long source", strings.Replace(event("host_stopped", "{}"), `"NA"`, `"`+long+`"`, 1), `cannot be part`},
		{"no id", strings.Replace(event("host_stopped", "{}"), `"1"`, `""`, 2), "host_stopped: the event's id is empty or longer than 1024 bytes"},
		{"a time that is none", strings.Replace(event("host_stopped", "{}"), "2026-", "yesterday", 1), "host_stopped: time: parsing time"},
		{"no data", `{"id":"1","type":"com.wasmcloud.lattice.host_stopped","source":"NA"}`, "host_stopped: data: unexpected end of JSON input"},
		{"null data", event("host_stopped", "null"), "host_stopped: data: there are none"},
		{"data in a string", event("config_set", `"{}"`), "config_set: data: json: cannot unmarshal string"},
		{"no component", event("component_scaled", `{"max_instances":1}`), "component_scaled: data: it has no component_id"},
		{"no count", event("component_scaled", `{"component_id":"a"}`), "component_scaled: data: it has no max_instances"},
		{"a negative count", event("component_scaled", `{"component_id":"a","max_instances":-1}`), "component_scaled: data: json: cannot unmarshal number -1"},
		{"a count beyond all", event("component_scale_failed", `{"component_id":"a","max_instances":4294967296}`), "component_scale_failed: data: json: cannot unmarshal number 4294967296"},
		{"a long component", event("component_scaled", `{"component_id":"`+long+`","max_instances":1}`), "its component_id has 2000 bytes, more than 1024"},
		{"annotations that are numbers", event("component_scaled", `{"component_id":"a","max_instances":1,"annotations":{"a":1}}`), "cannot unmarshal number"},
		{"no provider", event("provider_started", `{}`), "provider_started: data: it has no provider_id"},
		{"no provider to be healthy", event("health_check_passed", `{"host_id":"NA"}`), "health_check_passed: data: it has no provider_id"},
		{"a heartbeat with a component that has no id", event("host_heartbeat", `{"components":[{"max_instances":1}]}`), "component 0 has no id or max_instances"},
		{"a heartbeat with a provider that has no id", event("host_heartbeat", `{"providers":[{}]}`), "provider 0 has no id"},
		{"labels that are a list", event("labels_changed", `{"labels":[]}`), "cannot unmarshal array"},
		{"no labels", event("labels_changed", `{}`), "labels_changed: data: it has no labels"},
		{"half a link", event("linkdef_set", `{"source_id":"a"}`), "a link has no source_id, target, wit_namespace or wit_package"},
		{"half a deleted link", event("linkdef_deleted", `{"source_id":"a"}`), "it has no source_id, wit_namespace or wit_package"},
		{"no configuration", event("config_set", `{}`), "config_set: data: it has no config_name"},
		{"too much", event("config_set", `{"config_name":"`+strings.Repeat("a", 8<<20)+`"}`), "more than 8388608"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := lattice.DecodeEvent([]byte(c.message))
			require.ErrorContains(t, err, c.want)
			if strings.Contains(c.want, "unknown type") {
				require.ErrorIs(t, err, lattice.ErrUnknownEvent)
			} else {
				require.ErrorIs(t, err, lattice.ErrUnreadable)
			}
			require.Less(t, len(err.Error()), 4096)
		})
	}
}

func TestTheWordsOfAHostAreKeptUpToALength(t *testing.T) {
	e, err := lattice.DecodeEvent([]byte(event("provider_start_failed", `{"provider_id":"a","error":"`+strings.Repeat("é", 5000)+`"}`)))
	require.NoError(t, err)
	words := e.Data.(lattice.ProviderStartFailed).Error
	require.Equal(t, strings.Repeat("é", lattice.MaxWords/2)+"…", words)
}

func FuzzDecodeEvent(f *testing.F) {
	for _, message := range capturedEvents(f) {
		f.Add([]byte(message))
	}
	f.Add([]byte(event("host_heartbeat", `{"components":null,"providers":[{"id":""}]}`)))
	now := time.Date(2026, 11, 30, 13, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := lattice.DecodeEvent(message)
		if err != nil {
			require.True(t, errorIsTyped(err), "%v", err)
			return
		}
		require.NotEmpty(t, e.Host)
		require.NotNil(t, e.Data)
		// Whatever can be read can be folded in, and comes to rest.
		p := lattice.NewProjection(terms)
		p.Inventory(lattice.Inventory{Host: e.Host}, p.Mark(), now)
		p.Apply(e, now)
		again, _ := p.Apply(e, now)
		if e.Type != "host_started" { // which is a new start each time
			require.True(t, again.Empty(), "%+v", again)
		}
	})
}

func errorIsTyped(err error) bool {
	return errors.Is(err, lattice.ErrUnreadable) || errors.Is(err, lattice.ErrUnknownEvent)
}

func FuzzReplies(f *testing.F) {
	for _, replies := range capturedReplies(f) {
		for _, reply := range replies {
			f.Add([]byte(reply))
		}
	}
	f.Add([]byte(`{"success":true,"response":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		host, inv, links, _, errs := lattice.Answers(data)
		if errs[0] == nil {
			require.NotEmpty(t, host.ID)
		}
		if errs[1] == nil {
			require.Equal(t, host1, inv.Host)
			for _, e := range inv.Components {
				require.Positive(t, e.Count)
			}
		}
		if errs[2] == nil {
			for _, l := range links {
				require.NotEmpty(t, l.Source)
				require.NotEmpty(t, l.Name)
			}
		}
	})
}
