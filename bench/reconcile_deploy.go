package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewait/internal/simhost"
)

// commands are what hosts are told; all else is questions.
var commands = map[string]bool{
	"component.scale": true, "component.update": true, "provider.start": true, "provider.stop": true,
	"link.put": true, "link.del": true, "config.put": true, "config.del": true,
}

// told returns the commands among what hosts received.
func (m *reconciling) told() (list []simhost.Call) {
	for _, c := range m.lattice.Calls() {
		if commands[c.Command] {
			list = append(list, c)
		}
	}
	return list
}

// deployAll deploys all applications at once.
func (m *reconciling) deployAll(ctx context.Context) ([]line, error) {
	m.say("reconcile: storing %d applications", m.apps)
	_, _, err := storm(ctx, askClients, m.apps, func(ctx context.Context, c, i int) error {
		_, err := m.api.clients[c].Put(ctx, keptDocument(i))
		return err
	})
	if err != nil {
		return nil, err
	}
	m.say("reconcile: deploying them")
	m.lattice.Forget()
	before, err := m.latticeEvents(ctx)
	if err != nil {
		return nil, err
	}
	spent := m.programs()
	var took time.Duration
	total, err := m.count.count(ctx, func(ctx context.Context) error {
		if err := spend(spent, -1); err != nil {
			return err
		}
		began := time.Now()
		_, _, err := storm(ctx, askClients, m.apps, func(ctx context.Context, c, i int) error {
			_, err := m.api.clients[c].Deploy(ctx, keptName(i), nil)
			return err
		})
		if err == nil {
			err = m.untilDeployed(ctx)
		}
		took = time.Since(began)
		if err != nil {
			return err
		}
		return spend(spent, 1)
	})
	if err != nil {
		return nil, err
	}
	told := m.told()
	asked := m.lattice.Count("", "") - len(told)
	if err := m.untilQuiet(ctx); err != nil {
		return nil, err
	}
	events, err := m.events(ctx)
	if err != nil {
		return nil, err
	}
	direct, err := m.direct(ctx, told)
	if err != nil {
		return nil, err
	}
	return m.deployLines(took, direct, told, asked, events-before, total.each(m.apps), spent), nil
}

func (m *reconciling) latticeEvents(ctx context.Context) (float64, error) {
	return (&counted{product: m.product}).events(ctx, latticeWorkflow())
}

func (m *reconciling) deployLines(
	took, direct time.Duration, told []simhost.Call, asked int, events float64, each counters, spent []spending,
) []line {
	n := float64(m.apps)
	lines := []line{
		{
			measure: fmt.Sprintf("commands that %d hosts received for %d applications", len(m.hosts), m.apps), figure: sample{float64(len(told))},
			reference: "the least there can be", known: sample{minimum * n}, aim: atMost(1),
		},
		{measure: "questions that they received meanwhile, for each command", figure: sample{float64(asked) / float64(len(told))}},
		{
			measure: fmt.Sprintf("all deployed, %d clients", askClients), figure: sample{took.Seconds()}, unit: " s",
			reference: "the same commands, sent directly", known: sample{direct.Seconds()},
		},
		{measure: "history events of an application", figure: sample{events / n}, unit: " events"},
		{measure: "its Temporal persistence requests", figure: sample{each.persistence}},
		{measure: "its Postgres transactions", figure: sample{each.transactions}},
		{measure: "of those, writing", figure: sample{each.writes}},
	}
	for _, s := range spent {
		lines = append(lines, line{measure: "its processor time in " + s.program, figure: sample{milliseconds(s.took) / n}, unit: " ms"})
	}
	return lines
}

// programs are those that take part.
func (m *reconciling) programs() []spending {
	p := m.product
	return []spending{
		{program: "the engine", pid: p.engine.PID()},
		{program: "Temporal", pid: p.Stack.Temporal.PID()},
		{program: "Postgres", pid: p.Stack.Postgres.PID()},
		{program: "NATS", pid: p.Stack.NATS.PID()},
		{program: "bench, which is the hosts", pid: os.Getpid()},
	}
}

// bareLattice is where commands are sent to without the product.
const bareLattice = "bare"

// direct sends the same commands to as many other hosts, and waits for nothing
// but the answers: first what is the lattice's, by many clients; then what is
// each host's, one command after the other.
func (m *reconciling) direct(ctx context.Context, told []simhost.Call) (time.Duration, error) {
	m.say("reconcile: sending the same %d commands directly", len(told))
	l := simhost.NewLattice(m.product.nats, simhost.Options{Lattice: bareLattice, Heartbeat: time.Hour})
	defer l.Close()
	twin := map[string]string{} // of each host
	for _, h := range m.hosts {
		other, err := l.Start(ctx, simhost.HostSpec{Name: h.Name()})
		if err != nil {
			return 0, err
		}
		twin[h.ID()] = other.ID()
	}
	var configs, links []simhost.Call
	hosts := map[string][]simhost.Call{}
	for _, c := range told {
		switch {
		case strings.HasPrefix(c.Command, "config."):
			configs = append(configs, c)
		case strings.HasPrefix(c.Command, "link."):
			links = append(links, c)
		default:
			hosts[c.Host] = append(hosts[c.Host], c)
		}
	}
	began := time.Now()
	for _, calls := range [][]simhost.Call{configs, links} {
		_, _, err := storm(ctx, askClients, len(calls), func(ctx context.Context, c, i int) error {
			suffix := calls[i].Command
			if strings.HasPrefix(suffix, "config.") {
				suffix += "." + calls[i].ID
			}
			return m.command(ctx, c, bareLattice, suffix, calls[i].Body)
		})
		if err != nil {
			return 0, err
		}
	}
	g, all := errgroup.WithContext(ctx)
	client := 0
	for id, calls := range hosts {
		client++
		g.Go(func() error {
			for _, c := range calls {
				body := bytes.ReplaceAll(c.Body, []byte(id), []byte(twin[id]))
				if err := m.command(all, client%askClients, bareLattice, c.Command+"."+twin[id], body); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

// command sends a command to hosts as anybody can, and fails unless it is taken.
func (m *reconciling) command(ctx context.Context, client int, lattice, suffix string, body []byte) error {
	return within(ctx, func(ctx context.Context) error {
		msg, err := m.api.clients[client].Conn.RequestWithContext(ctx, "wasmbus.ctl.v1."+lattice+"."+suffix, body)
		if err != nil {
			return fmt.Errorf("%s: %w", suffix, err)
		}
		var reply struct{ Success bool }
		if err := json.Unmarshal(msg.Data, &reply); err != nil || !reply.Success {
			return fmt.Errorf("%s was answered with %s", suffix, msg.Data)
		}
		return nil
	})
}
