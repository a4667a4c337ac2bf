package simhost_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/simhost"
)

// TestTheLastEventTellsTheTruth: whatever a host is told, with whatever delays,
// its last event about a component has the count, and its last event about a
// provider the presence, that its inventory has in the end.
func TestTheLastEventTellsTheTruth(t *testing.T) {
	w := newWorld(t, simhost.Options{Heartbeat: 10_000 * time.Hour})
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		h := w.start(simhost.HostSpec{Name: fmt.Sprintf("host-%d", run)})
		defer h.Kill()
		w.settle(h)
		counts, present := map[string]float64{}, map[string]bool{}
		watch := func(lines []string) {
			for _, line := range lines {
				name, text, _ := strings.Cut(strings.TrimPrefix(line, "** "), " ")
				var data struct {
					Component string  `json:"component_id"`
					Provider  string  `json:"provider_id"`
					Count     float64 `json:"max_instances"`
				}
				if strings.HasPrefix(line, "** ") {
					require.NoError(t, json.Unmarshal([]byte(text), &data))
				}
				switch name {
				case "component_scaled":
					counts[data.Component] = data.Count
				case "provider_started", "provider_stopped":
					present[data.Provider] = name == "provider_started"
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(r, "commands") {
			heal := w.l.Script(simhost.Rule{
				Host:       h.ID(),
				FetchDelay: time.Duration(rapid.IntRange(0, 3).Draw(r, "fetch")) * time.Second,
				LockDelay:  time.Duration(rapid.IntRange(0, 2).Draw(r, "lock")) * time.Second,
				Overtaken:  rapid.Bool().Draw(r, "overtaken"),
			})
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "id")
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0, 1:
				image := rapid.SampledFrom([]string{"r.example/a:1", "r.example/a:2"}).Draw(r, "image")
				watch(w.do(h, "component.scale."+h.ID(), scale(id, image, fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "count")))))
			case 2:
				watch(w.do(h, "provider.start."+h.ID(), `{"provider_id":"`+id+`","provider_ref":"r.example/p:1"}`))
			case 3:
				watch(w.do(h, "provider.stop."+h.ID(), `{"provider_id":"`+id+`","host_id":"`+h.ID()+`"}`))
			}
			heal()
			watch(w.advance(h, time.Duration(rapid.IntRange(0, 2).Draw(r, "pause"))*time.Second))
		}
		watch(w.advance(h, 5*time.Minute))
		told, runs := map[string]float64{}, map[string]float64{}
		for id, count := range counts {
			if count > 0 {
				told["component "+id] = count
			}
		}
		for id, is := range present {
			if is {
				told["provider "+id] = 1
			}
		}
		for _, c := range h.Inventory().Components {
			runs["component "+c.ID] = float64(c.Count)
		}
		for _, p := range h.Inventory().Providers {
			runs["provider "+p.ID] = 1
		}
		require.Equal(t, told, runs)
	})
}

// FuzzCommands: a host survives every body, and answers at most once, in JSON.
func FuzzCommands(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", "[]", `{"component_id":"a","count":1}`, `{"component_id":null}`, `{"component_id":"a","count":1e3}`,
		`{"provider_id":"p","provider_ref":"file://"}`, `{"source_id":"s","target":"t","wit_namespace":"n","wit_package":"p","interfaces":[null]}`,
		`{"key":"k","value":"v"}`, `{"component_id":"a","annotations":{"a":1}}`, "{\"component_id\":\"\xff\",\"count\":2}",
		`{"component_ref":"://","component_id":"x","constraints":{},"count":1}`,
	} {
		for command := range commands {
			f.Add(command, []byte(body))
		}
	}
	w := newWorld(f, simhost.Options{})
	h := w.start(simhost.HostSpec{Builtins: true})
	w.settle(h)
	f.Fuzz(func(t *testing.T, command int, body []byte) {
		w.t = t
		w.send(strings.ReplaceAll(commands[(command%len(commands)+len(commands))%len(commands)], "$", h.ID()), string(body))
		replies := 0
		for _, m := range w.settle(h) {
			require.True(t, json.Valid(m.Data), "%s", m.Data)
			if strings.HasPrefix(m.Subject, w.inbox) {
				replies++
			}
		}
		require.LessOrEqual(t, replies, 1)
	})
}

var commands = []string{
	"component.scale.$", "component.update.$", "component.auction", "provider.start.$", "provider.stop.$", "provider.auction",
	"host.get.$", "host.ping", "label.put.$", "label.del.$", "link.put", "link.del", "link.get", "config.put.c", "config.del.c",
	"registry.put", "claims.get",
}
