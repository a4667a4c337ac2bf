package lattice_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

// reply answers everything below a subject with fixed words, as long as the test
// runs, and passes on what was asked.
func reply(t *testing.T, subject string, words ...string) <-chan *nats.Msg {
	t.Helper()
	asked := make(chan *nats.Msg, 16)
	nc := dial(t, natsURL)
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		asked <- m
		for _, w := range words {
			_ = m.Respond([]byte(w))
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return asked
}

func TestWhatAClientSendsAndReads(t *testing.T) {
	captured := capturedReplies(t)
	ok := []string{`{"success":true,"message":""}`}
	link := scaler.Link{
		Source: "shop_front-web", Target: "shop_front-api", Name: "default", Namespace: "wasi", Package: "http",
		Interfaces: []string{"incoming-handler"}, SourceConfig: []string{"shop_front-listen"},
	}
	labels := map[string]string{"hostcore.arch": "x86_64", "hostcore.os": "linux", "hostcore.osfamily": "unix", "zone": "eu"}
	nothing := func(err error) (any, error) { return nil, err }
	for _, c := range []struct {
		name    string
		ask     func(context.Context, lattice.Client) (any, error)
		words   []string
		subject string
		body    string
		want    any
	}{
		{
			"ping", func(ctx context.Context, c lattice.Client) (any, error) {
				all, err := c.Ping(ctx, 100*time.Millisecond)
				require.Len(t, all, 2)
				return all[1], err
			},
			captured["ping"], "host.ping", "",
			lattice.HostInfo{ID: host1, Name: "falling-lake-1169", Labels: labels, Lattice: "default", Version: "1.9.2", Uptime: time.Second},
		},
		{
			"inventory with a component", func(ctx context.Context, c lattice.Client) (any, error) { return c.Inventory(ctx, host1) },
			captured["inventory, component"], "host.get." + host1, "",
			lattice.Inventory{
				Host: host1, Name: "falling-lake-1169", Version: "1.9.2", Uptime: 79 * time.Second,
				Labels:     map[string]string{"hostcore.arch": "x86_64", "hostcore.os": "linux", "zone": "eu"},
				Components: []lattice.Entry{{ID: "shop_front-api", Image: "file:///art/hello-a.wasm", Count: 2, Annotations: annotations("s1")}},
			},
		},
		{
			"inventory with a provider", func(ctx context.Context, c lattice.Client) (any, error) { return c.Inventory(ctx, host1) },
			captured["inventory, provider"], "host.get." + host1, "",
			lattice.Inventory{
				Host: host1, Name: "misty-snowflake-1967", Version: "1.9.2", Uptime: 122 * time.Second, Labels: labels,
				Providers: []lattice.Entry{{ID: "shop_front-web", Name: "HTTP Server", Image: "/art/http-server.par", Count: 1, Annotations: annotations("s7")}},
			},
		},
		{
			"links", func(ctx context.Context, c lattice.Client) (any, error) { return c.Links(ctx) },
			captured["links"], "link.get", "",
			[]scaler.Link{shopLink, {
				Source: "shop_front-web", Target: "shop_front-api2", Name: "default", Namespace: "wasi", Package: "http",
				Interfaces: []string{"types"}, SourceConfig: []string{}, TargetConfig: []string{},
			}},
		},
		{
			"no links", func(ctx context.Context, c lattice.Client) (any, error) { return c.Links(ctx) },
			captured["links, none"], "link.get", "",
			[]scaler.Link{},
		},
		{
			"configuration", func(ctx context.Context, c lattice.Client) (any, error) {
				values, found, err := c.Config(ctx, "shop_front-settings")
				require.True(t, found)
				return values, err
			},
			captured["config"], "config.get.shop_front-settings", "",
			map[string]string{"mode": "fast", "currency": "EUR"},
		},
		{
			"an empty configuration", func(ctx context.Context, c lattice.Client) (any, error) {
				values, found, err := c.Config(ctx, "empty")
				require.True(t, found)
				return values, err
			},
			captured["config, empty"], "config.get.empty", "",
			map[string]string{},
		},
		{
			"no configuration", func(ctx context.Context, c lattice.Client) (any, error) {
				_, found, err := c.Config(ctx, "nosuch")
				return found, err
			},
			captured["config, missing"], "config.get.nosuch", "", false,
		},
		{
			"claims", func(ctx context.Context, c lattice.Client) (any, error) {
				all, err := c.Claims(ctx)
				require.Len(t, all, 1)
				return all[0]["name"], err
			},
			captured["claims"], "claims.get", "", "Hello Signed",
		},
		{
			"scale, with a warning", func(ctx context.Context, c lattice.Client) (any, error) {
				return c.Scale(ctx, lattice.Component{Host: "NA", ID: "api", Image: "a:1", Count: 2, Config: []string{"c"}, Annotations: map[string]string{"a": "b"}})
			},
			captured["scale, other image"], "component.scale.NA",
			`{"component_ref":"a:1","component_id":"api","annotations":{"a":"b"},"count":2,"host_id":"NA","config":["c"],"allow_update":false}`,
			"Requested to scale existing component to a different image reference: file:///art/hello-a.wasm != file:///art/hello-b.wasm. The component will be scaled but the image reference will not be updated. If you meant to update this component to a new image ref, use the update command.",
		},
		{
			"scale to nothing", func(ctx context.Context, c lattice.Client) (any, error) {
				return c.Scale(ctx, lattice.Component{Host: "NA", ID: "api"})
			},
			ok, "component.scale.NA",
			`{"component_ref":"","component_id":"api","annotations":{},"count":0,"host_id":"NA","config":[],"allow_update":false}`, "",
		},
		{
			"update", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.UpdateComponent(ctx, "NA", "api", "a:2", nil))
			},
			ok, "component.update.NA", `{"component_id":"api","host_id":"NA","new_component_ref":"a:2","annotations":{}}`, nil,
		},
		{
			"start a provider", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.StartProvider(ctx, lattice.Provider{Host: "NA", ID: "web", Image: "w:1"}))
			},
			ok, "provider.start.NA", `{"provider_id":"web","provider_ref":"w:1","host_id":"NA","config":[],"annotations":{}}`, nil,
		},
		{
			"stop a provider", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.StopProvider(ctx, "NA", "web"))
			},
			ok, "provider.stop.NA", `{"host_id":"NA","provider_id":"web"}`, nil,
		},
		{
			"put a link", func(ctx context.Context, c lattice.Client) (any, error) { return nothing(c.PutLink(ctx, link)) },
			ok, "link.put",
			`{"source_id":"shop_front-web","target":"shop_front-api","name":"default","wit_namespace":"wasi","wit_package":"http","interfaces":["incoming-handler"],"source_config":["shop_front-listen"],"target_config":[]}`, nil,
		},
		{
			"delete a link", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.DeleteLink(ctx, link.Tuple()))
			},
			ok, "link.del", `{"source_id":"shop_front-web","name":"default","wit_namespace":"wasi","wit_package":"http"}`, nil,
		},
		{
			"put a configuration", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.PutConfig(ctx, "c", map[string]string{"a": "1"}))
			},
			captured["config put"], "config.put.c", `{"a":"1"}`, nil,
		},
		{
			"put a configuration without values", func(ctx context.Context, c lattice.Client) (any, error) { return nothing(c.PutConfig(ctx, "c", nil)) },
			ok, "config.put.c", `{}`, nil,
		},
		{
			"delete a configuration", func(ctx context.Context, c lattice.Client) (any, error) { return nothing(c.DeleteConfig(ctx, "c")) },
			ok, "config.del.c", "", nil,
		},
		{
			"put a label", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.PutLabel(ctx, "NA", "zone", "eu"))
			},
			ok, "label.put.NA", `{"key":"zone","value":"eu"}`, nil,
		},
		{
			"delete a label", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.DeleteLabel(ctx, "NA", "zone"))
			},
			ok, "label.del.NA", `{"key":"zone"}`, nil,
		},
		{
			"stop a host", func(ctx context.Context, c lattice.Client) (any, error) {
				return nothing(c.StopHost(ctx, "NA", 3*time.Second))
			},
			ok, "host.stop.NA", `{"host_id":"NA","timeout":3000}`, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLattice()
			asked := reply(t, "wasmbus.ctl.v1."+l.name+".>", c.words...)
			got, err := c.ask(t.Context(), l.client(t, natsURL))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			m := <-asked
			require.Equal(t, "wasmbus.ctl.v1."+l.name+"."+c.subject, m.Subject)
			require.Equal(t, c.body, string(m.Data))
		})
	}
}

func TestAMultiTenantLatticeHasItsAccountInFront(t *testing.T) {
	l := newLattice()
	asked := reply(t, "ACC.wasmbus.ctl.v1."+l.name+".>", `{"success":true,"response":[]}`)
	c := l.client(t, natsURL)
	c.Account = "ACC"
	_, err := c.Links(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ACC.wasmbus.ctl.v1."+l.name+".link.get", (<-asked).Subject)
}

func TestWhyAClientHasNoAnswer(t *testing.T) {
	captured := capturedReplies(t)
	inventory := func(ctx context.Context, c lattice.Client) error {
		_, err := c.Inventory(ctx, host1)
		return err
	}
	for _, c := range []struct {
		name  string
		ask   func(context.Context, lattice.Client) error
		words []string
		want  string
		is    error
	}{
		{
			"no", func(ctx context.Context, c lattice.Client) error {
				return c.StartProvider(ctx, lattice.Provider{Host: "NA", ID: "web"})
			},
			captured["provider start, runs already"], "start provider web on host NA: refused: provider with that ID is already running", nil,
		},
		{
			"no, for a link", func(ctx context.Context, c lattice.Client) error { return c.PutLink(ctx, shopLink) }, captured["link put, other target"],
			"put link default of shop_front-web to shop_front-api for wasi:http: refused: link already exists with different target, consider deleting the existing link or using a different link name", nil,
		},
		{"nothing", inventory, []string{}, "ask host " + host1 + " for its inventory: no answer came in time: waited 200ms", lattice.ErrTimeout},
		{"empty words", inventory, []string{""}, "the answer: it cannot be read: unexpected end of JSON input", lattice.ErrUnreadable},
		{"a list", inventory, []string{"[]"}, "the answer: it cannot be read", lattice.ErrUnreadable},
		{"no success", inventory, []string{"{}"}, "the answer: it cannot be read: it has no success", lattice.ErrUnreadable},
		{"a success that is a word", inventory, []string{`{"success":"yes"}`}, "the answer: it cannot be read", lattice.ErrUnreadable},
		{"no inventory", inventory, []string{`{"success":true}`}, `the answer: it cannot be read: it is of host ""`, lattice.ErrUnreadable},
		{"somebody else's inventory", inventory, []string{`{"success":true,"response":{"host_id":"NB"}}`}, `the answer: it cannot be read: it is of host "NB"`, lattice.ErrUnreadable},
		{"an inventory of numbers", inventory, []string{`{"success":true,"response":{"host_id":1}}`}, "the answer: it cannot be read", lattice.ErrUnreadable},
		{
			"half a component", inventory,
			[]string{`{"success":true,"response":{"host_id":"` + host1 + `","components":[{"id":"a"}]}}`},
			"the answer: it cannot be read: component 0 has no id or max_instances", lattice.ErrUnreadable,
		},
		{
			"half a link", func(ctx context.Context, c lattice.Client) error {
				_, err := c.Links(ctx)
				return err
			},
			[]string{`{"success":true,"response":[{}]}`},
			"ask for the links: the answer: it cannot be read: a link has no source_id, target, wit_namespace or wit_package", lattice.ErrUnreadable,
		},
		{
			"values that are numbers", func(ctx context.Context, c lattice.Client) error {
				_, _, err := c.Config(ctx, "c")
				return err
			},
			[]string{`{"success":true,"response":{"a":1}}`},
			"ask for configuration c: the answer: it cannot be read", lattice.ErrUnreadable,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLattice()
			reply(t, "wasmbus.ctl.v1."+l.name+".>", c.words...)
			client := l.client(t, natsURL)
			client.Timeout = 200 * time.Millisecond
			err := c.ask(t.Context(), client)
			require.ErrorContains(t, err, c.want)
			if c.is == nil {
				var refused *lattice.Refused
				require.ErrorAs(t, err, &refused)
				return
			}
			require.ErrorIs(t, err, c.is)
		})
	}
}

func TestAClientSaysThatNobodyListens(t *testing.T) {
	c := newLattice().client(t, natsURL)
	_, err := c.Inventory(t.Context(), "NA")
	require.ErrorIs(t, err, lattice.ErrNobody)
	require.EqualError(t, err, "ask host NA for its inventory: nobody listens there")
	began := time.Now()
	hosts, err := c.Ping(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Empty(t, hosts)
	require.Less(t, time.Since(began), 30*time.Second, "there is nobody to wait for")
}

func TestAClientEndsWithItsContext(t *testing.T) {
	l := newLattice()
	asked := reply(t, "wasmbus.ctl.v1."+l.name+".>")
	c := l.client(t, natsURL)
	c.Timeout = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := c.Links(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAClientSendsNothingThatCannotBeSent(t *testing.T) {
	l := newLattice()
	asked := reply(t, "wasmbus.>")
	c := l.client(t, natsURL)
	var invalid *lattice.InvalidName
	for _, name := range []string{"", "a b", "a.b", "*", ">", "a\tb", "a\nb", "\x7f", strings.Repeat("a", 513)} {
		require.ErrorAs(t, c.PutConfig(t.Context(), name, nil), &invalid, "%q", name)
		require.ErrorAs(t, c.StopProvider(t.Context(), name, "web"), &invalid, "%q", name)
		_, err := c.Inventory(t.Context(), name)
		require.ErrorAs(t, err, &invalid, "%q", name)
		wrong := c
		wrong.Lattice = name
		_, err = wrong.Links(t.Context())
		require.ErrorAs(t, err, &invalid, "%q", name)
	}
	require.EqualError(t, c.DeleteConfig(t.Context(), "a b"),
		`delete configuration a b: configuration "a b" cannot be part of a NATS subject: it must be 1 to 512 bytes without spaces, dots, *, > and control characters`)
	require.Empty(t, asked)

	c.Conn.Close()
	_, err := c.Links(t.Context())
	require.ErrorIs(t, err, lattice.ErrCutOff)
}

func TestAPingLeavesOutAnswersItCannotRead(t *testing.T) {
	l := newLattice()
	reply(t, "wasmbus.ctl.v1."+l.name+".host.ping", "nonsense", `{"success":false}`, `{"success":true,"response":{"id":"N A"}}`, `{"success":true,"response":{"id":"NA","uptime_seconds":18446744073709551615}}`)
	hosts, err := l.client(t, natsURL).Ping(t.Context(), 200*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, hosts, 1)
	require.Equal(t, "NA", hosts[0].ID)
	require.Positive(t, hosts[0].Uptime)
}
