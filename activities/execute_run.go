package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"tidewait/internal/agent"
	"tidewait/workflows"
)

// Node holds the activities of a node's queue.
type Node struct {
	Agent *agent.Agent
}

// Register adds the node's activities to a worker.
func (n *Node) Register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(n.ExecuteRun, activity.RegisterOptions{Name: workflows.ActivityExecuteRun})
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

// ExecuteRun carries one run through its steps on this node.
func (n *Node) ExecuteRun(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
	progress := &beats{ctx: ctx, last: Progress{Run: in.Machine.RunID}}
	stop := progress.start()
	defer stop()
	return n.Agent.Execute(ctx, in, progress.step)
}

// beats sends heartbeats with the latest step.
type beats struct {
	ctx  context.Context //nolint:containedctx // an activity's context is what heartbeats are recorded on
	mu   sync.Mutex
	last Progress
}

func (b *beats) step(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last.Step, b.last.At = name, time.Now().UTC()
	activity.RecordHeartbeat(b.ctx, b.last)
}

func (b *beats) start() (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.mu.Lock()
				activity.RecordHeartbeat(b.ctx, b.last)
				b.mu.Unlock()
			}
		}
	}()
	return func() { close(done) }
}
