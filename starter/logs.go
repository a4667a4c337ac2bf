package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tidewait/internal/api"
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
}

func logsCommand(c *cli) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a mission's commands wrote",
		Long: `Print what a mission's commands wrote, oldest first. With --follow new lines are
printed as they come, until the mission has ended.`,
		Example: `  tidewait mission logs nightly-port
  tidewait mission logs nightly-port --phase build -f
  tidewait mission logs nightly-port --phase review --agent critic-1`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error { return c.logs(ctx, e, args[0], o) })
		},
	}
	addLaunch(cmd, &o.launch)
	cmd.Flags().StringVar(&o.phase, "phase", "", "only this phase's")
	cmd.Flags().StringVar(&o.run, "run", "", "only this run's")
	cmd.Flags().StringVar(&o.agent, "agent", "", "only this agent's, of a composed phase")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the mission has ended")
	cmd.Flags().BoolVarP(&o.timestamps, "timestamps", "t", false, "print when each line was read")
	return cmd
}

func (c *cli) logs(ctx context.Context, e *engine, name string, o logsOptions) error {
	detail, err := showMission(ctx, e, name, o.launch)
	if err != nil {
		return err
	}
	consumer, err := e.logConsumer(ctx, o.subjects(name, detail.Launch))
	if err != nil {
		return err
	}
	lines := logReader{cli: c, view: c.view(time.Now()), timestamps: o.timestamps, consumer: consumer}
	if !o.follow {
		return lines.drain(ctx)
	}
	return lines.follow(ctx, func() (bool, error) {
		detail, err := showMission(ctx, e, name, detail.Launch)
		return detail.Status != "running", err
	})
}

// subjects are those of the logs that the flags ask for. Only those of composed
// phases name an agent.
func (o logsOptions) subjects(mission string, launch int) []string {
	ofAgents := api.SubjectLog(mission, launch, orAny(o.phase), orAny(o.run), orAny(o.agent))
	if o.agent != "" {
		return []string{ofAgents}
	}
	return []string{api.SubjectLog(mission, launch, orAny(o.phase), orAny(o.run), ""), ofAgents}
}

// orAny returns a token of a NATS subject that matches the name, or any name.
func orAny(name string) string {
	if name == "" {
		return "*"
	}
	return name
}

func (e *engine) logConsumer(ctx context.Context, subjects []string) (jetstream.Consumer, error) {
	js, err := jetstream.New(e.conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use JetStream: %w", err)
	}
	opening, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	consumer, err := js.OrderedConsumer(opening, api.LogStream, jetstream.OrderedConsumerConfig{FilterSubjects: subjects})
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
	consumer   jetstream.Consumer
}

// drain prints everything that is stored.
func (r *logReader) drain(ctx context.Context) error {
	pending := r.consumer.CachedInfo().NumPending
	if pending == 0 {
		return nil
	}
	messages, err := r.consumer.Messages()
	if err != nil {
		return fmt.Errorf("cannot read the log: %w", err)
	}
	defer messages.Stop()
	for pending > 0 {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return logFault(ctx, err)
		}
		if pending, err = r.line(msg); err != nil {
			return err
		}
	}
	return nil
}

// follow prints lines as they come until ended says so and nothing is left.
func (r *logReader) follow(ctx context.Context, ended func() (bool, error)) error {
	messages, err := r.consumer.Messages()
	if err != nil {
		return fmt.Errorf("cannot read the log: %w", err)
	}
	defer messages.Stop()
	over := false
	for {
		err := r.batch(ctx, messages)
		if err != nil || over {
			return err
		}
		if over, err = ended(); err != nil {
			return err
		}
	}
}

// batch prints lines for one interval, and goes on while more are stored.
func (r *logReader) batch(ctx context.Context, messages jetstream.MessagesContext) error {
	until := time.Now().Add(statusInterval)
	for {
		next, cancel := context.WithDeadline(ctx, until)
		msg, err := messages.Next(jetstream.NextContext(next))
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		if err != nil {
			return logFault(ctx, err)
		}
		pending, err := r.line(msg)
		if err != nil {
			return err
		}
		if pending == 0 && time.Now().After(until) {
			return nil
		}
		if pending > 0 {
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

// line prints one message and returns how many are stored behind it.
func (r *logReader) line(msg jetstream.Msg) (pending uint64, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return 0, fmt.Errorf("a message on %s is none of a log: %w", msg.Subject(), err)
	}
	entry := render.LogLineOf(msg.Subject(), msg.Headers(), msg.Data())
	if r.cli.structured() {
		return meta.NumPending, r.cli.stream(entry)
	}
	_, err = fmt.Fprintln(r.cli.out, r.view.LogLine(entry, r.timestamps))
	return meta.NumPending, err
}
