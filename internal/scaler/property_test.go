package scaler_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// The generators keep every range small, so that hosts are scarce, spreads
// overlap and versions share what they need.

var (
	zones  = rapid.SampledFrom([]string{"a", "b", "c", ""})
	images = rapid.SampledFrom([]string{apiImage, "registry.example.com/shop/api:2.0.0"})
)

func anyLabels(t *rapid.T) map[string]string {
	if z := zones.Draw(t, "zone"); z != "" {
		return zone(z)
	}
	return nil
}

func anySpread(t *rapid.T) oam.Trait {
	var targets []oam.SpreadTarget
	for i := range rapid.IntRange(0, 3).Draw(t, "spreads") {
		weight := rapid.IntRange(0, 3).Draw(t, "weight")
		targets = append(targets, oam.SpreadTarget{Name: fmt.Sprintf("s%d", i), Requirements: anyLabels(t), Weight: &weight})
	}
	if rapid.IntRange(0, 3).Draw(t, "daemon") == 0 {
		return daemon(rapid.IntRange(0, 2).Draw(t, "instances"), targets...)
	}
	return spread(rapid.IntRange(0, 7).Draw(t, "instances"), targets...)
}

func anyConfig(t *rapid.T) []oam.Config {
	var all []oam.Config
	for _, name := range []string{"x", "y"} {
		if rapid.IntRange(0, 2).Draw(t, "config") == 0 {
			all = append(all, oam.Config{Name: name, Properties: map[string]string{"v": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")}})
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "external") == 0 {
		all = append(all, oam.Config{Name: "theirs"})
	}
	return all
}

func anyLink(t *rapid.T, targets []string) oam.Trait {
	trait := linkTo(rapid.SampledFrom(targets).Draw(t, "target"))
	trait.Link.Interfaces = rapid.SampledFrom([][]string{{"i"}, {"j"}, {"i", "j"}}).Draw(t, "interfaces")
	trait.Link.Target.Config = anyConfig(t)
	return trait
}

// anyManifest is of two components and two providers at most.
func anyManifest(t *rapid.T) oam.Manifest {
	var all []oam.Component
	var names []string
	for _, name := range []string{"api", "worker", "web", "db"} {
		if rapid.IntRange(0, 3).Draw(t, "absent") == 0 {
			continue
		}
		c := component(name)
		if name == "web" || name == "db" {
			c = provider(name)
		}
		c.Properties.Image = images.Draw(t, "image")
		c.Properties.Config = anyConfig(t)
		if rapid.IntRange(0, 4).Draw(t, "scaled") > 0 {
			c.Traits = append(c.Traits, anySpread(t))
		}
		all, names = append(all, c), append(names, name)
	}
	for i := range all {
		if rapid.Bool().Draw(t, "linked") {
			all[i].Traits = append(all[i].Traits, anyLink(t, names))
		}
	}
	return shop(all...)
}

func anyForeign(t *rapid.T, h *scaler.Host) {
	id := rapid.SampledFrom([]string{"shop_front-api", "shop_front-web", "stranger"}).Draw(t, "foreign")
	entries := &h.Components
	if id == "shop_front-web" {
		entries = &h.Providers
	}
	if slices.ContainsFunc(*entries, func(e scaler.Instances) bool { return e.ID == id }) {
		return
	}
	*entries = append(*entries, foreign(id, rapid.SampledFrom([]map[string]string{
		nil,
		{"wasmcloud.dev/managed-by": "wadm"},
		{"wasmcloud.dev/appspec": "shop-front"},
		{"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "another"},
	}).Draw(t, "annotations")))
}

// disturb changes the lattice, or what is desired.
func (e *engine) disturb(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(e.hosts))
	host := func() *scaler.Host { return e.hosts[rapid.SampledFrom(ids).Draw(t, "host")] }
	switch what := rapid.IntRange(0, 10).Draw(t, "what"); {
	case what <= 1 || len(ids) == 0:
		id := fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "joins"))
		if e.hosts[id] == nil {
			h := e.join(id, anyLabels(t))
			if rapid.IntRange(0, 3).Draw(t, "occupied") == 0 {
				anyForeign(t, h)
			}
		}
	case what == 2:
		e.leave(host().ID)
	case what == 3:
		host().Labels = anyLabels(t)
	case what == 4:
		anyForeign(t, host())
	case what == 5:
		h := host()
		h.Components, h.Providers = nil, nil
	case what == 6:
		if h := host(); len(h.Components) > 0 {
			h.Components = slices.Clone(h.Components)
			h.Components[0].Count += rapid.IntRange(1, 3).Draw(t, "more")
		}
	case what == 7 && len(e.links) > 0:
		e.links = slices.Clone(e.links)[1:]
	case what == 8:
		for name := range e.configs {
			e.configs[name] = map[string]string{"altered": "yes"}
		}
	case what == 9:
		e.desired = nil
	default:
		e.desired = scaler.List(anyManifest(t))
	}
}

func anyEngine(t *rapid.T) *engine {
	e := newEngine(anyManifest(t))
	for i := range rapid.IntRange(0, 5).Draw(t, "hosts") {
		h := e.join(fmt.Sprintf("n%d", i), anyLabels(t))
		if rapid.IntRange(0, 4).Draw(t, "occupied") == 0 {
			anyForeign(t, h)
		}
	}
	if rapid.Bool().Draw(t, "theirs") {
		e.configs["theirs"] = map[string]string{}
	}
	return e
}

// Whatever happens, the plans come to an end, with everything as it was asked
// for, and with no more commands than it takes. The model of the lattice fails
// on commands about somebody else's instances and on those that do nothing.
func TestPlansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEngine(t)
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			before, foreigners := e.instances(), e.foreigners()
			e.log = nil

			o := e.settle(t)

			require.True(t, o.Settled)
			require.True(t, o.Retry.IsZero())
			require.Equal(t, foreigners, e.foreigners())
			e.requireTrue(t, o)
			e.requireMinimum(t, before)
			e.disturb(t)
		}
	})
}

// Of several scalers of one component the earlier ones choose hosts first, and
// the plans still come to an end.
func TestSeveralScalersOfOneComponentConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"api", "web"}).Draw(t, "name")
		c := component(name)
		if name == "web" {
			c = provider(name)
		}
		for range rapid.IntRange(2, 3).Draw(t, "scalers") {
			c.Traits = append(c.Traits, anySpread(t))
		}
		e := anyEngine(t)
		for range rapid.IntRange(1, 3).Draw(t, "phases") {
			e.desired = scaler.List(shop(c))
			require.True(t, e.settle(t).Settled)
			e.disturb(t)
		}
		e.desired = nil
		e.settle(t)
		require.Empty(t, e.instances())
	})
}

// Commands are carried out whenever they like, the lattice changes while others
// are on their way, and plans are made at every moment.
func TestPlansConvergeWhileCommandsAreOnTheirWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEngine(t)
		var pending []scaler.Command
		plan := func() scaler.Outcome {
			o := scaler.Plan(scaler.Input{
				App: "shop-front", Lattice: "east", Desired: e.desired, Owned: e.owned, State: e.state(), Pending: pending, Now: e.now,
			})
			e.owned = o.Owned
			for _, b := range o.Batches {
				for _, c := range b.Commands {
					for _, p := range pending {
						require.False(t, p.Host == c.Host && p.ID == c.ID && p.Action == c.Action && (c.Link == nil || c.Link.Tuple() == p.Link.Tuple()),
							"%+v while %+v is on its way", c, p)
					}
				}
				pending = append(pending, b.Commands...)
			}
			return o
		}
		deliver := func() {
			if len(pending) == 0 {
				return
			}
			i := rapid.IntRange(0, len(pending)-1).Draw(t, "delivered")
			c := pending[i]
			pending = slices.Delete(slices.Clone(pending), i, i+1)
			if e.stillMakesSense(c) {
				e.carryOut(t, c)
			}
		}

		for range rapid.IntRange(1, 10).Draw(t, "moments") {
			plan()
			require.Empty(t, plan().Batches, "the same is planned twice")
			if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				e.disturb(t)
			} else {
				deliver()
			}
		}
		for range 200 {
			if o := plan(); o.Settled {
				break
			}
			deliver()
		}
		require.Empty(t, pending, "no end: %v", e.picture())
		e.requireTrue(t, e.settle(t))
	})
}

// stillMakesSense says whether a host would still take a command that was on
// its way while something else changed.
func (e *engine) stillMakesSense(c scaler.Command) bool {
	switch c.Action {
	case scaler.PutConfig:
		return !maps.Equal(e.configs[c.ID], c.Values) || e.configs[c.ID] == nil
	case scaler.DeleteConfig:
		return e.configs[c.ID] != nil
	case scaler.PutLink:
		for _, name := range slices.Concat(c.Link.SourceConfig, c.Link.TargetConfig) {
			if e.configs[name] == nil {
				return false
			}
		}
		return !slices.ContainsFunc(e.links, func(l scaler.Link) bool {
			return l.Source == c.Link.Source && l.Name == c.Link.Name && (l.Target != c.Link.Target ||
				slices.Equal(l.Interfaces, c.Link.Interfaces) && slices.Equal(l.TargetConfig, c.Link.TargetConfig))
		})
	case scaler.DeleteLink:
		return slices.ContainsFunc(e.links, func(l scaler.Link) bool { return l.Source == c.Link.Source })
	}
	h := e.hosts[c.Host]
	if h == nil {
		return false
	}
	for _, name := range c.Config {
		if e.configs[name] == nil {
			return false
		}
	}
	entries := h.Components
	if c.Action != scaler.Scale {
		entries = h.Providers
	}
	i := slices.IndexFunc(entries, func(x scaler.Instances) bool { return x.ID == c.ID })
	stops := c.Count == 0 || c.Action == scaler.StopProvider
	if i < 0 {
		return !stops
	}
	have := entries[i]
	return scaler.Owned(have.Annotations, "shop-front") && (stops ||
		c.Action == scaler.Scale && have.Image == c.Image && have.Count != c.Count && slices.Equal(e.config[c.Host+"/"+c.ID], c.Config))
}

// instances returns what runs for the application, by host and id.
func (l *lattice) instances() map[string]scaler.Instances {
	all := map[string]scaler.Instances{}
	for _, h := range l.hosts {
		for _, i := range slices.Concat(h.Components, h.Providers) {
			if scaler.Owned(i.Annotations, l.app) {
				all[h.ID+"/"+i.ID] = i
			}
		}
	}
	return all
}

func (l *lattice) foreigners() int {
	n := 0
	for _, h := range l.hosts {
		n += len(h.Components) + len(h.Providers)
	}
	return n - len(l.instances())
}

// requireMinimum checks that each place got one command when its count changed,
// when something new runs there or nothing any more, two when something else
// runs there, and none when nothing changed.
func (e *engine) requireMinimum(t require.TestingT, before map[string]scaler.Instances) {
	got := map[string]int{}
	for _, c := range e.log {
		if c.Host != "" {
			got[c.Host+"/"+c.ID]++
		}
	}
	after := e.instances()
	for at := range got {
		b, ran := before[at]
		a, runs := after[at]
		most := 0
		switch {
		case ran && runs && (b.Image != a.Image || !maps.Equal(b.Annotations, a.Annotations)):
			most = 2
		case ran != runs, b.Count != a.Count:
			most = 1
		}
		require.LessOrEqual(t, got[at], most, "commands for %s: before %+v, after %+v", at, b, a)
	}
}

// requireTrue checks an outcome against the lattice by other means than those of
// the plan.
func (e *engine) requireTrue(t require.TestingT, o scaler.Outcome) {
	require.Len(t, o.Rows, len(e.desired))
	if len(e.hosts) == 0 {
		for _, r := range o.Rows {
			require.Equal(t, "no_live_hosts", r.Status.Reason)
		}
		return
	}
	wanted := map[string]bool{} // places
	for i, s := range e.desired {
		row := o.Rows[i]
		require.Equal(t, s.ID, row.ID)
		require.Contains(t, []wadm.StatusType{wadm.Deployed, wadm.Waiting, wadm.Failed}, row.Status.Type, "%+v", row)
		if e.lacks(s) {
			require.NotEqual(t, wadm.Deployed, row.Status.Type)
			require.Contains(t, row.Status.Message, "configuration theirs does not exist")
			e.allow(s, wanted)
			continue
		}
		if s.Link != nil {
			e.requireLink(t, *s.Link, row)
			continue
		}
		satisfied, all, none := e.tally(t, s, wanted)
		if s.Kind == scaler.KindSpread {
			require.Equal(t, e.most(s), satisfied, "of %+v: %v", s, e.picture())
		}
		switch {
		case satisfied == all:
			require.Equal(t, wadm.Deployed, row.Status.Type, "%+v %v", row, e.picture())
		case none > 0 && none == all-satisfied:
			require.Equal(t, "no_eligible_host", row.Status.Reason)
		default:
			require.Equal(t, wadm.Failed, row.Status.Type)
			require.Contains(t, []string{"hosts_taken", "not_enough_hosts"}, row.Status.Reason)
		}
	}
	for at := range e.instances() {
		require.True(t, wanted[at], "%s runs and should not", at)
	}
	for _, s := range e.desired {
		for _, c := range s.Needs {
			if c.Managed {
				require.Contains(t, e.configs, c.Name)
			}
		}
	}
	if len(e.desired) == 0 {
		require.Empty(t, e.links)
		require.Empty(t, slices.DeleteFunc(slices.Collect(maps.Keys(e.configs)), func(n string) bool { return n == "theirs" }))
		require.True(t, o.Owned.Empty())
	}
	require.Subset(t, scaler.Makes(e.desired).Links, tuples(e.links), "a link that nobody wants")
}

func tuples(links []scaler.Link) []scaler.Tuple {
	var all []scaler.Tuple
	for _, l := range links {
		all = append(all, l.Tuple())
	}
	return all
}

func (e *engine) lacks(s scaler.Scaler) bool {
	return slices.ContainsFunc(s.Needs, func(c scaler.Config) bool { return e.configs[c.Name] == nil })
}

// allow marks every place of a workload: of a scaler that lacks something, what
// ran before stays.
func (e *engine) allow(s scaler.Scaler, wanted map[string]bool) {
	if s.Workload != nil {
		for id := range e.hosts {
			wanted[id+"/"+s.Workload.ID] = true
		}
	}
}

func (e *engine) requireLink(t require.TestingT, want scaler.Link, row wadm.ScalerStatus) {
	require.Equal(t, wadm.Deployed, row.Status.Type, "%+v", row)
	require.True(t, slices.ContainsFunc(e.links, func(l scaler.Link) bool {
		return l.Tuple() == want.Tuple() && slices.Equal(l.Interfaces, want.Interfaces) && slices.Equal(l.TargetConfig, want.TargetConfig)
	}), "%+v is not among %+v", want, e.links)
}

// tally counts what a scaler asks for, how much of it it has, and what no host
// suits: spreads, or the instances of a provider, where one that somebody else
// started may serve any spread.
func (e *engine) tally(t require.TestingT, s scaler.Scaler, wanted map[string]bool) (satisfied, all, none int) {
	provider, everywhere := s.Workload.Type == oam.TypeCapability, s.Kind == scaler.KindDaemon
	served := map[string]bool{} // hosts of a daemon
	foreign := 0
	for _, share := range asked(s) {
		eligible, running, missing := 0, 0, false
		for id, h := range e.hosts {
			have, there := e.entry(h, s)
			owned := there && scaler.Owned(have.Annotations, e.app)
			ours := owned && have.Annotations[scaler.AnnotationScaler] == s.ID && have.Annotations[scaler.AnnotationSpread] == share.Spread
			suits := scaler.Eligible(h.Labels, share.Requirements)
			if ours {
				require.True(t, suits, "%s runs on a host that does not suit", s.Workload.ID)
				require.Equal(t, s.Workload.Image, have.Image)
				wanted[id+"/"+s.Workload.ID], served[id] = true, true
				running += have.Count
			}
			if suits {
				eligible++
				served[id] = served[id] || provider && there && !owned
				missing = missing || !served[id] || ours && !provider && have.Count != share.Count
			}
		}
		switch {
		case share.Count == 0:
			require.Zero(t, running)
			continue
		case everywhere:
			all++
			if eligible > 0 && !missing {
				satisfied++
			}
		case provider:
			all += share.Count
			require.LessOrEqual(t, running, share.Count)
			satisfied += running
		default:
			all++
			if running == share.Count {
				satisfied++
			} else {
				require.Zero(t, running, "neither all nor nothing of %s", share.Spread)
			}
		}
		switch {
		case eligible > 0:
		case provider && !everywhere:
			none += share.Count
		default:
			none++
		}
	}
	if provider && !everywhere {
		for _, h := range e.hosts {
			have, there := e.entry(h, s)
			if there && !scaler.Owned(have.Annotations, e.app) {
				foreign++
			}
		}
		satisfied = min(satisfied+foreign, e.most(s))
	}
	return satisfied, all, none
}

func asked(s scaler.Scaler) []scaler.Share {
	if s.Kind == scaler.KindSpread {
		return scaler.Shares(s.Workload.Instances, s.Workload.Spread)
	}
	if len(s.Workload.Spread) == 0 {
		return []scaler.Share{{Spread: "default", Count: s.Workload.Instances}}
	}
	var all []scaler.Share
	for _, target := range s.Workload.Spread {
		all = append(all, scaler.Share{Spread: target.Name, Requirements: target.Requirements, Count: s.Workload.Instances})
	}
	return all
}

func (e *engine) entry(h *scaler.Host, s scaler.Scaler) (scaler.Instances, bool) {
	entries := h.Components
	if s.Workload.Type == oam.TypeCapability {
		entries = h.Providers
	}
	i := slices.IndexFunc(entries, func(x scaler.Instances) bool { return x.ID == s.Workload.ID })
	if i < 0 {
		return scaler.Instances{}, false
	}
	return entries[i], true
}

// most is how many of a component's spreads can have a host each, or how many of
// a provider's instances a host, found by trying everything.
func (e *engine) most(s scaler.Scaler) int {
	var slots []map[string]string
	for _, share := range asked(s) {
		n := min(share.Count, 1)
		if s.Workload.Type == oam.TypeCapability {
			n = share.Count
		}
		for range n {
			slots = append(slots, share.Requirements)
		}
	}
	var hosts []*scaler.Host
	for _, h := range e.hosts {
		have, there := e.entry(h, s)
		if s.Workload.Type == oam.TypeCapability || !there || scaler.Owned(have.Annotations, e.app) {
			hosts = append(hosts, h)
		}
	}
	var try func(hosts []*scaler.Host, used int) int
	try = func(hosts []*scaler.Host, used int) int {
		if len(hosts) == 0 {
			return 0
		}
		best := try(hosts[1:], used)
		for i, requirements := range slots {
			if used&(1<<i) == 0 && scaler.Eligible(hosts[0].Labels, requirements) {
				best = max(best, 1+try(hosts[1:], used|1<<i))
			}
		}
		return best
	}
	return try(hosts, 0)
}

// A deployment onto hosts that run nothing takes one command for each place,
// link and configuration, and is as even as it can be.
func TestFirstDeploymentTakesOneCommandForEachThing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instances, n := rapid.IntRange(0, 30).Draw(t, "instances"), rapid.IntRange(1, 9).Draw(t, "hosts")
		m := shop(component("api", spread(instances), linkTo("api")), provider("web"))
		m.Spec.Components[0].Properties.Config = anyConfig(t)
		m.Spec.Components[0].Traits[1].Link.Target.Config = anyConfig(t)
		e := newEngine(m)
		e.configs["theirs"] = map[string]string{}
		for i := range n {
			e.join(fmt.Sprintf("n%d", i), nil)
		}
		e.settle(t)
		require.Len(t, e.log, min(instances, n)+1+1+len(e.configs)-1)
		least, most := 1<<30, 0
		for at, i := range e.instances() {
			if i.ID == "shop_front-api" {
				least, most = min(least, i.Count), max(most, i.Count)
			}
			require.NotEmpty(t, at)
		}
		if instances > 0 {
			require.LessOrEqual(t, most-least, 1)
		}
	})
}

// The order of hosts, and of all else that a lattice shows, decides nothing.
func TestPlanDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEngine(t)
		for range rapid.IntRange(0, 3).Draw(t, "rounds") {
			e.round(t)
			e.disturb(t)
		}
		in := scaler.Input{App: "shop-front", Desired: e.desired, Owned: e.owned, State: e.state(), Now: e.now}
		first := scaler.Plan(in)
		in.State.Hosts = rapid.Permutation(in.State.Hosts).Draw(t, "hosts")
		for i := range in.State.Hosts {
			in.State.Hosts[i].Components = rapid.Permutation(in.State.Hosts[i].Components).Draw(t, "components")
		}
		require.Equal(t, first, scaler.Plan(in))
	})
}

// Hosts that refuse cost tries that grow apart, and keep nothing else waiting.
func TestBadHostsAreTriedLessAndLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "hosts")
		e := newEngine(shop(component("api", spread(rapid.IntRange(1, 6).Draw(t, "instances"))), provider("web")))
		for i := range n {
			id := fmt.Sprintf("n%d", i)
			e.join(id, nil)
			if rapid.Bool().Draw(t, "bad") {
				e.bad[id] = "no"
			}
		}
		for range 200 {
			o := e.round(t)
			if o.Settled || e.now.Sub(noon) > time.Hour {
				break
			}
			if !o.Retry.IsZero() && len(o.Batches) == 0 {
				e.now = o.Retry
			}
		}
		tries := map[scaler.Key]int{}
		for _, c := range e.log {
			tries[c.Key]++
		}
		for k, times := range tries {
			// 1+2+4+...+256 s, and then every 300 s.
			require.LessOrEqual(t, times, 9+12+1, "%v", k)
		}
		o := e.plan()
		if len(e.bad) < n {
			require.Equal(t, wadm.Deployed, o.Status().Status.Type, "%v: %s", e.picture(), o.Status().Status.Message)
			require.Empty(t, e.backoff)
		} else {
			require.Equal(t, []wadm.StatusType{"failed", "failed"}, typesOf(o.Rows))
			require.Contains(t, o.Rows[0].Status.Message, "no (attempt ")
		}
	})
}
