// Package devstack runs Postgres, NATS and Temporal as private processes of
// this machine, for development, the demo and end-to-end tests. All of them
// listen on 127.0.0.1 and keep their state and their ports in one directory, so
// that a stack that is started there again goes on where it ended. They end
// with the process that started them, however it ends. Linux only.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Name names a service of the stack.
type Name string

// The services, in the order in which they are started.
const (
	Postgres Name = "Postgres"
	NATS     Name = "NATS"
	Temporal Name = "Temporal"
)

// Namespace is the Temporal namespace of every stack.
const Namespace = "default"

// Options says how a stack is made.
type Options struct {
	// Dir holds state, ports, sockets and logs. It is made when missing. When
	// the caller is root, Postgres runs as an unprivileged user, which must be
	// able to reach Dir.
	Dir string
	// Services are started; empty means all.
	Services []Name
	// TemporalCLI is the path of the temporal command; empty: the one beside
	// this executable, else the one on PATH.
	TemporalCLI string
	// PostgresBin is the directory with initdb and postgres; empty: that of the
	// postgres on PATH, else the newest in /usr/lib/postgresql, else /usr/local/bin.
	PostgresBin string
	// UI also serves Temporal's Web UI.
	UI bool
	// Codec has the Web UI ask a codec server at CodecAddress, which the caller
	// starts.
	Codec bool
	// TemporalSettings are further dynamic configuration of Temporal, each
	// key=value.
	TemporalSettings []string
	// Ports fixes ports. One that is 0 stays what it was in Dir when it is
	// still free, and is chosen otherwise.
	Ports Ports
	// NATSCommand is the start of a command line that ends in MaybeRunNATS;
	// empty: this executable.
	NATSCommand []string
	// Logger hears what goes wrong later; nil: nobody.
	Logger *slog.Logger
	// Progress is given one line per step, for people; nil: nobody.
	Progress func(line string)
}

// A Stack is a set of running services. The services that were not asked for
// are nil, and their addresses empty.
type Stack struct {
	Postgres *Service
	NATS     *Service
	Temporal *Service

	PostgresURL     string // superuser of the database "tidewait", over TCP
	NATSURL         string
	TemporalAddress string // host:port
	UIURL           string // empty without Options.UI
	CodecAddress    string // host:port, kept free for a codec server
	MetricsURL      string // Temporal's own metrics, for Prometheus

	dir     string
	lock    *os.File
	claims  claims
	sockets string // of Postgres; empty before it is made
	order   []*Service
	failed  chan error
}

// Start starts the services one after another, each ready for work before the
// next. When one does not come up, those before it are stopped again, and the
// error says in one line what was wrong and what to do.
func Start(ctx context.Context, o Options) (*Stack, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	programs, err := findPrograms(o)
	if err != nil {
		return nil, err
	}
	s, err := open(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = s.dir
	if err := s.start(ctx, o, programs); err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stopping))
	}
	return s, nil
}

func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("the stack needs a directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("cannot make the stack's directory %s absolute: %w", o.Dir, err)
	}
	o.Dir = dir
	if len(o.Services) == 0 {
		o.Services = []Name{Postgres, NATS, Temporal}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, nil
}

func (o Options) wants(name Name) bool { return slices.Contains(o.Services, name) }

// programs are the executables that were found for the services.
type programs struct {
	postgres postgresPrograms
	temporal string
	nats     []string
}

// findPrograms looks for everything before anything is started.
func findPrograms(o Options) (p programs, err error) {
	if o.wants(Postgres) {
		if p.postgres, err = findPostgres(o.PostgresBin); err != nil {
			return p, err
		}
	}
	if o.wants(NATS) {
		if p.nats, err = natsCommand(o.NATSCommand); err != nil {
			return p, err
		}
	}
	if o.wants(Temporal) {
		p.temporal, err = findTemporal(o.TemporalCLI)
	}
	return p, err
}

// open makes the directory and takes it.
func open(dir string) (*Stack, error) {
	for _, part := range []string{"logs", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the stack's directory: %w; choose another with data_dir", err)
		}
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the stack's directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return &Stack{dir: dir, lock: lock, failed: make(chan error, 1)}, nil
}

func (s *Stack) start(ctx context.Context, o Options, p programs) error {
	for _, name := range []Name{Postgres, NATS, Temporal} {
		if !o.wants(name) {
			continue
		}
		if err := clearLeftover(ctx, s.dir, name); err != nil {
			return err
		}
	}
	ports, err := settlePorts(o, &s.claims)
	if err != nil {
		return err
	}
	if o.wants(Postgres) {
		if err := s.startPostgres(ctx, o, p.postgres, ports.Postgres); err != nil {
			return err
		}
	}
	if o.wants(NATS) {
		if err := s.startNATS(ctx, o, p.nats, ports.NATS); err != nil {
			return err
		}
	}
	if o.wants(Temporal) {
		return s.startTemporal(ctx, o, p.temporal, ports)
	}
	return nil
}

// launch starts a service that is to be part of the stack.
func (s *Stack) launch(ctx context.Context, o Options, service *Service) error {
	service.logPath = filepath.Join(s.dir, "logs", service.fileName()+".log")
	service.recordPath = recordPath(s.dir, service.name)
	service.ended = s.endedByItself(o.Logger)
	if err := keepPreviousLog(service.logPath); err != nil {
		return err
	}
	begun := time.Now()
	if err := service.Start(ctx); err != nil {
		return err
	}
	s.order = append(s.order, service)
	o.Progress(fmt.Sprintf("%s is ready at %s after %s", service.name, service.Address(), time.Since(begun).Round(10*time.Millisecond)))
	return nil
}

func (s *Stack) endedByItself(log *slog.Logger) func(error) {
	return func(err error) {
		log.Error("a service of the stack ended by itself", "error", err)
		select {
		case s.failed <- err:
		default:
		}
	}
}

// Failed delivers an error when a service ends without having been asked to by
// Stop or Kill.
func (s *Stack) Failed() <-chan error { return s.failed }

// Env returns the TIDEWAIT_ variables with which commands use this stack.
func (s *Stack) Env() []string {
	var env []string
	if s.Postgres != nil {
		env = append(env, "TIDEWAIT_POSTGRES_URL="+s.PostgresURL)
	}
	if s.NATS != nil {
		env = append(env, "TIDEWAIT_NATS_URL="+s.NATSURL)
	}
	if s.Temporal != nil {
		env = append(env, "TIDEWAIT_TEMPORAL_ADDRESS="+s.TemporalAddress, "TIDEWAIT_TEMPORAL_NAMESPACE="+Namespace)
	}
	return env
}

// Stop stops the services in reverse order and gives the directory free. One
// that has not ended after ten seconds, or when ctx ends, is killed. Stopping a
// stopped stack does nothing.
func (s *Stack) Stop(ctx context.Context) error {
	var faults []error
	for _, service := range slices.Backward(s.order) {
		faults = append(faults, service.Stop(ctx))
	}
	if s.sockets != "" {
		faults = append(faults, os.RemoveAll(s.sockets))
	}
	s.claims.release()
	return errors.Join(append(faults, unlockDir(s.lock))...)
}
