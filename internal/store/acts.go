package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/storable"
)

// The same act is recorded once.
const (
	phaseActSQL = `
INSERT INTO acts (mission_id, launch, phase_id, verb, actor, note, key)
SELECT mission_id, launch, id, $2, $3, $4, $5 FROM mission_phases WHERE id = $1
ON CONFLICT (key) DO NOTHING`

	missionActSQL = `
INSERT INTO acts (mission_id, launch, verb, actor, note, key) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (key) DO NOTHING`

	signalledAppActSQL = `
INSERT INTO acts (account, lattice, application, verb, actor, note, key) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (key) DO NOTHING`
)

func queuePhaseActs(b *pgx.Batch, phaseID int64, acts ...ledger.Act) {
	for _, a := range acts {
		b.Queue(phaseActSQL, phaseID, a.Verb, storable.Text(a.Actor), storable.Text(a.Note), a.Key)
	}
}

// RecordActs records what people did to a phase.
func (s *Store) RecordActs(ctx context.Context, phaseID int64, acts []ledger.Act) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		queuePhaseActs(b, phaseID, acts...)
		return exec(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("record what was done to phase %d: %w", phaseID, err)
	}
	return nil
}

// RecordApplicationActs records what people did to an application by signals.
func (s *Store) RecordApplicationActs(ctx context.Context, key ledger.AppKey, acts []ledger.Act) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, a := range acts {
			b.Queue(signalledAppActSQL, key.Account, key.Lattice, key.Name, a.Verb, storable.Text(a.Actor), storable.Text(a.Note), a.Key)
		}
		return exec(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("record what was done to application %s: %w", key, err)
	}
	return nil
}

// queueAppAct records a request about an application. version may be nil.
func queueAppAct(b *pgx.Batch, key ledger.AppKey, verb, actor string, version *string, via string) {
	b.Queue(`
INSERT INTO acts (account, lattice, application, verb, actor, version, via) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		key.Account, key.Lattice, key.Name, verb, storable.Text(actor), version, via)
}

// nodeVerb is what a person did who moved a node from one state to another.
func nodeVerb(from string, to capacity.NodeState) string {
	switch to {
	case capacity.Cordoned:
		return "cordon"
	case capacity.Draining, capacity.Drained:
		return "drain"
	case capacity.Retired:
		return "retire"
	}
	switch capacity.NodeState(from) {
	case capacity.Retired:
		return "unretire"
	case capacity.Draining, capacity.Drained:
		return "undrain"
	}
	return "uncordon"
}

func recordNodeAct(ctx context.Context, tx pgx.Tx, from string, c NodeChange) error {
	_, err := tx.Exec(ctx, `INSERT INTO acts (node_id, verb, actor, note, via) VALUES ($1, $2, $3, $4, $5)`,
		c.Node, nodeVerb(from, c.To), c.Actor, c.Reason, api.ViaNATS)
	return err
}

// readActs reads what people did to the launch and to its phases.
func (s *Store) readActs(ctx context.Context, r *missionRow, launch int, index map[int64]int) error {
	rows, err := s.pool.Query(ctx, `
SELECT COALESCE(phase_id, 0), verb, actor, note, via, at FROM acts WHERE mission_id = $1 AND launch = $2 ORDER BY id`, r.id, launch)
	if err != nil {
		return err
	}
	var id int64
	var a api.Act
	_, err = pgx.ForEachRow(rows, []any{&id, &a.Verb, &a.Actor, &a.Note, &a.Via, &a.At}, func() error {
		a.At = a.At.UTC()
		if id == 0 {
			r.Acts = append(r.Acts, a)
			return nil
		}
		p := &r.PhaseList[index[id]]
		p.Acts = append(p.Acts, a)
		return nil
	})
	return err
}

// shownActs bounds the acts that are shown of a node or an application.
const shownActs = 20

func (s *Store) nodeActs(ctx context.Context, node string) ([]api.Act, error) {
	return s.latestActs(ctx, "node_id = $2", node)
}

func (s *Store) applicationActs(ctx context.Context, key ledger.AppKey) ([]api.Act, error) {
	return s.latestActs(ctx, "account = $2 AND lattice = $3 AND application = $4", key.Account, key.Lattice, key.Name)
}

// latestActs reads the latest acts of those that a condition on columns is true of,
// oldest first. The arguments of the condition count from $2.
func (s *Store) latestActs(ctx context.Context, condition string, args ...any) ([]api.Act, error) {
	rows, err := s.pool.Query(ctx, `
SELECT verb, actor, note, version, via, at FROM acts WHERE `+condition+` ORDER BY id DESC LIMIT $1`,
		append([]any{shownActs}, args...)...)
	if err != nil {
		return nil, err
	}
	acts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (api.Act, error) {
		var a api.Act
		err := row.Scan(&a.Verb, &a.Actor, &a.Note, &a.Version, &a.Via, &a.At)
		a.At = a.At.UTC()
		return a, err
	})
	slices.Reverse(acts)
	return acts, err
}
