package e2e

import (
	"strings"

	"github.com/stretchr/testify/require"

	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// sharesLinks: two applications declare one link between parts of a third. It is
// there for as long as one of them is deployed, and put and deleted once.
func sharesLinks(s *site) {
	s.host("h")
	counter, http := component("counter", "registry.example.com/counter:1", instances(1)), provider("http", httpImage)
	s.deploy(shared(manifest("platform", "v1", counter, http)))
	user := func(name, version string) object {
		return manifest(name, version, ofPlatform(counter), ofPlatform(http, link("counter", object{"name": "listen"})))
	}
	s.becomes("platform", wadm.Deployed)
	s.command0("config.put.listen", object{"address": "0.0.0.0:8080"})
	s.deploy(user("one", "v1"))
	s.becomes("one", wadm.Deployed)
	s.deploy(user("two", "v1"))
	s.becomes("two", wadm.Deployed)
	s.settles("two")
	wire := []simhost.Link{{
		Source: "platform-http", Target: "platform-counter", Name: "default", Namespace: "wasi", Package: "http",
		Interfaces: []string{"incoming-handler"}, SourceConfig: []string{"listen"}, TargetConfig: []string{},
	}}
	require.Equal(s.t, wire, s.l.Links())
	require.Equal(s.t, 1, s.told()["link.put platform-http"], "it is there already")

	s.undeploy("one")
	s.forgotten("one")
	require.Equal(s.t, wire, s.l.Links(), "the other one needs it")
	require.Zero(s.t, s.told()["link.del platform-http"])
	require.Equal(s.t, wadm.Deployed, s.status("two").Status.Type)

	// Whoever is left keeps it true.
	s.command0("link.del", object{"source_id": "platform-http", "name": "default", "wit_namespace": "wasi", "wit_package": "http"})
	s.eventually("the link is put again", func() bool { return len(s.l.Links()) == 1 }, func() any { return s.told() })

	s.l.Forget()
	s.undeploy("two")
	s.forgotten("two")
	require.Empty(s.t, s.l.Links(), "nobody needs it any more")
	require.Equal(s.t, map[string]int{"link.del platform-http": 1}, s.told())
	require.Equal(s.t, map[string]int{"platform-counter": 1, "platform-http": 1}, s.runs())
	require.Equal(s.t, wadm.Deployed, s.status("platform").Status.Type)

	// Both at once.
	s.deploy(user("one", "v2"))
	s.deploy(user("two", "v2"))
	s.becomes("one", wadm.Deployed)
	s.becomes("two", wadm.Deployed)
	s.undeploy("one")
	s.undeploy("two")
	s.forgotten("one")
	s.forgotten("two")
	require.Empty(s.t, s.l.Links())
	_, there := s.l.Config("listen")
	require.True(s.t, there, "it is somebody else's")
}

// forgotten waits until nothing of an application is left to be done.
func (s *site) forgotten(app string) {
	s.t.Helper()
	s.eventually(app+" is forgotten", func() bool {
		return s.count("SELECT count(*) FROM reconciliations r WHERE r.lattice = '"+s.name+"' AND r.name = '"+app+"'") == 0
	}, func() any { return []any{s.linked(), s.told()} })
}

// disputesLinks: a host takes one target for an interface of a source. The
// application that comes second says so for as long as that is true.
func disputesLinks(s *site) {
	s.host("h")
	counter, http := component("counter", "registry.example.com/counter:1", instances(1)), provider("http", httpImage)
	s.deploy(shared(manifest("platform", "v1", counter, http)))
	s.deploy(manifest("first", "v1", ofPlatform(counter), ofPlatform(http, link("counter"))))
	s.becomes("platform", wadm.Deployed)
	s.becomes("first", wadm.Deployed)
	s.deploy(manifest("second", "v1", component("web", webImage, instances(1)), ofPlatform(http, link("web"))))
	const taken = "link default of platform-http already leads wasi:http to platform-counter, and a host allows one"
	got := s.until("second", "in conflict", func(got wadm.Status) bool {
		return got.Status.Type == wadm.Failed && got.Scalers[0].Status.Type == wadm.Deployed
	})
	want := wadm.StatusInfo{Type: wadm.Failed, Message: taken, Reason: "link_conflict", Since: got.Status.Since}
	require.Equal(s.t, want, got.Status)
	require.Equal(s.t, want, got.Scalers[1].Status)
	require.Contains(s.t, s.must("app", "status", "second", "--lattice", s.name), taken)
	s.nudge("second")
	s.settles("second")
	require.Equal(s.t, want, s.status("second").Status, "a look does not move since when")
	require.Equal(s.t, []string{"platform-http->platform-counter"}, s.linked())
	require.Equal(s.t, 1, s.told()["link.put platform-http"], "nobody is told what a host would refuse")

	s.undeploy("first")
	s.becomes("second", wadm.Deployed)
	require.Equal(s.t, []string{"platform-http->second-web"}, s.linked())
	require.Equal(s.t, map[string]int{"link.put platform-http": 2, "link.del platform-http": 1},
		map[string]int{"link.put platform-http": s.told()["link.put platform-http"], "link.del platform-http": s.told()["link.del platform-http"]})

	// What only the host knows is told in its own words.
	heal := s.l.Script(simhost.Rule{Command: "link.put", ID: "platform-http", Refuse: "link already exists with different target"})
	s.command0("link.del", object{"source_id": "platform-http", "name": "default", "wit_namespace": "wasi", "wit_package": "http"})
	got = s.until("second", "refused twice", func(got wadm.Status) bool { return got.Status.Attempt == 2 })
	require.Equal(s.t, []any{wadm.Failed, "command_refused"}, []any{got.Status.Type, got.Status.Reason})
	require.Equal(s.t, "link already exists with different target", strings.SplitN(got.Status.Message, " (attempt ", 2)[0])
	since := got.Status.Since
	got = s.until("second", "refused three times", func(got wadm.Status) bool { return got.Status.Attempt == 3 })
	require.Equal(s.t, since, got.Status.Since)
	heal()
	s.becomes("second", wadm.Deployed)
	s.undeploy("second")
	s.forgotten("second")
	require.Empty(s.t, s.linked())
	require.Equal(s.t, map[string]int{"platform-counter": 1, "platform-http": 1}, s.runs())
}

// disputesWires: two applications want one link, each with a configuration of
// its own. The first one has it, and nobody is told twice.
func disputesWires(s *site) {
	s.host("h")
	counter, http := component("counter", "registry.example.com/counter:1", instances(1)), provider("http", httpImage)
	s.deploy(shared(manifest("platform", "v1", counter, http)))
	user := func(name, version, address string) object {
		return manifest(name, version, ofPlatform(counter), ofPlatform(http, link("counter", config("listen", address))))
	}
	s.deploy(user("first", "v1", "8001"))
	s.becomes("platform", wadm.Deployed)
	s.becomes("first", wadm.Deployed)
	s.deploy(user("second", "v1", "8002"))
	const taken = "link default of platform-http to platform-counter is as application first wants it, which has other interfaces or configurations"
	got := s.becomes("second", wadm.Failed)
	require.Equal(s.t, wadm.StatusInfo{Type: wadm.Failed, Message: taken, Reason: "link_conflict", Since: got.Status.Since}, got.Status)
	s.settles("second")
	s.settles("first")
	require.Equal(s.t, wadm.Deployed, s.status("first").Status.Type)
	configured := func() []string { return s.l.Links()[0].SourceConfig }
	require.Equal(s.t, []string{"first-listen"}, configured())
	require.Equal(s.t, 1, s.told()["link.put platform-http"], "what another application has is not put over")

	// The first one changes its mind, and keeps it; then it leaves.
	s.deploy(manifest("first", "v2", ofPlatform(counter), ofPlatform(http, link("counter"))))
	s.eventually("the link is as the first one wants it now", func() bool { return len(configured()) == 0 }, func() any { return s.told() })
	s.becomes("first", wadm.Deployed)
	s.settles("second")
	require.Equal(s.t, got.Status, s.status("second").Status, "since the first look that found it so")
	require.Equal(s.t, 2, s.told()["link.put platform-http"])

	s.undeploy("first")
	s.becomes("second", wadm.Deployed)
	require.Equal(s.t, []string{"second-listen"}, configured())
	require.Equal(s.t, 3, s.told()["link.put platform-http"])
	s.forgotten("first")
	_, there := s.l.Config("first-listen")
	require.False(s.t, there)

	// Deployed at once, one of them gets it.
	s.undeploy("second")
	s.forgotten("second")
	s.l.Forget()
	s.deploy(user("first", "v3", "8003"))
	s.deploy(user("second", "v2", "8004"))
	s.eventually("one has it and the other one says so", func() bool {
		first, second := s.status("first").Status, s.status("second").Status
		return first.Type == wadm.Deployed && second.Reason == "link_conflict" || second.Type == wadm.Deployed && first.Reason == "link_conflict"
	}, func() any { return []any{s.status("first"), s.status("second"), s.told()} })
	s.settles("first")
	s.settles("second")
	require.LessOrEqual(s.t, s.told()["link.put platform-http"], 2)
}
