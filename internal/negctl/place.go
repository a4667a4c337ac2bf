package negctl

import (
	"os"
	"strings"
	"syscall"
	"time"

	"tidewait/internal/api"
)

// placeControls are about the one call that places solo and composed phases.
var placeControls = []Control{
	{
		ID: "6", Provoked: "a solo and a composed phase that ask for the same, with room and without",
		Expected: "both get the same node, and both are refused in the same words",
		run:      soloAndComposed,
	},
	{
		ID: "7", Provoked: "a fault before, and one after, the transaction that places a composed phase",
		Expected: "before: no target node, no run, and nothing dispatched; after: the target node is there while no agent has the run",
		run:      targetBeforeDispatch,
	},
}

// twin is a phase of one machine, solo or as a composed phase of one agent.
func twin(name, memory string, composed bool) document {
	if !composed {
		return document{name: name, phases: []phase{{memory: memory, disk: "128Mi", script: "true"}}}
	}
	return document{name: name, phases: []phase{{agents: []agent{{name: "only", cpus: "1", memory: memory, disk: "128Mi", script: "true"}}}}}
}

func soloAndComposed(t *trial) {
	t.node("n1")
	t.node("n2", "TIDEWAIT_NODE_MEMORY=1200Mi")

	var nodes, refusals []string
	for _, composed := range []bool{false, true} {
		name := map[bool]string{false: "solo", true: "composed"}[composed]
		t.accepted(twin(name, "256Mi", composed))
		m := t.over(name)
		equal(t, name, "succeeded", m.Status)
		nodes = append(nodes, m.PhaseList[0].Node)
	}
	t.accepted(document{name: "pair", phases: []phase{{agents: []agent{
		{name: "a", cpus: "0.5", memory: "128Mi", disk: "64Mi", script: "true"},
		{name: "b", cpus: "0.5", memory: "128Mi", disk: "64Mi", script: "true"},
	}}}})
	pair := t.over("pair")
	equal(t, "pair of agents", "succeeded", pair.Status)
	equal(t, "node of the solo phase", t.named("n1"), nodes[0])
	equal(t, "node of the composed phase", t.named("n1"), nodes[1])
	equal(t, "node of the pair", t.named("n1"), pair.PhaseList[0].Node)

	t.accepted(work("large", "1100Mi", "sleep 600"))
	t.running("large")
	t.accepted(holder("small"))
	t.running("small")
	for _, composed := range []bool{false, true} {
		name := map[bool]string{false: "solo-waits", true: "composed-waits"}[composed]
		t.accepted(twin(name, "256Mi", composed))
		w := t.waiting(name)
		equal(t, "code of "+name, "capacity_memory", w.Code)
		refusals = append(refusals, w.Reason)
		t.cancel(name)
	}
	equal(t, "refusal of the composed phase", refusals[0], refusals[1])
	equal(t, "refusal of the solo phase",
		"needs 1 CPU, 256 MiB of memory and 128 MiB of disk (+16 MiB of memory overhead) on backend process; "+
			"the nearest of 2 nodes, "+t.named("n2")+", is short by 188 MiB of memory; 1st in line, and "+t.named("n2")+" is held for it", refusals[0])
	for _, composed := range []bool{false, true} {
		name := map[bool]string{false: "solo-never", true: "composed-never"}[composed]
		t.refused(twin(name, "2Gi", composed), "exceeds_every_node")
		refusals = append(refusals, t.show(name).Failure)
	}
	equal(t, "refusal for good of the composed phase", refusals[2], refusals[3])
}

// breakTarget makes every attempt to write a target node fail, and counts them
// where a roll-back does not reach.
const breakTarget = `
CREATE SEQUENCE negctl_faults;
CREATE FUNCTION negctl_break() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('negctl_faults');
    RAISE EXCEPTION 'a negative control breaks the transaction';
END $$;
CREATE TRIGGER negctl_break BEFORE UPDATE OF target_node_id ON missions FOR EACH ROW
    WHEN (NEW.target_node_id IS NOT NULL) EXECUTE FUNCTION negctl_break()`

const mendTarget = `
DROP TRIGGER IF EXISTS negctl_break ON missions; DROP FUNCTION IF EXISTS negctl_break; DROP SEQUENCE IF EXISTS negctl_faults`

func targetBeforeDispatch(t *trial) {
	node := t.node("n1")
	log := func() string {
		data, err := os.ReadFile(node.LogPath())
		t.must(err, "read the log of the node")
		return string(data)
	}
	mend := func() {
		_, err := t.db.Exec(t.ctx, mendTarget)
		t.must(err, "mend the database")
	}
	t.later(func() { _, _ = t.db.Exec(t.ctx, mendTarget) })
	_, err := t.db.Exec(t.ctx, breakTarget)
	t.must(err, "break the database")

	t.accepted(twin("before", "256Mi", true))
	t.until("it was tried to place the phase twice", func() (bool, error) {
		return t.count("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM negctl_faults") >= 2, nil
	})
	_, runs, _ := t.rows("before")
	equal(t, "runs after a fault before the commit", 0, runs)
	equal(t, "reservations", 0, t.count("SELECT count(*) FROM reservations WHERE released_at IS NULL"))
	equal(t, "target node", "", t.show("before").TargetNode)
	equal(t, "the agent heard of a run", false, strings.Contains(log(), "run takes a step"))
	mend()
	m := t.over("before")
	equal(t, "mission, after the fault", "succeeded", m.Status)

	// A frozen agent is to count as alive until its phase is placed.
	t.restartEngine("TIDEWAIT_FLEET_SUSPECT_AFTER=20s", "TIDEWAIT_FLEET_LEASE=30s", "TIDEWAIT_FLEET_LOST_AFTER=60s")
	heard := strings.Count(log(), "run takes a step")
	t.must(node.Signal(syscall.SIGSTOP), "freeze the agent")
	t.later(func() { _ = node.Signal(syscall.SIGCONT) })
	t.accepted(twin("after", "256Mi", true))
	t.becomes("after", "is placed", func(m api.MissionDetail) bool { return m.TargetNode != "" })
	t.must(t.engine.Kill(), "kill the engine")
	target, status := t.targetOf("after")
	equal(t, "target node while the agent is frozen and the engine dead", t.named("n1"), target)
	equal(t, "run", "starting", status)
	equal(t, "the agent heard of it", false, strings.Count(log(), "run takes a step") > heard)
	t.must(t.engine.Start(t.ctx), "start the engine")
	t.must(node.Signal(syscall.SIGCONT), "thaw the agent")
	began := time.Now()
	m = t.over("after")
	equal(t, "mission, in the end", "succeeded", m.Status)
	equal(t, "node of its last run", t.named("n1"), m.PhaseList[0].Node)
	t.measure("ended %s after the agent was thawed, with %d runs", time.Since(began).Round(100*time.Millisecond), len(m.PhaseList[0].Runs))
}

// targetOf is where a mission's phase was placed, and the status of its run, as
// the database says.
func (t *trial) targetOf(name string) (node, status string) {
	err := t.db.QueryRow(t.ctx, `
SELECT COALESCE(m.target_node_id, ''), r.status FROM missions m JOIN mission_phases p ON p.mission_id = m.id
JOIN topology_runs r ON r.phase_id = p.id WHERE m.name = $1`, t.named(name)).Scan(&node, &status)
	t.must(err, "read the target node of "+name)
	return node, status
}
