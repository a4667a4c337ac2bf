package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// agentsColumn is what is stored of a phase's agents; of a solo phase none.
func agentsColumn(agents []ledger.Agent) []ledger.Agent {
	if agents == nil {
		return []ledger.Agent{}
	}
	return agents
}

// startAgentsSQL gives runs of composed phases their machines. Their ids are those
// of group.MachineID.
const startAgentsSQL = `
INSERT INTO run_agents (run_id, ordinal, name, machine, designated)
SELECT t.id, a.ordinal, a.agent ->> 'name', t.id || '/' || (a.agent ->> 'name'), COALESCE((a.agent ->> 'designated')::boolean, false)
FROM topology_runs t JOIN mission_phases p ON p.id = t.phase_id, jsonb_array_elements(p.agents) WITH ORDINALITY AS a (agent, ordinal)
WHERE t.id = ANY($1)`

// agentStepsSQL writes where the machines of runs are, and how their commands
// ended. A run that has ended is not touched.
const agentStepsSQL = `
UPDATE run_agents a SET step = v.step, accel = v.accel, kernel = v.kernel, isolation = v.isolation,
    start_kind = v.start_kind, start_why = v.start_why, status = v.status, exit_code = v.exit_code, signal = v.signal, out_of_memory = v.out_of_memory,
    ended_at = CASE WHEN v.ended THEN COALESCE(a.ended_at, clock_timestamp()) END
FROM jsonb_to_recordset($2) AS v (run_id text, name text, step text, status text, accel text, kernel text, isolation text,
        start_kind text, start_why text, ended boolean, exit_code integer, signal text, out_of_memory boolean),
    topology_runs t
WHERE a.run_id = v.run_id AND a.name = v.name AND t.id = v.run_id AND t.node_id = $1 AND t.ended_at IS NULL`

// agentStep is a row of agentStepsSQL and of agentEndsSQL.
type agentStep struct {
	RunID       string `json:"run_id,omitempty"`
	Name        string `json:"name"`
	Step        string `json:"step,omitempty"`
	Status      string `json:"status"`
	Accel       string `json:"accel"`
	Kernel      string `json:"kernel"`
	Isolation   string `json:"isolation"`
	StartKind   string `json:"start_kind"`
	StartWhy    string `json:"start_why"`
	Ended       bool   `json:"ended"`
	ExitCode    *int   `json:"exit_code"`
	Signal      string `json:"signal"`
	OutOfMemory bool   `json:"out_of_memory"`
	Collected   bool   `json:"collected"`
	FailureCode string `json:"failure_code"`
	Failure     string `json:"failure"`
}

func queueAgentSteps(b *pgx.Batch, h api.Heartbeat) {
	var steps []agentStep
	for _, r := range h.Runs {
		for _, a := range r.Agents {
			steps = append(steps, agentStep{
				RunID: r.ID, Name: a.Name, Step: a.Step, Status: liveStatus(a), Accel: a.Accel, Kernel: a.Kernel, Isolation: a.Isolation,
				StartKind: string(a.Start.Kind), StartWhy: a.Start.Why, Ended: a.Ended, ExitCode: a.ExitCode, Signal: a.Signal, OutOfMemory: a.OutOfMemory,
			})
		}
	}
	if len(steps) > 0 {
		b.Queue(agentStepsSQL, h.Node, steps)
	}
}

// liveStatus is the status of a machine whose run has not ended.
func liveStatus(a api.AgentReport) string {
	switch {
	case a.Ended && a.Stopped:
		return ledger.AgentStopped
	case a.Ended && a.ExitCode != nil && *a.ExitCode == 0:
		return ledger.AgentSucceeded
	case a.Ended:
		return ledger.AgentFailed
	case a.Started:
		return "running"
	}
	return "starting"
}

// machinesStarting is how many machines of a run do not answer yet.
func machinesStarting(r api.RunReport) int64 {
	if r.Started {
		return 0
	}
	starting := int64(len(r.Agents))
	if starting == 0 {
		return 1
	}
	for _, a := range r.Agents {
		if a.Started {
			starting--
		}
	}
	return starting
}

// agentEndsSQL ends the machines of a phase's open run. What is not told of one
// stays as its agent said last.
const agentEndsSQL = `
UPDATE run_agents a SET step = 'ended', ended_at = COALESCE(a.ended_at, clock_timestamp()),
    status = COALESCE(v.status, CASE WHEN a.status NOT IN ('starting', 'running') THEN a.status WHEN $2 = 'lost' THEN 'lost' ELSE 'stopped' END),
    exit_code = CASE WHEN v.name IS NULL THEN a.exit_code ELSE v.exit_code END,
    signal = COALESCE(v.signal, a.signal), out_of_memory = COALESCE(v.out_of_memory, a.out_of_memory),
    collected = COALESCE(v.collected, false), failure_code = COALESCE(v.failure_code, ''), failure = COALESCE(v.failure, ''),
    accel = COALESCE(NULLIF(v.accel, ''), a.accel), kernel = COALESCE(NULLIF(v.kernel, ''), a.kernel),
    isolation = COALESCE(NULLIF(v.isolation, ''), a.isolation),
    start_kind = COALESCE(NULLIF(v.start_kind, ''), a.start_kind), start_why = COALESCE(NULLIF(v.start_why, ''), a.start_why)
FROM run_agents b JOIN topology_runs t ON t.id = b.run_id
LEFT JOIN jsonb_to_recordset($3) AS v (name text, status text, accel text, kernel text, isolation text,
    start_kind text, start_why text, exit_code integer, signal text,
    out_of_memory boolean, collected boolean, failure_code text, failure text) ON v.name = b.name
WHERE t.phase_id = $1 AND t.ended_at IS NULL AND a.run_id = b.run_id AND a.name = b.name`

func queueAgentEnds(b *pgx.Batch, phaseID int64, e ledger.RunEnd) {
	ends := []agentStep{}
	for _, a := range e.Agents {
		end := agentStep{
			Name: a.Name, Status: a.Status, Accel: a.Info.Accel, Kernel: a.Info.Kernel, Isolation: a.Info.Isolation,
			StartKind: string(a.Info.Start.Kind), StartWhy: a.Info.Start.Why, Collected: a.Collected, FailureCode: a.FailureCode, Failure: a.Failure,
		}
		if a.Exit != nil {
			end.Signal, end.OutOfMemory = a.Exit.Signal, a.Exit.OOM
			if a.Exit.Signal == "" {
				end.ExitCode = &a.Exit.Code
			}
		}
		ends = append(ends, end)
	}
	b.Queue(agentEndsSQL, phaseID, e.Status, ends)
}

// readRunAgents reads the machines of the runs of a launch.
func (s *Store) readRunAgents(ctx context.Context, r *missionRow, launch int) error {
	runs := map[string]*api.Run{}
	for i := range r.PhaseList {
		for j := range r.PhaseList[i].Runs {
			runs[r.PhaseList[i].Runs[j].ID] = &r.PhaseList[i].Runs[j]
		}
	}
	rows, err := s.pool.Query(ctx, `
SELECT a.run_id, a.name, a.machine, a.designated, a.status, a.step, a.accel, a.kernel, a.start_kind, a.start_why, a.image, a.exit_code, a.signal, a.out_of_memory,
       a.collected, a.failure_code, a.failure, a.ended_at
FROM run_agents a JOIN topology_runs t ON t.id = a.run_id JOIN mission_phases p ON p.id = t.phase_id
WHERE p.mission_id = $1 AND p.launch = $2 ORDER BY a.run_id, a.ordinal`, r.id, launch)
	if err != nil {
		return err
	}
	var id string
	var a api.RunAgent
	columns := []any{
		&id, &a.Name, &a.Machine, &a.Designated, &a.Status, &a.Step, &a.Accel, &a.Kernel, &a.Start.Kind, &a.Start.Why, &a.Image, &a.ExitCode, &a.Signal, &a.OutOfMemory,
		&a.Collected, &a.FailureCode, &a.Failure, &a.EndedAt,
	}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		a.EndedAt = utc(a.EndedAt)
		if run := runs[id]; run != nil { // one that began meanwhile is not shown yet
			run.Agents = append(run.Agents, a)
		}
		a = api.RunAgent{}
		return nil
	})
	return err
}
