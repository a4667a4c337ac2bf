package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

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
		newFollower(l.cli, l.engine, reply).follow(ctx, ended)
	}
	<-ended
	if ctx.Err() != nil {
		return result, interrupted("interrupted; mission %s goes on: see it with `tidewait mission show %s`, or end it with `tidewait mission cancel %s --reason WHY`",
			reply.Mission, reply.Mission, reply.Mission)
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
	cli    *cli
	engine *engine
	reply  api.LaunchReply

	out    io.Writer
	width  int // of the terminal; 0: lines
	drawn  int // lines on the terminal that the next block replaces
	before *api.MissionDetail
	lost   bool // the last look failed
}

func newFollower(c *cli, e *engine, reply api.LaunchReply) *follower {
	f := &follower{cli: c, engine: e, reply: reply, out: c.out, width: c.terminal()}
	if c.structured() {
		f.out, f.width = c.errs, 0
	}
	return f
}

// follow looks until the mission has ended, and once more to tell the last of it.
func (f *follower) follow(ctx context.Context, ended <-chan struct{}) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ended:
			f.look(ctx)
			return
		case <-ticker.C:
		}
	}
}

// look shows what is new. An engine that does not answer is told once: the
// mission goes on without it, and so does the wait for its end.
func (f *follower) look(ctx context.Context) {
	detail, err := showMission(ctx, f.engine, f.reply.Mission, f.reply.Launch)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !f.lost {
			f.cli.note("tidewait: %v; still waiting for the mission", err)
		}
		f.lost, f.drawn = true, 0
		return
	}
	f.lost = false
	f.show(detail)
	f.before = &detail
}

func (f *follower) show(detail api.MissionDetail) {
	view := f.cli.view(time.Now())
	if f.width > 0 {
		block := view.Progress(detail)
		fmt.Fprint(f.out, redraw(f.drawn, block))
		f.drawn = rows(block, f.width)
		return
	}
	for _, line := range view.MissionChanges(f.before, detail) {
		fmt.Fprintln(f.out, line)
	}
}

// redraw replaces the last lines of a terminal by block.
func redraw(lines int, block string) string {
	if lines == 0 {
		return block
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J%s", lines, block)
}

// rows counts the lines that block takes on a terminal of the given width.
func rows(block string, width int) int {
	n := 0
	for line := range strings.Lines(block) {
		n += max(1, (visible(strings.TrimSuffix(line, "\n"))+width-1)/width)
	}
	return n
}

// visible counts the columns of a line, its colours left out.
func visible(line string) int {
	n := utf8.RuneCountInString(line)
	for {
		_, rest, found := strings.Cut(line, "\x1b[")
		if !found {
			return n
		}
		code, after, _ := strings.Cut(rest, "m")
		n -= utf8.RuneCountInString(code) + len("\x1b[m")
		line = after
	}
}
