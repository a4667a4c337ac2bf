package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
)

// who is who did what and why, without when.
type who struct{ verb, actor, note, via string }

func whoDid(acts []api.Act) []who {
	var all []who
	for _, a := range acts {
		all = append(all, who{a.Verb, a.Actor, a.Note, a.Via})
	}
	return all
}

// request asks an API over NATS as a client that does not say who it is.
func (p *product) request(subject, body string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	_, err := p.nats.RequestWithContext(ctx, subject, []byte(body))
	require.NoError(p.t, err)
}

// TestWhoDidWhat does everything that a person can do by hand, with a name and
// without, and looks for it where it is shown.
func TestWhoDidWhat(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	p.whoOfMissions()
	p.whoOfNodes()
	p.whoOfApplications()
}

func (p *product) whoOfMissions() {
	t := p.t
	p.launch(missionDoc{name: "m", phases: []phaseDoc{
		{name: "held", script: "true", extra: "hold: true"},
		{name: "long", script: "sleep 600"},
	}})
	p.phaseWait("m", 0, "hold")
	p.must("phase", "nudge", "m", "held", "--actor", "bob")
	require.NoError(t, p.temporal.SignalWorkflow(t.Context(), "phase.m.held", "", api.SignalNudge, nil))
	p.until("m", "both nudges are recorded", func(m api.MissionDetail) bool { return len(m.PhaseList[0].Acts) == 2 })
	p.must("phase", "release", "m", "held", "--actor", "ann", "--note", "looks good")
	p.until("m", "the second phase runs", func(m api.MissionDetail) bool { return m.PhaseList[1].Step == "run" })
	require.NoError(t, p.temporal.SignalWorkflow(t.Context(), "mission.m", "", api.SignalCancel, nil))
	m := p.ended("m")
	require.Equal(t, []who{
		{"nudge", "bob", "", "temporal"}, {"nudge", "", "", "temporal"}, {"release", "ann", "looks good", "temporal"},
	}, whoDid(m.PhaseList[0].Acts))
	require.Equal(t, []who{{"cancel", "", "", "temporal"}}, whoDid(m.Acts))
	require.Equal(t, "cancelled by somebody through the Temporal API: no reason given", m.Failure)
	shown := masked(p.must("mission", "show", "m"))
	for _, line := range []string{
		"  cancel  by somebody through the Temporal API, MOMENT\n",
		"  nudge  by bob, MOMENT\n", "  nudge  by somebody through the Temporal API, MOMENT\n",
		"  release by ann, MOMENT: looks good\n",
	} {
		require.Contains(t, shown, line)
	}
}

func (p *product) whoOfNodes() {
	t := p.t
	p.must("node", "cordon", "n1", "--actor", "ann", "--reason", "a noisy disk")
	p.request(api.SubjectNodeUncordon, `{"name":"n1"}`)
	p.must("node", "drain", "n1", "--actor", "ann", "--reason", "a new kernel", "--wait")
	p.must("node", "undrain", "n1", "--actor", "bob")
	p.must("node", "drain", "n1", "--actor", "ann", "--wait")
	p.must("node", "retire", "n1", "--actor", "ann", "--reason", "sold")
	p.must("node", "retire", "n1", "--undo", "--actor", "bob")
	require.Equal(t, []who{
		{"cordon", "ann", "a noisy disk", "nats"},
		{"uncordon", "", "", "nats"},
		{"drain", "ann", "a new kernel", "nats"},
		{"undrain", "bob", "", "nats"},
		{"drain", "ann", "", "nats"},
		{"retire", "ann", "sold", "nats"},
		{"unretire", "bob", "", "nats"},
	}, whoDid(p.n1().Acts))
	shown := masked(p.must("node", "show", "n1"))
	require.Contains(t, shown, "  cordon  by ann, MOMENT: a noisy disk\n")
	require.Contains(t, shown, "  uncordon by somebody through Tidewait's NATS API, MOMENT\n")
}

func (p *product) whoOfApplications() {
	t := p.t
	p.must("app", "deploy", filepath.Join(exampleApps(t), "hello.yaml"), "--actor", "ann")
	p.eventually("its workflow runs", func() bool {
		return p.listed(`ExecutionStatus="Running" AND WorkflowId="app.default.default.hello"`) == 1
	}, func() any { return nil })
	p.must("app", "nudge", "hello", "--actor", "bob")
	require.NoError(t, p.temporal.SignalWorkflow(t.Context(), "app.default.default.hello", "", api.SignalNudge, nil))
	status := func() (s struct{ Application api.AppDetail }) {
		require.NoError(t, json.Unmarshal([]byte(p.must("app", "status", "hello", "-o", "json")), &s))
		return s
	}
	p.eventually("both nudges are recorded", func() bool { return len(status().Application.Acts) == 4 }, func() any { return status() })
	app := status().Application
	require.Equal(t, []string{"ann", "lattice", "never_observed"}, []string{app.DeployedBy, app.Wait.Kind, app.Wait.Code})
	require.Equal(t, outcome{
		0, "application hello in lattice default  waiting · waiting for a host  AGE, no bound\n" +
			"  why  never_observed: " + never + "\n  since  MOMENT\n  looked  MOMENT; next when a host appears\n" +
			"  you can start a host in the lattice that suits\n  see which hosts there are, and what they run: tidewait lattice show default\n" +
			"  try now: tidewait app nudge hello --lattice default\n  give up: tidewait app undeploy hello --lattice default\n" +
			"  put  by ann, MOMENT, version v1\n  deploy  by ann, MOMENT, version v1\n  nudge  by bob, MOMENT\n  nudge  by somebody through the Temporal API, MOMENT\n\n",
		"",
	}, outcome{0, beforeScalers(p.app("status", "hello").out), ""})

	p.request("wadm.api.default.model.undeploy.hello", "")
	p.must("app", "delete", "hello", "v1", "--actor", "ann")
	var gone api.AppDetail
	require.NoError(t, natsrpc.Ask(t.Context(), p.nats, api.SubjectAppShow, api.AppRequest{Lattice: "default", Name: "hello"}, &gone))
	require.Equal(t, []who{
		{"put", "ann", "", "wadm"},
		{"deploy", "ann", "", "wadm"},
		{"nudge", "bob", "", "temporal"},
		{"nudge", "", "", "temporal"},
		{"undeploy", "", "", "wadm"},
		{"delete", "ann", "", "wadm"},
	}, whoDid(gone.Acts), "also when the application is no more")
}

// beforeScalers is the part of a shown status before its table.
func beforeScalers(shown string) string {
	for i := range shown {
		if i > 1 && shown[i-2:i] == "\n\n" {
			return shown[:i]
		}
	}
	return shown
}
