package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// What becomes of a version that is imported.
const (
	ImportAdded    = "added"
	ImportKept     = "kept"     // the same is stored
	ImportConflict = "conflict" // something else is stored, or the order could not be kept
)

// ImportedVersion is what became of one version of an import, or would.
type ImportedVersion struct {
	Version  string
	What     string // ImportAdded, ImportKept or ImportConflict
	Why      string // of a conflict: one sentence
	Deployed bool   // the import deploys it
}

// ImportVersions stores versions of another system in their order, and deploys
// the one that is deployed there as DeployApplication does, unless one is
// deployed here. A conflict keeps everything as it is. Without apply nothing is
// changed; what is returned is what would be. When the deployed version cannot
// be deployed, the error is DeployApplication's and nothing is changed, but the
// versions are returned.
func (s *Store) ImportVersions(
	ctx context.Context, key ledger.AppKey, versions []ledger.AppVersion, deployed *string, actor string, apply bool,
) ([]ImportedVersion, error) {
	if len(versions) == 0 {
		return nil, nil
	}
	var list []ImportedVersion
	err := s.change(ctx, "import", key, actor, func(tx pgx.Tx) (err error) {
		list, err = importVersions(ctx, tx, key, versions, deployed, actor)
		if err == nil && !apply {
			err = errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return list, err
}

// errDryRun rolls a transaction back.
var errDryRun = errors.New("a dry run changes nothing")

func importVersions(
	ctx context.Context, tx pgx.Tx, key ledger.AppKey, versions []ledger.AppVersion, deployed *string, actor string,
) ([]ImportedVersion, error) {
	here, err := readImportedBefore(ctx, tx, key)
	if err != nil {
		return nil, err
	}
	list, conflict := here.compare(versions)
	if conflict {
		return list, nil
	}
	for i, v := range versions {
		if list[i].What == ImportAdded {
			if err := addVersion(ctx, tx, key, v); err != nil {
				return list, err
			}
		}
	}
	if deployed == nil || here.isDeployed {
		return list, nil
	}
	for i := range list {
		list[i].Deployed = list[i].Version == *deployed
	}
	_, err = deploy(ctx, tx, key, deployed, actor, DeployOptions{Via: api.ViaNATS})
	return list, err
}

func addVersion(ctx context.Context, tx pgx.Tx, key ledger.AppKey, v ledger.AppVersion) error {
	args, err := putArgs(key, v, uuid.New())
	if err != nil {
		return fmt.Errorf("version %q: %w", v.Version, err)
	}
	var total int
	err = tx.QueryRow(ctx, putSQL, args...).Scan(&total)
	if isVersionTaken(err) { // put since the look
		return errAgain
	}
	return err
}

// storedVersions is what is here of an application that is imported.
type storedVersions struct {
	isDeployed bool
	manifests  map[string][]byte
}

func readImportedBefore(ctx context.Context, tx pgx.Tx, key ledger.AppKey) (storedVersions, error) {
	here := storedVersions{manifests: map[string][]byte{}}
	app, err := holdApplication(ctx, tx, key)
	if errors.Is(err, ErrNotFound) {
		return here, nil
	}
	if err != nil {
		return here, err
	}
	here.isDeployed = app.deployed != nil
	rows, err := tx.Query(ctx, `SELECT version, manifest FROM application_versions WHERE application_id = $1`, app.id)
	if err != nil {
		return here, err
	}
	var version string
	var manifest []byte
	_, err = pgx.ForEachRow(rows, []any{&version, &manifest}, func() error {
		here.manifests[version] = manifest
		return nil
	})
	return here, err
}

// compare says what would become of versions. One that is missing here cannot
// be added before one that is here: the newest put would be another one then.
func (s storedVersions) compare(versions []ledger.AppVersion) (list []ImportedVersion, conflict bool) {
	list = make([]ImportedVersion, len(versions))
	later := "" // the first stored version behind the one looked at
	seen := map[string]bool{}
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		twice := seen[v.Version]
		seen[v.Version] = true
		manifest, stored := s.manifests[v.Version]
		list[i] = ImportedVersion{Version: v.Version, What: ImportAdded}
		switch {
		case twice:
			list[i].What, list[i].Why = ImportConflict, "the import has this version twice"
		case stored && bytes.Equal(manifest, v.Manifest):
			list[i].What, later = ImportKept, fmt.Sprintf("%q", v.Version)
		case stored:
			list[i].What, list[i].Why = ImportConflict, "a different manifest is stored under this version"
			later = fmt.Sprintf("%q", v.Version)
		case later != "":
			list[i].What, list[i].Why = ImportConflict, "version "+later+", which came after it, is stored already"
		}
		conflict = conflict || list[i].What == ImportConflict
	}
	return list, conflict
}
