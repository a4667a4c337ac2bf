// Package activities is what workflows do: thin calls into the packages that
// own the work, with domain errors mapped to the vocabulary of package
// workflows.
package activities

import (
	"context"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/engine"
	"tidewait/internal/ledger"
	"tidewait/internal/mission"
	"tidewait/internal/store"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// Engine holds the activities of the engine's queue.
type Engine struct {
	Store  *store.Store
	Placer *engine.Placer
	Fleet  config.Fleet
	// Freed is called after a commit that may have freed capacity.
	Freed func()
}

// Register adds the engine's activities to a worker.
func (e *Engine) Register(w worker.ActivityRegistry) {
	for name, f := range map[string]any{
		workflows.ActivityLaunch:        e.Launch,
		workflows.ActivityPlace:         e.Place,
		workflows.ActivityExpire:        e.Expire,
		workflows.ActivityFinishPhase:   e.FinishPhase,
		workflows.ActivityRetryPhase:    e.RetryPhase,
		workflows.ActivityJudgeRun:      e.JudgeRun,
		workflows.ActivityNoteWait:      e.NoteWait,
		workflows.ActivityClearWait:     e.ClearWait,
		workflows.ActivitySetCheckout:   e.SetCheckout,
		workflows.ActivityFinishMission: e.FinishMission,
	} {
		w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
}

// Launch records a mission's draft and launches it when the fleet could run it.
func (e *Engine) Launch(ctx context.Context, in workflows.LaunchInput) (workflows.LaunchResult, error) {
	var m mission.Mission
	if err := json.Unmarshal(in.Document, &m); err != nil {
		return workflows.LaunchResult{}, final("the mission document is not readable: "+err.Error(), api.ErrTypeInvalidMission)
	}
	turn, maxWait, err := m.Spec.Bounds(e.Fleet.Turn, e.Fleet.EffectiveMaxWait())
	if err != nil {
		return workflows.LaunchResult{}, final(err.Error(), api.ErrTypeInvalidMission)
	}
	draft := store.Draft{Name: m.Name, Document: in.Document, Actor: in.Actor, Priority: e.priority(m), WorkflowRun: in.RunID}
	for _, p := range m.Spec.Phases {
		draft.Phases = append(draft.Phases, store.DraftPhase{Name: p.Name, Demand: demand(m, p), Turn: turn, MaxWait: maxWait})
	}
	launched, refused, err := e.Store.Launch(ctx, draft)
	if err != nil {
		return workflows.LaunchResult{}, asTemporal(err)
	}
	return workflows.LaunchResult{Launched: launched, Refused: refused, Mission: launchedMission(m), Fleet: e.fleet()}, nil
}

// priority is the mission's own, or the fleet's.
func (e *Engine) priority(m mission.Mission) int {
	if m.Spec.Priority != nil {
		return *m.Spec.Priority
	}
	return e.Fleet.Priority
}

func demand(m mission.Mission, p mission.Phase) capacity.Demand {
	return capacity.Demand{
		Backend: m.Spec.Backend, Arch: p.Requires.Arch, Labels: p.Requires.Labels,
		Resources: capacity.Resources{
			CPUMilli: p.Resources.CPUMilli, MemoryMiB: p.Resources.MemoryMiB, DiskMiB: p.Resources.DiskMiB, Slots: 1,
		},
	}
}

func launchedMission(m mission.Mission) workflows.LaunchedMission {
	l := workflows.LaunchedMission{Name: m.Name, Pool: m.Spec.Backend}
	if m.Spec.Workspace.Remote() {
		l.Git, l.Ref = m.Spec.Workspace.Git, m.Spec.Workspace.Ref
	}
	for _, p := range m.Spec.Phases {
		l.Phases = append(l.Phases, workflows.PhaseCommand{
			Name: p.Name, Command: vm.Command{Argv: p.Run, Env: p.Env}, Collect: p.Collect, Attempts: p.Attempts,
			Machine: vm.Spec{CPUMilli: p.Resources.CPUMilli, MemoryMiB: p.Resources.MemoryMiB, DiskMiB: p.Resources.DiskMiB},
		})
	}
	return l
}

// Allowances that workflows get with a launch.
const (
	nodePickup    = 30 * time.Second
	stepAllowance = 10 * time.Minute
)

func (e *Engine) fleet() workflows.Fleet {
	return workflows.Fleet{RetryInterval: e.Fleet.RetryInterval, NodePickup: nodePickup, StepAllowance: stepAllowance}
}

// restampEvery bounds how often a changed code returns to the workflow, so that
// a flapping cause costs little history.
const restampEvery = time.Minute

// Place looks at one phase. When it retries, a refusal for the same reason is a
// benign error that the server tries again.
func (e *Engine) Place(ctx context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
	info := activity.GetInfo(ctx)
	wake := in.Wake
	if in.Retrying && info.Attempt > 1 {
		wake = ledger.WakeTimer
	}
	outcome, err := e.Placer.Look(ctx, in.Pool, store.Look{PhaseID: in.PhaseID, Attempt: in.Attempt, Wake: wake})
	if err != nil || !in.Retrying || outcome.Waiting == nil {
		return outcome, asTemporal(err)
	}
	changed := outcome.Waiting.Code != in.LastCode
	if changed && (in.LastCode == capacity.CodePlacerUnavailable || time.Since(info.ScheduledTime) >= restampEvery) {
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

// JudgeRun says what became of a run whose activity was lost.
func (e *Engine) JudgeRun(ctx context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
	v, err := e.Store.JudgeRun(ctx, in.RunID)
	if err == nil && in.Retrying && !v.Gone {
		return v, nodeSilent(v)
	}
	return v, asTemporal(err)
}

// NoteWait records a wait that is not for capacity.
func (e *Engine) NoteWait(ctx context.Context, in ledger.OpenWait) error {
	return asTemporal(e.Store.NoteWait(ctx, in))
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
