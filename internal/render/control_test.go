package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

func TestAPhaseTellsWhatPeopleDid(t *testing.T) {
	p := api.Phase{
		Name: "publish", Ordinal: 2, Status: "cancelled", Attempt: 1, FailureCode: "cancelled", Failure: "cancelled by ann: enough",
		Acts: []api.Act{
			{Verb: "nudge", At: at("12:59:00")},
			{Verb: "release", Actor: "bob", Note: "it is right", At: at("12:59:10")},
			{Verb: "cancel", Actor: "ann", Note: "enough", At: at("13:00:00")},
		},
		Waits: []api.PastWait{{
			Kind: "hold", Code: "awaiting_release", Reason: "held by its document", Since: at("12:58:00"), Ended: at("12:59:10"),
			EndedBy: "released", Actor: "bob", Note: "it is right",
		}},
		Partial: &api.Partial{Branch: "tidewait/m/1-partial/publish", Commit: "0123456789abcdef"},
	}
	require.Equal(t, `phase 2 "publish" of mission m   cancelled
  why     cancelled: cancelled by ann: enough
  nudge   by somebody, 12:59:00Z (67 s ago)
  release by bob, 12:59:10Z (57 s ago): it is right
  cancel  by ann, 13:00:00Z (7 s ago): enough
  waited  70 s (12:58:00Z to 12:59:10Z) for hold, then released by bob (it is right); last reason awaiting_release: held by its document
  partial 0123456789ab on branch tidewait/m/1-partial/publish; no phase starts from it
`, plainText.Phase("m", p))
}

func TestAPhaseThatBacksOffTellsItsTries(t *testing.T) {
	p := api.Phase{Name: "fetch", Ordinal: 1, Status: "pending", Attempt: 3, Wait: &api.Wait{
		Kind: "backoff", Code: "command_failed", Reason: "attempt 2 of 3 failed", Since: at("13:00:00"), NextCheck: ptr(at("13:00:20")), Attempts: 2,
	}}
	require.Equal(t, `phase 1 "fetch" of mission m   pending · backing off   7 s, no bound
  why     command_failed: attempt 2 of 3 failed
  since   13:00:00Z (7 s ago)
  tries   2 failed, next 13:00:20Z (in 13 s)
`, plainText.Phase("m", p))
}

func TestARerunTellsWhatItTookOver(t *testing.T) {
	m := api.MissionDetail{RerunOf: 2, Acts: []api.Act{{Verb: "cancel", Actor: "ann", At: at("13:00:00")}}, PhaseList: []api.Phase{
		{Name: "survey", Ordinal: 1, Status: "succeeded", Commit: "0123456789abcdef", TakenFrom: 2},
	}}
	m.Name, m.Status, m.Launch = "m", "running", 3
	require.Equal(t, `mission m   running   launch 3
  rerun   of launch 2
  cancel  by ann, 13:00:00Z (7 s ago)

phase 1 "survey" of mission m   succeeded
  commit  0123456789ab, taken over from launch 2
`, plainText.Mission(m))
	require.Contains(t, plainText.MissionChanges(nil, m), `13:00:07Z  phase 1 "survey" succeeded, commit 0123456789ab, taken over from launch 2`)
}

func TestHowARunEnded(t *testing.T) {
	for want, r := range map[string]api.Run{
		"":                  {},
		"exit 7":            {ExitCode: new(7)},
		"exit 137":          {ExitCode: new(137)},
		"killed by SIGKILL": {Signal: "SIGKILL"},
		"out of memory":     {Signal: "SIGKILL", OutOfMemory: true},
	} {
		require.Equal(t, want, render.RunOutcome(r))
	}
	require.Equal(t, "out of memory", render.RunOutcome(api.Run{ExitCode: new(137), OutOfMemory: true}))
}

func TestPartialResultsAreToldApart(t *testing.T) {
	r := api.Results{Branch: "tidewait/m/1", Commits: []api.Commit{}, Partial: []api.Commit{{
		Commit: "0123456789abcdef", Phase: "build", Run: "r2-1", Subject: "m: build (partial)", When: at("13:00:00"), Files: 1, Insertions: 2,
		Branch: "tidewait/m/1-partial/build",
	}}}
	require.Equal(t, `branch tidewait/m/1
no results yet
partial, of cancelled phases; each is on branch tidewait/m/1-partial/build
COMMIT        PHASE  RUN   FILES  LINES  WHEN                 SUBJECT
0123456789ab  build  r2-1  1      +2 -0  13:00:00Z (7 s ago)  m: build (partial)
`, plainText.Results(r))
	r.Partial = append(r.Partial, r.Partial[0])
	require.Contains(t, plainText.Results(r), "each is on a branch tidewait/m/1-partial/PHASE\n")
}
