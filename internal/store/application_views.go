package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
)

// Manifest returns a version in its normal form; nil is the newest put, and no
// name is special. ErrNotFound is for the application and for the version.
func (s *Store) Manifest(ctx context.Context, key ledger.AppKey, version *string) (json.RawMessage, error) {
	var manifest []byte
	if version != nil && !canBeStored(*version) {
		return nil, fmt.Errorf("read application %s: %w", key, ErrNotFound)
	}
	err := s.readOne(ctx, key, `
SELECT v.manifest FROM applications a
JOIN application_versions v ON v.application_id = a.id AND v.version = COALESCE($4, a.current_version)
WHERE a.account = $1 AND a.lattice = $2 AND a.name = $3`, []any{version}, &manifest)
	return manifest, err
}

// readOne reads a row about an application, or returns ErrNotFound. The key is
// the first three arguments of the query.
func (s *Store) readOne(ctx context.Context, key ledger.AppKey, sql string, args []any, into ...any) error {
	err := checkKey(key)
	if err == nil {
		err = s.pool.QueryRow(ctx, sql, append([]any{key.Account, key.Lattice, key.Name}, args...)...).Scan(into...)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("read application %s: %w", key, err)
	}
	return nil
}

// ListedApplication is an application as a list shows it.
type ListedApplication struct {
	Name            string
	Version         string // the newest put
	Description     *string
	DeployedVersion *string
	Status          json.RawMessage // a wadm.Status
	StatusType      wadm.StatusType // of it
	StatusMessage   string          // of it
}

// ListApplications lists applications of a lattice by name in the order of
// bytes: those behind after, at most limit; 0 is all. The total is of the whole
// lattice.
func (s *Store) ListApplications(
	ctx context.Context, account, lattice, after string, limit int,
) (list []ListedApplication, total int, err error) {
	if err = errors.Join(checkKey(ledger.AppKey{Account: account, Lattice: lattice}), checkText("the name", after)); err == nil {
		list, total, err = s.listApplications(ctx, account, lattice, after, limit)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list applications of lattice %s: %w", lattice, err)
	}
	return list, total, nil
}

func (s *Store) listApplications(
	ctx context.Context, account, lattice, after string, limit int,
) (list []ListedApplication, total int, err error) {
	var most *int
	if limit > 0 {
		most = &limit
	}
	const countSQL = `SELECT count(*) FROM applications WHERE account = $1 AND lattice = $2`
	rows, err := s.pool.Query(ctx, `
SELECT a.name, a.current_version, a.description, a.deployed_version, a.status, a.status_type, a.status_message, (`+countSQL+`), w.code, w.reason, w.since
FROM applications a LEFT JOIN open_waits w ON w.application_id = a.id AND w.kind = 'observer'
WHERE a.account = $1 AND a.lattice = $2 AND a.name > $3 ORDER BY a.name LIMIT $4`, account, lattice, after, most)
	if err != nil {
		return nil, 0, err
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (ListedApplication, error) {
		var a ListedApplication
		var w unobserved
		err := row.Scan(&a.Name, &a.Version, &a.Description, &a.DeployedVersion, (*[]byte)(&a.Status), &a.StatusType, &a.StatusMessage, &total,
			&w.code, &w.reason, &w.since)
		if err != nil || w.code == nil {
			return a, err
		}
		a.StatusType, a.StatusMessage = wadm.Waiting, *w.reason
		a.Status, err = w.over(a.Status)
		return a, err
	})
	if err != nil || len(list) > 0 {
		return list, total, err
	}
	err = s.pool.QueryRow(ctx, countSQL, account, lattice).Scan(&total)
	return list, total, err
}

// ApplicationVersions lists versions in the order they were put, or returns
// ErrNotFound.
func (s *Store) ApplicationVersions(ctx context.Context, key ledger.AppKey) ([]wadm.VersionInfo, error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("list versions of application %s: %w", key, err)
	}
	rows, err := s.pool.Query(ctx, `
SELECT v.version, v.version IS NOT DISTINCT FROM a.deployed_version
FROM applications a JOIN application_versions v ON v.application_id = a.id
WHERE a.account = $1 AND a.lattice = $2 AND a.name = $3 ORDER BY v.id`, key.Account, key.Lattice, key.Name)
	if err != nil {
		return nil, fmt.Errorf("list versions of application %s: %w", key, err)
	}
	versions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[wadm.VersionInfo])
	if err == nil && len(versions) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("list versions of application %s: %w", key, err)
	}
	return versions, nil
}

// ApplicationStatus returns the wadm.Status of an application as it is
// published, or ErrNotFound.
func (s *Store) ApplicationStatus(ctx context.Context, key ledger.AppKey) (json.RawMessage, error) {
	var status []byte
	var w unobserved
	err := s.readOne(ctx, key, statusSQL+` WHERE a.account = $1 AND a.lattice = $2 AND a.name = $3`, nil, &status, &w.code, &w.reason, &w.since)
	if err != nil {
		return nil, err
	}
	return w.over(status)
}

const statusSQL = `
SELECT a.status, w.code, w.reason, w.since
FROM applications a LEFT JOIN open_waits w ON w.application_id = a.id AND w.kind = 'observer'`

// unobserved is the wait of an application for somebody who observes its lattice.
// Nothing is set when it has none.
type unobserved struct {
	code, reason *string
	since        *time.Time
}

// over returns a status under the wait: nobody knows how the application is, and
// its scalers are as they were seen last. What was found last stays as it is in the
// database, for whoever observes the lattice next.
func (w unobserved) over(status json.RawMessage) (json.RawMessage, error) {
	if w.code == nil {
		return status, nil
	}
	var seen wadm.Status
	if err := json.Unmarshal(status, &seen); err != nil {
		return nil, err
	}
	since := w.since.UTC()
	seen.Status = wadm.StatusInfo{Type: wadm.Waiting, Message: *w.reason, Reason: *w.code, Since: &since}
	return wadm.Encode(seen)
}

// publishStatus puts the status of a held application into the outbox.
func publishStatus(ctx context.Context, tx pgx.Tx, applicationID int64) error {
	var status []byte
	var w unobserved
	err := tx.QueryRow(ctx, statusSQL+` WHERE a.id = $1`, applicationID).Scan(&status, &w.code, &w.reason, &w.since)
	if err != nil {
		return err
	}
	shown, err := w.over(status)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	queueNews(b, applicationID, ChannelNATS, ledger.NewsStatus, shown)
	return exec(ctx, tx, b)
}

// Application reads what an application's workflow works from. One that is not
// known has revision 0.
func (s *Store) Application(ctx context.Context, key ledger.AppKey) (ledger.Application, error) {
	app := ledger.Application{Key: key}
	var deployed, kind, code, reason *string
	var deployedAt, since, next *time.Time
	var attempts *int
	err := s.readOne(ctx, key, `
SELECT a.revision, a.deployed_version, a.deployed_by, a.deployed_at, w.kind, w.code, w.reason, w.since, w.next_check, w.attempts
FROM applications a LEFT JOIN open_waits w ON w.application_id = a.id
WHERE a.account = $1 AND a.lattice = $2 AND a.name = $3 ORDER BY w.since LIMIT 1`, nil,
		&app.Revision, &deployed, &app.Actor, &deployedAt, &kind, &code, &reason, &since, &next, &attempts)
	if errors.Is(err, ErrNotFound) {
		return app, nil
	}
	if err != nil {
		return ledger.Application{}, err
	}
	if deployed != nil {
		app.IsDeployed, app.Deployed, app.Since = true, *deployed, deployedAt.UTC()
	}
	if kind != nil {
		app.Wait = &ledger.AppWait{Kind: *kind, Code: *code, Reason: *reason, Since: since.UTC(), Attempts: *attempts}
		if next != nil {
			app.Wait.Next = next.UTC()
		}
	}
	return app, nil
}
