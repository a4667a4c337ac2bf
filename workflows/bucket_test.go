package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"tidewait/workflows"
)

// TestAFullBucketIsWaitedForInTheOpen lets a gateway find no room, go away, and
// find room at last.
func TestAFullBucketIsWaitedForInTheOpen(t *testing.T) {
	full := temporal.NewApplicationError("bucket tidewait-bundles is full: maximum bytes exceeded", workflows.ErrTypeBucketFull)
	waits := func(code, why string) attrs {
		return attrs{
			workflows.AttrWait.ValueSet("gateway"), workflows.AttrReason.ValueSet(code), workflows.AttrWhy.ValueSet(why),
			workflows.AttrSince.ValueSet(since), workflows.AttrBound.ValueUnset(),
		}
	}
	e := newEnv(t)
	const (
		noRoom = "gateway gw-1 cannot commit the results of run r7-1: bucket tidewait-bundles is full: maximum bytes exceeded"
		away   = "gateway gw-1 does not pick up: commit the results of run r7-1"
	)
	e.upserts(placedAttrs, waits("results_bucket_full", noRoom), waits("gateway_unreachable", away), waits("results_bucket_full", noRoom), noWait())
	var shown string
	e.commitResults = func(context.Context, workflows.CommitResultsInput) (workflows.Checkout, error) {
		switch len(inputs[workflows.CommitResultsInput](e.fakes)) {
		case 1, 4: // the first try, and that after the gateway was away: told at once
			return workflows.Checkout{}, full
		case 2: // tried again by the server
			shown = e.details()
			return workflows.Checkout{}, full
		case 3:
			return workflows.Checkout{}, notPickedUp()
		}
		return checkoutAt("c1"), nil
	}

	res, err := e.phase(phaseInput())

	require.NoError(t, err)
	require.Equal(t, "c1", res.Checkout.Commit)
	require.Len(t, inputs[workflows.CommitResultsInput](e.fakes), 5)
	require.Contains(t, shown, "**waiting for gateway** (`results_bucket_full`), as of 2026-03-01 08:00:00Z\n\n"+
		"- **why:** gateway gw-1 cannot commit the results of run r7-1: bucket tidewait-bundles is full: maximum bytes exceeded\n")
}
