package simhost_test

import (
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/simhost"
)

// hostID is the form of a host's id.
var hostID = regexp.MustCompile(`^N[A-Z2-7]{55}$`)

func TestEventsHaveTheEnvelopeOfRealHosts(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	w.clock.Advance(1500 * time.Microsecond)
	h := w.start(simhost.HostSpec{Name: "quiet-cloud-0086", Labels: map[string]string{"zone": "a"}})
	require.Regexp(t, hostID, h.ID())

	m := w.next()
	require.Equal(t, "wasmbus.evt.default.host_started", m.Subject)
	require.Empty(t, m.Header)
	require.Empty(t, m.Reply)
	id := regexp.MustCompile(`"id":"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"`)
	require.Regexp(t, id, string(m.Data))
	require.Equal(t, `{"specversion":"1.0","id":"","type":"com.wasmcloud.lattice.host_started","source":"`+h.ID()+
		`","datacontenttype":"application/json","time":"2031-06-01T12:00:00.001500Z","data":{"friendly_name":"quiet-cloud-0086",`+
		`"labels":{"hostcore.arch":"x86_64","hostcore.os":"linux","hostcore.osfamily":"unix","zone":"a"},`+
		`"uptime_seconds":0,"version":"1.9.2-sim"}}`, id.ReplaceAllString(string(m.Data), `"id":""`))
	millis := strings.ReplaceAll(id.FindStringSubmatch(string(m.Data))[1], "-", "")[:12]
	require.Equal(t, "01c33eaa5201", millis, "the id begins with the time in milliseconds")
}

func TestHeartbeatsKeepTheirRhythm(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{Name: "one"})
	require.Equal(t, []string{"host_started"}, names(w.lines(w.settle(h))))
	require.Empty(t, w.advance(h, 29*time.Second))
	w.do(h, "component.scale."+h.ID(), scale("api", "registry.example.com/shop/api:1.0.0", "2"))
	w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"registry.example.com/web:0.27.0"}`)
	require.Equal(t, []string{
		`** host_heartbeat {"components":[{"annotations":{},"id":"api","image_ref":"registry.example.com/shop/api:1.0.0",` +
			`"limits":null,"max_instances":2,"revision":0}],"friendly_name":"one","host_id":"` + h.ID() + `",` +
			`"labels":{"hostcore.arch":"x86_64","hostcore.os":"linux","hostcore.osfamily":"unix"},` +
			`"providers":[{"annotations":{},"id":"web","image_ref":"registry.example.com/web:0.27.0","name":"web","revision":1}],` +
			`"uptime_human":"30s","uptime_seconds":30,"version":"1.9.2-sim"}`,
	}, w.advance(h, time.Second))
	require.Equal(t, []string{"health_check_passed"}, names(w.advance(h, 29*time.Second)))
	require.Equal(t, []string{"host_heartbeat"}, names(w.advance(h, time.Second)))
	require.Equal(t, []string{"health_check_status", "host_heartbeat"}, names(w.advance(h, 30*time.Second)))
}

func TestAPausedHostAnswersAndDoesNotBeat(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: 10 * time.Second})
	h := w.start(simhost.HostSpec{})
	w.settle(h)
	h.Pause()
	require.Empty(t, w.advance(h, 25*time.Second))
	require.Equal(t, []string{acked, "component_scaled", "component_scaled"},
		names(w.do(h, "component.scale."+h.ID(), scale("a", "r.example/a:1", "1"))))
	h.Resume()
	require.Empty(t, w.advance(h, 4*time.Second), "the rhythm is the old one")
	require.Equal(t, []string{"host_heartbeat"}, names(w.advance(h, time.Second)))
}

func TestAFrozenHostGoesOnWhereItStood(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: 10 * time.Second})
	h := w.start(simhost.HostSpec{Name: "frozen"})
	other := w.start(simhost.HostSpec{Name: "other"})
	w.settle(other)
	h.Freeze()
	w.send("component.scale."+h.ID(), scale("a", "r.example/a:1", "1"))
	require.Empty(t, w.settle(other), "subscribed, so not even 'no responders'")
	require.Len(t, w.advance(other, 25*time.Second), 2, "of the other")
	h.Thaw()
	require.Equal(t, []string{acked, "component_scaled", "component_scaled", "host_heartbeat", "host_heartbeat"},
		names(w.advance(h, 0)), "missed heartbeats are made up for")
	require.Equal(t, []string{"host_heartbeat", "host_heartbeat"}, names(w.advance(h, 5*time.Second)), "one of each")
}

func TestAKilledHostSaysNothing(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{Name: "victim", Labels: map[string]string{"zone": "a"}})
	witness := w.start(simhost.HostSpec{Name: "witness"})
	w.do(h, "component.scale."+h.ID(), scale("a", "r.example/a:1", "3"))
	w.do(h, "label.put."+h.ID(), `{"key":"zone","value":"b"}`)
	w.l.Script(simhost.Rule{ID: "slow", FetchDelay: time.Second})
	w.do(h, "component.scale."+h.ID(), scale("slow", "r.example/a:1", "3"))
	h.Kill()
	h.Kill()
	h.Stop()
	w.send("host.get."+h.ID(), "")
	require.Equal(t, []string{"<- 503"}, w.lines(w.settle(witness)))
	require.Equal(t, []string{"host_heartbeat"}, names(w.advance(witness, 30*time.Second)), "of the witness")
	require.Equal(t, []*simhost.Host{witness}, w.l.Hosts())

	again := w.start(simhost.HostSpec{Name: "victim", Labels: map[string]string{"zone": "a"}})
	require.Equal(t, h.ID(), again.ID(), "the key is the name's")
	require.Equal(t, []string{
		`** host_started {"friendly_name":"victim","labels":{"hostcore.arch":"x86_64","hostcore.os":"linux","hostcore.osfamily":"unix","zone":"a"},"uptime_seconds":0,"version":"1.9.2-sim"}`,
	}, w.lines(w.settle(again)))
	require.Equal(t, simhost.Inventory{
		Components: []simhost.Component{}, Providers: []simhost.Provider{},
		Labels: map[string]string{"hostcore.arch": "x86_64", "hostcore.os": "linux", "hostcore.osfamily": "unix", "zone": "a"},
	}, again.Inventory())
	require.Len(t, h.Inventory().Components, 1, "what the dead one ran can still be asked")
}

func TestTwoHostsOfOneName(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{Name: "one"})
	_, err := w.l.Start(t.Context(), simhost.HostSpec{Name: "one"})
	require.EqualError(t, err, "start the simulated host one: one runs under the id "+h.ID()+" already")
	_, err = w.l.Start(t.Context(), simhost.HostSpec{Name: "two", ID: h.ID()})
	require.EqualError(t, err, "start the simulated host two: one runs under the id "+h.ID()+" already")
}

func TestAStoppedHostSaysGoodbyeOnce(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{Name: "one"})
	w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"r.example/web:1"}`)
	h.Stop()
	require.Equal(t, `** host_stopped {"labels":{"hostcore.arch":"x86_64","hostcore.os":"linux","hostcore.osfamily":"unix"}}`, w.line(w.next()))
	w.send("host.ping", "")
	require.Equal(t, "<- 503", w.line(w.next()))
	w.clock.Advance(time.Hour)
	w.send("host.ping", "")
	require.Equal(t, "<- 503", w.line(w.next()), "no health, no heartbeat")
}

func TestAnAccountStandsBeforeAllSubjects(t *testing.T) {
	w := newWorld(t, simhost.Options{Account: "ACME", Lattice: "east"})
	h := w.start(simhost.HostSpec{Name: "one"})
	m := w.next()
	require.Equal(t, "ACME.wasmbus.evt.east.host_started", m.Subject)
	require.Contains(t, string(m.Data), `"type":"com.wasmcloud.lattice.host_started"`)
	require.Equal(t, []string{acked, "component_scaled", "component_scaled"},
		names(w.do(h, "component.scale."+h.ID(), scale("a", "r.example/a:1", "1"))))
	w.send("host.ping", "")
	require.Contains(t, w.line(w.next()), `"lattice":"east"`)
	_, err := w.nc.Request("wasmbus.ctl.v1.east.host.ping", nil, patience)
	require.ErrorIs(t, err, nats.ErrNoResponders)
}

func TestUptimeIsWrittenAsHostsWriteIt(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: 10_000 * time.Hour})
	h := w.start(simhost.HostSpec{})
	w.settle(h)
	for _, step := range []struct {
		passes time.Duration
		want   string
	}{
		{0, `"uptime_human":"0s","uptime_seconds":0`},
		{999 * time.Millisecond, `"uptime_human":"0s","uptime_seconds":0`},
		{time.Minute, `"uptime_human":"1m","uptime_seconds":60`},
		{30 * time.Second, `"uptime_human":"1m 30s","uptime_seconds":90`},
		{25 * time.Hour, `"uptime_human":"1day 1h 1m 30s","uptime_seconds":90090`},
		{47 * time.Hour, `"uptime_human":"3days 1m 30s","uptime_seconds":259290`},
		{24 * 400 * time.Hour, `"uptime_human":"1year 1month 7days 7h 27m 54s","uptime_seconds":34819290`},
	} {
		w.clock.Advance(step.passes)
		w.send("host.ping", "")
		require.Contains(t, w.line(w.next()), step.want)
	}
}

func TestHostsOutliveTheNATSServer(t *testing.T) {
	first := natstest.Start(t, &server.Options{})
	gone, back := make(chan struct{}, 1), make(chan struct{}, 1)
	nc, err := nats.Connect(first.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { signal(gone) }), nats.ReconnectHandler(func(*nats.Conn) { signal(back) }))
	require.NoError(t, err)
	defer nc.Close()
	clock := simhost.NewManualClock(noon)
	l := simhost.NewLattice(nc, simhost.Options{Clock: clock})
	defer l.Close()
	h, err := l.Start(t.Context(), simhost.HostSpec{Name: "one"})
	require.NoError(t, err)
	_, err = nc.Request("wasmbus.ctl.v1.default.component.scale."+h.ID(), []byte(scale("a", "r.example/a:1", "1")), patience)
	require.NoError(t, err)

	port := first.Addr().(*net.TCPAddr).Port
	first.Shutdown()
	first.WaitForShutdown()
	<-gone
	clock.Advance(time.Minute)

	second := natstest.Start(t, &server.Options{Port: port})
	other := natstest.Connect(t, second.ClientURL())
	events, err := other.SubscribeSync("wasmbus.evt.>")
	require.NoError(t, err)
	require.NoError(t, other.Flush())
	<-back
	require.NoError(t, nc.Flush())
	clock.Advance(30 * time.Second)
	m, err := events.NextMsg(patience)
	require.NoError(t, err)
	require.Contains(t, string(m.Data), `"uptime_seconds":90`, "the heartbeats of the outage are lost, and the rhythm is not")
	reply, err := other.Request("wasmbus.ctl.v1.default.host.get."+h.ID(), nil, patience)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), `"components":[{"id":"a"`)
}

func signal(happened chan struct{}) {
	select {
	case happened <- struct{}{}:
	default:
	}
}

func TestTheRecordOfCalls(t *testing.T) {
	w := newWorld(t, simhost.Options{Record: 4})
	a, b := w.start(simhost.HostSpec{Name: "a"}), w.start(simhost.HostSpec{Name: "b"})
	w.l.Forget()
	body := scale("api", "r.example/a:1", "2")
	w.send("component.scale."+a.ID(), body)
	w.send("host.ping", "")
	w.settle(a)
	w.clock.Advance(time.Second)
	w.send("config.put.c", `{}`)
	w.settle(b)
	require.Equal(t, 1, w.l.Count("component.scale", ""))
	require.Equal(t, 1, w.l.Count("component.scale", a.ID()))
	require.Equal(t, 0, w.l.Count("component.scale", b.ID()))
	require.Equal(t, 2, w.l.Count("host.ping", ""))
	require.Equal(t, 6, w.l.Count("", ""), "with the two marks")

	calls := w.l.Calls()
	require.Len(t, calls, 4, "the last ones")
	require.Equal(t, "config.put", calls[2].Command)
	require.Equal(t, "c", calls[2].ID)
	require.Equal(t, noon.Add(time.Second), calls[2].Time)
	require.Equal(t, "component.mark", calls[3].Command)
	w.l.Forget()
	require.Empty(t, w.l.Calls())
	require.Equal(t, 0, w.l.Count("", ""))

	w.send("component.scale."+a.ID(), body)
	w.settle(a)
	require.Equal(t, simhost.Call{
		Time: noon.Add(time.Second), Host: a.ID(), Command: "component.scale", ID: "api", Image: "r.example/a:1", Body: []byte(body),
	}, w.l.Calls()[0])
}

// TestTheRecordNamesWhatCommandsAreAbout also holds for bodies that are refused.
func TestTheRecordNamesWhatCommandsAreAbout(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{})
	for _, c := range []struct{ command, body, id, image string }{
		{"component.update." + h.ID(), `{"component_id":"a","new_component_ref":"i:2"}`, "a", "i:2"},
		{"provider.start." + h.ID(), `{"provider_id":"p","provider_ref":"i:1","config":7}`, "p", "i:1"},
		{"provider.stop." + h.ID(), `{"provider_ref":"p"}`, "p", ""},
		{"link.put", `{"source_id":"s"}`, "s", ""},
		{"label.del." + h.ID(), `{"key":"zone"}`, "zone", ""},
		{"config.del.x", "", "x", ""},
		{"link.put", `[`, "", ""},
	} {
		w.l.Forget()
		w.do(h, c.command, c.body)
		call := w.l.Calls()[0]
		require.Equal(t, c.id, call.ID, c.command)
		require.Equal(t, c.image, call.Image, c.command)
	}
}

func TestConfigsAndLinksOutliveHosts(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{Name: "one"})
	w.do(h, "config.put.c", `{"a":"1"}`)
	w.do(h, "link.put", `{"source_id":"s","target":"t","wit_namespace":"wasi","wit_package":"http","interfaces":["i"]}`)
	h.Kill()
	again := w.start(simhost.HostSpec{Name: "two"})
	require.Contains(t, w.do(again, "config.get.c", ""), `<- {"success":true,"message":"","response":{"a":"1"}}`)
	values, exists := w.l.Config("c")
	require.Equal(t, map[string]string{"a": "1"}, values)
	require.True(t, exists)
	_, exists = w.l.Config("d")
	require.False(t, exists)
	require.Equal(t, []simhost.Link{{
		Source: "s", Target: "t", Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{"i"},
		SourceConfig: []string{}, TargetConfig: []string{},
	}}, w.l.Links())
}

func TestSecrets(t *testing.T) {
	w := newWorld(t, simhost.Options{})
	h := w.start(simhost.HostSpec{Secrets: true})
	w.l.Script(simhost.Rule{Image: "r.example/signed:1", Claims: helloSigned})
	start := func(image string) string {
		lines := w.do(h, "component.scale."+h.ID(), `{"component_ref":"`+image+`","component_id":"a","count":1,"config":["SECRET_pw"]}`)
		var failure struct{ Error string }
		_, data, _ := strings.Cut(strings.TrimPrefix(lines[len(lines)-1], "** "), " ")
		require.NoError(t, json.Unmarshal([]byte(data), &failure))
		return failure.Error
	}
	w.settle(h)
	require.Equal(t, "Unable to fetch requested secrets: entity did not have an embedded JWT, required to fetch secrets (was this entity signed during build?)", start("r.example/a:1"))
	require.Equal(t, "Unable to fetch requested secrets: Secret config SECRET_pw not found in config store, could not create secret request", start("r.example/signed:1"))
	w.do(h, "config.put.SECRET_pw", `{"name":"pw","backend":"vault","policy":"{}"}`)
	require.Empty(t, start("r.example/signed:1"))
	require.Equal(t, []string{}, h.Inventory().Components[0].Config)

	w.do(h, "component.scale."+h.ID(), `{"component_ref":"r.example/signed:1","component_id":"a","count":1,"config":["SECRET_pw"],"annotations":{"k":"v"}}`)
	require.Equal(t, map[string]string{"k": "v"}, h.Inventory().Components[0].Annotations,
		"a list with secrets never equals the running one, so that the component is instantiated anew")
}
