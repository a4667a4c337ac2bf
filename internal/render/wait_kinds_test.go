package render_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

func TestWaitsThatAreNotForCapacity(t *testing.T) {
	since := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	bound := since.Add(2 * time.Minute)
	o := render.Options{Now: since.Add(30 * time.Second)}
	m := api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 1, Backend: "process", StartedAt: &since}}
	m.Wait = &api.Wait{Kind: "gateway", Code: "gateway_unreachable", Reason: "gateway gw does not pick up: open the checkout", Since: since, CheckedAt: &since}
	require.Equal(t, `mission m   running   launch 1   30 s (since 08:00:00Z)
  backend process
  waits   waiting for the gateway, 30 s, no bound
  why     gateway_unreachable: gateway gw does not pick up: open the checkout
  since   08:00:00Z (30 s ago)
  looked  08:00:00Z (30 s ago); next when it answers
`, o.Mission(m))

	m.Wait = nil
	m.PhaseList = []api.Phase{{Name: "work", Ordinal: 1, Status: "running", Wait: &api.Wait{
		Kind: "node", Code: "node_silent", Reason: "node a is silent; its agent may still have run r1-1", Phase: "work", Since: since, Bound: &bound,
	}}}
	require.Contains(t, o.Mission(m), `phase 1 "work" of mission m   running · waiting for its node   30 s of 2 min (placed again by 08:02:00Z)
  why     node_silent: node a is silent; its agent may still have run r1-1
`)
}

func TestWaitsOfApplications(t *testing.T) {
	since := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	o := render.Options{Now: since.Add(30 * time.Second)}
	w := api.Wait{
		Kind: "lattice", Code: "never_observed", Reason: "no host has been observed", Since: since,
		WorkflowID: "app.default.prod.hello", Account: "default", Lattice: "prod", Application: "hello",
	}
	require.Equal(t, "prod/hello", render.Waiter(w), "the account is not said where there is one only")
	require.Equal(t, `WHO         KIND     CODE            SINCE      WAITED          NEXT LOOK            PLACE  REASON
prod/hello  lattice  never_observed  08:00:00Z  30 s, no bound  when a host appears  -      no host has been observed
`, o.Waits([]api.Wait{w}))
	w.Account = "ACME"
	require.Equal(t, "ACME/prod/hello", render.Waiter(w))
}
