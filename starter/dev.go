package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/devstack"
	"tidewait/internal/local"
)

func devCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole stack on this machine until Ctrl-C",
		Long: `Run Temporal with its Web UI, NATS, Postgres and Tidewait's worker on this
machine, on free ports of the loopback interface, until Ctrl-C. State is kept in
one directory, and so are the ports: a second start goes on where the first ended.`,
		Example: "  tidewait dev\n  tidewait dev --dev.nodes 3 --data-dir /var/tmp/tidewait",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.dev(cmd) },
	}
	cmd.Flags().Int("dev.nodes", 0, "node agents to run")
	cmd.Flags().String("data-dir", "", "where state is kept (default .data)")
	return cmd
}

func (c *cli) dev(cmd *cobra.Command) error {
	s, err := c.load(cmd)
	if err != nil {
		return err
	}
	p, err := c.startLocal(cmd.Context(), s, nil)
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
			Dir: filepath.Join(s.DataDir, "stack"), TemporalCLI: s.Dev.TemporalCLI, PostgresBin: s.Dev.PostgresBin, UI: true,
			Logger: c.log(), Progress: func(line string) { c.note("· %s", line) },
		},
	})
}

// serveLocal starts the workers, says where everything is, and waits for the end.
func (c *cli) serveLocal(ctx context.Context, p *local.Product, s config.Settings) error {
	c.note("· engine and gateway")
	if _, err := p.StartWorker(ctx, "engine", []string{"engine", "gateway"}, "TIDEWAIT_GATEWAY_ID=gateway"); err != nil {
		return failed("%w", err)
	}
	for i := range s.Dev.Nodes {
		id := fmt.Sprintf("node-%c", 'a'+i)
		c.note("· node %s: probing its backends", id)
		if _, err := p.StartNode(ctx, id, nodeEnv(s)...); err != nil {
			return failed("%w", err)
		}
	}
	fmt.Fprintf(c.out, `
Tidewait is up. Ctrl-C stops it.

  Web UI     %s
  Temporal   %s
  NATS       %s
  Postgres   %s
  logs       %s

In another terminal:

  export %s
  tidewait mission launch examples/missions/hello.yaml --follow
  tidewait waits --watch
`, p.Stack.UIURL, p.Stack.TemporalAddress, p.Stack.NATSURL, p.Stack.PostgresURL,
		filepath.Join(s.DataDir, "stack", "logs"), strings.Join(p.Stack.Env(), " "))
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.Stack.Failed():
		return failed("%w", err)
	}
}

// nodeEnv hands the settings of nodes on to their processes.
func nodeEnv(s config.Settings) []string {
	var env []string
	for key, value := range map[string]string{
		"TIDEWAIT_NODE_MEMORY": s.Node.Memory, "TIDEWAIT_NODE_DISK": s.Node.Disk, "TIDEWAIT_NODE_ACCEL": s.Node.Accel,
	} {
		if value != "" {
			env = append(env, key+"="+value)
		}
	}
	if s.Node.CPUs > 0 {
		env = append(env, fmt.Sprintf("TIDEWAIT_NODE_CPUS=%g", s.Node.CPUs))
	}
	return env
}
