package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/mission"
	"tidewait/internal/store"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// Launch records a mission's draft and launches it when the fleet could run it.
func (e *Engine) Launch(ctx context.Context, in workflows.LaunchInput) (workflows.LaunchResult, error) {
	m, rerun, err := e.launched(ctx, in)
	if err != nil {
		return workflows.LaunchResult{}, err
	}
	turn, maxWait, err := m.Spec.Bounds(e.Fleet.Turn, e.Fleet.EffectiveMaxWait())
	if err != nil {
		return workflows.LaunchResult{}, final(err.Error(), api.ErrTypeInvalidMission)
	}
	draft := store.Draft{
		Name: m.Name, Document: m.Canonical(), Actor: in.Actor, Priority: e.priority(m), WorkflowRun: in.RunID, Rerun: rerun,
	}
	for _, p := range m.Spec.Phases {
		draft.Phases = append(draft.Phases, store.DraftPhase{Name: p.Name, Demand: demand(m, p), Turn: turn, MaxWait: maxWait})
	}
	launched, refused, err := e.Store.Launch(ctx, draft)
	if err != nil {
		return workflows.LaunchResult{}, asTemporal(err)
	}
	return workflows.LaunchResult{Launched: launched, Refused: refused, Mission: launchedMission(m), Fleet: e.fleet()}, nil
}

// launched returns what is to be launched and, of a rerun, what it takes over.
func (e *Engine) launched(ctx context.Context, in workflows.LaunchInput) (mission.Mission, *store.Rerun, error) {
	if in.Rerun == nil {
		m, err := readMission(in.Document)
		return m, nil, err
	}
	last, err := e.Store.LastLaunch(ctx, in.Rerun.Mission, in.RunID)
	if err != nil {
		return mission.Mission{}, nil, asTemporal(err)
	}
	earlier, err := readMission(last.Document)
	if err != nil || last.Own {
		return earlier, nil, err // it is launched already: the store says how
	}
	m := earlier
	if len(in.Document) > 0 {
		if m, err = readMission(in.Document); err != nil {
			return m, nil, err
		}
		if m.Name != in.Rerun.Mission {
			return m, nil, final(fmt.Sprintf("the document is of mission %s, not of %s", m.Name, in.Rerun.Mission), api.ErrTypeInvalidMission)
		}
	}
	first, err := m.RerunFrom(in.Rerun.From, earlier)
	switch {
	case errors.Is(err, mission.ErrUnknownPhase):
		return m, nil, final(err.Error(), api.ErrTypeInvalidMission)
	case err != nil:
		return m, nil, final(err.Error(), api.ErrTypeNoRerun)
	}
	rerun, err := takeOver(last, first)
	if err != nil {
		return m, nil, final(err.Error(), api.ErrTypeNoRerun)
	}
	return m, rerun, nil
}

func readMission(document []byte) (m mission.Mission, err error) {
	if err := json.Unmarshal(document, &m); err != nil {
		return m, final("the mission document is not readable: "+err.Error(), api.ErrTypeInvalidMission)
	}
	return m, nil
}

// takeOver returns what a rerun that begins with the first-th phase starts from.
func takeOver(last store.LastLaunch, first int) (*store.Rerun, error) {
	r := &store.Rerun{Of: last.Launch, Gateway: last.Gateway, Commit: last.Base}
	if last.Launch == 0 {
		return nil, errors.New("the mission was never launched, so there is nothing to begin from; launch it")
	}
	if r.Commit == "" {
		return nil, fmt.Errorf("the checkout of launch %d was never opened, so there is nothing to begin from; launch the mission again", last.Launch)
	}
	for _, p := range last.Phases[:first] {
		if p.Status != "succeeded" || p.Commit == "" {
			return nil, fmt.Errorf("phase %q has no commit in launch %d, where it is %s; rerun from it or from an earlier phase", p.Name, last.Launch, p.Status)
		}
		r.Commit = p.Commit
		r.Commits = append(r.Commits, p.Commit)
	}
	return r, nil
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
			Name: p.Name, Command: vm.Command{Argv: p.Run, Env: p.Env}, Secrets: secretNames(p), Collect: p.Collect, Attempts: p.Attempts, Hold: hold(p),
			Machine: vm.Spec{CPUMilli: p.Resources.CPUMilli, MemoryMiB: p.Resources.MemoryMiB, DiskMiB: p.Resources.DiskMiB},
		})
	}
	return l
}

func hold(p mission.Phase) *ledger.Hold {
	if p.Hold == nil {
		return nil
	}
	return &ledger.Hold{Reason: p.Hold.Reason, MaxWait: p.Hold.MaxWait}
}

func secretNames(p mission.Phase) []string {
	var names []string
	for _, s := range p.Secrets {
		names = append(names, s.Name)
	}
	return names
}
