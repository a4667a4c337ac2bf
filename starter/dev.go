package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/devstack"
	"tidewait/internal/local"
)

// shortFlags are the flags that set a key without being named like it.
var shortFlags = map[string]string{"simulated-hosts": "dev.simulated_hosts"}

func devCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole stack on this machine until Ctrl-C",
		Long: `Run Temporal with its Web UI, NATS, Postgres and Tidewait's worker on this
machine, on free ports of the loopback interface, until Ctrl-C. State is kept in
one directory, and so are the ports: a second start goes on where the first ended.

Simulated hosts answer and report as wasmCloud hosts do, and run nothing: enough to
deploy applications on. Their labels are zone=a, zone=b and zone=c in turn.`,
		Example: "  tidewait dev\n  tidewait dev --dev.nodes 3 --data-dir /var/tmp/tidewait\n  tidewait dev --simulated-hosts 3",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.dev(cmd) },
	}
	cmd.Flags().Int("dev.nodes", 0, "node agents to run")
	cmd.Flags().Int("simulated-hosts", 0, "wasmCloud hosts to simulate")
	cmd.Flags().String("data-dir", "", "where state is kept (default .data)")
	return cmd
}

func (c *cli) dev(cmd *cobra.Command) error {
	s, err := c.load(cmd)
	if err != nil {
		return err
	}
	env, err := c.callersEnv()
	if err != nil {
		return failed("%w", err)
	}
	p, err := c.startLocal(cmd.Context(), s, env)
	if err != nil {
		return failed("%w", err)
	}
	err = c.serveLocal(cmd.Context(), p, s)
	c.note("stopping")
	if stopErr := p.Stop(); err == nil && stopErr != nil {
		err = failed("%w", stopErr)
	}
	return err
}

// startLocal starts the stack of this machine, without workers.
func (c *cli) startLocal(ctx context.Context, s config.Settings, env []string) (*local.Product, error) {
	worker, err := workerPath()
	if err != nil {
		return nil, err
	}
	return local.Start(ctx, local.Options{
		Worker: worker, Log: c.log(),
		Env: append(env, "TIDEWAIT_DATA_DIR="+s.DataDir),
		Stack: devstack.Options{
			Dir: filepath.Join(s.DataDir, "stack"), TemporalCLI: s.Dev.TemporalCLI, PostgresBin: s.Dev.PostgresBin,
			UI: true, Codec: len(s.Temporal.EncryptionKeys) > 0,
			Logger: c.log(), Progress: func(line string) { c.note("· %s", line) },
		},
	})
}

// serveLocal starts the workers, says where everything is, and waits for the end.
func (c *cli) serveLocal(ctx context.Context, p *local.Product, s config.Settings) error {
	c.note("· engine and gateway")
	engine, err := p.StartWorker(ctx, "engine", []string{"engine", "gateway"}, "TIDEWAIT_GATEWAY_ID=gateway")
	if err != nil {
		return failed("%w", err)
	}
	if len(s.Temporal.EncryptionKeys) > 0 {
		c.note("· codec server at http://%s", p.Stack.CodecAddress)
		if _, err := p.StartCodecServer(ctx); err != nil {
			return failed("%w", err)
		}
	}
	for i := range s.Dev.Nodes {
		id := fmt.Sprintf("node-%c", 'a'+i)
		c.note("· node %s: probing its backends", id)
		if _, err := p.StartNode(ctx, id); err != nil {
			return failed("%w", err)
		}
	}
	if n := s.Dev.SimulatedHosts; n > 0 {
		c.note("· %s in the lattice %s", counted(n, "simulated host"), s.Wadm.Lattice)
		hosts, err := p.SimulateHosts(ctx, n)
		if err != nil {
			return failed("%w", err)
		}
		defer hosts.Stop()
	}
	fmt.Fprintf(c.out, `
Tidewait is up. Ctrl-C stops it.

  Web UI     %[1]s
  waits      %[1]s/namespaces/default/workflows?savedQuery=every%%20wait&query=ExecutionStatus%%3D%%22Running%%22%%20AND%%20TidewaitWait%%20IS%%20NOT%%20NULL
  Temporal   %s
  NATS       %s
  Postgres   %s
  metrics    %s/metrics
  health     %[5]s/readyz
  logs       %[6]s

In another terminal:

  export PATH='%[7]s':"$PATH" %[8]s
  tidewait mission launch examples/missions/hello.yaml --follow
  tidewait waits --watch
`, p.Stack.UIURL, p.Stack.TemporalAddress, p.Stack.NATSURL, p.Stack.PostgresURL, engine.URL(),
		filepath.Join(s.DataDir, "stack", "logs"), binDir(), exports(append(p.Stack.Env(), encryptionEnv(s.Temporal)...)))
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.Stack.Failed():
		return failed("%w", err)
	case w := <-p.Failed():
		return failed("the worker process %s ended by itself; see %s", w.Name, w.LogPath())
	}
}

// callersEnv is what the worker processes get of this command's settings: its
// TIDEWAIT_* variables and its settings file. The stack's own addresses win.
func (c *cli) callersEnv() ([]string, error) {
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "TIDEWAIT_") {
			env = append(env, v)
		}
	}
	if c.configFile == "" {
		return env, nil
	}
	file, err := filepath.Abs(c.configFile)
	return append(env, "TIDEWAIT_CONFIG="+file), err
}

// encryptionEnv is what a command in another terminal needs, so that it reads and
// writes what this stack does.
func encryptionEnv(t config.Temporal) []string {
	if len(t.EncryptionKeys) == 0 {
		return nil
	}
	return []string{"TIDEWAIT_TEMPORAL_ENCRYPTION=" + t.Encryption, "TIDEWAIT_TEMPORAL_ENCRYPTION_KEYS=" + strings.Join(t.EncryptionKeys, ",")}
}

// binDir is where this program is.
func binDir() string {
	self, err := os.Executable()
	if err != nil {
		return "bin"
	}
	return filepath.Dir(self)
}

// exports quotes variables for a shell: a Postgres URL has a question mark.
func exports(env []string) string {
	quoted := make([]string, len(env))
	for i, v := range env {
		name, value, _ := strings.Cut(v, "=")
		quoted[i] = name + "='" + value + "'"
	}
	return strings.Join(quoted, " ")
}
