package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// TestOrderOnOneNode shows the order of a queue: the head's latest start, what
// runs beside its hold and what does not, and who is ahead. The retries behind
// the head window are stretched; those phases are placed as soon as others.
func TestOrderOnOneNode(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_HEAD_WINDOW=1")
	p.node()
	one := func(name, memory, turn, script string) missionDoc {
		return missionDoc{name: name, extra: "turn: " + turn, phases: []phaseDoc{{name: "work", memory: memory, script: script}}}
	}
	p.launch(one("holder", "300Mi", "10m", "sleep 600"))
	p.running("holder")

	p.launch(one("head", "500Mi", "1h", "true"))
	head := p.waiting("head")
	var ends time.Time
	require.NoError(t, p.db.QueryRow(t.Context(), "SELECT ends_by FROM reservations WHERE released_at IS NULL").Scan(&ends))
	require.NotNil(t, head.StartsBy)
	require.WithinDuration(t, ends.Add(time.Minute), *head.StartsBy, time.Second)
	require.Equal(t, []any{"n1", true}, []any{head.StartsOn, head.StartsHeld})
	require.Contains(t, p.must("mission", "show", "head"), "on n1 at the latest, unless another goes ahead of it\n")
	require.Contains(t, p.must("waits"), "1, by ")

	p.launch(one("short", "128Mi", "1m", "echo short > short.txt"))
	require.Equal(t, "succeeded", p.ended("short").Status, "it is over before the head could start")
	require.NotNil(t, p.show("head").PhaseList[0].Wait)

	p.launch(one("long", "128Mi", "1h", "true"))
	long := p.waiting("long")
	require.Equal(t, []any{"held_for_head", 2, []string{"head/work"}}, []any{long.Code, long.Position, long.Ahead})
	require.Contains(t, long.Reason, "it fits on n1, which is held for head/work; 2nd in line behind head/work")
	require.WithinDuration(t, ends.Add(time.Hour+2*time.Minute), *long.StartsBy, time.Second)
	require.Contains(t, p.must("mission", "show", "long"), "on n1, if every run uses its whole turn and nobody joins the line\n")

	for workflow, want := range map[string]time.Duration{"phase.head.work": time.Second, "phase.long.work": 2 * time.Second} {
		p.eventually("the server retries after "+want.String(), func() bool { return p.retryOf(workflow) == want },
			func() any { return p.retryOf(workflow).String() })
	}

	p.must("mission", "cancel", "holder")
	require.Equal(t, "succeeded", p.ended("head").Status)
	m := p.until("long", "it ends", func(m api.MissionDetail) bool { return m.EndedAt != nil })
	require.Equal(t, "succeeded", m.Status)
	p.nothingLeft()
}

// retryOf is the pause before the next try of what a workflow waits for, to a
// tenth of a second; zero while it is tried.
func (p *product) retryOf(workflow string) time.Duration {
	p.t.Helper()
	d, err := p.temporal.DescribeWorkflow(p.t.Context(), workflow, "")
	require.NoError(p.t, err)
	for _, a := range d.RawResponse.GetPendingActivities() {
		return a.GetCurrentRetryInterval().AsDuration().Round(100 * time.Millisecond)
	}
	return 0
}
