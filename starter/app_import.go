package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

func appImportCommand(c *cli) *cobra.Command {
	var flags importFlags
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Bring the applications of a wadm, with all their versions",
		Long: `Bring the applications of a wadm, which may run or be stopped: every version in
its order, and which of them is deployed. It reads the bucket that wadm keeps
them in and changes nothing there.

Without --apply it only says what would be done: added; kept (it is here already,
the same); conflict (it is here already, and another document; what is here
stays); refused (it could never run, and why). It may be repeated. Stop the wadm
before what is imported meets its hosts: both would start and stop the same
things.`,
		Example: `  tidewait app import --from nats://old.example.com:4222
  tidewait app import --from nats://old.example.com:4222 --lattice default --apply`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&flags.from, "from", "", "URL of the wadm's NATS (default the setting nats.url)")
	cmd.Flags().StringVar(&flags.bucket, "bucket", "wadm_manifests", "the wadm's bucket")
	cmd.Flags().StringVar(&flags.account, "account", "", "of a wadm for several tenants: the account whose applications are meant")
	cmd.Flags().BoolVar(&flags.apply, "apply", false, "do it; without, only say what would be done")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := c.appSettings(cmd)
		if err != nil {
			return err
		}
		flags.every = !cmd.Flags().Changed("lattice")
		flags.actor = *actor
		return c.importApps(cmd.Context(), settings, flags)
	}
	return cmd
}

type importFlags struct {
	from, bucket, account string
	every                 bool // lattice, not only the one of the settings
	apply                 bool
	actor                 string
}

// importReport is the structured output of an import.
type importReport struct {
	Applied      bool          `json:"applied"`
	Applications []importedApp `json:"applications"`
	Notes        []string      `json:"notes,omitempty"` // what is odd about the bucket
}

// importedApp is what became of one application.
type importedApp struct {
	Account  string                `json:"account,omitempty"`
	Lattice  string                `json:"lattice"`
	Name     string                `json:"name"`
	Versions []api.ImportedVersion `json:"versions"`
	Deployed *string               `json:"deployed,omitempty"`    // here, by the import
	Was      *string               `json:"wasDeployed,omitempty"` // where it comes from
	Why      string                `json:"why,omitempty"`         // it is not deployed here
}

func (c *cli) importApps(ctx context.Context, s config.Settings, flags importFlags) error {
	engine, err := c.engine(ctx, s)
	if err != nil {
		return err
	}
	defer engine.close()
	source := engine.conn
	if flags.from != "" {
		from := s
		from.NATS.URL = flags.from
		if source, err = c.dialNATS(ctx, from); err != nil {
			return fmt.Errorf("the wadm's NATS: %w", err)
		}
		defer source.Close()
	}
	wanted := func(lattice string) bool { return flags.every || lattice == s.Wadm.Lattice }
	entries, err := readEntries(ctx, source, flags.bucket)
	if err != nil {
		return err
	}
	found := readBucket(entries, flags.account, wanted)
	for _, note := range found.notes {
		c.note("note: %s", render.Clean(note))
	}
	if len(found.apps) > 0 && wadmAnswers(ctx, source, s, flags.account, found.apps[0].lattice) {
		c.note("warning: a wadm still answers on %s; stop it before what is imported meets its hosts: both would start and stop the same things",
			safeURL(source.ConnectedUrl()))
	}
	if flags.account != "" && !s.Wadm.Multitenant {
		c.note("note: only an engine with the setting wadm.multitenant answers for account %s", flags.account)
	}
	i := &importer{cli: c, engine: engine, flags: flags, report: importReport{Applied: flags.apply, Applications: []importedApp{}, Notes: found.notes}}
	return i.run(ctx, found.apps)
}

// wadmProbes is how often the API is asked who answers: every server of it may
// take each request, Tidewait's engines too.
const wadmProbes = 40

// wadmHistory begins wadm's answer to a request that it keeps for later, which
// needs no application.
const wadmHistory = "Model deployment history is not currently supported"

// wadmAnswers asks under the prefix of the settings and wadm's own.
func wadmAnswers(ctx context.Context, conn *nats.Conn, s config.Settings, account, lattice string) bool {
	prefixes := []string{s.Wadm.APIPrefix}
	if s.Wadm.APIPrefix != wadm.DefaultPrefix {
		prefixes = append(prefixes, wadm.DefaultPrefix)
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		if account != "" {
			prefix = account + "." + prefix
		}
		return isWadm(ctx, conn, wadm.Subject(prefix, lattice, wadm.OpHistory, "any"))
	})
}

func isWadm(ctx context.Context, conn *nats.Conn, subject string) bool {
	for range wadmProbes {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		answer, err := conn.RequestWithContext(asking, subject, nil)
		cancel()
		if err != nil {
			return false
		}
		var reply wadm.Error
		if json.Unmarshal(answer.Data, &reply) == nil && strings.HasPrefix(reply.Message, wadmHistory) {
			return true
		}
	}
	return false
}

// importer brings applications to the engine.
type importer struct {
	cli    *cli
	engine *engine
	flags  importFlags
	report importReport
}

// run brings every application, and shows what became of them even when it does
// not come to the end.
func (i *importer) run(ctx context.Context, apps []storedApp) error {
	err := i.all(ctx, apps)
	slices.SortFunc(i.report.Applications, func(a, b importedApp) int {
		return cmp.Or(strings.Compare(a.Lattice, b.Lattice), strings.Compare(a.Name, b.Name))
	})
	if err == nil || len(i.report.Applications) > 0 {
		err = errors.Join(i.cli.print(i.report, time.Now(), i.text), err)
	}
	if err == nil {
		err = i.verdict()
	}
	return err
}

// importProgress is after how many applications a person is told.
const importProgress = 100

func (i *importer) all(ctx context.Context, apps []storedApp) error {
	for n, a := range neededFirst(apps) {
		if n > 0 && n%importProgress == 0 {
			i.cli.note("%d of %s", n, counted(len(apps), "application"))
		}
		b := &bringing{importer: i, app: a, became: map[string]api.ImportedVersion{}}
		if err := b.run(ctx); err != nil {
			return fmt.Errorf("application %s of lattice %s: %w", a.name, a.lattice, err)
		}
		i.report.Applications = append(i.report.Applications, b.done())
	}
	return nil
}

func (i *importer) text(o render.Options) string {
	if len(i.report.Applications) == 0 {
		return "no applications to import\n"
	}
	var rows []render.ImportRow
	for _, a := range i.report.Applications {
		for _, v := range a.Versions {
			row := render.ImportRow{
				Lattice: a.Lattice, Application: a.Name, ImportedVersion: v,
				WasDeployed: a.Was != nil && *a.Was == v.Version, IsDeployed: a.Deployed != nil && *a.Deployed == v.Version,
			}
			if row.WasDeployed && row.Why == "" {
				row.Why = a.Why
			}
			rows = append(rows, row)
		}
	}
	text := o.Import(rows)
	if !i.report.Applied {
		text += "\nnothing is changed yet: do it with --apply\n"
	}
	return text
}

// verdict is an error when something is not brought.
func (i *importer) verdict() error {
	versions, deployments := 0, 0
	for _, a := range i.report.Applications {
		for _, v := range a.Versions {
			if v.What != api.ImportAdded && v.What != api.ImportKept {
				versions++
			}
		}
		if a.Was != nil && a.Deployed == nil {
			deployments++
		}
	}
	if versions == 0 && deployments == 0 {
		return nil
	}
	return failed("not brought: %s, %s", counted(versions, "version"), counted(deployments, "deployment"))
}
