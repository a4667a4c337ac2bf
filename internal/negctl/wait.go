package negctl

import (
	"encoding/json"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// waitControls are about what has no room now.
var waitControls = []Control{
	{
		ID: "3-full", Provoked: "a phase that finds the fleet full, looked at ten times more",
		Expected: "the launch is accepted; the phase is pending with capacity_memory, stamped once, without a run",
		run:      fleetFull,
	},
	{
		ID: "3-held", Provoked: "a long phase that fits beside the room held for the head of the line",
		Expected: "it waits with held_for_head; a short one goes by, and the head starts first when the node is freed",
		run:      heldForHead,
	},
	{
		ID: "3-busy", Provoked: "a node whose row somebody else holds, and changes, in the middle of a look",
		Expected: "a busy node is not a full one: the look waits for it, and looks a second time when it changed",
		run:      busyIsNotFull,
	},
	{
		ID: "3-microvm", Provoked: "the same as 3-full with real virtual machines",
		Expected: "capacity_memory while the first machine runs; the second boots when that is gone",
		run:      fleetFullOfMachines,
	},
}

func fleetFull(t *trial) {
	t.node("n1")
	t.accepted(holder("holder"))
	t.running("holder")
	t.accepted(work("m", "256Mi", "true"))
	w := t.waiting("m")
	equal(t, "phase", "pending", t.show("m").PhaseList[0].Status)
	equal(t, "code", "capacity_memory", w.Code)
	_, runs, _ := t.rows("m")
	equal(t, "runs", 0, runs)
	first := t.blockedSince("m")
	t.same("since, in the list of waits", first, w.Since)

	const retries = "SELECT COALESCE((w.tries ->> 'timer')::int, 0) FROM capacity_waits w JOIN mission_phases p ON p.id = w.phase_id JOIN missions m ON m.id = p.mission_id WHERE m.name = $1"
	t.until("the phase was retried ten times", func() (bool, error) { return t.count(retries, t.named("m")) >= 10, nil })
	t.same("capacity_blocked_since after 10 retries", first, t.blockedSince("m"))
	_, runs, _ = t.rows("m")
	equal(t, "runs after that", 0, runs)
	equal(t, "phase after that", "pending", t.show("m").PhaseList[0].Status)
	t.measure("waited %s", time.Since(first).Round(100*time.Millisecond))
}

// blockedSince is when a mission's phase was refused for the first time.
func (t *trial) blockedSince(name string) time.Time {
	var since *time.Time
	err := t.db.QueryRow(t.ctx, `
SELECT p.capacity_blocked_since FROM mission_phases p JOIN missions m ON m.id = p.mission_id WHERE m.name = $1`, t.named(name)).Scan(&since)
	t.must(err, "read capacity_blocked_since of "+name)
	if since == nil {
		t.fail("capacity_blocked_since of mission %s is not set", name)
	}
	return *since
}

func heldForHead(t *trial) {
	t.node("n1")
	t.accepted(work("holder", "300Mi", "sleep 600", "turn: 10m"))
	t.running("holder")
	t.accepted(work("head", "500Mi", "true"))
	equal(t, "code of the head", "capacity_memory", t.waiting("head").Code)
	t.accepted(work("long", "128Mi", "sleep 600"))
	w := t.waiting("long")
	equal(t, "code of the long phase", "held_for_head", w.Code)
	equal(t, "its place", 2, w.Position)
	t.accepted(work("short", "128Mi", "true", "turn: 1m"))
	equal(t, "short phase", "succeeded", t.over("short").Status)
	_, runs, _ := t.rows("long")
	equal(t, "runs of the long phase", 0, runs)
	t.cancel("holder")
	head := t.over("head")
	equal(t, "head", "succeeded", head.Status)
	t.running("long")
	long := t.show("long").PhaseList[0].Runs[0]
	equal(t, "the long phase started before the head", false, long.StartedAt.Before(head.PhaseList[0].Runs[0].StartedAt))
}

// busyIsNotFull holds the row of the node that fits best while a phase asks for
// one, at the level of the store.
func busyIsNotFull(t *trial) {
	d := t.storeOnly()
	d.register(t, "small", 1024)
	d.register(t, "large", 4096)

	first := d.launch(t, "first", 900, time.Hour)
	outcome := d.lookWhileHeld(t, first, "SELECT 1")
	equal(t, "asked while its node was held", "placed on small", placedOn(outcome))
	equal(t, "waits", 0, d.count(t, "SELECT (SELECT count(*) FROM capacity_waits) + (SELECT count(*) FROM wait_history)"))
	d.end(t, first)

	second := d.launch(t, "second", 900, time.Hour)
	outcome = d.lookWhileHeld(t, second, "UPDATE nodes SET admin_state = 'cordoned' WHERE id = 'small'")
	equal(t, "asked while its node was cordoned", "placed on large", placedOn(outcome))
	equal(t, "waits after that", 0, d.count(t, "SELECT (SELECT count(*) FROM capacity_waits) + (SELECT count(*) FROM wait_history)"))
	d.end(t, second)
}

func placedOn(o ledger.Outcome) string {
	switch {
	case o.Placed != nil:
		return "placed on " + o.Placed.NodeID
	case o.Waiting != nil:
		return "waits: " + string(o.Waiting.Code)
	}
	return "neither placed nor waiting"
}

// microvmNode is a node that boots real virtual machines, one at a time.
var microvmNode = []string{
	"TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=700Mi", "TIDEWAIT_NODE_BOOT_TIMEOUT=40s", "TIDEWAIT_NODE_PROBE_TIMEOUT=1m",
	"TIDEWAIT_NODE_SNAPSHOTS=0",
}

func fleetFullOfMachines(t *trial) {
	t.node("vm1", microvmNode...)
	t.wantMachines("vm1")
	micro := func(d document) document { d.backend = "microvm"; return d }
	t.accepted(micro(work("holder", "256Mi", "sleep 600")))
	t.running("holder")
	t.accepted(micro(work("m", "256Mi", "uname -r > kernel.txt")))
	w := t.waiting("m")
	equal(t, "code", "capacity_memory", w.Code)
	_, runs, _ := t.rows("m")
	equal(t, "runs", 0, runs)
	t.cancel("holder")
	m := t.over("m")
	equal(t, "mission", "succeeded", m.Status)
	run := m.PhaseList[0].Runs[0]
	equal(t, "runs in the end", 1, len(m.PhaseList[0].Runs))
	t.measure("the second machine ran kernel %s on %s", run.Kernel, run.Accel)
}

// wantMachines ends the trial as one that cannot be made where a node runs no
// virtual machines.
func (t *trial) wantMachines(node string) {
	var n api.NodeDetail
	t.must(json.Unmarshal([]byte(t.do("node", "show", t.named(node), "-o", "json")), &n), "read node "+node)
	if b := n.Backends["microvm"]; !b.OK {
		panic(impossible{"this machine runs no virtual machines: " + b.Why})
	}
}

// demandOf is the demand of one machine of the backend process with so much
// memory, in MiB.
func demandOf(memory int64) capacity.Demand {
	return capacity.Demand{Backend: pool, Resources: capacity.Resources{CPUMilli: 1000, MemoryMiB: memory, DiskMiB: 10, Slots: 1}}
}
