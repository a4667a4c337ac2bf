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
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/oam"
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
	for _, lattice := range lattices(found.apps) {
		if wadmAnswers(ctx, source, apiPrefix(s, flags.account), lattice) {
			c.note("warning: a wadm still answers the API of lattice %s; stop it before what is imported meets its hosts: both would start and stop the same things", lattice)
		}
	}
	i := &importer{cli: c, engine: engine, flags: flags, report: importReport{Applied: flags.apply, Applications: []importedApp{}, Notes: found.notes}}
	return i.run(ctx, found.apps)
}

// readTimeout bounds each look into the wadm's bucket.
const readTimeout = 10 * time.Second

// readEntries reads every key of a bucket.
func readEntries(ctx context.Context, conn *nats.Conn, bucket string) (map[string][]byte, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	kv, err := js.KeyValue(asking, bucket)
	if err != nil {
		return nil, bucketFault(ctx, conn, bucket, err)
	}
	listed, err := kv.ListKeys(asking)
	if err != nil {
		return nil, bucketFault(ctx, conn, bucket, err)
	}
	entries := map[string][]byte{}
	for key := range listed.Keys() {
		entries[key] = nil
	}
	for key := range entries {
		value, err := readEntry(ctx, kv, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) { // it was deleted meanwhile
			delete(entries, key)
			continue
		}
		if err != nil {
			return nil, bucketFault(ctx, conn, bucket, err)
		}
		entries[key] = value
	}
	return entries, nil
}

func readEntry(ctx context.Context, kv jetstream.KeyValue, key string) ([]byte, error) {
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	entry, err := kv.Get(asking, key)
	if err != nil {
		return nil, err
	}
	return entry.Value(), nil
}

func bucketFault(ctx context.Context, conn *nats.Conn, bucket string, err error) error {
	url := safeURL(conn.ConnectedUrl())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return failed("there is no bucket %s on %s; give the wadm's NATS with --from, and its bucket with --bucket", bucket, url)
	case errors.Is(err, jetstream.ErrInvalidBucketName):
		return usage("%q is not the name of a bucket", bucket)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return unreachable("NATS on %s has no JetStream, and so no bucket %s; give the wadm's NATS with --from", url, bucket)
	}
	return unreachable("cannot read the bucket %s on %s: %w", bucket, url, err)
}

func lattices(apps []storedApp) []string {
	var names []string
	for _, a := range apps {
		names = append(names, a.lattice)
	}
	return slices.Compact(names) // they are in order
}

func apiPrefix(s config.Settings, account string) string {
	if account == "" {
		return s.Wadm.APIPrefix
	}
	return account + "." + s.Wadm.APIPrefix
}

// wadmProbes is how often the API is asked who answers: every server of it may
// take each request, Tidewait's engines too.
const wadmProbes = 40

// wadmHistory begins wadm's answer to a request that it keeps for later, which
// needs no application.
const wadmHistory = "Model deployment history is not currently supported"

func wadmAnswers(ctx context.Context, conn *nats.Conn, prefix, lattice string) bool {
	for range wadmProbes {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		answer, err := conn.RequestWithContext(asking, wadm.Subject(prefix, lattice, wadm.OpHistory, "any"), nil)
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

// neededFirst returns applications in an order in which they can be deployed:
// what others refer to comes before them.
func neededFirst(apps []storedApp) []storedApp {
	type key struct{ lattice, name string }
	index := map[key]storedApp{}
	for _, a := range apps {
		index[key{a.lattice, a.name}] = a
	}
	var ordered []storedApp
	visited := map[key]bool{}
	var visit func(key)
	visit = func(k key) {
		a, known := index[k]
		if !known || visited[k] {
			return
		}
		visited[k] = true
		for _, name := range a.needs() {
			visit(key{k.lattice, name})
		}
		ordered = append(ordered, a)
	}
	for _, a := range apps {
		visit(key{a.lattice, a.name})
	}
	return ordered
}

// needs names the shared applications that the deployed version refers to.
func (a storedApp) needs() []string {
	var names []string
	for _, v := range a.versions {
		if a.deployed == nil || v.Version != *a.deployed {
			continue
		}
		if d, err := oam.Parse(v.Manifest, oam.JSON); err == nil {
			for _, r := range d.Manifest.Facts().References {
				names = append(names, r.Application)
			}
		}
	}
	return names
}

// bringing is one application on its way.
type bringing struct {
	*importer
	app      storedApp
	became   map[string]api.ImportedVersion
	deployed *string
	why      string // the deployed version is not deployed
}

// run sends the application. What takes several requests is looked at whole
// first: a conflict found by the last one must keep the first from being stored.
func (b *bringing) run(ctx context.Context) error {
	groups := b.groups()
	whole := len(groups) <= 1
	if err := b.send(ctx, groups, b.flags.apply && whole); err != nil {
		return err
	}
	if whole || b.conflict() || !b.flags.apply {
		return nil
	}
	return b.send(ctx, b.groups(), true)
}

// envelopeBytes is room for what a request, a reply and an event have beside a
// document.
const envelopeBytes = 4096

// groups divides the versions, without those that are refused, so that NATS takes
// each group in a request. What fits into none is refused here.
func (b *bringing) groups() [][]api.ImportVersion {
	limit := int(b.engine.conn.MaxPayload()) - envelopeBytes
	var versions []api.ImportVersion
	for _, v := range b.app.versions {
		limit -= len(v.Version) + len(`"",`) // in the list of what comes later
		if b.became[v.Version].What != api.ImportRefused {
			versions = append(versions, v)
		}
	}
	groups, large := divide(versions, limit)
	for _, version := range large {
		b.became[version] = api.ImportedVersion{
			Version: version, What: api.ImportRefused,
			Why: fmt.Sprintf("it is larger than NATS on %s takes in a message, which is %d bytes", b.engine.url, b.engine.conn.MaxPayload()),
		}
	}
	return groups
}

// divide makes groups of versions, in order, none larger than limit bytes of
// JSON, and names the versions that are larger alone.
func divide(versions []api.ImportVersion, limit int) (groups [][]api.ImportVersion, large []string) {
	used := 0
	for _, v := range versions {
		text, err := json.Marshal(v)
		size := len(text) + len(",")
		if err != nil || size > limit {
			large = append(large, v.Version)
			continue
		}
		if len(groups) == 0 || used+size > limit {
			groups, used = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], v)
		used += size
	}
	return groups, large
}

func (b *bringing) send(ctx context.Context, groups [][]api.ImportVersion, apply bool) error {
	for n, group := range groups {
		request := api.ImportRequest{
			Account: b.flags.account, Lattice: b.app.lattice, Name: b.app.name,
			Versions: group, Later: versionNames(slices.Concat(groups[n+1:]...)), Apply: apply, Actor: b.flags.actor,
		}
		if b.deploysWith(group, apply, n == len(groups)-1) {
			request.Deployed = b.app.deployed
		}
		reply, err := ask[api.ImportReply](ctx, b.engine, api.SubjectAppImport, request)
		if err != nil {
			return err
		}
		b.take(request, reply)
	}
	return nil
}

func versionNames(versions []api.ImportVersion) []string {
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = v.Version
	}
	return names
}

// deploysWith reports whether the request with a group deploys: the last one when
// versions are stored, else the one that has the version.
func (b *bringing) deploysWith(group []api.ImportVersion, apply, last bool) bool {
	switch {
	case b.app.deployed == nil || b.became[*b.app.deployed].What == api.ImportRefused:
		return false
	case apply:
		return last
	}
	return slices.Contains(versionNames(group), *b.app.deployed)
}

// take keeps a reply. Of a version that was looked at before it was stored, the
// first word counts.
func (b *bringing) take(request api.ImportRequest, reply api.ImportReply) {
	for _, v := range reply.Versions {
		if b.became[v.Version].What == "" {
			b.became[v.Version] = v
		}
	}
	if request.Deployed == nil {
		return
	}
	b.deployed, b.why = reply.Deployed, reply.Why
	if !request.Apply && len(reply.Needs) > 0 && b.willBeDeployed(reply.Needs) {
		b.deployed, b.why = request.Deployed, ""
	}
}

// willBeDeployed reports whether this import deploys the named applications.
func (b *bringing) willBeDeployed(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(b.report.Applications, func(a importedApp) bool {
			return a.Lattice == b.app.lattice && a.Name == name && a.Deployed != nil
		})
	})
}

// conflict reports whether a version is in conflict, and then nothing of the
// application is brought.
func (b *bringing) conflict() bool {
	found := false
	for _, v := range b.became {
		found = found || v.What == api.ImportConflict
	}
	for name, v := range b.became {
		if found && v.What == api.ImportAdded {
			b.became[name] = api.ImportedVersion{Version: name, What: api.ImportSkipped, Why: "another version of the application is in conflict"}
		}
	}
	if found && b.deployed != nil {
		b.deployed, b.why = nil, "a version of the application is in conflict"
	}
	return found
}

func (b *bringing) done() importedApp {
	app := importedApp{
		Account: b.flags.account, Lattice: b.app.lattice, Name: b.app.name,
		Deployed: b.deployed, Was: b.app.deployed, Why: b.why,
	}
	for _, v := range b.app.versions {
		app.Versions = append(app.Versions, b.became[v.Version])
	}
	return app
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
