package e2e

import (
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"tidewait/internal/api"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// keepsSince: whatever becomes of a workflow, an application waits since it began
// to.
func keepsSince(s *site) {
	s.deploy(shop("shop", "v1"))
	s.keeps("shop", "lattice", "never_observed")
	s.deploy(manifest("needy", "v1", with(component("web", webImage, instances(1)), "config", []object{{"name": "outside"}})))
	s.l.Script(simhost.Rule{ID: "faulty-web", Fetch: simhost.ManifestUnknown})
	s.deploy(manifest("faulty", "v1", component("web", webImage, instances(1)), component("api", webImage, instances(1))))
	h := s.host("h")
	s.becomes("shop", wadm.Deployed)
	s.keeps("needy", "dependency", "config_missing")
	s.until("faulty", "failed for the second time", func(got wadm.Status) bool { return got.Status.Attempt >= 2 })
	s.keeps("faulty", "backoff", "command_failed")

	h.Stop()
	for _, app := range []string{"shop", "needy", "faulty"} {
		s.keeps(app, "lattice", "no_live_hosts")
	}
}

// keeps resets and terminates an application's workflow, and asserts that it
// waits since the same moment then.
func (s *site) keeps(app, kind, code string) {
	s.t.Helper()
	before := s.waitIs(app, kind, code)
	for _, closed := range []struct {
		how string
		do  func(id string)
	}{
		{"reset", s.reset},
		{"terminated", func(id string) { require.NoError(s.t, s.temporal.TerminateWorkflow(s.ctx(), id, "", "a test")) }},
	} {
		s.isRunning(app)
		run := s.run(app)
		closed.do(s.workflowID(app))
		s.eventually(app+" has another run after it was "+closed.how, func() bool { return s.run(app) != run }, func() any { return run })
		looks := s.looks(app)
		require.NoError(s.t, s.temporal.SignalWorkflow(s.ctx(), s.workflowID(app), "", api.SignalWake, nil))
		s.eventually("it is looked at again", func() bool { return s.looks(app) > looks }, func() any { return looks })
		s.settles(app)
		after := s.waitIs(app, kind, code)
		require.Equal(s.t, before.Since, after.Since, "%s waits for %s, and was %s", app, code, closed.how)
		require.WithinDuration(s.t, before.Since, *s.status(app).Status.Since, time.Millisecond)
	}
}

// run is the id of the current run of an application's workflow.
func (s *site) run(app string) string {
	s.t.Helper()
	desc, err := s.temporal.DescribeWorkflow(s.ctx(), s.workflowID(app), "")
	require.NoError(s.t, err)
	return desc.WorkflowExecution.RunID
}

// looks is how often the current run of an application's workflow has looked.
func (s *site) looks(app string) int {
	s.t.Helper()
	n := 0
	history := s.temporal.GetWorkflowHistory(s.ctx(), s.workflowID(app), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(s.t, err)
		if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
			n++
		}
	}
	return n
}
