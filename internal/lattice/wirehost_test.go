package lattice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/lattice"
)

// wireMsg is a message that a host got.
type wireMsg = nats.Msg

// fields is a JSON object.
type fields = map[string]any

// wireLattice is what the hosts of a lattice share.
type wireLattice struct {
	name    string
	mu      sync.Mutex
	links   []fields
	configs map[string]map[string]string
}

// wireHost is a host as far as NATS shows it. It does at once what it is told,
// unless a test has it do something else.
type wireHost struct {
	t   testing.TB
	in  *wireLattice
	nc  *nats.Conn
	id  string
	url string

	mu         sync.Mutex
	born       time.Time
	now        func() time.Time
	labels     map[string]string
	components map[string]fields
	providers  map[string]fields
	instead    map[string]func(*nats.Msg) // by verb; nil says nothing
	told       []string                   // verbs, and what they were about
}

func newLattice() *wireLattice {
	return &wireLattice{name: strings.ReplaceAll(uuid.NewString(), "-", ""), configs: map[string]map[string]string{}}
}

func dial(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func (l *wireLattice) client(t testing.TB, url string) lattice.Client {
	return lattice.Client{Conn: dial(t, url), Lattice: l.name, Timeout: 2 * time.Second}
}

// boot starts a host that says so to nobody.
func (l *wireLattice) boot(t testing.TB, url, id string, now func() time.Time) *wireHost {
	t.Helper()
	h := &wireHost{
		t: t, in: l, nc: dial(t, url), id: id, url: url, now: now, born: now(), labels: map[string]string{"zone": "eu"},
		components: map[string]fields{}, providers: map[string]fields{}, instead: map[string]func(*nats.Msg){},
	}
	for verb, f := range map[string]func(*nats.Msg){
		"host.ping": h.ping, "host.get." + id: h.get, "component.scale." + id: h.scale,
		"provider.start." + id: h.startProvider, "provider.stop." + id: h.stopProvider,
	} {
		h.serve(verb, "", f)
	}
	for verb, f := range map[string]func(*nats.Msg){
		"link.get": h.linksGet, "link.put": h.linkPut, "link.del": h.linkDel,
		"config.get.*": h.configGet, "config.put.*": h.configPut, "config.del.*": h.configDel,
	} {
		h.serve(verb, "hosts", f)
	}
	require.NoError(t, h.nc.Flush())
	return h
}

func (h *wireHost) serve(suffix, queue string, f func(*nats.Msg)) {
	verb := strings.Join(strings.SplitN(suffix, ".", 3)[:2], ".")
	_, err := h.nc.QueueSubscribe("wasmbus.ctl.v1."+h.in.name+"."+suffix, queue, func(m *nats.Msg) {
		h.mu.Lock()
		instead, has := h.instead[verb]
		if verb != "host.ping" && verb != "host.get" {
			h.told = append(h.told, verb)
		}
		h.mu.Unlock()
		switch {
		case !has:
			f(m)
		case instead != nil:
			instead(m)
		}
	})
	require.NoError(h.t, err)
}

// does has the host do something else for a verb; nil: nothing.
func (h *wireHost) does(verb string, f func(*nats.Msg)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instead[verb] = f
}

// as before does for a verb what hosts do.
func (h *wireHost) asBefore(verb string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.instead, verb)
}

// commands returns the verbs the host was told, without queries.
func (h *wireHost) commands() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.told), func(v string) bool { return v == "link.get" || v == "config.get" })
}

// dies ends the connection without a word, and waits until the server has seen it.
func (h *wireHost) dies() {
	h.t.Helper()
	h.nc.Close()
	c := h.in.client(h.t, h.url)
	c.Timeout = 50 * time.Millisecond
	require.Eventually(h.t, func() bool {
		_, err := c.Inventory(context.Background(), h.id)
		return errors.Is(err, lattice.ErrNobody)
	}, 10*time.Second, time.Millisecond)
}

func (h *wireHost) says(m *nats.Msg, success bool, message string, response any) {
	answer := fields{"success": success, "message": message}
	if response != nil {
		answer["response"] = response
	}
	data, err := json.Marshal(answer)
	if err == nil {
		err = m.Respond(data)
	}
	h.check(err)
}

// check fails the test, unless the host's connection ends with it.
func (h *wireHost) check(err error) {
	if err != nil && !h.nc.IsClosed() {
		h.t.Errorf("host %s: %v", h.id, err)
	}
}

// publish publishes an event and returns its message.
func (h *wireHost) publish(name string, data fields) []byte {
	message, err := json.Marshal(fields{
		"specversion": "1.0", "id": uuid.NewString(), "type": "com.wasmcloud.lattice." + name, "source": h.id,
		"datacontenttype": "application/json", "time": h.now().Format(time.RFC3339Nano), "data": data,
	})
	h.check(err)
	h.republish(name, message)
	return message
}

func (h *wireHost) republish(name string, message []byte) {
	err := h.nc.Publish("wasmbus.evt."+h.in.name+"."+name, message)
	if err == nil {
		err = h.nc.Flush()
	}
	h.check(err)
}

func (h *wireHost) heartbeat() []byte { return h.publish("host_heartbeat", h.inventory()) }

func (h *wireHost) inventory() fields {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := func(m map[string]fields) []fields {
		all := []fields{}
		for _, id := range slices.Sorted(maps.Keys(m)) {
			all = append(all, m[id])
		}
		return all
	}
	return fields{
		"components": list(h.components), "providers": list(h.providers), "host_id": h.id, "friendly_name": "blue-sea",
		"labels": h.labels, "version": "1.9.2", "uptime_human": "long", "uptime_seconds": int(h.now().Sub(h.born).Seconds()),
	}
}

func (h *wireHost) ping(m *nats.Msg) {
	inv := h.inventory()
	h.says(m, true, "", fields{
		"id": h.id, "friendly_name": inv["friendly_name"], "labels": inv["labels"], "lattice": h.in.name,
		"uptime_seconds": inv["uptime_seconds"], "version": "1.9.2",
	})
}

func (h *wireHost) get(m *nats.Msg) { h.says(m, true, "", h.inventory()) }

func (h *wireHost) body(m *nats.Msg) fields {
	var body fields
	if err := json.Unmarshal(m.Data, &body); err != nil {
		h.t.Errorf("host %s was told what is no JSON: %s", h.id, m.Data)
	}
	return body
}

func (h *wireHost) scale(m *nats.Msg) {
	h.says(m, true, "", nil)
	h.scales(h.body(m))
}

// scales does what a command to scale says and publishes what a host does: the
// annotations and the image from before.
func (h *wireHost) scales(body fields) {
	id := body["component_id"].(string)
	event := fields{
		"annotations": body["annotations"], "component_id": id, "host_id": body["host_id"],
		"image_ref": body["component_ref"], "max_instances": body["count"],
	}
	h.mu.Lock()
	before, there := h.components[id]
	if there {
		event["annotations"], event["image_ref"] = before["annotations"], before["image_ref"]
	}
	if body["count"].(float64) == 0 {
		delete(h.components, id)
	} else {
		h.components[id] = fields{
			"id": id, "image_ref": body["component_ref"], "annotations": body["annotations"],
			"revision": 0, "max_instances": body["count"], "limits": nil,
		}
	}
	h.mu.Unlock()
	h.publish("component_scaled", event)
	if !there && body["count"].(float64) > 0 {
		h.publish("component_scaled", event)
	}
}

func (h *wireHost) startProvider(m *nats.Msg) {
	body := h.body(m)
	id := body["provider_id"].(string)
	h.mu.Lock()
	_, there := h.providers[id]
	h.mu.Unlock()
	if there {
		h.says(m, false, "provider with that ID is already running", nil)
		return
	}
	h.says(m, true, "successfully started provider", nil)
	h.runs(id, body["annotations"])
	h.publish("provider_started", fields{
		"annotations": body["annotations"], "host_id": h.id, "image_ref": "/art/" + id, "provider_id": id,
	})
}

// runs has the host run a provider.
func (h *wireHost) runs(id string, annotations any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.providers[id] = fields{"id": id, "image_ref": "/art/" + id, "name": "Web", "revision": 3, "annotations": annotations}
}

func (h *wireHost) stopProvider(m *nats.Msg) {
	id := h.body(m)["provider_id"].(string)
	h.mu.Lock()
	p, there := h.providers[id]
	delete(h.providers, id)
	h.mu.Unlock()
	if !there {
		h.says(m, false, "provider with that ID is not running", nil)
		return
	}
	h.publish("provider_stopped", fields{"annotations": p["annotations"], "host_id": h.id, "provider_id": id, "reason": "stop"})
	h.says(m, true, "successfully stopped provider", nil)
}

func (h *wireHost) linksGet(m *nats.Msg) {
	h.in.mu.Lock()
	links := append([]fields{}, h.in.links...)
	h.in.mu.Unlock()
	h.says(m, true, "", links)
}

func (h *wireHost) linkPut(m *nats.Msg) {
	body := h.body(m)
	h.in.mu.Lock()
	h.in.links = append(slices.DeleteFunc(h.in.links, func(l fields) bool { return slot(l) == slot(body) && l["target"] == body["target"] }), body)
	h.in.mu.Unlock()
	h.publish("linkdef_set", body)
	h.says(m, true, "successfully set link", nil)
}

func slot(l fields) string {
	return fmt.Sprint(l["source_id"], l["name"], l["wit_namespace"], l["wit_package"])
}

func (h *wireHost) linkDel(m *nats.Msg) {
	body := h.body(m)
	h.in.mu.Lock()
	i := slices.IndexFunc(h.in.links, func(l fields) bool { return slot(l) == slot(body) })
	if i >= 0 {
		body["target"] = h.in.links[i]["target"]
		h.in.links = slices.Delete(h.in.links, i, i+1)
	}
	h.in.mu.Unlock()
	h.publish("linkdef_deleted", body)
	h.says(m, true, "successfully deleted link", nil)
}

func name(m *nats.Msg) string { return m.Subject[strings.LastIndex(m.Subject, ".")+1:] }

func (h *wireHost) configGet(m *nats.Msg) {
	h.in.mu.Lock()
	values, found := h.in.configs[name(m)]
	h.in.mu.Unlock()
	if !found {
		h.says(m, true, "Configuration not found", nil)
		return
	}
	h.says(m, true, "", values)
}

func (h *wireHost) configPut(m *nats.Msg) {
	var values map[string]string
	if json.Unmarshal(m.Data, &values) != nil || values == nil {
		h.says(m, false, "config data should be a map of string -> string", nil)
		return
	}
	h.in.mu.Lock()
	h.in.configs[name(m)] = values
	h.in.mu.Unlock()
	h.publish("config_set", fields{"config_name": name(m)})
	h.says(m, true, "successfully put config", nil)
}

func (h *wireHost) configDel(m *nats.Msg) {
	h.in.mu.Lock()
	delete(h.in.configs, name(m))
	h.in.mu.Unlock()
	h.publish("config_deleted", fields{"config_name": name(m)})
	h.says(m, true, "successfully deleted config", nil)
}
