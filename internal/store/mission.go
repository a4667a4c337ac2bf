package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// Draft is a mission document to record and, when the fleet allows, to launch.
type Draft struct {
	Name        string
	Document    json.RawMessage
	Actor       string
	Priority    int    // higher first
	WorkflowRun string // of the workflow that asks; makes the call idempotent
	Phases      []DraftPhase
	Rerun       *Rerun // nil: the launch begins with its first phase
}

// Rerun is what a launch takes over from an earlier one of the same mission.
type Rerun struct {
	Of      int      // the launch
	Gateway string   // that holds it
	Commit  string   // to start from
	Commits []string // of the phases that are taken over, in order
}

// toRun are the phases that are not taken over.
func (d Draft) toRun() []DraftPhase {
	if d.Rerun == nil {
		return d.Phases
	}
	return d.Phases[len(d.Rerun.Commits):]
}

// DraftPhase is what placement needs of one phase.
type DraftPhase struct {
	Name          string
	Demand        capacity.Demand
	Agents        []ledger.Agent // the machines of a composed phase, in order; none: it is solo
	Turn, MaxWait time.Duration
}

// ErrRunning says that the mission is running and cannot be launched again.
var ErrRunning = fmt.Errorf("the mission is running: %w", ErrConflict)

// ErrNoGateway says that no gateway is alive to hold a checkout.
var ErrNoGateway = errors.New("no gateway is alive")

// Launch records a mission as a draft and launches it when some known node could
// run each phase. Otherwise the mission stays a draft that says why, and the
// refused phases are returned. A mission that runs is not touched: ErrRunning.
func (s *Store) Launch(ctx context.Context, d Draft) (ledger.Launched, []ledger.RefusedPhase, error) {
	var (
		out     ledger.Launched
		refused []ledger.RefusedPhase
	)
	err := s.tx(ctx, func(tx pgx.Tx) error {
		out, refused = ledger.Launched{}, nil
		repeated, err := s.recordDraft(ctx, tx, d, &out)
		if err != nil || repeated {
			return err
		}
		if refused, err = s.incapable(ctx, tx, d.toRun()); err != nil {
			return err
		}
		if len(refused) > 0 {
			_, err = tx.Exec(ctx, `UPDATE missions SET failure_code = $2, failure = $3 WHERE id = $1`, out.MissionID,
				string(refused[0].Refusal.Code), fmt.Sprintf("phase %s: %s", refused[0].Phase, refused[0].Refusal.Sentence))
			return err
		}
		return s.start(ctx, tx, d, &out)
	})
	if err != nil {
		return ledger.Launched{}, nil, fmt.Errorf("launch mission %s: %w", d.Name, err)
	}
	return out, refused, nil
}

// recordDraft writes the draft and holds its row. repeated is true when the same
// workflow run launched it before.
func (s *Store) recordDraft(ctx context.Context, tx pgx.Tx, d Draft, out *ledger.Launched) (repeated bool, err error) {
	var status, run string
	err = tx.QueryRow(ctx, `
INSERT INTO missions (name, status, document, actor) VALUES ($1, 'draft', $2, $3)
ON CONFLICT (account, name) DO UPDATE SET account = EXCLUDED.account
RETURNING id, status, launch, workflow_run`, d.Name, d.Document, d.Actor).
		Scan(&out.MissionID, &status, &out.Launch, &run)
	if err != nil {
		return false, err
	}
	if run == d.WorkflowRun && out.Launch > 0 {
		return true, s.readLaunch(ctx, tx, out)
	}
	if status == "running" {
		return false, ErrRunning
	}
	_, err = tx.Exec(ctx, `
UPDATE missions SET status = 'draft', document = $2, actor = $3, failure_code = '', failure = '',
    target_node_id = NULL, ended_at = NULL, priority = $4 WHERE id = $1`, out.MissionID, d.Document, d.Actor, d.Priority)
	return false, err
}

func (s *Store) incapable(ctx context.Context, tx pgx.Tx, phases []DraftPhase) ([]ledger.RefusedPhase, error) {
	fleets := map[string][]capacity.Node{}
	var refused []ledger.RefusedPhase
	for _, p := range phases {
		fleet, ok := fleets[p.Demand.Backend]
		if !ok {
			var err error
			if fleet, err = s.readFleet(ctx, tx, p.Demand.Backend); err != nil {
				return nil, err
			}
			fleets[p.Demand.Backend] = fleet
		}
		if r := capacity.Capable(fleet, p.Demand); r != nil {
			refused = append(refused, ledger.RefusedPhase{Phase: p.Name, Refusal: *r})
		}
	}
	return refused, nil
}

func (s *Store) start(ctx context.Context, tx pgx.Tx, d Draft, out *ledger.Launched) error {
	var err error
	if out.GatewayID, err = s.gatewayFor(ctx, tx, d); err != nil {
		return err
	}
	out.Launch++
	var (
		rerunOf *int
		commit  string
		taken   []string
	)
	if d.Rerun != nil {
		rerunOf, commit, taken = &d.Rerun.Of, d.Rerun.Commit, d.Rerun.Commits
	}
	b := &pgx.Batch{}
	b.Queue(`
INSERT INTO mission_launches (mission_id, launch, document, actor, gateway_id, rerun_of, from_commit)
VALUES ($1, $2, $3, $4, $5, $6, $7)`, out.MissionID, out.Launch, d.Document, d.Actor, out.GatewayID, rerunOf, commit)
	b.Queue(`
UPDATE missions SET status = 'running', launch = $2, workflow_run = $3, gateway_id = $4, started_at = now(),
    ended_at = NULL, branch = '', base_commit = '' WHERE id = $1`,
		out.MissionID, out.Launch, d.WorkflowRun, out.GatewayID)
	for i, p := range d.Phases {
		b.Queue(`
INSERT INTO mission_phases (mission_id, launch, ordinal, name, backend, demand, turn, max_wait, agents)
VALUES ($1, $2, $3, $4, $5, $6, $7 * interval '1 second', $8 * interval '1 second', $9)`,
			out.MissionID, out.Launch, i+1, p.Name, p.Demand.Backend, p.Demand, p.Turn.Seconds(), p.MaxWait.Seconds(), agentsColumn(p.Agents))
	}
	for i, commit := range taken {
		b.Queue(`
UPDATE mission_phases SET status = 'succeeded', commit_sha = $4, taken_from = $5, ended_at = now()
WHERE mission_id = $1 AND launch = $2 AND ordinal = $3`, out.MissionID, out.Launch, i+1, commit, rerunOf)
	}
	if err := exec(ctx, tx, b); err != nil {
		return err
	}
	return s.readLaunch(ctx, tx, out)
}

// gatewayFor is the gateway that holds what a rerun takes over, or the one that
// was heard last.
func (s *Store) gatewayFor(ctx context.Context, tx pgx.Tx, d Draft) (id string, err error) {
	if d.Rerun != nil {
		return d.Rerun.Gateway, nil
	}
	err = tx.QueryRow(ctx, `
SELECT id FROM gateways WHERE heartbeat_at > now() - $1 * interval '1 second'
ORDER BY heartbeat_at DESC, id LIMIT 1`, s.rules.LostAfter.Seconds()).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", ErrNoGateway
	}
	return id, err
}

func (s *Store) readLaunch(ctx context.Context, tx pgx.Tx, out *ledger.Launched) error {
	err := tx.QueryRow(ctx, `SELECT COALESCE(gateway_id, ''), COALESCE(started_at, now()) FROM missions WHERE id = $1`, out.MissionID).
		Scan(&out.GatewayID, &out.StartedAt)
	if err != nil {
		return err
	}
	out.StartedAt = out.StartedAt.UTC()
	rows, err := tx.Query(ctx, `SELECT id, name FROM mission_phases WHERE mission_id = $1 AND launch = $2 ORDER BY ordinal`,
		out.MissionID, out.Launch)
	if err != nil {
		return err
	}
	if out.Phases, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ledger.LaunchedPhase]); err != nil {
		return err
	}
	return readRerun(ctx, tx, out)
}

func readRerun(ctx context.Context, tx pgx.Tx, out *ledger.Launched) error {
	var of *int
	r := ledger.Rerun{}
	err := tx.QueryRow(ctx, `
SELECT l.rerun_of, l.from_commit, (SELECT count(*) FROM mission_phases p
    WHERE p.mission_id = l.mission_id AND p.launch = l.launch AND p.taken_from IS NOT NULL)
FROM mission_launches l WHERE l.mission_id = $1 AND l.launch = $2`, out.MissionID, out.Launch).Scan(&of, &r.Commit, &r.First)
	if err != nil || of == nil {
		return err
	}
	r.Of, out.Rerun = *of, &r
	return nil
}

// LastLaunch is the latest launch of a mission, as a rerun needs it.
type LastLaunch struct {
	Launch   int // 0: it was never launched
	Document json.RawMessage
	Gateway  string
	Base     string        // the commit its first phase started from, in whichever launch that ran; empty: its checkout was never opened
	Phases   []LaunchPhase // in order
	// Expired says that the launch is kept no longer.
	Expired bool
	// Own says that it is the launch of the workflow run that asks.
	Own bool
}

// LaunchPhase is how a phase of a launch ended.
type LaunchPhase struct {
	Name, Status, Commit string
}

// LastLaunch reads the latest launch of a mission, for the workflow run that is
// to launch it again.
func (s *Store) LastLaunch(ctx context.Context, name, workflowRun string) (LastLaunch, error) {
	var l LastLaunch
	var id int64
	err := s.pool.QueryRow(ctx, `
WITH RECURSIVE origins AS (
    SELECT l.mission_id, l.launch, l.rerun_of, l.base_commit FROM mission_launches l JOIN missions m ON m.id = l.mission_id AND m.launch = l.launch
    WHERE m.name = $1
    UNION ALL SELECT l.mission_id, l.launch, l.rerun_of, l.base_commit
    FROM mission_launches l JOIN origins o ON l.mission_id = o.mission_id AND l.launch = o.rerun_of)
SELECT m.id, m.launch, COALESCE(l.document, m.document), COALESCE(l.gateway_id, ''),
       COALESCE((SELECT base_commit FROM origins ORDER BY launch LIMIT 1), ''), m.launch > 0 AND m.workflow_run = $2,
       m.launch > 0 AND l.launch IS NULL
FROM missions m LEFT JOIN mission_launches l ON l.mission_id = m.id AND l.launch = m.launch WHERE m.name = $1`, name, workflowRun).
		Scan(&id, &l.Launch, &l.Document, &l.Gateway, &l.Base, &l.Own, &l.Expired)
	if errors.Is(err, pgx.ErrNoRows) {
		return l, fmt.Errorf("mission %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return l, fmt.Errorf("read the last launch of mission %s: %w", name, err)
	}
	rows, err := s.pool.Query(ctx, `
SELECT name, status, commit_sha FROM mission_phases WHERE mission_id = $1 AND launch = $2 ORDER BY ordinal`, id, l.Launch)
	if err == nil {
		l.Phases, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LaunchPhase])
	}
	if err != nil {
		return l, fmt.Errorf("read the last launch of mission %s: %w", name, err)
	}
	return l, nil
}

// SetCheckout records where a launch's results go. The first time counts: after
// a reset the branch may be ahead of where the launch began.
func (s *Store) SetCheckout(ctx context.Context, missionID int64, launch int, branch, base string) error {
	_, err := s.pool.Exec(ctx, `
WITH launched AS (
    UPDATE mission_launches SET branch = $3, base_commit = $4 WHERE mission_id = $1 AND launch = $2 AND base_commit = '')
UPDATE missions SET branch = $3, base_commit = $4 WHERE id = $1 AND launch = $2 AND base_commit = ''`,
		missionID, launch, branch, base)
	if err != nil {
		return fmt.Errorf("record checkout: %w", err)
	}
	return nil
}

// FinishMission gives a launch its final status and ends every phase that is
// still open with it, since nobody works on them any more. A launch that has
// ended, or a later one, is not touched.
func (s *Store) FinishMission(ctx context.Context, missionID int64, launch int, end ledger.MissionEnd) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		open, err := openPhases(ctx, tx, missionID, launch)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		actor := ""
		if end.By != nil {
			actor = end.By.Actor
			b.Queue(missionActSQL, missionID, launch, end.By.Verb, actor, end.By.Note, end.By.Key)
		}
		for _, p := range open {
			e := p.end(end)
			queueRunEnd(b, p.ID, ledger.RunEnd{Status: "lost", FailureCode: e.FailureCode, Failure: e.Failure})
			// The machine may still be there. Its node gets its room back when
			// the agent says that the machine is gone: ReleaseOrphans.
			queueEndKeepingNode(b, p.ID, "lost", e)
		}
		queueEndOpenWaits(b, nil, &missionID, endedByOf(end.Status), actor)
		b.Queue(`
UPDATE mission_launches SET status = $3, failure_code = $4, failure = $5, ended_at = clock_timestamp()
WHERE mission_id = $1 AND launch = $2 AND status = 'running'`, missionID, launch, end.Status, end.FailureCode, end.Failure)
		b.Queue(`
UPDATE missions SET status = $3, failure_code = $4, failure = $5, ended_at = clock_timestamp(), target_node_id = NULL
WHERE id = $1 AND launch = $2 AND status = 'running'`, missionID, launch, end.Status, end.FailureCode, end.Failure)
		return exec(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("finish mission %d: %w", missionID, err)
	}
	return nil
}

// openPhase is a phase without a final status.
type openPhase struct {
	ID      int64
	Reached bool // it asked for a node at least once, or was held
}

// end is the status such a phase gets when its mission ends. One that was being
// worked on when the workflow was lost failed; the others were never reached.
func (p openPhase) end(mission ledger.MissionEnd) ledger.Ended {
	if p.Reached && mission.FailureCode == ledger.CodeWorkflowLost {
		return ledger.Ended{Status: "failed", FailureCode: mission.FailureCode, Failure: mission.Failure}
	}
	return ledger.Ended{Status: "cancelled", FailureCode: "mission_ended", Failure: "the mission ended before this phase"}
}

func openPhases(ctx context.Context, tx pgx.Tx, missionID int64, launch int) ([]openPhase, error) {
	rows, err := tx.Query(ctx, `
SELECT id, COALESCE(queued_at, held_since, retry_at) IS NOT NULL FROM mission_phases
WHERE mission_id = $1 AND launch = $2 AND status IN ('pending', 'running') ORDER BY id FOR UPDATE`, missionID, launch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[openPhase])
}

// OpenMission is a mission that ought to have a workflow.
type OpenMission struct {
	ID     int64
	Name   string
	Launch int
	Run    string // of the workflow that recorded the launch
}

// OpenMissions lists running missions. Each was recorded by its workflow, so
// one whose workflow is not there has lost it.
func (s *Store) OpenMissions(ctx context.Context) ([]OpenMission, error) {
	rows, err := s.pool.Query(ctx, `SELECT id, name, launch, workflow_run FROM missions WHERE status = 'running' ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("list open missions: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[OpenMission])
}

// LatestLaunch is what the database knows of a mission's workflow.
type LatestLaunch struct {
	Run       string        // of the workflow that recorded the latest launch
	StartedAt *time.Time    // nil: never launched
	EndedFor  time.Duration // 0: it has not ended
}

// LatestLaunch returns the latest launch of a mission, or an error that is
// [ErrNotFound].
func (s *Store) LatestLaunch(ctx context.Context, mission string) (LatestLaunch, error) {
	var l LatestLaunch
	var seconds float64
	err := s.pool.QueryRow(ctx, `
SELECT workflow_run, started_at, COALESCE(extract(epoch FROM clock_timestamp() - ended_at), 0)
FROM missions WHERE account = 'default' AND name = $1`, mission).Scan(&l.Run, &l.StartedAt, &seconds)
	l.EndedFor = time.Duration(seconds * float64(time.Second))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return l, fmt.Errorf("read the latest launch of mission %s: %w", mission, err)
	}
	return l, nil
}

// Signal is a message that a workflow must get after a commit.
type Signal struct {
	ID         int64
	WorkflowID string
	Name       string
	Payload    json.RawMessage // {}: nothing
}

// Signals returns the oldest undelivered signals.
func (s *Store) Signals(ctx context.Context, limit int) ([]Signal, error) {
	rows, err := s.pool.Query(ctx, `SELECT id, workflow_id, signal, payload FROM outbox ORDER BY id LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("read outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Signal])
}

// Delivered removes signals that were carried, or whose workflow is gone.
func (s *Store) Delivered(ctx context.Context, ids []int64) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM outbox WHERE id = ANY($1)`, ids); err != nil {
		return fmt.Errorf("clear outbox: %w", err)
	}
	return nil
}

// WaitingPools lists the pools in which a phase waits.
func (s *Store) WaitingPools(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT DISTINCT pool FROM capacity_waits ORDER BY pool`)
	if err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
