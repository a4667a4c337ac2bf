package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// ErrSuperseded says that another process observes the lattice now.
var ErrSuperseded = fmt.Errorf("another engine observes the lattice now: %w", ErrConflict)

// TakeLattice makes a process the observer of a lattice and returns the epoch it
// observes under. Whoever had it before is superseded.
func (s *Store) TakeLattice(ctx context.Context, account, lattice, observer string) (epoch int64, err error) {
	err = s.pool.QueryRow(ctx, `
INSERT INTO lattices AS l (account, lattice, epoch, observer) VALUES ($1, $2, 1, $3)
ON CONFLICT (account, lattice) DO UPDATE SET epoch = l.epoch + 1, observer = EXCLUDED.observer, taken_at = clock_timestamp()
RETURNING epoch`, account, lattice, observer).Scan(&epoch)
	if err != nil {
		return 0, fmt.Errorf("take lattice %s: %w", lattice, err)
	}
	return epoch, nil
}

// HoldsLattice returns ErrSuperseded unless a lattice is observed under an epoch.
func (s *Store) HoldsLattice(ctx context.Context, account, lattice string, epoch int64) error {
	var holds bool
	err := s.pool.QueryRow(ctx, `SELECT epoch = $3 FROM lattices WHERE account = $1 AND lattice = $2`, account, lattice, epoch).Scan(&holds)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && !holds:
		return ErrSuperseded
	case err != nil:
		return fmt.Errorf("look who observes lattice %s: %w", lattice, err)
	}
	return nil
}

// ReleaseLattice ends the observation of a lattice, if nobody needs it at this
// moment. Whoever asks LatticeHeld after that is told.
func (s *Store) ReleaseLattice(ctx context.Context, account, lattice string, epoch int64) (released bool, err error) {
	err = s.tx(ctx, func(tx pgx.Tx) error {
		released = false
		var holds bool
		err := tx.QueryRow(ctx, `SELECT epoch = $3 FROM lattices WHERE account = $1 AND lattice = $2 FOR UPDATE`,
			account, lattice, epoch).Scan(&holds)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !holds {
			return ErrSuperseded
		}
		if err != nil {
			return err
		}
		// A statement of its own: it must see what was deployed before the row was held.
		tag, err := tx.Exec(ctx, `
UPDATE lattices l SET observer = '' WHERE account = $1 AND lattice = $2 AND NOT (`+neededSQL+`)`, account, lattice)
		released = tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("release lattice %s: %w", lattice, err)
	}
	return released, nil
}

// neededSQL says whether something is deployed in the lattice of row l, or left
// to clean up.
const neededSQL = `
    EXISTS (SELECT 1 FROM applications a WHERE a.account = l.account AND a.lattice = l.lattice AND a.deployed_version IS NOT NULL)
    OR EXISTS (SELECT 1 FROM reconciliations r WHERE r.account = l.account AND r.lattice = l.lattice)`

// Holding says who observes a lattice.
type Holding int

// What LatticeHeld finds.
const (
	NotHeld  Holding = iota // nobody, or somebody who has not been heard of for a while
	Held                    // somebody, who sees everything that is deployed by now
	Released                // nobody any more, for nobody needed it
)

// heldFor is how long an observer counts that does not say how the lattice is:
// it does so every 15 s.
const heldFor = 20 * time.Second

// LatticeHeld says who observes a lattice. The answer is good for everything
// that was committed before the question.
func (s *Store) LatticeHeld(ctx context.Context, account, lattice string) (Holding, error) {
	var released, fresh bool
	err := s.pool.QueryRow(ctx, `
SELECT observer = '', COALESCE(checked_at, taken_at) > clock_timestamp() - $3::interval
FROM lattices WHERE account = $1 AND lattice = $2 FOR SHARE`, account, lattice, heldFor).Scan(&released, &fresh)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return NotHeld, nil
	case err != nil:
		return NotHeld, fmt.Errorf("look who observes lattice %s: %w", lattice, err)
	case released:
		return Released, nil
	case fresh:
		return Held, nil
	}
	return NotHeld, nil
}

// NoteLattice records how many hosts of a lattice are alive, and reports whether
// the lattice is still needed: something is deployed in it, or left to clean up.
func (s *Store) NoteLattice(ctx context.Context, account, lattice string, epoch int64, hosts int) (needed bool, err error) {
	err = s.pool.QueryRow(ctx, `
UPDATE lattices l SET hosts = $4, checked_at = clock_timestamp(),
    observed_since = CASE WHEN $4 > 0 THEN COALESCE(observed_since, clock_timestamp()) ELSE observed_since END
WHERE account = $1 AND lattice = $2 AND epoch = $3
RETURNING `+neededSQL,
		account, lattice, epoch, hosts).Scan(&needed)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, ErrSuperseded
	}
	if err != nil {
		return false, fmt.Errorf("record the hosts of lattice %s: %w", lattice, err)
	}
	return needed, nil
}

// ApplicationsToKeep lists the applications of a lattice that are deployed or of
// which something is left; with an empty lattice those of all.
func (s *Store) ApplicationsToKeep(ctx context.Context, account, lattice string) ([]ledger.AppKey, error) {
	rows, err := s.pool.Query(ctx, `
SELECT account, lattice, name FROM applications
WHERE deployed_version IS NOT NULL AND ($2 = '' OR account = $1 AND lattice = $2)
UNION SELECT account, lattice, name FROM reconciliations WHERE $2 = '' OR account = $1 AND lattice = $2
ORDER BY account, lattice, name`, account, lattice)
	var keys []ledger.AppKey
	if err == nil {
		keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ledger.AppKey])
	}
	if err != nil {
		return nil, fmt.Errorf("list the applications to keep: %w", err)
	}
	return keys, nil
}

// Keeps reports whether an application is deployed, or something is left of it.
func (s *Store) Keeps(ctx context.Context, key ledger.AppKey) (keeps bool, err error) {
	err = s.pool.QueryRow(ctx, `
SELECT EXISTS (SELECT 1 FROM applications WHERE account = $1 AND lattice = $2 AND name = $3 AND deployed_version IS NOT NULL)
    OR EXISTS (SELECT 1 FROM reconciliations WHERE account = $1 AND lattice = $2 AND name = $3)`,
		key.Account, key.Lattice, key.Name).Scan(&keeps)
	if err != nil {
		return false, fmt.Errorf("look whether application %s is kept: %w", key, err)
	}
	return keeps, nil
}

// LeftOver has an application cleaned up that is known, was deployed and is not
// any more: its workflow is told. It reports whether there is such a one that
// nobody cleans up yet.
func (s *Store) LeftOver(ctx context.Context, key ledger.AppKey) (found bool, err error) {
	err = s.tx(ctx, func(tx pgx.Tx) error {
		found = false
		var id int64
		err := tx.QueryRow(ctx, `
SELECT id FROM applications
WHERE account = $1 AND lattice = $2 AND name = $3 AND deployed_version IS NULL AND revision > 0 FOR SHARE`,
			key.Account, key.Lattice, key.Name).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO reconciliations (account, lattice, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			key.Account, key.Lattice, key.Name)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		found = true
		b := &pgx.Batch{}
		queueRevised(b, id)
		return exec(ctx, tx, b)
	})
	if err != nil {
		return false, fmt.Errorf("have application %s cleaned up: %w", key, err)
	}
	return found, nil
}

// Task is what a lattice's observer compares with the lattice.
type Task struct {
	Revision   int64 // of what is deployed; 0: the application is not known
	IsDeployed bool
	Version    string          // meaningless unless IsDeployed
	Manifest   json.RawMessage // of it
	Status     json.RawMessage // as it is published; nil: the application is not known
	Owned      scaler.Resources
	Observed   bool            // a host of the lattice has been seen, ever
	Wait       *ledger.AppWait // what it waited for at the latest look or deployment; nil: for nothing
}

// Task reads what is to be done for an application.
func (s *Store) Task(ctx context.Context, key ledger.AppKey) (Task, error) {
	var t Task
	var version *string
	var revision *int64
	var owned []byte
	var kind, code, reason *string
	var since *time.Time
	err := s.pool.QueryRow(ctx, `
SELECT a.revision, a.deployed_version, v.manifest, a.status, COALESCE(r.owned, '{}'), l.observed_since IS NOT NULL,
    w.kind, w.code, w.reason, w.since
FROM (SELECT $1::text AS account, $2::text AS lattice, $3::text AS name) k
LEFT JOIN applications a ON a.account = k.account AND a.lattice = k.lattice AND a.name = k.name
LEFT JOIN application_versions v ON v.application_id = a.id AND v.version = a.deployed_version
LEFT JOIN reconciliations r ON r.account = k.account AND r.lattice = k.lattice AND r.name = k.name
LEFT JOIN lattices l ON l.account = k.account AND l.lattice = k.lattice
LEFT JOIN open_waits w ON w.application_id = a.id`, key.Account, key.Lattice, key.Name).
		Scan(&revision, &version, (*[]byte)(&t.Manifest), (*[]byte)(&t.Status), &owned, &t.Observed, &kind, &code, &reason, &since)
	if err == nil {
		err = json.Unmarshal(owned, &t.Owned)
	}
	if err != nil {
		return Task{}, fmt.Errorf("read what is to be done for application %s: %w", key, err)
	}
	if revision != nil {
		t.Revision = *revision
	}
	if version != nil {
		t.IsDeployed, t.Version = true, *version
	}
	if kind != nil {
		t.Wait = &ledger.AppWait{Kind: *kind, Code: *code, Reason: *reason, Since: since.UTC()}
	}
	return t, nil
}

// OtherManifests returns what else is deployed in an application's lattice.
func (s *Store) OtherManifests(ctx context.Context, key ledger.AppKey) ([]json.RawMessage, error) {
	rows, err := s.pool.Query(ctx, `
SELECT v.manifest FROM applications a JOIN application_versions v ON v.application_id = a.id AND v.version = a.deployed_version
WHERE a.account = $1 AND a.lattice = $2 AND a.name <> $3`, key.Account, key.Lattice, key.Name)
	var manifests []json.RawMessage
	if err == nil {
		manifests, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m json.RawMessage, err error) {
			err = row.Scan((*[]byte)(&m))
			return m, err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read what else is deployed in lattice %s: %w", key.Lattice, err)
	}
	return manifests, nil
}

// readStatus takes the parts of a status that have columns of their own.
func readStatus(raw json.RawMessage) (encodedStatus, error) {
	var status wadm.Status
	err := json.Unmarshal(raw, &status)
	return encodedStatus{raw: raw, kind: string(status.Status.Type), message: status.Status.Message}, err
}

// Assessment is how an application is, as its lattice's observer found it.
type Assessment struct {
	Key      ledger.AppKey
	Epoch    int64            // of the observation
	Revision int64            // that was looked at; 0: the application was not known
	Status   json.RawMessage  // a wadm.Status
	Owned    scaler.Resources // to be remembered
	Wait     *ledger.AppWait  // nil: it does not wait
	Clean    bool             // nothing is deployed, and nothing is left
}

// Assess records how an application is, and puts its status into the outbox when
// it has changed. It is refused with ErrSuperseded when another process observes
// the lattice, and reports stale when what is deployed has changed meanwhile:
// then nothing but what is owned is recorded.
func (s *Store) Assess(ctx context.Context, a Assessment) (stale bool, err error) {
	err = s.tx(ctx, func(tx pgx.Tx) error {
		stale, err = assess(ctx, tx, a)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record how application %s is: %w", a.Key, err)
	}
	return stale, nil
}

func assess(ctx context.Context, tx pgx.Tx, a Assessment) (stale bool, err error) {
	var holds bool
	err = tx.QueryRow(ctx, `SELECT epoch = $3 FROM lattices WHERE account = $1 AND lattice = $2 FOR SHARE`,
		a.Key.Account, a.Key.Lattice, a.Epoch).Scan(&holds)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !holds {
		return false, ErrSuperseded
	}
	if err != nil {
		return false, err
	}
	if err := rememberOwned(ctx, tx, a); err != nil {
		return false, err
	}
	var id, revision int64
	var before []byte
	err = tx.QueryRow(ctx, `
SELECT id, revision, status FROM applications WHERE account = $1 AND lattice = $2 AND name = $3 FOR UPDATE`,
		a.Key.Account, a.Key.Lattice, a.Key.Name).Scan(&id, &revision, &before)
	if errors.Is(err, pgx.ErrNoRows) {
		return a.Revision != 0, nil
	}
	if err != nil || revision != a.Revision {
		return revision != a.Revision, err
	}
	b := &pgx.Batch{}
	changed := string(before) != string(a.Status)
	if changed {
		status, err := readStatus(a.Status)
		if err != nil {
			return false, err
		}
		b.Queue(`UPDATE applications SET status = $2, status_type = $3, status_message = $4 WHERE id = $1`,
			id, status.raw, status.kind, status.message)
	}
	unobserved, err := settleWait(ctx, tx, b, id, a)
	if err != nil {
		return false, err
	}
	if changed || unobserved { // for that, something else was published
		queueNews(b, id, ChannelNATS, ledger.NewsStatus, a.Status)
	}
	return false, exec(ctx, tx, b)
}

// rememberOwned keeps what an application has made, until all of it is gone.
func rememberOwned(ctx context.Context, tx pgx.Tx, a Assessment) error {
	if a.Clean {
		_, err := tx.Exec(ctx, `DELETE FROM reconciliations WHERE account = $1 AND lattice = $2 AND name = $3`,
			a.Key.Account, a.Key.Lattice, a.Key.Name)
		return err
	}
	owned, err := json.Marshal(a.Owned)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
INSERT INTO reconciliations AS r (account, lattice, name, owned) VALUES ($1, $2, $3, $4)
ON CONFLICT (account, lattice, name) DO UPDATE SET owned = EXCLUDED.owned, updated_at = clock_timestamp()
WHERE r.owned::text <> EXCLUDED.owned::text`, a.Key.Account, a.Key.Lattice, a.Key.Name, owned)
	return err
}

// settleWait makes the open wait of an application what it waits for now. A wait
// for something else ends the one before. It reports whether that was for an
// observer.
func settleWait(ctx context.Context, tx pgx.Tx, b *pgx.Batch, id int64, a Assessment) (unobserved bool, err error) {
	var kind, code, reason string
	err = tx.QueryRow(ctx, `SELECT kind, code, reason FROM open_waits WHERE application_id = $1`, id).Scan(&kind, &code, &reason)
	open := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	unobserved = kind == ledger.KindObserver
	switch {
	case a.Wait == nil && !open:
		return false, nil
	case a.Wait == nil:
		queueEndApplicationWait(b, id, "answered", "")
		return unobserved, nil
	case open && (kind != a.Wait.Kind || code != a.Wait.Code):
		queueEndApplicationWait(b, id, "changed", "")
	case open && reason == a.Wait.Reason:
		return false, nil
	}
	var next *time.Time
	if !a.Wait.Next.IsZero() {
		next = &a.Wait.Next
	}
	b.Queue(`
INSERT INTO open_waits (workflow_id, application_id, kind, code, reason, since, checked_at, next_check, attempts)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), $7, $8)
ON CONFLICT (workflow_id) DO UPDATE SET kind = EXCLUDED.kind, code = EXCLUDED.code, reason = EXCLUDED.reason,
    since = EXCLUDED.since, checked_at = EXCLUDED.checked_at, next_check = EXCLUDED.next_check, attempts = EXCLUDED.attempts`,
		api.AppWorkflowID(a.Key.Account, a.Key.Lattice, a.Key.Name), id, a.Wait.Kind, a.Wait.Code, a.Wait.Reason, a.Wait.Since, next, a.Wait.Attempts)
	return unobserved, nil
}

// Lattices lists the lattices that are or were observed.
func (s *Store) Lattices(ctx context.Context) (api.LatticeList, error) {
	list := api.LatticeList{Lattices: []api.Lattice{}}
	rows, err := s.pool.Query(ctx, `
SELECT l.account, l.lattice, l.observer, l.epoch, l.taken_at, l.observed_since, l.hosts, l.checked_at,
    (SELECT count(*) FROM applications a WHERE a.account = l.account AND a.lattice = l.lattice AND a.deployed_version IS NOT NULL)
FROM lattices l ORDER BY l.account, l.lattice LIMIT $1`, MaxList)
	if err == nil {
		var l api.Lattice
		columns := []any{
			&l.Account, &l.Lattice, &l.Observer, &l.Epoch, &l.TakenAt, &l.ObservedSince, &l.Hosts, &l.CheckedAt, &l.Applications,
		}
		_, err = pgx.ForEachRow(rows, columns, func() error {
			l.TakenAt, l.ObservedSince, l.CheckedAt = l.TakenAt.UTC(), utc(l.ObservedSince), utc(l.CheckedAt)
			list.Lattices = append(list.Lattices, l)
			l.ObservedSince, l.CheckedAt = nil, nil
			return nil
		})
	}
	if err == nil {
		list.Now, err = s.Now(ctx)
	}
	if err != nil {
		return list, fmt.Errorf("list lattices: %w", err)
	}
	return list, nil
}
