package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/api"
)

// What Nomad's dev agent takes on two such processors, in milliseconds, from
// freed capacity to the blocked job's placement, and to its command running.
const (
	nomadPlaced  = 253
	nomadRunning = 1310
)

// freed measures the time from a reservation's release to the placement of the
// phase that waited for it, and to its command, by one machine's clock. Each
// mission holds the node until its sleep is ended, and waits while the one
// before it does.
func freed(ctx context.Context, b *bench) (lines []line, err error) {
	err = b.with(ctx, "freed", smallNode, nil, func(ctx context.Context, p *product) error {
		m := &handovers{bench: b, product: p}
		if err := m.measure(ctx, b.repetitions(100, 5)); err != nil {
			return err
		}
		nomad := func(measure string, figure sample, known float64, a *aim) line {
			l := line{measure: measure, figure: figure, unit: " ms", aim: a}
			if known > 0 {
				l.reference, l.known, l.absolute = "Nomad's dev agent, noted", sample{known}, true
			}
			return l
		}
		lines = []line{
			nomad(fmt.Sprintf("placed, p50 of %d", len(m.placed)), m.placed.medians(parts), nomadPlaced, atMost(100)),
			nomad("placed, p99", sample{m.placed.quantile(0.99)}, 0, atMost(250)),
			nomad("placed, the longest", sample{m.placed.most()}, 0, nil),
			nomad("command runs, p50", m.running.medians(parts), nomadRunning, atMost(500)),
			nomad("command runs, p99", sample{m.running.quantile(0.99)}, 0, nil),
			nomad("command runs, the longest", sample{m.running.most()}, 0, nil),
		}
		return nil
	})
	return lines, err
}

// handovers is the state of the section.
type handovers struct {
	*bench
	product         *product
	placed, running sample // milliseconds after the release
}

// holding tells when it began, by the host's clock, and holds the node until its
// sleep is ended; then it succeeds.
const holding = "date +%s%N; sleep 3600; true"

func (m *handovers) measure(ctx context.Context, n int) error {
	begun := make(chan *nats.Msg, n+1)
	sub, err := m.product.nats.ChanSubscribe(api.SubjectLogs, begun)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := m.product.launch(ctx, holderName(0), 1, holding); err != nil {
		return err
	}
	if _, err := startOf(ctx, begun, holderName(0)); err != nil {
		return err
	}
	for i := range n {
		if i%20 == 0 {
			m.say("freed: handover %d of %d", i+1, n)
		}
		if err := m.handover(ctx, i, begun); err != nil {
			return err
		}
	}
	return m.endHolder(ctx)
}

func holderName(i int) string { return fmt.Sprintf("h%d", i) }

// handover frees the node from mission i for mission i+1.
func (m *handovers) handover(ctx context.Context, i int, begun <-chan *nats.Msg) error {
	from, to := holderName(i), holderName(i+1)
	if _, err := m.product.launch(ctx, to, 1, holding); err != nil {
		return err
	}
	// Its workflow has shown the wait and sleeps until the next try.
	err := until(ctx, to+" waits", func(ctx context.Context) (bool, error) {
		d, err := m.product.temporal.DescribeWorkflow(ctx, api.PhaseWorkflowID(to, "p1"), "")
		if err != nil {
			return false, ignoreMissing(err)
		}
		pending := d.RawResponse.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetAttempt() > 1, nil
	})
	if err != nil {
		return err
	}
	if err := m.endHolder(ctx); err != nil {
		return err
	}
	start, err := startOf(ctx, begun, to)
	if err != nil {
		return err
	}
	var released, placed time.Time
	err = m.product.db.QueryRow(ctx, `
SELECT r.released_at, h.ended_at
FROM missions f JOIN mission_phases fp ON fp.mission_id = f.id JOIN reservations r ON r.phase_id = fp.id,
     missions t JOIN mission_phases tp ON tp.mission_id = t.id JOIN wait_history h ON h.phase_id = tp.id
WHERE f.name = $1 AND t.name = $2`, from, to).Scan(&released, &placed)
	if err != nil {
		return fmt.Errorf("read the handover from %s to %s: %w", from, to, err)
	}
	m.placed = append(m.placed, milliseconds(placed.Sub(released)))
	m.running = append(m.running, milliseconds(start.Sub(released)))
	return nil
}

// endHolder ends the sleep that holds the node.
func (m *handovers) endHolder(ctx context.Context) error {
	return until(ctx, "the holder sleeps and can be woken", func(context.Context) (bool, error) {
		pid := descendant(m.product.node.PID(), "sleep")
		if pid == 0 {
			return false, nil
		}
		return true, syscall.Kill(pid, syscall.SIGTERM)
	})
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// logMission is the place of the mission in the subject of a log, after tidewait, log
// and the node.
const logMission = 3

// startOf returns the time that a mission's command printed.
func startOf(ctx context.Context, begun <-chan *nats.Msg, mission string) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the command of %s did not begin", mission))
	defer cancel()
	for {
		select {
		case msg := <-begun:
			if strings.Split(msg.Subject, ".")[logMission] != mission {
				continue
			}
			nanoseconds, err := strconv.ParseInt(strings.TrimSpace(string(msg.Data)), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("the command of %s printed %q instead of a time", mission, msg.Data)
			}
			return time.Unix(0, nanoseconds), nil
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}
