package activities

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"tidewait/internal/agent"
	"tidewait/internal/api"
	"tidewait/internal/gateway"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// asTemporal maps an error of a domain package to the closed vocabulary that
// workflows decide on. What it does not know is passed on as it is, and tried
// again.
func asTemporal(err error) error {
	var refused *workspace.Refused
	var superseded *workspace.Superseded
	var stale *gateway.Stale
	var full *gateway.Full
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return final(refused.Message, workflows.ErrTypeWorkspaceRefused, refused.Code)
	case errors.As(err, &full):
		return benign(full.Error(), workflows.ErrTypeBucketFull, 0)
	case errors.As(err, &superseded):
		return final(superseded.Error(), workflows.ErrTypeWorkspaceRefused, "superseded")
	case errors.As(err, &stale), errors.Is(err, store.ErrStale):
		return final(err.Error(), workflows.ErrTypeRunStale)
	case errors.Is(err, store.ErrRunning):
		return final(err.Error(), api.ErrTypeRunning)
	case errors.Is(err, store.ErrNoGateway):
		return final("no gateway is alive to hold the mission's checkout; start one with `tidewait-worker run --roles gateway`", api.ErrTypeNoGateway)
	case errors.Is(err, store.ErrNotFound), errors.Is(err, agent.ErrNoRun):
		return final(err.Error(), "NotFound")
	}
	return err
}

func final(message, kind string, details ...any) error {
	return temporal.NewNonRetryableApplicationError(message, kind, nil, details...)
}

// benign is the error of an attempt that found what it waits for not there yet:
// the server tries again after a while, zero meaning after what its policy says,
// and nothing is logged or counted as a failure.
func benign(message, kind string, after time.Duration, details ...any) error {
	return temporal.NewApplicationErrorWithOptions(message, kind, temporal.ApplicationErrorOptions{
		Category: temporal.ApplicationErrorCategoryBenign, NextRetryDelay: after, Details: details,
	})
}

func capacityRefused(w ledger.Waiting, after time.Duration) error {
	return benign(w.Sentence, workflows.ErrTypeCapacityRefused, after, w)
}

func nodeSilent(v ledger.Verdict) error {
	return benign(v.Reason, workflows.ErrTypeNodeSilent, 0, v)
}
