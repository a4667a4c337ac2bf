package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/provision"
	"tidewait/internal/render"
)

func setupCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Prepare a cluster: schema, search attributes, retention, streams and buckets",
		Long: `Prepare Postgres, Temporal and NATS for Tidewait. Everything is done only where
it is missing, so it may be run again at any time, and must be run after an
upgrade and before the new workers start.`,
		Example: "  tidewait setup --postgres.url postgres://tidewait@db/tidewait",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.setup(cmd) },
	}
	cmd.Flags().String("postgres.url", "", "URL of Postgres, for the migrations")
	cmd.Flags().StringSlice("node", nil, "nodes whose buckets to make, where their agents may not")
	cmd.AddCommand(natsConfigCommand(c), natsUsersCommand(c))
	return cmd
}

func (c *cli) setup(cmd *cobra.Command) error {
	s, err := c.load(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	tc, err := c.dialTemporal(ctx, s)
	if err != nil {
		return err
	}
	defer tc.Close()
	nc, err := c.dialNATS(ctx, s)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := c.migrate(cmd, s.Postgres.URL); err != nil {
		return err
	}
	options, err := config.TemporalOptions(s, c.log())
	if err != nil {
		return &fault{exitUsage, err}
	}
	namespace := options.Namespace
	nodes, err := cmd.Flags().GetStringSlice("node")
	if err != nil {
		return err
	}
	report, err := provision.All(ctx, tc, namespace, js, s, nodes...)
	if err != nil {
		return failed("%w", err)
	}
	return c.print(report, time.Now(), func(render.Options) string {
		added := "all search attributes were there"
		if len(report.SearchAttributes) > 0 {
			added = "registered search attributes " + strings.Join(report.SearchAttributes, ", ")
		}
		if report.Namespace {
			added = "made; " + added
		}
		secret := "payloads are not encrypted"
		if report.EncryptionKey != "" {
			secret = "payloads are encrypted with key " + report.EncryptionKey
		}
		return fmt.Sprintf("namespace %s: %s; closed workflows are kept for %s; %s\nstreams and buckets are there\n", namespace, added, report.Retention, secret)
	})
}

// migrate executes tidewait-worker, which alone opens Postgres.
func (c *cli) migrate(cmd *cobra.Command, url string) error {
	worker, err := workerPath()
	if err != nil {
		return err
	}
	run := exec.CommandContext(cmd.Context(), worker, "migrate")
	// Not as an argument: everybody on the machine can read those, and the URL
	// may hold a password.
	run.Env = append(os.Environ(), "TIDEWAIT_POSTGRES_URL="+url)
	out, err := run.CombinedOutput()
	if err != nil {
		return unreachable("cannot migrate the database: %s", strings.TrimPrefix(strings.TrimSpace(string(out)), "tidewait-worker: "))
	}
	c.note("%s", strings.TrimSpace(string(out)))
	return nil
}

// workerPath finds tidewait-worker: beside this program, or on PATH.
func workerPath() (string, error) {
	const name = "tidewait-worker"
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), name); isFile(beside) {
			return beside, nil
		}
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", failed("%s is neither beside this program nor on PATH; build it with `make build`", name)
	}
	return found, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
