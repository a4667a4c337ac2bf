package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/oam"
)

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

// groupBytes keeps each request short work for the engine.
const groupBytes = 1 << 20

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
	groups, large := divide(versions, min(limit, groupBytes), limit)
	for _, version := range large {
		b.became[version] = api.ImportedVersion{
			Version: version, What: api.ImportRefused,
			Why: fmt.Sprintf("it is larger than NATS on %s takes in a message, which is %d bytes", b.engine.url, b.engine.conn.MaxPayload()),
		}
	}
	return groups
}

// divide makes groups of versions, in order, of at most size bytes of JSON, or of
// one version. It names the versions that are larger than limit bytes alone.
func divide(versions []api.ImportVersion, size, limit int) (groups [][]api.ImportVersion, large []string) {
	used := 0
	for _, v := range versions {
		text, err := json.Marshal(v)
		needs := len(text) + len(",")
		if err != nil || needs > limit {
			large = append(large, v.Version)
			continue
		}
		if len(groups) == 0 || used+needs > size {
			groups, used = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], v)
		used += needs
	}
	return groups, large
}

// importTimeout is longer than the engine works on one request.
const importTimeout = 15 * time.Second

func (b *bringing) send(ctx context.Context, groups [][]api.ImportVersion, apply bool) error {
	for n, group := range groups {
		request := api.ImportRequest{
			Account: b.flags.account, Lattice: b.app.lattice, Name: b.app.name,
			Versions: group, Later: versionNames(slices.Concat(groups[n+1:]...)), Apply: apply, Actor: b.flags.actor,
		}
		if b.deploysWith(group, apply, n == len(groups)-1) {
			request.Deployed = b.app.deployed
		}
		reply, err := exchange[api.ImportReply](ctx, b.engine, api.SubjectAppImport, request, peer{
			name:    "engine",
			remedy:  "start one with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url; the import can be repeated",
			timeout: importTimeout,
		})
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
