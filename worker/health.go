package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"tidewait/internal/health"
	"tidewait/internal/meter"
	"tidewait/internal/telemetry"
)

// watch makes what the roles are measured with, and the checks that all of them
// share.
func (s *services) watch(h *health.Health, t *telemetry.Telemetry) (err error) {
	s.health, s.meters = h, t.Meters()
	if s.meter, err = meter.New(s.meters); err != nil {
		return err
	}
	h.Check("temporal", func(ctx context.Context) error {
		_, err := s.temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	})
	h.Check("nats", func(ctx context.Context) error { return s.nats.FlushWithContext(ctx) })
	return meter.Loops(s.meters, h)
}

var errNotWorking = errors.New("it does not work yet, or no more")

func whether(works *atomic.Bool) func(context.Context) error {
	return func(context.Context) error {
		if !works.Load() {
			return errNotWorking
		}
		return nil
	}
}

// pollerLasts is how long ago a poller that still polls asked last, at the most: a
// poll takes a minute.
const pollerLasts = 90 * time.Second

// checkQueue has the process ready only while Temporal knows it as a poller of a
// queue.
func (s *services) checkQueue(role, queue string, kind enumspb.TaskQueueType) {
	s.health.Check(role+": queue "+queue, func(ctx context.Context) error {
		found, err := s.temporal.DescribeTaskQueue(ctx, queue, kind)
		if err != nil {
			return err
		}
		for _, p := range found.GetPollers() {
			if p.GetIdentity() == s.identity && time.Since(p.GetLastAccessTime().AsTime()) < pollerLasts {
				return nil
			}
		}
		return fmt.Errorf("Temporal does not know %s as a poller of it", s.identity) //nolint:staticcheck // a name
	})
}

// identity names the process as Temporal's SDK would.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%d@%s@", os.Getpid(), host)
}
