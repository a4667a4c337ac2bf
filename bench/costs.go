package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.temporal.io/sdk/client"
)

// cost is what one mission costs.
type cost struct {
	counters
	events float64 // of its histories
	spent  []spending
}

// spending is the processor time of one of the programs.
type spending struct {
	program string
	pid     int
	took    time.Duration
	shared  bool // with the reference
}

// costs counts what a one-phase mission costs, beside its bare reference.
func (m *endToEnd) costs(ctx context.Context, steps []step) ([]line, error) {
	n := m.repetitions(50, 10)
	m.say("phases: counting what %d missions cost", n)
	count, err := newCounting(ctx, m.product, time.Duration(m.repetitions(20, 5))*time.Second)
	if err != nil {
		return nil, err
	}
	defer count.close()
	own, err := m.cost(ctx, count, n, func(ctx context.Context) ([]client.WorkflowRun, error) { return m.missions(ctx, n, 1) })
	if err != nil {
		return nil, err
	}
	bare, err := m.cost(ctx, count, n, func(ctx context.Context) ([]client.WorkflowRun, error) { return m.reference.run(ctx, n, steps) })
	if err != nil {
		return nil, err
	}
	return costLines(steps, own, bare), nil
}

// cost runs n workflows and returns what each of them costs.
func (m *endToEnd) cost(ctx context.Context, count *counting, n int, run func(context.Context) ([]client.WorkflowRun, error)) (cost, error) {
	var (
		c    cost
		runs []client.WorkflowRun
	)
	total, err := count.count(ctx, func(ctx context.Context) error {
		c.spent = m.programs()
		if err := spend(c.spent, -1); err != nil {
			return err
		}
		var err error
		if runs, err = run(ctx); err != nil {
			return err
		}
		return spend(c.spent, 1)
	})
	if err != nil {
		return c, err
	}
	c.counters = total.each(n)
	for i := range c.spent {
		c.spent[i].took /= time.Duration(n)
	}
	_, events, err := shapeOf(ctx, m.product.temporal, runs[0].GetID(), runs[0].GetRunID())
	c.events = float64(events)
	return c, err
}

func costLines(steps []step, own, bare cost) []line {
	const reference = "bare Temporal, same steps"
	by := activities(steps)
	lines := []line{
		{
			measure: "activities of a mission with one phase: engine, gateway, node, local", figure: sample{float64(len(queues(steps)))},
			unit: fmt.Sprintf(" (%d, %d, %d, %d)", by[onEngine], by[onGateway], by[onNode], by[isLocal]),
		},
		{measure: "its history events, child included", figure: sample{own.events}, reference: reference, known: sample{bare.events}},
		{measure: "its Temporal persistence requests", figure: sample{own.persistence}, reference: reference, known: sample{bare.persistence}},
		{measure: "its Postgres transactions", figure: sample{own.transactions}},
		{measure: "of those, writing", figure: sample{own.writes}},
	}
	for i, s := range own.spent {
		l := line{measure: "its processor time in " + s.program, figure: sample{milliseconds(s.took)}, unit: " ms"}
		if s.shared {
			l.reference, l.known = reference, sample{milliseconds(bare.spent[i].took)}
		}
		lines = append(lines, l)
	}
	return lines
}

// programs are those that take part in a mission.
func (m *endToEnd) programs() []spending {
	p := m.product
	return []spending{
		{program: "Temporal", pid: p.Stack.Temporal.PID(), shared: true},
		{program: "bench, which launches and does the reference's work", pid: os.Getpid(), shared: true},
		{program: "the engine", pid: p.engine.PID()},
		{program: "the gateway and git", pid: p.gateway.PID()},
		{program: "the node and its machines", pid: p.node.PID()},
		{program: "Postgres", pid: p.Stack.Postgres.PID()},
		{program: "NATS", pid: p.Stack.NATS.PID()},
	}
}

// spend adds what each program has used so far, times sign.
func spend(programs []spending, sign time.Duration) error {
	for i, s := range programs {
		read := processorTime
		if s.pid == os.Getpid() {
			read = ownProcessorTime // its children are the other programs
		}
		now, err := read(s.pid)
		if err != nil {
			return err
		}
		programs[i].took += sign * now
	}
	return nil
}
