package main

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
)

// history counts the events of a phase that runs at once, of one that is
// refused as often as in two hours, and of a nudge.
func history(ctx context.Context, b *bench) (lines []line, err error) {
	err = b.with(ctx, "history", smallNode, []string{"TIDEWAIT_FLEET_RETRY_INTERVAL=50ms"}, func(ctx context.Context, p *product) error {
		m := &counted{bench: b, product: p}
		lines, err = m.measure(ctx)
		return err
	})
	return lines, err
}

// counted is the state of the section.
type counted struct {
	*bench
	product *product
}

func (m *counted) measure(ctx context.Context) ([]line, error) {
	happyMission, happyPhase, err := m.happy(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.fill(ctx); err != nil {
		return nil, err
	}
	tries := m.repetitions(m.tries, 20)
	nudges := m.repetitions(10, 3)
	var first, waited, nudged float64
	g, both := errgroup.WithContext(ctx)
	g.Go(func() (err error) { first, waited, err = m.wait(both, "waiter", tries); return err })
	g.Go(func() (err error) { nudged, err = m.nudge(both, "nudged", nudges); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	whole, err := m.release(ctx, "waiter")
	if err != nil {
		return nil, err
	}
	return []line{
		{measure: "phase that runs at once", figure: sample{happyPhase}, unit: " events", aim: atMost(60)},
		{measure: "its mission's own workflow", figure: sample{happyMission}, unit: " events"},
		{measure: fmt.Sprintf("wait of %d refused tries, from the phase's start", tries), name: "wait of refused tries", figure: sample{waited}, unit: " events", aim: atMost(30)},
		{measure: "each further refused try", figure: sample{(waited - first) / float64(tries-firstTries)}, unit: " events", aim: atMost(0)},
		{measure: "that wait with being placed, beyond a phase that runs at once", figure: sample{whole - happyPhase}, unit: " events", aim: atMost(30)},
		{measure: fmt.Sprintf("each of %d nudges", nudges), name: "each nudge", figure: sample{nudged}, unit: " events", aim: atMost(12)},
	}, nil
}

// happy runs a mission on an empty node and returns the events of its workflow
// and of its phase's.
func (m *counted) happy(ctx context.Context) (mission, phase float64, err error) {
	run, err := m.product.launch(ctx, "happy", 1, "true")
	if err != nil {
		return 0, 0, err
	}
	err = run.Get(ctx, nil)
	if err == nil {
		mission, err = m.events(ctx, run.GetID())
	}
	if err == nil {
		phase, err = m.events(ctx, api.PhaseWorkflowID("happy", "p1"))
	}
	return mission, phase, err
}

// fill takes the node's only processor.
func (m *counted) fill(ctx context.Context) error {
	if _, err := m.product.launch(ctx, "holder", 1, "sleep 3600"); err != nil {
		return err
	}
	return m.product.untilNumber(ctx, 1, "the holder runs", "SELECT count(*) FROM reservations WHERE released_at IS NULL")
}

// firstTries are those after which a wait has settled.
const firstTries = 10

// wait launches a mission that has to wait, and returns its phase's events once
// the server counts the first tries, and all of them.
func (m *counted) wait(ctx context.Context, name string, tries int) (first, all float64, err error) {
	m.say("history: %s is refused %d times", name, tries)
	if _, err := m.product.launch(ctx, name, 1, "true"); err != nil {
		return 0, 0, err
	}
	if first, err = m.eventsAfter(ctx, name, firstTries); err != nil {
		return 0, 0, err
	}
	all, err = m.eventsAfter(ctx, name, tries)
	return first, all, err
}

// eventsAfter returns a phase's events once it was refused so often.
func (m *counted) eventsAfter(ctx context.Context, name string, tries int) (float64, error) {
	err := until(ctx, fmt.Sprintf("%s was refused %d times", name, tries), func(ctx context.Context) (bool, error) {
		attempt, err := m.attempt(ctx, name)
		return attempt > tries, err
	})
	if err != nil {
		return 0, err
	}
	return m.events(ctx, api.PhaseWorkflowID(name, "p1"))
}

// attempt returns the number of the try that the server makes or waits for.
func (m *counted) attempt(ctx context.Context, name string) (int, error) {
	d, err := m.product.temporal.DescribeWorkflow(ctx, api.PhaseWorkflowID(name, "p1"), "")
	if err != nil {
		return 0, ignoreMissing(err)
	}
	for _, a := range d.RawResponse.GetPendingActivities() {
		return int(a.GetAttempt()), nil
	}
	return 0, nil
}

// nudge launches a mission that has to wait, nudges its phase and returns the
// events of one nudge.
func (m *counted) nudge(ctx context.Context, name string, n int) (float64, error) {
	if _, err := m.product.launch(ctx, name, 1, "true"); err != nil {
		return 0, err
	}
	id := api.PhaseWorkflowID(name, "p1")
	if err := m.untilRetrying(ctx, name); err != nil {
		return 0, err
	}
	before, err := m.events(ctx, id)
	if err != nil {
		return 0, err
	}
	for i := range n {
		if err := m.product.temporal.SignalWorkflow(ctx, id, "", api.SignalNudge, api.Nudge{Actor: "bench"}); err != nil {
			return 0, err
		}
		err := m.product.untilNumber(ctx, float64(i+1), "the nudge was looked at", `
SELECT COALESCE(sum((w.tries->>'nudge')::float8), 0) FROM capacity_waits w
JOIN mission_phases p ON p.id = w.phase_id JOIN missions m ON m.id = p.mission_id WHERE m.name = $1`, name)
		if err == nil {
			err = m.untilRetrying(ctx, name)
		}
		if err != nil {
			return 0, err
		}
	}
	after, err := m.events(ctx, id)
	return (after - before) / float64(n), err
}

// untilRetrying returns when the server waits to try again.
func (m *counted) untilRetrying(ctx context.Context, name string) error {
	return until(ctx, "the phase of "+name+" is tried again", func(ctx context.Context) (bool, error) {
		attempt, err := m.attempt(ctx, name)
		return attempt > 1, err
	})
}

// release frees the node and returns the phase's events at its end.
func (m *counted) release(ctx context.Context, name string) (float64, error) {
	for _, other := range []string{"nudged", "holder"} {
		if err := m.product.cancelPhase(ctx, other, "p1"); err != nil {
			return 0, err
		}
	}
	if err := m.product.temporal.GetWorkflow(ctx, api.MissionWorkflowID(name), "").Get(ctx, nil); err != nil {
		return 0, err
	}
	return m.events(ctx, api.PhaseWorkflowID(name, "p1"))
}

// events counts the events of a workflow.
func (m *counted) events(ctx context.Context, id string) (float64, error) {
	d, err := m.product.temporal.DescribeWorkflow(ctx, id, "")
	if err != nil {
		return 0, err
	}
	return float64(d.RawResponse.GetWorkflowExecutionInfo().GetHistoryLength()), nil
}

// ignoreMissing is for a workflow that is not there yet.
func ignoreMissing(err error) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil
	}
	return err
}
