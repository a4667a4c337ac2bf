package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/metric"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"tidewait/activities"
	"tidewait/config"
	"tidewait/internal/health"
	"tidewait/internal/logkey"
	"tidewait/internal/meter"
	"tidewait/internal/provision"
	"tidewait/internal/telemetry"
)

var roles = []string{"engine", "gateway", "node"}

func runCommand() *cobra.Command {
	var asked []string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run one or more roles until stopped",
		Long: `Run one or more roles until SIGINT or SIGTERM.

  engine   workflows, placement, the API over NATS; needs Postgres, Temporal, NATS
  gateway  git checkouts and workspace bundles; needs Temporal, NATS
  node     virtual machines; needs Temporal, NATS

A line "ready" on standard output says that a role works. With telemetry.address a line
"telemetry" before that says where metrics and health are served.`,
		Example: "  tidewait-worker run --roles engine,gateway\n  tidewait-worker run --roles node --node.id node-a",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, r := range asked {
				if !slices.Contains(roles, r) {
					return usageError{fmt.Errorf("--roles: %q is not one of %s", r, strings.Join(roles, ", "))}
				}
			}
			s, log, err := settings(cmd)
			if err != nil {
				return err
			}
			return run(cmd.Context(), s, asked, log, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVar(&asked, "roles", roles, "roles to run")
	cmd.Flags().String("node.id", "", "the node's name (default: the host's)")
	cmd.Flags().String("gateway.id", "", "the gateway's name (default: the host's)")
	return cmd
}

// services are the connections every role shares.
type services struct {
	settings config.Settings
	temporal client.Client
	nats     *nats.Conn
	js       jetstream.JetStream
	log      *slog.Logger
	identity string // of this process, in Temporal
	health   *health.Health
	meters   metric.MeterProvider
	meter    *meter.Meter
}

// connectTime bounds the first connection to each service.
const connectTime = 10 * time.Second

func run(ctx context.Context, s config.Settings, asked []string, log *slog.Logger, out io.Writer) error {
	h := health.New(s.Telemetry.StuckAfter)
	healths := make(map[string]*roleHealth, len(asked))
	for _, role := range asked {
		healths[role] = newRoleHealth(h, role)
	}
	t, err := telemetry.Start(ctx, telemetry.Options{
		Service: "tidewait-worker", Version: version, Address: s.Telemetry.Address, Health: h, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := t.Close(ctx); err != nil {
			log.Warn("what was measured last was not sent", "error", err)
		}
	}()
	if url := t.URL(); url != "" {
		fmt.Fprintf(out, "telemetry %s\n", url)
	}
	svc, err := connect(ctx, s, asked, log, t)
	if err != nil {
		return err
	}
	defer svc.close()
	if err := svc.watch(h, t); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	go provision.AfterReconnect(ctx, svc.nats, log, func(ctx context.Context) error {
		return provision.MissingStreams(ctx, svc.js, s.Fleet)
	})
	for _, role := range asked {
		work := map[string]func(context.Context, *services, func()) error{
			"engine": runEngine, "gateway": runGateway, "node": runNode,
		}[role]
		roleServices := *svc
		roleServices.log, roleServices.health = log.With(logkey.Role, role), healths[role].Health
		g.Go(func() error {
			defer healths[role].ended(ctx)
			ready := func() {
				healths[role].works.Store(true)
				fmt.Fprintf(out, "ready %s\n", role)
			}
			if err := work(ctx, &roleServices, ready); err != nil {
				return fmt.Errorf("role %s: %w", role, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func connect(ctx context.Context, s config.Settings, asked []string, log *slog.Logger, t *telemetry.Telemetry) (*services, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	svc := &services{settings: s, log: log}
	var err error
	if svc.nats, err = config.ConnectNATS(s.NATS, "tidewait-worker", log); err != nil {
		return nil, err
	}
	if svc.js, err = jetstream.New(svc.nats); err != nil {
		svc.close()
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	options, err := config.TemporalOptions(s, log)
	if err != nil {
		svc.close()
		return nil, err
	}
	if err := t.Temporal(&options); err != nil {
		svc.close()
		return nil, err
	}
	options.Interceptors = append(options.Interceptors, &activities.Logging{})
	svc.identity = cmp.Or(options.Identity, identity())
	options.Identity = svc.identity
	if svc.temporal, err = client.DialContext(ctx, options); err != nil {
		svc.close()
		return nil, fmt.Errorf("connect to Temporal at %s: %w", options.HostPort, s.Temporal.Explain(err))
	}
	if err := checkNamespace(ctx, svc.temporal, options.Namespace); err != nil {
		svc.close()
		return nil, err
	}
	if err := checkEncryption(ctx, svc, options.Namespace); err != nil {
		svc.close()
		return nil, err
	}
	streams := provision.MissingStreams
	if slices.Contains(asked, "engine") {
		streams = provision.Streams
	}
	if err := streams(ctx, svc.js, s.Fleet); err != nil {
		svc.close()
		return nil, err
	}
	return svc, nil
}

// checkNamespace refuses to start without the search attributes: a workflow
// that upserts an unknown one is blocked for ever.
func checkNamespace(ctx context.Context, c client.Client, namespace string) error {
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	missing, err := provision.MissingSearchAttributes(ctx, c, namespace)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("namespace %s lacks the search attributes %s; run `tidewait setup`", namespace, strings.Join(missing, ", "))
	}
	return nil
}

// checkEncryption refuses to start where the process could not read its tasks: what
// it took it would fail.
func checkEncryption(ctx context.Context, svc *services, namespace string) error {
	codec, err := config.PayloadCodec(svc.settings.Temporal)
	if err != nil {
		return err
	}
	key, err := provision.EncryptionKey(ctx, svc.temporal, namespace)
	if err != nil {
		return err
	}
	if key == "" && codec.EncryptsWith() != "" {
		svc.log.Warn("payloads are encrypted, and the namespace does not say so, so a process without the key would start; run `tidewait setup`",
			"namespace", namespace, "key", codec.EncryptsWith())
	}
	return provision.Allows(namespace, key, codec)
}

func (s *services) close() {
	if s.temporal != nil {
		s.temporal.Close()
	}
	if s.nats != nil {
		s.nats.Close()
	}
}

// stopTime is how long a worker's activities may take to end when it stops.
const stopTime = 15 * time.Second

var errUnknownBackend = errors.New("unknown backend")
