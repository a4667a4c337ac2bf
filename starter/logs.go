package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/mission"
	"tidewait/internal/render"
)

// statusInterval lies between two questions whether a followed mission has ended.
const statusInterval = 2 * time.Second

// logsOptions is what the flags of `mission logs` say.
type logsOptions struct {
	launch     int
	phase, run string
	agent      string
	follow     bool
	timestamps bool
	since      time.Duration
	tail       int // lines; negative: all
}

func logsCommand(c *cli) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a mission's commands wrote",
		Long: `Print what a mission's commands wrote, oldest first. With --follow new lines are
printed as they come, of every phase and run, until the mission has ended.

Behind the name of the phase, and of the agent where it has several, | marks
standard output, ! standard error and * what Tidewait has to say of the log.
On a terminal control characters are left out.`,
		Example: `  tidewait mission logs nightly-port
  tidewait mission logs nightly-port --phase build -f
  tidewait mission logs nightly-port --phase review --agent critic-1
  tidewait mission logs nightly-port --since 10m --tail 50`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.since < 0 {
				return usage("--since says how long ago, such as 10m")
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error { return c.logs(ctx, e, args[0], o) })
		},
	}
	addLaunch(cmd, &o.launch)
	cmd.Flags().StringVar(&o.phase, "phase", "", "only this phase's")
	cmd.Flags().StringVar(&o.run, "run", "", "only this run's")
	cmd.Flags().StringVar(&o.agent, "agent", "", "only this agent's, of a composed phase, or those of all its replicas")
	cmd.Flags().DurationVar(&o.since, "since", 0, "only what was read since then, such as 10m")
	cmd.Flags().IntVar(&o.tail, "tail", -1, "only so many of the lines that are there already")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the mission has ended")
	cmd.Flags().BoolVarP(&o.timestamps, "timestamps", "t", false, "print when each line was read")
	return cmd
}

func (c *cli) logs(ctx context.Context, e *engine, name string, o logsOptions) error {
	detail, err := showMission(ctx, e, name, o.launch)
	if err != nil {
		return err
	}
	subjects, err := o.subjects(detail)
	if err != nil {
		return err
	}
	lines := &logReader{cli: c, view: c.view(time.Now()), timestamps: o.timestamps, runs: map[string]string{}, nodes: map[string]string{}}
	lines.know(detail)
	if o.since > 0 {
		lines.from = time.Now().Add(-o.since)
	}
	if lines.consumer, err = e.logConsumer(ctx, subjects, lines.from); err != nil {
		return err
	}
	if o.since == 0 {
		c.noteExpired(ctx, e, detail, lines.consumer.CachedInfo().NumPending)
	}
	if o.tail >= 0 {
		if err := lines.last(ctx, o.tail); err != nil {
			return err
		}
	}
	if !o.follow {
		return lines.drain(ctx)
	}
	return lines.follow(ctx, func() (bool, error) {
		detail, err := showMission(ctx, e, name, detail.Launch)
		lines.know(detail)
		return detail.Status != "running", err
	})
}

// subjects are those of the logs that the flags ask for, which have to be there
// or to come. Only those of composed phases name an agent.
func (o logsOptions) subjects(m api.MissionDetail) ([]string, error) {
	agents, err := o.agents(m)
	if err != nil {
		return nil, err
	}
	subject := func(agent string) string {
		return api.SubjectLog("*", m.Name, m.Launch, orAny(o.phase), orAny(o.run), agent)
	}
	if o.agent == "" {
		return []string{subject(""), subject("*")}, nil
	}
	subjects := make([]string, len(agents))
	for i, agent := range agents {
		subjects[i] = subject(agent)
	}
	return subjects, nil
}

// agents checks the names in the flags, and returns the machines of the agent.
func (o logsOptions) agents(m api.MissionDetail) ([]string, error) {
	for name, value := range map[string]string{"--phase": o.phase, "--run": o.run, "--agent": o.agent} {
		if strings.ContainsAny(value, " \t.*>") {
			return nil, usage("%s %q is not a name", name, value)
		}
	}
	if o.phase == "" && o.agent == "" {
		return nil, nil
	}
	var document mission.Mission
	if err := json.Unmarshal(m.Document, &document); err != nil {
		return nil, fmt.Errorf("the document of mission %s does not fit this version of tidewait: %w", m.Name, err)
	}
	var phases, agents, found []string
	for _, p := range document.Spec.Phases {
		phases = append(phases, p.Name)
		if o.phase != "" && p.Name != o.phase || !p.Composed() {
			continue
		}
		for _, a := range p.Agents {
			for _, machine := range (mission.Phase{Agents: []mission.Agent{a}}).Machines() {
				agents = append(agents, machine.Name)
				if machine.Name == o.agent || a.Name == o.agent {
					found = append(found, machine.Name)
				}
			}
		}
	}
	switch {
	case o.phase != "" && !slices.Contains(phases, o.phase):
		return nil, usage("mission %s has no phase %q; it has %s", m.Name, o.phase, strings.Join(phases, ", "))
	case o.agent != "" && len(agents) == 0:
		return nil, usage("--agent %s: no phase that was asked for has several machines", o.agent)
	case o.agent != "" && len(found) == 0:
		return nil, usage("mission %s has no agent %q; it has %s", m.Name, o.agent, strings.Join(agents, ", "))
	}
	return found, nil
}

// orAny returns a token of a NATS subject that matches the name, or any name.
func orAny(name string) string {
	if name == "" {
		return "*"
	}
	return name
}

// logConsumer reads what is stored of some subjects since a moment; the zero time
// is the beginning.
func (e *engine) logConsumer(ctx context.Context, subjects []string, from time.Time) (jetstream.Consumer, error) {
	js, err := jetstream.New(e.conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use JetStream: %w", err)
	}
	opening, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	wanted := jetstream.OrderedConsumerConfig{FilterSubjects: subjects}
	if !from.IsZero() {
		wanted.DeliverPolicy, wanted.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	consumer, err := js.OrderedConsumer(opening, api.LogStream, wanted)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, unreachable("NATS on %s has no log stream %s; create it with `tidewait setup`", e.url, api.LogStream)
	case err != nil:
		return nil, unreachable("cannot read the log stream %s on %s: %w; does NATS run with JetStream?", api.LogStream, e.url, err)
	}
	return consumer, nil
}

// logReader prints lines of a log in the order they were stored.
type logReader struct {
	cli        *cli
	view       render.Options
	timestamps bool
	from       time.Time // what was read before is left out
	consumer   jetstream.Consumer
	messages   jetstream.MessagesContext // nil: nothing was read yet
	pending    uint64                    // stored behind what was read
	runs       map[string]string         // the run whose lines were printed last, by phase and agent
	nodes      map[string]string         // where runs are or were; what another node says of them is left out
}

// know notes which node has which run.
func (r *logReader) know(m api.MissionDetail) {
	for _, p := range m.PhaseList {
		for _, run := range p.Runs {
			r.nodes[run.ID] = run.Node
		}
	}
}

// begin starts reading; it is called by everything that reads.
func (r *logReader) begin() error {
	if r.messages != nil {
		return nil
	}
	r.pending = r.consumer.CachedInfo().NumPending
	var err error
	if r.messages, err = r.consumer.Messages(); err != nil {
		return fmt.Errorf("cannot read the log: %w", err)
	}
	return nil
}

// drain prints everything that is stored.
func (r *logReader) drain(ctx context.Context) error {
	return r.stored(ctx, r.line)
}

// last prints the last n lines of what is stored.
func (r *logReader) last(ctx context.Context, n int) error {
	var kept []render.LogLine
	err := r.stored(ctx, func(l render.LogLine) error {
		if kept = append(kept, l); len(kept) > n {
			kept = kept[1:]
		}
		return nil
	})
	for _, l := range kept {
		err = errors.Join(err, r.line(l))
	}
	return err
}

// stored hands over everything that is stored.
func (r *logReader) stored(ctx context.Context, take func(render.LogLine) error) error {
	if err := r.begin(); err != nil {
		return err
	}
	for r.pending > 0 {
		msg, err := r.messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return logFault(ctx, err)
		}
		if err := r.take(msg, take); err != nil {
			return err
		}
	}
	return nil
}

// follow prints lines as they come until ended says so and nothing is left.
func (r *logReader) follow(ctx context.Context, ended func() (bool, error)) error {
	if err := r.begin(); err != nil {
		return err
	}
	defer r.messages.Stop()
	over := false
	for {
		err := r.batch(ctx)
		if err != nil || over {
			return err
		}
		if over, err = ended(); err != nil {
			return err
		}
	}
}

// batch prints lines for one interval, and goes on while more are stored.
func (r *logReader) batch(ctx context.Context) error {
	until := time.Now().Add(statusInterval)
	for {
		next, cancel := context.WithDeadline(ctx, until)
		msg, err := r.messages.Next(jetstream.NextContext(next))
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		if err != nil {
			return logFault(ctx, err)
		}
		if err := r.take(msg, r.line); err != nil {
			return err
		}
		if r.pending == 0 && time.Now().After(until) {
			return nil
		}
		if r.pending > 0 {
			until = time.Now().Add(statusInterval)
		}
	}
}

func logFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted("interrupted")
	}
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
		return unreachable("the connection to NATS ended while the log was read")
	}
	return fmt.Errorf("cannot read the log: %w", err)
}

// take hands one message over, unless it was read before the time asked for.
func (r *logReader) take(msg jetstream.Msg, to func(render.LogLine) error) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("a message on %s is none of a log: %w", msg.Subject(), err)
	}
	r.pending = meta.NumPending
	line := render.LogLineOf(msg.Subject(), msg.Headers(), msg.Data())
	if node := r.nodes[line.Run]; node != "" && node != line.Node {
		return nil
	}
	if at, err := time.Parse(time.RFC3339Nano, line.Time); err == nil && at.Before(r.from) {
		return nil
	}
	return to(line)
}

// line prints one line, and says when another run than before speaks.
func (r *logReader) line(l render.LogLine) error {
	if r.cli.structured() {
		return r.cli.stream(l)
	}
	who := l.Phase + "/" + l.Agent
	if before := r.runs[who]; before != "" && before != l.Run {
		again := l
		again.Stream, again.Line = "system", "run "+l.Run
		if _, err := fmt.Fprintln(r.cli.out, r.view.LogLine(again, r.timestamps)); err != nil {
			return err
		}
	}
	r.runs[who] = l.Run
	_, err := fmt.Fprintln(r.cli.out, r.view.LogLine(l, r.timestamps))
	return err
}

// noteExpired says what of a launch's log is not there any more.
func (c *cli) noteExpired(ctx context.Context, e *engine, m api.MissionDetail, pending uint64) {
	asking, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	js, err := jetstream.New(e.conn)
	if err != nil {
		return
	}
	stream, err := js.Stream(asking, api.LogStream)
	if err != nil || m.StartedAt == nil {
		return
	}
	info := stream.CachedInfo()
	oldest := time.Now().Add(-info.Config.MaxAge)
	const nearly = 10                                                                                   // of so many parts all but one are used
	full := info.State.FirstSeq > 1 && int64(info.State.Bytes) > info.Config.MaxBytes/nearly*(nearly-1) //nolint:gosec // a stream's size fits
	switch {
	case m.EndedAt != nil && m.EndedAt.Before(oldest):
		c.note("tidewait: logs are kept for %s; those of launch %d have expired", render.Duration(info.Config.MaxAge), m.Launch)
	case m.StartedAt.Before(oldest):
		c.note("tidewait: logs are kept for %s; the first lines of launch %d may have expired", render.Duration(info.Config.MaxAge), m.Launch)
	case full && pending == 0 && m.EndedAt != nil && m.EndedAt.Before(info.State.FirstTime):
		c.note("tidewait: logs have at most %d bytes in all; those of launch %d had to go", info.Config.MaxBytes, m.Launch)
	case full && m.StartedAt.Before(info.State.FirstTime):
		c.note("tidewait: the first lines of launch %d may be gone: the oldest that is kept is of %s", m.Launch, info.State.FirstTime.UTC().Format(time.RFC3339))
	}
}
