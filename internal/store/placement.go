package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// Look is one phase's wish to be looked at in a pass.
type Look struct {
	PhaseID int64
	Attempt int
	Wake    ledger.Wake
	// Expire asks for the last look: past its bound, and final when refused.
	Expire bool
}

// PassResult is what one pass over a pool did.
type PassResult struct {
	Outcomes map[int64]ledger.Outcome // of the phases that asked
	Admitted int                      // phases that got a node, whether they asked or not
	Signals  int                      // of those, how many did not ask and are told through the outbox
	Waiting  int                      // phases that still wait
	Placed   []Admission              // each of those that got a node
	// Of the phases that asked, those that were refused and have not ended, by code.
	Capacity   map[capacity.Code]int
	Capability map[capacity.Code]int
	// More says that records of looks are old and were left to the next pass,
	// so that this one did not take too long.
	More bool
}

// Admission is a phase that got a node.
type Admission struct {
	Mission, Phase string
	Run, Node      string
	Wake           ledger.Wake // what caused the look
}

// How old the record of a look may get before a pass writes it again. In the
// head window: at most checkedEvery when nothing changed, at most rewordedEvery
// when only the sentence, the position or the expected start did; a changed code
// is written at once. Behind it, whatever changed: checkedBehind, and only so
// many in one pass. Without these a busy pool would rewrite its whole queue in
// every pass.
const (
	checkedEvery  = 5 * time.Second
	rewordedEvery = time.Second
	checkedBehind = 8 * time.Second
	mostBehind    = 2000
)

// Pass looks once at every waiting phase of a pool, in the order of priority,
// which grows with age, and of first asking among equals: it admits what may
// run, and writes everyone else's code, sentence, position, expected start and
// time of the look. looks are the phases that ask; each gets an outcome.
//
// Reservation, target node, run, phase status, the cleared wait and the signal
// for those that did not ask are one transaction. One pass of a pool runs at a
// time, held by an advisory lock; correctness does not depend on it, since
// every update is conditional and the constraints of the nodes table hold.
func (s *Store) Pass(ctx context.Context, pool string, looks []Look, wake ledger.Wake) (PassResult, error) {
	var res PassResult
	err := s.tx(ctx, func(tx pgx.Tx) error {
		p := pass{
			store: s, pool: pool, wake: wake, looks: make(map[int64]Look, len(looks)),
			details: map[*capacity.NodeReason]json.RawMessage{},
		}
		for _, l := range looks {
			p.looks[l.PhaseID] = l
		}
		if err := p.load(ctx, tx); err != nil {
			return err
		}
		p.decide()
		if err := p.write(ctx, tx); err != nil {
			return err
		}
		res = p.result()
		return nil
	})
	if err != nil {
		return PassResult{}, fmt.Errorf("place phases of pool %s: %w", pool, err)
	}
	return res, nil
}

// pass is the state of one Pass.
type pass struct {
	store *Store
	pool  string
	wake  ledger.Wake
	looks map[int64]Look

	asking   []int64  // the phases of looks, in order
	joining  []queued // of those, who is not in the queue yet and may be
	now      time.Time
	fleet    []capacity.Node
	queue    []queued // in order
	read     map[int64]*known
	holds    []poolHold
	keeps    *capacity.Hold // for this queue's head
	outcomes map[int64]ledger.Outcome
	names    names
	details  map[*capacity.NodeReason]json.RawMessage // of refusals, which those of equal demands share

	admitted []admission
	refused  []refusal // those whose record is written
	waiting  int       // all that are refused
	behind   []refusal // those behind the head window whose record is old
	more     bool      // of those some are left to the next pass
}

type admission struct {
	queued
	capacity.Placement
	runID string
	asked bool
}

type refusal struct {
	queued
	capacity.CapacityRefusal
	since, bound time.Time
	asked        bool
}

// settledSQL reads the phases that asked and are not in the queue, because
// they have a node already or have ended.
const settledSQL = `
SELECT p.id, p.status, p.attempt, p.commit_sha, p.failure_code, p.failure, p.partial_branch, p.partial_commit,
       extract(epoch FROM p.turn)::float8, COALESCE(r.id, ''), COALESCE(r.node_id, ''), COALESCE(r.attempt, 0), COALESCE(r.lease_epoch, 0)
FROM mission_phases p
LEFT JOIN topology_runs r ON r.phase_id = p.id AND r.attempt = p.attempt
WHERE p.id = ANY($1) AND p.status <> 'pending'`

func (p *pass) load(ctx context.Context, tx pgx.Tx) error {
	p.asking = slices.Sorted(maps.Keys(p.looks))
	var expiring []int64
	for _, l := range p.looks {
		if l.Expire {
			expiring = append(expiring, l.PhaseID)
		}
	}
	p.outcomes = make(map[int64]ledger.Outcome, len(p.asking))
	p.read = map[int64]*known{}

	b := &pgx.Batch{}
	b.Queue("SELECT pg_advisory_xact_lock(hashtextextended('tidewait.placer.' || $1, 0))", p.pool)
	known, unknown := p.partAsking()
	if len(known) > 0 {
		b.Queue(joiningSQL, known, p.pool).Query(p.scanJoining)
	}
	if len(unknown) > 0 {
		b.Queue(knownSQL, unknown, p.pool).Query(p.scanKnown)
	}
	p.store.queueFleet(b, p.pool, &p.now, func(nodes []capacity.Node) { p.fleet = nodes })
	b.Queue(queueSQL, p.pool, expiring, p.store.rules.HeadWindow).Query(p.scanQueue)
	b.Queue(holdsSQL, p.pool, holdLasts.Seconds()).Query(p.scanHolds)
	if err := exec(ctx, tx, b); err != nil {
		return err
	}
	return p.completeQueue(ctx, tx)
}

func (p *pass) scanSettled(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var (
			id                            int64
			attempt, runAttempt           int
			status, commit, code, failure string
			turn                          float64
			runID, nodeID                 string
			partial                       ledger.Partial
			epoch                         int64
		)
		if err := rows.Scan(&id, &status, &attempt, &commit, &code, &failure, &partial.Branch, &partial.Commit, &turn,
			&runID, &nodeID, &runAttempt, &epoch); err != nil {
			return err
		}
		if status == "running" {
			p.outcomes[id] = ledger.Outcome{Placed: &ledger.Placed{RunID: runID, NodeID: nodeID, Attempt: attempt, Turn: seconds(turn), Epoch: epoch}}
			continue
		}
		ended := ledger.Ended{Status: status, Commit: commit, FailureCode: code, Failure: failure}
		if partial.Branch != "" {
			ended.Partial = &partial
		}
		p.outcomes[id] = ledger.Outcome{Ended: &ended}
	}
	return rows.Err()
}

// scanPauses answers those that a gate keeps out of the queue. A workflow that was
// reset may ask for a node without having looked at it.
func (p *pass) scanPauses(rows pgx.Rows) error {
	pauses, err := pgx.CollectRows(rows, scanPause)
	for _, o := range pauses {
		p.outcomes[o.phaseID] = ledger.Outcome{Paused: &o.Pause}
	}
	return err
}

func (p *pass) decide() {
	items := make([]capacity.Waiting, len(p.queue))
	for i, q := range p.queue {
		items[i] = capacity.Waiting{ID: q.id, Demand: q.demand, Longest: q.longest()}
	}
	verdicts := capacity.Pass(p.fleet, items, p.others()...)
	p.learnNames(verdicts)
	for i, v := range verdicts {
		q := p.queue[i]
		l, asked := p.looks[q.id]
		// A workflow that was reset may ask for an attempt that is over: it is
		// answered for the present one, and goes on with that. An attempt that
		// is not there yet gets no answer.
		asked = asked && l.Attempt <= q.attempt
		switch {
		case v.Placement != nil:
			p.admit(q, *v.Placement, asked)
		case v.Capability != nil:
			if asked {
				p.outcomes[q.id] = ledger.Outcome{Incapable: v.Capability}
			}
		default:
			p.refuse(q, v, asked)
		}
	}
	p.more = p.catchUp()
}

func (p *pass) admit(q queued, pl capacity.Placement, asked bool) {
	a := admission{queued: q, Placement: pl, runID: RunID(q.id, q.attempt), asked: asked}
	p.admitted = append(p.admitted, a)
	if asked {
		p.outcomes[q.id] = ledger.Outcome{Placed: &ledger.Placed{RunID: a.runID, NodeID: pl.NodeID, Attempt: q.attempt, Turn: q.turn}}
	}
}

func (p *pass) refuse(q queued, v capacity.Verdict, asked bool) {
	r := refusal{queued: q, CapacityRefusal: *v.Capacity, asked: asked, since: p.now, bound: p.now.Add(q.maxWait)}
	if !q.since.IsZero() {
		r.since, r.bound = q.since, q.bound
	}
	r.position = v.Position
	if v.Start != nil {
		r.starts = &ledger.Starts{By: p.now.Add(v.Start.In).UTC(), On: v.Start.NodeID, Held: v.Start.Held}
	}
	if v.Hold != nil {
		p.keeps = v.Hold
	}
	p.waiting++
	switch {
	case !asked && !p.due(r):
		return
	case !asked && !r.checkedAt.IsZero() && r.position > p.store.rules.HeadWindow:
		p.behind = append(p.behind, r)
		return
	}
	p.note(r)
	if asked {
		p.outcomes[q.id] = p.outcome(r, p.looks[q.id].Expire)
	}
}

// note keeps a refusal to be written, in the names that people know.
func (p *pass) note(r refusal) {
	r.Sentence = p.names.in(r.Sentence)
	p.refused = append(p.refused, r)
}

// outcome answers a phase that asked and goes on waiting, unless this was its
// last look.
func (p *pass) outcome(r refusal, expire bool) ledger.Outcome {
	sentence := p.names.in(r.Sentence)
	if expire && !p.now.Before(r.bound) {
		return ledger.Outcome{Ended: &ledger.Ended{
			Status: "failed", FailureCode: "wait_exceeded",
			Failure: fmt.Sprintf("waited %s for capacity, the longest allowed; at last: %s", r.maxWait, sentence),
		}}
	}
	return ledger.Outcome{Waiting: &ledger.Waiting{
		Code: r.Code, Sentence: sentence, Since: r.since.UTC(), Bound: r.bound.UTC(), Left: r.bound.Sub(p.now),
		CheckedAt: p.now.UTC(), Position: r.position, Attempts: r.attempts + 1, Counts: r.Counts, Starts: r.starts,
	}}
}

// catchUp notes the oldest of the records behind the head window, as many as one
// pass writes. It reports whether some are left.
func (p *pass) catchUp() (left bool) {
	if left = len(p.behind) > mostBehind; left {
		slices.SortFunc(p.behind, func(a, b refusal) int { return a.checkedAt.Compare(b.checkedAt) })
		p.behind = p.behind[:mostBehind]
	}
	for _, r := range p.behind {
		p.note(r)
	}
	return left
}

// RunID returns the id of the attempt-th run of a phase: short, since it
// becomes part of socket paths, and unique in the database.
func RunID(phaseID int64, attempt int) string { return fmt.Sprintf("r%d-%d", phaseID, attempt) }

func (p *pass) write(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	if len(p.asking) > 0 {
		b.Queue(lookedAtSQL, p.asking)
	}
	p.queueJoins(b)
	p.queueAdmissions(b)
	p.queueRefusals(b)
	p.queueHold(b)
	return exec(ctx, tx, b)
}

const (
	reserveNodesSQL = `
UPDATE nodes n SET cpu_reserved = cpu_reserved + v.cpu, memory_reserved = memory_reserved + v.memory,
    disk_reserved = disk_reserved + v.disk, slots_reserved = slots_reserved + v.slots,
    starting = n.starting + v.starting, capacity_version = capacity_version + 1
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    AS v (id, cpu, memory, disk, slots, starting)
WHERE n.id = v.id AND n.admin_state = 'ready'
  AND cpu_reserved + v.cpu <= cpu_total AND memory_reserved + v.memory <= memory_total
  AND disk_reserved + v.disk <= disk_total AND slots_reserved + v.slots <= slots_total`

	// startRunsSQL writes runs and, of each, what it holds: a reservation has no
	// phase and no node but those of its run.
	startRunsSQL = `
WITH v AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::float8[])
        AS v (run, phase, attempt, node, cpu, memory, disk, slots, starting, turn)
), started AS (
    INSERT INTO topology_runs (id, phase_id, attempt, node_id, lease_epoch)
    SELECT v.run, v.phase, v.attempt, v.node, n.lease_epoch FROM v JOIN nodes n ON n.id = v.node
    RETURNING id, phase_id, attempt, node_id, lease_epoch
), reserved AS (
    INSERT INTO reservations (run_id, phase_id, attempt, node_id, cpu, memory, disk, slots, starting, ends_by)
    SELECT s.id, s.phase_id, s.attempt, s.node_id, v.cpu, v.memory, v.disk, v.slots, v.starting, now() + v.turn * interval '1 second'
    FROM started s JOIN v ON v.run = s.id
)
SELECT phase_id, lease_epoch FROM started`

	// lookedAtSQL ends the waits of phases that nobody had looked at until now.
	lookedAtSQL = `
WITH gone AS (DELETE FROM open_waits WHERE phase_id = ANY($1) AND kind = 'capacity' RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, kind, code, reason, since, ended_at, ended_by)
SELECT mission_id, phase_id, kind, code, reason, since, clock_timestamp(), 'answered' FROM gone` + returningEnd

	// endWaitsSQL moves the waits of phases into the history.
	endWaitsSQL = `
WITH gone AS (DELETE FROM capacity_waits WHERE phase_id = ANY($1) RETURNING *)
INSERT INTO wait_history (mission_id, phase_id, kind, code, reason, since, ended_at, ended_by, woken_by, attempts)
SELECT p.mission_id, g.phase_id, 'capacity', g.code, COALESCE(p.capacity_note, ''), g.since, clock_timestamp(), $2, COALESCE(v.wake, ''), g.attempts
FROM gone g JOIN mission_phases p ON p.id = g.phase_id
LEFT JOIN unnest($1::bigint[], $3::text[]) AS v (id, wake) ON v.id = g.phase_id` + returningEnd

	startPhasesSQL = `
UPDATE mission_phases p SET status = 'running', capacity_blocked_since = NULL, capacity_note = NULL,
    queued_at = COALESCE(queued_at, $3), started_at = COALESCE(started_at, now())
FROM unnest($1::bigint[], $2::integer[]) AS v (id, attempt)
WHERE p.id = v.id AND p.attempt = v.attempt AND ` + mayQueue

	targetNodesSQL = `
UPDATE missions m SET target_node_id = v.node
FROM unnest($1::bigint[], $2::text[]) AS v (id, node) WHERE m.id = v.id`

	signalPlacedSQL = `
INSERT INTO outbox (workflow_id, signal)
SELECT id, $2 FROM unnest($1::text[]) AS v (id)`
)

// queueJoins gives those a place in the queue that nothing else is written of: who
// is placed or refused for capacity gets it with that.
func (p *pass) queueJoins(b *pgx.Batch) {
	var ids []int64
	for _, q := range p.joining {
		if o := p.outcomes[q.id]; o.Placed == nil && o.Waiting == nil {
			ids = append(ids, q.id)
		}
	}
	if len(ids) > 0 {
		b.Queue(enqueueSQL, ids, p.now)
	}
}

func (p *pass) queueAdmissions(b *pgx.Batch) {
	if len(p.admitted) == 0 {
		return
	}
	var c admissionColumns
	perNode := map[string]capacity.Resources{}
	starting := map[string]int64{}
	var signals []string
	for _, a := range p.admitted {
		start := a.Need.Slots
		if lightStart(p.pool) {
			start = 0
		}
		c.add(a, start, p.wakeOf(a.id))
		perNode[a.NodeID] = perNode[a.NodeID].Add(a.Need)
		starting[a.NodeID] += start
		if !a.asked {
			signals = append(signals, api.PhaseWorkflowID(a.mission, a.phase))
		}
	}
	var n nodeColumns
	for _, id := range slices.Sorted(maps.Keys(perNode)) {
		n.add(id, perNode[id], starting[id])
	}
	b.Queue(endWaitsSQL, c.phase, "placed", c.wake)
	b.Queue(startPhasesSQL, c.phase, c.attempt, p.now).Exec(affects(len(c.phase)))
	b.Queue(reserveNodesSQL, n.id, n.cpu, n.memory, n.disk, n.slots, n.starting).Exec(affects(len(n.id)))
	b.Queue(startRunsSQL, c.run, c.phase, c.attempt, c.node, c.cpu, c.memory, c.disk, c.slots, c.starting, c.turn).Query(p.scanEpochs)
	if len(c.composed) > 0 {
		b.Queue(startAgentsSQL, c.composed)
	}
	b.Queue(targetNodesSQL, c.mission, c.node)
	if len(signals) > 0 {
		b.Queue(signalPlacedSQL, signals, ledger.SignalPlaced)
	}
}

// scanEpochs tells those that asked and got a node which epoch of it they have.
func (p *pass) scanEpochs(rows pgx.Rows) error {
	var phase, epoch int64
	_, err := pgx.ForEachRow(rows, []any{&phase, &epoch}, func() error {
		if placed := p.outcomes[phase].Placed; placed != nil {
			placed.Epoch = epoch
		}
		return nil
	})
	return err
}

type admissionColumns struct {
	run, node, wake                    []string
	composed                           []string // runs
	phase, mission                     []int64
	attempt                            []int
	cpu, memory, disk, slots, starting []int64
	turn                               []float64
}

func (c *admissionColumns) add(a admission, starting int64, wake ledger.Wake) {
	c.wake = append(c.wake, string(wake))
	c.run, c.node = append(c.run, a.runID), append(c.node, a.NodeID)
	if a.composed {
		c.composed = append(c.composed, a.runID)
	}
	c.phase, c.mission = append(c.phase, a.id), append(c.mission, a.missionID)
	c.attempt = append(c.attempt, a.attempt)
	c.cpu, c.memory = append(c.cpu, a.Need.CPUMilli), append(c.memory, a.Need.MemoryMiB)
	c.disk, c.slots = append(c.disk, a.Need.DiskMiB), append(c.slots, a.Need.Slots)
	c.starting, c.turn = append(c.starting, starting), append(c.turn, a.turn.Seconds())
}

type nodeColumns struct {
	id                                 []string
	cpu, memory, disk, slots, starting []int64
}

func (c *nodeColumns) add(id string, r capacity.Resources, starting int64) {
	c.id = append(c.id, id)
	c.cpu, c.memory = append(c.cpu, r.CPUMilli), append(c.memory, r.MemoryMiB)
	c.disk, c.slots = append(c.disk, r.DiskMiB), append(c.slots, r.Slots)
	c.starting = append(c.starting, starting)
}

const (
	// blockSQL stamps the first refusal once, with the place in the queue, and lets
	// the note follow the cause.
	blockSQL = `
UPDATE mission_phases p SET capacity_blocked_since = COALESCE(capacity_blocked_since, v.since), capacity_note = v.note,
    queued_at = COALESCE(queued_at, $4)
FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS v (id, since, note)
WHERE p.id = v.id AND ` + mayQueue

	waitSQL = `
INSERT INTO capacity_waits AS w (phase_id, pool, since, bound, code, position, refusal, checked_at, tries, attempts,
    starts_by, starts_on, starts_held)
SELECT v.id, $1, v.since, v.bound, v.code, v.position, v.refusal, $2,
    CASE WHEN v.wake = '' THEN '{}' ELSE jsonb_build_object(v.wake, 1) END, (v.wake <> '')::integer, v.starts_by, v.starts_on, v.starts_held
FROM unnest($3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::integer[], $8::jsonb[], $9::text[],
        $10::timestamptz[], $11::text[], $12::boolean[])
    AS v (id, since, bound, code, position, refusal, wake, starts_by, starts_on, starts_held)
JOIN mission_phases p ON p.id = v.id AND p.capacity_blocked_since IS NOT NULL -- one that has ended since waits no longer
ON CONFLICT (phase_id) DO UPDATE SET code = EXCLUDED.code, position = EXCLUDED.position,
    refusal = EXCLUDED.refusal, checked_at = EXCLUDED.checked_at,
    tries = CASE WHEN EXCLUDED.attempts = 0 THEN w.tries ELSE w.tries || (
        SELECT jsonb_object_agg(wake, COALESCE((w.tries ->> wake)::bigint, 0) + 1) FROM jsonb_object_keys(EXCLUDED.tries) AS wake) END,
    attempts = w.attempts + EXCLUDED.attempts,
    starts_by = EXCLUDED.starts_by, starts_on = EXCLUDED.starts_on, starts_held = EXCLUDED.starts_held`
)

func (p *pass) queueRefusals(b *pgx.Batch) {
	var c refusalColumns
	for _, r := range p.refused {
		if p.outcomes[r.id].Ended != nil {
			queueEnd(b, r.id, "expired", *p.outcomes[r.id].Ended)
			continue
		}
		if r.asked || p.stale(r) {
			c.add(r, p.triedBy(r), p.detailsOf(r))
		}
	}
	if len(c.id) == 0 {
		return
	}
	b.Queue(blockSQL, c.id, c.since, c.note, p.now)
	b.Queue(waitSQL, p.pool, p.now, c.id, c.since, c.bound, c.code, c.position, c.refusal, c.wake,
		c.startsBy, c.startsOn, c.startsHeld)
}

// due reports whether the record of a phase that did not ask may have to be
// written, before its sentence is known.
func (p *pass) due(r refusal) bool {
	if r.checkedAt.IsZero() {
		return true
	}
	age := p.now.Sub(r.checkedAt)
	if r.position > p.store.rules.HeadWindow {
		return age >= checkedBehind
	}
	return age >= rewordedEvery || r.code != string(r.Code)
}

// stale reports whether what the latest look wrote is no longer what this look
// found, or is old. The phase is due.
func (p *pass) stale(r refusal) bool {
	q := r.queued
	return q.checkedAt.IsZero() || q.code != string(r.Code) || p.now.Sub(q.checkedAt) >= checkedEvery ||
		q.note != r.Sentence || q.shownPosition != r.position || !sameMoment(q.shownStart, r.starts)
}

// sameMoment reports whether an expected start is what is shown, give or take
// what clocks and rounding make of it.
func sameMoment(shown time.Time, s *ledger.Starts) bool {
	if shown.IsZero() || s == nil {
		return shown.IsZero() && s == nil
	}
	return shown.Sub(s.By).Abs() < time.Second
}

func (p *pass) wakeOf(id int64) ledger.Wake {
	if l, ok := p.looks[id]; ok {
		return l.Wake
	}
	return p.wake
}

// triedBy is what this look counts as a try of; empty: of nothing. The retry of
// one phase looks at all; only its own counts as its try.
func (p *pass) triedBy(r refusal) ledger.Wake {
	if wake := p.wakeOf(r.id); r.asked || wake == ledger.WakeEvent {
		return wake
	}
	return ""
}

// detailsOf is a refusal as it is kept, in the names people know, and without its
// sentence, which is the phase's note.
func (p *pass) detailsOf(r refusal) json.RawMessage {
	var shared *capacity.NodeReason
	if len(r.Nodes) > 0 {
		shared = &r.Nodes[0]
	}
	if details, ok := p.details[shared]; ok {
		return details
	}
	kept := r.CapacityRefusal
	kept.Sentence, kept.Nodes = "", slices.Clone(kept.Nodes)
	for i := range kept.Nodes {
		kept.Nodes[i].Why = p.names.in(kept.Nodes[i].Why)
	}
	details, err := json.Marshal(kept)
	if err != nil {
		panic(err) // texts and numbers
	}
	p.details[shared] = details
	return details
}

type refusalColumns struct {
	id           []int64
	since, bound []time.Time
	code, note   []string
	position     []int
	refusal      []json.RawMessage
	wake         []string
	startsBy     []*time.Time
	startsOn     []string
	startsHeld   []bool
}

func (c *refusalColumns) add(r refusal, wake ledger.Wake, details json.RawMessage) {
	c.id = append(c.id, r.id)
	c.since, c.bound = append(c.since, r.since), append(c.bound, r.bound)
	c.code, c.note = append(c.code, string(r.Code)), append(c.note, r.Sentence)
	c.position = append(c.position, r.position)
	c.refusal, c.wake = append(c.refusal, details), append(c.wake, string(wake))
	by, on, held := (*time.Time)(nil), "", false
	if s := r.starts; s != nil {
		by, on, held = &s.By, s.On, s.Held
	}
	c.startsBy, c.startsOn, c.startsHeld = append(c.startsBy, by), append(c.startsOn, on), append(c.startsHeld, held)
}

func (p *pass) result() PassResult {
	res := PassResult{
		Outcomes: p.outcomes, Admitted: len(p.admitted), Waiting: p.waiting, More: p.more,
	}
	for _, o := range p.outcomes {
		switch {
		case o.Waiting != nil:
			res.Capacity = counted(res.Capacity, o.Waiting.Code)
		case o.Incapable != nil:
			res.Capability = counted(res.Capability, o.Incapable.Code)
		}
	}
	for _, a := range p.admitted {
		res.Placed = append(res.Placed, Admission{Mission: a.mission, Phase: a.phase, Run: a.runID, Node: a.NodeID, Wake: p.wakeOf(a.id)})
		if !a.asked {
			res.Signals++
		}
	}
	return res
}

// counted adds one to a count; counts of nothing are nil.
func counted[K comparable](counts map[K]int, key K) map[K]int {
	if counts == nil {
		counts = map[K]int{}
	}
	counts[key]++
	return counts
}

// affects returns a check that a statement changed exactly n rows; when it did
// not, somebody changed a row since the look, and the pass looks again.
func affects(n int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return errAgain
		}
		return nil
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
