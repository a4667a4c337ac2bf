package simhost_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/simhost"
)

const image = "registry.example.com/shop/api:1.4.0"

// one is a world with a single host that has been greeted.
func one(t *testing.T, rules ...simhost.Rule) (*world, *simhost.Host) {
	t.Helper()
	w := newWorld(t, simhost.Options{Heartbeat: time.Hour})
	h := w.start(simhost.HostSpec{Name: "one"})
	w.settle(h)
	w.l.Script(rules...)
	return w, h
}

func TestHowACommandIsAnswered(t *testing.T) {
	const started = "component_scaled"
	for _, c := range []struct {
		name  string
		rule  simhost.Rule
		now   []string
		later []string // within a second
		runs  int
	}{
		{"no rule", simhost.Rule{Command: "link.put", Ignore: true}, []string{acked, started, started}, []string{}, 1},
		{"ignored", simhost.Rule{Ignore: true}, []string{}, []string{}, 0},
		{"refused", simhost.Rule{Refuse: "no <room>"}, []string{`<- {"success":false,"message":"no <room>"}`}, []string{}, 0},
		{"not acknowledged", simhost.Rule{NoAck: true}, []string{started, started}, []string{}, 1},
		{"slow to answer", simhost.Rule{AckDelay: time.Second}, []string{started, started}, []string{acked}, 1},
		{"nonsense", simhost.Rule{Reply: []byte("\xff{")}, []string{"<- \xff{", started, started}, []string{}, 1},
		{"slow registry", simhost.Rule{FetchDelay: time.Second}, []string{acked}, []string{started, started}, 1},
		{"slow compilation", simhost.Rule{LockDelay: time.Second}, []string{acked}, []string{started, started}, 1},
		{"denied", simhost.Rule{Fail: "Policy denied"}, []string{acked, "component_scale_failed"}, []string{}, 0},
		{"bad image", simhost.Rule{Invalid: simhost.NotWasm}, []string{acked, "component_scale_failed"}, []string{}, 0},
		{"overtaken by nobody", simhost.Rule{Overtaken: true}, []string{acked}, []string{started, started}, 1},
		{"lost events", simhost.Rule{Event: started, Lose: true}, []string{acked}, []string{}, 1},
		{"other events lost", simhost.Rule{Event: "host_heartbeat", Lose: true}, []string{acked, started, started}, []string{}, 1},
		{"one event lost", simhost.Rule{Event: "*", Skip: 1, Times: 1, Lose: true}, []string{acked, started}, []string{}, 1},
		{"duplicated events", simhost.Rule{Event: started, ID: "api", Copies: 1}, []string{acked, started, started, started, started}, []string{}, 1},
		{"late events", simhost.Rule{Event: started, Image: "oci://" + image, Delay: time.Second}, []string{acked}, []string{started, started}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.rule.Event == "" && c.rule.Command == "" {
				c.rule.Command = "component.scale"
			}
			w, h := one(t, c.rule)
			require.Equal(t, c.now, names(w.do(h, "component.scale."+h.ID(), scale("api", image, "1"))))
			require.Equal(t, c.later, names(w.advance(h, time.Second)))
			require.Len(t, h.Inventory().Components, c.runs)
		})
	}
}

func TestNonsenseInsteadOfAnEvent(t *testing.T) {
	w, h := one(t, simhost.Rule{Event: "component_scaled", Times: 1, Payload: []byte("{")})
	w.send("component.scale."+h.ID(), scale("api", image, "1"))
	heard := w.settle(h)
	require.Len(t, heard, 3)
	require.Equal(t, "{", string(heard[1].Data))
	require.Contains(t, string(heard[2].Data), `"max_instances":1`)
}

func TestARuleMatchesAndIsHealed(t *testing.T) {
	w, h := one(t)
	other := w.start(simhost.HostSpec{Name: "other"})
	w.settle(other)
	fails := func(h *simhost.Host, id, image string) bool {
		lines := names(w.do(h, "component.scale."+h.ID(), scale(id, image, "1")))
		return lines[1] == "component_scale_failed"
	}
	for _, c := range []struct {
		rule                         simhost.Rule
		here, there, second, another bool
	}{
		{simhost.Rule{}, true, true, true, true},
		{simhost.Rule{Command: "component.scale"}, true, true, true, true},
		{simhost.Rule{Command: "provider.start"}, false, false, false, false},
		{simhost.Rule{Host: "one"}, true, false, true, true},
		{simhost.Rule{Host: h.ID()}, true, false, true, true},
		{simhost.Rule{ID: "a"}, true, true, false, true},
		{simhost.Rule{Image: "r.example/a:1"}, true, true, true, false},
		{simhost.Rule{Image: "https://r.example/a*"}, true, true, true, true},
		{simhost.Rule{Image: "r.example/b*"}, false, false, false, false},
		{simhost.Rule{Host: "other", ID: "a", Image: "r.example/a:1", Command: "component.scale"}, false, true, false, false},
		{simhost.Rule{Command: "component.scale", Skip: 1, Times: 2}, false, true, true, false},
	} {
		c.rule.Fail = "no"
		heal := w.l.Script(c.rule)
		require.Equal(t, c.here, fails(h, "a", "r.example/a:1"), "%+v", c.rule)
		require.Equal(t, c.there, fails(other, "a", "r.example/a:1"), "%+v", c.rule)
		require.Equal(t, c.second, fails(h, "b", "r.example/a:1"), "%+v", c.rule)
		require.Equal(t, c.another, fails(h, "a", "r.example/a:2"), "%+v", c.rule)
		heal()
		require.False(t, fails(h, "a", "r.example/a:1"))
	}
}

func TestRulesAddUp(t *testing.T) {
	w, h := one(t,
		simhost.Rule{Image: image, Fetch: simhost.ManifestUnknown, FetchDelay: time.Second},
		simhost.Rule{Command: "component.scale", Host: "one", AckDelay: 3 * time.Second, FetchDelay: 2 * time.Second},
	)
	require.Empty(t, w.do(h, "component.scale."+h.ID(), scale("api", image, "1")))
	require.Empty(t, w.advance(h, time.Second))
	require.Equal(t, []string{
		`** component_scale_failed {"annotations":{},"component_id":"api","error":"failed to fetch component: ` +
			"failed to fetch component under OCI reference `" + image + "`: failed to fetch OCI path: failed to fetch OCI bytes: " +
			`Registry error: url https://registry.example.com/v2/shop/api/manifests/1.4.0, envelope: OCI API errors: ` +
			`[OCI API error: manifest unknown]","host_id":"","image_ref":"` + image + `","max_instances":1}`,
	}, w.advance(h, time.Second), "the later rule's delay")
	require.Equal(t, []string{acked}, w.advance(h, time.Second))
}

func TestStartsThatFailAndThenSucceed(t *testing.T) {
	w, h := one(t, simhost.Rule{ID: "api", Fetch: simhost.Verbatim("out of order"), Times: 2},
		simhost.Rule{ID: "web", Fail: "Text file busy (os error 26)", Times: 1})
	start := func() []string { return names(w.do(h, "component.scale."+h.ID(), scale("api", image, "1"))) }
	require.Equal(t, []string{acked, "component_scale_failed"}, start())
	require.Equal(t, []string{acked, "component_scale_failed"}, start())
	require.Equal(t, []string{acked, "component_scaled", "component_scaled"}, start())
	const provider = `{"provider_id":"web","provider_ref":"r.example/web:1"}`
	require.Contains(t, w.do(h, "provider.start."+h.ID(), provider)[1], `"error":"Text file busy (os error 26)"`)
	require.Contains(t, w.do(h, "provider.start."+h.ID(), provider)[1], "provider_started")
}

func TestScalesThatOvertakeEachOther(t *testing.T) {
	w, h := one(t, simhost.Rule{Command: "component.scale", Skip: 1, Times: 1, Overtaken: true})
	w.do(h, "component.scale."+h.ID(), scale("api", "r.example/a:1", "2"))
	require.Equal(t, []string{acked}, w.do(h, "component.scale."+h.ID(), scale("api", "r.example/a:1", "0")))
	lines := w.do(h, "component.scale."+h.ID(), scale("api", "r.example/a:2", "2"))
	require.Len(t, lines, 3)
	require.Contains(t, lines[1], `"image_ref":"r.example/a:1","max_instances":2`)
	require.Contains(t, lines[2], `"image_ref":"r.example/a:1","max_instances":0`)
	require.Empty(t, h.Inventory().Components, "stopped last, though told so first")
	require.Empty(t, w.advance(h, time.Minute), "and once")
}

// TestWhatWaitsForACompilation: ctl.rs:273 and mod.rs:1154 read what mod.rs:1668 holds.
func TestWhatWaitsForACompilation(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: 2 * time.Second})
	h := w.start(simhost.HostSpec{})
	w.settle(h)
	w.l.Script(simhost.Rule{ID: "big", LockDelay: 7 * time.Second})
	require.Equal(t, []string{acked}, w.do(h, "component.scale."+h.ID(), scale("big", image, "1")))
	require.Empty(t, w.do(h, "host.get."+h.ID(), ""))
	require.Empty(t, w.do(h, "component.scale."+h.ID(), scale("small", image, "1")))
	require.Empty(t, w.do(h, "component.auction", `{"component_ref":"x","component_id":"x","constraints":{}}`))
	require.Len(t, w.do(h, "host.ping", ""), 1)
	require.Len(t, w.do(h, "link.put", `{"source_id":"s","target":"t","wit_namespace":"n","wit_package":"p","interfaces":[]}`), 2)
	require.Equal(t, []string{`<- {"success":true,"message":"successfully started provider"}`, "provider_started"},
		names(w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"r.example/web:1"}`)))
	require.Equal(t, []string{"health_check_passed"}, names(w.advance(h, 6999*time.Millisecond)), "health waits for nothing")
	lines := w.advance(h, time.Millisecond)
	require.Equal(t, []string{"component_scaled", "component_scaled"}, names(lines[:2]))
	require.Contains(t, lines[2], `"components":[{"id":"big"`)
	require.Equal(t, []string{acked, "component_scaled", "component_scaled"}, names(lines[3:6]))
	require.Contains(t, lines[6], `"component_id":"x"`)
	require.Equal(t, []string{"host_heartbeat", "host_heartbeat", "host_heartbeat"}, names(lines[7:]), "all that were due")
}

// TestWhatWaitsForAProvidersEnd: ctl.rs:555 holds what mod.rs:1190 reads.
func TestWhatWaitsForAProvidersEnd(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: time.Second})
	h := w.start(simhost.HostSpec{})
	w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"r.example/web:1"}`)
	w.l.Script(simhost.Rule{Command: "provider.stop", LockDelay: 3500 * time.Millisecond})
	require.Empty(t, w.do(h, "provider.stop."+h.ID(), `{"provider_id":"web","host_id":"`+h.ID()+`"}`))
	require.Empty(t, w.do(h, "host.get."+h.ID(), ""))
	require.Empty(t, w.do(h, "provider.start."+h.ID(), `{"provider_id":"two","provider_ref":"r.example/web:1"}`))
	require.Empty(t, w.do(h, "provider.auction", `{"provider_ref":"x","provider_id":"two","constraints":{}}`))
	require.Len(t, w.do(h, "host.ping", ""), 1)
	require.Len(t, w.do(h, "component.scale."+h.ID(), scale("a", image, "1")), 3)
	lines := names(w.advance(h, 3500*time.Millisecond))
	require.Equal(t, "provider_stopped", lines[0])
	require.Equal(t, `<- {"success":true,"message":"successfully stopped provider"}`, lines[1])
	require.Contains(t, lines[2], `"providers":[]`)
	require.Equal(t, []string{
		`<- {"success":true,"message":"successfully started provider"}`, "provider_started", "host_heartbeat", "host_heartbeat", "host_heartbeat",
	}, lines[3:], "nobody bids for what runs by now")
}

// TestAProviderThatIsStoppedInAnothersName is killed after the delay: ctl.rs:579.
func TestAProviderThatIsStoppedInAnothersName(t *testing.T) {
	w, h := one(t)
	w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"r.example/web:1"}`)
	require.Empty(t, w.do(h, "provider.stop."+h.ID(), `{"provider_id":"web","host_id":"NBOGUS"}`))
	require.Empty(t, w.advance(h, 299*time.Millisecond))
	lines := w.advance(h, time.Millisecond)
	require.Contains(t, lines[0], `"host_id":"NBOGUS"`)
	require.Equal(t, `<- {"success":true,"message":"successfully stopped provider"}`, lines[1])
}

// TestAProviderIsStartedTwice and stopped in between: control, part 11; mod.rs:2002.
func TestAProviderIsStartedTwice(t *testing.T) {
	w, h := one(t, simhost.Rule{Command: "provider.start", FetchDelay: 3 * time.Second})
	const started = `<- {"success":true,"message":"successfully started provider"}`
	const body = `{"provider_id":"sp","provider_ref":"r.example/web:1"}`
	require.Equal(t, []string{started}, w.do(h, "provider.start."+h.ID(), body))
	require.Contains(t, w.do(h, "host.get."+h.ID(), "")[0], `"providers":[]`)
	require.Equal(t, []string{`<- {"success":false,"message":"provider with that ID is not running"}`}, w.do(h, "provider.stop."+h.ID(), body))
	require.Equal(t, []string{started}, w.do(h, "provider.start."+h.ID(), body))
	lines := w.advance(h, 3*time.Second)
	require.Equal(t, []string{"provider_started", "provider_start_failed"}, names(lines))
	require.Contains(t, lines[1], `"error":"provider is already running with that ID"`)
	require.Len(t, h.Inventory().Providers, 1)
}

// TestHealth: providers/mod.rs:442 to 527; the sequences are those that were recorded.
func TestHealth(t *testing.T) {
	const yes, no, silent = simhost.Healthy, simhost.Unhealthy, simhost.Silent
	for _, c := range []struct {
		name    string
		answers []simhost.Health
		events  [4]string // at 5, 35, 65 and 95 s
	}{
		{"well", nil, [4]string{"passed", "status", "status", "status"}},
		{"falling ill", []simhost.Health{yes, yes, no, no}, [4]string{"passed", "status", "failed", "status"}},
		{"late", []simhost.Health{no, no, yes, yes}, [4]string{"status", "status", "passed", "status"}},
		{"never well looks as always well", []simhost.Health{no}, [4]string{"status", "status", "status", "status"}},
		{"without answers", []simhost.Health{silent}, [4]string{}},
		{"gone in between", []simhost.Health{yes, silent, yes, no}, [4]string{"passed", "", "status", "failed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, h := one(t, simhost.Rule{ID: "web", Health: c.answers})
			w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"file:///web.par","host_id":"NBOGUS"}`)
			require.Empty(t, w.advance(h, 4999*time.Millisecond))
			for i, event := range c.events {
				want := []string{}
				if event != "" {
					want = append(want, `** health_check_`+event+` {"host_id":"`+h.ID()+`","provider_id":"web"}`)
				}
				require.Equal(t, want, w.advance(h, time.Millisecond), "probe %d", i+1)
				require.Empty(t, w.advance(h, 29999*time.Millisecond))
			}
		})
	}
}

func TestAStoppedProviderIsNotProbed(t *testing.T) {
	w, h := one(t)
	const body = `{"provider_id":"web","provider_ref":"r.example/web:1"}`
	w.do(h, "provider.start."+h.ID(), body)
	w.advance(h, 4*time.Second)
	w.do(h, "provider.stop."+h.ID(), `{"provider_id":"web","host_id":"`+h.ID()+`"}`)
	w.do(h, "provider.start."+h.ID(), body)
	require.Empty(t, w.advance(h, 4*time.Second))
	require.Equal(t, []string{"health_check_passed"}, names(w.advance(h, time.Second)))
}

func TestABuiltinProviderIsNotProbed(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: time.Hour})
	h := w.start(simhost.HostSpec{Builtins: true})
	w.do(h, "provider.start."+h.ID(), `{"provider_id":"web","provider_ref":"wasmcloud+builtin://http-client"}`)
	require.Empty(t, w.advance(h, 10*time.Minute))
	require.Equal(t, "http-client", h.Inventory().Providers[0].Image)
}

// TestLinksOfOneSourceAreLost: ctl.rs:783 to 826 reads and writes without comparing.
func TestLinksOfOneSourceAreLost(t *testing.T) {
	link := func(source string, i int) string {
		return fmt.Sprintf(`{"source_id":%q,"target":"t%d","name":"n%d","wit_namespace":"wasi","wit_package":"http","interfaces":["i"]}`, source, i, i)
	}
	w, h := one(t, simhost.Rule{Command: "link.put", WriteDelay: 10 * time.Millisecond})
	for i := range 20 {
		w.send("link.put", link("conc", i))
		w.send("link.put", link(fmt.Sprintf("own%d", i), i))
	}
	require.Empty(t, w.settle(h))
	lines := w.advance(h, 10*time.Millisecond)
	require.Len(t, lines, 80)
	for i := 0; i < len(lines); i += 2 {
		require.Contains(t, lines[i], "** linkdef_set ")
		require.Equal(t, `<- {"success":true,"message":"successfully set link"}`, lines[i+1])
	}
	stored := map[bool]int{}
	for _, k := range w.l.Links() {
		stored[k.Source == "conc"]++
	}
	require.Equal(t, map[bool]int{true: 1, false: 20}, stored)
}

// TestALinkComesBack: a deletion that overlaps with a put is undone by it.
func TestALinkComesBack(t *testing.T) {
	const link = `{"source_id":"s","target":"t","name":"a","wit_namespace":"wasi","wit_package":"http","interfaces":["i"]}`
	w, h := one(t)
	w.do(h, "link.put", link)
	w.l.Script(simhost.Rule{Command: "link.put", WriteDelay: time.Second})
	w.send("link.put", strings.Replace(link, `"a"`, `"b"`, 1))
	require.Len(t, w.do(h, "link.del", link), 2)
	require.Empty(t, w.l.Links())
	w.advance(h, time.Second)
	require.Len(t, w.l.Links(), 2)
}

func TestAStaleReadOfLinks(t *testing.T) {
	const link = `{"source_id":"s","target":"t","name":"default","wit_namespace":"wasi","wit_package":"http","interfaces":["i"]}`
	w, h := one(t, simhost.Rule{Command: "link.get", Stale: true, Times: 1})
	w.do(h, "link.put", link)
	require.Equal(t, []string{`<- {"success":true,"message":"","response":[]}`}, w.do(h, "link.get", ""))
	require.Contains(t, w.do(h, "link.get", "")[0], `"target":"t"`)
}

func TestTheImageThatIsReportedAndTheOneThatRuns(t *testing.T) {
	w, h := one(t)
	w.do(h, "component.scale."+h.ID(), scale("a", "r.example/a:1", "1"))
	w.do(h, "component.scale."+h.ID(), scale("a", "r.example/a:2", "2"))
	require.Equal(t, []simhost.Component{{
		ID: "a", Image: "r.example/a:2", Runs: "r.example/a:1", Count: 2, Annotations: map[string]string{}, Config: []string{},
	}}, h.Inventory().Components)
	w.do(h, "component.update."+h.ID(), `{"component_id":"a","new_component_ref":"r.example/a:3"}`)
	require.Equal(t, "r.example/a:3", h.Inventory().Components[0].Image)
	require.Equal(t, "r.example/a:1", h.Inventory().Components[0].Runs)
}
