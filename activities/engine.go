// Package activities is what workflows do: thin calls into the packages that
// own the work, with domain errors mapped to the vocabulary of package
// workflows.
package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/config"
	"tidewait/internal/capacity"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/meter"
	"tidewait/internal/store"
	"tidewait/workflows"
)

// Engine holds the activities of the engine's queue.
type Engine struct {
	Store  *store.Store
	Placer *engine.Placer
	Fleet  config.Fleet
	// Freed is called after a commit that may have freed capacity.
	Freed func()
	Meter *meter.Meter // nil: nothing is counted
}

// Register adds the engine's activities to a worker.
func (e *Engine) Register(w worker.ActivityRegistry) {
	for name, f := range map[string]any{
		workflows.ActivityLaunch:        e.Launch,
		workflows.ActivityPlace:         e.Place,
		workflows.ActivityExpire:        e.Expire,
		workflows.ActivityFinishPhase:   e.FinishPhase,
		workflows.ActivityRetryPhase:    e.RetryPhase,
		workflows.ActivityBackOff:       e.BackOff,
		workflows.ActivityRecordActs:    e.RecordActs,
		workflows.ActivityJudgeRun:      e.JudgeRun,
		workflows.ActivityNoteWait:      e.NoteWait,
		workflows.ActivityClearWait:     e.ClearWait,
		workflows.ActivitySetCheckout:   e.SetCheckout,
		workflows.ActivityFinishMission: e.FinishMission,
	} {
		w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
}

// Allowances that workflows get with a launch.
const (
	nodePickup    = 30 * time.Second
	stepAllowance = 10 * time.Minute
)

func (e *Engine) fleet() workflows.Fleet {
	return workflows.Fleet{
		RetryInterval: e.Fleet.RetryInterval, NodePickup: nodePickup, StepAllowance: stepAllowance, AttemptBackoff: e.Fleet.AttemptBackoff,
	}
}

// restampEvery bounds how often a changed code returns to the workflow, so that
// a flapping cause costs little history. The first change of a wait returns at once.
const restampEvery = time.Minute

// Place looks at one phase, when nothing keeps it from asking. When it retries, a
// refusal for the same reason is a benign error that the server tries again.
func (e *Engine) Place(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
	if outcome, err := e.passGate(ctx, in); err != nil || outcome != (ledger.Outcome{}) {
		return outcome, asTemporal(err)
	}
	wake := in.Wake
	if in.Retrying && activity.GetInfo(ctx).Attempt > 1 {
		wake = ledger.WakeTimer
	}
	outcome, err := e.Placer.Look(ctx, in.Pool, store.Look{PhaseID: in.PhaseID, Attempt: in.Attempt, Wake: wake})
	if w := outcome.Waiting; w != nil {
		w.NextCheck = w.CheckedAt.Add(e.Fleet.RetryInterval)
	}
	if err != nil || !in.Retrying || outcome.Waiting == nil {
		return outcome, asTemporal(err)
	}
	changed := outcome.Waiting.Code != in.LastCode
	if changed && (in.LastCode == capacity.CodePlacerUnavailable || time.Since(in.ChangedAt) >= restampEvery) {
		return outcome, nil
	}
	return ledger.Outcome{}, capacityRefused(*outcome.Waiting, retryAfter(outcome.Waiting.Position, e.Fleet))
}

// longestRetry bounds how far retries behind the head window are stretched. They
// only refresh what Temporal shows: the placer looks at every phase every ten
// seconds, and signals those it placed.
const longestRetry = 5 * time.Minute

// retryAfter is when a phase at some place in line asks again: zero, which means
// after the retry interval, in the head window; behind it so much later that all
// of them together cost little more than the window.
func retryAfter(position int, f config.Fleet) time.Duration {
	if position <= f.HeadWindow {
		return 0
	}
	stretched := time.Duration(float64(f.RetryInterval) * float64(position) / float64(f.HeadWindow))
	return min(stretched, max(longestRetry, f.RetryInterval))
}

// passGate says what keeps a phase from asking for a node; an empty outcome is
// nothing. A phase that was refused a node has passed already.
func (e *Engine) passGate(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
	var gate ledger.Gate
	switch {
	case in.Gate != nil:
		gate = *in.Gate
	case in.Retrying && in.LastCode != capacity.CodePlacerUnavailable:
		return ledger.Outcome{}, nil
	}
	return e.Store.Gate(ctx, in.PhaseID, gate)
}

// Expire is the last look at a phase whose bound is reached.
func (e *Engine) Expire(ctx context.Context, in workflows.ExpireInput) (ledger.Outcome, error) {
	outcome, err := e.Placer.Look(ctx, in.Pool, store.Look{PhaseID: in.PhaseID, Attempt: in.Attempt, Wake: ledger.WakeTimer, Expire: true})
	return outcome, asTemporal(err)
}

// FinishPhase gives a phase its final status and frees its node.
func (e *Engine) FinishPhase(ctx context.Context, in workflows.FinishPhaseInput) (ledger.Ended, error) {
	ended, err := e.Store.FinishPhase(ctx, in.PhaseID, in.Run, in.End)
	if err == nil {
		e.Freed()
	}
	return ended, asTemporal(err)
}

// RetryPhase puts a phase back into the queue and returns its next attempt.
func (e *Engine) RetryPhase(ctx context.Context, in workflows.RetryPhaseInput) (int, error) {
	attempt, err := e.Store.RetryPhase(ctx, in.PhaseID, in.Attempt, in.Run)
	if err == nil {
		e.Freed()
	}
	return attempt, asTemporal(err)
}

// BackOff lets a phase wait for its next attempt, if it has one.
func (e *Engine) BackOff(ctx context.Context, in ledger.BackOff) (ledger.BackedOff, error) {
	out, err := e.Store.BackOff(ctx, in)
	if err == nil && !out.Exhausted {
		e.Freed()
	}
	return out, asTemporal(err)
}

// RecordActs records what people did to a phase.
func (e *Engine) RecordActs(ctx context.Context, in workflows.RecordActsInput) error {
	return asTemporal(e.Store.RecordActs(ctx, in.PhaseID, in.Acts))
}

// JudgeRun says what became of a run whose activity was lost.
func (e *Engine) JudgeRun(ctx context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
	v, err := e.Store.JudgeRun(ctx, in.RunID, in.GiveUp)
	moved := !v.Heard && v.Until.Sub(in.Until).Abs() >= time.Second
	if err == nil && in.Retrying && !v.Gone && !v.Kept && !moved {
		return v, nodeSilent(v)
	}
	return v, asTemporal(err)
}

// NoteWait records a wait that the workflow has found, and returns since when it
// waits.
func (e *Engine) NoteWait(ctx context.Context, in ledger.OpenWait) (time.Time, error) {
	since, err := e.Store.NoteWait(ctx, in)
	return since, asTemporal(err)
}

// ClearWait ends the wait of a workflow.
func (e *Engine) ClearWait(ctx context.Context, workflowID string) error {
	return asTemporal(e.Store.ClearWait(ctx, workflowID))
}

// SetCheckout records where a launch's results go.
func (e *Engine) SetCheckout(ctx context.Context, in workflows.SetCheckoutInput) error {
	return asTemporal(e.Store.SetCheckout(ctx, in.MissionID, in.Launch, in.Branch, in.Base))
}

// FinishMission gives a launch its final status.
func (e *Engine) FinishMission(ctx context.Context, in workflows.FinishMissionInput) error {
	return asTemporal(e.Store.FinishMission(ctx, in.MissionID, in.Launch, in.End))
}
