package store_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
	"tidewait/internal/vm"
)

var ctx = context.Background()

func gate(t testing.TB, s *store.Store, phase int64, g ledger.Gate) ledger.Outcome {
	t.Helper()
	o, err := s.Gate(ctx, phase, g)
	require.NoError(t, err)
	return o
}

func show(t testing.TB, s *store.Store, name string, launch int) api.MissionDetail {
	t.Helper()
	m, err := s.ShowMission(ctx, name, launch, time.Minute)
	require.NoError(t, err)
	return m
}

// noteWait records a wait that a workflow declares, and returns since when it waits.
func noteWait(t testing.TB, s *store.Store, w ledger.OpenWait) time.Time {
	t.Helper()
	since, err := s.NoteWait(context.Background(), w)
	require.NoError(t, err)
	return since
}

func waits(t testing.TB, s *store.Store) []api.Wait {
	t.Helper()
	list, err := s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	return list.Waits
}

// age lets stamps of a phase and its wait be that much older.
func age(t testing.TB, db *pgx.Conn, columns ...string) {
	t.Helper()
	for _, c := range columns {
		_, err := db.Exec(ctx, "UPDATE mission_phases SET "+c+" = "+c+" - interval '1 hour'")
		require.NoError(t, err)
	}
}

func TestAHoldIsStampedOnceAndReleasedOnce(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 4096))
	id := launch(t, s, draft("m", 1, 512, time.Hour)).Phases[0].ID
	hold := &ledger.Hold{Reason: "look first"}

	first := gate(t, s, id, ledger.Gate{Hold: hold}).Paused
	require.NotNil(t, first)
	again := gate(t, s, id, ledger.Gate{Hold: hold}).Paused

	require.Equal(t, first, again, "since is kept")
	require.Equal(t, []string{"hold", "awaiting_release", "held by its document until somebody releases it: look first"}, []string{first.Kind, first.Code, first.Sentence})
	require.True(t, first.Bound.IsZero())
	w := waits(t, s)
	require.Len(t, w, 1)
	require.Equal(t, []any{"hold", "awaiting_release", "m", "p1", "phase.m.p1"}, []any{w[0].Kind, w[0].Code, w[0].Mission, w[0].Phase, w[0].WorkflowID})
	require.True(t, first.Since.Equal(w[0].Since))
	require.Nil(t, w[0].Bound)
	require.Equal(t, "p1", show(t, s, "m", 0).Current)
	res, err := s.Pass(ctx, pool, nil, ledger.WakeEvent)
	require.NoError(t, err)
	require.Equal(t, store.PassResult{Outcomes: map[int64]ledger.Outcome{}}, res, "a held phase is not in the queue, though there is room")

	release := ledger.Act{Key: "k1", Verb: "release", Actor: "ann", Note: "fine"}
	for range 2 {
		require.Equal(t, ledger.Outcome{}, gate(t, s, id, ledger.Gate{Hold: hold, Release: &release}))
	}
	require.Equal(t, ledger.Outcome{}, gate(t, s, id, ledger.Gate{Hold: hold}), "what was released is not held again")
	require.Empty(t, waits(t, s))
	p := show(t, s, "m", 0).PhaseList[0]
	require.Len(t, p.Waits, 1)
	require.Equal(t, []string{"hold", "awaiting_release", "released", "ann", "fine"},
		[]string{p.Waits[0].Kind, p.Waits[0].Code, p.Waits[0].EndedBy, p.Waits[0].Actor, p.Waits[0].Note})
	require.Len(t, p.Acts, 1)
	require.Equal(t, []string{"release", "ann", "fine"}, []string{p.Acts[0].Verb, p.Acts[0].Actor, p.Acts[0].Note})
	require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Placed)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM mission_phases WHERE released_by = 'ann' AND release_note = 'fine'"))
}

func TestAHoldFailsAtItsBoundUnlessItWasReleased(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 2, 512, time.Hour))
	hold := &ledger.Hold{MaxWait: 30 * time.Minute}
	first := gate(t, s, l.Phases[0].ID, ledger.Gate{Hold: hold}).Paused
	require.Equal(t, 30*time.Minute, first.Bound.Sub(first.Since))
	require.Equal(t, 30*time.Minute, first.Left.Round(time.Minute))

	early := gate(t, s, l.Phases[0].ID, ledger.Gate{Hold: hold, Expire: true}).Paused
	require.NotNil(t, early, "the database's clock has not reached the bound")
	require.True(t, first.Bound.Equal(early.Bound))

	gate(t, s, l.Phases[1].ID, ledger.Gate{Hold: hold})
	age(t, db, "held_since", "held_bound")
	ended := gate(t, s, l.Phases[0].ID, ledger.Gate{Hold: hold, Expire: true}).Ended
	require.Equal(t, &ledger.Ended{
		Status: "failed", FailureCode: "wait_exceeded",
		Failure: "waited 30m0s for its release, the longest allowed; it was held by its document until somebody releases it",
	}, ended)
	require.Equal(t, "expired", show(t, s, "m", 0).PhaseList[0].Waits[0].EndedBy)
	require.Equal(t, ledger.Outcome{}, gate(t, s, l.Phases[1].ID, ledger.Gate{Hold: hold, Expire: true, Release: &ledger.Act{Key: "k", Verb: "release"}}),
		"a release that came with the bound counts")
}

func TestACancelledHoldSaysWho(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 1, 512, time.Hour))
	gate(t, s, l.Phases[0].ID, ledger.Gate{Hold: &ledger.Hold{}})
	by := &ledger.Act{Key: "c", Verb: "cancel", Actor: "ann", Note: "not needed"}
	for range 2 {
		_, err := s.FinishPhase(ctx, l.Phases[0].ID, ledger.RunEnd{Status: "cancelled"}, ledger.Ended{Status: "cancelled", FailureCode: "cancelled", Failure: "x", By: by})
		require.NoError(t, err)
	}
	end := ledger.MissionEnd{Status: "cancelled", FailureCode: "cancelled", Failure: "x", By: &ledger.Act{Key: "m", Verb: "cancel", Actor: "bob"}}
	require.NoError(t, s.FinishMission(ctx, l.MissionID, l.Launch, end))

	m := show(t, s, "m", 0)
	require.Equal(t, []string{"cancelled", "ann"}, []string{m.PhaseList[0].Waits[0].EndedBy, m.PhaseList[0].Waits[0].Actor})
	require.Len(t, m.PhaseList[0].Acts, 1)
	require.Equal(t, []string{"cancel", "ann", "not needed"}, []string{m.PhaseList[0].Acts[0].Verb, m.PhaseList[0].Acts[0].Actor, m.PhaseList[0].Acts[0].Note})
	require.Len(t, m.Acts, 1)
	require.Equal(t, []string{"cancel", "bob"}, []string{m.Acts[0].Verb, m.Acts[0].Actor})
	require.Empty(t, waits(t, s))
}

func TestNudgesAreRecordedOnce(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 1, 512, time.Hour))
	acts := []ledger.Act{{Key: "n/1", Verb: "nudge", Actor: "ann"}, {Key: "n/2", Verb: "nudge"}}
	for range 2 {
		require.NoError(t, s.RecordActs(ctx, l.Phases[0].ID, acts))
	}
	require.Len(t, show(t, s, "m", 0).PhaseList[0].Acts, 2)
}

// fail places a phase and lets its run fail.
func fail(t testing.TB, s *store.Store, phase int64, attempt, attempts int) ledger.BackedOff {
	t.Helper()
	require.NotNil(t, look(t, s, phase, attempt, ledger.WakeFirst).Placed)
	return backOff(t, s, phase, attempt, attempts)
}

func backOff(t testing.TB, s *store.Store, phase int64, attempt, attempts int) ledger.BackedOff {
	t.Helper()
	out, err := s.BackOff(ctx, ledger.BackOff{
		PhaseID: phase, Attempt: attempt, Attempts: attempts, First: 10 * time.Second,
		Run: ledger.RunEnd{Status: "failed", Exit: &vm.Exit{Code: 2}, FailureCode: "command_failed", Failure: `command "make" exited with code 2`},
	})
	require.NoError(t, err)
	return out
}

func TestABackOffKeepsThePhaseOutOfTheQueueAndItsPlaceInIt(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	id := launch(t, s, draft("m", 1, 1000, time.Hour)).Phases[0].ID

	require.Equal(t, ledger.BackedOff{Attempt: 2}, fail(t, s, id, 1, 3))
	require.Equal(t, ledger.BackedOff{Attempt: 2}, backOff(t, s, id, 1, 3), "once")

	require.Zero(t, count(t, db, "SELECT count(*) FROM reservations WHERE released_at IS NULL"))
	w := waits(t, s)
	require.Len(t, w, 1)
	require.Equal(t, []any{"backoff", "command_failed", "m", "p1", 1}, []any{w[0].Kind, w[0].Code, w[0].Mission, w[0].Phase, w[0].Attempts})
	require.Equal(t, `attempt 1 of 3 failed: command "make" exited with code 2; attempt 2 begins after a pause of 10s`, w[0].Reason)
	require.Equal(t, 10*time.Second, w[0].NextCheck.Sub(w[0].Since))
	require.Nil(t, w[0].Bound)
	require.Equal(t, "p1", show(t, s, "m", 0).Current)
	res, err := s.Pass(ctx, pool, nil, ledger.WakeEvent)
	require.NoError(t, err)
	require.Zero(t, res.Admitted, "it is not time yet, though there is room")

	// Somebody else may have the node meanwhile; the first one to ask was this.
	later := launch(t, s, draft("later", 1, 1000, time.Hour)).Phases[0].ID
	require.NotNil(t, look(t, s, later, 1, ledger.WakeFirst).Placed)
	last := launch(t, s, draft("last", 1, 1000, time.Hour)).Phases[0].ID
	require.Equal(t, 1, look(t, s, last, 1, ledger.WakeFirst).Waiting.Position)

	paused := gate(t, s, id, ledger.Gate{}).Paused
	require.NotNil(t, paused, "a workflow that was reset learns that it backs off")
	require.Equal(t, []any{"backoff", "command_failed", w[0].Reason}, []any{paused.Kind, paused.Code, paused.Sentence})
	require.True(t, w[0].Since.Equal(paused.Since))
	require.True(t, w[0].NextCheck.Equal(paused.Next))
	require.Positive(t, paused.Left)
	for range 2 {
		require.Equal(t, ledger.Outcome{}, gate(t, s, id, ledger.Gate{Attempt: 2, Resume: ledger.WakeNudge, By: &ledger.Act{Verb: "nudge", Actor: "ann"}}))
	}
	require.Equal(t, 1, look(t, s, id, 2, ledger.WakeFirst).Waiting.Position, "its place is that of its first asking")

	past := show(t, s, "m", 0).PhaseList[0].Waits
	require.Len(t, past, 1)
	require.Equal(t, []string{"backoff", "retried", "nudge", "ann"}, []string{past[0].Kind, past[0].EndedBy, past[0].WokenBy, past[0].Actor})
	runs := show(t, s, "m", 0).PhaseList[0].Runs
	require.Equal(t, []any{"failed", 2}, []any{runs[0].Status, *runs[0].ExitCode})
}

// A workflow that was reset to its wait for capacity asks for a node without a
// look at its gate. Whoever asks in the same pass is not kept from its node.
func TestAPhaseThatIsPausedMayAskWithoutAGate(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024), node("b", 1024))
	id := launch(t, s, draft("m", 1, 1000, time.Hour)).Phases[0].ID
	fail(t, s, id, 1, 3)
	held := launch(t, s, draft("held", 1, 1000, time.Hour)).Phases[0].ID
	hold := gate(t, s, held, ledger.Gate{Hold: &ledger.Hold{Reason: "look first", MaxWait: time.Hour}}).Paused
	want := gate(t, s, id, ledger.Gate{}).Paused
	for name, l := range map[string]store.Look{
		"the-attempt-before": {Attempt: 1, Wake: ledger.WakeTimer},
		"its-attempt":        {Attempt: 2, Wake: ledger.WakeTimer},
		"its-bound":          {Attempt: 1, Wake: ledger.WakeTimer, Expire: true},
	} {
		t.Run(name, func(t *testing.T) {
			other := launch(t, s, draft("beside-"+name, 1, 1000, time.Hour)).Phases[0].ID
			l.PhaseID = id
			ofHeld := l
			ofHeld.PhaseID = held

			res, err := s.Pass(ctx, pool, []store.Look{l, ofHeld, {PhaseID: other, Attempt: 1, Wake: ledger.WakeFirst}}, ledger.WakeTimer)

			require.NoError(t, err)
			require.Equal(t, 1, res.Admitted)
			require.NotNil(t, res.Outcomes[other].Placed)
			for phase, want := range map[int64]ledger.Pause{id: *want, held: *hold} {
				got := res.Outcomes[phase].Paused
				require.NotNil(t, got)
				require.Positive(t, got.Left)
				require.LessOrEqual(t, got.Left, want.Left)
				want.Left = got.Left
				require.Equal(t, want, *got)
			}
			require.Equal(t, 2, count(t, db, "SELECT count(*) FROM mission_phases WHERE id = ANY($1) AND queued_at IS NULL", []int64{id, held}))
			finish(t, s, other)
		})
	}
}

// A workflow that was reset repeats the waits it had declared by then, beside what
// the database has found of its phase since.
func TestAResetWorkflowLeavesThePauseOfItsPhase(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 2, 1000, time.Hour))
	backing, held := l.Phases[0].ID, l.Phases[1].ID
	fail(t, s, backing, 1, 3)
	ofHold := ledger.Gate{Hold: &ledger.Hold{Reason: "look first"}}
	looks := []func() ledger.Pause{
		func() ledger.Pause { return *gate(t, s, backing, ledger.Gate{}).Paused },
		func() ledger.Pause { return *gate(t, s, held, ofHold).Paused },
	}
	workflow := []string{"phase.m.p1", "phase.m.p2"}
	phases := []int64{backing, held}
	for i, look := range looks {
		first := look()

		require.NoError(t, s.ClearWait(ctx, workflow[i]))

		require.Len(t, waits(t, s), i+1, "the pause is not the workflow's to end")
		require.Equal(t, first.Sentence, look().Sentence)

		noteWait(t, s, ledger.OpenWait{
			WorkflowID: workflow[i], MissionID: l.MissionID, PhaseID: phases[i], Kind: "node", Code: "node_silent", Reason: "node a is silent", Since: first.Since,
		})
		require.NoError(t, s.ClearWait(ctx, workflow[i]))
		require.Len(t, waits(t, s), i)

		again := look()
		require.Equal(t, []string{first.Kind, first.Code}, []string{again.Kind, again.Code})
		require.True(t, first.Next.Equal(again.Next))
		require.False(t, again.Since.IsZero())
		require.Len(t, waits(t, s), i+1, "it is shown again")
	}
	again := gate(t, s, backing, ledger.Gate{}).Paused
	require.Equal(t, `an attempt failed: command "make" exited with code 2`, again.Sentence)
	require.Equal(t, 1, waits(t, s)[0].Attempts)
	require.Equal(t, ledger.Outcome{}, gate(t, s, backing, ledger.Gate{Attempt: 2, Resume: ledger.WakeTimer}))
	require.NotNil(t, look(t, s, backing, 2, ledger.WakeFirst).Placed)
}

func TestABackOffNamesAFailureThatIsNotTheCommands(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	id := launch(t, s, draft("m", 1, 1000, time.Hour)).Phases[0].ID
	require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Placed)

	_, err := s.BackOff(ctx, ledger.BackOff{
		PhaseID: id, Attempt: 1, Attempts: 2, First: 10 * time.Second,
		Run: ledger.RunEnd{Status: "failed", FailureCode: "turn_exceeded", Failure: "it ran for its whole turn of 1h0m0s"},
	})

	require.NoError(t, err)
	w := waits(t, s)[0]
	require.Equal(t, "command_failed", w.Code, "the codes of waits are a closed list")
	require.Equal(t, "attempt 1 of 2 failed with turn_exceeded: it ran for its whole turn of 1h0m0s; attempt 2 begins after a pause of 10s", w.Reason)
}

func TestFinishingAPhaseAgainTellsWhatWasKept(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	id := launch(t, s, draft("m", 1, 1000, time.Hour)).Phases[0].ID
	require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Placed)
	end := ledger.Ended{
		Status: "cancelled", FailureCode: "cancelled", Failure: "cancelled by ann: enough",
		Partial: &ledger.Partial{Branch: "tidewait/m/1-partial/p1", Commit: "c9"},
	}
	for range 2 {
		got, err := s.FinishPhase(ctx, id, ledger.RunEnd{Status: "cancelled"}, end)
		require.NoError(t, err)
		require.Equal(t, end, got)
	}
	got, err := s.FinishPhase(ctx, id, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded", Commit: "c1"})
	require.NoError(t, err)
	require.Equal(t, end, got, "what it ended as first")
	require.Equal(t, ledger.Outcome{Ended: &end}, look(t, s, id, 1, ledger.WakeFirst), "a workflow that was reset is told the same")
}

func TestAttemptsAreCountedByTheDatabase(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	id := launch(t, s, draft("m", 1, 1000, time.Hour)).Phases[0].ID
	fail(t, s, id, 1, 3)
	gate(t, s, id, ledger.Gate{Attempt: 2, Resume: ledger.WakeTimer})
	require.NotNil(t, look(t, s, id, 2, ledger.WakeFirst).Placed)
	// A node that is lost takes no attempt.
	attempt, err := s.RetryPhase(ctx, id, 2, ledger.RunEnd{Status: "lost", FailureCode: "node_lost"})
	require.NoError(t, err)
	require.Equal(t, 3, attempt)

	require.Equal(t, ledger.BackedOff{Attempt: 4}, fail(t, s, id, 3, 3))
	require.Contains(t, waits(t, s)[0].Reason, "attempt 2 of 3 failed: ")
	require.Contains(t, waits(t, s)[0].Reason, "; attempt 3 begins after a pause of 20s")
	require.NotNil(t, gate(t, s, id, ledger.Gate{Attempt: 2, Resume: ledger.WakeTimer}).Paused, "what ended an earlier back-off does not end this one")
	gate(t, s, id, ledger.Gate{Attempt: 4, Resume: ledger.WakeTimer})

	require.Equal(t, ledger.BackedOff{Attempt: 4, Exhausted: true}, fail(t, s, id, 4, 3))
	require.Equal(t, ledger.BackedOff{Attempt: 4, Exhausted: true}, backOff(t, s, id, 4, 3), "the run is still open")
}

func TestPausesDoubleUpToFiveMinutes(t *testing.T) {
	var got []time.Duration
	for n := 1; n <= 9; n++ {
		got = append(got, ledger.PauseAfter(n, 10*time.Second))
	}
	require.Equal(t, []time.Duration{
		10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute,
	}, got)
	require.Equal(t, 5*time.Minute, ledger.PauseAfter(1, time.Hour))
}

func TestAPhaseThatEndsWhileItIsPausedLeavesNothing(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 2, 1000, time.Hour))
	fail(t, s, l.Phases[0].ID, 1, 2)
	lost := ledger.MissionEnd{Status: "failed", FailureCode: "workflow_lost", Failure: "gone"}
	require.NoError(t, s.FinishMission(ctx, l.MissionID, l.Launch, lost))

	m := show(t, s, "m", 0)
	require.Equal(t, []string{"failed", "workflow_lost"}, []string{m.PhaseList[0].Status, m.PhaseList[0].FailureCode})
	require.Equal(t, []string{"cancelled", "mission_ended"}, []string{m.PhaseList[1].Status, m.PhaseList[1].FailureCode})
	require.Empty(t, waits(t, s))
	require.Zero(t, count(t, db, "SELECT count(*) FROM mission_phases WHERE retry_at IS NOT NULL"))
}

func TestHowARunEndedIsToldApart(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	for name, exit := range map[string]vm.Exit{
		"code": {Code: 137}, "signal": {Signal: "SIGKILL"}, "memory": {Signal: "SIGKILL", OOM: true}, "shell": {Code: 137, OOM: true},
	} {
		id := launch(t, s, draft(name, 1, 1000, time.Hour)).Phases[0].ID
		require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Placed)
		_, err := s.FinishPhase(ctx, id, ledger.RunEnd{Status: "failed", Exit: &exit}, ledger.Ended{Status: "failed"})
		require.NoError(t, err)
		r := show(t, s, name, 0).PhaseList[0].Runs[0]
		require.Equal(t, exit.OOM, r.OutOfMemory, name)
		require.Equal(t, exit.Signal, r.Signal, name)
		if exit.Signal == "" {
			require.Equal(t, 137, *r.ExitCode, name)
		} else {
			require.Nil(t, r.ExitCode, name)
		}
	}
}

func TestARerunTakesOverWhatWasCommitted(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 4096))
	l := launch(t, s, draft("m", 3, 512, time.Hour))
	require.NoError(t, s.SetCheckout(ctx, l.MissionID, 1, "tidewait/m/1", "base"))
	for i, end := range []ledger.Ended{{Status: "succeeded", Commit: "c1"}, {Status: "failed", FailureCode: "command_failed", Failure: "x"}} {
		_, err := s.FinishPhase(ctx, l.Phases[i].ID, ledger.RunEnd{}, end)
		require.NoError(t, err)
	}
	require.NoError(t, s.FinishMission(ctx, l.MissionID, 1, ledger.MissionEnd{Status: "failed", FailureCode: "command_failed", Failure: "phase p2: x"}))

	last, err := s.LastLaunch(ctx, "m", "second-run")
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"m","spec":{"backend":"process","phases":[]}}`, string(last.Document))
	last.Document = nil
	require.Equal(t, store.LastLaunch{Launch: 1, Gateway: "gw", Base: "base", Phases: []store.LaunchPhase{
		{"p1", "succeeded", "c1"}, {"p2", "failed", ""}, {"p3", "cancelled", ""},
	}}, last)

	d := draft("m", 3, 512, time.Hour)
	d.WorkflowRun, d.Rerun = "second-run", &store.Rerun{Of: 1, Gateway: "gw", Commit: "c1", Commits: []string{"c1"}}
	d.Document = json.RawMessage(`{"name":"m","spec":{"backend":"process","phases":[],"turn":7}}`)
	d.Phases[0].Demand.Resources.MemoryMiB = 1 << 20 // it does not run again, so no node need have that
	second := launch(t, s, d)
	require.Equal(t, &ledger.Rerun{Of: 1, First: 1, Commit: "c1"}, second.Rerun)
	require.Equal(t, second, launch(t, s, d), "the same workflow run launches once")
	own, err := s.LastLaunch(ctx, "m", "second-run")
	require.NoError(t, err)
	require.True(t, own.Own)
	require.NoError(t, s.SetCheckout(ctx, l.MissionID, 2, "tidewait/m/2", "c1"))
	again, err := s.LastLaunch(ctx, "m", "third-run")
	require.NoError(t, err)
	require.Equal(t, []any{2, "base"}, []any{again.Launch, again.Base}, "what the first phase started from, not what this launch did")

	m := show(t, s, "m", 0)
	require.Equal(t, []any{2, 1, 1, "p2"}, []any{m.Launch, m.RerunOf, m.PhasesDone, m.PhaseList[1].Name})
	require.Equal(t, []any{"succeeded", "c1", 1}, []any{m.PhaseList[0].Status, m.PhaseList[0].Commit, m.PhaseList[0].TakenFrom})
	require.Equal(t, []any{"pending", 0}, []any{m.PhaseList[1].Status, m.PhaseList[1].TakenFrom})
	earlier := show(t, s, "m", 1)
	require.Equal(t, []any{"failed", "phase p2: x", "tidewait/m/1", "base", 0}, []any{earlier.Status, earlier.Failure, earlier.Branch, earlier.BaseCommit, earlier.RerunOf})
	require.JSONEq(t, `{"name":"m","spec":{"backend":"process","phases":[]}}`, string(earlier.Document))
	require.NotNil(t, earlier.EndedAt)
}

func TestTheLastLaunchOfWhatIsNot(t *testing.T) {
	s, _ := open(t, rules)
	_, err := s.LastLaunch(ctx, "nowhere", "r")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.ShowMission(ctx, "nowhere", 0, time.Minute)
	require.ErrorIs(t, err, store.ErrNotFound)
	register(t, s, node("a", 64))
	_, refused, err := s.Launch(ctx, draft("big", 1, 512, time.Hour))
	require.NoError(t, err)
	require.NotEmpty(t, refused)
	last, err := s.LastLaunch(ctx, "big", "r")
	require.NoError(t, err)
	require.Zero(t, last.Launch)
	_, err = s.ShowMission(ctx, "big", 3, time.Minute)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestACancelBesideAPassLeavesNoWait lets phases end while a pass that has seen
// them waiting writes what it found.
func TestACancelBesideAPassLeavesNoWait(t *testing.T) {
	const rounds = 200
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holder := launch(t, s, draft("holder", 1, 1000, time.Hour)).Phases[0].ID
	require.NotNil(t, look(t, s, holder, 1, ledger.WakeFirst).Placed)
	waiters := launch(t, s, draft("waiter", rounds, 1000, time.Hour)).Phases
	for _, w := range waiters {
		require.NotNil(t, look(t, s, w.ID, 1, ledger.WakeFirst).Waiting)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := s.Pass(ctx, pool, []store.Look{{PhaseID: w.ID, Attempt: 1, Wake: ledger.WakeTimer}}, ledger.WakeTimer); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := s.FinishPhase(ctx, w.ID, ledger.RunEnd{Status: "cancelled"}, ledger.Ended{Status: "cancelled"}); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
	}
	require.Zero(t, count(t, db, "SELECT count(*) FROM capacity_waits"))
}

func TestAWaitThatAnotherTakesThePlaceOfIsKept(t *testing.T) {
	s, _ := open(t, rules)
	register(t, s, node("a", 1024))
	l := launch(t, s, draft("m", 1, 1000, time.Hour))
	id := l.Phases[0].ID
	placed := look(t, s, id, 1, ledger.WakeFirst).Placed
	require.NotNil(t, placed)
	require.NoError(t, s.NoteSecretsWait(ctx, placed.RunID, "gateway g does not answer", time.Minute, time.Second))

	w := ledger.OpenWait{
		WorkflowID: "phase.m.p1", MissionID: l.MissionID, PhaseID: id, Kind: "node", Code: "node_silent",
		Reason: "node a is silent", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	noteWait(t, s, w)
	w.Reason, w.Since = "node a is still silent", w.Since.Add(time.Hour)
	noteWait(t, s, w)

	open := waits(t, s)
	require.Len(t, open, 1)
	require.Equal(t, []string{"node", "node a is still silent"}, []string{open[0].Kind, open[0].Reason})
	require.True(t, open[0].Since.Equal(w.Since.Add(-time.Hour)), "the first time is kept")
	past := show(t, s, "m", 0).PhaseList[0].Waits
	require.Len(t, past, 1)
	require.Equal(t, []string{"gateway", "gateway_unreachable", "changed"}, []string{past[0].Kind, past[0].Code, past[0].EndedBy})
}
