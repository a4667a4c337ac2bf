package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// site is a lattice of simulated hosts, and what a test asks the product about
// it with.
type site struct {
	*product
	account string
	name    string
	l       *simhost.Lattice
	nc      *nats.Conn
	api     wadm.Client

	mu       sync.Mutex
	statuses map[string][]wadm.Status // as they were published, by application
}

// in returns the product for a test that runs beside others.
func (p *product) in(t *testing.T) *product {
	t.Helper()
	own := *p
	own.t = t
	var err error
	own.db, err = pgx.Connect(t.Context(), p.Stack.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.db.Close(context.Background()) })
	return &own
}

// lattice makes a lattice without hosts.
func (p *product) lattice(name string) *site {
	p.t.Helper()
	return p.site(ledger.DefaultAccount, name, p.connect(), p.connect())
}

// site makes a lattice without hosts; its hosts, and those who ask, have
// connections of their own.
func (p *product) site(account, name string, hosts, asking *nats.Conn) *site {
	p.t.Helper()
	s := &site{product: p, account: account, name: name, nc: asking, statuses: map[string][]wadm.Status{}}
	s.api = wadm.Client{Conn: s.nc, Lattice: name}
	s.l = simhost.NewLattice(hosts, simhost.Options{Lattice: name})
	p.t.Cleanup(s.l.Close)
	_, err := s.nc.Subscribe("wadm.status."+name+".*", func(m *nats.Msg) {
		var status wadm.Status
		if json.Unmarshal(m.Data, &status) != nil {
			return
		}
		app := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.statuses[app] = append(s.statuses[app], status)
	})
	require.NoError(p.t, err)
	require.NoError(p.t, s.nc.Flush())
	return s
}

func (p *product) connect() *nats.Conn {
	p.t.Helper()
	nc, err := nats.Connect(p.Stack.NATSURL)
	require.NoError(p.t, err)
	p.t.Cleanup(nc.Close)
	return nc
}

// host starts a host with labels, each as key=value.
func (s *site) host(name string, labels ...string) *simhost.Host {
	s.t.Helper()
	spec := simhost.HostSpec{Name: name, Labels: map[string]string{}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		spec.Labels[key] = value
	}
	h, err := s.l.Start(s.t.Context(), spec)
	require.NoError(s.t, err)
	return h
}

// object is a part of a manifest.
type object = map[string]any

// manifest is one version of an application.
func manifest(name, version string, components ...object) object {
	return object{
		"apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
		"metadata": object{"name": name, "annotations": object{"version": version}},
		"spec":     object{"components": components},
	}
}

// shared lets other applications refer to one.
func shared(m object) object {
	m["metadata"].(object)["annotations"].(object)["experimental.wasmcloud.dev/shared"] = "true"
	return m
}

func component(name, image string, traits ...object) object {
	return object{"name": name, "type": "component", "properties": object{"image": image}, "traits": traits}
}

func provider(name, image string, traits ...object) object {
	return object{"name": name, "type": "capability", "properties": object{"image": image}, "traits": traits}
}

// ofPlatform refers to a component of the shared application platform.
func ofPlatform(part object, traits ...object) object {
	return object{
		"name": part["name"], "type": part["type"], "traits": traits,
		"properties": object{"application": object{"name": "platform", "component": part["name"]}},
	}
}

// with sets a property of a component.
func with(part object, property string, value any) object {
	part["properties"].(object)[property] = value
	return part
}

// config is one that the application makes, of one value.
func config(name, value string) object {
	return object{"name": name, "properties": object{"value": value}}
}

func instances(n int, spread ...object) object { return scalerTrait("spreadscaler", n, spread) }

func everywhere(n int, spread ...object) object { return scalerTrait("daemonscaler", n, spread) }

func scalerTrait(kind string, n int, spread []object) object {
	properties := object{"instances": n}
	if len(spread) > 0 {
		properties["spread"] = spread
	}
	return object{"type": kind, "properties": properties}
}

// on is a spread over the hosts with one label, given as key=value.
func on(name, label string, weight int) object {
	key, value, _ := strings.Cut(label, "=")
	return object{"name": name, "requirements": object{key: value}, "weight": weight}
}

// link leads to a component; a configuration stands at its source.
func link(target string, source ...object) object {
	properties := object{"namespace": "wasi", "package": "http", "interfaces": []string{"incoming-handler"}, "target": object{"name": target}}
	if len(source) > 0 {
		properties["source"] = object{"config": source}
	}
	return object{"type": "link", "properties": properties}
}

// named gives a link a name.
func named(name string, link object) object {
	link["properties"].(object)["name"] = name
	return link
}

const (
	webImage  = "registry.example.com/web:1"
	httpImage = "registry.example.com/http:1"
)

// shop is an application of a component, a provider, a link and a configuration.
func shop(name, version string) object {
	return manifest(name, version,
		component("web", webImage, instances(4)),
		provider("http", httpImage, link("web", config("listen", "8080"))))
}

// put stores a version.
func (s *site) put(m object) {
	s.t.Helper()
	document, err := json.Marshal(m)
	require.NoError(s.t, err)
	_, err = s.api.Put(s.ctx(), document)
	require.NoError(s.t, err)
}

// deploy stores a version and deploys it.
func (s *site) deploy(m object) {
	s.t.Helper()
	s.put(m)
	_, err := s.api.Deploy(s.ctx(), m["metadata"].(object)["name"].(string), nil)
	require.NoError(s.t, err)
}

func (s *site) undeploy(app string) {
	s.t.Helper()
	_, err := s.api.Undeploy(s.ctx(), app)
	require.NoError(s.t, err)
}

func (s *site) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	s.t.Cleanup(cancel)
	return ctx
}

// status asks how an application is. While no engine answers, it is nothing.
func (s *site) status(app string) wadm.Status {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	reply, err := s.api.Status(ctx, app)
	if err != nil {
		return wadm.Status{}
	}
	return *reply.Status
}

// becomes waits until an application is of a type.
func (s *site) becomes(app string, want wadm.StatusType) wadm.Status {
	s.t.Helper()
	return s.until(app, string(want), func(got wadm.Status) bool { return got.Status.Type == want })
}

// until waits until an application's status is as wanted.
func (s *site) until(app, what string, wanted func(wadm.Status) bool) wadm.Status {
	s.t.Helper()
	var got wadm.Status
	s.eventually("application "+app+" of lattice "+s.name+" is "+what, func() bool {
		got = s.status(app)
		return wanted(got)
	}, func() any { return []any{got, s.told()} })
	return got
}

// published returns the types that an application's published statuses had, one
// after the other, and forgets them.
func (s *site) published(app string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var types []string
	for _, status := range s.statuses[app] {
		types = append(types, string(status.Status.Type))
	}
	delete(s.statuses, app)
	return slices.Compact(types)
}

// publishes waits until the published statuses of shop have had the wanted
// types, one after the other.
func (s *site) publishes(want ...string) {
	const app = "shop"
	s.t.Helper()
	var got []string
	s.eventually("statuses of "+app+" are published", func() bool {
		got = slices.Compact(append(got, s.published(app)...))
		return len(got) >= len(want)
	}, func() any { return got })
	require.Equal(s.t, want, got)
}

// changes are the commands that change something.
var changes = []string{
	"component.scale", "component.update", "provider.start", "provider.stop", "link.put", "link.del", "config.put", "config.del",
	"component.auction", "provider.auction", "label.put", "label.del", "host.stop",
}

// told returns the commands that hosts got and that change something, and how
// often each, since the record was forgotten.
func (s *site) told() map[string]int {
	told := map[string]int{}
	for _, c := range s.calls() {
		told[c.Command+" "+c.ID]++
	}
	return told
}

// calls returns the commands that change something.
func (s *site) calls() []simhost.Call {
	return slices.DeleteFunc(s.l.Calls(), func(c simhost.Call) bool { return !slices.Contains(changes, c.Command) })
}

// runs returns what runs: of each component the instances, of each provider the
// hosts.
func (s *site) runs() map[string]int {
	all := map[string]int{}
	for _, on := range s.places() {
		for id, n := range on {
			all[id] += n
		}
	}
	return all
}

// places returns what runs on each host, by its name.
func (s *site) places() map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, h := range s.l.Hosts() {
		on := map[string]int{}
		for _, c := range h.Inventory().Components {
			on[c.ID] += int(c.Count)
		}
		for _, p := range h.Inventory().Providers {
			on[p.ID]++
		}
		all[h.Name()] = on
	}
	return all
}

// linked returns the links as source->target, in order.
func (s *site) linked() []string {
	links := []string{}
	for _, l := range s.l.Links() {
		links = append(links, l.Source+"->"+l.Target)
	}
	return slices.Sorted(slices.Values(links))
}

// empties waits until nothing of what the engine made is left.
func (s *site) empties() {
	s.t.Helper()
	s.eventually("nothing is left in lattice "+s.name, func() bool {
		return len(s.runs()) == 0 && len(s.linked()) == 0 && s.count("SELECT count(*) FROM reconciliations WHERE account = '"+s.account+"' AND lattice = '"+s.name+"'") == 0
	}, func() any { return []any{s.places(), s.linked(), s.told()} })
}

// workflow returns the state of an application's workflow; with no application,
// of the lattice's.
func (s *site) workflow(app string) enumspb.WorkflowExecutionStatus {
	s.t.Helper()
	desc, err := s.temporal.DescribeWorkflow(s.ctx(), s.workflowID(app), "")
	require.NoError(s.t, err)
	return desc.Status
}

func (s *site) workflowID(app string) string {
	if app == "" {
		return api.LatticeWorkflowID(s.account, s.name)
	}
	return api.AppWorkflowID(s.account, s.name, app)
}

// nudge has what failed tried again at once.
func (s *site) nudge(app string) {
	s.t.Helper()
	require.NoError(s.t, s.temporal.SignalWorkflow(s.ctx(), s.workflowID(app), "", api.SignalNudge, api.Nudge{Actor: "a test"}))
}

// spread is how many instances of a component each host has, as text.
func spread(places map[string]map[string]int, id string) string {
	var on []string
	for _, host := range slices.SortedFunc(maps.Keys(places), cmp.Compare[string]) {
		if n := places[host][id]; n > 0 {
			on = append(on, fmt.Sprintf("%s=%d", host, n))
		}
	}
	return strings.Join(on, " ")
}
