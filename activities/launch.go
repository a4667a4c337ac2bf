package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

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
		draft.Phases = append(draft.Phases, store.DraftPhase{Name: p.Name, Demand: demand(m, p), Agents: agents(p), Turn: turn, MaxWait: maxWait})
	}
	launched, refused, err := e.Store.Launch(ctx, draft)
	if err != nil {
		return workflows.LaunchResult{}, asTemporal(err)
	}
	e.Meter.Refused(ctx, refused)
	shown := launchedMission(m)
	shown.Actor, shown.Turn, shown.MaxWait, shown.Priority = in.Actor, turn, maxWait, draft.Priority
	return workflows.LaunchResult{Launched: launched, Refused: refused, Mission: shown, Fleet: e.fleet()}, nil
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
	if last.Expired {
		return nil, fmt.Errorf("launch %d ended so long ago that it is not kept any more; launch the mission again", last.Launch)
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

// demand is what a phase asks of a node: the sum of its machines. A composed phase
// differs from a solo one in nothing but their number.
func demand(m mission.Mission, p mission.Phase) capacity.Demand {
	total := p.Total()
	return capacity.Demand{
		Backend: m.Spec.Backend, Arch: p.Requires.Arch, Labels: p.Requires.Labels, Network: p.Composed(),
		Resources: capacity.Resources{
			CPUMilli: total.CPUMilli, MemoryMiB: total.MemoryMiB, DiskMiB: total.DiskMiB, Slots: int64(len(p.Machines())),
		},
		Images: imageKeys(p),
	}
}

// agents names the machines of a composed phase.
func agents(p mission.Phase) []ledger.Agent {
	if !p.Composed() {
		return nil
	}
	var list []ledger.Agent
	for _, m := range p.Machines() {
		list = append(list, ledger.Agent{Name: m.Name, Designated: m.Designated})
	}
	return list
}

func launchedMission(m mission.Mission) workflows.LaunchedMission {
	l := workflows.LaunchedMission{Name: m.Name, Pool: m.Spec.Backend}
	if m.Spec.Workspace.Remote() {
		l.Git, l.Ref = m.Spec.Workspace.Git, m.Spec.Workspace.Ref
	}
	for _, p := range m.Spec.Phases {
		l.Phases = append(l.Phases, command(p))
	}
	return l
}

func command(p mission.Phase) workflows.PhaseCommand {
	c := workflows.PhaseCommand{Name: p.Name, Secrets: secretNames(p.Secrets), Attempts: p.Attempts, Hold: hold(p), Requires: requires(p.Requires)}
	if !p.Composed() {
		c.Command, c.Collect, c.Machine = vm.Command{Argv: p.Run, Env: p.Env}, p.Collect, machine(p.Resources, p.Image)
		return c
	}
	for _, a := range p.Agents {
		c.Agents = append(c.Agents, workflows.AgentCommand{
			Name: a.Name, Replicas: a.Replicas, Designated: p.Designates(a), Command: vm.Command{Argv: a.Run, Env: a.Env}, Collect: a.Collect,
			Machine: machine(a.Resources, a.Image), Secrets: secretNames(a.Secrets),
		})
	}
	return c
}

// requires says what a phase asks of a node beside room.
func requires(r mission.Requires) []string {
	var all []string
	if r.Arch != "" {
		all = append(all, "arch="+r.Arch)
	}
	for _, label := range slices.Sorted(maps.Keys(r.Labels)) {
		all = append(all, label+"="+r.Labels[label])
	}
	return all
}

func machine(r mission.Resources, image string) vm.Spec {
	if image == mission.DefaultImage {
		image = ""
	}
	return vm.Spec{CPUMilli: r.CPUMilli, MemoryMiB: r.MemoryMiB, DiskMiB: r.DiskMiB, Image: image}
}

// imageKeys are by what nodes know the images of a phase.
func imageKeys(p mission.Phase) []string {
	var keys []string
	for _, name := range p.Images() {
		keys = append(keys, mission.ImageKey(name))
	}
	return keys
}

func hold(p mission.Phase) *ledger.Hold {
	if p.Hold == nil {
		return nil
	}
	return &ledger.Hold{Reason: p.Hold.Reason, MaxWait: p.Hold.MaxWait}
}

func secretNames(secrets []mission.Secret) []string {
	var names []string
	for _, s := range secrets {
		names = append(names, s.Name)
	}
	return names
}
