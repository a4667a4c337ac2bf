package main

import (
	"context"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
)

// slots counts the activities of a worker that are under way. A nil *slots is of a
// queue that is never full.
type slots struct {
	interceptor.WorkerInterceptorBase
	size int // that the worker runs at a time
	used atomic.Int64
}

// full reports whether the worker takes nothing more for now.
func (s *slots) full() bool { return s != nil && s.used.Load() >= int64(s.size) }

// InterceptActivity implements interceptor.WorkerInterceptor.
func (s *slots) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &slotted{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, of: s}
}

type slotted struct {
	interceptor.ActivityInboundInterceptorBase
	of *slots
}

func (s *slotted) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if activity.GetInfo(ctx).IsLocalActivity { // those have slots of their own
		return s.Next.ExecuteActivity(ctx, in)
	}
	s.of.used.Add(1)
	defer s.of.used.Add(-1)
	return s.Next.ExecuteActivity(ctx, in)
}
