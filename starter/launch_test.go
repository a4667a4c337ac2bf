package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/mission"
)

func captured() (c *cli, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return &cli{out: out, errs: errs, format: "table"}, out, errs
}

// overTheWire returns err as a client of Temporal gets it.
func overTheWire(err error) error {
	converter := temporal.GetDefaultFailureConverter()
	return converter.FailureToError(converter.ErrorToFailure(err))
}

func TestRefusedLaunches(t *testing.T) {
	c, _, _ := captured()
	l := &launcher{cli: c, document: document{mission: mission.Mission{Name: "m"}}}
	refusals := []ledger.RefusedPhase{{Phase: "build", Refusal: capacity.CapabilityRefusal{
		Code: "backend_unsupported", Sentence: "no known node offers microvm",
		Counts: capacity.Counts{Incapable: 3},
		Nodes: []capacity.NodeReason{
			{NodeID: "node-a", Why: "offers process only"},
			{NodeID: "node-b", Why: "its microvm probe failed"},
		},
	}}}
	for _, test := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{
			"capability", overTheWire(temporal.NewApplicationError("no node", "CapabilityRefused", refusals)), 3,
			`tidewait: mission m stays draft: no known node could ever run it
  phase "build": backend_unsupported: no known node offers microvm
    node-a: offers process only
    node-b: its microvm probe failed
    and 1 more of 3 nodes`,
		},
		{
			"capability without details", temporal.NewApplicationError("no nodes are registered", "CapabilityRefused"), 3,
			"tidewait: mission m stays draft: no known node could ever run it: no nodes are registered",
		},
		{
			"capability with details of another shape",
			overTheWire(temporal.NewApplicationError("too large", "CapabilityRefused", []capacity.CapabilityRefusal{{Code: "exceeds_every_node"}})), 3,
			"tidewait: mission m stays draft: no known node could ever run it: too large",
		},
		{
			"running, says the workflow", temporal.NewApplicationError("is running", "MissionRunning"), 1,
			"tidewait: mission m is running already; see it with `tidewait mission show m`, or end it with `tidewait mission cancel m --reason WHY`",
		},
		{
			"running, says Temporal", fmt.Errorf("failed workflow start: %w", serviceerror.NewWorkflowExecutionAlreadyStarted("x", "", "")), 1,
			"tidewait: mission m is running already; see it with `tidewait mission show m`, or end it with `tidewait mission cancel m --reason WHY`",
		},
		{
			"no gateway", temporal.NewApplicationError("no gateway is alive", "NoGateway"), 5,
			"tidewait: mission m is not launched: no gateway is alive",
		},
		{
			"a rule of the fleet", temporal.NewApplicationError("the turn is longer than the fleet's", "InvalidMission"), 2,
			"tidewait: mission m is not launched: the turn is longer than the fleet's",
		},
		{
			"nothing to begin from", temporal.NewApplicationError("phase \"build\" has no commit in launch 1, where it is failed", "RerunRefused"), 1,
			"tidewait: mission m is not launched again: phase \"build\" has no commit in launch 1, where it is failed",
		},
		{
			"another refusal", temporal.NewApplicationError("no database", "LaunchUnavailable"), 1,
			"tidewait: mission m is not launched: no database",
		},
		{
			"nobody takes it", &client.WorkflowUpdateServiceTimeoutOrCanceledError{}, 5,
			"tidewait: no engine has taken the launch of mission m in 30s; does one poll Temporal's task queue \"tidewait\"? The launch may still happen, see `tidewait mission show m`",
		},
		{
			"no search attribute", serviceerror.NewInvalidArgument("Namespace default has no mapping defined for search attribute TidewaitMission"), 5,
			"tidewait: Temporal does not know the search attribute TidewaitMission; register it with `tidewait setup`",
		},
		{
			"no namespace", serviceerror.NewNamespaceNotFound("prod"), 5,
			"tidewait: Temporal has no namespace \"prod\"; create it with `tidewait setup`, or set temporal.namespace",
		},
		{"anything else", errors.New("odd"), 1, "tidewait: cannot launch mission m: odd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := l.launchFault(context.Background(), test.err)
			require.Equal(t, test.text, message(err))
			require.Equal(t, test.code, exitCode(err))
		})
	}
}

func TestAnInterruptedLaunchSaysWhatIsNotKnown(t *testing.T) {
	c, _, _ := captured()
	l := &launcher{cli: c, document: document{mission: mission.Mission{Name: "m"}}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := l.launchFault(ctx, context.Canceled)
	require.Equal(t, 130, exitCode(err))
	require.Equal(t, "tidewait: interrupted; the launch may have happened, see `tidewait mission show m`", message(err))
}

func TestTheWebUIsTextsOfALaunch(t *testing.T) {
	priority := 70
	m := mission.Mission{Name: "m", Labels: map[string]string{"team": "platform", "area": "d*b"}, Spec: mission.Spec{
		Backend: "microvm", Workspace: mission.Workspace{Git: "https://example.org/a.git", Ref: "main"}, Priority: &priority,
		Turn: 30 * time.Minute, MaxWait: 2 * time.Hour,
		Phases: []mission.Phase{
			{Name: "survey", Resources: mission.Resources{CPUMilli: 1500, MemoryMiB: 512}, Attempts: 2},
			{Name: "review", Hold: &mission.Hold{}, Agents: []mission.Agent{
				{Name: "author", Replicas: 1, Resources: mission.Resources{CPUMilli: 1000, MemoryMiB: 512}},
				{Name: "critic", Replicas: 3, Resources: mission.Resources{CPUMilli: 500, MemoryMiB: 256}},
			}},
		},
	}}
	o := startOptions(m, "[ann](http://evil)")
	require.Equal(t, "mission.m", o.ID)
	require.Equal(t, "tidewait", o.TaskQueue)
	require.Equal(t, "mission m: 2 phases on microvm", o.StaticSummary)
	require.Equal(t, "- **launched by:** \\[ann](http://evil)\n- **workspace:** `https://example.org/a.git` at `main`\n- **backend:** microvm\n"+
		"- **priority:** 70\n- **turn:** 30m0s\n- **waits for capacity:** 2h0m0s at most\n- **label:** area=d\\*b\n- **label:** team=platform\n"+
		"\n**phases**\n\n- **1 survey:** 1.5 CPU, 512 MiB of memory, up to 2 attempts\n"+
		"- **2 review:** 2.5 CPU, 1280 MiB of memory in 4 machines, held until somebody releases it\n"+
		"\n**you can**\n\n- see all of it: `tidewait mission show m`\n"+
		"- end it: `tidewait mission cancel m --reason WHY`, or signal `cancel` with input `{\"actor\": \"you\", \"reason\": \"why\"}`\n\n---\n", o.StaticDetails)
	name, ok := o.TypedSearchAttributes.GetKeyword(attributeMission)
	require.True(t, ok)
	require.Equal(t, "m", name)
}

func TestTheResultOfAMissionThatDidNotSucceedIsInItsError(t *testing.T) {
	want := api.MissionResult{Mission: "m", Launch: 2, Status: "failed", FailureCode: "wait_exceeded", Failure: "waited 2 h"}
	for _, err := range []error{
		overTheWire(temporal.NewNonRetryableApplicationError("waited 2 h", "MissionFailed", nil, want)),
		overTheWire(temporal.NewCanceledError(want)),
	} {
		var got api.MissionResult
		require.True(t, resultOf(fmt.Errorf("workflow execution error: %w", err), &got))
		require.Equal(t, want, got)
	}
	for _, err := range []error{
		overTheWire(temporal.NewApplicationError("broken", "Other")),
		overTheWire(temporal.NewApplicationError("broken", "Other", "text")),
		overTheWire(temporal.NewCanceledError()),
		errors.New("odd"),
	} {
		require.False(t, resultOf(err, &api.MissionResult{}), err)
	}
}
