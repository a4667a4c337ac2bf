package negctl

import (
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// boundControls are about the end of a wait: two turns after the first refusal,
// and not a moment that anything else moves.
var boundControls = []Control{
	{
		ID: "4", Provoked: "two turns without room; the engine restarted, the workflow reset and continued as new in between",
		Expected: "the phase fails with wait_exceeded and the last cause, at the deadline that was set at the first refusal; exit 4",
		run:      twoTurns,
	},
	{
		ID: "5-before", Provoked: "a slot that is freed just before the bound",
		Expected: "the phase runs",
		run:      freedBefore,
	},
	{
		ID: "5-late", Provoked: "a slot that is freed just after the bound",
		Expected: "the phase has failed with wait_exceeded, and the slot is not leaked",
		run:      freedAfter,
	},
	{
		ID: "5-event", Provoked: "a slot that is freed long before the phase's next retry",
		Expected: "the phase starts at once, woken by the event",
		run:      wokenByEvent,
	},
	{
		ID: "5-race", Provoked: "the end of a run and the bound of a wait at the same moment, a thousand times",
		Expected: "each time the phase has either the node or its end, never both and never neither; nothing is leaked",
		run:      raceAtTheBound,
	},
}

func twoTurns(t *trial) {
	t.node("n1")
	t.accepted(holder("holder"))
	t.running("holder")
	t.restartEngine("TIDEWAIT_FLEET_TURN=10s")
	t.accepted(work("m", "256Mi", "true"))
	before := t.waiting("m")
	equal(t, "bound after since", 20*time.Second, before.Bound.Sub(before.Since))

	t.must(t.engine.Kill(), "kill the engine")
	t.must(t.engine.Start(t.ctx), "start the engine")
	workflow := before.WorkflowID
	first := t.currentRun(workflow)
	t.reset(workflow)
	reset := t.currentRun(workflow)
	equal(t, "reset to another run", true, reset != first)
	t.growHistory(workflow)
	t.do("phase", "nudge", t.named("m"), "work")
	t.until("the workflow continues as new", func() (bool, error) { return t.currentRun(workflow) != reset, nil })
	equal(t, "continued from the run that was reset", true, t.continuedFrom(workflow) == reset)
	exit := make(chan int, 1)
	short := work("short", "256Mi", "true", "maxWait: 10s")
	path := t.write(short)
	go func() {
		_, _, code := t.tidewait("mission", "launch", path, "--wait")
		exit <- code
	}()
	after := t.becomes("m", "is looked at again", func(m api.MissionDetail) bool {
		w := m.PhaseList[0].Wait
		return w != nil && w.CheckedAt.After(*before.CheckedAt)
	}).PhaseList[0].Wait
	t.same("since", before.Since, after.Since)
	t.same("bound", *before.Bound, *after.Bound)

	m := t.over("m")
	equal(t, "mission", "failed", m.Status)
	equal(t, "code", "wait_exceeded", m.FailureCode)
	t.contains("failure", "waited 20s for capacity, the longest allowed; at last: needs 1 CPU, 256 MiB of memory", m.Failure)
	t.contains("failure", "is short by ", m.Failure)
	t.within("end after the deadline", 5*time.Second, m.PhaseList[0].EndedAt.Sub(*before.Bound))
	_, runs, _ := t.rows("m")
	equal(t, "runs", 0, runs)
	equal(t, "exit code of a mission whose wait ran out", 4, <-exit)
}

func (t *trial) currentRun(workflow string) string {
	d, err := t.temporal.DescribeWorkflow(t.ctx, workflow, "")
	t.must(err, "describe workflow "+workflow)
	return d.WorkflowExecution.RunID
}

// reset resets a workflow to its first task, as the Web UI's button does.
func (t *trial) reset(workflow string) {
	run := t.currentRun(workflow)
	iter := t.temporal.GetWorkflowHistory(t.ctx, workflow, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iter.HasNext() {
		e, err := iter.Next()
		t.must(err, "read the history")
		if e.GetEventType() != enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			continue
		}
		_, err = t.temporal.ResetWorkflowExecution(t.ctx, &workflowservice.ResetWorkflowExecutionRequest{
			Namespace: devstack.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflow, RunId: run},
			Reason: "a negative control", WorkflowTaskFinishEventId: e.GetEventId(), RequestId: run,
		})
		t.must(err, "reset workflow "+workflow)
		return
	}
	t.fail("workflow %s has no completed task to be reset to", workflow)
}

// growHistory makes a workflow's history so large that the server suggests to
// continue as new, with signals that nobody reads.
func (t *trial) growHistory(workflow string) {
	const signals, size = 5, 1 << 20
	for range signals {
		err := t.temporal.SignalWorkflow(t.ctx, workflow, "", "ballast", make([]byte, size))
		t.must(err, "grow the history of "+workflow)
	}
}

// continuedFrom is the run that the workflow's present run goes on from.
func (t *trial) continuedFrom(workflow string) string {
	iter := t.temporal.GetWorkflowHistory(t.ctx, workflow, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !iter.HasNext() {
		t.fail("workflow %s has no history", workflow)
	}
	e, err := iter.Next()
	t.must(err, "read the history")
	return e.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
}

// rareRetries are settings under which a waiting phase is not looked at for the
// sake of its own retry while a control lasts.
const rareRetries = "TIDEWAIT_FLEET_RETRY_INTERVAL=2m"

func freedBefore(t *trial) {
	t.node("n1")
	t.restartEngine(rareRetries)
	t.accepted(holder("holder"))
	t.running("holder")
	t.accepted(work("m", "256Mi", "true", "maxWait: 10s"))
	w := t.waiting("m")
	t.pause(w.Bound.Add(-3 * time.Second))
	t.cancel("holder")
	m := t.over("m")
	equal(t, "mission", "succeeded", m.Status)
	equal(t, "its wait", "placed", m.PhaseList[0].Waits[0].EndedBy)
	freed := t.show("holder").PhaseList[0].Runs[0].FreedAt
	t.within("bound after the slot was freed", 3*time.Second, w.Bound.Sub(*freed))
	t.notLeaked()
}

func freedAfter(t *trial) {
	t.node("n1")
	t.accepted(holder("holder"))
	t.running("holder")
	t.accepted(work("m", "256Mi", "true", "maxWait: 10s"))
	w := t.waiting("m")
	m := t.over("m")
	equal(t, "mission", "failed", m.Status)
	equal(t, "code", "wait_exceeded", m.FailureCode)
	t.cancel("holder")
	freed := t.show("holder").PhaseList[0].Runs[0].FreedAt
	equal(t, "the slot was freed after the bound", true, freed.After(*w.Bound))
	_, runs, _ := t.rows("m")
	equal(t, "runs", 0, runs)
	t.notLeaked()
	t.accepted(work("next", "512Mi", "true"))
	equal(t, "the next mission", "succeeded", t.over("next").Status)
}

func wokenByEvent(t *trial) {
	t.node("n1")
	t.restartEngine(rareRetries)
	t.accepted(holder("holder"))
	t.running("holder")
	t.accepted(work("m", "256Mi", "true", "maxWait: 1h"))
	t.becomes("m", "is retried for the first time", func(m api.MissionDetail) bool {
		w := m.PhaseList[0].Wait
		return w != nil && w.WokenBy["timer"] > 0
	})
	t.cancel("holder")
	freed := t.show("holder").PhaseList[0].Runs[0].FreedAt
	const most = 10 * time.Second
	t.pauseUntil(freed.Add(most), func() bool { return t.show("m").EndedAt != nil })
	m := t.show("m")
	equal(t, "mission", "succeeded", m.Status)
	equal(t, "its wait", "placed", m.PhaseList[0].Waits[0].EndedBy)
	equal(t, "woken by", "event", m.PhaseList[0].Waits[0].WokenBy)
	t.within("placed after the slot was freed", 2*time.Second, m.PhaseList[0].Waits[0].Ended.Sub(*freed))
}

// pauseUntil waits for a moment, or for a condition that comes before.
func (t *trial) pauseUntil(moment time.Time, done func() bool) {
	for !done() && time.Now().Before(moment) {
		t.pause(time.Now().Add(100 * time.Millisecond))
	}
}

// notLeaked wants no node to hold anything.
func (t *trial) notLeaked() {
	t.until("every reservation is released", func() (bool, error) {
		return t.count("SELECT count(*) FROM reservations WHERE released_at IS NULL") == 0, nil
	})
	equal(t, "reserved in the end", 0,
		t.count("SELECT COALESCE(sum(cpu_reserved + memory_reserved + disk_reserved + slots_reserved + starting), 0)::int FROM nodes"))
}

// races is how often a freed slot and a bound meet.
const races = 1000

// raceAtTheBound lets a run end and a wait's last look begin at the same moment,
// each in a transaction of its own. Every second wait is past its bound already,
// so that only its last look may place it; the others reach theirs meanwhile. Of
// each kind the start of whoever won is put off a little, so that the two meet ever
// more closely.
func raceAtTheBound(t *trial) {
	d := t.storeOnly()
	d.register(t, "n1", 1024)
	placed, failed := 0, 0
	var lead [2]time.Duration // of the end of the run; below zero: of the last look
	const step = 100 * time.Microsecond
	for i := range races {
		holder := d.launch(t, fmt.Sprintf("holder%d", i), 1000, time.Hour)
		if d.first(t, holder).Placed == nil {
			t.fail("race %d: the node is not free any more", i)
		}
		maxWait := time.Millisecond
		if i%2 == 1 {
			maxWait = 8 * time.Millisecond
		}
		waiter := d.launch(t, fmt.Sprintf("waiter%d", i), 1000, maxWait)
		if d.first(t, waiter).Waiting == nil {
			t.fail("race %d: the phase does not wait", i)
		}
		got := d.race(t, holder, waiter, lead[i%2])
		held := d.count(t, "SELECT count(*) FROM reservations WHERE released_at IS NULL AND phase_id = $1", waiter)
		others := d.count(t, "SELECT count(*) FROM reservations WHERE released_at IS NULL AND phase_id <> $1", waiter)
		switch {
		case others != 0:
			t.fail("race %d: %d reservations are leaked", i, others)
		case got.Placed != nil && got.Ended == nil && held == 1:
			placed++
			lead[i%2] -= step
			d.end(t, waiter)
		case got.Ended != nil && got.Placed == nil && held == 0 && got.Ended.FailureCode == "wait_exceeded":
			failed++
			lead[i%2] += step
		default:
			t.fail("race %d: the last look says %q, and the phase holds %d reservations", i, placedOn(got), held)
		}
	}
	equal(t, "races", races, placed+failed)
	equal(t, "both ways at least 100 times", true, placed >= 100 && failed >= 100)
	t.measure("placed %d times, expired %d times", placed, failed)
	wrong, err := d.store.Audit(t.ctx)
	t.must(err, "audit the counters")
	equal(t, "nodes whose counters are wrong", 0, len(wrong))
	equal(t, "reserved in the end", 0, d.count(t, "SELECT (cpu_reserved + memory_reserved + disk_reserved + slots_reserved)::int FROM nodes"))
}

// race ends the holder, with the pass that this event makes, and takes the
// waiter's last look, one of them after a lead of the other. It returns what the
// waiter was told once its bound was reached.
func (d *tables) race(t *trial, holder, waiter int64, lead time.Duration) ledger.Outcome {
	var wg sync.WaitGroup
	var freeing, looking error
	wg.Go(func() {
		<-time.After(-lead)
		_, freeing = d.store.FinishPhase(t.ctx, holder, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
		if freeing == nil {
			_, freeing = d.store.Pass(t.ctx, pool, nil, ledger.WakeEvent)
		}
	})
	last := store.Look{PhaseID: waiter, Attempt: 1, Wake: ledger.WakeTimer, Expire: true}
	var got ledger.Outcome
	wg.Go(func() {
		<-time.After(lead)
		for got.Placed == nil && got.Ended == nil && looking == nil { // the database's clock may not be there yet
			got, looking = d.look(t.ctx, last)
		}
	})
	wg.Wait()
	t.must(freeing, "free the node")
	t.must(looking, "take the last look")
	return got
}
