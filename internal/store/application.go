package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/wadm"
)

// ErrVersionExists says that a version is stored already. Versions are never
// overwritten, not even by what is equal.
var ErrVersionExists = fmt.Errorf("the version already exists: %w", ErrConflict)

// putSQL makes the application or holds its row, and adds the version. It counts
// on the row it holds: a count of versions would be of the moment before. putBySQL
// records who did it, too.
const (
	putSQL   = putAppSQL + putVersionSQL
	putBySQL = putAppSQL + putActSQL + putVersionSQL

	putAppSQL = `
WITH app AS (
    INSERT INTO applications AS a (account, lattice, name, current_version, description, status, status_type)
    VALUES ($1, $2, $3, $4, $5, $10, $11)
    ON CONFLICT (account, lattice, name) DO UPDATE SET
        current_version = EXCLUDED.current_version, description = EXCLUDED.description, versions = a.versions + 1
    RETURNING id, versions)`
	putActSQL = `, act AS (
    INSERT INTO acts (account, lattice, application, verb, actor, version, via) VALUES ($1, $2, $3, 'put', $12, $4, 'wadm'))`
	putVersionSQL = `
INSERT INTO application_versions (application_id, version, description, manifest, scalers, facts, put_id, total)
SELECT id, $4, $5, $6, $7, $8, $9, versions FROM app RETURNING total`
)

// PutApplication stores a version, which becomes the newest, records who put it, and
// returns how many versions there are then. A version that is stored is ErrVersionExists, unless the
// same putID stored it: that is a request repeated because its answer was lost,
// and it gets the first answer.
func (s *Store) PutApplication(ctx context.Context, key ledger.AppKey, v ledger.AppVersion, putID uuid.UUID) (int, error) {
	args, err := putArgs(key, v, putID)
	if err != nil {
		return 0, fmt.Errorf("put version %q of application %s: %w", v.Version, key, err)
	}
	var total int
	err = s.pool.QueryRow(ctx, putBySQL, append(args, v.PutBy)...).Scan(&total)
	if isVersionTaken(err) {
		total, err = s.earlierPut(ctx, key, v.Version, putID)
	}
	if err != nil {
		return 0, fmt.Errorf("put version %q of application %s: %w", v.Version, key, err)
	}
	return total, nil
}

func putArgs(key ledger.AppKey, v ledger.AppVersion, putID uuid.UUID) ([]any, error) {
	if err := errors.Join(checkKey(key), checkVersion(v), checkText("the actor", v.PutBy)); err != nil {
		return nil, err
	}
	scalers, err := encodeScalers(v.Scalers)
	if err != nil {
		return nil, err
	}
	facts, err := json.Marshal(v.Facts)
	if err != nil {
		return nil, err
	}
	status, err := encodeStatus(wadm.NotDeployed())
	if err != nil {
		return nil, err
	}
	return []any{
		key.Account, key.Lattice, key.Name, v.Version, v.Description, v.Manifest, scalers, facts, putID, status.raw, status.kind,
	}, nil
}

func isVersionTaken(err error) bool {
	const uniqueViolation = "23505"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation && pg.TableName == "application_versions"
}

func (s *Store) earlierPut(ctx context.Context, key ledger.AppKey, version string, putID uuid.UUID) (int, error) {
	var total int
	err := s.pool.QueryRow(ctx, `
SELECT v.total FROM applications a JOIN application_versions v ON v.application_id = a.id AND v.version = $4
WHERE a.account = $1 AND a.lattice = $2 AND a.name = $3 AND v.put_id = $5`,
		key.Account, key.Lattice, key.Name, version, putID).Scan(&total)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrVersionExists
	}
	return total, err
}

// Deleted is what a deletion found and did.
type Deleted struct {
	Found      bool     // the application, or the version that was asked for
	Undeploy   bool     // what was deployed, or the whole application, is gone
	Dependants []string // deployed applications that refer to what was undeployed
}

// DeleteApplication removes a version, or everything when version is nil or the
// only one. What is deployed is undeployed by it; with protect that is refused
// with *InUse while deployed applications refer to it. What is not there is no
// error, and nothing is changed for it.
func (s *Store) DeleteApplication(
	ctx context.Context, key ledger.AppKey, version *string, actor string, protect bool,
) (Deleted, error) {
	var out Deleted
	err := s.change(ctx, "delete", key, actor, func(tx pgx.Tx) (err error) {
		out, err = deleteApplication(ctx, tx, key, version, actor, protect)
		return err
	})
	return out, err
}

// change runs f in a transaction, and says what was tried when it fails.
func (s *Store) change(ctx context.Context, what string, key ledger.AppKey, actor string, f func(pgx.Tx) error) error {
	err := errors.Join(checkKey(key), checkText("the actor", actor))
	if err == nil {
		err = s.tx(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("%s application %s: %w", what, key, err)
	}
	return nil
}

func deleteApplication(
	ctx context.Context, tx pgx.Tx, key ledger.AppKey, version *string, actor string, protect bool,
) (Deleted, error) {
	app, err := holdApplication(ctx, tx, key)
	if errors.Is(err, ErrNotFound) {
		return Deleted{}, nil
	}
	if err != nil {
		return Deleted{}, err
	}
	whole := version == nil || app.versions == 1 && app.current == *version
	out := Deleted{Found: true, Undeploy: whole || app.deployed != nil && *app.deployed == *version}
	if !whole {
		if out.Found, err = hasVersion(ctx, tx, app.id, *version); err != nil || !out.Found {
			return Deleted{}, err
		}
	}
	b := &pgx.Batch{}
	if app.deployed != nil && out.Undeploy {
		if out.Dependants, err = dependants(ctx, tx, key, oam.Facts{}); err != nil {
			return Deleted{}, err
		}
		if protect && len(out.Dependants) > 0 {
			return Deleted{}, &InUse{Dependants: out.Dependants}
		}
		if err := queueUndeploy(b, app.id, "deleted", actor); err != nil {
			return Deleted{}, err
		}
	}
	if whole {
		b.Queue(`DELETE FROM applications WHERE id = $1`, app.id)
	} else {
		b.Queue(`DELETE FROM application_versions WHERE application_id = $1 AND version = $2`, app.id, *version)
		b.Queue(followNewestSQL, app.id)
	}
	queueAppAct(b, key, "delete", actor, version, api.ViaWadm)
	return out, exec(ctx, tx, b)
}

// followNewestSQL is for after the removal of a version.
const followNewestSQL = `
UPDATE applications a SET versions = versions - 1, current_version = newest.version, description = newest.description
FROM (SELECT version, description FROM application_versions WHERE application_id = $1 ORDER BY id DESC LIMIT 1) newest
WHERE a.id = $1`

func hasVersion(ctx context.Context, tx pgx.Tx, applicationID int64, version string) (bool, error) {
	if !canBeStored(version) {
		return false, nil
	}
	var has bool
	err := tx.QueryRow(ctx, `
SELECT EXISTS (SELECT 1 FROM application_versions WHERE application_id = $1 AND version = $2)`, applicationID, version).Scan(&has)
	return has, err
}

// heldApplication is an application's row, held for the rest of a transaction.
type heldApplication struct {
	id       int64
	current  string
	versions int
	deployed *string
}

func holdApplication(ctx context.Context, tx pgx.Tx, key ledger.AppKey) (heldApplication, error) {
	var a heldApplication
	err := tx.QueryRow(ctx, `
SELECT id, current_version, versions, deployed_version FROM applications
WHERE account = $1 AND lattice = $2 AND name = $3 FOR UPDATE`, key.Account, key.Lattice, key.Name).
		Scan(&a.id, &a.current, &a.versions, &a.deployed)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, ErrNotFound
	}
	return a, err
}

// encodedStatus is a status as it is stored and published.
type encodedStatus struct {
	raw           json.RawMessage
	kind, message string
}

func encodeStatus(status wadm.Status) (encodedStatus, error) {
	raw, err := wadm.Encode(status)
	return encodedStatus{raw: raw, kind: string(status.Status.Type), message: status.Status.Message}, err
}

// storedScaler is what is known of a scaler before anything is deployed.
type storedScaler struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func encodeScalers(scalers []wadm.ScalerStatus) (json.RawMessage, error) {
	rows := make([]storedScaler, len(scalers))
	for i, s := range scalers {
		rows[i] = storedScaler{ID: s.ID, Kind: s.Kind, Name: s.Name}
	}
	return json.Marshal(rows)
}

func decodeScalers(raw []byte) ([]wadm.ScalerStatus, error) {
	var rows []storedScaler
	if err := json.Unmarshal(raw, &rows); err != nil {
		return nil, err
	}
	scalers := make([]wadm.ScalerStatus, len(rows))
	for i, r := range rows {
		scalers[i] = wadm.ScalerStatus{ID: r.ID, Kind: r.Kind, Name: r.Name}
	}
	return scalers, nil
}
