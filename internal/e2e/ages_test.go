package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/wadm"
)

// TestTemporalIsOlder restores Temporal to a state that is older than the database's.
// What runs in both goes on. What only the database knows is failed or gets a new
// workflow, and what only Temporal knows is ended, although it waits for somebody.
func TestTemporalIsOlder(t *testing.T) {
	long(t, 45*time.Second)
	p := start(t)
	p.node()
	s := p.lattice("default")
	s.host("h1")
	s.deploy(shop("goes", "v1"))
	s.becomes("goes", wadm.Deployed)
	p.committedFirst(twoPhases("held"))
	p.committedFirst(twoPhases("ends"))
	p.committedFirst(twoPhases("again"))
	p.launch(missionDoc{name: "big", phases: []phaseDoc{{name: "hold", memory: "512Mi", script: "sleep 600"}}})
	p.running("big")
	p.launch(missionDoc{name: "placed", phases: []phaseDoc{{name: "work", script: "sleep 15; echo x > x.txt"}}})
	p.waiting("placed")

	database, backup := filepath.Join(p.dir, "stack", "temporal"), filepath.Join(p.dir, "temporal-backup")
	require.NoError(t, p.Stack.Temporal.Stop(t.Context()))
	command(t, "cp", "-a", database, backup)
	require.NoError(t, p.Stack.Temporal.Start(t.Context()))
	for _, name := range []string{"big", "ends", "again"} {
		p.must("mission", "cancel", name)
		p.ended(name)
	}
	p.committedFirst(twoPhases("again"))
	p.committedFirst(twoPhases("later"))
	s.undeploy("goes")
	s.deploy(shop("new", "v1"))
	s.becomes("new", wadm.Deployed)
	p.running("placed")

	require.NoError(t, p.Stack.Temporal.Stop(t.Context()))
	require.NoError(t, os.RemoveAll(database))
	require.NoError(t, os.Rename(backup, database))
	require.NoError(t, p.Stack.Temporal.Start(t.Context()))

	for name, why := range map[string]string{
		"later": "Temporal does not know workflow mission.later any more, so nobody works on the mission",
		"again": "workflow mission.again is that of another launch, so nobody works on the mission",
	} {
		m := p.ended(name)
		require.Equal(t, []string{"failed", "workflow_lost", why}, []string{m.Status, m.FailureCode, m.Failure})
	}
	for _, workflow := range []string{"mission.ends", "mission.again", "phase.ends.second", "phase.again.second", api.AppWorkflowID("default", "default", "goes")} {
		p.eventually(workflow+" ends", func() bool { return !p.runs(workflow) }, func() any { return p.must("waits", "-o", "json") })
	}
	require.Equal(t, "cancelled", p.show("ends").Status, "what the database said of it stays")
	p.eventually("an application that Temporal never knew has a workflow", func() bool {
		return p.runs(api.AppWorkflowID("default", "default", "new"))
	}, func() any { return nil })
	p.goesOn("held")
	m := p.ended("placed")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	p.launch(missionDoc{name: "ends", phases: []phaseDoc{{name: "work", script: "true"}}})
	require.Equal(t, "succeeded", p.ended("ends").Status)
	p.nothingLeft()
}

// runs asks Temporal whether a workflow runs.
func (p *product) runs(workflow string) bool {
	p.t.Helper()
	d, err := p.temporal.DescribeWorkflow(p.t.Context(), workflow, "")
	return err == nil && d.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}
