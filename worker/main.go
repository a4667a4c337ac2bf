// Command tidewait-worker does Tidewait's work: it runs the roles engine,
// gateway and node, applies migrations, builds guest images and serves the codec.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/release"
)

// version is this program's.
var version = release.This().Version

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "tidewait-worker:", err)
		os.Exit(exitCode(err))
	}
}

// usageError marks errors of the command line and of settings: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "tidewait-worker",
		Short:         "Do Tidewait's work: engine, gateway and node",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.String("config", "", "settings file (default ./tidewait.yaml, then /etc/tidewait/tidewait.yaml)")
	flags.String("data-dir", "", "directory for checkouts and run files")
	flags.String("log.level", "", "debug, info, warn or error")
	flags.String("log.format", "", "text or json")
	flags.String("temporal.address", "", "host:port of Temporal")
	flags.String("temporal.namespace", "", "Temporal namespace")
	flags.String("nats.url", "", "URL of NATS")
	flags.String("postgres.url", "", "URL of Postgres")
	root.AddCommand(runCommand(), migrateCommand(), guestImageCommand(), codecServerCommand())
	return root
}

// settings reads the configuration of a command and makes its logger.
func settings(cmd *cobra.Command) (config.Settings, *slog.Logger, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return config.Settings{}, nil, usageError{err}
	}
	s, err := config.Load(config.Options{File: file, Flags: cmd.Flags()})
	if err != nil {
		return config.Settings{}, nil, usageError{err}
	}
	return s, logger(s.Log), nil
}

func logger(l config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // checked when the settings were read
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
