package negctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"

	"tidewait/internal/devstack"
	"tidewait/internal/local"
	"tidewait/internal/store"
	"tidewait/migrations"
)

// quick makes every interval short enough to be waited for, in the proportions of
// the defaults.
var quick = []string{
	"TIDEWAIT_FLEET_RETRY_INTERVAL=1s", "TIDEWAIT_FLEET_HEARTBEAT_INTERVAL=500ms", "TIDEWAIT_FLEET_SUSPECT_AFTER=3s",
	"TIDEWAIT_FLEET_LEASE=6s", "TIDEWAIT_FLEET_LOST_AFTER=10s", "TIDEWAIT_FLEET_SWEEP_INTERVAL=1s", "TIDEWAIT_NODE_KILL_GRACE=2s",
}

// stack is the disposable stack that the controls share, with an engine and a
// gateway, each a process of its own, and nodes where a control wants some.
type stack struct {
	opts     Options
	dir      string
	product  *local.Product
	db       *pgx.Conn // of the product's database
	temporal client.Client
	engine   *local.Worker
}

func startStack(ctx context.Context, o Options) (*stack, error) {
	dir, err := os.MkdirTemp("", "tidewait-negctl-")
	if err != nil {
		return nil, err
	}
	s := &stack{opts: o, dir: dir}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *stack) start(ctx context.Context) error {
	if err := s.makeFiles(); err != nil {
		return err
	}
	s.opts.Steps("starting Postgres, NATS and Temporal")
	dev := s.opts.Settings.Dev
	var err error
	s.product, err = local.Start(ctx, local.Options{
		Worker: s.opts.Worker, Log: s.opts.Log, Env: append([]string{"TIDEWAIT_DATA_DIR=" + s.dir}, quick...),
		Stack: devstack.Options{
			Dir: filepath.Join(s.dir, "stack"), TemporalCLI: dev.TemporalCLI, PostgresBin: dev.PostgresBin, Logger: s.opts.Log,
		},
	})
	if err != nil {
		return err
	}
	if s.db, err = pgx.Connect(ctx, s.product.Stack.PostgresURL); err != nil {
		return err
	}
	if err := s.sabotage(ctx, s.db); err != nil {
		return err
	}
	s.temporal, err = client.DialContext(ctx, client.Options{
		HostPort: s.product.Stack.TemporalAddress, Logger: temporallog.NewStructuredLogger(s.opts.Log),
	})
	if err != nil {
		return err
	}
	s.opts.Steps("starting an engine and a gateway")
	if err := s.startEngine(ctx); err != nil {
		return err
	}
	_, err = s.product.StartWorker(ctx, "gateway", []string{"gateway"}, "TIDEWAIT_GATEWAY_ID=gw")
	return err
}

// makeFiles makes a directory that the unprivileged users of Postgres and of
// machines can reach, and in it what missions are made of.
func (s *stack) makeFiles() error {
	if err := os.Chmod(s.dir, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	for _, name := range []string{"missions", "workspace"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o755); err != nil {
			return err
		}
	}
	if s.opts.Variant {
		if err := os.WriteFile(filepath.Join(s.dir, variantMark), nil, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(s.dir, "workspace", "README"), []byte("a small workspace\n"), 0o600)
}

// sabotage takes the safety out of a database of this stack.
func (s *stack) sabotage(ctx context.Context, db *pgx.Conn) error {
	if s.opts.Sabotage == nil {
		return nil
	}
	if _, err := db.Exec(ctx, s.opts.Sabotage.sql); err != nil {
		return fmt.Errorf("sabotage the database: %w", err)
	}
	return nil
}

func (s *stack) startEngine(ctx context.Context, env ...string) (err error) {
	s.engine, err = s.product.StartWorker(ctx, "engine", []string{"engine"}, env...)
	return err
}

// stop stops what was started and removes the directory.
func (s *stack) stop() error {
	var faults []error
	if s.temporal != nil {
		s.temporal.Close()
	}
	if s.db != nil {
		_ = s.db.Close(context.Background())
	}
	if s.product != nil {
		faults = append(faults, s.product.Stop())
	}
	return errors.Join(append(faults, os.RemoveAll(s.dir))...)
}

// environment is that of a command: this program's, without its own TIDEWAIT_*
// variables, and the stack's.
func (s *stack) environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TIDEWAIT_") {
			env = append(env, v)
		}
	}
	return append(env, s.product.Env()...)
}

// ended waits until missions have ended, as long as ctx lasts.
func (s *stack) ended(ctx context.Context, missions []string) {
	if len(missions) == 0 {
		return
	}
	poll(ctx, func() (bool, error) {
		var open int
		err := s.db.QueryRow(ctx, "SELECT count(*) FROM missions WHERE status = 'running' AND name = ANY($1)", missions).Scan(&open)
		return open == 0, err
	})
}

// calm wants the stack to be as before a control: nothing runs, waits or is held.
func (s *stack) calm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var missions, waits int
	poll(ctx, func() (bool, error) {
		err := s.db.QueryRow(ctx, `
SELECT (SELECT count(*) FROM missions WHERE status = 'running'), (SELECT count(*) FROM capacity_waits)`).Scan(&missions, &waits)
		return missions+waits == 0, err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("%d missions still run and %d phases still wait", missions, waits)
	}
	return nil
}

// restartEngine replaces the engine with one that has other settings, until the
// trial is over.
func (t *trial) restartEngine(env ...string) {
	t.must(t.engine.Stop(), "stop the engine")
	t.must(t.startEngine(t.ctx, env...), "start the engine")
	t.later(func() {
		if t.engine.Stop() == nil {
			_ = t.startEngine(context.WithoutCancel(t.ctx)) // the next control says when there is none
		}
	})
}

// tables are a database beside the product's, for controls of the store alone: no
// engine works on it.
type tables struct {
	store *store.Store
	db    *pgx.Conn
}

// storeRules are long enough for nothing to be lost during a control.
var storeRules = store.Rules{SuspectAfter: time.Hour, LostAfter: 2 * time.Hour, Ageing: 30 * time.Minute, HeadWindow: 64}

// storeOnly is a fresh database for one trial.
func (t *trial) storeOnly() *tables {
	name := "negctl_" + t.prefix
	_, err := t.db.Exec(t.ctx, "CREATE DATABASE "+name)
	t.must(err, "make a database")
	c := t.db.Config()
	url := fmt.Sprintf("postgres://%s@%s:%d/%s", c.User, c.Host, c.Port, name)
	_, err = migrations.Apply(t.ctx, url)
	t.must(err, "make its tables")
	own := &tables{}
	own.db, err = pgx.Connect(t.ctx, url)
	t.must(err, "connect to it")
	t.must(t.sabotage(t.ctx, own.db), "sabotage it")
	own.store, err = store.Open(t.ctx, url, 10, storeRules)
	t.must(err, "open it")
	t.later(own.close)
	return own
}

func (d *tables) close() {
	d.store.Close()
	_ = d.db.Close(context.Background())
}
