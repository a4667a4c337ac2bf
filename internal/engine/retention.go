package engine

import (
	"context"
	"errors"
	"time"

	"tidewait/internal/api"
)

// Retention is how long things are kept after they ended; 0: for ever.
type Retention struct {
	Runs    time.Duration // launches with their phases and runs
	Waits   time.Duration // waits, and what people did
	Results time.Duration // branches and bundles, which gateways remove
	Logs    time.Duration // which NATS removes
}

// expired says what of a launch is not kept any more.
func (r Retention) expired(m api.MissionDetail, now time.Time) []api.Expired {
	var out []api.Expired
	add := func(what string, kept time.Duration, gone bool) {
		if gone {
			out = append(out, api.Expired{What: what, Kept: kept})
		}
	}
	old := func(kept time.Duration) bool {
		return m.EndedAt != nil && m.Launch > 0 && kept > 0 && now.Sub(*m.EndedAt) > kept
	}
	runs := m.Launch > 0 && m.Status != "draft" && len(m.PhaseList) == 0
	add("runs", r.Runs, runs)
	add("waits", r.Waits, !runs && old(r.Waits))
	add("logs", r.Logs, old(r.Logs))
	add("results", r.Results, old(r.Results))
	return out
}

// Rows are removed a few at a time, so that nobody waits for a lock for long, and
// for so long at most in one sweep.
const (
	expireBatch = 100
	expireTime  = 5 * time.Second
)

// expire removes what has been kept for long enough. What an interrupted sweep
// leaves, the next one removes.
func (s Sweep) expire(ctx context.Context) error {
	until := time.Now().Add(expireTime)
	var errs []error
	for _, e := range []struct {
		what   string
		keep   time.Duration
		remove func(context.Context, time.Duration, int) (int, error)
	}{
		{"launches", s.Kept.Runs, s.Store.ExpireLaunches},
		{"waits", s.Kept.Waits, s.Store.ExpireWaits},
		{"acts", s.Kept.Waits, s.Store.ExpireActs},
	} {
		if e.keep == 0 {
			continue
		}
		total := 0
		for {
			n, err := e.remove(ctx, e.keep, expireBatch)
			total += n
			if err != nil || n < expireBatch || time.Now().After(until) {
				errs = append(errs, err)
				break
			}
		}
		if total > 0 {
			s.Log.Info("removed what was kept for long enough", "what", e.what, "rows", total, "kept", e.keep)
		}
	}
	return errors.Join(errs...)
}
