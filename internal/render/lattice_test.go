package render_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/lattice"
	"tidewait/internal/render"
)

func TestLattices(t *testing.T) {
	require.Equal(t, "no lattice has been observed\n", plainText.Lattices(api.LatticeList{}))
	require.Equal(t, `LATTICE    HOSTS  APPLICATIONS  FIRST HOST                 OBSERVER     OBSERVED SINCE          CHECKED
default    2      17            11:00:00Z (2 h 0 min ago)  engine-a[2J  12:59:00Z (67 s ago)    3 s ago
ACME/east  0      1             -                          engine-b     12:19:05Z (41 min ago)  -
`, plainText.Lattices(api.LatticeList{Lattices: []api.Lattice{
		{
			Account: "default", Lattice: "default", Observer: "engine-a\x1b[2J", Epoch: 3, TakenAt: at("12:59:00"),
			ObservedSince: ptr(at("11:00:00")), Hosts: 2, CheckedAt: ptr(at("13:00:04")), Applications: 17,
		},
		{Account: "ACME", Lattice: "east", Observer: "engine-b", Epoch: 1, TakenAt: at("12:19:05"), Applications: 1},
	}}))
}

// latticeDetail has a host that runs something of everything, and an idle one.
func latticeDetail() api.LatticeDetail {
	ours := map[string]string{"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "hello"}
	return api.LatticeDetail{
		Now: now, Account: "default", Lattice: "prod", Observer: "engine-a", Epoch: 3, Since: at("12:59:00"),
		Hosts: []lattice.Host{
			{
				ID: "NAAA", Name: "calm-\nsea-1", Version: "1.7.0", Uptime: 41 * time.Minute, LastSeen: at("13:00:04"),
				Labels: map[string]string{"zone": "b", "arch": "arm64"},
				Components: []lattice.Entry{
					{ID: "hello-http", Count: 4, Image: "registry.example.com/hello:1", Annotations: ours},
					{ID: "stranger", Count: 1, Image: "file:///tmp/x.wasm", Annotations: map[string]string{"wasmcloud.dev/appspec": "hello"}},
				},
				Providers: []lattice.Entry{
					{ID: "hello-kv", Count: 1, Image: "registry.example.com/kv:2", Annotations: ours, Health: lattice.Unhealthy},
					{ID: "hello-server", Count: 1, Image: "registry.example.com/http:2", Annotations: ours, Health: lattice.Healthy},
				},
			},
			{ID: "NBBB", Name: "odd-sun-2", Version: "1.8.2", Uptime: 30 * time.Hour, LastSeen: at("12:59:37")},
		},
		Stats: lattice.Stats{Events: 120, Unknown: 2, Unreadable: 1},
	}
}

func TestLattice(t *testing.T) {
	waits := []api.Wait{{
		Kind: "backoff", Code: "fetch_failed", Reason: "no such image", Since: at("12:59:37"),
		WorkflowID: "app.default.prod.hello", Account: "default", Lattice: "prod", Application: "hello",
	}}
	require.Equal(t, `lattice prod   2 hosts alive
  observer engine-a, epoch 3, since 12:59:00Z (67 s ago)
  events  120 read, 3 passed over

host NAAA   calm- sea-1   version 1.7.0, up 41 min, seen 3 s ago
  labels  arch=arm64, zone=b
KIND       ID            INSTANCES  APPLICATION  HEALTH     IMAGE
component  hello-http    4          hello        -          registry.example.com/hello:1
component  stranger      1          -            -          file:///tmp/x.wasm
provider   hello-kv      1          hello        unhealthy  registry.example.com/kv:2
provider   hello-server  1          hello        healthy    registry.example.com/http:2

host NBBB   odd-sun-2   version 1.8.2, up 30 h 0 min, seen 30 s ago
  labels  none
  runs    nothing

WHO         KIND     CODE          SINCE      WAITED          NEXT LOOK  PLACE  REASON
prod/hello  backoff  fetch_failed  12:59:37Z  30 s, no bound  under way  -      no such image

about fetch_failed
  you can mend what the host complains of, then try now
          try now: tidewait app nudge hello --lattice prod
          see each part of it: tidewait app status hello --lattice prod
          give up: tidewait app undeploy hello --lattice prod
`, plainText.Lattice(latticeDetail(), waits))
}

func TestLatticeWithoutHosts(t *testing.T) {
	require.Equal(t, `lattice ACME/east   0 hosts alive
  observer engine-b, epoch 1, since 13:00:06Z (1 s ago)
`, plainText.Lattice(api.LatticeDetail{Account: "ACME", Lattice: "east", Observer: "engine-b", Epoch: 1, Since: at("13:00:06")}, nil))
}

func TestLatticeOnATerminal(t *testing.T) {
	l := latticeDetail()
	l.Hosts = l.Hosts[:1]
	l.Hosts[0].Components = nil
	require.Equal(t, "\x1b[1mlattice prod\x1b[0m   1 host alive\n"+
		"  \x1b[2mobserver \x1b[0mengine-a, epoch 3, since 12:59:00Z (67 s ago)\n  \x1b[2mevents  \x1b[0m120 read, 3 passed over\n\n"+
		"host \x1b[1mNAAA\x1b[0m   calm- sea-1   version 1.7.0, up 41 min, seen 3 s ago\n  \x1b[2mlabels  \x1b[0march=arm64, zone=b\n"+
		"\x1b[1mKIND\x1b[0m      \x1b[1mID\x1b[0m            \x1b[1mINSTANCES\x1b[0m  \x1b[1mAPPLICATION\x1b[0m  \x1b[1mHEALTH\x1b[0m     \x1b[1mIMAGE\x1b[0m\n"+
		"provider  hello-kv      1          hello        \x1b[31munhealthy\x1b[0m  registry.example.com…\n"+
		"provider  hello-server  1          hello        \x1b[32mhealthy\x1b[0m    registry.example.com…\n", render.Options{Now: now, Width: 80, Colour: true}.Lattice(l, nil))
}

// What several applications wait for alike is told once.
func TestALatticeTellsWhatYouCanDoOncePerCode(t *testing.T) {
	wait := func(name, kind, code string) api.Wait {
		return api.Wait{Kind: kind, Code: code, Reason: "why", Since: at("12:59:37"), Account: "acme", Lattice: "prod", Application: name}
	}
	text := plainText.Lattice(latticeDetail(), []api.Wait{
		wait("a", "lattice", "no_eligible_host"), wait("b", "backoff", "command_failed"), wait("c", "lattice", "no_eligible_host"),
	})
	_, advice, _ := strings.Cut(text, "\n\nabout ")
	require.Equal(t, `no_eligible_host
  you can start a host in the lattice that suits
          try now: tidewait app nudge NAME --lattice prod --account acme
          see each part of it: tidewait app status NAME --lattice prod --account acme
          give up: tidewait app undeploy NAME --lattice prod --account acme
about command_failed
  you can mend what the host complains of, then try now
          try now: tidewait app nudge b --lattice prod --account acme
          see each part of it: tidewait app status b --lattice prod --account acme
          give up: tidewait app undeploy b --lattice prod --account acme
`, advice)
}
