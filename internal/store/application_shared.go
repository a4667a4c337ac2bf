package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
	"tidewait/internal/oam"
)

// SharedMissing says which references no deployed shared application satisfies.
type SharedMissing struct{ References []oam.Reference }

func (e *SharedMissing) Error() string {
	names := make([]string, len(e.References))
	for i, r := range e.References {
		names[i] = fmt.Sprintf("%s %s of application %s", r.Type, r.Component, r.Application)
	}
	return "it refers to what no shared application that is deployed has: " + strings.Join(names, ", ")
}

// Unwrap makes it an ErrConflict.
func (e *SharedMissing) Unwrap() error { return ErrConflict }

// InUse says which deployed applications refer to what would be gone.
type InUse struct{ Dependants []string }

func (e *InUse) Error() string {
	return "deployed applications refer to it: " + strings.Join(e.Dependants, ", ") + "; undeploy them first"
}

// Unwrap makes it an ErrConflict.
func (e *InUse) Unwrap() error { return ErrConflict }

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// MissingShared returns those of refs that no shared application that is
// deployed satisfies, in their order.
func (s *Store) MissingShared(ctx context.Context, account, lattice string, refs []oam.Reference) ([]oam.Reference, error) {
	err := checkKey(ledger.AppKey{Account: account, Lattice: lattice})
	var missing []oam.Reference
	if err == nil {
		missing, err = missingShared(ctx, s.pool, account, lattice, refs, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("look for shared components in lattice %s: %w", lattice, err)
	}
	return missing, nil
}

// Shared is what is known of references to shared applications.
type Shared struct {
	IDs     map[oam.Reference]string // under which what they refer to runs, or would
	Missing []oam.Reference          // that no application which is deployed satisfies, in their order
}

// Shared looks references up.
func (s *Store) Shared(ctx context.Context, account, lattice string, refs []oam.Reference) (Shared, error) {
	err := checkKey(ledger.AppKey{Account: account, Lattice: lattice})
	var known map[string]shareable
	if err == nil {
		known, err = shareables(ctx, s.pool, account, lattice, refs, nil)
	}
	if err != nil {
		return Shared{}, fmt.Errorf("look for shared components in lattice %s: %w", lattice, err)
	}
	shared := Shared{IDs: map[oam.Reference]string{}, Missing: unsatisfied(refs, known)}
	for _, r := range refs {
		if app, ok := known[r.Application]; ok {
			shared.IDs[r] = oam.ComponentID(r.Application, r.Component, app.facts.Explicit[r.Component])
		}
	}
	return shared, nil
}

// Dependants names the deployed applications that refer to one.
func (s *Store) Dependants(ctx context.Context, key ledger.AppKey) ([]string, error) {
	names, err := dependants(ctx, s.pool, key, oam.Facts{})
	if err != nil {
		return nil, fmt.Errorf("look which applications refer to %s: %w", key, err)
	}
	return names, nil
}

// missingShared looks at the applications of these ids only, unless ids is nil.
func missingShared(
	ctx context.Context, db querier, account, lattice string, refs []oam.Reference, ids []int64,
) ([]oam.Reference, error) {
	known, err := shareables(ctx, db, account, lattice, refs, ids)
	if err != nil {
		return nil, err
	}
	return unsatisfied(refs, known), nil
}

// shareable is an application that references are about: as it is deployed, or
// else as it was put last.
type shareable struct {
	facts    oam.Facts
	deployed bool
}

// shareables reads the applications that refs are about, by name: those of these
// ids only, unless ids is nil.
func shareables(
	ctx context.Context, db querier, account, lattice string, refs []oam.Reference, ids []int64,
) (map[string]shareable, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	names := make([]string, len(refs))
	for i, r := range refs {
		if err := checkReference(r); err != nil {
			return nil, err
		}
		names[i] = r.Application
	}
	rows, err := db.Query(ctx, `
SELECT a.name, v.facts, a.deployed_version IS NOT NULL FROM applications a
JOIN application_versions v ON v.application_id = a.id AND v.version = COALESCE(a.deployed_version, a.current_version)
WHERE a.account = $1 AND a.lattice = $2 AND a.name = ANY($3) AND ($4::bigint[] IS NULL OR a.id = ANY($4))`,
		account, lattice, names, ids)
	if err != nil {
		return nil, err
	}
	known := map[string]shareable{}
	var name string
	var app shareable
	_, err = pgx.ForEachRow(rows, []any{&name, &app.facts, &app.deployed}, func() error {
		known[name] = app
		return nil
	})
	return known, err
}

// unsatisfied returns those of refs that nothing which is deployed satisfies, in
// their order.
func unsatisfied(refs []oam.Reference, known map[string]shareable) []oam.Reference {
	var missing []oam.Reference
	for _, r := range refs {
		if app := known[r.Application]; !app.deployed || !satisfies(app.facts, r) {
			missing = append(missing, r)
		}
	}
	return missing
}

// satisfies reports whether a deployed application has what r refers to.
func satisfies(facts oam.Facts, r oam.Reference) bool {
	kind, ok := facts.Components[r.Component]
	return ok && facts.Shared && kind == r.Type
}

// dependants names the other deployed applications that refer to one and that
// would not find what they refer to in what it is to have.
func dependants(ctx context.Context, db querier, key ledger.AppKey, facts oam.Facts) ([]string, error) {
	rows, err := db.Query(ctx, `
SELECT a.name, v.facts FROM application_versions v
JOIN applications a ON a.id = v.application_id AND a.deployed_version = v.version
WHERE v.facts ? 'references'
  AND v.facts -> 'references' @> jsonb_build_array(jsonb_build_object('application', $3::text))
  AND a.account = $1 AND a.lattice = $2 AND a.name <> $3 ORDER BY a.name`, key.Account, key.Lattice, key.Name)
	if err != nil {
		return nil, err
	}
	var names []string
	var name string
	var theirs oam.Facts
	_, err = pgx.ForEachRow(rows, []any{&name, &theirs}, func() error {
		misses := slices.ContainsFunc(theirs.References, func(r oam.Reference) bool {
			return r.Application == key.Name && !satisfies(facts, r)
		})
		if misses {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}
