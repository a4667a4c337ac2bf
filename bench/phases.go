package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
)

// nomadJobs is what Nomad's dev agent does on two such processors: no-op batch
// jobs a second, 150 submitted at once.
const nomadJobs = 17

// crowd is a number of missions that are launched at once.
type crowd struct {
	missions, phases int
	steps            []step // of one of its missions
	bare, product    sample // phases a second
}

func (c *crowd) String() string {
	if c.phases == 1 {
		return fmt.Sprintf("%d missions of 1 phase", c.missions)
	}
	return fmt.Sprintf("%d missions of %d phases", c.missions, c.phases)
}

// phases measures missions from launch to end. The reference is workflows with
// the same steps that do nothing, on the same Temporal.
func phases(ctx context.Context, b *bench) (lines []line, err error) {
	err = b.with(ctx, "phases", roomyNode, nil, func(ctx context.Context, p *product) error {
		m := &endToEnd{bench: b, product: p}
		if m.reference, err = startReference(p.temporal); err != nil {
			return err
		}
		defer m.reference.stop()
		crowds := []*crowd{{missions: b.repetitions(150, 20), phases: 1}, {missions: b.repetitions(30, 4), phases: 5}}
		if err := m.speed(ctx, crowds); err != nil {
			return err
		}
		for i, c := range crowds {
			lines = append(lines, line{measure: c.String(), name: fmt.Sprintf("missions of %d phases", c.phases), figure: c.product, unit: "/s", reference: "bare Temporal, same steps", known: c.bare, aim: atLeast(0.6)})
			if i == 0 {
				lines = append(lines, line{measure: c.String(), name: fmt.Sprintf("missions of %d phases", c.phases), figure: c.product, unit: "/s", reference: "Nomad's dev agent, noted", known: sample{nomadJobs}, aim: atLeast(1)})
			}
		}
		costs, err := m.costs(ctx, crowds[0].steps)
		lines = append(lines, costs...)
		return err
	})
	return lines, err
}

// endToEnd is the state of the section.
type endToEnd struct {
	*bench
	product   *product
	reference *reference
	launches  int
}

func (m *endToEnd) speed(ctx context.Context, crowds []*crowd) error {
	for _, c := range crowds {
		var err error
		if c.steps, err = m.shape(ctx, c.phases); err != nil {
			return err
		}
	}
	return m.repeat(ctx, m.rounds(3, 1), func(ctx context.Context, i int) error {
		for _, c := range crowds {
			m.say("phases: round %d, %s", i+1, c)
			if err := m.round(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}, func() bool {
		for _, c := range crowds {
			if c.product.per(c.bare).wide() {
				return true
			}
		}
		return false
	})
}

// shape runs one mission and returns its steps.
func (m *endToEnd) shape(ctx context.Context, phases int) ([]step, error) {
	runs, err := m.missions(ctx, 1, phases)
	if err != nil {
		return nil, err
	}
	steps, _, err := shapeOf(ctx, m.product.temporal, runs[0].GetID(), runs[0].GetRunID())
	return steps, err
}

func (m *endToEnd) round(ctx context.Context, c *crowd) error {
	began := time.Now()
	if _, err := m.reference.run(ctx, c.missions, c.steps); err != nil {
		return err
	}
	c.bare = append(c.bare, float64(c.missions*c.phases)/time.Since(began).Seconds())

	began = time.Now()
	if _, err := m.missions(ctx, c.missions, c.phases); err != nil {
		return err
	}
	c.product = append(c.product, float64(c.missions*c.phases)/time.Since(began).Seconds())
	return nil
}

// missions launches n missions at once and waits until they have succeeded.
func (m *endToEnd) missions(ctx context.Context, n, phases int) ([]client.WorkflowRun, error) {
	m.launches++
	runs, err := m.product.launchAll(ctx, n, phases, 0, "true", func(i int) string { return fmt.Sprintf("c%d-m%d", m.launches, i) })
	if err != nil {
		return nil, err
	}
	return runs, awaitAll(ctx, runs)
}
