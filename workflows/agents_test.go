package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// review is a composed phase of four machines, of which one decides.
var review = workflows.PhaseCommand{
	Name: "review", Attempts: 2,
	Agents: []workflows.AgentCommand{
		{
			Name: "author", Replicas: 1, Designated: true, Command: vm.Command{Argv: []string{"./author", "-v"}}, Collect: []string{"out/**"},
			Machine: vm.Spec{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64},
		},
		{
			Name: "critic", Replicas: 3, Command: vm.Command{Argv: []string{"./critic"}},
			Machine: vm.Spec{CPUMilli: 500, MemoryMiB: 256, DiskMiB: 64},
		},
	},
}

func reviewInput() workflows.PhaseInput {
	in := phaseInput()
	in.Command = review
	return in
}

func object(name string) *workflows.Object {
	return &workflows.Object{Bucket: "tidewait-results-node-a", Name: name, SHA256: "sha-" + name}
}

// reviewed is a run of review that succeeded: one critic was stopped and had
// ended well, one had failed, one did not end in time.
func reviewed() workflows.ExecuteRunResult {
	return workflows.ExecuteRunResult{
		Info: vm.Info{Accel: "kvm"},
		Agents: []workflows.AgentResult{
			{Name: "author", Agent: "author", Info: vm.Info{Accel: "kvm"}, Exit: &vm.Exit{}, Results: object("r7-1/author"), Deleted: []string{"old"}},
			{Name: "critic-1", Agent: "critic", Exit: &vm.Exit{}, Stopped: true, Results: object("r7-1/critic-1")},
			{Name: "critic-2", Agent: "critic", Exit: &vm.Exit{Code: 3}},
			{Name: "critic-3", Agent: "critic", Stopped: true},
		},
	}
}

func TestAComposedPhaseIsOneRunAndOneCommit(t *testing.T) {
	e := newEnv(t)
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return checkoutAt("c1"), nil
	}
	var shown string
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		shown = e.details()
		return reviewed(), nil
	}

	res, err := e.phase(reviewInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Equal(t, []string{"place-phase", "execute-run", "commit-results", "finish-phase"}, e.names())
	run := inputs[workflows.ExecuteRunInput](e.fakes)[0]
	require.Equal(t, review.Agents, run.Agents)
	require.Equal(t, vm.Spec{RunID: "r7-1"}, run.Machine)
	require.Equal(t, []workflows.CommitResultsInput{{
		Mission: "port", Launch: 3, Phase: "review", RunID: "r7-1", Node: "node-a", Parent: "c0", TreeIn: "tree-c0",
		Parts: []workflows.ResultsPart{
			{Agent: "author", Results: *object("r7-1/author"), Deleted: []string{"old"}},
			{Agent: "critic-1", Results: *object("r7-1/critic-1")},
		},
	}}, inputs[workflows.CommitResultsInput](e.fakes))
	require.Equal(t, []ledger.AgentEnd{
		{Name: "author", Status: "succeeded", Info: vm.Info{Accel: "kvm"}, Exit: &vm.Exit{}, Collected: true},
		{Name: "critic-1", Status: "stopped", Exit: &vm.Exit{}, Collected: true},
		{Name: "critic-2", Status: "failed", Exit: &vm.Exit{Code: 3}},
		{Name: "critic-3", Status: "stopped"},
	}, inputs[workflows.FinishPhaseInput](e.fakes)[0].Run.Agents)
	require.Contains(t, shown, "- **machines:** 4\n- **author:** `./author -v`\n- **critic:** `./critic`, in 3 machines, until the others are done\n")
	require.Contains(t, e.details(), "\n**machines**\n\n"+
		"- **author:** succeeded, exit 0\n- **critic-1:** stopped, exit 0\n- **critic-2:** failed, exit 3\n- **critic-3:** stopped\n")
}

func TestAComposedPhaseFailsWithTheAgentThatDecided(t *testing.T) {
	for name, c := range map[string]struct {
		res            workflows.ExecuteRunResult
		code, sentence string
	}{
		"its exit": {
			workflows.ExecuteRunResult{Failed: "author", Agents: []workflows.AgentResult{
				{Name: "author", Agent: "author", Exit: &vm.Exit{Code: 2}}, {Name: "critic-1", Agent: "critic", Exit: &vm.Exit{Code: 9}},
			}},
			"command_failed", `agent author: command "./author" exited with code 2`,
		},
		"a replica's signal": {
			workflows.ExecuteRunResult{Failed: "critic-2", Agents: []workflows.AgentResult{{Name: "critic-2", Agent: "critic", Exit: &vm.Exit{Signal: "SIGSEGV"}}}},
			"command_failed", `agent critic-2: command "./critic" was ended by SIGSEGV`,
		},
		"its memory": {
			workflows.ExecuteRunResult{Failed: "critic-2", Agents: []workflows.AgentResult{{Name: "critic-2", Agent: "critic", Exit: &vm.Exit{Signal: "SIGKILL", OOM: true}}}},
			"out_of_memory", `agent critic-2: command "./critic" was killed because the machine's 256 MiB of memory ran out`,
		},
		"its machine": {
			workflows.ExecuteRunResult{Failed: "critic-2", FailureCode: "boot_failed", Failure: "machine critic-2: it did not answer within 1m0s", Agents: []workflows.AgentResult{
				{Name: "author", Agent: "author", Stopped: true},
				{Name: "critic-2", Agent: "critic", FailureCode: "boot_failed", Failure: "it did not answer within 1m0s"},
			}},
			"boot_failed", "machine critic-2: it did not answer within 1m0s",
		},
		"nobody knows how": {
			workflows.ExecuteRunResult{Failed: "author", Agents: []workflows.AgentResult{{Name: "author", Agent: "author"}}},
			"internal", "agent author: the node did not say how its command ended",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
				return c.res, nil
			}
			in := reviewInput()
			in.Command.Attempts = 1

			require.Equal(t, ledger.Ended{Status: "failed", FailureCode: c.code, Failure: c.sentence}, e.endedPhase(in))

			run := inputs[workflows.FinishPhaseInput](e.fakes)[0].Run
			require.Equal(t, []string{"failed", c.code, c.sentence}, []string{run.Status, run.FailureCode, run.Failure})
			require.Len(t, run.Agents, len(c.res.Agents))
			require.Empty(t, inputs[workflows.CommitResultsInput](e.fakes), "nothing is committed")
		})
	}
}

func TestAttemptsAreOfAllMachinesTogether(t *testing.T) {
	e := newEnv(t)
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return checkoutAt("c1"), nil
	}
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID == "r7-1" {
			return workflows.ExecuteRunResult{Failed: "author", Agents: []workflows.AgentResult{{Name: "author", Agent: "author", Exit: &vm.Exit{Code: 2}}}}, nil
		}
		return reviewed(), nil
	}

	_, err := e.phase(reviewInput())

	require.NoError(t, err)
	require.Equal(t, []ledger.AgentEnd{{Name: "author", Status: "failed", Exit: &vm.Exit{Code: 2}}}, inputs[ledger.BackOff](e.fakes)[0].Run.Agents)
	require.Equal(t, "r7-2", inputs[workflows.CommitResultsInput](e.fakes)[0].RunID)
}

func TestResultsThatConflictFailThePhase(t *testing.T) {
	const sentence = `the results of 2 agents conflict in 1 path, and nothing was committed: "a": author wrote it, critic-1 deleted it`
	e := newEnv(t)
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		return reviewed(), nil
	}
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return workflows.Checkout{}, final(sentence, workflows.ErrTypeWorkspaceRefused, "results_conflict")
	}

	require.Equal(t, ledger.Ended{Status: "failed", FailureCode: "results_conflict", Failure: sentence}, e.endedPhase(reviewInput()))

	require.Len(t, inputs[workflows.ExecuteRunInput](e.fakes), 1, "running it again would not help")
	require.Len(t, inputs[workflows.FinishPhaseInput](e.fakes)[0].Run.Agents, 4, "how each ended is still told")
}

func TestACancelledComposedPhaseKeepsWhatThereIs(t *testing.T) {
	e := newEnv(t)
	res := reviewed()
	res.Partial, res.FailureCode, res.Failure = true, "cancelled", "nothing could be kept of critic-2 (why)"
	e.stopKeeping(res)
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return workflows.Checkout{Branch: "tidewait/port/3-partial/review", Commit: "c9"}, nil
	}

	ended := e.endedPhase(reviewInput())

	require.Equal(t, ledger.Ended{
		Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: wrong branch; nothing could be kept of critic-2, critic-3",
		By: cancelBy("ann", "wrong branch"), Partial: &ledger.Partial{Branch: "tidewait/port/3-partial/review", Commit: "c9"},
	}, ended)
	commits := inputs[workflows.CommitResultsInput](e.fakes)
	require.Len(t, commits, 1)
	require.Equal(t, []string{"author", "critic-1"}, []string{commits[0].Parts[0].Agent, commits[0].Parts[1].Agent})
}

func TestALostNodeLosesAllMachines(t *testing.T) {
	e := newEnv(t)
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		return checkoutAt("c1"), nil
	}
	e.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID == "r7-1" {
			return workflows.ExecuteRunResult{Lost: true, Failure: "the node's agent was stopped"}, nil
		}
		return reviewed(), nil
	}

	_, err := e.phase(reviewInput())

	require.NoError(t, err)
	require.Equal(t, []workflows.RetryPhaseInput{{PhaseID: 7, Attempt: 1, Run: ledger.RunEnd{
		Status: "lost", FailureCode: "node_lost", Failure: "the node's agent was stopped",
	}}}, inputs[workflows.RetryPhaseInput](e.fakes), "all of them, so none is named")
}
