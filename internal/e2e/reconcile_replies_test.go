package e2e

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// pair is a component and a provider that is linked to it, and a configuration.
func pair(name string) object {
	return manifest(name, "v1", component("web", webImage, instances(2)),
		provider("http", httpImage, link("web", config("listen", "8080"))))
}

// once is what a host is told of a pair, when that is enough.
func once(app string) map[string]int {
	return map[string]int{
		"component.scale " + app + "-web": 1, "provider.start " + app + "-http": 1,
		"link.put " + app + "-http": 1, "config.put " + app + "-listen": 1,
	}
}

// survivesLostReplies: a host does what it is told, and its answer is lost or
// late, or the event that tells of it. Nothing is started twice, and all of it is
// noticed.
func survivesLostReplies(s *site) {
	const busy = 13 * time.Second // more than a command may take that is not answered, and the pause after it
	for app, rules := range map[string][]simhost.Rule{
		"mute":    {{NoAck: true}},
		"late":    {{AckDelay: 4 * time.Second}}, // more than anybody waits for it
		"unheard": {{Event: "*", Lose: true}},
		"silent":  {{NoAck: true}, {Event: "*", Lose: true}},
		"twice":   {{Event: "*", Copies: 1, Delay: 500 * time.Millisecond}},
	} {
		for _, id := range []string{app + "-web", app + "-http", app + "-listen"} {
			for _, rule := range rules {
				rule.ID = id
				s.scriptChanges(rule)
			}
		}
	}
	for _, command := range []string{"component.scale", "provider.start"} {
		id := map[string]string{"component.scale": "busy-web", "provider.start": "busy-http"}[command]
		s.l.Script(simhost.Rule{Command: command, ID: id, Times: 1, NoAck: true, FetchDelay: busy})
	}
	s.host("h")
	said := s.saidOfProviders()

	apps := []string{"mute", "late", "unheard", "silent", "twice"}
	for _, app := range append(apps, "busy") {
		s.deploy(pair(app))
	}
	s.until("busy", "told that nothing is heard of it", func(got wadm.Status) bool { return got.Status.Reason == "command_timed_out" })
	require.Regexp(s.t, `^host N[A-Z0-9]{55} has not answered for 10s; what it runs has not changed \(attempt 1, .*\)`, s.status("busy").Status.Message)
	for _, app := range apps {
		s.becomes(app, wadm.Deployed)
	}
	s.becomes("busy", wadm.Deployed)
	told := s.told()
	for _, app := range apps {
		for command, times := range once(app) {
			require.Equal(s.t, times, told[command], command)
		}
	}
	// What was sent again did nothing.
	require.Equal(s.t, []int{2, 2, 1, 1}, []int{
		told["component.scale busy-web"], told["provider.start busy-http"], told["link.put busy-http"], told["config.put busy-listen"],
	})
	require.Equal(s.t, map[string]int{
		"mute-web": 2, "mute-http": 1, "late-web": 2, "late-http": 1, "unheard-web": 2, "unheard-http": 1,
		"silent-web": 2, "silent-http": 1, "twice-web": 2, "twice-http": 1, "busy-web": 2, "busy-http": 1,
	}, s.runs())
	s.eventually("the first command to start the provider has come to nothing", func() bool { return said("provider_start_failed", "busy-http") == 1 },
		func() any { return s.told() })
	s.settles("busy")
	require.Equal(s.t, wadm.Deployed, s.status("busy").Status.Type, "which is no failure")
	require.Equal(s.t, 1, said("provider_started", "busy-http"))
	require.Equal(s.t, 2, s.told()["provider.start busy-http"])

	// The same when all of it ends.
	for _, app := range append(apps, "busy") {
		s.undeploy(app)
	}
	s.empties()
	told = s.told()
	for _, app := range apps {
		require.Equal(s.t, []int{2, 1, 1, 1}, []int{
			told["component.scale "+app+"-web"], told["provider.stop "+app+"-http"], told["link.del "+app+"-http"], told["config.del "+app+"-listen"],
		}, app)
	}
}

// scriptChanges adds a rule about events, or about every command that changes
// something.
func (s *site) scriptChanges(r simhost.Rule) {
	if r.Event != "" {
		s.l.Script(r)
		return
	}
	for _, r.Command = range changes {
		s.l.Script(r)
	}
}

// saidOfProviders counts from now on how often hosts tell of an event about a
// provider.
func (s *site) saidOfProviders() func(event, id string) int {
	s.t.Helper()
	var mu sync.Mutex
	said := map[string]int{}
	subject := "wasmbus.evt." + s.name + "."
	_, err := s.nc.Subscribe(subject+"*", func(m *nats.Msg) {
		var event struct {
			Data struct {
				ID string `json:"provider_id"`
			} `json:"data"`
		}
		if json.Unmarshal(m.Data, &event) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		said[strings.TrimPrefix(m.Subject, subject)+" "+event.Data.ID]++
	})
	require.NoError(s.t, err)
	require.NoError(s.t, s.nc.Flush())
	return func(event, id string) int {
		mu.Lock()
		defer mu.Unlock()
		return said[event+" "+id]
	}
}
