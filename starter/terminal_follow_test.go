package main

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tidewait/internal/api"
	"tidewait/internal/scaler"
)

// followed is a mission with a phase that is over, one that runs, one that waits
// and one whose turn has not come.
func followed(started time.Time) api.MissionDetail {
	ends, bound, ended := started.Add(time.Hour), started.Add(2*time.Hour), started.Add(time.Second)
	return api.MissionDetail{
		Mission: api.Mission{Name: "m", Status: "running", Launch: 1, Phases: 4, Backend: "process", StartedAt: &started},
		PhaseList: []api.Phase{
			{Name: "survey", Ordinal: 1, Status: "succeeded", StartedAt: &started, EndedAt: &ended},
			{Name: "build", Ordinal: 2, Status: "running", Step: "run", Node: "node-a", StartedAt: &started, Runs: []api.Run{
				{ID: "r2-1", Attempt: 1, Node: "node-a", Status: "running", Step: "run", StartedAt: started, EndsBy: &ends},
			}},
			{Name: "review", Ordinal: 3, Status: "pending", Wait: &api.Wait{
				Kind: "capacity", Code: "capacity_memory", Reason: "needs 2048 MiB of memory; node-a is short by 512 MiB of memory", Phase: "review",
				Since: started, Bound: &bound, Position: 1, Pool: "process",
			}},
			{Name: "report", Ordinal: 4, Status: "pending"},
		},
	}
}

func TestAFollowedMissionIsRedrawnInPlace(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	started := time.Now().Add(-30 * time.Minute)
	detail := followed(started)
	var over atomic.Bool
	b.answer(api.SubjectMissionShow, func() any {
		d := detail
		if over.Load() {
			d.Status, d.FailureCode, d.Failure = "failed", "wait_exceeded", "waited 2h0m0s"
		}
		return d
	})
	term := newTerminal(t, 100, 30)
	cmd := term.runs(nil, "mission", "show", "m", "--follow", "--nats.url", b.url)
	term.sees("the bars", func(shown string) bool {
		return strings.Contains(shown, `phase 2 "build" of mission m   running · run   30 min (since `) &&
			strings.Contains(shown, "  turn    ████████████░░░░░░░░░░░░  30 min of 60 (ends by ") &&
			strings.Contains(shown, `phase 3 "review" of mission m   pending · waiting for capacity`) &&
			strings.Contains(shown, "  waited  ██████░░░░░░░░░░░░░░░░░░  30 min of 120 (fails ") &&
			strings.Contains(shown, "  why     capacity_memory: needs 2048 MiB of memory; node-a is short by 512 MiB of memory\n")
	})
	looks := len(b.requests(api.SubjectMissionShow))
	term.sees("it once after more looks", func(shown string) bool {
		return len(b.requests(api.SubjectMissionShow)) > looks+3 && strings.Count(shown, "mission m   running   launch") == 1
	})

	term.resize(50, 30)
	term.sees("narrower bars", func(shown string) bool {
		return strings.Contains(shown, "  turn    ██████░░░░░░  30 min of 60 (ends by ") && strings.Count(shown, "\n  why  ") == 1
	})
	over.Store(true)
	require.Equal(t, exitWaitExceeded, exitOf(t, cmd), "the mission's fate")
	term.sees("the end", func(shown string) bool {
		return strings.Contains(shown, "mission m   failed") && strings.Contains(shown, "tidewait: mission m failed: waited 2h0m0s")
	})
	require.NotContains(t, term.written(), "\x1b[2J", "clearing the screen flickers")
}

func TestAnInterruptLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(followed(time.Now())))
	b.answer(api.SubjectWaitList, func() any { return exampleWaits() })
	for _, args := range [][]string{{"mission", "show", "m", "--follow"}, {"waits", "--watch"}} {
		term := newTerminal(t, 80, 24)
		before, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		cmd := term.runs(nil, append(args, "--nats.url", b.url)...)
		term.sees("something", func(shown string) bool { return strings.Contains(shown, "capacity_memory") })
		term.types("\x03")
		require.Equal(t, exitInterrupted, exitOf(t, cmd))
		after, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		require.Equal(t, before, after)
		term.sees("why it ended, in a line of its own", func(shown string) bool {
			return strings.Contains(shown, "\n^Ctidewait: interrupted") || strings.Contains(shown, "\ntidewait: interrupted")
		})
		require.False(t, term.display.hidden, "the cursor")
	}
}

func TestATerminalThatCannotMoveItsCursorGetsLines(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(followed(time.Now())))
	term := newTerminal(t, 100, 30)
	cmd := term.runs([]string{"TERM=dumb"}, "mission", "show", "m", "--follow", "--nats.url", b.url)
	term.sees("lines", func(shown string) bool {
		return strings.Contains(shown, "Z  phase 3 \"review\" is waiting for capacity, ")
	})
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitInterrupted, exitOf(t, cmd))
	require.NotContains(t, term.written(), "\x1b")
}

func TestNoColorIsRedrawnWithoutColours(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	b.answer(api.SubjectWaitList, always(exampleWaits()))
	term := newTerminal(t, 80, 24)
	cmd := term.runs([]string{"NO_COLOR=1"}, "waits", "--watch", "--nats.url", b.url)
	term.sees("the wait", func(shown string) bool { return strings.Contains(shown, "m/build  capacity_memory  41 min of 120  ") })
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitInterrupted, exitOf(t, cmd))
	require.NotRegexp(t, `\x1b\[[0-9;]*m`, term.written())
}

func TestAFollowedApplicationHasABarOfItsInstances(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	var running atomic.Int64
	running.Store(2)
	b.replies("wadm.api.default.model.status.shop",
		status(`{"type":"reconciling","message":"starting on 3 hosts"}`), status(`{"type":"reconciling","message":"starting on 3 hosts"}`),
		status(`{"type":"reconciling","message":"starting on 3 hosts"}`), status(`{"type":"deployed"}`))
	b.answer(api.SubjectLattice("default", "default"), func() any {
		return api.LatticeDetail{Applications: []api.LatticeApp{
			{Name: "other", Instances: []scaler.Tally{{Name: "x", Running: 9, Desired: 9}}},
			{Name: "shop", Instances: []scaler.Tally{{Name: "ui", Running: int(running.Load()), Desired: 7}, {Name: "http", Running: 1, Desired: 1}}},
		}}
	})
	term := newTerminal(t, 80, 24)
	cmd := term.runs(nil, "app", "status", "shop", "--follow", "--nats.url", b.url)
	term.sees("the bars", func(shown string) bool {
		return strings.Contains(shown, "application shop in lattice default   reconciling\n") &&
			strings.Contains(shown, "  runs    █████████░░░░░░░░░░░░░░░  3 of 8 instances\n") &&
			strings.Contains(shown, "          ██████░░░░░░░░░░░░░░░░░░  2 of 7  ui\n") &&
			strings.Contains(shown, "          ████████████████████████  1 of 1  http\n")
	})
	running.Store(7)
	require.Equal(t, exitDone, exitOf(t, cmd))
	term.sees("all of it, once", func(shown string) bool {
		return strings.Contains(shown, "application shop in lattice default   deployed\n") &&
			strings.Contains(shown, "  runs    ████████████████████████  8 of 8 instances\n") && strings.Count(shown, "application shop") == 1
	})
}

func TestLongMissionsAreFoldedToTheTerminal(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	detail := followed(time.Now())
	running := detail.PhaseList[1]
	detail.PhaseList = nil
	for i := 1; i <= 60; i++ {
		p := api.Phase{Name: "p", Ordinal: i, Status: "pending"}
		switch {
		case i < 31:
			p.Status = "succeeded"
		case i == 31:
			p = running
			p.Ordinal = 31
		}
		detail.PhaseList = append(detail.PhaseList, p)
	}
	b.answer(api.SubjectMissionShow, always(detail))
	term := newTerminal(t, 80, 12)
	term.runs(nil, "mission", "show", "m", "--follow", "--nats.url", b.url)
	term.sees("what runs, and the rest in a line each", func(shown string) bool {
		return strings.Contains(shown, "\n30 phases succeeded\nphase 31 \"build\"") && strings.Contains(shown, "\n29 phases pending\n") &&
			len(b.requests(api.SubjectMissionShow)) > 4 && strings.Count(shown, "mission m   running   launch") == 1
	})
}
