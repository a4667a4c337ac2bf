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
	s.meters = t.Meters()
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

// roleHealth is the health of one role of a process.
type roleHealth struct {
	*health.Health
	of    *health.Health
	works atomic.Bool // it has said that it is ready, and has not ended
}

var errNotWorking = errors.New("it does not work yet, or no more")

func newRoleHealth(of *health.Health, role string) *roleHealth {
	h := &roleHealth{Health: of.Part(), of: of}
	h.Check(role+": works", func(context.Context) error {
		if !h.works.Load() {
			return errNotWorking
		}
		return nil
	})
	return h
}

// ended says that the role has ended. By itself, as that of a retired node does, it
// is no concern of the process any more, which goes on with its others; when the
// process stops, it is not ready.
func (h *roleHealth) ended(ctx context.Context) {
	h.works.Store(false)
	if ctx.Err() == nil {
		h.of.Withdraw(h.Health)
	}
}

// pollerLasts is how long ago a poller that still polls asked last, at the most: a
// poll takes a minute.
const pollerLasts = 90 * time.Second

// checkQueue has the process ready only while Temporal knows it as a poller of a
// queue, or it works on as much of it as it takes at a time: then it does not poll.
func (s *services) checkQueue(role, queue string, kind enumspb.TaskQueueType, taken *slots) {
	s.health.Check(role+": queue "+queue, func(ctx context.Context) error {
		found, err := s.temporal.DescribeTaskQueue(ctx, queue, kind)
		if err != nil {
			return err
		}
		if taken.full() {
			return nil
		}
		for _, p := range found.GetPollers() {
			if p.GetIdentity() == s.identity && time.Since(p.GetLastAccessTime().AsTime()) < pollerLasts {
				return nil
			}
		}
		return fmt.Errorf("Temporal does not know %s as a poller of it", s.identity) //nolint:staticcheck // a name
	})
}

// served has the process ready only while it serves a service on NATS.
func (s *services) served(name string) func(check func() error) {
	return func(check func() error) {
		s.health.Check(name, func(context.Context) error { return check() })
	}
}

// identity names the process as Temporal's SDK would.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%d@%s@", os.Getpid(), host)
}
