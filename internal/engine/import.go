package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/natsrpc"
	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// importApplication stores versions that come from elsewhere, and deploys what
// is deployed there. A version that no put would accept is refused and the rest
// brought; a conflict keeps everything as it is.
func (s Server) importApplication(ctx context.Context, r api.ImportRequest) (any, error) {
	key := ledger.AppKey{Account: cmp.Or(r.Account, ledger.DefaultAccount), Lattice: r.Lattice, Name: r.Name}
	if err := oam.CheckName(r.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", natsrpc.ErrInvalid, err)
	}
	if !wadm.IsToken(key.Account) || !wadm.IsToken(key.Lattice) {
		return nil, fmt.Errorf("%w: %q and %q are not the names of an account and a lattice", natsrpc.ErrInvalid, key.Account, key.Lattice)
	}
	i := imports{store: s.Store, request: r, key: key}
	i.read()
	if err := i.decide(ctx); err != nil {
		return nil, err
	}
	err := i.bring(ctx)
	if r.Apply && i.reply.Deployed != nil && s.Changed != nil {
		s.Changed()
	}
	if errors.Is(err, store.ErrText) {
		err = fmt.Errorf("%w: %w", natsrpc.ErrInvalid, err)
	}
	return i.reply, err
}

// imports is one request of an import at work.
type imports struct {
	store    *store.Store
	request  api.ImportRequest
	key      ledger.AppKey
	versions []ledger.AppVersion // those that could run
	deployed *string             // what is to be deployed
	reply    api.ImportReply
}

// read reads the documents, and refuses those that no put would accept.
func (i *imports) read() {
	i.reply.Versions = make([]api.ImportedVersion, len(i.request.Versions))
	for n, v := range i.request.Versions {
		i.reply.Versions[n] = api.ImportedVersion{Version: v.Version}
		version, err := i.version(v)
		if err != nil {
			i.reply.Versions[n].What, i.reply.Versions[n].Why = api.ImportRefused, err.Error()
			continue
		}
		i.versions = append(i.versions, version)
	}
}

func (i *imports) version(v api.ImportVersion) (ledger.AppVersion, error) {
	doc, err := oam.Parse(v.Manifest, oam.JSON)
	if err != nil {
		return ledger.AppVersion{}, err
	}
	if name := doc.Manifest.Metadata.Name; name != i.request.Name {
		return ledger.AppVersion{}, fmt.Errorf("it is a document of application %q", name)
	}
	if err := oam.CheckVersion(v.Version); err != nil {
		return ledger.AppVersion{}, err
	}
	if f, broken := oam.FirstError(doc.Validate()); broken {
		return ledger.AppVersion{}, &oam.ParseError{Path: f.Path, Message: f.Message}
	}
	m := doc.Manifest.WithVersion(v.Version)
	manifest, err := m.JSON()
	if err != nil {
		return ledger.AppVersion{}, err
	}
	return ledger.AppVersion{
		Version: v.Version, Description: m.Description(), Manifest: manifest, Scalers: scaler.Rows(m), Facts: m.Facts(),
	}, nil
}

// decide finds out whether to deploy what was deployed elsewhere.
func (i *imports) decide(ctx context.Context) error {
	wanted := i.request.Deployed
	if wanted == nil {
		return nil
	}
	if slices.ContainsFunc(i.reply.Versions, func(v api.ImportedVersion) bool { return v.Version == *wanted && v.What == api.ImportRefused }) {
		i.reply.Why = fmt.Sprintf("version %q is refused", *wanted)
		return nil
	}
	here, err := i.store.Application(ctx, i.key)
	if err != nil {
		return err
	}
	if here.IsDeployed && here.Deployed != *wanted {
		i.reply.Why = fmt.Sprintf("version %q is deployed here, and stays", here.Deployed)
		return nil
	}
	i.deployed = wanted
	return nil
}

// bring stores the versions. What cannot be deployed is stored all the same.
func (i *imports) bring(ctx context.Context) error {
	if blocked, err := i.blockedBy(ctx); err != nil {
		return err
	} else if blocked != "" {
		return i.block(ctx, blocked)
	}
	list, err := i.store.ImportVersions(ctx, i.key, i.versions, i.deployed, i.request.Actor, i.request.Apply)
	if why, needs := undeployable(err); why != "" {
		i.deployed, i.reply.Why, i.reply.Needs = nil, why, needs
		list, err = i.store.ImportVersions(ctx, i.key, i.versions, nil, i.request.Actor, i.request.Apply)
	}
	if err != nil {
		return err
	}
	i.tell(list)
	return nil
}

// undeployable says why a version cannot be deployed, when that is why an import
// failed, and which shared applications it lacks.
func undeployable(err error) (why string, needs []string) {
	var (
		taken   *store.IDTaken
		missing *store.SharedMissing
		unknown *store.NoVersion
	)
	switch {
	case errors.As(err, &taken):
		return taken.Error(), nil
	case errors.As(err, &unknown):
		return unknown.Error(), nil
	case errors.As(err, &missing):
		for _, r := range missing.References {
			needs = append(needs, r.Application)
		}
		slices.Sort(needs)
		return missing.Error(), slices.Compact(needs)
	}
	return "", nil
}

// blockedBy says, when it is so, that a version of a later request is stored
// already: versions cannot be put before it any more.
func (i *imports) blockedBy(ctx context.Context) (string, error) {
	if len(i.request.Later) == 0 {
		return "", nil
	}
	stored, err := i.store.ApplicationVersions(ctx, i.key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	for _, v := range stored {
		if slices.Contains(i.request.Later, v.Version) {
			return fmt.Sprintf("version %q, which came after it, is stored already", v.Version), nil
		}
	}
	return "", nil
}

// block looks at the versions without storing any; what is not there yet is a
// conflict.
func (i *imports) block(ctx context.Context, why string) error {
	list, err := i.store.ImportVersions(ctx, i.key, i.versions, nil, i.request.Actor, false)
	for n := range list {
		if list[n].What == store.ImportAdded {
			list[n].What, list[n].Why = store.ImportConflict, why
		}
	}
	if err == nil {
		i.tell(list)
	}
	return err
}

// tell puts what the store said into the reply.
func (i *imports) tell(list []store.ImportedVersion) {
	conflict := slices.ContainsFunc(list, func(v store.ImportedVersion) bool { return v.What == store.ImportConflict })
	for n := range i.reply.Versions {
		v := &i.reply.Versions[n]
		if v.What == api.ImportRefused {
			continue
		}
		v.What, v.Why = list[0].What, list[0].Why
		if conflict && v.What == store.ImportAdded {
			v.What, v.Why = api.ImportSkipped, "another version of the application is in conflict"
		}
		list = list[1:]
	}
	switch {
	case !conflict:
		i.reply.Deployed = i.deployed
	case i.deployed != nil:
		i.reply.Why = "a version of the application is in conflict"
	}
}
