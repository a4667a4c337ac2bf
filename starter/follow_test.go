package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// A followed mission is told to its end, also when the engine is away between.
func TestFollowerTellsChangesOnce(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	var got outcome
	c, out, errs := captured()
	e := &engine{conn: b.conn, url: b.url}
	f := newFollower(c, e, "m", 1)
	ctx := context.Background()

	f.look(ctx)
	f.look(ctx)
	detail := api.MissionDetail{
		Mission:   api.Mission{Name: "m", Status: "running", Launch: 1, Phases: 1, Backend: "process"},
		PhaseList: []api.Phase{{Name: "p", Ordinal: 1, Status: "pending"}},
	}
	b.answer(api.SubjectMissionShow, func() any { return detail })
	f.look(ctx)
	f.look(ctx)
	detail.PhaseList = []api.Phase{{Name: "p", Ordinal: 1, Status: "succeeded"}}
	f.look(ctx)

	got = outcome{0, out.String(), errs.String()}
	require.Regexp(t, `^\d\d:\d\d:\d\dZ  mission m, launch 1: 1 phase on process\n\d\d:\d\d:\d\dZ  phase 1 "p" succeeded\n$`, got.out)
	require.Equal(t, "tidewait: no engine answers on "+b.url+
		"; start one with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url; still waiting for the mission\n", got.errors)
	require.Equal(t, `{"name":"m","launch":1}`, b.requests(api.SubjectMissionShow)[0])
}

// A launch that is removed while it is followed will never be told to have ended.
func TestFollowingEndsWhenTheLaunchIsGone(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	running := api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 3, Phases: 1, Backend: "process"}}
	looks := 0
	b.answer(api.SubjectMissionShow, func() any {
		if looks++; looks > 3 {
			return &api.Error{Code: "not_found", Message: "show mission m: launch 3 has expired: not found"}
		}
		return running
	})
	got := b.run("mission", "show", "m", "--follow")
	require.Equal(t, outcome{1, got.out, "tidewait: launch 3 of mission m is not there any more, so that how it ended is not known\n"}, got)
}

// With --follow a program gets what it gets without: the mission, as it is in the end.
func TestAFollowedMissionForProgramsIsTheMission(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	detail := api.MissionDetail{Mission: api.Mission{Name: "m", Status: "running", Launch: 1, Phases: 1, Backend: "process"}}
	looks := 0
	b.answer(api.SubjectMissionShow, func() any {
		if looks++; looks > 3 {
			detail.Status, detail.FailureCode, detail.Failure = "failed", "wait_exceeded", "waited 2 h"
		}
		return detail
	})
	got := b.run("mission", "show", "m", "--follow", "-o", "json")
	require.Equal(t, exitWaitExceeded, got.code)
	require.Equal(t, b.run("mission", "show", "m", "-o", "json").out, got.out)
	require.Contains(t, got.out, `"failureCode": "wait_exceeded"`)
}
