package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
)

// TestAWorkerThatIsFullyUsed: it counts as full while all of its slots are taken,
// and not after that.
func TestAWorkerThatIsFullyUsed(t *testing.T) {
	taken := &slots{size: 2}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{taken}})
	var inner func(context.Context) ([]bool, error)
	work := func(ctx context.Context) ([]bool, error) {
		before := taken.full()
		taken.used.Add(1) // another one beside it
		defer taken.used.Add(-1)
		return []bool{before, taken.full()}, nil
	}
	inner = work
	env.RegisterActivity(inner)
	out, err := env.ExecuteActivity(inner)
	require.NoError(t, err)
	var seen []bool
	require.NoError(t, out.Get(&seen))
	require.Equal(t, []bool{false, true}, seen)
	require.False(t, taken.full())
	require.False(t, (*slots)(nil).full(), "a queue whose slots nobody counts is never full")
}
