package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/ledger"
	"tidewait/internal/release"
	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

// appTimeout bounds one request: other clients of the API give up then, too.
const appTimeout = 10 * time.Second

func appCommand(c *cli) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "app",
		Short: "Put applications, deploy them and look at them",
		Long: `Put applications, deploy them and look at them: over the API of wadm, with the
verbs of wash app. An application is a document with versions; deploying one of
them makes it the one that is kept running in a lattice.`,
		Example: `  tidewait app deploy examples/apps/hello.yaml --wait
  tidewait app list --lattice default`,
	})
	cmd.PersistentFlags().String("lattice", "", "the lattice of the application (default the setting wadm.lattice)")
	cmd.PersistentFlags().String("account", "", "the tenant's account, where there are several")
	cmd.AddCommand(
		appValidateCommand(c), appPutCommand(c), appDeployCommand(c),
		appListCommand(c), appGetCommand(c), appStatusCommand(c), appHistoryCommand(c),
		appUndeployCommand(c), appDeleteCommand(c), appNudgeCommand(c), appImportCommand(c),
	)
	return cmd
}

// apps asks the API of applications of one lattice.
type apps struct {
	cli     *cli
	client  wadm.Client
	account string // of one of several tenants; empty: there is one
	lattice string
	named   bool   // the lattice, on the command line
	url     string // of NATS, for messages, without passwords
}

// appSettings reads the settings, --lattice among them.
func (c *cli) appSettings(cmd *cobra.Command) (config.Settings, error) {
	settings, err := config.Load(config.Options{
		File: c.configFile, Flags: cmd.Flags(), FlagKeys: map[string]string{"lattice": "wadm.lattice"},
	})
	if err != nil {
		return config.Settings{}, &fault{exitUsage, err}
	}
	return settings, nil
}

// withApps loads the settings, connects to NATS and runs do. actor may be nil
// where nothing is changed.
func (c *cli) withApps(cmd *cobra.Command, actor *string, do func(context.Context, *apps) error) error {
	settings, err := c.appSettings(cmd)
	if err != nil {
		return err
	}
	account, err := appAccount(cmd)
	if err != nil {
		return err
	}
	conn, err := c.dialNATS(cmd.Context(), settings)
	if err != nil {
		return err
	}
	defer conn.Close()
	a := newApps(c, conn, settings, account, actor)
	a.named = cmd.Flags().Changed("lattice")
	return do(cmd.Context(), a)
}

// appAccount is the tenant's account that the command line names; empty: none, or
// that of a single tenant.
func appAccount(cmd *cobra.Command) (string, error) {
	account, err := cmd.Flags().GetString("account")
	if err == nil && strings.ContainsAny(account, ".*> \t\r\n") {
		return "", usage("%q is not the name of an account: it is one token of a NATS subject, such as ACME", account)
	}
	if account == ledger.DefaultAccount {
		account = ""
	}
	return account, err
}

func newApps(c *cli, conn *nats.Conn, settings config.Settings, account string, actor *string) *apps {
	client := wadm.Client{Conn: conn, Prefix: settings.Wadm.APIPrefix, Lattice: settings.Wadm.Lattice, Release: release.This()}
	if account != "" {
		client.Prefix = account + "." + client.Prefix
	}
	if actor != nil {
		client.Actor = *actor
	}
	return &apps{cli: c, client: client, account: account, lattice: settings.Wadm.Lattice, url: safeURL(settings.NATS.URL)}
}

// hint is another command about the same lattice.
func (a *apps) hint(verb string, args ...string) string {
	line := append([]string{"tidewait", "app", verb}, args...)
	if a.named {
		line = append(line, "--lattice", a.lattice)
	}
	if a.account != "" {
		line = append(line, "--account", a.account)
	}
	return "`" + strings.Join(line, " ") + "`"
}

// askApps bounds one operation of the API and explains its error.
func askApps[Reply any](ctx context.Context, a *apps, do func(context.Context) (Reply, error)) (Reply, error) {
	asking, cancel := context.WithTimeout(ctx, appTimeout)
	defer cancel()
	reply, err := do(asking)
	return reply, a.fault(ctx, err)
}

func (a *apps) fault(ctx context.Context, err error) error {
	const remedy = "start an engine with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url"
	var refused *wadm.ReplyError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		if release.IsRefusal(refused.Message) {
			return &fault{exitUsage, err}
		}
		return &fault{exitFailed, err}
	case errors.Is(err, nats.ErrNoResponders):
		return unreachable("nobody answers the API of applications (%s.>) on %s; %s", a.client.Prefix, a.url, remedy)
	case notAllowed(a.client.Conn) != nil:
		return failed("NATS on %s does not allow this: %w", a.url, notAllowed(a.client.Conn))
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable("the API of applications (%s.>) on %s did not answer in %s; %s", a.client.Prefix, a.url, appTimeout, remedy)
	case errors.Is(err, nats.ErrMaxPayload):
		return usage("the document is larger than NATS on %s takes in a message, which is %d bytes", a.url, a.client.Conn.MaxPayload())
	}
	return failed("cannot ask the API of applications on %s: %w", a.url, err)
}

// warn tells the server's warnings, except for those that were told already.
func (a *apps) warn(warnings []wadm.Warning, told []appFinding) {
	for _, w := range warnings {
		if !isTold(w, told) {
			a.cli.note("warning: %s", render.Clean(warningText(w)))
		}
	}
}

func isTold(w wadm.Warning, told []appFinding) bool {
	for _, f := range told {
		if f.Rule == w.Rule && f.Path == w.Path {
			return true
		}
	}
	return false
}

// warningText leaves out the line, which is one of the JSON that was sent.
func warningText(w wadm.Warning) string {
	text := w.Message
	if w.Path != "" {
		text = w.Path + ": " + text
	}
	if w.Rule != "" {
		text += " [" + w.Rule + "]"
	}
	return text
}

// completeApps offers the names of applications for the first argument.
func (c *cli) completeApps(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.appNames(cmd), cobra.ShellCompDirectiveNoFileComp
}

// completeAppsOrFiles offers names, and lets the shell offer files.
func (c *cli) completeAppsOrFiles(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.appNames(cmd), cobra.ShellCompDirectiveDefault
}

func (c *cli) appNames(cmd *cobra.Command) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	settings, err := c.appSettings(cmd)
	if err != nil {
		return nil
	}
	account, err := appAccount(cmd)
	if err != nil {
		return nil
	}
	conn, err := c.dialNATS(ctx, settings)
	if err != nil {
		return nil
	}
	defer conn.Close()
	list, _ := newApps(c, conn, settings, account, nil).client.List(ctx)
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.Name
	}
	return names
}
