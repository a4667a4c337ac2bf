package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// NoVersion says that an application is stored, but not the version asked for.
type NoVersion struct{ Version string }

func (e *NoVersion) Error() string { return fmt.Sprintf("it has no version %q", e.Version) }

// IDTaken says that another deployed application of the lattice runs a component
// or provider with the same id.
type IDTaken struct{ ID, Application string }

func (e *IDTaken) Error() string {
	return fmt.Sprintf("the id %q belongs to application %s, which is deployed in the same lattice; give the component or provider another id",
		e.ID, e.Application)
}

// Unwrap makes it an ErrConflict.
func (e *IDTaken) Unwrap() error { return ErrConflict }

// DeployOptions decide what a deploy may do.
type DeployOptions struct {
	Protect bool   // refuse with *InUse to take away what deployed applications refer to
	Via     string // by which door it came: one of api's Via constants; empty: wadm's API
}

// DeployedVersion is what a deploy did.
type DeployedVersion struct {
	Version    string
	Revision   int64
	Dependants []string // deployed applications that refer to what this version has no more
}

// DeployApplication makes a version the deployed one; nil or "latest" is the
// newest put. Deploying what is deployed gives it a new revision. Errors:
// ErrNotFound for the application, *NoVersion, *IDTaken, *SharedMissing, *InUse.
func (s *Store) DeployApplication(
	ctx context.Context, key ledger.AppKey, version *string, actor string, opts DeployOptions,
) (DeployedVersion, error) {
	var out DeployedVersion
	err := s.change(ctx, "deploy", key, actor, func(tx pgx.Tx) (err error) {
		out, err = deploy(ctx, tx, key, version, actor, opts)
		return err
	})
	return out, err
}

// deploy first looks which shared applications the version refers to, so that
// their rows and its own can be held in one order for all. What is decided on is
// read again then, when it cannot change any more.
func deploy(
	ctx context.Context, tx pgx.Tx, key ledger.AppKey, version *string, actor string, opts DeployOptions,
) (DeployedVersion, error) {
	if version != nil && *version == oam.LatestVersion {
		version = nil
	}
	look, err := stageVersion(ctx, tx, key, version)
	if err != nil {
		return DeployedVersion{}, err
	}
	held, err := holdRows(ctx, tx, key, look.facts.References)
	if err != nil {
		return DeployedVersion{}, err
	}
	staged, err := stageVersion(ctx, tx, key, version)
	if err != nil {
		return DeployedVersion{}, err
	}
	if staged.applicationID != held[key.Name] || !refersAsMuch(look, staged) {
		return DeployedVersion{}, errAgain
	}
	if err := takeIDs(ctx, tx, key, staged); err != nil {
		return DeployedVersion{}, err
	}
	missing, err := missingShared(ctx, tx, key.Account, key.Lattice, staged.facts.References, slices.AppendSeq([]int64{}, maps.Values(held)))
	if err != nil {
		return DeployedVersion{}, err
	}
	if len(missing) > 0 {
		return DeployedVersion{}, &SharedMissing{References: missing}
	}
	out := DeployedVersion{Version: staged.version}
	if staged.wasDeployed {
		if out.Dependants, err = dependants(ctx, tx, key, staged.facts); err != nil {
			return DeployedVersion{}, err
		}
		if opts.Protect && len(out.Dependants) > 0 {
			return DeployedVersion{}, &InUse{Dependants: out.Dependants}
		}
	}
	out.Revision, err = writeDeployed(ctx, tx, key, staged, actor, cmp.Or(opts.Via, api.ViaWadm))
	return out, err
}

// stagedVersion is a version that is about to be deployed.
type stagedVersion struct {
	applicationID int64
	wasDeployed   bool
	version       string
	facts         oam.Facts
	ids           []string // of the facts, each once, sorted
	manifest      []byte
	scalers       []wadm.ScalerStatus
}

func stageVersion(ctx context.Context, tx pgx.Tx, key ledger.AppKey, version *string) (stagedVersion, error) {
	if version != nil && !canBeStored(*version) {
		return stagedVersion{}, noVersion(ctx, tx, key, version)
	}
	var v stagedVersion
	var scalers []byte
	err := tx.QueryRow(ctx, `
SELECT a.id, a.deployed_version IS NOT NULL, v.version, v.facts, v.manifest, v.scalers
FROM applications a JOIN application_versions v ON v.application_id = a.id AND v.version = COALESCE($4, a.current_version)
WHERE a.account = $1 AND a.lattice = $2 AND a.name = $3`, key.Account, key.Lattice, key.Name, version).
		Scan(&v.applicationID, &v.wasDeployed, &v.version, &v.facts, &v.manifest, &scalers)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, noVersion(ctx, tx, key, version)
	}
	if err != nil {
		return v, err
	}
	v.ids = append([]string{}, v.facts.IDs...) // not nil, which is NULL
	slices.Sort(v.ids)
	v.ids = slices.Compact(v.ids)
	v.scalers, err = decodeScalers(scalers)
	return v, err
}

// noVersion says what is missing, the application or only the version.
func noVersion(ctx context.Context, tx pgx.Tx, key ledger.AppKey, version *string) error {
	var known bool
	err := tx.QueryRow(ctx, `
SELECT EXISTS (SELECT 1 FROM applications WHERE account = $1 AND lattice = $2 AND name = $3)`,
		key.Account, key.Lattice, key.Name).Scan(&known)
	switch {
	case err != nil:
		return err
	case !known:
		return ErrNotFound
	case version == nil: // it was put meanwhile
		return errAgain
	}
	return &NoVersion{Version: *version}
}

// refersAsMuch reports whether the rows held for a look suffice for what is
// deployed.
func refersAsMuch(look, staged stagedVersion) bool {
	seen := map[string]bool{}
	for _, r := range look.facts.References {
		seen[r.Application] = true
	}
	return !slices.ContainsFunc(staged.facts.References, func(r oam.Reference) bool { return !seen[r.Application] })
}

// holdRows holds the row of an application, and keeps those it refers to from
// being deployed, undeployed or deleted, but not from being put. Everybody takes
// them in the order of names. It returns the ids of those that are there.
func holdRows(ctx context.Context, tx pgx.Tx, key ledger.AppKey, references []oam.Reference) (map[string]int64, error) {
	strengths := map[string]string{}
	for _, r := range references {
		strengths[r.Application] = "KEY SHARE"
	}
	strengths[key.Name] = "UPDATE"
	held := map[string]int64{}
	b := &pgx.Batch{}
	for _, name := range slices.Sorted(maps.Keys(strengths)) {
		b.Queue(`SELECT id FROM applications WHERE account = $1 AND lattice = $2 AND name = $3 FOR `+strengths[name],
			key.Account, key.Lattice, name).Query(func(rows pgx.Rows) error {
			var id int64
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error { held[name] = id; return nil })
			return err
		})
	}
	return held, exec(ctx, tx, b)
}

// takeIDs makes the ids of what a version runs the application's own. They are
// taken in order and before any is left, so that no two wait for each other.
func takeIDs(ctx context.Context, tx pgx.Tx, key ledger.AppKey, v stagedVersion) error {
	own := 0
	b := &pgx.Batch{}
	b.Queue(`
INSERT INTO application_ids (account, lattice, component_id, application_id)
SELECT $1, $2, id, $3 FROM unnest($4::text[]) AS v (id) ON CONFLICT DO NOTHING`, key.Account, key.Lattice, v.applicationID, v.ids)
	b.Queue(`
SELECT i.component_id, a.name, a.id FROM application_ids i JOIN applications a ON a.id = i.application_id
WHERE i.account = $1 AND i.lattice = $2 AND i.component_id = ANY($3) ORDER BY i.component_id`, key.Account, key.Lattice, v.ids).
		Query(func(rows pgx.Rows) error {
			var taken IDTaken
			var owner int64
			_, err := pgx.ForEachRow(rows, []any{&taken.ID, &taken.Application, &owner}, func() error {
				if owner != v.applicationID {
					return &taken
				}
				own++
				return nil
			})
			return err
		})
	if err := exec(ctx, tx, b); err != nil {
		return err
	}
	if own < len(v.ids) { // the other owner has just left it
		return errAgain
	}
	return nil
}

// writeDeployed records what is deployed, how it is at that moment, and the news
// of both.
func writeDeployed(ctx context.Context, tx pgx.Tx, key ledger.AppKey, v stagedVersion, actor, via string) (int64, error) {
	b := &pgx.Batch{}
	first, err := firstStatus(ctx, tx, b, key, v)
	if err != nil {
		return 0, err
	}
	status, err := encodeStatus(first)
	if err != nil {
		return 0, err
	}
	var revision int64
	b.Queue(`DELETE FROM application_ids WHERE application_id = $1 AND NOT component_id = ANY($2)`, v.applicationID, v.ids)
	b.Queue(`
UPDATE applications SET deployed_version = $2, revision = nextval('application_revisions'), deployed_by = $3,
    deployed_at = clock_timestamp(), status = $4, status_type = $5, status_message = $6 WHERE id = $1 RETURNING revision`,
		v.applicationID, v.version, actor, status.raw, status.kind, status.message).
		QueryRow(func(row pgx.Row) error { return row.Scan(&revision) })
	queueAppAct(b, key, "deploy", actor, &v.version, via)
	queueNews(b, v.applicationID, ChannelNATS, ledger.NewsPublished, v.manifest)
	queueNews(b, v.applicationID, ChannelNATS, ledger.NewsStatus, status.raw)
	queueRevised(b, v.applicationID)
	return revision, exec(ctx, tx, b)
}

// firstStatus is how an application is until its lattice's observer has looked:
// reconciling where there are hosts, and otherwise waiting for one. Only the
// observer can say whether something else that was waited for is there now.
func firstStatus(ctx context.Context, tx pgx.Tx, b *pgx.Batch, key ledger.AppKey, v stagedVersion) (wadm.Status, error) {
	var seen, alive bool
	err := tx.QueryRow(ctx, `
SELECT COALESCE(bool_or(observed_since IS NOT NULL), false), COALESCE(bool_or(hosts > 0), false)
FROM lattices WHERE account = $1 AND lattice = $2`, key.Account, key.Lattice).Scan(&seen, &alive)
	if err != nil {
		return wadm.Status{}, err
	}
	if alive {
		b.Queue(endSettledWaitSQL, v.applicationID)
		return wadm.All(v.scalers, wadm.StatusInfo{Type: wadm.Reconciling, Message: "comparing with the lattice"}), nil
	}
	code, reason := ledger.CodeNeverObserved, ledger.NeverObserved(key.Lattice)
	if seen {
		code, reason = scaler.CodeNoLiveHosts, scaler.NoLiveHosts(key.Lattice)
	}
	since, err := noteLatticeWait(ctx, tx, key, v.applicationID, code, reason)
	if err != nil {
		return wadm.Status{}, err
	}
	return wadm.AllWaiting(v.scalers, code, reason, since), nil
}

// noteLatticeWait records the wait for a host. Since is kept from the deploy that
// found none first.
func noteLatticeWait(ctx context.Context, tx pgx.Tx, key ledger.AppKey, applicationID int64, code, reason string) (time.Time, error) {
	var since time.Time
	workflow := api.AppWorkflowID(key.Account, key.Lattice, key.Name)
	b := &pgx.Batch{}
	queueReplaceWait(b, workflow, ledger.KindLattice)
	b.Queue(`
INSERT INTO open_waits AS o (workflow_id, application_id, kind, code, reason, since, checked_at)
VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp())
ON CONFLICT (workflow_id) DO UPDATE SET code = EXCLUDED.code, reason = EXCLUDED.reason, bound = NULL, checked_at = EXCLUDED.checked_at,
    next_check = NULL, attempts = 0
RETURNING since`, workflow, applicationID, ledger.KindLattice, code, reason).
		QueryRow(func(row pgx.Row) error { return row.Scan(&since) })
	err := exec(ctx, tx, b)
	return since.UTC(), err
}

// Undeployed is what an undeploy did.
type Undeployed struct {
	Was        bool     // something was deployed; if not, nothing is changed
	Dependants []string // deployed applications that refer to what was undeployed
}

// UndeployApplication ends what is deployed and keeps all versions. With protect
// it is refused with *InUse while deployed applications refer to it. Of an
// unknown application it is ErrNotFound.
func (s *Store) UndeployApplication(ctx context.Context, key ledger.AppKey, actor string, protect bool) (Undeployed, error) {
	var out Undeployed
	err := s.change(ctx, "undeploy", key, actor, func(tx pgx.Tx) (err error) {
		out, err = undeploy(ctx, tx, key, actor, protect)
		return err
	})
	return out, err
}

func undeploy(ctx context.Context, tx pgx.Tx, key ledger.AppKey, actor string, protect bool) (Undeployed, error) {
	app, err := holdApplication(ctx, tx, key)
	if err != nil || app.deployed == nil {
		return Undeployed{}, err
	}
	out := Undeployed{Was: true}
	if out.Dependants, err = dependants(ctx, tx, key, oam.Facts{}); err != nil {
		return Undeployed{}, err
	}
	if protect && len(out.Dependants) > 0 {
		return Undeployed{}, &InUse{Dependants: out.Dependants}
	}
	b := &pgx.Batch{}
	if err := queueUndeploy(b, app.id, "undeployed", actor); err != nil {
		return Undeployed{}, err
	}
	queueAppAct(b, key, "undeploy", actor, app.deployed, api.ViaWadm)
	return out, exec(ctx, tx, b)
}

// queueUndeploy queues what ends a deployment. endedBy is what the history says
// of its wait.
func queueUndeploy(b *pgx.Batch, applicationID int64, endedBy, actor string) error {
	gone := wadm.NotDeployed()
	gone.Status.Message = "the application is not deployed"
	status, err := encodeStatus(gone)
	if err != nil {
		return err
	}
	queueEndApplicationWait(b, applicationID, endedBy, actor)
	b.Queue(`DELETE FROM application_ids WHERE application_id = $1`, applicationID)
	b.Queue(`
UPDATE applications SET deployed_version = NULL, revision = nextval('application_revisions'), deployed_by = '',
    deployed_at = NULL, status = $2, status_type = $3, status_message = $4 WHERE id = $1`,
		applicationID, status.raw, status.kind, status.message)
	queueNews(b, applicationID, ChannelNATS, ledger.NewsUnpublished, nil)
	queueNews(b, applicationID, ChannelNATS, ledger.NewsStatus, status.raw)
	queueRevised(b, applicationID)
	return nil
}
