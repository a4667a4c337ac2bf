package main

import (
	"context"
	"time"
)

// observed is what some processes use, and how much of a processor.
type observed struct {
	usage
	share float64 // of one processor, in percent
}

// observe watches processes for a while.
func observe(ctx context.Context, d time.Duration, pids ...int) ([]observed, error) {
	before := make([]usage, len(pids))
	for i, pid := range pids {
		var err error
		if before[i], err = usageOf(pid); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := watch(ctx, d); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after := make([]observed, len(pids))
	for i, pid := range pids {
		u, err := usageOf(pid)
		if err != nil {
			return nil, err
		}
		after[i] = observed{u, 100 * (u.processor - before[i].processor).Seconds() / took.Seconds()}
	}
	return after, nil
}
