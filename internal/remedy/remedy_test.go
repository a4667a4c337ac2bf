package remedy_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
)

var (
	ofPhase   = api.Wait{Mission: "port", Phase: "survey", Gateway: "gw-a", Node: "node-a"}
	ofMission = api.Wait{Mission: "port", Gateway: "gw-a"}
	ofApp     = api.Wait{Account: "default", Lattice: "west", Application: "shop"}
)

// lines are remedies as a person reads them.
func lines(remedies []remedy.Remedy) []string {
	var all []string
	for _, r := range remedies {
		all = append(all, strings.TrimSuffix(r.What+": "+r.Command, ": "))
	}
	return all
}

func TestWhatAPersonCanDoAboutAWait(t *testing.T) {
	const (
		nudge   = "tidewait phase nudge port survey"
		give    = "give up: tidewait phase cancel port survey --reason WHY"
		who     = "see each node and who is ahead: tidewait mission show port"
		tryApp  = "try now: tidewait app nudge shop --lattice west"
		see     = "see each part of it: tidewait app status shop --lattice west"
		giveApp = "give up: tidewait app undeploy shop --lattice west"
		hosts   = "see which hosts there are, and what they run: tidewait lattice show west"
	)
	for _, test := range []struct {
		of         api.Wait
		kind, code string
		want       []string
	}{
		{ofPhase, "capacity", "capacity_memory", []string{"free or add a node that has room: tidewait node list", "look now: " + nudge, give, who}},
		{ofPhase, "capacity", "behind_in_queue", []string{"free or add a node that has room: tidewait node list", "look now: " + nudge, give, who}},
		{ofPhase, "capacity", "nodes_draining", []string{"uncordon or undrain a node, or add one: tidewait node list", "look now: " + nudge, give, who}},
		{ofPhase, "capacity", "nodes_lost", []string{"restart the agents of nodes that do not report, or add a node: tidewait node list", "look now: " + nudge, give, who}},
		{ofPhase, "capacity", "no_nodes_registered", []string{"start a node: tidewait-worker run --roles node --node.id NAME", "look now: " + nudge, give, who}},
		{ofPhase, "capacity", "not_evaluated", []string{"start an engine, when none runs; one looks within seconds: tidewait-worker run --roles engine", "look now: " + nudge, give, who}},
		{ofPhase, "capacity", "placer_unavailable", []string{"look at Postgres, and at the engine's log", "look now: " + nudge, give, who}},
		{ofPhase, "node", "node_silent", []string{"restart the agent of node node-a: tidewait-worker run --roles node --node.id node-a", "see the node: tidewait node show node-a", give}},
		{ofPhase, "gateway", "gateway_unreachable", []string{"start the gateway: tidewait-worker run --roles gateway --gateway.id gw-a", give}},
		{ofMission, "gateway", "gateway_unreachable", []string{"start the gateway: tidewait-worker run --roles gateway --gateway.id gw-a", "end the mission: tidewait mission cancel port --reason WHY"}},
		{ofPhase, "gateway", "results_bucket_full", []string{"make room: raise `fleet.bundle_bytes` or the account's storage in NATS, or lower `fleet.result_ttl`, and restart the gateway", give}},
		{ofPhase, "hold", "awaiting_release", []string{"release it: tidewait phase release port survey --note WHAT", give}},
		{ofPhase, "backoff", "command_failed", []string{"try now: " + nudge, give}},
		{ofApp, "observer", "observer_absent", []string{"start an engine: tidewait-worker run --roles engine", "if engines run, see why none observes it: tidewait lattice show west", giveApp}},
		{ofApp, "lattice", "never_observed", []string{"start a host in the lattice that suits", hosts, tryApp, see, giveApp}},
		{ofApp, "lattice", "hosts_taken", []string{"start another host that suits, or stop what else runs under the id there", hosts, tryApp, see, giveApp}},
		{ofApp, "backoff", "command_failed", []string{"mend what the host complains of, then try now", tryApp, see, giveApp}},
		{ofApp, "dependency", "config_missing", []string{"make it: wash config put NAME key=value", tryApp, see, giveApp}},
		{ofApp, "dependency", "secret_missing", []string{"make what is missing", tryApp, see, giveApp}},
		{ofApp, "dependency", "link_conflict", []string{"delete the link that is in the way, or give one of the two another name", tryApp, see, giveApp}},
	} {
		w := test.of
		w.Kind, w.Code = test.kind, test.code
		require.Equal(t, test.want, lines(remedy.Of(w)), "%s of %+v", test.code, test.of)
	}
	acme := ofApp
	acme.Account, acme.Kind, acme.Code = "acme", "backoff", "command_refused"
	require.Contains(t, lines(remedy.Of(acme)), "try now: tidewait app nudge shop --lattice west --account acme")
}

// Every wait there can be has a way out.
func TestEveryWaitCanBeGivenUp(t *testing.T) {
	for kind, codes := range ledger.WaitCodes() {
		for _, code := range codes {
			for _, w := range []api.Wait{ofPhase, ofMission, ofApp} {
				w.Kind, w.Code = kind, code
				can := strings.Join(lines(remedy.Of(w)), "\n")
				require.Regexp(t, `(?m)^(give up: tidewait (phase cancel|app undeploy) |end the mission: tidewait mission cancel )`, can)
			}
		}
	}
}

// A command is pasted into a shell: a name in it is one word of it, whatever it is.
func TestNamesAreOneWordOfACommand(t *testing.T) {
	require.Equal(t, "tidewait lattice show 'a;reboot'", remedy.ShowLattice("", "", "a;reboot").Command)
	require.Equal(t, `tidewait lattice show 'it'\''s'`, remedy.ShowLattice("", "default", "it's").Command)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching("[a-z;$`'\"\\\\ *&|<>(){}!~#-]{1,12}").Draw(t, "name")
		out, err := exec.Command("sh", "-c", "printf '%s\\n' "+strings.TrimPrefix(remedy.ShowLattice("", "", name).Command, "tidewait lattice show ")).Output()
		require.NoError(t, err)
		require.Equal(t, name+"\n", string(out))
	})
}
