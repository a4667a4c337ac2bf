package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/workflows"
)

// Stale is the error of a run that does not count any more, because its phase was
// placed again or has ended, or its node was given up. Trying again does not help.
type Stale struct{ Why string }

func (e *Stale) Error() string { return e.Why }

// askTime bounds the answer of an engine.
const askTime = 5 * time.Second

// mayCommit asks an engine whether the results of a run may become a commit. Only
// engines know what became of runs.
func (g *Gateway) mayCommit(ctx context.Context, in workflows.CommitResultsInput) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var nothing struct{}
	err := natsrpc.Ask(ctx, g.NATS, api.SubjectMayCommit, api.CommitRequest{Run: in.RunID, Epoch: in.Epoch}, &nothing)
	var answer *api.Error
	if errors.As(err, &answer) && answer.Code == api.CodeStale {
		g.Log.Warn("the results of a run are refused", "run", in.RunID, "node", in.Node, "why", answer.Message)
		return &Stale{answer.Message}
	}
	if err != nil {
		return fmt.Errorf("ask whether run %s may commit: %w", in.RunID, err)
	}
	return nil
}
