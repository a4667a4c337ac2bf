package lattice_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

var ok = lattice.Result{OK: true}

// one is a lattice of one host that is observed.
func one(t *testing.T) (*observed, *wireHost, *clock) {
	t.Helper()
	return oneWith(t, quick)
}

// patient is the same for a test that moves the clock while a host answers.
func patient(t *testing.T) (*observed, *wireHost, *clock) {
	t.Helper()
	return oneWith(t, lattice.Settings{PingWindow: quick.PingWindow, Unacknowledged: time.Hour})
}

func oneWith(t *testing.T, s lattice.Settings) (*observed, *wireHost, *clock) {
	t.Helper()
	l, clk := newLattice(), newClock()
	h := l.boot(t, natsURL, "NA", clk.Now)
	o := l.observeWith(t, natsURL, clk, s)
	o.first()
	return o, h, clk
}

func scale(count int) scaler.Command {
	return scaler.Command{
		Key: scaler.Key{Subject: "s1", Host: "NA"}, Action: scaler.Scale, ID: "api", Image: "registry.example/api",
		Count: count, Config: []string{}, Annotations: annotations("s1"),
	}
}

func provider(action scaler.Action) scaler.Command {
	return scaler.Command{
		Key: scaler.Key{Subject: "s7", Host: "NA"}, Action: action, ID: "web", Image: "registry.example/web", Annotations: annotations("s7"),
	}
}

// start executes a command beside the test.
func (o *observed) start(ctx context.Context, c scaler.Command) <-chan lattice.Result {
	result := make(chan lattice.Result, 1)
	go func() { result <- o.Execute(ctx, c) }()
	return result
}

func (o *observed) come(result <-chan lattice.Result) lattice.Result {
	o.t.Helper()
	select {
	case r := <-result:
		return r
	case <-time.After(10 * time.Second):
		o.t.Fatal("nothing comes of the command")
		return lattice.Result{}
	}
}

func (o *observed) told(h *wireHost, verb string) {
	o.t.Helper()
	o.until(verb, func() bool { return strings.Contains(strings.Join(h.commands(), " "), verb) })
}

func TestACommandIsSentOnceAndStateShowsItAfterwards(t *testing.T) {
	o, h, _ := one(t)
	require.NoError(t, o.Want(t.Context(), "shop-front", []string{"c"}))
	link := scaler.Link{Source: "web", Target: "api", Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{"a"}}
	for _, c := range []struct {
		command scaler.Command
		shows   func(scaler.State) bool
	}{
		{
			scaler.Command{Action: scaler.PutConfig, ID: "c", Values: map[string]string{"a": "1"}},
			func(s scaler.State) bool { return s.Configs["c"]["a"] == "1" },
		},
		{scaler.Command{Action: scaler.PutLink, Link: &link}, func(s scaler.State) bool { return len(s.Links) == 1 }},
		{scale(2), func(s scaler.State) bool { return s.Hosts[0].Components[0].Count == 2 }},
		{
			func() scaler.Command { c := scale(3); c.Annotations = annotations("s2"); return c }(), func(s scaler.State) bool {
				e := s.Hosts[0].Components[0]
				return e.Count == 3 && e.Annotations["wasmcloud.dev/scaler"] == "s2" // which no event said
			},
		},
		{provider(scaler.StartProvider), func(s scaler.State) bool { return len(s.Hosts[0].Providers) == 1 }},
		{provider(scaler.StopProvider), func(s scaler.State) bool { return len(s.Hosts[0].Providers) == 0 }},
		{scale(0), func(s scaler.State) bool { return len(s.Hosts[0].Components) == 0 }},
		{scaler.Command{Action: scaler.DeleteLink, Link: &link}, func(s scaler.State) bool { return len(s.Links) == 0 }},
		{scaler.Command{Action: scaler.DeleteConfig, ID: "c"}, func(s scaler.State) bool { return len(s.Configs) == 0 }},
	} {
		require.Equal(t, ok, o.Execute(t.Context(), c.command), "%+v", c.command)
		require.True(t, c.shows(o.State([]string{"c"})), "%+v", c.command)
	}
	require.Equal(t, []string{
		"config.put", "link.put", "component.scale", "component.scale", "provider.start",
		"provider.stop", "component.scale", "link.del", "config.del",
	}, h.commands())
}

func TestManyCommandsAtATime(t *testing.T) {
	o, h, _ := one(t)
	results := make([]<-chan lattice.Result, 100)
	for i := range results {
		c := scale(1 + i%3)
		c.ID = "api" + strings.Repeat("x", i)
		results[i] = o.start(t.Context(), c)
	}
	for _, r := range results {
		require.Equal(t, ok, o.come(r))
	}
	host, _ := o.host()
	require.Len(t, host.Components, 100)
	require.Len(t, h.commands(), 100)
}

func TestAFailureHasTheHostsOwnWords(t *testing.T) {
	o, h, _ := one(t)
	const words = "failed to fetch component: failed to fetch OCI bytes: Registry error: [OCI API error: manifest unknown]"
	h.does("component.scale", func(m *wireMsg) {
		h.says(m, true, "", nil)
		// One of somebody else's command, and then its own.
		h.publish("component_scale_failed", fields{"component_id": "api", "max_instances": 7, "error": "another"})
		h.publish("component_scale_failed", fields{"component_id": "api", "max_instances": 2, "error": words})
	})
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandFailed, Message: words}, o.Execute(t.Context(), scale(2)))

	h.does("provider.start", func(m *wireMsg) {
		h.says(m, true, "successfully started provider", nil)
		h.publish("provider_start_failed", fields{"provider_id": "web", "error": "Text file busy", "provider_ref": "w"})
	})
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandFailed, Message: "Text file busy"}, o.Execute(t.Context(), provider(scaler.StartProvider)))
}

func TestARefusalHasTheHostsOwnWords(t *testing.T) {
	o, h, _ := one(t)
	for verb, c := range map[string]scaler.Command{
		"component.scale": scale(1), "provider.start": provider(scaler.StartProvider),
		"config.put": {Action: scaler.PutConfig, ID: "c"}, "config.del": {Action: scaler.DeleteConfig, ID: "c"},
		"link.put": {Action: scaler.PutLink, Link: &shopLink}, "link.del": {Action: scaler.DeleteLink, Link: &shopLink},
	} {
		h.does(verb, func(m *wireMsg) { h.says(m, false, "not today", nil) })
		require.Equal(t, lattice.Result{Code: scaler.CodeCommandRefused, Message: "not today"}, o.Execute(t.Context(), c), verb)
	}
}

func TestNonsenseFailsTheCommandAndNothingElse(t *testing.T) {
	o, h, _ := one(t)
	h.does("component.scale", func(m *wireMsg) { _ = m.Respond([]byte("what?")) })
	got := o.Execute(t.Context(), scale(1))
	require.Equal(t, scaler.CodeCommandFailed, got.Code)
	require.Contains(t, got.Message, "scale component api on host NA to 1: the answer: it cannot be read")
	h.asBefore("component.scale")
	require.Equal(t, ok, o.Execute(t.Context(), scale(1)))
}

func TestWithoutAnAnswerTheInventoryDecides(t *testing.T) {
	silently := func(do func(*wireHost, fields)) func(*wireHost) func(*wireMsg) {
		return func(h *wireHost) func(*wireMsg) { return func(m *wireMsg) { do(h, h.body(m)) } }
	}
	for _, c := range []struct {
		name    string
		command scaler.Command
		verb    string
		before  func(*wireHost)
		does    func(*wireHost) func(*wireMsg)
	}{
		{"scale", scale(2), "component.scale", func(*wireHost) {}, silently(func(h *wireHost, _ fields) { h.runsAPI(2, "s1") })},
		{"stop", scale(0), "component.scale", func(h *wireHost) { h.runsAPI(2, "s1") }, silently(func(h *wireHost, _ fields) {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.components, "api")
		})},
		{"start a provider", provider(scaler.StartProvider), "provider.start", func(*wireHost) {}, silently(func(h *wireHost, b fields) { h.runs("web", b["annotations"]) })},
		{"stop a provider", provider(scaler.StopProvider), "provider.stop", func(h *wireHost) { h.runs("web", annotations("s7")) }, silently(func(h *wireHost, _ fields) {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.providers, "web")
		})},
		{"put a configuration", scaler.Command{Action: scaler.PutConfig, ID: "c", Values: map[string]string{"a": "1"}}, "config.put", func(*wireHost) {}, silently(func(h *wireHost, _ fields) {
			h.in.mu.Lock()
			defer h.in.mu.Unlock()
			h.in.configs["c"] = map[string]string{"a": "1"}
		})},
		{"put a link", scaler.Command{Action: scaler.PutLink, Link: &shopLink}, "link.put", func(*wireHost) {}, silently(func(h *wireHost, b fields) {
			h.in.mu.Lock()
			defer h.in.mu.Unlock()
			h.in.links = append(h.in.links, b)
		})},
		{"delete a link that is not there", scaler.Command{Action: scaler.DeleteLink, Link: &shopLink}, "link.del", func(*wireHost) {}, silently(func(*wireHost, fields) {})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o, h, _ := one(t)
			c.before(h)
			h.heartbeat()
			h.does(c.verb, c.does(h))
			require.Equal(t, ok, o.Execute(t.Context(), c.command))
			require.Equal(t, []string{c.verb}, h.commands())
		})
	}
}

func TestWithoutAnAnswerAndWithoutAChangeACommandTimesOut(t *testing.T) {
	for verb, c := range map[string]scaler.Command{
		"component.scale": scale(2), "provider.start": provider(scaler.StartProvider),
	} {
		t.Run(verb, func(t *testing.T) {
			o, h, clk := one(t)
			h.does(verb, nil)
			asked := o.Stats().Inventories
			result := o.start(t.Context(), c)
			o.until("looked", func() bool { return o.Stats().Inventories > asked })
			require.Empty(t, result, "it may still happen")
			clk.pass(10 * time.Second)
			require.Equal(t, lattice.Result{Code: scaler.CodeCommandTimedOut, Message: "host NA has not answered for 10s; what it runs has not changed"}, o.come(result))
		})
	}
	o, h, _ := one(t)
	h.does("config.put", nil)
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandTimedOut, Message: "put configuration c: no answer came in time: waited 1s"},
		o.Execute(t.Context(), scaler.Command{Action: scaler.PutConfig, ID: "c", Values: map[string]string{"a": "1"}}))
	h.does("link.put", nil)
	require.Equal(t, scaler.CodeCommandTimedOut, o.Execute(t.Context(), scaler.Command{Action: scaler.PutLink, Link: &shopLink}).Code)
}

func TestACommandThatAHostTookMayTakeItsTime(t *testing.T) {
	o, h, clk := patient(t)
	h.does("component.scale", func(m *wireMsg) { h.says(m, true, "", nil) })
	result := o.start(t.Context(), scale(2))
	o.told(h, "component.scale")
	clk.pass(59 * time.Second)
	o.quiet(h)
	require.Empty(t, result)
	h.scales(fields{"component_id": "api", "count": 2.0, "annotations": annotations("s1"), "component_ref": "registry.example/api"})
	require.Equal(t, ok, o.come(result))

	result = o.start(t.Context(), scale(3))
	o.until("waiting", func() bool { return clk.waits(time.Minute) })
	o.until("told", func() bool { return len(h.commands()) == 2 })
	clk.pass(time.Minute)
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandTimedOut, Message: "host NA took the command, and nothing has come of it for 1m0s; what it runs has not changed"}, o.come(result))
}

func TestALostEventIsMadeUpForByAQuestion(t *testing.T) {
	for _, c := range []struct {
		command scaler.Command
		happens func(*wireHost)
	}{
		{scale(2), func(h *wireHost) { h.runsAPI(2, "s1") }},
		{provider(scaler.StartProvider), func(h *wireHost) { h.runs("web", annotations("s7")) }},
	} {
		t.Run(string(c.command.Action), func(t *testing.T) {
			o, h, clk := oneWith(t, lattice.Settings{
				PingWindow: quick.PingWindow, Unacknowledged: time.Hour, Component: time.Hour, Provider: time.Hour,
			})
			const verbs = "component.scale provider.start"
			for verb := range strings.SplitSeq(verbs, " ") {
				h.does(verb, func(m *wireMsg) { h.says(m, true, "", nil) })
			}
			asked := o.Stats().Inventories
			result := o.start(t.Context(), c.command)
			o.until("waiting", func() bool { return len(h.commands()) == 1 && clk.waits(5*time.Second) })
			o.until("asked, and told that it has not happened yet", func() bool {
				clk.pass(time.Second)
				return o.Stats().Inventories > asked
			})
			require.Empty(t, result)
			c.happens(h)
			o.until("asked again", func() bool {
				clk.pass(time.Second)
				return len(result) == 1
			})
			require.Equal(t, ok, o.come(result))
			require.Len(t, h.commands(), 1)
		})
	}
}

func TestALateAnswerOfAHostThatEndsAProviderSlowly(t *testing.T) {
	o, h, _ := one(t)
	h.runs("web", annotations("s7"))
	h.heartbeat()
	o.first()
	h.does("provider.stop", nil)
	h.does("host.get", nil)
	result := o.start(t.Context(), provider(scaler.StopProvider))
	o.told(h, "provider.stop")
	o.until("looked", func() bool { return o.Stats().Unanswered > 0 })
	h.mu.Lock()
	delete(h.providers, "web")
	h.mu.Unlock()
	h.asBefore("host.get")
	h.publish("provider_stopped", fields{"provider_id": "web", "reason": "stop"})
	require.Equal(t, ok, o.come(result))
}

func TestAnEventOfAnEarlierCommandIsNoSuccess(t *testing.T) {
	o, h, _ := one(t)
	h.does("component.scale", func(m *wireMsg) { h.says(m, true, "", nil) })
	result := o.start(t.Context(), scale(2))
	o.told(h, "component.scale")
	asked := o.Stats().Inventories
	h.publish("component_scaled", fields{"component_id": "api", "max_instances": 2})
	o.until("looked", func() bool {
		host, _ := o.host()
		return o.Stats().Inventories > asked && len(host.Components) == 0
	})
	h.publish("component_scale_failed", fields{"component_id": "api", "max_instances": 2, "error": "no such image"})
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandFailed, Message: "no such image"}, o.come(result))
}

func TestAnEventSucceedsWhenTheHostDoesNotSayWhatItRuns(t *testing.T) {
	o, h, _ := one(t)
	h.does("host.get", func(m *wireMsg) { _ = m.Respond([]byte("what?")) })
	require.Equal(t, ok, o.Execute(t.Context(), scale(2)))
	host, _ := o.host()
	require.Equal(t, 2, host.Components[0].Count)
}

func TestAProviderThatRunsAlready(t *testing.T) {
	o, h, _ := one(t)
	h.runs("web", annotations("s7"))
	require.Equal(t, ok, o.Execute(t.Context(), provider(scaler.StartProvider)))

	h.runs("web", annotations("of somebody else"))
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandRefused, Message: "provider with that ID is already running"}, o.Execute(t.Context(), provider(scaler.StartProvider)))

	// Two starts at once: the second one fails although the provider runs.
	h.does("provider.start", func(m *wireMsg) {
		h.says(m, true, "successfully started provider", nil)
		h.runs("web", annotations("s7"))
		h.publish("provider_start_failed", fields{"provider_id": "web", "error": "provider is already running with that ID"})
	})
	require.Equal(t, ok, o.Execute(t.Context(), provider(scaler.StartProvider)))
}

func TestAProviderThatDoesNotRunIsStopped(t *testing.T) {
	o, _, _ := one(t)
	require.Equal(t, ok, o.Execute(t.Context(), provider(scaler.StopProvider)))
}

func TestAHostThatSaysItStoppedWhatItRuns(t *testing.T) {
	o, h, _ := one(t)
	h.runs("web", annotations("s7"))
	h.does("provider.stop", func(m *wireMsg) { h.says(m, true, "successfully stopped provider", nil) })
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandFailed, Message: "host NA says that it has stopped web, and goes on running it"}, o.Execute(t.Context(), provider(scaler.StopProvider)))
}

func TestAnotherImageThatRunsIsAFailureAndIsRemembered(t *testing.T) {
	o, h, _ := one(t)
	h.runsAPI(1, "s1")
	h.mu.Lock()
	h.components["api"]["image_ref"] = "registry.example/api:old"
	h.mu.Unlock()
	warning := "Requested to scale existing component to a different image reference: registry.example/api:old != registry.example/api."
	h.does("component.scale", func(m *wireMsg) {
		h.scales(h.body(m)) // the event comes before the answer
		h.says(m, true, warning, nil)
	})
	require.Equal(t, lattice.Result{Code: scaler.CodeCommandFailed, Message: warning}, o.Execute(t.Context(), scale(2)))
	require.Equal(t, "registry.example/api", h.components["api"]["image_ref"], "the host claims what does not run")
	host, _ := o.host()
	require.Equal(t, "registry.example/api:old", host.Components[0].Image)
	require.Equal(t, 2, host.Components[0].Count)

	// To stop it is what has to be done, whatever the host says.
	require.Equal(t, ok, o.Execute(t.Context(), scale(0)))
	h.asBefore("component.scale")
	require.Equal(t, ok, o.Execute(t.Context(), scale(2)))
	host, _ = o.host()
	require.Equal(t, "registry.example/api", host.Components[0].Image)
}

func TestToStopAComponentNoImageIsNamed(t *testing.T) {
	o, h, _ := one(t)
	h.runsAPI(1, "s1")
	named := make(chan any, 1)
	h.does("component.scale", func(m *wireMsg) {
		named <- h.body(m)["component_ref"]
		h.scale(m)
	})
	require.Equal(t, ok, o.Execute(t.Context(), scale(0)))
	require.Empty(t, <-named)
}

func TestACommandToAHostThatIsGone(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		o, h, _ := one(t)
		h.dies()
		require.Equal(t, lattice.Result{Code: scaler.CodeCommandTimedOut, Message: "scale component api on host NA to 1: nobody listens there"}, o.Execute(t.Context(), scale(1)))
		o.until("asked", func() bool { return o.Stats().Unanswered > 0 })
	})
	for _, c := range []struct {
		name    string
		leaves  func(*wireHost)
		command scaler.Command
		want    lattice.Result
	}{
		{
			"it stops meanwhile", func(h *wireHost) { h.publish("host_stopped", fields{}) }, scale(2),
			lattice.Result{Code: scaler.CodeCommandFailed, Message: "host NA is gone"},
		},
		{
			"it starts again meanwhile", func(h *wireHost) { h.publish("host_started", fields{"labels": h.labels}) }, scale(2),
			lattice.Result{Code: scaler.CodeCommandFailed, Message: "host NA has started again since it got the command"},
		},
		{"it stops, and what was to be stopped with it", func(h *wireHost) { h.publish("host_stopped", fields{}) }, scale(0), ok},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, h, _ := one(t)
			h.does("component.scale", func(m *wireMsg) { h.says(m, true, "", nil) })
			h.runsAPI(1, "s1")
			h.heartbeat()
			o.first()
			result := o.start(t.Context(), c.command)
			o.told(h, "component.scale")
			c.leaves(h)
			require.Equal(t, c.want, o.come(result))
		})
	}
	t.Run("its lease ends meanwhile", func(t *testing.T) {
		o, h, clk := patient(t)
		h.does("component.scale", func(m *wireMsg) { h.says(m, true, "", nil) })
		result := o.start(t.Context(), scale(2))
		o.told(h, "component.scale")
		h.dies()
		clk.pass(35 * time.Second)
		o.looking("it is gone", func() bool { return len(result) > 0 })
		got := o.come(result)
		require.False(t, got.OK)
		require.Equal(t, "host NA is gone", got.Message)
	})
}

func TestACommandEndsWithItsContext(t *testing.T) {
	o, h, _ := one(t)
	h.does("component.scale", func(m *wireMsg) { h.says(m, true, "", nil) })
	ctx, cancel := context.WithCancel(t.Context())
	result := o.start(ctx, scale(2))
	o.told(h, "component.scale")
	cancel()
	require.Equal(t, lattice.Result{Message: "given up: context canceled"}, o.come(result))
	o.quiet(h)
}

func TestCommandsThatCannotBe(t *testing.T) {
	o, h, _ := one(t)
	for _, c := range []struct {
		command scaler.Command
		want    lattice.Result
	}{
		{scaler.Command{Action: "dance", ID: "api"}, lattice.Result{Code: scaler.CodeCommandFailed, Message: `there is no such command: dance of "api"`}},
		{scaler.Command{Action: scaler.PutLink}, lattice.Result{Code: scaler.CodeCommandFailed, Message: `there is no such command: put_link of ""`}},
		{
			scaler.Command{Action: scaler.PutConfig, ID: "a.b"},
			lattice.Result{Code: scaler.CodeCommandRefused, Message: `configuration "a.b" cannot be part of a NATS subject: it must be 1 to 512 bytes without spaces, dots, *, > and control characters`},
		},
		{
			scaler.Command{Action: scaler.Scale, Key: scaler.Key{Host: "*"}},
			lattice.Result{Code: scaler.CodeCommandRefused, Message: `host "*" cannot be part of a NATS subject: it must be 1 to 512 bytes without spaces, dots, *, > and control characters`},
		},
	} {
		require.Equal(t, c.want, o.Execute(t.Context(), c.command))
	}
	require.Empty(t, h.commands())
}
