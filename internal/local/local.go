// Package local runs the whole product on this machine: the services of
// package devstack, and Tidewait's own worker processes on them. It serves
// `tidewait dev`, the demo and end-to-end tests.
package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.temporal.io/sdk/client"

	"tidewait/config"
	"tidewait/internal/devstack"
	"tidewait/internal/provision"
)

// Options say what to run.
type Options struct {
	Stack    devstack.Options
	Worker   string        // path of tidewait-worker
	Env      []string      // further TIDEWAIT_* variables of every worker process
	Patience time.Duration // for a role to become ready; default 90 s
	Log      *slog.Logger
}

// Product is a running stack, and the worker processes on it.
type Product struct {
	Stack *devstack.Stack
	opts  Options

	failed chan *Worker

	mu      sync.Mutex
	workers []*Worker
}

// Failed delivers a worker process that ended without being asked to.
func (p *Product) Failed() <-chan *Worker { return p.failed }

// Start starts the services, applies migrations and provisions Temporal and
// NATS. It starts no worker process.
func Start(ctx context.Context, o Options) (*Product, error) {
	if o.Patience == 0 {
		o.Patience = 90 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	stack, err := devstack.Start(ctx, o.Stack)
	if err != nil {
		return nil, err
	}
	p := &Product{Stack: stack, opts: o, failed: make(chan *Worker, 1)}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Product) prepare(ctx context.Context) error {
	p.say("database schema")
	migrate := exec.CommandContext(ctx, p.opts.Worker, "migrate")
	migrate.Env = p.env()
	if out, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate the database: %s", strings.TrimSpace(string(out)))
	}
	p.say("search attributes, streams and buckets")
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return p.Provision(ctx)
}

// Provision makes what Temporal and NATS must have. It is called again after
// one of them lost its data.
func (p *Product) Provision(ctx context.Context) error {
	s, err := p.Settings()
	if err != nil {
		return err
	}
	nc, err := config.ConnectNATS(s.NATS, "tidewait-setup", p.opts.Log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	options, err := config.TemporalOptions(s, p.opts.Log)
	if err != nil {
		return err
	}
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return fmt.Errorf("connect to Temporal at %s: %w", options.HostPort, err)
	}
	defer c.Close()
	_, err = provision.All(ctx, c, devstack.Namespace, js, s)
	return err
}

// Settings returns the settings every worker process runs with.
func (p *Product) Settings() (config.Settings, error) {
	return config.Load(config.Options{Env: p.Env()})
}

// Env returns the TIDEWAIT_* variables with which commands use this product:
// those of the options, and the stack's addresses over them. Unless the options say
// otherwise no run outlives its agent, so that nothing is left of a product that
// ended in whatever way.
func (p *Product) Env() []string {
	values := map[string]string{"TIDEWAIT_NODE_KEEP_RUNS": "false"}
	for _, v := range append(slices.Clone(p.opts.Env), p.Stack.Env()...) {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return env
}

// env is the environment of a process: the caller's, without its own TIDEWAIT_*
// variables, and the product's.
func (p *Product) env() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TIDEWAIT_") {
			env = append(env, v)
		}
	}
	return append(env, p.Env()...)
}

func (p *Product) say(line string) {
	if p.opts.Stack.Progress != nil {
		p.opts.Stack.Progress(line)
	}
}

// Worker is one worker process.
type Worker struct {
	Name    string
	product *Product
	args    []string
	parts   int // that say when they are ready
	env     []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	asked bool          // to end
	url   string        // of its metrics and health
}

// StartWorker starts a worker process with the given roles and waits until all
// of them work. env adds variables for this process.
func (p *Product) StartWorker(ctx context.Context, name string, roles []string, env ...string) (*Worker, error) {
	return p.startProcess(ctx, &Worker{Name: name, args: []string{"run", "--roles", strings.Join(roles, ",")}, parts: len(roles), env: env})
}

func (p *Product) startProcess(ctx context.Context, w *Worker) (*Worker, error) {
	w.product = p
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.workers = append(p.workers, w)
	p.mu.Unlock()
	return w, nil
}

// StartCodecServer starts what decrypts for the Web UI, with the keys of the
// product's settings, at the stack's CodecAddress.
func (p *Product) StartCodecServer(ctx context.Context) (*Worker, error) {
	return p.startProcess(ctx, &Worker{Name: "codec", args: []string{"codec-server"}, parts: 1, env: []string{
		"TIDEWAIT_CODEC_ADDRESS=" + p.Stack.CodecAddress, "TIDEWAIT_CODEC_ORIGINS=" + p.Stack.UIURL,
	}})
}

// StartNode starts the agent of one node.
func (p *Product) StartNode(ctx context.Context, id string, env ...string) (*Worker, error) {
	return p.StartWorker(ctx, id, []string{"node"}, append([]string{"TIDEWAIT_NODE_ID=" + id}, env...)...)
}

// Start starts the process, again after Kill or Stop, and waits until its roles
// work.
func (w *Worker) Start(ctx context.Context) error {
	log, err := w.logFile()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(w.product.opts.Worker, w.args...)
	cmd.Env = append(append(w.product.env(), "TIDEWAIT_TELEMETRY_ADDRESS=127.0.0.1:0"), w.env...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", w.Name, err)
	}
	ended := make(chan struct{})
	ready := make(chan struct{})
	w.mu.Lock()
	w.cmd, w.ended, w.asked = cmd, ended, false
	w.mu.Unlock()
	go func() {
		w.read(out, w.parts, ready)
		_ = cmd.Wait()
		close(ended)
		w.tell()
	}()
	select {
	case <-ready:
		return nil
	case <-ended:
		return fmt.Errorf("%s ended at once: %s", w.Name, lastLine(log.Name()))
	case <-time.After(w.product.opts.Patience):
		return errors.Join(fmt.Errorf("%s was not ready after %s; see %s", w.Name, w.product.opts.Patience, log.Name()), w.Kill())
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), w.Kill())
	}
}

// tell reports an end that nobody asked for.
func (w *Worker) tell() {
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	if asked {
		return
	}
	select {
	case w.product.failed <- w:
	default: // one is enough to end the product
	}
}

// read closes ready after n lines that begin with "ready", and reads on until the
// process closes its output.
func (w *Worker) read(out io.Reader, n int, ready chan<- struct{}) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "telemetry "); ok {
			w.mu.Lock()
			w.url = url
			w.mu.Unlock()
		}
		if strings.HasPrefix(lines.Text(), "ready ") {
			if n--; n == 0 {
				close(ready)
			}
		}
	}
}

// URL is where the process serves its metrics and its health. Each start has
// another one.
func (w *Worker) URL() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.url
}

func (w *Worker) logFile() (*os.File, error) {
	dir := filepath.Join(w.product.opts.Stack.Dir, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, w.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// LogPath is where the process writes its log.
func (w *Worker) LogPath() string {
	return filepath.Join(w.product.opts.Stack.Dir, "logs", w.Name+".log")
}

func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// PID is the process's id.
func (w *Worker) PID() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cmd.Process.Pid
}

// Ended is closed when the process has ended.
func (w *Worker) Ended() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (w *Worker) Kill() error { return w.end(syscall.SIGKILL, 10*time.Second) }

// Stop asks the process to end and waits until it has; one that takes longer
// than 30 s is killed.
func (w *Worker) Stop() error { return w.end(syscall.SIGTERM, 30*time.Second) }

// Signal sends a signal, such as SIGSTOP.
func (w *Worker) Signal(sig syscall.Signal) error { return syscall.Kill(w.PID(), sig) }

func (w *Worker) end(sig syscall.Signal, patience time.Duration) error {
	select {
	case <-w.Ended():
		return nil
	default:
	}
	w.mu.Lock()
	w.asked = true
	w.mu.Unlock()
	if err := w.Signal(sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	select {
	case <-w.Ended():
		return nil
	case <-time.After(patience):
	}
	_ = w.Signal(syscall.SIGKILL)
	<-w.Ended()
	return fmt.Errorf("%s did not end within %s and was killed", w.Name, patience)
}

// Stop ends the worker processes, the last started first, and then the stack.
func (p *Product) Stop() error {
	p.mu.Lock()
	workers := p.workers
	p.workers = nil
	p.mu.Unlock()
	var faults []error
	for i := len(workers) - 1; i >= 0; i-- {
		faults = append(faults, workers[i].Stop())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(append(faults, p.Stack.Stop(ctx))...)
}
