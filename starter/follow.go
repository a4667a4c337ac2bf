package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/sdk/temporal"

	"tidewait/internal/api"
)

// followInterval lies between two looks at a mission that is followed.
const followInterval = 500 * time.Millisecond

// await waits for the end of a launch and shows what happens when asked to.
// An interrupt leaves the mission running.
func (l *launcher) await(ctx context.Context, reply api.LaunchReply, follow bool) (api.MissionResult, error) {
	ended := make(chan struct{})
	var result api.MissionResult
	var err error
	go func() {
		defer close(ended)
		err = l.temporal.GetWorkflow(ctx, reply.WorkflowID, reply.RunID).Get(ctx, &result)
	}()
	if follow {
		newFollower(l.cli, l.engine, reply.Mission, reply.Launch).follow(ctx, ended)
	}
	<-ended
	if ctx.Err() != nil {
		return result, goesOn(reply.Mission)
	}
	if err == nil || resultOf(err, &result) {
		return result, nil
	}
	return result, l.awaitFault(reply, err)
}

// resultOf reads the result that the error of a failed or cancelled mission
// carries, and reports whether there is one.
func resultOf(err error, result *api.MissionResult) bool {
	var (
		application *temporal.ApplicationError
		cancelled   *temporal.CanceledError
	)
	switch {
	case errors.As(err, &application):
		return application.HasDetails() && application.Details(result) == nil && result.Status != ""
	case errors.As(err, &cancelled):
		return cancelled.HasDetails() && cancelled.Details(result) == nil && result.Status != ""
	}
	return false
}

func (l *launcher) awaitFault(reply api.LaunchReply, err error) error {
	var broken *temporal.WorkflowExecutionError
	switch {
	case errors.As(err, &broken):
		return failed("mission %s ended without a result: %w", reply.Mission, err)
	}
	return temporalFault(fmt.Errorf("cannot wait for mission %s, which goes on: %w", reply.Mission, err))
}

// follower shows what happens to one launch: a block that is redrawn on a
// terminal, a line per change elsewhere. With structured output the lines go to
// standard error.
type follower struct {
	cli     *cli
	engine  *engine
	mission string
	launch  int

	out    io.Writer
	screen *screen // nil: lines
	before *api.MissionDetail
	lost   bool // the last look failed
	gone   bool // and will fail for ever: there is no such launch any more
}

func newFollower(c *cli, e *engine, mission string, launch int) *follower {
	f := &follower{cli: c, engine: e, mission: mission, launch: launch, out: c.out, screen: c.newScreen()}
	if c.structured() {
		f.out = c.errs
	}
	return f
}

// follow looks until the mission has ended, and once more to tell the last of it.
func (f *follower) follow(ctx context.Context, ended <-chan struct{}) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	resized := resizes(ctx)
	for {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ended:
			f.look(ctx)
			f.finish()
			return
		case <-ticker.C:
		case <-resized:
		}
	}
}

// toTheEnd looks until the mission has ended, as far as the engine knows, and
// returns how.
func (f *follower) toTheEnd(ctx context.Context) (api.MissionDetail, error) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	resized := resizes(ctx)
	for {
		f.look(ctx)
		if f.before != nil && f.before.Status != "running" {
			f.finish()
			return *f.before, nil
		}
		if f.gone {
			return api.MissionDetail{}, failed("launch %d of mission %s is not there any more, so that how it ended is not known", f.launch, f.mission)
		}
		select {
		case <-ctx.Done():
			return api.MissionDetail{}, goesOn(f.mission)
		case <-ticker.C:
		case <-resized:
		}
	}
}

// look shows what is new. An engine that does not answer is told once: the
// mission goes on without it, and so does the wait for its end.
func (f *follower) look(ctx context.Context) {
	detail, err := showMission(ctx, f.engine, f.mission, f.launch)
	if ctx.Err() != nil {
		return
	}
	if f.gone = isNotFound(err); f.gone {
		return
	}
	if err != nil {
		if !f.lost {
			if f.screen != nil {
				f.screen.leave()
			}
			f.cli.note("tidewait: %v; still waiting for the mission", err)
		}
		f.lost = true
		return
	}
	f.lost = false
	f.show(detail)
	f.before = &detail
}

func (f *follower) show(detail api.MissionDetail) {
	view := f.cli.view(time.Now())
	if f.screen != nil {
		_ = f.screen.draw(view.Progress(detail))
		return
	}
	for _, line := range view.MissionChanges(f.before, detail) {
		fmt.Fprintln(f.out, line)
	}
}

// finish leaves all that is to be seen of the mission on the terminal.
func (f *follower) finish() {
	if f.screen == nil || f.before == nil {
		return
	}
	view := f.cli.view(time.Now())
	view.Height = 0
	_ = f.screen.finish(view.Progress(*f.before))
}

// goesOn is the error of a command that was interrupted while it followed a mission.
func goesOn(mission string) error {
	return interrupted("interrupted; mission %s goes on: see it with `tidewait mission show %s`, or end it with `tidewait mission cancel %s --reason WHY`",
		mission, mission, mission)
}

// resizes tells when the terminal has another size, until ctx ends.
func resizes(ctx context.Context) <-chan os.Signal {
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(sizes) })
	return sizes
}
