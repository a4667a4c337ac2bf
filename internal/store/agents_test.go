package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/internal/vm"
)

// team is a draft of one composed phase of three machines on a backend whose
// starts are counted.
func team(name string) store.Draft {
	return store.Draft{
		Name: name, Actor: "test", WorkflowRun: name + "-run",
		Document: json.RawMessage(`{"name":"` + name + `","spec":{"backend":"microvm","phases":[]}}`),
		Phases: []store.DraftPhase{{
			Name: "review", Turn: time.Hour, MaxWait: time.Hour,
			Demand: capacity.Demand{Backend: "microvm", Resources: capacity.Resources{CPUMilli: 3000, MemoryMiB: 900, DiskMiB: 30, Slots: 3}},
			Agents: []ledger.Agent{{Name: "author", Designated: true}, {Name: "critic-1"}, {Name: "critic-2"}},
		}},
	}
}

// vmNode is a node with 4 CPUs and 1 GiB of memory, of whose machines each costs
// 10 MiB more and two may start at once.
func vmNode() api.Heartbeat {
	h := node("a", 1024)
	h.StartLimit = 2
	h.Backends = map[string]api.Backend{"microvm": {OK: true, Network: true, Accel: "tcg", Overhead: capacity.Resources{MemoryMiB: 10}}}
	return h
}

func lookVM(t *testing.T, s *store.Store, phase int64, attempt int) ledger.Outcome {
	t.Helper()
	res, err := s.Pass(context.Background(), "microvm", []store.Look{{PhaseID: phase, Attempt: attempt, Wake: ledger.WakeFirst}}, ledger.WakeFirst)
	require.NoError(t, err)
	return res.Outcomes[phase]
}

func TestAComposedPhaseIsOneRunOfSeveralMachines(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, vmNode())
	l := launch(t, s, team("m"))

	placed := lookVM(t, s, l.Phases[0].ID, 1)

	require.Equal(t, ledger.Outcome{Placed: &ledger.Placed{RunID: "r1-1", NodeID: "a", Attempt: 1, Turn: time.Hour, Epoch: 1}}, placed)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM reservations WHERE cpu = 3000 AND memory = 930 AND disk = 30 AND slots = 3 AND starting = 3"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM nodes WHERE memory_reserved = 930 AND slots_reserved = 3 AND starting = 3"))
	run := shownRun(t, s)
	require.Equal(t, []api.RunAgent{
		{Name: "author", Machine: "r1-1/author", Designated: true, Status: "starting", Step: "create"},
		{Name: "critic-1", Machine: "r1-1/critic-1", Status: "starting", Step: "create"},
		{Name: "critic-2", Machine: "r1-1/critic-2", Status: "starting", Step: "create"},
	}, run.Agents)
}

func shownRun(t *testing.T, s *store.Store) api.Run {
	t.Helper()
	m, err := s.ShowMission(context.Background(), "m", 0, time.Second)
	require.NoError(t, err)
	runs := m.PhaseList[0].Runs
	run := runs[len(runs)-1]
	for i := range run.Agents {
		run.Agents[i].EndedAt = nil
	}
	return run
}

func TestMachinesGiveTheirStartSlotsBackOneByOne(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, vmNode())
	l := launch(t, s, team("m"))
	lookVM(t, s, l.Phases[0].ID, 1)
	says := func(r api.RunReport) {
		t.Helper()
		h := vmNode()
		h.Runs = []api.RunReport{r}
		res, err := s.Heartbeat(context.Background(), h)
		require.NoError(t, err)
		require.Empty(t, res.Reply.Destroy, "the run is wanted")
	}
	starting := func() int { return count(t, db, "SELECT starting FROM nodes") }
	agents := func(started ...bool) []api.AgentReport {
		var list []api.AgentReport
		for i, name := range []string{"author", "critic-1", "critic-2"} {
			list = append(list, api.AgentReport{Name: name, Step: "create", Started: started[i]})
		}
		return list
	}

	says(api.RunReport{ID: "r1-1", Step: "create", Agents: agents(false, false, false)})
	require.Equal(t, 3, starting())
	says(api.RunReport{ID: "r1-1", Step: "create", Agents: agents(false, true, false)})
	require.Equal(t, 2, starting())
	require.Equal(t, 2, count(t, db, "SELECT starting FROM reservations"))
	says(api.RunReport{ID: "r1-1", Step: "create", Agents: agents(false, true, false)})
	require.Equal(t, 2, starting(), "a slot is given back once")
	require.Equal(t, "running", shownRun(t, s).Agents[1].Status)
	says(api.RunReport{ID: "r1-1", Step: "inject", Started: true, Agents: agents(true, true, true)})
	require.Equal(t, 0, starting())
	require.Equal(t, "running", shownRun(t, s).Status)

	code := 3
	says(api.RunReport{ID: "r1-1", Step: "run", Started: true, Agents: []api.AgentReport{
		{Name: "author", Step: "run", Started: true, Accel: "tcg", Kernel: "6.1", Start: vm.Start{Kind: "cold", Why: "no snapshot yet"}},
		{Name: "critic-1", Step: "done", Started: true, Ended: true, ExitCode: &code},
		{Name: "critic-2", Step: "done", Started: true, Ended: true, Stopped: true, Signal: "SIGTERM"},
	}})
	require.Equal(t, []api.RunAgent{
		{Name: "author", Machine: "r1-1/author", Designated: true, Status: "running", Step: "run", Accel: "tcg", Kernel: "6.1", Start: vm.Start{Kind: "cold", Why: "no snapshot yet"}},
		{Name: "critic-1", Machine: "r1-1/critic-1", Status: "failed", Step: "done", ExitCode: &code},
		{Name: "critic-2", Machine: "r1-1/critic-2", Status: "stopped", Step: "done", Signal: "SIGTERM"},
	}, shownRun(t, s).Agents)
	require.Equal(t, 0, starting())
}

func TestHowMachinesOfARunEnd(t *testing.T) {
	zero, three := 0, 3
	for name, c := range map[string]struct {
		end  ledger.RunEnd
		want []api.RunAgent
	}{
		"told": {
			ledger.RunEnd{Status: "succeeded", Agents: []ledger.AgentEnd{
				{Name: "author", Status: "succeeded", Exit: &vm.Exit{}, Collected: true, Info: vm.Info{Accel: "tcg", Kernel: "6.1", Start: vm.Start{Kind: "snapshot"}}},
				{Name: "critic-1", Status: "failed", FailureCode: "machine_died", Failure: "it was gone"},
				{Name: "critic-2", Status: "stopped", Exit: &vm.Exit{Signal: "SIGKILL", OOM: true}},
			}},
			[]api.RunAgent{
				{Status: "succeeded", ExitCode: &zero, Collected: true, Accel: "tcg", Kernel: "6.1", Start: vm.Start{Kind: "snapshot"}},
				{Status: "failed", FailureCode: "machine_died", Failure: "it was gone"},
				{Status: "stopped", Signal: "SIGKILL", OutOfMemory: true},
			},
		},
		"lost with the node": {
			ledger.RunEnd{Status: "lost", FailureCode: "node_lost", Failure: "silent"},
			[]api.RunAgent{{Status: "lost"}, {Status: "failed", ExitCode: &three}, {Status: "lost"}},
		},
		"not told": {
			ledger.RunEnd{Status: "failed", FailureCode: "internal", Failure: "a fault"},
			[]api.RunAgent{{Status: "stopped"}, {Status: "failed", ExitCode: &three}, {Status: "stopped"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, db := open(t, rules)
			register(t, s, vmNode())
			l := launch(t, s, team("m"))
			lookVM(t, s, l.Phases[0].ID, 1)
			h := vmNode()
			h.Runs = []api.RunReport{{ID: "r1-1", Step: "run", Started: true, Agents: []api.AgentReport{
				{Name: "author", Step: "run", Started: true},
				{Name: "critic-1", Step: "done", Started: true, Ended: true, ExitCode: &three},
				{Name: "critic-2", Step: "run", Started: true},
			}}}
			register(t, s, h)

			_, err := s.FinishPhase(context.Background(), l.Phases[0].ID, c.end, ledger.Ended{Status: "failed", FailureCode: "x", Failure: "y"})
			require.NoError(t, err)
			register(t, s, h) // what an agent says late changes nothing

			for i, who := range []api.RunAgent{{Name: "author", Machine: "r1-1/author", Designated: true}, {Name: "critic-1", Machine: "r1-1/critic-1"}, {Name: "critic-2", Machine: "r1-1/critic-2"}} {
				c.want[i].Name, c.want[i].Machine, c.want[i].Designated, c.want[i].Step = who.Name, who.Machine, who.Designated, "ended"
			}
			require.Equal(t, c.want, shownRun(t, s).Agents)
			require.Equal(t, 3, count(t, db, "SELECT count(*) FROM run_agents WHERE ended_at IS NOT NULL"))
			require.Zero(t, count(t, db, "SELECT memory_reserved + cpu_reserved + disk_reserved + slots_reserved + starting FROM nodes"))
		})
	}
}

func TestALostRunOfSeveralMachinesIsPlacedAsOneAgain(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, vmNode())
	l := launch(t, s, team("m"))
	lookVM(t, s, l.Phases[0].ID, 1)

	attempt, err := s.RetryPhase(context.Background(), l.Phases[0].ID, 1, ledger.RunEnd{Status: "lost"})
	require.NoError(t, err)
	require.Equal(t, 2, attempt)
	require.Equal(t, "r1-2", lookVM(t, s, l.Phases[0].ID, 2).Placed.RunID)

	run := shownRun(t, s)
	require.Equal(t, []string{"r1-2/author", "r1-2/critic-1", "r1-2/critic-2"}, []string{run.Agents[0].Machine, run.Agents[1].Machine, run.Agents[2].Machine})
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM run_agents WHERE run_id = 'r1-1' AND status = 'lost'"))
}

func TestAComposedPhaseWaitsAsOne(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, vmNode())
	first := launch(t, s, team("holder"))
	require.NotNil(t, lookVM(t, s, first.Phases[0].ID, 1).Placed)
	l := launch(t, s, team("m"))

	w := lookVM(t, s, l.Phases[0].ID, 1).Waiting

	require.NotNil(t, w)
	require.Equal(t, capacity.Code("capacity_memory"), w.Code)
	require.Equal(t, "needs 3 machines with 3 CPUs, 900 MiB of memory and 30 MiB of disk in all (+30 MiB of memory overhead) on backend microvm; "+
		"a is short by 2 CPUs and 836 MiB of memory; 1st in line, and a is held for it", w.Sentence)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM topology_runs"))
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM run_agents"))
}
