package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/internal/agent"
	"tidewait/internal/heartbeat"
	"tidewait/workflows"
)

// Node holds the activities of a node's queue.
type Node struct {
	Agent *agent.Agent
}

// Register adds the node's activities to a worker.
func (n *Node) Register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(n.ExecuteRun, activity.RegisterOptions{Name: workflows.ActivityExecuteRun})
	w.RegisterActivityWithOptions(n.StopRun, activity.RegisterOptions{Name: workflows.ActivityStopRun})
}

// beatEvery is how often a run says that it is alive, and learns of its
// cancellation; a fifth of the heartbeat timeout.
const beatEvery = 2 * time.Second

// Progress is what a run's heartbeat shows in the Web UI.
type Progress struct {
	Run  string    `json:"run"`
	Step string    `json:"step"`
	At   time.Time `json:"at"`
}

// ExecuteRun carries one run through its steps on this node, once the node may
// have machines: nobody knows yet whether an agent that was just started may.
func (n *Node) ExecuteRun(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
	p := &progress{last: Progress{Run: in.Machine.RunID}}
	defer heartbeat.Keep(ctx, beatEvery, p.now)()
	if err := n.Agent.Await(ctx); err != nil {
		return workflows.ExecuteRunResult{}, err
	}
	return n.Agent.Execute(ctx, in, p.take)
}

// StopRun ends a run because a person asked for it. It does not wait for the end.
func (n *Node) StopRun(_ context.Context, in workflows.StopRunInput) error {
	return asTemporal(n.Agent.StopRun(in.RunID, in.Reason, in.Keep))
}

// progress is the latest step of a run, for the next heartbeat. A run that is
// over before that is spared one: each is an update of its workflow.
type progress struct {
	mu   sync.Mutex
	last Progress
}

func (p *progress) take(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.Step, p.last.At = step, time.Now().UTC()
}

func (p *progress) now() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
